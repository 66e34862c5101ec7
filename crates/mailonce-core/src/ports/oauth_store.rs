//! The part of the store for OAuth clients. It follows the rules of the store, except that a client belongs to no team:
//! it registers before anybody signs in.

use async_trait::async_trait;

use super::store::Result;
use crate::{
    access::oauth_client::{OauthClient, RegisterClientResult, RegistrationLimits},
    id::OauthClientId,
    time::Time,
};

/// OAuth clients. The module documentation states the rules that every method follows.
#[async_trait]
pub trait OauthStore: Send + Sync + 'static {
    /// Stores a client, unless its network registered too many. Removes the oldest clients that nobody connected, when
    /// there are more of them than allowed.
    async fn register_oauth_client(
        &self,
        client: OauthClient,
        limits: RegistrationLimits,
    ) -> Result<RegisterClientResult>;
    /// A client.
    async fn oauth_client(&self, id: OauthClientId) -> Result<Option<OauthClient>>;
    /// Records that a person connected a client, which keeps it. Returns false when there is no such client.
    async fn mark_oauth_client_connected(&self, id: OauthClientId, now: Time) -> Result<bool>;
}
