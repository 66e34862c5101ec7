//! The AgentMail dialect, at `/compat/agentmail/v0`.
//!
//! One handler takes all paths and routes them itself. A path may hold a Message-ID with unescaped slashes, so the
//! first and last segments of a path select the route. A team is one AgentMail organization with one pod, whose id is
//! the team's id.

mod api_keys;
mod contract;
mod domains;
mod draft_send;
mod draft_view;
mod drafts;
mod errors;
mod event_format;
mod inboxes;
mod labels;
mod lists;
mod message_view;
mod messages;
mod metrics;
mod permissions;
mod query;
mod request;
mod search;
mod send;
mod socket;
mod thread_stream;
mod thread_view;
mod threads;
mod webhooks;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use mailonce_core::problem::{Code, Problem};
use serde_json::json;

use self::contract::{AgentMail, AgentMailResult, ROOT};
use super::{DialectError, json};
use crate::{
    dialects::{agentmail::request::AgentMailRequest, may_list_domains},
    http::{app::App, download::set_download_headers},
};

pub(crate) use event_format::format_event;

/// The name of the dialect.
pub(crate) const NAME: &str = "agentmail";

/// All routes of the dialect.
pub(crate) fn routes() -> Router<App> {
    Router::new().route(ROOT, any(handle)).route(&format!("{ROOT}/{{*rest}}"), any(handle))
}

async fn handle(State(app): State<App>, request: Request) -> Response {
    let base = app.public_url.clone();
    // Boxed: otherwise every connection would reserve the memory of the largest handler.
    let response = Box::pin(authenticate_and_route(app, request)).await.unwrap_or_else(DialectError::into_response);
    errors::add_docs_link(response, &base)
}

async fn authenticate_and_route(app: App, request: Request) -> AgentMailResult {
    let decoded = request::path_segments(request.uri().path())?;
    let segments: Vec<&str> = decoded.iter().map(String::as_str).collect();
    if let (["downloads", token], &Method::GET) = (segments.as_slice(), request.method()) {
        return download(&app, token).await;
    }
    if segments.is_empty() {
        return socket::open(app, request).await;
    }
    // Signing up has no credential yet.
    if let (["agent", "sign-up"], Some(error)) = (segments.as_slice(), missing_feature(request.method(), &segments)) {
        return Err(error);
    }
    let call = AgentMailRequest::from_request(app, request).await?;
    route(&call, &segments).await
}

/// Downloads the file of a link. The link needs no credential.
async fn download(app: &App, token: &str) -> AgentMailResult {
    let file = app.engine.conversations.open_link(token).await?;
    let mut response = file.bytes.into_response();
    let content_type = HeaderValue::from_str(&file.content_type);
    let content_type = content_type.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    set_download_headers(&mut response, file.filename.as_deref().unwrap_or("attachment"));
    Ok(response)
}

async fn route(call: &AgentMailRequest, segments: &[&str]) -> AgentMailResult {
    match segments {
        ["pods", pod, rest @ ..] if !rest.is_empty() => {
            check_pod(call, pod)?;
            route_scoped(call, rest).await
        }
        ["pods"] if call.is_method(&Method::GET) => {
            let pods = [pod_json(call)];
            Ok(json(StatusCode::OK, &json!({ "count": pods.len(), "pods": pods })))
        }
        ["pods", id] if call.is_method(&Method::GET) => {
            check_pod(call, id)?;
            Ok(json(StatusCode::OK, &pod_json(call)))
        }
        ["organizations"] if call.is_method(&Method::GET) => Ok(json(StatusCode::OK, &organization_json(call).await?)),
        ["auth", "me"] if call.is_method(&Method::GET) => Ok(json(StatusCode::OK, &identity_json(call))),
        other => route_scoped(call, other).await,
    }
}

