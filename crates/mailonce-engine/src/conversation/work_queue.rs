//! The work queue of an inbox: leases the oldest unanswered messages to agents, each with the lease of its thread, and
//! records the agents' acknowledgements.

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
        message_progress::{Acknowledgement, MessageLeaseRef},
        thread::{AcknowledgeResult, MessageLeaseSpec, MessageOffer, Thread},
    },
    id::{InboxId, MessageId},
    inbox::{
        message::{Message, MessagePosition, MessageQuery, MessageState},
        progress::MAX_OFFERS,
    },
    operation::IdempotentResult,
    problem::{Code, Problem},
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::Instant;

/// How often a waiting call queries the store: leases expire and delays end without a wake-up.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How many of the oldest messages are scanned for one that can be leased.
const SCAN_LIMIT: usize = 50;
/// Most messages that one call may lease.
pub const MAX_MESSAGES_PER_CALL: usize = 10;

/// A request to lease messages.
#[derive(Clone, Debug)]
pub struct WorkRequest {
    /// Most messages to lease.
    pub limit: usize,
    /// The duration of each lease, in milliseconds.
    pub ttl_ms: i64,
    /// How long to wait when no message can be leased.
    pub wait: Duration,
    /// The name of the agent that will hold the leases.
    pub holder: String,
}

/// A leased message with the lease of its thread.
#[derive(Clone, Debug)]
pub struct WorkItem {
    /// The message.
    pub message: Message,
    /// The lease of its thread.
    pub lease: ThreadLeaseView,
    /// Newer messages of the thread. A reply must list them in `seen`.
    pub newer_messages: Vec<MessageId>,
}

impl WorkItem {
    fn new(message: Message, token: String, thread: &Thread) -> Self {
        let newer = thread.unseen_messages(message.seq, &[]).collect();
        Self { message, lease: lease_view(token, thread), newer_messages: newer }
    }
}

/// The lease tokens that a call issued, sealed for a replay under the same idempotency key.
#[derive(Serialize, Deserialize)]
struct IssuedLeaseTokens {
    tokens: Vec<String>,
}

impl Conversations {
    /// Leases messages of an inbox, and waits for one if none can be leased.
    pub async fn lease_messages(
        &self,
        caller: &Caller,
        inbox: InboxId,
        request: WorkRequest,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Vec<WorkItem>, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let found = self.ctx.store.inbox(caller.team.id, inbox).await.map_err(unavailable)?;
        found.filter(|inbox| may_use(caller, inbox)).ok_or_else(|| inbox_not_found(inbox))?;
        let deadline = Instant::now() + request.wait;
        let waiting = self.ctx.inbound.waiters.register(inbox);
        let mut key_revocation = self.access.subscribe_key_revocation(caller);
        loop {
            let woken = waiting.notify.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let leased = self.try_lease_messages(caller, inbox, &request, keyed_call.as_ref()).await?;
            if !leased.is_empty() || Instant::now() >= deadline {
                return Ok(leased);
            }
            tokio::select! {
                biased;
                () = woken => {}
                () = key_revocation.wait_until_revoked() => return Err(invalid_api_key()),
                () = tokio::time::sleep_until(deadline.min(Instant::now() + POLL_INTERVAL)) => {}
            }
        }
    }

