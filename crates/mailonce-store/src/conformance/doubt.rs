//! Promises about facts from outside, processes that ended, and what a person decides.

use mailonce_core::{
    dispatch::{Act, Choice, LAPSES, Verdict},
    email::{EmailState, Refusal},
    handoff::{Evidence, Says, Source, State},
    limits,
    port::{
        store::{Acted, Change, KeyChange, Once, Recovered},
        transport::Meaning,
    },
    time::Time,
};

use super::{
    DAY, HOUR, Ledger, MINUTE, OTHER, SECOND, T0, TEAM, accepted,
    answer::mine,
    detail, first, given, keyed, kinds, operation, the,
    work::{Job, NODE, SECOND_NODE, WIRE, act, answer, fact, handoff, leased, lost, mark, marked, reply, settle, take},
};

pub(super) async fn a_named_fact_counts_once(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    let told = fact(Says::Bounced, Some("event-1"), T0);
    assert_eq!(act(&store, job.id, Act::Fact(told.clone()), T0).await.0, Verdict::Done);
    let before = detail(&store, job.id).await;

    let (verdict, email) = act(&store, job.id, Act::Fact(told.clone()), T0.plus(9)).await;
    assert_eq!((verdict, &email), (Verdict::Unchanged, &before.email));
    assert_eq!(detail(&store, job.id).await, before);
    assert_eq!(kinds(&store).await, ["email.accepted", "email.bounced"]);

    // The name counts for its email only, and a fact without a name always.
    let other = marked(&store, &keyed("other")).await;
    assert_eq!(act(&store, other.id, Act::Fact(told), T0).await.0, Verdict::Done);
    for _ in 0..2 {
        assert_eq!(act(&store, job.id, Act::Fact(fact(Says::Delayed, None, T0)), T0).await.0, Verdict::Done);
    }
    assert_eq!(detail(&store, job.id).await.evidence.len(), 3);
}

pub(super) async fn a_report_of_delay_proves_that_the_next_hop_has_it(store: Ledger) {
    let job = lost(&store, &keyed("k")).await;

    let (verdict, email) = act(&store, job.id, Act::Fact(fact(Says::Delayed, Some("event-1"), T0)), T0).await;

    assert_eq!((verdict, email.state(), email.settled_at), (Verdict::Done, EmailState::Sent, Some(T0)));
    assert!(!email.handoffs[0].is_in_doubt());
    assert_eq!(detail(&store, job.id).await.evidence.last().unwrap().says, Says::Delayed);
    assert_eq!(kinds(&store).await, ["email.accepted", "email.unknown", "email.sent", "email.resolved"]);
    assert_eq!(store.doubts(&mine(), 10, T0.plus(DAY)).await.unwrap(), []);
    assert_eq!(act(&store, job.id, Act::ResendByPolicy { number: 0 }, T0.plus(HOUR)).await.0, Verdict::Stale);
}

pub(super) async fn facts_in_any_order_end_alike(store: Ledger) {
    let facts = [Says::Accepted, Says::Delivered, Says::Bounced, Says::Complained];
    for (round, skip) in [(0, 4), (1, 3), (2, 2), (3, 1)] {
        let kept: Vec<Says> = facts.into_iter().take(skip).collect();
        let mut ends = Vec::new();
        for turn in 0..kept.len() * 2 {
            let mut order = kept.clone();
            order.rotate_left(turn / 2);
            if turn % 2 == 1 {
                order.reverse();
            }
            let job = marked(&store, &keyed(&format!("k{round}-{turn}"))).await;
            for says in &order {
                assert_eq!(act(&store, job.id, Act::Fact(fact(*says, None, T0)), T0).await.0, Verdict::Done);
            }
            ends.push(handoff(&store, &job).await.state);
            assert_eq!(detail(&store, job.id).await.evidence.len(), order.len());
        }
        let end = [State::Complained, State::Bounced, State::Delivered, State::Sent][round];
        assert_eq!(ends, vec![end; kept.len() * 2]);
    }
}

