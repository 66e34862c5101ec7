//! DKIM (RFC 6376, RFC 8463): keys, the DNS records that publish them, and signatures.
//!
//! Canonicalization is implemented here; the signatures come from ring, which TLS links anyway. Signing is
//! deterministic: `t=` is the mail's own Date, RSA uses PKCS#1 v1.5, and Ed25519 needs no randomness.

mod canonicalization;
mod der;
mod key;
mod record;
mod rsa_keygen;
mod sign;

pub use key::{DkimAlgorithm, DkimKey};
pub use record::DkimDnsRecord;
pub use sign::{DkimSigner, sign};

/// Why a key, record or signature could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DkimError {
    /// Not a usable private key.
    #[error("the private key must be PKCS#8, RSA with 2048 to 4096 bits or Ed25519: {0}")]
    Key(String),
    /// An invalid domain or selector.
    #[error("{0:?} is not a valid domain name")]
    Name(String),
    /// The mail has no complete header, or no `From`.
    #[error("the mail has no header with a From")]
    Mail,
    /// Signing failed, for example because the parts of the key are inconsistent.
    #[error("the key cannot sign")]
    Sign,
}

/// Checks that a text is an ASCII domain name or a selector, which has the same syntax.
fn check_name(text: &str) -> Result<(), DkimError> {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if text.len() <= 253 && text.split('.').all(label) { Ok(()) } else { Err(DkimError::Name(text.to_owned())) }
}

#[cfg(test)]
mod tests;
