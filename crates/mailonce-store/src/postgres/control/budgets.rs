//! Budgets: the usage of each budget in each period.
//!
//! The row of a counter is locked before it is read, and inserted if it is missing. Of two emails that compete for
//! the last place in a budget, on one node or on two, the second therefore sees the first.

use deadpool_postgres::Transaction;
use mailonce_core::{
    control::budget::{
        BudgetCounter, BudgetUsage, Charge, ChargeMove, ExceededBudget, RecordedCharge, USAGE_RETENTION_MS,
        must_refund_charges,
    },
    id::{EmailId, TeamId},
    outbound::{accept::NewEmail, email::Email},
    time::Time,
};
use std::collections::BTreeMap;
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use crate::postgres::{
    SharedState,
    error::TxResult,
    row::{email_columns, email_joins, read_emails},
    statements::{execute, query_pipelined, query_rows},
    unit_of_work::UnitOfWork,
};

/// Inserts the missing rows and locks the others, in sorted order, as for keys.
const LOCK: &str = "
    INSERT INTO budget_usage (team, budget, period_start, ends_at)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[]) AS w (team, budget, period_start, ends_at)
     ORDER BY team, budget, period_start
    ON CONFLICT (team, budget, period_start) DO UPDATE SET used = budget_usage.used WHERE false";
const READ: &str = "
    SELECT u.team, u.budget, u.period_start, u.used
      FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS w (team, budget, period_start)
      JOIN budget_usage u ON u.team = w.team AND u.budget = w.budget AND u.period_start = w.period_start";
const CHARGES_OF_EMAIL: &str =
    "SELECT budget, period_start, ends_at, amount FROM budget_charges WHERE team = $1 AND email = $2";
const HELD_EMAILS: &str = concat!(
    "SELECT ",
    email_columns!(),
    " FROM (SELECT team, id FROM emails
             WHERE string_to_array(holds, ',') @> ARRAY['budget'] AND (team, id) > ($1, $2) ORDER BY team, id LIMIT $3) w
       JOIN emails e ON e.team = w.team AND e.id = w.id ",
    email_joins!(),
    " ORDER BY e.team, e.id, h.number"
);
const DELETE_CHARGES: &str = "
    DELETE FROM budget_charges c USING unnest($1::uuid[], $2::uuid[]) AS w (team, email)
     WHERE c.team = w.team AND c.email = w.email RETURNING c.budget, c.period_start, c.ends_at, c.amount, c.team";
const SWEEP: &str = "
    DELETE FROM budget_usage x
     USING (SELECT team, budget, period_start FROM budget_usage WHERE ends_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) due
     WHERE x.team = due.team AND x.budget = due.budget AND x.period_start = due.period_start";
const SWEEP_CHARGES: &str = "
    DELETE FROM budget_charges x
     USING (SELECT team, email, budget FROM budget_charges WHERE ends_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) due
     WHERE x.team = due.team AND x.email = due.email AND x.budget = due.budget";
/// How many rows are deleted at a time.
const ROWS_PER_SWEEP: i64 = 10_000;

/// Locks and loads the counters that these emails charge.
pub(crate) async fn lock<'a>(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    new_emails: impl Iterator<Item = &'a NewEmail> + Send,
) -> TxResult<()> {
    let charges =
        new_emails.flat_map(|new_email| new_email.guard_input.charges.iter().map(|charge| (new_email.team, charge)));
    let counters = charges.map(|(team, charge)| ((team, charge.counter()), charge.ends_at)).collect();
    lock_counters(tx, work, &counters).await
}

/// Locks and loads counters, each given with the end of its period.
async fn lock_counters(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    counters: &BTreeMap<(TeamId, BudgetCounter), Time>,
) -> TxResult<()> {
    if counters.is_empty() {
        return Ok(());
    }
    let teams: Vec<Uuid> = counters.keys().map(|(team, _)| team.0).collect();
    let budgets: Vec<Uuid> = counters.keys().map(|(_, (budget, _))| *budget).collect();
    let starts: Vec<i64> = counters.keys().map(|(_, (_, start))| start.0).collect();
    let ends: Vec<i64> = counters.values().map(|ends_at| ends_at.0).collect();
    let read: [&(dyn ToSql + Sync); 3] = [&teams, &budgets, &starts];
    let answers = query_pipelined(tx, &[(LOCK, &[&teams, &budgets, &starts, &ends]), (READ, &read)]).await?;
    for row in answers.last().into_iter().flatten() {
        let counter = (row.try_get(1)?, Time(row.try_get(2)?));
        let usage = work.budgets.teams.entry(TeamId(row.try_get(0)?)).or_default();
        // What this transaction already added is not written yet.
        if !usage.is_loaded(counter) {
            usage.load(counter, row.try_get::<_, i64>(3)?.unsigned_abs());
        }
    }
    Ok(())
}

/// Locks the counters of these charges. Returns their usage.
pub(crate) async fn lock_charges(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    team: TeamId,
    charges: &[Charge],
) -> TxResult<BudgetUsage> {
    let counters = charges.iter().map(|charge| ((team, charge.counter()), charge.ends_at)).collect();
    lock_counters(tx, work, &counters).await?;
    Ok(work.budgets.teams.get(&team).cloned().unwrap_or_default())
}

