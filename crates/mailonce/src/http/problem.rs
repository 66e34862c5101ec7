//! Error responses: RFC 9457 problem details with `code`, `retry` and `next`.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use mailonce_core::problem::{Code, Problem};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// An error response (RFC 9457): what went wrong and what to do next.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProblemBody {
    /// Link to the documentation page of this error code.
    #[serde(rename = "type")]
    kind: String,
    /// Short title for people.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// Error code. Branch on this value; later versions may have codes that are not listed.
    code: &'static str,
    /// What went wrong in this call.
    detail: String,
    /// Whether to retry: `never`, `same` (the same call with the same idempotency key) or `later` (after a pause).
    retry: String,
    /// What to do next, in a sentence that a model can act on.
    next: String,
    /// Path of the invalid field, or name of the invalid parameter or header.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// Further members that depend on the code, such as `differing_fields`, `original_email` and `errors`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    more: Map<String, Value>,
}

/// A problem that becomes an HTTP response.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Problem);

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<CodeAndDetail> for ApiError {
    fn from(problem: CodeAndDetail) -> Self {
        Self(Problem::new(problem.0, problem.1))
    }
}

/// An error code and its detail text.
pub(crate) struct CodeAndDetail(pub(crate) Code, pub(crate) String);

impl From<Problem> for ProblemBody {
    fn from(problem: Problem) -> Self {
        let default_next = problem.next_step();
        let Problem { code, cause: _, detail, field, extensions: mut more } = problem;
        // A problem may override the `next` and `retry` of its code with an extension of that name.
        let next = more.remove("next").and_then(|next| next.as_str().map(str::to_owned));
        let retry = more.remove("retry").and_then(|retry| retry.as_str().map(str::to_owned));
        Self {
            kind: format!("/docs/errors/{}", code.as_str()),
            title: code.title(),
            status: code.status(),
            code: code.as_str(),
            detail,
            retry: retry.unwrap_or_else(|| code.retry().as_str().to_owned()),
            next: next.unwrap_or_else(|| default_next.to_owned()),
            field,
            more,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = self.0.code;
        let seconds = self.0.extensions.get("retry_after").and_then(Value::as_i64);
        let retry_after = seconds.or((code == Code::Unavailable).then_some(1));
        let body = ProblemBody::from(self.0);
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if matches!(code, Code::Unauthorized | Code::KeyExpired | Code::SessionEnded) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
