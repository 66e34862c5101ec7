//! Resend features that mailonce does not have. Their routes answer `501` with the reason, not `404`: the path is
//! correct, so a client needs to know that no other spelling will work.

use axum::http::{StatusCode, Uri};

use super::{ResendDialect, errors};
use crate::dialects::DialectError;

/// Why a Resend route does not exist here; `None` for a path that Resend does not have either.
fn reason(path: &str) -> Option<&'static str> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    Some(match segments.as_slice() {
        ["contacts" | "contact-properties" | "audiences" | "segments" | "topics", ..] => {
            "Contacts, audiences, segments and topics are not available: mailonce keeps no contact lists. Send to the recipients with `POST /emails` or `POST /emails/batch`."
        }
        ["broadcasts" | "automations" | "events", ..] => {
            "Broadcasts and automations are not available: mailonce sends transactional email only. Use `POST /emails` or `POST /emails/batch`."
        }
        ["emails", _, "share"] => {
            "Emails cannot be shared: mailonce shows them to API keys only. Use `GET /emails/{id}`."
        }
        ["logs", ..] => {
            "Request logs are not available: mailonce keeps emails, events and an audit log. Use `GET /emails` or `GET /webhooks/{id}/events`."
        }
        ["usage"] => "Usage is not available: mailonce has no plans. Use `GET /emails/metrics` for what was sent.",
        ["oauth-grants" | "oauth", ..] => {
            "OAuth grants are not available: clients of this API use API keys. `GET /v1/connections` lists the OAuth clients of `/mcp`."
        }
        ["domains", "claims", ..] | ["domains", "claim"] | ["domains", _, "claim" | "claims", ..] => {
            "Domain claims are not available: a domain is verified by its own DNS records. Use `POST /domains/{id}/verify`."
        }
        ["inboxes", _, "agent"] => {
            "Inbox agents are not available: mailonce runs no model. Your own agent reads the threads and replies."
        }
        _ => return None,
    })
}

/// The `501` for a feature that mailonce does not have; `None` for any other path.
pub(super) fn error_for(uri: &Uri) -> Option<DialectError<ResendDialect>> {
    let response = |reason| errors::error(StatusCode::NOT_IMPLEMENTED, "not_implemented", reason);
    reason(uri.path()).map(response).map(DialectError::from_response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_paths_stay_unknown() {
        for path in ["/contacts", "/contacts/x/topics", "/broadcasts/x/send", "/emails/x/share", "/usage"] {
            assert!(reason(path).is_some(), "{path}");
        }
        for path in ["/", "/contact", "/emails/x/y", "/inboxes/x/y", "/usage/x"] {
            assert!(reason(path).is_none(), "{path}");
        }
    }
}
