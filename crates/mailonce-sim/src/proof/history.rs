//! What a test observed.
//!
//! Every record has a position `at` in one order: a counter, or a monotonic clock. Ids, keys and teams are strings, so
//! that a history can come from the API or be written by hand. Fields that a test cannot observe stay empty; the
//! invariants that need them are not checked then.

pub use crate::proof::claim_history::{ClaimCall, ClaimCallKind, ClaimEffect, ClaimHistory, ClaimReply, ClaimRow};
pub use crate::proof::conversation_history::{
    ConversationChange, ConversationCommit, ConversationHistory, EscalationRow, ReplyLimits, ReplyRecord,
};
pub use crate::proof::inbound_history::{
    Artifact, ConsumeTry, ConsumedCode, DeliveryTry, InboundHistory, Message, ShownDelivery,
};
pub use crate::proof::ledger_rows::{Attempt, Email, Event, Evidence, Handoff};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that a test observed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The next hops by transport.
    pub hops: BTreeMap<String, HopCapability>,
    /// Calls in the order in which they started.
    pub calls: Vec<CallRecord>,
    /// Arrivals at next hops, in order.
    pub arrivals: Vec<HopArrival>,
    /// Injected faults.
    pub faults: Vec<FaultRecord>,
    /// Times at which a process was stopped or killed. Recorded times may lag behind their commits there.
    #[serde(default)]
    pub stalls: Vec<(u64, u64)>,
    /// Transitions of handoffs in commit order, if the test sees them.
    pub moves: Vec<HandoffTransition>,
    /// Clock readings of processes, if the test took them.
    pub readings: Vec<ReportedTime>,
    /// The emails at the end.
    pub emails: Vec<Email>,
    /// The events at the end, in order for each team.
    pub events: Vec<Event>,
    /// Webhooks that endpoints received.
    pub webhooks: WebhookHistory,
    /// Received mail.
    pub inbound: InboundHistory,
    /// Conversations about received mail.
    pub conversations: ConversationHistory,
    /// Claims of side effects.
    #[serde(default)]
    pub claims: ClaimHistory,
    /// Whether the end was read after all faults ended and enough time passed.
    pub healed: bool,
}

/// What a next hop can do against duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HopCapability {
    /// It remembers keys for this many milliseconds.
    Keyed(u64),
    /// It can be searched.
    Asked,
    /// Nothing.
    Blind,
}

/// The operation of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallKind {
    /// Accept one email.
    Send,
    /// Accept a batch.
    Batch,
    /// Cancel an email.
    Cancel,
    /// Resend an email.
    Resend,
    /// Resolve an unknown outcome.
    Resolve,
    /// Report a provider event.
    Report,
    /// Forget a key.
    Forget,
    /// Read an email.
    Look,
    /// Reply to a message, or forward it.
    Reply,
}

/// An email that a call should create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedEmail {
    /// Its recipients, without names.
    pub to: Vec<String>,
    /// A hash of its content. Equal contents have equal hashes.
    pub body: u64,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallOutcome {
    /// It succeeded, now or earlier.
    Ok {
        /// Whether this call created the emails.
        first: bool,
        /// One id per expected email, in order; for other operations the ids of the reply.
        ids: Vec<String>,
    },
    /// It was refused.
    Fail {
        /// The status.
        status: u16,
        /// The error code.
        code: String,
    },
    /// Unknown: no reply, or one that leaves it open.
    Info,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Its start.
    pub at: u64,
    /// Its end, if it ended.
    pub ended: Option<u64>,
    /// The team of its credential.
    pub team: String,
    /// The operation.
    pub verb: CallKind,
    /// Its key, if it has one. Two calls of a team with one key mean the same.
    pub key: Option<String>,
    /// The email it is about, if any.
    pub about: Option<String>,
    /// The emails that it should create.
    pub wanted: Vec<ExpectedEmail>,
    /// Whether other content under its key is accepted as a repeat.
    pub forgives: bool,
    /// Error codes that are allowed. Any other error is a violation.
    pub may_fail: Vec<String>,
    /// Whether it must fail or get no reply, because it is not allowed.
    pub must_fail: bool,
    /// The outcome.
    pub end: CallOutcome,
}

/// A mail or request that reached a next hop.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopArrival {
    /// Its position.
    pub at: u64,
    /// The transport.
    pub transport: String,
    /// The email, if known.
    pub email: String,
    /// The number of its handoff, if known.
    pub handoff: Option<u16>,
    /// Its Message-ID with angle brackets; empty if the next hop does not see it.
    pub message_id: String,
    /// The provider key.
    pub key: Option<String>,
    /// A hash of its bytes.
    pub bytes: u64,
    /// Its recipients, without names.
    pub to: Vec<String>,
    /// Whether it became a mail. A recognized repeat and a refused request did not.
    pub taken: bool,
    /// Whether it came before the scheduled time.
    pub early: bool,
    /// Whether a process that runs at the end knows that it was accepted.
    pub is_known_accepted: bool,
}

/// An injected fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Its position.
    pub at: u64,
    /// Its kind.
    pub kind: String,
    /// Whether it may cause an unknown outcome.
    pub ambiguous: bool,
    /// The emails that it may affect. Empty: any.
    pub emails: Vec<String>,
}

/// A transition of a handoff in one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffTransition {
    /// Its position.
    pub at: u64,
    /// The email.
    pub email: String,
    /// The handoff's number.
    pub handoff: u16,
    /// The state before; empty for a new handoff.
    pub from: String,
    /// The state after.
    pub to: String,
    /// The fence after.
    pub fence: u64,
    /// The email's revision after.
    pub rev: u32,
}

/// The webhooks of endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookHistory {
    /// Teams with an endpoint, and the last event number that it should have received. Later events are not checked.
    pub owed: BTreeMap<String, u64>,
    /// The received webhooks, in order.
    pub received: Vec<ReceivedWebhook>,
}

/// A received webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedWebhook {
    /// The team of the endpoint.
    pub team: String,
    /// The id of the notice.
    pub id: String,
    /// The id of the event.
    pub event: String,
    /// The id of the event's subject.
    pub about: String,
    /// The number of the event.
    pub seq: u64,
    /// Whether the signature is valid.
    pub signed: bool,
}

/// A clock reading of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedTime {
    /// Its position.
    pub at: u64,
    /// The process.
    pub process: String,
    /// Ledger time, in milliseconds.
    pub time: i64,
}

impl History {
    /// Records the start of a call and returns its index.
    pub fn begin_call(&mut self, call: CallRecord) -> usize {
        self.calls.push(call);
        self.calls.len() - 1
    }

    /// Records the outcome of a call.
    pub fn end_call(&mut self, call: usize, at: u64, end: CallOutcome) {
        if let Some(call) = self.calls.get_mut(call) {
            (call.ended, call.end) = (Some(at), end);
        }
    }
}

impl CallRecord {
    /// A call that has not ended and must not fail.
    pub fn new(at: u64, team: &str, verb: CallKind) -> Self {
        Self {
            at,
            ended: None,
            team: team.to_owned(),
            verb,
            key: None,
            about: None,
            wanted: Vec::new(),
            forgives: false,
            may_fail: Vec::new(),
            must_fail: false,
            end: CallOutcome::Info,
        }
    }
}
