//! What a transport is given, and what it answers to a look-up or a connection check.

use crate::{
    id::{EmailId, TeamId},
    outbound::content::EmailContent,
    time::Time,
};
use std::sync::Arc;
use uuid::Uuid;

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
