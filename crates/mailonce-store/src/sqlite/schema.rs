//! Opening the database file: its lock, its settings, its migrations, and its integrity check.

use mailonce_core::{
    key::InstallSecret,
    ports::{
        secret_keeper::SecretKeeper,
        store::{Result, StoreError},
    },
};
use rusqlite::{Connection, OpenFlags, config::DbConfig};
use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use super::install_secret;

/// Migrations in order. A released migration never changes.
pub(crate) const MIGRATIONS: [&str; 22] = [
    include_str!("../../migrations/sqlite/0001_ledger.sql"),
    include_str!("../../migrations/sqlite/0002_handoff.sql"),
    include_str!("../../migrations/sqlite/0003_records.sql"),
    include_str!("../../migrations/sqlite/0004_accepts.sql"),
    include_str!("../../migrations/sqlite/0005_arrivals.sql"),
    include_str!("../../migrations/sqlite/0006_conversations.sql"),
    include_str!("../../migrations/sqlite/0007_notices.sql"),
    include_str!("../../migrations/sqlite/0008_install_secret.sql"),
    include_str!("../../migrations/sqlite/0009_budgets.sql"),
    include_str!("../../migrations/sqlite/0010_budget_charges.sql"),
    include_str!("../../migrations/sqlite/0011_stops.sql"),
    include_str!("../../migrations/sqlite/0012_holds.sql"),
    include_str!("../../migrations/sqlite/0013_contacts.sql"),
    include_str!("../../migrations/sqlite/0014_audit.sql"),
    include_str!("../../migrations/sqlite/0015_search.sql"),
    include_str!("../../migrations/sqlite/0016_claims.sql"),
    include_str!("../../migrations/sqlite/0017_implicit_watches.sql"),
    include_str!("../../migrations/sqlite/0018_templates.sql"),
    include_str!("../../migrations/sqlite/0019_claim_payloads.sql"),
    include_str!("../../migrations/sqlite/0020_oauth_clients.sql"),
    include_str!("../../migrations/sqlite/0021_due_bodies.sql"),
    include_str!("../../migrations/sqlite/0022_dead_mail.sql"),
];

/// The schema version that this binary writes.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// An exclusive lock on the data directory. Held until it is dropped.
#[derive(Debug)]
pub(crate) struct DirectoryLock(#[expect(dead_code, reason = "the lock ends when the file is closed")] File);

impl DirectoryLock {
    /// Takes the lock, and creates the directory if needed. Fails at once when another process holds the lock.
    pub(crate) fn take(directory: &Path) -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        // The directory will hold the mail of all teams, so only its owner may read it. An existing directory keeps
        // its mode.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|e| unreachable_error(&format!("{}: {e}", directory.display())))?;
        let path = directory.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| unreachable_error(&format!("{}: {e}", path.display())))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(|_held| {
            unreachable_error(&format!("another process holds the data directory {}", directory.display()))
        })?;
        Ok(Self(file))
    }
}

/// SQLite's page cache per connection, in KiB.
const WRITER_CACHE_KIB: i64 = 16 * 1024;
const READER_CACHE_KIB: i64 = 8 * 1024;

/// A lock for processes that write to the WAL while a server may be starting. [`rewrite_wal`] bypasses SQLite's own
/// locks, and would undo a commit that another process makes at the same time.
pub(crate) struct WalLock(#[expect(dead_code, reason = "the lock ends when the folder is closed")] File);

impl WalLock {
    /// Takes the lock, and waits while another process holds it.
    pub(crate) fn take(directory: &Path) -> Result<Self> {
        let trouble = |error: io::Error| unreachable_error(&format!("{}: {error}", directory.display()));
        let folder = File::open(directory).map_err(trouble)?;
        rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive).map_err(|error| trouble(error.into()))?;
        Ok(Self(folder))
    }
}

/// Opens the writer's connection and the install secret. Creates the file if needed, checks that its settings are
/// durable, and runs the pending migrations.
pub(crate) fn open_writer(path: &Path, keeper: &dyn SecretKeeper) -> Result<(Connection, InstallSecret)> {
    create_private_file(path)?;
    {
        let _lock = WalLock::take(path.parent().unwrap_or(Path::new(".")))?;
        rewrite_wal(path)?;
    }
    let mut conn = Connection::open(path).map_err(store_error)?;
    conn.execute_batch("PRAGMA page_size = 8192").map_err(store_error)?;
    apply_pragmas(&conn, WRITER_CACHE_KIB)?;
    assert_durable(&conn)?;
    migrate(&mut conn)?;
    conn.execute("INSERT OR IGNORE INTO install (one, epoch, last_id) VALUES (1, 1, 0)", []).map_err(store_error)?;
    let secret = install_secret::open_secret(&mut conn, keeper)?;
    install_secret::purge_plain_secret(&conn)?;
    Ok((conn, secret))
}

