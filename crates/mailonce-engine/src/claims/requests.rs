//! Acquiring a claim, commands and facts about it, lists.

use mailonce_core::{
    access::team::ApiKeyScope,
    claims::{
        Claim, ClaimClock, ClaimEvidence, ClaimQuery, ClaimResolution, ClaimToken, LostHolderPolicy, MAX_RESULT_BYTES,
        acquire::{AcquireAnswer, NewClaim},
        action::{ClaimAction, ClaimActionResult, ClaimActionStatus, ClaimRefusal, ReportedResult},
        offer::{NewOffer, OfferAnswer, payload_digest},
        period::PeriodLength,
    },
    control::budget_period::CalendarZone,
    exact_json::ExactJson,
    id::{ApiKeyId, ClaimId, TeamId},
    intent::Intent,
    key::{Key, KeyHash},
    operation::IdempotentResult,
    ports::store::StoreError,
    problem::{Code, Problem, shorten},
    ttl::{self, Ttl},
};

use super::{Claims, tokens};
use crate::{
    access::caller::Caller,
    control::stops::stopped_problem,
    runtime::{
        context::Context,
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::CursorPage,
    },
};

/// The period of a claim's intent.
#[derive(Clone, Debug)]
pub enum RequestedPeriod {
    /// As the caller names it.
    Named(String),
    /// Computed from the server's clock.
    Computed {
        /// How often it recurs.
        every: PeriodLength,
        /// The time zone. `None`: the team's.
        zone: Option<CalendarZone>,
        /// How long before a boundary a call counts for the coming period, in seconds.
        grace_s: i64,
    },
}

/// What a claim is identified by.
#[derive(Clone, Debug)]
pub struct ClaimIdentity {
    /// The key that the caller gave. Without it the key is derived from the intent.
    pub key: Option<Key>,
    /// What the side effect is about, and its period.
    pub intent: Option<(Intent, Option<RequestedPeriod>)>,
}

/// A request for a claim.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// What it is identified by.
    pub identity: ClaimIdentity,
    /// The holder's secret.
    pub holder: Option<String>,
    /// The name of the holder that others see.
    pub label: Option<String>,
    /// What the side effect contains.
    pub fingerprint: Option<String>,
    /// The duration of the lease, in seconds.
    pub lease_s: i64,
    /// How long the claim is remembered after its end.
    pub ttl: Option<Ttl>,
    /// Whether it begins with this call.
    pub begins_now: bool,
    /// What happens when the holder is lost after it began.
    pub on_unknown: LostHolderPolicy,
}

/// A claim, its result and its payload.
#[derive(Clone, Debug)]
pub struct ClaimView {
    /// The claim.
    pub claim: Claim,
    /// Its result, if it has one.
    pub result: Option<ExactJson>,
    /// Its payload, if it was offered with one.
    pub payload: Option<ExactJson>,
}

/// The answer to a request for a claim, apart from refusals.
#[derive(Clone, Debug)]
pub enum AcquireOutcome {
    /// The caller has it.
    Won {
        /// The claim.
        claim: Box<Claim>,
        /// The token of the holder.
        token: String,
        /// The idempotency key for the system that performs the side effect.
        downstream_key: String,
        /// The payload of an offered claim.
        payload: Option<ExactJson>,
    },
    /// It ended before; this is the stored answer.
    Ended(Box<ClaimView>),
}

/// What a side effect returned, as a caller reported it.
#[derive(Clone, Debug, Default)]
pub enum ReturnedValue {
    /// Nothing.
    #[default]
    None,
    /// Any JSON.
    Json(ExactJson),
    /// Something that cannot be read.
    Unreadable,
}

impl From<Option<ExactJson>> for ReturnedValue {
    fn from(value: Option<ExactJson>) -> Self {
        value.map_or(Self::None, Self::Json)
    }
}

/// A command or fact of a caller, before its token is verified.
#[derive(Clone, Debug)]
pub enum ClaimCommand {
    /// The holder begins.
    Begin {
        /// Its token.
        token: String,
    },
    /// The holder needs more time.
    Renew {
        /// Its token.
        token: String,
        /// The duration of the lease from now, in seconds.
        lease_s: i64,
    },
    /// The side effect happened.
    Complete {
        /// Any token of the claim.
        token: String,
        /// What it returned.
        result: ReturnedValue,
    },
    /// The side effect did not happen.
    Fail {
        /// The token of the holder.
        token: String,
        /// Whether the next caller may try again.
        retryable: bool,
        /// Why.
        reason: String,
    },
    /// What a look-up says.
    Evidence {
        /// What it says.
        says: ClaimEvidence,
        /// What the side effect returned.
        result: ReturnedValue,
    },
    /// A person decides about an unknown claim.
    Resolve {
        /// The decision.
        resolution: ClaimResolution,
        /// The revision that the person saw.
        rev: u32,
        /// What the side effect returned.
        result: ReturnedValue,
    },
}

