//! The OAuth part of the store, as one process of a node sees it.

use crate::world::store::FaultyStore;
use async_trait::async_trait;
use mailonce_core::{
    access::oauth_client::{OauthClient, RegisterClientResult, RegistrationLimits},
    id::OauthClientId,
    ports::{oauth_store::OauthStore, store::Result},
    time::Time,
};

/// Each method goes through the faulty network.
#[async_trait]
impl OauthStore for FaultyStore {
    async fn register_oauth_client(
        &self,
        client: OauthClient,
        limits: RegistrationLimits,
    ) -> Result<RegisterClientResult> {
        let call = self.inner.register_oauth_client(client, limits);
        self.call_with_faults("register_oauth_client", true, call).await
    }

    async fn oauth_client(&self, id: OauthClientId) -> Result<Option<OauthClient>> {
        self.call_with_faults("oauth_client", false, self.inner.oauth_client(id)).await
    }

    async fn mark_oauth_client_connected(&self, id: OauthClientId, now: Time) -> Result<bool> {
        self.call_with_faults("mark_oauth_client_connected", true, self.inner.mark_oauth_client_connected(id, now))
            .await
    }
}
