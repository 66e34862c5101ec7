//! Mail that providers bring or tell of, read out of requests that were proven.
//!
//! | file | what it holds |
//! |---|---|
//! | `form` | forms, as `multipart/form-data` and urlencoded |
//! | `people` | lists of people, as JSON has them |
//! | `postmark` `mailgun` `sendgrid` `ses` `resend` `nylas` `standard` | one provider each |

pub(super) mod form;
mod mailgun;
mod nylas;
mod people;
mod postmark;
mod resend;
mod sendgrid;
mod ses;
mod standard;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{limits, port::collect::Notice};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::compose::{Fields, rebuild};

use super::{HookRequest, Kind, MAX_MAIL_BYTES, Unreadable};

pub use standard::from_fields;

/// Recipients of one request.
pub const MAX_RECIPIENTS: usize = 10 * limits::ENVELOPE_RECIPIENTS;

/// A mail that a provider brings or tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// The same whenever the provider tells of this mail again, and for no other mail of the source.
    pub name: String,
    /// The sender of the envelope; `None` when nobody told.
    pub sender: Option<String>,
    /// Whom it is for.
    pub recipients: Vec<String>,
    /// Whether the recipients are those of the envelope. Else they are whom the mail names itself.
    pub envelope: bool,
    /// The mail, when it came along.
    pub content: Option<Bytes>,
    /// Where the mail is, when it did not, or not as it travelled.
    pub notice: Option<Notice>,
}

/// The bytes of a mail.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes {
    /// A mail, RFC 5322.
    pub raw: Vec<u8>,
    /// Whether it was put together from fields, so that no signature can be checked on it.
    pub rebuilt: bool,
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({}, rebuilt: {})", self.raw.len(), self.rebuilt)
    }
}

impl Bytes {
    /// A mail as it travelled.
    fn whole(raw: Vec<u8>) -> Self {
        Self { raw, rebuilt: false }
    }

    /// A mail put together from fields. `name` makes its boundaries.
    fn rebuilt(fields: Fields, name: &str) -> Result<Self, Unreadable> {
        match rebuild(fields, name) {
            Ok(raw) => Ok(Self { raw, rebuilt: true }),
            Err(_) => Err(Unreadable::Shape("fields that make a mail")),
        }
    }
}

/// The mail in a request, which must have been verified. `None` when it brings none: an event, say.
pub fn mail(kind: Kind, request: &HookRequest<'_>) -> Result<Option<Mail>, Unreadable> {
    if request.body.len() > MAX_MAIL_BYTES {
        return Err(Unreadable::TooLarge);
    }
    let mail = match kind {
        Kind::Postmark => postmark::read(request.body),
        Kind::Mailgun => mailgun::read(request),
        Kind::Sendgrid => sendgrid::read(request),
        Kind::Ses => ses::read(request.body),
        Kind::Resend => resend::read(request.body),
        Kind::Nylas => nylas::read(request.body),
        Kind::Standard => standard::read(request),
        Kind::Usesend | Kind::Brevo => Ok(None),
    }?;
    mail.map(Mail::checked).transpose()
}

/// A header of a rebuilt mail for each file that the provider named and did not give out.
pub const MISSING_FILE: &str = "X-Mailonce-Missing-File";

/// A mail that a provider lists. `None` when it is not to be collected.
pub fn listed(kind: Kind, mail: &Value) -> Result<Option<Mail>, Unreadable> {
    let mail = match kind {
        Kind::Postmark => postmark::listed(mail)?,
        Kind::Resend => Some(resend::listed(mail)?),
        _ => None,
    };
    mail.map(Mail::checked).transpose()
}

/// A mail out of the fields that a provider gave for it. `name` makes its boundaries.
pub fn given(kind: Kind, name: &str, fields: &Value) -> Result<Bytes, Unreadable> {
    match kind {
        Kind::Postmark => postmark::of(fields)?.content.ok_or(Unreadable::Shape("fields that make a mail")),
        Kind::Resend => resend::given(name, fields),
        _ => Err(Unreadable::Shape("a provider that gives fields")),
    }
}

impl Mail {
    /// Recipients each once, in a number that can be kept; a name that can be kept.
    fn checked(mut self) -> Result<Self, Unreadable> {
        if self.recipients.len() > MAX_RECIPIENTS {
            return Err(Unreadable::TooMany(self.recipients.len()));
        }
        let mut seen = std::collections::BTreeSet::new();
        self.recipients.retain(|one| !one.is_empty() && one.len() <= 1_000 && seen.insert(one.to_ascii_lowercase()));
        if self.recipients.is_empty() {
            return Err(Unreadable::Shape("somebody whom the mail is for"));
        }
        if self.name.is_empty() || self.name.len() > 200 || self.name.contains(char::is_control) {
            self.name = hashed([self.name.as_bytes()]);
        }
        self.sender = self.sender.filter(|sender| sender.len() <= 1_000 && !sender.contains(char::is_control));
        Ok(self)
    }
}

/// A name out of everything that a repeat has in common with the first.
fn hashed<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("sha256:{}", STANDARD.encode(hash.finalize()))
}

/// Base64 with or without line breaks.
fn base64(text: &str) -> Result<Vec<u8>, Unreadable> {
    let packed: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    STANDARD.decode(packed).map_err(|_not_base64| Unreadable::Shape("base64"))
}

/// A text that is not empty.
fn filled(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}
