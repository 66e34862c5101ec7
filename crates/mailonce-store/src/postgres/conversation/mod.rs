//! Conversations: threads, answers, and whose turn a message is.
//!
//! | file | what it holds |
//! |---|---|
//! | `answer` | replies and forwards, with every guard |
//! | `thread` | threads and their leases |
//! | `turn` | giving messages to agents, and what agents say about them |
//! | `likeness` | mails that say the same |
//! | `talk`, `row` | how all that is written and lies in its tables |
//!
//! A thread's row is the lock of its messages. Whoever locks more than one row keeps to this order: keys, emails, then
//! deliveries and inboxes, threads, tallies, likenesses.

mod answer;
pub(super) mod likeness;
pub(super) mod row;
pub(super) mod talk;
mod thread;
mod turn;

pub(super) use answer::{still_answers, turn_over};

use async_trait::async_trait;
use mailonce_core::{
    conversation::{
        answer::{AnswerWish, Answered},
        thread::{LeaseAsk, Leasing, NextAsk, Offer, Settled, Thread, ThreadEdit, ThreadQuery},
        turn::{Held, Settling},
    },
    id::{EmailId, TeamId, ThreadId},
    port::{
        conversations::Conversations,
        store::{Once, Operation, Result},
    },
    time::Time,
};

use super::{Postgres, shown, trouble::insist};

#[async_trait]
impl Conversations for Postgres {
    async fn answer(&self, wish: AnswerWish, now: Time) -> Result<Answered> {
        shown!(self, insist!(self.ledger.answer_message(&wish, now)))
    }

    async fn thread(&self, team: TeamId, id: ThreadId) -> Result<Option<Thread>> {
        shown!(self, insist!(self.ledger.thread(team, id)))
    }

    async fn threads(&self, team: TeamId, query: ThreadQuery) -> Result<Vec<Thread>> {
        shown!(self, insist!(self.ledger.threads(team, &query)))
    }

    async fn thread_emails(
        &self,
        team: TeamId,
        id: ThreadId,
        after: Option<EmailId>,
        limit: usize,
    ) -> Result<Vec<EmailId>> {
        shown!(self, insist!(self.ledger.thread_emails(team, id, after, limit)))
    }

    async fn change_thread(&self, team: TeamId, id: ThreadId, edit: ThreadEdit, now: Time) -> Result<Option<Thread>> {
        shown!(self, insist!(self.ledger.change_thread(team, id, &edit, now)))
    }

    async fn lease_thread(
        &self,
        team: TeamId,
        id: ThreadId,
        ask: LeaseAsk,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Leasing>> {
        shown!(self, insist!(self.ledger.lease_thread((team, id), &ask, operation.as_ref(), now)))
    }

    async fn release_thread(&self, team: TeamId, id: ThreadId, token: &str, _now: Time) -> Result<Option<Thread>> {
        shown!(self, insist!(self.ledger.release_thread(team, id, token)))
    }

    async fn next_messages(
        &self,
        team: TeamId,
        ask: NextAsk,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Vec<Offer>>> {
        shown!(self, insist!(self.ledger.next_messages(team, &ask, operation.as_ref(), now)))
    }

    async fn settle_message(&self, team: TeamId, held: Held, how: Settling, now: Time) -> Result<Settled> {
        shown!(self, insist!(self.ledger.settle_message(team, &held, how, now)))
    }
}
