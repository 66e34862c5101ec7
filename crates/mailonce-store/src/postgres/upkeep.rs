//! Upkeep: installation facts, health, suppressed-call counts, table statistics, and the sweep of expired rows.

use mailonce_core::{
    events::event::{EventKind, NewEvent},
    id::{EmailId, TeamId, ordered_bits},
    installation::{DatabaseClock, Health, InstallationInfo, SweepCounts},
    limits,
    outbound::suppressed_call::{SuppressedCall, SuppressedCalls},
    time::Time,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use uuid::Uuid;

use super::{
    SharedState,
    row::{TeamKey, read_emails, read_suppressed_calls, write_json},
    statements::{execute, query_rows},
    write::{email_ref_columns, write_unit_of_work},
};
use crate::postgres::{
    control::budgets,
    conversation::changes::sweep_guard_state,
    error::{TxError, TxResult},
    events::notices::sweep_notices,
    events::pending_events::write_events,
    inbound::sweep::sweep_inbound,
    locked_tx::{load_unit_of_work, lock_existing_keys, read_email_rows},
    unit_of_work::{EmailRef, UnitOfWork, keys_of_email},
};

/// How often [`SharedState::maintain_tables`] runs.
pub(crate) const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);

/// The server's wall clock in milliseconds, and whether the server runs on another host. A server behind a local
/// socket has no address and counts as the same host.
macro_rules! database_clock {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
         coalesce(host(inet_server_addr()) <> host(inet_client_addr()), false)"
    };
}
pub(crate) use database_clock;

