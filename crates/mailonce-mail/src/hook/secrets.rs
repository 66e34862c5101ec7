//! What a source is configured with. Up to two live secrets of a kind, so that one can replace the other without a gap.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::fmt;

use super::{Kind, sendgrid, sns};

/// Shortest secret that is taken, in bytes. Where nothing is signed it is the whole defence.
const SHORTEST: usize = 16;

/// A secret that a provider brings along because it signs nothing.
#[derive(Clone, PartialEq, Eq)]
pub enum Knock {
    /// HTTP basic, as in `https://user:password@host/…`.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// `Authorization: Bearer …`.
    Bearer(String),
    /// A header of its own.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A parameter of the address. A last resort: addresses end up in logs.
    Query {
        /// Its name.
        name: String,
        /// Its value, letters, digits, `-`, `_`, `.` and `~` only.
        value: String,
    },
}

impl Knock {
    /// Where it is looked for.
    pub(super) fn place(&self) -> &'static str {
        match self {
            Self::Basic { .. } | Self::Bearer(_) => "authorization",
            Self::Header { .. } => "with the token",
            Self::Query { .. } => "or parameter with the token",
        }
    }

    fn check(&self) -> Result<(), BadSecret> {
        let (secret, fits) = match self {
            Self::Basic { user, password } => (password, !user.is_empty() && !user.contains(':')),
            Self::Bearer(token) => (token, printable(token)),
            Self::Header { name, value } => (value, is_token(name) && printable(value)),
            Self::Query { name, value } => (value, unreserved(name) && unreserved(value)),
        };
        if secret.len() < SHORTEST {
            return Err(BadSecret::Short);
        }
        if fits { Ok(()) } else { Err(BadSecret::Unusable("has characters that cannot come back as they are")) }
    }
}

impl fmt::Debug for Knock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Knock({})", self.place())
    }
}

fn printable(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic())
}

fn unreserved(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~".contains(&b))
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

/// Why a secret cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSecret {
    /// None, or more than two.
    #[error("a source has one or two secrets")]
    Count,
    /// Too short to be worth anything.
    #[error("a secret has at least 16 characters")]
    Short,
    /// Not of the provider's form.
    #[error("the secret {0}")]
    Unusable(&'static str),
    /// This provider does not prove itself in this way.
    #[error("{0} proves itself in another way")]
    Kind(Kind),
}

/// What is held for a source, in the form in which it is used.
#[derive(Clone)]
pub(super) enum Held {
    Knocks(Kind, Vec<Knock>),
    Mailgun(Vec<Vec<u8>>),
    Sendgrid(Vec<sendgrid::Point>),
    Ses(sns::Trust),
    Svix(Kind, Vec<Vec<u8>>),
    Nylas(Vec<Vec<u8>>),
    Usesend(Vec<Vec<u8>>),
}

/// The secrets of one source.
#[derive(Clone)]
pub struct Secrets {
    held: Held,
    tolerance_ms: i64,
}

impl Secrets {
    /// For the kinds that sign nothing: Postmark and Brevo, and mail from SendGrid unless it is told to sign.
    pub fn knocks(kind: Kind, knocks: Vec<Knock>) -> Result<Self, BadSecret> {
        if !matches!(kind, Kind::Postmark | Kind::Brevo | Kind::Sendgrid) {
            return Err(BadSecret::Kind(kind));
        }
        count(&knocks)?;
        knocks.iter().try_for_each(Knock::check)?;
        Ok(Self::holding(Held::Knocks(kind, knocks)))
    }

    /// For the kinds with a key in a line of text: Mailgun's signing key, SendGrid's public key (base64), the
    /// `whsec_…` of Resend, useSend and Standard Webhooks, the secret of Nylas.
    pub fn keys(kind: Kind, keys: &[&str]) -> Result<Self, BadSecret> {
        count(keys)?;
        let keys = keys.iter().map(|key| key.trim());
        let held = match kind {
            Kind::Mailgun => Held::Mailgun(keys.map(whole).collect::<Result<_, _>>()?),
            Kind::Usesend => Held::Usesend(keys.map(whole).collect::<Result<_, _>>()?),
            Kind::Resend | Kind::Standard => Held::Svix(kind, keys.map(decoded).collect::<Result<_, _>>()?),
            Kind::Nylas => Held::Nylas(keys.map(whole).collect::<Result<_, _>>()?),
            Kind::Sendgrid => Held::Sendgrid(keys.map(sendgrid::Point::parse).collect::<Result<_, _>>()?),
            Kind::Postmark | Kind::Ses | Kind::Brevo => return Err(BadSecret::Kind(kind)),
        };
        Ok(Self::holding(held))
    }

    /// For SES: the topics whose messages are believed, and whether SHA-1 (`SignatureVersion` 1, the default of old
    /// topics) is good enough.
    pub fn topics(topics: Vec<String>, allow_sha1: bool) -> Result<Self, BadSecret> {
        sns::Trust::new(topics, allow_sha1).map(|trust| Self::holding(Held::Ses(trust)))
    }

    /// With another bound on how far a signed time may be from ours, in milliseconds.
    #[must_use]
    pub fn tolerating(mut self, tolerance_ms: i64) -> Self {
        self.tolerance_ms = tolerance_ms.max(0);
        self
    }

    /// Whose they are.
    pub fn kind(&self) -> Kind {
        self.held.kind()
    }

    /// How far a signed time may be from ours, in milliseconds.
    pub fn tolerance_ms(&self) -> i64 {
        self.tolerance_ms
    }

    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    fn holding(held: Held) -> Self {
        Self { tolerance_ms: held.kind().tolerance_ms(), held }
    }
}

impl Held {
    fn kind(&self) -> Kind {
        match self {
            Self::Mailgun(_) => Kind::Mailgun,
            Self::Sendgrid(_) => Kind::Sendgrid,
            Self::Ses(_) => Kind::Ses,
            Self::Knocks(kind, _) | Self::Svix(kind, _) => *kind,
            Self::Nylas(_) => Kind::Nylas,
            Self::Usesend(_) => Kind::Usesend,
        }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.kind())
    }
}

fn count<T>(secrets: &[T]) -> Result<(), BadSecret> {
    if (1..=2).contains(&secrets.len()) { Ok(()) } else { Err(BadSecret::Count) }
}

/// A key that is used letter by letter.
fn whole(key: &str) -> Result<Vec<u8>, BadSecret> {
    if key.len() < SHORTEST { Err(BadSecret::Short) } else { Ok(key.as_bytes().to_vec()) }
}

/// A key in base64 behind its prefix.
fn decoded(key: &str) -> Result<Vec<u8>, BadSecret> {
    match STANDARD.decode(key.strip_prefix("whsec_").unwrap_or(key)) {
        Ok(bytes) if bytes.len() >= SHORTEST => Ok(bytes),
        Ok(_) => Err(BadSecret::Short),
        Err(_) => Err(BadSecret::Unusable("is not whsec_ and base64")),
    }
}
