//! Sealed answers: the stored answer of a keyed call, encrypted so that only a caller with the same key can read it.
//!
//! The encryption key is derived from the install secret and the caller's idempotency key, of which the ledger has
//! only a hash. A copy of the ledger therefore doesn't reveal an API key that was shown once.

use crate::runtime::{context::Context, keyed_call::KeyedCall};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _, aead::Aead as _};
use mailonce_core::{
    key::{EmailKey, InstallSecret},
    problem::{Code, Problem},
};
use serde::{Serialize, de::DeserializeOwned};

const NONCE_BYTES: usize = 12;

fn cipher(secret: &InstallSecret, idempotency_key: &EmailKey) -> ChaCha20Poly1305 {
    let key = secret.mac("sealed-answer", &[idempotency_key.display_name().as_bytes()]);
    ChaCha20Poly1305::new(&key.into())
}

/// Encrypts an answer.
fn seal(secret: &InstallSecret, idempotency_key: &EmailKey, nonce: [u8; NONCE_BYTES], answer: &[u8]) -> Vec<u8> {
    // Encryption of a short text can't fail. If it did, a repeat would be refused.
    let sealed = cipher(secret, idempotency_key).encrypt(&nonce.into(), answer).unwrap_or_default();
    [nonce.as_slice(), &sealed].concat()
}

/// Decrypts an answer. `None` when it was sealed under another key, or is damaged.
fn open(secret: &InstallSecret, idempotency_key: &EmailKey, sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>()?;
    cipher(secret, idempotency_key).decrypt(&(*nonce).into(), rest).ok()
}

impl Context {
    /// Encrypts an answer for replays of the call. Empty without a key.
    pub(crate) fn seal_answer<T: Serialize>(&self, keyed_call: Option<&KeyedCall>, answer: &T) -> Vec<u8> {
        let Some(keyed_call) = keyed_call else { return Vec::new() };
        let mut nonce = [0; NONCE_BYTES];
        self.entropy.fill(&mut nonce);
        seal(&self.secret, &keyed_call.key, nonce, &serde_json::to_vec(answer).unwrap_or_default())
    }

    /// Decrypts the answer of the first call.
    pub(crate) fn open_answer<T: DeserializeOwned>(
        &self,
        keyed_call: Option<&KeyedCall>,
        sealed: &[u8],
    ) -> Result<T, Problem> {
        let opened = keyed_call.and_then(|keyed_call| open(&self.secret, &keyed_call.key, sealed));
        let first = opened.and_then(|json| serde_json::from_slice(&json).ok());
        first.ok_or_else(|| Problem::new(Code::Internal, "the stored answer to the first call cannot be decrypted"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::key::Key;

    #[test]
    fn only_the_same_key_opens_an_answer() {
        let secret = InstallSecret([3; 32]);
        let name = |text: &str| EmailKey::Given(Key::parse(text).unwrap());
        let sealed = seal(&secret, &name("one"), [9; 12], b"mo_secret");
        assert_eq!(open(&secret, &name("one"), &sealed).as_deref(), Some(b"mo_secret".as_slice()));
        assert_eq!(open(&secret, &name("two"), &sealed), None);
        assert_eq!(open(&InstallSecret([4; 32]), &name("one"), &sealed), None);
        assert!(!sealed.windows(9).any(|part| part == b"mo_secret"));
    }
}
