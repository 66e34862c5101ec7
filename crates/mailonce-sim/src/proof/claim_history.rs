//! Claims: calls of workers and people, side effects that began, and the claims at the end.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a call about a claim asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimCallKind {
    /// The claim itself.
    Acquire {
        /// What happens when the holder is lost: `hold` or `retry`.
        on_unknown: String,
        /// The fingerprint; empty if none.
        fingerprint: String,
        /// The duration of the lease, in milliseconds.
        lease_ms: i64,
    },
    /// To begin, under this fence.
    Begin(u64),
    /// Another end of the lease, under this fence.
    Renew {
        /// The fence.
        fence: u64,
        /// The duration of the lease from now, in milliseconds.
        lease_ms: i64,
    },
    /// To record the result of the side effect, under this fence.
    Complete(u64, String),
    /// To record that the side effect did not happen, under this fence.
    Fail {
        /// The fence.
        fence: u64,
        /// Whether the next worker may try.
        retryable: bool,
    },
    /// To record that a look-up found the side effect, with its result.
    Found(String),
    /// A person's decision: `done`, `retry` or `abandon`.
    Resolve(String),
}

/// The reply to a call about a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimReply {
    /// The worker has the claim.
    Won {
        /// The fence of its lease.
        fence: u64,
        /// Whether an earlier worker may have performed the side effect.
        may_repeat: bool,
    },
    /// The claim ended before.
    Ended {
        /// Its state.
        state: String,
        /// Its result, if it has one.
        result: Option<String>,
    },
    /// The command or fact was recorded.
    Recorded,
    /// The call was refused with this code.
    Refused(String),
    /// No reply.
    #[default]
    None,
}

/// One call about a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimCall {
    /// Its start.
    pub at: u64,
    /// The true time of its start, in milliseconds.
    pub started_ms: i64,
    /// Its end, if it ended.
    pub ended: Option<u64>,
    /// The true time of its end, in milliseconds.
    pub ended_ms: i64,
    /// The team of its credential.
    pub team: String,
    /// The key of the claim.
    pub key: String,
    /// The worker or person.
    pub caller: String,
    /// What it asks for.
    pub kind: ClaimCallKind,
    /// The reply.
    pub reply: ClaimReply,
}

/// The beginning of a side effect, as the system that performs it counts it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimEffect {
    /// Its position.
    pub at: u64,
    /// The team.
    pub team: String,
    /// The key of the claim.
    pub key: String,
    /// The worker.
    pub worker: String,
    /// The fence of its lease.
    pub fence: u64,
}

/// A claim at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRow {
    /// Its id.
    pub id: String,
    /// Its team.
    pub team: String,
    /// Its key.
    pub key: String,
    /// Its state.
    pub state: String,
    /// Whether a worker has it.
    pub leased: bool,
    /// Its fingerprint; empty if none.
    pub fingerprint: String,
    /// Its result, if it has one.
    pub result: Option<String>,
    /// Whether a person is asked about it.
    pub escalated: bool,
}

/// Everything about claims.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimHistory {
    /// Calls in the order in which they started.
    pub calls: Vec<ClaimCall>,
    /// Side effects in the order in which they began.
    pub effects: Vec<ClaimEffect>,
    /// The claims at the end.
    pub claims: Vec<ClaimRow>,
}

impl ClaimHistory {
    /// How many side effects began, under a first lease and under later ones, and how many claims ended in each state.
    pub fn count_by_kind(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for effect in &self.effects {
            let what = if effect.fence == 1 { "begun" } else { "begun under a later lease" };
            *counts.entry(what.to_owned()).or_default() += 1;
        }
        for claim in &self.claims {
            *counts.entry(format!("ended as {}", claim.state)).or_default() += 1;
        }
        counts
    }
}
