//! Promises about facts from outside, processes that ended, and what a person decides.

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

use super::{
    DAY, HOUR, MINUTE, OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first,
    answer::own_accounts,
    event_kinds, expect_first, given_key_hash, keyed_email, load_detail, load_email, new_operation,
    work::{
        LeasedJob, NODE, SECOND_NODE, WIRE_BYTES, accept_and_lease, accept_and_lose, accept_and_mark, apply_action,
        lease_only_handoff, load_handoff, new_evidence, new_reply, record_answer, settle_action, write_marker,
    },
};

pub(super) async fn a_named_fact_counts_once(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let told = new_evidence(EvidenceFinding::Bounced, Some("event-1"), T0);
    assert_eq!(
        apply_action(&store, job.id, HandoffAction::AddEvidence(told.clone()), T0).await.0,
        HandoffActionStatus::Done
    );
    let before = load_detail(&store, job.id).await;

    let (verdict, email) = apply_action(&store, job.id, HandoffAction::AddEvidence(told.clone()), T0.plus(9)).await;
    assert_eq!((verdict, &email), (HandoffActionStatus::Unchanged, &before.email));
    assert_eq!(load_detail(&store, job.id).await, before);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.bounced"]);

    // The name counts for its email only, and a fact without a name always.
    let other = accept_and_mark(&store, &keyed_email("other")).await;
    assert_eq!(apply_action(&store, other.id, HandoffAction::AddEvidence(told), T0).await.0, HandoffActionStatus::Done);
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

pub(super) async fn a_report_of_delay_proves_that_the_next_hop_has_it(store: TestStore) {
    let job = accept_and_lose(&store, &keyed_email("k")).await;

    let (verdict, email) = apply_action(
        &store,
        job.id,
        HandoffAction::AddEvidence(new_evidence(EvidenceFinding::Delayed, Some("event-1"), T0)),
        T0,
    )
    .await;

    assert_eq!((verdict, email.state(), email.settled_at), (HandoffActionStatus::Done, EmailState::Sent, Some(T0)));
    assert!(!email.handoffs[0].is_in_doubt());
    assert_eq!(load_detail(&store, job.id).await.evidence.last().unwrap().says, EvidenceFinding::Delayed);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.unknown", "email.sent", "email.resolved"]);
    assert_eq!(store.due_unknown_handoffs(&own_accounts(), 10, T0.plus(DAY)).await.unwrap(), []);
    assert_eq!(
        apply_action(&store, job.id, HandoffAction::ResendByPolicy { number: 0 }, T0.plus(HOUR)).await.0,
        HandoffActionStatus::Stale
    );
}

pub(super) async fn facts_in_any_order_end_alike(store: TestStore) {
    let facts =
        [EvidenceFinding::Accepted, EvidenceFinding::Delivered, EvidenceFinding::Bounced, EvidenceFinding::Complained];
    for (round, skip) in [(0, 4), (1, 3), (2, 2), (3, 1)] {
        let kept: Vec<EvidenceFinding> = facts.into_iter().take(skip).collect();
        let mut ends = Vec::new();
        for turn in 0..kept.len() * 2 {
            let mut order = kept.clone();
            order.rotate_left(turn / 2);
            if turn % 2 == 1 {
                order.reverse();
            }
            let job = accept_and_mark(&store, &keyed_email(&format!("k{round}-{turn}"))).await;
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

pub(super) async fn facts_are_read_back_whole_and_in_order(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let mut told = Vec::new();
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
        told.push(Evidence { attempt, ..new_evidence(*says, once.as_deref(), at) });
        assert_eq!(
            apply_action(&store, job.id, HandoffAction::AddEvidence(told[i].clone()), at).await.0,
            HandoffActionStatus::Done
        );
    }
    assert_eq!(load_detail(&store, job.id).await.evidence, told);
    assert_eq!(load_email(&store, job.id).await.state(), EmailState::Delivered);
}

pub(super) async fn a_crash_before_the_marker_queues_again(store: TestStore) {
    let job = accept_and_lease(&store, &keyed_email("k")).await;
    let recovered = store.recover_dead_nodes(SECOND_NODE, 10, T0.plus(4)).await.unwrap();

    assert_eq!(recovered, RecoveryCounts { queued: 1, unknown: 0, ..RecoveryCounts::default() });
    let after = load_handoff(&store, &job).await;
    assert_eq!(
        (after.state, after.due_at, after.holder, after.progress.lapses),
        (HandoffState::Queued, Some(T0.plus(4)), None, 1)
    );
    assert_eq!(load_detail(&store, job.id).await.evidence[0].source, EvidenceSource::Crash);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0.plus(4)).await.unwrap(), RecoveryCounts::default());
    assert_eq!(lease_only_handoff(&store, T0.plus(4)).await.hold.fence, 2);
}

pub(super) async fn a_crash_after_the_marker_is_unknown(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let recovered = store.recover_dead_nodes(SECOND_NODE, 10, T0.plus(MINUTE)).await.unwrap();

    assert_eq!(recovered, RecoveryCounts { queued: 0, unknown: 1, ..RecoveryCounts::default() });
    let after = load_handoff(&store, &job).await;
    assert_eq!((after.state, &after.progress.doubts[..], after.holder), (HandoffState::Unknown, &[1][..], None));
    // In doubt since the marker, not since the crash was noticed.
    assert_eq!((after.progress.doubt_since, after.due_at), (Some(T0), Some(T0.plus(MINUTE + SECOND))));
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.unknown"]);
    let told = load_detail(&store, job.id).await.evidence;
    assert_eq!((told.len(), told[0].says, told[0].attempt), (1, EvidenceFinding::Lost, Some(1)));
}

pub(super) async fn five_crashes_put_it_aside(store: TestStore) {
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

pub(super) async fn a_process_that_was_heard_of_keeps_what_it_holds(store: TestStore) {
    let job = accept_and_lease(&store, &keyed_email("k")).await;
    store.heartbeat(NODE, T0).await.unwrap();

    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap(), RecoveryCounts::default());
    let job = write_marker(&store, job, T0).await;
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0.plus(SECOND)).await.unwrap(), RecoveryCounts::default());
    assert_eq!(load_handoff(&store, &job).await.state, HandoffState::Sending);
}