pub(super) async fn facts_are_read_back_whole_and_in_order(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    let mut told = Vec::new();
    for (i, says) in [Says::NotFound, Says::Delayed, Says::Silent, Says::Accepted, Says::Delivered].iter().enumerate() {
        let at = T0.plus(10 - i as i64);
        let once = (i % 2 == 0).then(|| format!("e{i}"));
        let attempt = (i == 1).then_some(1);
        told.push(Evidence { attempt, ..fact(*says, once.as_deref(), at) });
        assert_eq!(act(&store, job.id, Act::Fact(told[i].clone()), at).await.0, Verdict::Done);
    }
    assert_eq!(detail(&store, job.id).await.evidence, told);
    assert_eq!(the(&store, job.id).await.state(), EmailState::Delivered);
}

pub(super) async fn a_crash_before_the_marker_queues_again(store: Ledger) {
    let job = leased(&store, &keyed("k")).await;
    let recovered = store.recover(SECOND_NODE, 10, T0.plus(4)).await.unwrap();

    assert_eq!(recovered, Recovered { queued: 1, unknown: 0, ..Recovered::default() });
    let after = handoff(&store, &job).await;
    assert_eq!(
        (after.state, after.due_at, after.holder, after.work.lapses),
        (State::Queued, Some(T0.plus(4)), None, 1)
    );
    assert_eq!(detail(&store, job.id).await.evidence[0].source, Source::Crash);
    assert_eq!(store.recover(SECOND_NODE, 10, T0.plus(4)).await.unwrap(), Recovered::default());
    assert_eq!(take(&store, T0.plus(4)).await.hold.fence, 2);
}

pub(super) async fn a_crash_after_the_marker_is_unknown(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    let recovered = store.recover(SECOND_NODE, 10, T0.plus(MINUTE)).await.unwrap();

    assert_eq!(recovered, Recovered { queued: 0, unknown: 1, ..Recovered::default() });
    let after = handoff(&store, &job).await;
    assert_eq!((after.state, &after.work.doubts[..], after.holder), (State::Unknown, &[1][..], None));
    // In doubt since the marker, not since the crash was noticed.
    assert_eq!((after.work.doubt_since, after.due_at), (Some(T0), Some(T0.plus(MINUTE + SECOND))));
    assert_eq!(kinds(&store).await, ["email.accepted", "email.unknown"]);
    let told = detail(&store, job.id).await.evidence;
    assert_eq!((told.len(), told[0].says, told[0].attempt), (1, Says::Lost, Some(1)));
}

pub(super) async fn five_crashes_put_it_aside(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    for round in 1..=LAPSES {
        assert_eq!(the(&store, email.id).await.state(), EmailState::Queued, "round {round}");
        let _job = take(&store, T0).await;
        let _recovered = store.recover(SECOND_NODE, 10, T0).await.unwrap();
    }
    let after = the(&store, email.id).await;
    assert_eq!((after.state(), after.settled_at, after.handoffs[0].attempts), (EmailState::Failed, Some(T0), 0));
    assert_eq!(kinds(&store).await, ["email.accepted", "email.failed"]);
    assert_eq!(detail(&store, email.id).await.evidence.len(), LAPSES as usize);
}

pub(super) async fn a_process_that_was_heard_of_keeps_what_it_holds(store: Ledger) {
    let job = leased(&store, &keyed("k")).await;
    store.heartbeat(NODE, T0).await.unwrap();

    assert_eq!(store.recover(SECOND_NODE, 10, T0).await.unwrap(), Recovered::default());
    let job = mark(&store, job, T0).await;
    assert_eq!(store.recover(SECOND_NODE, 10, T0.plus(SECOND)).await.unwrap(), Recovered::default());
    assert_eq!(handoff(&store, &job).await.state, State::Sending);
}

pub(super) async fn a_process_hears_how_late_it_is_for_others(store: Ledger) {
    for (node, told, latest) in [(NODE, HOUR, HOUR), (SECOND_NODE, 0, HOUR), (SECOND_NODE, 2 * HOUR, 2 * HOUR)] {
        assert_eq!(store.heartbeat(node, T0.plus(told)).await.unwrap().latest, T0.plus(latest));
    }
}

pub(super) async fn a_process_takes_nothing_from_itself(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    assert_eq!(store.recover(NODE, 10, T0).await.unwrap(), Recovered::default());
    assert_eq!(handoff(&store, &job).await.state, State::Sending);
}

