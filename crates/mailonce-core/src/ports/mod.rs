//! Ports: what the engine needs from the rest of the world.

pub mod authenticator;
pub mod conversation_store;
pub mod event_formatter;
pub mod inbound_store;
pub mod mail_fetcher;
pub mod network;
pub mod notice_store;
pub mod secret_keeper;
pub mod store;
pub mod transport;
pub mod webhook_client;

use crate::time::Time;

/// The time. The only way by which the engine learns it.
pub trait Clock: Send + Sync + 'static {
    /// Now, as people count it. It may jump.
    fn now(&self) -> Time;
    /// Milliseconds since some moment, counted evenly even while the machine sleeps. Never jumps.
    fn boot_clock_ms(&self) -> i64;
    /// Whether the first was set while nobody looked at it, as far as this machine can tell.
    fn was_wall_clock_set(&self) -> bool {
        false
    }
    /// Whether the kernel says that a time service keeps the wall clock right. False where nobody can tell.
    fn is_synchronized(&self) -> bool {
        false
    }
}

/// Chance. The only way by which the engine gets it.
pub trait Entropy: Send + Sync + 'static {
    /// Fills `bytes` with unpredictable ones.
    fn fill(&self, bytes: &mut [u8]);

    /// An unpredictable number.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes)
    }
}
