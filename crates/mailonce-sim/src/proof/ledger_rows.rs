//! The final ledger: emails with their handoffs, attempts and evidence, and events.

use serde::{Deserialize, Serialize};

/// An email at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Email {
    /// Its id.
    pub id: String,
    /// Its team.
    pub team: String,
    /// Its displayed key; empty without one.
    pub key: String,
    /// How often its key was bound, this time included; 0 if unknown.
    pub bind: u32,
    /// Its recipients, without names.
    pub to: Vec<String>,
    /// The hash of its content, as in [`super::history::ExpectedEmail::body`]; `None` if unknown.
    pub body: Option<u64>,
    /// Its Message-ID; empty if the test did not read it.
    pub message_id: String,
    /// Its state.
    pub state: String,
    /// Its revision; 0 if the test did not read it.
    pub rev: u32,
    /// Whether its policy for unknown outcomes is `resend`.
    pub resend: bool,
    /// Its intent with version and period; empty without one.
    pub intent: String,
    /// The message that it answers or forwards; empty without one.
    #[serde(default)]
    pub answers: String,
    /// The email that it resends; empty without one.
    #[serde(default)]
    pub resend_of: String,
    /// Its handoffs.
    pub handoffs: Vec<Handoff>,
}

/// A handoff at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// Its number.
    pub number: u16,
    /// The transport.
    pub transport: String,
    /// Its recipients.
    pub to: Vec<String>,
    /// Its state.
    pub state: String,
    /// Whether `may_duplicate` is set.
    pub may_duplicate: bool,
    /// Whether it is scheduled for later.
    pub later: bool,
    /// Whether its next hop would have revealed the outcome by now, so that it must not be unknown any more.
    pub decidable: bool,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// Evidence in the order in which it was recorded.
    pub evidence: Vec<Evidence>,
}

/// An attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// Its fence, if known.
    pub fence: Option<u64>,
    /// Its outcome; empty while it runs.
    pub outcome: String,
    /// The time of its marker in milliseconds of ledger time, if known.
    #[serde(default)]
    pub at_ms: Option<i64>,
    /// When its outcome was recorded.
    #[serde(default)]
    pub ended_ms: Option<i64>,
}

/// Evidence of what a next hop did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Its source.
    pub source: String,
    /// Its finding.
    pub says: String,
    /// The id under which it counts once; empty without one.
    pub once: String,
    /// When it was recorded, in milliseconds of ledger time, if known.
    #[serde(default)]
    pub at_ms: Option<i64>,
}

/// An event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its position in the history; 0 if it was read at the end only.
    pub at: u64,
    /// Its team.
    pub team: String,
    /// Its number in the team's log.
    pub seq: u64,
    /// Its id.
    pub id: String,
    /// Its type.
    pub kind: String,
    /// The id of its subject.
    pub about: String,
    /// The revision of its subject; 0 if the test did not read it.
    pub rev: u32,
}
