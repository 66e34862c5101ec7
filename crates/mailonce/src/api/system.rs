//! Health checks, metrics and documentation.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use mailonce_core::problem::{Code, Problem};
use mailonce_engine::{
    control::stops::STOP_NOTE,
    runtime::time::{ClockState, ConfirmedBy},
    unavailable,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{error_pages, served_file::ServedFile};
use crate::http::{
    app::{ApiResult, App},
    params::PathParam,
};

/// Health of the server.
#[derive(Serialize, ToSchema)]
pub(super) struct HealthBody {
    status: &'static str,
    /// The store backend, such as `sqlite` or `postgres`.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'static str>,
    /// Notes and warnings for the operator.
    warnings: Vec<String>,
    /// State of the clocks of this node and its database.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<ClockBody>,
}

/// State of the clocks.
#[derive(Serialize, ToSchema)]
pub(super) struct ClockBody {
    /// False after a clock jump: scheduled emails wait, and no provider's deduplication window counts as open.
    trusted: bool,
    /// What confirmed the time: `operator`, `kernel`, `database` or `boot_clock`. No key expires while this is null.
    confirmed_by: Option<&'static str>,
    /// Milliseconds by which this node's clock is ahead of the database server's. Null without a database server.
    ahead_of_database_ms: Option<i64>,
}

impl ClockBody {
    fn of(state: ClockState) -> Self {
        Self {
            trusted: state.is_trusted,
            confirmed_by: state.confirmed_by.map(ConfirmedBy::as_str),
            ahead_of_database_ms: state.ahead_of_database_ms,
        }
    }
}

/// Check whether the process is alive.
#[utoipa::path(get, path = "/healthz", operation_id = "check_health", tag = "system", security(()), responses((status = 200, description = "Alive", body = HealthBody)))]
pub(super) async fn healthz() -> Response {
    Json(HealthBody { status: "ok", store: None, warnings: Vec::new(), clock: None }).into_response()
}

/// Check whether the server is ready.
///
/// Ready means that the ledger can commit. `warnings` has notes for the operator.
#[utoipa::path(get, path = "/readyz", operation_id = "check_readiness", tag = "system", security(()), responses((status = 200, description = "Ready", body = HealthBody)))]
pub(super) async fn readyz(State(app): State<App>) -> ApiResult {
    let mut health = app.engine.ctx.store().health().await.map_err(unavailable)?;
    let clock = app.engine.ctx.clock_state();
    health.notes.extend(clock.warning());
    if app.engine.control.stops.is_installation_stopped().await.map_err(unavailable)? {
        health.notes.push(format!("{STOP_NOTE}: no email leaves until `mailonce resume`"));
    }
    health.notes.extend(app.engine.control.stops.partial_stop_note().await.map_err(unavailable)?);
    for orphaned in app.engine.handoffs.orphaned_transports() {
        let (name, waiting, unknown) = (orphaned.name, orphaned.waiting, orphaned.unknown);
        health.notes.push(format!(
            "no node has the transport `{name}`: {waiting} handoffs wait for it, {unknown} are unknown; \
             configure it again or POST /v1/transports/{name}/reroute"
        ));
    }
    let (store, clock) = (Some(health.engine), Some(ClockBody::of(clock)));
    Ok(Json(HealthBody { status: "ready", store, warnings: health.notes, clock }).into_response())
}

/// Read the metrics, in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", operation_id = "read_metrics", tag = "system", security(()), responses((status = 200, description = "The metrics", body = String, content_type = "application/openmetrics-text")))]
pub(super) async fn metrics(State(app): State<App>) -> Response {
    let smtp = app.smtp_metrics.as_ref().map(|metrics| metrics.render()).unwrap_or_default();
    let text = app.engine.render_metrics(&smtp).await;
    text_response("application/openmetrics-text; version=1.0.0; charset=utf-8", text)
}

/// Read this OpenAPI document.
#[utoipa::path(get, path = "/openapi.json", operation_id = "read_openapi", tag = "system", security(()), responses((status = 200, description = "The OpenAPI document", body = Object)))]
pub(super) async fn openapi(headers: HeaderMap) -> Response {
    let document = super::openapi::served();
    let file = ServedFile { content_type: "application/json", etag: &document.etag, gzip: document.gzip.clone() };
    file.respond(&headers, || document.plain.clone())
}

/// Read a short description of this service for language models.
#[utoipa::path(get, path = "/llms.txt", operation_id = "read_llms_text", tag = "system", security(()), responses((status = 200, description = "The description", body = String, content_type = "text/plain")))]
pub(super) async fn llms() -> Response {
    text_response("text/plain; charset=utf-8", include_str!("llms.txt").to_owned())
}

/// Read the page of an error code, in Markdown.
#[utoipa::path(get, path = "/docs/errors/{code}", operation_id = "read_error_page", tag = "system", security(()), params(("code" = String, Path)),
    responses((status = 200, description = "The page", body = String, content_type = "text/markdown")))]
pub(super) async fn error_page(PathParam(code): PathParam) -> ApiResult {
    let page =
        error_pages::page(&code).ok_or_else(|| Problem::new(Code::NotFound, format!("there is no code `{code}`")))?;
    Ok(text_response("text/markdown; charset=utf-8", page.to_owned()))
}

fn text_response(content_type: &'static str, text: String) -> Response {
    let mut response = text.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
