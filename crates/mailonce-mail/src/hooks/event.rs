//! What a provider says about a mail, in our words.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use mailonce_core::{handoff::reply::TransportReply, id::EmailId, time::Time};
use sha2::{Digest as _, Sha256};

/// What became of a mail, as the provider tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportedStatus {
    /// The provider has it.
    Accepted,
    /// The recipient's server has it.
    Delivered,
    /// Not yet; the provider keeps trying.
    Deferred,
    /// It came back, or will not be tried again.
    Bounced {
        /// The address itself is at fault, now and later.
        permanent: bool,
    },
    /// The recipient called it spam.
    Complained,
    /// The provider had it and will not send it.
    Refused,
    /// The provider had it and will not send it, because the recipient is on its list.
    Suppressed,
    /// Something else: an open, a click, a word we do not know.
    Other,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookEvent {
    /// The same for every repeat of this event and for no other event of the source.
    pub dedupe_key: String,
    /// Our email, when the provider gave our value back.
    pub email: Option<EmailId>,
    /// The provider's own name for the mail.
    pub remote_id: Option<String>,
    /// A bare address, in the provider's spelling. None when the event does not tell which one it is about.
    pub recipient: Option<String>,
    /// What became of it.
    pub reported_status: ReportedStatus,
    /// In the provider's words: one printable line, cut.
    pub reason: String,
    /// When, by the provider's clock.
    pub occurred_at: Option<Time>,
    /// Made by a test button, a test mode or a simulated mailbox.
    pub is_test: bool,
}

/// Why a body could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookParseError {
    /// Not JSON, or JSON with two values for one name.
    #[error("not readable as JSON: {0}")]
    Json(String),
    /// Not what this provider sends.
    #[error("not what this provider sends: expected {0}")]
    Unexpected(&'static str),
    /// Over the limit of events.
    #[error("{0} events, fields or recipients in one request are too many")]
    TooMany(usize),
    /// Over the limit of bytes.
    #[error("the body is larger than is read")]
    TooLarge,
}

impl HookParseError {
    pub(crate) fn json(why: &str) -> Self {
        Self::Json(printable_line(why, 200))
    }
}

/// An event on its way to become a [`Report`].
pub(crate) struct HookEventDraft<'a> {
    /// The provider's own id of the event, when it has one that is the same for every repeat.
    pub(crate) event_id: Option<String>,
    /// What else tells two events of one mail apart, when there is no such id.
    pub(crate) discriminator: Option<String>,
    /// The provider's word for what happened.
    pub(crate) event_type: &'a str,
    pub(crate) email: Option<EmailId>,
    pub(crate) remote_id: Option<&'a str>,
    pub(crate) recipient: Option<&'a str>,
    pub(crate) reported_status: ReportedStatus,
    pub(crate) reason: Option<&'a str>,
    pub(crate) occurred_at: Option<Time>,
    pub(crate) is_test: bool,
}

impl HookEventDraft<'_> {
    pub(crate) fn finish(self) -> HookEvent {
        HookEvent {
            dedupe_key: self.dedupe_key(),
            email: self.email,
            remote_id: self.remote_id.and_then(|id| printable_or_none(id, 200)),
            recipient: self.recipient.and_then(|address| printable_or_none(bare_address(address), 320)),
            reported_status: self.reported_status,
            reason: printable_line(self.reason.unwrap_or(self.event_type), TransportReply::TEXT_CHARS),
            occurred_at: self.occurred_at,
            is_test: self.is_test,
        }
    }

    /// The event's id where there is one, else a hash of what a repeat has in common with the first: never of the
    /// body, in which attempt counters and signatures change.
    fn dedupe_key(&self) -> String {
        if let Some(id) = self.event_id.as_deref().filter(|id| is_usable_id(id)) {
            return id.to_owned();
        }
        let at = self.occurred_at.map(|at| at.0.to_string());
        let own = self.event_id.as_deref().or(self.discriminator.as_deref());
        let parts = [own, Some(self.event_type), self.remote_id, self.recipient, at.as_deref()];
        let mut hash = Sha256::new();
        for part in parts {
            let part = part.unwrap_or_default();
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        URL_SAFE_NO_PAD.encode(hash.finalize())
    }
}

fn is_usable_id(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

/// Our own id as a provider gives it back. Anything else is none.
pub(crate) fn parse_email_id(text: Option<&str>) -> Option<EmailId> {
    text?.trim().parse().ok()
}

/// The address of `Name <address>`.
fn bare_address(address: &str) -> &str {
    let inner = address.rsplit_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inner.map_or(address, |(address, _)| address).trim()
}

/// Printable and at most `max` characters, or none: half an id names something else.
fn printable_or_none(text: &str, max: usize) -> Option<String> {
    let text = text.trim();
    let fits = !text.is_empty() && text.chars().count() <= max && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

/// One printable line, cut.
fn printable_line(text: &str, max: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(max).collect::<String>().trim().to_owned()
}
