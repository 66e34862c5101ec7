//! Promises about commands on one email: cancel, reschedule, resend.

use mailonce_core::{
    handoff::{
        HandoffState,
        action::{HandoffAction, HandoffActionStatus},
        envelope::Envelope,
        reply::ReplyMeaning,
    },
    id::EmailId,
    operation::IdempotentResult,
    outbound::{
        email::{Email, EmailChangeRefusal, EmailState},
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
    },
    time::Time,
};

use crate::conformance::{
    DAY, HOUR, MINUTE, SANDBOX, SECOND, T0, TEAM, TestStore, accept_and_send, accept_email, accept_first,
    accept_replay, cancel_email, capture_due, event_kinds, expect_bound_email,
    fixtures::handoffs::{accept_and_mark, apply_action, job_of, lease_handoffs, record_attempt},
    intent_email, keyed_email, keyless_email, list_all, load_detail, load_email, next_id, next_version,
};

async fn reschedule(store: &TestStore, id: EmailId, due: Time, now: Time) -> EmailChangeResult {
    store.reschedule(TEAM, id, RescheduleRequest::without_charges(due), now).await.unwrap()
}

/// Requests the next version of an email.
async fn request_resend(store: &TestStore, of: &Email, now: Time) -> EmailResendResult {
    match store.resend(next_version(of).to_new_email(now), None, now).await.unwrap() {
        IdempotentResult::Done(answer) => answer,
        other => panic!("{other:?}"),
    }
}

