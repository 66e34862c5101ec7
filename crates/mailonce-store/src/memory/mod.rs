//! The in-memory store: an executable model of every operation, in plain maps under one lock.
//!
//! Nothing here is durable. The other stores are compared with it, and simulations run on it.

mod access;
mod claims;
mod control;
mod conversation;
mod events;
pub(crate) mod handoff;
mod inbound;
pub(crate) mod inbox;
pub(crate) mod outbound;
mod search;
mod store;
mod upkeep;

use mailonce_core::{
    commit_clock::CommitClock,
    key::InstallSecret,
    outbound::email::Email,
    ports::{inbound_store::InboundWakeUpHandler, store::SharedEmailSubscriber},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use access::teams::AccessTables;
use claims::ClaimTables;
use control::ControlTables;
use conversation::ConversationTables;
use events::EventTables;
use handoff::handoffs::HandoffTables;
use inbound::tables::InboundTables;
use outbound::tables::OutboundTables;
use search::SearchTables;

/// All tables, by domain.
#[derive(Default)]
struct Tables {
    access: AccessTables,
    control: ControlTables,
    claims: ClaimTables,
    outbound: OutboundTables,
    handoffs: HandoffTables,
    inbound: InboundTables,
    conversations: ConversationTables,
    events: EventTables,
    search: SearchTables,
    /// The ordered bits of the highest id that was used.
    highest_id: i64,
}

/// The in-memory store.
pub struct Memory {
    tables: Mutex<Tables>,
    secret: InstallSecret,
    email_subscribers: Mutex<Vec<SharedEmailSubscriber>>,
    inbound_subscribers: Mutex<Vec<InboundWakeUpHandler>>,
    time: Arc<CommitClock>,
}

impl Memory {
    /// Creates an empty store with this install secret.
    pub fn new(secret: [u8; 32]) -> Self {
        let time = Arc::<CommitClock>::default();
        let outbound = OutboundTables { time: Arc::clone(&time), ..OutboundTables::default() };
        Self {
            tables: Mutex::new(Tables { outbound, ..Tables::default() }),
            secret: InstallSecret(secret),
            email_subscribers: Mutex::default(),
            inbound_subscribers: Mutex::default(),
            time,
        }
    }

    fn lock_tables(&self) -> MutexGuard<'_, Tables> {
        // A panic under the lock is a bug. The maps are still consistent enough to be read.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_email_changed(&self, email: &Email) {
        for subscriber in self.email_subscribers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            subscriber.after_commit(email);
        }
    }
}