/// Creates the database file with a mode that lets only its owner read it, because it holds the mail of all teams.
/// SQLite gives the WAL and the shared-memory file the same mode.
fn create_private_file(path: &Path) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let made = File::options().create(true).truncate(false).write(true).mode(0o600).open(path);
    made.map(drop).map_err(|e| unreachable_error(&format!("{}: {e}", path.display())))
}

/// Bytes of the WAL that are rewritten in one step.
const WAL_REWRITE_CHUNK: usize = 1024 * 1024;

/// Rewrites the WAL in place and syncs it, so that no caller is answered from a commit that a power loss could undo.
///
/// SQLite trusts every commit that it finds complete in the WAL. But the previous process may have ended because it
/// failed to sync one. That commit is then only in the kernel's page cache. The kernel marks its pages as clean, so no
/// later sync writes them. A power loss would leave a gap there, and SQLite ignores all frames after a gap.
fn rewrite_wal(path: &Path) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    let log = match File::options().read(true).write(true).open(&name) {
        Ok(log) => log,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreachable_error(&format!("{}: {error}", name.display()))),
    };
    let renew = || {
        let (mut piece, mut at) = (vec![0; WAL_REWRITE_CHUNK], 0);
        loop {
            let read = log.read_at(&mut piece, at)?;
            if read == 0 {
                break;
            }
            log.write_all_at(&piece[..read], at)?;
            at += read as u64;
        }
        log.sync_all()?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    renew().map_err(|e: io::Error| StoreError::Corrupt(format!("{} cannot be written again: {e}", name.display())))
}

/// Opens the connection that checkpoints the WAL, separately from the writer.
pub(crate) fn open_checkpointer(path: &Path) -> Result<Connection> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(store_error)?;
    apply_pragmas(&conn, READER_CACHE_KIB)?;
    Ok(conn)
}

/// Opens a read-only connection.
pub(crate) fn open_reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(store_error)?;
    conn.execute_batch(&format!(
        "PRAGMA query_only = ON; PRAGMA cache_size = -{READER_CACHE_KIB}; PRAGMA busy_timeout = 5000"
    ))
    .map_err(store_error)?;
    conn.set_prepared_statement_cache_capacity(64);
    keep_query_plans(&conn)?;
    Ok(conn)
}

/// Makes SQLite keep a statement's query plan whatever values are bound. Otherwise SQLite plans again each time a
/// `LIMIT` is bound, which costs more than running most of our queries.
fn keep_query_plans(conn: &Connection) -> Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop).map_err(store_error)
}

fn apply_pragmas(conn: &Connection, cache_kib: i64) -> Result<()> {
    // Automatic checkpoints are off: the checkpointer thread does them, never a commit.
    conn.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; \
         PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{cache_kib}; PRAGMA busy_timeout = 5000; \
         PRAGMA foreign_keys = OFF"
    ))
    .map_err(store_error)?;
    conn.set_prepared_statement_cache_capacity(256);
    keep_query_plans(conn)
}

/// Fails on settings under which a power loss could undo an acknowledged commit.
fn assert_durable(conn: &Connection) -> Result<()> {
    let mode: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0)).map_err(store_error)?;
    let synchronous: i64 = conn.pragma_query_value(None, "synchronous", |row| row.get(0)).map_err(store_error)?;
    if mode == "wal" && synchronous == 2 {
        return Ok(());
    }
    Err(StoreError::Corrupt(format!(
        "SQLite runs with journal_mode={mode}, synchronous={synchronous}; WAL and FULL are needed"
    )))
}

/// Runs the pending migrations, each in its own transaction.
fn migrate(conn: &mut Connection) -> Result<()> {
    let found = schema_version(conn)?;
    if found > SCHEMA_VERSION {
        return Err(StoreError::Corrupt(format!(
            "the ledger has schema {found} and this binary knows only {SCHEMA_VERSION}: run a newer mailonce"
        )));
    }
    // A migration may delete a secret, so overwrite deleted content.
    conn.execute_batch("PRAGMA secure_delete = ON").map_err(store_error)?;
    for (number, sql) in (1_i64..).zip(MIGRATIONS).filter(|(number, _)| *number > found) {
        let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(store_error)?;
        tx.execute_batch(sql).map_err(store_error)?;
        tx.pragma_update(None, "user_version", number).map_err(store_error)?;
        mailonce_core::failpoint!("sqlite-migrating");
        tx.commit().map_err(store_error)?;
        mailonce_core::failpoint!("sqlite-migrated");
    }
    Ok(())
}

