//! Budgets: how much of each was used in each period. Only an email that counts against one reads or writes here.

use mailonce_core::{
    control::budget::{Charge, Counter, KEPT_MS, Overrun, Usage},
    limits,
    port::store::Result,
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::sqlite::{ledger::Ledger, schema::told};

const USED: &str = "SELECT used FROM budget_usage WHERE team = ?1 AND budget = ?2 AND period_start = ?3";
const SPEND: &str = "INSERT INTO budget_usage (team, budget, period_start, ends_at, used) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET used = used + ?5";
const SWEEP: &str = "DELETE FROM budget_usage WHERE (team, budget, period_start) IN \
     (SELECT team, budget, period_start FROM budget_usage WHERE ends_at <= ?1 LIMIT ?2)";

/// What is used of a counter of a team.
pub(in crate::sqlite) fn used(conn: &Connection, team: i64, (budget, start): Counter) -> Result<u64> {
    let mut statement = conn.prepare_cached(USED).map_err(told)?;
    let row = statement.query_row(params![team, budget.as_bytes(), start.0], |row| row.get::<_, i64>(0));
    Ok(row.optional().map_err(told)?.unwrap_or_default().unsigned_abs())
}

/// Reads the counters of these charges that are not known yet.
pub(in crate::sqlite) fn load(ledger: &Ledger<'_>, team: i64, charges: &[Charge], usage: &mut Usage) -> Result<()> {
    for charge in charges {
        if !usage.knows(charge.counter()) {
            usage.load(charge.counter(), used(ledger.conn, team, charge.counter())?);
        }
    }
    Ok(())
}

/// The budget that an email would exceed.
pub(in crate::sqlite) fn exceeded(ledger: &Ledger<'_>, team: i64, charges: &[Charge]) -> Result<Option<Overrun>> {
    let mut usage = Usage::default();
    load(ledger, team, charges, &mut usage)?;
    Ok(usage.exceeded(charges))
}

/// Counts an accepted email.
pub(in crate::sqlite) fn charge(ledger: &Ledger<'_>, team: i64, charges: &[Charge]) -> Result<()> {
    for Charge { budget, period_start, ends_at, amount, .. } in charges {
        let row = params![team, budget.as_bytes(), period_start.0, ends_at.0, *amount as i64];
        ledger.execute(SPEND, row)?;
    }
    Ok(())
}

/// Drops the counters of periods that ended long ago, a piece at a time.
pub(in crate::sqlite) fn sweep(ledger: &Ledger<'_>, now: Time) -> Result<()> {
    ledger.execute(SWEEP, params![now.plus(-KEPT_MS).0, limits::SCAN_ROWS as i64]).map(drop)
}
