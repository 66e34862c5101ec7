//! The judge of the promises P1 to P16: a history goes in, what was broken comes out, each with its story.
//!
//! - [`history`] is what a rig saw: calls with their ends, what next hops got, which faults it made, and what the
//!   ledger showed in the end.
//! - [`check`] judges a history, [`check_reread`] two readings of one ledger.
//! - [`Violation`] names the promise, what it is about, and the lines of the history that tell how it came so.
//!
//! Nothing here knows how a history was made. The simulation and the rigs over the real binary share it.

mod accepts;
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

/// What was broken. Liveness is only asked for when the history says that its faults were healed.
pub fn check(history: &History) -> Vec<Violation> {
    let view = HistoryIndex::new(history);
    let mut found = Vec::new();
    accepts::check(&view, &mut found);
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

/// What was read of the events before must read the same now.
pub fn check_reread(before: &[Event], now: &[Event]) -> Vec<Violation> {
    events::check_reread(before, now)
}
