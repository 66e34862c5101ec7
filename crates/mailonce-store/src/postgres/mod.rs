//! The PostgreSQL store: several nodes share one database.
//!
//! | module | contents |
//! |---|---|
//! | `session_pools`, `schema`, `install_secret` | connection pools, TLS, migrations, the install secret |
//! | `outbound::accept_batcher`, `outbound::accept` | group commit for accepts |
//! | `call_batcher` | group commit for other calls: received mail, filing, handoff actions |
//! | `locked_tx`, `unit_of_work`, `write` | transactions that take row locks: lock, load, decide, write, commit |
//! | `outbound`, `handoff`, `control`, `access` | emails, handoffs, budgets and records, teams and API keys |
//! | `inbound`, `inbox` | received mail, its inboxes, messages, artifacts and watches |
//! | `conversation` | threads, replies, the agents' work queue |
//! | [`outbox`] | the outbox in the user's own database, which is not the ledger |
//! | `events` | the event sequencer, webhook endpoints and notices |
//! | `peers`, `upkeep` | detection of dead nodes, health checks, the sweep of expired rows |
//! | `row` | the mapping between rows and domain values |
//! | `server`, `durability` | which server the sessions are on, and whether its standby has what they read |
//! | `error`, `meter` | errors and metrics |
//!
//! Each node keeps its own pools of sessions. Connect to the server directly: a proxy that assigns sessions per
//! statement breaks prepared statements and locks.

pub(crate) mod access;
mod call_batcher;
mod claims;
mod control;
mod conversation;
mod durability;
mod error;
mod events;
pub(crate) mod handoff;
mod inbound;
pub(crate) mod inbox;
mod install_secret;
mod locked_tx;
mod meter;
mod operation_keys;
pub(crate) mod outbound;
pub mod outbox;
mod peers;
mod row;
mod schema;
mod search;
mod server;
mod session_pools;
mod statements;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod unit_of_work;
mod upkeep;
mod write;

use mailonce_core::{
    commit_clock::CommitClock,
    installation::DatabaseClock,
    key::InstallSecret,
    ports::{
        secret_keeper::SecretKeeper,
        store::{EventWakeUpHandler, Result},
    },
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
};

use crate::postgres::{
    handoff::handoffs::ActionCall,
    inbound::{
        filing::FileCall,
        receive::ReceiveCall,
        wake_ups::{self, WakeUpBus},
    },
    outbound::{accept_batcher::AcceptBatcher, queries::KeyLookupRequest},
};
use call_batcher::CallBatcher;
use durability::DurabilityBarrier;
use error::TxResult;
use meter::Meter;
use peers::Peers;
use session_pools::{ConnectConfig, SessionPools};

/// Worker tasks per batcher. One runs its transaction while the next batch fills.
const WORKERS_PER_BATCHER: usize = 2;

/// Sizes of a node's connection pools.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many accept transactions may run at the same time, each on its own session.
    pub accept_workers: usize,
    /// Sessions in the pool for all other calls.
    pub sessions: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { accept_workers: 4, sessions: 12 }
    }
}

/// Returns the time of the database server's clock.
pub type ClockSource = Box<dyn Fn() -> DatabaseClock + Send + Sync>;

/// State that all tasks of one store share.
pub(crate) struct SharedState {
    connections: SessionPools,
    secret: InstallSecret,
    accept_batcher: AcceptBatcher,
    key_lookups: mpsc::UnboundedSender<KeyLookupRequest>,
    meter: Meter,
    /// Wakes the event sequencer after a commit.
    sequencer_wakeup: Notify,
    receive_batcher: CallBatcher<ReceiveCall>,
    file_batcher: CallBatcher<FileCall>,
    action_batcher: CallBatcher<ActionCall>,
    wake_up_bus: Arc<WakeUpBus>,
    event_subscribers: RwLock<Vec<EventWakeUpHandler>>,
    time: Arc<CommitClock>,
    /// Detects other nodes whose heartbeat stopped.
    peers: Mutex<Peers>,
    /// Replaces the database server's clock in tests.
    test_clock: OnceLock<ClockSource>,
    barrier: DurabilityBarrier,
}

