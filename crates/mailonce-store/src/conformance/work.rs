//! Steps of workers: leasing, marking, answering.

use mailonce_core::{
    handoff::{
        Evidence, EvidenceFinding, EvidenceSource, Handoff,
        action::{HandoffAction, HandoffActionStatus, HandoffRetryPolicy, LeaseRef},
        lease::{HandoffActionResult, LeaseRequest, LeasedHandoff},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
    },
    id::{EmailId, NodeId},
    operation::IdempotentResult,
    outbound::email::Email,
    time::Time,
};
use uuid::Uuid;

use super::{EmailFixture, SANDBOX, T0, TEAM, TestStore, accept_first, load_email};

pub(super) const NODE: NodeId = NodeId(Uuid::from_u128(0xa));
pub(super) const SECOND_NODE: NodeId = NodeId(Uuid::from_u128(0xb));
/// Twelve attempts in a day; `chance` makes each pause as long as the first may be at the most.
pub(super) const RETRY_PLAN: HandoffRetryPolicy =
    HandoffRetryPolicy { max_attempts: 12, max_age_ms: 86_400_000, jitter_seed: 1_000 };
pub(super) const WIRE_BYTES: &[u8] = b"frozen\r\n\0\xff";

/// A handoff that a worker holds, and the attempt it marked.
#[derive(Clone, Debug)]
pub(super) struct LeasedJob {
    pub(super) id: EmailId,
    pub(super) hold: LeaseRef,
    pub(super) attempt: Option<u32>,
}

pub(super) fn lease_request(max: usize) -> LeaseRequest {
    LeaseRequest {
        transport: SANDBOX.into(),
        node: NODE,
        max,
        excluded_domains: Vec::new(),
        schedule_cutoff: Some(Time(i64::MAX)),
    }
}

pub(super) async fn lease_handoffs(store: &TestStore, max: usize, now: Time) -> Vec<LeasedHandoff> {
    store.lease_handoffs(lease_request(max), now).await.unwrap()
}

/// What a lease gives, as a job at account A.
pub(super) fn job_of(leased: &LeasedHandoff) -> LeasedJob {
    let handoff = &leased.email.handoffs[usize::from(leased.handoff)];
    let (number, fence, transport) = (leased.handoff, handoff.fence, handoff.transport.clone());
    LeasedJob { id: leased.email.id, hold: LeaseRef { number, fence, transport, account: "A".into() }, attempt: None }
}

/// The only due handoff there is, leased.
pub(super) async fn lease_only_handoff(store: &TestStore, now: Time) -> LeasedJob {
    let leased = lease_handoffs(store, 10, now).await;
    assert_eq!(leased.len(), 1, "{leased:?}");
    job_of(&leased[0])
}

/// A draft that was accepted and leased.
pub(super) async fn accept_and_lease(store: &TestStore, draft: &EmailFixture) -> LeasedJob {
    let email = accept_first(store, draft, T0).await;
    let job = lease_only_handoff(store, T0).await;
    assert_eq!(job.id, email.id);
    job
}

/// A draft that was accepted, leased and marked.
pub(super) async fn accept_and_mark(store: &TestStore, draft: &EmailFixture) -> LeasedJob {
    let job = accept_and_lease(store, draft).await;
    write_marker(store, job, T0).await
}

/// A draft whose outcome is unknown.
pub(super) async fn accept_and_lose(store: &TestStore, draft: &EmailFixture) -> LeasedJob {
    let job = accept_and_mark(store, draft).await;
    assert_eq!(record_answer(store, &job, ReplyMeaning::Unknown, T0).await.0, HandoffActionStatus::Done);
    job
}

pub(super) async fn apply_action(
    store: &TestStore,
    id: EmailId,
    act: HandoffAction,
    now: Time,
) -> (HandoffActionStatus, Email) {
    match store.apply_action(TEAM, id, act, None, now).await.unwrap() {
        IdempotentResult::Done(HandoffActionResult::Applied(verdict, email)) => (verdict, email),
        other => panic!("{other:?}"),
    }
}

pub(super) fn marker_action(job: &LeasedJob, wire: &[u8]) -> HandoffAction {
    HandoffAction::Mark { lease: job.hold.clone(), frozen_bytes: Some(wire.into()) }
}

/// Writes the marker, which must stand.
pub(super) async fn write_marker(store: &TestStore, job: LeasedJob, now: Time) -> LeasedJob {
    let (verdict, email) = apply_action(store, job.id, marker_action(&job, WIRE_BYTES), now).await;
    assert_eq!(verdict, HandoffActionStatus::Done);
    let attempt = Some(email.handoffs[usize::from(job.hold.number)].attempts);
    LeasedJob { attempt, ..job }
}

pub(super) fn new_reply(meaning: ReplyMeaning) -> TransportReply {
    TransportReply::new(meaning, AttemptPhase::Final, Some(299), &format!("the next hop says {}", meaning.as_str()))
}

pub(super) fn settle_action(job: &LeasedJob, reply: TransportReply, now: Time) -> HandoffAction {
    let LeasedJob { hold, attempt, .. } = job.clone();
    HandoffAction::RecordOutcome { lease: hold, attempt, started_at: now, reply, retry_policy: RETRY_PLAN }
}

/// Writes down what an attempt was answered.
pub(super) async fn record_answer(
    store: &TestStore,
    job: &LeasedJob,
    meaning: ReplyMeaning,
    now: Time,
) -> (HandoffActionStatus, Email) {
    apply_action(store, job.id, settle_action(job, new_reply(meaning), now), now).await
}

/// Takes an unknown handoff to repeat its attempt, and marks it.
pub(super) async fn repeat_attempt(store: &TestStore, job: &LeasedJob, now: Time) -> LeasedJob {
    let again = HandoffAction::RetryInWindow { number: job.hold.number, holder: NODE, account: "A".into() };
    let (verdict, email) = apply_action(store, job.id, again, now).await;
    assert_eq!(verdict, HandoffActionStatus::Done);
    let fence = email.handoffs[usize::from(job.hold.number)].fence;
    write_marker(store, LeasedJob { hold: LeaseRef { fence, ..job.hold.clone() }, ..job.clone() }, now).await
}

/// A fact from outside about the first handoff.
pub(super) fn new_evidence(says: EvidenceFinding, once: Option<&str>, now: Time) -> Evidence {
    Evidence {
        handoff: 0,
        attempt: None,
        at: now,
        source: EvidenceSource::ProviderEvent,
        says,
        detail: format!("it was {}", says.as_str()),
        once: once.map(ToOwned::to_owned),
    }
}

/// A job's handoff as it is now.
pub(super) async fn load_handoff(store: &TestStore, job: &LeasedJob) -> Handoff {
    load_email(store, job.id).await.handoffs[usize::from(job.hold.number)].clone()
}
