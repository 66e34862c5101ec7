//! The HTTP API: the routes, and handlers that translate between JSON and the engine.

pub(crate) mod access;
mod claims;
pub(crate) mod control;
pub(crate) mod conversation;
mod dashboard;
mod error_pages;
pub(crate) mod events;
mod handoff;
pub(crate) mod inbound;
pub(crate) mod inbox;
mod openapi;
pub(crate) mod outbound;
mod outbox;
mod pagination;
mod reference;
mod search;
mod served_file;
mod system;

use crate::{
    http::{
        app::{ApiResult, App, AppState, RouterOptions},
        problem::ApiError,
    },
    mcp,
};
use axum::{
    Router,
    body::Bytes,
    extract::Request,
    middleware::{self, Next},
    response::IntoResponse,
    routing::{any, get, post},
};
use mailonce_core::{
    access::call_origin::CallOrigin,
    problem::{Code, Problem, nearest_name, shorten},
};
use mailonce_engine::{Engine, outbound::keyed_send::SendRequest};
use std::sync::Arc;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use crate::api::conversation::{escalations::MAX_QUESTION_CHARS, replies::MAX_SEEN};

/// Parses and validates the body of `POST /v1/emails` exactly as the handler does. For outboxes and fuzzing.
pub fn parse_send(body: &[u8]) -> Result<SendRequest, Problem> {
    crate::http::json_body::parse::<outbound::email_bodies::SendBody>(body)?.into_request(None)
}

/// All routes. The OpenAPI document is built from the same list.
fn routes() -> OpenApiRouter<App> {
    outbound_routes()
        .merge(inbox_routes())
        .merge(conversation_routes())
        .merge(claim_routes())
        .merge(outbox_routes())
        .merge(admin_routes())
        .merge(people_routes())
        .merge(system_routes())
}

/// Sending: emails, idempotency keys, templates and events.
fn outbound_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(crate::api::outbound::emails::send, crate::api::outbound::emails::list))
        .routes(routes!(crate::api::outbound::emails::batch))
        .routes(routes!(crate::api::outbound::emails::read, crate::api::outbound::emails::reschedule))
        .routes(routes!(crate::api::outbound::emails::attachment))
        .routes(routes!(crate::api::outbound::emails::cancel))
        .routes(routes!(crate::api::outbound::emails::resend))
        .routes(routes!(handoff::resolve))
        .routes(routes!(
            crate::api::outbound::idempotency_keys::inspect,
            crate::api::outbound::idempotency_keys::extend,
            crate::api::outbound::idempotency_keys::forget
        ))
        .routes(routes!(crate::api::outbound::idempotency_keys::list))
        .routes(routes!(crate::api::outbound::stats::read))
        .routes(routes!(crate::api::outbound::templates::create, crate::api::outbound::templates::list))
        .routes(routes!(
            crate::api::outbound::templates::read,
            crate::api::outbound::templates::change,
            crate::api::outbound::templates::remove
        ))
        .routes(routes!(crate::api::outbound::templates::preview))
        .routes(routes!(crate::api::outbound::templates::validate))
        .routes(routes!(crate::api::search::search))
        .routes(routes!(crate::api::events::event_log::list))
        .routes(routes!(crate::api::events::stream::stream))
}

/// Receiving: inboxes, messages, deliveries and artifacts.
fn inbox_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(crate::api::inbox::inboxes::create, crate::api::inbox::inboxes::list))
        .routes(routes!(
            crate::api::inbox::inboxes::read,
            crate::api::inbox::inboxes::change,
            crate::api::inbox::inboxes::remove
        ))
        .routes(routes!(crate::api::inbox::inboxes::rotate))
        .routes(routes!(crate::api::inbox::wait::wait))
        .routes(routes!(crate::api::inbox::watches::create))
        .routes(routes!(crate::api::inbox::watches::read))
        .routes(routes!(crate::api::inbox::watches::spend))
        .routes(routes!(crate::api::inbox::messages::list))
        .routes(routes!(crate::api::inbox::messages::read, crate::api::inbox::messages::remove))
        .routes(routes!(crate::api::inbox::messages::raw))
        .routes(routes!(crate::api::inbox::messages::attachment))
        .routes(routes!(crate::api::inbound::deliveries::list))
        .routes(routes!(crate::api::inbound::deliveries::read))
        .routes(routes!(crate::api::inbound::deliveries::replay))
        .routes(routes!(crate::api::inbox::artifacts::list))
        .routes(routes!(crate::api::inbox::artifacts::read))
        .routes(routes!(crate::api::inbox::artifacts::consume))
        .routes(routes!(crate::api::inbox::artifacts::consume_match))
        .routes(routes!(crate::api::inbox::artifacts::applied))
}

