//! Conversations: what was committed about them, in order, and the questions for people that stand in the end.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limits that an inbox lives by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyLimits {
    /// The limit that is likely to be reached first, for the count.
    pub tight: String,
    /// Answers in a thread within the window.
    pub per_window: usize,
    /// The window, in milliseconds.
    pub window_ms: i64,
    /// Answers in a thread within a day.
    pub per_day: usize,
    /// Answers to one person within a day.
    pub per_person: usize,
    /// Answers in a thread in all, where there is such a limit.
    #[serde(default)]
    pub per_thread: Option<usize>,
    /// Whether mail that only looks automatic is answered.
    pub answers_soft: bool,
}

/// One commit about a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationCommit {
    /// When, in the order of the rig.
    pub at: u64,
    /// When, by the ledger time of whoever asked.
    pub now: i64,
    /// What it did.
    pub did: ConversationChange,
}

/// What one commit did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConversationChange {
    /// A message was filed.
    Came {
        /// The message.
        message: String,
        /// Its thread.
        thread: String,
        /// Its number in the inbox.
        seq: u64,
        /// Its Message-ID.
        message_id: String,
    },
    /// A lease was taken.
    Leased {
        /// Of this thread.
        thread: String,
        /// The token of the lease.
        token: String,
        /// When it lapses.
        until: i64,
        /// Its fence.
        fence: u64,
        /// The message that was offered with it, if one was.
        offered: Option<String>,
    },
    /// The latest lease of a thread was given more time.
    Extended {
        /// The thread.
        thread: String,
        /// The token that was shown.
        token: String,
        /// When it lapses now.
        until: i64,
    },
    /// The latest lease of a thread was given back.
    Released {
        /// The thread.
        thread: String,
        /// The token that was shown.
        token: String,
    },
    /// An agent is done with a message.
    Acked(String),
    /// An agent put a message off until then.
    PutOff(String, i64),
    /// A message was answered or passed on.
    Answered(ReplyRecord),
    /// A message had been answered before.
    Again {
        /// The message.
        message: String,
        /// What of it.
        slot: String,
        /// By this email.
        email: String,
    },
    /// A guard refused an answer.
    Refused {
        /// The guard.
        guard: String,
        /// What was wanted; its email is empty.
        reply: ReplyRecord,
    },
    /// An email without a key was accepted.
    Keyless {
        /// The email.
        email: String,
        /// The guard that holds it; empty when none does.
        guard: String,
    },
}

/// An answer to a message, as it was wanted and what it became.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyRecord {
    /// The message.
    pub message: String,
    /// What of it: `reply 0` for the first answer, `forward …` for passing it on.
    pub slot: String,
    /// The token of the lease that was shown.
    pub token: Option<String>,
    /// Newer messages that its writer knew of.
    pub seen: Vec<String>,
    /// Its key, if it came with one.
    pub key: Option<String>,
    /// The email it became.
    pub email: String,
    /// The guard that holds it; empty when none does.
    pub guard: String,
}

impl ReplyRecord {
    /// Whether it goes to who wrote the message.
    pub fn is_reply(&self) -> bool {
        self.slot.starts_with("reply")
    }
}

/// A question for a person, as it is in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscalationRow {
    /// Why it is asked.
    pub reason: String,
    /// The email it is about, or empty.
    pub email: String,
    /// The message it is about, or empty.
    pub message: String,
}

/// Everything about conversations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationHistory {
    /// Inboxes that agents answer from, by address.
    pub desks: BTreeMap<String, ReplyLimits>,
    /// What was committed, in order. Empty when the rig cannot see it: then nothing is judged.
    pub steps: Vec<ConversationCommit>,
    /// The questions in the end.
    pub questions: Vec<EscalationRow>,
}

impl ConversationHistory {
    /// How often each thing happened: the guards by their words, and what agents did.
    pub fn count_by_kind(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        let tight = self.desks.values().next().map_or("", |limits| limits.tight.as_str());
        for step in &self.steps {
            let words = match &step.did {
                ConversationChange::Came { .. } => vec!["came".to_owned()],
                ConversationChange::Leased { offered: Some(_), .. } => vec!["offered".to_owned()],
                ConversationChange::Leased { .. } => vec!["leased by hand".to_owned()],
                ConversationChange::Extended { .. } => vec!["extended".to_owned()],
                ConversationChange::Released { .. } => vec!["released".to_owned()],
                ConversationChange::Acked(_) => vec!["acked".to_owned()],
                ConversationChange::PutOff(..) => vec!["put off".to_owned()],
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
        for question in &self.questions {
            *counts.entry(format!("asked about {}", question.reason)).or_default() += 1;
        }
        counts
    }
}
