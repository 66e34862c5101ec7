//! Saves the rows of an email and its handoffs.

use mailonce_core::{
    handoff::{Handoff, HandoffProgress},
    id::ordered_bits,
    outbound::email::{Email, Guard},
    ports::store::Result,
    time::Time,
};
use rusqlite::params;

use crate::sqlite::write_session::WriteSession;

const SAVE_EMAIL: &str = "UPDATE emails SET rev = ?3, ttl = ?4, settled_at = ?5, guard = ?6, resent_as = ?7, sweep_at = ?8, holds = ?9 \
     WHERE email = ?2 AND team = ?1";
const SAVE_HANDOFF: &str = "UPDATE handoffs SET state = ?4, due_at = ?5, attempts = ?6, fence = ?7, transport = ?8, \
     holder = ?9, work = ?10, parked_by = ?11 WHERE team = ?1 AND email = ?2 AND number = ?3";

/// A handoff in the database: team number, ordered bits of its email's id, and its number.
pub(crate) type HandoffRef = (i64, i64, u16);

/// Saves a changed email and its handoffs.
pub(crate) fn save_email_and_handoffs(ledger: &WriteSession<'_>, team: i64, email: &Email) -> Result<()> {
    save_email(ledger, team, email)?;
    let bits = ordered_bits(email.id.0);
    email.handoffs.iter().try_for_each(|handoff| save_handoff(ledger, team, bits, handoff))
}

/// Saves the row of an email.
pub(crate) fn save_email(ledger: &WriteSession<'_>, team: i64, email: &Email) -> Result<()> {
    let bits = ordered_bits(email.id.0);
    let settled = email.settled_at.map(|at| at.0);
    // The earliest sweep time, even one in the past: an email that is due but not yet swept must stay due.
    let sweep = email.expiry().next_after(Time(i64::MIN)).map(|at| at.0);
    let guard = email.guard.map(Guard::as_str);
    let resent = email.resent_as.map(|id| *id.0.as_bytes());
    let holds = email.holds.to_column();
    let row = params![team, bits, email.rev, email.ttl.0, settled, guard, resent, sweep, holds];
    ledger.execute(SAVE_EMAIL, row).map(drop)
}

/// Saves the row of a handoff.
pub(crate) fn save_handoff(ledger: &WriteSession<'_>, team: i64, bits: i64, handoff: &Handoff) -> Result<()> {
    let due = handoff.due_at.map(|at| at.0);
    let fence = handoff.fence as i64;
    let state = handoff.state.as_str();
    let holder = handoff.holder.map(|node| *node.0.as_bytes());
    let work = work_json(handoff);
    let parked_by = handoff.parked_by.map(|stop| *stop.0.as_bytes());
    let Handoff { number, attempts, transport, .. } = handoff;
    let row = params![team, bits, number, state, due, attempts, fence, transport, holder, work, parked_by];
    ledger.execute(SAVE_HANDOFF, row).map(drop)
}

/// The progress of a handoff as JSON. `None` for the default value, which most handoffs have.
pub(crate) fn work_json(handoff: &Handoff) -> Option<String> {
    (handoff.progress != HandoffProgress::default())
        .then(|| serde_json::to_string(&handoff.progress).unwrap_or_default())
}
