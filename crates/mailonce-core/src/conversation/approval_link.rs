//! Approval links: one person's way to decide one question, without signing in.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{access::person::is_zero, id::PersonId, string_enum::string_enum, time::Time};

string_enum! {
    /// What a notification target understands.
    TargetKind {
        /// An incoming webhook of Slack, or of a service that takes the same messages.
        Slack = "slack",
        /// Any HTTPS endpoint.
        Webhook = "webhook",
    }
}

/// A place to which questions are posted, as the record stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationTarget {
    /// What it understands.
    pub kind: TargetKind,
    /// The URL, sealed: whoever knows it can post there.
    pub sealed_url: String,
}

/// Who gets a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addressee {
    /// A person of the team.
    Person(PersonId),
    /// A notification target, such as a Slack channel.
    Target(Uuid),
}

impl Addressee {
    /// Its id.
    pub fn id(self) -> Uuid {
        match self {
            Self::Person(person) => person.0,
            Self::Target(target) => target,
        }
    }
}

/// A link, as the record stores it. Its token is derived from the id of the record, so that nothing secret is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalLink {
    /// The question.
    pub escalation: Uuid,
    /// Who gets it.
    pub addressee: Addressee,
    /// The digest of the preview of what will be sent; `None` for a question without an email.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// When it expires.
    pub expires_at: Time,
    /// How the addressee is told; `None` for a link that somebody else passes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification: Option<Notification>,
    /// How often the addressee had signed out everywhere before; 0 for a target.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sign_outs: u32,
    /// Whether it ended early, because it reached an inbox, where programs could read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
}

/// How far an addressee was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// Attempts so far.
    pub attempts: u32,
    /// When the next attempt is due. `None` when there is none: it succeeded or was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Time>,
    /// When it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Time>,
}

impl Notification {
    /// Nothing was attempted, and the first attempt is due.
    pub fn due(now: Time) -> Self {
        Self { attempts: 0, due_at: Some(now), sent_at: None }
    }
}

impl ApprovalLink {
    /// The link after it ended early. Its addressee is not told again: a forwarded email would be forwarded again.
    #[must_use]
    pub fn withdraw(self) -> Self {
        let notification = self.notification.map(|notification| Notification { due_at: None, ..notification });
        Self { withdrawn: true, notification, ..self }
    }

    /// The name of the record. Each addressee has one link for each question.
    pub fn record_name(escalation: Uuid, addressee: Addressee) -> String {
        format!("{escalation} {}", addressee.id())
    }
}
