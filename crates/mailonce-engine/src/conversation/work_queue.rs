//! Taking work from an inbox: the oldest messages that nobody works on, each with the lease of its thread; and what an
//! agent says about them afterwards.

use crate::{
    access::{active_keys::invalid_api_key, caller::Caller},
    conversation::{
        Conversations,
        threads::{ThreadLeaseView, lease_view},
    },
    inbox::inboxes::{inbox_not_found, may_use},
    outbound::reply_terms::{lease_token_hash, leased_problem},
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::{
        escalation::{Escalation, EscalationReason, EscalationSubject},
        message_progress::{Acknowledgement, MAX_OFFERS, MessageLeaseRef},
        thread::{AcknowledgeResult, MessageLeaseSpec, MessageOffer, Thread},
    },
    id::{InboxId, MessageId},
    inbox::message::{Message, MessagePosition, MessageQuery, MessageState},
    operation::IdempotentResult,
    problem::{Code, Problem},
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::Instant;

/// How often the ledger is asked while somebody waits: leases lapse and pauses end without anybody telling.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The oldest messages that are looked at before any is given.
const SCAN_LIMIT: usize = 50;
/// Messages that one call may take.
pub const MAX_MESSAGES_PER_CALL: usize = 10;

/// A wish for work.
#[derive(Clone, Debug)]
pub struct WorkRequest {
    /// At most so many messages.
    pub limit: usize,
    /// How long each lease is to last, in milliseconds.
    pub ttl_ms: i64,
    /// How long to wait for one.
    pub wait: Duration,
    /// Who asks.
    pub holder: String,
}

/// A message to work on, with the lease of its thread.
#[derive(Clone, Debug)]
pub struct WorkItem {
    /// The message.
    pub message: Message,
    /// The lease.
    pub lease: ThreadLeaseView,
    /// What people wrote in the thread since: an answer must name it in `seen`.
    pub newer_messages: Vec<MessageId>,
}

impl WorkItem {
    fn new(message: Message, token: String, thread: &Thread) -> Self {
        let newer = thread.unseen_messages(message.seq, &[]).collect();
        Self { message, lease: lease_view(token, thread), newer_messages: newer }
    }
}

/// What was given, for whoever asks again under the same key.
#[derive(Serialize, Deserialize)]
struct IssuedLeaseTokens {
    tokens: Vec<String>,
}

impl Conversations {
    /// Takes messages of an inbox to work on, and waits for one if there is none.
    pub async fn lease_messages(
        &self,
        caller: &Caller,
        inbox: InboxId,
        request: WorkRequest,
        asked: Option<KeyedCall>,
    ) -> Result<Vec<WorkItem>, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let found = self.ctx.store.inbox(caller.team.id, inbox).await.map_err(unavailable)?;
        found.filter(|inbox| may_use(caller, inbox)).ok_or_else(|| inbox_not_found(inbox))?;
        let deadline = Instant::now() + request.wait;
        let waiting = self.ctx.inbound.waiters.register(inbox);
        let mut key = self.access.subscribe_key_revocation(caller);
        loop {
            let woken = waiting.notify.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let taken = self.try_lease_messages(caller, inbox, &request, asked.as_ref()).await?;
            if !taken.is_empty() || Instant::now() >= deadline {
                return Ok(taken);
            }
            tokio::select! {
                biased;
                () = woken => {}
                () = key.wait_until_revoked() => return Err(invalid_api_key()),
                () = tokio::time::sleep_until(deadline.min(Instant::now() + POLL_INTERVAL)) => {}
            }
        }
    }

    async fn try_lease_messages(
        &self,
        caller: &Caller,
        inbox: InboxId,
        request: &WorkRequest,
        asked: Option<&KeyedCall>,
    ) -> Result<Vec<WorkItem>, Problem> {
        let (team, now) = (caller.team.id, self.ctx.now());
        if !self.ctx.is_repeated_call(caller, asked).await? && !self.has_leasable_message(caller, inbox, now).await? {
            return Ok(Vec::new());
        }
        let tokens: Vec<String> = (0..request.limit).map(|_| self.new_lease_token()).collect();
        let answer = self.ctx.seal_answer(asked, &IssuedLeaseTokens { tokens: tokens.clone() });
        let ask = MessageLeaseSpec {
            inbox,
            holder: request.holder.clone(),
            ttl_ms: request.ttl_ms,
            tokens: tokens.iter().map(|token| lease_token_hash(token)).collect(),
        };
        let operation = operation(caller, asked, answer, now);
        match self.ctx.store.lease_messages(team, ask, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(offers) => {
                Ok(offers.into_iter().filter_map(|offer| work_item(&tokens, offer)).collect())
            }
            IdempotentResult::Replayed(answer) => {
                let IssuedLeaseTokens { tokens } = self.ctx.open_answer(asked, &answer)?;
                self.replay_work_items(caller, inbox, &tokens).await
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Whether there may be something to take. A message that was offered too often is asked about before it is
    /// skipped, so that a crash in between loses nothing.
    async fn has_leasable_message(&self, caller: &Caller, inbox: InboxId, now: Time) -> Result<bool, Problem> {
        let state = Some(MessageState::Unanswered);
        let query =
            MessageQuery { state, position: MessagePosition::After(0), limit: SCAN_LIMIT, ..MessageQuery::default() };
        let page = self.ctx.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
        for message in page.rows.iter().filter(|message| message.annotations.turn.offers >= MAX_OFFERS) {
            self.escalate_unanswered(caller, message).await?;
        }
        Ok(page.rows.iter().any(|message| message.may_be_offered(now)) || page.next.is_some())
    }

    async fn escalate_unanswered(&self, caller: &Caller, message: &Message) -> Result<(), Problem> {
        let thread = self.ctx.store.thread(caller.team.id, message.thread).await.map_err(unavailable)?;
        let now = self.ctx.now();
        if !message.may_be_offered(now) || thread.is_some_and(|thread| thread.active_lease(now).is_some()) {
            return Ok(());
        }
        let about = EscalationSubject {
            message: Some(message.id),
            thread: Some(message.thread),
            inbox: Some(message.inbox),
            ..EscalationSubject::default()
        };
        self.escalations
            .open_escalation_or_log(caller.team.id, Escalation::open(EscalationReason::Unanswered, about, None))
            .await;
        Ok(())
    }

    /// What was taken under the same key before, as far as its leases still hold.
    async fn replay_work_items(
        &self,
        caller: &Caller,
        inbox: InboxId,
        tokens: &[String],
    ) -> Result<Vec<WorkItem>, Problem> {
        let query = MessageQuery { position: MessagePosition::After(0), limit: SCAN_LIMIT, ..MessageQuery::default() };
        let query = MessageQuery { state: Some(MessageState::Unanswered), ..query };
        let page = self.ctx.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
        let mut given = Vec::new();
        for message in page.rows {
            let thread = self.ctx.store.thread(caller.team.id, message.thread).await.map_err(unavailable)?;
            let Some(thread) = thread else { continue };
            let named = thread.details.lease.as_ref().is_some_and(|lease| lease.message == Some(message.id));
            let token = tokens.iter().find(|token| named && thread.is_latest_token(&lease_token_hash(token)));
            given.extend(token.map(|token| WorkItem::new(message, token.clone(), &thread)));
        }
        given.iter_mut().for_each(|taken| taken.message.state = MessageState::Leased);
        Ok(given)
    }

    /// What an agent says about a message that it holds.
    pub async fn acknowledge_message(
        &self,
        caller: &Caller,
        id: MessageId,
        lease: &str,
        how: Acknowledgement,
    ) -> Result<WorkItem, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let no_such = || Problem::new(Code::NotFound, format!("there is no message {id}"));
        let team = caller.team.id;
        let message = self.ctx.store.message(team, id).await.map_err(unavailable)?.ok_or_else(no_such)?;
        let inbox = self.ctx.store.inbox(team, message.inbox).await.map_err(unavailable)?;
        inbox.filter(|inbox| may_use(caller, inbox)).ok_or_else(no_such)?;
        let now = self.ctx.now();
        let held = MessageLeaseRef { message: id, token_hash: lease_token_hash(lease) };
        match self.ctx.store.acknowledge_message(team, held, how, now).await.map_err(unavailable)? {
            AcknowledgeResult::Done(message, thread) => {
                // The next of its thread, or itself a little later, may be offered to whoever waits.
                self.ctx.inbound.waiters.wake(message.inbox);
                let mut messages = [message];
                self.inboxes.mark_leased_messages(team, &mut messages).await.map_err(unavailable)?;
                let [message] = messages;
                Ok(WorkItem::new(message, lease.to_owned(), &thread))
            }
            // Said before: nobody took the thread since, and the message is as it was left.
            AcknowledgeResult::Stale(message, thread) if was_already_applied(&message, &thread, how) => {
                Ok(WorkItem::new(message, lease.to_owned(), &thread))
            }
            AcknowledgeResult::Stale(_, thread) => Err(leased_problem(&thread, now)),
            AcknowledgeResult::Missing => Err(no_such()),
        }
    }
}

fn was_already_applied(message: &Message, thread: &Thread, how: Acknowledgement) -> bool {
    let left = match how {
        Acknowledgement::Ack => message.state != MessageState::Unanswered,
        Acknowledgement::Nack { .. } => message.annotations.turn.not_before.is_some(),
        Acknowledgement::Extend { .. } => false,
    };
    left && thread.details.lease.is_none()
}

fn work_item(tokens: &[String], offer: MessageOffer) -> Option<WorkItem> {
    let MessageOffer { mut message, thread, token_index: token } = offer;
    message.state = MessageState::Leased;
    Some(WorkItem::new(message, tokens.get(token)?.clone(), &thread))
}