pub(super) async fn a_process_hears_how_late_it_is_for_others(store: TestStore) {
    for (node, told, latest) in [(NODE, HOUR, HOUR), (SECOND_NODE, 0, HOUR), (SECOND_NODE, 2 * HOUR, 2 * HOUR)] {
        assert_eq!(store.heartbeat(node, T0.plus(told)).await.unwrap().latest_time, T0.plus(latest));
    }
}

pub(super) async fn a_process_takes_nothing_from_itself(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    assert_eq!(store.recover_dead_nodes(NODE, 10, T0).await.unwrap(), RecoveryCounts::default());
    assert_eq!(load_handoff(&store, &job).await.state, HandoffState::Sending);
}

pub(super) async fn a_recovery_is_bounded_and_goes_on(store: TestStore) {
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

fn resolve_action(choice: Resolution, rev: u32, handoff: Option<u16>) -> HandoffAction {
    HandoffAction::Resolve { resolution: choice, rev, handoff, reason: "looked at it".into() }
}

pub(super) async fn a_person_resolves_with_the_rev_that_was_seen(store: TestStore) {
    for (choice, state) in [
        (Resolution::Sent, EmailState::Sent),
        (Resolution::Resend, EmailState::Queued),
        (Resolution::Abandon, EmailState::Abandoned),
    ] {
        let job = accept_and_lose(&store, &keyed_email(choice.as_str())).await;
        let before = load_email(&store, job.id).await;
        let stale = apply_action(&store, job.id, resolve_action(choice, before.rev - 1, None), T0).await;
        assert_eq!(stale, (HandoffActionStatus::Refused(EmailChangeRefusal::StaleRev), before.clone()));

        let (verdict, email) = apply_action(&store, job.id, resolve_action(choice, before.rev, None), T0.plus(2)).await;
        assert_eq!((verdict, email.state()), (HandoffActionStatus::Done, state));
        assert_eq!(email, load_email(&store, job.id).await);
        assert_eq!(email.handoffs[0].progress.may_duplicate, choice == Resolution::Resend);
        let told = load_detail(&store, job.id).await.evidence.pop().unwrap();
        assert_eq!((told.source, told.detail.as_str(), told.at), (EvidenceSource::Person, "looked at it", T0.plus(2)));
        assert_eq!(event_kinds(&store).await.last(), Some(&"email.resolved"));

        let again = apply_action(&store, job.id, resolve_action(choice, email.rev, None), T0).await;
        assert_eq!(again, (HandoffActionStatus::Refused(EmailChangeRefusal::NotUnknown), email));
        if choice == Resolution::Resend {
            let _aside = record_answer(
                &store,
                &write_marker(&store, lease_only_handoff(&store, T0.plus(2)).await, T0).await,
                ReplyMeaning::Accepted,
                T0,
            )
            .await;
        }
    }
}

pub(super) async fn a_person_decides_about_one_handoff_or_all(store: TestStore) {
    let draft = keyed_email("k").to(&["a@example.com", "b@example.com", "c@example.com"]).separate_envelopes();
    let id = accept_first(&store, &draft, T0).await.id;
    for leased in super::work::lease_handoffs(&store, 10, T0).await {
        let job = write_marker(&store, super::work::job_of(&leased), T0).await;
        let _unknown = record_answer(&store, &job, ReplyMeaning::Unknown, T0).await;
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

pub(super) async fn a_resolve_is_repeatable_under_an_operation(store: TestStore) {
    let job = accept_and_lose(&store, &keyed_email("k")).await;
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

pub(super) async fn what_is_in_doubt_is_not_cancelled_and_its_key_is_not_forgotten(store: TestStore) {
    let job = accept_and_lose(&store, &keyed_email("k").ttl(SECOND)).await;
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
        assert_eq!(super::accept_replay(&store, &keyed_email("k").ttl(SECOND), now).await, before);
        // Once more while it waits to be sent again.
        let _queued = apply_action(&store, job.id, HandoffAction::ResendByPolicy { number: 0 }, T0).await;
    }
    assert_eq!(load_email(&store, job.id).await.state(), EmailState::Queued);
}

pub(super) async fn a_remote_id_is_found_only_in_its_team(store: TestStore) {
    let draft = keyed_email("k").to(&["a@example.com", "b@example.com"]).separate_envelopes();
    let id = accept_first(&store, &draft, T0).await.id;
    for leased in super::work::lease_handoffs(&store, 10, T0).await {
        let job = write_marker(&store, super::work::job_of(&leased), T0).await;
        let said = new_reply(ReplyMeaning::Accepted).with_remote_id(Some(format!("remote-{}", job.hold.number)));
        let _sent = apply_action(&store, id, settle_action(&job, said, T0), T0).await;
    }
    for number in [0, 1] {
        let name = format!("remote-{number}");
        assert_eq!(store.handoff_by_remote_id(TEAM, &name).await.unwrap(), Some((id, number)));
        assert_eq!(store.handoff_by_remote_id(OTHER_TEAM, &name).await.unwrap(), None);
    }
    assert_eq!(store.handoff_by_remote_id(TEAM, "remote-").await.unwrap(), None);
}

/// Everything about a marked email, after a sweep at this time.
async fn sweep_and_inspect(store: &TestStore, job: &LeasedJob, now: Time) -> Option<(bool, bool, usize)> {
    let _swept = store.sweep(100, now).await.unwrap();
    let held = store.leased_handoff(TEAM, job.id, 0).await.unwrap()?;
    let facts = load_detail(store, job.id).await.evidence.len();
    Some((held.body.is_some(), held.frozen_bytes.is_some_and(|wire| wire == WIRE_BYTES), facts))
}

pub(super) async fn the_sweep_takes_the_wire_with_the_body_and_the_facts_last(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k").ttl(SECOND)).await;
    let _sent = record_answer(&store, &job, ReplyMeaning::Accepted, T0).await;
    let _told = apply_action(
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

    // Whoever got the same id would inherit what was left behind.
    let mut heir = keyed_email("heir").to_new_email(traces);
    heir.id = job.id;
    let heir = expect_first(store.accept(heir, traces).await.unwrap());
    let found = load_detail(&store, heir.id).await;
    assert_eq!((found.attempts.len(), found.evidence.len()), (0, 0));
    assert_eq!(store.leased_handoff(TEAM, heir.id, 0).await.unwrap().unwrap().frozen_bytes, None);
}
