//! The install secret in the database: how it is opened, and how its old form is erased when it is replaced.
//!
//! `secure_delete` overwrites the replaced row. The WAL still holds the old page, so it is truncated afterwards.

use mailonce_core::{
    access::install_secret::StoredSecret,
    key::InstallSecret,
    ports::{
        secret_keeper::SecretKeeper,
        store::{Result, StoreError},
    },
};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior, params};
use std::{
    path::Path,
    time::{Duration, Instant},
};

use super::{
    SCHEMA_VERSION, Sqlite,
    schema::{WalLock, schema_version, store_error, unreachable_error},
};

/// The first schema version with a table for the secret.
const FIRST_SCHEMA_WITH_TABLE: i64 = 8;
/// How long truncating the WAL is retried, and the pause between two attempts. Readers and the checkpointer can
/// block it for a moment.
const WAL_TRUNCATE_TIMEOUT: Duration = Duration::from_secs(10);
const WAL_TRUNCATE_RETRY_PAUSE: Duration = Duration::from_millis(100);

impl Sqlite {
    /// The stored form of the install secret in a data directory. Changes nothing. `None` when there is no database, or
    /// when its schema is older than the table for the secret.
    pub fn stored_secret(directory: &Path) -> Result<Option<StoredSecret>> {
        let path = directory.join("ledger.db");
        if !path.exists() {
            return Ok(None);
        }
        let conn = super::schema::open_reader(&path)?;
        if schema_version(&conn)? < FIRST_SCHEMA_WITH_TABLE { Ok(None) } else { read_secret(&conn) }
    }

    /// Lets a keeper replace the stored form of the install secret. This works while a server runs, because the server
    /// keeps using the secret in its memory.
    ///
    /// Returns whether the old form was erased from the WAL. If not, the next start truncates the WAL.
    pub fn replace_secret(directory: &Path, keeper: &dyn SecretKeeper) -> Result<bool> {
        let path = directory.join("ledger.db");
        let _lock = WalLock::take(directory)?;
        let mut conn = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(store_error)?;
        let found = schema_version(&conn)?;
        if found != SCHEMA_VERSION {
            return Err(unreachable_error(&format!(
                "the ledger has schema {found}; start this mailonce on it once first"
            )));
        }
        let settings = "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA busy_timeout = 5000";
        conn.execute_batch(settings).map_err(store_error)?;
        open_secret(&mut conn, keeper)?;
        Ok(truncate_wal(&conn, WAL_TRUNCATE_TIMEOUT).is_ok())
    }
}

/// Opens the secret, and replaces its stored form in the same transaction if the keeper asks for that.
pub(crate) fn open_secret(conn: &mut Connection, keeper: &dyn SecretKeeper) -> Result<InstallSecret> {
    conn.execute_batch("PRAGMA secure_delete = ON").map_err(store_error)?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(store_error)?;
    let opened = keeper.open(read_secret(&tx)?.as_ref())?;
    if let Some(replacement) = &opened.replacement {
        write_secret(&tx, replacement)?;
    }
    tx.commit().map_err(store_error)?;
    conn.execute_batch("PRAGMA secure_delete = OFF").map_err(store_error)?;
    Ok(opened.secret)
}

/// Truncates the WAL if the secret is wrapped. Every start does this, because the previous process may have been
/// killed after the commit that wrapped the secret and before this step. A failure is only logged, so that a running
/// backup cannot keep a server from starting.
pub(crate) fn purge_plain_secret(conn: &Connection) -> Result<()> {
    if matches!(read_secret(conn)?, Some(StoredSecret::Wrapped(_)))
        && let Err(error) = truncate_wal(conn, WAL_TRUNCATE_TIMEOUT)
    {
        tracing::warn!(%error, "the log may hold an old form of the install secret; the next start tries again");
    }
    Ok(())
}

fn read_secret(conn: &Connection) -> Result<Option<StoredSecret>> {
    let row = conn.query_row("SELECT plain, wrapped FROM install_secret", [], |row| {
        Ok((row.get::<_, Option<[u8; 32]>>(0)?, row.get::<_, Option<String>>(1)?))
    });
    match row.optional().map_err(store_error)? {
        None => Ok(None),
        Some((Some(plain), _)) => Ok(Some(StoredSecret::Plain(InstallSecret(plain)))),
        Some((None, Some(wrapped))) => Ok(Some(StoredSecret::Wrapped(wrapped))),
        Some((None, None)) => Err(StoreError::Corrupt("the install secret is missing".into())),
    }
}

fn write_secret(conn: &Connection, secret: &StoredSecret) -> Result<()> {
    let (plain, wrapped) = match secret {
        StoredSecret::Plain(secret) => (Some(secret.0.as_slice()), None),
        StoredSecret::Wrapped(wrapped) => (None, Some(wrapped)),
    };
    let sql = "INSERT INTO install_secret (one, plain, wrapped) VALUES (1, ?1, ?2) \
         ON CONFLICT (one) DO UPDATE SET plain = excluded.plain, wrapped = excluded.wrapped";
    conn.execute(sql, params![plain, wrapped]).map(drop).map_err(store_error)
}

