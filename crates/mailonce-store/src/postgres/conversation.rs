//! Conversations. Not here yet.

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
        store::{Once, Operation, Result, StoreError},
    },
    time::Time,
};

use super::Postgres;

fn not_yet<T>() -> Result<T> {
    Err(StoreError::Unreachable("conversations are not kept here yet".into()))
}

#[async_trait]
impl Conversations for Postgres {
    async fn answer(&self, _wish: AnswerWish, _now: Time) -> Result<Answered> {
        not_yet()
    }

    async fn thread(&self, _team: TeamId, _id: ThreadId) -> Result<Option<Thread>> {
        not_yet()
    }

    async fn threads(&self, _team: TeamId, _query: ThreadQuery) -> Result<Vec<Thread>> {
        not_yet()
    }

    async fn thread_emails(
        &self,
        _team: TeamId,
        _id: ThreadId,
        _after: Option<EmailId>,
        _limit: usize,
    ) -> Result<Vec<EmailId>> {
        not_yet()
    }

    async fn change_thread(
        &self,
        _team: TeamId,
        _id: ThreadId,
        _edit: ThreadEdit,
        _now: Time,
    ) -> Result<Option<Thread>> {
        not_yet()
    }

    async fn lease_thread(
        &self,
        _team: TeamId,
        _id: ThreadId,
        _ask: LeaseAsk,
        _operation: Option<Operation>,
        _now: Time,
    ) -> Result<Once<Leasing>> {
        not_yet()
    }

    async fn release_thread(&self, _team: TeamId, _id: ThreadId, _token: &str, _now: Time) -> Result<Option<Thread>> {
        not_yet()
    }

    async fn next_messages(
        &self,
        _team: TeamId,
        _ask: NextAsk,
        _operation: Option<Operation>,
        _now: Time,
    ) -> Result<Once<Vec<Offer>>> {
        not_yet()
    }

    async fn settle_message(&self, _team: TeamId, _held: Held, _how: Settling, _now: Time) -> Result<Settled> {
        not_yet()
    }
}
