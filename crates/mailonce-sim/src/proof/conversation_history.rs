//! Conversations: the commits about them in order, and the escalations at the end.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The reply limits of an inbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyLimits {
    /// The limit that is probably reached first, for statistics.
    pub tight: String,
    /// Replies per thread and window.
    pub per_window: usize,
    /// The window, in milliseconds.
    pub window_ms: i64,
    /// Replies per thread and day.
    pub per_day: usize,
    /// Replies per person and day.
    pub per_person: usize,
    /// Replies per thread in all, if limited.
    #[serde(default)]
    pub per_thread: Option<usize>,
    /// Whether mail that only looks automatic gets replies.
    pub answers_soft: bool,
}

/// One commit about a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationCommit {
    /// Its position in the history.
    pub at: u64,
    /// The caller's ledger time.
    pub now: i64,
    /// The change.
    pub change: ConversationChange,
}

/// The change of one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConversationChange {
    /// A message was filed.
    Filed {
        /// The message.
        message: String,
        /// Its thread.
        thread: String,
        /// Its number in the inbox.
        seq: u64,
        /// Its Message-ID.
        message_id: String,
    },
    /// A lease was granted.
    Leased {
        /// The thread.
        thread: String,
        /// The token of the lease.
        token: String,
        /// Its expiry.
        until: i64,
        /// Its fence.
        fence: u64,
        /// The message that was leased with it, if any.
        offered: Option<String>,
    },
    /// The latest lease of a thread was extended.
    Extended {
        /// The thread.
        thread: String,
        /// The token.
        token: String,
        /// The new expiry.
        until: i64,
    },
    /// The latest lease of a thread was released.
    Released {
        /// The thread.
        thread: String,
        /// The token.
        token: String,
    },
    /// An agent acknowledged a message.
    Acked(String),
    /// An agent postponed a message.
    Postponed(String, i64),
    /// A message was answered or forwarded.
    Answered(ReplyRecord),
    /// A repeat: the message had been answered before.
    Again {
        /// The message.
        message: String,
        /// The slot.
        slot: String,
        /// The email of the earlier reply.
        email: String,
    },
    /// A guard refused a reply.
    Refused {
        /// The guard.
        guard: String,
        /// The refused reply; its email is empty.
        reply: ReplyRecord,
    },
    /// An email without a key was accepted.
    Keyless {
        /// The email.
        email: String,
        /// The guard that holds it; empty if none does.
        guard: String,
    },
}

/// A reply to a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyRecord {
    /// The message.
    pub message: String,
    /// The slot: `reply 0` for the first reply, `forward …` for a forward.
    pub slot: String,
    /// The lease token of the caller.
    pub token: Option<String>,
    /// Newer messages that the caller has seen.
    pub seen: Vec<String>,
    /// Its idempotency key, if any.
    pub key: Option<String>,
    /// The resulting email.
    pub email: String,
    /// The guard that holds it; empty if none does.
    pub guard: String,
}

impl ReplyRecord {
    /// Whether it goes to the author of the message.
    pub fn is_reply(&self) -> bool {
        self.slot.starts_with("reply")
    }
}

/// An escalation at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscalationRow {
    /// Its reason.
    pub reason: String,
    /// Its email, or empty.
    pub email: String,
    /// Its message, or empty.
    pub message: String,
}

/// Everything about conversations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationHistory {
    /// The reply limits of inboxes with agents, by address.
    pub limits_by_inbox: BTreeMap<String, ReplyLimits>,
    /// The commits in order. Empty if the test cannot see them; then nothing is checked.
    pub commits: Vec<ConversationCommit>,
    /// The escalations at the end.
    pub escalations: Vec<EscalationRow>,
}

impl ConversationHistory {
    /// How often each kind of change happened: refusals by guard, and actions of agents.
    pub fn count_by_kind(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        let tight = self.limits_by_inbox.values().next().map_or("", |limits| limits.tight.as_str());
        for commit in &self.commits {
            let words = match &commit.change {
                ConversationChange::Filed { .. } => vec!["filed".to_owned()],
                ConversationChange::Leased { offered: Some(_), .. } => vec!["offered".to_owned()],
                ConversationChange::Leased { .. } => vec!["leased by hand".to_owned()],
                ConversationChange::Extended { .. } => vec!["extended".to_owned()],
                ConversationChange::Released { .. } => vec!["released".to_owned()],
                ConversationChange::Acked(_) => vec!["acked".to_owned()],
                ConversationChange::Postponed(..) => vec!["postponed".to_owned()],
                ConversationChange::Answered(answer) => {
                    let capped = (answer.guard == "cap").then(|| format!("cap of the {tight}"));
                    let label = if answer.is_reply() { "answered" } else { "passed on" };
                    [Some(label.to_owned()), capped].into_iter().flatten().collect()
                }
                ConversationChange::Again { .. } => vec!["already_answered".to_owned()],
                ConversationChange::Refused { guard, reply } => {
                    let stale = guard == "leased" && reply.token.is_some();
                    vec![if stale { "stale lease".to_owned() } else { guard.clone() }]
                }
                ConversationChange::Keyless { guard, .. } if guard.is_empty() => Vec::new(),
                ConversationChange::Keyless { guard, .. } => vec![guard.clone()],
            };
            words.into_iter().for_each(|label| *counts.entry(label).or_default() += 1);
        }
        for escalation in &self.escalations {
            *counts.entry(format!("asked about {}", escalation.reason)).or_default() += 1;
        }
        counts
    }
}