/// How long after its first try a call with a computed period counts as its retry, in milliseconds. Clients give up much
/// earlier.
const RETRY_WINDOW_MS: i64 = 600_000;

/// What to do when a claim is not unknown. The hint of the code is about emails.
const NOT_UNKNOWN_HINT: &str = "Only claims in the state `unknown` can be resolved; read the claim to see its state.";

/// The key of a claim without a key of its own.
fn derived_key(intent: &Intent) -> Result<Key, Problem> {
    Key::parse(&intent.derive_key(&[]))
        .map_err(|error| Problem::new(Code::Internal, format!("the key of an intent is not valid: {error}")))
}

fn invalid_payload(error: serde_json::Error) -> Problem {
    Problem::new(Code::InvalidJson, format!("the payload is not JSON: {error}"))
}

fn not_found(id: ClaimId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no claim {id}"))
}

/// A claim belongs to the whole team, so a key that is restricted to inboxes has no access.
fn require(caller: &Caller, scope: ApiKeyScope) -> Result<(), Problem> {
    caller.require_scope(scope)?;
    caller.require_unrestricted_key()
}

impl Claims {
    /// Gives a claim to the caller, or answers what happened to it.
    pub async fn acquire(&self, caller: &Caller, request: ClaimRequest) -> Result<AcquireOutcome, Problem> {
        require(caller, ApiKeyScope::Send)?;
        let clock = self.ctx.claim_clock();
        let holder = request.holder.map(|holder| tokens::holder_hash(&self.ctx.secret, caller.team.id, &holder));
        let (key, intent) = self.identify(caller.team.id, request.identity, holder.as_deref()).await?;
        let new = NewClaim {
            id: ClaimId(self.ctx.new_id(clock.now)),
            team: caller.team.id,
            key,
            intent,
            fingerprint: request.fingerprint,
            holder,
            label: request.label,
            api_key: Some(caller.key.id),
            lease_ms: request.lease_s * 1_000,
            ttl: request.ttl.unwrap_or(ttl::DEFAULT),
            begins_now: request.begins_now,
            on_unknown: request.on_unknown,
        };
        let key = new.key.clone();
        crate::failpoint!("claim-before-acquire");
        let acquired = self.ctx.store.acquire_claim(new, clock).await.map_err(unavailable)?;
        crate::failpoint!("claim-after-acquire");
        if let AcquireAnswer::Stopped(stop) = &acquired.answer {
            return Err(stopped_problem(stop));
        }
        let Some(claim) = acquired.claim else {
            return Err(Problem::new(Code::Internal, "the store answered about a claim that it does not have"));
        };
        match acquired.answer {
            AcquireAnswer::Won(token) => {
                let downstream_key = tokens::downstream_key(&self.ctx.secret, &claim);
                let token = tokens::format(&self.ctx.secret, (claim.team, claim.id), token);
                let payload = self.unpack(claim.id, acquired.payload)?;
                Ok(AcquireOutcome::Won { claim: Box::new(claim), token, downstream_key, payload })
            }
            AcquireAnswer::Ended => Ok(AcquireOutcome::Ended(Box::new(self.view(claim, acquired.result).await?))),
            AcquireAnswer::Busy => Err(busy_problem(&claim, clock)),
            AcquireAnswer::Unknown => {
                self.escalate_or_log(&claim).await;
                // Whoever looks the side effect up searches for this key.
                let downstream_key = tokens::downstream_key(&self.ctx.secret, &claim);
                Err(unknown_problem(&claim).with_extension("downstream_key", downstream_key))
            }
            AcquireAnswer::Mismatch | AcquireAnswer::Stopped(_) => Err(mismatch_problem(&key, &claim, "fingerprint")),
        }
    }

