//! Messages: received mail, one per inbox and mail however often it arrives.

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

use crate::{
    control::rule::RuleEvaluation,
    conversation::message_progress::MessageProgress,
    events::event::{EventKind, NewEvent},
    id::{ArtifactId, DeliveryId, EmailId, InboxId, MessageId, TeamId, ThreadId},
    inbound::delivery::DeliverySuppression,
    inbox::artifact::{Artifact, ArtifactKind, NewArtifact},
    ports::authenticator::SenderAuth,
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// Whether an agent has to do something about a message.
    MessageState {
        /// Nobody has answered it.
        Unanswered = "unanswered",
        /// An agent holds it.
        Leased = "leased",
        /// It was answered.
        Answered = "answered",
        /// It wants no answer.
        Skipped = "skipped",
    }
}

string_enum! {
    /// What to do about an answer that would go to somebody for whom the sender does not vouch.
    ReplyToPolicy {
        /// Send it.
        Allow = "allow",
        /// Send it and say so.
        Flag = "flag",
        /// Refuse it.
        Refuse = "refuse",
    }
}

string_enum! {
    /// What is odd about a message.
    MessageFlag {
        /// Another message of the inbox has the same Message-ID and other content.
        MessageIdReused = "message_id_reused",
        /// It has no Message-ID.
        NoMessageId = "no_message_id",
        /// It could not be read as a mail; only its raw bytes are sure.
        Unreadable = "unreadable",
        /// It was larger or deeper than we read; the raw bytes have the rest.
        Cut = "cut",
        /// What it holds is not sure: several values look alike.
        Ambiguous = "ambiguous",
        /// A header field that occurs once in every proper mail occurs twice, so that its signature may cover another
        /// one than people see.
        DuplicateHeader = "duplicate_header",
    }
}

/// A received mail in one inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// Whose it is.
    pub team: TeamId,
    /// Where it is.
    pub inbox: InboxId,
    /// Its number in the inbox: from 1, without gaps, in the order of commits.
    pub seq: u64,
    /// Grows with each change.
    pub rev: u32,
    /// What it belongs to.
    pub thread: ThreadId,
    /// The delivery that made it.
    pub delivery: DeliveryId,
    /// When that arrived.
    pub received_at: Time,
    /// Whether an agent has to do something about it.
    pub state: MessageState,
    /// What never changes.
    pub head: Arc<MessageHead>,
    /// What people and rules put on it.
    pub annotations: MessageAnnotations,
}

impl Message {
    /// That it arrived.
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

/// What people and rules put on a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageAnnotations {
    /// Labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The folder it was put in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Whether it counts as read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read: bool,
    /// Where it stands between agents.
    #[serde(default, skip_serializing_if = "MessageProgress::is_empty")]
    pub turn: MessageProgress,
}

/// Somebody named in a mail. Mail from outside names whom it likes, so this need not be an address that we would
/// write to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address, lower-cased.
    pub address: String,
}

/// What never changes about a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageHead {
    /// With its angle brackets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Party>,
    /// To whom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Party>,
    /// And to whom else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cc: Vec<Party>,
    /// Where answers go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reply_to: Vec<Party>,
    /// The sender of the envelope; empty for the null return path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_path: Option<String>,
    /// The recipient of the envelope, plus tag and all.
    pub recipient: String,
    /// What it is about.
    pub subject: String,
    /// When its writer says it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<Time>,
    /// What it answers, the closest last; bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// The start of what it says, its secrets masked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub preview: String,
    /// Octets.
    pub size: u64,
    /// Whether its sender is who it says.
    pub auth: SenderAuth,
    /// Why it counts as automatic, and whether nothing may override that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automatic: Option<(String, bool)>,
    /// Why it counts as our own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<String>,
    /// What is odd about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<MessageFlag>,
    /// What is attached, by handle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AttachmentInfo>,
    /// What was found in it, best first. The values are in the artifacts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<(ArtifactKind, ArtifactId)>,
    /// What rules said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<RuleEvaluation>,
    /// What else it could hold, as JSON, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<serde_json::Value>,
}

/// An attachment without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentInfo {
    /// A name without any path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// What it says it is.
    pub content_type: String,
    /// What the mail calls it inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    /// Whether it is shown inside the mail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inline: bool,
    /// Octets, decoded.
    pub size: u64,
}

/// A message that wants to be filed.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The id it gets when it is new.
    pub id: MessageId,
    /// The id of its thread when that is new.
    pub thread: ThreadId,
    /// The hash of its Message-ID, or `None` without one.
    pub message_id_hash: Option<[u8; 32]>,
    /// The hash of what it says.
    pub content_hash: [u8; 32],
    /// Hashes of the Message-IDs by which it finds its thread: its own first, then its ancestors, the closest first.
    pub thread_hashes: Vec<[u8; 32]>,
    /// The email of ours that it answers.
    pub answers_email: Option<EmailId>,
    /// What never changes. Its artifacts and `message_id_reused` are filled in by the store.
    pub head: MessageHead,
    /// What rules put on it.
    pub annotations: MessageAnnotations,
    /// Whether an agent has to do something about it.
    pub state: MessageState,
    /// What was found in it, best first.
    pub artifacts: Vec<NewArtifact>,
}

/// What an inbox has under the same Message-ID, or without one under the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownMessage {
    /// Which message.
    pub id: MessageId,
    /// The hash of what it says.
    pub content_hash: [u8; 32],
}

/// What a message that wants to be filed is to its inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateCheck {
    /// Never seen.
    New,
    /// Its Message-ID was used for something else before.
    MessageIdReused,
    /// It is there.
    Duplicate(MessageId, DeliverySuppression),
}

impl NewMessage {
    /// What it is to an inbox that has `known` under its name (or, without a name, under its content).
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

/// The answer to a wish to file a message.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum FileMessageResult {
    /// It is new, and these were found in it.
    New(Box<Message>, Vec<Artifact>),
    /// It was there already.
    Duplicate(MessageId, DeliverySuppression),
    /// Somebody else has settled this delivery.
    AlreadyFinished,
    /// No such delivery in this team.
    Missing,
}

/// Which messages to list.
#[derive(Clone, Debug, Default)]
pub struct MessageQuery {
    /// In this thread.
    pub thread: Option<ThreadId>,
    /// In this state.
    pub state: Option<MessageState>,
    /// From this address, or with `@` before it from this domain.
    pub from: Option<String>,
    /// With this in its subject, whatever the case.
    pub subject: Option<String>,
    /// With this found in it.
    pub has: Option<ArtifactKind>,
    /// With this label.
    pub label: Option<String>,
    /// With this Message-ID.
    pub message_id: Option<String>,
    /// Only authenticated ones.
    pub only_authenticated: bool,
    /// With `from`: not those that failed authentication, because anybody may have written that address.
    pub exclude_forged: bool,
    /// Where the page begins, and in which direction it goes.
    pub position: MessagePosition,
    /// At most so many.
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
    /// Whether a message belongs on the page, its place apart.
    pub fn matches(&self, message: &Message) -> bool {
        let head = &message.head;
        let is_from = |wanted: &String| {
            head.from.as_ref().is_some_and(|party| {
                let wanted = wanted.to_ascii_lowercase();
                party.address == wanted || (wanted.starts_with('@') && party.address.ends_with(&wanted))
            })
        };
        let lower = |text: &str| text.to_lowercase();
        self.thread.is_none_or(|thread| message.thread == thread)
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

/// A page of messages in the order that was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MessagePage {
    /// The messages.
    pub rows: Vec<Message>,
    /// The number of the last message that was looked at; `None` at the end. A page may be short and still have more
    /// behind it.
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
