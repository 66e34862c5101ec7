//! Promises about changes of one email: cancel, reschedule, resend.

use mailonce_core::{
    dispatch::{Act, Verdict},
    email::{Email, EmailState, Refusal},
    handoff::State,
    id::EmailId,
    port::{
        store::{Change, Envelope, NewDue, Once, Resend},
        transport::Meaning,
    },
    time::Time,
};

use super::{
    DAY, HOUR, Ledger, MINUTE, SANDBOX, SECOND, T0, TEAM, about, accepted, bound_email, cancelled, capture, detail,
    keyed, keyless, kinds, listed, next_id, next_version, replayed, sent, the,
    work::{act, answer, job, lease, marked},
};

async fn reschedule(store: &Ledger, id: EmailId, due: Time, now: Time) -> Change {
    store.reschedule(TEAM, id, NewDue::uncounted(due), now).await.unwrap()
}

/// Asks for the next version of an email.
async fn resend(store: &Ledger, of: &Email, now: Time) -> Resend {
    match store.resend(next_version(of).wish(now), None, now).await.unwrap() {
        Once::Done(answer) => answer,
        other => panic!("{other:?}"),
    }
}

fn resent(answer: Resend) -> Email {
    match answer {
        Resend::First(email) => email,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_queued_email_is_cancelled_for_good(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;

    let after = cancelled(&store, email.id, T0.plus(5)).await;

    assert_eq!((after.state(), after.rev, after.settled_at), (EmailState::Cancelled, 2, Some(T0.plus(5))));
    assert_eq!(the(&store, email.id).await, after);
    assert_eq!(capture(&store, 10, T0.plus(DAY)).await, 0);
}

pub(super) async fn a_second_cancel_changes_nothing(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let after = cancelled(&store, email.id, T0.plus(1)).await;

    assert_eq!(cancelled(&store, email.id, T0.plus(2)).await, after);
    assert_eq!(kinds(&store).await, ["email.accepted", "email.cancelled"]);
}

pub(super) async fn a_cancelled_email_keeps_its_key(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let after = cancelled(&store, email.id, T0).await;

    assert_eq!(replayed(&store, &keyed("k"), T0.plus(HOUR)).await, after);
}

pub(super) async fn what_was_sent_cannot_be_cancelled(store: Ledger) {
    let email = sent(&store, &keyed("k"), T0).await;

    let answer = store.cancel(TEAM, email.id, None, T0).await.unwrap();

    assert_eq!(answer, Once::Done(Change::Refused(Refusal::TooLate, email)));
}

pub(super) async fn what_was_sent_in_part_cannot_be_cancelled(store: Ledger) {
    let draft = keyed("k").to(&["a@example.com", "b@example.com"]).apart();
    let id = accepted(&store, &draft, T0).await.id;
    assert_eq!(capture(&store, 1, T0).await, 1);
    let before = the(&store, id).await;

    let answer = store.cancel(TEAM, id, None, T0).await.unwrap();

    assert_eq!(answer, Once::Done(Change::Refused(Refusal::TooLate, before.clone())));
    assert_eq!(the(&store, id).await, before);
}

/// Two recipients of one intent: the next hop refused the first and deferred the second.
async fn half_failed(store: &Ledger) -> Email {
    let email = accepted(store, &about("o", &["a@example.com", "b@example.com"]).apart(), T0).await;
    for (leased, meaning) in lease(store, 10, T0).await.iter().zip([Meaning::Refused, Meaning::Deferred]) {
        let (verdict, _) = answer(store, &job(leased), meaning, T0).await;
        assert_eq!(verdict, Verdict::Done);
    }
    the(store, email.id).await
}

fn states(email: &Email) -> Vec<State> {
    email.handoffs.iter().map(|handoff| handoff.state).collect()
}

pub(super) async fn what_was_refused_in_part_is_cancelled_in_the_rest(store: Ledger) {
    let before = half_failed(&store).await;
    assert_eq!((states(&before), before.state()), (vec![State::Failed, State::Queued], EmailState::Queued));

    let after = cancelled(&store, before.id, T0.plus(1)).await;

    assert_eq!((states(&after), after.state()), (vec![State::Failed, State::Cancelled], EmailState::Failed));
    assert_eq!((after.settled_at, after.rev), (Some(T0.plus(1)), before.rev + 1));
    assert_eq!(the(&store, before.id).await, after);
    assert_eq!(lease(&store, 10, T0.plus(DAY)).await, []);
    assert_eq!(kinds(&store).await, ["email.accepted", "email.failed", "email.deferred", "email.cancelled"]);
    assert_eq!(cancelled(&store, before.id, T0.plus(2)).await, after, "a second cancel changes nothing");
}

pub(super) async fn recipients_are_free_again_after_a_cancel_of_the_rest(store: Ledger) {
    let email = half_failed(&store).await;
    let held = accepted(&store, &about("o", &["b@example.com"]), T0).await;
    assert_eq!(held.state(), EmailState::Held, "one of them may still get it");
    let _after = cancelled(&store, email.id, T0).await;

    let free = accepted(&store, &about("o", &["a@example.com", "c@example.com"]), T0).await;
    assert_eq!(free.state(), EmailState::Queued);
    let replay = replayed(&store, &about("o", &["a@example.com", "b@example.com"]), T0).await;
    assert_eq!(replay.id, email.id, "its own key stays bound");
}

pub(super) async fn what_was_refused_is_not_too_late_to_cancel(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    let (_verdict, failed) = answer(&store, &job, Meaning::Refused, T0).await;
    assert_eq!(failed.state(), EmailState::Failed);

    assert_eq!(cancelled(&store, job.id, T0.plus(1)).await, failed);
    assert_eq!(kinds(&store).await, ["email.accepted", "email.failed"]);
}

pub(super) async fn what_takes_another_way_can_be_cancelled(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let envelopes = vec![Envelope { transport: "other".into(), recipients: email.handoffs[0].recipients.clone() }];
    let moved = act(&store, email.id, Act::Redirect { from: SANDBOX.into(), envelopes }, T0).await;
    assert_eq!((moved.0, states(&moved.1)), (Verdict::Done, vec![State::Cancelled, State::Queued]));

    let after = cancelled(&store, email.id, T0).await;

    assert_eq!((states(&after), after.state()), (vec![State::Cancelled; 2], EmailState::Cancelled));
}

pub(super) async fn nobody_cannot_be_changed(store: Ledger) {
    let nobody = EmailId(next_id(T0));
    let mut of_nobody = keyed("k").wish(T0);
    of_nobody.head.resend_of = Some(nobody);

    assert_eq!(store.cancel(TEAM, nobody, None, T0).await.unwrap(), Once::Done(Change::Missing));
    assert_eq!(reschedule(&store, nobody, T0, T0).await, Change::Missing);
    assert_eq!(store.resend(of_nobody, None, T0).await.unwrap(), Once::Done(Resend::Missing));
}

pub(super) async fn a_scheduled_email_is_moved(store: Ledger) {
    let email = accepted(&store, &keyed("k").due(T0.plus(DAY)), T0).await;
    let Change::Email(moved) = reschedule(&store, email.id, T0.plus(HOUR), T0).await else { panic!("refused") };

    assert_eq!((moved.state(), moved.rev), (EmailState::Scheduled, 2));
    assert_eq!(store.next_due(super::SANDBOX).await.unwrap(), Some(T0.plus(HOUR)));
    assert_eq!(capture(&store, 10, T0.plus(HOUR - 1)).await, 0);
    assert_eq!(capture(&store, 10, T0.plus(HOUR)).await, 1);
    assert_eq!(kinds(&store).await, ["email.accepted", "email.rescheduled", "email.sent"]);
}

pub(super) async fn only_a_scheduled_email_is_moved(store: Ledger) {
    let queued = accepted(&store, &keyed("queued"), T0).await;
    let cancelled_one = accepted(&store, &keyed("cancelled").due(T0.plus(DAY)), T0).await;
    let cancelled_one = cancelled(&store, cancelled_one.id, T0).await;
    let sent_one = sent(&store, &keyed("sent").by("fast"), T0).await;

    for email in [queued, cancelled_one, sent_one] {
        let answer = reschedule(&store, email.id, T0.plus(HOUR), T0).await;
        assert_eq!(answer, Change::Refused(Refusal::NotScheduled, email));
    }
}

pub(super) async fn a_moved_email_keeps_its_key_and_digest(store: Ledger) {
    let draft = keyed("k").due(T0.plus(DAY));
    let email = accepted(&store, &draft, T0).await;
    let Change::Email(moved) = reschedule(&store, email.id, T0.plus(HOUR), T0).await else { panic!("refused") };

    let found = replayed(&store, &draft, T0).await;

    assert_eq!((&found, &found.digest), (&moved, &email.digest));
}

pub(super) async fn ten_resends_make_one_version(store: Ledger) {
    for (i, draft) in [keyed("k"), keyless(), about("o", &["a@example.com"])].into_iter().enumerate() {
        let email = sent(&store, &draft, T0).await;
        let next = resent(resend(&store, &email, T0.plus(1)).await);
        for _ in 0..9 {
            assert_eq!(resend(&store, &email, T0.plus(2)).await, Resend::Repeated(next.clone()), "draft {i}");
        }
        assert_eq!((next.head.version, next.head.resend_of), (2, Some(email.id)), "draft {i}");
        assert_eq!((next.state(), next.bind), (EmailState::Queued, 1), "draft {i}");
        let before = the(&store, email.id).await;
        assert_eq!((before.resent_as, before.rev), (Some(next.id), email.rev + 1), "draft {i}");
        assert_eq!(listed(&store, TEAM).await.len(), (i + 1) * 2);
        assert_eq!(kinds(&store).await.iter().filter(|kind| **kind == "email.resent").count(), i + 1);
        capture(&store, 10, T0.plus(3)).await;
    }
}

pub(super) async fn what_is_under_way_is_not_resent(store: Ledger) {
    let queued = accepted(&store, &keyed("queued"), T0).await;
    let scheduled = accepted(&store, &keyed("scheduled").due(T0.plus(DAY)), T0).await;

    for email in [queued, scheduled] {
        assert_eq!(resend(&store, &email, T0).await, Resend::Refused(Refusal::NotTerminal, email));
    }
    assert_eq!(kinds(&store).await.len(), 2);
}

pub(super) async fn a_cancelled_email_is_resent(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let email = cancelled(&store, email.id, T0).await;

    let next = resent(resend(&store, &email, T0).await);

    assert_eq!((next.state(), next.head.version), (EmailState::Queued, 2));
}

pub(super) async fn a_second_resend_within_a_day_is_refused(store: Ledger) {
    let email = sent(&store, &keyed("k"), T0).await;
    let second = resent(resend(&store, &email, T0.plus(MINUTE)).await);
    capture(&store, 10, T0.plus(MINUTE)).await;
    let second = the(&store, second.id).await;

    let too_soon = resend(&store, &second, T0.plus(MINUTE + DAY - 1)).await;
    let third = resent(resend(&store, &second, T0.plus(MINUTE + DAY)).await);

    assert_eq!(too_soon, Resend::Refused(Refusal::BudgetSpent, second));
    assert_eq!(third.head.version, 3);
}

pub(super) async fn a_resend_is_found_again_after_the_first_key_is_forgotten(store: Ledger) {
    let email = sent(&store, &keyed("k").ttl(SECOND), T0).await;
    let next = resent(resend(&store, &email, T0.plus(1)).await);
    let later = T0.plus(40 * DAY);
    let _swept = store.sweep(100, later).await.unwrap();

    assert_eq!(resend(&store, &email, later).await, Resend::Repeated(next));
}

pub(super) async fn a_version_has_a_body_and_a_key_of_its_own(store: Ledger) {
    let email = sent(&store, &keyed("k"), T0).await;
    let draft = next_version(&email).text("again");
    let wish = draft.wish(T0);
    let _answer = store.resend(wish.clone(), None, T0).await.unwrap();

    assert_eq!(detail(&store, wish.id).await.body.as_deref(), Some(&*wish.body));
    assert_eq!(bound_email(super::accept(&store, &draft, T0).await).id, wish.id);
    assert_eq!(replayed(&store, &keyed("k"), T0).await.id, email.id);
}
