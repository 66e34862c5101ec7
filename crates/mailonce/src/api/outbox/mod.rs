//! Outboxes: their state, dead letters and replays.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    limits,
    outbox::ParkedRow,
    problem::{Code, Problem},
};
use mailonce_engine::outbox::queries::OutboxView;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    api::outbound::emails::page_limit,
    http::{
        app::{ApiResult, App},
        extract::AuthedRequest,
        params::{PathParam, QueryParams},
    },
};

/// An outbox: emails and claims that wait in your own database.
#[derive(Serialize, ToSchema)]
pub(crate) struct OutboxBody {
    name: String,
    /// `draining`; `stopped` while the database was restored, cloned or failed over and nobody confirmed it; or `failing`.
    state: &'static str,
    /// Why it is not drained, and what to do.
    error: Option<String>,
    /// Rows that wait or are leased.
    pending: Option<u64>,
    /// Dead letters.
    parked: Option<u64>,
    /// How long the oldest pending row has waited, in seconds.
    oldest_pending_s: Option<i64>,
}

impl From<OutboxView> for OutboxBody {
    fn from(view: OutboxView) -> Self {
        let stopped = view.status.as_ref().is_some_and(|status| !status.is_confirmed());
        Self {
            name: view.name,
            state: match view.error {
                None => "draining",
                Some(_) if stopped => "stopped",
                Some(_) => "failing",
            },
            error: view.error,
            pending: view.status.as_ref().map(|status| status.pending),
            parked: view.status.as_ref().map(|status| status.parked),
            oldest_pending_s: view.status.and_then(|status| status.oldest_pending_s),
        }
    }
}

/// The outboxes of the team.
#[derive(Serialize, ToSchema)]
pub(crate) struct OutboxPage {
    data: Vec<OutboxBody>,
}

/// A dead letter: a row that was not accepted, and is not tried again by itself.
#[derive(Serialize, ToSchema)]
pub(crate) struct ParkedRowBody {
    /// The id that `send` or `claim` returned.
    id: String,
    /// `email`, or `claim`.
    kind: &'static str,
    /// The idempotency key that the caller gave.
    key: Option<String>,
    /// Rows with the same order key are accepted one after the other.
    order_key: Option<String>,
    /// The code of the problem, such as `key_mismatch`; or `too_old`.
    code: String,
    /// What was wrong.
    detail: String,
    /// How often it was tried.
    attempts: u32,
    created_at: String,
    parked_at: String,
}

impl From<ParkedRow> for ParkedRowBody {
    fn from(row: ParkedRow) -> Self {
        Self {
            id: row.id.to_string(),
            kind: row.kind.as_str(),
            key: row.key,
            order_key: row.order_key,
            code: row.failure.code,
            detail: row.failure.detail,
            attempts: row.attempts,
            created_at: row.created_at.to_string(),
            parked_at: row.parked_at.to_string(),
        }
    }
}

/// A page of dead letters.
#[derive(Serialize, ToSchema)]
pub(crate) struct ParkedPageBody {
    data: Vec<ParkedRowBody>,
    next_cursor: Option<String>,
}

/// A row that is offered again.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReplayedRowBody {
    id: String,
}

/// List outboxes.
///
/// The outboxes of the team, whether each is drained, and how many rows wait.
#[utoipa::path(get, path = "/v1/outboxes", operation_id = "list_outboxes", tag = "outboxes",
    responses((status = 200, description = "The outboxes of the team", body = OutboxPage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let views = app.engine.outboxes.outboxes(&auth.caller).await?;
    Ok(Json(OutboxPage { data: views.into_iter().map(OutboxBody::from).collect() }).into_response())
}

/// The page of a list of dead letters.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParkedQuery {
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the dead letters of an outbox, newest first.
///
/// A row is parked when mailonce refuses it for good: correct the cause, then replay it.
#[utoipa::path(get, path = "/v1/outboxes/{name}/parked", operation_id = "list_parked_rows", tag = "outboxes",
    params(("name" = String, Path), ParkedQuery),
    responses((status = 200, description = "A page of results", body = ParkedPageBody)))]
pub(crate) async fn parked(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(name): PathParam,
    query: QueryParams<ParkedQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let invalid = |_not_a_number| Problem::invalid_query("cursor", "cursor must be the next_cursor of a previous page");
    let before = query.0.cursor.as_deref().map(|cursor| cursor.parse::<i64>().map_err(invalid)).transpose()?;
    let limit = page_limit(query.0.limit.as_deref(), limits::PAGE_ROWS, 20)?;
    let page = app.engine.outboxes.parked(&auth.caller, &name, before, limit).await?;
    let data = page.rows.into_iter().map(ParkedRowBody::from).collect();
    Ok(Json(ParkedPageBody { data, next_cursor: page.next.map(|seq| seq.to_string()) }).into_response())
}

/// Offer a dead letter again.
///
/// The row is accepted under the same idempotency key, so an email that was accepted before is not sent twice. A row that
/// is no longer parked stays as it is. A repeated call with the same `Idempotency-Key` never replays it a second time.
#[utoipa::path(post, path = "/v1/parked/{id}/replay", operation_id = "replay_parked_row", tag = "outboxes",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "The row is offered again", body = ReplayedRowBody)))]
pub(crate) async fn replay(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let not_found = |_not_an_id| Problem::new(Code::NotFound, format!("there is no parked row {id}"));
    let row: Uuid = id.parse().map_err(not_found)?;
    let keyed_call = auth.keyed_call("parked/replay", &id, &[]);
    app.engine.outboxes.replay(&auth.caller, row, keyed_call).await?;
    Ok(Json(ReplayedRowBody { id: row.to_string() }).into_response())
}
