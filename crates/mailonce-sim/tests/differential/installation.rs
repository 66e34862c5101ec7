//! An installation: a store, its next hops, and one node, or two on PostgreSQL.

use mailonce_core::ports::{store::Store, transport::Transport};
use mailonce_sim::{
    harness::{child_processes::sleep, replicated_postgres::ReplicatedPostgres, server_fixture::wait_until},
    sink::{
        http::{self, HttpSink},
        smtp::{self, SmtpAction, SmtpSink, SmtpStep},
    },
};
use mailonce_store::{
    memory::Memory,
    postgres::{Options, Postgres},
    sqlite::Sqlite,
};
use mailonce_transport::{
    http::{HttpTransportConfig, Secret, resend},
    smtp::{RelayConfig, SmtpTransport, TlsMode},
};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::{
    clock::{OffsetClock, TrueTime},
    node::DifferentialNode,
    plan::DatabaseFault,
    readers::CursorReader,
};

const SECRET: [u8; 32] = [7; 32];
const HTTP_TIMEOUT: Duration = Duration::from_secs(2);

enum InstallationStorage {
    Memory,
    Sqlite(TempDir),
    Postgres(Arc<Mutex<ReplicatedPostgres>>),
}

/// How the nodes of an installation are started.
#[derive(Clone, Debug)]
pub(crate) struct InstallationConfig {
    /// Whether each node has the transport `keyed`, which a provider with idempotency keys serves.
    pub(crate) keyed: [bool; 2],
    /// How far the second node's clock is off.
    pub(crate) offset_ms: i64,
}

impl InstallationConfig {
    /// Whether some node has `keyed`.
    pub(crate) fn has_keyed(&self) -> bool {
        self.keyed.contains(&true)
    }
}

pub(crate) struct Installation {
    pub(crate) nodes: Vec<Arc<DifferentialNode>>,
    pub(crate) readers: Vec<CursorReader>,
    /// Takes mail, and refuses or defers recipients by their name.
    pub(crate) relay: SmtpSink,
    /// Takes mail and closes the connection without an answer.
    pub(crate) silent: SmtpSink,
    /// A provider with idempotency keys.
    pub(crate) provider: HttpSink,
    storage: InstallationStorage,
    time: Arc<TrueTime>,
    seed: u64,
}

impl fmt::Display for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.storage {
            InstallationStorage::Memory => "memory",
            InstallationStorage::Sqlite(_) => "SQLite",
            InstallationStorage::Postgres(_) => "PostgreSQL",
        })
    }
}

impl Installation {
    pub(crate) async fn all(time: &Arc<TrueTime>, config: &InstallationConfig, seed: u64) -> [Self; 3] {
        let folder = tempfile::Builder::new().prefix("mailonce-differential").tempdir().unwrap();
        let replicas = tokio::task::block_in_place(ReplicatedPostgres::start).unwrap();
        [
            Self::start(InstallationStorage::Memory, time, config, seed).await,
            Self::start(InstallationStorage::Sqlite(folder), time, config, seed).await,
            Self::start(InstallationStorage::Postgres(Arc::new(Mutex::new(replicas))), time, config, seed).await,
        ]
    }

