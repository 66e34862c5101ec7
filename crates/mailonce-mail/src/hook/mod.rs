//! Webhooks of mail providers, with events and with mail: proven, then read.
//!
//! ```text
//! request ─► ses::needs (SES only: which certificate?) ─► verify ─► read ─► reports
//!                                                                    └─► mail ─► a mail, or where it is
//! ```
//!
//! Pure: time and certificates are arguments, nothing is fetched. [`verify`] looks at the raw body, [`read`] believes
//! what it is given, so the order above is the caller's duty.
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
mod inbound;
mod json;
pub mod mailgun;
pub mod nylas;
mod postmark;
mod proof;
mod reject;
mod report;
mod request;
mod resend;
mod secrets;
mod sendgrid;
pub mod ses;
mod sns;
mod usesend;

use mailonce_core::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;

pub use inbound::{Bytes, MAX_RECIPIENTS, MISSING_FILE, Mail, from_fields, given, listed, mail};
pub use reject::Reject;
pub use report::{Report, Says, Unreadable};
pub use request::{HookRequest, MAX_BODY_BYTES, MAX_EVENTS, MAX_MAIL_BYTES};
pub use secrets::{BadSecret, Knock, Secrets};

use secrets::Held;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $word:literal),* $(,)?) => {
        /// Whose webhook it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Kind { $($(#[$doc])* #[serde(rename = $word)] $kind),* }

        impl Kind {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The word for it, everywhere.
            pub fn word(self) -> &'static str {
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
    pub fn gives(self) -> bool {
        matches!(self, Self::Postmark | Self::Resend | Self::Nylas)
    }

    /// Whether it can be asked which mails came.
    pub fn lists(self) -> bool {
        matches!(self, Self::Postmark | Self::Resend)
    }

    /// Whether it tells what became of mail we sent.
    pub fn tells(self) -> bool {
        !matches!(self, Self::Nylas | Self::Standard)
    }

    /// Whether it brings mail.
    pub fn brings(self) -> bool {
        !matches!(self, Self::Usesend | Self::Brevo)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Whether a request comes from the provider it claims to come from.
pub fn verify(kind: Kind, secrets: &Secrets, request: &HookRequest<'_>, now: Time) -> Result<(), Reject> {
    if request.body.len() > request.most {
        return Err(Reject::TooLarge);
    }
    if secrets.kind() != kind {
        return Err(Reject::Misconfigured);
    }
    let tolerance = secrets.tolerance_ms();
    match secrets.held() {
        Held::Knocks(_, knocks) => proof::knock(knocks, request),
        Held::Mailgun(keys) => mailgun::verify(keys, request, now, tolerance),
        Held::Sendgrid(keys) => sendgrid::verify(keys, request, now, tolerance),
        Held::Ses(trust) => sns::verify(trust, request, now, tolerance),
        Held::Svix(_, keys) => resend::verify(keys, request, now, tolerance),
        Held::Nylas(keys) => nylas::verify(keys, request),
        Held::Usesend(keys) => usesend::verify(keys, request, now, tolerance),
    }
}

/// What a request says. It must have been verified: here everything is believed.
pub fn read(kind: Kind, request: &HookRequest<'_>) -> Result<Vec<Report>, Unreadable> {
    if request.body.len() > MAX_BODY_BYTES {
        return Err(Unreadable::TooLarge);
    }
    match kind {
        Kind::Postmark => postmark::read(request.body),
        Kind::Mailgun => mailgun::read(request.body),
        Kind::Sendgrid => sendgrid::read(request.body),
        Kind::Ses => ses::read(request.body),
        Kind::Resend => resend::read(request),
        Kind::Usesend => usesend::read(request.body),
        Kind::Brevo => brevo::read(request.body),
        Kind::Nylas | Kind::Standard => Err(Unreadable::Shape("mail: it tells of no events")),
    }
}
