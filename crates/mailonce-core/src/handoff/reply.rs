//! What a next hop replied to an attempt.

use crate::string_enum::string_enum;
use serde::{Deserialize, Serialize};

string_enum! {
    /// How far an attempt got.
    AttemptPhase {
        /// DNS and TCP.
        Connect = "connect",
        /// TLS, implicit or after STARTTLS.
        Tls = "tls",
        /// The greeting and EHLO.
        Greet = "greet",
        /// Login.
        Login = "login",
        /// `MAIL FROM`.
        Mail = "mail",
        /// `RCPT TO`.
        Rcpt = "rcpt",
        /// `DATA` and the body, without the final dot.
        Data = "data",
        /// After the point of no return: the final dot, or the HTTP request.
        Final = "final",
    }
}

string_enum! {
    /// What the reply of the next hop means.
    ReplyMeaning {
        /// The next hop has the mail.
        Accepted = "accepted",
        /// Not accepted; a retry may succeed.
        Deferred = "deferred",
        /// Not accepted; a retry cannot succeed.
        Refused = "refused",
        /// Not accepted because of the transport itself: it is unreachable, or the login failed.
        Fault = "fault",
        /// The next hop rejected the request as a duplicate, so it has the first one.
        Repeated = "repeated",
        /// The next hop still processes an earlier request with the same key. Retry with the same key.
        Concurrent = "concurrent",
        /// The next hop knows the key for other bytes. An earlier attempt reached it, and a person must decide.
        Mismatch = "mismatch",
        /// The outcome cannot be determined.
        Unknown = "unknown",
    }
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportReply {
    /// What it means.
    pub meaning: ReplyMeaning,
    /// How far the attempt got.
    pub phase: AttemptPhase,
    /// The SMTP or HTTP status, when there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The text of the reply, without secrets, cut to [`TransportReply::TEXT_CHARS`] printable characters.
    pub text: String,
    /// The next hop's id for the mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<String>,
    /// The delay that the next hop asked for, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<i64>,
}

impl TransportReply {
    /// The maximum length of a kept reply text, in characters.
    pub const TEXT_CHARS: usize = 500;

    /// A reply with its text made printable and cut.
    pub fn new(meaning: ReplyMeaning, phase: AttemptPhase, code: Option<u16>, text: &str) -> Self {
        Self { meaning, phase, code, text: sanitize_text(text), remote_id: None, retry_after_ms: None }
    }

    /// Sets the next hop's id for the mail.
    #[must_use]
    pub fn with_remote_id(mut self, remote_id: Option<String>) -> Self {
        self.remote_id = remote_id.map(|id| sanitize_text(&id)).filter(|id| !id.is_empty());
        self
    }

    /// Sets the requested delay.
    #[must_use]
    pub fn with_retry_after(mut self, retry_after_ms: Option<i64>) -> Self {
        self.retry_after_ms = retry_after_ms;
        self
    }
}

/// Replaces control characters by spaces and cuts the text, because a next hop may send anything.
fn sanitize_text(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(TransportReply::TEXT_CHARS).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_text_is_printable_and_short() {
        let text = format!("no\r\n250 {}", "x".repeat(2_000));
        let reply = TransportReply::new(ReplyMeaning::Refused, AttemptPhase::Rcpt, Some(550), &text)
            .with_remote_id(Some("\u{7}".into()));
        assert_eq!(reply.text.chars().count(), TransportReply::TEXT_CHARS);
        assert!(!reply.text.chars().any(char::is_control));
        assert_eq!(reply.remote_id, None);
    }
}
