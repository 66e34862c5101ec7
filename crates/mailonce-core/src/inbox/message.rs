//! Messages: received mail. A mail makes one message per inbox, no matter how often it is delivered.

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

use crate::{
    control::rule::RuleEvaluation,
    events::event::{EventKind, NewEvent},
    id::{ArtifactId, DeliveryId, EmailId, InboxId, MessageId, TeamId, ThreadId},
    inbound::{delivery::DeliverySuppression, sender_auth::SenderAuth},
    inbox::{
        artifact::{Artifact, ArtifactKind, NewArtifact},
        progress::MessageProgress,
    },
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// Whether an agent still has to handle a message.
    MessageState {
        /// It has no reply.
        Unanswered = "unanswered",
        /// An agent holds its lease.
        Leased = "leased",
        /// It has a reply.
        Answered = "answered",
        /// It needs no reply.
        Skipped = "skipped",
    }
}

string_enum! {
    /// What to do with a reply whose recipient the sender's authentication does not cover.
    ReplyToPolicy {
        /// Send it.
        Allow = "allow",
        /// Send it and flag it.
        Flag = "flag",
        /// Refuse it.
        Refuse = "refuse",
    }
}

string_enum! {
    /// An anomaly of a message.
    MessageFlag {
        /// Another message of the inbox has the same Message-ID with other content.
        MessageIdReused = "message_id_reused",
        /// It has no Message-ID.
        NoMessageId = "no_message_id",
        /// It could not be parsed. Only its raw bytes are reliable.
        Unreadable = "unreadable",
        /// It exceeded the size or nesting limits of the parser. The raw bytes are complete.
        Cut = "cut",
        /// Its artifact is ambiguous: several values are similarly likely.
        Ambiguous = "ambiguous",
        /// A header that must occur once occurs twice. The signature may cover another copy than the one people see.
        DuplicateHeader = "duplicate_header",
    }
}

/// A received mail in one inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// Its team.
    pub team: TeamId,
    /// Its inbox.
    pub inbox: InboxId,
    /// Its number in the inbox: from 1, without gaps, in commit order.
    pub seq: u64,
    /// The revision. Each change increases it.
    pub rev: u32,
    /// Its thread.
    pub thread: ThreadId,
    /// The delivery that made it.
    pub delivery: DeliveryId,
    /// When that delivery was received.
    pub received_at: Time,
    /// Whether an agent still has to handle it.
    pub state: MessageState,
    /// The immutable part.
    pub head: Arc<MessageHead>,
    /// What people and rules have set.
    pub annotations: MessageAnnotations,
}

impl Message {
    /// Erases the message. The caller deletes its bytes and its artifacts.
    pub fn erase(&mut self, now: Time) {
        self.head = Arc::new(MessageHead { erased_at: Some(now), ..MessageHead::default() });
        self.annotations.labels = Vec::new();
        self.annotations.folder = None;
        if matches!(self.state, MessageState::Unanswered | MessageState::Leased) {
            self.state = MessageState::Skipped;
        }
        self.rev += 1;
    }

    /// Whether readers see it.
    pub fn is_visible(&self) -> bool {
        self.head.erased_at.is_none()
    }

    /// The event of its arrival.
    pub fn received_event(&self, now: Time) -> NewEvent {
        let head = &self.head;
        NewEvent {
            kind: EventKind::MessageReceived,
            at: now,
            subject_id: self.id.0,
            rev: self.rev,
            data: json!({
                "inbox": self.inbox,
                "thread": self.thread,
                "message_id": head.message_id,
                "from": head.from.as_ref().map(|party| &party.address),
                "subject": head.subject,
                "auth": head.auth.verdict,
                "has": head.artifacts.iter().map(|(kind, _)| kind).collect::<Vec<_>>(),
            }),
        }
    }
}

/// What people and rules have set on a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageAnnotations {
    /// Labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The folder it was moved to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Whether it is marked as read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read: bool,
    /// Its progress between agents.
    #[serde(default, skip_serializing_if = "MessageProgress::is_empty")]
    #[serde(rename = "turn")]
    pub progress: MessageProgress,
}

