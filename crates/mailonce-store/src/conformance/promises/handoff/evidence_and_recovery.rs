//! Promises about evidence, recovery after a crash, and decisions of people about unknown handoffs.

use mailonce_core::{
    handoff::{
        Evidence, EvidenceFinding, EvidenceSource, HandoffState,
        action::{HandoffAction, HandoffActionStatus, MAX_LEASE_LAPSES, Resolution},
        lease::HandoffActionResult,
        reply::ReplyMeaning,
    },
    installation::RecoveryCounts,
    limits,
    operation::IdempotentResult,
    outbound::{
        email::{EmailChangeRefusal, EmailState},
        email_commands::EmailChangeResult,
        key_binding::KeyChangeResult,
    },
    time::Time,
};

use crate::conformance::{
    DAY, HOUR, MINUTE, OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first, accept_replay, event_kinds, expect_first,
    fixtures::handoffs::{
        LeasedJob, NODE, SECOND_NODE, WIRE_BYTES, accept_and_lease, accept_and_mark, accept_with_unknown_outcome,
        apply_action, job_of, lease_handoffs, lease_only_handoff, load_handoff, new_evidence, new_reply,
        outcome_action, own_accounts, record_attempt, resolve_action, write_marker,
    },
    given_key_hash, keyed_email, load_detail, load_email, new_operation,
};

pub(super) async fn evidence_with_a_dedupe_id_counts_once(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let evidence = new_evidence(EvidenceFinding::Bounced, Some("event-1"), T0);
    assert_eq!(
        apply_action(&store, job.id, HandoffAction::AddEvidence(evidence.clone()), T0).await.0,
        HandoffActionStatus::Done
    );
    let before = load_detail(&store, job.id).await;

    let (status, email) = apply_action(&store, job.id, HandoffAction::AddEvidence(evidence.clone()), T0.plus(9)).await;
    assert_eq!((status, &email), (HandoffActionStatus::Unchanged, &before.email));
    assert_eq!(load_detail(&store, job.id).await, before);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.bounced"]);

    // The deduplication id counts per email, and evidence without one always counts.
    let other = accept_and_mark(&store, &keyed_email("other")).await;
    assert_eq!(
        apply_action(&store, other.id, HandoffAction::AddEvidence(evidence), T0).await.0,
        HandoffActionStatus::Done
    );
    for _ in 0..2 {
        assert_eq!(
            apply_action(
                &store,
                job.id,
                HandoffAction::AddEvidence(new_evidence(EvidenceFinding::Delayed, None, T0)),
                T0
            )
            .await
            .0,
            HandoffActionStatus::Done
        );
    }
    assert_eq!(load_detail(&store, job.id).await.evidence.len(), 3);
}

pub(super) async fn a_delay_report_proves_that_the_email_was_sent(store: TestStore) {
    let job = accept_with_unknown_outcome(&store, &keyed_email("k")).await;

    let (status, email) = apply_action(
        &store,
        job.id,
        HandoffAction::AddEvidence(new_evidence(EvidenceFinding::Delayed, Some("event-1"), T0)),
        T0,
    )
    .await;

    assert_eq!((status, email.state(), email.settled_at), (HandoffActionStatus::Done, EmailState::Sent, Some(T0)));
    assert!(!email.handoffs[0].is_in_doubt());
    assert_eq!(load_detail(&store, job.id).await.evidence.last().unwrap().finding, EvidenceFinding::Delayed);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.unknown", "email.sent", "email.resolved"]);
    assert_eq!(store.due_unknown_handoffs(&own_accounts(), 10, T0.plus(DAY)).await.unwrap(), []);
    assert_eq!(
        apply_action(&store, job.id, HandoffAction::ResendByPolicy { number: 0 }, T0.plus(HOUR)).await.0,
        HandoffActionStatus::Stale
    );
}

