//! The Resend dialect: `/compat/resend` replaces `https://api.resend.com`.
//!
//! | file | what it holds |
//! |---|---|
//! | `send` | sends one email or a batch |
//! | `emails` | reads, reschedules and cancels emails |
//! | `receiving`, `attachments` | received emails and their files |
//! | `inboxes`, `threads`, `thread_search`, `labels`, `replies`, `drafts` | inboxes, their threads, replies and drafts |
//! | `webhooks`, `event_format` | webhooks and the format of their events |
//! | `domains`, `api_keys`, `suppressions`, `metrics` | domains, API keys, the suppression list and counts |
//! | `templates` | stored wording |
//! | `errors` | problems in Resend's format |
//! | `not_implemented` | the features that mailonce does not have |

mod api_keys;
mod attachments;
mod domains;
mod drafts;
mod emails;
mod errors;
pub(crate) mod event_format;
mod inboxes;
mod labels;
mod metrics;
mod not_implemented;
mod receiving;
mod replies;
mod send;
mod suppressions;
mod templates;
mod thread_search;
mod threads;
mod webhooks;

use axum::{
    Router,
    http::{StatusCode, Uri},
    response::Response,
    routing::{delete, get, patch, post},
};
use mailonce_core::{
    outbound::email::Channel,
    problem::{Code, Problem},
};
use serde::Serialize;
use std::str::FromStr;

use super::{
    AuthedDialectRequest, DialectBody, DialectContract, DialectError, DialectPath, DialectQuery, DialectResult, json,
};
use crate::{
    dialects::pagination::{DialectPageQuery as PageQuery, PageRows},
    http::app::App,
};

/// The Resend API contract.
pub(crate) struct ResendDialect;

/// An authenticated request.
type ResendRequest = AuthedDialectRequest<ResendDialect>;
/// A request body.
type ResendRequestBody = DialectBody<ResendDialect>;
/// What a handler returns.
type ResendResult = DialectResult<ResendDialect>;
/// A path with one parameter.
type OnePathParam = DialectPath<String, ResendDialect>;
/// A path with two parameters.
type TwoPathSegments = DialectPath<(String, String), ResendDialect>;
/// The pagination parameters of a list.
type PageParams = DialectQuery<PageQuery, ResendDialect>;

impl DialectContract for ResendDialect {
    const CHANNEL: Channel = Channel::Resend;

    fn unauthorized() -> Response {
        errors::error(StatusCode::UNAUTHORIZED, "missing_api_key", "Missing API key in the authorization header.")
    }

    fn error_response(problem: &Problem) -> Response {
        errors::problem_response(problem)
    }
}

/// All routes of the dialect. Other paths get a 404 in its error format.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/emails", post(send::send).get(emails::list))
        .route("/emails/batch", post(send::batch))
        .route("/emails/metrics", get(metrics::read))
        .route("/emails/{id}", get(emails::read).patch(emails::reschedule))
        .route("/emails/{id}/cancel", post(emails::cancel))
        .route("/emails/{id}/attachments", get(attachments::list_sent))
        .route("/emails/{id}/attachments/{file}", get(attachments::read_sent))
        .route("/files/{token}", get(attachments::download))
        .merge(receiving_routes())
        .merge(inbox_routes())
        .merge(managing_routes())
        .fallback(path_not_found)
        .method_not_allowed_fallback(method_not_allowed)
}

/// Routes to read received mail.
fn receiving_routes() -> Router<App> {
    Router::new()
        .route("/emails/receiving", get(receiving::list))
        .route("/emails/receiving/{id}", get(receiving::read))
        .route("/emails/receiving/{id}/attachments", get(attachments::list_received))
        .route("/emails/receiving/{id}/attachments/{file}", get(attachments::read_received))
}

/// Routes of inboxes: threads, labels, replies and drafts.
fn inbox_routes() -> Router<App> {
    Router::new()
        .route("/inboxes", get(inboxes::list).post(inboxes::create))
        .route("/inboxes/{inbox}", get(inboxes::read).patch(inboxes::change).delete(inboxes::remove))
        .route("/inboxes/{inbox}/threads", get(threads::list))
        .route("/inboxes/{inbox}/threads/search", get(thread_search::search))
        .route("/inboxes/{inbox}/threads/{thread}", get(threads::read).patch(threads::change).delete(threads::remove))
        .route("/inboxes/{inbox}/threads/{thread}/labels", post(labels::add_to_thread).put(labels::set_on_thread))
        .route("/inboxes/{inbox}/threads/{thread}/labels/{label}", delete(labels::remove_from_thread))
        .route("/inboxes/{inbox}/threads/{thread}/emails", get(threads::list_entries))
        .route("/inboxes/{inbox}/threads/{thread}/emails/{email}", get(threads::read_entry))
        .route("/inboxes/{inbox}/threads/{thread}/emails/{email}/reply", post(replies::reply))
        .route("/inboxes/{inbox}/threads/{thread}/emails/{email}/forward", post(replies::forward))
        .route("/inboxes/{inbox}/labels", get(labels::list).post(labels::create))
        .route("/inboxes/{inbox}/labels/{label}", patch(labels::change).delete(labels::remove))
        .route("/inboxes/{inbox}/drafts", get(drafts::list).post(drafts::create))
        .route("/inboxes/{inbox}/drafts/{draft}", get(drafts::read).patch(drafts::change).delete(drafts::remove))
        .route("/inboxes/{inbox}/drafts/{draft}/send", post(drafts::send))
}

