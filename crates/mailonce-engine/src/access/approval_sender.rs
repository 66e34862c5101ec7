//! From which address approval emails may come.

use crate::{access::Access, runtime::problems::unavailable};
use mailonce_core::{
    address::Address,
    inbox::{self, Inbox},
    ports::store::StoreError,
    problem::Problem,
};

impl Access {
    /// The inbox to which mail for an address is delivered.
    pub(crate) async fn inbox_of_address(&self, address: &str) -> Result<Option<Inbox>, StoreError> {
        let Ok(address) = Address::parse(address) else { return Ok(None) };
        self.ctx.store.inbox_by_address(&inbox::candidate_addresses(address.as_str())).await
    }

    /// Refuses a sender of approval emails if an agent could read replies and bounces, which may quote the links.
    pub(crate) async fn check_approval_sender(&self, sender: &Address) -> Result<(), Problem> {
        let fault = |message| Err(Problem::invalid_field("approval_emails.from", message));
        if self.inbox_of_address(sender.as_str()).await.map_err(unavailable)?.is_some() {
            return fault("is an inbox, whose agent could read replies with approval links; use an address of people");
        }
        let local = sender.as_str().split('@').next().unwrap_or_default();
        let is_reserved = self.ctx.deps.reserved_names.iter().any(|name| name == local);
        let is_shared = self.ctx.inbound.local_domains.iter().any(|domain| domain == sender.domain());
        if is_shared && !is_reserved && self.teams().await?.len() > 1 {
            return fault("is at a domain that all teams share, where another team could create an inbox of this name");
        }
        Ok(())
    }
}
