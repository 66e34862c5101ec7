//! Budgets: the usage of each budget per period. Only emails with charges read or write these tables.

use mailonce_core::{
    control::budget::{
        BudgetCounter, BudgetUsage, Charge, ChargeMove, ExceededBudget, RecordedCharge, USAGE_RETENTION_MS,
        must_refund_charges,
    },
    id::{EmailId, TeamId, ordered_bits},
    limits,
    outbound::email::Email,
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, params};
use uuid::Uuid;

use crate::sqlite::{rows, schema::store_error, write_session::WriteSession};

const USED: &str = "SELECT used FROM budget_usage WHERE team = ?1 AND budget = ?2 AND period_start = ?3";
const ADD_USAGE: &str = "INSERT INTO budget_usage (team, budget, period_start, ends_at, used) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET used = used + ?5";
const REFUND_USAGE: &str =
    "UPDATE budget_usage SET used = max(used - ?4, 0) WHERE team = ?1 AND budget = ?2 AND period_start = ?3";
const SAVE_CHARGE: &str = "INSERT INTO budget_charges (email, budget, period_start, ends_at, amount) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET period_start = ?3, ends_at = ?4, amount = ?5";
const DELETE_CHARGES: &str = "DELETE FROM budget_charges WHERE email = ?1";
const SELECT_CHARGES: &str = "SELECT budget, period_start, ends_at, amount FROM budget_charges WHERE email = ?1";
const HELD_EMAILS: &str = "SELECT e.team, t.id, e.email FROM emails e JOIN teams t ON t.number = e.team \
     WHERE instr(',' || e.holds || ',', ',budget,') > 0 AND (e.team, e.email) > \
     (COALESCE((SELECT number FROM teams WHERE id = ?1), -1), ?2) ORDER BY e.team, e.email LIMIT ?3";
const SWEEP: &str = "DELETE FROM budget_usage WHERE (team, budget, period_start) IN \
     (SELECT team, budget, period_start FROM budget_usage WHERE ends_at <= ?1 LIMIT ?2)";
const SWEEP_CHARGES: &str = "DELETE FROM budget_charges WHERE (email, budget) IN \
     (SELECT email, budget FROM budget_charges WHERE ends_at <= ?1 LIMIT ?2)";

/// The current value of a team's counter.
pub(crate) fn used(conn: &Connection, team: i64, (counter, start): BudgetCounter) -> Result<u64> {
    let mut statement = conn.prepare_cached(USED).map_err(store_error)?;
    let row = statement.query_row(params![team, counter.as_bytes(), start.0], |row| row.get::<_, i64>(0));
    Ok(row.optional().map_err(store_error)?.unwrap_or_default().unsigned_abs())
}

/// The usage of the counters of these charges.
pub(crate) fn usage(ledger: &WriteSession<'_>, team: i64, charges: &[Charge]) -> Result<BudgetUsage> {
    let mut usage = BudgetUsage::default();
    for counter in charges.iter().map(Charge::counter) {
        usage.load(counter, used(ledger.conn, team, counter)?);
    }
    Ok(usage)
}

/// Adds an email's charges to the counters, and records them per email.
pub(crate) fn charge(ledger: &WriteSession<'_>, team: i64, email: &Email, charges: &[Charge]) -> Result<()> {
    let bits = ordered_bits(email.id.0);
    for Charge { counter, period_start, ends_at, amount, .. } in charges {
        let amount = *amount as i64;
        ledger.execute(ADD_USAGE, params![team, counter.as_bytes(), period_start.0, ends_at.0, amount])?;
        ledger.execute(SAVE_CHARGE, params![bits, counter.as_bytes(), period_start.0, ends_at.0, amount])?;
    }
    Ok(())
}

/// Moves the charges of a rescheduled email to the periods of its new time. Changes nothing if a budget would be
/// exceeded.
pub(crate) fn move_charges(
    ledger: &WriteSession<'_>,
    team: i64,
    email: &Email,
    wanted: &[Charge],
    now: Time,
) -> Result<Option<ExceededBudget>> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let moved = ChargeMove::plan(email, &recorded_charges(ledger, email)?, wanted, now);
    if let Some(exceeded) = usage(ledger, team, &moved.new_charges)?.exceeded_after_acceptance(&moved.new_charges) {
        return Ok(Some(exceeded));
    }
    charge(ledger, team, email, &moved.new_charges)?;
    refund(ledger, team, &moved.refunds)?;
    Ok(None)
}

/// Gives the charges of an email back, once, if it surely was not sent.
pub(crate) fn refund_if_unsent(ledger: &WriteSession<'_>, team: i64, before: &Email, after: &Email) -> Result<()> {
    if !must_refund_charges(before, after) {
        return Ok(());
    }
    refund(ledger, team, &recorded_charges(ledger, after)?)?;
    ledger.execute(DELETE_CHARGES, params![ordered_bits(after.id.0)]).map(drop)
}

fn refund(ledger: &WriteSession<'_>, team: i64, charges: &[RecordedCharge]) -> Result<()> {
    for RecordedCharge { counter, period_start, amount, .. } in charges {
        ledger.execute(REFUND_USAGE, params![team, counter.as_bytes(), period_start.0, *amount as i64])?;
    }
    Ok(())
}

/// The recorded charges of an email.
fn recorded_charges(ledger: &WriteSession<'_>, email: &Email) -> Result<Vec<RecordedCharge>> {
    let mut statement = ledger.conn.prepare_cached(SELECT_CHARGES).map_err(store_error)?;
    let rows = statement.query_map(params![ordered_bits(email.id.0)], |row| {
        Ok(RecordedCharge {
            counter: Uuid::from_bytes(row.get(0)?),
            period_start: Time(row.get(1)?),
            ends_at: Time(row.get(2)?),
            amount: row.get::<_, i64>(3)?.unsigned_abs(),
        })
    });
    rows.and_then(Iterator::collect).map_err(store_error)
}

/// Emails that wait for room in a budget, those of a team oldest first.
pub(crate) fn held_emails(conn: &Connection, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
    let team = after.as_ref().map(|(team, _)| team.0.as_bytes());
    let behind = after.map_or(i64::MIN, |(_, id)| ordered_bits(id.0));
    let mut statement = conn.prepare_cached(HELD_EMAILS).map_err(store_error)?;
    let found = statement.query_map(params![team, behind, limit as i64], |row| {
        Ok((row.get::<_, i64>(0)?, TeamId(Uuid::from_bytes(row.get(1)?)), row.get::<_, i64>(2)?))
    });
    let found: Vec<(i64, TeamId, i64)> = found.and_then(Iterator::collect).map_err(store_error)?;
    let load = |(number, team, bits)| rows::email_by_bits(conn, team, number, bits).transpose();
    found.into_iter().filter_map(load).collect()
}

/// Deletes counters and charges of periods that ended long ago, up to `SCAN_ROWS` of each.
pub(crate) fn sweep(ledger: &WriteSession<'_>, now: Time) -> Result<()> {
    for sql in [SWEEP, SWEEP_CHARGES] {
        ledger.execute(sql, params![now.plus(-USAGE_RETENTION_MS).0, limits::SCAN_ROWS as i64])?;
    }
    Ok(())
}
