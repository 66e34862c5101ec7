//! OAuth clients: programs that register themselves, so that people can connect them.

use mailonce_core::{
    access::oauth_client::{OauthClient, OauthClientDetails, REGISTRATION_LIMITS, RegisterClientResult},
    id::OauthClientId,
    problem::{Code, Problem},
};
use std::net::IpAddr;

use crate::{access::Connections, runtime::problems::unavailable};

impl Connections {
    /// Registers a client. A network may do so 20 times an hour.
    pub async fn register_oauth_client(
        &self,
        details: OauthClientDetails,
        network: Option<IpAddr>,
    ) -> Result<OauthClient, Problem> {
        let now = self.ctx.now();
        let network = network.map(|ip| ip.to_string()).unwrap_or_default();
        let client = OauthClient {
            id: OauthClientId(self.ctx.new_id(now)),
            registered_from: self.ctx.secret.mac("oauth-network", &[network.as_bytes()]),
            details,
            created_at: now,
            connected_at: None,
        };
        let result = self.ctx.store.register_oauth_client(client.clone(), REGISTRATION_LIMITS).await;
        match result.map_err(unavailable)? {
            RegisterClientResult::Registered => Ok(client),
            RegisterClientResult::TooMany { retry_at } => {
                let seconds = (retry_at.since(now) + 999) / 1000;
                let max = REGISTRATION_LIMITS.per_network;
                let detail = format!("{max} clients were registered from your address; try again in {seconds} s");
                Err(Problem::new(Code::RateLimited, detail).with_extension("retry_after", seconds))
            }
        }
    }

    /// A client by the id that it was given.
    pub async fn oauth_client(&self, id: OauthClientId) -> Result<Option<OauthClient>, Problem> {
        self.ctx.store.oauth_client(id).await.map_err(unavailable)
    }
}
