//! The key encryption key (KEK). It encrypts the install secret at rest, from which every other encryption key is
//! derived.
//!
//! The ledger stores the wrapped secret and a fingerprint of the KEK, never the KEK. A rotation wraps the same secret
//! under another KEK, so that nothing else has to be encrypted again.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305,
    aead::{Aead as _, Payload},
};
use mailonce_core::{
    access::install_secret::{OpenedSecret, StoredSecret},
    key::{InstallSecret, keyed_hash},
    ports::{
        Entropy,
        secret_keeper::SecretKeeper,
        store::{Result, StoreError},
    },
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::fmt;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// How many hexadecimal digits of a fingerprint are shown and stored.
const FINGERPRINT_DIGITS: usize = 16;
/// How to generate a KEK.
pub const HOW_TO_MAKE: &str = "`openssl rand -base64 32` makes one";

/// A key encryption key.
#[derive(Clone)]
pub struct Kek([u8; KEY_BYTES]);

impl fmt::Debug for Kek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kek({})", self.fingerprint())
    }
}

impl Kek {
    /// Parses 32 bytes in base64 or hexadecimal, with optional white space around them. The error never quotes the
    /// text.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let text = text.trim();
        let bytes = if text.len() == 2 * KEY_BYTES { unhex(text) } else { STANDARD.decode(text).ok() };
        let key = bytes.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
        key.map(Self).ok_or_else(|| {
            let length = text.chars().count();
            format!(
                "must be {KEY_BYTES} bytes in base64 (44 characters) or hex (64), not {length} characters; {HOW_TO_MAKE}"
            )
        })
    }

    /// Identifies the key without revealing anything about it.
    pub fn fingerprint(&self) -> String {
        let mut digits = crate::runtime::hex::hex(&keyed_hash(&self.0, "kek-fingerprint", &[]));
        digits.truncate(FINGERPRINT_DIGITS);
        digits
    }

    fn wrap(&self, secret: &InstallSecret, entropy: &dyn Entropy, now: Time) -> Result<StoredSecret> {
        let failed = || StoreError::Locked("the install secret cannot be encrypted".into());
        let mut nonce = [0; NONCE_BYTES];
        entropy.fill(&mut nonce);
        let mut wrapped = WrappedSecret { version: 1, kek: self.fingerprint(), since: now, sealed: String::new() };
        let payload = Payload { msg: &secret.0, aad: &wrapped.associated_data() };
        let sealed =
            XChaCha20Poly1305::new(&self.0.into()).encrypt(&nonce.into(), payload).map_err(|_aead| failed())?;
        wrapped.sealed = STANDARD.encode([nonce.as_slice(), &sealed].concat());
        Ok(StoredSecret::Wrapped(serde_json::to_string(&wrapped).map_err(|_json| failed())?))
    }

    /// Decrypts the secret. `None` when another key wrapped it, or it is damaged.
    fn unwrap(&self, wrapped: &WrappedSecret) -> Option<InstallSecret> {
        let bytes = STANDARD.decode(&wrapped.sealed).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed, aad: &wrapped.associated_data() };
        let opened = XChaCha20Poly1305::new(&self.0.into()).decrypt(&(*nonce).into(), payload).ok()?;
        opened.try_into().ok().map(InstallSecret)
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

/// The install secret as a ledger stores it under a KEK.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WrappedSecret {
    version: u8,
    /// The fingerprint of the KEK.
    pub kek: String,
    /// Since when this KEK wraps it.
    pub since: Time,
    /// Nonce and ciphertext, in base64.
    sealed: String,
}

impl WrappedSecret {
    /// Parses the stored form.
    pub fn parse(text: &str) -> Result<Self> {
        let wrapped: Self = serde_json::from_str(text)
            .map_err(|error| StoreError::Corrupt(format!("the wrapped install secret cannot be read: {error}")))?;
        if wrapped.version != 1 {
            let why = format!("the install secret is wrapped in format {}; run a newer mailonce", wrapped.version);
            return Err(StoreError::Locked(why));
        }
        Ok(wrapped)
    }

    /// The data that is authenticated with the secret: its purpose, and what `status` shows.
    fn associated_data(&self) -> Vec<u8> {
        format!("mailonce install secret\n{}\n{}\n{}", self.version, self.kek, self.since.0).into_bytes()
    }

    fn refusal(&self, why: &str) -> StoreError {
        let Self { kek, since, .. } = self;
        StoreError::Locked(format!(
            "this ledger is wrapped by the KEK with the fingerprint {kek} since {since}, and {why}"
        ))
    }
}

/// Opens ledgers with the configured KEK, and wraps the secret of a ledger that is not wrapped yet. Without a KEK it
/// opens only ledgers that are not wrapped.
pub struct SecretUnlocker<'a> {
    /// The KEK, when one is configured.
    pub kek: Option<&'a Kek>,
    /// For nonces and the secret of a new ledger.
    pub entropy: &'a dyn Entropy,
    /// The time by the wall clock.
    pub now: Time,
}

impl SecretUnlocker<'_> {
    fn wrap_if_configured(&self, secret: &InstallSecret) -> Result<Option<StoredSecret>> {
        self.kek.map(|kek| kek.wrap(secret, self.entropy, self.now)).transpose()
    }
}

