//! The server behind the sessions: which history it continues, and whether a synchronous standby is configured.
//!
//! Every new session is identified before it is used. A restore or a failover may lose events that readers have seen.
//! So a new history renews the epoch, which is part of every cursor. A history is new when the system identifier, the
//! timeline or the identity of the table differs from the recorded one. All nodes agree, because they share the row
//! and renew it with compare-and-set.
//!
//! Tables of another identity, or a database of another system, were restored from a dump or moved. The renewal marks
//! that, and the next start of a server stops the installation. A new timeline alone is a failover and stops nothing.
//!
//! Invariant: a session is used only while the node knows no newer server. The pool refuses sessions from before a
//! change, and [`ServerState::change_count`] shows whether a change happened during a call.

use mailonce_core::ports::store::StoreError;
use std::{
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::sync::Mutex;
use tokio_postgres::{
    Client, Row,
    error::SqlState,
    types::{Oid, PgLsn},
};

use crate::postgres::error::{TxError, TxResult};

/// Timeout for identifying a new session. A renewal of the epoch waits for the synchronous standby like any other
/// commit.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the renewal is tried when other nodes win the compare-and-set.
const RENEW_TRIES: u32 = 3;

macro_rules! facts {
    ($system:literal) => {
        concat!(
            "SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
                    current_setting('synchronous_standby_names') <> '', pg_current_wal_flush_lsn(),
                    left(pg_walfile_name(pg_current_wal_flush_lsn()), 8), 'install'::regclass::oid, ",
            $system,
            ", i.epoch, i.history FROM install i"
        )
    };
}
/// The timeline is taken from the current WAL file name, because the control file lags behind after a promotion.
const FACTS: &str = facts!("(SELECT system_identifier FROM pg_control_system())");
/// The same for a role that may not read the control file.
const FACTS_WITHOUT_SYSTEM: &str = facts!("0::bigint");

const PROGRESS: &str = "
    SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
           current_setting('synchronous_standby_names') <> '', pg_current_wal_flush_lsn(), 'install'::regclass::oid";

/// Records a new history, and whether it began with a restore. The epoch is renewed too, unless no history was recorded
/// before. It includes the time in seconds, so that two restores of one backup get different epochs.
const RENEW_EPOCH: &str = "
    UPDATE install
       SET history = $1,
           restored = restored OR $4,
           epoch = CASE WHEN history IS NULL THEN epoch
                        ELSE greatest(epoch + 1, (extract(epoch FROM clock_timestamp())::bigint % 2147483647)::int) END
     WHERE history IS NOT DISTINCT FROM $2 AND epoch = $3";

/// What a session reports about its server.
#[derive(Clone, Debug)]
struct ServerFacts {
    /// When the server process started, in microseconds. Identifies one run of one server.
    started: i64,
    has_standby: bool,
    flushed: u64,
    timeline: u32,
    table: Oid,
    /// The system identifier. 0 when the role may not read it.
    system: i64,
    epoch: i32,
    /// The history that the recorded epoch belongs to.
    recorded_history: Option<String>,
}

impl ServerFacts {
    fn read(row: &Row) -> TxResult<Self> {
        let timeline: &str = row.try_get(3)?;
        Ok(Self {
            started: row.try_get(0)?,
            has_standby: row.try_get(1)?,
            flushed: row.try_get::<_, PgLsn>(2)?.into(),
            timeline: u32::from_str_radix(timeline, 16).map_err(|_malformed| TxError::corrupt("the timeline"))?,
            table: row.try_get(4)?,
            system: row.try_get(5)?,
            epoch: row.try_get(6)?,
            recorded_history: row.try_get(7)?,
        })
    }

    /// Identifies the history that this server continues.
    fn history(&self) -> String {
        format!("{}/{}/{}", self.system, self.timeline, self.table)
    }

    /// The ledger behind this session.
    fn ledger(&self) -> LedgerIdentity {
        LedgerIdentity { system: self.system, table: self.table }
    }

    /// Whether the tables were restored from a dump or moved since their history was recorded. A history that an
    /// operator cleared counts as restored, too.
    fn is_restored(&self) -> bool {
        let recorded = self.recorded_history.as_deref().map(LedgerIdentity::parse);
        recorded.is_some_and(|recorded| recorded.is_none_or(|recorded| recorded.differs_from(self.ledger())))
    }

    /// Whether the recorded epoch does not belong to this server's history.
    fn is_another_history(&self, known: Option<&Self>) -> bool {
        let history = self.history();
        // A restored file-system snapshot keeps its identity, but its WAL ends before the position that we have seen.
        let went_back =
            |known: &Self| known.history() == history && known.epoch == self.epoch && self.flushed < known.flushed;
        self.recorded_history.as_ref() != Some(&history) || known.is_some_and(went_back)
    }
}

/// Which ledger it is. A failover keeps both fields; a restore from a dump changes at least one.
#[derive(Clone, Copy, Debug)]
struct LedgerIdentity {
    /// The system identifier. 0 when the role may not read it.
    system: i64,
    table: Oid,
}

impl LedgerIdentity {
    /// Reads a recorded history, as [`ServerFacts::history`] writes it.
    fn parse(history: &str) -> Option<Self> {
        let mut parts = history.split('/');
        let (system, table) = (parts.next()?, parts.nth(1)?);
        Some(Self { system: system.parse().ok()?, table: table.parse().ok()? })
    }

    /// An unknown system identifier differs from none.
    fn differs_from(self, other: Self) -> bool {
        let is_known = self.system != 0 && other.system != 0;
        self.table != other.table || (is_known && self.system != other.system)
    }
}

/// What a node knows about its server. Shared by all its sessions.
#[derive(Default)]
pub(crate) struct ServerState {
    /// Whether the tables exist, so that sessions can be identified.
    ready: AtomicBool,
    /// The latest facts. The lock is held while a session is identified, so that only one renews the epoch at a time.
    latest_facts: Mutex<Option<ServerFacts>>,
    epoch: AtomicU32,
    has_standby: AtomicBool,
    /// The run of the server that sessions must belong to, by its start time.
    started: AtomicI64,
    change_count: AtomicU64,
    changed_at: RwLock<Option<Instant>>,
}

impl ServerState {
    /// The epoch of the history that sessions read. 0 before the first session was identified.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(SeqCst)
    }

    /// Whether a synchronous standby is configured, so that commits wait for it.
    pub(crate) fn has_standby(&self) -> bool {
        self.has_standby.load(SeqCst)
    }

    /// Re-reads, on a pooled session, the settings that a reload may have changed, and the WAL position. Tables that were
    /// replaced under open sessions make these outdated, so that the next one identifies itself.
    pub(crate) async fn refresh(&self, client: &Client) -> TxResult<()> {
        let row = client.query_one(PROGRESS, &[]).await?;
        let (started, flushed): (i64, u64) = (row.try_get(0)?, row.try_get::<_, PgLsn>(2)?.into());
        let table: Oid = row.try_get(3)?;
        // The lock is taken after the query, because new sessions need it.
        let mut known = self.latest_facts.lock().await;
        if let Some(known) = known.as_mut().filter(|known| known.started == started) {
            self.has_standby.store(row.try_get(1)?, SeqCst);
            known.flushed = known.flushed.max(flushed);
            if known.table != table {
                self.outdate_sessions(Instant::now());
            }
        }
        Ok(())
    }

    /// How often a new session turned out to be on another run of the server, or on another server.
    pub(crate) fn change_count(&self) -> u64 {
        self.change_count.load(SeqCst)
    }

    /// Whether sessions are on this run of the server.
    pub(crate) fn is_current(&self, started: i64) -> bool {
        self.started.load(SeqCst) == started
    }

    /// Refuses sessions that were opened before this time.
    fn outdate_sessions(&self, opened: Instant) {
        *self.changed_at.write().unwrap_or_else(PoisonError::into_inner) = Some(opened);
        // Increment before the new server is recorded: a caller that sees the server also sees the changed count.
        self.change_count.fetch_add(1, SeqCst);
    }

    /// Whether a session opened at this time may be on a previous server.
    pub(crate) fn is_outdated(&self, opened: Instant) -> bool {
        let changed_at = self.changed_at.read().unwrap_or_else(PoisonError::into_inner);
        changed_at.is_some_and(|changed_at| opened < changed_at)
    }

    /// Starts identifying sessions, beginning with this one.
    pub(crate) async fn start_identifying(&self, client: &Client) -> TxResult<()> {
        self.ready.store(true, SeqCst);
        self.identify(client).await
    }

    /// Asks a new session which server it is on, and renews the epoch when that server continues another history.
    pub(crate) async fn identify(&self, client: &Client) -> TxResult<()> {
        if !self.ready.load(SeqCst) {
            return Ok(());
        }
        let asked = tokio::time::timeout(IDENTIFY_TIMEOUT, self.identify_session(client)).await;
        asked.unwrap_or_else(|_late| {
            let why = format!("the database did not say who it is within {} s", IDENTIFY_TIMEOUT.as_secs());
            Err(TxError::Store(StoreError::Unreachable(why)))
        })
    }

    async fn identify_session(&self, client: &Client) -> TxResult<()> {
        let opened = Instant::now();
        let mut known = self.latest_facts.lock().await;
        let mut facts = read_facts(client).await?;
        if let Some(known) = known.as_ref() {
            refuse_restored(known.ledger(), facts.ledger())?;
        }
        if let Some(known) = known.as_ref().filter(|known| known.system == facts.system) {
            refuse_older_timeline(known.timeline, facts.timeline)?;
        }
        for _ in 0..RENEW_TRIES {
            if !facts.is_another_history(known.as_ref()) {
                break;
            }
            let (history, remembered, epoch) = (facts.history(), facts.recorded_history.clone(), facts.epoch);
            let restored = facts.is_restored();
            let renewed = client.execute(RENEW_EPOCH, &[&history, &remembered, &epoch, &restored]).await;
            let renewed = renewed.map_err(|error| TxError::at_commit(&error).into_not_committed())?;
            facts = read_facts(client).await?;
            if renewed > 0 && remembered.is_some() {
                tracing::warn!(
                    history,
                    epoch = facts.epoch,
                    restored,
                    "the database was restored or failed over: readers of events get 410 cursor_reset"
                );
                // The known WAL position belongs to the previous history.
                *known = None;
            }
        }
        if facts.recorded_history.as_ref() != Some(&facts.history()) {
            return Err(TxError::Store(StoreError::Unreachable("the epoch could not be renewed".into())));
        }
        self.has_standby.store(facts.has_standby, SeqCst);
        self.epoch.store(facts.epoch as u32, SeqCst);
        let before = self.started.load(SeqCst);
        if before != 0 && before != facts.started {
            self.outdate_sessions(opened);
        }
        self.started.store(facts.started, SeqCst);
        *known = Some(facts);
        Ok(())
    }
}

