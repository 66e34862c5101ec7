//! Budgets: how much of each was used in each period. Only an email that counts against one reads or writes here.

use mailonce_core::{
    control::budget::{Charge, ChargeMove, Counter, KEPT_MS, Overrun, RecordedCharge, Usage},
    email::Email,
    id::ordered_bits,
    limits,
    port::store::Result,
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, params};
use uuid::Uuid;

use crate::sqlite::{ledger::Ledger, schema::told};

const USED: &str = "SELECT used FROM budget_usage WHERE team = ?1 AND budget = ?2 AND period_start = ?3";
const SPEND: &str = "INSERT INTO budget_usage (team, budget, period_start, ends_at, used) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET used = used + ?5";
const GIVE_BACK: &str =
    "UPDATE budget_usage SET used = max(used - ?4, 0) WHERE team = ?1 AND budget = ?2 AND period_start = ?3";
const RECORD: &str = "INSERT INTO budget_charges (email, budget, period_start, ends_at, amount) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET period_start = ?3, ends_at = ?4, amount = ?5";
const RECORDED: &str = "SELECT budget, period_start, ends_at, amount FROM budget_charges WHERE email = ?1";
const SWEEP: &str = "DELETE FROM budget_usage WHERE (team, budget, period_start) IN \
     (SELECT team, budget, period_start FROM budget_usage WHERE ends_at <= ?1 LIMIT ?2)";
const SWEEP_CHARGES: &str = "DELETE FROM budget_charges WHERE (email, budget) IN \
     (SELECT email, budget FROM budget_charges WHERE ends_at <= ?1 LIMIT ?2)";

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

/// Counts an email and records where.
pub(in crate::sqlite) fn charge(ledger: &Ledger<'_>, team: i64, email: &Email, charges: &[Charge]) -> Result<()> {
    let bits = ordered_bits(email.id.0);
    for Charge { budget, period_start, ends_at, amount, .. } in charges {
        let amount = *amount as i64;
        ledger.execute(SPEND, params![team, budget.as_bytes(), period_start.0, ends_at.0, amount])?;
        ledger.execute(RECORD, params![bits, budget.as_bytes(), period_start.0, ends_at.0, amount])?;
    }
    Ok(())
}

/// Counts an email that moves to another time there. Changes nothing when it would exceed a budget.
pub(in crate::sqlite) fn move_charges(
    ledger: &Ledger<'_>,
    team: i64,
    email: &Email,
    wanted: &[Charge],
    now: Time,
) -> Result<Option<Overrun>> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let moved = ChargeMove::plan(email, &recorded(ledger, email)?, wanted, now);
    if let Some(exceeded) = exceeded(ledger, team, &moved.take)? {
        return Ok(Some(exceeded));
    }
    charge(ledger, team, email, &moved.take)?;
    for RecordedCharge { budget, period_start, amount, .. } in &moved.give_back {
        ledger.execute(GIVE_BACK, params![team, budget.as_bytes(), period_start.0, *amount as i64])?;
    }
    Ok(None)
}

/// Where an email was counted.
fn recorded(ledger: &Ledger<'_>, email: &Email) -> Result<Vec<RecordedCharge>> {
    let mut statement = ledger.conn.prepare_cached(RECORDED).map_err(told)?;
    let rows = statement.query_map(params![ordered_bits(email.id.0)], |row| {
        Ok(RecordedCharge {
            budget: Uuid::from_bytes(row.get(0)?),
            period_start: Time(row.get(1)?),
            ends_at: Time(row.get(2)?),
            amount: row.get::<_, i64>(3)?.unsigned_abs(),
        })
    });
    rows.and_then(Iterator::collect).map_err(told)
}

/// Drops the counters and charges of periods that ended long ago, a piece at a time.
pub(in crate::sqlite) fn sweep(ledger: &Ledger<'_>, now: Time) -> Result<()> {
    for sql in [SWEEP, SWEEP_CHARGES] {
        ledger.execute(sql, params![now.plus(-KEPT_MS).0, limits::SCAN_ROWS as i64])?;
    }
    Ok(())
}
