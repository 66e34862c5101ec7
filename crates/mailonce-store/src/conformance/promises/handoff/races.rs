//! Promises about concurrent workers, cancels, evidence and recoveries.

use mailonce_core::{
    handoff::{
        EvidenceFinding, Outcome,
        action::{HandoffAction, HandoffActionStatus},
        lease::{HandoffActionResult, LeaseRequest},
        reply::ReplyMeaning,
    },
    id::{EmailId, NodeId},
    installation::RecoveryCounts,
    operation::IdempotentResult,
    outbound::{email::EmailState, email_commands::EmailChangeResult, key_binding::KeyBinding},
};
use std::collections::BTreeSet;
use uuid::Uuid;

use crate::conformance::{
    SANDBOX, T0, TEAM, TestStore, accept_first, all_at_once, all_events, event_kinds,
    fixtures::handoffs::{
        LeasedJob, SECOND_NODE, WIRE_BYTES, accept_and_mark, job_of, lease_handoffs, lease_request, marker_action,
        new_evidence, new_reply, outcome_action,
    },
    keyed_email, load_detail, load_email, new_operation,
};

pub(super) async fn many_workers_lease_each_handoff_once(store: TestStore) {
    let mut ids = BTreeSet::new();
    for i in 0..60 {
        ids.insert(accept_first(&store, &keyed_email(&format!("k{i}")), T0).await.id);
    }
    let nodes: Vec<_> = (0..12).map(|i| (store.clone(), NodeId(Uuid::from_u128(100 + i)))).collect();

    let leased = all_at_once(nodes.into_iter().map(|(store, node)| async move {
        let mut mine = Vec::new();
        for _ in 0..12 {
            for leased in store.lease_handoffs(LeaseRequest { node, ..lease_request(7) }, T0).await.unwrap() {
                assert_eq!(leased.email.handoffs[0].holder, Some(node));
                mine.push(leased.email.id);
            }
        }
        mine
    }))
    .await;

    let all: Vec<_> = leased.into_iter().flatten().collect();
    assert_eq!(all.len(), 60);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), ids);
    for id in ids {
        assert_eq!(load_email(&store, id).await.handoffs[0].fence, 1);
    }
}

pub(super) async fn a_worker_leases_nothing_that_fails_over_concurrently(store: TestStore) {
    let mut work: Vec<(TestStore, Option<EmailId>)> = (0..8).map(|_| (store.clone(), None)).collect();
    for i in 0..60 {
        work.push((store.clone(), Some(accept_first(&store, &keyed_email(&format!("k{i}")), T0).await.id)));
    }
    let fail_over = || HandoffAction::FailOverHandoff { number: 0, from: SANDBOX.into(), to: "relay".into() };

    let leased = all_at_once(work.into_iter().map(|(store, id)| async move {
        let Some(id) = id else { return lease_handoffs(&store, 60, T0).await };
        let _answer = store.apply_action(TEAM, id, fail_over(), None, T0).await.unwrap();
        Vec::new()
    }))
    .await;

    for leased in leased.into_iter().flatten() {
        assert_eq!(leased.email.handoffs[0].transport, SANDBOX);
        assert_eq!(load_email(&store, leased.email.id).await, leased.email);
    }
}

/// For each call: whether it was a cancel (or a marker), and whether it won.
type RaceOutcomes = Vec<(bool, bool)>;

async fn race_cancels_and_markers(store: &TestStore, jobs: &[LeasedJob]) -> RaceOutcomes {
    let sides = jobs.iter().flat_map(|job| [(store.clone(), job.clone(), true), (store.clone(), job.clone(), false)]);
    all_at_once(sides.map(|(store, job, cancels)| async move {
        let won = if cancels {
            matches!(
                store.cancel(TEAM, job.id, None, T0).await.unwrap(),
                IdempotentResult::Done(EmailChangeResult::Changed(_))
            )
        } else {
            let answer = store.apply_action(TEAM, job.id, marker_action(&job, WIRE_BYTES), None, T0).await.unwrap();
            matches!(answer, IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, _)))
        };
        (cancels, won)
    }))
    .await
}

pub(super) async fn of_a_concurrent_cancel_and_marker_one_wins(store: TestStore) {
    for i in 0..100 {
        let _email = accept_first(&store, &keyed_email(&format!("k{i}")), T0).await;
    }
    let jobs: Vec<_> = lease_handoffs(&store, 100, T0).await.iter().map(job_of).collect();
    assert_eq!(jobs.len(), 100);
    // 32 concurrent calls at a time.
    for jobs in jobs.chunks(16) {
        let outcomes = race_cancels_and_markers(&store, jobs).await;
        for (job, sides) in jobs.iter().zip(outcomes.chunks(2)) {
            let (cancelled, marked) = (sides[0].1, sides[1].1);
            assert_ne!(cancelled, marked, "{job:?}");
            let found = load_detail(&store, job.id).await;
            let state = if cancelled { EmailState::Cancelled } else { EmailState::Sending };
            assert_eq!((found.email.state(), found.attempts.len()), (state, usize::from(marked)));
        }
    }
}

