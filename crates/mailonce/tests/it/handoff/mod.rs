//! Handoff to transports: workers that panic, and transports that disappear.

mod orphaned_transports;
mod worker_panics;
