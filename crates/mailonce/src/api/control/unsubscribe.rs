//! The unsubscribe link of an email (RFC 8058): mail programs post to it, people open it.

use axum::{
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use mailonce_core::problem::Problem;

use crate::http::{
    app::{ApiResult, App},
    html::escape_html,
    params::PathParam,
};

const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Show the unsubscribe page of an email.
///
/// It changes nothing: programs that check links open them.
#[utoipa::path(get, path = "/u/{token}", operation_id = "read_unsubscribe_page", tag = "suppressions", security(()), params(("token" = String, Path)),
    responses((status = 200, description = "An HTML page with a button", body = String, content_type = "text/html"),
        (status = 404, description = "The link is not one of this server", body = String, content_type = "text/html")))]
pub(crate) async fn show(State(app): State<App>, PathParam(token): PathParam) -> ApiResult {
    let Ok((_, address)) = app.engine.control.read_unsubscribe_token(&token) else { return Ok(unknown_link()) };
    let address = escape_html(address.as_str());
    Ok(page(
        StatusCode::OK,
        &format!(
            "<h1>Unsubscribe?</h1>\n<p>No more mail of this kind will be sent to <strong>{address}</strong>. \
             Messages that you ask for, such as receipts, still arrive.</p>\n\
             <form method=\"post\"><input type=\"hidden\" name=\"List-Unsubscribe\" value=\"One-Click\">\
             <button>Unsubscribe</button></form>"
        ),
    ))
}

/// Unsubscribe the recipient of an email.
///
/// Needs no API key: the link is signed. A repeated call changes nothing.
#[utoipa::path(post, path = "/u/{token}", operation_id = "unsubscribe", tag = "suppressions", security(()), params(("token" = String, Path)),
    responses((status = 200, description = "Unsubscribed", body = String, content_type = "text/html"),
        (status = 404, description = "The link is not one of this server", body = String, content_type = "text/html")))]
pub(crate) async fn unsubscribe(State(app): State<App>, PathParam(token): PathParam) -> ApiResult {
    match app.engine.control.unsubscribe(&token).await {
        Ok(()) => Ok(page(
            StatusCode::OK,
            "<h1>You are unsubscribed.</h1>\n<p>No more mail of this kind will be sent to you. You can close this page.</p>",
        )),
        Err(Problem { code, .. }) if code.status() == 404 => Ok(unknown_link()),
        Err(problem) => Err(problem.into()),
    }
}

fn unknown_link() -> Response {
    page(
        StatusCode::NOT_FOUND,
        "<h1>This link does not work.</h1>\n<p>Perhaps it was cut. Copy the whole link from the mail, or answer the mail \
         and ask to be removed.</p>",
    )
}

fn page(status: StatusCode, content: &str) -> Response {
    let html = include_str!("unsubscribe.html").replace("{{content}}", content);
    let mut response = (status, Html(html)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