pub(super) async fn a_concurrent_outcome_and_evidence_end_in_sent(store: TestStore) {
    for round in 0..10 {
        let job = accept_and_mark(&store, &keyed_email(&format!("k{round}"))).await;
        let mut actions = vec![outcome_action(&job, new_reply(ReplyMeaning::Accepted), T0)];
        actions.extend(
            (0..7).map(|i| {
                HandoffAction::AddEvidence(new_evidence(EvidenceFinding::Accepted, Some(&format!("e{i}")), T0))
            }),
        );
        let work: Vec<_> = actions.into_iter().map(|action| (store.clone(), job.id, action)).collect();

        let answers =
            all_at_once(work.into_iter().map(|(store, id, action)| async move {
                store.apply_action(TEAM, id, action, None, T0).await.unwrap()
            }))
            .await;

        assert!(
            answers.iter().all(|answer| matches!(answer, IdempotentResult::Done(HandoffActionResult::Applied(_, _))))
        );
        let found = load_detail(&store, job.id).await;
        assert_eq!((found.email.state(), found.attempts[0].outcome), (EmailState::Sent, Some(Outcome::Accepted)));
        // A late reply is evidence, too.
        let dedupe_ids: BTreeSet<_> = found.evidence.iter().filter_map(|evidence| evidence.dedup_key.clone()).collect();
        assert!(dedupe_ids.len() == 7 && found.evidence.len() <= 8, "{:?}", found.evidence);
        let own_events = all_events(&store, TEAM).await.into_iter().filter(|event| event.event.subject_id == job.id.0);
        assert_eq!(own_events.filter(|event| event.event.kind.as_str() == "email.sent").count(), 1);
    }
}

pub(super) async fn of_32_equal_concurrent_pieces_of_evidence_one_counts(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let work: Vec<_> = (0..32)
        .map(|_| (store.clone(), HandoffAction::AddEvidence(new_evidence(EvidenceFinding::Bounced, Some("e"), T0))))
        .collect();

    let answers = all_at_once(
        work.into_iter()
            .map(|(store, action)| async move { store.apply_action(TEAM, job.id, action, None, T0).await.unwrap() }),
    )
    .await;

    let done = answers
        .iter()
        .filter(|answer| {
            matches!(answer, IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, _)))
        })
        .count();
    assert_eq!((done, load_detail(&store, job.id).await.evidence.len()), (1, 1));
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.bounced"]);
}

pub(super) async fn of_32_concurrent_operations_under_one_key_one_is_bound(store: TestStore) {
    for round in 0..5 {
        let key = format!("op{round}");
        let work: Vec<_> = (0..32).map(|n| (store.clone(), new_operation(&key, n % 4, T0))).collect();

        let answers = all_at_once(work.into_iter().map(|(store, operation)| async move {
            (operation.digest, store.bind_operation(operation, T0).await.unwrap())
        }))
        .await;

        let done: Vec<_> = answers.iter().filter(|(_, answer)| *answer == IdempotentResult::Done(())).collect();
        assert_eq!(done.len(), 1, "{answers:?}");
        let bound = done[0].0;
        let repeated = answers
            .iter()
            .filter(|(digest, answer)| matches!(answer, IdempotentResult::Replayed(_)) && *digest == bound);
        let refused = answers.iter().filter(|(digest, answer)| {
            *answer == IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: bound }) && *digest != bound
        });
        assert_eq!((repeated.count(), refused.count()), (7, 24), "{answers:?}");
    }
}

pub(super) async fn many_concurrent_recoveries_recover_each_handoff_once(store: TestStore) {
    for i in 0..20 {
        let _job = accept_and_mark(&store, &keyed_email(&format!("k{i}"))).await;
    }
    let work: Vec<_> = (0..8).map(|_| store.clone()).collect();

    let recovered = all_at_once(work.into_iter().map(|store| async move {
        let mut all = 0;
        for _ in 0..8 {
            let RecoveryCounts { queued, unknown, .. } = store.recover_dead_nodes(SECOND_NODE, 5, T0).await.unwrap();
            assert_eq!(queued, 0);
            all += unknown;
        }
        all
    }))
    .await;

    assert_eq!(recovered.iter().sum::<usize>(), 20);
    assert_eq!(event_kinds(&store).await.iter().filter(|kind| **kind == "email.unknown").count(), 20);
}
