//! Promises about leases and markers.

use mailonce_core::{
    handoff::{
        HandoffState,
        action::{HandoffAction, HandoffActionStatus},
        envelope::Envelope,
        lease::{Backlog, HandoffActionResult, LeaseRequest},
        reply::ReplyMeaning,
    },
    operation::IdempotentResult,
    outbound::{
        email::{EmailChangeRefusal, EmailState},
        email_commands::EmailChangeResult,
    },
};

use crate::conformance::{
    HOUR, MINUTE, OTHER_TEAM, SANDBOX, SECOND, T0, TEAM, TestStore, accept_first, cancel_email, event_kinds,
    fixtures::handoffs::{
        LeasedJob, NODE, SECOND_NODE, WIRE_BYTES, accept_and_lease, accept_and_mark, accept_with_unknown_outcome,
        apply_action, job_of, lease_handoffs, lease_only_handoff, lease_request, load_handoff, marker_action,
        record_attempt, write_marker,
    },
    keyed_email, load_detail, load_email,
};

pub(super) async fn the_longest_due_handoffs_are_leased_first(store: TestStore) {
    let mut ids = Vec::new();
    for (key, due) in [("late", 30), ("early", 10), ("middle", 20), ("not yet", 2_000)] {
        ids.push(accept_first(&store, &keyed_email(key).due(T0.plus(due)), T0).await.id);
    }

    let first: Vec<_> = lease_handoffs(&store, 2, T0.plus(1_000)).await.iter().map(|leased| leased.email.id).collect();
    let rest: Vec<_> = lease_handoffs(&store, 2, T0.plus(1_000)).await.iter().map(|leased| leased.email.id).collect();

    assert_eq!((first, rest), (vec![ids[1], ids[2]], vec![ids[0]]));
    assert_eq!(load_email(&store, ids[3]).await.state(), EmailState::Scheduled);
}

pub(super) async fn each_lease_raises_the_fence(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    for fence in 1..=3 {
        let leased = lease_handoffs(&store, 1, T0).await.remove(0);
        let after = &leased.email.handoffs[0];
        assert_eq!(
            (after.state, after.fence, after.holder, after.due_at),
            (HandoffState::Leased, fence, Some(NODE), None)
        );
        assert_eq!(load_email(&store, email.id).await, leased.email);
        assert!(leased.email.rev > email.rev);
        let return_lease =
            HandoffAction::ReturnLease { lease: job_of(&leased).lease, due_at: T0, reason: "busy".into() };
        assert_eq!(apply_action(&store, email.id, return_lease, T0).await.0, HandoffActionStatus::Done);
    }
    assert_eq!(event_kinds(&store).await, ["email.accepted"]);
}

pub(super) async fn a_leased_handoff_is_leased_to_no_other_node(store: TestStore) {
    let job = accept_and_lease(&store, &keyed_email("k")).await;
    let other = LeaseRequest { node: SECOND_NODE, ..lease_request(10) };

    assert_eq!(store.lease_handoffs(other.clone(), T0.plus(HOUR)).await.unwrap(), []);
    assert_eq!(store.capture(SANDBOX, 10, Some(T0.plus(HOUR)), T0.plus(HOUR)).await.unwrap(), 0);
    let job = write_marker(&store, job, T0).await;
    assert_eq!(store.lease_handoffs(other.clone(), T0.plus(HOUR)).await.unwrap(), []);
    let _unknown = record_attempt(&store, &job, ReplyMeaning::Unknown, T0).await;
    assert_eq!(store.lease_handoffs(other, T0.plus(HOUR)).await.unwrap(), []);
    assert_eq!(load_handoff(&store, &job).await.fence, 1);
}

pub(super) async fn a_lease_covers_one_transport_and_all_teams(store: TestStore) {
    let mine = accept_first(&store, &keyed_email("k"), T0).await.id;
    let theirs = accept_first(&store, &keyed_email("k").team(OTHER_TEAM), T0).await.id;
    let _elsewhere = accept_first(&store, &keyed_email("elsewhere").via_transport("relay"), T0).await;

    let ids: Vec<_> = lease_handoffs(&store, 10, T0).await.iter().map(|leased| leased.email.id).collect();

    assert_eq!(ids, [mine, theirs]);
}

