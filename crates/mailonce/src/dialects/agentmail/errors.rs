//! Problems in AgentMail's words: `name`, `code`, `message` and `fix`; `errors` where fields are at fault.
//!
//! The packages know errors by their status, and know for each method which there are: what is said here is one of
//! those wherever the method has one that fits.

use axum::{
    http::{StatusCode, header},
    response::Response,
};
use mailonce_core::{
    outbound::email::EmailState,
    problem::{Code, Problem},
};
use serde_json::{Value, json};

use crate::dialects::{json as as_json, to_requirement};

/// The member of a problem that says that the method knows it as unprocessable.
pub(super) const UNPROCESSABLE: &str = "unprocessable";

/// A fault on its way out, whose reader must still be told where the documents are.
#[derive(Clone)]
struct PendingError(Value);

fn error_response(status: StatusCode, body: Value) -> Response {
    let mut response = as_json(status, &body);
    response.extensions_mut().insert(PendingError(body));
    response
}

/// The answer with the address of the page about its fault, for callers who know nothing but this.
pub(super) fn add_docs_link(mut response: Response, base: &str) -> Response {
    let Some(PendingError(mut body)) = response.extensions_mut().remove::<PendingError>() else { return response };
    if let Some(path) = body["docs"].as_str() {
        body["docs"] = format!("{}{path}", base.trim_end_matches('/')).into();
    }
    let mut told = as_json(response.status(), &body);
    for (name, value) in response.headers() {
        if name != header::CONTENT_LENGTH {
            told.headers_mut().insert(name, value.clone());
        }
    }
    told
}

/// A caller without a credential.
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

/// How AgentMail calls a problem: status, name and code.
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
        | Code::InvalidField => (400, "ValidationError", "validation_error"),
        Code::Unauthorized | Code::KeyExpired | Code::BadSignature => (401, "UnauthorizedError", "unknown_api_key"),
        Code::WrongScope | Code::IpNotAllowed | Code::SenderNotAllowed => (403, "ForbiddenError", "missing_permission"),
        Code::SenderNotVerified => (403, "DomainNotVerifiedError", "domain_not_verified"),
        Code::BudgetSpent => (403, "LimitExceededError", "limit_exceeded"),
        Code::RecipientSuppressed | Code::BlockedByRule | Code::Itself | Code::Automatic => {
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

/// A mail to nobody: well-formed, and cannot be sent.
fn has_no_recipient(problem: &Problem) -> bool {
    problem.field.as_deref() == Some("to") && problem.detail.ends_with("names no recipient")
}

/// The faults of fields, each with its path.
fn field_errors(problem: &Problem) -> Vec<Value> {
    let one = |field: &str, message: &str| {
        let path: Vec<&str> = field.split(['.', '[', ']']).filter(|part| !part.is_empty()).collect();
        json!({ "path": path, "message": to_requirement(message) })
    };
    let listed = problem.extensions.get("faults").and_then(Value::as_array);
    match listed {
        Some(faults) => faults
            .iter()
            .map(|fault| {
                one(fault["field"].as_str().unwrap_or_default(), fault["message"].as_str().unwrap_or_default())
            })
            .collect(),
        None => vec![one(problem.field.as_deref().unwrap_or_default(), &message(problem))],
    }
}

/// What is wrong. A value of the wrong type is named by its field.
fn message(problem: &Problem) -> String {
    let Some(field) = problem.field.as_deref().filter(|field| !field.is_empty()) else { return problem.detail.clone() };
    match problem.detail.strip_prefix(field).and_then(|rest| rest.strip_prefix(' ')) {
        Some(rest) => format!("{field} {}", to_requirement(rest)),
        None if problem.code == Code::InvalidType && !problem.detail.starts_with("missing field") => {
            format!("{field}: {}", problem.detail)
        }
        None => problem.detail.clone(),
    }
}

/// What to do about it, in words of what the dialect has.
fn fix(problem: &Problem) -> &'static str {
    match problem.code {
        Code::InvalidField if has_no_recipient(problem) => "Name at least one recipient in to; nothing was stored.",
        Code::InvalidKey => "Send an Idempotency-Key of 1 to 256 printable ASCII characters, or none.",
        Code::KeyRequired => "Add an Idempotency-Key header, the same for every retry of this message.",
        Code::InvalidJson => "Send one JSON object without repeated members.",
        Code::InvalidType | Code::UnknownField | Code::InvalidField => "Correct what errors names; nothing was stored.",
        Code::InvalidQuery | Code::CursorReset => "Correct the parameter that errors names.",
        Code::Unauthorized => {
            "Send a key that is neither revoked nor expired in the Authorization: Bearer <api_key> header."
        }
        Code::WrongScope => "Ask the operator for a key with the scope that message names.",
        Code::SenderNotAllowed => "Send from an inbox that this key may use.",
        Code::SenderNotVerified => "Ask the operator to verify the domain of the inbox, or send from another inbox.",
        Code::NameTaken => "Take another username or client_id.",
        Code::RecipientSuppressed | Code::BlockedByRule => {
            "Do not send it again: ask the operator whether this recipient or sender is to be stopped."
        }
        Code::NotFound | Code::MethodNotAllowed => {
            "Check the ids and the path; what belongs to another team is not found either."
        }
        Code::Timeout | Code::Internal | Code::Unavailable => {
            "Send the same call again with the same Idempotency-Key: it ends in one message."
        }
        Code::RateLimited | Code::TooManyFailures | Code::QuotaExceeded => {
            "Wait for as long as the Retry-After header says, then send the same call again."
        }
        Code::TooLarge => "Send less at once; nothing was stored.",
        Code::StaleRev => "Read it again and decide anew.",
        Code::KeyMismatch => "Take another Idempotency-Key for another message; the first one stands.",
        Code::AlreadyAnswered => "Read the answer that is there; to say more, reply to that one.",
        Code::Leased => "Wait until the other agent is done with the thread, then read it again.",
        Code::NewerMessage => "Read the latest message of the thread and answer that one.",
        Code::TooLate => "Nothing can be taken back any more: look for the message that it became.",
        Code::UseResolve | Code::NotTerminal => {
            "Do not send it again: read the message until its labels say what it is."
        }
        code => match code.next() {
            // What only the API has is no help here.
            text if text.contains("/v1") || text.contains('`') => "Read it again and decide anew, or ask the operator.",
            text => text,
        },
    }
}

