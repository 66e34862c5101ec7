//! Promises about replies of the next hop, in time and late.

use mailonce_core::{
    handoff::{
        Attempt, AttemptDetails, EvidenceFinding, EvidenceSource, HandoffState, Outcome,
        action::{HandoffAction, HandoffActionStatus, LeaseRef},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
    },
    outbound::email::EmailState,
};

use crate::conformance::{
    HOUR, MINUTE, SANDBOX, SECOND, T0, TEAM, TestStore, all_events, cancel_email, event_kinds,
    fixtures::handoffs::{
        LeasedJob, NODE, SECOND_NODE, accept_and_lease, accept_and_mark, accept_with_unknown_outcome, apply_action,
        lease_handoffs, lease_only_handoff, load_handoff, marker_action, new_evidence, new_reply, outcome_action,
        own_accounts, record_attempt, retry_attempt, write_marker,
    },
    keyed_email, load_detail, load_email,
};

pub(super) async fn an_accepted_attempt_marks_the_handoff_sent(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let now = T0.plus(7);

    let reply = new_reply(ReplyMeaning::Accepted).with_remote_id(Some("<1@relay>".into()));
    let (status, email) = apply_action(&store, job.id, outcome_action(&job, reply, T0), now).await;

    assert_eq!((status, email.state(), email.settled_at), (HandoffActionStatus::Done, EmailState::Sent, Some(now)));
    assert_eq!(load_email(&store, job.id).await, email);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.sent"]);
    let last = all_events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!(
        (last.rev, last.at, &last.data["handoff"], &last.data["reply"]["code"]),
        (email.rev, now, &0.into(), &299.into())
    );
}

pub(super) async fn attempts_are_read_back_unchanged_and_in_order(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let begun = Attempt {
        handoff: 0,
        number: 1,
        at: T0,
        ended_at: None,
        outcome: None,
        reply: String::new(),
        details: AttemptDetails {
            transport: SANDBOX.into(),
            account: "A".into(),
            fence: 1,
            ..AttemptDetails::default()
        },
    };
    assert_eq!(load_detail(&store, job.id).await.attempts, std::slice::from_ref(&begun));

    let _deferred = record_attempt(&store, &job, ReplyMeaning::Deferred, T0.plus(4)).await;
    let next = write_marker(&store, lease_only_handoff(&store, T0.plus(MINUTE)).await, T0.plus(MINUTE)).await;
    let reply = TransportReply::new(ReplyMeaning::Accepted, AttemptPhase::Final, None, "grüß \"dich\"")
        .with_remote_id(Some("r-1".into()));
    let _sent = apply_action(&store, next.id, outcome_action(&next, reply, T0.plus(MINUTE)), T0.plus(MINUTE + 2)).await;

    let first = Attempt {
        at: T0.plus(4),
        ended_at: Some(T0.plus(4)),
        outcome: Some(Outcome::Deferred),
        reply: "the next hop says deferred".into(),
        details: AttemptDetails { phase: Some(AttemptPhase::Final), code: Some(299), ..begun.details.clone() },
        ..begun.clone()
    };
    let second = Attempt {
        number: 2,
        at: T0.plus(MINUTE),
        ended_at: Some(T0.plus(MINUTE + 2)),
        outcome: Some(Outcome::Accepted),
        reply: "grüß \"dich\"".into(),
        details: AttemptDetails {
            fence: 2,
            phase: Some(AttemptPhase::Final),
            remote_id: Some("r-1".into()),
            ..begun.details.clone()
        },
        ..begun
    };
    assert_eq!(load_detail(&store, job.id).await.attempts, [first, second]);
}

pub(super) async fn a_deferred_attempt_waits_for_the_backoff_or_the_requested_delay(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let (_, email) = record_attempt(&store, &job, ReplyMeaning::Deferred, T0).await;
    let after = &email.handoffs[0];
    assert_eq!((after.state, after.due_at, after.attempts), (HandoffState::Queued, Some(T0.plus(SECOND)), 1));
    assert_eq!(store.next_handoff_due(SANDBOX).await.unwrap(), Some(T0.plus(SECOND)));

    let job = write_marker(&store, lease_only_handoff(&store, T0.plus(SECOND)).await, T0.plus(SECOND)).await;
    let reply = new_reply(ReplyMeaning::Deferred).with_retry_after(Some(30 * SECOND));
    let (_, email) = apply_action(&store, job.id, outcome_action(&job, reply, T0), T0.plus(SECOND)).await;
    assert_eq!(email.handoffs[0].due_at, Some(T0.plus(31 * SECOND)));
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.deferred", "email.deferred"]);
}

