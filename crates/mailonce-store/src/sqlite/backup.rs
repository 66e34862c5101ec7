//! Backup and restore: a consistent snapshot of the database, taken while a server may use it.
//!
//! A backup is the whole database in one file, with the mail of all teams and the install secret. A restored database
//! gets a new epoch, so that no client continues with an event cursor from a different history.

use mailonce_core::{
    ports::store::{Result, StoreError},
    time::Time,
};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use std::{
    fs::File,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::{
    SCHEMA_VERSION, Sqlite,
    schema::{DirectoryLock, schema_version, store_error, unreachable_error},
};

const STATES: &str = "SELECT count(*) FILTER (WHERE state IN ('queued', 'scheduled', 'leased')), \
     count(*) FILTER (WHERE state IN ('sending', 'unknown')) FROM handoffs";

/// A summary of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupContents {
    /// The schema version.
    pub schema: i64,
    /// Number of emails.
    pub emails: u64,
    /// Number of handoffs that would be sent: queued, scheduled or leased.
    pub waiting: u64,
    /// Number of handoffs with an unknown outcome: sending or unknown.
    pub unknown: u64,
    /// The last heartbeat that its database saved, to the minute.
    pub seen_at: Option<Time>,
}

impl Sqlite {
    /// Writes a snapshot of the database in a data directory to a new file. A server that uses the database keeps
    /// running.
    pub fn back_up(directory: &Path, file: &Path) -> Result<BackupContents> {
        let ledger = directory.join("ledger.db");
        if !ledger.exists() {
            return Err(unreachable_error(&format!("there is no ledger in {}", directory.display())));
        }
        write_backup(&ledger, file)?;
        Self::read_backup(file)
    }

    /// Reads the summary of a backup. Fails when the file is damaged or its schema is not one that this binary knows.
    pub fn read_backup(file: &Path) -> Result<BackupContents> {
        let conn = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(store_error)?;
        let schema = schema_version(&conn)?;
        if !(1..=SCHEMA_VERSION).contains(&schema) {
            let why = format!("{} has schema {schema}; this binary knows 1 to {SCHEMA_VERSION}", file.display());
            return Err(StoreError::Corrupt(why));
        }
        let fault: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(store_error)?;
        if fault != "ok" {
            return Err(StoreError::Corrupt(format!("{}: {fault}", file.display())));
        }
        let count = |row: &rusqlite::Row<'_>, at| row.get::<_, i64>(at).map(|count| count as u64);
        let emails = conn.query_row("SELECT count(*) FROM emails", [], |row| count(row, 0)).map_err(store_error)?;
        let states = conn.query_row(STATES, [], |row| Ok((count(row, 0)?, count(row, 1)?)));
        let (waiting, unknown) = states.map_err(store_error)?;
        // Schema 1 did not save heartbeats.
        let seen_at = if schema == 1 { None } else { seen_at(&conn)? };
        Ok(BackupContents { schema, emails, waiting, unknown, seen_at })
    }

    /// Restores a backup into a data directory that has no database. The restored database gets a higher epoch, and at
    /// least `epoch`.
    pub fn restore(file: &Path, directory: &Path, epoch: u32) -> Result<BackupContents> {
        let contents = Self::read_backup(file)?;
        let _lock = DirectoryLock::take(directory)?;
        let ledger = directory.join("ledger.db");
        // SQLite would read an existing WAL as part of the restored database.
        for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
            if directory.join(name).exists() {
                return Err(unreachable_error(&format!("there is a {name} in {} already", directory.display())));
            }
        }
        let fresh = directory.join("ledger.db.restoring");
        remove(&fresh)?;
        write_backup(file, &fresh)?;
        let conn = Connection::open_with_flags(&fresh, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(store_error)?;
        conn.execute("UPDATE install SET epoch = max(epoch + 1, ?1)", [epoch]).map_err(store_error)?;
        conn.close().map_err(|(_, error)| store_error(error))?;
        sync(&fresh)?;
        std::fs::rename(&fresh, &ledger).map_err(|error| io_error(&ledger, &error))?;
        sync(directory)?;
        Ok(contents)
    }
}