/// Gives the charges of an email back, once, if it surely was not sent.
pub(crate) async fn refund_if_unsent(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    before: &Email,
    after: &Email,
) -> TxResult<()> {
    if must_refund_charges(before, after) {
        refund_charges(tx, work, std::slice::from_ref(after)).await
    } else {
        Ok(())
    }
}

/// Gives the charges of these emails back and deletes them. The emails' rows are locked, so it happens once.
pub(crate) async fn refund_charges(tx: &Transaction<'_>, work: &mut UnitOfWork, emails: &[Email]) -> TxResult<()> {
    if emails.is_empty() {
        return Ok(());
    }
    let teams: Vec<Uuid> = emails.iter().map(|email| email.team.0).collect();
    let ids: Vec<Uuid> = emails.iter().map(|email| email.id.0).collect();
    let mut given_back = Vec::new();
    for row in query_rows(tx, DELETE_CHARGES, &[&teams, &ids]).await? {
        given_back.push((TeamId(row.try_get(4)?), read_recorded_charge(&row)?));
    }
    let counters = given_back.iter().map(|(team, record)| ((*team, record.counter()), record.ends_at)).collect();
    lock_counters(tx, work, &counters).await?;
    for (team, record) in given_back {
        let moved = ChargeMove { new_charges: Vec::new(), refunds: vec![record] };
        work.budgets.teams.entry(team).or_default().apply(&moved);
        work.budgets.changed.insert((team, record.counter()));
    }
    Ok(())
}

fn read_recorded_charge(row: &Row) -> TxResult<RecordedCharge> {
    Ok(RecordedCharge {
        counter: row.try_get(0)?,
        period_start: Time(row.try_get(1)?),
        ends_at: Time(row.try_get(2)?),
        amount: row.try_get::<_, i64>(3)?.unsigned_abs(),
    })
}

/// Moves the charges of a rescheduled email to the new period. Changes nothing and returns the budget if one would be
/// exceeded. The email's row is locked, so its charges cannot change meanwhile.
pub(crate) async fn move_charges(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    email: &Email,
    wanted: &[Charge],
    now: Time,
) -> TxResult<Option<ExceededBudget>> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let mut recorded = Vec::new();
    for row in query_rows(tx, CHARGES_OF_EMAIL, &[&email.team.0, &email.id.0]).await? {
        recorded.push(read_recorded_charge(&row)?);
    }
    let moved = ChargeMove::plan(email, &recorded, wanted, now);
    let taken = moved.new_charges.iter().map(|charge| (charge.counter(), charge.ends_at));
    let given_back = moved.refunds.iter().map(|record| (record.counter(), record.ends_at));
    let counters = taken.chain(given_back).map(|(counter, ends_at)| ((email.team, counter), ends_at)).collect();
    lock_counters(tx, work, &counters).await?;
    let exceeded =
        work.budgets.teams.get(&email.team).and_then(|usage| usage.exceeded_after_acceptance(&moved.new_charges));
    if exceeded.is_none() {
        work.budgets.apply(email, &moved);
    }
    Ok(exceeded)
}

/// Emails that wait for room in a budget, those of a team oldest first.
pub(crate) async fn held_emails(
    shared: &SharedState,
    after: Option<(TeamId, EmailId)>,
    limit: usize,
) -> TxResult<Vec<Email>> {
    let (team, id) = after.map_or((Uuid::nil(), Uuid::nil()), |(team, id)| (team.0, id.0));
    let client = shared.connections.client().await?;
    read_emails(&query_rows(&client, HELD_EMAILS, &[&team, &id, &(limit as i64)]).await?, 0)
}

/// Deletes counters and charges of periods that ended long ago, and rows that were inserted only to be locked.
pub(crate) async fn sweep(tx: &Transaction<'_>, now: Time) -> TxResult<()> {
    for sql in [SWEEP, SWEEP_CHARGES] {
        execute(tx, sql, &[&now.plus(-USAGE_RETENTION_MS).0, &ROWS_PER_SWEEP]).await?;
    }
    Ok(())
}

/// The usage of each of these counters.
pub(crate) async fn budget_usage(shared: &SharedState, team: TeamId, counters: &[BudgetCounter]) -> TxResult<Vec<u64>> {
    let teams = vec![team.0; counters.len()];
    let budgets: Vec<Uuid> = counters.iter().map(|(budget, _)| *budget).collect();
    let starts: Vec<i64> = counters.iter().map(|(_, start)| start.0).collect();
    let mut usage = BudgetUsage::default();
    for row in query_rows(&shared.connections.client().await?, READ, &[&teams, &budgets, &starts]).await? {
        usage.load((row.try_get(1)?, Time(row.try_get(2)?)), row.try_get::<_, i64>(3)?.unsigned_abs());
    }
    Ok(counters.iter().map(|counter| usage.used(*counter)).collect())
}
