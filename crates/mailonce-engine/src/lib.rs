//! The verbs: what happens between a request and a commit. No sockets, no SQL.
//!
//! [`Engine`] sees the world through ports. Each file holds one verb or a family of them: [`send`] accepts,
//! [`change`] takes back and sends again, [`keys`] looks at names of wishes, [`access`] at credentials,
//! [`upkeep`] holds the loops that run beside the requests.

pub mod access;
pub mod change;
pub mod keys;
pub mod look;
pub mod metrics;
mod pack;
mod seal;
mod seen;
pub mod send;
mod suppressed;
pub mod upkeep;
pub mod view;

use mailonce_core::{
    email::Channel,
    id::IdMaker,
    key::InstallSecret,
    limits,
    port::{
        Chance, Clock,
        store::{Operation, Store, StoreError},
    },
    problem::{Code, Problem},
    team::{ApiKey, Scope, Team},
    time::Time,
};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicI64, Ordering},
};
use tokio::sync::Notify;
use uuid::Uuid;

use metrics::Metrics;
use seen::Seen;
use suppressed::Suppressions;

/// The transport that captures mail inside our own commit: nothing leaves the machine.
pub const SANDBOX: &str = "sandbox";

/// Who calls, through which door.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The credential.
    pub key: Arc<ApiKey>,
    /// Its team.
    pub team: Arc<Team>,
    /// The door.
    pub channel: Channel,
}

impl Caller {
    /// Refuses a caller that lacks a scope.
    pub fn need(&self, scope: Scope) -> Result<(), Problem> {
        if self.key.may(scope) {
            return Ok(());
        }
        Err(Problem::new(Code::WrongScope, format!("this call needs the scope `{}`", scope.word())))
    }
}

/// The verbs over their ports.
pub struct Engine {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    secret: InstallSecret,
    epoch: u32,
    ids: Mutex<IdMaker>,
    /// Ledger time: the highest time ever seen. It never goes back.
    time: AtomicI64,
    seen: Arc<Seen>,
    /// Whether the store tells of every change, so that what was seen may be answered from memory.
    alone: bool,
    suppressions: Suppressions,
    access: access::Access,
    /// Figures for operators.
    pub metrics: Metrics,
    due: Notify,
}

impl Engine {
    /// An engine over its ports.
    pub async fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
    ) -> Result<Arc<Self>, StoreError> {
        let install = store.install().await?;
        let seen = Arc::new(Seen::default());
        let watcher = Arc::clone(&seen);
        let alone = store.watch(Box::new(move |email| watcher.learn(email)));
        Ok(Arc::new(Self {
            store,
            clock,
            chance,
            secret: install.secret,
            epoch: install.epoch,
            ids: Mutex::new(IdMaker::above(install.last_id)),
            time: AtomicI64::new(install.last_id >> 12),
            seen,
            alone,
            suppressions: Suppressions::default(),
            access: access::Access::new(alone),
            metrics: Metrics::default(),
            due: Notify::new(),
        }))
    }

    /// Ledger time: never goes back, whatever the clock does.
    pub fn now(&self) -> Time {
        let wall = self.clock.now().0;
        Time(self.time.fetch_max(wall, Ordering::Relaxed).max(wall))
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

/// What a caller is told when the store could not tell.
pub fn unavailable(error: StoreError) -> Problem {
    match error {
        StoreError::Unreachable(why) | StoreError::Unknown(why) => {
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