pub(super) async fn a_refused_attempt_fails_the_handoff(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let (_, email) = record_attempt(&store, &job, ReplyMeaning::Refused, T0.plus(2)).await;

    assert_eq!((email.state(), email.settled_at), (EmailState::Failed, Some(T0.plus(2))));
    assert_eq!(email.handoffs[0].progress.reason.as_deref(), Some("the next hop says refused"));
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.failed"]);
}

pub(super) async fn a_transport_fault_requeues_without_using_an_attempt(store: TestStore) {
    let mut job = accept_and_mark(&store, &keyed_email("k")).await;
    for round in 1..=20 {
        let now = T0.plus(round * MINUTE);
        let (_, email) = record_attempt(&store, &job, ReplyMeaning::Fault, now).await;
        let after = &email.handoffs[0];
        assert_eq!((after.state, after.progress.transport_failures), (HandoffState::Queued, round as u32));
        job = write_marker(&store, lease_only_handoff(&store, now.plus(MINUTE)).await, now.plus(MINUTE)).await;
    }
}

pub(super) async fn a_handoff_fails_after_the_maximum_number_of_attempts(store: TestStore) {
    let mut job = accept_and_mark(&store, &keyed_email("k")).await;
    for round in 1..12 {
        let now = T0.plus(round * MINUTE);
        assert_eq!(record_attempt(&store, &job, ReplyMeaning::Deferred, now).await.1.state(), EmailState::Queued);
        job = write_marker(&store, lease_only_handoff(&store, now.plus(MINUTE)).await, now.plus(MINUTE)).await;
    }
    let (_, email) = record_attempt(&store, &job, ReplyMeaning::Deferred, T0.plus(HOUR)).await;
    assert_eq!((email.state(), email.handoffs[0].attempts), (EmailState::Failed, 12));
}

pub(super) async fn an_ambiguous_reply_makes_the_outcome_unknown(store: TestStore) {
    for meaning in [ReplyMeaning::Unknown, ReplyMeaning::Concurrent, ReplyMeaning::Mismatch] {
        let job = accept_and_mark(&store, &keyed_email(meaning.as_str())).await;
        let (status, email) = record_attempt(&store, &job, meaning, T0).await;

        let (state, work) = (email.handoffs[0].state, &email.handoffs[0].progress);
        assert_eq!(
            (status, state, &work.attempts_in_doubt[..]),
            (HandoffActionStatus::Done, HandoffState::Unknown, &[1][..])
        );
        assert_eq!((work.in_doubt_since, work.account.as_deref()), (Some(T0), Some("A")));
        assert_eq!((work.needs_person, email.settled_at), (meaning == ReplyMeaning::Mismatch, None));
        assert_eq!(email.handoffs[0].due_at, Some(T0.plus(SECOND)));
        assert_eq!(event_kinds(&store).await.last(), Some(&"email.unknown"));
    }
}

pub(super) async fn an_outcome_before_the_marker_is_recorded_as_an_attempt(store: TestStore) {
    for (meaning, state) in [
        (ReplyMeaning::Deferred, HandoffState::Queued),
        (ReplyMeaning::Fault, HandoffState::Queued),
        (ReplyMeaning::Refused, HandoffState::Failed),
    ] {
        let job = accept_and_lease(&store, &keyed_email(meaning.as_str())).await;
        let reply = TransportReply::new(meaning, AttemptPhase::Rcpt, Some(450), "before the marker");
        let (status, email) = apply_action(&store, job.id, outcome_action(&job, reply, T0.plus(-3)), T0).await;

        assert_eq!(
            (status, email.handoffs[0].state, email.handoffs[0].attempts),
            (HandoffActionStatus::Done, state, 1)
        );
        let attempts = load_detail(&store, job.id).await.attempts;
        assert_eq!(
            (attempts.len(), attempts[0].at, attempts[0].outcome),
            (1, T0.plus(-3), Some(Outcome::from_meaning(meaning)))
        );
        assert_eq!(attempts[0].details.phase, Some(AttemptPhase::Rcpt));
        assert!(!email.handoffs[0].is_in_doubt());
        if state == HandoffState::Queued {
            let _cancelled = cancel_email(&store, job.id, T0).await;
        }
    }
}

pub(super) async fn an_outcome_settles_a_marker_whose_commit_its_worker_never_saw(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let unconfirmed = LeasedJob { attempt: None, ..job };
    let (status, email) = record_attempt(&store, &unconfirmed, ReplyMeaning::Fault, T0).await;

    assert_eq!((status, email.state(), email.handoffs[0].attempts), (HandoffActionStatus::Done, EmailState::Queued, 1));
    assert_eq!(load_detail(&store, unconfirmed.id).await.attempts.len(), 1);
}

