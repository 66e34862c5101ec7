//! DKIM (RFC 6376, RFC 8463): keys, the DNS records that publish them, and signatures.
//!
//! Canonicalisation is written here, a page of code; the signatures are ring's, which TLS links anyway. Everything is
//! repeatable: `t=` is the mail's own Date, RSA signs with PKCS#1 v1.5 and Ed25519 needs no chance at all.

mod canonicalization;
mod der;
mod key;
mod record;
mod rsa_keygen;
mod sign;

pub use key::{DkimAlgorithm, DkimKey};
pub use record::DkimDnsRecord;
pub use sign::{DkimSigner, sign};

/// Why there is no key, record or signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DkimError {
    /// Bytes that are no key we can use.
    #[error("private key is no PKCS#8 of RSA with 2048 to 4096 bits or of Ed25519: {0}")]
    Key(String),
    /// A domain or selector that cannot stand in a record or a signature.
    #[error("{0:?} is no domain name")]
    Name(String),
    /// A mail without headers, an end to them, or a From.
    #[error("mail has no headers with a From")]
    Mail,
    /// The signing itself did not work, as when a key's parts do not belong together.
    #[error("key cannot sign")]
    Sign,
}

/// Whether a text is a domain name in ASCII, or a selector, which has the same form.
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
