//! API keys that are restricted to inboxes: they can access only what belongs to these inboxes.
//!
//! An email belongs to the inbox that it is from. An event belongs to the inbox that it names, or to the inbox of its
//! email. Everything else belongs to the whole team, and a restricted key gets `403 wrong_scope`.

use crate::{
    access::{
        Access,
        caller::{Caller, InboxRestriction},
    },
    runtime::problems::{self, unavailable},
};
use mailonce_core::{
    access::team::{ApiKey, ApiKeyScope},
    events::event::{Event, NewEvent},
    id::{EmailId, InboxId, TeamId},
    outbound::email::Email,
    ports::store::StoreError,
    problem::{Code, Problem},
};
use std::sync::Arc;

impl Caller {
    /// Whether the caller may list the rules of the team.
    pub fn may_see_rules(&self) -> bool {
        self.require_scope(ApiKeyScope::Read).is_ok() && self.inbox_restriction.is_none()
    }

    /// Refuses an API key that is restricted to inboxes, because the call concerns the whole team.
    pub fn require_unrestricted_key(&self) -> Result<(), Problem> {
        if self.inbox_restriction.is_none() {
            return Ok(());
        }
        let detail = "this API key is restricted to inboxes, and the call concerns the whole team";
        let next = "Call with an API key that is not restricted to inboxes.";
        Err(Problem::new(Code::WrongScope, detail)
            .with_extension("inboxes", self.key.details.inboxes.clone())
            .with_extension("next", next))
    }

    /// Whether the caller may see and change emails from this address.
    pub(crate) fn may_see_sender(&self, address: &str) -> bool {
        self.inbox_restriction.as_ref().is_none_or(|restriction| restriction.has_address(address))
    }

    /// Whether the caller may access all of these inboxes. An empty list means every inbox of the team.
    pub(crate) fn may_access_inboxes(&self, inboxes: &[InboxId]) -> bool {
        let own = |restriction: &Arc<InboxRestriction>| {
            !inboxes.is_empty() && inboxes.iter().all(|id| restriction.has_inbox(*id))
        };
        self.inbox_restriction.as_ref().is_none_or(own)
    }
}

/// The inbox and the email that an event, or its escalation, is about.
pub(crate) fn event_subject(event: &NewEvent) -> (Option<InboxId>, Option<EmailId>) {
    match event.kind.subject_type() {
        "email" | "key" => (None, Some(EmailId(event.subject_id))),
        "escalation" => {
            let id = |name: &str| event.data["about"][name].as_str();
            (id("inbox").and_then(|id| id.parse().ok()), id("email").and_then(|id| id.parse().ok()))
        }
        _ => (event.inbox(), None),
    }
}

impl Access {
    /// The inboxes that an API key is restricted to; `None` for a key of the whole team.
    pub(crate) async fn inbox_restriction_of(&self, key: &ApiKey) -> Result<Option<InboxRestriction>, StoreError> {
        if key.details.inboxes.is_empty() {
            return Ok(None);
        }
        let mut inboxes = Vec::new();
        for inbox_name in &key.details.inboxes {
            let found = match inbox_name.parse() {
                Ok(id) => self.ctx.store.inbox(key.team, id).await?,
                Err(_) => self.ctx.store.inbox_by_address(std::slice::from_ref(inbox_name)).await?,
            };
            inboxes.extend(found.filter(|inbox| inbox.team == key.team).map(|inbox| (inbox.id, inbox.address)));
        }
        Ok(Some(InboxRestriction { inboxes }))
    }

    /// An email of the caller's team that the caller may see.
    pub(crate) async fn visible_email(&self, caller: &Caller, id: EmailId) -> Result<Email, Problem> {
        let email = self.ctx.store.email(caller.team.id, id).await.map_err(unavailable)?;
        email.filter(|email| caller.may_see_sender(&email.head.from)).ok_or_else(|| problems::email_not_found(id))
    }

    /// Checks only that the email is visible. Reads nothing for an unrestricted caller.
    pub(crate) async fn check_email_visible(&self, caller: &Caller, id: EmailId) -> Result<(), Problem> {
        if caller.inbox_restriction.is_some() {
            self.visible_email(caller, id).await?;
        }
        Ok(())
    }

    /// Whether the caller may see an event.
    pub(crate) async fn may_see_event(&self, caller: &Caller, event: &Event) -> Result<bool, Problem> {
        let Some(restriction) = &caller.inbox_restriction else { return Ok(true) };
        self.is_within_restriction(restriction, caller.team.id, event_subject(&event.event)).await.map_err(unavailable)
    }

    /// Whether an object that names an inbox or an email belongs to one of these inboxes.
    pub(crate) async fn is_within_restriction(
        &self,
        restriction: &InboxRestriction,
        team: TeamId,
        (inbox, email): (Option<InboxId>, Option<EmailId>),
    ) -> Result<bool, StoreError> {
        if let Some(inbox) = inbox {
            return Ok(restriction.has_inbox(inbox));
        }
        let Some(id) = email else { return Ok(false) };
        Ok(self.ctx.store.email(team, id).await?.is_some_and(|email| restriction.has_address(&email.head.from)))
    }
}
