//! The judge of the promises P1 to P16: a history goes in, what was broken comes out, each with its story.
//!
//! - [`history`] is what a rig saw: calls with their ends, what next hops got, which faults it made, and what the
//!   ledger showed in the end.
//! - [`check`] judges a history, [`check_reread`] two readings of one ledger.
//! - [`Violation`] names the promise, what it is about, and the lines of the history that tell how it came so.
//!
//! Nothing here knows how a history was made. The simulation and the rigs over the real binary share it.

mod accepts;
mod copies;
mod decided;
mod events;
pub mod history;
mod inbound;
mod mail;
mod moves;
mod notices;
mod promise;
mod settled;
mod shown;
mod story;
mod talk;
mod talked;
mod talking;
mod teams;
mod view;

pub use history::History;
pub use promise::{Invariant, Rule};
pub use story::Violation;

use history::Event;
use view::HistoryIndex;

/// What was broken. Liveness is only asked for when the history says that its faults were healed.
pub fn check(history: &History) -> Vec<Violation> {
    let view = HistoryIndex::new(history);
    let mut found = Vec::new();
    accepts::check(&view, &mut found);
    teams::check(&view, &mut found);
    copies::check(&view, &mut found);
    decided::check(&view, &mut found);
    moves::check(&view, &mut found);
    settled::check(&view, &mut found);
    events::check(&view, &mut found);
    notices::check(&view, &mut found);
    inbound::check(&view, &mut found);
    talking::check(&view, &mut found);
    found.sort();
    found.dedup();
    found
}

/// What was read of the events before must read the same now.
pub fn check_reread(before: &[Event], now: &[Event]) -> Vec<Violation> {
    events::check_reread(before, now)
}