impl SecretKeeper for SecretUnlocker<'_> {
    fn open(&self, stored: Option<&StoredSecret>) -> Result<OpenedSecret> {
        match stored {
            None => {
                let mut bytes = [0; KEY_BYTES];
                self.entropy.fill(&mut bytes);
                let secret = InstallSecret(bytes);
                let replacement =
                    self.wrap_if_configured(&secret)?.unwrap_or_else(|| StoredSecret::Plain(secret.clone()));
                Ok(OpenedSecret { secret, replacement: Some(replacement) })
            }
            Some(StoredSecret::Plain(secret)) => {
                Ok(OpenedSecret { secret: secret.clone(), replacement: self.wrap_if_configured(secret)? })
            }
            Some(StoredSecret::Wrapped(text)) => {
                let wrapped = WrappedSecret::parse(text)?;
                let kek = self.kek.ok_or_else(|| wrapped.refusal("no KEK is configured"))?;
                let secret = kek.unwrap(&wrapped).ok_or_else(|| {
                    wrapped.refusal(&format!("the configured KEK has the fingerprint {}", kek.fingerprint()))
                })?;
                Ok(OpenedSecret { secret, replacement: None })
            }
        }
    }
}

/// Wraps the secret of a ledger under another KEK. A ledger that is already wrapped by the new KEK stays as it is, so
/// that a rotation that was killed can be repeated.
pub struct KekRotation<'a> {
    /// The current KEK.
    pub old: &'a Kek,
    /// The new KEK.
    pub new: &'a Kek,
    /// For the nonce.
    pub entropy: &'a dyn Entropy,
    /// The time by the wall clock.
    pub now: Time,
}

impl SecretKeeper for KekRotation<'_> {
    fn open(&self, stored: Option<&StoredSecret>) -> Result<OpenedSecret> {
        let Some(StoredSecret::Wrapped(text)) = stored else {
            let why = "this ledger isn't wrapped by a KEK yet: configure one in [secrets] and start the server once";
            return Err(StoreError::Locked(why.into()));
        };
        let wrapped = WrappedSecret::parse(text)?;
        if let Some(secret) = self.new.unwrap(&wrapped) {
            return Ok(OpenedSecret { secret, replacement: None });
        }
        let secret = self.old.unwrap(&wrapped).ok_or_else(|| {
            wrapped.refusal(&format!("the configured KEK has the fingerprint {}", self.old.fingerprint()))
        })?;
        let replacement = Some(self.new.wrap(&secret, self.entropy, self.now)?);
        Ok(OpenedSecret { secret, replacement })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FixedEntropy(u8);

    impl Entropy for FixedEntropy {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    fn unlock(kek: Option<&Kek>) -> SecretUnlocker<'_> {
        SecretUnlocker { kek, entropy: &FixedEntropy(3), now: Time(1_000) }
    }

    fn wrapped_by(kek: &Kek) -> StoredSecret {
        let plain = StoredSecret::Plain(InstallSecret([7; 32]));
        unlock(Some(kek)).open(Some(&plain)).unwrap().replacement.unwrap()
    }

    fn refused(answer: Result<OpenedSecret>) -> String {
        match answer {
            Err(StoreError::Locked(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_kek_is_read_as_base64_and_as_hex() {
        let base64 = Kek::parse(&format!(" {}\n", STANDARD.encode([255; 32]))).unwrap();
        let hex = Kek::parse(&"ff".repeat(32)).unwrap();
        assert_eq!(base64.fingerprint(), hex.fingerprint());
        assert_ne!(hex.fingerprint(), Kek([1; 32]).fingerprint());
        for wrong in ["", "secret-word", &"fg".repeat(32), &STANDARD.encode([1; 31]), &STANDARD.encode([1; 33])] {
            let why = Kek::parse(wrong).unwrap_err();
            assert!(why.contains("openssl rand -base64 32"), "{why}");
            assert!(wrong.is_empty() || !why.contains(wrong), "the text is never quoted: {why}");
        }
    }

    #[test]
    fn a_plain_secret_is_wrapped_and_only_its_kek_opens_it() {
        let kek = Kek([1; 32]);
        let stored = wrapped_by(&kek);
        let StoredSecret::Wrapped(text) = &stored else { panic!("{stored:?}") };
        let opened = unlock(Some(&kek)).open(Some(&stored)).unwrap();
        assert!(opened.secret.0 == [7; 32] && opened.replacement.is_none());
        let why = refused(unlock(None).open(Some(&stored)));
        assert!(why.contains(&kek.fingerprint()) && why.contains("no KEK is configured"), "{why}");
        let why = refused(unlock(Some(&Kek([2; 32]))).open(Some(&stored)));
        assert!(why.contains(&Kek([2; 32]).fingerprint()), "{why}");
        let older = text.replace("1000", "999");
        refused(unlock(Some(&kek)).open(Some(&StoredSecret::Wrapped(older))));
    }

    #[test]
    fn a_new_ledger_with_a_kek_never_keeps_a_plain_secret() {
        let kek = Kek([1; 32]);
        let opened = unlock(Some(&kek)).open(None).unwrap();
        assert!(matches!(opened.replacement, Some(StoredSecret::Wrapped(_))));
        assert!(matches!(unlock(None).open(None).unwrap().replacement, Some(StoredSecret::Plain(_))));
    }

    #[test]
    fn a_rotation_keeps_the_secret_and_can_be_repeated() {
        let (old, new) = (Kek([1; 32]), Kek([2; 32]));
        let rotate = KekRotation { old: &old, new: &new, entropy: &FixedEntropy(4), now: Time(2_000) };
        let rotated = rotate.open(Some(&wrapped_by(&old))).unwrap();
        let stored = rotated.replacement.unwrap();
        assert_eq!(unlock(Some(&new)).open(Some(&stored)).unwrap().secret.0, [7; 32]);
        refused(unlock(Some(&old)).open(Some(&stored)));
        assert!(rotate.open(Some(&stored)).unwrap().replacement.is_none());
        refused(rotate.open(Some(&wrapped_by(&Kek([9; 32])))));
        refused(rotate.open(Some(&StoredSecret::Plain(InstallSecret([7; 32])))));
    }
}