pub(super) async fn a_late_accept_corrects_the_outcome(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let _recovered = store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap();
    let (_, email) = apply_action(&store, job.id, HandoffAction::ResendByPolicy { number: 0 }, T0).await;
    assert_eq!(email.state(), EmailState::Queued);

    let (status, email) = record_attempt(&store, &job, ReplyMeaning::Accepted, T0.plus(9)).await;

    assert_eq!(
        (status, email.state(), email.settled_at),
        (HandoffActionStatus::Stale, EmailState::Sent, Some(T0.plus(9)))
    );
    assert_eq!(email, load_email(&store, job.id).await);
    assert!(!email.handoffs[0].is_in_doubt());
    let found = load_detail(&store, job.id).await;
    let late = found.evidence.last().unwrap();
    assert_eq!(
        (late.source, late.finding, late.attempt),
        (EvidenceSource::LateReply, EvidenceFinding::Accepted, Some(1))
    );
    assert_eq!(found.attempts[0].outcome, Some(Outcome::Accepted));
    assert_eq!(all_events(&store, TEAM).await.pop().unwrap().event.data["corrected"], true);
    assert_eq!(lease_handoffs(&store, 10, T0.plus(HOUR)).await, []);
}

pub(super) async fn a_late_refusal_requeues_only_when_no_other_attempt_is_unknown(store: TestStore) {
    let first = accept_with_unknown_outcome(&store, &keyed_email("k")).await;
    let second = retry_attempt(&store, &first, T0).await;
    let _unknown = record_attempt(&store, &second, ReplyMeaning::Unknown, T0).await;

    let (status, email) = record_attempt(&store, &first, ReplyMeaning::Refused, T0).await;
    assert_eq!((status, email.state()), (HandoffActionStatus::Stale, EmailState::Unknown));
    assert_eq!(load_handoff(&store, &first).await.progress.attempts_in_doubt, [2]);

    let (status, email) = record_attempt(&store, &second, ReplyMeaning::Deferred, T0.plus(3)).await;
    assert_eq!((status, email.state()), (HandoffActionStatus::Stale, EmailState::Queued));
    let after = load_handoff(&store, &first).await;
    assert_eq!((after.is_in_doubt(), after.progress.may_duplicate, after.due_at), (false, false, Some(T0.plus(3))));
    assert_eq!(event_kinds(&store).await.last(), Some(&"email.resolved"));
    assert_eq!(load_detail(&store, first.id).await.evidence.len(), 3);
}

pub(super) async fn a_stale_worker_cannot_mark_return_or_fail_a_handoff(store: TestStore) {
    let old = accept_and_lease(&store, &keyed_email("k")).await;
    let _recovered = store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap();
    let new = lease_only_handoff(&store, T0).await;
    let before = load_email(&store, old.id).await;

    let return_lease =
        HandoffAction::ReturnLease { lease: old.lease.clone(), due_at: T0.plus(HOUR), reason: "late".into() };
    for late in [marker_action(&old, b"late"), return_lease, outcome_action(&old, new_reply(ReplyMeaning::Refused), T0)]
    {
        assert_eq!(apply_action(&store, old.id, late, T0).await, (HandoffActionStatus::Stale, before.clone()));
    }
    assert_eq!(load_detail(&store, old.id).await.email, before);
    let _marked = write_marker(&store, new, T0).await;
}

pub(super) async fn an_unknown_attempt_is_retried_only_at_its_own_account(store: TestStore) {
    let job = accept_with_unknown_outcome(&store, &keyed_email("k")).await;
    let repeat = |account: &str| HandoffAction::RetryInWindow { number: 0, holder: NODE, account: account.into() };
    assert_eq!(apply_action(&store, job.id, repeat("B"), T0).await.0, HandoffActionStatus::Stale);

    let (status, email) = apply_action(&store, job.id, repeat("A"), T0).await;
    let after = &email.handoffs[0];
    assert_eq!(
        (status, after.state, after.fence, after.holder),
        (HandoffActionStatus::Done, HandoffState::Leased, 2, Some(NODE))
    );
    assert_eq!(
        (&after.progress.attempts_in_doubt[..], after.progress.unknown_checks, after.progress.may_duplicate),
        (&[1][..], 1, false)
    );
    assert_eq!(apply_action(&store, job.id, repeat("A"), T0).await.0, HandoffActionStatus::Stale);

    let elsewhere = LeasedJob { lease: LeaseRef { fence: 2, account: "B".into(), ..job.lease.clone() }, ..job.clone() };
    let (status, email) = apply_action(&store, job.id, marker_action(&elsewhere, b"other"), T0).await;
    assert_eq!(
        (status, email.state(), email.handoffs[0].attempts),
        (HandoffActionStatus::Stale, EmailState::Unknown, 1)
    );
    assert_eq!(load_email(&store, job.id).await, email);
}