pub(super) async fn evidence_in_any_order_gives_the_same_state(store: TestStore) {
    let findings =
        [EvidenceFinding::Accepted, EvidenceFinding::Delivered, EvidenceFinding::Bounced, EvidenceFinding::Complained];
    for (round, skip) in [(0, 4), (1, 3), (2, 2), (3, 1)] {
        let kept: Vec<EvidenceFinding> = findings.into_iter().take(skip).collect();
        let mut ends = Vec::new();
        for rotation in 0..kept.len() * 2 {
            let mut order = kept.clone();
            order.rotate_left(rotation / 2);
            if rotation % 2 == 1 {
                order.reverse();
            }
            let job = accept_and_mark(&store, &keyed_email(&format!("k{round}-{rotation}"))).await;
            for says in &order {
                assert_eq!(
                    apply_action(&store, job.id, HandoffAction::AddEvidence(new_evidence(*says, None, T0)), T0).await.0,
                    HandoffActionStatus::Done
                );
            }
            ends.push(load_handoff(&store, &job).await.state);
            assert_eq!(load_detail(&store, job.id).await.evidence.len(), order.len());
        }
        let end = [HandoffState::Complained, HandoffState::Bounced, HandoffState::Delivered, HandoffState::Sent][round];
        assert_eq!(ends, vec![end; kept.len() * 2]);
    }
}

pub(super) async fn evidence_is_read_back_unchanged_and_in_order(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let mut expected = Vec::new();
    for (i, says) in [
        EvidenceFinding::NotFound,
        EvidenceFinding::Delayed,
        EvidenceFinding::Silent,
        EvidenceFinding::Accepted,
        EvidenceFinding::Delivered,
    ]
    .iter()
    .enumerate()
    {
        let at = T0.plus(10 - i as i64);
        let once = (i % 2 == 0).then(|| format!("e{i}"));
        let attempt = (i == 1).then_some(1);
        expected.push(Evidence { attempt, ..new_evidence(*says, once.as_deref(), at) });
        assert_eq!(
            apply_action(&store, job.id, HandoffAction::AddEvidence(expected[i].clone()), at).await.0,
            HandoffActionStatus::Done
        );
    }
    assert_eq!(load_detail(&store, job.id).await.evidence, expected);
    assert_eq!(load_email(&store, job.id).await.state(), EmailState::Delivered);
}

pub(super) async fn a_crash_before_the_marker_requeues_the_handoff(store: TestStore) {
    let job = accept_and_lease(&store, &keyed_email("k")).await;
    let recovered = store.recover_dead_nodes(SECOND_NODE, 10, T0.plus(4)).await.unwrap();

    assert_eq!(recovered, RecoveryCounts { queued: 1, unknown: 0, ..RecoveryCounts::default() });
    let after = load_handoff(&store, &job).await;
    assert_eq!(
        (after.state, after.due_at, after.holder, after.progress.lost_leases),
        (HandoffState::Queued, Some(T0.plus(4)), None, 1)
    );
    assert_eq!(load_detail(&store, job.id).await.evidence[0].source, EvidenceSource::Crash);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0.plus(4)).await.unwrap(), RecoveryCounts::default());
    assert_eq!(lease_only_handoff(&store, T0.plus(4)).await.lease.fence, 2);
}

pub(super) async fn a_crash_after_the_marker_makes_the_outcome_unknown(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let recovered = store.recover_dead_nodes(SECOND_NODE, 10, T0.plus(MINUTE)).await.unwrap();

    assert_eq!(recovered, RecoveryCounts { queued: 0, unknown: 1, ..RecoveryCounts::default() });
    let after = load_handoff(&store, &job).await;
    assert_eq!(
        (after.state, &after.progress.attempts_in_doubt[..], after.holder),
        (HandoffState::Unknown, &[1][..], None)
    );
    // Unknown since the marker, not since the crash was noticed.
    assert_eq!((after.progress.in_doubt_since, after.due_at), (Some(T0), Some(T0.plus(MINUTE + SECOND))));
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.unknown"]);
    let evidence = load_detail(&store, job.id).await.evidence;
    assert_eq!((evidence.len(), evidence[0].finding, evidence[0].attempt), (1, EvidenceFinding::Lost, Some(1)));
}

