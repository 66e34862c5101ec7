//! OAuth clients.

use async_trait::async_trait;
use mailonce_core::{
    access::oauth_client::{OauthClient, RegisterClientResult, RegistrationLimits},
    id::OauthClientId,
    ports::{oauth_store::OauthStore, store::Result},
    time::Time,
};

use crate::memory::{Memory, Tables};

impl Tables {
    fn register_oauth_client(&mut self, client: OauthClient, limits: RegistrationLimits) -> RegisterClientResult {
        let clients = &mut self.access.oauth_clients;
        // The same id: this call is a retry.
        if clients.contains_key(&client.id) {
            return RegisterClientResult::Registered;
        }
        let neighbors = clients.values().filter(|other| other.registered_from == client.registered_from);
        let result = limits.decide(neighbors.map(|other| other.created_at).collect(), client.created_at);
        if result != RegisterClientResult::Registered {
            return result;
        }
        clients.insert(client.id, client);
        let unconnected = clients.values().filter(|client| client.connected_at.is_none());
        let mut oldest: Vec<_> = unconnected.map(|client| (client.created_at, client.id)).collect();
        oldest.sort_unstable();
        oldest.truncate(oldest.len().saturating_sub(limits.unconnected));
        for (_, id) in oldest {
            clients.remove(&id);
        }
        result
    }
}

#[async_trait]
impl OauthStore for Memory {
    async fn register_oauth_client(
        &self,
        client: OauthClient,
        limits: RegistrationLimits,
    ) -> Result<RegisterClientResult> {
        Ok(self.lock_tables().register_oauth_client(client, limits))
    }

    async fn oauth_client(&self, id: OauthClientId) -> Result<Option<OauthClient>> {
        Ok(self.lock_tables().access.oauth_clients.get(&id).cloned())
    }

    async fn mark_oauth_client_connected(&self, id: OauthClientId, now: Time) -> Result<bool> {
        let mut tables = self.lock_tables();
        let client = tables.access.oauth_clients.get_mut(&id);
        Ok(client.map(|client| client.connected_at = client.connected_at.or(Some(now))).is_some())
    }
}