pub(super) async fn a_refused_retry_leaves_the_first_attempt_unknown(store: TestStore) {
    for (meaning, state) in [
        (ReplyMeaning::Refused, EmailState::Unknown),
        (ReplyMeaning::Deferred, EmailState::Unknown),
        (ReplyMeaning::Repeated, EmailState::Sent),
    ] {
        let first = accept_with_unknown_outcome(&store, &keyed_email(meaning.as_str())).await;
        let second = retry_attempt(&store, &first, T0).await;
        let (_, email) = record_attempt(&store, &second, meaning, T0).await;
        let doubts: &[u32] = if state == EmailState::Unknown { &[1] } else { &[] };
        assert_eq!(
            (email.state(), &email.handoffs[0].progress.attempts_in_doubt[..]),
            (state, doubts),
            "{}",
            meaning.as_str()
        );
    }
}

pub(super) async fn the_resend_policy_resends_once_and_flags_may_duplicate(store: TestStore) {
    let job = accept_with_unknown_outcome(&store, &keyed_email("k")).await;
    let policy = || HandoffAction::ResendByPolicy { number: 0 };
    let (status, email) = apply_action(&store, job.id, policy(), T0).await;
    let after = &email.handoffs[0];
    assert_eq!((status, after.state, after.due_at), (HandoffActionStatus::Done, HandoffState::Queued, Some(T0)));
    assert!(after.progress.resent && after.progress.may_duplicate && after.is_in_doubt());

    // A deferred attempt is retried. After a second lost reply there is no second resend.
    let again = write_marker(&store, lease_only_handoff(&store, T0).await, T0).await;
    assert!(load_detail(&store, job.id).await.attempts[1].details.may_duplicate);
    assert_eq!(record_attempt(&store, &again, ReplyMeaning::Deferred, T0).await.1.state(), EmailState::Queued);
    let again = write_marker(&store, lease_only_handoff(&store, T0.plus(MINUTE)).await, T0).await;
    assert_eq!(record_attempt(&store, &again, ReplyMeaning::Unknown, T0).await.1.state(), EmailState::Unknown);
    assert_eq!(apply_action(&store, job.id, policy(), T0).await.0, HandoffActionStatus::Stale);
    assert_eq!(load_handoff(&store, &job).await.progress.attempts_in_doubt, [1, 3]);
}

pub(super) async fn unknown_handoffs_are_returned_when_due(store: TestStore) {
    let early = accept_with_unknown_outcome(&store, &keyed_email("early")).await;
    let late = accept_with_unknown_outcome(&store, &keyed_email("late")).await;
    let wait = |next, evidence| HandoffAction::CheckLater { number: 0, evidence, next_check_at: next };
    let noted = new_evidence(EvidenceFinding::NotFound, None, T0);
    let before = load_email(&store, late.id).await;
    let (status, email) = apply_action(&store, late.id, wait(Some(T0.plus(900)), Some(noted.clone())), T0).await;
    assert_eq!(
        (status, email.rev, email.handoffs[0].progress.unknown_checks),
        (HandoffActionStatus::Done, before.rev, 1)
    );

    let due = store.due_unknown_handoffs(&own_accounts(), 10, T0.plus(SECOND)).await.unwrap();
    let ids: Vec<_> = due.iter().map(|(email, number)| (email.id, *number)).collect();
    assert_eq!(ids, [(late.id, 0), (early.id, 0)]);
    assert_eq!(due[0].0, load_email(&store, late.id).await);
    assert_eq!(store.due_unknown_handoffs(&own_accounts(), 1, T0.plus(SECOND)).await.unwrap().len(), 1);
    assert_eq!(store.due_unknown_handoffs(&own_accounts(), 10, T0.plus(899)).await.unwrap(), []);

    assert_eq!(apply_action(&store, early.id, wait(None, None), T0).await.0, HandoffActionStatus::Done);
    assert_eq!(store.due_unknown_handoffs(&own_accounts(), 10, T0.plus(HOUR)).await.unwrap().len(), 1);
    assert_eq!(load_detail(&store, late.id).await.evidence, [noted]);
}
