//! Mail that providers bring or tell of, read out of requests that were proven.
//!
//! | file | what it holds |
//! |---|---|
//! | `form` | forms, as `multipart/form-data` and urlencoded |
//! | `people` | lists of people, as JSON has them |
//! | `postmark` `mailgun` `sendgrid` `ses` `resend` `nylas` `standard` | one provider each |

pub(crate) mod form;
mod mailboxes;
mod mailgun;
mod nylas;
mod postmark;
mod resend;
mod sendgrid;
mod ses;
mod standard;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{inbound::provider_mail::ProviderMailRef, limits};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::compose::{ProviderFields, rebuild_mail};

use super::{HookParseError, HookRequest, Kind, MAX_MAIL_BODY_BYTES};

pub use standard::mail_from_fields;

/// Recipients of one request.
pub const MAX_RECIPIENTS: usize = 10 * limits::INBOUND_RECIPIENTS;

/// A mail that a provider brings or tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookMail {
    /// The same whenever the provider tells of this mail again, and for no other mail of the source.
    pub dedupe_key: String,
    /// The sender of the envelope; `None` when nobody told.
    pub envelope_sender: Option<String>,
    /// Whom it is for.
    pub recipients: Vec<String>,
    /// Whether the recipients are those of the envelope. Else they are whom the mail names itself.
    pub has_envelope_recipients: bool,
    /// The mail, when it came along.
    pub content: Option<MailBytes>,
    /// Where the mail is, when it did not, or not as it travelled.
    pub location: Option<ProviderMailRef>,
}

/// The bytes of a mail.
#[derive(Clone, PartialEq, Eq)]
pub struct MailBytes {
    /// A mail, RFC 5322.
    pub raw: Vec<u8>,
    /// Whether it was put together from fields, so that no signature can be checked on it.
    pub is_rebuilt: bool,
}

impl std::fmt::Debug for MailBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({}, rebuilt: {})", self.raw.len(), self.is_rebuilt)
    }
}

impl MailBytes {
    /// A mail as it travelled.
    fn original(raw: Vec<u8>) -> Self {
        Self { raw, is_rebuilt: false }
    }

    /// A mail put together from fields. `name` makes its boundaries.
    fn rebuild(fields: ProviderFields, name: &str) -> Result<Self, HookParseError> {
        match rebuild_mail(fields, name) {
            Ok(raw) => Ok(Self { raw, is_rebuilt: true }),
            Err(_) => Err(HookParseError::Unexpected("fields that make a mail")),
        }
    }
}

/// The mail in a request, which must have been verified. `None` when it brings none: an event, say.
pub fn parse_mail(kind: Kind, request: &HookRequest<'_>) -> Result<Option<HookMail>, HookParseError> {
    if request.body.len() > MAX_MAIL_BODY_BYTES {
        return Err(HookParseError::TooLarge);
    }
    let mail = match kind {
        Kind::Postmark => postmark::parse_mail(request.body),
        Kind::Mailgun => mailgun::parse_mail(request),
        Kind::Sendgrid => sendgrid::parse_mail(request),
        Kind::Ses => ses::parse_mail(request.body),
        Kind::Resend => resend::parse_mail(request.body),
        Kind::Nylas => nylas::parse_mail(request.body),
        Kind::Standard => standard::parse_mail(request),
        Kind::Usesend | Kind::Brevo => Ok(None),
    }?;
    mail.map(HookMail::normalize).transpose()
}

/// A header of a rebuilt mail for each file that the provider named and did not give out.
pub const MISSING_FILE_HEADER: &str = "X-Mailonce-Missing-File";

/// A mail that a provider lists. `None` when it is not to be collected.
pub fn parse_listed_mail(kind: Kind, mail: &Value) -> Result<Option<HookMail>, HookParseError> {
    let mail = match kind {
        Kind::Postmark => postmark::parse_listed_mail(mail)?,
        Kind::Resend => Some(resend::parse_listed_mail(mail)?),
        _ => None,
    };
    mail.map(HookMail::normalize).transpose()
}

/// A mail out of the fields that a provider gave for it. `name` makes its boundaries.
pub fn mail_from_provider_fields(kind: Kind, name: &str, fields: &Value) -> Result<MailBytes, HookParseError> {
    match kind {
        Kind::Postmark => {
            postmark::mail_from_json(fields)?.content.ok_or(HookParseError::Unexpected("fields that make a mail"))
        }
        Kind::Resend => resend::mail_from_provider_fields(name, fields),
        _ => Err(HookParseError::Unexpected("a provider that gives fields")),
    }
}

impl HookMail {
    /// Recipients each once, in a number that can be kept; a name that can be kept.
    fn normalize(mut self) -> Result<Self, HookParseError> {
        if self.recipients.len() > MAX_RECIPIENTS {
            return Err(HookParseError::TooMany(self.recipients.len()));
        }
        let mut seen = std::collections::BTreeSet::new();
        self.recipients.retain(|one| !one.is_empty() && one.len() <= 1_000 && seen.insert(one.to_ascii_lowercase()));
        if self.recipients.is_empty() {
            return Err(HookParseError::Unexpected("somebody whom the mail is for"));
        }
        if self.dedupe_key.is_empty() || self.dedupe_key.len() > 200 || self.dedupe_key.contains(char::is_control) {
            self.dedupe_key = hash_key([self.dedupe_key.as_bytes()]);
        }
        self.envelope_sender =
            self.envelope_sender.filter(|sender| sender.len() <= 1_000 && !sender.contains(char::is_control));
        Ok(self)
    }
}

/// A name out of everything that a repeat has in common with the first.
fn hash_key<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("sha256:{}", STANDARD.encode(hash.finalize()))
}

/// Base64 with or without line breaks.
fn decode_base64(text: &str) -> Result<Vec<u8>, HookParseError> {
    let packed: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    STANDARD.decode(packed).map_err(|_not_base64| HookParseError::Unexpected("base64"))
}

/// A text that is not empty.
fn non_empty(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}
