//! PostgreSQL: many nodes on one ledger.
//!
//! | file | what it holds |
//! |---|---|
//! | `connect`, `schema`, `install_secret` | sessions, TLS, migrations, the secret of the installation |
//! | `lanes`, `accept` | accepts that arrive together travel together |
//! | `gate` | other calls that travel together: arrivals, filings, acts |
//! | `careful`, `ground` | verbs that lock: load, decide, write, commit |
//! | `change`, `handoff`, `look`, `team`, `record`, `upkeep` | the other verbs |
//! | `arrivals` | mail that comes in |
//! | `conversation` | threads, answers, turns |
//! | `events` | the sequencer |
//! | `notices` | telling others |
//! | `row`, `draft`, `write` | how things lie in their tables |
//! | `server`, `durability` | which server answers, and whether what it shows is on its standby |
//! | `trouble`, `meter` | errors and figures |
//!
//! A node keeps sessions of its own and talks to the server itself: a proxy that hands out sessions statement by
//! statement breaks prepared statements and locks.

mod accept;
mod arrivals;
mod careful;
mod change;
mod connect;
mod control;
mod conversation;
mod draft;
mod durability;
mod events;
mod gate;
mod ground;
mod handoff;
mod install_secret;
mod lanes;
mod look;
mod meter;
mod notices;
mod peers;
mod record;
mod row;
mod schema;
mod server;
mod team;
#[cfg(test)]
pub(crate) mod tests;
mod trouble;
mod upkeep;
mod write;

use async_trait::async_trait;
use mailonce_core::{
    control::budget::Counter,
    dispatch::Act,
    email::Email,
    event::Event,
    id::{ApiKeyId, EmailId, NodeId, TeamId},
    key::{InstallSecret, KeyHash},
    port::install_secret::SecretKeeper,
    port::store::{
        Accept, AcceptBatch, Acted, Backlog, BatchWish, Bound, Change, CommitTime, DatabaseClock, EmailDetail,
        EmailQuery, EventHearer, Founded, Gauges, Health, Heartbeat, Install, Keeper, KeyChange, KeyView, LeaseWish,
        Leased, NewDue, Once, Operation, Orphans, Page, Recovered, Resend, Result, Store, Suppressed, Swept,
        TransportAccount, Watcher, Wish,
    },
    record::{Created, Record, RecordChange, RecordEdit, RecordKind, RecordPage},
    team::{ApiKey, Team},
    time::Time,
    ttl::Ttl,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
};
use uuid::Uuid;

use arrivals::{
    file::Filing,
    hear::{self, Ears},
    receive::Coming,
};
use connect::{Link, Place};
use durability::DurabilityBarrier;
use gate::Gate;
use handoff::Acting;
use lanes::Lanes;
use look::Look;
use meter::Meter;
use peers::Peers;
use trouble::{Tried, in_time, insist};

/// Lanes behind each gate. One is under way while the next fills.
const GATE_LANES: usize = 2;

/// How a node uses the database.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Rounds of accepts that may be under way together, each on a session of its own.
    pub lanes: usize,
    /// Sessions for everything else.
    pub sessions: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { lanes: 4, sessions: 12 }
    }
}

/// Tells what the clock of the database server says.
pub type ClockSource = Box<dyn Fn() -> DatabaseClock + Send + Sync>;

/// What the tasks of one store share.
struct Ledger {
    link: Link,
    secret: InstallSecret,
    lanes: Lanes,
    looks: mpsc::UnboundedSender<Look>,
    meter: Meter,
    /// Wakes the sequencer after a commit.
    nudge: Notify,
    receives: Gate<Coming>,
    files: Gate<Filing>,
    acts: Gate<Acting>,
    ears: Arc<Ears>,
    event_hearers: RwLock<Vec<EventHearer>>,
    time: Arc<CommitTime>,
    /// Which other processes fell silent.
    peers: Mutex<Peers>,
    /// What tests read in the place of the server's clock.
    test_clock: OnceLock<ClockSource>,
    barrier: DurabilityBarrier,
}

/// The PostgreSQL engine.
pub struct Postgres {
    ledger: Arc<Ledger>,
    closing: watch::Sender<bool>,
    lanes: Mutex<Vec<JoinHandle<()>>>,
}

