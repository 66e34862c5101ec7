//! Threads: messages and emails that reply to each other, and the lease by which one agent at a time works on them.
//!
//! A lease only decides who works on a thread. An agent that lost it is refused by its fencing token. Duplicate replies
//! are prevented independently of the lease, because each message is answered once.

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;

use super::{caps::RecentReplyTimes, message_progress::Acknowledgement};
use crate::{
    control::erasure::AddressEraser,
    events::event::{EventKind, NewEvent},
    id::{InboxId, MessageId, TeamId, ThreadId},
    inbox::message::{Message, MessageState},
    mutant,
    time::Time,
};

/// The number of latest messages from people that a thread tracks by id.
const MAX_TRACKED_MESSAGES: usize = 50;

/// Messages and emails that reply to each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its id.
    pub id: ThreadId,
    /// Its team.
    pub team: TeamId,
    /// Its inbox.
    pub inbox: InboxId,
    /// The revision. Each change increases it.
    pub rev: u32,
    /// When a message or email was last added.
    pub last_activity_at: Time,
    /// Everything else.
    pub details: ThreadDetails,
}

/// The details of a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadDetails {
    /// The subject of its first message.
    pub subject: String,
    /// When it began.
    pub created_at: Time,
    /// Labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// When it was marked as handled. A new message resets this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_at: Option<Time>,
    /// The number of messages.
    pub messages: u32,
    /// The number of emails.
    pub emails: u32,
    /// The latest messages from people, by number, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub people: Vec<(u64, MessageId)>,
    /// The fencing token of its latest lease.
    pub fence: u64,
    /// Its latest lease, unless it was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<ThreadLease>,
    /// When it was recently answered.
    #[serde(default)]
    pub sends: RecentReplyTimes,
    /// The total number of replies.
    #[serde(default)]
    pub sent: u32,
}

/// The right of one agent to work on a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLease {
    /// The hash of its holder's token.
    pub token: String,
    /// The display name of its holder.
    pub holder: String,
    /// When it expires.
    pub expires_at: Time,
    /// The message with which it was offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
}

/// A request for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadLeaseSpec {
    /// The token hash of the lease to renew.
    pub renew: Option<String>,
    /// The token hash of a new lease.
    pub token: String,
    /// The display name of the requester.
    pub holder: String,
    /// The duration, in milliseconds.
    pub ttl_ms: i64,
}

/// The result of requesting a lease.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum ThreadLeaseResult {
    /// Acquired or renewed.
    Leased(Thread),
    /// Another agent holds it.
    Busy(Thread),
    /// The lease to renew is no longer the latest.
    Stale(Thread),
    /// No such thread in this team.
    Missing,
}

/// A person's change of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadEdit {
    /// All labels, in the place of those it has.
    pub labels: Option<Vec<String>>,
    /// Labels to remove.
    pub remove_labels: Vec<String>,
    /// Labels to add.
    pub add_labels: Vec<String>,
    /// Whether it is handled.
    pub handled: Option<bool>,
    /// Whether its lease ends, whoever holds it.
    pub ends_lease: bool,
}

impl Thread {
    /// Erases the subject, because a mail of the thread was erased.
    pub fn erase_subject(&mut self) {
        self.details.subject = String::new();
        self.rev += 1;
    }

    /// Replaces a person's address in the texts that others wrote: subject, labels and the holder of the lease. Returns
    /// whether it was in one.
    pub fn redact(&mut self, eraser: &AddressEraser) -> bool {
        let ThreadDetails { subject, labels, lease, .. } = &mut self.details;
        let texts = labels.iter_mut().chain([subject]).chain(lease.iter_mut().map(|lease| &mut lease.holder));
        let named = texts.filter_map(|text| eraser.redact(text).map(|redacted| *text = redacted)).count();
        self.rev += u32::from(named > 0);
        named > 0
    }

    /// The thread that a message starts.
    pub fn from_first_message(message: &Message, now: Time) -> Self {
        let about =
            ThreadDetails { subject: message.head.subject.clone(), created_at: now, ..ThreadDetails::default() };
        Self {
            id: message.thread,
            team: message.team,
            inbox: message.inbox,
            rev: 0,
            last_activity_at: now,
            details: about,
        }
    }

    /// Adds a filed message.
    pub fn add_message(&mut self, message: &Message, now: Time) {
        self.rev += 1;
        self.last_activity_at = self.last_activity_at.max(now);
        self.details.messages += 1;
        if message.state != MessageState::Skipped {
            self.details.handled_at = None;
        }
        if message.is_from_person() {
            self.details.people.push((message.seq, message.id));
            let over = self.details.people.len().saturating_sub(MAX_TRACKED_MESSAGES);
            self.details.people.drain(..over);
        }
    }

    /// Adds an email. `counts`: whether it counts as a reply now.
    pub fn add_email(&mut self, counts: bool, now: Time) {
        self.rev += 1;
        self.last_activity_at = self.last_activity_at.max(now);
        self.details.emails += 1;
        if counts {
            self.count_reply(now);
        }
    }

    /// Counts a reply that was held and then released.
    pub fn count_released_reply(&mut self, now: Time) {
        self.rev += 1;
        self.count_reply(now);
    }

    fn count_reply(&mut self, now: Time) {
        self.details.sends.record(now);
        self.details.sent += 1;
    }

    /// The lease that is valid now.
    pub fn active_lease(&self, now: Time) -> Option<&ThreadLease> {
        self.details.lease.as_ref().filter(|lease| now < lease.expires_at)
    }

    /// Whether this token belongs to its latest lease, expired or not.
    pub fn is_latest_token(&self, token: &str) -> bool {
        self.details.lease.as_ref().is_some_and(|lease| lease.token == token)
    }

