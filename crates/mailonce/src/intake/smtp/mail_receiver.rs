//! What the listener asks of whoever takes the mail.

use async_trait::async_trait;
use bytes::Bytes;
use std::net::IpAddr;

/// What is to be said to a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecipientStatus {
    /// An inbox that takes mail.
    Accepted,
    /// A domain of ours, but nobody by that name.
    Unknown,
    /// An inbox whose time is over.
    Expired,
    /// A rule refuses this sender.
    Blocked,
    /// A domain that is not ours. Nothing is ever passed on.
    NotLocal,
    /// We could not tell.
    TemporaryError,
}

/// A mail as it came. The bytes are those between `DATA` and the final dot, with the doubled dots undone and nothing
/// added: they are part of the delivery's key, and a trace line on top would make every repeat a new delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMail {
    /// Where it came from.
    pub ip: IpAddr,
    /// What that host called itself.
    pub helo: String,
    /// The sender of the envelope, domain as A-label; empty for the null return path.
    pub sender: String,
    /// The recipients that were [`Verdict::Here`], each once, in the form in which addresses are compared.
    pub recipients: Vec<String>,
    /// The bytes.
    pub raw: Bytes,
}

/// Why a mail is not acknowledged with `250`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAccepted {
    /// The mail could not be kept. The sender is told to try again.
    TemporaryError,
    /// No recipient takes mail any more, although each did at RCPT. The sender is told so for good.
    AllRecipientsGone,
    /// Some recipients take no mail any more. The mail is kept for the others; the sender is told to try again and
    /// learns at RCPT which ones are gone.
    SomeRecipientsGone,
}

/// Whoever takes the mail.
#[async_trait]
pub trait MailReceiver: Send + Sync {
    /// Whether mail of `sender` to `address` would be taken. Both as in [`Mail`].
    async fn check_recipient(&self, sender: &str, address: &str) -> RecipientStatus;

    /// Keeps a mail for all its recipients. `Ok` comes after the commit and says that each recipient has a delivery: the
    /// other side is told `250` then, and forgets the mail. It is not dropped half-way when the other side or the listener goes away.
    async fn accept(&self, mail: ReceivedMail) -> Result<(), NotAccepted>;
}
