//! Lets sending and the hand-off open and close escalations.
//!
//! An escalation may send an email itself, so escalations are built on top of sending. This hook is the way back. It
//! is attached once, when the engine is complete.

use async_trait::async_trait;
use mailonce_core::{
    conversation::escalation::Escalation, id::TeamId, outbound::email::Email, ports::store::StoreError, record::Record,
};
use std::sync::{Arc, OnceLock, Weak};

/// What lower domains ask of escalations.
#[async_trait]
pub(crate) trait EscalateToPeople: Send + Sync {
    /// Asks a person about an email that is held or unknown. Does nothing for any other email.
    async fn escalate_if_stuck(&self, email: &Email);

    /// Closes the escalation about an email that needs no decision any more.
    async fn close_moot_escalation(&self, email: &Email);

    /// Opens an escalation, unless it is open already.
    async fn ensure_open(&self, team: TeamId, escalation: Escalation) -> Result<(), StoreError>;

    /// Closes an escalation that became moot, or carries out its decision.
    async fn review_escalation(&self, record: &Record) -> Result<(), StoreError>;
}

/// The late-bound reference to the escalations.
#[derive(Default)]
pub(crate) struct EscalationHook(OnceLock<Weak<dyn EscalateToPeople>>);

impl EscalationHook {
    /// Attaches the escalations. Only the first call has an effect.
    pub(crate) fn attach(&self, escalations: Weak<dyn EscalateToPeople>) {
        self.0.get_or_init(|| escalations);
    }

    /// The escalations; `None` while the engine is built or dropped. The periodic round then catches up.
    pub(crate) fn get(&self) -> Option<Arc<dyn EscalateToPeople>> {
        self.0.get().and_then(Weak::upgrade)
    }
}
