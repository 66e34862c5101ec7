//! A way out: what the engine needs from something that hands mail to a next hop.
//!
//! A hand-over has two halves with the durable marker between them. [`Transport::approach`] does everything that can
//! be taken back (connecting, TLS, log-in, and for SMTP all up to the final dot); the engine commits `sending`; then
//! [`Ready::hand_over`] lets the bytes go on that very connection. Neither half ever tries again by itself, follows a
//! redirect, or says more than it knows: whatever is neither a proof nor a refusal is [`Meaning::Unknown`].

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

/// What a transport is given to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadFormat {
    /// The mail as RFC 5322 bytes.
    Mime,
    /// The mail's content, which it words in its own way.
    Content,
}

/// What can be done about an outcome that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryMethod {
    /// It takes a key: the same bytes under the same key inside the window make no second mail.
    IdempotencyKey {
        /// How long the next hop remembers a key, from the first attempt, in milliseconds.
        window_ms: i64,
    },
    /// It can be asked. A yes is proof, a no is only evidence.
    LookUp {
        /// How long to wait before asking, in milliseconds.
        settle_delay_ms: i64,
    },
    /// Nothing.
    None,
}

impl RecoveryMethod {
    /// How long before its end a window counts as closed: a tenth of it, between 3 and 30 minutes.
    pub fn window_margin_ms(window_ms: i64) -> i64 {
        (window_ms / 10).clamp(3 * 60_000, 30 * 60_000)
    }
}

/// What a transport is like. Drives the envelopes at accept and the recovery after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportCapabilities {
    /// How an email is divided.
    pub split: HandoffSplit,
    /// What it is given.
    pub payload_format: PayloadFormat,
    /// What can be done about the unknown.
    pub recovery: RecoveryMethod,
    /// How long one hand-over may take at the most, in milliseconds. Afterwards its outcome is unknown.
    pub timeout_ms: i64,
    /// Hand-overs it takes at a time.
    pub max_concurrency: usize,
}

string_enum! {
    /// How far an attempt came.
    AttemptPhase {
        /// Name look-up and TCP.
        Connect = "connect",
        /// TLS, by itself or after STARTTLS.
        Tls = "tls",
        /// The greeting and EHLO.
        Greet = "greet",
        /// Log-in.
        Login = "login",
        /// `MAIL FROM`.
        Mail = "mail",
        /// `RCPT TO`.
        Rcpt = "rcpt",
        /// `DATA` and the body, without the final dot.
        Data = "data",
        /// After the point of no return: the final dot, or the request.
        Final = "final",
    }
}

string_enum! {
    /// What the next hop's answer means.
    ReplyMeaning {
        /// It has the mail.
        Accepted = "accepted",
        /// It does not, and asks to come again.
        Deferred = "deferred",
        /// It does not, and will not.
        Refused = "refused",
        /// It does not, because the transport is at fault: it cannot be reached, or the log-in was refused.
        Fault = "fault",
        /// It rejected a repeat as a repeat: it has the first.
        Repeated = "repeated",
        /// It is still busy with an earlier request under the same key: ask again with the same key.
        Concurrent = "concurrent",
        /// It knows the key for other bytes: an earlier attempt reached it, a person must look.
        Mismatch = "mismatch",
        /// Nobody can tell.
        Unknown = "unknown",
    }
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportReply {
    /// What it means.
    pub meaning: ReplyMeaning,
    /// How far the attempt came.
    pub phase: AttemptPhase,
    /// The SMTP or HTTP status, when there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// What was said, cut to [`Reply::TEXT_CHARS`] printable characters, without secrets.
    pub text: String,
    /// The next hop's own name for the mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<String>,
    /// How long it asks us to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<i64>,
}

impl TransportReply {
    /// Characters kept of what a next hop says.
    pub const TEXT_CHARS: usize = 500;

    /// A reply in words, made printable and cut.
    pub fn new(meaning: ReplyMeaning, phase: AttemptPhase, code: Option<u16>, text: &str) -> Self {
        Self { meaning, phase, code, text: sanitize_text(text), remote_id: None, retry_after_ms: None }
    }

    /// With the next hop's own name for the mail.
    #[must_use]
    pub fn with_remote_id(mut self, remote_id: Option<String>) -> Self {
        self.remote_id = remote_id.map(|id| sanitize_text(&id)).filter(|id| !id.is_empty());
        self
    }

    /// With the pause it asks for.
    #[must_use]
    pub fn with_retry_after(mut self, retry_after_ms: Option<i64>) -> Self {
        self.retry_after_ms = retry_after_ms;
        self
    }
}

/// A next hop may say anything: control characters become spaces, and the rest is cut.
fn sanitize_text(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(TransportReply::TEXT_CHARS).collect::<String>().trim().to_owned()
}

/// A mail as a transport freezes it. Everything in it is the same again at every attempt.
#[derive(Clone, Copy, Debug)]
pub struct OutboundMail<'a> {
    /// Its id.
    pub id: EmailId,
    /// What it says.
    pub content: &'a EmailContent,
    /// With angle brackets.
    pub message_id: &'a str,
    /// When it was accepted: its Date.
    pub created_at: Time,
    /// The key passed downstream, in a form that fits every provider.
    pub key: Uuid,
    /// The RFC 5322 bytes, CRLF, signed, without Bcc. Only for [`Wire::Mime`].
    pub mime: Option<&'a [u8]>,
}

