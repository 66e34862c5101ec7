//! How a message moves on: offers, replies, postponements and acknowledgements.

use serde_json::json;

use crate::{
    events::event::{EventKind, NewEvent},
    id::{EmailId, MessageId},
    inbox::{
        message::{Message, MessageState},
        progress::{MAX_OFFERS, ReplySlot},
    },
    mutant,
    time::Time,
};

impl Message {
    /// Whether it may be offered to an agent now, as far as the message itself decides.
    pub fn may_be_offered(&self, now: Time) -> bool {
        let put_off = self.annotations.progress.not_before.is_some_and(|at| now < at);
        self.state == MessageState::Unanswered && !put_off
    }

    /// Records one more offer. When that was one too many, skips the message and returns the event.
    pub fn record_offer(&mut self, now: Time) -> Option<NewEvent> {
        self.rev += 1;
        self.annotations.progress.not_before = None;
        if self.annotations.progress.offers < MAX_OFFERS || mutant!("offered-for-ever") {
            self.annotations.progress.offers += 1;
            return None;
        }
        self.annotations.progress.dead = true;
        self.state = MessageState::Skipped;
        Some(self.to_event(EventKind::MessageSkipped, json!({ "reason": "max_offers_reached" }), now))
    }

    /// Records a reply.
    pub fn record_answer(&mut self, slot: ReplySlot, email: EmailId, now: Time) -> NewEvent {
        self.rev += 1;
        let replies = matches!(slot, ReplySlot::Reply(_));
        self.annotations.progress.answers.retain(|(taken, _)| *taken != slot);
        self.annotations.progress.answers.push((slot, email));
        if replies && !mutant!("answered-still-open") {
            self.state = MessageState::Answered;
        }
        let kind = if replies { EventKind::MessageAnswered } else { EventKind::MessageForwarded };
        self.to_event(kind, json!({ "email": email }), now)
    }

    /// Marks that it needs no reply. `None` when it was not unanswered.
    pub fn skip(&mut self, now: Time) -> Option<NewEvent> {
        if self.state != MessageState::Unanswered {
            return None;
        }
        self.rev += 1;
        self.state = MessageState::Skipped;
        Some(self.to_event(EventKind::MessageSkipped, json!({ "reason": "handled" }), now))
    }

    /// Postpones it.
    pub fn postpone(&mut self, until: Time) {
        self.rev += 1;
        self.annotations.progress.not_before = Some(until);
    }

    /// An event about it.
    pub fn to_event(&self, kind: EventKind, mut data: serde_json::Value, now: Time) -> NewEvent {
        data["inbox"] = json!(self.inbox);
        data["thread"] = json!(self.thread);
        NewEvent { kind, at: now, subject_id: self.id.0, rev: self.rev, data }
    }
}

/// How an agent acknowledges a leased message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// It is finished, with or without a reply.
    Ack,
    /// It failed. Another agent may try after a delay.
    Nack {
        /// The delay, in milliseconds.
        delay_ms: i64,
    },
    /// It needs more time.
    Extend {
        /// The new duration from now, in milliseconds.
        ttl_ms: i64,
    },
}

/// A message and the lease of its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageLeaseRef {
    /// The message.
    pub message: MessageId,
    /// The hash of the lease's token.
    pub token_hash: String,
}