    async fn start(storage: InstallationStorage, time: &Arc<TrueTime>, config: &InstallationConfig, seed: u64) -> Self {
        let relay = SmtpSink::start(smtp::SmtpSinkConfig::default()).await.unwrap();
        relay.always_at_line(SmtpStep::Rcpt, "refused-", SmtpAction::reply_line("550 5.1.1 no such user"));
        relay.always_at_line(SmtpStep::Rcpt, "deferred-", SmtpAction::reply_line("450 4.2.0 try again later"));
        let silent = SmtpSink::start(smtp::SmtpSinkConfig::default()).await.unwrap();
        silent.always_at(SmtpStep::Dot, SmtpAction::accept_then(SmtpAction::Close));
        let provider = HttpSink::start().await.unwrap();
        let (nodes, readers) = (Vec::new(), Vec::new());
        let mut new = Self { nodes, readers, relay, silent, provider, storage, time: Arc::clone(time), seed };
        for n in 0..new.size() {
            let store = new.open(None).await;
            new.start_node(n, store, config).await;
            new.readers.push(CursorReader::default());
        }
        new
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.storage, InstallationStorage::Postgres(_))
    }

    pub(crate) fn size(&self) -> usize {
        if self.is_postgres() { 2 } else { 1 }
    }

    /// The names of the transports that some node has.
    pub(crate) fn transports(&self) -> BTreeSet<&str> {
        self.nodes.iter().flat_map(|node| &node.transports).map(String::as_str).collect()
    }

    /// A store as a process that starts opens it. Memory stays as it is.
    async fn open(&self, before: Option<Arc<dyn Store>>) -> Arc<dyn Store> {
        match &self.storage {
            InstallationStorage::Memory => before.unwrap_or_else(|| Arc::new(Memory::new(SECRET))),
            InstallationStorage::Sqlite(folder) => {
                // A conversation that just ended may still hold the store.
                wait_until("the data directory", Duration::from_secs(10), || !Sqlite::is_busy(folder.path())).unwrap();
                Arc::new(Sqlite::open(folder.path(), SECRET).unwrap())
            }
            InstallationStorage::Postgres(replicas) => {
                let options = Options { accept_workers: 2, sessions: 6 };
                let url = replicas.lock().unwrap().url();
                let store = Postgres::open_with(&url, SECRET, options).await.unwrap();
                store.read_clock_from(self.time.database_clock());
                Arc::new(store)
            }
        }
    }

    async fn start_node(&mut self, n: usize, store: Arc<dyn Store>, config: &InstallationConfig) {
        // A single node has the transports that the two nodes of PostgreSQL have together.
        let keyed = if self.size() == 1 { config.has_keyed() } else { config.keyed[n] };
        let offset_ms = if n == 0 { 0 } else { config.offset_ms };
        let clock = OffsetClock { time: Arc::clone(&self.time), offset_ms };
        let node = DifferentialNode::start(store, clock, self.transports_of(keyed), self.seed).await;
        self.nodes.insert(n, Arc::new(node));
    }

    fn transports_of(&self, keyed: bool) -> Vec<Arc<dyn Transport>> {
        let smtp = |name: &str, sink: &SmtpSink| -> Arc<dyn Transport> {
            let mut config = RelayConfig::new(name, "127.0.0.1", sink.at.port());
            config.tls = TlsMode::None;
            Arc::new(SmtpTransport::new(config).unwrap())
        };
        let mut transports = vec![smtp("relay", &self.relay), smtp("silent", &self.silent)];
        if keyed {
            let base_url = Some(self.provider.url().to_owned());
            let setting = HttpTransportConfig { base_url, timeout: HTTP_TIMEOUT, ..HttpTransportConfig::new("keyed") };
            transports.push(resend::transport(setting, Secret::new(http::API_KEY)).unwrap());
        }
        transports
    }

    /// Restarts one node after the other with this configuration.
    pub(crate) async fn restart(&mut self, config: &InstallationConfig) {
        for n in 0..self.size() {
            let mut before = Some(self.nodes.remove(n).stop().await);
            if !matches!(self.storage, InstallationStorage::Memory)
                && let Some(store) = before.take()
            {
                store.close().await;
            }
            let store = self.open(before).await;
            self.start_node(n, store, config).await;
        }
    }

    /// Starts what an outage does to the database, to run while calls run. The other installations have none.
    pub(crate) fn begin_fault(&self, fault: DatabaseFault) -> Option<JoinHandle<()>> {
        let InstallationStorage::Postgres(replicas) = &self.storage else { return None };
        let replicas = Arc::clone(replicas);
        Some(tokio::task::spawn_blocking(move || inject_fault(fault, &mut replicas.lock().unwrap()).unwrap()))
    }
}

fn inject_fault(fault: DatabaseFault, replicas: &mut ReplicatedPostgres) -> anyhow::Result<()> {
    match fault {
        DatabaseFault::None => return Ok(()),
        DatabaseFault::StandbyAway => {
            cancel_waits_without_standby(replicas)?;
            return replicas.restart_standby();
        }
        DatabaseFault::Failover => {}
        DatabaseFault::LossyFailover => cancel_waits_without_standby(replicas)?,
    }
    replicas.fail_over()?;
    replicas.rejoin()
}

/// Takes the standby away and ends the wait of commits for it: they are visible, and on one server only.
fn cancel_waits_without_standby(replicas: &mut ReplicatedPostgres) -> anyhow::Result<()> {
    replicas.stop_standby()?;
    for _ in 0..8 {
        sleep(Duration::from_millis(100));
        replicas.cancel_sync_waits()?;
    }
    Ok(())
}
