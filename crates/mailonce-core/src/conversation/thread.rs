//! Threads: messages and emails that answer each other, and the lease by which one agent at a time works on them.
//!
//! A lease only decides who works. Whoever lost it is refused by its fence; a second mail it could never cause,
//! because each message is answered once whatever the lease says.

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;

use super::{caps::ReplyTally, message_progress::Acknowledgement};
use crate::{
    events::event::{EventKind, NewEvent},
    id::{InboxId, MessageId, TeamId, ThreadId},
    inbox::message::{Message, MessageState},
    mutant,
    time::Time,
};

/// Messages of people that a thread remembers by id, the latest.
const MAX_TRACKED_MESSAGES: usize = 50;

/// Messages and emails that answer each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its id.
    pub id: ThreadId,
    /// Whose it is.
    pub team: TeamId,
    /// The inbox it is in.
    pub inbox: InboxId,
    /// Grows with each change.
    pub rev: u32,
    /// When something was last added to it.
    pub last_activity_at: Time,
    /// Everything else.
    pub details: ThreadDetails,
}

/// What may change about a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadDetails {
    /// The subject of its first message.
    pub subject: String,
    /// When it began.
    pub created_at: Time,
    /// Labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// When somebody said that nothing is left to do. A new message takes that back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_at: Option<Time>,
    /// Messages in it.
    pub messages: u32,
    /// Emails in it.
    pub emails: u32,
    /// The latest messages that people wrote, by number, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub people: Vec<(u64, MessageId)>,
    /// The fence of its latest lease.
    pub fence: u64,
    /// Its latest lease, unless it was given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<ThreadLease>,
    /// When it was answered of late.
    #[serde(default)]
    pub sends: ReplyTally,
    /// How often it was answered in all.
    #[serde(default)]
    pub sent: u32,
}

/// The right of one agent to work on a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLease {
    /// The hash of the token that its holder shows.
    pub token: String,
    /// Who holds it, as people call it.
    pub holder: String,
    /// When it lapses.
    pub expires_at: Time,
    /// The message it was offered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
}

/// A wish for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadLeaseSpec {
    /// The hash of the token of the lease that is to last longer.
    pub renew: Option<String>,
    /// The hash of the token of a new one.
    pub token: String,
    /// Who asks.
    pub holder: String,
    /// How long it lasts.
    pub ttl_ms: i64,
}

/// The answer to a wish for a lease.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum ThreadLeaseResult {
    /// Taken or renewed.
    Leased(Thread),
    /// Another holds it.
    Busy(Thread),
    /// The lease that was to be renewed is no longer the latest.
    Stale(Thread),
    /// No such thread in this team.
    Missing,
}

/// What people want changed about a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadEdit {
    /// Labels from now on.
    pub labels: Option<Vec<String>>,
    /// Whether nothing is left to do.
    pub handled: Option<bool>,
}

impl Thread {
    /// The thread that a message begins.
    pub fn started_by(message: &Message, now: Time) -> Self {
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

    /// Adds a message that was filed.
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

    /// Adds an email, and counts it when it may leave.
    pub fn add_email(&mut self, counts: bool, now: Time) {
        self.rev += 1;
        self.last_activity_at = self.last_activity_at.max(now);
        self.details.emails += 1;
        if counts {
            self.count_reply(now);
        }
    }

    /// Counts an answer that was held and may leave after all.
    pub fn count_released_reply(&mut self, now: Time) {
        self.rev += 1;
        self.count_reply(now);
    }

    fn count_reply(&mut self, now: Time) {
        self.details.sends.record(now);
        self.details.sent += 1;
    }

    /// The lease that holds now.
    pub fn active_lease(&self, now: Time) -> Option<&ThreadLease> {
        self.details.lease.as_ref().filter(|lease| now < lease.expires_at)
    }

    /// Whether this token is the one of its latest lease, lapsed or not.
    pub fn is_latest_token(&self, token: &str) -> bool {
        self.details.lease.as_ref().is_some_and(|lease| lease.token == token)
    }

    /// Messages of people after this number that are not among those seen, oldest first.
    pub fn unseen_messages(&self, seq: u64, seen: &[MessageId]) -> impl Iterator<Item = MessageId> {
        let newer = self.details.people.iter().filter(move |(at, id)| *at > seq && !seen.contains(id));
        newer.map(|(_, id)| *id)
    }

    /// Takes or renews the lease. A lapsed one that nobody took since may still be renewed.
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

    /// Gives the lease back. False when this token's lease is not the latest: then nothing changes.
    pub fn release_lease(&mut self, token: &str) -> bool {
        if !self.is_latest_token(token) {
            return false;
        }
        self.details.lease = None;
        self.rev += 1;
        true
    }

    /// What an agent says about a message of this thread. False when its lease is not the latest: then nothing changes.
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

    /// Changes what people may change.
    pub fn edit(&mut self, edit: ThreadEdit, now: Time) {
        self.rev += 1;
        if let Some(labels) = edit.labels {
            let mut seen = BTreeSet::new();
            self.details.labels = labels.into_iter().filter(|label| seen.insert(label.clone())).collect();
        }
        if let Some(handled) = edit.handled {
            self.details.handled_at = handled.then_some(now);
        }
    }

    /// An event about it.
    pub fn to_event(&self, kind: EventKind, mut data: serde_json::Value, now: Time) -> NewEvent {
        data["inbox"] = json!(self.inbox);
        NewEvent { kind, at: now, subject_id: self.id.0, rev: self.rev, data }
    }
}

impl Message {
    /// Whether a person wrote it, as far as can be told.
    pub fn is_from_person(&self) -> bool {
        self.head.automatic.is_none() && self.head.own.is_none()
    }
}

/// Which threads to list, those with the latest news first.
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
    /// At most so many.
    pub limit: usize,
}

impl ThreadQuery {
    /// Whether a thread belongs on the page, its place apart.
    pub fn matches(&self, thread: &Thread) -> bool {
        self.inbox.is_none_or(|inbox| thread.inbox == inbox)
            && self.label.as_ref().is_none_or(|label| thread.details.labels.contains(label))
            && self.handled.is_none_or(|handled| thread.details.handled_at.is_some() == handled)
    }
}

/// A wish for messages that nobody works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageLeaseSpec {
    /// In this inbox.
    pub inbox: InboxId,
    /// Who asks.
    pub holder: String,
    /// How long each lease lasts.
    pub ttl_ms: i64,
    /// The hashes of the tokens of the leases; as many messages are given at the most.
    pub tokens: Vec<String>,
}

/// A message that an agent got to work on; its thread has the lease.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageOffer {
    /// The message.
    pub message: Message,
    /// Its thread.
    pub thread: Thread,
    /// Which of the tokens is its lease's.
    pub token_index: usize,
}

/// The answer to what an agent says about a message.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum AcknowledgeResult {
    /// Done.
    Done(Message, Thread),
    /// Its lease is no longer the latest.
    Stale(Message, Thread),
    /// No such message in this team.
    Missing,
}
