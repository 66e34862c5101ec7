//! What the configuration says about an outbox.

use mailonce_core::{ports::outbox_database::OutboxDatabase, problem::Problem};
use std::sync::Arc;

use crate::outbound::keyed_send::SendRequest;

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
