//! Received mail: deliveries by senders, codes that agents consumed, and the inboxes at the end.

use serde::{Deserialize, Serialize};

/// One attempt of a sender to deliver a mail to one inbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryTry {
    /// Its start.
    pub at: u64,
    /// Its end, if it ended.
    pub ended: Option<u64>,
    /// The channel: `smtp` or `hook`.
    pub channel: String,
    /// The address of the inbox.
    pub inbox: String,
    /// Its Message-ID with angle brackets. Only attempts with the same mail share it.
    pub message_id: String,
    /// The sender.
    pub sender: String,
    /// The code in it; empty if none.
    pub code: String,
    /// The kind of author, for mail that may need a reply: `person`, `machine`, `soft` (it only looks automatic) or
    /// `own`.
    #[serde(default)]
    pub kind: String,
    /// Whether it was acknowledged.
    pub acknowledged: bool,
}

/// One attempt of an agent to consume a sender's code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumeTry {
    /// Its start.
    pub at: u64,
    /// Its end, if it ended.
    pub ended: Option<u64>,
    /// The team of its credential.
    pub team: String,
    /// The address of the inbox.
    pub inbox: String,
    /// The sender of the code.
    pub sender: String,
    /// The consumer.
    pub purpose: String,
    /// The consumed code, if any.
    pub consumed: Option<ConsumedCode>,
    /// The error code; empty on success or without a reply.
    pub refused: String,
}

/// A consumed code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumedCode {
    /// The artifact.
    pub artifact: String,
    /// Its value.
    pub value: String,
}

/// A message at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its id.
    pub id: String,
    /// Its team.
    pub team: String,
    /// The address of its inbox.
    pub inbox: String,
    /// Its number in the inbox.
    pub seq: u64,
    /// Its Message-ID.
    pub message_id: String,
    /// Whether it was answered; empty if the test did not read it.
    #[serde(default)]
    pub state: String,
    /// Whether it was offered to agents too often.
    #[serde(default)]
    pub dead: bool,
}

/// An artifact at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its id.
    pub id: String,
    /// The address of its inbox.
    pub inbox: String,
    /// The sender.
    pub sender: String,
    /// Its value; empty if the test may not see it.
    pub value: String,
    /// When it was found, in milliseconds since 1970 of ledger time.
    pub found_at: i64,
    /// Its consumer, if any.
    pub consumed_for: Option<String>,
}

/// A delivery at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownDelivery {
    /// Its id.
    pub id: String,
    /// Its state: `waiting`, `done`, `duplicate`, `refused`, `dead`.
    pub state: String,
    /// The channel, as in [`DeliveryTry::channel`].
    pub channel: String,
    /// Why it has no message of its own; empty otherwise.
    pub reason: String,
    /// The delivery that it repeats, if any.
    pub of: Option<String>,
    /// The message that it created or repeats, if any.
    pub message: Option<String>,
}

/// Everything about received mail.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundHistory {
    /// Delivery attempts in the order in which they started.
    pub delivery_tries: Vec<DeliveryTry>,
    /// Consume calls in the order in which they started.
    pub consume_tries: Vec<ConsumeTry>,
    /// The messages at the end.
    pub messages: Vec<Message>,
    /// The artifacts at the end.
    pub artifacts: Vec<Artifact>,
    /// The deliveries at the end.
    pub deliveries: Vec<ShownDelivery>,
}
