//! The received messages of all inboxes of a team as one list, the latest first.

use crate::{access::caller::Caller, inbox::Inboxes, runtime::problems::unavailable};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::{InboxId, MessageId},
    inbound::delivery::{DeliveryQuery, DeliveryState, DeliveryTarget},
    inbox::message::Message,
    limits,
    problem::Problem,
};
use std::collections::HashMap;

impl Inboxes {
    /// Messages of all inboxes that the caller may use, the latest first, starting after `before`.
    pub async fn team_messages(
        &self,
        caller: &Caller,
        before: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<Message>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let mut before_delivery = match before {
            Some(id) => Some(self.message(caller, id).await?.delivery),
            None => None,
        };
        let (mut usable, mut found, mut scanned) = (HashMap::new(), Vec::new(), 0);
        while scanned < limits::SCAN_ROWS {
            let state = Some(DeliveryState::Done);
            let query =
                DeliveryQuery { state, before: before_delivery, limit: limits::PAGE_ROWS, ..DeliveryQuery::default() };
            let page = self.ctx.store.deliveries(caller.team.id, query).await.map_err(unavailable)?;
            scanned += page.len();
            for delivery in &page {
                let (DeliveryTarget::Inbox(inbox), Some(id)) = (delivery.target, delivery.message) else { continue };
                if !self.may_use_inbox(caller, inbox, &mut usable).await {
                    continue;
                }
                found.extend(self.ctx.store.message(caller.team.id, id).await.map_err(unavailable)?);
                if found.len() == limit {
                    return Ok(found);
                }
            }
            before_delivery = page.last().map(|delivery| delivery.id);
            if page.len() < limits::PAGE_ROWS {
                break;
            }
        }
        Ok(found)
    }

    async fn may_use_inbox(&self, caller: &Caller, inbox: InboxId, known: &mut HashMap<InboxId, bool>) -> bool {
        if let Some(usable) = known.get(&inbox) {
            return *usable;
        }
        let usable = self.inbox(caller, inbox).await.is_ok();
        known.insert(inbox, usable);
        usable
    }
}
