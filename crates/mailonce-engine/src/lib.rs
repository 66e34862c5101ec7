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
mod wording;

use mailonce_core::{
    call::CallMark,
    email::Channel,
    id::IdMaker,
    key::InstallSecret,
    limits,
    port::{
        Chance, Clock,
        store::{Keeper, Operation, Store, StoreError, SuppressedCall, SuppressedReason, Watcher},
    },
    problem::{Code, FieldError, Problem},
    team::{ApiKey, Scope, Team},
    time::Time,
};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use control::record_cache::RecordCaches;
use doubts::AtWork;
use holder::Holder;
use metrics::Metrics;
use seen::Seen;
use suppressed::Suppressions;
use time::{ClockState, ConfirmedBy, Timekeeper};
use ways::{Outside, Ways};

/// The transport that captures mail inside our own commit: nothing leaves the machine.
pub const SANDBOX: &str = "sandbox";

/// Tests of endpoints that run at a time.
const TESTS: usize = 16;

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
    pub call: Option<CallMark>,
    /// The inboxes that the API key is tied to; `None` for a key of the whole team.
    pub ties: Option<Arc<ties::Ties>>,
}

impl Caller {
    /// Refuses a caller that lacks a scope.
    pub fn need(&self, scope: Scope) -> Result<(), Problem> {
        if scope == Scope::Operator {
            self.need_whole_team()?;
        }
        if self.key.may(scope) {
            return Ok(());
        }
        let has: Vec<&str> = self.key.about.scopes.iter().map(|scope| scope.word()).collect();
        Err(Problem::new(Code::WrongScope, format!("this call needs the scope `{}`", scope.word())).with("has", has))
    }

    /// This call, when an earlier email is its answer.
    fn suppressed(&self, reason: SuppressedReason, now: Time) -> SuppressedCall {
        SuppressedCall { at: now, caller: Some(self.key.id), channel: self.channel, reason, call: self.call.clone() }
    }
}

/// The verbs over their ports.
pub struct Engine {
    store: Arc<dyn Store>,
    chance: Arc<dyn Chance>,
    secret: InstallSecret,
    /// Packs and unpacks bodies.
    bodies: Arc<pack::Packer>,
    /// The epoch when the store was opened.
    first_epoch: u32,
    ids: Mutex<IdMaker>,
    time: Arc<Timekeeper>,
    /// Under which name this run of the program leases.
    holder: Holder,
    outside: Outside,
    ways: Ways,
    /// Whether hand-off rests by an operator's wish.
    paused: AtomicBool,
    at_work: AtWork,
    /// Wakes whoever looks after unknown outcomes.
    doubted: Notify,
    seen: Arc<Seen>,
    /// Whether the store tells of every change, so that what was seen may be answered from memory.
    alone: bool,
    suppressions: Suppressions,
    access: access::Access,
    /// API keys under which streams and waits are open.
    open_keys: open_keys::OpenKeys,
    /// Addresses that are not written to.
    stop_list: suppressions::StopList,
    /// Domains that sign.
    signers: signers::Signers,
    /// Held while a key is made.
    making_keys: tokio::sync::Mutex<()>,
    hooks: hook::HookMemory,
    desks: collect::Desks,
    inbound: inbound::Inbound,
    caches: RecordCaches,
    /// The ends of the event logs that somebody follows.
    tails: tail::Tails,
    email_names: mailbox::EmailNames,
    /// Wakes whoever tells endpoints.
    news: Notify,
    /// Room for tests of endpoints.
    tests: Semaphore,
    settings_book: settings::SettingsBook,
    /// What was said of late, for the content guard.
    window: content_guard::Window,
    likenesses: content_guard::LikenessCache,
    /// How far questions for people were looked after.
    rounds: questions::Rounds,
    /// Transports that are missing, and what waits for them.
    orphan_watch: orphans::OrphanWatch,
    /// Figures for operators.
    pub metrics: Metrics,
}

