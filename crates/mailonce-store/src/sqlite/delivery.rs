//! Deliveries: their rows, being read and ending.

use mailonce_core::{
    delivery::{Brought, Delivery, DeliveryQuery, DeliveryState, Settle, Suppression, Target},
    id::{DeliveryId, EmailId, InboxId, MessageId, NodeId, TeamId, ordered_bits, tail_bits},
    limits,
    port::{arrivals::Hint, store::Result},
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use std::sync::Arc;

use super::{
    ledger::Ledger,
    rows::{json, maybe_id, maybe_json, maybe_time, split_id, to_json, whole_id, word},
    schema::told,
};

const ONE: &str = "SELECT delivery, tail, rev, state, due_at, attempts, raw, inbox, back, received_at, suppressed, \
     repeats, message, trouble, about FROM deliveries WHERE team = ?1 AND delivery = ?2";
const LIST: &str = "SELECT delivery, tail, rev, state, due_at, attempts, raw, inbox, back, received_at, suppressed, \
     repeats, message, trouble, about FROM deliveries WHERE team = ?1 AND delivery < ?2 ORDER BY delivery DESC LIMIT ?3";
const SAVE: &str = "UPDATE deliveries SET rev = ?3, state = ?4, due_at = ?5, attempts = ?6, holder = ?7, raw = ?8, \
     suppressed = ?9, repeats = ?10, message = ?11, trouble = ?12 WHERE team = ?1 AND delivery = ?2";
const DUE: &str = "SELECT team, delivery FROM deliveries WHERE state = 'waiting' AND due_at <= ?1 \
     ORDER BY due_at, delivery LIMIT ?2";
const HELD: &str = "SELECT team, delivery, holder FROM deliveries WHERE state = 'waiting' AND due_at > ?1 \
     AND holder IS NOT NULL ORDER BY due_at, delivery";
/// Whoever reads it goes on.
const BRING: &str =
    "UPDATE deliveries SET rev = ?3, attempts = ?4, raw = ?5, about = ?6 WHERE team = ?1 AND delivery = ?2";
/// A removed inbox that was thought empty has something left again.
const LEFT: &str = "UPDATE inboxes SET removed = 1 WHERE inbox = ?1 AND removed = 0";

/// A delivery and where its bytes are, while it needs them.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) delivery: Delivery,
    pub(super) raw: Option<i64>,
}

fn kept_row(row: &Row<'_>, team: TeamId) -> Result<Kept> {
    let inbox = maybe_id(row, 7)?.map(|id| Target::Inbox(InboxId(id)));
    let target = inbox.map_or_else(|| maybe_json(row, 8), |target| Ok(Some(target)))?;
    let suppressed: Option<String> = row.get(10).map_err(told)?;
    let delivery = Delivery {
        id: DeliveryId(split_id(row, 0)?),
        team,
        rev: row.get(2).map_err(told)?,
        state: word(row, 3, DeliveryState::parse)?,
        due: maybe_time(row, 4)?,
        attempts: row.get(5).map_err(told)?,
        target: target.unwrap_or(Target::Nobody),
        received_at: Time(row.get(9).map_err(told)?),
        suppressed: suppressed.map(|_| word(row, 10, Suppression::parse)).transpose()?,
        of: maybe_id(row, 11)?.map(DeliveryId),
        message: maybe_id(row, 12)?.map(MessageId),
        trouble: row.get(13).map_err(told)?,
        about: Arc::new(json(row, 14)?),
    };
    Ok(Kept { delivery, raw: row.get(6).map_err(told)? })
}

/// The delivery with these ordered bits.
pub(super) fn by_bits(conn: &Connection, team: TeamId, number: i64, bits: i64) -> Result<Option<Kept>> {
    let mut statement = conn.prepare_cached(ONE).map_err(told)?;
    let mut rows = statement.query(params![number, bits]).map_err(told)?;
    rows.next().map_err(told)?.map(|row| kept_row(row, team)).transpose()
}

/// One delivery of a team.
pub(super) fn one(conn: &Connection, team: TeamId, number: i64, id: DeliveryId) -> Result<Option<Kept>> {
    Ok(by_bits(conn, team, number, ordered_bits(id.0))?.filter(|kept| kept.delivery.id == id))
}

