//! The embedded store: one SQLite file in WAL mode.
//!
//! One writer thread commits all writes in groups. Queries run on separate reader connections. A checkpointer thread
//! copies the WAL into the database file, so that no commit has to.

pub(crate) mod access;
mod backup;
mod control;
mod conversation;
mod events;
mod fresh_keys;
pub(crate) mod handoff;
mod inbound;
pub(crate) mod inbox;
mod install_secret;
pub(crate) mod outbound;
mod rows;
mod schema;
mod upkeep;
mod write_session;
mod writer;

use async_trait::async_trait;
use mailonce_core::{
    access::team::{ApiKey, CreateTeamResult, Team},
    commit_clock::CommitClock,
    control::budget::BudgetCounter,
    events::event::Event,
    handoff::{
        action::HandoffAction,
        lease::{Backlog, HandoffActionResult, LeaseRequest, LeasedHandoff, OrphanBacklog, TransportAccount},
    },
    id::{ApiKeyId, EmailId, NodeId, TeamId},
    installation::{Gauges, Health, Heartbeat, InstallationInfo, RecoveryCounts, SweepCounts},
    key::{InstallSecret, KeyHash},
    limits,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        accept_decision::AcceptDecision,
        email::Email,
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
        email_query::{EmailDetail, EmailQuery, ResultPage},
        key_binding::{KeyBinding, KeyChangeResult, KeyView},
        suppressed_call::SuppressedCalls,
    },
    ports::{
        secret_keeper::SecretKeeper,
        store::{HookCoverage, Result, Store, StoreError, StoreHooks},
    },
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind, RecordPage},
    time::Time,
    ttl::Ttl,
};
use rusqlite::Connection;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::{
    sqlite::{
        control::records::RecordScope,
        fresh_keys::FreshKeys,
        outbound::accept::{BatchDecision, PreparedEmail},
    },
    transport_registry::TransportRegistry,
};
use control::budgets;
use schema::{DirectoryLock, store_error};
use write_session::{SharedTeamNumbers, Subscribers, WalState, WriteSession};
use writer::{Priority, Writer};

pub use backup::BackupContents;
pub use schema::SCHEMA_VERSION;

/// Maximum number of concurrent readers.
const MAX_READERS: usize = 4;
/// Rows written before the WAL is checkpointed, and the pause between two checks of that number.
const ROWS_PER_CHECKPOINT: u64 = 20_000;
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(100);
/// How often a heartbeat saves the current time in the database.
const SAVE_TIME_INTERVAL_MS: i64 = 60_000;
/// Pause between two counts of the `keys` table: this minimum, or this multiple of the last count's duration if longer.
const KEY_COUNT_MIN_PAUSE: Duration = Duration::from_mins(1);
const KEY_COUNT_PAUSE_FACTOR: u32 = 500;

/// The SQLite store.
pub struct Sqlite {
    path: PathBuf,
    secret: InstallSecret,
    writer: Arc<Writer>,
    teams: SharedTeamNumbers,
    subscribers: Arc<Subscribers>,
    idle_readers: Mutex<Vec<Connection>>,
    reader_permits: Semaphore,
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
        let checkpointer = schema::open_checkpointer(&path)?;
        let writer = Writer::new();
        let (tell, told) = std::sync::mpsc::channel();
        let closing = Arc::new(AtomicBool::new(false));
        let store = Self {
            path,
            secret,
            writer: Arc::clone(&writer),
            teams,
            subscribers: listeners,
            idle_readers: Mutex::default(),
            reader_permits: Semaphore::new(MAX_READERS),
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
        let counter = schema::open_reader(&store.path)?;
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
        look: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _turn =
            self.reader_permits.acquire().await.map_err(|_closed| schema::unreachable_error("the ledger is closed"))?;
        let idle = self.idle_readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let path = self.path.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let conn = idle.map_or_else(|| schema::open_reader(&path), Ok)?;
            let answer = look(&conn);
            Ok::<_, StoreError>((conn, answer))
        });
        let (conn, answer) = looked.await.map_err(|e| StoreError::Unreachable(format!("a reader ended: {e}")))??;
        self.idle_readers.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
        answer
    }

    /// Expired delivery keys among the next `SCAN_ROWS` keys. A reader scans the table piece by piece and starts over
    /// at its end. This avoids an index on the expiry time, which every received mail would have to update.
    async fn expired_delivery_keys(&self, now: Time) -> Result<Vec<crate::sqlite::inbound::sweep::DeliveryKeyRef>> {
        let from = self.delivery_key_cursor.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (expired, last) =
            self.run_query(move |conn| crate::sqlite::inbound::sweep::expired_keys(conn, from.as_ref(), now)).await?;
        *self.delivery_key_cursor.lock().unwrap_or_else(PoisonError::into_inner) = last;
        Ok(expired)
    }

    fn transport_registry(&self) -> TransportRegistry {
        self.transport_registry.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn team_number(&self, team: TeamId) -> Option<i64> {
        self.teams.read().unwrap_or_else(PoisonError::into_inner).number(team)
    }
}