    async fn try_lease_messages(
        &self,
        caller: &Caller,
        inbox: InboxId,
        request: &WorkRequest,
        keyed_call: Option<&KeyedCall>,
    ) -> Result<Vec<WorkItem>, Problem> {
        let (team, now) = (caller.team.id, self.ctx.now());
        if !self.ctx.is_repeated_call(caller, keyed_call).await?
            && !self.has_leasable_message(caller, inbox, now).await?
        {
            return Ok(Vec::new());
        }
        let tokens: Vec<String> = (0..request.limit).map(|_| self.new_lease_token()).collect();
        let answer = self.ctx.seal_answer(keyed_call, &IssuedLeaseTokens { tokens: tokens.clone() });
        let spec = MessageLeaseSpec {
            inbox,
            holder: request.holder.clone(),
            ttl_ms: request.ttl_ms,
            tokens: tokens.iter().map(|token| lease_token_hash(token)).collect(),
        };
        let operation = operation(caller, keyed_call, answer, now);
        match self.ctx.store.lease_messages(team, spec, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(offers) => {
                Ok(offers.into_iter().filter_map(|offer| work_item(&tokens, offer)).collect())
            }
            IdempotentResult::Replayed(answer) => {
                let IssuedLeaseTokens { tokens } = self.ctx.open_answer(keyed_call, &answer)?;
                self.replay_work_items(caller, inbox, &tokens).await
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Whether a message may be leasable. Opens an escalation for a message that was offered too often before the store
    /// skips it, so that a crash in between cannot lose the escalation.
    async fn has_leasable_message(&self, caller: &Caller, inbox: InboxId, now: Time) -> Result<bool, Problem> {
        let state = Some(MessageState::Unanswered);
        let query =
            MessageQuery { state, position: MessagePosition::After(0), limit: SCAN_LIMIT, ..MessageQuery::default() };
        let page = self.ctx.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
        for message in page.rows.iter().filter(|message| message.annotations.progress.offers >= MAX_OFFERS) {
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

    /// The messages that the first call with this key leased, as far as their leases are still held.
    async fn replay_work_items(
        &self,
        caller: &Caller,
        inbox: InboxId,
        tokens: &[String],
    ) -> Result<Vec<WorkItem>, Problem> {
        let query = MessageQuery { position: MessagePosition::After(0), limit: SCAN_LIMIT, ..MessageQuery::default() };
        let query = MessageQuery { state: Some(MessageState::Unanswered), ..query };
        let page = self.ctx.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
        let mut items = Vec::new();
        for message in page.rows {
            let thread = self.ctx.store.thread(caller.team.id, message.thread).await.map_err(unavailable)?;
            let Some(thread) = thread else { continue };
            let is_leased = thread.details.lease.as_ref().is_some_and(|lease| lease.message == Some(message.id));
            let token = tokens.iter().find(|token| is_leased && thread.is_latest_token(&lease_token_hash(token)));
            items.extend(token.map(|token| WorkItem::new(message, token.clone(), &thread)));
        }
        items.iter_mut().for_each(|item| item.message.state = MessageState::Leased);
        Ok(items)
    }

    /// Records an agent's acknowledgement of a message that it holds: done, not done, or more time needed.
    pub async fn acknowledge_message(
        &self,
        caller: &Caller,
        id: MessageId,
        lease: &str,
        acknowledgement: Acknowledgement,
    ) -> Result<WorkItem, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let not_found = || Problem::new(Code::NotFound, format!("there is no message {id}"));
        let team = caller.team.id;
        let message = self.ctx.store.message(team, id).await.map_err(unavailable)?.ok_or_else(not_found)?;
        let inbox = self.ctx.store.inbox(team, message.inbox).await.map_err(unavailable)?;
        inbox.filter(|inbox| may_use(caller, inbox)).ok_or_else(not_found)?;
        let now = self.ctx.now();
        let lease_ref = MessageLeaseRef { message: id, token_hash: lease_token_hash(lease) };
        match self.ctx.store.acknowledge_message(team, lease_ref, acknowledgement, now).await.map_err(unavailable)? {
            AcknowledgeResult::Done(message, thread) => {
                // The next message of the thread, or this one after its delay, may now be leased by a waiting call.
                self.ctx.inbound.waiters.wake(message.inbox);
                let mut messages = [message];
                self.inboxes.mark_leased_messages(team, &mut messages).await.map_err(unavailable)?;
                let [message] = messages;
                Ok(WorkItem::new(message, lease.to_owned(), &thread))
            }
            // A repeated acknowledgement: no other agent took the lease since, and the message is unchanged.
            AcknowledgeResult::Stale(message, thread) if was_already_applied(&message, &thread, acknowledgement) => {
                Ok(WorkItem::new(message, lease.to_owned(), &thread))
            }
            AcknowledgeResult::Stale(_, thread) => Err(leased_problem(&thread, now)),
            AcknowledgeResult::Missing => Err(not_found()),
        }
    }
}

fn was_already_applied(message: &Message, thread: &Thread, acknowledgement: Acknowledgement) -> bool {
    let is_applied = match acknowledgement {
        Acknowledgement::Ack => message.state != MessageState::Unanswered,
        Acknowledgement::Nack { .. } => message.annotations.progress.not_before.is_some(),
        Acknowledgement::Extend { .. } => false,
    };
    is_applied && thread.details.lease.is_none()
}

fn work_item(tokens: &[String], offer: MessageOffer) -> Option<WorkItem> {
    let MessageOffer { mut message, thread, token_index: token } = offer;
    message.state = MessageState::Leased;
    Some(WorkItem::new(message, tokens.get(token)?.clone(), &thread))
}
