//! The bodies of requests and answers about claims.

use mailonce_core::{
    claims::{
        Claim, ClaimEvidence, ClaimState, LEASE_SECONDS, LostHolderPolicy, MAX_FINGERPRINT_CHARS, MAX_HOLDER_CHARS,
        MAX_REASON_CHARS, ResultPresence,
        period::{DEFAULT_GRACE_S, MAX_GRACE_S, PeriodLength},
    },
    control::budget_period::CalendarZone,
    exact_json::ExactJson,
    intent::Intent,
    key::Key,
    problem::{Code, Problem},
};
use mailonce_engine::claims::requests::{
    ClaimCommand, ClaimIdentity, ClaimRequest, ClaimView, RequestedPeriod, ReturnedValue,
};
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema},
};

use crate::{
    api::outbound::{
        email_bodies::{TtlBody, text_or_object_schema},
        policy_steps::PolicyStepBody,
    },
    http::{
        extract::RawBody,
        json::{StrictObject, object_or_null},
    },
};

/// A period that the server computes from its clock.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComputedPeriodBody {
    /// `day`, `week` (from Monday) or `month`.
    every: String,
    /// IANA name of the time zone, such as `Europe/Berlin`; the team's `time_zone` by default.
    #[serde(default)]
    time_zone: Option<String>,
    /// A call less than this many seconds before a boundary counts for the coming period; 60 by default, at most 43,200.
    #[serde(default)]
    grace_s: Option<i64>,
}

/// A period: a name, or how the server computes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "has a type that this field does not accept")]
pub(crate) enum PeriodBody {
    /// The day, week or run, as you name it.
    Name(String),
    /// Computed by the server.
    Computed(StrictObject<ComputedPeriodBody>),
}

impl PartialSchema for PeriodBody {
    fn schema() -> RefOr<Schema> {
        text_or_object_schema::<ComputedPeriodBody>(
            "The period of a recurring side effect.",
            "The day, week or run, as you name it.",
            "Computed by the server from its clock.",
        )
    }
}

impl ToSchema for PeriodBody {
    fn name() -> std::borrow::Cow<'static, str> {
        "ClaimPeriod".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((ComputedPeriodBody::name().into(), ComputedPeriodBody::schema()));
    }
}

impl PeriodBody {
    fn parse(self) -> Result<RequestedPeriod, Problem> {
        let ComputedPeriodBody { every, time_zone, grace_s } = match self {
            Self::Name(name) => return Ok(RequestedPeriod::Named(name)),
            Self::Computed(StrictObject(computed)) => computed,
        };
        let every = PeriodLength::parse(&every)
            .ok_or_else(|| Problem::invalid_field("intent.period.every", "must be day, week or month"))?;
        let zone = time_zone.map(|name| {
            CalendarZone::parse(&name).ok_or_else(|| {
                Problem::invalid_field("intent.period.time_zone", "must be an IANA time zone, such as Europe/Berlin")
            })
        });
        let grace_s = grace_s.unwrap_or(DEFAULT_GRACE_S);
        if !(0..=MAX_GRACE_S).contains(&grace_s) {
            let rule = format!("must be 0 to {MAX_GRACE_S} seconds");
            return Err(Problem::invalid_field("intent.period.grace_s", rule));
        }
        Ok(RequestedPeriod::Computed { every, zone: zone.transpose()?, grace_s })
    }
}

/// What the side effect is about. The key of the claim is derived from it, as that of an email with `to: []`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimIntentBody {
    /// Type of the side effect, such as `invoice.create`.
    #[serde(rename = "type")]
    kind: String,
    /// What it is about, such as `order_4821`.
    entity: String,
    /// Increase it to do the same again on purpose; 1 by default.
    #[serde(default)]
    version: Option<u32>,
    #[serde(default)]
    period: Option<PeriodBody>,
}