    /// Messages from people after this number that are not in `seen`, oldest first.
    pub fn unseen_messages(&self, seq: u64, seen: &[MessageId]) -> impl Iterator<Item = MessageId> {
        let newer = self.details.people.iter().filter(move |(at, id)| *at > seq && !seen.contains(id));
        newer.map(|(_, id)| *id)
    }

    /// Acquires or renews the lease. An expired lease can be renewed until another agent acquires one.
    pub fn lease(
        mut self,
        ask: &ThreadLeaseSpec,
        message: Option<MessageId>,
        now: Time,
    ) -> (ThreadLeaseResult, Option<NewEvent>) {
        let expires_at = now.plus(ask.ttl_ms);
        if let Some(token) = &ask.renew {
            if !self.is_latest_token(token) {
                return (ThreadLeaseResult::Stale(self), None);
            }
            self.extend_lease(expires_at);
            return (ThreadLeaseResult::Leased(self), None);
        }
        if self.active_lease(now).is_some() && !mutant!("thread-leased-twice") {
            return (ThreadLeaseResult::Busy(self), None);
        }
        let lease = ThreadLease { token: ask.token.clone(), holder: ask.holder.clone(), expires_at, message };
        self.details.lease = Some(lease);
        self.details.fence += u64::from(!mutant!("thread-fence-stands"));
        self.rev += 1;
        let event =
            self.to_event(EventKind::ThreadLeased, json!({ "holder": ask.holder, "fence": self.details.fence }), now);
        (ThreadLeaseResult::Leased(self), Some(event))
    }

    fn extend_lease(&mut self, expires_at: Time) {
        if let Some(lease) = &mut self.details.lease {
            lease.expires_at = expires_at;
        }
        self.rev += 1;
    }

    /// Releases the lease. Returns false, without a change, when this token's lease is not the latest.
    pub fn release_lease(&mut self, token: &str) -> bool {
        if !self.is_latest_token(token) {
            return false;
        }
        self.details.lease = None;
        self.rev += 1;
        true
    }

    /// Applies an acknowledgement of a message. Returns false, without a change, when the lease is not the latest.
    pub fn acknowledge(
        &mut self,
        message: &mut Message,
        token: &str,
        how: Acknowledgement,
        now: Time,
    ) -> Option<Vec<NewEvent>> {
        if !self.is_latest_token(token) {
            return None;
        }
        match how {
            Acknowledgement::Extend { ttl_ms } => {
                self.extend_lease(now.plus(ttl_ms));
                Some(Vec::new())
            }
            Acknowledgement::Ack => {
                self.release_lease(token);
                Some(message.skip(now).into_iter().collect())
            }
            Acknowledgement::Nack { delay_ms } => {
                self.release_lease(token);
                message.postpone(now.plus(delay_ms));
                Some(Vec::new())
            }
        }
    }

    /// Applies a person's change.
    pub fn edit(&mut self, edit: ThreadEdit, now: Time) {
        self.rev += 1;
        if let Some(labels) = edit.labels {
            let mut seen = BTreeSet::new();
            self.details.labels = labels.into_iter().filter(|label| seen.insert(label.clone())).collect();
        }
        self.details.labels.retain(|label| !edit.remove_labels.contains(label));
        for label in edit.add_labels {
            if !self.details.labels.contains(&label) {
                self.details.labels.push(label);
            }
        }
        if let Some(handled) = edit.handled {
            self.details.handled_at = handled.then_some(now);
        }
        if edit.ends_lease && self.details.lease.take().is_some() {
            // Systems that the holder still writes to can tell that its fencing number is outdated.
            self.details.fence += 1;
        }
    }

    /// An event about it.
    pub fn to_event(&self, kind: EventKind, mut data: serde_json::Value, now: Time) -> NewEvent {
        data["inbox"] = json!(self.inbox);
        NewEvent { kind, at: now, subject_id: self.id.0, rev: self.rev, data }
    }
}

impl Message {
    /// Whether a person wrote it, as far as can be determined.
    pub fn is_from_person(&self) -> bool {
        self.head.automatic.is_none() && self.head.own.is_none()
    }
}

/// A filter for a list of threads, most recently active first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadQuery {
    /// In this inbox.
    pub inbox: Option<InboxId>,
    /// With this label.
    pub label: Option<String>,
    /// Handled ones, or open ones.
    pub handled: Option<bool>,
    /// After this one in the order of the list.
    pub before: Option<(Time, ThreadId)>,
    /// The maximum number of threads.
    pub limit: usize,
}

impl ThreadQuery {
    /// Whether a thread passes the filter. The page position is not checked.
    pub fn matches(&self, thread: &Thread) -> bool {
        self.inbox.is_none_or(|inbox| thread.inbox == inbox)
            && self.label.as_ref().is_none_or(|label| thread.details.labels.contains(label))
            && self.handled.is_none_or(|handled| thread.details.handled_at.is_some() == handled)
    }
}

/// A request for unanswered messages that no agent works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageLeaseSpec {
    /// In this inbox.
    pub inbox: InboxId,
    /// The display name of the requester.
    pub holder: String,
    /// The duration of each lease, in milliseconds.
    pub ttl_ms: i64,
    /// The token hashes of the leases. At most this many messages are leased.
    pub tokens: Vec<String>,
}

/// A message leased to an agent. The lease is in its thread.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageOffer {
    /// The message.
    pub message: Message,
    /// Its thread.
    pub thread: Thread,
    /// The index of its lease's token.
    pub token_index: usize,
}

/// The result of acknowledging a message.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum AcknowledgeResult {
    /// Done.
    Done(Message, Thread),
    /// The agent's lease is no longer the latest.
    Stale(Message, Thread),
    /// No such message in this team.
    Missing,
}
