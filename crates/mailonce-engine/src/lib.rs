//! The engine: everything between a request and its commit. It opens no sockets and contains no SQL.
//!
//! [`Engine`] reaches the outside only through the ports of `mailonce_core` (store, clock, transports, DNS, webhooks).
//! Each domain folder adds methods to it.
//!
//! ## [`outbound`]: accepting emails under idempotency keys
//!
//! | file | what it holds |
//! |---|---|
//! | [`send`](outbound::send) | accepts an email or a batch, or replays the receipt of an earlier call |
//! | [`send_receipt`](outbound::send_receipt) | the answer to a send |
//! | [`email_commands`](outbound::email_commands) | cancel, reschedule and resend |
//! | [`idempotency_keys`](outbound::idempotency_keys) | inspect, extend and forget keys |
//! | [`queries`](outbound::queries) | emails, their counts, and events |
//! | [`drafts`](outbound::drafts) | create, read and change drafts |
//! | [`draft_send_cycles`](outbound::draft_send_cycles) | sends each draft at most once, under concurrent calls |
//! | `content_guard` | finds emails that look like one that was just sent |
//! | `replay_cache` | recent keys and their emails, in memory |
//! | `suppressed_calls` | replayed calls, counted in memory and written in batches |
//!
//! ## [`handoff`]: handing accepted emails to transports, once each
//!
//! | file | what it holds |
//! |---|---|
//! | `worker` | leases due handoffs of one transport, sends them and records the outcome |
//! | [`transport_selector`](handoff::transport_selector) | routing, concurrency limits and circuit breakers |
//! | `freeze`, `signers` | the bytes that every attempt sends, and their DKIM signatures |
//! | [`unknown`](handoff::unknown) | recovery from attempts whose outcome is unknown |
//! | [`orphans`](handoff::orphans) | handoffs whose transport no node has any more |
//! | [`reroute`](handoff::reroute) | an operator moves waiting handoffs to another transport |
//! | `breaker` | reports to teams that a circuit breaker opened or closed |
//! | `panics` | requeues the work of a worker that panicked |
//!
//! ## [`inbound`]: receiving mail and provider events
//!
//! | file | what it holds |
//! |---|---|
//! | [`receive`](inbound::receive) | stores a delivery for its recipients |
//! | [`hooks`](inbound::hooks), `hook_mail` | verifies webhooks of providers; they carry events or mail |
//! | [`collect`](inbound::collect) | fetches mail that a provider only announced |
//! | `poll`, `poll_cursor` | lists mail at providers, in case a webhook was lost |
//! | `worker` | parses stored deliveries and files them as messages |
//! | `bounces` | reads bounces as evidence for their handoff |
//! | `loop_guard` | recognizes our own mail when it comes back |
//! | [`local`](inbound::local) | the transport that delivers to inboxes of this installation |
//! | `waiters` | calls that wait for a message, and the domains of our inboxes |
//!
//! ## [`inbox`]: inboxes and what agents read from them
//!
//! | file | what it holds |
//! |---|---|
//! | [`inboxes`](inbox::inboxes) | create, find, change and remove inboxes |
//! | [`messages`](inbox::messages), [`team_messages`](inbox::team_messages) | received messages |
//! | [`mailbox_reader`](inbox::mailbox_reader) | received and sent mail of an inbox in one list |
//! | [`wait`](inbox::wait) | long polling for a message |
//! | [`artifacts`](inbox::artifacts) | codes and links found in messages, and watches for them |
//! | [`labels`](inbox::labels) | labels that callers add to messages and emails |
//! | [`links`](inbox::links) | signed, short-lived links to files |
//!
//! ## [`conversation`]: threads, replies and questions for people
//!
//! | file | what it holds |
//! |---|---|
//! | [`reply`](conversation::reply), `quote` | replies and forwards, and the text that they quote |
//! | [`threads`](conversation::threads) | threads, and the lease under which one agent works on a thread |
//! | [`work_queue`](conversation::work_queue) | leases unread messages to agents, with their threads |
//! | [`escalations`](conversation::escalations), `escalation_worker` | questions for a person |
//! | `decisions` | carries out what a person decided, once |
//! | [`preview`](conversation::preview), `diff` | exactly what would be sent, for the person who approves it |
//!
//! ## [`events`]: events, webhook endpoints and notices
//!
//! | file | what it holds |
//! |---|---|
//! | [`endpoints`](events::endpoints) | webhook endpoints of a team |
//! | [`notices`](events::notices) | webhook deliveries: list, inspect, retry |
//! | [`notifier`](events::notifier) | the worker that sends webhooks |
//! | [`tail`](events::tail) | the live stream of a team's events |
//! | [`event_view`](events::event_view), `event_format` | how clients see events, also in other formats |
//!
//! ## [`control`]: what a team limits
//!
//! | file | what it holds |
//! |---|---|
//! | [`rules`](control::rules), `outbound_rule_facts` | rules for inbound and outbound mail |
//! | [`lists`](control::lists) | allow and block lists |
//! | [`budgets`](control::budgets) | limits on emails or recipients per period |
//! | [`suppressions`](control::suppressions) | addresses that a team doesn't send to |
//! | `record_cache` | rules, lists and budgets in memory |
//!
//! ## [`access`]: teams, API keys and what a team owns
//!
//! | file | what it holds |
//! |---|---|
//! | [`api_keys`](access::api_keys) | authentication, rate limits, new teams and keys |
//! | [`active_keys`](access::active_keys) | ends open streams and waits when their key is revoked |
//! | [`inbox_restriction`](access::inbox_restriction) | API keys that are restricted to some inboxes |
//! | [`domains`](access::domains) | sending domains: DKIM keys, DNS records, verification |
//! | [`sources`](access::sources), `source_credentials` | providers that send us events and mail |
//! | [`settings`](access::settings) | settings of a team |
//! | [`kek`](access::kek), `vault` | encryption of the install secret and of stored secrets |
//!
//! ## [`runtime`]: what the other folders share
//!
//! | file | what it holds |
//! |---|---|
//! | [`upkeep`](runtime::upkeep) | the background loops |
//! | [`time`](runtime::time) | ledger time, and what is decided by which clock |
//! | [`metrics`](runtime::metrics) | metrics for Prometheus |
//! | [`records`](runtime::records) | helpers for named records: read, page, create once |
//! | `lease_identity` | the node id under which this process leases |
//! | `pack` | encodes and encrypts bodies |
//! | `sealed_answers` | answers to keyed calls, encrypted for replays |

