//! Problems on the wire: RFC 9457 with `code`, `retry` and `next`.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use mailonce_core::problem::{Code, Problem};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Why a call did not do what it asked, and what to do next.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProblemBody {
    /// A link to the page of this code.
    #[serde(rename = "type")]
    kind: String,
    /// A short name for people.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// The word to branch on.
    code: &'static str,
    /// What happened this time.
    detail: String,
    /// Whether the same call may be sent again: `never`, `same` (unchanged, with the same key) or `later`.
    retry: String,
    /// One sentence that a model can act on.
    next: String,
    /// The field or parameter at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// Further members, by code: `differing_fields`, `original_email`, `errors`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    more: Map<String, Value>,
}

/// A problem on its way out.
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

/// A code and what happened.
pub(crate) struct CodeAndDetail(pub(crate) Code, pub(crate) String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let usual = self.0.next_step();
        let Problem { code, detail, field, extensions: mut more } = self.0;
        let retry_after = more.get("retry_after").and_then(Value::as_i64).or((code == Code::Unavailable).then_some(1));
        // Some know better what can be done than their code does.
        let next = more.remove("next").and_then(|next| next.as_str().map(str::to_owned));
        let retry = more.remove("retry").and_then(|retry| retry.as_str().map(str::to_owned));
        let body = ProblemBody {
            kind: format!("/docs/errors/{}", code.as_str()),
            title: code.title(),
            status: code.status(),
            code: code.as_str(),
            detail,
            retry: retry.unwrap_or_else(|| code.retry().as_str().to_owned()),
            next: next.unwrap_or_else(|| usual.to_owned()),
            field,
            more,
        };
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if matches!(code, Code::Unauthorized | Code::KeyExpired) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