pub(super) async fn handoffs_to_excluded_domains_are_skipped(store: TestStore) {
    let slow = accept_first(&store, &keyed_email("slow").to(&["a@slow.test"]), T0).await.id;
    let mixed = accept_first(&store, &keyed_email("mixed").to(&["a@example.com", "b@slow.test"]), T0).await.id;
    let near = accept_first(&store, &keyed_email("near").to(&["a@very.slow.test"]), T0).await.id;
    let busy = LeaseRequest { excluded_domains: vec!["slow.test".into(), "other.test".into()], ..lease_request(1) };

    let ids: Vec<_> =
        store.lease_handoffs(busy.clone(), T0).await.unwrap().iter().map(|leased| leased.email.id).collect();
    assert_eq!(ids, [near]);
    assert_eq!(store.lease_handoffs(busy, T0).await.unwrap(), []);
    let ids: Vec<_> = lease_handoffs(&store, 10, T0).await.iter().map(|leased| leased.email.id).collect();
    assert_eq!(ids, [slow, mixed]);
}

pub(super) async fn a_scheduled_handoff_is_leased_only_when_due_and_requested(store: TestStore) {
    let id = accept_first(&store, &keyed_email("k").due(T0.plus(HOUR)), T0).await.id;
    let by = |scheduled_by| LeaseRequest { schedule_cutoff: scheduled_by, ..lease_request(10) };

    assert_eq!(lease_handoffs(&store, 10, T0.plus(HOUR - 1)).await, []);
    assert_eq!(store.lease_handoffs(by(None), T0.plus(HOUR)).await.unwrap(), []);
    // Ledger time is ahead of the clock that decides when scheduled emails are due.
    let early = by(Some(T0.plus(HOUR - 1)));
    assert_eq!(store.lease_handoffs(early.clone(), T0.plus(2 * HOUR)).await.unwrap(), []);
    assert_eq!(store.capture(SANDBOX, 10, early.schedule_cutoff, T0.plus(2 * HOUR)).await.unwrap(), 0);
    assert_eq!(store.capture(SANDBOX, 10, None, T0.plus(2 * HOUR)).await.unwrap(), 0);
    assert_eq!(lease_only_handoff(&store, T0.plus(HOUR)).await.id, id);
}

pub(super) async fn a_lease_returns_the_body_and_after_a_marker_the_frozen_bytes(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let body = load_detail(&store, email.id).await.body;
    let first = lease_handoffs(&store, 1, T0).await.remove(0);
    assert!(body.is_some());
    assert_eq!((&first.body, &first.frozen_bytes), (&body, &None));

    let marked = write_marker(&store, job_of(&first), T0).await;
    let held = store.leased_handoff(TEAM, email.id, 0).await.unwrap().unwrap();
    assert_eq!(
        (held.email, held.handoff, held.body, held.frozen_bytes.as_deref()),
        (load_email(&store, email.id).await, 0, body.clone(), Some(WIRE_BYTES))
    );

    let _deferred = record_attempt(&store, &marked, ReplyMeaning::Deferred, T0).await;
    let second = lease_handoffs(&store, 1, T0.plus(MINUTE)).await.remove(0);
    assert_eq!((second.body, second.frozen_bytes.as_deref()), (body, Some(WIRE_BYTES)));
}

pub(super) async fn bytes_are_frozen_once_for_each_transport(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let _deferred = record_attempt(&store, &job, ReplyMeaning::Deferred, T0).await;
    let again = lease_only_handoff(&store, T0.plus(MINUTE)).await;
    assert_eq!(apply_action(&store, again.id, marker_action(&again, b"other"), T0).await.0, HandoffActionStatus::Done);
    let wire =
        |store: TestStore| async move { store.leased_handoff(TEAM, job.id, 0).await.unwrap().unwrap().frozen_bytes };
    assert_eq!(wire(store.clone()).await.as_deref(), Some(WIRE_BYTES));

    let again = LeasedJob { attempt: Some(2), ..again };
    let _deferred = record_attempt(&store, &again, ReplyMeaning::Deferred, T0).await;
    let fail_over = HandoffAction::FailOverHandoff { number: 0, from: SANDBOX.into(), to: "relay".into() };
    assert_eq!(apply_action(&store, again.id, fail_over, T0).await.0, HandoffActionStatus::Done);
    assert_eq!(wire(store.clone()).await, None);
}