fn expect_resent(answer: EmailResendResult) -> Email {
    match answer {
        EmailResendResult::First(email) => email,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_cancelled_email_is_never_sent(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;

    let after = cancel_email(&store, email.id, T0.plus(5)).await;

    assert_eq!((after.state(), after.rev, after.settled_at), (EmailState::Cancelled, 2, Some(T0.plus(5))));
    assert_eq!(load_email(&store, email.id).await, after);
    assert_eq!(capture_due(&store, 10, T0.plus(DAY)).await, 0);
}

pub(super) async fn a_second_cancel_changes_nothing(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let after = cancel_email(&store, email.id, T0.plus(1)).await;

    assert_eq!(cancel_email(&store, email.id, T0.plus(2)).await, after);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.cancelled"]);
}

pub(super) async fn a_cancelled_email_keeps_its_key(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let after = cancel_email(&store, email.id, T0).await;

    assert_eq!(accept_replay(&store, &keyed_email("k"), T0.plus(HOUR)).await, after);
}

pub(super) async fn a_sent_email_cannot_be_cancelled(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k"), T0).await;

    let answer = store.cancel(TEAM, email.id, None, T0).await.unwrap();

    assert_eq!(answer, IdempotentResult::Done(EmailChangeResult::Refused(EmailChangeRefusal::TooLate, email)));
}

pub(super) async fn a_partly_sent_email_cannot_be_cancelled(store: TestStore) {
    let fixture = keyed_email("k").to(&["a@example.com", "b@example.com"]).separate_envelopes();
    let id = accept_first(&store, &fixture, T0).await.id;
    assert_eq!(capture_due(&store, 1, T0).await, 1);
    let before = load_email(&store, id).await;

    let answer = store.cancel(TEAM, id, None, T0).await.unwrap();

    assert_eq!(answer, IdempotentResult::Done(EmailChangeResult::Refused(EmailChangeRefusal::TooLate, before.clone())));
    assert_eq!(load_email(&store, id).await, before);
}

/// An email to two recipients: the next hop refused the first and deferred the second.
async fn partly_refused_email(store: &TestStore) -> Email {
    let email =
        accept_first(store, &intent_email("o", &["a@example.com", "b@example.com"]).separate_envelopes(), T0).await;
    for (leased, meaning) in
        lease_handoffs(store, 10, T0).await.iter().zip([ReplyMeaning::Refused, ReplyMeaning::Deferred])
    {
        let (status, _) = record_attempt(store, &job_of(leased), meaning, T0).await;
        assert_eq!(status, HandoffActionStatus::Done);
    }
    load_email(store, email.id).await
}

fn handoff_states(email: &Email) -> Vec<HandoffState> {
    email.handoffs.iter().map(|handoff| handoff.state).collect()
}

pub(super) async fn cancelling_a_partly_refused_email_cancels_the_other_handoffs(store: TestStore) {
    let before = partly_refused_email(&store).await;
    assert_eq!(
        (handoff_states(&before), before.state()),
        (vec![HandoffState::Failed, HandoffState::Queued], EmailState::Queued)
    );

    let after = cancel_email(&store, before.id, T0.plus(1)).await;

    assert_eq!(
        (handoff_states(&after), after.state()),
        (vec![HandoffState::Failed, HandoffState::Cancelled], EmailState::Failed)
    );
    assert_eq!((after.settled_at, after.rev), (Some(T0.plus(1)), before.rev + 1));
    assert_eq!(load_email(&store, before.id).await, after);
    assert_eq!(lease_handoffs(&store, 10, T0.plus(DAY)).await, []);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.failed", "email.deferred", "email.cancelled"]);
    assert_eq!(cancel_email(&store, before.id, T0.plus(2)).await, after, "a second cancel changes nothing");
}

pub(super) async fn cancelling_a_partly_refused_email_releases_its_recipients(store: TestStore) {
    let email = partly_refused_email(&store).await;
    let held = accept_first(&store, &intent_email("o", &["b@example.com"]), T0).await;
    assert_eq!(held.state(), EmailState::Held, "one recipient may still get it");
    let _after = cancel_email(&store, email.id, T0).await;

    let free = accept_first(&store, &intent_email("o", &["a@example.com", "c@example.com"]), T0).await;
    assert_eq!(free.state(), EmailState::Queued);
    let replay = accept_replay(&store, &intent_email("o", &["a@example.com", "b@example.com"]), T0).await;
    assert_eq!(replay.id, email.id, "its own key stays bound");
}

pub(super) async fn cancelling_a_failed_email_succeeds_and_changes_nothing(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let (_status, failed) = record_attempt(&store, &job, ReplyMeaning::Refused, T0).await;
    assert_eq!(failed.state(), EmailState::Failed);

    assert_eq!(cancel_email(&store, job.id, T0.plus(1)).await, failed);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.failed"]);
}

pub(super) async fn an_email_that_failed_over_can_be_cancelled(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let envelopes = vec![Envelope { transport: "other".into(), recipients: email.handoffs[0].recipients.clone() }];
    let moved =
        apply_action(&store, email.id, HandoffAction::FailOverEmail { from: SANDBOX.into(), envelopes }, T0).await;
    assert_eq!(
        (moved.0, handoff_states(&moved.1)),
        (HandoffActionStatus::Done, vec![HandoffState::Cancelled, HandoffState::Queued])
    );

    let after = cancel_email(&store, email.id, T0).await;

    assert_eq!((handoff_states(&after), after.state()), (vec![HandoffState::Cancelled; 2], EmailState::Cancelled));
}

pub(super) async fn commands_on_an_unknown_email_return_missing(store: TestStore) {
    let missing = EmailId(next_id(T0));
    let mut resend = keyed_email("k").to_new_email(T0);
    resend.head.resend_of = Some(missing);

    assert_eq!(
        store.cancel(TEAM, missing, None, T0).await.unwrap(),
        IdempotentResult::Done(EmailChangeResult::Missing)
    );
    assert_eq!(reschedule(&store, missing, T0, T0).await, EmailChangeResult::Missing);
    assert_eq!(store.resend(resend, None, T0).await.unwrap(), IdempotentResult::Done(EmailResendResult::Missing));
}

pub(super) async fn a_scheduled_email_can_be_rescheduled(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k").due(T0.plus(DAY)), T0).await;
    let EmailChangeResult::Changed(moved) = reschedule(&store, email.id, T0.plus(HOUR), T0).await else {
        panic!("refused")
    };

    assert_eq!((moved.state(), moved.rev), (EmailState::Scheduled, 2));
    assert_eq!(store.next_handoff_due(SANDBOX).await.unwrap(), Some(T0.plus(HOUR)));
    assert_eq!(capture_due(&store, 10, T0.plus(HOUR - 1)).await, 0);
    assert_eq!(capture_due(&store, 10, T0.plus(HOUR)).await, 1);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.rescheduled", "email.sent"]);
}

pub(super) async fn only_a_scheduled_email_can_be_rescheduled(store: TestStore) {
    let queued = accept_first(&store, &keyed_email("queued"), T0).await;
    let cancelled_one = accept_first(&store, &keyed_email("cancelled").due(T0.plus(DAY)), T0).await;
    let cancelled_one = cancel_email(&store, cancelled_one.id, T0).await;
    let sent_one = accept_and_send(&store, &keyed_email("sent").via_transport("fast"), T0).await;

    for email in [queued, cancelled_one, sent_one] {
        let answer = reschedule(&store, email.id, T0.plus(HOUR), T0).await;
        assert_eq!(answer, EmailChangeResult::Refused(EmailChangeRefusal::NotScheduled, email));
    }
}

pub(super) async fn a_rescheduled_email_keeps_its_key_and_digest(store: TestStore) {
    let fixture = keyed_email("k").due(T0.plus(DAY));
    let email = accept_first(&store, &fixture, T0).await;
    let EmailChangeResult::Changed(moved) = reschedule(&store, email.id, T0.plus(HOUR), T0).await else {
        panic!("refused")
    };

    let found = accept_replay(&store, &fixture, T0).await;

    assert_eq!((&found, &found.digest), (&moved, &email.digest));
}

pub(super) async fn ten_resends_create_one_version(store: TestStore) {
    for (i, fixture) in
        [keyed_email("k"), keyless_email(), intent_email("o", &["a@example.com"])].into_iter().enumerate()
    {
        let email = accept_and_send(&store, &fixture, T0).await;
        let next = expect_resent(request_resend(&store, &email, T0.plus(1)).await);
        for _ in 0..9 {
            assert_eq!(
                request_resend(&store, &email, T0.plus(2)).await,
                EmailResendResult::Replayed(next.clone()),
                "draft {i}"
            );
        }
        assert_eq!((next.head.version, next.head.resend_of), (2, Some(email.id)), "draft {i}");
        assert_eq!((next.state(), next.bind_number), (EmailState::Queued, 1), "draft {i}");
        let before = load_email(&store, email.id).await;
        assert_eq!((before.resent_as, before.rev), (Some(next.id), email.rev + 1), "draft {i}");
        assert_eq!(list_all(&store, TEAM).await.len(), (i + 1) * 2);
        assert_eq!(event_kinds(&store).await.iter().filter(|kind| **kind == "email.resent").count(), i + 1);
        capture_due(&store, 10, T0.plus(3)).await;
    }
}

pub(super) async fn an_unfinished_email_cannot_be_resent(store: TestStore) {
    let queued = accept_first(&store, &keyed_email("queued"), T0).await;
    let scheduled = accept_first(&store, &keyed_email("scheduled").due(T0.plus(DAY)), T0).await;

    for email in [queued, scheduled] {
        assert_eq!(
            request_resend(&store, &email, T0).await,
            EmailResendResult::Refused(EmailChangeRefusal::NotTerminal, email)
        );
    }
    assert_eq!(event_kinds(&store).await.len(), 2);
}

pub(super) async fn a_cancelled_email_can_be_resent(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let email = cancel_email(&store, email.id, T0).await;

    let next = expect_resent(request_resend(&store, &email, T0).await);

    assert_eq!((next.state(), next.head.version), (EmailState::Queued, 2));
}

pub(super) async fn a_second_resend_within_a_day_is_refused(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k"), T0).await;
    let second = expect_resent(request_resend(&store, &email, T0.plus(MINUTE)).await);
    capture_due(&store, 10, T0.plus(MINUTE)).await;
    let second = load_email(&store, second.id).await;

    let too_soon = request_resend(&store, &second, T0.plus(MINUTE + DAY - 1)).await;
    let third = expect_resent(request_resend(&store, &second, T0.plus(MINUTE + DAY)).await);

    assert_eq!(too_soon, EmailResendResult::Refused(EmailChangeRefusal::ResendBudgetSpent, second));
    assert_eq!(third.head.version, 3);
}

pub(super) async fn a_resend_is_replayed_after_the_first_key_expired(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k").ttl(SECOND), T0).await;
    let next = expect_resent(request_resend(&store, &email, T0.plus(1)).await);
    let later = T0.plus(40 * DAY);
    let _swept = store.sweep(100, later).await.unwrap();

    assert_eq!(request_resend(&store, &email, later).await, EmailResendResult::Replayed(next));
}

pub(super) async fn a_version_has_a_body_and_a_key_of_its_own(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k"), T0).await;
    let fixture = next_version(&email).text("again");
    let new_email = fixture.to_new_email(T0);
    let _answer = store.resend(new_email.clone(), None, T0).await.unwrap();

    assert_eq!(load_detail(&store, new_email.id).await.body.as_deref(), Some(&*new_email.body));
    assert_eq!(expect_bound_email(accept_email(&store, &fixture, T0).await).id, new_email.id);
    assert_eq!(accept_replay(&store, &keyed_email("k"), T0).await.id, email.id);
}