/// A side effect to claim. Give `key`, `intent` or the header `Idempotency-Key`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewClaimBody {
    /// The key of the claim, 1 to 256 printable ASCII characters. Keys of emails are a space of their own.
    #[serde(default)]
    key: Option<String>,
    #[serde(default, deserialize_with = "object_or_null")]
    intent: Option<ClaimIntentBody>,
    /// A random secret of this caller, the same for every retry of this call, up to 128 characters. Only the same
    /// holder gets the same `201` again.
    #[serde(default)]
    holder: Option<String>,
    /// A name that other callers see while you have the claim, up to 128 characters.
    #[serde(default)]
    label: Option<String>,
    /// A hash or summary of what the side effect contains, up to 256 characters. Another one under the same key is
    /// `422 key_mismatch`.
    #[serde(default)]
    fingerprint: Option<String>,
    /// How long you have the claim unless you renew it, 1 to 3,600 seconds.
    lease_s: i64,
    /// How long the claim is remembered after its end; 35 days by default.
    #[serde(default)]
    ttl: Option<TtlBody>,
    /// `now` (default) or `later`: then `POST /v1/claims/{id}/begin` comes before the side effect.
    #[serde(default)]
    begin: Option<String>,
    /// If you are lost after you began: `hold` (default) waits for evidence or a person; `retry` frees the claim once,
    /// 10 minutes after your lease ended.
    #[serde(default)]
    on_unknown: Option<String>,
}

/// Refuses an empty or too long text.
fn check_length(field: &str, text: Option<&String>, max: usize) -> Result<(), Problem> {
    match text {
        Some(text) if text.is_empty() || text.chars().count() > max => {
            Err(Problem::invalid_field(field, format!("must have 1 to {max} characters")))
        }
        _ => Ok(()),
    }
}

/// Refuses a reason that is too long.
pub(crate) fn check_reason(reason: &str) -> Result<(), Problem> {
    if reason.chars().count() > MAX_REASON_CHARS {
        return Err(Problem::invalid_field("reason", format!("must have at most {MAX_REASON_CHARS} characters")));
    }
    Ok(())
}

/// The duration of a lease in seconds.
pub(crate) fn lease_seconds(seconds: i64) -> Result<i64, Problem> {
    if LEASE_SECONDS.contains(&seconds) {
        return Ok(seconds);
    }
    Err(Problem::invalid_field("lease_s", format!("must be {} to {}", LEASE_SECONDS.start(), LEASE_SECONDS.end())))
}

impl NewClaimBody {
    /// The request, with the key of the header if there is one.
    pub(crate) fn into_request(self, header: Option<&Key>) -> Result<ClaimRequest, Problem> {
        let given = self.key.map(|key| {
            Key::parse(&key).map_err(|error| Problem::for_field(Code::InvalidKey, "key", error.to_string()))
        });
        let key = match (header.cloned(), given.transpose()?) {
            (Some(header), Some(key)) if header != key => {
                return Err(Problem::invalid_field("key", "must be the same as the Idempotency-Key header, or absent"));
            }
            (header, key) => header.or(key),
        };
        let intent = self.intent.map(|ClaimIntentBody { kind, entity, version, period }| {
            let intent = Intent { kind, entity, version: version.unwrap_or(1), period: None };
            Ok::<_, Problem>((intent, period.map(PeriodBody::parse).transpose()?))
        });
        check_length("holder", self.holder.as_ref(), MAX_HOLDER_CHARS)?;
        check_length("label", self.label.as_ref(), MAX_HOLDER_CHARS)?;
        check_length("fingerprint", self.fingerprint.as_ref(), MAX_FINGERPRINT_CHARS)?;
        let begins_now = match self.begin.as_deref() {
            None | Some("now") => true,
            Some("later") => false,
            Some(_) => return Err(Problem::invalid_field("begin", "must be now or later")),
        };
        let on_unknown = self.on_unknown.as_deref().map_or(Some(LostHolderPolicy::Hold), LostHolderPolicy::parse);
        Ok(ClaimRequest {
            identity: ClaimIdentity { key, intent: intent.transpose()? },
            holder: self.holder,
            label: self.label,
            fingerprint: self.fingerprint,
            lease_s: lease_seconds(self.lease_s)?,
            ttl: self.ttl.as_ref().map(TtlBody::parse).transpose().map_err(|error| Problem::from(vec![error]))?,
            begins_now,
            on_unknown: on_unknown.ok_or_else(|| Problem::invalid_field("on_unknown", "must be hold or retry"))?,
        })
    }
}

/// The token of a holder.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimTokenBody {
    pub(crate) token: String,
}

/// A lease to renew.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewClaimBody {
    pub(crate) token: String,
    /// Duration of the lease from now, 1 to 3,600 seconds.
    pub(crate) lease_s: i64,
}

/// A side effect that happened.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteClaimBody {
    pub(crate) token: String,
    /// What later callers get, any JSON up to 4 MiB.
    #[serde(default)]
    pub(crate) result: Option<Value>,
}

/// A completion whose result cannot be read. Skipping a value checks neither its size nor the text in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompletionWithoutResult {
    token: String,
    #[serde(rename = "result")]
    _result: IgnoredAny,
}