pub mod access;
pub mod control;
pub mod conversation;
pub mod events;
#[doc(hidden)]
pub mod failpoint;
pub mod handoff;
pub mod inbound;
pub mod inbox;
pub mod outbound;
pub mod runtime;

use mailonce_core::{
    access::team::{ApiKey, ApiKeyScope, Team},
    call_trace::CallTrace,
    id::IdGenerator,
    key::InstallSecret,
    limits,
    operation::KeyedOperation,
    outbound::{
        email::Channel,
        suppressed_call::{SuppressedCall, SuppressedReason},
    },
    ports::{
        Clock, Entropy,
        store::{SharedEmailSubscriber, SharedLedgerClock, Store, StoreError},
    },
    problem::{Code, FieldError, Problem},
    time::Time,
};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use crate::{
    handoff::{
        transport_selector::{EngineDeps, TransportSelector},
        unknown::UnknownsInProgress,
    },
    outbound::{replay_cache::ReplayCache, suppressed_calls::SuppressedCallBuffer},
    runtime::{
        lease_identity::LeaseIdentities,
        metrics::Metrics,
        time::{ClockState, ConfirmedBy, Timekeeper},
    },
};
use control::record_cache::RecordCaches;

/// The built-in transport that captures mail in the store's own commit. Nothing leaves the machine.
pub const SANDBOX: &str = "sandbox";

/// How many endpoint tests may run at a time.
const MAX_ENDPOINT_TESTS: usize = 16;

