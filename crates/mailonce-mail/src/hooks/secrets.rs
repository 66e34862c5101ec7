//! What a source is configured with. Up to two live secrets of a kind, so that one can replace the other without a gap.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::fmt;

use super::{Kind, sendgrid, sns};

/// Shortest secret that is taken, in bytes. Where nothing is signed it is the whole defence.
const MIN_SECRET_BYTES: usize = 16;

/// A secret that a provider brings along because it signs nothing.
#[derive(Clone, PartialEq, Eq)]
pub enum SharedSecret {
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

impl SharedSecret {
    /// Where it is looked for.
    pub(crate) fn location(&self) -> &'static str {
        match self {
            Self::Basic { .. } | Self::Bearer(_) => "authorization",
            Self::Header { .. } => "with the token",
            Self::Query { .. } => "or parameter with the token",
        }
    }

    fn check(&self) -> Result<(), HookSecretError> {
        let (secret, fits) = match self {
            Self::Basic { user, password } => (password, !user.is_empty() && !user.contains(':')),
            Self::Bearer(token) => (token, is_printable(token)),
            Self::Header { name, value } => (value, is_header_token(name) && is_printable(value)),
            Self::Query { name, value } => (value, is_unreserved(name) && is_unreserved(value)),
        };
        if secret.len() < MIN_SECRET_BYTES {
            return Err(HookSecretError::TooShort);
        }
        if fits { Ok(()) } else { Err(HookSecretError::Unusable("has characters that cannot come back as they are")) }
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Knock({})", self.location())
    }
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic())
}

fn is_unreserved(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~".contains(&b))
}

fn is_header_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

/// Why a secret cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookSecretError {
    /// None, or more than two.
    #[error("a source has one or two secrets")]
    WrongCount,
    /// Too short to be worth anything.
    #[error("a secret has at least 16 characters")]
    TooShort,
    /// Not of the provider's form.
    #[error("the secret {0}")]
    Unusable(&'static str),
    /// This provider does not prove itself in this way.
    #[error("{0} proves itself in another way")]
    WrongScheme(Kind),
}

/// What is held for a source, in the form in which it is used.
#[derive(Clone)]
pub(crate) enum SecretMaterial {
    SharedSecrets(Kind, Vec<SharedSecret>),
    Mailgun(Vec<Vec<u8>>),
    Sendgrid(Vec<sendgrid::P256PublicKey>),
    Ses(sns::SnsTrust),
    Svix(Kind, Vec<Vec<u8>>),
    Nylas(Vec<Vec<u8>>),
    Usesend(Vec<Vec<u8>>),
}

/// The secrets of one source.
#[derive(Clone)]
pub struct HookSecrets {
    material: SecretMaterial,
    tolerance_ms: i64,
}

impl HookSecrets {
    /// For the kinds that sign nothing: Postmark and Brevo, and mail from SendGrid unless it is told to sign.
    pub fn from_shared_secrets(kind: Kind, knocks: Vec<SharedSecret>) -> Result<Self, HookSecretError> {
        if !matches!(kind, Kind::Postmark | Kind::Brevo | Kind::Sendgrid) {
            return Err(HookSecretError::WrongScheme(kind));
        }
        check_count(&knocks)?;
        knocks.iter().try_for_each(SharedSecret::check)?;
        Ok(Self::from_material(SecretMaterial::SharedSecrets(kind, knocks)))
    }

    /// For the kinds with a key in a line of text: Mailgun's signing key, SendGrid's public key (base64), the
    /// `whsec_…` of Resend, useSend and Standard Webhooks, the secret of Nylas.
    pub fn from_keys(kind: Kind, keys: &[&str]) -> Result<Self, HookSecretError> {
        check_count(keys)?;
        let keys = keys.iter().map(|key| key.trim());
        let held = match kind {
            Kind::Mailgun => SecretMaterial::Mailgun(keys.map(raw_key).collect::<Result<_, _>>()?),
            Kind::Usesend => SecretMaterial::Usesend(keys.map(raw_key).collect::<Result<_, _>>()?),
            Kind::Resend | Kind::Standard => {
                SecretMaterial::Svix(kind, keys.map(decode_key).collect::<Result<_, _>>()?)
            }
            Kind::Nylas => SecretMaterial::Nylas(keys.map(raw_key).collect::<Result<_, _>>()?),
            Kind::Sendgrid => {
                SecretMaterial::Sendgrid(keys.map(sendgrid::P256PublicKey::parse).collect::<Result<_, _>>()?)
            }
            Kind::Postmark | Kind::Ses | Kind::Brevo => return Err(HookSecretError::WrongScheme(kind)),
        };
        Ok(Self::from_material(held))
    }

    /// For SES: the topics whose messages are believed, and whether SHA-1 (`SignatureVersion` 1, the default of old
    /// topics) is good enough.
    pub fn from_topics(topics: Vec<String>, allow_sha1: bool) -> Result<Self, HookSecretError> {
        sns::SnsTrust::new(topics, allow_sha1).map(|trust| Self::from_material(SecretMaterial::Ses(trust)))
    }

    /// With another bound on how far a signed time may be from ours, in milliseconds.
    #[must_use]
    pub fn with_tolerance_ms(mut self, tolerance_ms: i64) -> Self {
        self.tolerance_ms = tolerance_ms.max(0);
        self
    }

    /// Whose they are.
    pub fn kind(&self) -> Kind {
        self.material.kind()
    }

    /// How far a signed time may be from ours, in milliseconds.
    pub fn tolerance_ms(&self) -> i64 {
        self.tolerance_ms
    }

    pub(crate) fn material(&self) -> &SecretMaterial {
        &self.material
    }

    fn from_material(held: SecretMaterial) -> Self {
        Self { tolerance_ms: held.kind().tolerance_ms(), material: held }
    }
}

impl SecretMaterial {
    fn kind(&self) -> Kind {
        match self {
            Self::Mailgun(_) => Kind::Mailgun,
            Self::Sendgrid(_) => Kind::Sendgrid,
            Self::Ses(_) => Kind::Ses,
            Self::SharedSecrets(kind, _) | Self::Svix(kind, _) => *kind,
            Self::Nylas(_) => Kind::Nylas,
            Self::Usesend(_) => Kind::Usesend,
        }
    }
}

impl fmt::Debug for HookSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.kind())
    }
}

fn check_count<T>(secrets: &[T]) -> Result<(), HookSecretError> {
    if (1..=2).contains(&secrets.len()) { Ok(()) } else { Err(HookSecretError::WrongCount) }
}

/// A key that is used letter by letter.
fn raw_key(key: &str) -> Result<Vec<u8>, HookSecretError> {
    if key.len() < MIN_SECRET_BYTES { Err(HookSecretError::TooShort) } else { Ok(key.as_bytes().to_vec()) }
}

/// A key in base64 behind its prefix.
fn decode_key(key: &str) -> Result<Vec<u8>, HookSecretError> {
    match STANDARD.decode(key.strip_prefix("whsec_").unwrap_or(key)) {
        Ok(bytes) if bytes.len() >= MIN_SECRET_BYTES => Ok(bytes),
        Ok(_) => Err(HookSecretError::TooShort),
        Err(_) => Err(HookSecretError::Unusable("is not whsec_ and base64")),
    }
}
