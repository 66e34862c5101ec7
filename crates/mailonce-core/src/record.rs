//! Records: small things a team owns that are not mail. A sending domain, a suppressed address, a source of events.
//!
//! The ledger knows their names and keeps the rest as it is given; what it means is for the engine to say.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    conversation::escalation::Escalation,
    events::event::{EventKind, NewEvent},
    id::TeamId,
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// What a record is.
    RecordKind {
        /// A domain that the team sends from.
        Domain = "domain",
        /// An address that the team does not write to.
        Suppression = "suppression",
        /// Where provider events come from.
        Source = "source",
        /// How far the polling of a source is.
        Poll = "poll",
        /// What to do with some mail.
        Rule = "rule",
        /// A question for a person.
        Escalation = "escalation",
        /// How the team wants things done.
        Settings = "settings",
        /// How a way out is, as the team was last told.
        Transport = "transport",
        /// A mail that is not to be sent yet.
        Draft = "draft",
        /// Labels that callers put on a message or an email.
        Labels = "labels",
        /// An address or a domain that mail may, or may not, come from or go to.
        ListEntry = "list_entry",
        /// A limit on what is sent in a period.
        Budget = "budget",
    }
}

/// A small thing that a team owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose it is.
    pub team: TeamId,
    /// What it is.
    pub kind: RecordKind,
    /// Its id, unique everywhere.
    pub id: Uuid,
    /// Its name, unique in its team among records of its kind.
    pub name: String,
    /// Grows with each change.
    pub rev: u32,
    /// When it was made.
    pub created_at: Time,
    /// Everything else, as JSON.
    pub json: String,
}

impl Record {
    /// A change of it, as it is here, into what says this.
    pub fn edit(&self, about: String) -> RecordEdit {
        RecordEdit { team: self.team, kind: self.kind, id: self.id, rev: self.rev, json: about }
    }

    /// What is told of it when it was made, or became this. The ledger writes it with the record.
    pub fn to_event(&self, before: Option<&Self>, now: Time) -> Option<NewEvent> {
        let (kind, data) = match self.kind {
            RecordKind::Escalation => self.escalation_event(before)?,
            RecordKind::Domain => self.domain_event(before)?,
            RecordKind::Transport => self.transport_event(before)?,
            _ => return None,
        };
        Some(NewEvent { kind, at: now, subject_id: self.id, rev: self.rev, data })
    }

    fn escalation_event(&self, before: Option<&Self>) -> Option<(EventKind, Value)> {
        let (is, was) = (self.parse_json::<Escalation>()?, before.and_then(Self::parse_json::<Escalation>));
        let kind = match was {
            None => EventKind::EscalationOpened,
            Some(was) if was.state == is.state => return None,
            Some(_) => EventKind::EscalationResolved,
        };
        let decided = is.decided.as_ref().map(|decided| decided.decision);
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
        let kind = match (was.is_some_and(|was| was.rests), is.rests) {
            (false, true) => EventKind::TransportOpened,
            (true, false) => EventKind::TransportClosed,
            _ => return None,
        };
        Some((kind, json!({ "transport": self.name, "why": is.why })))
    }

    fn parse_json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(&self.json).ok()
    }
}

/// What a record of a way out says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportState {
    /// Whether its breaker is open, so that work waits.
    pub rests: bool,
    /// What the next hop said when it opened.
    pub why: Option<String>,
    /// Since when mail of this team waits for it although no node has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphaned: Option<Time>,
    /// The last time an operator of this team moved what waited for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerouted_at: Option<Time>,
}

/// The answer to a wish for a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum CreateRecordResult {
    /// It was made.
    Created(Record),
    /// The name is taken by this one; nothing was made.
    NameTaken(Record),
}

/// A change of a record as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordEdit {
    /// Whose it is.
    pub team: TeamId,
    /// What it is.
    pub kind: RecordKind,
    /// Which.
    pub id: Uuid,
    /// The rev that was seen.
    pub rev: u32,
    /// What it is to say from now on.
    pub json: String,
}

/// The answer to a change of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum RecordChangeResult {
    /// What it became.
    Changed(Record),
    /// It changed since it was looked at; this is what it is.
    Stale(Record),
    /// No such record in this team.
    Missing,
}

/// A page of records, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPage {
    /// The records.
    pub rows: Vec<Record>,
    /// Where to go on; `None` at the end.
    pub next: Option<Uuid>,
}

impl RecordPage {
    /// A page of at most `limit`, from rows of which one more than that was read.
    pub fn from_rows(mut rows: Vec<Record>, limit: usize) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        Self { next: rows.last().filter(|_| more).map(|row| row.id), rows }
    }
}