/// A person named in a mail. Received mail may name anyone, so this need not be an address that mailonce would send to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address, lower-cased.
    pub address: String,
}

/// The immutable part of a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageHead {
    /// The Message-ID, with angle brackets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The From address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Party>,
    /// The To addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Party>,
    /// The Cc addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cc: Vec<Party>,
    /// The Reply-To addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reply_to: Vec<Party>,
    /// The envelope sender. Empty for the null return path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_path: Option<String>,
    /// The envelope recipient, including a plus tag.
    pub recipient: String,
    /// The subject.
    pub subject: String,
    /// The Date header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<Time>,
    /// The Message-IDs of its ancestors, the closest last; bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// The beginning of the text, with secrets masked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub preview: String,
    /// The size in bytes.
    pub size: u64,
    /// The sender's authentication results.
    pub auth: SenderAuth,
    /// Why it counts as automatic, and whether that can be overridden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automatic: Option<(String, bool)>,
    /// Why it counts as sent by mailonce itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<String>,
    /// Its anomalies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<MessageFlag>,
    /// Its attachments, without their bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AttachmentInfo>,
    /// Its artifacts, best first. The values are in the artifacts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<(ArtifactKind, ArtifactId)>,
    /// What rules decided about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<RuleEvaluation>,
    /// Further candidates for artifacts, as JSON, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<serde_json::Value>,
    /// When the message was erased or deleted. Nothing else of it is left, and readers do not see it. The row stays, so
    /// that the same mail makes no second message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erased_at: Option<Time>,
}

/// An attachment without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentInfo {
    /// The file name, without any path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// The declared MIME type.
    pub content_type: String,
    /// The Content-ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    /// Whether it is displayed inside the mail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inline: bool,
    /// The size in bytes, decoded.
    pub size: u64,
}

/// A new message, to be filed.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The id it gets when it is new.
    pub id: MessageId,
    /// The id that its thread gets when that is new.
    pub thread: ThreadId,
    /// The hash of its Message-ID. `None` without one.
    pub message_id_hash: Option<[u8; 32]>,
    /// The hash of its content.
    pub content_hash: [u8; 32],
    /// Hashes of the Message-IDs that identify its thread: its own first, then its ancestors, the closest first.
    pub thread_hashes: Vec<[u8; 32]>,
    /// The email of this team that it replies to.
    pub answers_email: Option<EmailId>,
    /// The immutable part. The store fills in its artifacts and `message_id_reused`.
    pub head: MessageHead,
    /// What rules have set.
    pub annotations: MessageAnnotations,
    /// Whether an agent has to handle it.
    pub state: MessageState,
    /// The artifacts found in it, best first.
    pub artifacts: Vec<NewArtifact>,
}

/// A message of the inbox with the same Message-ID, or, without one, with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownMessage {
    /// The message.
    pub id: MessageId,
    /// The hash of its content.
    pub content_hash: [u8; 32],
}

/// The result of the duplicate check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateCheck {
    /// Never received before.
    New,
    /// New, but its Message-ID was used for other content before.
    MessageIdReused,
    /// The inbox already has it.
    Duplicate(MessageId, DeliverySuppression),
}

impl NewMessage {
    /// Checks it against the messages that have the same Message-ID or, without one, the same content.
    pub fn check_duplicate(&self, known: &[KnownMessage]) -> DuplicateCheck {
        let same = known.iter().find(|known| known.content_hash == self.content_hash);
        match (same, self.message_id_hash) {
            (Some(same), Some(_)) => DuplicateCheck::Duplicate(same.id, DeliverySuppression::SameMessage),
            (Some(same), None) => DuplicateCheck::Duplicate(same.id, DeliverySuppression::SameContent),
            (None, Some(_)) if !known.is_empty() => DuplicateCheck::MessageIdReused,
            (None, _) => DuplicateCheck::New,
        }
    }
}

/// The result of filing a message.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum FileMessageResult {
    /// It is new, with these artifacts.
    New(Box<Message>, Vec<Artifact>),
    /// The inbox already had it.
    Duplicate(MessageId, DeliverySuppression),
    /// Another worker has finished this delivery.
    AlreadyFinished,
    /// No such delivery in this team.
    Missing,
}

