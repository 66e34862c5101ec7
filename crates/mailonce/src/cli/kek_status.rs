//! How the secrets of a ledger are protected, for `doctor` and `secrets status`.

use mailonce_core::{
    access::install_secret::StoredSecret,
    ports::{secret_keeper::SecretKeeper as _, store::Result as StoreResult},
};
use mailonce_engine::access::kek::{Kek, SecretUnlocker, WrappedSecret};
use mailonce_store::{postgres::Postgres, sqlite::Sqlite};

use crate::{
    config::{Config, StoreLocation},
    entropy::{OsEntropy, wall_time},
    secrets::KekSource,
};

/// The install secret as stored in the configured ledger. `None` if there is no ledger yet.
async fn stored_secret(config: &Config) -> StoreResult<Option<StoredSecret>> {
    match &config.store {
        StoreLocation::Sqlite => Sqlite::stored_secret(&config.data),
        StoreLocation::Postgres(url) => Postgres::stored_secret(url).await,
    }
}

/// The configured KEK, and what is stored in the ledger.
pub(crate) struct KekStatus {
    /// The configured source of the KEK, and the KEK or the error from reading it.
    pub(crate) configured: Option<(KekSource, anyhow::Result<Kek>)>,
    /// The install secret as stored in the ledger.
    pub(crate) stored: Option<StoredSecret>,
}

impl KekStatus {
    /// Reads the configuration and the ledger, and changes neither.
    pub(crate) async fn inspect(config: &Config) -> StoreResult<Self> {
        let configured = match &config.secrets.kek {
            Some(source) => Some((source.clone(), source.read().await)),
            None => None,
        };
        Ok(Self { configured, stored: stored_secret(config).await? })
    }

    /// The fingerprint and the date in a wrapped ledger.
    pub(crate) fn wrapped(&self) -> Option<WrappedSecret> {
        match &self.stored {
            Some(StoredSecret::Wrapped(text)) => WrappedSecret::parse(text).ok(),
            _ => None,
        }
    }

    /// Why the ledger cannot be opened with this configuration.
    pub(crate) fn open_error(&self) -> Option<String> {
        let kek = match &self.configured {
            Some((_, Err(error))) => return Some(format!("{error:#}")),
            Some((_, Ok(kek))) => Some(kek),
            None => None,
        };
        let unlock = SecretUnlocker { kek, entropy: &OsEntropy, now: wall_time() };
        self.stored.as_ref().and_then(|stored| unlock.open(Some(stored)).err()).map(|error| error.to_string())
    }
}