    /// The key and the intent of a request. A period is computed here, so that all callers agree on it.
    async fn identify(
        &self,
        team: TeamId,
        identity: ClaimIdentity,
        holder: Option<&str>,
    ) -> Result<(Key, Option<Intent>), Problem> {
        let intent = match identity.intent {
            Some((intent, period)) => {
                let intent = match period {
                    None => intent,
                    Some(period) => self.with_period(team, intent, period, holder).await?,
                };
                intent
                    .validate()
                    .map_err(|error| Problem::invalid_field(format!("intent.{}", error.field), error.rule))?;
                Some(intent)
            }
            None => None,
        };
        let key = match (identity.key, &intent) {
            (Some(key), _) => key,
            (None, Some(intent)) => derived_key(intent)?,
            (None, None) => {
                return Err(Problem::invalid_field(
                    "key",
                    "is required: give `key`, an `intent` or an Idempotency-Key header, the same for every retry",
                ));
            }
        };
        Ok((key, intent))
    }

    /// The intent with its period. A retry of a call whose answer was lost keeps the period of its first try: a boundary
    /// may have passed since, and the claim of the first try would be left behind.
    async fn with_period(
        &self,
        team: TeamId,
        intent: Intent,
        period: RequestedPeriod,
        holder: Option<&str>,
    ) -> Result<Intent, Problem> {
        let (every, zone, grace_s) = match period {
            RequestedPeriod::Named(name) => return Ok(Intent { period: Some(name), ..intent }),
            RequestedPeriod::Computed { every, zone, grace_s } => (every, zone, grace_s),
        };
        let zone = match zone {
            Some(zone) => zone,
            None => self.access.settings_of(team).await.map_err(unavailable)?.calendar_zone(),
        };
        let now = self.ctx.now();
        let at = |time| Intent { period: Some(every.name_at(time, &zone, grace_s)), ..intent.clone() };
        let (current, earlier) = (at(now), at(now.plus(-RETRY_WINDOW_MS)));
        match holder {
            Some(holder) if earlier != current && self.has_claimed(team, &earlier, holder).await? => Ok(earlier),
            _ => Ok(current),
        }
    }

    /// Whether this holder got the claim of an intent lately, and still has it or was lost with it.
    async fn has_claimed(&self, team: TeamId, intent: &Intent, holder: &str) -> Result<bool, Problem> {
        let key = Some(KeyHash::of_claim(team, &derived_key(intent)?));
        let query = ClaimQuery { key, limit: 1, ..ClaimQuery::default() };
        let found = self.ctx.store.claims(team, query).await.map_err(unavailable)?;
        let since = self.ctx.now().plus(-RETRY_WINDOW_MS);
        let lease = found.first().and_then(|claim| claim.lease.as_ref());
        Ok(lease.is_some_and(|lease| lease.holder.as_deref() == Some(holder) && lease.issued_at >= since))
    }

    /// Makes a claim that waits for a worker, with the payload that the worker needs. The same key and payload again
    /// is the same claim.
    pub async fn offer(&self, caller: &Caller, key: Key, payload: &ExactJson) -> Result<Claim, Problem> {
        require(caller, ApiKeyScope::Send)?;
        let clock = self.ctx.claim_clock();
        let offer = NewOffer {
            id: ClaimId(self.ctx.new_id(clock.now)),
            team: caller.team.id,
            key: key.clone(),
            digest: payload_digest(payload).map_err(invalid_payload)?,
            payload: self.ctx.packer.pack_raw(payload.as_str().as_bytes()),
        };
        let offered = self.ctx.store.offer_claim(offer, clock).await.map_err(unavailable)?;
        match (offered.answer, offered.claim) {
            (OfferAnswer::Offered, Some(claim)) => Ok(claim),
            (OfferAnswer::Mismatch, Some(claim)) => Err(mismatch_problem(&key, &claim, "payload")),
            (OfferAnswer::Stopped(stop), _) => Err(stopped_problem(&stop)),
            (_, None) => Err(Problem::new(Code::Internal, "the store answered about a claim that it does not have")),
        }
    }

    async fn view(&self, claim: Claim, stored: Option<Vec<u8>>) -> Result<ClaimView, Problem> {
        let payload = match claim.offer {
            Some(_) => self.ctx.store.claim_payload(claim.team, claim.id).await.map_err(unavailable)?,
            None => None,
        };
        let (result, payload) = (self.unpack(claim.id, stored)?, self.unpack(claim.id, payload)?);
        Ok(ClaimView { claim, result, payload })
    }

