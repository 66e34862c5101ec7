//! Webhooks of mail providers, with events and with mail: proven, then read.
//!
//! ```text
//! request ─► ses::needs (SES only: which certificate?) ─► verify ─► parse_events ─► events
//!                                                                    └─► parse_mail ─► a mail, or where it is stored
//! ```
//!
//! Pure: time and certificates are arguments, nothing is fetched. [`verify`] checks the raw body.
//! [`parse_events`] trusts its input, so callers must verify first.
//!
//! | file | what it holds |
//! |---|---|
//! | `request` | the request as it came in, with its limits |
//! | `secrets` | what a source is configured with, two of each for a change |
//! | `reject` | why a request is not believed, and what to answer |
//! | `report` | what a provider says about a mail, in our words |
//! | `proof` | hashes, comparisons and freshness that the schemes share |
//! | `json` | JSON without two values for one name |
//! | `sns`, [`ses`] | the envelope of Amazon SNS, and what SES puts into it |
//! | `postmark` [`mailgun`] `sendgrid` `resend` `usesend` `brevo` [`nylas`] | one provider each |
//! | `inbound` | the mail in a request |

mod brevo;
mod event;
mod inbound;
mod json;
pub mod mailgun;
pub mod nylas;
mod postmark;
mod rejection;
mod request;
mod resend;
mod secrets;
mod sendgrid;
pub mod ses;
mod sns;
mod usesend;
mod verification;

use mailonce_core::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;

pub use event::{HookEvent, HookParseError, ReportedStatus};
pub use inbound::{
    HookMail, MAX_RECIPIENTS, MISSING_FILE_HEADER, MailBytes, mail_from_fields, mail_from_provider_fields,
    parse_listed_mail, parse_mail,
};
pub use rejection::HookRejection;
pub use request::{HookRequest, MAX_EVENT_BODY_BYTES, MAX_EVENTS, MAX_MAIL_BODY_BYTES};
pub use secrets::{HookSecretError, HookSecrets, SharedSecret};

use secrets::SecretMaterial;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $word:literal),* $(,)?) => {
        /// Whose webhook it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Kind { $($(#[$doc])* #[serde(rename = $word)] $kind),* }

        impl Kind {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The word for it, everywhere.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $word),* }
            }

            /// Reads the word.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$kind),)* _ => None }
            }
        }
    };
}

kinds! {
    /// Postmark. Signs nothing: a password or a token is all there is.
    Postmark = "postmark",
    /// Mailgun. Signs a time and a token, not the body.
    Mailgun = "mailgun",
    /// SendGrid. ECDSA over time and body.
    Sendgrid = "sendgrid",
    /// Amazon SES, by way of SNS. RSA over the fields, with a certificate to fetch.
    Ses = "ses",
    /// Resend. Svix: HMAC over id, time and body.
    Resend = "resend",
    /// useSend. HMAC over time and body.
    Usesend = "usesend",
    /// Brevo. Signs nothing: a token or a password is all there is.
    Brevo = "brevo",
    /// Nylas. HMAC over the body.
    Nylas = "nylas",
    /// Anybody who signs after Standard Webhooks.
    Standard = "standard",
}

impl Kind {
    /// How far a signed time may be from ours, unless the source says otherwise, in milliseconds.
    pub fn tolerance_ms(self) -> i64 {
        match self {
            // SNS signs when a message was published, and its retries may go on for an hour.
            Self::Ses => 65 * 60_000,
            _ => 5 * 60_000,
        }
    }

    /// Whether a mail that it only told of can be fetched from it.
    pub fn can_fetch_mail(self) -> bool {
        matches!(self, Self::Postmark | Self::Resend | Self::Nylas)
    }

    /// Whether it can be asked which mails came.
    pub fn can_list_mail(self) -> bool {
        matches!(self, Self::Postmark | Self::Resend)
    }

    /// Whether it tells what became of mail we sent.
    pub fn sends_events(self) -> bool {
        !matches!(self, Self::Nylas | Self::Standard)
    }

    /// Whether it brings mail.
    pub fn delivers_mail(self) -> bool {
        !matches!(self, Self::Usesend | Self::Brevo)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a request comes from the provider it claims to come from.
pub fn verify(kind: Kind, secrets: &HookSecrets, request: &HookRequest<'_>, now: Time) -> Result<(), HookRejection> {
    if request.body.len() > request.max_body_bytes {
        return Err(HookRejection::TooLarge);
    }
    if secrets.kind() != kind {
        return Err(HookRejection::Misconfigured);
    }
    let tolerance = secrets.tolerance_ms();
    match secrets.material() {
        SecretMaterial::SharedSecrets(_, knocks) => verification::verify_shared_secret(knocks, request),
        SecretMaterial::Mailgun(keys) => mailgun::verify(keys, request, now, tolerance),
        SecretMaterial::Sendgrid(keys) => sendgrid::verify(keys, request, now, tolerance),
        SecretMaterial::Ses(trust) => sns::verify(trust, request, now, tolerance),
        SecretMaterial::Svix(_, keys) => resend::verify(keys, request, now, tolerance),
        SecretMaterial::Nylas(keys) => nylas::verify(keys, request),
        SecretMaterial::Usesend(keys) => usesend::verify(keys, request, now, tolerance),
    }
}

/// What a request says. It must have been verified: here everything is believed.
pub fn parse_events(kind: Kind, request: &HookRequest<'_>) -> Result<Vec<HookEvent>, HookParseError> {
    if request.body.len() > MAX_EVENT_BODY_BYTES {
        return Err(HookParseError::TooLarge);
    }
    match kind {
        Kind::Postmark => postmark::parse_events(request.body),
        Kind::Mailgun => mailgun::parse_events(request.body),
        Kind::Sendgrid => sendgrid::parse_events(request.body),
        Kind::Ses => ses::parse_events(request.body),
        Kind::Resend => resend::parse_events(request),
        Kind::Usesend => usesend::parse_events(request.body),
        Kind::Brevo => brevo::parse_events(request.body),
        Kind::Nylas | Kind::Standard => Err(HookParseError::Unexpected("mail: it tells of no events")),
    }
}
