//! Deliveries: their rows, leases and outcomes.

use mailonce_core::{
    id::{DeliveryId, EmailId, InboxId, MessageId, NodeId, TeamId, ordered_bits, random_bits},
    inbound::{
        delivery::{
            Delivery, DeliveryOutcome, DeliveryQuery, DeliveryState, DeliverySuppression, DeliveryTarget,
            FetchedContent,
        },
        wake_up::InboundWakeUp,
    },
    limits,
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use std::sync::Arc;

use crate::sqlite::{
    rows::{id_column, json_column, optional_id, optional_json, optional_time, parse_column, split_id, to_json},
    schema::store_error,
    write_session::WriteSession,
};

const BY_ID: &str = "SELECT delivery, tail, rev, state, due_at, attempts, raw, inbox, back, received_at, suppressed, \
     repeats, message, trouble, about FROM deliveries WHERE team = ?1 AND delivery = ?2";
const LIST: &str = "SELECT delivery, tail, rev, state, due_at, attempts, raw, inbox, back, received_at, suppressed, \
     repeats, message, trouble, about FROM deliveries WHERE team = ?1 AND delivery < ?2 ORDER BY delivery DESC LIMIT ?3";
const UPDATE: &str = "UPDATE deliveries SET rev = ?3, state = ?4, due_at = ?5, attempts = ?6, holder = ?7, raw = ?8, \
     suppressed = ?9, repeats = ?10, message = ?11, trouble = ?12 WHERE team = ?1 AND delivery = ?2";
const DUE: &str = "SELECT team, delivery FROM deliveries WHERE state = 'waiting' AND due_at <= ?1 \
     ORDER BY due_at, delivery LIMIT ?2";
const LEASED: &str = "SELECT team, delivery, holder FROM deliveries WHERE state = 'waiting' AND due_at > ?1 \
     AND holder IS NOT NULL ORDER BY due_at, delivery";
/// Keeps the lease, so that the worker that holds the delivery can continue.
const ATTACH_FETCHED_CONTENT: &str =
    "UPDATE deliveries SET rev = ?3, attempts = ?4, raw = ?5, about = ?6 WHERE team = ?1 AND delivery = ?2";
/// Marks a removed inbox that was already cleared, because it has rows to sweep again.
const RESWEEP_INBOX: &str = "UPDATE inboxes SET removed = 1 WHERE inbox = ?1 AND removed = 0";

/// A delivery, and the row of its raw bytes while it needs them.
#[derive(Clone)]
pub(crate) struct DeliveryRow {
    pub(crate) delivery: Delivery,
    pub(crate) raw: Option<i64>,
}

fn read_delivery_row(row: &Row<'_>, team: TeamId) -> Result<DeliveryRow> {
    let inbox = optional_id(row, 7)?.map(|id| DeliveryTarget::Inbox(InboxId(id)));
    let target = inbox.map_or_else(|| optional_json(row, 8), |target| Ok(Some(target)))?;
    let suppressed: Option<String> = row.get(10).map_err(store_error)?;
    let delivery = Delivery {
        id: DeliveryId(split_id(row, 0)?),
        team,
        rev: row.get(2).map_err(store_error)?,
        state: parse_column(row, 3, DeliveryState::parse)?,
        due_at: optional_time(row, 4)?,
        attempts: row.get(5).map_err(store_error)?,
        target: target.unwrap_or(DeliveryTarget::Nobody),
        received_at: Time(row.get(9).map_err(store_error)?),
        suppressed: suppressed.map(|_| parse_column(row, 10, DeliverySuppression::parse)).transpose()?,
        duplicate_of: optional_id(row, 11)?.map(DeliveryId),
        message: optional_id(row, 12)?.map(MessageId),
        last_error: row.get(13).map_err(store_error)?,
        details: Arc::new(json_column(row, 14)?),
    };
    Ok(DeliveryRow { delivery, raw: row.get(6).map_err(store_error)? })
}

/// The delivery whose id has these ordered bits.
pub(crate) fn by_bits(conn: &Connection, team: TeamId, number: i64, bits: i64) -> Result<Option<DeliveryRow>> {
    let mut statement = conn.prepare_cached(BY_ID).map_err(store_error)?;
    let mut rows = statement.query(params![number, bits]).map_err(store_error)?;
    rows.next().map_err(store_error)?.map(|row| read_delivery_row(row, team)).transpose()
}

/// One delivery of a team.
pub(crate) fn by_id(conn: &Connection, team: TeamId, number: i64, id: DeliveryId) -> Result<Option<DeliveryRow>> {
    Ok(by_bits(conn, team, number, ordered_bits(id.0))?.filter(|kept| kept.delivery.id == id))
}

/// Deliveries of a team, newest first.
pub(crate) fn list(conn: &Connection, team: TeamId, number: i64, query: &DeliveryQuery) -> Result<Vec<Delivery>> {
    let before = query.before.map_or(i64::MAX, |id| ordered_bits(id.0));
    let mut statement = conn.prepare_cached(LIST).map_err(store_error)?;
    let mut rows = statement.query(params![number, before, limits::SCAN_ROWS as i64]).map_err(store_error)?;
    let mut found = Vec::new();
    while found.len() < query.limit
        && let Some(row) = rows.next().map_err(store_error)?
    {
        let delivery = read_delivery_row(row, team)?.delivery;
        if query.matches(&delivery) {
            found.push(delivery);
        }
    }
    Ok(found)
}

/// Saves a changed delivery with its lease holder.
pub(crate) fn update(ledger: &WriteSession<'_>, team: i64, kept: &DeliveryRow, holder: Option<NodeId>) -> Result<()> {
    let DeliveryRow { delivery, raw } = kept;
    let Delivery { rev, attempts, last_error: trouble, .. } = delivery;
    let (state, due) = (delivery.state.as_str(), delivery.due_at.map(|at| at.0));
    let suppressed = delivery.suppressed.map(DeliverySuppression::as_str);
    let of = delivery.duplicate_of.map(|id| *id.0.as_bytes());
    let message = delivery.message.map(|id| *id.0.as_bytes());
    let holder = holder.map(|node| *node.0.as_bytes());
    let bits = ordered_bits(delivery.id.0);
    let row = params![team, bits, rev, state, due, attempts, holder, raw, suppressed, of, message, trouble];
    ledger.execute(UPDATE, row).map(drop)
}

/// Emits the event of a delivery that creates no message, if there is one. A removed inbox is swept again because of
/// the delivery's row.
pub(crate) fn emit_event(ledger: &mut WriteSession<'_>, team: i64, delivery: &Delivery, now: Time) -> Result<()> {
    if let Some(event) = delivery.to_event(now) {
        ledger.emit(team, &event);
    }
    if let Some(inbox) = delivery.target.inbox().filter(|_| delivery.state != DeliveryState::Waiting) {
        ledger.execute(RESWEEP_INBOX, [ordered_bits(inbox.0)])?;
    }
    Ok(())
}

/// Saves a delivery without a lease holder, and releases its raw bytes if it needs them no longer.
pub(crate) fn save(ledger: &WriteSession<'_>, team: i64, mut kept: DeliveryRow) -> Result<()> {
    if !kept.delivery.needs_raw_bytes()
        && let Some(raw) = kept.raw.take()
    {
        release_raw(ledger, raw)?;
    }
    update(ledger, team, &kept, None)
}

/// Saves a delivery that ended without a message or was postponed, and emits its event.
pub(crate) fn finish(ledger: &mut WriteSession<'_>, team: i64, kept: DeliveryRow, now: Time) -> Result<()> {
    emit_event(ledger, team, &kept.delivery, now)?;
    save(ledger, team, kept)
}

/// Drops one reference to raw bytes, and deletes the bytes with the last reference.
pub(crate) fn release_raw(ledger: &WriteSession<'_>, raw: i64) -> Result<()> {
    if ledger.execute("UPDATE raw_uses SET uses = uses - 1 WHERE raw = ?1 AND uses > 1", [raw])? == 0 {
        ledger.execute("DELETE FROM raw_uses WHERE raw = ?1", [raw])?;
        ledger.execute("DELETE FROM raws WHERE raw = ?1", [raw])?;
    }
    Ok(())
}

/// A delivery in the database: team number, and ordered bits of its id.
pub(crate) type DeliveryRef = (i64, i64);

/// Due deliveries, in order. Runs on a reader, so [`lease`] checks each one again.
pub(crate) fn due_candidates(conn: &Connection, max: usize, now: Time) -> Result<Vec<DeliveryRef>> {
    let mut statement = conn.prepare_cached(DUE).map_err(store_error)?;
    let rows = statement.query_map(params![now.0, max as i64], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.and_then(Iterator::collect).map_err(store_error)
}

/// Leases deliveries to a node, if they are still due.
pub(crate) fn lease(
    ledger: &WriteSession<'_>,
    places: &[DeliveryRef],
    node: NodeId,
    now: Time,
) -> Result<Vec<DeliveryRow>> {
    let mut taken = Vec::with_capacity(places.len());
    for (team, bits) in places {
        let id = ledger.team_id(*team)?;
        let Some(mut kept) = by_bits(ledger.conn, id, *team, *bits)? else { continue };
        if kept.delivery.lease(now) {
            update(ledger, *team, &kept, Some(node))?;
            taken.push(kept);
        }
    }
    Ok(taken)
}

/// The packed raw bytes in this row.
pub(crate) fn raw_bytes(conn: &Connection, raw: i64) -> Result<Option<Vec<u8>>> {
    let mut statement = conn.prepare_cached("SELECT bytes FROM raws WHERE raw = ?1").map_err(store_error)?;
    statement.query_row([raw], |row| row.get(0)).optional().map_err(store_error)
}

/// Replaces the provider's notification in a waiting delivery by the fetched mail.
pub(crate) fn attach_fetched_content(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    id: DeliveryId,
    brought: &FetchedContent,
) -> Result<Option<Delivery>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let Some(DeliveryRow { mut delivery, raw }) = by_id(ledger.conn, team, number, id)? else { return Ok(None) };
    if !delivery.attach_fetched_content(brought) {
        return Ok(Some(delivery));
    }
    if let Some(notice) = raw {
        release_raw(ledger, notice)?;
    }
    let place = ordered_bits(brought.storage_id.0);
    ledger.execute("INSERT INTO raws (raw, bytes) VALUES (?1, ?2)", params![place, brought.raw.as_ref()])?;
    ledger.reserve_id(brought.storage_id.0);
    let about = to_json(&*delivery.details)?;
    ledger.execute(
        ATTACH_FETCHED_CONTENT,
        params![number, ordered_bits(id.0), delivery.rev, delivery.attempts, place, about],
    )?;
    Ok(Some(delivery))
}

/// Records the outcome of a waiting delivery that creates no message now: ends or postpones it.
pub(crate) fn record_outcome(
    ledger: &mut WriteSession<'_>,
    (team, id): (TeamId, DeliveryId),
    settle: DeliveryOutcome,
    now: Time,
) -> Result<Option<Delivery>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let Some(mut kept) = by_id(ledger.conn, team, number, id)? else { return Ok(None) };
    if kept.delivery.record_outcome(settle) {
        finish(ledger, number, kept.clone(), now)?;
    }
    Ok(Some(kept.delivery))
}

