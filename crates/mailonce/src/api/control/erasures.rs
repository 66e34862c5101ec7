//! Erasures: removing a person's address, names and mail.

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::Address,
    control::erasure::ErasureCounts,
    problem::{Code, Problem},
};
use mailonce_engine::control::erasures::ErasureView;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::pagination::PageQuery,
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::check_text,
        params::{PathParam, QueryParams},
    },
};

/// The person to erase.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewErasureBody {
    /// The address, without a display name.
    address: String,
    /// Why, for the audit; up to 1,000 characters. The address is removed from it.
    #[serde(default)]
    reason: Option<String>,
}

/// What an erasure did so far.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErasureCountsBody {
    /// Waiting emails that were cancelled.
    cancelled: u64,
    /// Emails that were erased.
    emails: u64,
    /// Received messages that were erased.
    messages: u64,
    /// Arrivals without a message that were removed.
    deliveries: u64,
    /// Claims that were erased.
    claims: u64,
    /// Drafts that were removed.
    drafts: u64,
    /// Suppressions, list entries, rules, other records and API keys, endpoints, inboxes and stops in which the alias
    /// replaced the address.
    records: u64,
    /// Events whose data was erased.
    events: u64,
    /// Names that were removed from the audit log.
    audit_names: u64,
}

impl From<ErasureCounts> for ErasureCountsBody {
    fn from(counts: ErasureCounts) -> Self {
        let ErasureCounts { cancelled, emails, messages, deliveries, claims, drafts, records, events, audit_names } =
            counts;
        Self { cancelled, emails, messages, deliveries, claims, drafts, records, events, audit_names }
    }
}

/// An erasure.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErasureBody {
    id: String,
    /// `running` or `done`.
    state: &'static str,
    /// What it is working on: `emails`, `deliveries`, `messages`, `claims`, `records`, `waiting`, `events`, `names`,
    /// `storage` or `done`. `waiting` lasts until emails in doubt have settled and claims have ended.
    stage: &'static str,
    /// What replaces the address: a keyed hash that is the same for the same person.
    alias: String,
    reason: Option<String>,
    requested_at: String,
    done_at: Option<String>,
    /// Emails that may have been sent, and claims that have not ended. They are erased when that is settled.
    in_doubt: usize,
    counts: ErasureCountsBody,
}

impl From<&ErasureView> for ErasureBody {
    fn from(view: &ErasureView) -> Self {
        let erasure = &view.erasure;
        Self {
            id: view.id.to_string(),
            state: if erasure.is_running() { "running" } else { "done" },
            stage: erasure.stage.as_str(),
            alias: erasure.alias.clone(),
            reason: erasure.reason.clone(),
            requested_at: erasure.requested_at.to_string(),
            done_at: erasure.done_at.map(|at| at.to_string()),
            in_doubt: erasure.open.len() + erasure.open_claims.len(),
            counts: erasure.counts.into(),
        }
    }
}

/// A page of erasures, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErasurePage {
    data: Vec<ErasureBody>,
    next_cursor: Option<String>,
}

/// Erase a person.
///
/// Cancels the emails that wait for the address, then removes the address, names and mail from everything that is
/// stored. What keeps retries and suppressions working stays as keyed hashes. It runs in the background; emails in doubt
/// are erased when they have settled, and claims when they have ended. A request for the same person while an erasure is running answers that one.
#[utoipa::path(post, path = "/v1/erasures", operation_id = "create_erasure", tag = "erasures", request_body = NewErasureBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 202, description = "The erasure is running", body = ErasureBody)))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let body: NewErasureBody = body.parse()?;
    let address =
        Address::parse(&body.address).map_err(|error| Problem::invalid_field("address", error.to_string()))?;
    check_text("reason", body.reason.as_deref().unwrap_or_default())?;
    let reason = body.reason.filter(|reason| !reason.trim().is_empty());
    let digested = format!("{}\n{}", address.as_str(), reason.as_deref().unwrap_or_default());
    let keyed_call = auth.keyed_call("erasures", "", digested.as_bytes());
    let erasure = app.engine.erasures.request_erasure(&auth.caller, &address, reason, keyed_call).await?;
    Ok((StatusCode::ACCEPTED, Json(ErasureBody::from(&erasure))).into_response())
}

/// List erasures, newest first.
#[utoipa::path(get, path = "/v1/erasures", operation_id = "list_erasures", tag = "erasures", params(PageQuery),
    responses((status = 200, description = "A page of results", body = ErasurePage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.erasures.erasures(&auth.caller, before, limit).await?;
    let data = page.rows.iter().map(ErasureBody::from).collect();
    Ok(Json(ErasurePage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read an erasure.
#[utoipa::path(get, path = "/v1/erasures/{id}", operation_id = "read_erasure", tag = "erasures", params(("id" = String, Path)),
    responses((status = 200, description = "The erasure", body = ErasureBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let id = id.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no erasure {id}")))?;
    Ok(Json(ErasureBody::from(&app.engine.erasures.erasure(&auth.caller, id).await?)).into_response())
}