pub(super) async fn a_recovery_is_bounded_and_goes_on(store: Ledger) {
    for i in 0..5 {
        let job = leased(&store, &keyed(&format!("k{i}"))).await;
        if i % 2 == 0 {
            let _sending = mark(&store, job, T0).await;
        }
    }
    let mut all = Recovered::default();
    for taken in [2, 2, 1, 0] {
        let Recovered { queued, unknown, .. } = store.recover(SECOND_NODE, 2, T0).await.unwrap();
        assert_eq!(queued + unknown, taken);
        (all.queued, all.unknown) = (all.queued + queued, all.unknown + unknown);
    }
    assert_eq!(all, Recovered { queued: 2, unknown: 3, ..Recovered::default() });
}

fn resolve(choice: Choice, rev: u32, handoff: Option<u16>) -> Act {
    Act::Resolve { choice, rev, handoff, reason: "looked at it".into() }
}

pub(super) async fn a_person_resolves_with_the_rev_that_was_seen(store: Ledger) {
    for (choice, state) in [
        (Choice::Sent, EmailState::Sent),
        (Choice::Resend, EmailState::Queued),
        (Choice::Abandon, EmailState::Abandoned),
    ] {
        let job = lost(&store, &keyed(choice.word())).await;
        let before = the(&store, job.id).await;
        let stale = act(&store, job.id, resolve(choice, before.rev - 1, None), T0).await;
        assert_eq!(stale, (Verdict::Refused(Refusal::StaleRev), before.clone()));

        let (verdict, email) = act(&store, job.id, resolve(choice, before.rev, None), T0.plus(2)).await;
        assert_eq!((verdict, email.state()), (Verdict::Done, state));
        assert_eq!(email, the(&store, job.id).await);
        assert_eq!(email.handoffs[0].work.may_duplicate, choice == Choice::Resend);
        let told = detail(&store, job.id).await.evidence.pop().unwrap();
        assert_eq!((told.source, told.detail.as_str(), told.at), (Source::Person, "looked at it", T0.plus(2)));
        assert_eq!(kinds(&store).await.last(), Some(&"email.resolved"));

        let again = act(&store, job.id, resolve(choice, email.rev, None), T0).await;
        assert_eq!(again, (Verdict::Refused(Refusal::NotUnknown), email));
        if choice == Choice::Resend {
            let _aside =
                answer(&store, &mark(&store, take(&store, T0.plus(2)).await, T0).await, Meaning::Accepted, T0).await;
        }
    }
}

pub(super) async fn a_person_decides_about_one_handoff_or_all(store: Ledger) {
    let draft = keyed("k").to(&["a@example.com", "b@example.com", "c@example.com"]).apart();
    let id = accepted(&store, &draft, T0).await.id;
    for leased in super::work::lease(&store, 10, T0).await {
        let job = mark(&store, super::work::job(&leased), T0).await;
        let _unknown = answer(&store, &job, Meaning::Unknown, T0).await;
    }

    let (_, email) = act(&store, id, resolve(Choice::Sent, the(&store, id).await.rev, Some(1)), T0).await;
    let states = |email: &mailonce_core::email::Email| email.handoffs.iter().map(|h| h.state).collect::<Vec<_>>();
    assert_eq!(states(&email), [State::Unknown, State::Sent, State::Unknown]);
    let (_, email) = act(&store, id, resolve(Choice::Abandon, email.rev, None), T0).await;
    assert_eq!(states(&email), [State::Abandoned, State::Sent, State::Abandoned]);
    assert_eq!((email.settled_at, detail(&store, id).await.evidence.len()), (Some(T0), 3));
}

pub(super) async fn a_resolve_is_repeatable_under_an_operation(store: Ledger) {
    let job = lost(&store, &keyed("k")).await;
    let call = || Some(operation("op", 1, T0));
    let stale = store.act(TEAM, job.id, resolve(Choice::Sent, 1, None), call(), T0).await.unwrap();
    assert!(matches!(stale, Once::Done(Acted::Email(Verdict::Refused(_), _))), "{stale:?}");

    let rev = the(&store, job.id).await.rev;
    let done = store.act(TEAM, job.id, resolve(Choice::Sent, rev, None), call(), T0).await.unwrap();
    let after = the(&store, job.id).await;
    assert_eq!(done, Once::Done(Acted::Email(Verdict::Done, after.clone())));

    let again = store.act(TEAM, job.id, resolve(Choice::Sent, rev, None), call(), T0).await.unwrap();
    assert_eq!(again, Once::Repeated(b"answer 1".to_vec()));
    let other = Some(operation("op", 2, T0));
    let other = store.act(TEAM, job.id, resolve(Choice::Sent, rev, None), other, T0).await.unwrap();
    assert!(matches!(other, Once::Mismatch(_)), "{other:?}");
    assert_eq!(the(&store, job.id).await, after);
    assert_eq!(kinds(&store).await.iter().filter(|kind| **kind == "email.resolved").count(), 1);
}

