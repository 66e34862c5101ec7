//! Records what the ledger commits about conversations, as a history.

use crate::{
    proof::history::{ConversationChange, ReplyRecord},
    world::world_state::WorldState,
};
use mailonce_core::{
    conversation::{
        message_progress::{Acknowledgement, MessageLeaseRef},
        reply_guards::{NewReply, ReplyResult},
        thread::{AcknowledgeResult, MessageOffer, Thread, ThreadLeaseResult, ThreadLeaseSpec},
    },
    id::MessageId,
    inbox::{message::FileMessageResult, progress::ReplySlot},
    operation::IdempotentResult,
    outbound::{accept::AcceptResult, email::Email},
    time::Time,
};

/// The guard that holds an email; empty if none does.
fn holding_guard(email: &Email) -> String {
    let held = email.state() == mailonce_core::outbound::email::EmailState::Held;
    email.guard.filter(|_| held).map(|guard| guard.as_str().to_owned()).unwrap_or_default()
}

fn to_reply_record(reply: &NewReply) -> ReplyRecord {
    ReplyRecord {
        message: reply.message.to_string(),
        slot: match &reply.slot {
            ReplySlot::Reply(number) => format!("reply {number}"),
            ReplySlot::Forward(to) => format!("forward {to}"),
        },
        token: reply.lease_token_hash.clone(),
        seen: reply.seen.iter().map(ToString::to_string).collect(),
        key: reply.email.head.key.as_ref().map(mailonce_core::key::EmailKey::display_name),
        ..ReplyRecord::default()
    }
}

fn lease_change(thread: &Thread, offered: Option<MessageId>) -> Option<ConversationChange> {
    let lease = thread.details.lease.as_ref()?;
    Some(ConversationChange::Leased {
        thread: thread.id.to_string(),
        token: lease.token.clone(),
        until: lease.expires_at.0,
        fence: thread.details.fence,
        offered: offered.map(|id| id.to_string()),
    })
}

impl WorldState {
    pub(super) fn record_reply(&self, reply: &NewReply, answered: &ReplyResult, now: Time) {
        let reply = to_reply_record(reply);
        let change = match answered {
            ReplyResult::First(email, _) => ConversationChange::Answered(ReplyRecord {
                email: email.id.to_string(),
                guard: holding_guard(email),
                ..reply
            }),
            ReplyResult::AlreadyAnswered(email, ..) => {
                ConversationChange::Again { message: reply.message, slot: reply.slot, email: email.to_string() }
            }
            ReplyResult::Refused(guard, ..) => ConversationChange::Refused { guard: guard.as_str().to_owned(), reply },
            ReplyResult::KeyBound(_) | ReplyResult::OverBudget(_) | ReplyResult::Missing => return,
        };
        self.record_conversation_change(change, now);
    }

    pub(super) fn record_lease(
        &self,
        spec: &ThreadLeaseSpec,
        leasing: &IdempotentResult<ThreadLeaseResult>,
        now: Time,
    ) {
        let IdempotentResult::Done(ThreadLeaseResult::Leased(thread)) = leasing else { return };
        let change = match &spec.renew {
            Some(token) => {
                let until = now.plus(spec.ttl_ms).0;
                Some(ConversationChange::Extended { thread: thread.id.to_string(), token: token.clone(), until })
            }
            None => lease_change(thread, None),
        };
        change.into_iter().for_each(|change| self.record_conversation_change(change, now));
    }

    pub(super) fn record_offers(&self, offers: &IdempotentResult<Vec<MessageOffer>>, now: Time) {
        let IdempotentResult::Done(offers) = offers else { return };
        for offer in offers {
            lease_change(&offer.thread, Some(offer.message.id))
                .into_iter()
                .for_each(|change| self.record_conversation_change(change, now));
        }
    }

    pub(super) fn record_release(&self, thread: &Thread, token: &str, now: Time) {
        self.record_conversation_change(
            ConversationChange::Released { thread: thread.id.to_string(), token: token.to_owned() },
            now,
        );
    }

    pub(super) fn record_settled(
        &self,
        held: &MessageLeaseRef,
        how: Acknowledgement,
        settled: &AcknowledgeResult,
        now: Time,
    ) {
        let AcknowledgeResult::Done(message, thread) = settled else { return };
        let (message, thread, token) = (message.id.to_string(), thread.id.to_string(), held.token_hash.clone());
        let released = ConversationChange::Released { thread: thread.clone(), token: token.clone() };
        match how {
            Acknowledgement::Extend { ttl_ms } => self.record_conversation_change(
                ConversationChange::Extended { thread, token, until: now.plus(ttl_ms).0 },
                now,
            ),
            Acknowledgement::Ack => {
                self.record_conversation_change(released, now);
                self.record_conversation_change(ConversationChange::Acked(message), now);
            }
            Acknowledgement::Nack { delay_ms } => {
                self.record_conversation_change(released, now);
                self.record_conversation_change(ConversationChange::Postponed(message, now.plus(delay_ms).0), now);
            }
        }
    }

    pub(super) fn record_filed(&self, filed: &FileMessageResult, now: Time) {
        let FileMessageResult::New(message, _) = filed else { return };
        let change = ConversationChange::Filed {
            message: message.id.to_string(),
            thread: message.thread.to_string(),
            seq: message.seq,
            message_id: message.head.message_id.clone().unwrap_or_default(),
        };
        self.record_conversation_change(change, now);
    }

    pub(super) fn record_keyless_accept(&self, accept: &AcceptResult, now: Time) {
        if let AcceptResult::First(email) = accept
            && email.head.key.is_none()
        {
            self.record_conversation_change(
                ConversationChange::Keyless { email: email.id.to_string(), guard: holding_guard(email) },
                now,
            );
        }
    }
}
