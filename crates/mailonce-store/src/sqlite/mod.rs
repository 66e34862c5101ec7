//! The embedded store: one SQLite file in WAL mode.
//!
//! One writer thread commits all writes in groups. Queries run on separate reader connections. A checkpointer thread
//! copies the WAL into the database file, so that no commit has to.

pub(crate) mod access;
mod background_threads;
mod backup;
mod claims;
mod control;
mod conversation;
mod events;
mod fresh_keys;
pub(crate) mod handoff;
mod inbound;
pub(crate) mod inbox;
mod install_secret;
pub(crate) mod outbound;
mod readers;
mod rows;
mod schema;
mod search;
mod store;
mod upkeep;
mod write_session;
mod writer;

use mailonce_core::{
    commit_clock::CommitClock,
    id::{NodeId, TeamId},
    key::InstallSecret,
    ports::{
        secret_keeper::SecretKeeper,
        store::{Result, StoreError},
    },
    time::Time,
};
use rusqlite::Connection;
use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    thread::JoinHandle,
};

use crate::{sqlite::fresh_keys::FreshKeys, transport_registry::TransportRegistry};
use background_threads::{run_checkpointer, run_key_counter};
use readers::Readers;
use schema::DirectoryLock;
use write_session::{SharedTeamNumbers, Subscribers, WalState, WriteSession};
use writer::{Priority, Writer};

pub use backup::BackupContents;
pub use schema::SCHEMA_VERSION;

/// The SQLite store.
pub struct Sqlite {
    secret: InstallSecret,
    writer: Arc<Writer>,
    readers: Readers,
    teams: SharedTeamNumbers,
    subscribers: Arc<Subscribers>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    closing: Arc<AtomicBool>,
    /// Last heartbeat of each node in this process. Usually there is one node; tests run several.
    node_heartbeats: Mutex<HashMap<NodeId, Time>>,
    /// The transports that each node of this process published.
    transport_registry: Mutex<TransportRegistry>,
    /// The heartbeat time that was last saved in the database.
    seen_at: AtomicI64,
    time: Arc<CommitClock>,
    /// Idempotency keys that are not yet in the `keys` table, and the number of those that are.
    fresh_keys: Arc<FreshKeys>,
    /// Where the next sweep continues its scan of delivery keys. `None` starts at the first key.
    delivery_key_cursor: Mutex<Option<crate::sqlite::inbound::sweep::DeliveryKeyRef>>,
    _lock: DirectoryLock,
}

impl Sqlite {
    /// Opens the database in a data directory, and creates both if they do not exist. Fails when another process holds
    /// the directory, when the schema is newer than this binary, or when SQLite's settings are not durable.
    pub fn open(directory: &Path, keeper: impl SecretKeeper) -> Result<Self> {
        let lock = DirectoryLock::take(directory)?;
        let path = directory.join("ledger.db");
        let (conn, secret) = schema::open_writer(&path, &keeper)?;
        let teams: SharedTeamNumbers = Arc::default();
        for (id, number) in crate::sqlite::access::teams::team_numbers(&conn)? {
            teams.write().unwrap_or_else(PoisonError::into_inner).add(id, number);
        }
        let listeners: Arc<Subscribers> = Arc::default();
        let log: Arc<WalState> = Arc::default();
        let (checkpointer, counter) = (schema::open_checkpointer(&path)?, schema::open_reader(&path)?);
        let writer = Writer::new();
        let (tell, told) = std::sync::mpsc::channel();
        let closing = Arc::new(AtomicBool::new(false));
        let store = Self {
            secret,
            writer: Arc::clone(&writer),
            readers: Readers::new(path),
            teams,
            subscribers: listeners,
            threads: Mutex::default(),
            closing: Arc::clone(&closing),
            node_heartbeats: Mutex::default(),
            transport_registry: Mutex::default(),
            seen_at: AtomicI64::new(0),
            time: Arc::default(),
            fresh_keys: Arc::default(),
            delivery_key_cursor: Mutex::default(),
            _lock: lock,
        };
        store.spawn_thread("ledger-writer", {
            let (writer, teams, listeners) =
                (Arc::clone(&writer), Arc::clone(&store.teams), Arc::clone(&store.subscribers));
            let (fresh, log, time) = (Arc::clone(&store.fresh_keys), Arc::clone(&log), Arc::clone(&store.time));
            // The write session borrows the connection for its prepared statements, so both live on the writer thread.
            move || match WriteSession::new(&conn, fresh, teams, listeners, log, time) {
                Ok(ledger) => {
                    drop(tell.send(Ok(())));
                    writer.run_loop(ledger);
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        })?;
        told.recv().map_err(|_ended| schema::unreachable_error("the writer ended at its start"))??;
        store.spawn_thread("ledger-checkpointer", move || run_checkpointer(&checkpointer, &writer, &log, &closing))?;
        store.spawn_thread("ledger-counter", {
            let (fresh, closing) = (Arc::clone(&store.fresh_keys), Arc::clone(&store.closing));
            move || run_key_counter(&counter, &fresh, &closing)
        })?;
        Ok(store)
    }

    /// Whether another process holds the lock on the data directory.
    pub fn is_busy(directory: &Path) -> bool {
        directory.exists() && DirectoryLock::take(directory).is_err()
    }

    /// The schema version of the database in a data directory. Changes nothing. `None` when there is no database yet.
    pub fn schema_version(directory: &Path) -> Result<Option<i64>> {
        let path = directory.join("ledger.db");
        if !path.exists() {
            return Ok(None);
        }
        schema::schema_version(&schema::open_reader(&path)?).map(Some)
    }

    /// Checks the database in a data directory that no process uses, and returns the problems found. Opening it may
    /// checkpoint the WAL.
    pub fn check_integrity(directory: &Path) -> Result<Vec<String>> {
        let path = directory.join("ledger.db");
        if path.exists() { schema::check_integrity(&path) } else { Ok(Vec::new()) }
    }

    fn spawn_thread(&self, name: &str, life: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(life);
        let thread = thread.map_err(|e| StoreError::Unreachable(format!("starting a thread: {e}")))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Finishes running writes, and ends the threads.
    async fn stop_threads(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.writer.close();
        let threads: Vec<_> = self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                thread.thread().unpark();
                if thread.join().is_err() {
                    tracing::error!("a thread of the ledger panicked");
                }
            }
        });
        if let Err(error) = joined.await {
            tracing::error!(%error, "closing the ledger");
        }
    }

    /// Runs a write other than an accept on the writer thread, and returns after its commit.
    async fn run_write<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&mut WriteSession<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer.run(Priority::Other, verb, |_, _| {}).await
    }

    /// Runs a query on an idle reader connection, on a thread that may block.
    async fn run_query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.readers.run(query).await
    }

    fn transport_registry(&self) -> TransportRegistry {
        self.transport_registry.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn team_number(&self, team: TeamId) -> Option<i64> {
        self.teams.read().unwrap_or_else(PoisonError::into_inner).number(team)
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        self.writer.close();
    }
}