/// Queries that count rows whose counterpart is missing, although both were committed together.
const ORPHAN_ROW_CHECKS: [(&str, &str); 8] = [
    (
        "emails without a handoff",
        "SELECT count(*) FROM emails e WHERE NOT EXISTS (SELECT 1 FROM handoffs h WHERE h.email = e.email)",
    ),
    (
        "handoffs without an email",
        "SELECT count(*) FROM handoffs h WHERE NOT EXISTS (SELECT 1 FROM emails e WHERE e.email = h.email)",
    ),
    (
        "keys without their email",
        "SELECT count(*) FROM keys k WHERE email IS NOT NULL AND NOT EXISTS (SELECT 1 FROM emails e WHERE e.email = k.email)",
    ),
    (
        "attempts without a handoff",
        "SELECT count(*) FROM attempts a WHERE NOT EXISTS (SELECT 1 FROM handoffs h WHERE h.email = a.email AND h.number = a.handoff)",
    ),
    (
        "messages without their thread",
        "SELECT count(*) FROM messages m JOIN inboxes i ON i.inbox = m.inbox WHERE i.removed IS NULL \
         AND NOT EXISTS (SELECT 1 FROM threads t WHERE t.thread = m.thread)",
    ),
    (
        "emails in no thread",
        "SELECT count(*) FROM thread_emails e WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.thread = e.thread)",
    ),
    (
        "notices without an endpoint",
        "SELECT count(*) FROM notices n WHERE NOT EXISTS (SELECT 1 FROM endpoints e WHERE e.endpoint = n.endpoint)",
    ),
    (
        "search documents without their mail",
        "SELECT count(*) FROM search_documents d WHERE NOT EXISTS (SELECT 1 FROM emails e WHERE d.kind = 0 AND e.email = d.source) \
         AND NOT EXISTS (SELECT 1 FROM messages m WHERE d.kind = 1 AND m.message = d.source)",
    ),
];

/// Checks a database file: SQLite's `integrity_check`, and [`ORPHAN_ROW_CHECKS`] if the schema is current. Returns the
/// problems found.
pub(crate) fn check_integrity(path: &Path) -> Result<Vec<String>> {
    let conn = open_checkpointer(path)?;
    let mut found: Vec<String> = Vec::new();
    let line = |row: &rusqlite::Row<'_>| {
        found.push(row.get(0)?);
        Ok(())
    };
    conn.pragma_query(None, "integrity_check", line).map_err(store_error)?;
    found.retain(|line| line != "ok");
    if schema_version(&conn)? == SCHEMA_VERSION {
        for (what, sql) in ORPHAN_ROW_CHECKS {
            let count: i64 = conn.query_row(sql, [], |row| row.get(0)).map_err(store_error)?;
            found.extend((count > 0).then(|| format!("{count} {what}")));
        }
    }
    Ok(found)
}

/// The schema version of a database file.
pub(crate) fn schema_version(conn: &Connection) -> Result<i64> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(store_error)
}

/// The error for a ledger that cannot be used: nothing was written.
pub(crate) fn unreachable_error(text: &str) -> StoreError {
    StoreError::Unreachable(text.to_owned())
}

