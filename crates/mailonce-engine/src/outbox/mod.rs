//! Outboxes: emails and claims that the user's own transaction put into the user's own database.
//!
//! | file | what it holds |
//! |---|---|
//! | `drainer` | the loop of one outbox: leases rows, accepts each under its key, marks it |
//! | [`queries`] | the state of the outboxes of a team, dead letters and their replay |
//!
//! Invariant: no transaction of the user's database is open while an email is accepted. A crash between the accept and
//! the mark leaves the row open, and the same key gets the same email when the row is offered again.

mod drainer;
pub mod queries;

pub use drainer::OutboxDrainer;

use mailonce_core::{ports::outbox_database::OutboxDatabase, problem::Problem};
use std::sync::Arc;

use crate::{
    claims::Claims,
    outbound::{Outbound, keyed_send::SendRequest},
    runtime::context::Context,
};

/// Parses and validates a payload, as `POST /v1/emails` does with its body.
pub type PayloadParser = fn(&[u8]) -> Result<SendRequest, Problem>;

/// An outbox of the configuration.
#[derive(Clone)]
pub struct OutboxConfig {
    /// Its name, unique in the installation.
    pub name: String,
    /// The name of the team that sends its emails; the only team when `None`.
    pub team: Option<String>,
    /// Its database.
    pub database: Arc<dyn OutboxDatabase>,
    /// Parses its payloads.
    pub parse_payload: PayloadParser,
}

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