pub(super) async fn a_marker_needs_the_current_fence(store: TestStore) {
    let old = accept_and_lease(&store, &keyed_email("k")).await;
    let return_lease = HandoffAction::ReturnLease { lease: old.lease.clone(), due_at: T0, reason: "busy".into() };
    assert_eq!(apply_action(&store, old.id, return_lease, T0).await.0, HandoffActionStatus::Done);
    let new = lease_only_handoff(&store, T0).await;
    let before = load_email(&store, old.id).await;

    let (status, email) = apply_action(&store, old.id, marker_action(&old, b"stale"), T0).await;
    assert_eq!((status, &email), (HandoffActionStatus::Stale, &before));
    let found = load_detail(&store, old.id).await;
    assert_eq!((&found.email, found.attempts.len()), (&before, 0));

    let new = write_marker(&store, new, T0).await;
    assert_eq!(apply_action(&store, new.id, marker_action(&new, b"twice"), T0).await.0, HandoffActionStatus::Stale);
    let found = load_detail(&store, new.id).await;
    assert_eq!((found.attempts.len(), found.attempts[0].outcome, found.attempts[0].at), (1, None, T0));
    assert_eq!(store.leased_handoff(TEAM, new.id, 0).await.unwrap().unwrap().frozen_bytes.as_deref(), Some(WIRE_BYTES));
}

pub(super) async fn handoffs_of_one_email_proceed_independently(store: TestStore) {
    let fixture = keyed_email("k").to(&["a@example.com", "b@example.com", "c@example.com"]).separate_envelopes();
    let id = accept_first(&store, &fixture, T0).await.id;
    let jobs: Vec<LeasedJob> = lease_handoffs(&store, 10, T0).await.iter().map(job_of).collect();
    assert_eq!(jobs.iter().map(|job| job.lease.number).collect::<Vec<_>>(), [0, 1, 2]);

    let one = write_marker(&store, jobs[1].clone(), T0).await;
    let _sent = record_attempt(&store, &one, ReplyMeaning::Accepted, T0).await;
    let two = write_marker(&store, jobs[2].clone(), T0).await;
    let (_, email) = record_attempt(&store, &two, ReplyMeaning::Refused, T0).await;

    let states: Vec<HandoffState> = email.handoffs.iter().map(|handoff| handoff.state).collect();
    assert_eq!(states, [HandoffState::Leased, HandoffState::Sent, HandoffState::Failed]);
    let numbers: Vec<_> = load_detail(&store, id).await.attempts.iter().map(|a| (a.handoff, a.number)).collect();
    assert_eq!((numbers, email.settled_at), (vec![(1, 1), (2, 1)], None));
}

pub(super) async fn a_cancel_makes_the_marker_of_a_lease_stale(store: TestStore) {
    let job = accept_and_lease(&store, &keyed_email("k")).await;
    assert_eq!(cancel_email(&store, job.id, T0).await.state(), EmailState::Cancelled);

    assert_eq!(apply_action(&store, job.id, marker_action(&job, WIRE_BYTES), T0).await.0, HandoffActionStatus::Stale);

    let found = load_detail(&store, job.id).await;
    assert_eq!(
        (found.email.state(), found.attempts.len(), found.email.handoffs[0].holder),
        (EmailState::Cancelled, 0, None)
    );
    assert_eq!(store.leased_handoff(TEAM, job.id, 0).await.unwrap().unwrap().frozen_bytes, None);
}

pub(super) async fn a_cancel_after_the_marker_is_too_late(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;

    let answer = store.cancel(TEAM, job.id, None, T0).await.unwrap();

    let refused = EmailChangeResult::Refused(EmailChangeRefusal::TooLate, load_email(&store, job.id).await);
    assert_eq!(
        (answer, load_handoff(&store, &job).await.state),
        (IdempotentResult::Done(refused), HandoffState::Sending)
    );
}

pub(super) async fn a_returned_lease_waits_for_its_new_due_time(store: TestStore) {
    let job = accept_and_lease(&store, &keyed_email("k")).await;
    let due = T0.plus(5 * SECOND);
    let return_lease =
        HandoffAction::ReturnLease { lease: job.lease.clone(), due_at: due, reason: "the breaker is open".into() };
    assert_eq!(apply_action(&store, job.id, return_lease, T0).await.0, HandoffActionStatus::Done);

    let after = load_handoff(&store, &job).await;
    assert_eq!((after.state, after.due_at, after.attempts), (HandoffState::Queued, Some(due), 0));
    assert_eq!((after.holder, after.progress.reason.as_deref()), (None, Some("the breaker is open")));
    assert_eq!(store.next_handoff_due(SANDBOX).await.unwrap(), Some(due));
    assert_eq!(lease_handoffs(&store, 10, due.plus(-1)).await, []);
    assert_eq!(lease_only_handoff(&store, due).await.id, job.id);
}

