//! OAuth clients.

use async_trait::async_trait;
use deadpool_postgres::GenericClient;
use mailonce_core::{
    access::oauth_client::{OauthClient, RegisterClientResult, RegistrationLimits},
    id::OauthClientId,
    ports::{oauth_store::OauthStore, store::Result},
    time::Time,
};
use tokio_postgres::Row;

use crate::postgres::{
    Postgres, SharedState,
    error::{TxError, TxResult, call_until_final},
    row::{read_json, write_json},
    statements::{execute, query_rows},
    when_durable,
};

/// Serializes registrations: two from one network must see each other, and a new client has no row to lock.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7883366255)";
const BY_ID: &str = "SELECT id, registered_from, details, created_at, connected_at FROM oauth_clients WHERE id = $1";
const NEIGHBORS: &str = "SELECT created_at FROM oauth_clients WHERE registered_from = $1 AND created_at > $2";
const INSERT: &str = "
    INSERT INTO oauth_clients (id, registered_from, details, created_at, connected_at) VALUES ($1, $2, $3, $4, $5)";
const REMOVE_EXCESS: &str = "
    DELETE FROM oauth_clients WHERE connected_at IS NULL AND id IN (
        SELECT id FROM oauth_clients WHERE connected_at IS NULL ORDER BY created_at DESC, id DESC OFFSET $1)";
const MARK_CONNECTED: &str = "UPDATE oauth_clients SET connected_at = coalesce(connected_at, $2) WHERE id = $1";

fn read_client(row: &Row) -> TxResult<OauthClient> {
    let network: &[u8] = row.try_get(1)?;
    Ok(OauthClient {
        id: OauthClientId(row.try_get(0)?),
        registered_from: network.try_into().map_err(|_short| TxError::corrupt("the network of an OAuth client"))?,
        details: read_json(row.try_get(2)?, "an OAuth client")?,
        created_at: Time(row.try_get(3)?),
        connected_at: row.try_get::<_, Option<i64>>(4)?.map(Time),
    })
}

async fn by_id(client: &(impl GenericClient + ?Sized), id: OauthClientId) -> TxResult<Option<OauthClient>> {
    query_rows(client, BY_ID, &[&id.0]).await?.first().map(read_client).transpose()
}

async fn register(
    shared: &SharedState,
    new: &OauthClient,
    limits: RegistrationLimits,
) -> TxResult<RegisterClientResult> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    execute(&tx, LOCK, &[]).await?;
    // The same id: this call is a retry.
    if by_id(&tx, new.id).await?.is_some() {
        tx.rollback().await?;
        return Ok(RegisterClientResult::Registered);
    }
    let (network, since) = (new.registered_from.as_slice(), new.created_at.plus(-limits.window_ms).0);
    let rows = query_rows(&tx, NEIGHBORS, &[&network, &since]).await?;
    let earlier = rows.iter().map(|row| Ok(Time(row.try_get(0)?))).collect::<TxResult<Vec<_>>>()?;
    let result = limits.decide(earlier, new.created_at);
    if result != RegisterClientResult::Registered {
        tx.rollback().await?;
        return Ok(result);
    }
    let (details, connected) = (write_json(&new.details)?, new.connected_at.map(|at| at.0));
    execute(&tx, INSERT, &[&new.id.0, &network, &details, &new.created_at.0, &connected]).await?;
    execute(&tx, REMOVE_EXCESS, &[&(limits.unconnected as i64)]).await?;
    shared.commit(tx, 1).await?;
    Ok(result)
}

async fn read(shared: &SharedState, id: OauthClientId) -> TxResult<Option<OauthClient>> {
    by_id(&shared.connections.client().await?, id).await
}

async fn keep(shared: &SharedState, id: OauthClientId, now: Time) -> TxResult<bool> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let kept = execute(&tx, MARK_CONNECTED, &[&id.0, &now.0]).await? == 1;
    shared.commit(tx, 1).await?;
    Ok(kept)
}

#[async_trait]
impl OauthStore for Postgres {
    async fn register_oauth_client(
        &self,
        client: OauthClient,
        limits: RegistrationLimits,
    ) -> Result<RegisterClientResult> {
        when_durable!(self, call_until_final!(register(&self.shared, &client, limits)))
    }

    async fn oauth_client(&self, id: OauthClientId) -> Result<Option<OauthClient>> {
        when_durable!(self, call_until_final!(read(&self.shared, id)))
    }

    async fn mark_oauth_client_connected(&self, id: OauthClientId, now: Time) -> Result<bool> {
        when_durable!(self, call_until_final!(keep(&self.shared, id, now)))
    }
}
