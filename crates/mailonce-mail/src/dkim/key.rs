//! A DKIM private key: generated from a seed, stored as PKCS#8.

use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
};
use sha2::{Digest as _, Sha256};
use std::fmt;

use super::{DkimError, der};
use crate::dkim::rsa_keygen;

/// The algorithm of a key. RSA comes first, because every receiver supports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DkimAlgorithm {
    /// RSA. Generated keys have 2048 bits.
    Rsa,
    /// Ed25519.
    Ed25519,
}

impl DkimAlgorithm {
    /// Its value in `k=`.
    pub fn key_type(self) -> &'static str {
        match self {
            Self::Rsa => "rsa",
            Self::Ed25519 => "ed25519",
        }
    }

    /// Its value in `a=`.
    pub fn signature_algorithm(self) -> &'static str {
        match self {
            Self::Rsa => "rsa-sha256",
            Self::Ed25519 => "ed25519-sha256",
        }
    }
}

/// A private key.
pub struct DkimKey {
    pkcs8: Vec<u8>,
    pair: DkimKeyPair,
}

enum DkimKeyPair {
    Rsa(Box<RsaKeyPair>),
    Ed25519(Ed25519KeyPair),
}

impl DkimKey {
    /// Generates a key from 32 secret random bytes, which must not be kept. RSA may take some seconds.
    pub fn generate(algorithm: DkimAlgorithm, seed: [u8; 32]) -> Result<Self, DkimError> {
        let pkcs8 = match algorithm {
            DkimAlgorithm::Rsa => rsa_keygen::generate_rsa_2048(seed).ok_or(DkimError::Sign)?,
            DkimAlgorithm::Ed25519 => der::ed25519_pkcs8(&seed),
        };
        let key = Self::from_pkcs8(&pkcs8)?;
        // ring checks only when signing whether the parts of an RSA key are consistent.
        key.sign(b"")?;
        Ok(key)
    }

    /// Parses PKCS#8, as written by [`DkimKey::to_pkcs8`] and OpenSSL.
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, DkimError> {
        let pair = match Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8) {
            Ok(pair) => DkimKeyPair::Ed25519(pair),
            Err(_other) => {
                let pair = RsaKeyPair::from_pkcs8(pkcs8).map_err(|error| DkimError::Key(error.to_string()))?;
                DkimKeyPair::Rsa(Box::new(pair))
            }
        };
        Ok(Self { pkcs8: pkcs8.to_vec(), pair })
    }

    /// The key as PKCS#8. It is secret and must be stored encrypted.
    pub fn to_pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The algorithm.
    pub fn algorithm(&self) -> DkimAlgorithm {
        match self.pair {
            DkimKeyPair::Rsa(_) => DkimAlgorithm::Rsa,
            DkimKeyPair::Ed25519(_) => DkimAlgorithm::Ed25519,
        }
    }

    /// The public key in the format of `p=`: `SubjectPublicKeyInfo` for RSA, 32 bytes for Ed25519 (RFC 8463 §4.2).
    pub fn public_key(&self) -> Vec<u8> {
        match &self.pair {
            DkimKeyPair::Rsa(pair) => der::rsa_public(pair.public_key().as_ref()),
            DkimKeyPair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    /// Signs bytes. The signature is the same on every call.
    pub(super) fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, DkimError> {
        match &self.pair {
            DkimKeyPair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                // The randomness only blinds the computation against side channels, not the signature itself.
                let blinding_rng = SystemRandom::new();
                pair.sign(&RSA_PKCS1_SHA256, &blinding_rng, bytes, &mut signature)
                    .map_err(|_unspecified| DkimError::Sign)?;
                Ok(signature)
            }
            // RFC 8463 §3: Ed25519 signs the hash, not the bytes.
            DkimKeyPair::Ed25519(pair) => Ok(pair.sign(&Sha256::digest(bytes)).as_ref().to_vec()),
        }
    }
}

/// Hides the secret.
impl fmt::Debug for DkimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DkimKey({})", self.algorithm().key_type())
    }
}