/// Conversations: replies, work queue, threads and escalations.
fn conversation_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(crate::api::conversation::replies::reply))
        .routes(routes!(crate::api::conversation::replies::forward))
        .routes(routes!(crate::api::conversation::work_queue::next))
        .routes(routes!(crate::api::conversation::work_queue::ack))
        .routes(routes!(crate::api::conversation::work_queue::nack))
        .routes(routes!(crate::api::conversation::work_queue::extend))
        .routes(routes!(crate::api::conversation::threads::list))
        .routes(routes!(
            crate::api::conversation::threads::read,
            crate::api::conversation::threads::change,
            crate::api::conversation::threads::remove
        ))
        .routes(routes!(crate::api::conversation::threads::lease, crate::api::conversation::threads::release))
        .routes(routes!(crate::api::conversation::escalations::list, crate::api::conversation::escalations::ask))
        .routes(routes!(crate::api::conversation::escalations::read))
        .routes(routes!(crate::api::conversation::escalations::resolve))
        .routes(routes!(crate::api::conversation::escalations::create_link))
}

/// Claims: the once-only right to any other side effect.
fn claim_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(crate::api::claims::create, crate::api::claims::list))
        .routes(routes!(crate::api::claims::read))
        .routes(routes!(crate::api::claims::begin))
        .routes(routes!(crate::api::claims::renew))
        .routes(routes!(crate::api::claims::complete))
        .routes(routes!(crate::api::claims::fail))
        .routes(routes!(crate::api::claims::evidence))
        .routes(routes!(crate::api::claims::resolve))
}

/// Outboxes: their state, dead letters and replays.
fn outbox_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(crate::api::outbox::list))
        .routes(routes!(crate::api::outbox::parked))
        .routes(routes!(crate::api::outbox::replay))
}

/// Administration: API keys, teams, transports, domains, endpoints, budgets, rules, stops, sources and the audit log.
fn admin_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(crate::api::access::api_keys::create_api_key, crate::api::access::api_keys::list_api_keys))
        .routes(routes!(crate::api::access::api_keys::revoke_api_key))
        .routes(routes!(crate::api::access::api_keys::create_team, crate::api::access::api_keys::list_teams))
        .routes(routes!(crate::api::access::api_keys::change_team))
        .routes(routes!(handoff::transports))
        .routes(routes!(handoff::test_transport))
        .routes(routes!(handoff::reroute))
        .routes(routes!(handoff::pause))
        .routes(routes!(handoff::resume))
        .routes(routes!(handoff::confirm_clock))
        .routes(routes!(crate::api::access::domains::create, crate::api::access::domains::list))
        .routes(routes!(crate::api::access::domains::read, crate::api::access::domains::remove))
        .routes(routes!(crate::api::access::domains::verify))
        .routes(routes!(crate::api::control::suppressions::create, crate::api::control::suppressions::list))
        .routes(routes!(crate::api::control::suppressions::read, crate::api::control::suppressions::remove))
        .routes(routes!(crate::api::events::endpoints::create, crate::api::events::endpoints::list))
        .routes(routes!(
            crate::api::events::endpoints::read,
            crate::api::events::endpoints::change,
            crate::api::events::endpoints::remove
        ))
        .routes(routes!(crate::api::events::endpoints::rotate))
        .routes(routes!(crate::api::events::endpoints::pause))
        .routes(routes!(crate::api::events::endpoints::resume))
        .routes(routes!(crate::api::events::endpoints::test))
        .routes(routes!(crate::api::events::notices::list))
        .routes(routes!(crate::api::events::notices::recover))
        .routes(routes!(crate::api::events::notices::read))
        .routes(routes!(crate::api::events::notices::replay))
        .routes(routes!(crate::api::control::budgets::create, crate::api::control::budgets::list))
        .routes(routes!(
            crate::api::control::budgets::read,
            crate::api::control::budgets::change,
            crate::api::control::budgets::remove
        ))
        .routes(routes!(crate::api::control::rules::create, crate::api::control::rules::list))
        .routes(routes!(
            crate::api::control::rules::read,
            crate::api::control::rules::change,
            crate::api::control::rules::remove
        ))
        .routes(routes!(crate::api::control::policy::simulate))
        .routes(routes!(crate::api::control::stops::create, crate::api::control::stops::list))
        .routes(routes!(crate::api::control::stops::end))
        .routes(routes!(crate::api::control::erasures::create, crate::api::control::erasures::list))
        .routes(routes!(crate::api::control::erasures::read))
        .routes(routes!(crate::api::control::audit::list))
        .routes(routes!(crate::api::control::lists::add, crate::api::control::lists::list))
        .routes(routes!(crate::api::control::lists::remove))
        .routes(routes!(crate::api::access::settings::read, crate::api::access::settings::change))
        .routes(routes!(crate::api::access::sources::create, crate::api::access::sources::list))
        .routes(routes!(crate::api::access::sources::read, crate::api::access::sources::remove))
        .routes(routes!(crate::api::access::sources::rotate))
}