/// A server on an older timeline was the primary before a failover and may lack commits acknowledged since.
fn refuse_older_timeline(known: u32, found: u32) -> TxResult<()> {
    if found >= known {
        return Ok(());
    }
    let why = format!(
        "the database is on timeline {found}, and this node has seen timeline {known}: it is a primary from before a \
         failover. Restart this node if it was restored on purpose"
    );
    Err(TxError::Store(StoreError::Unreachable(why)))
}

/// A database that was restored under a running node may hold email that this node has handed on since. Only a start
/// stops the installation before anything leaves.
fn refuse_restored(known: LedgerIdentity, found: LedgerIdentity) -> TxResult<()> {
    if !found.differs_from(known) {
        return Ok(());
    }
    let why = "the tables were restored or moved while this node ran: restart this node, which stops the installation \
               until `mailonce resume`";
    Err(TxError::Store(StoreError::Unreachable(why.into())))
}

async fn read_facts(client: &Client) -> TxResult<ServerFacts> {
    let row = match client.query_one(FACTS, &[]).await {
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            client.query_one(FACTS_WITHOUT_SYSTEM, &[]).await
        }
        other => other,
    };
    ServerFacts::read(&row?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ServerFacts {
        let facts = ServerFacts {
            started: 1,
            has_standby: false,
            flushed: 100,
            timeline: 2,
            table: 3,
            system: 4,
            epoch: 5,
            recorded_history: None,
        };
        ServerFacts { recorded_history: Some(facts.history()), ..facts }
    }

    #[test]
    fn another_timeline_system_or_table_is_another_history() {
        let known = facts();
        assert!(!facts().is_another_history(None));
        assert!(!ServerFacts { flushed: 101, ..facts() }.is_another_history(Some(&known)));
        for other in [
            ServerFacts { timeline: 3, ..facts() },
            ServerFacts { system: 5, ..facts() },
            ServerFacts { table: 9, ..facts() },
            ServerFacts { recorded_history: None, ..facts() },
        ] {
            assert!(other.is_another_history(None), "{other:?}");
        }
    }

    #[test]
    fn a_log_that_went_back_is_another_history_until_somebody_renewed_the_epoch() {
        let known = facts();
        assert!(ServerFacts { flushed: 99, ..facts() }.is_another_history(Some(&known)));
        assert!(!ServerFacts { flushed: 99, epoch: 6, ..facts() }.is_another_history(Some(&known)));
    }

    #[test]
    fn other_tables_or_another_system_are_a_restore_and_a_failover_is_none() {
        let is_restored =
            |found: ServerFacts| ServerFacts { recorded_history: facts().recorded_history, ..found }.is_restored();
        assert!(is_restored(ServerFacts { table: 9, ..facts() }));
        assert!(is_restored(ServerFacts { system: 5, ..facts() }));
        assert!(!is_restored(facts()));
        assert!(!is_restored(ServerFacts { timeline: 3, ..facts() }), "a failover");
        assert!(!is_restored(ServerFacts { system: 0, ..facts() }), "the role may not read the control file");
        assert!(!ServerFacts { recorded_history: None, ..facts() }.is_restored(), "the first start");
        assert!(ServerFacts { recorded_history: Some(String::new()), ..facts() }.is_restored(), "cleared by hand");
    }

    #[test]
    fn a_running_node_refuses_a_restored_database() {
        let other = ServerFacts { table: 9, ..facts() };
        assert!(refuse_restored(facts().ledger(), other.ledger()).is_err());
        let promoted = ServerFacts { timeline: 3, ..facts() };
        assert!(refuse_restored(facts().ledger(), promoted.ledger()).is_ok());
    }

    #[test]
    fn a_primary_from_before_a_failover_is_refused() {
        assert!(refuse_older_timeline(2, 1).is_err());
        assert!(refuse_older_timeline(2, 2).is_ok() && refuse_older_timeline(2, 3).is_ok());
    }
}
