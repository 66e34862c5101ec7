//! Long polling for a message: returns at once when a match exists, otherwise when a matching message is committed.

use crate::{
    access::{active_keys::invalid_api_key, caller::Caller},
    inbox::Artifacts,
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

/// How often the store is queried when it pushes no wake-ups.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often the store is queried when it pushes wake-ups, in case one is lost.
const FALLBACK_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Which message to wait for.
#[derive(Clone, Debug, Default)]
pub struct WaitFilter {
    /// Only messages after this cursor. Without one, the latest match that exists already is returned.
    pub after: Option<EventCursor>,
    /// The sender's address, or `@domain`.
    pub from: Option<String>,
    /// Text that the subject contains.
    pub subject: Option<String>,
    /// The kind of artifact that the message contains.
    pub has: Option<ArtifactKind>,
    /// Only messages after the start of this watch. Authenticated messages are preferred, then the latest.
    pub watch: Option<WatchId>,
    /// The consumer that waits. Without `after`, only messages of its watch count, with something that no other consumer
    /// took.
    pub purpose: Option<String>,
}

impl WaitFilter {
    pub(super) fn query(&self, position: MessagePosition) -> MessageQuery {
        MessageQuery {
            from: self.from.clone(),
            subject: self.subject.clone(),
            has: self.has,
            exclude_forged: true,
            position,
            limit: 1,
            ..MessageQuery::default()
        }
    }
}

/// A message with the cursor to continue from.
#[derive(Clone, Debug)]
pub struct ArrivedMessage {
    /// The message.
    pub message: Message,
    /// The cursor after it.
    pub cursor: EventCursor,
}

impl Artifacts {
    /// Waits for a matching message. `None` when the timeout passes without one.
    pub async fn wait_for_message(
        &self,
        caller: &Caller,
        inbox: InboxId,
        filter: WaitFilter,
        timeout: Duration,
    ) -> Result<Option<ArrivedMessage>, Problem> {
        let mut deadline = Instant::now() + timeout.min(Duration::from_millis(limits::MAX_WAIT_MS as u64));
        let waiter = self.ctx.inbound.waiters.register(inbox);
        let mut key = self.access.subscribe_key_revocation(caller);
        let mut epoch = self.ctx.epoch();
        // Read before the first query, so that a message filed in between has a higher number and is found later.
        let mut seen = self.inboxes.inbox(caller, inbox).await?.latest_seq;
        let watch = match filter.watch {
            Some(id) => Some(self.watch_of_inbox(caller, id, inbox).await?),
            None => None,
        };
        if let Some(watch) = &watch {
            let left = watch.deadline.since(self.ctx.now()).max(0);
            deadline = deadline.min(Instant::now() + Duration::from_millis(left as u64));
        }
        let after = filter.after.map(|cursor| self.ctx.seq_of(Some(cursor))).transpose()?;
        let purpose = filter.purpose.as_deref().filter(|_| after.is_none());
        let require_auth = watch.as_ref().is_some_and(|watch| watch.require_auth);
        let mut new_after = self.start_of_new_messages(caller, inbox, (purpose, watch.as_ref())).await?;
        let mut first = true;
        loop {
            let woken = waiter.notify.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let found = match (&watch, after) {
                _ if purpose.is_some() => {
                    self.newest_untaken_message(caller, inbox, &filter, (new_after, require_auth)).await?
                }
                (Some(watch), _) => self.best_in_watch(caller, watch, &filter, after).await?,
                (None, Some(after)) if first => self.first_match(caller, inbox, &filter, after, &mut seen).await?,
                (None, None) if first => self.latest_match(caller, inbox, &filter).await?,
                (None, _) => {
                    let from = seen;
                    self.first_match(caller, inbox, &filter, from, &mut seen).await?
                }
            };
            first = false;
            if self.ctx.epoch() != epoch {
                if after.is_some() {
                    return Err(cursor_reset());
                }
                // The sequence numbers belong to an earlier epoch.
                epoch = self.ctx.epoch();
                (seen, first) = (self.inboxes.inbox(caller, inbox).await?.latest_seq, true);
                new_after = self.start_of_new_messages(caller, inbox, (purpose, watch.as_ref())).await?;
                continue;
            }
            if let Some(message) = found {
                crate::failpoint!("mail-told");
                let cursor = EventCursor { epoch, seq: message.seq };
                let mut messages = [message];
                self.inboxes.mark_leased_messages(caller.team.id, &mut messages).await.map_err(unavailable)?;
                let [message] = messages;
                return Ok(Some(ArrivedMessage { message, cursor }));
            }
            let until = deadline.min(Instant::now() + self.poll_interval());
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

    fn poll_interval(&self) -> Duration {
        let has_push = self.ctx.inbound.has_push_wake_ups.load(Ordering::Relaxed);
        if has_push { FALLBACK_POLL_INTERVAL } else { POLL_INTERVAL }
    }

    /// The oldest match after a sequence number. Without a match, `seen` advances to the last number that was searched.
    async fn first_match(
        &self,
        caller: &Caller,
        inbox: InboxId,
        filter: &WaitFilter,
        mut after: u64,
        seen: &mut u64,
    ) -> Result<Option<Message>, Problem> {
        loop {
            let query = filter.query(MessagePosition::After(after));
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
        filter: &WaitFilter,
    ) -> Result<Option<Message>, Problem> {
        let query = filter.query(MessagePosition::Before(u64::MAX));
        let page = self.ctx.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
        Ok(page.rows.into_iter().next())
    }

    /// The latest authenticated match since the watch started, or else the latest match. A watch that requires
    /// authentication accepts only the former.
    async fn best_in_watch(
        &self,
        caller: &Caller,
        watch: &Watch,
        filter: &WaitFilter,
        after: Option<u64>,
    ) -> Result<Option<Message>, Problem> {
        let from = after.unwrap_or(0).max(watch.after_seq);
        let kinds: &[bool] = if watch.require_auth { &[true] } else { &[true, false] };
        for authenticated in kinds.iter().copied() {
            let query =
                MessageQuery { only_authenticated: authenticated, ..filter.query(MessagePosition::Before(u64::MAX)) };
            let page = self.ctx.store.messages(caller.team.id, watch.inbox, query).await.map_err(unavailable)?;
            if let Some(message) = page.rows.into_iter().next().filter(|message| message.seq > from) {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }
}
