//! Conversations: threads, replies, and the agents' work queue.
//!
//! | module | contents |
//! |---|---|
//! | `reply` | replies and forwards, with all guards |
//! | `threads` | threads and their leases |
//! | `work_queue` | leasing messages to agents, and their acknowledgements |
//! | `changes`, `row` | writing the changes; the mapping between rows and domain values |
//!
//! A thread's row lock covers its messages. A transaction that locks several rows takes them in this order: keys,
//! emails, then deliveries and inboxes, threads, budget counters, tallies, recent content.

pub(crate) mod changes;
mod reply;
pub(crate) mod row;
mod threads;
mod work_queue;

pub(crate) use reply::{is_current_reply, update_message_progress};

use async_trait::async_trait;
use mailonce_core::{
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
    ports::{conversation_store::ConversationStore, store::Result},
    time::Time,
};

use super::{Postgres, when_durable};
use crate::postgres::error::call_until_final;

#[async_trait]
impl ConversationStore for Postgres {
    async fn accept_reply(&self, new_reply: NewReply, now: Time) -> Result<ReplyResult> {
        when_durable!(self, call_until_final!(reply::accept_reply(&self.shared, &new_reply, now)))
    }

    async fn thread(&self, team: TeamId, id: ThreadId) -> Result<Option<Thread>> {
        when_durable!(self, call_until_final!(threads::thread(&self.shared, team, id)))
    }

    async fn threads(&self, team: TeamId, query: ThreadQuery) -> Result<Vec<Thread>> {
        when_durable!(self, call_until_final!(threads::threads(&self.shared, team, &query)))
    }

    async fn thread_emails(
        &self,
        team: TeamId,
        id: ThreadId,
        after: Option<EmailId>,
        limit: usize,
    ) -> Result<Vec<EmailId>> {
        when_durable!(self, call_until_final!(threads::thread_emails(&self.shared, team, id, after, limit)))
    }

    async fn change_thread(&self, team: TeamId, id: ThreadId, edit: ThreadEdit, now: Time) -> Result<Option<Thread>> {
        when_durable!(self, call_until_final!(threads::change_thread(&self.shared, team, id, &edit, now)))
    }

    async fn lease_thread(
        &self,
        team: TeamId,
        id: ThreadId,
        ask: ThreadLeaseSpec,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<ThreadLeaseResult>> {
        when_durable!(
            self,
            call_until_final!(threads::lease_thread(&self.shared, (team, id), &ask, operation.as_ref(), now))
        )
    }

    async fn release_thread(&self, team: TeamId, id: ThreadId, token: &str, _now: Time) -> Result<Option<Thread>> {
        when_durable!(self, call_until_final!(threads::release_thread(&self.shared, team, id, token)))
    }

    async fn lease_messages(
        &self,
        team: TeamId,
        ask: MessageLeaseSpec,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Vec<MessageOffer>>> {
        when_durable!(
            self,
            call_until_final!(work_queue::lease_messages(&self.shared, team, &ask, operation.as_ref(), now))
        )
    }

    async fn acknowledge_message(
        &self,
        team: TeamId,
        held: MessageLeaseRef,
        how: Acknowledgement,
        now: Time,
    ) -> Result<AcknowledgeResult> {
        when_durable!(self, call_until_final!(work_queue::acknowledge_message(&self.shared, team, &held, how, now)))
    }
}
