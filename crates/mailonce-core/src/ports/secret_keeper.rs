//! The install secret at rest: as it is, or wrapped by a key encryption key that the ledger doesn't hold.

use super::store::{Result, StoreError};
use crate::key::InstallSecret;

/// The install secret as a ledger keeps it.
#[derive(Clone, Debug)]
pub enum StoredSecret {
    /// As it is: whoever reads the ledger has it.
    Plain(InstallSecret),
    /// Encrypted under a key encryption key. Its form belongs to the keeper; stores never look into it.
    Wrapped(String),
}

/// An install secret that was opened.
#[derive(Clone, Debug)]
pub struct OpenedSecret {
    /// The secret itself.
    pub secret: InstallSecret,
    /// What the ledger must keep from now on, when that differs from what it keeps. The store replaces it in one
    /// transaction and removes the traces of the old form.
    pub replacement: Option<StoredSecret>,
}

/// Opens the install secret when a ledger is opened.
pub trait SecretKeeper: Send + Sync {
    /// Opens what the ledger keeps; `None` is a new ledger. An error stops the start and leaves the ledger unchanged.
    fn open(&self, stored: Option<&StoredSecret>) -> Result<OpenedSecret>;
}

/// A keeper without a key encryption key: the value is the secret of a new ledger.
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
