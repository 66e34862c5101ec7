//! Waiting for a message: answered at once when one is there, and by the commit that brings one.

use crate::{
    access::{active_keys::invalid_api_key, caller::Caller},
    inbox::Inboxes,
    runtime::{epoch::cursor_reset, problems::unavailable},
};
use mailonce_core::{
    events::event::EventCursor,
    id::{InboxId, WatchId},
    inbox::{
        artifact::ArtifactKind,
        message::{Message, MessagePosition, MessageQuery},
        watch::Watch,
    },
    limits,
    problem::Problem,
};
use std::{sync::atomic::Ordering, time::Duration};
use tokio::time::Instant;

/// How often the ledger is asked where no commit of others is told.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often it is asked in any case, should a hint be lost.
const FALLBACK_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// What is waited for.
#[derive(Clone, Debug, Default)]
pub struct WaitFilter {
    /// After this place. Without one the latest match that is there already will do.
    pub after: Option<EventCursor>,
    /// From this address, or `@domain`.
    pub from: Option<String>,
    /// With this in its subject.
    pub subject: Option<String>,
    /// With this in it.
    pub has: Option<ArtifactKind>,
    /// In this watch: only mail after its start, authenticated mail before other, the latest first.
    pub watch: Option<WatchId>,
}

impl WaitFilter {
    fn query(&self, place: MessagePosition) -> MessageQuery {
        MessageQuery {
            from: self.from.clone(),
            subject: self.subject.clone(),
            has: self.has,
            exclude_forged: true,
            position: place,
            limit: 1,
            ..MessageQuery::default()
        }
    }
}

/// A message, and the place from which to go on.
#[derive(Clone, Debug)]
pub struct ArrivedMessage {
    /// What arrived.
    pub message: Message,
    /// Where to go on.
    pub cursor: EventCursor,
}

impl Inboxes {
    /// Waits for a message until the deadline. `None` when none came.
    pub async fn wait_for_message(
        &self,
        caller: &Caller,
        inbox: InboxId,
        wanted: WaitFilter,
        patience: Duration,
    ) -> Result<Option<ArrivedMessage>, Problem> {
        let mut deadline = Instant::now() + patience.min(Duration::from_millis(limits::MAX_WAIT_MS as u64));
        let waiting = self.ctx.inbound.waiters.register(inbox);
        let mut key = self.access.subscribe_key_revocation(caller);
        let mut epoch = self.ctx.epoch();
        // Read before the first look: what is filed after it is seen by its number.
        let mut seen = self.inbox(caller, inbox).await?.latest_seq;
        let watch = match wanted.watch {
            Some(id) => Some(self.watch_of_inbox(caller, id, inbox).await?),
            None => None,
        };
        if let Some(watch) = &watch {
            let left = watch.deadline.since(self.ctx.now()).max(0);
            deadline = deadline.min(Instant::now() + Duration::from_millis(left as u64));
        }
        let after = wanted.after.map(|cursor| self.ctx.seq_of(Some(cursor))).transpose()?;
        let mut first = true;
        loop {
            let woken = waiting.notify.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let found = match (&watch, after) {
                (Some(watch), _) => self.best_in_watch(caller, watch, &wanted, after).await?,
                (None, Some(after)) if first => self.first_match(caller, inbox, &wanted, after, &mut seen).await?,
                (None, None) if first => self.latest_match(caller, inbox, &wanted).await?,
                (None, _) => {
                    let from = seen;
                    self.first_match(caller, inbox, &wanted, from, &mut seen).await?
                }
            };
            first = false;
            if self.ctx.epoch() != epoch {
                if after.is_some() {
                    return Err(cursor_reset());
                }
                // The numbers that were seen are of another history.
                epoch = self.ctx.epoch();
                (seen, first) = (self.inbox(caller, inbox).await?.latest_seq, true);
                continue;
            }
            if let Some(message) = found {
                crate::failpoint!("mail-told");
                let cursor = EventCursor { epoch, seq: message.seq };
                let mut messages = [message];
                self.mark_leased_messages(caller.team.id, &mut messages).await.map_err(unavailable)?;
                let [message] = messages;
                return Ok(Some(ArrivedMessage { message, cursor }));
            }
            let pause = if self.ctx.inbound.has_push_wake_ups.load(Ordering::Relaxed) {
                FALLBACK_POLL_INTERVAL
            } else {
                POLL_INTERVAL
            };
            let until = deadline.min(Instant::now() + pause);
            tokio::select! {
                biased;
                () = woken => {}
                () = key.wait_until_revoked() => return Err(invalid_api_key()),
                () = tokio::time::sleep_until(until) => {
                    if Instant::now() >= deadline {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// The oldest match after a place; `seen` becomes the place up to which there is none.
    async fn first_match(
        &self,
        caller: &Caller,
        inbox: InboxId,
        wanted: &WaitFilter,
        mut after: u64,
        seen: &mut u64,
    ) -> Result<Option<Message>, Problem> {
        loop {
            let query = wanted.query(MessagePosition::After(after));
            let page = self.ctx.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
            if let Some(message) = page.rows.into_iter().next() {
                return Ok(Some(message));
            }
            let Some(next) = page.next else {
                *seen = after.max(*seen);
                return Ok(None);
            };
            after = next;
        }
    }

    async fn latest_match(
        &self,
        caller: &Caller,
        inbox: InboxId,
        wanted: &WaitFilter,
    ) -> Result<Option<Message>, Problem> {
        let query = wanted.query(MessagePosition::Before(u64::MAX));
        let page = self.ctx.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
        Ok(page.rows.into_iter().next())
    }

    /// The latest authenticated match since the watch began, else the latest.
    async fn best_in_watch(
        &self,
        caller: &Caller,
        watch: &Watch,
        wanted: &WaitFilter,
        after: Option<u64>,
    ) -> Result<Option<Message>, Problem> {
        let from = after.unwrap_or(0).max(watch.after_seq);
        let kinds: &[bool] = if watch.require_auth { &[true] } else { &[true, false] };
        for authenticated in kinds.iter().copied() {
            let query =
                MessageQuery { only_authenticated: authenticated, ..wanted.query(MessagePosition::Before(u64::MAX)) };
            let page = self.ctx.store.messages(caller.team.id, watch.inbox, query).await.map_err(unavailable)?;
            if let Some(message) = page.rows.into_iter().next().filter(|message| message.seq > from) {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }
}
