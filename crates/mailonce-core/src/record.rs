//! Records: small objects of a team other than mail, such as a sending domain, a suppressed address or a rule.
//!
//! The store knows their names and keeps the rest as opaque JSON, which the engine interprets.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    conversation::escalation::{Escalation, EscalationState},
    events::event::{EventKind, NewEvent},
    id::TeamId,
    outbox::reports::OutboxReports,
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// The kind of a record.
    RecordKind {
        /// A domain that the team sends from.
        Domain = "domain",
        /// An address to which the team sends no email.
        Suppression = "suppression",
        /// A source of provider events.
        Source = "source",
        /// The polling position of a source.
        Poll = "poll",
        /// A rule.
        Rule = "rule",
        /// A question for a person.
        Escalation = "escalation",
        /// The settings of the team.
        Settings = "settings",
        /// The state of a transport, as last reported to the team.
        Transport = "transport",
        /// A draft of an email.
        Draft = "draft",
        /// Labels that callers set on a message or an email.
        Labels = "labels",
        /// The display name that an API key was given after it was created.
        ApiKeyName = "api_key_name",
        /// An entry of an allow or block list.
        ListEntry = "list_entry",
        /// A budget: a limit on what is sent in a period.
        Budget = "budget",
        /// The erasure of a person. These records are also the journal that a restore applies again.
        Erasure = "erasure",
        /// A person.
        Person = "person",
        /// A link that signs a person in.
        SignInLink = "sign_in_link",
        /// A link by which somebody decides a question.
        ApprovalLink = "approval_link",
        /// A chat or webhook URL to which open questions are posted.
        NotificationTarget = "notification_target",
        /// The access that a person gave to a client.
        Connection = "connection",
        /// What an outbox has reported to its team.
        Outbox = "outbox",
    }
}

/// The name of the record with the settings of a team. Each team has at most one.
pub const TEAM_SETTINGS: &str = "team";

/// A small object of a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its team.
    pub team: TeamId,
    /// Its kind.
    pub kind: RecordKind,
    /// Its id, globally unique.
    pub id: Uuid,
    /// Its name, unique in its team among records of its kind.
    pub name: String,
    /// The revision. Each change increases it.
    pub rev: u32,
    /// When it was created.
    pub created_at: Time,
    /// Everything else, as JSON.
    pub json: String,
}

impl Record {
    /// A change of this record, at its current revision, to the given JSON.
    pub fn edit(&self, about: String) -> RecordEdit {
        RecordEdit { team: self.team, kind: self.kind, id: self.id, rev: self.rev, json: about }
    }

    /// The event for its creation or change, if there is one. The store writes it with the record.
    pub fn to_event(&self, before: Option<&Self>, now: Time) -> Option<NewEvent> {
        let (kind, data) = match self.kind {
            RecordKind::Escalation => self.escalation_event(before)?,
            RecordKind::Domain => self.domain_event(before)?,
            RecordKind::Transport => self.transport_event(before)?,
            RecordKind::Outbox => return self.outbox_event(before, now),
            _ => return None,
        };
        Some(NewEvent { kind, at: now, subject_id: self.id, rev: self.rev, data })
    }

    fn escalation_event(&self, before: Option<&Self>) -> Option<(EventKind, Value)> {
        let (is, was) = (self.parse_json::<Escalation>()?, before.and_then(Self::parse_json::<Escalation>));
        let kind = match was {
            None => EventKind::EscalationOpened,
            Some(was) if was.state == is.state => return None,
            // It was closed, and is asked again.
            Some(_) if is.state == EscalationState::Open => EventKind::EscalationOpened,
            Some(_) => EventKind::EscalationResolved,
        };
        let decided = is.decision.as_ref().map(|decided| decided.decision);
        Some((kind, json!({ "reason": is.reason, "state": is.state, "about": is.about, "as": decided })))
    }

    fn domain_event(&self, before: Option<&Self>) -> Option<(EventKind, Value)> {
        let verified = |record: &Self| record.parse_json::<Value>().is_some_and(|says| !says["verified_at"].is_null());
        let kind = match (before.is_some_and(verified), verified(self)) {
            (false, true) => EventKind::DomainVerified,
            (true, false) => EventKind::DomainFailed,
            _ => return None,
        };
        Some((kind, json!({ "name": self.name })))
    }

    fn transport_event(&self, before: Option<&Self>) -> Option<(EventKind, Value)> {
        let (is, was) = (self.parse_json::<TransportState>()?, before.and_then(Self::parse_json::<TransportState>));
        let kind = match (was.is_some_and(|was| was.is_breaker_open), is.is_breaker_open) {
            (false, true) => EventKind::TransportBreakerOpened,
            (true, false) => EventKind::TransportBreakerClosed,
            _ => return None,
        };
        Some((kind, json!({ "transport": self.name, "reason": is.reason })))
    }

    fn outbox_event(&self, before: Option<&Self>, now: Time) -> Option<NewEvent> {
        let (is, was) = (self.parse_json::<OutboxReports>()?, before.and_then(Self::parse_json::<OutboxReports>));
        let (kind, row, data) = is.to_event(was.as_ref(), &self.name)?;
        Some(NewEvent { kind, at: now, subject_id: row.unwrap_or(self.id), rev: self.rev, data })
    }

    fn parse_json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(&self.json).ok()
    }
}

/// The content of a transport record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportState {
    /// Whether its circuit breaker is open, so that its email waits.
    #[serde(rename = "rests")]
    pub is_breaker_open: bool,
    /// The reply of the next hop that opened it.
    pub reason: Option<String>,
    /// Since when email of this team waits for it although no node has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "orphaned")]
    pub missing_since: Option<Time>,
    /// When an operator of this team last rerouted its email.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerouted_at: Option<Time>,
    /// The transport that the email was rerouted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerouted_to: Option<String>,
}

/// The result of creating a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum CreateRecordResult {
    /// It was created.
    Created(Record),
    /// This record has the name. Nothing was created.
    NameTaken(Record),
}

/// A change of a record, based on a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordEdit {
    /// Its team.
    pub team: TeamId,
    /// Its kind.
    pub kind: RecordKind,
    /// The record.
    pub id: Uuid,
    /// The revision that the caller saw.
    pub rev: u32,
    /// The new JSON.
    pub json: String,
}

/// The result of changing a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum RecordChangeResult {
    /// The record after the change.
    Changed(Record),
    /// It changed since the caller read it; this is its current state.
    Stale(Record),
    /// No such record in this team.
    Missing,
}

/// A page of records, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPage {
    /// The records.
    pub rows: Vec<Record>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<Uuid>,
}

impl RecordPage {
    /// A page of at most `limit` rows, from a query that read one row more.
    pub fn from_rows(mut rows: Vec<Record>, limit: usize) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        Self { next: rows.last().filter(|_| more).map(|row| row.id), rows }
    }
}
