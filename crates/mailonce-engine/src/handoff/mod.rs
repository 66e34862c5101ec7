//! The hand-off: gives each accepted email to a transport once, and recovers unknown outcomes.

pub(crate) mod breaker;
pub(crate) mod freeze;
pub mod orphans;
pub(crate) mod panics;
pub mod reroute;
pub mod transport_selector;
pub mod unknown;
pub(crate) mod upkeep;
pub(crate) mod worker;

use std::sync::Arc;

use crate::{access::Access, control::Control, runtime::context::Context};

/// Hands accepted emails to transports, once each, and recovers unknown outcomes.
pub struct Handoffs {
    ctx: Arc<Context>,
    access: Arc<Access>,
    control: Arc<Control>,
    unknowns_in_progress: unknown::UnknownsInProgress,
    /// Missing transports and their waiting handoffs.
    orphan_tracker: orphans::OrphanTracker,
}

impl Handoffs {
    pub(crate) fn new(ctx: Arc<Context>, access: Arc<Access>, control: Arc<Control>) -> Self {
        Self {
            ctx,
            access,
            control,
            unknowns_in_progress: unknown::UnknownsInProgress::default(),
            orphan_tracker: orphans::OrphanTracker::default(),
        }
    }
}
