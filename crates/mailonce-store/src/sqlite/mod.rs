//! The embedded engine: one SQLite file, one writer thread that commits in groups, readers on connections of their
//! own, and a thread that moves the log into the file so that no commit has to.

mod accept;
mod answer;
mod arrivals;
mod artifact;
mod change;
mod clear;
mod control;
mod conversation;
mod copy;
mod delivery;
mod endpoint;
mod events;
mod file;
mod fresh;
mod handoff;
mod inbox;
mod install_secret;
mod ledger;
mod likeness;
mod look;
mod message;
mod notice;
mod notices;
mod offer;
mod receive;
mod record;
mod rows;
mod schema;
mod spread;
mod team;
mod thread;
mod upkeep;
mod watch;
mod writer;

use async_trait::async_trait;
use mailonce_core::{
    control::budget::Counter,
    dispatch::Act,
    email::Email,
    event::Event,
    id::{ApiKeyId, EmailId, NodeId, TeamId},
    key::{InstallSecret, KeyHash},
    limits,
    port::install_secret::SecretKeeper,
    port::store::{
        Accept, AcceptBatch, Acted, Backlog, BatchWish, Bound, Change, CommitTime, EmailDetail, EmailQuery,
        EventHearer, Founded, Gauges, Health, Heartbeat, Install, Keeper, KeyChange, KeyView, LeaseWish, Leased,
        NewDue, Once, Operation, Orphans, Page, Recovered, Resend, Result, Store, StoreError, Suppressed, Swept,
        TransportAccount, Watcher, Wish,
    },
    record::{Created, Record, RecordChange, RecordEdit, RecordKind, RecordPage},
    team::{ApiKey, Team},
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

use accept::{Prepared, Said, SaidBatch};
use control::budget;
use fresh::FreshKeys;
use ledger::{Ledger, Listeners, Log, TeamNumbers};
use record::Shelf;
use schema::{DirectoryLock, told};
use writer::{Turn, Writer};

use crate::published::Published;

pub use copy::Contents;
pub use schema::SCHEMA;

/// Readers at a time.
const READERS: usize = 4;
/// Rows after which the log is moved into the file, and the pause between two looks.
const ROWS_PER_CHECKPOINT: u64 = 20_000;
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(100);
/// How often the time is written down.
const SEEN_EVERY_MS: i64 = 60_000;
/// Pause between two counts of the keys: at least this, and this many times as long as a count took.
const COUNT_PAUSE: Duration = Duration::from_mins(1);
const COUNT_SHARE: u32 = 500;

/// The embedded engine.
pub struct Sqlite {
    path: PathBuf,
    secret: InstallSecret,
    writer: Arc<Writer>,
    teams: TeamNumbers,
    listeners: Arc<Listeners>,
    readers: Mutex<Vec<Connection>>,
    reading: Semaphore,
    threads: Mutex<Vec<JoinHandle<()>>>,
    closing: Arc<AtomicBool>,
    /// When each process of this one was last heard of: engines of a test, as a rule one.
    nodes: Mutex<HashMap<NodeId, Time>>,
    /// Which transports this process has, under each of its names.
    published: Mutex<Published>,
    /// The time that was last written down.
    seen_at: AtomicI64,
    time: Arc<CommitTime>,
    /// Keys that do not lie in their tree yet, and how many do.
    fresh: Arc<FreshKeys>,
    /// The last key of a delivery that a sweep has looked at.
    swept_key: Mutex<Option<clear::KeyPlace>>,
    _lock: DirectoryLock,
}

impl Sqlite {
    /// Opens the ledger in a data directory, making both when they do not exist. Refuses a directory that another
    /// process holds, a newer schema, and settings that are not durable.
    pub fn open(directory: &Path, keeper: impl SecretKeeper) -> Result<Self> {
        let lock = DirectoryLock::take(directory)?;
        let path = directory.join("ledger.db");
        let (conn, secret) = schema::open_writer(&path, &keeper)?;
        let teams: TeamNumbers = Arc::default();
        for (id, number) in team::numbers(&conn)? {
            teams.write().unwrap_or_else(PoisonError::into_inner).add(id, number);
        }
        let listeners: Arc<Listeners> = Arc::default();
        let log: Arc<Log> = Arc::default();
        let checkpointer = schema::open_checkpointer(&path)?;
        let writer = Writer::new();
        let (tell, told) = std::sync::mpsc::channel();
        let closing = Arc::new(AtomicBool::new(false));
        let store = Self {
            path,
            secret,
            writer: Arc::clone(&writer),
            teams,
            listeners,
            readers: Mutex::default(),
            reading: Semaphore::new(READERS),
            threads: Mutex::default(),
            closing: Arc::clone(&closing),
            nodes: Mutex::default(),
            published: Mutex::default(),
            seen_at: AtomicI64::new(0),
            time: Arc::default(),
            fresh: Arc::default(),
            swept_key: Mutex::default(),
            _lock: lock,
        };
        store.start("ledger-writer", {
            let (writer, teams, listeners) =
                (Arc::clone(&writer), Arc::clone(&store.teams), Arc::clone(&store.listeners));
            let (fresh, log, time) = (Arc::clone(&store.fresh), Arc::clone(&log), Arc::clone(&store.time));
            // The ledger borrows the connection for its prepared statements, so both live on the thread.
            move || match Ledger::new(&conn, fresh, teams, listeners, log, time) {
                Ok(ledger) => {
                    drop(tell.send(Ok(())));
                    writer.work(ledger);
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        })?;
        told.recv().map_err(|_ended| schema::unreachable("the writer ended at its start"))??;
        store.start("ledger-checkpointer", move || checkpoint(&checkpointer, &writer, &log, &closing))?;
        let counter = schema::open_reader(&store.path)?;
        store.start("ledger-counter", {
            let (fresh, closing) = (Arc::clone(&store.fresh), Arc::clone(&store.closing));
            move || count_keys(&counter, &fresh, &closing)
        })?;
        Ok(store)
    }

    /// Whether another process holds the data directory.
    pub fn is_busy(directory: &Path) -> bool {
        directory.exists() && DirectoryLock::take(directory).is_err()
    }

    /// The schema of the ledger in a data directory, without changing it. `None` when there is none yet.
    pub fn schema_of(directory: &Path) -> Result<Option<i64>> {
        let path = directory.join("ledger.db");
        if !path.exists() {
            return Ok(None);
        }
        schema::version(&schema::open_reader(&path)?).map(Some)
    }

    /// What is wrong with the ledger in a data directory that nobody uses. Reading it may move its log into the file.
    pub fn faults_of(directory: &Path) -> Result<Vec<String>> {
        let path = directory.join("ledger.db");
        if path.exists() { schema::faults(&path) } else { Ok(Vec::new()) }
    }

    fn start(&self, name: &str, life: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(life);
        let thread = thread.map_err(|e| StoreError::Unreachable(format!("starting a thread: {e}")))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Has a verb other than accept run and committed.
    async fn write<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&mut Ledger<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer.run(Turn::Other, verb, |_, _| {}).await
    }

    /// Runs a reader on a thread that may block.
    async fn look<T: Send + 'static>(&self, look: impl FnOnce(&Connection) -> Result<T> + Send + 'static) -> Result<T> {
        let _turn = self.reading.acquire().await.map_err(|_closed| schema::unreachable("the ledger is closed"))?;
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let path = self.path.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let conn = idle.map_or_else(|| schema::open_reader(&path), Ok)?;
            let answer = look(&conn);
            Ok::<_, StoreError>((conn, answer))
        });
        let (conn, answer) = looked.await.map_err(|e| StoreError::Unreachable(format!("a reader ended: {e}")))??;
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
        answer
    }

    /// Keys of deliveries that are known no longer, among the next ones. Looked for apart from the writer, round and
    /// round, so that arrivals pay for no index.
    async fn expired_keys(&self, now: Time) -> Result<Vec<clear::KeyPlace>> {
        let from = self.swept_key.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (expired, last) = self.look(move |conn| clear::expired_keys(conn, from.as_ref(), now)).await?;
        *self.swept_key.lock().unwrap_or_else(PoisonError::into_inner) = last;
        Ok(expired)
    }

    fn published(&self) -> Published {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn number(&self, team: TeamId) -> Option<i64> {
        self.teams.read().unwrap_or_else(PoisonError::into_inner).number(team)
    }
}

/// Moves the log into the file whenever enough was written, and once more when it has been quiet.
fn checkpoint(conn: &Connection, writer: &Writer, log: &Log, closing: &AtomicBool) {
    let (mut moved, mut seen) = (0, 0);
    while !closing.load(Ordering::Relaxed) {
        std::thread::park_timeout(CHECKPOINT_PAUSE);
        let written = log.rows.load(Ordering::Relaxed);
        let quiet = written == seen;
        seen = written;
        if written - moved < ROWS_PER_CHECKPOINT && !(quiet && written > moved) {
            continue;
        }
        moved = written;
        match conn
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
        {
            Ok((frames, done)) => log.leftovers.store(done < frames || !quiet, Ordering::Relaxed),
            Err(error) => match told(error) {
                error @ StoreError::Corrupt(_) => return writer.give_up(error),
                error => tracing::warn!(%error, "moving the log into the file"),
            },
        }
    }
}

/// Counts the rows of the tree of keys, seldom: it walks all of it. In between the writer counts along.
fn count_keys(conn: &Connection, fresh: &FreshKeys, closing: &AtomicBool) {
    while !closing.load(Ordering::Relaxed) {
        let began = Instant::now();
        if let Ok(count) = conn.query_row("SELECT COUNT(*) FROM keys", [], |row| row.get::<_, i64>(0)) {
            fresh.in_tree.store(count as u64, Ordering::Relaxed);
        }
        std::thread::park_timeout(COUNT_PAUSE.max(began.elapsed() * COUNT_SHARE));
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn accept(&self, wish: Wish, now: Time) -> Result<Accept> {
        // In a box, because it goes to the writer and back.
        let mut prepared = Box::new(Prepared::new(wish, now)?);
        let verb = move |ledger: &mut Ledger<'_>| {
            let said = accept::accept(ledger, &mut prepared, now)?;
            Ok((prepared, said))
        };
        let tell = |(prepared, said): &(Box<Prepared>, Said), ledger: &Ledger<'_>| {
            prepared.told(said).into_iter().for_each(|email| ledger.tell(email));
        };
        let (prepared, said) = self.writer.run(Turn::Accept, verb, tell).await?;
        Ok(prepared.answer(said))
    }

    async fn accept_batch(&self, batch: BatchWish, now: Time) -> Result<AcceptBatch> {
        let strict = batch.strict;
        let mut items = batch.items.into_iter().map(|wish| Prepared::new(wish, now)).collect::<Result<Vec<_>>>()?;
        let operation = batch.operation;
        let verb = move |ledger: &mut Ledger<'_>| {
            let said = accept::accept_batch(ledger, operation.as_ref(), &mut items, strict, now)?;
            Ok((items, said))
        };
        let tell = |(items, said): &(Vec<Prepared>, SaidBatch), ledger: &Ledger<'_>| {
            if let SaidBatch::Items(said) = said {
                items.iter().zip(said).filter_map(|(item, said)| item.told(said)).for_each(|email| ledger.tell(email));
            }
        };
        Ok(match self.writer.run(Turn::Accept, verb, tell).await? {
            (items, SaidBatch::Items(said)) => {
                AcceptBatch::Items(items.into_iter().zip(said).map(|(item, said)| item.answer(said)).collect())
            }
            (_, SaidBatch::Mismatch(bound)) => AcceptBatch::Mismatch(bound),
            (_, SaidBatch::Contradiction(index, bound)) => AcceptBatch::Contradiction(index, bound),
            (_, SaidBatch::OverBudget(index, exceeded)) => AcceptBatch::OverBudget(index, exceeded),
        })
    }

    async fn bound(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<Bound>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        let (fresh, time) = (Arc::clone(&self.fresh), Arc::clone(&self.time));
        let look = move |conn: &Connection| match accept::key_row_on(conn, &fresh, number, key)? {
            Some(row) => accept::bound_by_on(conn, team, number, &row, time.forget_by(now)),
            None => Ok(None),
        };
        self.look(look).await
    }

    async fn bind_operation(&self, operation: Operation, now: Time) -> Result<Once<()>> {
        self.write(move |ledger| accept::bind_once(ledger, &operation, now)).await
    }

    async fn cancel(&self, team: TeamId, id: EmailId, operation: Option<Operation>, now: Time) -> Result<Once<Change>> {
        self.write(move |ledger| change::cancel(ledger, team, id, operation.as_ref(), now)).await
    }

    async fn reschedule(&self, team: TeamId, id: EmailId, new: NewDue, now: Time) -> Result<Change> {
        self.write(move |ledger| change::reschedule(ledger, team, id, &new, now)).await
    }

    async fn resend(&self, wish: Wish, operation: Option<Operation>, now: Time) -> Result<Once<Resend>> {
        self.write(move |ledger| accept::resend(ledger, wish, operation.as_ref(), now)).await
    }

    async fn capture(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> Result<usize> {
        let transport = transport.to_owned();
        self.write(move |ledger| change::capture(ledger, &transport, max, scheduled_by, now)).await
    }

    async fn next_due(&self, transport: &str) -> Result<Option<Time>> {
        let transport = transport.to_owned();
        self.look(move |conn| change::next_due(conn, &transport)).await
    }

    async fn lease(&self, wish: LeaseWish, now: Time) -> Result<Vec<Leased>> {
        let wish = Arc::new(wish);
        let wanted = Arc::clone(&wish);
        let places = self.look(move |conn| handoff::candidates(conn, &wanted, now)).await?;
        if places.is_empty() {
            return Ok(Vec::new());
        }
        self.write(move |ledger| handoff::lease(ledger, &places, &wish, now)).await
    }

    async fn leased(&self, team: TeamId, id: EmailId, number: u16) -> Result<Option<Leased>> {
        let Some(row) = self.number(team) else { return Ok(None) };
        let look = move |conn: &Connection| match rows::email_by_id(conn, team, row, id)? {
            Some(email) => handoff::with_bytes(conn, email, number).map(Some),
            None => Ok(None),
        };
        self.look(look).await
    }

    async fn act(
        &self,
        team: TeamId,
        id: EmailId,
        act: Act,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Acted>> {
        self.write(move |ledger| handoff::act(ledger, (team, id), &act, operation.as_ref(), now)).await
    }

    async fn doubts(&self, mine: &[TransportAccount], max: usize, now: Time) -> Result<Vec<(Email, u16)>> {
        let teams = Arc::clone(&self.teams);
        let team_id = move |number| teams.read().unwrap_or_else(PoisonError::into_inner).id(number);
        let (published, mine) = (self.published(), mine.to_vec());
        let may_decide = move |place: (&str, Option<&str>)| published.may_decide(&mine, place, now);
        self.look(move |conn| handoff::doubts(conn, team_id, may_decide, (max, now))).await
    }

    async fn publish_transports(&self, node: NodeId, mine: &[TransportAccount], now: Time) -> Result<()> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).publish(node, mine, now);
        Ok(())
    }

    async fn orphans(&self, known: &[String], now: Time) -> Result<Vec<Orphans>> {
        let (published, known) = (self.published(), known.to_vec());
        let claimed = move |name: &str| known.iter().any(|known| known == name) || published.is_live(name, now);
        self.look(move |conn| handoff::orphans(conn, claimed)).await
    }

    async fn open_at(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Result<Vec<(TeamId, EmailId)>> {
        let transport = transport.to_owned();
        self.look(move |conn| handoff::open_at(conn, &transport, after, limit)).await
    }

    async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
        let latest = {
            let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.insert(node, now);
            nodes.values().max().copied().unwrap_or(now)
        };
        let kept = self.seen_at.load(Ordering::Relaxed);
        if now.0 - kept < SEEN_EVERY_MS {
            return Ok(Heartbeat { latest, database: None });
        }
        self.seen_at.store(now.0, Ordering::Relaxed);
        self.write(move |ledger| ledger.execute("UPDATE install SET seen_at = ?1", [now.0]).map(drop)).await?;
        Ok(Heartbeat { latest, database: None })
    }

    async fn recover(&self, node: NodeId, max: usize, now: Time) -> Result<Recovered> {
        // Nobody else has the file: who was never heard of in this process ended before it.
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let alive =
            move |holder| holder == node || nodes.get(&holder).is_some_and(|seen| now.since(*seen) < limits::ALIVE_MS);
        let verb = move |ledger: &mut Ledger<'_>| {
            let recovered = handoff::recover(ledger, &alive, max, now)?;
            let deliveries = delivery::give_back(ledger, &alive, max, now)?;
            Ok(Recovered { deliveries, notices: notice::give_back(ledger, alive, max, now)?, ..recovered })
        };
        self.write(verb).await
    }

    async fn by_remote_id(&self, team: TeamId, remote_id: &str) -> Result<Option<(EmailId, u16)>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        let remote_id = remote_id.to_owned();
        self.look(move |conn| handoff::by_remote_id(conn, number, &remote_id)).await
    }

    async fn backlog(&self) -> Result<Backlog> {
        self.look(handoff::backlog).await
    }

    async fn note_suppressed(&self, calls: Vec<Suppressed>, now: Time) -> Result<()> {
        self.write(move |ledger| change::note_suppressed(ledger, calls, now)).await
    }

    async fn email(&self, team: TeamId, id: EmailId) -> Result<Option<Email>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        self.look(move |conn| rows::email_by_id(conn, team, number, id)).await
    }

    async fn email_detail(&self, team: TeamId, id: EmailId) -> Result<Option<EmailDetail>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        self.look(move |conn| look::detail(conn, team, number, id)).await
    }

    async fn emails(&self, team: TeamId, query: EmailQuery) -> Result<Page<Email>> {
        let Some(number) = self.number(team) else { return Ok(Page { rows: Vec::new(), next: None }) };
        let fresh = Arc::clone(&self.fresh);
        self.look(move |conn| look::list(conn, &fresh, (team, number), &query)).await
    }

    async fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<u64> {
        let Some(number) = self.number(team) else { return Ok(0) };
        self.look(move |conn| look::count(conn, number, from, to)).await
    }

    async fn stuck(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        self.look(move |conn| look::stuck(conn, after, limit)).await
    }

    async fn events(&self, team: TeamId, after: u64, limit: usize) -> Result<Vec<Event>> {
        let Some(number) = self.number(team) else { return Ok(Vec::new()) };
        self.look(move |conn| events::after(conn, number, after, limit)).await
    }

    async fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyView>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        let (fresh, forget_by) = (Arc::clone(&self.fresh), self.time.forget_by(now));
        self.look(move |conn| look::key(conn, &fresh, (team, number), key, forget_by)).await
    }

    async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Result<KeyChange> {
        self.write(move |ledger| change::extend_key(ledger, team, key, ttl, now)).await
    }

    async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<KeyChange> {
        self.write(move |ledger| change::forget_key(ledger, team, key, now)).await
    }

    async fn create_team(&self, team: Team, key: ApiKey, operation: Option<Operation>) -> Result<Once<Founded>> {
        let id = team.id;
        let verb = move |ledger: &mut Ledger<'_>| team::create_team(ledger, &team, &key, operation.as_ref());
        // The number is known to others only once it is committed.
        let learn = move |answer: &Once<Option<i64>>, ledger: &Ledger<'_>| {
            if let Once::Done(Some(number)) = answer {
                ledger.teams.write().unwrap_or_else(PoisonError::into_inner).add(id, *number);
            }
        };
        let made = self.writer.run(Turn::Other, verb, learn).await?;
        Ok(made.map(|number| number.map_or(Founded::Taken, |_number| Founded::Made)))
    }

    async fn teams(&self) -> Result<Vec<Team>> {
        self.look(team::teams).await
    }

    async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Option<Team>> {
        self.write(move |ledger| team::set_require_keys(ledger, team, require)).await
    }

    async fn create_api_key(&self, key: ApiKey, operation: Option<Operation>) -> Result<Once<()>> {
        self.write(move |ledger| team::create_api_key(ledger, &key, operation.as_ref())).await
    }

    async fn api_keys(&self, team: TeamId) -> Result<Vec<ApiKey>> {
        let Some(number) = self.number(team) else { return Ok(Vec::new()) };
        self.look(move |conn| team::api_keys(conn, team, number)).await
    }

    async fn api_key_by_hash(&self, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>> {
        self.look(move |conn| team::by_hash(conn, hash)).await
    }

    async fn revoke_api_key(&self, team: TeamId, id: ApiKeyId, now: Time) -> Result<Option<ApiKey>> {
        self.write(move |ledger| team::revoke(ledger, team, id, now)).await
    }

    async fn touch_api_keys(&self, used: Vec<(ApiKeyId, Time)>) -> Result<()> {
        self.write(move |ledger| team::touch(ledger, &used)).await
    }

    async fn create_record(&self, record: Record, operation: Option<Operation>) -> Result<Once<Created>> {
        self.write(move |ledger| record::create(ledger, &record, operation.as_ref())).await
    }

    async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        self.look(move |conn| Shelf { team, number, kind }.one(conn, id)).await
    }

    async fn record_named(&self, team: TeamId, kind: RecordKind, name: &str) -> Result<Option<Record>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        let name = name.to_owned();
        self.look(move |conn| Shelf { team, number, kind }.named(conn, &name)).await
    }

    async fn record_anywhere(&self, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        self.look(move |conn| record::anywhere(conn, kind, id)).await
    }

    async fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> Result<RecordPage> {
        let Some(number) = self.number(team) else { return Ok(RecordPage { rows: Vec::new(), next: None }) };
        self.look(move |conn| Shelf { team, number, kind }.list(conn, before, limit)).await
    }

    async fn change_record(
        &self,
        edit: RecordEdit,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<RecordChange>> {
        self.write(move |ledger| record::change(ledger, edit, operation.as_ref(), now)).await
    }

    async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        self.write(move |ledger| record::remove(ledger, team, kind, id)).await
    }

    async fn budget_usage(&self, team: TeamId, counters: Vec<Counter>) -> Result<Vec<u64>> {
        let Some(number) = self.number(team) else { return Ok(vec![0; counters.len()]) };
        self.look(move |conn| counters.iter().map(|counter| budget::used(conn, number, *counter)).collect()).await
    }

    async fn install(&self) -> Result<Install> {
        let secret = self.secret.clone();
        self.look(|conn| {
            let sql = "SELECT epoch, MAX(last_id, (SELECT COALESCE(MAX(email), 0) FROM emails)), seen_at \
                 FROM install";
            let install = conn.query_row(sql, [], |row| {
                Ok(Install {
                    secret,
                    epoch: row.get(0)?,
                    last_id: row.get(1)?,
                    seen_at: row.get::<_, Option<i64>>(2)?.map(Time),
                    database: None,
                })
            });
            install.map_err(told)
        })
        .await
    }

    async fn sweep(&self, max: usize, now: Time) -> Result<Swept> {
        let expired = self.expired_keys(now).await?;
        let verb = move |ledger: &mut Ledger<'_>| {
            let swept = upkeep::sweep(ledger, max, now)?;
            let deliveries = clear::sweep(ledger, &expired, max, now)?;
            Ok(Swept { deliveries, notices: notice::sweep(ledger, max, now)?, ..swept })
        };
        self.write(verb).await
    }

    async fn health(&self) -> Result<Health> {
        self.write(|_| Ok(())).await?;
        Ok(Health { engine: "sqlite", degraded: false, notes: vec!["journal_mode=wal synchronous=full".into()] })
    }

    fn stopped(&self) -> Option<StoreError> {
        self.writer.broken()
    }

    fn gauges(&self) -> Gauges {
        Gauges { keys: self.fresh.count(), ..self.writer.gauges() }
    }

    fn hear_events(&self, hearer: EventHearer) -> bool {
        self.listeners.event_hearers.write().unwrap_or_else(PoisonError::into_inner).push(hearer);
        true
    }

    fn keep_time(&self, keeper: Keeper) {
        self.time.keep(keeper);
    }

    fn watch(&self, watcher: Watcher) -> bool {
        self.listeners.watchers.write().unwrap_or_else(PoisonError::into_inner).push(watcher);
        true
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
