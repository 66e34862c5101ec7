//! Errors in Resend's format: `statusCode`, `name` and `message`. `statusCode` is equal to the HTTP status.

use axum::{http::StatusCode, response::Response};
use mailonce_core::problem::{Cause, Code, Problem};
use serde::Serialize;

use super::json;
use crate::dialects::{ACCEPTED_STATE, split_item_prefix, strip_item_index};

/// The problem extension that marks a missing field.
pub(super) const MISSING_FIELD: &str = "missing";
/// The problem extension that marks an invalid attachment.
pub(super) const FILE_FIELD: &str = "file";
/// The fields that hold addresses.
const ADDRESS_FIELDS: [&str; 5] = ["from", "to", "cc", "bcc", "reply_to"];

#[derive(Serialize)]
struct ErrorBody<'a> {
    #[serde(rename = "statusCode")]
    status_code: u16,
    name: &'a str,
    message: &'a str,
}

/// An error response of the dialect.
pub(super) fn error(status: StatusCode, name: &str, message: &str) -> Response {
    json(status, &ErrorBody { status_code: status.as_u16(), name, message })
}

/// The problem of a missing required field.
pub(super) fn missing_field(field: &str) -> Problem {
    Problem::for_field(Code::InvalidType, field, format!("Missing `{field}` field."))
        .with_extension(MISSING_FIELD, true)
}

/// Converts a problem to an error response, with the message that Resend documents where there is one.
pub(super) fn problem_response(problem: &Problem) -> Response {
    let (status, name) = classify(problem);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    error(status, name, &problem_message(problem))
}

fn classify(problem: &Problem) -> (u16, &'static str) {
    match problem.code {
        // A held or unknown email is not final: the caller asks again later with the same key. A failed one is final.
        Code::NotTerminal | Code::UseResolve if problem.extensions.contains_key(ACCEPTED_STATE) => {
            (409, "concurrent_idempotent_requests")
        }
        _ if problem.extensions.contains_key(ACCEPTED_STATE) => (422, "validation_error"),
        _ if problem.cause == Some(Cause::MissingField) => (422, "missing_required_field"),
        _ if problem.extensions.contains_key(MISSING_FIELD) => (422, "missing_required_field"),
        _ if problem.extensions.contains_key(FILE_FIELD) => (422, "invalid_attachment"),
        Code::InvalidKey => (400, "invalid_idempotency_key"),
        Code::KeyMismatch | Code::AlreadyAnswered => (409, "invalid_idempotent_request"),
        Code::UseResolve => (409, "concurrent_idempotent_requests"),
        Code::InvalidJson | Code::KeyRequired => (400, "validation_error"),
        Code::Unauthorized | Code::KeyExpired | Code::SessionEnded => (403, "invalid_api_key"),
        Code::WrongScope | Code::IpNotAllowed => (401, "restricted_api_key"),
        Code::SenderNotAllowed => (403, "invalid_permission"),
        Code::SenderNotVerified => (403, "validation_error"),
        Code::NotFound => (404, "not_found"),
        Code::MethodNotAllowed => (405, "method_not_allowed"),
        Code::StaleRev | Code::Leased | Code::NewerMessage | Code::Stopped => (409, "resource_locked"),
        Code::TooLarge => (413, "validation_error"),
        Code::RateLimited | Code::TooManyFailures => (429, "rate_limit_exceeded"),
        Code::QuotaExceeded => (429, "daily_quota_exceeded"),
        Code::Timeout => (408, "application_error"),
        Code::Internal => (500, "application_error"),
        Code::Unavailable => (503, "service_unavailable"),
        _ => (422, "validation_error"),
    }
}

/// The message of an error: the one that Resend documents, else the detail of the problem.
pub(super) fn problem_message(problem: &Problem) -> String {
    let field = problem.field.as_deref().unwrap_or_default();
    match problem.code {
        Code::InvalidKey => "The key must be between 1-256 chars.".into(),
        Code::KeyMismatch => "Same idempotency key used with a different request payload.".into(),
        Code::Unauthorized => "API key is invalid.".into(),
        Code::WrongScope if problem.extensions.get("has") == Some(&serde_json::json!(["send"])) => {
            "This API key is restricted to only send emails.".into()
        }
        Code::WrongScope => format!("This API key is restricted: {}.", problem.detail),
        Code::Internal => "An unexpected error occurred.".into(),
        Code::SenderNotVerified => format!("{}. Please, add and verify your domain.", problem.detail),
        _ if problem.cause == Some(Cause::MissingField) => format!("Missing `{}` field.", strip_item_index(field)),
        Code::InvalidType if !problem.extensions.contains_key(MISSING_FIELD) && !strip_item_index(field).is_empty() => {
            format!("Invalid `{}` field: {}", strip_item_index(field), problem.detail)
        }
        Code::InvalidField if is_address(field) => format!(
            "Invalid `{}` field. The email address needs to follow the `email@example.com` or `Name <email@example.com>` format.",
            field_name(field)
        ),
        _ => sentence(field, &problem.detail),
    }
}

/// Turns a detail that begins with the field path into a sentence about that field; leaves others unchanged.
fn sentence(path: &str, detail: &str) -> String {
    let ((item, text), path) = (split_item_prefix(detail), strip_item_index(path));
    match text.strip_prefix(path).and_then(|rest| rest.strip_prefix(' ')) {
        Some(rest) if !path.is_empty() => {
            format!("{item}The `{path}` field {}.", rest.trim_end_matches('.'))
        }
        _ => detail.to_owned(),
    }
}

/// The top-level field of a path: `to` for `[2].to[0]`.
fn field_name(path: &str) -> &str {
    strip_item_index(path).split('[').next().unwrap_or_default()
}

/// Whether a path points to a single address.
fn is_address(path: &str) -> bool {
    strip_item_index(path) == "from"
        || (strip_item_index(path).ends_with(']') && ADDRESS_FIELDS.contains(&field_name(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_has_a_status_and_a_name_of_the_dialect() {
        const NAMES: [&str; 18] = [
            "invalid_idempotency_key",
            "invalid_idempotent_request",
            "validation_error",
            "missing_required_field",
            "invalid_attachment",
            "invalid_parameter",
            "missing_api_key",
            "restricted_api_key",
            "invalid_api_key",
            "invalid_permission",
            "not_found",
            "method_not_allowed",
            "resource_locked",
            "rate_limit_exceeded",
            "daily_quota_exceeded",
            "application_error",
            "service_unavailable",
            "concurrent_idempotent_requests",
        ];
        for code in Code::ALL {
            let (status, name) = classify(&Problem::new(*code, "x"));
            assert!((400..600).contains(&status) && NAMES.contains(&name), "{code:?}");
        }
    }

    #[test]
    fn a_wrong_address_is_told_in_the_documented_sentence() {
        let message = problem_message(&Problem::invalid_field("to[0]", "is empty"));
        assert!(message.starts_with("Invalid `to` field. The email address needs to follow"), "{message}");
        let many = problem_message(&Problem::invalid_field("to", "names no recipient"));
        assert_eq!(many, "The `to` field names no recipient.");
        let file = Problem::invalid_field("attachments[0].content", "is no base64.");
        assert_eq!(problem_message(&file), "The `attachments[0].content` field is no base64.");
        let time = Problem::for_field(Code::InvalidField, "[1].scheduled_at", "item 1: scheduled_at must be a time");
        assert_eq!(problem_message(&time), "item 1: The `scheduled_at` field must be a time.");
        assert!(is_address("[2].from") && !is_address("attachments[0]") && !is_address("[0].subject"));
    }
}
