//! The install secret as a store keeps it and as a keeper opens it.

use crate::key::InstallSecret;

/// The install secret as the ledger stores it.
#[derive(Clone, Debug)]
pub enum StoredSecret {
    /// In plain text: readable by anyone who can read the ledger.
    Plain(InstallSecret),
    /// Encrypted with a key encryption key. Only the keeper knows the format; stores treat it as opaque.
    Wrapped(String),
}

/// The decrypted install secret.
#[derive(Clone, Debug)]
pub struct OpenedSecret {
    /// The secret itself.
    pub secret: InstallSecret,
    /// The new form to store, when it differs from the stored one. The store replaces it in one transaction and erases
    /// the old form.
    pub replacement: Option<StoredSecret>,
}
