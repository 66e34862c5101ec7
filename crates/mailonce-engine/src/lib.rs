//! The verbs: what happens between a request and a commit. No sockets, no SQL.
//!
//! [`Engine`] sees the world through ports. Each file holds one verb or a family of them: [`send`] accepts,
//! [`change`] takes back and sends again, [`keys`] looks at names of wishes, [`access`] at credentials,
//! [`domains`], [`suppressions`] and [`sources`] at what else a team owns, [`hook`] takes in what providers tell,
//! [`receive`] keeps mail that comes in, [`collect`] fetches what was only told of, [`inboxes`], [`messages`], [`wait`]
//! and [`artifacts`] are what agents do with it,
//! [`endpoints`], [`notices`] and [`notify`] tell applications of events, [`tail`] those who follow them live,
//! [`mailbox`] is both directions of an inbox in one list, [`drafts`] are mails that wait, [`labels`] lie beside mails, [`lists`] say whom mail may come from and go to, [`links`]
//! open one file for a while,
//! [`reply`], [`threads`] and [`next`] are conversations, [`escalations`] questions for people, [`settings`] their wishes,
//! [`dispatch`] hands over, [`doubts`] looks after unknown outcomes, [`ways`] knows the ways out, and [`upkeep`]
//! holds the loops that run beside the requests.

pub mod access;
pub mod artifacts;
mod breaker;
pub mod change;
pub mod collect;
mod content_guard;
pub mod control;
mod cursor;
mod decisions;
mod diff;
mod dispatch;
pub mod domains;
pub mod doubts;
pub mod draft_turns;
pub mod drafts;
pub mod endpoints;
pub mod escalations;
#[doc(hidden)]
pub mod failpoint;
mod freeze;
mod holder;
pub mod hook;
mod hook_mail;
mod inbound;
pub mod inboxes;
pub mod kek;
pub mod keys;
pub mod labels;
pub mod links;
pub mod lists;
pub mod local;
pub mod look;
pub mod mailbox;
pub mod messages;
pub mod metrics;
pub mod next;
pub mod notices;
pub mod notify;
pub mod open_keys;
pub mod orphans;
mod outbound_facts;
mod own;
mod pack;
mod panics;
mod poll;
pub mod preview;
mod proofs;
mod questions;
mod quote;
mod read;
pub mod receive;
pub mod received;
pub mod records;
pub mod reply;
pub mod reroute;
mod returned;
pub mod rules;
mod seal;
mod seen;
pub mod send;
pub mod settings;
mod signers;
pub mod sources;
mod suppressed;
pub mod suppressions;
pub mod tail;
pub mod threads;
pub mod ties;
pub mod time;
pub mod told;
pub mod upkeep;
mod vault;
pub mod view;
pub mod wait;
pub mod ways;
mod word_diff;
mod wording;

use mailonce_core::{
    call::CallTrace,
    email::Channel,
    id::IdGenerator,
    key::InstallSecret,
    limits,
    port::{
        Clock, Entropy,
        store::{
            KeyedOperation, SharedEmailSubscriber, SharedLedgerClock, Store, StoreError, SuppressedCall,
            SuppressedReason,
        },
    },
    problem::{Code, FieldError, Problem},
    team::{ApiKey, ApiKeyScope, Team},
    time::Time,
};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use control::record_cache::RecordCaches;
use doubts::UnknownsInProgress;
use holder::LeaseIdentities;
use metrics::Metrics;
use seen::ReplayCache;
use suppressed::SuppressedCallBuffer;
use time::{ClockState, ConfirmedBy, Timekeeper};
use ways::{EngineDeps, TransportSelector};

/// The transport that captures mail inside our own commit: nothing leaves the machine.
pub const SANDBOX: &str = "sandbox";

/// Tests of endpoints that run at a time.
const MAX_ENDPOINT_TESTS: usize = 16;

/// Who calls, through which door.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The credential.
    pub key: Arc<ApiKey>,
    /// Its team.
    pub team: Arc<Team>,
    /// The door.
    pub channel: Channel,
    /// What the caller calls this call.
    pub call: Option<CallTrace>,
    /// The inboxes that the API key is tied to; `None` for a key of the whole team.
    pub inbox_restriction: Option<Arc<ties::InboxRestriction>>,
}

impl Caller {
    /// Refuses a caller that lacks a scope.
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

    /// This call, when an earlier email is its answer.
    fn suppressed_call(&self, reason: SuppressedReason, now: Time) -> SuppressedCall {
        SuppressedCall { at: now, caller: Some(self.key.id), channel: self.channel, reason, call: self.call.clone() }
    }
}

/// The verbs over their ports.
pub struct Engine {
    store: Arc<dyn Store>,
    entropy: Arc<dyn Entropy>,
    secret: InstallSecret,
    /// Packs and unpacks bodies.
    packer: Arc<pack::Packer>,
    /// The epoch when the store was opened.
    initial_epoch: u32,
    ids: Mutex<IdGenerator>,
    time: Arc<Timekeeper>,
    /// Under which name this run of the program leases.
    lease_identities: LeaseIdentities,
    deps: EngineDeps,
    transports: TransportSelector,
    /// Whether hand-off rests by an operator's wish.
    is_handoff_paused: AtomicBool,
    unknowns_in_progress: UnknownsInProgress,
    /// Wakes whoever looks after unknown outcomes.
    unknown_wakeup: Notify,
    replay_cache: Arc<ReplayCache>,
    /// Whether the store tells of every change, so that what was seen may be answered from memory.
    is_single_node: bool,
    suppressed_calls: SuppressedCallBuffer,
    credentials: access::CredentialCache,
    /// API keys under which streams and waits are open.
    active_keys: open_keys::ActiveKeys,
    /// Addresses that are not written to.
    suppression_index: suppressions::SuppressionIndex,
    /// Domains that sign.
    signing_domains: signers::SigningDomainCache,
    /// Held while a key is made.
    key_generation: tokio::sync::Mutex<()>,
    certificate_cache: hook::CertificateCache,
    fetch_limiter: collect::FetchLimiter,
    inbound: inbound::InboundRuntime,
    record_caches: RecordCaches,
    /// The ends of the event logs that somebody follows.
    event_tails: tail::EventTails,
    message_ids: mailbox::MessageIdCache,
    /// Wakes whoever tells endpoints.
    notice_wakeup: Notify,
    /// Room for tests of endpoints.
    endpoint_test_permits: Semaphore,
    settings_cache: settings::SettingsCache,
    /// What was said of late, for the content guard.
    recent_sends: content_guard::RecentSendWindow,
    fingerprints: content_guard::FingerprintCache,
    /// How far questions for people were looked after.
    escalation_progress: questions::EscalationProgress,
    /// Transports that are missing, and what waits for them.
    orphan_tracker: orphans::OrphanTracker,
    /// Figures for operators.
    pub metrics: Metrics,
}

