//! Received mail in verified webhooks: delivered in full or only announced.
//!
//! | file | what it holds |
//! |---|---|
//! | `form` | form bodies: `multipart/form-data` and urlencoded |
//! | `mailboxes` | lists of addresses in JSON and headers |
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

/// Maximum number of recipients in one request.
pub const MAX_RECIPIENTS: usize = 10 * limits::INBOUND_RECIPIENTS;

/// A received mail that a provider delivers or announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookMail {
    /// Identifies the mail: equal for every redelivery, and unique within the source.
    pub dedupe_key: String,
    /// The envelope sender; `None` if the provider does not report it.
    pub envelope_sender: Option<String>,
    /// The recipients.
    pub recipients: Vec<String>,
    /// Whether these are the envelope recipients. Otherwise they come from the mail's headers.
    pub has_envelope_recipients: bool,
    /// The mail, if the request contains it.
    pub content: Option<MailBytes>,
    /// Where to fetch the mail, if the request does not contain it, or not in its original form.
    pub location: Option<ProviderMailRef>,
}

/// The bytes of a mail.
#[derive(Clone, PartialEq, Eq)]
pub struct MailBytes {
    /// The RFC 5322 bytes.
    pub raw: Vec<u8>,
    /// Whether it was rebuilt from fields, so that DKIM signatures cannot be verified.
    pub is_rebuilt: bool,
}

impl std::fmt::Debug for MailBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MailBytes({}, rebuilt: {})", self.raw.len(), self.is_rebuilt)
    }
}

impl MailBytes {
    /// The original bytes of a mail.
    fn original(raw: Vec<u8>) -> Self {
        Self { raw, is_rebuilt: false }
    }

    /// Rebuilds a mail from fields. Its MIME boundaries are derived from `seed`.
    fn rebuild(fields: ProviderFields, seed: &str) -> Result<Self, HookParseError> {
        match rebuild_mail(fields, seed) {
            Ok(raw) => Ok(Self { raw, is_rebuilt: true }),
            Err(_) => Err(HookParseError::Unexpected("fields that make a mail")),
        }
    }
}

/// The mail in a request. Call `verify` first. `None` if the request contains no mail, for example an event.
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
        Kind::UseSend | Kind::Brevo => Ok(None),
    }?;
    mail.map(HookMail::normalize).transpose()
}

/// A header of a rebuilt mail for each attachment that the provider listed without its content.
pub const MISSING_FILE_HEADER: &str = "X-Mailonce-Missing-File";

/// An entry of a provider's list of received mails. `None` if the mail should not be fetched.
pub fn parse_listed_mail(kind: Kind, mail: &Value) -> Result<Option<HookMail>, HookParseError> {
    let mail = match kind {
        Kind::Postmark => postmark::parse_listed_mail(mail)?,
        Kind::Resend => Some(resend::parse_listed_mail(mail)?),
        _ => None,
    };
    mail.map(HookMail::normalize).transpose()
}

/// Rebuilds a mail from the fields of a provider's API. Its MIME boundaries are derived from `name`.
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
    /// Removes duplicate recipients, enforces the limits, and replaces an unusable dedupe key by its hash.
    fn normalize(mut self) -> Result<Self, HookParseError> {
        if self.recipients.len() > MAX_RECIPIENTS {
            return Err(HookParseError::TooMany(self.recipients.len()));
        }
        let mut seen = std::collections::BTreeSet::new();
        self.recipients.retain(|one| !one.is_empty() && one.len() <= 1_000 && seen.insert(one.to_ascii_lowercase()));
        if self.recipients.is_empty() {
            return Err(HookParseError::Unexpected("a recipient"));
        }
        if self.dedupe_key.is_empty() || self.dedupe_key.len() > 200 || self.dedupe_key.contains(char::is_control) {
            self.dedupe_key = hash_key([self.dedupe_key.as_bytes()]);
        }
        self.envelope_sender =
            self.envelope_sender.filter(|sender| sender.len() <= 1_000 && !sender.contains(char::is_control));
        Ok(self)
    }
}

/// A dedupe key: a hash of the parts that every redelivery shares.
fn hash_key<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("sha256:{}", STANDARD.encode(hash.finalize()))
}

/// Decodes base64, with or without line breaks.
fn decode_base64(text: &str) -> Result<Vec<u8>, HookParseError> {
    let encoded: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    STANDARD.decode(encoded).map_err(|_not_base64| HookParseError::Unexpected("base64"))
}

/// The text, unless it is empty.
fn non_empty(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}