    /// Decodes a stored result or payload.
    fn unpack(&self, id: ClaimId, stored: Option<Vec<u8>>) -> Result<Option<ExactJson>, Problem> {
        let Some(stored) = stored else { return Ok(None) };
        let bytes = self.ctx.packer.unpack_raw(&stored);
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let value = text.and_then(|text| ExactJson::from_stored(text).ok());
        if value.is_none() {
            tracing::error!(claim = %id, "the result or the payload of a claim cannot be decoded");
            return Err(Problem::new(Code::Internal, format!("claim {id} has contents that cannot be decoded")));
        }
        Ok(value)
    }

    fn pack_result(&self, result: &ReturnedValue) -> ReportedResult {
        match result {
            ReturnedValue::None => ReportedResult::None,
            ReturnedValue::Json(json) if json.as_str().len() <= MAX_RESULT_BYTES => {
                ReportedResult::Stored(self.ctx.packer.pack_raw(json.as_str().as_bytes()))
            }
            ReturnedValue::Json(_) | ReturnedValue::Unreadable => ReportedResult::Omitted,
        }
    }

    /// Applies a command or records a fact. Calls that have the same effect when they are repeated have no key.
    pub async fn apply(
        &self,
        caller: &Caller,
        id: ClaimId,
        command: ClaimCommand,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Claim, Problem> {
        let is_decision = matches!(command, ClaimCommand::Resolve { .. });
        if is_decision {
            caller.require_decider()?;
            caller.require_unrestricted_key()?;
        } else {
            require(caller, ApiKeyScope::Send)?;
        }
        let clock = self.ctx.claim_clock();
        let action = match self.to_action(caller, id, command) {
            Some(action) => action,
            // The token of a claim that does not exist cannot be verified.
            None if self.ctx.store.claim(caller.team.id, id).await.map_err(unavailable)?.is_none() => {
                return Err(not_found(id));
            }
            None => return Err(Problem::new(Code::WrongToken, format!("claim {id} never issued this token"))),
        };
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), clock.now);
        crate::failpoint!("claim-before-action");
        let applied = self.ctx.store.apply_claim_action(caller.team.id, id, action, operation, clock).await;
        crate::failpoint!("claim-after-action");
        match applied.map_err(unavailable)? {
            IdempotentResult::Done(ClaimActionResult::Done(status, claim)) => {
                self.sync_escalation(&claim).await;
                match status {
                    ClaimActionStatus::Applied => Ok(*claim),
                    ClaimActionStatus::Refused(refusal) => Err(refusal_problem(&refusal, &claim)),
                }
            }
            IdempotentResult::Done(ClaimActionResult::Missing) => Err(not_found(id)),
            IdempotentResult::Replayed(_) => Ok(self.read_claim(caller.team.id, id).await?.0),
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// The action of a command. `None` when the claim never issued its token.
    fn to_action(&self, caller: &Caller, id: ClaimId, command: ClaimCommand) -> Option<ClaimAction> {
        let verify =
            |token: &str| -> Option<ClaimToken> { tokens::verify(&self.ctx.secret, (caller.team.id, id), token) };
        let by = Some(caller.key.id);
        Some(match command {
            ClaimCommand::Begin { token } => ClaimAction::Begin { token: verify(&token)?, by },
            ClaimCommand::Renew { token, lease_s } => {
                ClaimAction::Renew { token: verify(&token)?, lease_ms: lease_s * 1_000 }
            }
            ClaimCommand::Complete { token, result } => {
                ClaimAction::Complete { token: verify(&token)?, result: self.pack_result(&result) }
            }
            ClaimCommand::Fail { token, retryable, reason } => {
                ClaimAction::Fail { token: verify(&token)?, retryable, reason }
            }
            ClaimCommand::Evidence { says, result } => {
                ClaimAction::Evidence { says, result: self.pack_result(&result), by }
            }
            ClaimCommand::Resolve { resolution, rev, result } => {
                ClaimAction::Resolve { resolution, rev: Some(rev), result: self.pack_result(&result), by }
            }
        })
    }

    async fn read_claim(&self, team: TeamId, id: ClaimId) -> Result<(Claim, Option<Vec<u8>>), Problem> {
        self.ctx.store.claim(team, id).await.map_err(unavailable)?.ok_or_else(|| not_found(id))
    }

    /// One claim, with its result.
    pub async fn claim(&self, caller: &Caller, id: ClaimId) -> Result<ClaimView, Problem> {
        require(caller, ApiKeyScope::Read)?;
        let (claim, result) = self.read_claim(caller.team.id, id).await?;
        self.view(claim, result).await
    }

    /// Claims, newest first, without their results.
    pub async fn claims(
        &self,
        caller: &Caller,
        key: Option<&Key>,
        query: ClaimQuery,
    ) -> Result<CursorPage<Claim>, Problem> {
        require(caller, ApiKeyScope::Read)?;
        let limit = query.limit;
        let key = key.map(|key| KeyHash::of_claim(caller.team.id, key));
        let asked = ClaimQuery { key, limit: limit + 1, ..query };
        let mut rows = self.ctx.store.claims(caller.team.id, asked).await.map_err(unavailable)?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        Ok(CursorPage { next: rows.last().filter(|_| more).map(|claim| claim.id.0), rows })
    }
}

impl Context {
    /// The times by which claims are decided.
    pub(super) fn claim_clock(&self) -> ClaimClock {
        ClaimClock { now: self.now(), policy: self.time.earlier_time() }
    }