/// The checkpointer thread: checkpoints the WAL after every `ROWS_PER_CHECKPOINT` rows, and once when writes pause.
fn run_checkpointer(conn: &Connection, writer: &Writer, log: &WalState, closing: &AtomicBool) {
    let (mut moved, mut seen) = (0, 0);
    while !closing.load(Ordering::Relaxed) {
        std::thread::park_timeout(CHECKPOINT_PAUSE);
        let written = log.rows_written.load(Ordering::Relaxed);
        let quiet = written == seen;
        seen = written;
        if written - moved < ROWS_PER_CHECKPOINT && !(quiet && written > moved) {
            continue;
        }
        moved = written;
        match conn
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
        {
            Ok((frames, done)) => log.has_leftover_frames.store(done < frames || !quiet, Ordering::Relaxed),
            Err(error) => match store_error(error) {
                error @ StoreError::Corrupt(_) => return writer.fail(error),
                error => tracing::warn!(%error, "moving the log into the file"),
            },
        }
    }
}

/// The key counter thread: counts the rows of the `keys` table. It does so rarely, because a count scans the whole
/// table. Between two counts the writer updates the number.
fn run_key_counter(conn: &Connection, fresh: &FreshKeys, closing: &AtomicBool) {
    while !closing.load(Ordering::Relaxed) {
        let began = Instant::now();
        if let Ok(count) = conn.query_row("SELECT COUNT(*) FROM keys", [], |row| row.get::<_, i64>(0)) {
            fresh.in_tree.store(count as u64, Ordering::Relaxed);
        }
        std::thread::park_timeout(KEY_COUNT_MIN_PAUSE.max(began.elapsed() * KEY_COUNT_PAUSE_FACTOR));
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        // Boxed, because it moves to the writer thread and back.
        let mut prepared = Box::new(PreparedEmail::new(new_email, now)?);
        let verb = move |ledger: &mut WriteSession<'_>| {
            let said = crate::sqlite::outbound::accept::accept(ledger, &mut prepared, now)?;
            Ok((prepared, said))
        };
        let tell = |(prepared, said): &(Box<PreparedEmail>, AcceptDecision), ledger: &WriteSession<'_>| {
            prepared.accepted_email(said).into_iter().for_each(|email| ledger.notify_email_changed(email));
        };
        let (prepared, said) = self.writer.run(Priority::Accept, verb, tell).await?;
        Ok(prepared.into_accept(said))
    }

    async fn accept_batch(&self, batch: NewBatch, now: Time) -> Result<BatchAcceptResult> {
        let strict = batch.strict;
        let mut items =
            batch.items.into_iter().map(|new_email| PreparedEmail::new(new_email, now)).collect::<Result<Vec<_>>>()?;
        let operation = batch.operation;
        let verb = move |ledger: &mut WriteSession<'_>| {
            let said =
                crate::sqlite::outbound::accept::accept_batch(ledger, operation.as_ref(), &mut items, strict, now)?;
            Ok((items, said))
        };
        let tell = |(items, said): &(Vec<PreparedEmail>, BatchDecision), ledger: &WriteSession<'_>| {
            if let BatchDecision::Items(said) = said {
                items
                    .iter()
                    .zip(said)
                    .filter_map(|(item, said)| item.accepted_email(said))
                    .for_each(|email| ledger.notify_email_changed(email));
            }
        };
        Ok(match self.writer.run(Priority::Accept, verb, tell).await? {
            (items, BatchDecision::Items(said)) => BatchAcceptResult::Items(
                items.into_iter().zip(said).map(|(item, said)| item.into_accept(said)).collect(),
            ),
            (_, BatchDecision::Refused(refusal)) => refusal,
        })
    }

    async fn key_binding(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyBinding>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let (fresh, time) = (Arc::clone(&self.fresh_keys), Arc::clone(&self.time));
        let look =
            move |conn: &Connection| match crate::sqlite::outbound::accept::read_key_row(conn, &fresh, number, key)? {
                Some(row) => {
                    crate::sqlite::outbound::accept::binding_of_row(conn, team, number, &row, time.expiry_cutoff(now))
                }
                None => Ok(None),
            };
        self.run_query(look).await
    }

    async fn bind_operation(&self, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>> {
        self.run_write(move |ledger| crate::sqlite::outbound::accept::bind_operation_once(ledger, &operation, now))
            .await
    }

    async fn cancel(
        &self,
        team: TeamId,
        id: EmailId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailChangeResult>> {
        self.run_write(move |ledger| {
            crate::sqlite::outbound::email_commands::cancel(ledger, team, id, operation.as_ref(), now)
        })
        .await
    }

    async fn reschedule(
        &self,
        team: TeamId,
        id: EmailId,
        new: RescheduleRequest,
        now: Time,
    ) -> Result<EmailChangeResult> {
        self.run_write(move |ledger| crate::sqlite::outbound::email_commands::reschedule(ledger, team, id, &new, now))
            .await
    }

    async fn resend(
        &self,
        new_email: NewEmail,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailResendResult>> {
        self.run_write(move |ledger| {
            crate::sqlite::outbound::accept::resend(ledger, new_email, operation.as_ref(), now)
        })
        .await
    }

    async fn capture(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> Result<usize> {
        let transport = transport.to_owned();
        self.run_write(move |ledger| {
            crate::sqlite::outbound::email_commands::capture(ledger, &transport, max, scheduled_by, now)
        })
        .await
    }

    async fn next_handoff_due(&self, transport: &str) -> Result<Option<Time>> {
        let transport = transport.to_owned();
        self.run_query(move |conn| crate::sqlite::outbound::email_commands::next_handoff_due(conn, &transport)).await
    }

    async fn lease_handoffs(&self, request: LeaseRequest, now: Time) -> Result<Vec<LeasedHandoff>> {
        let request = Arc::new(request);
        let wanted = Arc::clone(&request);
        let places =
            self.run_query(move |conn| crate::sqlite::handoff::handoffs::due_candidates(conn, &wanted, now)).await?;
        if places.is_empty() {
            return Ok(Vec::new());
        }
        self.run_write(move |ledger| crate::sqlite::handoff::handoffs::lease(ledger, &places, &request, now)).await
    }

    async fn leased_handoff(&self, team: TeamId, id: EmailId, number: u16) -> Result<Option<LeasedHandoff>> {
        let Some(row) = self.team_number(team) else { return Ok(None) };
        let look = move |conn: &Connection| match rows::email_by_id(conn, team, row, id)? {
            Some(email) => crate::sqlite::handoff::handoffs::with_bytes(conn, email, number).map(Some),
            None => Ok(None),
        };
        self.run_query(look).await
    }

    async fn apply_action(
        &self,
        team: TeamId,
        id: EmailId,
        act: HandoffAction,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<HandoffActionResult>> {
        self.run_write(move |ledger| {
            crate::sqlite::handoff::handoffs::apply_action(ledger, (team, id), &act, operation.as_ref(), now)
        })
        .await
    }

    async fn due_unknown_handoffs(
        &self,
        mine: &[TransportAccount],
        max: usize,
        now: Time,
    ) -> Result<Vec<(Email, u16)>> {
        let teams = Arc::clone(&self.teams);
        let team_id = move |number| teams.read().unwrap_or_else(PoisonError::into_inner).id(number);
        let (published, mine) = (self.transport_registry(), mine.to_vec());
        let may_decide = move |place: (&str, Option<&str>)| published.may_resolve(&mine, place, now);
        self.run_query(move |conn| crate::sqlite::handoff::handoffs::due_unknown(conn, team_id, may_decide, (max, now)))
            .await
    }

    async fn publish_transports(&self, node: NodeId, mine: &[TransportAccount], now: Time) -> Result<()> {
        self.transport_registry.lock().unwrap_or_else(PoisonError::into_inner).publish(node, mine, now);
        Ok(())
    }

    async fn orphan_backlogs(&self, known: &[String], now: Time) -> Result<Vec<OrphanBacklog>> {
        let (published, known) = (self.transport_registry(), known.to_vec());
        let claimed = move |name: &str| known.iter().any(|known| known == name) || published.is_live(name, now);
        self.run_query(move |conn| crate::sqlite::handoff::handoffs::orphan_backlogs(conn, claimed)).await
    }

    async fn emails_open_at_transport(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Result<Vec<(TeamId, EmailId)>> {
        let transport = transport.to_owned();
        self.run_query(move |conn| {
            crate::sqlite::handoff::handoffs::emails_open_at_transport(conn, &transport, after, limit)
        })
        .await
    }

    async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
        let latest = {
            let mut nodes = self.node_heartbeats.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.insert(node, now);
            nodes.values().max().copied().unwrap_or(now)
        };
        let kept = self.seen_at.load(Ordering::Relaxed);
        if now.0 - kept < SAVE_TIME_INTERVAL_MS {
            return Ok(Heartbeat { latest_time: latest, database_clock: None });
        }
        self.seen_at.store(now.0, Ordering::Relaxed);
        self.run_write(move |ledger| ledger.execute("UPDATE install SET seen_at = ?1", [now.0]).map(drop)).await?;
        Ok(Heartbeat { latest_time: latest, database_clock: None })
    }

    async fn recover_dead_nodes(&self, node: NodeId, max: usize, now: Time) -> Result<RecoveryCounts> {
        // This process holds the only lock on the file. A node without a heartbeat here belonged to an earlier process.
        let nodes = self.node_heartbeats.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let alive = move |holder| {
            holder == node || nodes.get(&holder).is_some_and(|seen| now.since(*seen) < limits::HEARTBEAT_TIMEOUT_MS)
        };
        let verb = move |ledger: &mut WriteSession<'_>| {
            let recovered = crate::sqlite::handoff::handoffs::recover_dead_nodes(ledger, &alive, max, now)?;
            let deliveries = crate::sqlite::inbound::deliveries::reclaim(ledger, &alive, max, now)?;
            Ok(RecoveryCounts {
                deliveries,
                notices: crate::sqlite::events::notices::reclaim(ledger, alive, max, now)?,
                ..recovered
            })
        };
        self.run_write(verb).await
    }

    async fn handoff_by_remote_id(&self, team: TeamId, remote_id: &str) -> Result<Option<(EmailId, u16)>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let remote_id = remote_id.to_owned();
        self.run_query(move |conn| crate::sqlite::handoff::handoffs::handoff_by_remote_id(conn, number, &remote_id))
            .await
    }

    async fn backlog(&self) -> Result<Backlog> {
        self.run_query(crate::sqlite::handoff::handoffs::backlog).await
    }

    async fn record_suppressed_calls(&self, calls: Vec<SuppressedCalls>, now: Time) -> Result<()> {
        self.run_write(move |ledger| {
            crate::sqlite::outbound::email_commands::record_suppressed_calls(ledger, calls, now)
        })
        .await
    }

    async fn email(&self, team: TeamId, id: EmailId) -> Result<Option<Email>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| rows::email_by_id(conn, team, number, id)).await
    }

    async fn email_detail(&self, team: TeamId, id: EmailId) -> Result<Option<EmailDetail>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| crate::sqlite::outbound::queries::detail(conn, team, number, id)).await
    }

    async fn emails(&self, team: TeamId, query: EmailQuery) -> Result<ResultPage<Email>> {
        let Some(number) = self.team_number(team) else { return Ok(ResultPage { rows: Vec::new(), next: None }) };
        let fresh = Arc::clone(&self.fresh_keys);
        self.run_query(move |conn| crate::sqlite::outbound::queries::list_emails(conn, &fresh, (team, number), &query))
            .await
    }

    async fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<u64> {
        let Some(number) = self.team_number(team) else { return Ok(0) };
        self.run_query(move |conn| crate::sqlite::outbound::queries::count_emails(conn, number, from, to)).await
    }

    async fn held_or_unknown_emails(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        self.run_query(move |conn| crate::sqlite::outbound::queries::held_or_unknown_emails(conn, after, limit)).await
    }

    async fn events(&self, team: TeamId, after: u64, limit: usize) -> Result<Vec<Event>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| crate::sqlite::events::event_log::events_after(conn, number, after, limit)).await
    }

    async fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyView>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let (fresh, forget_by) = (Arc::clone(&self.fresh_keys), self.time.expiry_cutoff(now));
        self.run_query(move |conn| {
            crate::sqlite::outbound::queries::key_view(conn, &fresh, (team, number), key, forget_by)
        })
        .await
    }

    async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Result<KeyChangeResult> {
        self.run_write(move |ledger| crate::sqlite::outbound::email_commands::extend_key(ledger, team, key, ttl, now))
            .await
    }

    async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<KeyChangeResult> {
        self.run_write(move |ledger| crate::sqlite::outbound::email_commands::forget_key(ledger, team, key, now)).await
    }

    async fn create_team(
        &self,
        team: Team,
        key: ApiKey,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTeamResult>> {
        let id = team.id;
        let verb = move |ledger: &mut WriteSession<'_>| {
            crate::sqlite::access::teams::create_team(ledger, &team, &key, operation.as_ref())
        };
        // Publish the team's number to readers only after the commit.
        let learn = move |answer: &IdempotentResult<Option<i64>>, ledger: &WriteSession<'_>| {
            if let IdempotentResult::Done(Some(number)) = answer {
                ledger.teams.write().unwrap_or_else(PoisonError::into_inner).add(id, *number);
            }
        };
        let made = self.writer.run(Priority::Other, verb, learn).await?;
        Ok(made.map(|number| number.map_or(CreateTeamResult::NameTaken, |_number| CreateTeamResult::Created)))
    }

    async fn teams(&self) -> Result<Vec<Team>> {
        self.run_query(crate::sqlite::access::teams::teams).await
    }

    async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Option<Team>> {
        self.run_write(move |ledger| crate::sqlite::access::teams::set_require_keys(ledger, team, require)).await
    }

    async fn create_api_key(&self, key: ApiKey, operation: Option<KeyedOperation>) -> Result<IdempotentResult<()>> {
        self.run_write(move |ledger| crate::sqlite::access::teams::create_api_key(ledger, &key, operation.as_ref()))
            .await
    }

    async fn api_keys(&self, team: TeamId) -> Result<Vec<ApiKey>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| crate::sqlite::access::teams::api_keys(conn, team, number)).await
    }

    async fn api_key_by_hash(&self, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>> {
        self.run_query(move |conn| crate::sqlite::access::teams::api_key_by_hash(conn, hash)).await
    }

    async fn revoke_api_key(&self, team: TeamId, id: ApiKeyId, now: Time) -> Result<Option<ApiKey>> {
        self.run_write(move |ledger| crate::sqlite::access::teams::revoke_api_key(ledger, team, id, now)).await
    }

    async fn touch_api_keys(&self, used: Vec<(ApiKeyId, Time)>) -> Result<()> {
        self.run_write(move |ledger| crate::sqlite::access::teams::touch_api_keys(ledger, &used)).await
    }

    async fn create_record(
        &self,
        record: Record,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateRecordResult>> {
        self.run_write(move |ledger| crate::sqlite::control::records::create(ledger, &record, operation.as_ref())).await
    }

    async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| RecordScope { team, number, kind }.by_id(conn, id)).await
    }

    async fn record_by_name(&self, team: TeamId, kind: RecordKind, name: &str) -> Result<Option<Record>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let name = name.to_owned();
        self.run_query(move |conn| RecordScope { team, number, kind }.by_name(conn, &name)).await
    }

    async fn record_of_any_team(&self, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        self.run_query(move |conn| crate::sqlite::control::records::by_id_any_team(conn, kind, id)).await
    }

    async fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> Result<RecordPage> {
        let Some(number) = self.team_number(team) else { return Ok(RecordPage { rows: Vec::new(), next: None }) };
        self.run_query(move |conn| RecordScope { team, number, kind }.list(conn, before, limit)).await
    }

    async fn change_record(
        &self,
        edit: RecordEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<RecordChangeResult>> {
        self.run_write(move |ledger| crate::sqlite::control::records::change(ledger, edit, operation.as_ref(), now))
            .await
    }

    async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        self.run_write(move |ledger| crate::sqlite::control::records::remove(ledger, team, kind, id)).await
    }

    async fn budget_usage(&self, team: TeamId, counters: Vec<BudgetCounter>) -> Result<Vec<u64>> {
        let Some(number) = self.team_number(team) else { return Ok(vec![0; counters.len()]) };
        self.run_query(move |conn| counters.iter().map(|counter| budgets::used(conn, number, *counter)).collect()).await
    }

    async fn installation(&self) -> Result<InstallationInfo> {
        let secret = self.secret.clone();
        self.run_query(|conn| {
            let sql = "SELECT epoch, MAX(last_id, (SELECT COALESCE(MAX(email), 0) FROM emails)), seen_at \
                 FROM install";
            let install = conn.query_row(sql, [], |row| {
                Ok(InstallationInfo {
                    secret,
                    epoch: row.get(0)?,
                    last_id: row.get(1)?,
                    last_heartbeat_at: row.get::<_, Option<i64>>(2)?.map(Time),
                    database_clock: None,
                })
            });
            install.map_err(store_error)
        })
        .await
    }

    async fn sweep(&self, max: usize, now: Time) -> Result<SweepCounts> {
        let expired = self.expired_delivery_keys(now).await?;
        let verb = move |ledger: &mut WriteSession<'_>| {
            let swept = upkeep::sweep(ledger, max, now)?;
            let deliveries = crate::sqlite::inbound::sweep::sweep(ledger, &expired, max, now)?;
            Ok(SweepCounts { deliveries, notices: crate::sqlite::events::notices::sweep(ledger, max, now)?, ..swept })
        };
        self.run_write(verb).await
    }

    async fn health(&self) -> Result<Health> {
        self.run_write(|_| Ok(())).await?;
        Ok(Health { engine: "sqlite", degraded: false, notes: vec!["journal_mode=wal synchronous=full".into()] })
    }

    fn fatal_error(&self) -> Option<StoreError> {
        self.writer.failure()
    }

    fn gauges(&self) -> Gauges {
        Gauges { keys: self.fresh_keys.count(), ..self.writer.gauges() }
    }

    fn attach(&self, hooks: StoreHooks) -> HookCoverage {
        hooks.clock.into_iter().for_each(|clock| self.time.set_clock(clock));
        self.subscribers.emails.write().unwrap_or_else(PoisonError::into_inner).extend(hooks.emails);
        self.subscribers.inbound.write().unwrap_or_else(PoisonError::into_inner).extend(hooks.inbound);
        self.subscribers.events.write().unwrap_or_else(PoisonError::into_inner).extend(hooks.events);
        HookCoverage { emails: true, inbound: true, events: true }
    }

    async fn close(&self) {
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
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        self.writer.close();
    }
}
