//! Errors in AgentMail's format: `name`, `code`, `message` and `fix`; also `errors` for invalid fields.
//!
//! The SDKs distinguish errors by their status, and each SDK method declares the statuses it knows. An error therefore
//! uses a declared status wherever the method has one that fits.

use axum::{
    http::{StatusCode, header},
    response::Response,
};
use mailonce_core::{
    outbound::email::EmailState,
    problem::{Cause, Code, Problem},
};
use serde_json::{Value, json};

use crate::dialects::json as as_json;

/// The problem extension for routes where AgentMail answers a conflict with 422.
pub(super) const UNPROCESSABLE: &str = "unprocessable";

/// An error body whose `docs` link is still relative.
#[derive(Clone)]
struct PendingError(Value);

fn error_response(status: StatusCode, body: Value) -> Response {
    let mut response = as_json(status, &body);
    response.extensions_mut().insert(PendingError(body));
    response
}

/// Makes the `docs` link of an error absolute, because the caller may see nothing but this body.
pub(super) fn add_docs_link(mut response: Response, base: &str) -> Response {
    let Some(PendingError(mut body)) = response.extensions_mut().remove::<PendingError>() else { return response };
    if let Some(path) = body["docs"].as_str() {
        body["docs"] = format!("{}{path}", base.trim_end_matches('/')).into();
    }
    let mut absolute = as_json(response.status(), &body);
    for (name, value) in response.headers() {
        if name != header::CONTENT_LENGTH {
            absolute.headers_mut().insert(name, value.clone());
        }
    }
    absolute
}

/// The response to a request without a credential.
pub(super) fn unauthorized() -> Response {
    let body = json!({
        "name": "UnauthorizedError",
        "code": "missing_authorization",
        "message": "Unauthorized",
        "fix": "Send your API key in the Authorization: Bearer <api_key> header.",
        "docs": "/docs/errors/unauthorized",
    });
    error_response(StatusCode::UNAUTHORIZED, body)
}

/// The `501` for a feature that mailonce does not have. It is no `404`, because the path and the ids are correct.
pub(super) fn not_implemented(reason: &str, fix: &str) -> Response {
    let body = json!({
        "name": "NotImplementedError",
        "code": "not_implemented",
        "message": format!("mailonce does not support this: {reason}"),
        "fix": fix,
    });
    error_response(StatusCode::NOT_IMPLEMENTED, body)
}

/// The AgentMail status, name and code of a problem.
pub(super) fn classify(problem: &Problem) -> (u16, &'static str, &'static str) {
    match problem.code {
        Code::NameTaken if problem.extensions.contains_key(UNPROCESSABLE) => {
            (422, "UnprocessableError", "resource_taken")
        }
        Code::InvalidKey
        | Code::KeyRequired
        | Code::InvalidJson
        | Code::InvalidType
        | Code::UnknownField
        | Code::InvalidQuery
        | Code::UnsupportedMediaType
        | Code::CursorReset
        | Code::NameTaken
        | Code::InvalidField
        | Code::TemplateError => (400, "ValidationError", "validation_error"),
        Code::Unauthorized | Code::KeyExpired | Code::SessionEnded | Code::BadSignature => {
            (401, "UnauthorizedError", "unknown_api_key")
        }
        Code::WrongScope | Code::IpNotAllowed | Code::SenderNotAllowed | Code::SearchDisabled => {
            (403, "ForbiddenError", "missing_permission")
        }
        Code::SenderNotVerified => (403, "DomainNotVerifiedError", "domain_not_verified"),
        Code::BudgetSpent => (403, "LimitExceededError", "limit_exceeded"),
        Code::RecipientSuppressed | Code::BlockedByRule | Code::Itself | Code::Automatic | Code::Stopped => {
            (403, "MessageRejectedError", "message_rejected")
        }
        Code::NotFound | Code::MethodNotAllowed => (404, "NotFoundError", "not_found"),
        Code::Timeout => (408, "RequestTimeoutError", "request_timeout"),
        Code::TooLarge => (413, "PayloadTooLargeError", "payload_too_large"),
        Code::RateLimited | Code::TooManyFailures | Code::QuotaExceeded => {
            (429, "RateLimitError", "rate_limit_exceeded")
        }
        Code::Internal => (500, "InternalServerError", "internal_error"),
        Code::Unavailable => (503, "ServiceUnavailableError", "service_unavailable"),
        Code::StaleRev => (409, "ConflictError", "race_condition"),
        _ => (409, "ConflictError", "conflict"),
    }
}