/// The PostgreSQL store.
pub struct Postgres {
    shared: Arc<SharedState>,
    closing: watch::Sender<bool>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Postgres {
    /// Opens the database and runs pending migrations. The keeper unwraps the install secret, or creates it on the
    /// first start.
    pub async fn open(url: &str, keeper: impl SecretKeeper) -> Result<Self> {
        Self::open_with(url, keeper, Options::default()).await
    }

    /// Replaces the server's clock with `source` from now on, for tests that control the time.
    pub fn read_clock_from(&self, source: ClockSource) {
        self.shared.test_clock.set(source).ok();
    }

    /// Like [`Self::open`], with pool sizes from `options`.
    pub async fn open_with(url: &str, keeper: impl SecretKeeper, options: Options) -> Result<Self> {
        let link =
            SessionPools::new(&ConnectConfig::parse(url)?, options.accept_workers.max(1), options.sessions.max(2))?;
        let mut client = link.client().await?;
        schema::migrate(&mut client).await?;
        let secret = install_secret::open_secret(&mut client, &keeper).await?;
        link.server.start_identifying(&client).await?;
        drop(client);
        let (looks, asked) = mpsc::unbounded_channel();
        let ledger = Arc::new(SharedState {
            connections: link,
            secret,
            accept_batcher: AcceptBatcher::default(),
            key_lookups: looks,
            meter: Meter::default(),
            sequencer_wakeup: Notify::new(),
            receive_batcher: CallBatcher::default(),
            file_batcher: CallBatcher::default(),
            action_batcher: CallBatcher::default(),
            wake_up_bus: Arc::default(),
            event_subscribers: RwLock::default(),
            time: Arc::default(),
            peers: Mutex::default(),
            test_clock: OnceLock::new(),
            barrier: DurabilityBarrier::default(),
        });
        for note in ledger.health().await?.notes.iter().skip(1) {
            tracing::warn!("the database: {note}");
        }
        let (closing, closed) = watch::channel(false);
        let mut workers: Vec<_> = (0..options.accept_workers.max(1))
            .map(|_| tokio::spawn(crate::postgres::outbound::accept_batcher::run_accept_worker(ledger.clone())))
            .collect();
        for _ in 0..WORKERS_PER_BATCHER {
            workers.push(tokio::spawn(call_batcher::run_batch_worker::<ReceiveCall>(ledger.clone())));
            workers.push(tokio::spawn(call_batcher::run_batch_worker::<FileCall>(ledger.clone())));
            workers.push(tokio::spawn(call_batcher::run_batch_worker::<ActionCall>(ledger.clone())));
        }
        let listening = ledger.open_listen_session().await?;
        tokio::spawn(wake_ups::run_listener(ledger.clone(), listening, closed.clone()));
        tokio::spawn(crate::postgres::outbound::queries::run_key_lookups(ledger.clone(), asked, closed.clone()));
        tokio::spawn(crate::postgres::events::event_log::run_sequencer(ledger.clone(), closed.clone()));
        tokio::spawn(durability::run_prover(ledger.clone(), closed.clone()));
        tokio::spawn(run_table_maintenance(ledger.clone(), closed));
        Ok(Self { shared: ledger, closing, workers: Mutex::new(workers) })
    }

    /// Finishes running calls, and ends the workers.
    async fn stop_workers(&self) {
        self.shared.close_batchers();
        let workers: Vec<JoinHandle<()>> =
            self.workers.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
        for worker in workers {
            if let Err(error) = worker.await {
                tracing::error!("a lane ended badly: {error}");
            }
        }
        self.closing.send_replace(true);
        self.shared.connections.close();
    }

    /// The schema version of the database; changes nothing. `None` when mailonce was never installed there.
    pub async fn schema_version(url: &str) -> Result<Option<u32>> {
        let link = SessionPools::new(&ConnectConfig::parse(url)?, 1, 1)?;
        Ok(schema::schema_version(&link.client().await?).await?)
    }

    /// The schema version that this binary writes.
    pub fn current_schema_version() -> u32 {
        schema::SCHEMA_VERSION
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        self.shared.close_batchers();
    }
}

impl SharedState {
    /// Rejects new batched calls. Queued calls are still answered.
    fn close_batchers(&self) {
        self.accept_batcher.close();
        self.receive_batcher.close();
        self.file_batcher.close();
        self.action_batcher.close();
    }
}

/// Refreshes statistics and metrics of the tables until the store closes.
async fn run_table_maintenance(ledger: Arc<SharedState>, mut closing: watch::Receiver<bool>) {
    loop {
        if let Err(error) = ledger.maintain_tables().await {
            tracing::debug!("the tables could not be tended: {error:?}");
        }
        tokio::select! {
            () = tokio::time::sleep(upkeep::MAINTENANCE_INTERVAL) => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
    }
}

/// Converts the result of a call that needs no durability proof: it shows no rows to a caller, or it always commits
/// before it returns rows.
fn into_store_result<T>(answer: TxResult<T>) -> Result<T> {
    Ok(answer?)
}

/// Runs a call that shows rows to a caller, and returns its result once those rows are proven durable.
macro_rules! when_durable {
    ($store:expr, $verb:expr) => {
        $store.shared.when_durable(async { $verb }).await
    };
}
use when_durable;
