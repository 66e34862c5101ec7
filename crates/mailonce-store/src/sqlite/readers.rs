//! The reader connections: queries run on them while the writer thread commits.

use mailonce_core::ports::store::{Result, StoreError};
use rusqlite::Connection;
use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};
use tokio::sync::Semaphore;

use crate::sqlite::schema;

/// Maximum number of concurrent readers.
const MAX_READERS: usize = 4;

/// The connections of one database that only read.
pub(crate) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Readers {
    /// Readers of the database in this file. They are opened when they are needed.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::default(), permits: Semaphore::new(MAX_READERS) }
    }

    /// Runs a query on an idle connection, on a thread that may block.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _permit =
            self.permits.acquire().await.map_err(|_closed| schema::unreachable_error("the ledger is closed"))?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let path = self.path.clone();
        let queried = tokio::task::spawn_blocking(move || {
            let conn = idle.map_or_else(|| schema::open_reader(&path), Ok)?;
            let answer = query(&conn);
            Ok::<_, StoreError>((conn, answer))
        });
        let (conn, answer) = queried.await.map_err(|e| StoreError::Unreachable(format!("a reader ended: {e}")))??;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
        answer
    }
}
