//! Claims: the once-only right to any side effect other than an email.

mod bodies;

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    claims::{ClaimQuery, ClaimResolution, ClaimState},
    id::ClaimId,
    key::Key,
    limits,
    outbound::policy_trace::{PolicyKind, PolicyStep, PolicyVerdict},
    problem::{Code, Problem},
};
use mailonce_engine::{
    KeyedCall,
    claims::requests::{AcquireOutcome, ClaimCommand},
};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use crate::{
    api::{
        claims::bodies::{
            ClaimBody, ClaimEvidenceBody, ClaimPage, ClaimTokenBody, CompleteClaimBody, FailClaimBody, NewClaimBody,
            RenewClaimBody, ResolveClaimBody, WonClaimBody, check_reason, completion, evidence_command, lease_seconds,
        },
        outbound::{
            emails::{SendPreferences, page_limit},
            policy_steps::policy_body,
        },
        pagination::created_response,
    },
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        params::{PathParam, QueryParams},
    },
};

fn claim_id(text: &str) -> Result<ClaimId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no claim {text}")))
}

/// Claim a side effect.
///
/// Whoever gets `201` may perform the side effect, and reports its end with `complete` or `fail`. The claim has begun
/// unless `begin` is `later`. Everybody else is answered what happened to it. A repeated call of the same `holder` gets
/// the same `201`.
#[utoipa::path(post, path = "/v1/claims", operation_id = "create_claim", tag = "claims", request_body = NewClaimBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The key of the claim, instead of `key`"),
        ("Prefer" = Option<String>, Header, description = "`policy-trace`: show in `policy` what each check decided")),
    responses((status = 201, description = "You have the claim", body = WonClaimBody),
        (status = 200, description = "It ended before: the stored answer", body = ClaimBody),
        (status = 409, description = "Another caller has it (`busy`), a holder was lost after it began (`unknown`), or a stop covers it (`stopped`)", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    auth: AuthedRequest,
    prefer: SendPreferences,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let request = body.parse::<NewClaimBody>()?.into_request(auth.key.as_ref())?;
    let acquired = app.engine.claims.acquire(&auth.caller, request).await;
    let policy = |verdict, why: &str| {
        let step = PolicyStep::new(PolicyKind::Stop, "stops", verdict, why);
        prefer.wants_policy.then(|| vec![step])
    };
    match acquired {
        Ok(AcquireOutcome::Won { claim, token, downstream_key, payload }) => {
            let policy = policy(PolicyVerdict::Pass, "no stop refuses it").map(policy_body);
            let body = WonClaimBody::new(&claim, token, downstream_key).with_payload(payload).with_policy(policy);
            Ok((StatusCode::CREATED, Json(body)).into_response())
        }
        Ok(AcquireOutcome::Ended(view)) => {
            let policy = policy(PolicyVerdict::Pass, "it has ended, so no stop applies to it").map(policy_body);
            Ok(created_response(false, Json(ClaimBody::with_result(*view).with_policy(policy))))
        }
        Err(problem) if problem.code == Code::Stopped => {
            let problem = match policy(PolicyVerdict::Refuse, &problem.detail) {
                Some(steps) => problem.with_extension("policy", json!(steps)),
                None => problem,
            };
            Err(problem.into())
        }
        Err(problem) => Err(problem.into()),
    }
}

/// Filters of a list of claims.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimListQuery {
    /// Only claims in this state: `claimed begun completed failed unknown abandoned`.
    state: Option<String>,
    /// Only the claim with this key.
    key: Option<String>,
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List claims, newest first.
#[utoipa::path(get, path = "/v1/claims", operation_id = "list_claims", tag = "claims", params(ClaimListQuery),
    responses((status = 200, description = "A page of results, without the results and payloads of the claims", body = ClaimPage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<ClaimListQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let ClaimListQuery { state, key, limit, cursor } = query.0;
    let state = state.as_deref().map(|word| {
        ClaimState::parse(word).ok_or_else(|| {
            let names: Vec<&str> = ClaimState::ALL.iter().map(|state| state.as_str()).collect();
            Problem::invalid_query("state", format!("state must be one of {}", names.join(", ")))
        })
    });
    let key =
        key.as_deref().map(|key| Key::parse(key).map_err(|error| Problem::invalid_query("key", error.to_string())));
    let before = cursor.as_deref().map(|cursor| {
        let invalid =
            |_not_an_id| Problem::invalid_query("cursor", "cursor must be the next_cursor of a previous page");
        cursor.parse().map_err(invalid)
    });
    let limit = page_limit(limit.as_deref(), limits::PAGE_ROWS, 20)?;
    let query = ClaimQuery { state: state.transpose()?, key: None, before: before.transpose()?.map(ClaimId), limit };
    let page = app.engine.claims.claims(&auth.caller, key.transpose()?.as_ref(), query).await?;
    let data = page.rows.iter().map(ClaimBody::from).collect();
    Ok(Json(ClaimPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one claim, its result and its payload.
#[utoipa::path(get, path = "/v1/claims/{id}", operation_id = "read_claim", tag = "claims", params(("id" = String, Path)),
    responses((status = 200, description = "The claim", body = ClaimBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let view = app.engine.claims.claim(&auth.caller, claim_id(&id)?).await?;
    Ok(Json(ClaimBody::with_result(view)).into_response())
}

async fn apply(app: &App, auth: &AuthedRequest, id: &str, command: ClaimCommand) -> ApiResult {
    apply_keyed(app, auth, id, command, None).await
}

async fn apply_keyed(
    app: &App,
    auth: &AuthedRequest,
    id: &str,
    command: ClaimCommand,
    keyed_call: Option<KeyedCall>,
) -> ApiResult {
    let claim = app.engine.claims.apply(&auth.caller, claim_id(id)?, command, keyed_call).await?;
    Ok(Json(ClaimBody::from(&claim)).into_response())
}

/// Begin the side effect of a claim that was made with `begin: "later"`.
///
/// From here on the claim is never freed by the end of its lease. Repeating the call answers the same.
#[utoipa::path(post, path = "/v1/claims/{id}/begin", operation_id = "begin_claim", tag = "claims", params(("id" = String, Path)), request_body = ClaimTokenBody,
    responses((status = 200, description = "Begun", body = ClaimBody),
        (status = 409, description = "Your lease has ended (`stale_token`), the claim has ended (`claim_ended`), or a stop covers it (`stopped`)", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn begin(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let ClaimTokenBody { token } = body.parse()?;
    apply(&app, &auth, &id, ClaimCommand::Begin { token }).await
}

/// Renew the lease of a claim.
///
/// A holder that only seemed lost has its claim back, unless somebody decided about it.
#[utoipa::path(post, path = "/v1/claims/{id}/renew", operation_id = "renew_claim", tag = "claims", params(("id" = String, Path)), request_body = RenewClaimBody,
    responses((status = 200, description = "Renewed", body = ClaimBody),
        (status = 409, description = "Your lease has ended, or the claim has", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn renew(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let RenewClaimBody { token, lease_s } = body.parse()?;
    apply(&app, &auth, &id, ClaimCommand::Renew { token, lease_s: lease_seconds(lease_s)? }).await
}

/// Report that the side effect happened.
///
/// This is always recorded, for every token that the claim ever issued: late, repeated, or after a person decided
/// otherwise. A result of more than 4 MiB, or one that cannot be read, is left out (`result_omitted`).
#[utoipa::path(post, path = "/v1/claims/{id}/complete", operation_id = "complete_claim", tag = "claims", params(("id" = String, Path)), request_body = CompleteClaimBody,
    responses((status = 200, description = "Recorded", body = ClaimBody)))]
pub(crate) async fn complete(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    apply(&app, &auth, &id, completion(&body)?).await
}

/// Report that the side effect surely did not happen.
///
/// A retryable failure frees the claim for the next caller. Report one only if the other system surely did nothing.
#[utoipa::path(post, path = "/v1/claims/{id}/fail", operation_id = "fail_claim", tag = "claims", params(("id" = String, Path)), request_body = FailClaimBody,
    responses((status = 200, description = "Recorded", body = ClaimBody),
        (status = 409, description = "Your lease has ended, or the claim has", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn fail(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let FailClaimBody { token, retryable, reason } = body.parse()?;
    check_reason(&reason)?;
    apply(&app, &auth, &id, ClaimCommand::Fail { token, retryable, reason }).await
}

/// Report what a look-up says about a claim.
///
/// `done` completes the claim. `not_found` is only recorded, because it does not prove that the side effect did not
/// happen. A result of more than 4 MiB, or one that cannot be read, is left out (`result_omitted`).
#[utoipa::path(post, path = "/v1/claims/{id}/evidence", operation_id = "add_claim_evidence", tag = "claims", request_body = ClaimEvidenceBody,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "Recorded", body = ClaimBody)))]
pub(crate) async fn evidence(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let command = evidence_command(&body)?;
    // A result that cannot be read has no canonical form.
    let compared = body.canonical().unwrap_or_else(|_| body.0.to_vec());
    let keyed_call = auth.keyed_call("claims/evidence", &id, &compared);
    apply_keyed(&app, &auth, &id, command, keyed_call).await
}

/// Decide about a claim whose outcome is unknown.
///
/// `done`: the side effect happened. `retry`: the next caller may perform it, possibly a second time. `abandon`: nobody
/// performs it any more.
#[utoipa::path(post, path = "/v1/claims/{id}/resolve", operation_id = "resolve_claim", tag = "claims", request_body = ResolveClaimBody,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "Decided", body = ClaimBody),
        (status = 409, description = "The claim is not unknown, or has changed", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn resolve(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_decider()?;
    let keyed_call = auth.keyed_call("claims/resolve", &id, &body.canonical()?);
    let ResolveClaimBody { resolution, rev, result } = body.parse()?;
    let result = body.exact_result(result.as_ref())?.into();
    let resolution = ClaimResolution::parse(&resolution)
        .ok_or_else(|| Problem::invalid_field("as", "must be done, retry or abandon"))?;
    apply_keyed(&app, &auth, &id, ClaimCommand::Resolve { resolution, rev, result }, keyed_call).await
}