/// A filter for a list of messages.
#[derive(Clone, Debug, Default)]
pub struct MessageQuery {
    /// In this thread.
    pub thread: Option<ThreadId>,
    /// In this state.
    pub state: Option<MessageState>,
    /// From this address, or, with `@` before it, from this domain.
    pub from: Option<String>,
    /// With this text in the subject, ignoring case.
    pub subject: Option<String>,
    /// With an artifact of this kind.
    pub has: Option<ArtifactKind>,
    /// With this label.
    pub label: Option<String>,
    /// With this Message-ID.
    pub message_id: Option<String>,
    /// Only authenticated ones.
    pub only_authenticated: bool,
    /// With `from`: exclude messages that failed authentication, because anyone can forge that address.
    pub exclude_forged: bool,
    /// Where the page begins, and its direction.
    pub position: MessagePosition,
    /// The maximum number of messages.
    pub limit: usize,
}

/// Where a page of messages begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePosition {
    /// Newest first, before this number.
    Before(u64),
    /// Oldest first, after this number.
    After(u64),
}

impl Default for MessagePosition {
    fn default() -> Self {
        Self::Before(u64::MAX)
    }
}

impl MessageQuery {
    /// Whether a message passes the filter. The page position is not checked.
    pub fn matches(&self, message: &Message) -> bool {
        let head = &message.head;
        let is_from = |wanted: &String| {
            head.from.as_ref().is_some_and(|party| {
                let wanted = wanted.to_ascii_lowercase();
                party.address == wanted || (wanted.starts_with('@') && party.address.ends_with(&wanted))
            })
        };
        let lower = |text: &str| text.to_lowercase();
        message.is_visible()
            && self.thread.is_none_or(|thread| message.thread == thread)
            && self.state.is_none_or(|state| message.state == state)
            && self.from.as_ref().is_none_or(is_from)
            && self.subject.as_ref().is_none_or(|wanted| lower(&head.subject).contains(&lower(wanted)))
            && self.has.is_none_or(|kind| head.artifacts.iter().any(|(has, _)| *has == kind))
            && self.label.as_ref().is_none_or(|label| message.annotations.labels.contains(label))
            && self.message_id.as_ref().is_none_or(|id| head.message_id.as_ref() == Some(id))
            && (!self.only_authenticated || head.auth.is_pass())
            && (!self.exclude_forged || self.from.is_none() || !head.auth.is_fail())
    }
}

/// A page of messages in the requested order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MessagePage {
    /// The messages.
    pub rows: Vec<Message>,
    /// The number of the last message examined; `None` at the end. A page shorter than its limit may still have a next
    /// page.
    pub next: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn message(name: Option<[u8; 32]>, content: u8) -> NewMessage {
        NewMessage {
            id: MessageId(Uuid::from_u128(1)),
            thread: ThreadId(Uuid::from_u128(2)),
            message_id_hash: name,
            content_hash: [content; 32],
            thread_hashes: Vec::new(),
            answers_email: None,
            head: MessageHead::default(),
            annotations: MessageAnnotations::default(),
            state: MessageState::Unanswered,
            artifacts: Vec::new(),
        }
    }

    #[test]
    fn the_same_name_with_other_content_is_another_message() {
        let id = MessageId(Uuid::from_u128(7));
        let known = [KnownMessage { id, content_hash: [1; 32] }];
        assert_eq!(
            message(Some([9; 32]), 1).check_duplicate(&known),
            DuplicateCheck::Duplicate(id, DeliverySuppression::SameMessage)
        );
        assert_eq!(message(Some([9; 32]), 2).check_duplicate(&known), DuplicateCheck::MessageIdReused);
        assert_eq!(message(Some([9; 32]), 2).check_duplicate(&[]), DuplicateCheck::New);
        assert_eq!(
            message(None, 1).check_duplicate(&known),
            DuplicateCheck::Duplicate(id, DeliverySuppression::SameContent)
        );
        assert_eq!(message(None, 2).check_duplicate(&known), DuplicateCheck::New);
    }
}
