//! The install secret in the database: opening it, replacing it, and purging its old form from the tables.

use deadpool_postgres::Client;
use mailonce_core::{
    access::install_secret::StoredSecret,
    key::InstallSecret,
    ports::{
        secret_keeper::SecretKeeper,
        store::{Result, StoreError},
    },
};
use tokio_postgres::GenericClient;

use super::{
    Postgres,
    schema::{self, LOCK_MIGRATIONS},
};
use crate::postgres::{
    error::{TxError, TxResult},
    session_pools::{ConnectConfig, SessionPools},
};

/// The first schema version that has a table for the secret.
const FIRST_VERSION_WITH_TABLE: u32 = 9;
const READ_SECRET: &str = "SELECT plain, wrapped FROM install_secret";
const SAVE_SECRET: &str = "
    INSERT INTO install_secret (plain, wrapped) VALUES ($1, $2)
    ON CONFLICT (one) DO UPDATE SET plain = excluded.plain, wrapped = excluded.wrapped";
/// Rewrites the table's file without dead rows. The table has one row, and only starting nodes read it.
const REWRITE_SECRET_TABLE: &str = "VACUUM FULL install_secret";
/// The same for the table that held the secret in earlier versions.
const REWRITE_INSTALL_TABLE: &str = "VACUUM FULL install";
/// `VACUUM FULL` waits for an exclusive lock while another session, such as a dump, uses the table. Every heartbeat
/// reads `install` and would queue behind that wait, so the wait is short.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '2s'";

impl Postgres {
    /// The install secret as it is stored; changes nothing. `None` when mailonce was never installed there, or when
    /// the schema is older than the table of the secret.
    pub async fn stored_secret(url: &str) -> Result<Option<StoredSecret>> {
        let link = SessionPools::new(&ConnectConfig::parse(url)?, 1, 1)?;
        let client = link.client().await?;
        let found = schema::schema_version(&client).await?;
        Ok(if found.is_some_and(|version| version >= FIRST_VERSION_WITH_TABLE) {
            read_secret(&**client).await?
        } else {
            None
        })
    }

    /// Lets a keeper replace the stored install secret. Running servers keep using the secret that they hold in
    /// memory. Returns whether the old form is purged from the tables.
    pub async fn replace_secret(url: &str, keeper: &dyn SecretKeeper) -> Result<bool> {
        let link = SessionPools::new(&ConnectConfig::parse(url)?, 1, 1)?;
        let mut client = link.client().await?;
        match schema::schema_version(&client).await? {
            Some(schema::SCHEMA_VERSION) => {}
            found => {
                let found = found.map_or_else(|| "none".to_owned(), |version| version.to_string());
                let why = format!("its tables are of version {found}; start this mailonce on it once first");
                return Err(StoreError::Unreachable(why));
            }
        }
        let (_, is_replaced) = open_or_replace(&mut client, keeper).await?;
        Ok(!is_replaced || purge_dead_rows(&client, &[REWRITE_SECRET_TABLE]).await)
    }
}

/// Opens the secret when a node starts.
pub(crate) async fn open_secret(client: &mut Client, keeper: &dyn SecretKeeper) -> TxResult<InstallSecret> {
    let (secret, is_replaced) = open_or_replace(client, keeper).await?;
    if is_replaced && !purge_dead_rows(client, &[REWRITE_SECRET_TABLE, REWRITE_INSTALL_TABLE]).await {
        tracing::warn!("the old form of the install secret stays in dead rows until the next VACUUM FULL");
    }
    Ok(secret)
}

/// Opens the secret, and replaces it in the same transaction when the keeper asks for that. An advisory lock
/// serializes nodes that start together, so the second reads what the first wrote. Returns whether an old form was
/// replaced.
async fn open_or_replace(client: &mut Client, keeper: &dyn SecretKeeper) -> TxResult<(InstallSecret, bool)> {
    let tx = client.transaction().await?;
    tx.batch_execute(LOCK_MIGRATIONS).await?;
    let stored = read_secret(&*tx).await?;
    let opened = keeper.open(stored.as_ref())?;
    if let Some(replacement) = &opened.replacement {
        let (plain, wrapped) = match replacement {
            StoredSecret::Plain(secret) => (Some(secret.0.as_slice()), None),
            StoredSecret::Wrapped(wrapped) => (None, Some(wrapped.as_str())),
        };
        tx.execute(SAVE_SECRET, &[&plain, &wrapped]).await?;
    }
    tx.commit().await.map_err(|error| TxError::at_commit(&error))?;
    Ok((opened.secret, stored.is_some() && opened.replacement.is_some()))
}

/// Rewrites the tables to purge dead rows. The write-ahead log, replicas and backups may still contain the old form.
async fn purge_dead_rows(client: &Client, statements: &[&str]) -> bool {
    let forget = async {
        client.batch_execute(LOCK_TIMEOUT).await?;
        for sql in statements {
            client.batch_execute(sql).await?;
        }
        Ok::<(), tokio_postgres::Error>(())
    };
    let forgotten = forget.await;
    // The session returns to the pool, so its setting must be restored.
    let reset = client.batch_execute("RESET lock_timeout").await;
    let done = forgotten.and(reset);
    done.inspect_err(|error| tracing::warn!(%error, "removing the old form of the install secret")).is_ok()
}

async fn read_secret(client: &impl GenericClient) -> TxResult<Option<StoredSecret>> {
    let Some(row) = client.query_opt(READ_SECRET, &[]).await? else { return Ok(None) };
    let unreadable = || TxError::corrupt("the install secret");
    if let Some(plain) = row.try_get::<_, Option<&[u8]>>(0)? {
        let plain = plain.try_into().map_err(|_short| unreadable())?;
        return Ok(Some(StoredSecret::Plain(InstallSecret(plain))));
    }
    let wrapped: Option<String> = row.try_get(1)?;
    Ok(Some(StoredSecret::Wrapped(wrapped.ok_or_else(unreadable)?)))
}