/// Evidence whose result cannot be read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EvidenceWithoutResult {
    says: String,
    #[serde(rename = "result")]
    _result: IgnoredAny,
}

/// Reads the body of a fact again without its result, which is beyond the limits of JSON bodies or not Unicode: the side
/// effect happened, and a fact is never refused. Any other `problem` stands.
fn without_result<T: DeserializeOwned>(body: &RawBody, problem: Problem) -> Result<T, Problem> {
    let is_unreadable = matches!(problem.code, Code::TooLarge | Code::InvalidJson);
    serde_json::from_slice(&body.0).ok().filter(|_| is_unreadable).ok_or(problem)
}

/// The command in the body of a completion.
pub(crate) fn completion(body: &RawBody) -> Result<ClaimCommand, Problem> {
    let read = || {
        let CompleteClaimBody { token, result } = body.parse()?;
        Ok(ClaimCommand::Complete { token, result: body.exact_result(result.as_ref())?.into() })
    };
    read().or_else(|problem| {
        let CompletionWithoutResult { token, .. } = without_result(body, problem)?;
        Ok(ClaimCommand::Complete { token, result: ReturnedValue::Unreadable })
    })
}

/// The command in the body of evidence.
pub(crate) fn evidence_command(body: &RawBody) -> Result<ClaimCommand, Problem> {
    let finding = |says: &str| {
        ClaimEvidence::parse(says).ok_or_else(|| Problem::invalid_field("says", "must be done or not_found"))
    };
    let read = || {
        let ClaimEvidenceBody { says, result } = body.parse()?;
        Ok(ClaimCommand::Evidence { says: finding(&says)?, result: body.exact_result(result.as_ref())?.into() })
    };
    read().or_else(|problem| {
        let EvidenceWithoutResult { says, .. } = without_result(body, problem)?;
        Ok(ClaimCommand::Evidence { says: finding(&says)?, result: ReturnedValue::Unreadable })
    })
}

/// A side effect that surely did not happen.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailClaimBody {
    pub(crate) token: String,
    /// Whether the next caller may try again.
    pub(crate) retryable: bool,
    /// Why, up to 1,000 characters.
    #[serde(default)]
    pub(crate) reason: String,
}

/// What a look-up says.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimEvidenceBody {
    /// `done` or `not_found`.
    pub(crate) says: String,
    /// What later callers get.
    #[serde(default)]
    pub(crate) result: Option<Value>,
}

/// A decision about an unknown claim.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveClaimBody {
    /// `done`, `retry` or `abandon`.
    #[serde(rename = "as")]
    pub(crate) resolution: String,
    /// The `rev` of the claim that you read.
    pub(crate) rev: u32,
    /// What later callers get, with `done`.
    #[serde(default)]
    pub(crate) result: Option<Value>,
}

/// A claim that you have.
#[derive(Serialize, ToSchema)]
pub(crate) struct WonClaimBody {
    id: String,
    /// `begun`, or `claimed` with `begin: "later"`.
    state: &'static str,
    /// Proves that you have the claim. Keep it until the end.
    token: String,
    /// Grows with each holder of this claim.
    fence: u64,
    /// Idempotency key for the system that performs the side effect: the same for every holder of this claim.
    downstream_key: String,
    lease_expires_at: Option<String>,
    key: String,
    /// The period, if the intent has one.
    period: Option<String>,
    /// Whether an earlier holder may have performed the side effect. Look it up before you perform it.
    may_repeat: bool,
    rev: u32,
    /// What the application wrote with `mailonce_outbox.claim`, any JSON. Left out for other claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    payload: Option<ExactJson>,
    /// With `Prefer: policy-trace`: what each check decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Vec<PolicyStepBody>>,
}

impl WonClaimBody {
    pub(crate) fn new(claim: &Claim, token: String, downstream_key: String) -> Self {
        Self {
            id: claim.id.to_string(),
            state: claim.state.as_str(),
            token,
            fence: claim.fence,
            downstream_key,
            lease_expires_at: claim.lease.as_ref().map(|lease| lease.expires_at.to_string()),
            key: claim.key.to_string(),
            period: claim.intent.as_ref().and_then(|intent| intent.period.clone()),
            may_repeat: claim.may_repeat(),
            rev: claim.rev,
            payload: None,
            policy: None,
        }
    }

    /// With the payload of an offered claim.
    pub(crate) fn with_payload(self, payload: Option<ExactJson>) -> Self {
        Self { payload, ..self }
    }

