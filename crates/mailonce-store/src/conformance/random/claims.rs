//! Random steps of callers with claims: who gets one, what holders, look-ups and people report, offers of an outbox, and the
//! end of leases and memory. The calls for them, and what both stores return.

use mailonce_core::{
    claims::{
        Claim, ClaimClock, ClaimEvidence, ClaimQuery, ClaimResolution, ClaimState, ClaimToken, LostHolderPolicy,
        acquire::{AcquireAnswer, AcquireResult, NewClaim},
        action::{ClaimAction, ClaimActionResult, ReportedResult},
        offer::{NewOffer, OfferAnswer, OfferResult, payload_digest},
    },
    control::stop::{CreateStopResult, Stop, StopAuthor, StopMode, StopScope},
    exact_json::ExactJson,
    id::{ApiKeyId, ClaimId, StopId, TeamId},
    intent::Intent,
    key::{Key, KeyHash},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
    ttl::Ttl,
};
use uuid::Uuid;

use crate::conformance::{
    DAY, HOUR, MINUTE, SECOND, TestStore,
    fixtures::emails::next_id,
    random::step::{KeyChoice, OperationSpec, SplitMix64},
};

/// There are few keys, holders, payloads and fingerprints, so that callers often meet.
const KEYS: [&str; 3] = ["invoice-1", "invoice-2", "k0"];
const HOLDERS: u8 = 2;

/// The API key of a team's holders. Only claims have it, so that its stop covers no email.
fn api_key(team: TeamId) -> ApiKeyId {
    ApiKeyId(Uuid::from_u128(team.0.as_u128() ^ 0xa9))
}

/// What a caller of a random claim asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimSpec {
    key: &'static str,
    has_intent: bool,
    fingerprint: Option<u8>,
    holder: Option<u8>,
    lease_ms: i64,
    ttl_ms: i64,
    begins_now: bool,
    on_unknown: LostHolderPolicy,
}

impl ClaimSpec {
    fn random(rng: &mut SplitMix64) -> Self {
        Self {
            key: rng.pick(&KEYS),
            has_intent: rng.one_in(4),
            fingerprint: rng.maybe_one_in(4, |rng| rng.below(2)),
            holder: rng.maybe_one_in(2, |rng| rng.below(HOLDERS)),
            lease_ms: rng.pick(&[SECOND, MINUTE, HOUR]),
            ttl_ms: rng.pick(&[SECOND, HOUR, DAY, 50 * DAY]),
            begins_now: !rng.one_in(3),
            on_unknown: if rng.one_in(2) { LostHolderPolicy::Retry } else { LostHolderPolicy::Hold },
        }
    }

    fn to_new_claim(self, team: TeamId, now: Time) -> NewClaim {
        let intent = || Intent { kind: "invoice".into(), entity: self.key.into(), version: 1, period: None };
        NewClaim {
            id: ClaimId(next_id(now)),
            team,
            key: Key::parse(self.key).unwrap(),
            intent: self.has_intent.then(intent),
            fingerprint: self.fingerprint.map(|fingerprint| format!("{fingerprint} EUR")),
            holder: self.holder.map(|holder| format!("holder {holder}")),
            label: self.holder.map(|holder| format!("worker {holder}")),
            api_key: Some(api_key(team)),
            lease_ms: self.lease_ms,
            ttl: Ttl(self.ttl_ms),
            begins_now: self.begins_now,
            on_unknown: self.on_unknown,
        }
    }
}

/// What a holder does with its token.
#[derive(Clone, Copy, Debug)]
pub(super) enum HolderAction {
    Begin,
    Renew(i64),
    Complete(ResultChoice),
    Fail(bool),
}

/// The result that is reported.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResultChoice {
    None,
    Stored(u8),
    Omitted,
}

impl ResultChoice {
    fn random(rng: &mut SplitMix64) -> Self {
        match rng.below(5) {
            0 => Self::None,
            1 => Self::Omitted,
            _ => Self::Stored(rng.below(2)),
        }
    }

    fn reported(self) -> ReportedResult {
        match self {
            Self::None => ReportedResult::None,
            Self::Stored(number) => ReportedResult::Stored(vec![number; 3]),
            Self::Omitted => ReportedResult::Omitted,
        }
    }
}

