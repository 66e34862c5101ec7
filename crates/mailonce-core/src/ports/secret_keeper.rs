//! How the install secret is stored: in plain text, or encrypted with a key encryption key that is not in the ledger.

use super::store::{Result, StoreError};
use crate::{
    access::install_secret::{OpenedSecret, StoredSecret},
    key::InstallSecret,
};

/// Decrypts the install secret when a ledger is opened.
pub trait SecretKeeper: Send + Sync {
    /// Decrypts the stored secret; `None` means a new ledger. An error aborts the start and leaves the ledger
    /// unchanged.
    fn open(&self, stored: Option<&StoredSecret>) -> Result<OpenedSecret>;
}

/// A keeper without a key encryption key. The value becomes the secret of a new ledger.
impl SecretKeeper for [u8; 32] {
    fn open(&self, stored: Option<&StoredSecret>) -> Result<OpenedSecret> {
        match stored {
            None => {
                let secret = InstallSecret(*self);
                Ok(OpenedSecret { secret: secret.clone(), replacement: Some(StoredSecret::Plain(secret)) })
            }
            Some(StoredSecret::Plain(secret)) => Ok(OpenedSecret { secret: secret.clone(), replacement: None }),
            Some(StoredSecret::Wrapped(_)) => Err(StoreError::Locked(
                "the secrets of this ledger are wrapped by a key encryption key (KEK), and none is configured".into(),
            )),
        }
    }
}
