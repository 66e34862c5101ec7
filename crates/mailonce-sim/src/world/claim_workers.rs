//! Workers that claim side effects and perform them, and people who decide about claims whose worker was lost.
//!
//! A worker may be slow, fail, or vanish before or after its side effect. The side effect itself is recorded by the
//! world, which knows nothing of claims.

use crate::proof::history::{ClaimCall, ClaimCallKind, ClaimEffect, ClaimReply, ClaimRow};
use crate::world::clients::{SimulatedClients, team_name};
use crate::world::cluster::SimulatedCluster;
use crate::world::conversation_mail;
use mailonce_core::{
    claims::{Claim, ClaimEvidence, ClaimQuery, ClaimResolution, ClaimState, LostHolderPolicy},
    conversation::escalation::EscalationState,
    exact_json::ExactJson,
    id::ClaimId,
    key::Key,
    ports::{claim_store::ClaimStore as _, store::StoreError},
    problem::{Code, Problem},
};
use mailonce_engine::{
    Engine,
    claims::requests::{AcquireOutcome, ClaimCommand, ClaimIdentity, ClaimRequest, ReturnedValue},
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::task::JoinHandle;

/// Maximum number of rows that are read.
const ROW_LIMIT: usize = 1_000;
/// How long a worker waits for a reply, in milliseconds of the runtime's time.
const REPLY_TIMEOUT_MS: u64 = 3_000;
/// How often a worker repeats a call that got no reply.
const TRIES: usize = 3;
/// How long after the end of all faults the last workers are waited for, in milliseconds of the runtime's time.
const LAST_WORK_MS: u64 = 4_000;

/// What a worker does after it has the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerBehavior {
    /// It performs the side effect and reports the result.
    Complete,
    /// It is lost before the side effect.
    VanishBefore,
    /// It is lost after the side effect.
    VanishAfter,
    /// It reports that the side effect did not happen.
    Fail { retryable: bool },
}

/// A side effect that workers compete for.
#[derive(Debug, Clone)]
struct PlannedClaim {
    team: usize,
    key: String,
    on_unknown: LostHolderPolicy,
}

/// A claim that a worker got an id for.
#[derive(Clone)]
struct KnownClaim {
    id: ClaimId,
    team: usize,
    key: String,
}

/// All workers of a world.
pub(super) struct ClaimWorkers {
    clients: SimulatedClients,
    claims: Vec<PlannedClaim>,
    known: Arc<Mutex<Vec<KnownClaim>>>,
    running: Mutex<Vec<JoinHandle<()>>>,
}

/// One worker, or a person, that makes calls about one claim.
#[derive(Clone)]
struct ClaimCaller {
    clients: SimulatedClients,
    engine: Arc<Engine>,
    team: usize,
    key: String,
    name: String,
}

/// A lease as its worker knows it.
struct WonLease {
    id: ClaimId,
    token: String,
    fence: u64,
}

impl ClaimWorkers {
    /// The workers of a world.
    pub(super) fn new(clients: &SimulatedClients) -> Self {
        let shared = &clients.shared;
        let claims = (0..shared.plan.claims).map(|number| PlannedClaim {
            team: number % shared.plan.teams,
            // Teams use the same keys.
            key: format!("invoice-{}", number / shared.plan.teams),
            on_unknown: shared.pick(&[LostHolderPolicy::Hold, LostHolderPolicy::Hold, LostHolderPolicy::Retry]),
        });
        Self { claims: claims.collect(), clients: clients.clone(), known: Arc::default(), running: Mutex::default() }
    }