pub(super) async fn a_handoff_fails_after_five_crashes_before_the_marker(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    for round in 1..=MAX_LEASE_LAPSES {
        assert_eq!(load_email(&store, email.id).await.state(), EmailState::Queued, "round {round}");
        let _job = lease_only_handoff(&store, T0).await;
        let _recovered = store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap();
    }
    let after = load_email(&store, email.id).await;
    assert_eq!((after.state(), after.settled_at, after.handoffs[0].attempts), (EmailState::Failed, Some(T0), 0));
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.failed"]);
    assert_eq!(load_detail(&store, email.id).await.evidence.len(), MAX_LEASE_LAPSES as usize);
}

pub(super) async fn a_node_with_a_recent_heartbeat_keeps_its_leases(store: TestStore) {
    let job = accept_and_lease(&store, &keyed_email("k")).await;
    store.heartbeat(NODE, T0).await.unwrap();

    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap(), RecoveryCounts::default());
    let job = write_marker(&store, job, T0).await;
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0.plus(SECOND)).await.unwrap(), RecoveryCounts::default());
    assert_eq!(load_handoff(&store, &job).await.state, HandoffState::Sending);
}

pub(super) async fn a_heartbeat_returns_the_latest_time_of_all_nodes(store: TestStore) {
    for (node, sent, latest) in [(NODE, HOUR, HOUR), (SECOND_NODE, 0, HOUR), (SECOND_NODE, 2 * HOUR, 2 * HOUR)] {
        assert_eq!(store.heartbeat(node, T0.plus(sent)).await.unwrap().latest_time, T0.plus(latest));
    }
}

pub(super) async fn a_node_does_not_reclaim_its_own_leases(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    assert_eq!(store.recover_dead_nodes(NODE, 10, T0).await.unwrap(), RecoveryCounts::default());
    assert_eq!(load_handoff(&store, &job).await.state, HandoffState::Sending);
}

pub(super) async fn a_recovery_is_bounded_and_can_be_continued(store: TestStore) {
    for i in 0..5 {
        let job = accept_and_lease(&store, &keyed_email(&format!("k{i}"))).await;
        if i % 2 == 0 {
            let _sending = write_marker(&store, job, T0).await;
        }
    }
    let mut all = RecoveryCounts::default();
    for taken in [2, 2, 1, 0] {
        let RecoveryCounts { queued, unknown, .. } = store.recover_dead_nodes(SECOND_NODE, 2, T0).await.unwrap();
        assert_eq!(queued + unknown, taken);
        (all.queued, all.unknown) = (all.queued + queued, all.unknown + unknown);
    }
    assert_eq!(all, RecoveryCounts { queued: 2, unknown: 3, ..RecoveryCounts::default() });
}

pub(super) async fn resolving_an_unknown_handoff_needs_the_current_rev(store: TestStore) {
    for (choice, state) in [
        (Resolution::Sent, EmailState::Sent),
        (Resolution::Resend, EmailState::Queued),
        (Resolution::Abandon, EmailState::Abandoned),
    ] {
        let job = accept_with_unknown_outcome(&store, &keyed_email(choice.as_str())).await;
        let before = load_email(&store, job.id).await;
        let stale = apply_action(&store, job.id, resolve_action(choice, before.rev - 1, None), T0).await;
        assert_eq!(stale, (HandoffActionStatus::Refused(EmailChangeRefusal::StaleRev), before.clone()));

        let (status, email) = apply_action(&store, job.id, resolve_action(choice, before.rev, None), T0.plus(2)).await;
        assert_eq!((status, email.state()), (HandoffActionStatus::Done, state));
        assert_eq!(email, load_email(&store, job.id).await);
        assert_eq!(email.handoffs[0].progress.may_duplicate, choice == Resolution::Resend);
        let evidence = load_detail(&store, job.id).await.evidence.pop().unwrap();
        assert_eq!(
            (evidence.source, evidence.detail.as_str(), evidence.at),
            (EvidenceSource::Person, "looked at it", T0.plus(2))
        );
        assert_eq!(event_kinds(&store).await.last(), Some(&"email.resolved"));

        let again = apply_action(&store, job.id, resolve_action(choice, email.rev, None), T0).await;
        assert_eq!(again, (HandoffActionStatus::Refused(EmailChangeRefusal::NotUnknown), email));
        if choice == Resolution::Resend {
            let _aside = record_attempt(
                &store,
                &write_marker(&store, lease_only_handoff(&store, T0.plus(2)).await, T0).await,
                ReplyMeaning::Accepted,
                T0,
            )
            .await;
        }
    }
}