/// An authenticated caller and the channel of the call.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The API key of the call.
    pub key: Arc<ApiKey>,
    /// The team of the API key.
    pub team: Arc<Team>,
    /// The channel of the call, such as HTTP, the command line, MCP or a dialect.
    pub channel: Channel,
    /// The trace of this call, when the caller sent one.
    pub call: Option<CallTrace>,
    /// The inboxes that the API key is restricted to; `None` for a key of the whole team.
    pub inbox_restriction: Option<Arc<crate::access::inbox_restriction::InboxRestriction>>,
}

impl Caller {
    /// Returns `wrong_scope` unless the API key has the scope.
    pub fn require_scope(&self, scope: ApiKeyScope) -> Result<(), Problem> {
        if scope == ApiKeyScope::Operator {
            self.require_unrestricted_key()?;
        }
        if self.key.has_scope(scope) {
            return Ok(());
        }
        let has: Vec<&str> = self.key.details.scopes.iter().map(|scope| scope.as_str()).collect();
        Err(Problem::new(Code::WrongScope, format!("this call needs the scope `{}`", scope.as_str()))
            .with_extension("has", has))
    }

    /// The record of this call, for a call that was answered with an earlier email.
    fn suppressed_call(&self, reason: SuppressedReason, now: Time) -> SuppressedCall {
        SuppressedCall { at: now, caller: Some(self.key.id), channel: self.channel, reason, call: self.call.clone() }
    }
}

/// The engine over its ports. See the crate documentation for a map of its methods.
pub struct Engine {
    store: Arc<dyn Store>,
    entropy: Arc<dyn Entropy>,
    secret: InstallSecret,
    /// Encodes and encrypts bodies.
    packer: Arc<crate::runtime::pack::Packer>,
    /// The store's epoch when it was opened.
    initial_epoch: u32,
    ids: Mutex<IdGenerator>,
    time: Arc<Timekeeper>,
    /// The node ids under which this process leases.
    lease_identities: LeaseIdentities,
    deps: EngineDeps,
    transports: TransportSelector,
    /// Whether an operator paused the hand-off.
    is_handoff_paused: AtomicBool,
    unknowns_in_progress: UnknownsInProgress,
    /// Wakes the worker that recovers unknown outcomes.
    unknown_wakeup: Notify,
    replay_cache: Arc<ReplayCache>,
    /// Whether no other process shares the store. The store then reports every change, so that the caches stay
    /// current.
    is_single_node: bool,
    suppressed_calls: SuppressedCallBuffer,
    credentials: crate::access::api_keys::CredentialCache,
    /// API keys under which streams and waits are open.
    active_keys: crate::access::active_keys::ActiveKeys,
    /// Suppressed addresses, in memory.
    suppression_index: crate::control::suppressions::SuppressionIndex,
    /// Sending domains and their DKIM keys, in memory.
    signing_domains: crate::handoff::signers::SigningDomainCache,
    /// Held while a DKIM key is generated.
    key_generation: tokio::sync::Mutex<()>,
    certificate_cache: crate::inbound::hooks::CertificateCache,
    fetch_limiter: crate::inbound::collect::FetchLimiter,
    inbound: crate::inbound::waiters::InboundRuntime,
    record_caches: RecordCaches,
    /// The ends of the event logs that clients stream.
    event_tails: crate::events::tail::EventTails,
    message_ids: crate::inbox::mailbox_reader::MessageIdCache,
    /// Wakes the worker that sends webhooks.
    notice_wakeup: Notify,
    /// Permits for endpoint tests.
    endpoint_test_permits: Semaphore,
    settings_cache: crate::access::settings::SettingsCache,
    /// Recently accepted emails, for the content guard.
    recent_sends: crate::outbound::content_guard::RecentSendWindow,
    fingerprints: crate::outbound::content_guard::FingerprintCache,
    /// Where the next round of the escalation worker continues.
    escalation_progress: crate::conversation::escalation_worker::EscalationProgress,
    /// Missing transports and their waiting handoffs.
    orphan_tracker: crate::handoff::orphans::OrphanTracker,
    /// Metrics for operators.
    pub metrics: Metrics,
}