/// Why a mail cannot go by a transport at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnsupportedMail(pub String);

/// One envelope with its frozen bytes.
#[derive(Clone, Debug)]
pub struct FrozenEnvelope {
    /// Whose it is.
    pub team: TeamId,
    /// The email.
    pub email: EmailId,
    /// The handoff's number.
    pub handoff: u16,
    /// The attempt's number.
    pub attempt: u32,
    /// The envelope's sender, where bounces go. Empty is the null sender.
    pub return_path: String,
    /// Names handoff and attempt to the next hop (ENVID), unguessable.
    pub envelope_id: String,
    /// Bare addresses.
    pub recipients: Vec<String>,
    /// The key passed downstream.
    pub key: Uuid,
    /// What [`Transport::freeze`] gave when the first marker was committed.
    pub bytes: Arc<[u8]>,
}

/// What is asked of a next hop whose answer was lost.
#[derive(Clone, Debug)]
pub struct LookUpRequest {
    /// The email.
    pub email: EmailId,
    /// The handoff's number.
    pub handoff: u16,
    /// Bare addresses.
    pub recipients: Vec<String>,
    /// With angle brackets.
    pub message_id: String,
    /// The key that was passed downstream.
    pub key: Uuid,
    /// When the first attempt in doubt began.
    pub in_doubt_since: Time,
    /// Now.
    pub now: Time,
}

/// What a next hop said when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookUpResult {
    /// It has the mail, under its own name.
    Found {
        /// Its own name for it.
        remote_id: Option<String>,
        /// What it said.
        text: String,
    },
    /// It knows of none. Only evidence: it may learn of it later.
    NotFound,
    /// It could not be asked.
    Unavailable(String),
}

/// How far a way out was open when somebody looked, with no mail in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionCheck {
    /// It took our log-in.
    LoggedIn,
    /// It is there. Whether it takes our log-in, if there is one, shows with the first mail.
    Reached,
    /// It is there and does not take our log-in.
    LoginRefused(String),
    /// It cannot be reached.
    Unreachable(String),
}

/// A hand-over at the point of no return: everything is ready, nothing is irrevocable. Dropping it takes it back.
#[async_trait]
pub trait PreparedHandoff: Send {
    /// Lets the bytes go, once, on the connection that was made, and waits for the answer.
    async fn hand_over(self: Box<Self>) -> TransportReply;
}

/// A way out.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Its name in the configuration.
    fn name(&self) -> &str;
    /// What kind it is: `smtp`, `resend` …
    fn kind(&self) -> &'static str;
    /// A fingerprint of the account behind it that survives a change of its credentials.
    fn account(&self) -> &str;
    /// What it is like.
    fn capabilities(&self) -> TransportCapabilities;
    /// The bytes it will send for a mail, whatever the attempt. Pure: the same mail gives the same bytes.
    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail>;
    /// Goes as far as can be taken back. An error is a [`Reply`] whose meaning is never `accepted` or `unknown`.
    async fn prepare(&self, parcel: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply>;
    /// Asks whether it has a mail. Only called when its recovery is [`Recovery::LookUp`].
    async fn look_up(&self, asked: LookUpRequest) -> LookUpResult;
    /// Connects and logs in as far as that can be done without a mail.
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
