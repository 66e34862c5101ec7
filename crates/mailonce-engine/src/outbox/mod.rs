//! Outboxes: emails and claims that the user's own transaction put into the user's own database.
//!
//! | file | what it holds |
//! |---|---|
//! | [`config`] | what the configuration says about an outbox |
//! | `drainer` | the loop of one outbox: leases rows, accepts each under its key, marks it |
//! | `reports` | events when the drain stops and goes on, and for each dead letter |
//! | [`queries`] | the state of the outboxes of a team, dead letters and their replay |
//!
//! Invariant: no transaction of the user's database is open while an email is accepted. A crash between the accept and
//! the mark leaves the row open, and the same key gets the same email when the row is offered again.

pub mod config;
mod drainer;
pub mod queries;
mod reports;

pub use drainer::OutboxDrainer;

use std::sync::Arc;

use crate::{claims::Claims, outbound::Outbound, runtime::context::Context};
use config::OutboxConfig;

/// The outboxes that this process drains.
pub struct Outboxes {
    ctx: Arc<Context>,
    drainers: Vec<Arc<OutboxDrainer>>,
}

impl Outboxes {
    pub(crate) fn new(ctx: &Arc<Context>, outbound: &Arc<Outbound>, claims: &Arc<Claims>) -> Self {
        let drainer = |config: &OutboxConfig| Arc::new(OutboxDrainer::new(ctx, outbound, claims, config.clone()));
        Self { ctx: Arc::clone(ctx), drainers: ctx.deps.outboxes.iter().map(drainer).collect() }
    }

    /// One drainer for each outbox.
    pub fn drainers(&self) -> &[Arc<OutboxDrainer>] {
        &self.drainers
    }
}
