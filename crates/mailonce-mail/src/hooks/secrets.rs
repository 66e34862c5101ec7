//! The secrets of a webhook source. Two can be active at the same time, so that a rotation has no gap.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::fmt;

use super::{Kind, sendgrid, sns};

/// Minimum length of a secret in bytes. For providers that do not sign, the secret is the only protection.
const MIN_SECRET_BYTES: usize = 16;

/// A secret that the request contains, for providers that do not sign.
#[derive(Clone, PartialEq, Eq)]
pub enum SharedSecret {
    /// HTTP Basic authentication, as in `https://user:password@host/…`.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// `Authorization: Bearer …`.
    Bearer(String),
    /// A custom header.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A query parameter. A last resort, because URLs end up in logs.
    Query {
        /// Its name.
        name: String,
        /// Its value: only letters, digits, `-`, `_`, `.` and `~`.
        value: String,
    },
}

impl SharedSecret {
    /// Where the request should contain it, for error messages.
    pub(crate) fn location(&self) -> &'static str {
        match self {
            Self::Basic { .. } | Self::Bearer(_) => "authorization",
            Self::Header { .. } => "with the token",
            Self::Query { .. } => "or parameter with the token",
        }
    }

    fn check(&self) -> Result<(), HookSecretError> {
        let (secret, is_usable) = match self {
            Self::Basic { user, password } => (password, !user.is_empty() && !user.contains(':')),
            Self::Bearer(token) => (token, is_printable(token)),
            Self::Header { name, value } => (value, is_header_token(name) && is_printable(value)),
            Self::Query { name, value } => (value, is_unreserved(name) && is_unreserved(value)),
        };
        if secret.len() < MIN_SECRET_BYTES {
            return Err(HookSecretError::TooShort);
        }
        if is_usable {
            Ok(())
        } else {
            Err(HookSecretError::Unusable("contains characters that a request cannot carry unchanged"))
        }
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedSecret({})", self.location())
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
    #[error("a source needs one or two secrets")]
    WrongCount,
    /// Too short to be safe.
    #[error("a secret needs at least 16 characters")]
    TooShort,
    /// Not in the provider's format.
    #[error("the secret {0}")]
    Unusable(&'static str),
    /// The provider uses another authentication scheme.
    #[error("{0} uses another authentication scheme")]
    WrongScheme(Kind),
}

/// The decoded secrets of a source.
#[derive(Clone)]
pub(crate) enum SecretMaterial {
    SharedSecrets(Kind, Vec<SharedSecret>),
    Mailgun(Vec<Vec<u8>>),
    Sendgrid(Vec<sendgrid::P256PublicKey>),
    Ses(sns::SnsTrust),
    Svix(Kind, Vec<Vec<u8>>),
    Nylas(Vec<Vec<u8>>),
    UseSend(Vec<Vec<u8>>),
}

/// The secrets of one source.
#[derive(Clone)]
pub struct HookSecrets {
    material: SecretMaterial,
    tolerance_ms: i64,
}

impl HookSecrets {
    /// For kinds that do not sign: Postmark, Brevo, and mail from SendGrid unless signing is enabled there.
    pub fn from_shared_secrets(kind: Kind, secrets: Vec<SharedSecret>) -> Result<Self, HookSecretError> {
        if !matches!(kind, Kind::Postmark | Kind::Brevo | Kind::Sendgrid) {
            return Err(HookSecretError::WrongScheme(kind));
        }
        check_count(&secrets)?;
        secrets.iter().try_for_each(SharedSecret::check)?;
        Ok(Self::from_material(SecretMaterial::SharedSecrets(kind, secrets)))
    }

    /// For kinds with a textual key: Mailgun's signing key, SendGrid's public key (base64), the `whsec_…` of Resend,
    /// useSend and Standard Webhooks, the secret of Nylas.
    pub fn from_keys(kind: Kind, keys: &[&str]) -> Result<Self, HookSecretError> {
        check_count(keys)?;
        let keys = keys.iter().map(|key| key.trim());
        let material = match kind {
            Kind::Mailgun => SecretMaterial::Mailgun(keys.map(raw_key).collect::<Result<_, _>>()?),
            Kind::UseSend => SecretMaterial::UseSend(keys.map(raw_key).collect::<Result<_, _>>()?),
            Kind::Resend | Kind::Standard => {
                SecretMaterial::Svix(kind, keys.map(decode_key).collect::<Result<_, _>>()?)
            }
            Kind::Nylas => SecretMaterial::Nylas(keys.map(raw_key).collect::<Result<_, _>>()?),
            Kind::Sendgrid => {
                SecretMaterial::Sendgrid(keys.map(sendgrid::P256PublicKey::parse).collect::<Result<_, _>>()?)
            }
            Kind::Postmark | Kind::Ses | Kind::Brevo => return Err(HookSecretError::WrongScheme(kind)),
        };
        Ok(Self::from_material(material))
    }

    /// For SES: the trusted topics, and whether SHA-1 is allowed (`SignatureVersion` 1, the default of old topics).
    pub fn from_topics(topics: Vec<String>, allow_sha1: bool) -> Result<Self, HookSecretError> {
        sns::SnsTrust::new(topics, allow_sha1).map(|trust| Self::from_material(SecretMaterial::Ses(trust)))
    }

    /// Sets another tolerance between the signed timestamp and our clock, in milliseconds.
    #[must_use]
    pub fn with_tolerance_ms(mut self, tolerance_ms: i64) -> Self {
        self.tolerance_ms = tolerance_ms.max(0);
        self
    }

    /// The provider.
    pub fn kind(&self) -> Kind {
        self.material.kind()
    }

    /// The tolerance between the signed timestamp and our clock, in milliseconds.
    pub fn tolerance_ms(&self) -> i64 {
        self.tolerance_ms
    }

    pub(crate) fn material(&self) -> &SecretMaterial {
        &self.material
    }

    fn from_material(material: SecretMaterial) -> Self {
        Self { tolerance_ms: material.kind().tolerance_ms(), material }
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
            Self::UseSend(_) => Kind::UseSend,
        }
    }
}

impl fmt::Debug for HookSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HookSecrets({})", self.kind())
    }
}

fn check_count<T>(secrets: &[T]) -> Result<(), HookSecretError> {
    if (1..=2).contains(&secrets.len()) { Ok(()) } else { Err(HookSecretError::WrongCount) }
}

/// A key whose text is used as bytes.
fn raw_key(key: &str) -> Result<Vec<u8>, HookSecretError> {
    if key.len() < MIN_SECRET_BYTES { Err(HookSecretError::TooShort) } else { Ok(key.as_bytes().to_vec()) }
}

/// A base64 key after the prefix `whsec_`.
fn decode_key(key: &str) -> Result<Vec<u8>, HookSecretError> {
    match STANDARD.decode(key.strip_prefix("whsec_").unwrap_or(key)) {
        Ok(bytes) if bytes.len() >= MIN_SECRET_BYTES => Ok(bytes),
        Ok(_) => Err(HookSecretError::TooShort),
        Err(_) => Err(HookSecretError::Unusable("is not base64 after whsec_")),
    }
}
