//! Upkeep: the installation, heartbeats, recovery of dead nodes, and the sweep that forgets expired keys, drops old bodies and deletes expired tombstones.

use mailonce_core::{
    id::{NodeId, ordered_bits},
    installation::{Heartbeat, InstallationInfo, RecoveryCounts, SweepCounts},
    key::InstallSecret,
    limits,
    outbound::email::Email,
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, params};
use std::sync::{PoisonError, atomic::Ordering};

use crate::sqlite::{
    Sqlite,
    events::notices,
    handoff::handoffs,
    inbound::{self, deliveries},
    outbound::key_bindings,
    rows,
    schema::store_error,
    write_session::WriteSession,
};

/// How often a heartbeat saves the current time in the database.
const SAVE_TIME_INTERVAL_MS: i64 = 60_000;

const DUE: &str = "SELECT team, email FROM emails WHERE sweep_at <= ?1 ORDER BY sweep_at LIMIT ?2";
const FREE_SLOT: &str = "UPDATE keys SET slot = NULL WHERE team = ?1 AND hash = ?2 AND slot = ?3";
const DROP_EMPTY: &str = "DELETE FROM keys WHERE team = ?1 AND hash = ?2 AND bind = 0 AND slot IS NULL";
const UNBIND_TO_TOMBSTONE: &str =
    "UPDATE keys SET email = NULL, forgotten_at = ?4 WHERE team = ?1 AND hash = ?2 AND email = ?3";
const DROP_TOMBSTONE: &str = "UPDATE keys SET bind = 0, forgotten_at = NULL WHERE team = ?1 AND hash = ?2 AND email IS NULL \
     AND digest IS NULL AND bind = ?3";
const FORGET_OPERATIONS: &str = "UPDATE keys SET forgotten_at = expires_at, digest = NULL, answer = NULL, \
     expires_at = expires_at + ?2 WHERE expires_at <= ?1 AND digest IS NOT NULL";
const UNBIND_OPERATION_TOMBSTONES: &str = "UPDATE keys SET bind = 0, forgotten_at = NULL, expires_at = NULL \
     WHERE expires_at <= ?1 AND digest IS NULL AND slot IS NOT NULL";
const DROP_EMPTY_OPERATIONS: &str = "DELETE FROM keys WHERE expires_at <= ?1 AND digest IS NULL";
const SET_SWEEP_AT: &str = "UPDATE emails SET sweep_at = ?3 WHERE email = ?2 AND team = ?1";

/// Sweeps up to `max` due emails: forgets keys, drops bodies, and deletes emails whose tombstone has expired. Also
/// forgets expired operations.
pub(crate) fn sweep(ledger: &mut WriteSession<'_>, max: usize, now: Time) -> Result<SweepCounts> {
    let due: Vec<(i64, i64)> = {
        let mut statement = ledger.conn.prepare_cached(DUE).map_err(store_error)?;
        let rows = statement.query_map(params![now.0, max as i64], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.and_then(Iterator::collect).map_err(store_error)?
    };
    ledger.fresh_keys.get_mut().flush_some()?;
    let mut swept = SweepCounts::default();
    for (team, bits) in due {
        let id = ledger.team_id(team)?;
        if let Some(email) = rows::email_by_bits(ledger.conn, id, team, bits)? {
            sweep_email(ledger, team, &email, now, &mut swept)?;
        }
    }
    ledger.execute(FORGET_OPERATIONS, params![now.0, limits::TOMBSTONE_MS])?;
    ledger.execute(UNBIND_OPERATION_TOMBSTONES, params![now.0])?;
    ledger.execute(DROP_EMPTY_OPERATIONS, params![now.0])?;
    Ok(swept)
}

fn sweep_email(ledger: &WriteSession<'_>, team: i64, email: &Email, now: Time, swept: &mut SweepCounts) -> Result<()> {
    let bits = ordered_bits(email.id.0);
    if email.is_forgotten(now) {
        swept.keys += release_key_and_slots(ledger, team, email, now)?;
    }
    if email.expiry().body.is_some_and(|at| at <= now) {
        swept.bodies +=
            ledger.execute("UPDATE emails SET body = NULL WHERE email = ?1 AND body IS NOT NULL", [bits])?;
        swept.bodies += ledger.execute("DELETE FROM bodies WHERE email = ?1", [bits])?;
        ledger.execute("DELETE FROM wires WHERE email = ?1", [bits])?;
    }
    if email.expiry().tombstone.is_some_and(|at| at <= now) {
        swept.tombstones += remove_traces(ledger, team, email)?;
    } else {
        let next = email.expiry().next_after(now).map(|at| at.0);
        ledger.execute(SET_SWEEP_AT, params![team, bits, next])?;
    }
    Ok(())
}

/// Releases an email's shadow keys and turns its key into a tombstone. Returns the number of keys released.
fn release_key_and_slots(ledger: &WriteSession<'_>, team: i64, email: &Email, now: Time) -> Result<usize> {
    let bits = ordered_bits(email.id.0);
    for slot in email.head.all_shadow_keys(email.team) {
        ledger.execute(FREE_SLOT, params![team, slot.0, bits])?;
        ledger.execute(DROP_EMPTY, params![team, slot.0])?;
    }
    let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) else { return Ok(0) };
    key_bindings::flush_key(ledger, team, key)?;
    ledger.execute(UNBIND_TO_TOMBSTONE, params![team, key.0, bits, email.expires_at().unwrap_or(now).0])
}