impl Engine {
    /// Creates an engine over its ports.
    pub async fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Entropy>,
        outside: EngineDeps,
    ) -> Result<Arc<Self>, StoreError> {
        let before = clock.boot_clock_ms();
        let install = store.installation().await?;
        let reading = (before, clock.boot_clock_ms());
        // Ids contain the time of acceptance, which may be later than the last heartbeat.
        let last = install.last_heartbeat_at.max(Some(Time(install.last_id >> 12)).filter(|time| time.0 > 0));
        let seen = Arc::new(ReplayCache::default());
        let alone = store.subscribe_to_emails(Arc::clone(&seen) as SharedEmailSubscriber);
        let local = Arc::new(crate::inbound::local::LocalTransport::default());
        let mut transports = outside.transports.clone();
        if outside.delivers_to_inboxes() {
            transports.push(Arc::clone(&local) as Arc<dyn mailonce_core::ports::transport::Transport>);
        }
        let inbound =
            crate::inbound::waiters::InboundRuntime::new(outside.local_domains.clone(), outside.authenticator.clone());
        let time = Arc::new(Timekeeper::new(clock, last, install.database_clock, reading));
        store.set_commit_clock(Arc::clone(&time) as SharedLedgerClock);
        let engine = Arc::new(Self {
            store,
            time,
            lease_identities: LeaseIdentities::new(&*chance),
            transports: TransportSelector::new(
                &transports,
                outside.routing.clone(),
                Arc::clone(&inbound.inbox_domains),
            ),
            packer: Arc::new(crate::runtime::pack::Packer::new(
                &install.secret,
                Arc::clone(&chance),
                outside.seal_bodies,
            )),
            deps: outside,
            is_handoff_paused: AtomicBool::new(false),
            unknowns_in_progress: UnknownsInProgress::default(),
            unknown_wakeup: Notify::new(),
            entropy: chance,
            secret: install.secret,
            initial_epoch: install.epoch,
            ids: Mutex::new(IdGenerator::starting_above(install.last_id)),
            replay_cache: seen,
            is_single_node: alone,
            suppressed_calls: SuppressedCallBuffer::default(),
            credentials: crate::access::api_keys::CredentialCache::new(alone),
            active_keys: crate::access::active_keys::ActiveKeys::default(),
            suppression_index: crate::control::suppressions::SuppressionIndex::default(),
            signing_domains: crate::handoff::signers::SigningDomainCache::default(),
            key_generation: tokio::sync::Mutex::default(),
            certificate_cache: crate::inbound::hooks::CertificateCache::default(),
            fetch_limiter: crate::inbound::collect::FetchLimiter::default(),
            inbound,
            record_caches: RecordCaches::default(),
            event_tails: crate::events::tail::EventTails::default(),
            message_ids: crate::inbox::mailbox_reader::MessageIdCache::default(),
            notice_wakeup: Notify::new(),
            endpoint_test_permits: Semaphore::new(MAX_ENDPOINT_TESTS),
            settings_cache: crate::access::settings::SettingsCache::default(),
            recent_sends: crate::outbound::content_guard::RecentSendWindow::default(),
            fingerprints: crate::outbound::content_guard::FingerprintCache::default(),
            escalation_progress: crate::conversation::escalation_worker::EscalationProgress::default(),
            orphan_tracker: crate::handoff::orphans::OrphanTracker::default(),
            metrics: Metrics::default(),
        });
        local.attach_engine(&engine);
        engine.subscribe_to_store();
        Ok(engine)
    }

    /// Wakes waiting calls and workers when this or another node commits something for them.
    fn subscribe_to_store(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        let is_pushed = self.store.subscribe_to_inbound(Box::new(move |wake_up| {
            if let Some(engine) = engine.upgrade() {
                engine.inbound.on_wake_up(wake_up);
            }
        }));
        self.inbound.has_push_wake_ups.store(is_pushed, Ordering::Relaxed);
        let engine = Arc::downgrade(self);
        let is_pushed = self.store.subscribe_to_events(Box::new(move |team| {
            if let Some(engine) = engine.upgrade() {
                engine.event_tails.wake(team);
                engine.notice_wakeup.notify_one();
            }
        }));
        self.event_tails.has_push_wake_ups.store(is_pushed, Ordering::Relaxed);
    }

    /// Ledger time. It never goes back and never jumps, whatever the wall clock does.
    pub fn now(&self) -> Time {
        self.time.now()
    }

    /// Whether the clock can be trusted. While it cannot, nothing expires, no scheduled email becomes due, and every
    /// provider's idempotency window counts as closed.
    pub fn is_time_trusted(&self) -> bool {
        self.time.is_trusted()
    }

    /// The state of this node's clock compared with the database's.
    pub fn clock_state(&self) -> ClockState {
        self.time.clock_state()
    }

    /// Records that an operator confirmed the wall clock.
    pub fn confirm_time(&self) {
        self.time.confirm(ConfirmedBy::Operator);
        self.transports.wake_all();
    }

    /// Pauses or resumes the hand-off to transports.
    pub fn set_handoff_paused(&self, paused: bool) {
        self.is_handoff_paused.store(paused, Ordering::Relaxed);
        self.transports.wake_all();
    }

    /// Whether the hand-off is paused.
    pub fn is_handoff_paused(&self) -> bool {
        self.is_handoff_paused.load(Ordering::Relaxed)
    }

    /// The status of every transport except the sandbox.
    pub fn transport_statuses(&self) -> Vec<crate::handoff::transport_selector::TransportStatus> {
        self.transports.iter().map(|way| way.status(self.time.boot_clock_ms())).collect()
    }

    /// All metrics in the Prometheus text format, followed by `more`: metrics of other crates in the same format.
    pub async fn render_metrics(&self, more: &str) -> String {
        let backlog = self.store.backlog().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "counting what waits");
            mailonce_core::handoff::lease::Backlog::default()
        });
        let endpoints = self.store.endpoint_gauges().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "counting what is owed to endpoints");
            Vec::new()
        });
        let mut text = self.metrics.render(
            &self.store.gauges(),
            &backlog,
            (&self.transport_statuses(), &self.orphaned_transports()),
            self.now(),
        );
        crate::runtime::metrics::render_clock_metrics(&mut text, self.clock_state());
        crate::runtime::metrics::render_endpoint_metrics(&mut text, &endpoints);
        text.push_str(more);
        text.push_str("# EOF\n");
        text
    }

    /// The store, for health checks and shutdown.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn new_id(&self, now: Time) -> Uuid {
        let chance = self.entropy.next_u64();
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).next_id(now, chance)
    }
}