impl Postgres {
    /// Opens a ledger and brings its tables up to date. The keeper opens the install secret, or makes the first one.
    pub async fn open(url: &str, keeper: impl SecretKeeper) -> Result<Self> {
        Self::open_with(url, keeper, Options::default()).await
    }

    /// Reads `source` in the place of the server's clock from now on: for tests that move the time themselves.
    pub fn read_clock_from(&self, source: ClockSource) {
        self.ledger.test_clock.set(source).ok();
    }

    /// The same as [`Self::open`], with a say in how many sessions there are.
    pub async fn open_with(url: &str, keeper: impl SecretKeeper, options: Options) -> Result<Self> {
        let link = Link::new(&Place::parse(url)?, options.lanes.max(1), options.sessions.max(2))?;
        let mut client = link.client().await?;
        schema::migrate(&mut client).await?;
        let secret = install_secret::open(&mut client, &keeper).await?;
        link.server.begin(&client).await?;
        drop(client);
        let (looks, asked) = mpsc::unbounded_channel();
        let ledger = Arc::new(Ledger {
            link,
            secret,
            lanes: Lanes::default(),
            looks,
            meter: Meter::default(),
            nudge: Notify::new(),
            receives: Gate::default(),
            files: Gate::default(),
            acts: Gate::default(),
            ears: Arc::default(),
            event_hearers: RwLock::default(),
            time: Arc::default(),
            peers: Mutex::default(),
            test_clock: OnceLock::new(),
            barrier: DurabilityBarrier::default(),
        });
        for note in ledger.health().await?.notes.iter().skip(1) {
            tracing::warn!("the database: {note}");
        }
        let (closing, closed) = watch::channel(false);
        let mut lanes: Vec<_> = (0..options.lanes.max(1)).map(|_| tokio::spawn(lanes::lane(ledger.clone()))).collect();
        for _ in 0..GATE_LANES {
            lanes.push(tokio::spawn(gate::lane::<Coming>(ledger.clone())));
            lanes.push(tokio::spawn(gate::lane::<Filing>(ledger.clone())));
            lanes.push(tokio::spawn(gate::lane::<Acting>(ledger.clone())));
        }
        let listening = ledger.begin_to_listen().await?;
        tokio::spawn(hear::listen(ledger.clone(), listening, closed.clone()));
        tokio::spawn(look::looks(ledger.clone(), asked, closed.clone()));
        tokio::spawn(events::sequencer(ledger.clone(), closed.clone()));
        tokio::spawn(durability::prove(ledger.clone(), closed.clone()));
        tokio::spawn(tend(ledger.clone(), closed));
        Ok(Self { ledger, closing, lanes: Mutex::new(lanes) })
    }

    /// The version of the tables, without touching them. `None` when mailonce was never there.
    pub async fn schema_version(url: &str) -> Result<Option<u32>> {
        let link = Link::new(&Place::parse(url)?, 1, 1)?;
        Ok(schema::version(&link.client().await?).await?)
    }

    /// The version of the tables that this binary writes.
    pub fn schema_known() -> u32 {
        schema::CURRENT
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        self.ledger.close_gates();
    }
}

impl Ledger {
    /// Takes no more calls that travel together. Those in line are still answered.
    fn close_gates(&self) {
        self.lanes.close();
        self.receives.close();
        self.files.close();
        self.acts.close();
    }
}

