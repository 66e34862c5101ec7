//! Watches: runs of agents that wait for mail in an inbox.

use mailonce_core::{
    id::{InboxId, TeamId, WatchId, ordered_bits, random_bits},
    inbox::watch::{ImplicitWatch, SpendResendResult, Watch},
    operation::{IdempotentResult, KeyedOperation},
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, Row, params};

use crate::sqlite::{
    inbox::inboxes, outbound::key_bindings, rows::split_id, schema::store_error, write_session::WriteSession,
};

/// A watch whose inbox was not removed.
const BY_ID: &str = "SELECT w.watch, w.tail, i.inbox, i.tail, w.rev, w.started_at, w.behind, w.deadline, w.budget, w.spent, w.require_auth \
     FROM watches w JOIN inboxes i ON i.inbox = w.inbox WHERE i.removed IS NULL AND w.team = ?1 AND w.watch = ?2";
const INSERT: &str = "INSERT INTO watches (watch, tail, team, inbox, rev, started_at, behind, deadline, budget, spent, require_auth) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
const SPEND: &str = "UPDATE watches SET rev = ?2, spent = ?3 WHERE watch = ?1";

const IMPLICIT: &str =
    "SELECT after_seq, ends_at FROM implicit_watches WHERE team = ?1 AND inbox = ?2 AND consumer = ?3";
const SAVE_IMPLICIT: &str =
    "INSERT OR REPLACE INTO implicit_watches (team, inbox, consumer, after_seq, ends_at) VALUES (?1, ?2, ?3, ?4, ?5)";
/// Each call removes more rows than it adds, so the table holds little more than the watches that go on.
const DELETE_ENDED_IMPLICIT: &str = "DELETE FROM implicit_watches WHERE (team, inbox, consumer) IN \
     (SELECT team, inbox, consumer FROM implicit_watches WHERE ends_at <= ?1 LIMIT 10)";

fn watch_row(row: &Row<'_>, team: TeamId) -> Result<Watch> {
    Ok(Watch {
        id: WatchId(split_id(row, 0)?),
        team,
        inbox: InboxId(split_id(row, 2)?),
        rev: row.get(4).map_err(store_error)?,
        started_at: Time(row.get(5).map_err(store_error)?),
        after_seq: row.get::<_, i64>(6).map_err(store_error)? as u64,
        deadline: Time(row.get(7).map_err(store_error)?),
        resend_budget: row.get(8).map_err(store_error)?,
        resends_used: row.get(9).map_err(store_error)?,
        require_auth: row.get(10).map_err(store_error)?,
    })
}

/// One watch of a team.
pub(crate) fn by_id(conn: &Connection, team: TeamId, number: i64, id: WatchId) -> Result<Option<Watch>> {
    let mut statement = conn.prepare_cached(BY_ID).map_err(store_error)?;
    let mut rows = statement.query(params![number, ordered_bits(id.0)]).map_err(store_error)?;
    let found = rows.next().map_err(store_error)?.map(|row| watch_row(row, team)).transpose()?;
    Ok(found.filter(|watch| watch.id == id))
}

/// Starts an implicit watch, or extends the one that exists.
pub(crate) fn start_or_extend_implicit(
    ledger: &mut WriteSession<'_>,
    watch: ImplicitWatch,
    now: Time,
) -> Result<ImplicitWatch> {
    let team = ledger.team_number(watch.team).ok_or_else(|| key_bindings::unknown_team_error(watch.team))?;
    let inbox = ordered_bits(watch.inbox.0);
    let before = {
        let mut statement = ledger.conn.prepare_cached(IMPLICIT).map_err(store_error)?;
        let mut rows = statement.query(params![team, inbox, watch.consumer]).map_err(store_error)?;
        let read = |row: &Row<'_>| -> Result<ImplicitWatch> {
            let after_seq = row.get::<_, i64>(0).map_err(store_error)? as u64;
            Ok(ImplicitWatch { after_seq, ends_at: Time(row.get(1).map_err(store_error)?), ..watch })
        };
        rows.next().map_err(store_error)?.map(read).transpose()?
    };
    let watch = watch.continuing(before, now);
    ledger.execute(DELETE_ENDED_IMPLICIT, params![now.0])?;
    let row = params![team, inbox, watch.consumer, watch.after_seq as i64, watch.ends_at.0];
    ledger.execute(SAVE_IMPLICIT, row)?;
    Ok(watch)
}

/// Creates a watch that starts after the inbox's latest message.
pub(crate) fn create(
    ledger: &mut WriteSession<'_>,
    mut watch: Watch,
    operation: Option<&KeyedOperation>,
) -> Result<IdempotentResult<Option<Watch>>> {
    let Some(team) = ledger.team_number(watch.team) else { return Ok(IdempotentResult::Done(None)) };
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, watch.started_at)?
    {
        return Ok(answer);
    }
    if let Some(before) = by_id(ledger.conn, watch.team, team, watch.id)? {
        // The same id: this call is a retry.
        return Ok(IdempotentResult::Done(Some(before)));
    }
    let Some(inbox) = inboxes::by_id(ledger.conn, team, watch.inbox)? else { return Ok(IdempotentResult::Done(None)) };
    watch.after_seq = inbox.latest_seq;
    let Watch {
        id,
        rev,
        started_at,
        after_seq: after,
        deadline,
        resend_budget: budget,
        resends_used: spent,
        require_auth,
        ..
    } = &watch;
    let (bits, tail, inbox) = (ordered_bits(id.0), random_bits(id.0), ordered_bits(watch.inbox.0));
    let row =
        params![bits, tail, team, inbox, rev, started_at.0, *after as i64, deadline.0, budget, spent, require_auth];
    ledger.execute(INSERT, row)?;
    ledger.reserve_id(id.0);
    if let Some(operation) = operation {
        key_bindings::bind_operation(ledger, operation)?;
    }
    Ok(IdempotentResult::Done(Some(watch)))
}

/// Uses one resend of a watch's budget.
pub(crate) fn spend_resend(
    ledger: &WriteSession<'_>,
    (team, id): (TeamId, WatchId),
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<SpendResendResult>> {
    let Some(number) = ledger.team_number(team) else { return Ok(IdempotentResult::Done(SpendResendResult::Missing)) };
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(watch) = by_id(ledger.conn, team, number, id)? else {
        return Ok(IdempotentResult::Done(SpendResendResult::Missing));
    };
    let spent = watch.spend_resend(now);
    if let SpendResendResult::Spent(watch) = &spent {
        ledger.execute(SPEND, params![ordered_bits(id.0), watch.rev, watch.resends_used])?;
        if let Some(operation) = operation {
            key_bindings::bind_operation(ledger, operation)?;
        }
    }
    Ok(IdempotentResult::Done(spent))
}
