//! The trait through which the listener checks recipients and hands over received mail.

use async_trait::async_trait;
use bytes::Bytes;
use std::net::IpAddr;

/// The answer to RCPT for one recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecipientStatus {
    /// An inbox that accepts mail.
    Accepted,
    /// A local domain, but no such inbox.
    Unknown,
    /// An expired inbox.
    Expired,
    /// A rule blocks this sender.
    Blocked,
    /// Not a local domain. The listener never relays.
    NotLocal,
    /// The check failed. The sender should retry.
    TemporaryError,
}

/// A received mail. The bytes are those between `DATA` and the final dot, without dot-stuffing and with nothing added.
/// They are part of the delivery key, so a `Received` header would turn every repeated delivery into a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMail {
    /// The IP address of the sending host.
    pub ip: IpAddr,
    /// The name that the host gave in EHLO or HELO.
    pub helo: String,
    /// The envelope sender, with the domain as A-label; empty for the null return path.
    pub sender: String,
    /// The recipients that were [`RecipientStatus::Accepted`], without duplicates, in canonical form.
    pub recipients: Vec<String>,
    /// The raw bytes of the mail.
    pub raw: Bytes,
}

/// Why a mail is not acknowledged with `250`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAccepted {
    /// The mail could not be committed. The sender gets a temporary error.
    TemporaryError,
    /// No recipient accepts mail any more, although each did at RCPT. The sender gets a permanent error.
    AllRecipientsGone,
    /// Some recipients accept no mail any more. The mail is committed for the others. The sender gets a temporary
    /// error, and its retry learns at RCPT which recipients are gone.
    SomeRecipientsGone,
}

/// Accepts received mail.
#[async_trait]
pub trait MailReceiver: Send + Sync {
    /// Whether mail from `sender` to `address` would be accepted. Both have the form that [`ReceivedMail`] describes.
    async fn check_recipient(&self, sender: &str, address: &str) -> RecipientStatus;

    /// Commits a mail for all its recipients. Returns `Ok` after the commit, when each recipient has a delivery. The
    /// sender then gets `250` and deletes its copy. The call runs to its end even if the sender disconnects or the
    /// listener stops.
    async fn accept(&self, mail: ReceivedMail) -> Result<(), NotAccepted>;
}
