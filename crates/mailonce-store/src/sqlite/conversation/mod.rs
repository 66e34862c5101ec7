//! Conversations: implements `ConversationStore` for [`Sqlite`].

pub(crate) mod message_progress;
pub(crate) mod reply;
pub(crate) mod threads;
pub(crate) mod work_queue;
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

use super::Sqlite;

#[async_trait]
impl ConversationStore for Sqlite {
    async fn accept_reply(&self, new_reply: NewReply, now: Time) -> Result<ReplyResult> {
        self.run_write(move |ledger| reply::accept_reply(ledger, &new_reply, now)).await
    }

    async fn thread(&self, team: TeamId, id: ThreadId) -> Result<Option<Thread>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| threads::by_id(conn, (team, number), id)).await
    }

    async fn threads(&self, team: TeamId, query: ThreadQuery) -> Result<Vec<Thread>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| threads::list(conn, (team, number), &query)).await
    }

    async fn thread_emails(
        &self,
        team: TeamId,
        id: ThreadId,
        after: Option<EmailId>,
        limit: usize,
    ) -> Result<Vec<EmailId>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| threads::emails(conn, (team, number), id, after, limit)).await
    }

    async fn change_thread(&self, team: TeamId, id: ThreadId, edit: ThreadEdit, now: Time) -> Result<Option<Thread>> {
        self.run_write(move |ledger| threads::change(ledger, (team, id), edit, now)).await
    }

    async fn lease_thread(
        &self,
        team: TeamId,
        id: ThreadId,
        ask: ThreadLeaseSpec,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<ThreadLeaseResult>> {
        self.run_write(move |ledger| work_queue::lease_thread(ledger, (team, id), &ask, operation.as_ref(), now)).await
    }

    async fn release_thread(&self, team: TeamId, id: ThreadId, token: &str, _now: Time) -> Result<Option<Thread>> {
        let token = token.to_owned();
        self.run_write(move |ledger| work_queue::release_thread(ledger, team, id, &token)).await
    }

    async fn lease_messages(
        &self,
        team: TeamId,
        ask: MessageLeaseSpec,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Vec<MessageOffer>>> {
        self.run_write(move |ledger| work_queue::lease_messages(ledger, team, &ask, operation.as_ref(), now)).await
    }

    async fn acknowledge_message(
        &self,
        team: TeamId,
        held: MessageLeaseRef,
        how: Acknowledgement,
        now: Time,
    ) -> Result<AcknowledgeResult> {
        self.run_write(move |ledger| work_queue::acknowledge_message(ledger, team, &held, how, now)).await
    }
}