pub(super) async fn what_is_in_doubt_is_not_cancelled_and_its_key_is_not_forgotten(store: Ledger) {
    let job = lost(&store, &keyed("k").ttl(SECOND)).await;
    for round in 0..2 {
        let now = T0.plus(100 * DAY);
        let before = the(&store, job.id).await;
        let answer = store.cancel(TEAM, job.id, None, now).await.unwrap();
        assert_eq!(answer, Once::Done(Change::Refused(Refusal::TooLate, before.clone())), "round {round}");
        let answer = store.forget_key(TEAM, given(TEAM, "k"), now).await.unwrap();
        assert_eq!(answer, KeyChange::NotTerminal(before.clone()));
        let _swept = store.sweep(100, now).await.unwrap();
        assert_eq!(super::replayed(&store, &keyed("k").ttl(SECOND), now).await, before);
        // Once more while it waits to be sent again.
        let _queued = act(&store, job.id, Act::ResendByPolicy { number: 0 }, T0).await;
    }
    assert_eq!(the(&store, job.id).await.state(), EmailState::Queued);
}

pub(super) async fn a_remote_id_is_found_only_in_its_team(store: Ledger) {
    let draft = keyed("k").to(&["a@example.com", "b@example.com"]).apart();
    let id = accepted(&store, &draft, T0).await.id;
    for leased in super::work::lease(&store, 10, T0).await {
        let job = mark(&store, super::work::job(&leased), T0).await;
        let said = reply(Meaning::Accepted).named(Some(format!("remote-{}", job.hold.number)));
        let _sent = act(&store, id, settle(&job, said, T0), T0).await;
    }
    for number in [0, 1] {
        let name = format!("remote-{number}");
        assert_eq!(store.by_remote_id(TEAM, &name).await.unwrap(), Some((id, number)));
        assert_eq!(store.by_remote_id(OTHER, &name).await.unwrap(), None);
    }
    assert_eq!(store.by_remote_id(TEAM, "remote-").await.unwrap(), None);
}

/// Everything about a marked email, after a sweep at this time.
async fn swept(store: &Ledger, job: &Job, now: Time) -> Option<(bool, bool, usize)> {
    let _swept = store.sweep(100, now).await.unwrap();
    let held = store.leased(TEAM, job.id, 0).await.unwrap()?;
    let facts = detail(store, job.id).await.evidence.len();
    Some((held.body.is_some(), held.wire.is_some_and(|wire| wire == WIRE), facts))
}

pub(super) async fn the_sweep_takes_the_wire_with_the_body_and_the_facts_last(store: Ledger) {
    let job = marked(&store, &keyed("k").ttl(SECOND)).await;
    let _sent = answer(&store, &job, Meaning::Accepted, T0).await;
    let _told = act(&store, job.id, Act::Fact(fact(Says::Delivered, Some("e"), T0)), T0).await;
    let body = T0.plus(limits::BODY_KEPT_MS);
    let traces = body.plus(limits::TOMBSTONE_MS);

    assert_eq!(swept(&store, &job, body.plus(-1)).await, Some((true, true, 1)));
    assert_eq!(swept(&store, &job, body).await, Some((false, false, 1)));
    assert_eq!(swept(&store, &job, traces.plus(-1)).await, Some((false, false, 1)));
    assert_eq!(swept(&store, &job, traces).await, None);

    // Whoever got the same id would inherit what was left behind.
    let mut heir = keyed("heir").wish(traces);
    heir.id = job.id;
    let heir = first(store.accept(heir, traces).await.unwrap());
    let found = detail(&store, heir.id).await;
    assert_eq!((found.attempts.len(), found.evidence.len()), (0, 0));
    assert_eq!(store.leased(TEAM, heir.id, 0).await.unwrap().unwrap().wire, None);
}
