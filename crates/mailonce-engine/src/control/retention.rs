//! Retention: deletes the bodies of emails, the bytes of received mail and events earlier than they would be, if a team
//! asks for it. An inbox may keep received mail even shorter.

use crate::{access::settings::Retention, control::Control, runtime::team_round::TeamRound};
use mailonce_core::{
    events::retention::EventRetention,
    id::{InboxId, TeamId},
    inbox::message::{MessagePosition, MessageQuery},
    ports::store::StoreError,
    time::Time,
};
use std::collections::HashMap;

/// How many rows one query reads, and how many bodies one transaction deletes.
const PAGE_SIZE: usize = 100;
/// How many inboxes one query reads. Every round reads all of them.
const INBOX_PAGE_SIZE: usize = 1_000;

/// What earlier rounds of this process have gone through.
#[derive(Default)]
pub(crate) struct RetentionProgress {
    /// The number up to which the messages of an inbox have no bytes.
    messages: HashMap<InboxId, u64>,
}

impl Control {
    /// Deletes what teams do not want to keep any longer.
    pub async fn apply_retention(&self) -> Result<(), StoreError> {
        let mut progress = self.retention_progress.lock().await;
        let mut round = TeamRound::default();
        for team in self.ctx.store.teams().await? {
            let result = self.apply_retention_of(team.id, &mut progress).await;
            round.record(team.id, result);
            if round.must_end() {
                break;
            }
        }
        round.finish(())
    }

    async fn apply_retention_of(&self, team: TeamId, progress: &mut RetentionProgress) -> Result<(), StoreError> {
        let Retention { bodies_ms, raw_ms, events_ms, .. } = self.access.settings_of(team).await?.retention;
        // Nothing expires while the clock is not confirmed.
        let Some(now) = self.ctx.time.expiry_cutoff() else { return Ok(()) };
        if let Some(kept) = bodies_ms {
            self.drop_old_bodies(team, now.plus(-kept)).await?;
        }
        self.drop_old_raw_mail(team, raw_ms, now, progress).await?;
        if let Some(kept) = events_ms {
            self.drop_old_events(team, now.plus(-kept)).await?;
        }
        Ok(())
    }

    /// Deletes the bodies of emails that settled by a time, one small transaction after another.
    async fn drop_old_bodies(&self, team: TeamId, until: Time) -> Result<(), StoreError> {
        while self.ctx.store.drop_bodies(team, until, PAGE_SIZE).await? == PAGE_SIZE {}
        Ok(())
    }

    /// Deletes the events that happened by a time, one small transaction after another.
    async fn drop_old_events(&self, team: TeamId, happened_by: Time) -> Result<(), StoreError> {
        let search_enabled = self.ctx.deps.search_enabled;
        let retention = EventRetention { happened_by, search_enabled, max_rows: PAGE_SIZE };
        while self.ctx.store.drop_events(team, retention).await? {}
        Ok(())
    }

    /// Deletes the bytes of old mail: of messages, and of dead deliveries. An inbox may keep them shorter than its team.
    async fn drop_old_raw_mail(
        &self,
        team: TeamId,
        team_ms: Option<i64>,
        now: Time,
        progress: &mut RetentionProgress,
    ) -> Result<(), StoreError> {
        if let Some(kept) = team_ms {
            self.drop_dead_mail(team, None, now.plus(-kept)).await?;
        }
        let mut before = None;
        loop {
            let inboxes = self.ctx.store.inboxes(team, before, INBOX_PAGE_SIZE).await?;
            for inbox in &inboxes {
                let Some(kept) = inbox.settings.retention.shortest_raw_ms(team_ms) else { continue };
                let until = now.plus(-kept);
                if team_ms != Some(kept) {
                    self.drop_dead_mail(team, Some(inbox.id), until).await?;
                }
                let seen = progress.messages.get(&inbox.id).copied().unwrap_or(0);
                let last = self.drop_raw_mail_of_inbox(team, inbox.id, seen, until).await?;
                progress.messages.insert(inbox.id, last);
            }
            before = inboxes.last().map(|inbox| inbox.id).filter(|_| inboxes.len() == INBOX_PAGE_SIZE);
            if before.is_none() {
                return Ok(());
            }
        }
    }

    /// Deletes the bytes of dead deliveries, one small transaction after another.
    async fn drop_dead_mail(&self, team: TeamId, inbox: Option<InboxId>, until: Time) -> Result<(), StoreError> {
        while self.ctx.store.drop_dead_mail(team, inbox, until, PAGE_SIZE).await? == PAGE_SIZE {}
        Ok(())
    }

    /// Goes through the messages of an inbox after a number. Returns the number up to which there are no bytes.
    async fn drop_raw_mail_of_inbox(
        &self,
        team: TeamId,
        inbox: InboxId,
        mut seen: u64,
        until: Time,
    ) -> Result<u64, StoreError> {
        loop {
            let position = MessagePosition::After(seen);
            let query = MessageQuery { position, limit: PAGE_SIZE, ..MessageQuery::default() };
            let page = self.ctx.store.messages(team, inbox, query).await?;
            for message in &page.rows {
                if message.received_at > until {
                    return Ok(seen);
                }
                self.ctx.store.drop_message_bytes(team, message.id).await?;
                seen = message.seq;
            }
            match page.next {
                Some(next) => seen = seen.max(next),
                None => return Ok(seen),
            }
        }
    }
}