impl Engine {
    /// An engine over its ports.
    pub async fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
        outside: Outside,
    ) -> Result<Arc<Self>, StoreError> {
        let before = clock.even();
        let install = store.install().await?;
        let reading = (before, clock.even());
        // Emails carry the time of their acceptance in their ids.
        let last = install.seen_at.max(Some(Time(install.last_id >> 12)).filter(|time| time.0 > 0));
        let seen = Arc::new(Seen::default());
        let alone = store.watch(Arc::clone(&seen) as Watcher);
        let local = Arc::new(local::Local::default());
        let mut transports = outside.transports.clone();
        if outside.reaches_inboxes() {
            transports.push(Arc::clone(&local) as Arc<dyn mailonce_core::port::transport::Transport>);
        }
        let inbound = inbound::Inbound::new(outside.local_domains.clone(), outside.authenticator.clone());
        let time = Arc::new(Timekeeper::new(clock, last, install.database, reading));
        store.keep_time(Arc::clone(&time) as Keeper);
        let engine = Arc::new(Self {
            store,
            time,
            holder: Holder::new(&*chance),
            ways: Ways::new(&transports, outside.routing.clone(), Arc::clone(&inbound.inbox_domains)),
            bodies: Arc::new(pack::Packer::new(&install.secret, Arc::clone(&chance), outside.seal_bodies)),
            outside,
            paused: AtomicBool::new(false),
            at_work: AtWork::default(),
            doubted: Notify::new(),
            chance,
            secret: install.secret,
            first_epoch: install.epoch,
            ids: Mutex::new(IdMaker::above(install.last_id)),
            seen,
            alone,
            suppressions: Suppressions::default(),
            access: access::Access::new(alone),
            open_keys: open_keys::OpenKeys::default(),
            stop_list: suppressions::StopList::default(),
            signers: signers::Signers::default(),
            making_keys: tokio::sync::Mutex::default(),
            hooks: hook::HookMemory::default(),
            desks: collect::Desks::default(),
            inbound,
            caches: RecordCaches::default(),
            tails: tail::Tails::default(),
            email_names: mailbox::EmailNames::default(),
            news: Notify::new(),
            tests: Semaphore::new(TESTS),
            settings_book: settings::SettingsBook::default(),
            window: content_guard::Window::default(),
            likenesses: content_guard::LikenessCache::default(),
            rounds: questions::Rounds::default(),
            orphan_watch: orphans::OrphanWatch::default(),
            metrics: Metrics::default(),
        });
        local.belongs_to(&engine);
        let hearer = Arc::downgrade(&engine);
        let told = engine.store.hear(Box::new(move |hint| {
            if let Some(engine) = hearer.upgrade() {
                engine.inbound.hear(hint);
            }
        }));
        engine.inbound.told.store(told, Ordering::Relaxed);
        let hearer = Arc::downgrade(&engine);
        let told = engine.store.hear_events(Box::new(move |team| {
            if let Some(engine) = hearer.upgrade() {
                engine.tails.wake(team);
                engine.news.notify_one();
            }
        }));
        engine.tails.told.store(told, Ordering::Relaxed);
        Ok(engine)
    }

    /// Ledger time: never goes back and never leaps, whatever the clock does.
    pub fn now(&self) -> Time {
        self.time.now()
    }

    /// Whether time can be trusted. While it cannot, nothing is forgotten, nothing scheduled becomes due and no
    /// provider's window counts as open.
    pub fn time_is_sure(&self) -> bool {
        self.time.is_sure()
    }

    /// How the clocks of this node and its database stand.
    pub fn clock_state(&self) -> ClockState {
        self.time.clock_state()
    }

    /// An operator says that the wall clock is right.
    pub fn confirm_time(&self) {
        self.time.confirm(ConfirmedBy::Operator);
        self.ways.wake();
    }

    /// Lets hand-off rest, or go on.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
        self.ways.wake();
    }

    /// Whether hand-off rests.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Every way out but the sandbox, as it is.
    pub fn way_views(&self) -> Vec<ways::WayView> {
        self.ways.iter().map(|way| way.view(self.time.even())).collect()
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
            (&self.way_views(), &self.orphaned_transports()),
            self.now(),
        );
        metrics::clock_figures(&mut text, self.clock_state());
        metrics::endpoint_figures(&mut text, &endpoints);
        text.push_str(more);
        text.push_str("# EOF\n");
        text
    }

    /// The store itself, for health and shutdown.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn new_id(&self, now: Time) -> Uuid {
        let chance = self.chance.number();
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).next(now, chance)
    }
}

/// A call that brought an idempotency key and is not a send.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its key.
    pub name: mailonce_core::key::KeyName,
    /// What was asked: operation, path and body.
    pub digest: [u8; 32],
}

/// An operation under a caller's key, with what to answer when it is asked again.
fn operation(caller: &Caller, asked: Option<&Asked>, answer: Vec<u8>, now: Time) -> Option<Operation> {
    let asked = asked?;
    Some(Operation {
        team: caller.team.id,
        key: asked.name.hash(caller.team.id),
        digest: asked.digest,
        answer,
        expires_at: now.plus(limits::OPERATION_MS),
    })
}

/// The problem of one field.
pub(crate) fn fault(path: &str, message: impl Into<String>) -> Problem {
    Problem::from(vec![FieldError::new(path, message)])
}

/// What a caller is told when the store could not tell.
pub fn unavailable(error: StoreError) -> Problem {
    match error {
        StoreError::Unreachable(why) | StoreError::Unknown(why) | StoreError::Locked(why) => {
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