/// Deletes all rows of an email and the tombstone of its key. Returns the number of tombstones deleted.
fn remove_traces(ledger: &WriteSession<'_>, team: i64, email: &Email) -> Result<usize> {
    let bits = ordered_bits(email.id.0);
    ledger.execute("DELETE FROM handoffs WHERE team = ?1 AND email = ?2", params![team, bits])?;
    for sql in [
        "DELETE FROM attempts WHERE email = ?1",
        "DELETE FROM suppressed WHERE email = ?1",
        "DELETE FROM bodies WHERE email = ?1",
        "DELETE FROM evidence WHERE email = ?1",
        "DELETE FROM wires WHERE email = ?1",
    ] {
        ledger.execute(sql, [bits])?;
    }
    ledger.execute("UPDATE install SET last_id = MAX(last_id, ?1)", [bits])?;
    ledger.execute("DELETE FROM emails WHERE email = ?2 AND team = ?1", params![team, bits])?;
    let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) else { return Ok(0) };
    let dropped = ledger.execute(DROP_TOMBSTONE, params![team, key.0, email.bind_number])?;
    ledger.execute(DROP_EMPTY, params![team, key.0])?;
    Ok(dropped)
}

/// The identity of this installation, and the latest time and id in the database.
pub(crate) fn installation(conn: &Connection, secret: InstallSecret) -> Result<InstallationInfo> {
    let sql = "SELECT epoch, MAX(last_id, (SELECT COALESCE(MAX(email), 0) FROM emails)), seen_at \
         FROM install";
    let install = conn.query_row(sql, [], |row| {
        Ok(InstallationInfo {
            secret,
            epoch: row.get(0)?,
            last_id: row.get(1)?,
            last_heartbeat_at: row.get::<_, Option<i64>>(2)?.map(Time),
            database_clock: None,
        })
    });
    install.map_err(store_error)
}

impl Sqlite {
    /// Records that a node of this process is alive.
    pub(crate) async fn record_heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
        let latest = {
            let mut nodes = self.node_heartbeats.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.insert(node, now);
            nodes.values().max().copied().unwrap_or(now)
        };
        let kept = self.seen_at.load(Ordering::Relaxed);
        if now.0 - kept < SAVE_TIME_INTERVAL_MS {
            return Ok(Heartbeat { latest_time: latest, database_clock: None });
        }
        self.seen_at.store(now.0, Ordering::Relaxed);
        self.run_write(move |ledger| ledger.execute("UPDATE install SET seen_at = ?1", [now.0]).map(drop)).await?;
        Ok(Heartbeat { latest_time: latest, database_clock: None })
    }

    /// Reclaims what nodes without a heartbeat hold.
    pub(crate) async fn run_recovery(&self, node: NodeId, max: usize, now: Time) -> Result<RecoveryCounts> {
        // This process holds the only lock on the file. A node without a heartbeat here belonged to an earlier process.
        let nodes = self.node_heartbeats.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let alive = move |holder| {
            holder == node || nodes.get(&holder).is_some_and(|seen| now.since(*seen) < limits::HEARTBEAT_TIMEOUT_MS)
        };
        let verb = move |ledger: &mut WriteSession<'_>| {
            let recovered = handoffs::recover_dead_nodes(ledger, &alive, max, now)?;
            let deliveries = deliveries::reclaim(ledger, &alive, max, now)?;
            Ok(RecoveryCounts { deliveries, notices: notices::reclaim(ledger, alive, max, now)?, ..recovered })
        };
        self.run_write(verb).await
    }

    /// Deletes what has expired.
    pub(crate) async fn run_sweep(&self, max: usize, now: Time) -> Result<SweepCounts> {
        let expired = self.expired_delivery_keys(now).await?;
        let verb = move |ledger: &mut WriteSession<'_>| {
            let swept = sweep(ledger, max, now)?;
            let deliveries = inbound::sweep::sweep(ledger, &expired, max, now)?;
            Ok(SweepCounts { deliveries, notices: notices::sweep(ledger, max, now)?, ..swept })
        };
        self.run_write(move |ledger| ledger.with_secure_delete(verb)).await
    }

    /// Expired delivery keys among the next `SCAN_ROWS` keys. A reader scans the table piece by piece and starts over
    /// at its end. This avoids an index on the expiry time, which every received mail would have to update.
    async fn expired_delivery_keys(&self, now: Time) -> Result<Vec<inbound::sweep::DeliveryKeyRef>> {
        let from = self.delivery_key_cursor.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (expired, last) =
            self.run_query(move |conn| inbound::sweep::expired_keys(conn, from.as_ref(), now)).await?;
        *self.delivery_key_cursor.lock().unwrap_or_else(PoisonError::into_inner) = last;
        Ok(expired)
    }
}