    /// One step: some workers start, and a person looks at a claim.
    pub(super) fn run_step(&self, cluster: &SimulatedCluster, step: usize) {
        let shared = &cluster.shared;
        if self.claims.is_empty() {
            return;
        }
        for number in 0..shared.below(3) {
            let claim = &self.claims[shared.below(self.claims.len() as u64) as usize];
            let Some(engine) = cluster.any_engine() else { continue };
            let caller = self.caller(engine, claim.team, &claim.key, format!("worker-{step}-{number}"));
            self.spawn(caller.work(claim.on_unknown, Arc::clone(&self.known)));
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.is_empty() || shared.below(3) > 0 {
            return;
        }
        let claim = &known[shared.below(known.len() as u64) as usize];
        let Some(engine) = cluster.any_engine() else { return };
        self.spawn(self.caller(engine, claim.team, &claim.key, format!("person-{step}")).decide(claim.id));
    }

    fn caller(&self, engine: Arc<Engine>, team: usize, key: &str, name: String) -> ClaimCaller {
        ClaimCaller { clients: self.clients.clone(), engine, team, key: key.to_owned(), name }
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).push(tokio::spawn(work));
    }

    /// Waits for the last workers. Those that are still waiting for a dead node are lost.
    pub(super) async fn finish(&self) {
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        if !running.iter().all(JoinHandle::is_finished) {
            tokio::time::sleep(Duration::from_millis(LAST_WORK_MS)).await;
        }
        running.iter().for_each(JoinHandle::abort);
    }
}

/// A reply of the engine, for the history. No reply in time, and `unavailable`, are none.
fn reply_of<T>(
    answer: Result<Result<T, Problem>, tokio::time::error::Elapsed>,
    recorded: impl FnOnce(&T) -> ClaimReply,
) -> (ClaimReply, Option<T>) {
    match answer {
        Err(_late) => (ClaimReply::None, None),
        Ok(Err(problem)) if problem.code == Code::Unavailable => (ClaimReply::None, None),
        Ok(Err(problem)) => (ClaimReply::Refused(problem.code.as_str().to_owned()), None),
        Ok(Ok(value)) => (recorded(&value), Some(value)),
    }
}

fn result_text(result: Option<&ExactJson>) -> Option<String> {
    result.map(|value| serde_json::from_str(value.as_str()).unwrap_or_default())
}

/// A name as a result.
fn name_result(name: &str) -> ReturnedValue {
    ExactJson::parse(&Value::from(name).to_string()).ok().into()
}

fn describe_outcome(outcome: &AcquireOutcome) -> ClaimReply {
    match outcome {
        AcquireOutcome::Won { claim, .. } => ClaimReply::Won { fence: claim.fence, may_repeat: claim.may_repeat() },
        AcquireOutcome::Ended(view) => {
            ClaimReply::Ended { state: view.claim.state.as_str().to_owned(), result: result_text(view.result.as_ref()) }
        }
    }
}

