//! The vault: secrets that must be readable again, such as private keys and the credentials of sources. They are
//! encrypted before they are stored.
//!
//! The encryption key is derived from the install secret, the team, the record and the purpose. A row that is copied
//! to another team or purpose can't be opened.

use crate::runtime::context::Context;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _, aead::Aead as _};
use mailonce_core::{id::TeamId, key::InstallSecret};
use uuid::Uuid;

const NONCE_BYTES: usize = 12;

/// Where a secret belongs. Part of its encryption key.
#[derive(Clone, Copy)]
pub(crate) struct SecretLocation {
    /// The team.
    pub(crate) team: TeamId,
    /// The record that stores it.
    pub(crate) record: Uuid,
    /// Its purpose.
    pub(crate) purpose: &'static str,
}

impl SecretLocation {
    fn cipher(&self, secret: &InstallSecret) -> ChaCha20Poly1305 {
        let parts: [&[u8]; 3] = [self.purpose.as_bytes(), self.team.0.as_bytes(), self.record.as_bytes()];
        ChaCha20Poly1305::new(&secret.mac("vault", &parts).into())
    }

    fn seal(&self, secret: &InstallSecret, nonce: [u8; NONCE_BYTES], plain: &[u8]) -> Option<String> {
        let sealed = self.cipher(secret).encrypt(&nonce.into(), plain).ok()?;
        Some(STANDARD.encode([nonce.as_slice(), &sealed].concat()))
    }

    fn open(&self, secret: &InstallSecret, sealed: &str) -> Option<Vec<u8>> {
        let bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        self.cipher(secret).decrypt(&(*nonce).into(), rest).ok()
    }
}

impl Context {
    /// Encrypts a secret. `None`, which can't happen for texts of this size, means that nothing may be stored.
    pub(crate) fn seal_secret(&self, location: SecretLocation, plain: &[u8]) -> Option<String> {
        let mut nonce = [0; NONCE_BYTES];
        self.entropy.fill(&mut nonce);
        location.seal(&self.secret, nonce, plain)
    }

    /// Decrypts a secret. `None` when it was sealed for another location, or is damaged.
    pub(crate) fn open_secret(&self, location: SecretLocation, sealed: &str) -> Option<Vec<u8>> {
        location.open(&self.secret, sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_only_where_it_was_sealed() {
        let secret = InstallSecret([3; 32]);
        let location = |team, record, purpose| SecretLocation {
            team: TeamId(Uuid::from_u128(team)),
            record: Uuid::from_u128(record),
            purpose,
        };
        let here = location(1, 2, "dkim");
        let sealed = here.seal(&secret, [9; NONCE_BYTES], b"private").unwrap();
        assert_eq!(here.open(&secret, &sealed).as_deref(), Some(b"private".as_slice()));
        for elsewhere in [location(7, 2, "dkim"), location(1, 7, "dkim"), location(1, 2, "source")] {
            assert_eq!(elsewhere.open(&secret, &sealed), None);
        }
        assert_eq!(here.open(&InstallSecret([4; 32]), &sealed), None);
        assert!(!sealed.contains(&STANDARD.encode(b"private")));
    }
}
