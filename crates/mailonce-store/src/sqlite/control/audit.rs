//! The audit log: one hash chain per team, and the names of the ids in it.

use async_trait::async_trait;
use mailonce_core::{
    access::call_origin::{Alias, CallOrigin},
    control::audit::{
        AuditNameRef, AuditPage, ChainEnds, RecordedAct,
        act::Act,
        chain::{self, AuditRow, ChainLink},
        wants_events,
    },
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    ports::{audit_store::AuditStore, store::Result},
    record::{RecordKind, TEAM_SETTINGS},
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::sqlite::{
    Sqlite, control::records::RecordScope, outbound::key_bindings, schema::store_error, write_session::WriteSession,
};

const ENDS: &str = "SELECT start_seq, start_hash, seq, hash FROM audit_chains WHERE team = ?1";
const SAVE_ENDS: &str = "INSERT INTO audit_chains (team, start_seq, start_hash, seq, hash) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET start_seq = ?2, start_hash = ?3, seq = ?4, hash = ?5";
const INSERT: &str = "INSERT INTO audit_entries (team, seq, entry, hash) VALUES (?1, ?2, ?3, ?4)";
/// The ends and the entries in one statement, which is one snapshot. There is a row even if both are missing, and
/// entries are found without the ends, so that ends that were removed are noticed.
const PAGE: &str = "SELECT coalesce(c.start_seq, 0), coalesce(c.start_hash, zeroblob(32)), coalesce(c.seq, 0), \
     coalesce(c.hash, zeroblob(32)), e.seq, e.entry, e.hash \
     FROM (SELECT ?1 AS team) t LEFT JOIN audit_chains c ON c.team = t.team \
     LEFT JOIN audit_entries e ON e.team = t.team AND e.seq > ?2 ORDER BY e.seq LIMIT ?3";
const DELETE_UP_TO: &str = "DELETE FROM audit_entries WHERE team = ?1 AND seq <= ?2";
const SAVE_NAME: &str =
    "INSERT INTO audit_names (team, id, name) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET name = ?3";
const NAME: &str = "SELECT name FROM audit_names WHERE team = ?1 AND id = ?2";
const NAME_IS_KNOWN: &str = "SELECT 1 FROM audit_names WHERE team = ?1 AND id = ?2";
const NAME_IS_USED: &str = "SELECT 1 FROM audit_entries WHERE team = ?1 AND instr(entry, ?2) > 0";
const DROP_NAME: &str = "DELETE FROM audit_names WHERE team = ?1 AND id = ?2";
const FORGET_NAME: &str = "DELETE FROM audit_names WHERE team = ?1 AND name = ?2";

/// A hash. One that was tampered with may have another length, and then reads as zeros, which is the hash of no entry.
fn hash_column(row: &Row<'_>, at: usize) -> rusqlite::Result<[u8; 32]> {
    let bytes: Vec<u8> = row.get(at)?;
    Ok(bytes.try_into().unwrap_or_default())
}

fn ends_row(row: &Row<'_>) -> rusqlite::Result<ChainEnds> {
    let link = |at: usize| {
        Ok::<_, rusqlite::Error>(ChainLink { seq: row.get::<_, i64>(at)? as u64, hash: hash_column(row, at + 1)? })
    };
    Ok(ChainEnds { start: link(0)?, head: link(2)? })
}

fn ends(conn: &Connection, team: TeamId) -> Result<ChainEnds> {
    let mut statement = conn.prepare_cached(ENDS).map_err(store_error)?;
    let found = statement.query_row([team.0.as_bytes()], ends_row).optional().map_err(store_error)?;
    Ok(found.unwrap_or_default())
}

fn save_ends(ledger: &WriteSession<'_>, team: TeamId, ChainEnds { start, head }: ChainEnds) -> Result<()> {
    let row = params![team.0.as_bytes(), start.seq as i64, start.hash, head.seq as i64, head.hash];
    ledger.execute(SAVE_ENDS, row).map(drop)
}

fn page(conn: &Connection, team: TeamId, after: u64, limit: usize) -> Result<AuditPage> {
    let mut statement = conn.prepare_cached(PAGE).map_err(store_error)?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let mut found = statement.query(params![team.0.as_bytes(), after, limit as i64]).map_err(store_error)?;
    let mut page = AuditPage::default();
    while let Some(row) = found.next().map_err(store_error)? {
        page.ends = ends_row(row).map_err(store_error)?;
        if let Some(seq) = row.get::<_, Option<i64>>(4).map_err(store_error)? {
            let entry = row.get(5).map_err(store_error)?;
            page.rows.push(AuditRow { seq: seq as u64, entry, hash: hash_column(row, 6).map_err(store_error)? });
        }
    }
    Ok(page)
}

/// Records an act of the running call, in its transaction.
pub(crate) fn record_act(ledger: &mut WriteSession<'_>, act: Option<Act>, now: Time) -> Result<()> {
    let origin = CallOrigin::current();
    let Some(act) = act else { return Ok(()) };
    let Some(recorded) = act.recorded(origin.as_deref(), now) else { return Ok(()) };
    let own_team = act.team.or(origin.and_then(|origin| origin.team));
    let teams = own_team.map_or_else(|| ledger.team_ids(), |team| vec![team]);
    teams.into_iter().try_for_each(|team| append(ledger, team, &recorded))
}

fn append(ledger: &mut WriteSession<'_>, team: TeamId, RecordedAct { entry, aliases }: &RecordedAct) -> Result<()> {
    let ends = ends(ledger.conn, team)?;
    let row = chain::append(ends.head, team, entry);
    ledger.execute(INSERT, params![team.0.as_bytes(), row.seq as i64, row.entry, row.hash])?;
    save_ends(ledger, team, ChainEnds { head: row.link(), ..ends })?;
    for Alias { id, name } in aliases {
        ledger.execute(SAVE_NAME, params![team.0.as_bytes(), id, name])?;
    }
    let Some(number) = ledger.team_number(team) else { return Ok(()) };
    let scope = RecordScope { team, number, kind: RecordKind::Settings };
    if scope.by_name(ledger.conn, TEAM_SETTINGS)?.is_some_and(|settings| wants_events(&settings.json)) {
        ledger.emit(number, &row.event(team, entry));
    }
    Ok(())
}

fn names(conn: &Connection, team: TeamId, ids: &[String]) -> Result<Vec<Alias>> {
    let mut statement = conn.prepare_cached(NAME).map_err(store_error)?;
    let mut found = Vec::new();
    for id in ids {
        let name = statement.query_row(params![team.0.as_bytes(), id], |row| row.get(0)).optional();
        found.extend(name.map_err(store_error)?.map(|name| Alias { id: id.clone(), name }));
    }
    Ok(found)
}

fn prune(ledger: &WriteSession<'_>, team: TeamId, cutoff: Time, max: usize) -> Result<usize> {
    let AuditPage { ends, rows } = page(ledger.conn, team, 0, max)?;
    let is_old = |row: &&AuditRow| row.at().is_some_and(|at| at < cutoff);
    let old: Vec<&AuditRow> = rows.iter().take_while(is_old).collect();
    let Some(last) = old.last() else { return Ok(0) };
    ledger.execute(DELETE_UP_TO, params![team.0.as_bytes(), last.seq as i64])?;
    save_ends(ledger, team, ChainEnds { start: last.link(), ..ends })?;
    for name in AuditNameRef::of_rows(old.iter().copied()) {
        forget_unused_name(ledger, team, &name)?;
    }
    Ok(old.len())
}

/// Deletes a name that no entry uses any more.
fn forget_unused_name(ledger: &WriteSession<'_>, team: TeamId, name: &AuditNameRef) -> Result<()> {
    let exists = |sql: &str, row: &[&dyn rusqlite::ToSql]| {
        ledger.conn.prepare_cached(sql).and_then(|mut statement| statement.exists(row)).map_err(store_error)
    };
    if let Some(id) = name.actor_record()
        && exists("SELECT 1 FROM records WHERE id = ?1", &[id.as_bytes()])?
    {
        return Ok(());
    }
    if !exists(NAME_IS_KNOWN, &[team.0.as_bytes(), &name.id])?
        || exists(NAME_IS_USED, &[team.0.as_bytes(), &name.needle().as_bytes()])?
    {
        return Ok(());
    }
    ledger.execute(DROP_NAME, params![team.0.as_bytes(), name.id]).map(drop)
}

#[async_trait]
impl AuditStore for Sqlite {
    async fn record_act(&self, act: Act, now: Time) -> Result<()> {
        self.run_write(move |ledger| record_act(ledger, Some(act), now)).await
    }

    async fn record_keyed_act(&self, act: Act, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>> {
        self.run_write(move |ledger| {
            let answer = key_bindings::bind_operation_once(ledger, &operation, now)?;
            if matches!(answer, IdempotentResult::Done(())) {
                record_act(ledger, Some(act), now)?;
            }
            Ok(answer)
        })
        .await
    }

    async fn audit_page(&self, team: TeamId, after: u64, limit: usize) -> Result<AuditPage> {
        self.run_query(move |conn| page(conn, team, after, limit)).await
    }

    async fn audit_names(&self, team: TeamId, ids: &[String]) -> Result<Vec<Alias>> {
        let ids = ids.to_vec();
        self.run_query(move |conn| names(conn, team, &ids)).await
    }

    async fn forget_audit_name(&self, team: TeamId, name: &str) -> Result<usize> {
        let name = name.to_owned();
        self.run_write(move |ledger| ledger.execute(FORGET_NAME, params![team.0.as_bytes(), name])).await
    }

    async fn prune_audit(&self, team: TeamId, cutoff: Time, max: usize) -> Result<usize> {
        self.run_write(move |ledger| prune(ledger, team, cutoff, max)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::{
        access::team::{ApiKey, ApiKeyDetails, ApiKeyScope, Team},
        id::ApiKeyId,
        ports::store::Store as _,
    };
    use rusqlite::types::Value;
    use uuid::Uuid;

    const TEAM: TeamId = TeamId(Uuid::from_u128(7));

    async fn store_with_entries(folder: &std::path::Path) -> Sqlite {
        let store = Sqlite::open(folder, [7; 32]).unwrap();
        let team = Team { id: TEAM, name: "ours".into(), created_at: Time(1), require_keys: false };
        let key = ApiKey {
            id: ApiKeyId(Uuid::from_u128(8)),
            team: TEAM,
            hash: [1; 32],
            details: ApiKeyDetails::unrestricted("key", vec![ApiKeyScope::Admin]),
            created_at: Time(1),
            revoked_at: None,
            last_used_at: None,
        };
        let _created = store.create_team(team, key, None).await.unwrap();
        store.set_require_keys(TEAM, true).await.unwrap().unwrap();
        store
    }

    /// The values that a cell has with one byte changed.
    fn tampered_values(value: &Value) -> Vec<Value> {
        match value {
            Value::Integer(number) => (0..8).map(|byte| Value::Integer(number ^ (1 << (byte * 8)))).collect(),
            Value::Blob(bytes) => {
                let flip = |at: usize| {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= 1;
                    Value::Blob(bytes)
                };
                (0..bytes.len()).map(flip).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_flipped_byte_of_any_cell_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let store = store_with_entries(folder.path()).await;
        let conn = Connection::open(folder.path().join("ledger.db")).unwrap();
        let mut tried = 0;
        for (table, columns) in [
            ("audit_entries", &["team", "seq", "entry", "hash"][..]),
            ("audit_chains", &["team", "start_seq", "start_hash", "seq", "hash"]),
        ] {
            let put_back = format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}");
            conn.execute_batch(&format!("CREATE TEMP TABLE kept_{table} AS SELECT * FROM {table}")).unwrap();
            for (column, seq) in columns.iter().flat_map(|column| [(column, 1), (column, 3)]) {
                let select = format!("SELECT {column} FROM {table} WHERE seq = ?1");
                let value = conn.query_row(&select, [seq], |row| row.get::<_, Value>(0)).optional().unwrap();
                for tampered in value.iter().flat_map(tampered_values) {
                    let update = format!("UPDATE {table} SET {column} = ?1 WHERE seq = ?2");
                    // The table itself refuses a number that another entry has.
                    if conn.execute(&update, params![tampered, seq]).is_ok() {
                        let page = store.audit_page(TEAM, 0, 100).await.unwrap();
                        assert!(chain::verify(TEAM, &page).is_err(), "{table} {seq} {column} {tampered:?}");
                        tried += 1;
                    }
                    conn.execute_batch(&put_back).unwrap();
                }
            }
            assert_eq!(chain::verify(TEAM, &store.audit_page(TEAM, 0, 100).await.unwrap()), Ok(()));
        }
        assert!(tried > 500, "{tried}");
        store.close().await;
    }

    #[tokio::test]
    async fn an_act_whose_entry_cannot_be_written_does_not_happen() {
        let folder = tempfile::tempdir().unwrap();
        let store = store_with_entries(folder.path()).await;
        let conn = Connection::open(folder.path().join("ledger.db")).unwrap();
        conn.execute_batch("ALTER TABLE audit_entries RENAME TO elsewhere").unwrap();

        assert!(store.set_require_keys(TEAM, false).await.is_err());

        assert!(store.teams().await.unwrap()[0].require_keys, "the change was undone");
        conn.execute_batch("ALTER TABLE elsewhere RENAME TO audit_entries").unwrap();
        assert!(!store.set_require_keys(TEAM, false).await.unwrap().unwrap().require_keys);
        store.close().await;
    }

    #[tokio::test]
    async fn removed_rows_are_found() {
        for sql in [
            "DELETE FROM audit_entries WHERE seq = 1",
            "DELETE FROM audit_entries WHERE seq = 2",
            "DELETE FROM audit_entries WHERE seq = 3",
            "DELETE FROM audit_entries",
            "DELETE FROM audit_chains",
            "DELETE FROM audit_entries WHERE seq = 3; UPDATE audit_chains SET seq = 2",
        ] {
            let folder = tempfile::tempdir().unwrap();
            let store = store_with_entries(folder.path()).await;
            Connection::open(folder.path().join("ledger.db")).unwrap().execute_batch(sql).unwrap();
            let page = store.audit_page(TEAM, 0, 100).await.unwrap();
            assert!(chain::verify(TEAM, &page).is_err(), "{sql}");
            store.close().await;
        }
    }
}
