//! What a rig saw.
//!
//! Every line has a place `at` in one order of the rig's own: a counter, or a clock that never goes back. Ids, keys
//! and teams are words, so that a history can be read by the API as well as by hand. What a rig cannot see it leaves
//! empty; the promises that need it are then not judged.

pub use crate::proof::conversation_history::{
    ConversationChange, ConversationCommit, ConversationHistory, EscalationRow, ReplyLimits, ReplyRecord,
};
pub use crate::proof::inbound_history::{
    Artifact, ConsumeTry, ConsumedCode, DeliveryTry, InboundHistory, Message, ShownDelivery,
};
pub use crate::proof::ledger_rows::{Attempt, Email, Event, Evidence, Handoff};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything a rig saw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The next hops, by the name of the transport that leads there.
    pub hops: BTreeMap<String, HopCapability>,
    /// Calls, in the order in which they began.
    pub calls: Vec<CallRecord>,
    /// What next hops got, in order.
    pub arrivals: Vec<HopArrival>,
    /// Faults that the rig made.
    pub faults: Vec<FaultRecord>,
    /// Spans in which a process was stopped or ended: times on record may lag behind their commits there.
    #[serde(default)]
    pub stalls: Vec<(u64, u64)>,
    /// Changes of handoffs in the order of their commits, if the rig sees them.
    pub moves: Vec<HandoffTransition>,
    /// What processes said that time is, if the rig asked.
    pub readings: Vec<ReportedTime>,
    /// The emails as they are in the end.
    pub emails: Vec<Email>,
    /// The events as they are in the end: each team's in its order.
    pub events: Vec<Event>,
    /// What endpoints were told.
    pub webhooks: WebhookHistory,
    /// Mail that came in.
    pub inbound: InboundHistory,
    /// Conversations about mail that came in.
    pub talk: ConversationHistory,
    /// Whether the end was read after every fault was healed and enough time had passed.
    pub healed: bool,
}

/// What a next hop can do against a second mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HopCapability {
    /// It takes a key and remembers it for so many milliseconds.
    Keyed(u64),
    /// It can be asked.
    Asked,
    /// Nothing.
    Blind,
}

/// What a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallKind {
    /// Accept one email.
    Send,
    /// Accept several, or none.
    Batch,
    /// Take one back.
    Cancel,
    /// Make the next version of one.
    Resend,
    /// Decide what became of one.
    Resolve,
    /// Tell what a next hop did with one.
    Report,
    /// Forget a key.
    Forget,
    /// Show one.
    Look,
    /// Answer a message, or pass it on.
    Reply,
}

/// One email that a call asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedEmail {
    /// Its recipients, bare.
    pub to: Vec<String>,
    /// A hash of what it says. Equal meanings have equal ones.
    pub body: u64,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallOutcome {
    /// It did what was asked, now or before.
    Ok {
        /// Whether this call made the emails.
        first: bool,
        /// One id per email that was wanted, in order; for other verbs the ids in the answer.
        ids: Vec<String>,
    },
    /// It was refused.
    Fail {
        /// The status.
        status: u16,
        /// The word to branch on.
        code: String,
    },
    /// Nobody knows: no answer came, or one that says that it cannot tell.
    Info,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// When it began.
    pub at: u64,
    /// When it ended, if it did.
    pub ended: Option<u64>,
    /// Whose credential it came with.
    pub team: String,
    /// What it asks for.
    pub verb: CallKind,
    /// Its key, if it has one. Two calls with one key and team mean one thing.
    pub key: Option<String>,
    /// The email it is about, for verbs that name one.
    pub about: Option<String>,
    /// The emails that it asks for.
    pub wanted: Vec<ExpectedEmail>,
    /// Whether other words under its key are forgiven.
    pub forgives: bool,
    /// Codes with which it may be refused. Any other refusal is a violation.
    pub may_fail: Vec<String>,
    /// Whether it must be refused, or not be answered: the rig knows that what it asks for is not allowed.
    pub must_fail: bool,
    /// How it ended.
    pub end: CallOutcome,
}

/// One mail or request that reached a next hop.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopArrival {
    /// When.
    pub at: u64,
    /// The transport by which it came.
    pub transport: String,
    /// The email, if the rig can tell.
    pub email: String,
    /// The number of its handoff, if the rig can tell.
    pub handoff: Option<u16>,
    /// Its Message-ID, with angle brackets; empty when the next hop does not see it.
    pub message_id: String,
    /// The key it came with.
    pub key: Option<String>,
    /// A hash of its bytes.
    pub bytes: u64,
    /// Its recipients, bare.
    pub to: Vec<String>,
    /// Whether it became a mail. A repeat that was recognised, or a request that was refused, did not.
    pub taken: bool,
    /// Whether it came before the time that the email was scheduled for.
    pub early: bool,
    /// Whether a process that lives in the end heard that it is taken.
    pub heard: bool,
}

/// A fault that the rig made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// When.
    pub at: u64,
    /// What it did.
    pub kind: String,
    /// Whether it may leave an outcome that nobody can tell.
    pub ambiguous: bool,
    /// The emails it can have touched. Empty: any.
    pub emails: Vec<String>,
}

/// A change of one handoff, as one commit made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffTransition {
    /// When.
    pub at: u64,
    /// The email.
    pub email: String,
    /// The handoff's number.
    pub handoff: u16,
    /// The state before; empty when it was made by this commit.
    pub from: String,
    /// The state after.
    pub to: String,
    /// The fence after.
    pub fence: u64,
    /// The email's rev after.
    pub rev: u32,
}

/// What endpoints were told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookHistory {
    /// Teams with an endpoint, and the number up to which it is owed every event. What lies beyond is not judged.
    pub owed: BTreeMap<String, u64>,
    /// What came, in order.
    pub came: Vec<ReceivedWebhook>,
}

/// A webhook as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedWebhook {
    /// Whose endpoint it came to.
    pub team: String,
    /// The id of the notice.
    pub id: String,
    /// The id of the event.
    pub event: String,
    /// What the event is about.
    pub about: String,
    /// The number of the event.
    pub seq: u64,
    /// Whether the signature holds.
    pub signed: bool,
}

/// What a process said that time is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedTime {
    /// When.
    pub at: u64,
    /// Which process: one life of a node.
    pub process: String,
    /// Ledger time, in milliseconds.
    pub time: i64,
}

impl History {
    /// Notes that a call begins, and says under which number.
    pub fn begin_call(&mut self, call: CallRecord) -> usize {
        self.calls.push(call);
        self.calls.len() - 1
    }

    /// Notes how a call ended, and when.
    pub fn end_call(&mut self, call: usize, at: u64, end: CallOutcome) {
        if let Some(call) = self.calls.get_mut(call) {
            (call.ended, call.end) = (Some(at), end);
        }
    }
}

impl CallRecord {
    /// A call that has not ended yet and may not be refused.
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
