//! Opening engines for promises: each promise gets an empty ledger of its own.

use mailonce_core::ports::store::Store;
use std::{any::Any, sync::Arc};

use super::TestStore;
use crate::{
    memory::Memory,
    postgres::{Options, Postgres, tests::TestDatabase},
    sqlite::Sqlite,
};

const SECRET: [u8; 32] = [7; 32];

/// An engine that is open, and what must live as long as it is: a directory, a database.
pub(super) struct OpenStore {
    pub(super) store: TestStore,
    _kept: Box<dyn Any + Send>,
}

impl OpenStore {
    fn new(store: impl Store, kept: impl Any + Send) -> Self {
        Self { store: Arc::new(store), _kept: Box::new(kept) }
    }
}

/// The model.
pub(super) fn memory() -> OpenStore {
    OpenStore::new(Memory::new(SECRET), ())
}

/// The embedded engine in a directory of its own.
pub(super) fn sqlite() -> OpenStore {
    let directory = tempfile::tempdir().unwrap();
    OpenStore::new(Sqlite::open(directory.path(), SECRET).unwrap(), directory)
}

/// The PostgreSQL engine in a database of its own. Fails without a server.
pub(super) async fn postgres() -> OpenStore {
    let fresh = TestDatabase::create().await;
    let options = Options { accept_workers: 2, sessions: 4 };
    OpenStore::new(Postgres::open_with(&fresh.url, SECRET, options).await.unwrap(), fresh)
}