const SELECT_INSTALL: &str = "SELECT epoch, last_id, seen_at FROM install";
const HAS_RESTORE_MARK: &str = "SELECT restored FROM install";
const CLEAR_RESTORE_MARK: &str = "UPDATE install SET restored = false WHERE restored";
const CLOCK: &str = concat!("SELECT ", database_clock!());
/// The highest id of each team in a table, by skipping from team to team in the index.
macro_rules! highest {
    ($table:literal, $id:literal) => {
        concat!(
            "WITH RECURSIVE teams_seen AS (
                (SELECT team FROM ",
            $table,
            " ORDER BY team LIMIT 1)
                UNION ALL
                SELECT (SELECT e.team FROM ",
            $table,
            " e WHERE e.team > t.team ORDER BY e.team LIMIT 1)
                  FROM teams_seen t WHERE t.team IS NOT NULL
            )
            SELECT (SELECT ",
            $id,
            " FROM ",
            $table,
            " e WHERE e.team = t.team ORDER BY e.id DESC LIMIT 1)
              FROM teams_seen t WHERE t.team IS NOT NULL"
        )
    };
}
const HIGHEST_IDS: [&str; 7] = [
    highest!("emails", "e.id"),
    highest!("inboxes", "e.id"),
    highest!("deliveries", "e.id"),
    highest!("messages", "greatest(e.id, e.thread)"),
    highest!("artifacts", "e.id"),
    highest!("watches", "e.id"),
    highest!("endpoints", "e.id"),
];
const PROBE_COMMIT: &str = "UPDATE install SET checked = checked + 1";
const DURABILITY: &str = "
    SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
           current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
           (SELECT count(*) FROM pg_stat_replication),
           (SELECT string_agg(coalesce(application_name, 'unnamed'), ', ') FROM pg_stat_replication
             WHERE sync_state = 'async')";
/// Tables that were analyzed when almost empty and have grown since. Their cached plans would scan the whole table;
/// new statistics make sessions plan again.
const STALE_STATISTICS: &str = "
    SELECT format('ANALYZE %I', relname) FROM pg_class
     WHERE relnamespace = 'mailonce'::regnamespace AND relkind = 'r' AND reltuples >= 0 AND relpages < 64
       AND pg_relation_size(oid) > 8192 * 4 * greatest(relpages, 1)";
const COUNT_KEYS: &str = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'keys'::regclass";

const SWEEP_DUE: &str = "SELECT team, id FROM emails WHERE sweep_at <= $1 ORDER BY sweep_at, team, id LIMIT $2";
const LOCK_SWEEP_DUE: &str = "
    SELECT e.team, e.id FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id)
      JOIN emails e ON e.team = w.team AND e.id = w.id
     WHERE e.sweep_at <= $3 ORDER BY e.id FOR UPDATE OF e SKIP LOCKED";
/// An expired operation is cleared and leaves a tombstone, which has its own expiry.
const FORGET_OPERATIONS: &str = "
    UPDATE keys k
       SET digest = NULL, answer = NULL, forgotten_at = k.expires_at, expires_at = k.expires_at + $2
      FROM (SELECT team, hash FROM keys WHERE expires_at IS NOT NULL AND expires_at <= $1 AND digest IS NOT NULL
             LIMIT 10000 FOR UPDATE SKIP LOCKED) due
     WHERE k.team = due.team AND k.hash = due.hash";
/// A row whose shadow key is still occupied stays.
const DROP_TOMBSTONES: &str = "
    WITH due AS (
        SELECT team, hash FROM keys WHERE expires_at IS NOT NULL AND expires_at <= $1 AND digest IS NULL
         LIMIT 10000 FOR UPDATE SKIP LOCKED
    ), freed AS (
        UPDATE keys k SET bind = 0, forgotten_at = NULL, expires_at = NULL FROM due
         WHERE k.team = due.team AND k.hash = due.hash AND k.slot IS NOT NULL
    )
    DELETE FROM keys k USING due WHERE k.team = due.team AND k.hash = due.hash AND k.slot IS NULL";
const DROP_BODIES: &str = "
    UPDATE emails b SET body = NULL FROM unnest($1::uuid[], $2::uuid[]) AS w (team, email)
     WHERE b.team = w.team AND b.id = w.email AND b.body IS NOT NULL";
const DROP_EMAILS: &str = "
    DELETE FROM emails b USING unnest($1::uuid[], $2::uuid[]) AS w (team, email)
     WHERE b.team = w.team AND b.id = w.email";
const DROP_HANDOFFS: &str = "
    DELETE FROM handoffs b USING unnest($1::uuid[], $2::uuid[]) AS w (team, email)
     WHERE b.team = w.team AND b.email = w.email";
const DROP_ATTEMPTS: &str = "
    DELETE FROM attempts b USING unnest($1::uuid[], $2::uuid[]) AS w (team, email)
     WHERE b.team = w.team AND b.email = w.email";
const DROP_EVIDENCE: &str = "
    DELETE FROM evidence b USING unnest($1::uuid[], $2::uuid[]) AS w (team, email)
     WHERE b.team = w.team AND b.email = w.email";
const DROP_WIRES: &str = "
    DELETE FROM wires b USING unnest($1::uuid[], $2::uuid[]) AS w (team, email)
     WHERE b.team = w.team AND b.email = w.email";
const DROP_SUPPRESSED: &str = "
    DELETE FROM suppressed b USING unnest($1::uuid[], $2::uuid[]) AS w (team, email)
     WHERE b.team = w.team AND b.email = w.email";
const SAVE_LAST_ID: &str = "UPDATE install SET last_id = greatest(last_id, $1)";

/// Inserts the missing rows and locks the others, in sorted order, as for keys.
const LOCK_SUPPRESSED: &str = "
    INSERT INTO suppressed (team, email, count, latest)
    SELECT w.team, w.email, 0, '[]' FROM unnest($1::uuid[], $2::uuid[]) AS w (team, email) ORDER BY 1, 2
    ON CONFLICT (team, email) DO UPDATE SET count = suppressed.count WHERE false";
const READ_SUPPRESSED: &str = "
    SELECT s.team, s.email, s.latest FROM unnest($1::uuid[], $2::uuid[]) AS w (team, email)
      JOIN suppressed s ON s.team = w.team AND s.email = w.email";
const ADD_SUPPRESSED: &str = "
    UPDATE suppressed s SET count = s.count + w.count, latest = w.latest
      FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[]) AS w (team, email, count, latest)
     WHERE s.team = w.team AND s.email = w.email";

impl SharedState {
    /// Facts about this installation.
    pub(crate) async fn installation(&self) -> TxResult<InstallationInfo> {
        let client = self.connections.client().await?;
        let rows = query_rows(&client, SELECT_INSTALL, &[]).await?;
        let row = rows.first().ok_or_else(|| TxError::corrupt("the installation"))?;
        let mut last_id: i64 = row.try_get(1)?;
        for sql in HIGHEST_IDS {
            for row in query_rows(&client, sql, &[]).await? {
                last_id = last_id.max(row.try_get::<_, Option<Uuid>>(0)?.map_or(0, ordered_bits));
            }
        }
        Ok(InstallationInfo {
            secret: self.secret.clone(),
            epoch: row.try_get::<_, i32>(0)? as u32,
            last_id,
            last_heartbeat_at: row.try_get::<_, Option<i64>>(2)?.map(Time),
            database_clock: query_rows(&client, CLOCK, &[])
                .await?
                .first()
                .map(|row| self.read_clock(row, 0))
                .transpose()?,
        })
    }

