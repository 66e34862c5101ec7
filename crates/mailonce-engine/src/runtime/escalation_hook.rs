//! Lets sending and the hand-off open and close escalations.
//!
//! The service of escalations sends emails, so it depends on sending. This hook breaks the cycle: it refers back to
//! that service, and is attached once all services are built.

use async_trait::async_trait;
use mailonce_core::{
    conversation::escalation::Escalation, id::TeamId, outbound::email::Email, ports::store::StoreError, record::Record,
};
use std::sync::{Arc, OnceLock, Weak};

/// What sending and the hand-off need from the service of escalations.
#[async_trait]
pub(crate) trait EscalateToPeople: Send + Sync {
    /// Opens an escalation for an email that is held or unknown. Does nothing for any other email.
    async fn escalate_if_stuck(&self, email: &Email);

    /// Closes the escalation about an email that needs no decision any more.
    async fn close_moot_escalation(&self, email: &Email);

    /// Opens an escalation, unless it is open already.
    async fn ensure_open(&self, team: TeamId, escalation: Escalation) -> Result<(), StoreError>;

    /// Closes an escalation that became moot, or carries out its decision.
    async fn review_escalation(&self, record: &Record) -> Result<(), StoreError>;
}

/// The late-bound reference to the service of escalations.
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
