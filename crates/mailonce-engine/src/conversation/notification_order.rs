//! In which order people are told of a question: each some time after the one before, while nobody decides.
//!
//! The time counts from when the person before was told, not from the question. Otherwise everybody would be told at once
//! when quiet hours end, or when a server starts that was down for long.

use mailonce_core::{
    conversation::approval_link::{Addressee, ApprovalLink, Notification},
    id::TeamId,
    problem::Problem,
    record::RecordKind,
    time::Time,
};

use crate::{
    conversation::{Notifications, approval_links::APPROVAL_LINK_MS, notification_progress::OpenQuestion},
    runtime::{problems::unavailable, records},
};

/// When a link was issued for the question as it is asked now.
fn issued_at(link: &ApprovalLink) -> Time {
    link.expires_at.plus(-APPROVAL_LINK_MS)
}

/// How far the addressee of a link was told of a question since it was asked. `None`: not at all.
pub(super) fn notification_of(link: &ApprovalLink, asked: OpenQuestion) -> Option<Notification> {
    link.notification.clone().filter(|_| issued_at(link) >= asked.asked_at)
}

impl Notifications {
    /// Those of the due questions of which the person before was told long enough ago.
    pub(super) async fn due_after(
        &self,
        team: TeamId,
        (before, delay_ms): (Addressee, i64),
        addressee: Addressee,
        due: Vec<OpenQuestion>,
    ) -> Result<Vec<OpenQuestion>, Problem> {
        let (mut ready, now) = (Vec::with_capacity(due.len()), self.ctx.now());
        for asked in due {
            let Some(notified_at) = self.notified_at(team, asked, before).await? else { continue };
            let due_at = notified_at.plus(delay_ms);
            if due_at <= now {
                ready.push(asked);
            } else {
                self.progress.pause(asked, addressee, Some(due_at));
            }
        }
        Ok(ready)
    }

    /// When an addressee was notified of a question. If no email was sent yet, the time of the first try, so that an
    /// addressee whom no email reaches does not delay the others.
    async fn notified_at(
        &self,
        team: TeamId,
        asked: OpenQuestion,
        addressee: Addressee,
    ) -> Result<Option<Time>, Problem> {
        let name = ApprovalLink::record_name(asked.id, addressee);
        let found = self.ctx.store.record_by_name(team, RecordKind::ApprovalLink, &name).await.map_err(unavailable)?;
        let Some(record) = found else { return Ok(None) };
        let link: ApprovalLink = records::decode(&record)?;
        Ok(notification_of(&link, asked).map(|notification| notification.sent_at.unwrap_or(issued_at(&link))))
    }
}