    /// Whether the tables were restored, and no start has dealt with it yet.
    pub(crate) async fn has_restore_mark(&self) -> TxResult<bool> {
        let client = self.connections.client().await?;
        let rows = query_rows(&client, HAS_RESTORE_MARK, &[]).await?;
        Ok(rows.first().ok_or_else(|| TxError::corrupt("the installation"))?.try_get(0)?)
    }

    /// Records that a start has dealt with the restore.
    pub(crate) async fn clear_restore_mark(&self) -> TxResult<()> {
        let client = self.connections.client().await?;
        execute(&client, CLEAR_RESTORE_MARK, &[]).await.map(drop)
    }

    /// Reads the columns of [`database_clock`], which begin at column `at`.
    pub(crate) fn read_clock(&self, row: &tokio_postgres::Row, at: usize) -> TxResult<DatabaseClock> {
        match self.test_clock.get() {
            Some(source) => Ok(source()),
            None => Ok(DatabaseClock { now: Time(row.try_get(at)?), is_on_other_host: row.try_get(at + 1)? }),
        }
    }

    /// Checks the database. It commits a row, because only a commit proves that commits work.
    pub(crate) async fn health(&self) -> TxResult<Health> {
        let mut client = self.connections.client().await?;
        let tx = client.transaction().await?;
        execute(&tx, PROBE_COMMIT, &[]).await?;
        tx.commit().await.map_err(|error| TxError::at_commit(&error))?;
        let rows = query_rows(&client, DURABILITY, &[]).await?;
        let row = rows.first().ok_or_else(|| TxError::corrupt("the settings of the server"))?;
        let setting = |at: usize| row.try_get::<_, &str>(at);
        let mut notes = vec![format!("PostgreSQL {}, synchronous_commit = {}", setting(0)?, setting(3)?)];
        if setting(1)? != "on" {
            notes.push("fsync is off: what was accepted can be lost when the machine fails".into());
        }
        if setting(2)? != "on" {
            notes.push("full_page_writes is off: a torn page can damage the ledger when the machine fails".into());
        }
        let (replicas, lagging): (i64, Option<&str>) = (row.try_get(5)?, row.try_get(6)?);
        if let Some(names) = lagging {
            notes.push(format!("asynchronous replicas: {names}; a failover to them can lose what was accepted"));
        } else if replicas > 0 && setting(4)?.is_empty() {
            notes.push(format!(
                "{replicas} replicas and no synchronous_standby_names: a failover can lose what was accepted"
            ));
        }
        // The first note names the server; each further note is a risk of data loss.
        Ok(Health { engine: "postgres", degraded: notes.len() > 1, notes })
    }

    /// Refreshes the approximate number of keys, and analyzes tables whose statistics are out of date.
    pub(crate) async fn maintain_tables(&self) -> TxResult<()> {
        let client = self.connections.client().await?;
        self.connections.server.refresh(&client).await?;
        if let Some(row) = query_rows(&client, COUNT_KEYS, &[]).await?.first() {
            self.meter.set_keys(row.try_get::<_, i64>(0)? as u64);
        }
        for row in query_rows(&client, STALE_STATISTICS, &[]).await? {
            client.batch_execute(row.try_get(0)?).await?;
        }
        Ok(())
    }

    /// Counts calls that were answered with an earlier email, and keeps the latest ones.
    pub(crate) async fn record_suppressed_calls(&self, calls: &[SuppressedCalls], now: Time) -> TxResult<()> {
        let mut client = self.connections.client().await?;
        let tx = client.transaction().await?;
        let named: BTreeSet<EmailRef> = calls.iter().map(|note| (note.team, note.email)).collect();
        let emails = read_emails(&read_email_rows(&tx, &named).await?, 0)?;
        let known: BTreeMap<EmailRef, _> = emails.iter().map(|email| ((email.team, email.id), email)).collect();
        if known.is_empty() {
            return Ok(());
        }
        let (teams, ids) = email_ref_columns(known.keys().copied());
        execute(&tx, LOCK_SUPPRESSED, &[&teams, &ids]).await?;
        let mut kept: BTreeMap<EmailRef, (i64, Vec<SuppressedCall>)> = BTreeMap::new();
        for row in query_rows(&tx, READ_SUPPRESSED, &[&teams, &ids]).await? {
            let scoped = (TeamId(row.try_get(0)?), EmailId(row.try_get(1)?));
            kept.insert(scoped, (0, read_suppressed_calls(Some(row.try_get(2)?))?));
        }
        let mut events: Vec<(TeamId, NewEvent)> = Vec::new();
        for note in calls {
            let scoped = (note.team, note.email);
            let (Some(email), Some((count, latest))) = (known.get(&scoped), kept.get_mut(&scoped)) else {
                continue;
            };
            let mut event = email.event(EventKind::EmailDuplicate, now);
            event.data["call_count"] = note.count.into();
            events.push((note.team, event));
            *count += note.count as i64;
            latest.extend(note.latest.iter().cloned());
            let surplus = latest.len().saturating_sub(limits::SUPPRESSED_CALLS_KEPT);
            latest.drain(..surplus);
        }
        let (teams, ids) = email_ref_columns(kept.keys().copied());
        let counts: Vec<i64> = kept.values().map(|(count, _)| *count).collect();
        let latest = kept.values().map(|(_, latest)| write_json(latest)).collect::<TxResult<Vec<String>>>()?;
        execute(&tx, ADD_SUPPRESSED, &[&teams, &ids, &counts, &latest]).await?;
        write_events(&tx, &events).await?;
        self.commit(tx, 1).await
    }