/// Converts an SQLite error. A failed sync counts as corruption, because a later sync of the same pages may report
/// success without writing them. The writer then stops instead of retrying.
pub(crate) fn store_error(error: rusqlite::Error) -> StoreError {
    use rusqlite::{ErrorCode, ffi};
    let extended = error.sqlite_error().map_or(0, |e| e.extended_code);
    let untrusted = [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC].contains(&extended);
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt(error.to_string()),
        Some(ErrorCode::SystemIoFailure) if untrusted => StoreError::Corrupt(error.to_string()),
        _ => StoreError::Unreachable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::{MIGRATIONS, check_integrity, open_checkpointer, open_reader, open_writer};
    use mailonce_core::{
        conversation::{caps::RecentReplyTimes, thread::ThreadDetails},
        id::{MessageId, from_bits},
        time::Time,
    };
    use rusqlite::{Connection, StatementStatus, params};

    #[test]
    fn incomplete_rows_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let (conn, _) = open_writer(&path, &[7; 32]).unwrap();
        assert_eq!(check_integrity(&path).unwrap(), [""; 0]);
        let email =
            "INSERT INTO emails (email, team, tail, rev, bind, ttl, digest, head) VALUES (1, 1, 1, 1, 1, 1, x'', '')";
        let key = "INSERT INTO keys (team, hash, bind, email) VALUES (1, x'01', 1, 2)";
        conn.execute_batch(&format!("{email}; {key}")).unwrap();
        assert_eq!(check_integrity(&path).unwrap(), ["1 emails without a handoff", "1 keys without their email"]);
    }

    #[test]
    fn nothing_is_planned_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let (writer, _) = open_writer(&path, &[7; 32]).unwrap();
        for conn in [writer, open_checkpointer(&path).unwrap(), open_reader(&path).unwrap()] {
            let mut statement = conn.prepare("SELECT email FROM emails ORDER BY email LIMIT ?1").unwrap();
            for limit in 1..4 {
                assert!(!statement.exists([limit]).unwrap());
            }
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
        }
    }

    /// A database with the schema from before threads existed, with these messages: seq, thread, time and head.
    fn create_ledger_without_threads(path: &std::path::Path, messages: &[(i64, u8, i64, &str)]) {
        let conn = Connection::open(path).unwrap();
        for (number, sql) in (1..).zip(&MIGRATIONS[..5]) {
            conn.execute_batch(sql).unwrap();
            conn.pragma_update(None, "user_version", number).unwrap();
        }
        let inbox = "INSERT INTO inboxes (inbox, tail, team, rev, seq, address, created_at, about, removed) \
             VALUES (?1, 1, 1, 1, 9, 'a', 1, '{}', ?2)";
        conn.execute(inbox, params![5, None::<i64>]).unwrap();
        let message = "INSERT INTO messages (message, tail, team, inbox, seq, rev, thread, delivery, received_at, state, \
             marks, head) VALUES (?1, ?2, 1, 5, ?3, 1, ?4, x'', ?5, 'unanswered', '{}', ?6)";
        for (seq, thread, at, head) in messages {
            conn.execute(message, params![id_of(*seq).0, id_of(*seq).1, seq, [*thread; 16], at, head]).unwrap();
        }
    }

    /// The ordered and random bits of an id, with high and low bits set.
    fn id_of(seq: i64) -> (i64, i64) {
        (1_731_628_800_123 << 12 | 0xf00 | seq, 0x3eef_0000_dead_0000 | seq)
    }

    #[test]
    fn messages_that_are_there_get_their_threads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let (hello, re) = (r#"{"subject":"Hällo \"x\""}"#, r#"{"subject":"Re"}"#);
        let robot = r#"{"subject":"Away","automatic":["auto-submitted",true]}"#;
        let own = r#"{"subject":"Copy","own":"own_address"}"#;
        create_ledger_without_threads(
            &path,
            &[(2, 7, 20, re), (1, 7, 10, hello), (3, 7, 30, robot), (4, 8, 40, own), (5, 7, 50, re)],
        );
        let (conn, _) = open_writer(&path, &[7; 32]).unwrap();
        assert_eq!(check_integrity(&path).unwrap(), [""; 0]);
        let thread = |id: u8| {
            let sql = "SELECT team, inbox, rev, latest_at, about FROM threads WHERE thread = ?1";
            let row = conn.query_row(sql, [[id; 16]], |row| {
                Ok(((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?), row.get::<_, String>(4)?))
            });
            let (row, about): ((i64, i64, i64, i64), String) = row.unwrap();
            (row, serde_json::from_str::<ThreadDetails>(&about).unwrap())
        };
        let person = |seq: i64| (seq as u64, MessageId(from_bits(id_of(seq).0, id_of(seq).1)));
        let (row, about) = thread(7);
        assert_eq!(row, (1, 5, 4, 50));
        assert_eq!((about.subject.as_str(), about.created_at, about.messages), ("Hällo \"x\"", Time(10), 4));
        assert_eq!(about.people, [person(1), person(2), person(5)]);
        assert_eq!((about.emails, about.fence, &about.lease, about.sends), (0, 0, &None, RecentReplyTimes::default()));
        let (row, about) = thread(8);
        assert_eq!((row.2, about.messages, about.people.len()), (1, 1, 0));
    }
}