/// The routes that exist both at the top level and below `/pods/{pod}`.
async fn route_scoped(call: &AgentMailRequest, segments: &[&str]) -> AgentMailResult {
    if let Some(error) = missing_feature(&call.method, segments) {
        return Err(error);
    }
    match segments {
        ["inboxes", rest @ ..] if rest.len() < 2 => inboxes::route(call, rest).await,
        ["inboxes", inbox, "messages", rest @ ..] => messages::route(call, inbox, rest).await,
        ["inboxes", inbox, "threads", rest @ ..] => threads::route(call, Some(inbox), rest).await,
        ["inboxes", inbox, "drafts", rest @ ..] => drafts::route(call, Some(inbox), rest).await,
        ["inboxes", inbox, "lists", rest @ ..] => lists::route(call, Some(inbox), rest).await,
        ["inboxes", inbox, "webhooks", rest @ ..] => webhooks::route(call, Some(inbox), rest).await,
        ["inboxes", inbox, "api-keys", rest @ ..] => api_keys::route(call, Some(inbox), rest).await,
        ["inboxes", inbox, "metrics", rest @ ..] => metrics::route(call, Some(inbox), rest).await,
        ["webhooks", rest @ ..] => webhooks::route(call, None, rest).await,
        ["api-keys", rest @ ..] => api_keys::route(call, None, rest).await,
        ["domains", rest @ ..] => domains::route(call, rest).await,
        ["metrics", rest @ ..] => metrics::route(call, None, rest).await,
        ["threads", rest @ ..] => threads::route(call, None, rest).await,
        ["drafts", rest @ ..] => drafts::route(call, None, rest).await,
        ["lists", rest @ ..] => lists::route(call, None, rest).await,
        _ => Err(no_route(call).into()),
    }
}

/// The `501` of a route that needs what mailonce does not have: why, and what to do instead. `None` for a path that
/// AgentMail does not have either.
fn missing_feature(method: &Method, segments: &[&str]) -> Option<DialectError<AgentMail>> {
    const ASK: &str = "Ask the operator of this server.";
    let (reason, fix) = match segments {
        ["pods"] if method != Method::GET => (
            "a pod is a team with its own API keys, and only an operator creates teams",
            "Ask an operator for a team (POST /v1/teams), and use its API key: pods.list shows the team as its pod.",
        ),
        ["pods", _] if method != Method::GET => {
            ("a pod is a team, and teams are not deleted", "Delete the inboxes and the API keys of the pod.")
        }
        ["agent", ..] => ("agents get their API keys from an operator and do not sign up", ASK),
        ["accounts" | "providers" | "apps", ..] | ["inboxes", _, "accounts", ..] => {
            ("mailonce connects to no accounts at other services", "Use an inbox of this server.")
        }
        ["inboxes", _, "authorize"] => ("there is no AgentID", "Authenticate with an API key."),
        ["inboxes", _, "events"] => (
            "changes of labels are not logged",
            "Read the labels of a message, or subscribe to events with a webhook or the WebSocket.",
        ),
        ["inboxes", _, "calendar", ..] => ("there is no calendar", "Send an invitation as an attachment."),
        ["inboxes", _, "files", ..] => ("there is no store for files", "Send files as attachments."),
        ["webhooks", "polling", ..] | ["inboxes", _, "webhooks", "polling", ..] => {
            ("webhooks are posted, not polled", "Create a webhook with a url, or use the WebSocket.")
        }
        ["metrics", "rates"] | ["inboxes", _, "metrics", "rates"] => {
            ("rates are not computed", "Divide the counts of metrics/events.")
        }
        ["inboxes", _, "messages", .., "agent-armor", _] => {
            ("there is no Agent Armor; mail is checked when it arrives", "Read the labels of the message.")
        }
        ["organizations", ..] => ("a team has no plan and no labs", ASK),
        _ => return None,
    };
    Some(DialectError::from_response(errors::not_implemented(reason, fix)))
}

/// The 404 for a route that AgentMail's API does not have.
fn no_route(call: &AgentMailRequest) -> Problem {
    let detail = format!("mailonce does not support {} {} of AgentMail's API", call.method, call.path);
    Problem::new(Code::NotFound, detail)
}

fn check_pod(call: &AgentMailRequest, id: &str) -> Result<(), Problem> {
    if id == call.pod_id() {
        return Ok(());
    }
    Err(Problem::new(Code::NotFound, format!("there is no pod {id}")))
}

fn pod_json(call: &AgentMailRequest) -> serde_json::Value {
    let team = &call.caller.team;
    let at = team.created_at.to_string();
    json!({ "pod_id": call.pod_id(), "name": team.name, "updated_at": at, "created_at": at })
}

/// The team as an organization. Domains are counted for keys that may list them.
async fn organization_json(call: &AgentMailRequest) -> Result<serde_json::Value, Problem> {
    let domains = if may_list_domains(&call.caller) { metrics::domain_count(call).await? } else { 0 };
    let at = call.caller.team.created_at.to_string();
    Ok(json!({
        "organization_id": call.pod_id(),
        "inbox_count": metrics::inbox_count(call).await?,
        "domain_count": domains,
        "updated_at": at,
        "created_at": at,
    }))
}

fn identity_json(call: &AgentMailRequest) -> serde_json::Value {
    let (team, key) = (call.pod_id(), &call.caller.key);
    json!({ "scope_type": "organization", "scope_id": team, "organization_id": team, "api_key_id": key.id.to_string() })
}