impl ClaimCaller {
    /// Makes a call until it gets a reply, and records each attempt.
    async fn call<T, F>(
        &self,
        kind: &ClaimCallKind,
        describe: impl Fn(&T) -> ClaimReply,
        run: impl Fn() -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, Problem>>,
    {
        for _ in 0..TRIES {
            let (at, started_ms) = (0, self.clients.shared.now());
            let call = self.clients.shared.begin_claim_call(ClaimCall {
                at,
                started_ms,
                ended: None,
                ended_ms: 0,
                team: team_name(self.team),
                key: self.key.clone(),
                caller: self.name.clone(),
                kind: kind.clone(),
                reply: ClaimReply::None,
            });
            let answer = tokio::time::timeout(Duration::from_millis(REPLY_TIMEOUT_MS), run()).await;
            let (reply, value) = reply_of(answer, &describe);
            let has_reply = reply != ClaimReply::None;
            self.clients.shared.end_claim_call(call, reply);
            if has_reply {
                return value;
            }
        }
        None
    }

    async fn command(&self, kind: ClaimCallKind, id: ClaimId, command: ClaimCommand) -> Option<Claim> {
        let caller = &self.clients.callers[self.team];
        let apply = || self.engine.claims.apply(caller, id, command.clone(), None);
        self.call(&kind, |_claim| ClaimReply::Recorded, apply).await
    }

    async fn acquire(&self, on_unknown: LostHolderPolicy, known: &Mutex<Vec<KnownClaim>>) -> Option<(WonLease, bool)> {
        let shared = &self.clients.shared;
        let (begins_now, lease_s) = (shared.below(3) > 0, shared.pick(&[1, 5, 60, 600]));
        let fingerprint = shared.pick(&["paper", "paper", "paper", "paper", "parchment"]);
        let request = ClaimRequest {
            identity: ClaimIdentity { key: Key::parse(&self.key).ok(), intent: None },
            holder: Some(self.name.clone()),
            label: None,
            fingerprint: Some(fingerprint.to_owned()),
            lease_s,
            ttl: None,
            begins_now,
            on_unknown,
        };
        let kind = ClaimCallKind::Acquire {
            on_unknown: on_unknown.as_str().to_owned(),
            fingerprint: fingerprint.to_owned(),
            lease_ms: lease_s * 1_000,
        };
        let caller = &self.clients.callers[self.team];
        let outcome =
            self.call(&kind, describe_outcome, || self.engine.claims.acquire(caller, request.clone())).await?;
        let AcquireOutcome::Won { claim, token, .. } = outcome else { return None };
        let (id, fence) = (claim.id, claim.fence);
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|known| known.id == id) {
            known.push(KnownClaim { id, team: self.team, key: self.key.clone() });
        }
        Some((WonLease { id, token, fence }, begins_now))
    }

    /// Claims the side effect, performs it, and reports what happened.
    async fn work(self, on_unknown: LostHolderPolicy, known: Arc<Mutex<Vec<KnownClaim>>>) {
        let shared = Arc::clone(&self.clients.shared);
        let behavior = shared.pick(&[
            WorkerBehavior::Complete,
            WorkerBehavior::Complete,
            WorkerBehavior::Complete,
            WorkerBehavior::VanishBefore,
            WorkerBehavior::VanishAfter,
            WorkerBehavior::Fail { retryable: true },
            WorkerBehavior::Fail { retryable: false },
        ]);
        let Some((lease, begun)) = self.acquire(on_unknown, &known).await else { return };
        let WonLease { id, token, fence } = lease;
        if !begun {
            self.pause().await;
            let begin = ClaimCommand::Begin { token: token.clone() };
            if self.command(ClaimCallKind::Begin(fence), id, begin).await.is_none() {
                return;
            }
        }
        self.pause().await;
        if shared.below(4) == 0 {
            // A worker that has lost its lease may have begun, and reports what it did.
            let lease_s = shared.pick(&[5, 900]);
            let renew = ClaimCommand::Renew { token: token.clone(), lease_s };
            let kind = ClaimCallKind::Renew { fence, lease_ms: lease_s * 1_000 };
            let _maybe_lost = self.command(kind, id, renew).await;
        }
        if let WorkerBehavior::Fail { retryable } = behavior {
            let fail = ClaimCommand::Fail { token, retryable, reason: "no paper".into() };
            let _told = self.command(ClaimCallKind::Fail { fence, retryable }, id, fail).await;
            return;
        }
        if behavior == WorkerBehavior::VanishBefore {
            return;
        }
        let (team, key, worker) = (team_name(self.team), self.key.clone(), self.name.clone());
        shared.record_claim_effect(ClaimEffect { at: 0, team, key, worker, fence });
        self.pause().await;
        if behavior == WorkerBehavior::Complete {
            let complete = ClaimCommand::Complete { token, result: name_result(&self.name) };
            let _told = self.command(ClaimCallKind::Complete(fence, self.name.clone()), id, complete).await;
        }
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(self.clients.shared.between(0, 900))).await;
    }

    /// Decides about a claim whose worker was lost: by looking the side effect up, or without knowing.
    async fn decide(self, id: ClaimId) {
        let (shared, caller) = (Arc::clone(&self.clients.shared), self.clients.callers[self.team].clone());
        let seen = tokio::time::timeout(Duration::from_millis(REPLY_TIMEOUT_MS), self.engine.claims.claim(&caller, id));
        let Ok(Ok(view)) = seen.await else { return };
        if view.claim.state != ClaimState::Unknown {
            return;
        }
        if shared.below(2) == 0 {
            let worker = shared.claim_effect_worker(&team_name(self.team), &self.key);
            let (says, result) = match &worker {
                Some(worker) => (ClaimEvidence::Done, name_result(worker)),
                None => (ClaimEvidence::NotFound, ReturnedValue::None),
            };
            let report = ClaimCommand::Evidence { says, result };
            // Only a find is a fact that must be recorded. That nothing was found changes nothing.
            if let Some(worker) = worker {
                let _told = self.command(ClaimCallKind::Found(worker), id, report).await;
            } else {
                let told = self.engine.claims.apply(&caller, id, report, None);
                let _told = tokio::time::timeout(Duration::from_millis(REPLY_TIMEOUT_MS), told).await;
            }
            return;
        }
        let choices = [ClaimResolution::Done, ClaimResolution::Retry, ClaimResolution::Retry, ClaimResolution::Abandon];
        let (resolution, rev) = (shared.pick(&choices), view.claim.rev);
        let kind = ClaimCallKind::Resolve(resolution.as_str().to_owned());
        let _told =
            self.command(kind, id, ClaimCommand::Resolve { resolution, rev, result: ReturnedValue::None }).await;
    }
}

