//! Whose turn a message is: what answered it, how often it was offered to agents, and until when it was put off.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    events::event::{EventKind, NewEvent},
    id::{EmailId, MessageId},
    inbox::message::{Message, MessageState},
    mutant,
    time::Time,
};

/// How often a message is offered before a person must look at it.
pub const MAX_OFFERS: u32 = 5;
/// Answers remembered of one message. More are refused.
pub const MAX_ANSWERS: usize = 50;

/// What of a message can be answered once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplySlot {
    /// The answer with this number; 0 is the first, others are wanted follow-ups.
    Reply(u32),
    /// Passing it on to these people, as a hash over their sorted addresses.
    Forward(String),
}

/// Where a message stands between agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageProgress {
    /// What answered it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<(ReplySlot, EmailId)>,
    /// How often it was offered.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offers: u32,
    /// Not to be offered before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// Whether it was offered in vain too often.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl MessageProgress {
    /// What answered this.
    pub fn answered_by(&self, slot: &ReplySlot) -> Option<EmailId> {
        self.answers.iter().find(|(taken, _)| taken == slot).map(|(_, email)| *email)
    }

    /// The emails that answered it, whatever their number.
    pub fn replies(&self) -> impl Iterator<Item = EmailId> {
        self.answers.iter().filter(|(slot, _)| matches!(slot, ReplySlot::Reply(_))).map(|(_, email)| *email)
    }

    /// Whether nothing was ever said about it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Message {
    /// Whether it may be offered to an agent now, its thread apart.
    pub fn may_be_offered(&self, now: Time) -> bool {
        let put_off = self.annotations.turn.not_before.is_some_and(|at| now < at) && !mutant!("put-off-ignored");
        self.state == MessageState::Unanswered && !put_off
    }

    /// Offers it once more. The event that tells of its end when that was once too often; then it is skipped.
    pub fn record_offer(&mut self, now: Time) -> Option<NewEvent> {
        self.rev += 1;
        self.annotations.turn.not_before = None;
        if self.annotations.turn.offers < MAX_OFFERS || mutant!("offered-for-ever") {
            self.annotations.turn.offers += 1;
            return None;
        }
        self.annotations.turn.dead = true;
        self.state = MessageState::Skipped;
        Some(self.to_event(EventKind::MessageSkipped, json!({ "why": "offered_in_vain" }), now))
    }

    /// Writes down what answered it.
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

    /// Says that it wants no answer. `None` when it was settled before.
    pub fn skip(&mut self, now: Time) -> Option<NewEvent> {
        if self.state != MessageState::Unanswered {
            return None;
        }
        self.rev += 1;
        self.state = MessageState::Skipped;
        Some(self.to_event(EventKind::MessageSkipped, json!({ "why": "handled" }), now))
    }

    /// Puts it off.
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

/// What an agent says about a message that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// It is done with it, answered or not.
    Ack,
    /// It cannot; others may try after so many milliseconds.
    Nack {
        /// How long to wait.
        delay_ms: i64,
    },
    /// It needs more time.
    Extend {
        /// From now on.
        ttl_ms: i64,
    },
}

/// What names a message and its thread's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageLeaseRef {
    /// Which message.
    pub message: MessageId,
    /// The hash of the lease's token.
    pub token_hash: String,
}
