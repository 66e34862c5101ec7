//! Deleting messages and threads on request.

use crate::{
    access::caller::Caller,
    inbox::{
        Inboxes,
        inboxes::may_use,
        messages::{message_not_found, thread_not_found},
    },
    runtime::problems::unavailable,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::{MessageId, ThreadId},
    inbox::message::{MessagePosition, MessageQuery},
    problem::{Code, Problem},
};

/// How many messages one query reads.
const PAGE_SIZE: usize = 100;

impl Inboxes {
    /// Deletes a message with its bytes and artifacts. The same mail still makes no second message.
    pub async fn delete_message(&self, caller: &Caller, id: MessageId) -> Result<(), Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let team = caller.team.id;
        let found = self.ctx.store.message(team, id).await.map_err(unavailable)?;
        let message = found.ok_or_else(|| message_not_found(id))?;
        let inbox = self.ctx.store.inbox(team, message.inbox).await.map_err(unavailable)?;
        inbox.filter(|inbox| may_use(caller, inbox)).ok_or_else(|| message_not_found(id))?;
        if self.ctx.store.erase_message(team, id, self.ctx.now()).await.map_err(unavailable)? {
            return Ok(());
        }
        Err(message_not_found(id))
    }

    /// Deletes a thread with its messages. The emails in it stay.
    pub async fn delete_thread(&self, caller: &Caller, id: ThreadId) -> Result<(), Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let (thread, _) = self.thread(caller, id).await?;
        let (team, now) = (caller.team.id, self.ctx.now());
        let mut position = MessagePosition::Before(u64::MAX);
        loop {
            let query = MessageQuery { thread: Some(id), position, limit: PAGE_SIZE, ..MessageQuery::default() };
            let page = self.ctx.store.messages(team, thread.inbox, query).await.map_err(unavailable)?;
            for message in &page.rows {
                self.ctx.store.erase_message(team, message.id, now).await.map_err(unavailable)?;
            }
            match page.next {
                Some(seq) => position = MessagePosition::Before(seq),
                None => break,
            }
        }
        if self.ctx.store.remove_thread(team, id, now).await.map_err(unavailable)? {
            return Ok(());
        }
        // A message arrived meanwhile, or another call was faster.
        match self.ctx.store.thread(team, id).await.map_err(unavailable)? {
            Some(_) => Err(Problem::new(Code::StaleRev, "a message arrived in the thread while it was deleted")),
            None => Err(thread_not_found(id)),
        }
    }
}