    /// Carries out a person's decision about an escalation. Does nothing when the claim is no longer unknown.
    pub(crate) async fn resolve_unknown_claim(
        &self,
        team: TeamId,
        id: ClaimId,
        resolution: ClaimResolution,
        by: Option<ApiKeyId>,
    ) -> Result<(), StoreError> {
        let action = ClaimAction::Resolve { resolution, rev: None, result: ReportedResult::None, by };
        self.store.apply_claim_action(team, id, action, None, self.claim_clock()).await.map(drop)
    }
}

fn busy_problem(claim: &Claim, clock: ClaimClock) -> Problem {
    let seconds = claim.retry_after_s(clock.now);
    let label = claim.lease.as_ref().and_then(|lease| lease.label.clone());
    let holder = label.as_ref().map_or_else(|| "another caller".to_owned(), |label| format!("`{label}`"));
    let detail = format!("{holder} has this claim; ask again in {seconds} s");
    let problem = Problem::new(Code::Busy, detail)
        .with_extension("id", claim.id.to_string())
        .with_extension("retry_after", seconds);
    let problem = with_period(problem, claim);
    match label {
        Some(label) => problem.with_extension("label", label),
        None => problem,
    }
}

fn unknown_problem(claim: &Claim) -> Problem {
    let detail = format!("the holder of claim {} was lost after it began", claim.id);
    let problem = Problem::new(Code::ClaimUnknown, detail)
        .with_extension("id", claim.id.to_string())
        .with_extension("rev", claim.rev);
    let problem = with_period(problem, claim);
    match claim.retry_at {
        Some(at) => problem.with_extension("retry_at", at.to_string()),
        None => problem,
    }
}

/// With the period of the claim. A caller that asks again names it: computed again, it could be the next one by then.
fn with_period(problem: Problem, claim: &Claim) -> Problem {
    match claim.intent.as_ref().and_then(|intent| intent.period.as_ref()) {
        Some(period) => problem.with_extension("period", period.as_str()),
        None => problem,
    }
}

fn mismatch_problem(key: &Key, claim: &Claim, field: &str) -> Problem {
    let detail = format!("the key `{}` was used with another {field}", shorten(key.as_str()));
    Problem::new(Code::KeyMismatch, detail)
        .with_extension("id", claim.id.to_string())
        .with_extension("differing_fields", vec![field])
        .with_extension(
            "next",
            "Do not perform the side effect: read the claim, or use a new key if this is another one.",
        )
}

fn refusal_problem(refusal: &ClaimRefusal, claim: &Claim) -> Problem {
    let state = claim.state.as_str();
    let (code, why) = match refusal {
        ClaimRefusal::Stopped(stop) => return stopped_problem(stop),
        ClaimRefusal::StaleToken => (Code::StaleToken, "your lease of it has ended"),
        ClaimRefusal::Ended => (Code::ClaimEnded, "it has ended"),
        ClaimRefusal::NotUnknown => (Code::NotUnknown, "its outcome is not unknown"),
        ClaimRefusal::StaleRev => (Code::StaleRev, "it has changed since `rev` was read"),
    };
    let problem = Problem::new(code, format!("claim {} is {state}: {why}", claim.id))
        .with_extension("state", state)
        .with_extension("rev", claim.rev);
    match refusal {
        ClaimRefusal::NotUnknown => problem.with_extension("next", NOT_UNKNOWN_HINT),
        _ => problem,
    }
}