pub(super) async fn a_handoff_fails_over_only_before_its_first_attempt(store: TestStore) {
    let fail_over =
        |from: &str, to: &str| HandoffAction::FailOverHandoff { number: 0, from: from.into(), to: to.into() };
    let id = accept_first(&store, &keyed_email("k").via_transport("relay"), T0).await.id;
    assert_eq!(apply_action(&store, id, fail_over("nowhere", SANDBOX), T0).await.0, HandoffActionStatus::Stale);
    let (status, email) = apply_action(&store, id, fail_over("relay", SANDBOX), T0).await;
    assert_eq!((status, email.handoffs[0].transport.as_str()), (HandoffActionStatus::Done, SANDBOX));
    assert_eq!(store.next_handoff_due("relay").await.unwrap(), None);

    let job = lease_only_handoff(&store, T0).await;
    assert_eq!(apply_action(&store, id, fail_over(SANDBOX, "relay"), T0).await.0, HandoffActionStatus::Stale);
    let job = write_marker(&store, job, T0).await;
    assert_eq!(apply_action(&store, id, fail_over(SANDBOX, "relay"), T0).await.0, HandoffActionStatus::Stale);
    let _unknown = record_attempt(&store, &job, ReplyMeaning::Unknown, T0).await;
    let (_, email) = apply_action(&store, id, HandoffAction::ResendByPolicy { number: 0 }, T0).await;
    assert_eq!(email.handoffs[0].state, HandoffState::Queued);
    assert_eq!(apply_action(&store, id, fail_over(SANDBOX, "relay"), T0).await.0, HandoffActionStatus::Stale);
    assert_eq!(load_email(&store, id).await.handoffs[0].transport, SANDBOX);
}

pub(super) async fn a_whole_email_can_fail_over_with_other_envelopes(store: TestStore) {
    let fixture = keyed_email("k").to(&["a@example.com", "b@example.com"]).separate_envelopes().via_transport("relay");
    let id = accept_first(&store, &fixture, T0).await.id;
    let all = vec!["a@example.com".to_owned(), "b@example.com".to_owned()];
    let fail_over = HandoffAction::FailOverEmail {
        from: "relay".into(),
        envelopes: vec![Envelope { transport: SANDBOX.into(), recipients: all.clone() }],
    };

    let (status, email) = apply_action(&store, id, fail_over.clone(), T0.plus(1)).await;

    assert_eq!((status, email.handoffs.len()), (HandoffActionStatus::Done, 3));
    assert_eq!(load_email(&store, id).await, email);
    assert_eq!((&email.handoffs[2].recipients, email.handoffs[2].state), (&all, HandoffState::Queued));
    assert_eq!(store.next_handoff_due("relay").await.unwrap(), None);
    assert_eq!(apply_action(&store, id, fail_over, T0.plus(2)).await.0, HandoffActionStatus::Stale);
    let job = lease_only_handoff(&store, T0.plus(3)).await;
    assert_eq!((job.id, job.lease.number), (id, 2));
    let job = write_marker(&store, job, T0.plus(3)).await;
    let (_, sent) = record_attempt(&store, &job, ReplyMeaning::Accepted, T0.plus(4)).await;
    assert_eq!(sent.state(), EmailState::Sent);
    assert_eq!(load_email(&store, id).await, sent);
}

pub(super) async fn handoffs_of_another_team_cannot_be_changed(store: TestStore) {
    let job = accept_and_lease(&store, &keyed_email("k")).await;
    let before = load_email(&store, job.id).await;

    let answer = store.apply_action(OTHER_TEAM, job.id, marker_action(&job, WIRE_BYTES), None, T0).await.unwrap();

    assert_eq!(answer, IdempotentResult::Done(HandoffActionResult::Missing));
    assert_eq!(store.leased_handoff(OTHER_TEAM, job.id, 0).await.unwrap(), None);
    assert_eq!(load_email(&store, job.id).await, before);
}

pub(super) async fn the_backlog_counts_waiting_and_unknown_handoffs(store: TestStore) {
    assert_eq!(store.backlog().await.unwrap(), Backlog::default());
    let _lost = accept_with_unknown_outcome(&store, &keyed_email("lost")).await;
    let _sending = accept_and_mark(&store, &keyed_email("sending")).await;
    let two = keyed_email("two").to(&["a@example.com", "b@example.com"]).separate_envelopes();
    let _two = accept_first(&store, &two, T0.plus(5)).await;
    let _later = accept_first(&store, &keyed_email("later").due(T0.plus(HOUR)), T0).await;
    let _relay = accept_first(&store, &keyed_email("relay").via_transport("relay").team(OTHER_TEAM), T0.plus(9)).await;

    let waiting = vec![("relay".into(), 1), (SANDBOX.into(), 3)];
    let wanted = Backlog { waiting, unknown: 1, oldest_due_at: Some(T0.plus(5)) };
    assert_eq!(store.backlog().await.unwrap(), wanted);
}
