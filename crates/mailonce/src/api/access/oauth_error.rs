//! Errors of the OAuth endpoints, in the form of RFC 6749 that clients expect.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use mailonce_core::problem::{Code, Problem};
use mailonce_engine::access::oauth_tokens::GrantError;
use serde_json::{Value, json};

/// An error of an OAuth endpoint.
#[derive(Debug)]
pub(crate) struct OauthError {
    status: StatusCode,
    error: &'static str,
    description: String,
    retry_after: Option<i64>,
}

impl OauthError {
    pub(crate) fn new(error: &'static str, description: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error, description: description.into(), retry_after: None }
    }

    /// What is wrong.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }
}

impl From<Problem> for OauthError {
    fn from(problem: Problem) -> Self {
        let status = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let error = match problem.code {
            Code::Unavailable | Code::RateLimited | Code::TooManyFailures => "temporarily_unavailable",
            _ if status.is_server_error() => "server_error",
            _ => "invalid_request",
        };
        let retry_after = problem.extensions.get("retry_after").and_then(Value::as_i64);
        Self { status, error, description: problem.detail, retry_after }
    }
}

impl From<GrantError> for OauthError {
    fn from(error: GrantError) -> Self {
        match error {
            GrantError::Unknown => Self::new("invalid_grant", "this server did not make this code or token"),
            GrantError::Invalid(why) => Self::new("invalid_grant", why),
            GrantError::Failed(problem) => problem.into(),
        }
    }
}

impl IntoResponse for OauthError {
    fn into_response(self) -> Response {
        let body = Json(json!({ "error": self.error, "error_description": self.description }));
        let mut response = (self.status, body).into_response();
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
