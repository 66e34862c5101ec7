//! Problems in useSend's words: one envelope with a code and a message, also where its own server has others.

use axum::{http::StatusCode, response::Response};
use mailonce_core::problem::{Code, Problem};
use serde::Serialize;

use super::json;
use crate::dialects::{ACCEPTED_STATE, split_item_prefix, strip_item_index, to_requirement};

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorDetailBody<'a>,
}

#[derive(Serialize)]
struct ErrorDetailBody<'a> {
    code: &'a str,
    message: &'a str,
}

/// An error of the dialect.
pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Response {
    json(status, &ErrorBody { error: ErrorDetailBody { code, message } })
}

/// Something that the dialect words itself.
pub(super) fn invalid_field(field: &str, message: impl Into<String>) -> Problem {
    Problem::for_field(Code::InvalidField, field, message)
}

/// A problem in the dialect's words. Where it has a sentence, that is what is said.
pub(super) fn problem_response(problem: &Problem) -> Response {
    let (status, code) =
        if problem.extensions.contains_key(ACCEPTED_STATE) { (409, "NOT_UNIQUE") } else { classify(problem.code) };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    error(status, code, &problem_message(problem))
}

fn classify(code: Code) -> (u16, &'static str) {
    match code {
        Code::Unauthorized | Code::KeyExpired | Code::IpNotAllowed | Code::WrongScope | Code::SenderNotAllowed => {
            (403, "FORBIDDEN")
        }
        Code::NotFound => (404, "NOT_FOUND"),
        Code::MethodNotAllowed => (405, "METHOD_NOT_ALLOWED"),
        Code::KeyMismatch | Code::UseResolve => (409, "NOT_UNIQUE"),
        Code::RateLimited | Code::TooManyFailures | Code::QuotaExceeded => (429, "RATE_LIMITED"),
        Code::Internal => (500, "INTERNAL_SERVER_ERROR"),
        // The dialect has no word for "later"; the status says it.
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
            let (item, words) = split_item_prefix(&problem.detail);
            let is_named = !field.is_empty() && !words.starts_with("missing field");
            if is_named { format!("{item}{}: {words}", camel_case(field)) } else { problem.detail.clone() }
        }
        _ => message_with_field(problem),
    }
}

/// The words of a problem, with its field called as the dialect calls it.
fn message_with_field(problem: &Problem) -> String {
    let field = strip_item_index(problem.field.as_deref().unwrap_or_default());
    let (item, words) = split_item_prefix(&problem.detail);
    match words.strip_prefix(field).and_then(|rest| rest.strip_prefix(' ')) {
        Some(rest) if !field.is_empty() => format!("{item}{} {}", camel_case(field), to_requirement(rest)),
        _ => problem.detail.clone(),
    }
}

/// A path in the dialect's spelling: `scheduledAt`. What callers name themselves stays as it is.
fn camel_case(path: &str) -> String {
    if path.starts_with("headers") {
        return path.to_owned();
    }
    let mut upper = false;
    let letter = |c: char| {
        let now = std::mem::replace(&mut upper, c == '_');
        (c != '_').then(|| if now { c.to_ascii_uppercase() } else { c })
    };
    path.chars().filter_map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_called_as_the_dialect_calls_them() {
        let told = |field: &str, text: &str| {
            problem_message(&Problem::from(vec![mailonce_core::problem::FieldError::new(field, text)]))
        };
        assert_eq!(told("scheduled_at", "is no time"), "scheduledAt is no time");
        assert_eq!(told("reply_to[0]", "is no address"), "replyTo[0] is no address");
        assert_eq!(told("to", "names no recipient"), "to names no recipient");
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
            let (status, word) = classify(*code);
            assert!((400..600).contains(&status) && CODES.contains(&word), "{code:?}");
        }
    }
}