/// Deliveries, newest first.
pub(super) fn list(conn: &Connection, team: TeamId, number: i64, query: &DeliveryQuery) -> Result<Vec<Delivery>> {
    let before = query.before.map_or(i64::MAX, |id| ordered_bits(id.0));
    let mut statement = conn.prepare_cached(LIST).map_err(told)?;
    let mut rows = statement.query(params![number, before, limits::SCAN_ROWS as i64]).map_err(told)?;
    let mut found = Vec::new();
    while found.len() < query.limit
        && let Some(row) = rows.next().map_err(told)?
    {
        let delivery = kept_row(row, team)?.delivery;
        if query.matches(&delivery) {
            found.push(delivery);
        }
    }
    Ok(found)
}

/// Writes what became of a delivery.
pub(super) fn write(ledger: &Ledger<'_>, team: i64, kept: &Kept, holder: Option<NodeId>) -> Result<()> {
    let Kept { delivery, raw } = kept;
    let Delivery { rev, attempts, trouble, .. } = delivery;
    let (state, due) = (delivery.state.word(), delivery.due.map(|at| at.0));
    let suppressed = delivery.suppressed.map(Suppression::word);
    let of = delivery.of.map(|id| *id.0.as_bytes());
    let message = delivery.message.map(|id| *id.0.as_bytes());
    let holder = holder.map(|node| *node.0.as_bytes());
    let bits = ordered_bits(delivery.id.0);
    let row = params![team, bits, rev, state, due, attempts, holder, raw, suppressed, of, message, trouble];
    ledger.execute(SAVE, row).map(drop)
}

/// Tells what has to be told of a delivery that makes no message. A removed inbox is to be swept again for it.
pub(super) fn tell(ledger: &mut Ledger<'_>, team: i64, delivery: &Delivery, now: Time) -> Result<()> {
    if let Some(event) = delivery.told(now) {
        ledger.emit(team, &event);
    }
    if let Some(inbox) = delivery.target.inbox().filter(|_| delivery.state != DeliveryState::Waiting) {
        ledger.execute(LEFT, [ordered_bits(inbox.0)])?;
    }
    Ok(())
}

/// Writes what became of a delivery that nobody reads any more. Bytes that it needs no longer go.
pub(super) fn save(ledger: &Ledger<'_>, team: i64, mut kept: Kept) -> Result<()> {
    if !kept.delivery.needs_bytes()
        && let Some(raw) = kept.raw.take()
    {
        drop_bytes(ledger, raw)?;
    }
    write(ledger, team, &kept, None)
}

/// Ends a delivery that makes no message, or puts it off, and tells of it.
pub(super) fn end(ledger: &mut Ledger<'_>, team: i64, kept: Kept, now: Time) -> Result<()> {
    tell(ledger, team, &kept.delivery, now)?;
    save(ledger, team, kept)
}

/// Lets go of one need of some bytes, and of the bytes with the last.
pub(super) fn drop_bytes(ledger: &Ledger<'_>, raw: i64) -> Result<()> {
    if ledger.execute("UPDATE raw_uses SET uses = uses - 1 WHERE raw = ?1 AND uses > 1", [raw])? == 0 {
        ledger.execute("DELETE FROM raw_uses WHERE raw = ?1", [raw])?;
        ledger.execute("DELETE FROM raws WHERE raw = ?1", [raw])?;
    }
    Ok(())
}

/// A delivery by its place in the file.
pub(super) type Place = (i64, i64);