fn seen_at(conn: &Connection) -> Result<Option<Time>> {
    let seen = conn.query_row("SELECT seen_at FROM install", [], |row| row.get::<_, Option<i64>>(0)).optional();
    Ok(seen.map_err(store_error)?.flatten().map(Time))
}

/// Writes a backup that only its owner can read. Removes the file again if that fails.
fn write_backup(from: &Path, to: &Path) -> Result<()> {
    File::options().write(true).create_new(true).mode(0o600).open(to).map_err(|error| io_error(to, &error))?;
    let copied = vacuum_into(from, to).and_then(|()| sync(to)).and_then(|()| sync(&parent_directory(to)));
    if copied.is_err() {
        remove(to)?;
    }
    copied
}

/// Copies the database with one statement, so that the copy is a consistent snapshot.
fn vacuum_into(from: &Path, to: &Path) -> Result<()> {
    let conn = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(store_error)?;
    conn.execute_batch("PRAGMA busy_timeout = 5000").map_err(store_error)?;
    let name = to.to_str().ok_or_else(|| unreachable_error(&format!("{} is not UTF-8", to.display())))?;
    conn.execute("VACUUM INTO ?1", [name]).map(drop).map_err(store_error)
}

fn parent_directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error(path, &error)),
        _ => Ok(()),
    }
}

fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| io_error(path, &error))
}

fn io_error(path: &Path, error: &std::io::Error) -> StoreError {
    unreachable_error(&format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::ports::store::Store as _;

    fn folder_with_ledger() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        drop(Sqlite::open(folder.path(), [7; 32]).unwrap());
        folder
    }

    #[tokio::test]
    async fn a_copy_is_the_ledger_under_another_epoch() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path(), [7; 32]).unwrap();
        let before = store.installation().await.unwrap();
        let file = folder.path().join("copy.db");
        let copied = Sqlite::back_up(folder.path(), &file).unwrap();
        assert_eq!((copied.schema, copied.emails, copied.waiting), (SCHEMA_VERSION, 0, 0));
        store.close().await;
        let other = tempfile::tempdir().unwrap();
        assert_eq!(Sqlite::restore(&file, other.path(), 900).unwrap(), copied);
        let restored = Sqlite::open(other.path(), [9; 32]).unwrap().installation().await.unwrap();
        assert_eq!(restored.secret.0, before.secret.0, "Message-IDs and API keys stay what they were");
        assert_eq!(restored.epoch, 900);
    }

    #[test]
    fn an_epoch_never_goes_back() {
        let folder = folder_with_ledger();
        let file = folder.path().join("copy.db");
        Sqlite::back_up(folder.path(), &file).unwrap();
        let other = tempfile::tempdir().unwrap();
        Sqlite::restore(&file, other.path(), 0).unwrap();
        let conn = Connection::open(other.path().join("ledger.db")).unwrap();
        assert_eq!(conn.query_row("SELECT epoch FROM install", [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    }

    #[test]
    fn nothing_is_overwritten() {
        let folder = folder_with_ledger();
        let file = folder.path().join("copy.db");
        Sqlite::back_up(folder.path(), &file).unwrap();
        assert!(Sqlite::back_up(folder.path(), &file).is_err(), "a copy over a copy");
        assert!(Sqlite::restore(&file, folder.path(), 2).unwrap_err().to_string().contains("already"));
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("ledger.db-wal"), "x").unwrap();
        assert!(Sqlite::restore(&file, other.path(), 2).unwrap_err().to_string().contains("ledger.db-wal"));
        assert!(!other.path().join("ledger.db").exists());
    }

    #[test]
    fn what_is_no_whole_ledger_is_not_put_in_place() {
        let folder = folder_with_ledger();
        let file = folder.path().join("copy.db");
        Sqlite::back_up(folder.path(), &file).unwrap();
        let whole = std::fs::read(&file).unwrap();
        let other = tempfile::tempdir().unwrap();
        for broken in [&b""[..], b"not a ledger at all", &whole[..whole.len() / 2]] {
            std::fs::write(&file, broken).unwrap();
            assert!(Sqlite::restore(&file, other.path(), 2).is_err());
            assert!(!other.path().join("ledger.db").exists());
        }
        assert!(Sqlite::back_up(&other.path().join("nowhere"), &folder.path().join("c2.db")).is_err());
    }
}
