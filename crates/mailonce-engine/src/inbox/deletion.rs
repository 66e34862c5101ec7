//! Deleting messages and threads on request.

use crate::{
    access::caller::Caller,
    events::message_texts::DeletedTexts,
    inbox::{
        Inboxes,
        inboxes::may_use,
        messages::{message_not_found, thread_not_found},
    },
    runtime::problems::unavailable,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::{MessageId, TeamId, ThreadId},
    inbox::message::{MessagePosition, MessageQuery},
    ports::store::StoreError,
    problem::{Code, Problem},
    time::Time,
};
use std::collections::BTreeSet;

/// How many messages one query reads.
const PAGE_SIZE: usize = 100;

impl Inboxes {
    /// Deletes a message with its bytes and artifacts, and its texts in the event log. The same mail still makes no second message.
    pub async fn delete_message(&self, caller: &Caller, id: MessageId) -> Result<(), Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let team = caller.team.id;
        let found = self.ctx.store.message(team, id).await.map_err(unavailable)?;
        let message = found.ok_or_else(|| message_not_found(id))?;
        let inbox = self.ctx.store.inbox(team, message.inbox).await.map_err(unavailable)?;
        inbox.filter(|inbox| may_use(caller, inbox)).ok_or_else(|| message_not_found(id))?;
        let erased = self.erase_messages(team, BTreeSet::from([id]), message.received_at).await;
        if erased.map_err(unavailable)? { Ok(()) } else { Err(message_not_found(id)) }
    }

    /// Deletes messages that were received since a time. The events come first, so that a call that is repeated after
    /// an error or a crash still finds the messages. Returns whether all of them were there.
    async fn erase_messages(
        &self,
        team: TeamId,
        messages: BTreeSet<MessageId>,
        since: Time,
    ) -> Result<bool, StoreError> {
        let texts = DeletedTexts { store: &*self.ctx.store, team, messages };
        let last = texts.strip_after(texts.number_before(since).await?).await?;
        let mut were_there = true;
        for id in &texts.messages {
            were_there &= self.ctx.store.erase_message(team, *id, self.ctx.now()).await?;
        }
        // What happened to the messages meanwhile.
        texts.strip_after(last).await?;
        Ok(were_there)
    }

    /// Deletes a thread with its messages and their texts in the event log. The emails in it stay.
    pub async fn delete_thread(&self, caller: &Caller, id: ThreadId) -> Result<(), Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let (thread, _) = self.thread(caller, id).await?;
        let team = caller.team.id;
        let (mut messages, mut since) = (BTreeSet::new(), self.ctx.now());
        let mut position = MessagePosition::Before(u64::MAX);
        loop {
            let query = MessageQuery { thread: Some(id), position, limit: PAGE_SIZE, ..MessageQuery::default() };
            let page = self.ctx.store.messages(team, thread.inbox, query).await.map_err(unavailable)?;
            for message in &page.rows {
                messages.insert(message.id);
                since = since.min(message.received_at);
            }
            match page.next {
                Some(seq) => position = MessagePosition::Before(seq),
                None => break,
            }
        }
        self.erase_messages(team, messages, since).await.map_err(unavailable)?;
        if self.ctx.store.remove_thread(team, id, self.ctx.now()).await.map_err(unavailable)? {
            return Ok(());
        }
        // A message arrived meanwhile, or another call was faster.
        match self.ctx.store.thread(team, id).await.map_err(unavailable)? {
            Some(_) => Err(Problem::new(Code::StaleRev, "a message arrived in the thread while it was deleted")),
            None => Err(thread_not_found(id)),
        }
    }
}