pub(super) async fn a_resolution_covers_one_handoff_or_all(store: TestStore) {
    let fixture = keyed_email("k").to(&["a@example.com", "b@example.com", "c@example.com"]).separate_envelopes();
    let id = accept_first(&store, &fixture, T0).await.id;
    for leased in lease_handoffs(&store, 10, T0).await {
        let job = write_marker(&store, job_of(&leased), T0).await;
        let _unknown = record_attempt(&store, &job, ReplyMeaning::Unknown, T0).await;
    }

    let (_, email) =
        apply_action(&store, id, resolve_action(Resolution::Sent, load_email(&store, id).await.rev, Some(1)), T0).await;
    let states =
        |email: &mailonce_core::outbound::email::Email| email.handoffs.iter().map(|h| h.state).collect::<Vec<_>>();
    assert_eq!(states(&email), [HandoffState::Unknown, HandoffState::Sent, HandoffState::Unknown]);
    let (_, email) = apply_action(&store, id, resolve_action(Resolution::Abandon, email.rev, None), T0).await;
    assert_eq!(states(&email), [HandoffState::Abandoned, HandoffState::Sent, HandoffState::Abandoned]);
    assert_eq!((email.settled_at, load_detail(&store, id).await.evidence.len()), (Some(T0), 3));
}

pub(super) async fn a_resolution_under_an_operation_is_replayed(store: TestStore) {
    let job = accept_with_unknown_outcome(&store, &keyed_email("k")).await;
    let call = || Some(new_operation("op", 1, T0));
    let stale = store.apply_action(TEAM, job.id, resolve_action(Resolution::Sent, 1, None), call(), T0).await.unwrap();
    assert!(
        matches!(stale, IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Refused(_), _))),
        "{stale:?}"
    );

    let rev = load_email(&store, job.id).await.rev;
    let done = store.apply_action(TEAM, job.id, resolve_action(Resolution::Sent, rev, None), call(), T0).await.unwrap();
    let after = load_email(&store, job.id).await;
    assert_eq!(done, IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, after.clone())));

    let again =
        store.apply_action(TEAM, job.id, resolve_action(Resolution::Sent, rev, None), call(), T0).await.unwrap();
    assert_eq!(again, IdempotentResult::Replayed(b"answer 1".to_vec()));
    let other = Some(new_operation("op", 2, T0));
    let other = store.apply_action(TEAM, job.id, resolve_action(Resolution::Sent, rev, None), other, T0).await.unwrap();
    assert!(matches!(other, IdempotentResult::KeyMismatch(_)), "{other:?}");
    assert_eq!(load_email(&store, job.id).await, after);
    assert_eq!(event_kinds(&store).await.iter().filter(|kind| **kind == "email.resolved").count(), 1);
}