/// Checkpoints the WAL and truncates it to zero bytes. Fails when somebody still reads it after `timeout`.
#[expect(clippy::disallowed_methods, reason = "it runs before anything else, or on the writer's own thread")]
pub(crate) fn truncate_wal(conn: &Connection, timeout: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let busy =
            conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0)).map_err(store_error);
        match busy {
            Ok(false) => return Ok(()),
            Err(error @ StoreError::Corrupt(_)) => return Err(error),
            Ok(true) | Err(_) if began.elapsed() < timeout => std::thread::sleep(WAL_TRUNCATE_RETRY_PAUSE),
            Ok(true) => return Err(unreachable_error("somebody reads the ledger")),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema::{MIGRATIONS, open_writer};
    use mailonce_core::{access::install_secret::OpenedSecret, ports::store::Store as _};

    const SECRET: [u8; 32] = *b"k7#Qz!m2Lw@9vT$4xR^8pN&6sB*3hJ(5";

    /// A keeper whose stored form is only a name, so that it contains no bytes of the secret.
    struct NamedSecretKeeper(&'static str);

    impl SecretKeeper for NamedSecretKeeper {
        fn open(&self, stored: Option<&StoredSecret>) -> Result<OpenedSecret> {
            let kept = matches!(stored, Some(StoredSecret::Wrapped(name)) if name == self.0);
            let replacement = (!kept).then(|| StoredSecret::Wrapped(self.0.to_owned()));
            Ok(OpenedSecret { secret: InstallSecret(SECRET), replacement })
        }
    }

    fn directory_contains(directory: &Path, part: &[u8]) -> bool {
        let files = std::fs::read_dir(directory).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
        files.into_iter().any(|bytes| bytes.windows(part.len()).any(|window| window == part))
    }

    /// Whether any 8-byte part of the secret is in the directory. A shorter row overwrites only the end of the old one.
    fn directory_contains_secret(directory: &Path) -> bool {
        SECRET.chunks(8).any(|part| directory_contains(directory, part))
    }

    /// A database with a schema from before the secret had its own table. Its row changed often, and each change left a
    /// copy of the secret.
    fn create_ledger_without_secret_table(directory: &Path) {
        let conn = Connection::open(directory.join("ledger.db")).unwrap();
        conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA secure_delete = OFF").unwrap();
        for (number, sql) in (1..FIRST_SCHEMA_WITH_TABLE).zip(&MIGRATIONS) {
            conn.execute_batch(sql).unwrap();
            conn.pragma_update(None, "user_version", number).unwrap();
        }
        conn.execute("INSERT INTO install (one, secret, epoch, last_id) VALUES (1, ?1, 1, 0)", [SECRET]).unwrap();
        for size in 0..60 {
            conn.execute("UPDATE install SET last_id = ?1, seen_at = ?1", [1_i64 << size]).unwrap();
        }
    }

    #[tokio::test]
    async fn a_secret_that_was_replaced_leaves_no_bytes() {
        let folder = tempfile::tempdir().unwrap();
        create_ledger_without_secret_table(folder.path());
        let store = Sqlite::open(folder.path(), [9; 32]).unwrap();
        assert_eq!(store.installation().await.unwrap().secret.0, SECRET);
        store.close().await;
        assert!(directory_contains_secret(folder.path()), "the search finds what is there");
        drop(store);
        let store = Sqlite::open(folder.path(), NamedSecretKeeper("the first wrapping")).unwrap();
        assert!(!directory_contains_secret(folder.path()));
        assert!(Sqlite::replace_secret(folder.path(), &NamedSecretKeeper("the second wrapping")).unwrap());
        assert!(
            !directory_contains(folder.path(), b"the first wrapping")
                && directory_contains(folder.path(), b"the second wrapping")
        );
        store.health().await.unwrap();
        assert_eq!(store.installation().await.unwrap().last_id, 1 << 59, "what else the row said is kept");
    }

    #[test]
    fn a_start_that_was_killed_before_the_log_was_emptied_is_made_good_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let (mut conn, _) = open_writer(&path, &SECRET).unwrap();
        open_secret(&mut conn, &NamedSecretKeeper("wrapped")).unwrap();
        assert!(directory_contains_secret(folder.path()), "the log has it");
        // A connection that is never closed leaves its WAL behind, as a killed process does.
        std::mem::forget(conn);
        open_writer(&path, &NamedSecretKeeper("wrapped")).unwrap();
        assert!(!directory_contains_secret(folder.path()));
    }

    #[test]
    fn a_refusal_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        drop(Sqlite::open(folder.path(), NamedSecretKeeper("wrapped")).unwrap());
        let refused = Sqlite::open(folder.path(), [9; 32]).map(drop);
        assert!(matches!(refused, Err(StoreError::Locked(_))), "{refused:?}");
        let stored = Sqlite::stored_secret(folder.path()).unwrap();
        assert!(matches!(stored, Some(StoredSecret::Wrapped(name)) if name == "wrapped"));
    }
}