/// A problem as AgentMail would say it.
pub(super) fn problem_response(problem: &Problem) -> Response {
    let (status, name, code) = classify(problem);
    let mut body = json!({
        "name": name,
        "code": code,
        "message": message(problem),
        "fix": fix(problem),
        "docs": format!("/docs/errors/{}", problem.code.as_str()),
    });
    if status == 400 {
        body["errors"] = field_errors(problem).into();
    }
    error_response(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
}

/// Why a mail that was taken does not go, or did not, and what to do about it; `None` for one that goes or went.
fn send_failure_reason(state: EmailState) -> Option<(&'static str, &'static str)> {
    const ANEW: &str = "If it is to go after all, send it under another Idempotency-Key.";
    Some(match state {
        EmailState::Held => (
            "This mail was taken and is held until a person decides.",
            "Do not send it again: read the message to see what became of it.",
        ),
        EmailState::Unknown => (
            "This mail was taken, and nobody can tell whether it arrived.",
            "Do not send it again: read the message until its labels say what became of it.",
        ),
        EmailState::Failed => ("This mail was taken, and the next hop refused it: it was not sent.", ANEW),
        EmailState::Cancelled => ("This mail was taken and then cancelled: it was not sent.", ANEW),
        EmailState::Abandoned => (
            "This mail was taken and then given up by a person, who could not tell whether it arrived.",
            "Ask that person before you send it again under another Idempotency-Key.",
        ),
        _ => return None,
    })
}

/// A mail that was taken and does not go, or did not.
pub(super) fn send_failure_response((message_id, thread_id): (&str, &str), state: EmailState) -> Option<Response> {
    let (why, fix) = send_failure_reason(state)?;
    let body = json!({
        "name": "MessageRejectedError",
        "code": "message_rejected",
        "message": why,
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
    use mailonce_core::problem::FieldError;

    #[test]
    fn every_code_has_a_status_that_means_the_same() {
        for code in Code::ALL {
            let (status, name, word) = classify(&Problem::new(*code, "x"));
            assert!((400..600).contains(&status) && !name.is_empty() && !word.is_empty());
            // Whether a call may be repeated must not be told otherwise.
            assert_eq!(status >= 500, code.status() >= 500, "{}", code.as_str());
            assert_eq!(matches!(status, 408 | 429), matches!(code.status(), 408 | 429), "{}", code.as_str());
        }
    }

    #[test]
    fn faults_are_told_with_their_paths() {
        let problem = Problem::from(vec![FieldError::new("attachments[0].content", "is no base64")]);
        assert_eq!(
            field_errors(&problem),
            [json!({ "path": ["attachments", "0", "content"], "message": "is no base64" })]
        );
        assert_eq!(classify(&Problem::from(vec![FieldError::new("to", "names no recipient")])).0, 400);
    }

    #[test]
    fn what_to_do_is_said_in_words_of_the_dialect() {
        for code in Code::ALL {
            let told = fix(&Problem::new(*code, "x"));
            assert!(!told.contains("/v1") && !told.contains('`') && !told.contains("openapi"), "{told}");
        }
    }
}