impl Engine {
    /// An engine over its ports.
    pub async fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Entropy>,
        outside: EngineDeps,
    ) -> Result<Arc<Self>, StoreError> {
        let before = clock.boot_clock_ms();
        let install = store.installation().await?;
        let reading = (before, clock.boot_clock_ms());
        // Emails carry the time of their acceptance in their ids.
        let last = install.last_heartbeat_at.max(Some(Time(install.last_id >> 12)).filter(|time| time.0 > 0));
        let seen = Arc::new(ReplayCache::default());
        let alone = store.subscribe_to_emails(Arc::clone(&seen) as SharedEmailSubscriber);
        let local = Arc::new(local::LocalTransport::default());
        let mut transports = outside.transports.clone();
        if outside.delivers_to_inboxes() {
            transports.push(Arc::clone(&local) as Arc<dyn mailonce_core::port::transport::Transport>);
        }
        let inbound = inbound::InboundRuntime::new(outside.local_domains.clone(), outside.authenticator.clone());
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
            packer: Arc::new(pack::Packer::new(&install.secret, Arc::clone(&chance), outside.seal_bodies)),
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
            credentials: access::CredentialCache::new(alone),
            active_keys: open_keys::ActiveKeys::default(),
            suppression_index: suppressions::SuppressionIndex::default(),
            signing_domains: signers::SigningDomainCache::default(),
            key_generation: tokio::sync::Mutex::default(),
            certificate_cache: hook::CertificateCache::default(),
            fetch_limiter: collect::FetchLimiter::default(),
            inbound,
            record_caches: RecordCaches::default(),
            event_tails: tail::EventTails::default(),
            message_ids: mailbox::MessageIdCache::default(),
            notice_wakeup: Notify::new(),
            endpoint_test_permits: Semaphore::new(MAX_ENDPOINT_TESTS),
            settings_cache: settings::SettingsCache::default(),
            recent_sends: content_guard::RecentSendWindow::default(),
            fingerprints: content_guard::FingerprintCache::default(),
            escalation_progress: questions::EscalationProgress::default(),
            orphan_tracker: orphans::OrphanTracker::default(),
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

    /// Ledger time: never goes back and never leaps, whatever the clock does.
    pub fn now(&self) -> Time {
        self.time.now()
    }

    /// Whether time can be trusted. While it cannot, nothing is forgotten, nothing scheduled becomes due and no
    /// provider's window counts as open.
    pub fn is_time_trusted(&self) -> bool {
        self.time.is_trusted()
    }

    /// How the clocks of this node and its database stand.
    pub fn clock_state(&self) -> ClockState {
        self.time.clock_state()
    }

    /// An operator says that the wall clock is right.
    pub fn confirm_time(&self) {
        self.time.confirm(ConfirmedBy::Operator);
        self.transports.wake_all();
    }

    /// Lets hand-off rest, or go on.
    pub fn set_handoff_paused(&self, paused: bool) {
        self.is_handoff_paused.store(paused, Ordering::Relaxed);
        self.transports.wake_all();
    }

    /// Whether hand-off rests.
    pub fn is_handoff_paused(&self) -> bool {
        self.is_handoff_paused.load(Ordering::Relaxed)
    }

    /// Every way out but the sandbox, as it is.
    pub fn transport_statuses(&self) -> Vec<ways::TransportStatus> {
        self.transports.iter().map(|way| way.status(self.time.boot_clock_ms())).collect()
    }

    /// Every figure in the text form of Prometheus, with `more` in the same form: what others count.
    pub async fn render_metrics(&self, more: &str) -> String {
        let backlog = self.store.backlog().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "counting what waits");
            mailonce_core::port::store::Backlog::default()
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
        metrics::render_clock_metrics(&mut text, self.clock_state());
        metrics::render_endpoint_metrics(&mut text, &endpoints);
        text.push_str(more);
        text.push_str("# EOF\n");
        text
    }

    /// The store itself, for health and shutdown.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn new_id(&self, now: Time) -> Uuid {
        let chance = self.entropy.next_u64();
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).next_id(now, chance)
    }
}

/// A call that brought an idempotency key and is not a send.
#[derive(Clone, Debug)]
pub struct KeyedCall {
    /// Its key.
    pub key: mailonce_core::key::EmailKey,
    /// What was asked: operation, path and body.
    pub digest: [u8; 32],
}

/// An operation under a caller's key, with what to answer when it is asked again.
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

/// The problem of one field.
pub(crate) fn invalid_field(path: &str, message: impl Into<String>) -> Problem {
    Problem::from(vec![FieldError::new(path, message)])
}

/// What a caller is told when the store could not tell.
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