/// A call other than a send that has an idempotency key.
#[derive(Clone, Debug)]
pub struct KeyedCall {
    /// The idempotency key.
    pub key: mailonce_core::key::EmailKey,
    /// The digest of the operation, its path and its body.
    pub digest: [u8; 32],
}

/// The operation to bind to the caller's key, with the response for replays. `None` without a key.
fn operation(caller: &Caller, asked: Option<&KeyedCall>, answer: Vec<u8>, now: Time) -> Option<KeyedOperation> {
    let asked = asked?;
    Some(KeyedOperation {
        team: caller.team.id,
        key: asked.key.hash(caller.team.id),
        digest: asked.digest,
        response: answer,
        expires_at: now.plus(limits::OPERATION_RETENTION_MS),
    })
}

/// A problem with one field.
pub(crate) fn invalid_field(path: &str, message: impl Into<String>) -> Problem {
    Problem::from(vec![FieldError::new(path, message)])
}

/// The problem that a caller gets when the store fails.
pub fn unavailable(error: StoreError) -> Problem {
    match error {
        StoreError::Unreachable(why) | StoreError::CommitUnknown(why) | StoreError::Locked(why) => {
            tracing::warn!(why, "the ledger could not answer");
            Problem::new(Code::Unavailable, "the ledger could not answer; nothing is lost")
        }
        StoreError::Corrupt(why) => {
            tracing::error!(why, "the ledger cannot be trusted");
            Problem::new(
                Code::Unavailable,
                "the ledger has stopped because it cannot be trusted; an operator must look",
            )
        }
    }
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