    /// Removes expired data, of at most `max` emails per call.
    pub(crate) async fn sweep(&self, max: usize, now: Time) -> TxResult<SweepCounts> {
        let mut client = self.connections.client().await?;
        let tx = client.transaction().await?;
        let due: BTreeSet<EmailRef> =
            read_email_refs(&query_rows(&tx, SWEEP_DUE, &[&now.0, &(max as i64)]).await?)?.collect();
        let mut swept = SweepCounts::default();
        if !due.is_empty() {
            // Read without a lock: only the heads are used, and those are immutable.
            let scopes: BTreeSet<TeamKey> =
                read_emails(&read_email_rows(&tx, &due).await?, 0)?.iter().flat_map(keys_of_email).collect();
            lock_existing_keys(&tx, &scopes).await?;
            let (teams, ids) = email_ref_columns(due.iter().copied());
            let held: Vec<EmailRef> =
                read_email_refs(&query_rows(&tx, LOCK_SWEEP_DUE, &[&teams, &ids, &now.0]).await?)?.collect();
            let mut work = load_unit_of_work(&tx, &self.time, &scopes, &held).await?;
            for (team, id) in held {
                if let Some(email) = work.email_of_team(team, id) {
                    work.sweep_email(&email, now, &mut swept);
                }
            }
            write_unit_of_work(&tx, &work).await?;
            swept.bodies = drop_rows(&tx, &work).await?;
        }
        execute(&tx, FORGET_OPERATIONS, &[&now.0, &limits::TOMBSTONE_MS]).await?;
        execute(&tx, DROP_TOMBSTONES, &[&now.0]).await?;
        swept.deliveries = sweep_inbound(&tx, max, now).await?;
        let (notices, gone) = sweep_notices(&tx, max, now).await?;
        swept.notices = notices;
        if let Some(gone) = gone {
            execute(&tx, SAVE_LAST_ID, &[&ordered_bits(gone)]).await?;
        }
        // These locks come last: a transaction that holds one of them waits for no other lock.
        sweep_guard_state(&tx, now).await?;
        budgets::sweep(&tx, now).await?;
        self.commit(tx, 1).await?;
        Ok(swept)
    }
}

/// Deletes bodies and expired emails. Returns how many bodies were deleted.
async fn drop_rows(tx: &deadpool_postgres::Transaction<'_>, work: &UnitOfWork) -> TxResult<usize> {
    let mut bodies = 0;
    if !work.bodies_to_drop.is_empty() {
        let (teams, ids) = email_ref_columns(work.bodies_to_drop.iter().copied());
        bodies = execute(tx, DROP_BODIES, &[&teams, &ids]).await? as usize;
        execute(tx, DROP_WIRES, &[&teams, &ids]).await?;
    }
    if let Some(highest) = work.emails_to_delete.iter().map(|(_, id)| ordered_bits(id.0)).max() {
        let (teams, ids) = email_ref_columns(work.emails_to_delete.iter().copied());
        for sql in [DROP_EMAILS, DROP_HANDOFFS, DROP_ATTEMPTS, DROP_EVIDENCE, DROP_WIRES, DROP_SUPPRESSED] {
            execute(tx, sql, &[&teams, &ids]).await?;
        }
        execute(tx, SAVE_LAST_ID, &[&highest]).await?;
    }
    Ok(bodies)
}

fn read_email_refs(rows: &[tokio_postgres::Row]) -> TxResult<impl Iterator<Item = EmailRef>> {
    let read = |row: &tokio_postgres::Row| Ok((TeamId(row.try_get(0)?), EmailId(row.try_get(1)?)));
    Ok(rows.iter().map(read).collect::<TxResult<Vec<EmailRef>>>()?.into_iter())
}