/// Claims that people are asked about.
async fn escalated_claims(cluster: &SimulatedCluster) -> Result<BTreeSet<ClaimId>, StoreError> {
    let all = conversation_mail::all_escalations(cluster).await?;
    let open = all.into_iter().filter(|escalation| escalation.state == EscalationState::Open);
    Ok(open.filter_map(|escalation| escalation.about.claim).collect())
}

async fn all_claims(cluster: &SimulatedCluster) -> Result<Vec<(usize, Claim)>, StoreError> {
    let mut all = Vec::new();
    for (team, caller) in cluster.callers.iter().enumerate() {
        let query = ClaimQuery { limit: ROW_LIMIT, ..ClaimQuery::default() };
        all.extend(cluster.store.claims(caller.team.id, query).await?.into_iter().map(|claim| (team, claim)));
    }
    Ok(all)
}

/// When the next lease ends, the policy frees the next claim, or somebody must be asked, if at all.
pub(super) async fn next_due(cluster: &SimulatedCluster) -> Result<Option<i64>, StoreError> {
    if cluster.shared.plan.claims == 0 {
        return Ok(None);
    }
    let asked = escalated_claims(cluster).await?;
    let due = all_claims(cluster).await?.into_iter().filter_map(|(_, claim)| match claim.due_at() {
        Some(at) => Some(at.0),
        None => (claim.needs_decision() && !asked.contains(&claim.id)).then_some(0),
    });
    Ok(due.min())
}

/// The claims at the end.
pub(super) async fn read_claims(cluster: &SimulatedCluster) -> Result<Vec<ClaimRow>, StoreError> {
    let (asked, mut rows) = (escalated_claims(cluster).await?, Vec::new());
    let engine = &cluster.nodes[0].engine;
    for (team, claim) in all_claims(cluster).await? {
        let view = engine.claims.claim(&cluster.callers[team], claim.id).await;
        let view = view.map_err(|problem| StoreError::Corrupt(problem.detail.clone()))?;
        rows.push(ClaimRow {
            id: claim.id.to_string(),
            team: team_name(team),
            key: claim.key.to_string(),
            state: claim.state.as_str().to_owned(),
            leased: claim.lease.is_some(),
            fingerprint: claim.fingerprint.clone().unwrap_or_default(),
            result: result_text(view.result.as_ref()),
            escalated: asked.contains(&claim.id),
        });
    }
    Ok(rows)
}
