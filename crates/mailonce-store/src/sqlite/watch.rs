//! Watches: runs of agents that wait on an inbox.

use mailonce_core::{
    id::{InboxId, TeamId, WatchId, ordered_bits, tail_bits},
    port::store::{Once, Operation, Result},
    time::Time,
    watch::{Spent, Watch},
};
use rusqlite::{Connection, Row, params};

use super::{accept, inbox, ledger::Ledger, rows::split_id, schema::told};

/// A watch whose inbox is there.
const ONE: &str = "SELECT w.watch, w.tail, i.inbox, i.tail, w.rev, w.started_at, w.behind, w.deadline, w.budget, w.spent, w.require_auth \
     FROM watches w JOIN inboxes i ON i.inbox = w.inbox WHERE i.removed IS NULL AND w.team = ?1 AND w.watch = ?2";
const MAKE: &str = "INSERT INTO watches (watch, tail, team, inbox, rev, started_at, behind, deadline, budget, spent, require_auth) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
const SPEND: &str = "UPDATE watches SET rev = ?2, spent = ?3 WHERE watch = ?1";

fn watch_row(row: &Row<'_>, team: TeamId) -> Result<Watch> {
    Ok(Watch {
        id: WatchId(split_id(row, 0)?),
        team,
        inbox: InboxId(split_id(row, 2)?),
        rev: row.get(4).map_err(told)?,
        started_at: Time(row.get(5).map_err(told)?),
        after: row.get::<_, i64>(6).map_err(told)? as u64,
        deadline: Time(row.get(7).map_err(told)?),
        budget: row.get(8).map_err(told)?,
        spent: row.get(9).map_err(told)?,
        require_auth: row.get(10).map_err(told)?,
    })
}

/// One watch of a team.
pub(super) fn one(conn: &Connection, team: TeamId, number: i64, id: WatchId) -> Result<Option<Watch>> {
    let mut statement = conn.prepare_cached(ONE).map_err(told)?;
    let mut rows = statement.query(params![number, ordered_bits(id.0)]).map_err(told)?;
    let found = rows.next().map_err(told)?.map(|row| watch_row(row, team)).transpose()?;
    Ok(found.filter(|watch| watch.id == id))
}

/// Begins a watch behind the inbox's latest message.
pub(super) fn create(
    ledger: &mut Ledger<'_>,
    mut watch: Watch,
    operation: Option<&Operation>,
) -> Result<Once<Option<Watch>>> {
    let Some(team) = ledger.team_number(watch.team) else { return Ok(Once::Done(None)) };
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, watch.started_at)?
    {
        return Ok(answer);
    }
    if let Some(before) = one(ledger.conn, watch.team, team, watch.id)? {
        // The very same one: this call was made before.
        return Ok(Once::Done(Some(before)));
    }
    let Some(inbox) = inbox::one(ledger.conn, team, watch.inbox)? else { return Ok(Once::Done(None)) };
    watch.after = inbox.seq;
    let Watch { id, rev, started_at, after, deadline, budget, spent, require_auth, .. } = &watch;
    let (bits, tail, inbox) = (ordered_bits(id.0), tail_bits(id.0), ordered_bits(watch.inbox.0));
    let row =
        params![bits, tail, team, inbox, rev, started_at.0, *after as i64, deadline.0, budget, spent, require_auth];
    ledger.execute(MAKE, row)?;
    ledger.note_id(id.0);
    if let Some(operation) = operation {
        accept::bind_operation(ledger, operation)?;
    }
    Ok(Once::Done(Some(watch)))
}

/// Spends one of a watch's resends.
pub(super) fn spend(
    ledger: &Ledger<'_>,
    (team, id): (TeamId, WatchId),
    operation: Option<&Operation>,
    now: Time,
) -> Result<Once<Spent>> {
    let Some(number) = ledger.team_number(team) else { return Ok(Once::Done(Spent::Missing)) };
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(watch) = one(ledger.conn, team, number, id)? else { return Ok(Once::Done(Spent::Missing)) };
    let spent = watch.spend(now);
    if let Spent::Done(watch) = &spent {
        ledger.execute(SPEND, params![ordered_bits(id.0), watch.rev, watch.spent])?;
        if let Some(operation) = operation {
            accept::bind_operation(ledger, operation)?;
        }
    }
    Ok(Once::Done(spent))
}
