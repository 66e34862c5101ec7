//! The part of the store for conversations. It follows the rules of the store: every method is one transaction and
//! idempotent, time and ids are arguments, every row and every query carries its team.

use async_trait::async_trait;

use super::store::Result;
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
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};

/// Replies, threads and their leases. The module documentation states the rules that every method follows.
#[async_trait]
pub trait ConversationStore: Send + Sync + 'static {
    /// Accepts a reply or a forward if every guard allows it, or returns the guard that refused it. A refusal writes an
    /// event. The idempotency key is looked up before any guard runs.
    async fn accept_reply(&self, new_reply: NewReply, now: Time) -> Result<ReplyResult>;

    /// One thread.
    async fn thread(&self, team: TeamId, id: ThreadId) -> Result<Option<Thread>>;
    /// Threads, most recently active first, then by id, the latest first.
    async fn threads(&self, team: TeamId, query: ThreadQuery) -> Result<Vec<Thread>>;
    /// The emails of a thread after the given one, oldest first.
    async fn thread_emails(
        &self,
        team: TeamId,
        id: ThreadId,
        after: Option<EmailId>,
        limit: usize,
    ) -> Result<Vec<EmailId>>;
    /// Changes the editable fields of a thread. `None` when the team has no such thread.
    async fn change_thread(&self, team: TeamId, id: ThreadId, edit: ThreadEdit, now: Time) -> Result<Option<Thread>>;

    /// Acquires or renews the lease of a thread. The key of the operation is bound only when the lease was acquired.
    async fn lease_thread(
        &self,
        team: TeamId,
        id: ThreadId,
        ask: ThreadLeaseSpec,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<ThreadLeaseResult>>;
    /// Releases the lease with this token hash. The lease of another holder stays. `None` when the team has no such
    /// thread.
    async fn release_thread(&self, team: TeamId, id: ThreadId, token: &str, now: Time) -> Result<Option<Thread>>;

    /// Leases the oldest unanswered messages of an inbox to an agent, each with the lease of its thread, and one per
    /// thread. A message that was offered too often is skipped for good, with an event. The key of the operation is
    /// bound only when at least one message was leased.
    async fn lease_messages(
        &self,
        team: TeamId,
        ask: MessageLeaseSpec,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Vec<MessageOffer>>>;
    /// Acknowledges a message that an agent has leased.
    async fn acknowledge_message(
        &self,
        team: TeamId,
        held: MessageLeaseRef,
        how: Acknowledgement,
        now: Time,
    ) -> Result<AcknowledgeResult>;
}
