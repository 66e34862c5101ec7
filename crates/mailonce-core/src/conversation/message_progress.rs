//! The progress of a message between agents: its replies, how often it was offered, and until when it is postponed.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    events::event::{EventKind, NewEvent},
    id::{EmailId, MessageId},
    inbox::message::{Message, MessageState},
    mutant,
    time::Time,
};

/// How often a message is offered before a person must handle it.
pub const MAX_OFFERS: u32 = 5;
/// The maximum number of replies to one message. More are refused.
pub const MAX_ANSWERS: usize = 50;

/// A slot of a message, which one email can take.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplySlot {
    /// The reply with this number. 0 is the first; the others are deliberate follow-ups.
    Reply(u32),
    /// A forward to these recipients, as a hash over their sorted addresses.
    Forward(String),
}

/// The progress of a message between agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageProgress {
    /// The taken slots with their emails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<(ReplySlot, EmailId)>,
    /// How often it was offered.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offers: u32,
    /// When it may be offered next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// Whether it was offered too often without a reply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl MessageProgress {
    /// The email that took this slot.
    pub fn answered_by(&self, slot: &ReplySlot) -> Option<EmailId> {
        self.answers.iter().find(|(taken, _)| taken == slot).map(|(_, email)| *email)
    }

    /// The emails that replied to it, with any number.
    pub fn replies(&self) -> impl Iterator<Item = EmailId> {
        self.answers.iter().filter(|(slot, _)| matches!(slot, ReplySlot::Reply(_))).map(|(_, email)| *email)
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Message {
    /// Whether it may be offered to an agent now, as far as the message itself decides.
    pub fn may_be_offered(&self, now: Time) -> bool {
        let put_off = self.annotations.turn.not_before.is_some_and(|at| now < at) && !mutant!("put-off-ignored");
        self.state == MessageState::Unanswered && !put_off
    }

    /// Records one more offer. When that was one too many, skips the message and returns the event.
    pub fn record_offer(&mut self, now: Time) -> Option<NewEvent> {
        self.rev += 1;
        self.annotations.turn.not_before = None;
        if self.annotations.turn.offers < MAX_OFFERS || mutant!("offered-for-ever") {
            self.annotations.turn.offers += 1;
            return None;
        }
        self.annotations.turn.dead = true;
        self.state = MessageState::Skipped;
        Some(self.to_event(EventKind::MessageSkipped, json!({ "reason": "max_offers_reached" }), now))
    }

    /// Records a reply.
    pub fn record_answer(&mut self, slot: ReplySlot, email: EmailId, now: Time) -> NewEvent {
        self.rev += 1;
        let replies = matches!(slot, ReplySlot::Reply(_));
        self.annotations.turn.answers.retain(|(taken, _)| *taken != slot);
        self.annotations.turn.answers.push((slot, email));
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
        self.annotations.turn.not_before = Some(until);
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