    /// With what each check decided, if the caller asked for that.
    pub(crate) fn with_policy(self, policy: Option<Vec<PolicyStepBody>>) -> Self {
        Self { policy, ..self }
    }
}

/// A claim.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClaimBody {
    id: String,
    key: String,
    /// `claimed begun completed failed unknown abandoned`. A claim that is `claimed` without a lease is free.
    state: &'static str,
    rev: u32,
    created_at: String,
    fence: u64,
    /// What the side effect is about.
    #[schema(value_type = Option<Object>)]
    intent: Option<Intent>,
    fingerprint: Option<String>,
    /// Name of the current or lost holder.
    label: Option<String>,
    lease_expires_at: Option<String>,
    /// `hold` or `retry`.
    on_unknown: &'static str,
    /// When the policy `retry` frees it.
    retry_at: Option<String>,
    /// Whether an earlier holder may have performed the side effect.
    may_repeat: bool,
    /// Whether the completion arrived after the claim had moved on.
    corrected: bool,
    /// Number of holders that reported completion. More than 1: the side effect happened more than once.
    completions: usize,
    /// What the holder reported. In lists and after commands it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    result: Option<ExactJson>,
    /// What the application wrote with `mailonce_outbox.claim`. In lists and after commands it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    payload: Option<ExactJson>,
    /// When an outbox offered it. Null for other claims.
    offered_at: Option<String>,
    /// Whether there was a result that is not stored: it was too large, could not be read or was erased.
    result_omitted: bool,
    /// Why it failed.
    reason: Option<String>,
    ended_at: Option<String>,
    /// When it will be forgotten. Null while somebody has it or its outcome is unknown.
    expires_at: Option<String>,
    /// A person's latest decision: `done`, `retry` or `abandon`.
    resolved_as: Option<&'static str>,
    /// The latest reports of look-ups, oldest first.
    evidence: Vec<ClaimReportBody>,
    /// For `POST /v1/claims` with `Prefer: policy-trace`: what each check decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Vec<PolicyStepBody>>,
}

/// A report of a look-up.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClaimReportBody {
    at: String,
    /// `done` or `not_found`.
    says: &'static str,
    /// Id of the API key that reported it.
    by: Option<String>,
}

impl From<&Claim> for ClaimBody {
    fn from(claim: &Claim) -> Self {
        let lease = claim.lease.as_ref();
        let reports = claim.reports.iter().map(|report| ClaimReportBody {
            at: report.at.to_string(),
            says: report.finding.as_str(),
            by: report.by.map(|id| id.to_string()),
        });
        Self {
            id: claim.id.to_string(),
            key: claim.key.to_string(),
            state: claim.state.as_str(),
            rev: claim.rev,
            created_at: claim.created_at.to_string(),
            fence: claim.fence,
            intent: claim.intent.clone(),
            fingerprint: claim.fingerprint.clone(),
            label: lease.and_then(|lease| lease.label.clone()),
            lease_expires_at: lease.map(|lease| lease.expires_at.to_string()),
            on_unknown: claim.on_unknown.as_str(),
            retry_at: claim.retry_at.map(|at| at.to_string()),
            may_repeat: claim.may_repeat(),
            corrected: claim.corrected,
            completions: claim.completed_by.len(),
            result: None,
            payload: None,
            offered_at: claim.offer.as_ref().map(|offer| offer.at.to_string()),
            result_omitted: claim.result == ResultPresence::Omitted,
            reason: claim
                .failure
                .as_ref()
                .filter(|_| claim.state != ClaimState::Completed)
                .map(|failure| failure.reason.clone()),
            ended_at: claim.ended_at.map(|at| at.to_string()),
            expires_at: claim.forget_at().map(|at| at.to_string()),
            resolved_as: claim.decision.as_ref().map(|decision| decision.resolution.as_str()),
            evidence: reports.collect(),
            policy: None,
        }
    }
}

impl ClaimBody {
    /// The claim with its result and its payload.
    pub(crate) fn with_result(view: ClaimView) -> Self {
        Self { result: view.result, payload: view.payload, ..Self::from(&view.claim) }
    }

    /// The claim with what each check decided, if the caller asked for that.
    pub(crate) fn with_policy(self, policy: Option<Vec<PolicyStepBody>>) -> Self {
        Self { policy, ..self }
    }
}

/// A page of claims.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClaimPage {
    pub(crate) data: Vec<ClaimBody>,
    pub(crate) next_cursor: Option<String>,
}