/// Replays a dead delivery: makes it due again.
pub(crate) fn replay(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    id: DeliveryId,
    now: Time,
) -> Result<Option<Delivery>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let Some(mut kept) = by_id(ledger.conn, team, number, id)? else { return Ok(None) };
    if kept.raw.is_some() && kept.delivery.replay(now) {
        update(ledger, number, &kept, None)?;
        ledger.queue_wake_up(InboundWakeUp::DeliveryWaiting);
    }
    Ok(Some(kept.delivery))
}

/// Makes deliveries due again whose lease holder is no longer alive. Returns how many.
pub(crate) fn reclaim(
    ledger: &WriteSession<'_>,
    alive: impl Fn(NodeId) -> bool,
    max: usize,
    now: Time,
) -> Result<usize> {
    let mut left: Vec<DeliveryRef> = Vec::new();
    let mut statement = ledger.conn.prepare_cached(LEASED).map_err(store_error)?;
    let mut rows = statement.query([now.0]).map_err(store_error)?;
    while left.len() < max
        && let Some(row) = rows.next().map_err(store_error)?
    {
        if !alive(NodeId(id_column(row, 2)?)) {
            left.push((row.get(0).map_err(store_error)?, row.get(1).map_err(store_error)?));
        }
    }
    drop(rows);
    for (team, bits) in &left {
        let id = ledger.team_id(*team)?;
        let Some(mut kept) = by_bits(ledger.conn, id, *team, *bits)? else { continue };
        kept.delivery.reclaim_lease(now);
        update(ledger, *team, &kept, None)?;
    }
    Ok(left.len())
}

/// The number of the team that an email belongs to.
pub(crate) fn team_of_email(conn: &Connection, email: EmailId) -> Result<Option<i64>> {
    let sql = "SELECT team FROM emails WHERE email = ?1 AND tail = ?2";
    let place = (ordered_bits(email.0), random_bits(email.0));
    conn.prepare_cached(sql)
        .and_then(|mut look| look.query_row(place, |row| row.get(0)).optional())
        .map_err(store_error)
}