/// Tends the tables until the store closes.
async fn tend(ledger: Arc<Ledger>, mut closing: watch::Receiver<bool>) {
    loop {
        if let Err(trouble) = ledger.tend().await {
            tracing::debug!("the tables could not be tended: {trouble:?}");
        }
        tokio::select! {
            () = tokio::time::sleep(upkeep::TEND_EVERY) => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
    }
}

/// An answer that shows no row to a caller, or that is always preceded by a commit, as an answer of the port.
fn told<T>(answer: Tried<T>) -> Result<T> {
    Ok(answer?)
}

/// An answer that shows rows, as an answer of the port: it is given once those are proven durable.
macro_rules! shown {
    ($store:expr, $verb:expr) => {
        $store.ledger.shown(async { $verb }).await
    };
}
use shown;

#[async_trait]
impl Store for Postgres {
    async fn accept(&self, wish: Wish, now: Time) -> Result<Accept> {
        shown!(self, in_time(self.ledger.accept(wish, now)).await)
    }

    async fn accept_batch(&self, batch: BatchWish, now: Time) -> Result<AcceptBatch> {
        shown!(self, in_time(self.ledger.accept_batch(batch, now)).await)
    }

    async fn bound(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<Bound>> {
        shown!(self, in_time(self.ledger.bound(team, key, now)).await)
    }

    async fn bind_operation(&self, operation: Operation, now: Time) -> Result<Once<()>> {
        shown!(self, insist!(self.ledger.bind_once(&operation, now)))
    }

    async fn cancel(&self, team: TeamId, id: EmailId, operation: Option<Operation>, now: Time) -> Result<Once<Change>> {
        shown!(self, insist!(self.ledger.cancel(team, id, operation.as_ref(), now)))
    }

    async fn reschedule(&self, team: TeamId, id: EmailId, new: NewDue, now: Time) -> Result<Change> {
        shown!(self, insist!(self.ledger.reschedule(team, id, &new, now)))
    }

    async fn resend(&self, wish: Wish, operation: Option<Operation>, now: Time) -> Result<Once<Resend>> {
        shown!(self, insist!(self.ledger.resend(&wish, operation.as_ref(), now)))
    }

    async fn capture(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> Result<usize> {
        told(insist!(self.ledger.capture(transport, max, scheduled_by, now)))
    }

    async fn next_due(&self, transport: &str) -> Result<Option<Time>> {
        told(insist!(self.ledger.next_due(transport)))
    }

    async fn lease(&self, wish: LeaseWish, now: Time) -> Result<Vec<Leased>> {
        told(insist!(self.ledger.lease(&wish, now)))
    }

    async fn leased(&self, team: TeamId, id: EmailId, number: u16) -> Result<Option<Leased>> {
        told(insist!(self.ledger.leased(team, id, number)))
    }

    async fn act(
        &self,
        team: TeamId,
        id: EmailId,
        act: Act,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Acted>> {
        shown!(self, in_time(self.ledger.act((team, id), act, operation.as_ref(), now)).await)
    }

    async fn doubts(&self, mine: &[TransportAccount], max: usize, now: Time) -> Result<Vec<(Email, u16)>> {
        told(insist!(self.ledger.doubts(mine, max, now)))
    }

    async fn publish_transports(&self, _node: NodeId, mine: &[TransportAccount], _now: Time) -> Result<()> {
        told(insist!(self.ledger.publish_transports(mine)))
    }

    async fn orphans(&self, known: &[String], _now: Time) -> Result<Vec<Orphans>> {
        told(insist!(self.ledger.orphans(known)))
    }

    async fn open_at(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Result<Vec<(TeamId, EmailId)>> {
        told(insist!(self.ledger.open_at(transport, after, limit)))
    }

    async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
        told(insist!(self.ledger.heartbeat(node, now)))
    }

    async fn recover(&self, node: NodeId, max: usize, now: Time) -> Result<Recovered> {
        told(insist!(self.ledger.recover(node, max, now)))
    }

    async fn by_remote_id(&self, team: TeamId, remote_id: &str) -> Result<Option<(EmailId, u16)>> {
        shown!(self, insist!(self.ledger.by_remote_id(team, remote_id)))
    }

    async fn backlog(&self) -> Result<Backlog> {
        told(insist!(self.ledger.backlog()))
    }

    async fn note_suppressed(&self, calls: Vec<Suppressed>, now: Time) -> Result<()> {
        told(insist!(self.ledger.note_suppressed(&calls, now)))
    }

    async fn email(&self, team: TeamId, id: EmailId) -> Result<Option<Email>> {
        shown!(self, insist!(self.ledger.email(team, id)))
    }

    async fn email_detail(&self, team: TeamId, id: EmailId) -> Result<Option<EmailDetail>> {
        shown!(self, insist!(self.ledger.email_detail(team, id)))
    }

    async fn emails(&self, team: TeamId, query: EmailQuery) -> Result<Page<Email>> {
        shown!(self, insist!(self.ledger.emails(team, &query)))
    }

    async fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<u64> {
        shown!(self, insist!(self.ledger.count_emails(team, from, to)))
    }

    async fn stuck(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        shown!(self, insist!(self.ledger.stuck(after, limit)))
    }

    async fn events(&self, team: TeamId, after: u64, limit: usize) -> Result<Vec<Event>> {
        shown!(self, insist!(self.ledger.events(team, after, limit)))
    }

    async fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyView>> {
        shown!(self, insist!(self.ledger.key(team, key, now)))
    }

    async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Result<KeyChange> {
        shown!(self, insist!(self.ledger.extend_key(team, key, ttl, now)))
    }

    async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<KeyChange> {
        shown!(self, insist!(self.ledger.forget_key(team, key, now)))
    }

    async fn create_team(&self, team: Team, key: ApiKey, operation: Option<Operation>) -> Result<Once<Founded>> {
        shown!(self, insist!(self.ledger.create_team(&team, &key, operation.as_ref())))
    }

    async fn teams(&self) -> Result<Vec<Team>> {
        shown!(self, insist!(self.ledger.teams()))
    }

    async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Option<Team>> {
        shown!(self, insist!(self.ledger.set_require_keys(team, require)))
    }

    async fn create_api_key(&self, key: ApiKey, operation: Option<Operation>) -> Result<Once<()>> {
        shown!(self, insist!(self.ledger.create_api_key(&key, operation.as_ref())))
    }

    async fn api_keys(&self, team: TeamId) -> Result<Vec<ApiKey>> {
        shown!(self, insist!(self.ledger.api_keys(team)))
    }

    async fn api_key_by_hash(&self, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>> {
        told(insist!(self.ledger.api_key_by_hash(hash)))
    }

    async fn revoke_api_key(&self, team: TeamId, id: ApiKeyId, now: Time) -> Result<Option<ApiKey>> {
        shown!(self, insist!(self.ledger.revoke_api_key(team, id, now)))
    }

    async fn touch_api_keys(&self, used: Vec<(ApiKeyId, Time)>) -> Result<()> {
        told(insist!(self.ledger.touch_api_keys(&used)))
    }

    async fn create_record(&self, record: Record, operation: Option<Operation>) -> Result<Once<Created>> {
        shown!(self, insist!(self.ledger.create_record(&record, operation.as_ref())))
    }

    async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        shown!(self, insist!(self.ledger.record(team, kind, id)))
    }

    async fn record_named(&self, team: TeamId, kind: RecordKind, name: &str) -> Result<Option<Record>> {
        shown!(self, insist!(self.ledger.record_named(team, kind, name)))
    }

    async fn record_anywhere(&self, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        shown!(self, insist!(self.ledger.record_anywhere(kind, id)))
    }

    async fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> Result<RecordPage> {
        shown!(self, insist!(self.ledger.records(team, kind, before, limit)))
    }

    async fn change_record(
        &self,
        edit: RecordEdit,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<RecordChange>> {
        shown!(self, insist!(self.ledger.change_record(&edit, operation.as_ref(), now)))
    }

    async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        shown!(self, insist!(self.ledger.remove_record(team, kind, id)))
    }

    async fn budget_usage(&self, team: TeamId, counters: Vec<Counter>) -> Result<Vec<u64>> {
        shown!(self, insist!(self.ledger.budget_usage(team, &counters)))
    }

    async fn install(&self) -> Result<Install> {
        told(insist!(self.ledger.install()))
    }

    async fn sweep(&self, max: usize, now: Time) -> Result<Swept> {
        told(insist!(self.ledger.sweep(max, now)))
    }

    async fn health(&self) -> Result<Health> {
        told(insist!(self.ledger.health()))
    }

    fn epoch(&self) -> Option<u32> {
        Some(self.ledger.link.server.epoch())
    }

    fn stopped(&self) -> Option<mailonce_core::port::store::StoreError> {
        None
    }

    fn gauges(&self) -> Gauges {
        self.ledger.meter.gauges()
    }

    fn hear_events(&self, hearer: EventHearer) -> bool {
        self.ledger.event_hearers.write().unwrap_or_else(PoisonError::into_inner).push(hearer);
        // Other nodes tell this one of nothing.
        false
    }

    fn watch(&self, _watcher: Watcher) -> bool {
        // Other nodes change the same emails, and this one would not hear of it.
        false
    }

    fn keep_time(&self, keeper: Keeper) {
        self.ledger.time.keep(keeper);
    }

    async fn close(&self) {
        self.ledger.close_gates();
        let lanes: Vec<JoinHandle<()>> = self.lanes.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
        for lane in lanes {
            if let Err(error) = lane.await {
                tracing::error!("a lane ended badly: {error}");
            }
        }
        self.closing.send_replace(true);
        self.ledger.link.close();
    }
}
