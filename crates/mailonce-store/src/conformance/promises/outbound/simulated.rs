//! Promises about simulated sends.

use mailonce_core::{
    control::budget::{AtLimit, Charge},
    outbound::{
        accept::{AcceptResult, NewEmail},
        email::{EmailState, Guard},
        key_binding::KeyBinding,
        policy_trace::PolicyTrace,
    },
    time::Time,
};

use crate::conformance::{
    EmailFixture, HOUR, T0, TEAM, TestStore, accept_first, all_events, fixtures::emails::charge_at, intent_email,
    keyed_email, keyless_email, list_all,
};

fn charge(limit: u64, at_limit: AtLimit) -> Charge {
    Charge { at_limit, ..charge_at(7, 1, limit, HOUR, T0) }
}

/// The email with an empty trace, to which the store adds what it decides.
fn traced(fixture: &EmailFixture, now: Time) -> NewEmail {
    let mut new_email = fixture.to_new_email(now);
    new_email.head.policy = Some(PolicyTrace::default());
    new_email
}

async fn simulate(store: &TestStore, fixture: &EmailFixture, now: Time) -> AcceptResult {
    store.simulate_accept(traced(fixture, now), now).await.unwrap()
}

/// What matters of an answer: ids and times of new emails differ from call to call.
fn shape(answer: AcceptResult) -> String {
    match answer {
        AcceptResult::First(email) => {
            let steps = email.head.policy.as_ref().map(|trace| trace.complete(true));
            format!("first {:?} {:?} {:?} {steps:?}", email.state(), email.holds, email.bind_number)
        }
        AcceptResult::KeyBound(KeyBinding::Email(email)) => format!("bound to {}", email.id),
        other => format!("{other:?}"),
    }
}

pub(super) async fn a_simulated_send_writes_nothing(store: TestStore) {
    let charge = charge(1, AtLimit::Hold);
    for fixture in
        [keyed_email("k"), keyless_email().compared(), intent_email("o", &["a@example.com", "b@example.com"])]
    {
        let fixture = fixture.with_charge(charge.clone());
        for _ in 0..2 {
            let AcceptResult::First(email) = simulate(&store, &fixture, T0).await else { panic!("{fixture:?}") };
            assert_eq!(email.state(), EmailState::Queued);
        }
    }

    assert!(list_all(&store, TEAM).await.is_empty());
    assert!(all_events(&store, TEAM).await.is_empty());
    assert_eq!(store.budget_usage(TEAM, vec![charge.counter()]).await.unwrap(), [0]);
    // The key is still free, and was never bound.
    assert_eq!(accept_first(&store, &keyed_email("k").with_charge(charge), T0).await.bind_number, 1);
}

pub(super) async fn a_simulated_send_is_answered_as_the_real_one(store: TestStore) {
    let _taken = accept_first(&store, &keyed_email("taken").text("x").with_charge(charge(9, AtLimit::Hold)), T0).await;
    let _intent = accept_first(&store, &intent_email("o", &["a@example.com"]), T0).await;
    let _compared = accept_first(&store, &keyless_email().text("hello there").compared(), T0).await;

    for fixture in [
        keyed_email("free"),
        keyed_email("taken").text("x"),
        keyed_email("full").with_charge(charge(1, AtLimit::Refuse)),
        keyed_email("held").with_charge(charge(1, AtLimit::Hold)),
        keyed_email("flagged").with_charge(charge(1, AtLimit::Flag)),
        keyed_email("alike").flagged(Guard::LooksDuplicate),
        keyed_email("alike and held").flagged(Guard::LooksDuplicate).with_charge(charge(1, AtLimit::Hold)),
        keyed_email("approval").held(Guard::Approval),
        intent_email("o", &["a@example.com", "b@example.com"]),
        keyless_email().text("hello there").compared(),
    ] {
        let simulated = shape(simulate(&store, &fixture, T0).await);
        let real = shape(store.accept(traced(&fixture, T0), T0).await.unwrap());
        assert_eq!(simulated, real, "{fixture:?}");
    }
}
