//! What mailonce must remember of conversations. A part of the store, with the same rules: every method is one
//! transaction and safe to repeat, time and ids are arguments, every row and every query carries its team.

use async_trait::async_trait;

use super::store::{IdempotentResult, KeyedOperation, Result};
use crate::{
    conversation::{
        message_progress::{Acknowledgement, MessageLeaseRef},
        reply_guards::{NewReply, ReplyResult},
        thread::{
            AcknowledgeResult, MessageLeaseSpec, MessageOffer, Thread, ThreadEdit, ThreadLeaseResult, ThreadLeaseSpec,
            ThreadQuery,
        },
    },
    id::{EmailId, TeamId, ThreadId},
    time::Time,
};

/// Conversations. See the module's words.
#[async_trait]
pub trait ConversationStore: Send + Sync + 'static {
    /// Accepts a reply or a forward with every guard, or says which refused it. A refusal is told by an event. The
    /// key of the wish is looked up before any guard is asked.
    async fn accept_reply(&self, wish: NewReply, now: Time) -> Result<ReplyResult>;

    /// One thread.
    async fn thread(&self, team: TeamId, id: ThreadId) -> Result<Option<Thread>>;
    /// Threads, those with the latest news first, then by id, the latest first.
    async fn threads(&self, team: TeamId, query: ThreadQuery) -> Result<Vec<Thread>>;
    /// The emails of a thread, oldest first, after one of them.
    async fn thread_emails(
        &self,
        team: TeamId,
        id: ThreadId,
        after: Option<EmailId>,
        limit: usize,
    ) -> Result<Vec<EmailId>>;
    /// Changes what people may change. `None` when the team has no such thread.
    async fn change_thread(&self, team: TeamId, id: ThreadId, edit: ThreadEdit, now: Time) -> Result<Option<Thread>>;

    /// Takes or renews the lease of a thread. The key of an operation is bound only when it was taken.
    async fn lease_thread(
        &self,
        team: TeamId,
        id: ThreadId,
        ask: ThreadLeaseSpec,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<ThreadLeaseResult>>;
    /// Gives the lease with this token's hash back. `None` when the team has no such thread; another's lease stays.
    async fn release_thread(&self, team: TeamId, id: ThreadId, token: &str, now: Time) -> Result<Option<Thread>>;

    /// Gives the oldest unanswered messages of an inbox to an agent, each with the lease of its thread; one of a thread
    /// at a time. A message that was offered too often is skipped for good, and told so. The key of an operation is
    /// bound only when something was given.
    async fn lease_messages(
        &self,
        team: TeamId,
        ask: MessageLeaseSpec,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Vec<MessageOffer>>>;
    /// What an agent says about a message that it holds.
    async fn acknowledge_message(
        &self,
        team: TeamId,
        held: MessageLeaseRef,
        how: Acknowledgement,
        now: Time,
    ) -> Result<AcknowledgeResult>;
}
