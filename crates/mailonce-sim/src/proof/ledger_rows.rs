//! What the ledger shows in the end: emails with their handoffs, attempts and evidence, and events.

use serde::{Deserialize, Serialize};

/// An email as it is in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Email {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub team: String,
    /// Its key as it is shown; empty without one.
    pub key: String,
    /// How often its key was bound, this time included; 0 when the rig cannot tell.
    pub bind: u32,
    /// Its recipients, bare.
    pub to: Vec<String>,
    /// The hash of what it says, in the way of [`Wanted::body`]; `None` when the rig cannot tell.
    pub body: Option<u64>,
    /// Its Message-ID; empty when the rig did not read it.
    pub message_id: String,
    /// Its state.
    pub state: String,
    /// How often it changed; 0 when the rig did not read it.
    pub rev: u32,
    /// Whether it asks to be resent when its outcome stays unknown.
    pub resend: bool,
    /// The intent it is about, version and period included; empty without one.
    pub intent: String,
    /// The message that it answers or passes on; empty without one.
    #[serde(default)]
    pub answers: String,
    /// The email of which it is the next version; empty without one.
    #[serde(default)]
    pub resend_of: String,
    /// Its handoffs.
    pub handoffs: Vec<Handoff>,
}

/// A handoff as it is in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// Its number.
    pub number: u16,
    /// The way out.
    pub transport: String,
    /// Whom it is for.
    pub to: Vec<String>,
    /// Its state.
    pub state: String,
    /// Whether it says that the recipient may have it twice.
    pub may_duplicate: bool,
    /// Whether its time has not come yet.
    pub later: bool,
    /// Whether its next hop would have told by now what became of it, so that it must not be unknown any more.
    pub decidable: bool,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// Facts about it, in the order in which they were learnt.
    pub evidence: Vec<Evidence>,
}

/// One try.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    /// The fence it was made under, if the rig can tell.
    pub fence: Option<u64>,
    /// How it ended; empty while it is on the wire.
    pub outcome: String,
    /// When it was marked, in milliseconds of ledger time, if the rig can tell.
    #[serde(default)]
    pub at_ms: Option<i64>,
    /// When its answer was written down.
    #[serde(default)]
    pub ended_ms: Option<i64>,
}

/// A fact about what a next hop did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Where it came from.
    pub source: String,
    /// What it says.
    pub says: String,
    /// The name under which it counts once; empty without one.
    pub once: String,
    /// When it was written down, in milliseconds of ledger time, if the rig can tell.
    #[serde(default)]
    pub at_ms: Option<i64>,
}

/// An event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in the order of the rig; 0 when it was only read in the end.
    pub at: u64,
    /// Whose it is.
    pub team: String,
    /// Its number in the team's order.
    pub seq: u64,
    /// Its id.
    pub id: String,
    /// What happened.
    pub kind: String,
    /// The id of what it is about.
    pub about: String,
    /// That thing's rev; 0 when the rig did not read it.
    pub rev: u32,
}
