//! OAuth clients.

use async_trait::async_trait;
use mailonce_core::{
    access::oauth_client::{OauthClient, RegisterClientResult, RegistrationLimits},
    id::OauthClientId,
    ports::{
        oauth_store::OauthStore,
        store::{Result, StoreError},
    },
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params, types::Type};
use uuid::Uuid;

use crate::sqlite::{Sqlite, schema::store_error, write_session::WriteSession};

const BY_ID: &str = "SELECT id, registered_from, details, created_at, connected_at FROM oauth_clients WHERE id = ?1";
const NEIGHBORS: &str = "SELECT created_at FROM oauth_clients WHERE registered_from = ?1 AND created_at > ?2";
const INSERT: &str = "INSERT INTO oauth_clients (id, registered_from, details, created_at, connected_at) \
     VALUES (?1, ?2, ?3, ?4, ?5)";
const REMOVE_EXCESS: &str = "DELETE FROM oauth_clients WHERE id IN (SELECT id FROM oauth_clients \
     WHERE connected_at IS NULL ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET ?1)";
const MARK_CONNECTED: &str = "UPDATE oauth_clients SET connected_at = coalesce(connected_at, ?2) WHERE id = ?1";

fn client_row(row: &Row<'_>) -> rusqlite::Result<OauthClient> {
    let details: String = row.get(2)?;
    let broken = |e: serde_json::Error| rusqlite::Error::FromSqlConversionFailure(2, Type::Text, Box::new(e));
    Ok(OauthClient {
        id: OauthClientId(Uuid::from_bytes(row.get(0)?)),
        registered_from: row.get(1)?,
        details: serde_json::from_str(&details).map_err(broken)?,
        created_at: Time(row.get(3)?),
        connected_at: row.get::<_, Option<i64>>(4)?.map(Time),
    })
}

fn by_id(conn: &Connection, id: OauthClientId) -> Result<Option<OauthClient>> {
    let mut statement = conn.prepare_cached(BY_ID).map_err(store_error)?;
    statement.query_row([id.0.as_bytes()], client_row).optional().map_err(store_error)
}

fn register(
    ledger: &WriteSession<'_>,
    client: &OauthClient,
    limits: RegistrationLimits,
) -> Result<RegisterClientResult> {
    // The same id: this call is a retry.
    if by_id(ledger.conn, client.id)?.is_some() {
        return Ok(RegisterClientResult::Registered);
    }
    let since = client.created_at.plus(-limits.window_ms).0;
    let mut statement = ledger.conn.prepare_cached(NEIGHBORS).map_err(store_error)?;
    let rows = statement.query_map(params![client.registered_from, since], |row| Ok(Time(row.get(0)?)));
    let earlier: Vec<Time> = rows.and_then(Iterator::collect).map_err(store_error)?;
    let result = limits.decide(earlier, client.created_at);
    if result == RegisterClientResult::Registered {
        let details = serde_json::to_string(&client.details).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        let connected = client.connected_at.map(|at| at.0);
        let row = params![client.id.0.as_bytes(), client.registered_from, details, client.created_at.0, connected];
        ledger.execute(INSERT, row)?;
        ledger.execute(REMOVE_EXCESS, params![limits.unconnected as i64])?;
    }
    Ok(result)
}

#[async_trait]
impl OauthStore for Sqlite {
    async fn register_oauth_client(
        &self,
        client: OauthClient,
        limits: RegistrationLimits,
    ) -> Result<RegisterClientResult> {
        self.run_write(move |ledger| register(ledger, &client, limits)).await
    }

    async fn oauth_client(&self, id: OauthClientId) -> Result<Option<OauthClient>> {
        self.run_query(move |conn| by_id(conn, id)).await
    }

    async fn mark_oauth_client_connected(&self, id: OauthClientId, now: Time) -> Result<bool> {
        self.run_write(move |ledger| Ok(ledger.execute(MARK_CONNECTED, params![id.0.as_bytes(), now.0])? == 1)).await
    }
}
