//! Webhooks of mail providers, with delivery events or received mail: verified, then parsed.
//!
//! ```text
//! request ─► ses::sns_urls (SES only: which certificate?) ─► verify ─► parse_events ─► events
//!                                                                    └─► parse_mail ─► a mail, or where it is stored
//! ```
//!
//! Pure: time and certificates are arguments, nothing is fetched. [`verify`] checks the raw body.
//! [`parse_events`] trusts its input, so callers must verify first.
//!
//! | file | what it holds |
//! |---|---|
//! | `request` | the raw request, with its limits |
//! | `secrets` | the secrets of a source; up to two, for rotation |
//! | `rejection` | why a request is rejected, and with which status |
//! | `event` | an event of any provider in one common format |
//! | `verification` | HMAC, constant-time comparison and freshness checks |
//! | `json` | strict JSON without duplicate names |
//! | `sns`, [`ses`] | the envelope of Amazon SNS, and the SES events inside |
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
        /// The provider that sends the webhook.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Kind { $($(#[$doc])* #[serde(rename = $word)] $kind),* }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Its name in the API, the ledger and the configuration.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $word),* }
            }

            /// Parses the name.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$kind),)* _ => None }
            }
        }
    };
}

kinds! {
    /// Postmark. Its webhooks are not signed: a password or a token authenticates them.
    Postmark = "postmark",
    /// Mailgun. Signs a timestamp and a token, not the body.
    Mailgun = "mailgun",
    /// SendGrid. ECDSA over timestamp and body.
    Sendgrid = "sendgrid",
    /// Amazon SES, through SNS. RSA over the fields, with a certificate that must be fetched.
    Ses = "ses",
    /// Resend. Svix: HMAC over id, timestamp and body.
    Resend = "resend",
    /// useSend. HMAC over timestamp and body.
    UseSend = "usesend",
    /// Brevo. Its webhooks are not signed: a token or a password authenticates them.
    Brevo = "brevo",
    /// Nylas. HMAC over the body.
    Nylas = "nylas",
    /// Any sender that signs by Standard Webhooks.
    Standard = "standard",
}

impl Kind {
    /// The default tolerance between the signed timestamp and our clock, in milliseconds.
    pub fn tolerance_ms(self) -> i64 {
        match self {
            // SNS signs the time of publication, and its retries may last an hour.
            Self::Ses => 65 * 60_000,
            _ => 5 * 60_000,
        }
    }

    /// Whether a mail that was only announced can be fetched from the provider's API.
    pub fn can_fetch_mail(self) -> bool {
        matches!(self, Self::Postmark | Self::Resend | Self::Nylas)
    }

    /// Whether the provider's API can list received mails.
    pub fn can_list_mail(self) -> bool {
        matches!(self, Self::Postmark | Self::Resend)
    }

    /// Whether the provider reports delivery events of mail that we sent.
    pub fn sends_events(self) -> bool {
        !matches!(self, Self::Nylas | Self::Standard)
    }

    /// Whether the provider delivers received mail.
    pub fn delivers_mail(self) -> bool {
        !matches!(self, Self::UseSend | Self::Brevo)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Verifies that a request comes from the provider.
pub fn verify(kind: Kind, secrets: &HookSecrets, request: &HookRequest<'_>, now: Time) -> Result<(), HookRejection> {
    if request.body.len() > request.max_body_bytes {
        return Err(HookRejection::TooLarge);
    }
    if secrets.kind() != kind {
        return Err(HookRejection::Misconfigured);
    }
    let tolerance = secrets.tolerance_ms();
    match secrets.material() {
        SecretMaterial::SharedSecrets(_, shared_secrets) => verification::verify_shared_secret(shared_secrets, request),
        SecretMaterial::Mailgun(keys) => mailgun::verify(keys, request, now, tolerance),
        SecretMaterial::Sendgrid(keys) => sendgrid::verify(keys, request, now, tolerance),
        SecretMaterial::Ses(trust) => sns::verify(trust, request, now, tolerance),
        SecretMaterial::Svix(_, keys) => resend::verify(keys, request, now, tolerance),
        SecretMaterial::Nylas(keys) => nylas::verify(keys, request),
        SecretMaterial::UseSend(keys) => usesend::verify(keys, request, now, tolerance),
    }
}

/// Parses the events of a request. Call [`verify`] first: this function trusts its input.
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
        Kind::UseSend => usesend::parse_events(request.body),
        Kind::Brevo => brevo::parse_events(request.body),
        Kind::Nylas | Kind::Standard => Err(HookParseError::Unexpected("mail: it sends no events")),
    }
}
