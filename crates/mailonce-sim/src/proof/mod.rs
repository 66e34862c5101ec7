//! The checker of the invariants P1 to P17: takes a history and returns violations with the lines that explain them.
//!
//! - [`history`] is what a test observed: calls with their outcomes, arrivals at next hops, injected faults, and the
//!   final ledger.
//! - [`check`] checks a history, [`check_reread`] two reads of one event log.
//! - [`Violation`] has the broken rule, its subject, and the related lines of the history.
//!
//! The checker does not depend on how a history was made. The simulation and the tests of the real binary share it.

mod accepts;
mod claim_history;
mod claims;
mod conversation_end;
mod conversation_history;
mod conversations;
mod copies;
mod events;
pub mod history;
mod history_index;
mod inbound_history;
mod inbound_mail;
mod invariants;
mod ledger_decisions;
mod ledger_rows;
mod liveness;
mod tenant_isolation;
mod transitions;
mod violation;
mod webhooks;

pub use history::History;
pub use invariants::{Invariant, Rule};
pub use violation::Violation;

use history::Event;
use history_index::HistoryIndex;

/// Checks a history. Liveness is checked only if the history says that all faults ended.
pub fn check(history: &History) -> Vec<Violation> {
    let view = HistoryIndex::new(history);
    let mut found = Vec::new();
    accepts::check(&view, &mut found);
    claims::check(&view, &mut found);
    tenant_isolation::check(&view, &mut found);
    copies::check(&view, &mut found);
    ledger_decisions::check(&view, &mut found);
    transitions::check(&view, &mut found);
    liveness::check(&view, &mut found);
    events::check(&view, &mut found);
    webhooks::check(&view, &mut found);
    inbound_mail::check(&view, &mut found);
    conversations::check(&view, &mut found);
    found.sort();
    found.dedup();
    found
}

/// Events that were read earlier must be unchanged.
pub fn check_reread(before: &[Event], now: &[Event]) -> Vec<Violation> {
    events::check_reread(before, now)
}
