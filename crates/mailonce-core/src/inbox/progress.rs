//! The recorded progress of a message: its replies, how often it was offered, and until when it is postponed.

use serde::{Deserialize, Serialize};

use crate::{id::EmailId, time::Time};

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