/// What is done. Claims and tokens are named by their recency; 0 is the latest.
#[derive(Clone, Debug)]
pub(super) enum ClaimCommand {
    Acquire(ClaimSpec),
    Offer { key: &'static str, payload: u8 },
    Hold { token: u8, action: HolderAction },
    Evidence { claim: u8, says: ClaimEvidence, result: ResultChoice, call: Option<OperationSpec> },
    Resolve { claim: u8, resolution: ClaimResolution, rev: Option<u32>, call: Option<OperationSpec> },
    Lapse { max: usize, knows_time: bool },
    Forget { max: usize },
    List { state: Option<ClaimState>, key: Option<&'static str>, before: Option<u8>, limit: usize },
    Stop(StopMode),
    EndStop,
}

impl ClaimCommand {
    pub(super) fn random(rng: &mut SplitMix64) -> Self {
        let call = |rng: &mut SplitMix64| OperationSpec(KeyChoice::for_operation(rng), rng.below(2));
        match rng.below(32) {
            0..=8 => Self::Acquire(ClaimSpec::random(rng)),
            9..=11 => Self::Offer { key: rng.pick(&KEYS), payload: rng.below(2) },
            12..=19 => Self::Hold { token: rng.below(4), action: random_holder_action(rng) },
            20..=21 => Self::Evidence {
                claim: rng.below(4),
                says: rng.pick(ClaimEvidence::ALL),
                result: ResultChoice::random(rng),
                call: rng.maybe_one_in(2, call),
            },
            22..=24 => Self::Resolve {
                claim: rng.below(4),
                resolution: rng.pick(ClaimResolution::ALL),
                rev: rng.maybe_one_in(2, |rng| rng.pick(&[1, 2, 3])),
                call: rng.maybe_one_in(2, call),
            },
            25..=26 => Self::Lapse { max: rng.pick(&[1, 2, 100]), knows_time: !rng.one_in(4) },
            27 => Self::Forget { max: rng.pick(&[1, 100]) },
            28..=29 => Self::List {
                state: rng.maybe_one_in(2, |rng| rng.pick(ClaimState::ALL)),
                key: rng.maybe_one_in(2, |rng| rng.pick(&KEYS)),
                before: rng.maybe_one_in(2, |rng| rng.below(4)),
                limit: rng.pick(&[1, 2, 100]),
            },
            30 => Self::Stop(if rng.one_in(2) { StopMode::Wait } else { StopMode::Refuse }),
            _ => Self::EndStop,
        }
    }
}

fn random_holder_action(rng: &mut SplitMix64) -> HolderAction {
    match rng.below(6) {
        0 => HolderAction::Begin,
        1 => HolderAction::Renew(rng.pick(&[SECOND, MINUTE, HOUR])),
        2..=3 => HolderAction::Complete(ResultChoice::random(rng)),
        _ => HolderAction::Fail(rng.one_in(2)),
    }
}

/// A complete call, the same for both stores.
#[derive(Clone, Debug)]
pub(super) enum ClaimCall {
    Acquire(Box<NewClaim>),
    Offer(NewOffer),
    Apply(TeamId, ClaimId, ClaimAction, Option<KeyedOperation>),
    Lapse(usize, ClaimClock),
    Forget(usize),
    List(TeamId, ClaimQuery),
    Stop(Stop),
    EndStop(TeamId),
}

/// The answer of a store.
#[derive(Debug, PartialEq)]
pub(super) enum ClaimAnswer {
    Acquire(Box<AcquireResult>),
    Offer(Box<OfferResult>),
    Apply(IdempotentResult<ClaimActionResult>),
    Claims(Vec<Claim>),
    Forget(usize),
    Stop(IdempotentResult<CreateStopResult>),
    EndStop(Vec<Option<Stop>>),
}

fn clock(now: Time) -> ClaimClock {
    ClaimClock { now, policy: Some(now) }
}

pub(super) async fn call_store(store: &TestStore, request: ClaimCall, now: Time) -> ClaimAnswer {
    match request {
        ClaimCall::Acquire(new) => ClaimAnswer::Acquire(Box::new(store.acquire_claim(*new, clock(now)).await.unwrap())),
        ClaimCall::Offer(new) => ClaimAnswer::Offer(Box::new(store.offer_claim(new, clock(now)).await.unwrap())),
        ClaimCall::Apply(team, id, action, call) => {
            ClaimAnswer::Apply(store.apply_claim_action(team, id, action, call, clock(now)).await.unwrap())
        }
        ClaimCall::Lapse(max, clock) => ClaimAnswer::Claims(store.apply_claim_deadlines(max, clock).await.unwrap()),
        ClaimCall::Forget(max) => ClaimAnswer::Forget(store.forget_claims(max, now).await.unwrap()),
        ClaimCall::List(team, query) => ClaimAnswer::Claims(store.claims(team, query).await.unwrap()),
        ClaimCall::Stop(stop) => ClaimAnswer::Stop(store.create_stop(stop, None, now).await.unwrap()),
        ClaimCall::EndStop(team) => {
            let mut ended = Vec::new();
            for stop in store.stops(Some(team)).await.unwrap() {
                ended.push(store.end_stop(Some(team), stop.id, None, now).await.unwrap());
            }
            ClaimAnswer::EndStop(ended)
        }
    }
}

/// All claims and tokens so far, in order. Forgotten claims are among them.
#[derive(Default)]
pub(super) struct ClaimHistory {
    claims: Vec<ClaimId>,
    tokens: Vec<(ClaimId, ClaimToken)>,
}

impl ClaimHistory {
    pub(super) fn record(&mut self, answer: &ClaimAnswer) {
        let (claim, token) = match answer {
            ClaimAnswer::Acquire(result) => match (&result.answer, &result.claim) {
                (AcquireAnswer::Won(token), Some(claim)) => (claim, Some(*token)),
                _ => return,
            },
            ClaimAnswer::Offer(result) => match (&result.answer, &result.claim) {
                (OfferAnswer::Offered, Some(claim)) => (claim, None),
                _ => return,
            },
            _ => return,
        };
        if !self.claims.contains(&claim.id) {
            self.claims.push(claim.id);
        }
        self.tokens.extend(token.map(|token| (claim.id, token)));
    }

    pub(super) fn call_for(
        &self,
        team: TeamId,
        command: &ClaimCommand,
        operation: impl Fn(OperationSpec) -> KeyedOperation,
        now: Time,
    ) -> Option<ClaimCall> {
        let claim = |recency: u8| by_recency(&self.claims, recency);
        Some(match command {
            ClaimCommand::Acquire(spec) => ClaimCall::Acquire(Box::new(spec.to_new_claim(team, now))),
            ClaimCommand::Offer { key, payload } => ClaimCall::Offer(new_offer(team, key, *payload, now)),
            ClaimCommand::Hold { token, action } => {
                let (id, token) = by_recency(&self.tokens, *token)?;
                ClaimCall::Apply(team, id, holder_action(team, token, *action), None)
            }
            ClaimCommand::Evidence { claim: recency, says, result, call } => {
                let action = ClaimAction::Evidence { says: *says, result: result.reported(), by: Some(api_key(team)) };
                ClaimCall::Apply(team, claim(*recency)?, action, call.map(operation))
            }
            ClaimCommand::Resolve { claim: recency, resolution, rev, call } => {
                let result = ReportedResult::None;
                let action =
                    ClaimAction::Resolve { resolution: *resolution, rev: *rev, result, by: Some(api_key(team)) };
                ClaimCall::Apply(team, claim(*recency)?, action, call.map(operation))
            }
            ClaimCommand::Lapse { max, knows_time } => {
                ClaimCall::Lapse(*max, ClaimClock { now, policy: knows_time.then_some(now) })
            }
            ClaimCommand::Forget { max } => ClaimCall::Forget(*max),
            ClaimCommand::List { state, key, before, limit } => {
                let key = key.map(|key| KeyHash::of_claim(team, &Key::parse(key).unwrap()));
                let before = before.and_then(claim);
                ClaimCall::List(team, ClaimQuery { state: *state, key, before, limit: *limit })
            }
            ClaimCommand::Stop(mode) => ClaimCall::Stop(stop_of_holders(team, *mode, now)),
            ClaimCommand::EndStop => ClaimCall::EndStop(team),
        })
    }

    /// Everything that a team can read of its claims: each with its result and its payload.
    pub(super) async fn view_all(&self, store: &TestStore, team: TeamId) -> Vec<ClaimView> {
        let query = ClaimQuery { limit: 1_000, ..ClaimQuery::default() };
        let mut rows = Vec::new();
        for claim in store.claims(team, query).await.unwrap() {
            let found = store.claim(team, claim.id).await.unwrap();
            rows.push((claim.clone(), found, store.claim_payload(team, claim.id).await.unwrap()));
        }
        rows
    }
}

/// A claim in a list, the same claim read alone with its result, and its payload.
pub(super) type ClaimView = (Claim, Option<(Claim, Option<Vec<u8>>)>, Option<Vec<u8>>);

fn by_recency<T: Copy>(all: &[T], recency: u8) -> Option<T> {
    all.iter().rev().nth(usize::from(recency) % all.len().max(1)).copied()
}

fn new_offer(team: TeamId, key: &str, payload: u8, now: Time) -> NewOffer {
    let payload = ExactJson::parse(&format!("{{\"invoice\":{payload}}}")).unwrap();
    NewOffer {
        id: ClaimId(next_id(now)),
        team,
        key: Key::parse(key).unwrap(),
        digest: payload_digest(&payload).unwrap(),
        payload: payload.as_str().as_bytes().to_vec(),
    }
}

fn holder_action(team: TeamId, token: ClaimToken, action: HolderAction) -> ClaimAction {
    match action {
        HolderAction::Begin => ClaimAction::Begin { token, by: Some(api_key(team)) },
        HolderAction::Renew(lease_ms) => ClaimAction::Renew { token, lease_ms },
        HolderAction::Complete(result) => ClaimAction::Complete { token, result: result.reported() },
        HolderAction::Fail(retryable) => ClaimAction::Fail { token, retryable, reason: "refused".into() },
    }
}

fn stop_of_holders(team: TeamId, mode: StopMode, now: Time) -> Stop {
    let scope = StopScope::ApiKey { team, id: api_key(team) };
    let by = StopAuthor { api_key: None, name: "tests".into() };
    Stop { id: StopId(next_id(now)), scope, mode, reason: None, by, created_at: now, release: None }
}