/// Routes to manage a team: webhooks, domains, templates, API keys and suppressions.
fn managing_routes() -> Router<App> {
    Router::new()
        .route("/webhooks", get(webhooks::list).post(webhooks::create))
        .route("/webhooks/{id}", get(webhooks::read).patch(webhooks::change).delete(webhooks::remove))
        .route("/webhooks/{id}/signing-secret/rotate", post(webhooks::rotate))
        .route("/webhooks/{id}/events", get(webhooks::events))
        .route("/webhooks/{id}/events/{event}", get(webhooks::event))
        .route("/webhooks/{id}/events/{event}/replay", post(webhooks::replay))
        .route("/webhooks/{id}/events/{event}/attempts", get(webhooks::attempts))
        .route("/domains", get(domains::list).post(domains::create))
        .route("/domains/{id}", get(domains::read).patch(domains::change).delete(domains::remove))
        .route("/domains/{id}/verify", post(domains::verify))
        .route("/templates", get(templates::list).post(templates::create))
        .route("/templates/{id}", get(templates::read).patch(templates::change).delete(templates::remove))
        .route("/templates/{id}/publish", post(templates::publish))
        .route("/templates/{id}/duplicate", post(templates::duplicate))
        .route("/api-keys", get(api_keys::list).post(api_keys::create))
        .route("/api-keys/{id}", patch(api_keys::rename).delete(api_keys::remove))
        .route("/suppressions", get(suppressions::list).post(suppressions::add))
        .route("/suppressions/{name}", get(suppressions::read).delete(suppressions::remove))
        .route("/suppressions/batch/add", post(suppressions::add_batch))
        .route("/suppressions/batch/remove", post(suppressions::remove_batch))
}

/// The error for a path without a route. Reads the whole body, so that a client that is still sending it receives the
/// response.
async fn path_not_found(uri: Uri, _: ResendRequest, _: ResendRequestBody) -> DialectError<ResendDialect> {
    let not_found = || Problem::new(Code::NotFound, "The requested endpoint does not exist.").into();
    not_implemented::error_for(&uri).unwrap_or_else(not_found)
}

/// The error for a path whose routes have other methods.
async fn method_not_allowed(uri: Uri, _: ResendRequest, _: ResendRequestBody) -> DialectError<ResendDialect> {
    let not_allowed = || Problem::new(Code::MethodNotAllowed, "Method is not allowed for the requested path.").into();
    not_implemented::error_for(&uri).unwrap_or_else(not_allowed)
}

/// Parses an id from a path. Resend answers 422 to a malformed id and 404 to an unknown one.
fn parse_id<T: FromStr>(text: &str) -> Result<T, DialectError<ResendDialect>> {
    text.parse().map_err(|_not_an_id| {
        DialectError::from_response(errors::error(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid_parameter",
            "The parameter must be a valid UUID.",
        ))
    })
}

/// A page of a list.
#[derive(Serialize)]
struct ListBody<T> {
    object: &'static str,
    has_more: bool,
    data: Vec<T>,
}

/// The response with a page of a list; `show` converts each row.
fn list_response<T, B: Serialize>(rows: PageRows<T>, show: impl Fn(T) -> B) -> Response {
    let data: Vec<B> = rows.rows.into_iter().map(show).collect();
    json(StatusCode::OK, &ListBody { object: "list", has_more: rows.has_more, data })
}

/// The type and id of an object: the response to most changes.
#[derive(Serialize)]
struct ObjectRefBody {
    object: &'static str,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<bool>,
}

fn object_response(object: &'static str, id: impl ToString) -> Response {
    json(StatusCode::OK, &ObjectRefBody { object, id: id.to_string(), deleted: None })
}

/// The response to a deletion.
fn deleted_response(object: &'static str, id: impl ToString) -> Response {
    json(StatusCode::OK, &ObjectRefBody { object, id: id.to_string(), deleted: Some(true) })
}