pub(super) async fn an_unknown_email_cannot_be_cancelled_and_its_key_is_kept(store: TestStore) {
    let job = accept_with_unknown_outcome(&store, &keyed_email("k").ttl(SECOND)).await;
    for round in 0..2 {
        let now = T0.plus(100 * DAY);
        let before = load_email(&store, job.id).await;
        let answer = store.cancel(TEAM, job.id, None, now).await.unwrap();
        assert_eq!(
            answer,
            IdempotentResult::Done(EmailChangeResult::Refused(EmailChangeRefusal::TooLate, before.clone())),
            "round {round}"
        );
        let answer = store.forget_key(TEAM, given_key_hash(TEAM, "k"), now).await.unwrap();
        assert_eq!(answer, KeyChangeResult::NotTerminal(before.clone()));
        let _swept = store.sweep(100, now).await.unwrap();
        assert_eq!(accept_replay(&store, &keyed_email("k").ttl(SECOND), now).await, before);
        // The second round checks the same while the email waits to be resent.
        let _queued = apply_action(&store, job.id, HandoffAction::ResendByPolicy { number: 0 }, T0).await;
    }
    assert_eq!(load_email(&store, job.id).await.state(), EmailState::Queued);
}

pub(super) async fn a_remote_id_is_found_only_in_its_team(store: TestStore) {
    let fixture = keyed_email("k").to(&["a@example.com", "b@example.com"]).separate_envelopes();
    let id = accept_first(&store, &fixture, T0).await.id;
    for leased in lease_handoffs(&store, 10, T0).await {
        let job = write_marker(&store, job_of(&leased), T0).await;
        let reply = new_reply(ReplyMeaning::Accepted).with_remote_id(Some(format!("remote-{}", job.lease.number)));
        let _sent = apply_action(&store, id, outcome_action(&job, reply, T0), T0).await;
    }
    for number in [0, 1] {
        let name = format!("remote-{number}");
        assert_eq!(store.handoff_by_remote_id(TEAM, &name).await.unwrap(), Some((id, number)));
        assert_eq!(store.handoff_by_remote_id(OTHER_TEAM, &name).await.unwrap(), None);
    }
    assert_eq!(store.handoff_by_remote_id(TEAM, "remote-").await.unwrap(), None);
}

/// Sweeps, then returns whether body and frozen bytes are left, and how much evidence.
async fn sweep_and_inspect(store: &TestStore, job: &LeasedJob, now: Time) -> Option<(bool, bool, usize)> {
    let _swept = store.sweep(100, now).await.unwrap();
    let held = store.leased_handoff(TEAM, job.id, 0).await.unwrap()?;
    let evidence = load_detail(store, job.id).await.evidence.len();
    Some((held.body.is_some(), held.frozen_bytes.is_some_and(|bytes| bytes == WIRE_BYTES), evidence))
}

pub(super) async fn the_sweep_drops_frozen_bytes_with_the_body_and_evidence_last(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k").ttl(SECOND)).await;
    let _sent = record_attempt(&store, &job, ReplyMeaning::Accepted, T0).await;
    let _recorded = apply_action(
        &store,
        job.id,
        HandoffAction::AddEvidence(new_evidence(EvidenceFinding::Delivered, Some("e"), T0)),
        T0,
    )
    .await;
    let body = T0.plus(limits::BODY_RETENTION_MS);
    let traces = body.plus(limits::TOMBSTONE_MS);

    assert_eq!(sweep_and_inspect(&store, &job, body.plus(-1)).await, Some((true, true, 1)));
    assert_eq!(sweep_and_inspect(&store, &job, body).await, Some((false, false, 1)));
    assert_eq!(sweep_and_inspect(&store, &job, traces.plus(-1)).await, Some((false, false, 1)));
    assert_eq!(sweep_and_inspect(&store, &job, traces).await, None);

    // A new email with the same id must not inherit rows that were left behind.
    let mut successor = keyed_email("heir").to_new_email(traces);
    successor.id = job.id;
    let successor = expect_first(store.accept(successor, traces).await.unwrap());
    let found = load_detail(&store, successor.id).await;
    assert_eq!((found.attempts.len(), found.evidence.len()), (0, 0));
    assert_eq!(store.leased_handoff(TEAM, successor.id, 0).await.unwrap().unwrap().frozen_bytes, None);
}