/// The invalid fields, each with its path.
fn field_errors(problem: &Problem) -> Vec<Value> {
    let field_error = |field: &str, message: &str| {
        let path: Vec<&str> = field.split(['.', '[', ']']).filter(|part| !part.is_empty()).collect();
        json!({ "path": path, "message": message })
    };
    let listed = problem.extensions.get("errors").and_then(Value::as_array);
    match listed {
        Some(errors) => errors
            .iter()
            .map(|error| {
                field_error(error["field"].as_str().unwrap_or_default(), error["message"].as_str().unwrap_or_default())
            })
            .collect(),
        None => vec![field_error(problem.field.as_deref().unwrap_or_default(), &message(problem))],
    }
}

/// What is wrong. For a value of the wrong type the message names the field.
fn message(problem: &Problem) -> String {
    let Some(field) = problem.field.as_deref().filter(|field| !field.is_empty()) else { return problem.detail.clone() };
    let names_field = problem.cause == Some(Cause::MissingField)
        || problem.detail.strip_prefix(field).is_some_and(|rest| rest.starts_with(' '));
    if problem.code == Code::InvalidType && !names_field {
        format!("{field}: {}", problem.detail)
    } else {
        problem.detail.clone()
    }
}

/// What to do about it. The text mentions only what AgentMail's API offers.
fn next_step(problem: &Problem) -> &'static str {
    match problem.code {
        _ if problem.cause == Some(Cause::NoRecipient) => "Give at least one recipient in to; nothing was stored.",
        Code::InvalidKey => "Send an Idempotency-Key of 1 to 256 printable ASCII characters, or none.",
        Code::KeyRequired => "Add an Idempotency-Key header, the same for every retry of this message.",
        Code::InvalidJson => "Send one JSON object without repeated keys.",
        Code::InvalidType | Code::UnknownField | Code::InvalidField => {
            "Correct the fields that errors lists; nothing was stored."
        }
        Code::InvalidQuery | Code::CursorReset => "Correct the parameter that errors lists.",
        Code::Unauthorized => {
            "Send a key that is neither revoked nor expired in the Authorization: Bearer <api_key> header."
        }
        Code::WrongScope => "Ask the operator for a key with the scope that message names.",
        Code::SenderNotAllowed => "Send from an inbox that this key may use.",
        Code::SenderNotVerified => "Ask the operator to verify the domain of the inbox, or send from another inbox.",
        Code::NameTaken => "Use another username or client_id.",
        Code::RecipientSuppressed | Code::BlockedByRule => {
            "Do not send it again: ask the operator why this sender or recipient is blocked."
        }
        Code::NotFound | Code::MethodNotAllowed => {
            "Check the ids and the path. Objects of other teams are not found either."
        }
        Code::Timeout | Code::Internal | Code::Unavailable => {
            "Send the same request again with the same Idempotency-Key: only one message is sent."
        }
        Code::RateLimited | Code::TooManyFailures | Code::QuotaExceeded => {
            "Wait for as long as the Retry-After header says, then send the same request again."
        }
        Code::Stopped => "Do not retry in a loop: a person stopped email here. Ask whether the stop has ended.",
        Code::TooLarge => "Send a smaller request; nothing was stored.",
        Code::StaleRev => "It changed in the meantime. Read it again, then decide.",
        Code::KeyMismatch => "Use a new Idempotency-Key for a new message; the first message is unchanged.",
        Code::AlreadyAnswered => "Read the reply that was sent; to add something, reply to that one.",
        Code::Leased => "Wait until the other agent has finished with the thread, then read it again.",
        Code::NewerMessage => "Read the latest message of the thread and answer that one.",
        Code::TooLate => "It can no longer be changed or cancelled: look for the message that was sent.",
        Code::UseResolve | Code::NotTerminal => {
            "Do not send it again: read the message until its labels show a final state."
        }
        code => match code.next() {
            // The default advice may mention the native API, which does not help an AgentMail client.
            text if text.contains("/v1") || text.contains('`') => "Read it again, then decide, or ask the operator.",
            text => text,
        },
    }
}

