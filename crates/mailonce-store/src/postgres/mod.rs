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
pub(crate) mod outbound;
mod peers;
mod row;
mod schema;
mod server;
mod session_pools;
#[cfg(test)]
pub(crate) mod tests;
mod unit_of_work;
mod upkeep;
mod write;

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
    installation::{DatabaseClock, Gauges, Health, Heartbeat, InstallationInfo, RecoveryCounts, SweepCounts},
    key::{InstallSecret, KeyHash},
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        email::Email,
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
        email_query::{EmailDetail, EmailQuery, ResultPage},
        key_binding::{KeyBinding, KeyChangeResult, KeyView},
        suppressed_call::SuppressedCalls,
    },
    ports::{
        secret_keeper::SecretKeeper,
        store::{EventWakeUpHandler, HookCoverage, Result, Store, StoreHooks},
    },
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind, RecordPage},
    time::Time,
    ttl::Ttl,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
};
use uuid::Uuid;

use crate::postgres::{
    access::teams,
    control::{budgets, records},
    handoff::handoffs::{self, ActionCall},
    inbound::{
        filing::FileCall,
        receive::ReceiveCall,
        wake_ups::{self, WakeUpBus},
    },
    outbound::{
        accept_batcher::AcceptBatcher,
        email_commands,
        queries::{self, KeyLookupRequest},
    },
};
use call_batcher::CallBatcher;
use durability::DurabilityBarrier;
use error::{TxResult, call_until_final, with_timeout};
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
        let mut lanes: Vec<_> = (0..options.accept_workers.max(1))
            .map(|_| tokio::spawn(crate::postgres::outbound::accept_batcher::run_accept_worker(ledger.clone())))
            .collect();
        for _ in 0..WORKERS_PER_BATCHER {
            lanes.push(tokio::spawn(call_batcher::run_batch_worker::<ReceiveCall>(ledger.clone())));
            lanes.push(tokio::spawn(call_batcher::run_batch_worker::<FileCall>(ledger.clone())));
            lanes.push(tokio::spawn(call_batcher::run_batch_worker::<ActionCall>(ledger.clone())));
        }
        let listening = ledger.open_listen_session().await?;
        tokio::spawn(wake_ups::run_listener(ledger.clone(), listening, closed.clone()));
        tokio::spawn(crate::postgres::outbound::queries::run_key_lookups(ledger.clone(), asked, closed.clone()));
        tokio::spawn(crate::postgres::events::event_log::run_sequencer(ledger.clone(), closed.clone()));
        tokio::spawn(durability::run_prover(ledger.clone(), closed.clone()));
        tokio::spawn(run_table_maintenance(ledger.clone(), closed));
        Ok(Self { shared: ledger, closing, workers: Mutex::new(lanes) })
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
        if let Err(trouble) = ledger.maintain_tables().await {
            tracing::debug!("the tables could not be tended: {trouble:?}");
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

#[async_trait]
impl Store for Postgres {
    async fn accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        when_durable!(self, with_timeout(self.shared.accept(new_email, now)).await)
    }

    async fn accept_batch(&self, batch: NewBatch, now: Time) -> Result<BatchAcceptResult> {
        when_durable!(self, with_timeout(self.shared.accept_batch(batch, now)).await)
    }

    async fn key_binding(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyBinding>> {
        when_durable!(self, with_timeout(queries::key_binding(&self.shared, team, key, now)).await)
    }

    async fn bind_operation(&self, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>> {
        when_durable!(self, call_until_final!(email_commands::bind_operation_once(&self.shared, &operation, now)))
    }

    async fn cancel(
        &self,
        team: TeamId,
        id: EmailId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailChangeResult>> {
        when_durable!(self, call_until_final!(email_commands::cancel(&self.shared, team, id, operation.as_ref(), now)))
    }

    async fn reschedule(
        &self,
        team: TeamId,
        id: EmailId,
        new: RescheduleRequest,
        now: Time,
    ) -> Result<EmailChangeResult> {
        when_durable!(self, call_until_final!(email_commands::reschedule(&self.shared, team, id, &new, now)))
    }

    async fn resend(
        &self,
        new_email: NewEmail,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailResendResult>> {
        when_durable!(
            self,
            call_until_final!(email_commands::resend(&self.shared, &new_email, operation.as_ref(), now))
        )
    }

    async fn capture(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> Result<usize> {
        into_store_result(call_until_final!(email_commands::capture(&self.shared, transport, max, scheduled_by, now)))
    }

    async fn next_handoff_due(&self, transport: &str) -> Result<Option<Time>> {
        into_store_result(call_until_final!(email_commands::next_handoff_due(&self.shared, transport)))
    }

    async fn lease_handoffs(&self, request: LeaseRequest, now: Time) -> Result<Vec<LeasedHandoff>> {
        into_store_result(call_until_final!(handoffs::lease_handoffs(&self.shared, &request, now)))
    }

    async fn leased_handoff(&self, team: TeamId, id: EmailId, number: u16) -> Result<Option<LeasedHandoff>> {
        into_store_result(call_until_final!(handoffs::leased_handoff(&self.shared, team, id, number)))
    }

    async fn apply_action(
        &self,
        team: TeamId,
        id: EmailId,
        act: HandoffAction,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<HandoffActionResult>> {
        when_durable!(
            self,
            with_timeout(handoffs::apply_action(&self.shared, (team, id), act, operation.as_ref(), now)).await
        )
    }

    async fn due_unknown_handoffs(
        &self,
        mine: &[TransportAccount],
        max: usize,
        now: Time,
    ) -> Result<Vec<(Email, u16)>> {
        into_store_result(call_until_final!(handoffs::due_unknown_handoffs(&self.shared, mine, max, now)))
    }

    async fn publish_transports(&self, _node: NodeId, mine: &[TransportAccount], _now: Time) -> Result<()> {
        into_store_result(call_until_final!(handoffs::publish_transports(&self.shared, mine)))
    }

    async fn orphan_backlogs(&self, known: &[String], _now: Time) -> Result<Vec<OrphanBacklog>> {
        into_store_result(call_until_final!(handoffs::orphan_backlogs(&self.shared, known)))
    }

    async fn emails_open_at_transport(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Result<Vec<(TeamId, EmailId)>> {
        into_store_result(call_until_final!(handoffs::emails_open_at_transport(&self.shared, transport, after, limit)))
    }

    async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
        into_store_result(call_until_final!(handoffs::heartbeat(&self.shared, node, now)))
    }

    async fn recover_dead_nodes(&self, node: NodeId, max: usize, now: Time) -> Result<RecoveryCounts> {
        into_store_result(call_until_final!(handoffs::recover_dead_nodes(&self.shared, node, max, now)))
    }

    async fn handoff_by_remote_id(&self, team: TeamId, remote_id: &str) -> Result<Option<(EmailId, u16)>> {
        when_durable!(self, call_until_final!(handoffs::handoff_by_remote_id(&self.shared, team, remote_id)))
    }

    async fn backlog(&self) -> Result<Backlog> {
        into_store_result(call_until_final!(handoffs::backlog(&self.shared)))
    }

    async fn record_suppressed_calls(&self, calls: Vec<SuppressedCalls>, now: Time) -> Result<()> {
        into_store_result(call_until_final!(self.shared.record_suppressed_calls(&calls, now)))
    }

    async fn email(&self, team: TeamId, id: EmailId) -> Result<Option<Email>> {
        when_durable!(self, call_until_final!(queries::email(&self.shared, team, id)))
    }

    async fn email_detail(&self, team: TeamId, id: EmailId) -> Result<Option<EmailDetail>> {
        when_durable!(self, call_until_final!(queries::email_detail(&self.shared, team, id)))
    }

    async fn emails(&self, team: TeamId, query: EmailQuery) -> Result<ResultPage<Email>> {
        when_durable!(self, call_until_final!(queries::emails(&self.shared, team, &query)))
    }

    async fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<u64> {
        when_durable!(self, call_until_final!(queries::count_emails(&self.shared, team, from, to)))
    }

    async fn held_or_unknown_emails(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        when_durable!(self, call_until_final!(queries::held_or_unknown_emails(&self.shared, after, limit)))
    }

    async fn events(&self, team: TeamId, after: u64, limit: usize) -> Result<Vec<Event>> {
        when_durable!(self, call_until_final!(self.shared.events(team, after, limit)))
    }

    async fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyView>> {
        when_durable!(self, call_until_final!(queries::key_view(&self.shared, team, key, now)))
    }

    async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Result<KeyChangeResult> {
        when_durable!(self, call_until_final!(email_commands::extend_key(&self.shared, team, key, ttl, now)))
    }

    async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<KeyChangeResult> {
        when_durable!(self, call_until_final!(email_commands::forget_key(&self.shared, team, key, now)))
    }

    async fn create_team(
        &self,
        team: Team,
        key: ApiKey,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTeamResult>> {
        when_durable!(self, call_until_final!(teams::create_team(&self.shared, &team, &key, operation.as_ref())))
    }

    async fn teams(&self) -> Result<Vec<Team>> {
        when_durable!(self, call_until_final!(teams::teams(&self.shared)))
    }

    async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Option<Team>> {
        when_durable!(self, call_until_final!(teams::set_require_keys(&self.shared, team, require)))
    }

    async fn create_api_key(&self, key: ApiKey, operation: Option<KeyedOperation>) -> Result<IdempotentResult<()>> {
        when_durable!(self, call_until_final!(teams::create_api_key(&self.shared, &key, operation.as_ref())))
    }

    async fn api_keys(&self, team: TeamId) -> Result<Vec<ApiKey>> {
        when_durable!(self, call_until_final!(teams::api_keys(&self.shared, team)))
    }

    async fn api_key_by_hash(&self, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>> {
        into_store_result(call_until_final!(teams::api_key_by_hash(&self.shared, hash)))
    }

    async fn revoke_api_key(&self, team: TeamId, id: ApiKeyId, now: Time) -> Result<Option<ApiKey>> {
        when_durable!(self, call_until_final!(teams::revoke_api_key(&self.shared, team, id, now)))
    }

    async fn touch_api_keys(&self, used: Vec<(ApiKeyId, Time)>) -> Result<()> {
        into_store_result(call_until_final!(teams::touch_api_keys(&self.shared, &used)))
    }

    async fn create_record(
        &self,
        record: Record,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateRecordResult>> {
        when_durable!(self, call_until_final!(records::create_record(&self.shared, &record, operation.as_ref())))
    }

    async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        when_durable!(self, call_until_final!(records::record(&self.shared, team, kind, id)))
    }

    async fn record_by_name(&self, team: TeamId, kind: RecordKind, name: &str) -> Result<Option<Record>> {
        when_durable!(self, call_until_final!(records::record_by_name(&self.shared, team, kind, name)))
    }

    async fn record_of_any_team(&self, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        when_durable!(self, call_until_final!(records::record_of_any_team(&self.shared, kind, id)))
    }

    async fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> Result<RecordPage> {
        when_durable!(self, call_until_final!(records::records(&self.shared, team, kind, before, limit)))
    }

    async fn change_record(
        &self,
        edit: RecordEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<RecordChangeResult>> {
        when_durable!(self, call_until_final!(records::change_record(&self.shared, &edit, operation.as_ref(), now)))
    }

    async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        when_durable!(self, call_until_final!(records::remove_record(&self.shared, team, kind, id)))
    }

    async fn budget_usage(&self, team: TeamId, counters: Vec<BudgetCounter>) -> Result<Vec<u64>> {
        when_durable!(self, call_until_final!(budgets::budget_usage(&self.shared, team, &counters)))
    }

    async fn installation(&self) -> Result<InstallationInfo> {
        into_store_result(call_until_final!(self.shared.installation()))
    }

    async fn sweep(&self, max: usize, now: Time) -> Result<SweepCounts> {
        into_store_result(call_until_final!(self.shared.sweep(max, now)))
    }

    async fn health(&self) -> Result<Health> {
        into_store_result(call_until_final!(self.shared.health()))
    }

    fn epoch(&self) -> Option<u32> {
        Some(self.shared.connections.server.epoch())
    }

    fn fatal_error(&self) -> Option<mailonce_core::ports::store::StoreError> {
        None
    }

    fn gauges(&self) -> Gauges {
        self.shared.meter.gauges()
    }

    fn attach(&self, hooks: StoreHooks) -> HookCoverage {
        hooks.clock.into_iter().for_each(|clock| self.shared.time.set_clock(clock));
        self.shared.event_subscribers.write().unwrap_or_else(PoisonError::into_inner).extend(hooks.events);
        // This node is not notified of emails and events that other nodes write.
        HookCoverage { emails: false, inbound: self.shared.wake_up_bus.subscribe(hooks.inbound), events: false }
    }

    async fn close(&self) {
        self.shared.close_batchers();
        let lanes: Vec<JoinHandle<()>> =
            self.workers.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
        for lane in lanes {
            if let Err(error) = lane.await {
                tracing::error!("a lane ended badly: {error}");
            }
        }
        self.closing.send_replace(true);
        self.shared.connections.close();
    }
}
