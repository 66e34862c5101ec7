//! Mail that comes in: what senders brought, what agents took, and what inboxes show in the end.

use serde::{Deserialize, Serialize};

/// One try of a sender to bring a mail to one inbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryTry {
    /// When it began.
    pub at: u64,
    /// When it ended, if it did.
    pub ended: Option<u64>,
    /// The way in: `smtp` or `hook`.
    pub way: String,
    /// The address of the inbox.
    pub inbox: String,
    /// Its Message-ID, with angle brackets. A mail has one of its own, and only tries of the same mail share it.
    pub message_id: String,
    /// Who wrote it.
    pub sender: String,
    /// The code in it; empty without one.
    pub code: String,
    /// Who or what wrote it, where it is to be answered: `person`, `machine`, `soft` (it only looks like one) or `own`.
    #[serde(default)]
    pub kind: String,
    /// Whether its sender was told that it is kept.
    pub acknowledged: bool,
}

/// One try of an agent to take the code of a sender.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumeTry {
    /// When it began.
    pub at: u64,
    /// When it ended, if it did.
    pub ended: Option<u64>,
    /// Whose credential it came with.
    pub team: String,
    /// The address of the inbox.
    pub inbox: String,
    /// Whose code.
    pub sender: String,
    /// For whom: the one consumer.
    pub purpose: String,
    /// What it was given, if it was.
    pub got: Option<ConsumedCode>,
    /// The code of the refusal; empty when it was given something, or when nobody answered.
    pub refused: String,
}

/// A code that was given out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumedCode {
    /// The artifact.
    pub artifact: String,
    /// Its value.
    pub value: String,
}

/// A message as it is in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub team: String,
    /// The address of its inbox.
    pub inbox: String,
    /// Its number there.
    pub seq: u64,
    /// Its Message-ID.
    pub message_id: String,
    /// Whether it was answered; empty when the rig did not read it.
    #[serde(default)]
    pub state: String,
    /// Whether it was offered to agents in vain.
    #[serde(default)]
    pub dead: bool,
}

/// An artifact as it is in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its id.
    pub id: String,
    /// The address of its inbox.
    pub inbox: String,
    /// Who wrote it.
    pub sender: String,
    /// What it is; empty when the rig may not see it.
    pub value: String,
    /// When it was found, in milliseconds since 1970 by the ledger's own time.
    pub found_at: i64,
    /// For whom it was taken, if it was.
    pub consumed_for: Option<String>,
}

/// A delivery as it is in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownDelivery {
    /// Its id.
    pub id: String,
    /// Its state: `waiting`, `done`, `duplicate`, `refused`, `dead`.
    pub state: String,
    /// The way in, in the words of [`Brought::way`].
    pub way: String,
    /// Why it made no message of its own; empty when it did, or may.
    pub reason: String,
    /// The delivery that it repeats, if it is known to be a repeat.
    pub of: Option<String>,
    /// The message that it made or repeats, if there is one.
    pub message: Option<String>,
}

/// Everything about mail that comes in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundHistory {
    /// What senders brought, in the order in which they began.
    pub brought: Vec<DeliveryTry>,
    /// What agents took, in the order in which they began.
    pub takes: Vec<ConsumeTry>,
    /// The messages in the end.
    pub messages: Vec<Message>,
    /// The artifacts in the end.
    pub artifacts: Vec<Artifact>,
    /// The deliveries in the end.
    pub kept: Vec<ShownDelivery>,
}
