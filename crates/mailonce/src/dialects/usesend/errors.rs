//! Errors in useSend's format. Every error has one shape, code and message, although useSend's own server has several.

use axum::{http::StatusCode, response::Response};
use mailonce_core::problem::{Cause, Code, Problem};
use serde::Serialize;

use super::json;
use crate::dialects::{ACCEPTED_STATE, split_item_prefix, strip_item_index};

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorDetailBody<'a>,
}

#[derive(Serialize)]
struct ErrorDetailBody<'a> {
    code: &'a str,
    message: &'a str,
}

/// An error response of the dialect.
pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Response {
    json(status, &ErrorBody { error: ErrorDetailBody { code, message } })
}

/// Converts a problem to an error response, with useSend's own message where it has one.
pub(super) fn problem_response(problem: &Problem) -> Response {
    let (status, code) =
        if problem.extensions.contains_key(ACCEPTED_STATE) { (409, "NOT_UNIQUE") } else { classify(problem.code) };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    error(status, code, &problem_message(problem))
}

fn classify(code: Code) -> (u16, &'static str) {
    match code {
        Code::Unauthorized
        | Code::KeyExpired
        | Code::SessionEnded
        | Code::IpNotAllowed
        | Code::WrongScope
        | Code::SenderNotAllowed
        | Code::SearchDisabled
        | Code::Stopped => (403, "FORBIDDEN"),
        Code::NotFound => (404, "NOT_FOUND"),
        Code::MethodNotAllowed => (405, "METHOD_NOT_ALLOWED"),
        Code::KeyMismatch | Code::UseResolve => (409, "NOT_UNIQUE"),
        Code::RateLimited | Code::TooManyFailures | Code::QuotaExceeded => (429, "RATE_LIMITED"),
        Code::Internal => (500, "INTERNAL_SERVER_ERROR"),
        // The dialect has no code for a temporary failure, so only the status shows it.
        Code::Unavailable => (503, "INTERNAL_SERVER_ERROR"),
        _ => (400, "BAD_REQUEST"),
    }
}

fn problem_message(problem: &Problem) -> String {
    match problem.code {
        _ if problem.extensions.contains_key(ACCEPTED_STATE) => problem.detail.clone(),
        Code::InvalidKey => "Invalid Idempotency-Key length".into(),
        Code::KeyMismatch => "Idempotency-Key already used with a different payload".into(),
        Code::Unauthorized => "Invalid API token".into(),
        Code::InvalidJson => "Malformed JSON in request body".into(),
        Code::TooLate | Code::NotScheduled => "Email already processed".into(),
        Code::Internal => "something unexpected happened".into(),
        Code::InvalidType => {
            let field = strip_item_index(problem.field.as_deref().unwrap_or_default());
            let (item, text) = split_item_prefix(&problem.detail);
            let has_field = !field.is_empty() && problem.cause != Some(Cause::MissingField);
            if has_field { format!("{item}{}: {text}", camel_case(field)) } else { problem.detail.clone() }
        }
        _ => message_with_field(problem),
    }
}

/// The detail of a problem, with the field name in the spelling of the dialect.
fn message_with_field(problem: &Problem) -> String {
    let field = strip_item_index(problem.field.as_deref().unwrap_or_default());
    let (item, text) = split_item_prefix(&problem.detail);
    match text.strip_prefix(field).and_then(|rest| rest.strip_prefix(' ')) {
        Some(rest) if !field.is_empty() => format!("{item}{} {}", camel_case(field), rest),
        _ => problem.detail.clone(),
    }
}

/// A field path in camel case, such as `scheduledAt`. Header names, which callers choose, stay as they are.
fn camel_case(path: &str) -> String {
    if path.starts_with("headers") {
        return path.to_owned();
    }
    let mut after_underscore = false;
    let letter = |c: char| {
        let uppercase = std::mem::replace(&mut after_underscore, c == '_');
        (c != '_').then(|| if uppercase { c.to_ascii_uppercase() } else { c })
    };
    path.chars().filter_map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_called_as_the_dialect_calls_them() {
        let message = |field: &str, text: &str| problem_message(&Problem::invalid_field(field, text));
        assert_eq!(message("scheduled_at", "is no time"), "scheduledAt is no time");
        assert_eq!(message("reply_to[0]", "is no address"), "replyTo[0] is no address");
        assert_eq!(message("to", "names no recipient"), "to names no recipient");
    }

    #[test]
    fn every_problem_has_a_code_of_the_dialect() {
        const CODES: [&str; 8] = [
            "BAD_REQUEST",
            "UNAUTHORIZED",
            "FORBIDDEN",
            "NOT_FOUND",
            "METHOD_NOT_ALLOWED",
            "NOT_UNIQUE",
            "RATE_LIMITED",
            "INTERNAL_SERVER_ERROR",
        ];
        for code in Code::ALL {
            let (status, name) = classify(*code);
            assert!((400..600).contains(&status) && CODES.contains(&name), "{code:?}");
        }
    }
}
