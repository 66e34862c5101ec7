//! Resend's dialect: `/compat/resend` in the place of `https://api.resend.com`.

mod api_keys;
mod attachments;
mod domains;
mod emails;
mod errors;
pub(crate) mod event_format;
mod inboxes;
mod receiving;
mod replies;
mod send;
mod threads;
mod webhooks;

use axum::{
    Router,
    http::StatusCode,
    response::Response,
    routing::{any, delete, get, post},
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
use crate::api::App;
use crate::dialects::pagination::{DialectPageQuery as PageQuery, PageRows};

/// The contract.
pub(crate) struct Resend;

/// Who calls.
type ResendRequest = AuthedDialectRequest<Resend>;
/// What the body says.
type ResendRequestBody = DialectBody<Resend>;
/// What a handler gives back.
type ResendResult = DialectResult<Resend>;
/// A path with one name.
type OnePathParam = DialectPath<String, Resend>;
/// A path with two.
type TwoPathSegments = DialectPath<(String, String), Resend>;
/// A path with three.
type ThreePathSegments = DialectPath<(String, String, String), Resend>;
/// Which page of a list.
type PageParams = DialectQuery<PageQuery, Resend>;

impl DialectContract for Resend {
    const CHANNEL: Channel = Channel::Resend;

    fn unauthorized() -> Response {
        errors::error(StatusCode::UNAUTHORIZED, "missing_api_key", "Missing API key in the authorization header.")
    }

    fn error_response(problem: &Problem) -> Response {
        errors::problem_response(problem)
    }
}

/// Every route of the dialect. What is not here is not found, in its own words.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/emails", post(send::send).get(emails::list))
        .route("/emails/batch", post(send::batch))
        // Words in the place of an id.
        .route("/emails/metrics", any(path_not_found))
        .route("/inboxes/{inbox}/threads/search", any(path_not_found))
        .route("/emails/{id}", get(emails::read).patch(emails::reschedule))
        .route("/emails/{id}/cancel", post(emails::cancel))
        .route("/emails/{id}/attachments", get(attachments::list_sent))
        .route("/emails/{id}/attachments/{file}", get(attachments::read_sent))
        .route("/files/{token}", get(attachments::download))
        .merge(receiving_routes())
        .merge(managing_routes())
        .fallback(path_not_found)
        .method_not_allowed_fallback(method_not_allowed)
}

/// For those who read and answer mail.
fn receiving_routes() -> Router<App> {
    Router::new()
        .route("/emails/receiving", get(receiving::list))
        .route("/emails/receiving/{id}", get(receiving::read))
        .route("/emails/receiving/{id}/attachments", get(attachments::list_received))
        .route("/emails/receiving/{id}/attachments/{file}", get(attachments::read_received))
        .route("/inboxes", get(inboxes::list).post(inboxes::create))
        .route("/inboxes/{inbox}", get(inboxes::read).patch(inboxes::change).delete(inboxes::remove))
        .route("/inboxes/{inbox}/threads", get(threads::list))
        .route("/inboxes/{inbox}/threads/{thread}", get(threads::read).patch(threads::change))
        .route("/inboxes/{inbox}/threads/{thread}/emails", get(threads::list_entries))
        .route("/inboxes/{inbox}/threads/{thread}/emails/{email}", get(threads::read_entry))
        .route("/inboxes/{inbox}/threads/{thread}/emails/{email}/reply", post(replies::reply))
        .route("/inboxes/{inbox}/threads/{thread}/emails/{email}/forward", post(replies::forward))
}

/// For those who manage a team.
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
        .route("/domains/{id}", get(domains::read).delete(domains::remove))
        .route("/domains/{id}/verify", post(domains::verify))
        .route("/api-keys", get(api_keys::list).post(api_keys::create))
        .route("/api-keys/{id}", delete(api_keys::remove))
}

/// The body is read to its end, so that who still sends it hears the answer.
async fn path_not_found(_: ResendRequest, _: ResendRequestBody) -> DialectError<Resend> {
    Problem::new(Code::NotFound, "The requested endpoint does not exist.").into()
}

async fn method_not_allowed(_: ResendRequest, _: ResendRequestBody) -> DialectError<Resend> {
    Problem::new(Code::MethodNotAllowed, "Method is not allowed for the requested path.").into()
}

/// An id from a path. The dialect tells apart what is no id and what names nothing.
fn parse_id<T: FromStr>(text: &str) -> Result<T, DialectError<Resend>> {
    text.parse().map_err(|_not_an_id| {
        DialectError::from_response(errors::error(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid_parameter",
            "The parameter must be a valid UUID.",
        ))
    })
}

/// A list.
#[derive(Serialize)]
struct ListBody<T> {
    object: &'static str,
    has_more: bool,
    data: Vec<T>,
}

/// A list of things, each as the dialect shows it.
fn list_response<T, B: Serialize>(rows: PageRows<T>, show: impl Fn(T) -> B) -> Response {
    let data: Vec<B> = rows.rows.into_iter().map(show).collect();
    json(StatusCode::OK, &ListBody { object: "list", has_more: rows.has_more, data })
}

/// A thing by name: what most changes answer with.
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

/// A thing that is no more.
fn deleted_response(object: &'static str, id: impl ToString) -> Response {
    json(StatusCode::OK, &ObjectRefBody { object, id: id.to_string(), deleted: Some(true) })
}