/// Converts a problem to an error response.
pub(super) fn problem_response(problem: &Problem) -> Response {
    let (status, name, code) = classify(problem);
    let mut body = json!({
        "name": name,
        "code": code,
        "message": message(problem),
        "fix": next_step(problem),
        "docs": format!("/docs/errors/{}", problem.code.as_str()),
    });
    if status == 400 {
        body["errors"] = field_errors(problem).into();
    }
    error_response(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
}

/// Why an accepted email is held, unknown or not sent, and what to do about it; `None` for every other state.
fn send_failure_reason(state: EmailState) -> Option<(&'static str, &'static str)> {
    const USE_ANOTHER_KEY: &str = "To send it after all, use another Idempotency-Key.";
    Some(match state {
        EmailState::Held => (
            "This email was accepted and is held until a person decides.",
            "Do not send it again: read the message to see its state.",
        ),
        EmailState::Unknown => (
            "This email was accepted, but it is unknown whether it was delivered.",
            "Do not send it again: read the message until its labels show a final state.",
        ),
        EmailState::Failed => {
            ("This email was accepted, but the next hop refused it: it was not sent.", USE_ANOTHER_KEY)
        }
        EmailState::Cancelled => ("This email was accepted and then cancelled: it was not sent.", USE_ANOTHER_KEY),
        EmailState::Abandoned => (
            "This email was accepted and then abandoned by a person. It is unknown whether it was delivered.",
            "Ask that person before you send it again under another Idempotency-Key.",
        ),
        _ => return None,
    })
}

/// The error response for an accepted email that is held, unknown or not sent; `None` for every other state.
pub(super) fn send_failure_response(message_id: &str, thread_id: &str, state: EmailState) -> Option<Response> {
    let (message, fix) = send_failure_reason(state)?;
    let body = json!({
        "name": "MessageRejectedError",
        "code": "message_rejected",
        "message": message,
        "fix": fix,
        "docs": "/docs",
        "state": state.as_str(),
        "message_id": message_id,
        "thread_id": thread_id,
    });
    Some(error_response(StatusCode::FORBIDDEN, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::outbound::content::{EmailContent, RawContent};

    #[test]
    fn every_code_has_a_status_that_means_the_same() {
        for code in Code::ALL {
            let (status, name, code_text) = classify(&Problem::new(*code, "x"));
            assert!((400..600).contains(&status) && !name.is_empty() && !code_text.is_empty());
            // The dialect must agree with the native API on whether a client may retry.
            assert_eq!(status >= 500, code.status() >= 500, "{}", code.as_str());
            assert_eq!(matches!(status, 408 | 429), matches!(code.status(), 408 | 429), "{}", code.as_str());
        }
    }

    #[test]
    fn faults_are_told_with_their_paths() {
        let problem = Problem::invalid_field("attachments[0].content", "is no base64");
        assert_eq!(
            field_errors(&problem),
            [json!({ "path": ["attachments", "0", "content"], "message": "is no base64" })]
        );
        let problem = Problem::from(EmailContent::validate(RawContent::default()).unwrap_err());
        assert_eq!((classify(&problem).0, problem.cause), (400, None), "the first error is about `from`");
        let from = "a@x.test".to_owned();
        let problem = Problem::from(EmailContent::validate(RawContent { from, ..RawContent::default() }).unwrap_err());
        assert_eq!(next_step(&problem), "Give at least one recipient in to; nothing was stored.");
    }

    #[test]
    fn what_to_do_is_said_in_words_of_the_dialect() {
        for code in Code::ALL {
            let fix_text = next_step(&Problem::new(*code, "x"));
            assert!(
                !fix_text.contains("/v1") && !fix_text.contains('`') && !fix_text.contains("openapi"),
                "{fix_text}"
            );
        }
    }
}
