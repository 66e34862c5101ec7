//! Events of all providers in one common format.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use mailonce_core::{handoff::reply::TransportReply, id::EmailId, time::Time};
use sha2::{Digest as _, Sha256};

/// The delivery status of a mail, as the provider reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportedStatus {
    /// The provider accepted it.
    Accepted,
    /// The recipient's server accepted it.
    Delivered,
    /// Delivery is delayed; the provider keeps trying.
    Deferred,
    /// It bounced, or the provider gave up.
    Bounced {
        /// The address itself is at fault, so later mail would bounce too.
        permanent: bool,
    },
    /// The recipient reported it as spam.
    Complained,
    /// The provider accepted it but refuses to send it.
    Refused,
    /// The provider did not send it because the recipient is on its suppression list.
    Suppressed,
    /// Something else: an open, a click, an unknown event type.
    Other,
}

/// One event about one mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookEvent {
    /// Identifies the event: equal for every redelivery, and unique within the source.
    pub dedupe_key: String,
    /// Our email, if the event contains our correlation id.
    pub email: Option<EmailId>,
    /// The provider's message id.
    pub remote_id: Option<String>,
    /// The recipient's bare address, as the provider spells it. `None` if the event does not name one.
    pub recipient: Option<String>,
    /// The delivery status.
    pub reported_status: ReportedStatus,
    /// The provider's explanation: one printable line, truncated.
    pub reason: String,
    /// The time of the event, by the provider's clock.
    pub occurred_at: Option<Time>,
    /// Whether the event comes from a test button, a test mode or a simulated mailbox.
    pub is_test: bool,
}

/// Why a body could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookParseError {
    /// Not JSON, or JSON with a duplicate name.
    #[error("not valid JSON: {0}")]
    Json(String),
    /// Not a format that this provider sends.
    #[error("not a format that this provider sends: expected {0}")]
    Unexpected(&'static str),
    /// Too many events, fields or recipients.
    #[error("{0} events, fields or recipients in one request are too many")]
    TooMany(usize),
    /// The body exceeds the size limit.
    #[error("the body exceeds the size limit")]
    TooLarge,
}

impl HookParseError {
    pub(crate) fn json(why: &str) -> Self {
        Self::Json(printable_line(why, 200))
    }
}

/// The parsed parts of an event. [`HookEventDraft::finish`] makes a [`HookEvent`] of them.
pub(crate) struct HookEventDraft<'a> {
    /// The provider's event id, if it is the same for every redelivery.
    pub(crate) event_id: Option<String>,
    /// Distinguishes two events of one mail if there is no such id.
    pub(crate) discriminator: Option<String>,
    /// The provider's event type.
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

    /// The event id if there is one, else a hash of the fields that every redelivery shares. The body is not hashed,
    /// because attempt counters and signatures change in it.
    fn dedupe_key(&self) -> String {
        if let Some(id) = self.event_id.as_deref().filter(|id| is_usable_id(id)) {
            return id.to_owned();
        }
        let at = self.occurred_at.map(|at| at.0.to_string());
        let id_or_discriminator = self.event_id.as_deref().or(self.discriminator.as_deref());
        let parts = [id_or_discriminator, Some(self.event_type), self.remote_id, self.recipient, at.as_deref()];
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

/// Parses our email id as a provider returns it. `None` for anything else.
pub(crate) fn parse_email_id(text: Option<&str>) -> Option<EmailId> {
    text?.trim().parse().ok()
}

/// The address of `Name <address>`.
fn bare_address(address: &str) -> &str {
    let inner = address.rsplit_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inner.map_or(address, |(address, _)| address).trim()
}

/// The text if it is printable and has at most `max` characters. It is never truncated: half an id is another id.
fn printable_or_none(text: &str, max: usize) -> Option<String> {
    let text = text.trim();
    let fits = !text.is_empty() && text.chars().count() <= max && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

/// One printable line, truncated to `max` characters.
fn printable_line(text: &str, max: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(max).collect::<String>().trim().to_owned()
}
