//! The transport port: something that hands mail to a next hop, such as an SMTP relay or a provider's API.
//!
//! An attempt has two halves, with the durable marker between them. [`Transport::prepare`] does everything that can be
//! undone: connecting, TLS, login, and for SMTP everything up to the final dot. The engine then commits `sending`.
//! [`PreparedHandoff::hand_over`] sends the bytes on that same connection.
//!
//! Neither half retries or follows a redirect. A result that is neither proof nor refusal is [`ReplyMeaning::Unknown`].

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};
use uuid::Uuid;

use crate::{
    id::{EmailId, TeamId},
    outbound::content::EmailContent,
    string_enum::string_enum,
    time::Time,
};

/// How an email is divided into envelopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffSplit {
    /// One handoff per recipient.
    PerRecipient,
    /// One handoff for the whole email.
    PerEmail,
}

/// The form in which a transport gets the email.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadFormat {
    /// RFC 5322 bytes.
    Mime,
    /// The content, which the transport puts into its own format.
    Content,
}

/// How an unknown outcome can be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryMethod {
    /// The next hop accepts an idempotency key: the same bytes under the same key make no second mail within the
    /// window.
    IdempotencyKey {
        /// How long the next hop remembers a key, counted from the first attempt, in milliseconds.
        window_ms: i64,
    },
    /// The next hop can be queried. A hit is proof; a miss is only evidence.
    LookUp {
        /// How long to wait before the first query, in milliseconds.
        settle_delay_ms: i64,
    },
    /// No recovery is possible.
    None,
}

impl RecoveryMethod {
    /// How long before its end a window already counts as closed: a tenth of it, between 3 and 30 minutes.
    pub fn window_margin_ms(window_ms: i64) -> i64 {
        (window_ms / 10).clamp(3 * 60_000, 30 * 60_000)
    }
}

/// The capabilities of a transport. They decide the envelopes at accept and the recovery after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportCapabilities {
    /// How an email is divided into envelopes.
    pub split: HandoffSplit,
    /// The form in which it gets the email.
    pub payload_format: PayloadFormat,
    /// How an unknown outcome can be recovered.
    pub recovery: RecoveryMethod,
    /// The longest duration of one attempt, in milliseconds. After it the outcome is unknown.
    pub timeout_ms: i64,
    /// The maximum number of concurrent attempts.
    pub max_concurrency: usize,
}

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

/// The input of [`Transport::freeze`]. It is identical on every attempt.
#[derive(Clone, Copy, Debug)]
pub struct OutboundMail<'a> {
    /// Its id.
    pub id: EmailId,
    /// Its content.
    pub content: &'a EmailContent,
    /// The Message-ID, with angle brackets.
    pub message_id: &'a str,
    /// When it was accepted. Becomes the Date header.
    pub created_at: Time,
    /// The idempotency key for the next hop, in a form that every provider accepts.
    pub key: Uuid,
    /// The signed RFC 5322 bytes with CRLF, without Bcc. Present only for [`PayloadFormat::Mime`].
    pub mime: Option<&'a [u8]>,
}

/// Why a transport cannot send an email at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnsupportedMail(pub String);

/// One envelope with its frozen bytes.
#[derive(Clone, Debug)]
pub struct FrozenEnvelope {
    /// The team.
    pub team: TeamId,
    /// The email.
    pub email: EmailId,
    /// The handoff's number.
    pub handoff: u16,
    /// The attempt's number.
    pub attempt: u32,
    /// The envelope sender, which receives bounces. Empty for the null sender.
    pub return_path: String,
    /// An unguessable id of handoff and attempt, sent to the next hop as ENVID.
    pub envelope_id: String,
    /// The recipients, as bare addresses.
    pub recipients: Vec<String>,
    /// The idempotency key for the next hop.
    pub key: Uuid,
    /// The output of [`Transport::freeze`], stored with the first marker.
    pub bytes: Arc<[u8]>,
}

/// A query to a next hop about an attempt whose reply was lost.
#[derive(Clone, Debug)]
pub struct LookUpRequest {
    /// The email.
    pub email: EmailId,
    /// The handoff's number.
    pub handoff: u16,
    /// The recipients, as bare addresses.
    pub recipients: Vec<String>,
    /// The Message-ID, with angle brackets.
    pub message_id: String,
    /// The idempotency key that was sent to the next hop.
    pub key: Uuid,
    /// When the first attempt in doubt began.
    pub in_doubt_since: Time,
    /// The current time.
    pub now: Time,
}

/// The result of querying a next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookUpResult {
    /// The next hop has the mail.
    Found {
        /// The next hop's id for the mail.
        remote_id: Option<String>,
        /// A description of the hit.
        text: String,
    },
    /// The next hop does not know the mail. Only evidence: its index may lag.
    NotFound,
    /// The next hop could not be queried.
    Unavailable(String),
}

/// The result of testing the connection of a transport, without sending a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionCheck {
    /// The login succeeded.
    LoggedIn,
    /// The server is reachable. The login, if there is one, is first tested by the first mail.
    Reached,
    /// The server is reachable but refused the login.
    LoginRefused(String),
    /// The server is unreachable.
    Unreachable(String),
}

/// An attempt at the point of no return. Everything is prepared and nothing is irrevocable; dropping it undoes it.
#[async_trait]
pub trait PreparedHandoff: Send {
    /// Sends the bytes, once, on the prepared connection, and waits for the reply.
    async fn hand_over(self: Box<Self>) -> TransportReply;
}

/// Hands mail to a next hop.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Its name in the configuration.
    fn name(&self) -> &str;
    /// Its kind: `smtp`, `resend` …
    fn kind(&self) -> &'static str;
    /// A fingerprint of the provider account. It stays the same when the credentials change.
    fn account(&self) -> &str;
    /// Its capabilities.
    fn capabilities(&self) -> TransportCapabilities;
    /// The bytes to send for an email, identical for all attempts. Pure: the same email gives the same bytes.
    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail>;
    /// Prepares an attempt, as far as it can be undone. An error never means `accepted` or `unknown`.
    async fn prepare(&self, parcel: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply>;
    /// Asks whether the next hop has a mail. Called only when the recovery method is [`RecoveryMethod::LookUp`].
    async fn look_up(&self, asked: LookUpRequest) -> LookUpResult;
    /// Connects and logs in, as far as that is possible without a mail.
    async fn check_connection(&self) -> ConnectionCheck {
        ConnectionCheck::Reached
    }
}

impl fmt::Debug for dyn Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transport({}, {})", self.name(), self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_next_hop_says_is_printable_and_short() {
        let said = format!("no\r\n250 {}", "x".repeat(2_000));
        let reply = TransportReply::new(ReplyMeaning::Refused, AttemptPhase::Rcpt, Some(550), &said)
            .with_remote_id(Some("\u{7}".into()));
        assert_eq!(reply.text.chars().count(), TransportReply::TEXT_CHARS);
        assert!(!reply.text.chars().any(char::is_control));
        assert_eq!(reply.remote_id, None);
    }

    #[test]
    fn a_window_closes_before_its_end() {
        assert_eq!(RecoveryMethod::window_margin_ms(24 * 3_600_000), 30 * 60_000);
        assert_eq!(RecoveryMethod::window_margin_ms(15 * 60_000), 3 * 60_000);
    }
}
