//! How far people and targets were told of a question, for whoever administers the team. It shows no links.

use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::approval_link::{Addressee, ApprovalLink},
    problem::Problem,
    record::RecordKind,
    time::Time,
};

use crate::{
    access::caller::Caller,
    conversation::{
        Notifications, escalations::EscalationView, notification_order::notification_of,
        notification_progress::OpenQuestion,
    },
    runtime::{problems::unavailable, records},
};

/// How far the recipients of a question were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotificationState {
    /// How many were told.
    pub sent: u32,
    /// How many were given up, because the last attempt failed.
    pub failed: u32,
    /// When the next attempt is due.
    pub next_at: Option<Time>,
}

impl Notifications {
    /// How far the recipients of a question were told since it was asked. `None` before the first attempt, and for callers
    /// without the scope `admin`.
    pub async fn notification_state(
        &self,
        caller: &Caller,
        view: &EscalationView,
    ) -> Result<Option<NotificationState>, Problem> {
        if !caller.key.has_scope(ApiKeyScope::Admin) || caller.require_unrestricted_key().is_err() {
            return Ok(None);
        }
        let team = caller.team.id;
        let asked = OpenQuestion { id: view.id, asked_at: view.escalation.asked_at(view.created_at) };
        let mut addressees = Vec::new();
        for person in self.access.people_of(team).await? {
            if person.person.scopes().contains(&ApiKeyScope::Approve) {
                addressees.push(Addressee::Person(person.id));
            }
        }
        let targets = self.targets_of(team).await.map_err(unavailable)?;
        addressees.extend(targets.iter().map(|target| Addressee::Target(target.id)));
        let mut state = NotificationState::default();
        for addressee in addressees {
            let (kind, name) = (RecordKind::ApprovalLink, ApprovalLink::record_name(asked.id, addressee));
            let found = self.ctx.store.record_by_name(team, kind, &name).await.map_err(unavailable)?;
            let Some(record) = found else { continue };
            let Some(notification) = notification_of(&records::decode(&record)?, asked) else { continue };
            match (notification.sent_at, notification.due_at) {
                (Some(_), _) => state.sent += 1,
                (None, Some(due_at)) => state.next_at = Some(state.next_at.map_or(due_at, |at| at.min(due_at))),
                (None, None) => state.failed += 1,
            }
        }
        Ok((state != NotificationState::default()).then_some(state))
    }
}