/// People, their sessions, and how questions reach them.
fn people_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(crate::api::access::people::create, crate::api::access::people::list))
        .routes(routes!(
            crate::api::access::people::read,
            crate::api::access::people::change,
            crate::api::access::people::remove
        ))
        .routes(routes!(crate::api::access::people::sign_out))
        .routes(routes!(
            crate::api::conversation::notification_targets::create,
            crate::api::conversation::notification_targets::list
        ))
        .routes(routes!(crate::api::conversation::notification_targets::remove))
        .routes(routes!(crate::api::conversation::notification_targets::test))
        .routes(routes!(crate::api::access::people::create_link))
        .routes(routes!(crate::api::access::connections::list))
        .routes(routes!(crate::api::access::connections::end))
        .routes(routes!(
            crate::api::access::sessions::read,
            crate::api::access::sessions::change,
            crate::api::access::sessions::end
        ))
}

/// Provider webhooks, health, metrics and documentation.
fn system_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(crate::api::inbound::hooks::receive, crate::api::inbound::hooks::challenge))
        .routes(routes!(crate::api::control::unsubscribe::show, crate::api::control::unsubscribe::unsubscribe))
        .routes(routes!(system::healthz))
        .routes(routes!(system::readyz))
        .routes(routes!(system::metrics))
        .routes(routes!(system::openapi))
        .routes(routes!(system::llms))
        .routes(routes!(reference::page))
        .routes(routes!(system::error_page))
}

/// The router of the whole API. `echo` adds `/bench/echo`, the baseline for benchmarks.
pub fn router(engine: Arc<Engine>, echo: bool) -> Router {
    router_with_options(engine, echo, RouterOptions::default())
}

/// The router of the whole API, with the metrics of an SMTP listener and other options.
pub fn router_with_options(engine: Arc<Engine>, echo: bool, options: RouterOptions) -> Router {
    let (router, _) = routes().split_for_parts();
    let mut router = router
        .route("/docs/viewer.js", get(reference::viewer))
        .route("/a/{token}", get(conversation::approval_page::show).post(conversation::approval_page::decide))
        .route("/a/{token}/attachments/{number}", get(conversation::approval_page::attachment))
        .route("/sign-in", get(access::sessions::show_options))
        .route("/sign-in/oidc", get(access::oidc_sign_in::start))
        .route("/sign-in/oidc/callback", get(access::oidc_sign_in::finish))
        .route("/sign-in/{token}", get(access::sessions::show_link).post(access::sessions::use_link))
        .route("/mcp", any(mcp::http::serve))
        .route("/mcp/", any(mcp::http::serve));
    if echo {
        router = router.route("/bench/echo", post(bench_echo));
    }
    router
        .merge(dashboard::routes())
        .merge(crate::dialects::routes())
        .merge(access::oauth_metadata::routes())
        .fallback(path_not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(App(Arc::new(AppState {
            engine,
            smtp_metrics: options.smtp_metrics,
            public_url: options.public_url.into(),
            auth_failures: options.auth_failures,
            oidc: options.oidc,
        })))
        // Authentication sets the origin of the call, so that the audit log knows who acts.
        .layer(middleware::from_fn(|request: Request, next: Next| CallOrigin::scope(None, next.run(request))))
}

/// The benchmark baseline: parses and writes JSON, and does nothing else.
async fn bench_echo(body: Bytes) -> ApiResult {
    let value: serde_json::Value = crate::http::json_body::parse(&body)?;
    Ok(axum::Json(value).into_response())
}

async fn path_not_found(request: Request) -> ApiError {
    let path = request.uri().path().to_owned();
    let nearest =
        nearest_name(&path, openapi()["paths"].as_object().into_iter().flatten().map(|(path, _)| path.as_str()));
    let hint = nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
    ApiError(Problem::new(Code::NotFound, format!("there is no path {}{hint}", shorten(&path))))
}

async fn method_not_allowed(request: Request) -> ApiError {
    let (path, method) = (shorten(request.uri().path()), shorten(request.method().as_str()));
    let detail = format!("{path} does not support {method}");
    ApiError(Problem::new(Code::MethodNotAllowed, detail))
}

/// The OpenAPI document.
pub fn openapi() -> &'static serde_json::Value {
    openapi::document()
}

/// The OpenAPI document as it is committed.
pub fn openapi_json() -> String {
    openapi::pretty()
}
