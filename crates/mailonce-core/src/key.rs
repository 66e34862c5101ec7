//! Idempotency keys: given by a caller, derived from an intent, or made for a batch item or a resend.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{borrow::Cow, fmt};

use crate::{
    id::{EmailId, TeamId},
    limits, mutant,
};

/// An idempotency key: 1–256 printable ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(String);

/// The text is not a valid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is 1 to 256 printable ASCII characters")]
pub struct KeyError;

impl Key {
    /// Parses a key, bare or quoted like an RFC 8941 string. Both forms are the same key.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim_matches([' ', '\t']);
        let bare = match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) => unescape(inner)?,
            None => text.to_owned(),
        };
        let printable = bare.bytes().all(|b| (0x20..=0x7e).contains(&b));
        if bare.is_empty() || bare.len() > limits::KEY_CHARS || !printable {
            return Err(KeyError);
        }
        Ok(Self(bare))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Unescapes an RFC 8941 string, which escapes only `"` and `\`.
fn unescape(inner: &str) -> Result<String, KeyError> {
    let mut bare = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('"' | '\\')) => bare.push(escaped),
                _ => return Err(KeyError),
            },
            '"' => return Err(KeyError),
            plain => bare.push(plain),
        }
    }
    Ok(bare)
}

/// The key of an email, by its origin. Callers can only give the first kind, so no header can collide with the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmailKey {
    /// Given in a header or derived from an intent.
    Given(Key),
    /// An item of a batch: the batch's key and the item's index.
    Item {
        /// The batch's key.
        batch: Key,
        /// The item's index, from 0.
        index: u32,
    },
    /// A resend of an email without an intent.
    Version {
        /// The email that is resent.
        of: EmailId,
    },
    /// A key of which only the hash is left, because its email was erased. It is still found by its text.
    Erased {
        /// The hash.
        hash: KeyHash,
    },
}

impl EmailKey {
    /// The key in readable form.
    pub fn display_name(&self) -> String {
        self.display_name_cow().into_owned()
    }

    /// The key in readable form, borrowed where the caller gave it.
    pub fn display_name_cow(&self) -> Cow<'_, str> {
        match self {
            Self::Given(key) => Cow::Borrowed(&key.0),
            Self::Item { batch, index } => Cow::Owned(format!("{batch}[{index}]")),
            Self::Version { of } => Cow::Owned(format!("resend of {of}")),
            Self::Erased { hash } => Cow::Owned(format!("erased {:032x}", u128::from_be_bytes(hash.0))),
        }
    }

    /// The key, if a caller gave it or it was derived from an intent.
    pub fn caller_key(&self) -> Option<&Key> {
        match self {
            Self::Given(key) => Some(key),
            Self::Item { .. } | Self::Version { .. } | Self::Erased { .. } => None,
        }
    }

    /// The key without its text. It has the same hash.
    #[must_use]
    pub fn erased(&self, team: TeamId) -> Self {
        Self::Erased { hash: self.hash(team) }
    }

    /// The hash under which the ledger stores it. Each kind has its own hash domain.
    pub fn hash(&self, team: TeamId) -> KeyHash {
        match self {
            Self::Given(key) => KeyHash::of(team, b"given", &[key.0.as_bytes()]),
            Self::Item { batch, index } => KeyHash::of(team, b"item", &[batch.0.as_bytes(), &index.to_be_bytes()]),
            Self::Version { of } => KeyHash::of(team, b"version", &[of.0.as_bytes()]),
            Self::Erased { hash } => *hash,
        }
    }
}

/// 128 bits of SHA-256 over team, kind and key. The ledger's index is sorted by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub [u8; 16]);

impl KeyHash {
    /// The hash of the key of a claim. Claims have a key space of their own.
    pub fn of_claim(team: TeamId, key: &Key) -> Self {
        Self::of(team, b"claim", &[key.0.as_bytes()])
    }

    /// The hash of the fingerprint of a claim, which is left of it after an erasure.
    pub fn of_fingerprint(team: TeamId, fingerprint: &str) -> Self {
        Self::of(team, b"claim-fingerprint", &[fingerprint.as_bytes()])
    }

    fn of(team: TeamId, domain: &[u8], parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        if !mutant!("key-without-team") {
            hash.update(team.0.as_bytes());
        }
        for part in std::iter::once(domain).chain(parts.iter().copied()) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut short = [0; 16];
        short.copy_from_slice(&hash.finalize()[..16]);
        Self(short)
    }
}

impl Serialize for KeyHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:032x}", u128::from_be_bytes(self.0)))
    }
}

impl<'de> Deserialize<'de> for KeyHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hex = Cow::<'de, str>::deserialize(deserializer)?;
        let bits = u128::from_str_radix(&hex, 16).map_err(serde::de::Error::custom)?;
        Ok(Self(bits.to_be_bytes()))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({:032x})", u128::from_be_bytes(self.0))
    }
}

/// The secret of an installation, from which Message-IDs and credential hashes are derived.
#[derive(Clone)]
pub struct InstallSecret(pub [u8; 32]);

impl fmt::Debug for InstallSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InstallSecret(…)")
    }
}

impl InstallSecret {
    /// A keyed hash under this secret.
    pub fn mac(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        keyed_hash(&self.0, purpose, parts)
    }

    /// The Message-ID of an email. It is unguessable, and the same for the same key and bind number, even after a
    /// restore. Without a key it is derived from the email's id.
    pub fn message_id(&self, team: TeamId, id: EmailId, key: Option<(&EmailKey, u32)>, domain: &str) -> String {
        let mac = match key {
            Some((name, bind)) => self.mac("message-id", &[team.0.as_bytes(), &name.hash(team).0, &bind.to_be_bytes()]),
            None => self.mac("message-id", &[team.0.as_bytes(), id.0.as_bytes()]),
        };
        format!("<{}@{domain}>", base32(&mac[..17]))
    }
}

/// HMAC-SHA-256 over length-prefixed parts, so that different lists of parts never give the same input.
pub fn keyed_hash(key: &[u8; 32], purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
    // HMAC accepts keys of any length. The impossible error returns a constant instead of a panic.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    for part in std::iter::once(purpose.as_bytes()).chain(parts.iter().copied()) {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Lower-case base 32 (RFC 4648 letters), without padding.
fn base32(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let (mut text, mut bits, mut held) = (String::with_capacity(bytes.len() * 8 / 5 + 1), 0_u32, 0_u32);
    for byte in bytes {
        held = (held << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(LETTERS[((held >> bits) & 31) as usize]));
        }
    }
    if bits > 0 {
        text.push(char::from(LETTERS[((held << (5 - bits)) & 31) as usize]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn keys_are_1_to_256_printable_characters() {
        assert!(Key::parse("k").is_ok());
        assert!(Key::parse(&"k".repeat(256)).is_ok());
        for bad in [String::new(), "k".repeat(257), "a\nb".into(), "naïve".into(), "\"\"".into(), "\0".into()] {
            assert_eq!(Key::parse(&bad), Err(KeyError), "{bad:?}");
        }
    }

    #[test]
    fn a_quoted_key_equals_the_bare_one() {
        assert_eq!(Key::parse("\"order-1\""), Key::parse("order-1"));
        assert_eq!(Key::parse(r#""a\"b\\c""#).unwrap().as_str(), r#"a"b\c"#);
        assert_eq!(Key::parse(r#""a\nb""#), Err(KeyError));
    }

    #[test]
    fn no_given_key_hashes_like_an_item_or_another_teams() {
        let (one, two) = (TeamId(Uuid::from_u128(1)), TeamId(Uuid::from_u128(2)));
        let key = |text: &str| EmailKey::Given(Key::parse(text).unwrap());
        let item = EmailKey::Item { batch: Key::parse("b").unwrap(), index: 3 };
        assert_ne!(key(&item.display_name()).hash(one), item.hash(one));
        assert_ne!(key("k").hash(one), key("k").hash(two));
        assert_eq!(key("k").hash(one), key("\"k\"").hash(one));
    }

    #[test]
    fn a_message_id_is_the_same_again_for_the_same_key_and_bind() {
        let secret = InstallSecret([7; 32]);
        let team = TeamId(Uuid::from_u128(1));
        let name = EmailKey::Given(Key::parse("k").unwrap());
        let id = |n: u128| EmailId(Uuid::from_u128(n));
        let first = secret.message_id(team, id(1), Some((&name, 1)), "example.com");
        assert_eq!(first, secret.message_id(team, id(2), Some((&name, 1)), "example.com"));
        assert_ne!(first, secret.message_id(team, id(1), Some((&name, 2)), "example.com"));
        assert_ne!(
            secret.message_id(team, id(1), None, "example.com"),
            secret.message_id(team, id(2), None, "example.com")
        );
        assert!(first.starts_with('<') && first.ends_with("@example.com>"));
    }
}
