//! Ports: the traits that the engine needs from the outside world.

pub mod audit_store;
pub mod authenticator;
pub mod claim_store;
pub mod control_store;
pub mod conversation_store;
pub mod erasure_store;
pub mod event_formatter;
pub mod inbound_store;
pub mod mail_fetcher;
pub mod network;
pub mod notice_store;
pub mod oauth_store;
pub mod outbox_database;
pub mod search_store;
pub mod secret_keeper;
pub mod store;
pub mod template_store;
pub mod transport;
pub mod webhook_client;

use crate::time::Time;

/// The clocks of this machine. The engine reads the time only through this trait.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock. It may jump.
    fn now(&self) -> Time;
    /// Milliseconds since an arbitrary moment. It never jumps, and it keeps counting while the machine sleeps.
    fn boot_clock_ms(&self) -> i64;
    /// Whether the wall clock was set while no process was running, as far as this machine can tell.
    fn was_wall_clock_set(&self) -> bool {
        false
    }
    /// Whether the kernel reports that a time service synchronizes the wall clock. False where this cannot be
    /// determined.
    fn is_synchronized(&self) -> bool {
        false
    }
}

/// The source of randomness. The engine gets random bytes only through this trait.
pub trait Entropy: Send + Sync + 'static {
    /// Fills `bytes` with unpredictable bytes.
    fn fill(&self, bytes: &mut [u8]);

    /// An unpredictable number.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes)
    }
}
