//! The context that all services of the engine share: store, time, ids, transports and metrics.

use crate::{
    deps::EngineDeps,
    handoff::transport_selector::TransportSelector,
    runtime::{
        escalation_hook::EscalationHook,
        inbound_runtime::InboundRuntime,
        lease_identity::OwnNodeIds,
        metrics::Metrics,
        pack::Packer,
        time::{ClockState, ConfirmedBy, Timekeeper},
    },
};
use mailonce_core::{
    conversation::escalation::Escalation,
    id::{IdGenerator, TeamId},
    key::InstallSecret,
    outbound::email::Email,
    ports::{
        Entropy,
        store::{Store, StoreError},
    },
    record::Record,
    time::Time,
};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use uuid::Uuid;

/// What all services of the engine share: store, time, ids, transports and metrics.
pub struct Context {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) secret: InstallSecret,
    /// Encodes and encrypts bodies.
    pub(crate) packer: Arc<Packer>,
    /// The store's epoch when it was opened.
    pub(crate) initial_epoch: u32,
    pub(crate) ids: Mutex<IdGenerator>,
    pub(crate) time: Arc<Timekeeper>,
    /// The node ids under which this process leases.
    pub(crate) lease_identities: OwnNodeIds,
    pub(crate) deps: EngineDeps,
    pub(crate) transports: TransportSelector,
    /// Wakes the worker that recovers unknown outcomes.
    pub(crate) unknown_wakeup: Notify,
    /// Whether no other process shares the store. The store then reports every change, so that the caches stay
    /// current.
    pub(crate) is_single_node: bool,
    pub(crate) inbound: Arc<InboundRuntime>,
    /// Opens and closes escalations for the services that escalations depend on.
    pub(crate) escalation_hook: EscalationHook,
    /// Metrics for operators.
    pub metrics: Metrics,
}

impl Context {
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

    /// The status of every transport except the sandbox.
    pub fn transport_statuses(&self) -> Vec<crate::handoff::transport_selector::TransportStatus> {
        self.transports.iter().map(|route| route.status(self.time.boot_clock_ms())).collect()
    }

    /// The store, for health checks and shutdown.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn new_id(&self, now: Time) -> Uuid {
        let random = self.entropy.next_u64();
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).next_id(now, random)
    }
}

impl Context {
    /// Opens an escalation for an email that is held or unknown. Does nothing for any other email.
    pub(crate) async fn escalate_if_stuck(&self, email: &Email) {
        if let Some(escalations) = self.escalation_hook.get() {
            escalations.escalate_if_stuck(email).await;
        }
    }

    /// Closes the escalation about an email that needs no decision any more.
    pub(crate) async fn close_moot_escalation(&self, email: &Email) {
        if let Some(escalations) = self.escalation_hook.get() {
            escalations.close_moot_escalation(email).await;
        }
    }

    /// Opens an escalation, unless it is open already.
    pub(crate) async fn ensure_open_escalation(&self, team: TeamId, escalation: Escalation) -> Result<(), StoreError> {
        match self.escalation_hook.get() {
            Some(escalations) => escalations.ensure_open(team, escalation).await,
            None => Ok(()),
        }
    }

    /// Closes an escalation that became moot, or carries out its decision.
    pub(crate) async fn review_escalation(&self, record: &Record) -> Result<(), StoreError> {
        match self.escalation_hook.get() {
            Some(escalations) => escalations.review_escalation(record).await,
            None => Ok(()),
        }
    }
}