/// Due deliveries, in their order. Read apart from the writer; [`take_up`] looks again.
pub(super) fn candidates(conn: &Connection, max: usize, now: Time) -> Result<Vec<Place>> {
    let mut statement = conn.prepare_cached(DUE).map_err(told)?;
    let rows = statement.query_map(params![now.0, max as i64], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.and_then(Iterator::collect).map_err(told)
}

/// Gives deliveries to a worker, if they may still be taken.
pub(super) fn take_up(ledger: &Ledger<'_>, places: &[Place], node: NodeId, now: Time) -> Result<Vec<Kept>> {
    let mut taken = Vec::with_capacity(places.len());
    for (team, bits) in places {
        let id = ledger.team_id(*team)?;
        let Some(mut kept) = by_bits(ledger.conn, id, *team, *bits)? else { continue };
        if kept.delivery.take_up(now) {
            write(ledger, *team, &kept, Some(node))?;
            taken.push(kept);
        }
    }
    Ok(taken)
}

/// Packed bytes.
pub(super) fn bytes(conn: &Connection, raw: i64) -> Result<Option<Vec<u8>>> {
    let mut statement = conn.prepare_cached("SELECT bytes FROM raws WHERE raw = ?1").map_err(told)?;
    statement.query_row([raw], |row| row.get(0)).optional().map_err(told)
}

/// Puts a mail in the place of the notice of a waiting delivery.
pub(super) fn bring(
    ledger: &mut Ledger<'_>,
    team: TeamId,
    id: DeliveryId,
    brought: &Brought,
) -> Result<Option<Delivery>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let Some(Kept { mut delivery, raw }) = one(ledger.conn, team, number, id)? else { return Ok(None) };
    if !delivery.bring(brought) {
        return Ok(Some(delivery));
    }
    if let Some(notice) = raw {
        drop_bytes(ledger, notice)?;
    }
    let place = ordered_bits(brought.place.0);
    ledger.execute("INSERT INTO raws (raw, bytes) VALUES (?1, ?2)", params![place, brought.raw.as_ref()])?;
    ledger.note_id(brought.place.0);
    let about = to_json(&*delivery.about)?;
    ledger.execute(BRING, params![number, ordered_bits(id.0), delivery.rev, delivery.attempts, place, about])?;
    Ok(Some(delivery))
}

/// Ends or postpones a waiting delivery that makes no message now.
pub(super) fn settle(
    ledger: &mut Ledger<'_>,
    (team, id): (TeamId, DeliveryId),
    settle: Settle,
    now: Time,
) -> Result<Option<Delivery>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let Some(mut kept) = one(ledger.conn, team, number, id)? else { return Ok(None) };
    if kept.delivery.settle(settle) {
        end(ledger, number, kept.clone(), now)?;
    }
    Ok(Some(kept.delivery))
}

/// Lets a dead delivery be read again.
pub(super) fn replay(ledger: &mut Ledger<'_>, team: TeamId, id: DeliveryId, now: Time) -> Result<Option<Delivery>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let Some(mut kept) = one(ledger.conn, team, number, id)? else { return Ok(None) };
    if kept.delivery.replay(now) {
        write(ledger, number, &kept, None)?;
        ledger.note_hint(Hint::Waiting);
    }
    Ok(Some(kept.delivery))
}

/// Makes deliveries due that a process which ended was reading. How many.
pub(super) fn give_back(ledger: &Ledger<'_>, alive: impl Fn(NodeId) -> bool, max: usize, now: Time) -> Result<usize> {
    let mut left: Vec<Place> = Vec::new();
    let mut statement = ledger.conn.prepare_cached(HELD).map_err(told)?;
    let mut rows = statement.query([now.0]).map_err(told)?;
    while left.len() < max
        && let Some(row) = rows.next().map_err(told)?
    {
        if !alive(NodeId(whole_id(row, 2)?)) {
            left.push((row.get(0).map_err(told)?, row.get(1).map_err(told)?));
        }
    }
    drop(rows);
    for (team, bits) in &left {
        let id = ledger.team_id(*team)?;
        let Some(mut kept) = by_bits(ledger.conn, id, *team, *bits)? else { continue };
        kept.delivery.give_back(now);
        write(ledger, *team, &kept, None)?;
    }
    Ok(left.len())
}

/// The number of the team that an email belongs to.
pub(super) fn owner(conn: &Connection, email: EmailId) -> Result<Option<i64>> {
    let sql = "SELECT team FROM emails WHERE email = ?1 AND tail = ?2";
    let place = (ordered_bits(email.0), tail_bits(email.0));
    conn.prepare_cached(sql).and_then(|mut look| look.query_row(place, |row| row.get(0)).optional()).map_err(told)
}
