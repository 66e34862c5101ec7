//! The useSend dialect: `/compat/usesend` replaces `https://app.usesend.com`. The SDKs append `/api/v1`.

mod analytics;
mod domains;
mod emails;
mod errors;
pub(crate) mod event_format;
mod send;

use axum::{
    Router,
    http::{HeaderMap, StatusCode, Uri, header},
    response::Response,
    routing::{get, post, put},
};
use mailonce_core::{
    id::ordered_bits,
    outbound::email::Channel,
    problem::{Code, Problem},
};
use uuid::Uuid;

use super::{
    AuthedDialectRequest, DialectBody, DialectContract, DialectError, DialectPath, DialectQuery, DialectResult, json,
};
use crate::http::app::App;

/// The largest integer that JavaScript SDKs read without loss.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// The useSend API contract.
pub(crate) struct UseSend;

/// An authenticated request.
type UseSendRequest = AuthedDialectRequest<UseSend>;
/// A request body.
type UseSendRequestBody = DialectBody<UseSend>;
/// What a handler returns.
type UseSendResult = DialectResult<UseSend>;
/// A path with one parameter.
type OnePathParam = DialectPath<String, UseSend>;

impl DialectContract for UseSend {
    const CHANNEL: Channel = Channel::UseSend;

    /// The second word of the header: useSend accepts any authentication scheme.
    fn credential(headers: &HeaderMap) -> Option<&str> {
        let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        text.split(' ').nth(1).filter(|credential| !credential.is_empty())
    }

    fn unauthorized() -> Response {
        errors::error(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "No Authorization header provided")
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
        .route("/emails/{id}", get(emails::read).patch(emails::reschedule))
        .route("/emails/{id}/cancel", post(emails::cancel))
        .route("/domains", get(domains::list).post(domains::create))
        .route("/domains/{id}", get(domains::read).delete(domains::remove))
        .route("/domains/{id}/verify", put(domains::verify))
        .route("/analytics/email-time-series", get(analytics::time_series))
        .route("/analytics/reputation-metrics", get(analytics::reputation))
        .fallback(path_not_found)
        .method_not_allowed_fallback(method_not_allowed)
}

/// Why a useSend route does not exist here; `None` for a path that useSend does not have either.
fn missing_feature(path: &str) -> Option<&'static str> {
    match path.trim_matches('/').split('/').next() {
        Some("contactBooks" | "contacts") => Some(
            "Contacts are not available: mailonce keeps no contact lists. Send to the recipients with POST /emails",
        ),
        Some("campaigns") => {
            Some("Campaigns are not available: mailonce sends transactional email. Use POST /emails/batch")
        }
        _ => None,
    }
}

/// The error for a path without a route: `501` for a feature that mailonce does not have. Reads the whole body, so that
/// a client that is still sending it receives the response.
async fn path_not_found(uri: Uri, _: UseSendRequest, _: UseSendRequestBody) -> DialectError<UseSend> {
    match missing_feature(uri.path()) {
        Some(reason) => {
            DialectError::from_response(errors::error(StatusCode::NOT_IMPLEMENTED, "NOT_IMPLEMENTED", reason))
        }
        None => Problem::new(Code::NotFound, "This route does not exist").into(),
    }
}

async fn method_not_allowed(_: UseSendRequest, _: UseSendRequestBody) -> DialectError<UseSend> {
    Problem::new(Code::MethodNotAllowed, "This path does not support this method").into()
}

/// A numeric id, where the dialect uses numbers.
fn numeric_id(id: Uuid) -> i64 {
    ordered_bits(id) & MAX_SAFE_INTEGER
}
