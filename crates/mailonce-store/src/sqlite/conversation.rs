//! The part of the port for conversations.

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

use super::{Sqlite, answer, offer, thread};

#[async_trait]
impl Conversations for Sqlite {
    async fn answer(&self, wish: AnswerWish, now: Time) -> Result<Answered> {
        self.write(move |ledger| answer::answer(ledger, &wish, now)).await
    }

    async fn thread(&self, team: TeamId, id: ThreadId) -> Result<Option<Thread>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        self.look(move |conn| thread::one(conn, (team, number), id)).await
    }

    async fn threads(&self, team: TeamId, query: ThreadQuery) -> Result<Vec<Thread>> {
        let Some(number) = self.number(team) else { return Ok(Vec::new()) };
        self.look(move |conn| thread::list(conn, (team, number), &query)).await
    }

    async fn thread_emails(
        &self,
        team: TeamId,
        id: ThreadId,
        after: Option<EmailId>,
        limit: usize,
    ) -> Result<Vec<EmailId>> {
        let Some(number) = self.number(team) else { return Ok(Vec::new()) };
        self.look(move |conn| thread::emails(conn, (team, number), id, after, limit)).await
    }

    async fn change_thread(&self, team: TeamId, id: ThreadId, edit: ThreadEdit, now: Time) -> Result<Option<Thread>> {
        self.write(move |ledger| thread::change(ledger, (team, id), edit, now)).await
    }

    async fn lease_thread(
        &self,
        team: TeamId,
        id: ThreadId,
        ask: LeaseAsk,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Leasing>> {
        self.write(move |ledger| offer::lease(ledger, (team, id), &ask, operation.as_ref(), now)).await
    }

    async fn release_thread(&self, team: TeamId, id: ThreadId, token: &str, _now: Time) -> Result<Option<Thread>> {
        let token = token.to_owned();
        self.write(move |ledger| offer::release(ledger, team, id, &token)).await
    }

    async fn next_messages(
        &self,
        team: TeamId,
        ask: NextAsk,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Vec<Offer>>> {
        self.write(move |ledger| offer::next(ledger, team, &ask, operation.as_ref(), now)).await
    }

    async fn settle_message(&self, team: TeamId, held: Held, how: Settling, now: Time) -> Result<Settled> {
        self.write(move |ledger| offer::settle(ledger, team, &held, how, now)).await
    }
}
