//! The audit log: who changed what, from where and when. One chain of entries per team, to which stores only append.
//!
//! | module | what it holds |
//! |---|---|
//! | [`act`] | what an entry says about each kind of change: an allow list, so that no secret and no content is in it |
//! | [`chain`] | numbering, hashing and verifying entries |
//!
//! A store records an act in the transaction that changes the ledger, so neither exists without the other. Entries name
//! people, addresses and other things by ids. Their names are in a separate table, so erasing a name breaks no hash.

pub mod act;
pub mod chain;

use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

use crate::{
    access::call_origin::{Actor, Alias},
    events::event::{EventKind, NewEvent},
    id::TeamId,
    time::Time,
};
use chain::{AuditRow, ChainLink};

/// The most entries on a page.
pub const MAX_PAGE: usize = 1_000;

/// The content of an entry, before it has its place in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAuditEntry {
    /// When it happened.
    pub at: Time,
    /// Who did it.
    pub actor: Actor,
    /// From where: a word such as `cli`, or the id that stands for an IP address.
    pub from: String,
    /// What was done, such as `rule.changed`.
    pub action: String,
    /// What was changed, as `kind/id`.
    pub about: String,
    /// The values before the change, as canonical JSON. `None` when it was created.
    pub before: Option<String>,
    /// The values after the change, as canonical JSON. `None` when it was removed.
    pub after: Option<String>,
}

/// An act, ready to be appended: the entry, and the names that are stored outside of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedAct {
    /// The entry.
    pub entry: NewAuditEntry,
    /// The names of ids in the entry.
    pub aliases: Vec<Alias>,
}

/// An entry in its place in the chain of its team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its team.
    pub team: TeamId,
    /// Its number, from 1, without gaps.
    pub seq: u64,
    /// Its content.
    pub content: NewAuditEntry,
    /// The hash of the entry before it.
    pub prev: [u8; 32],
}

/// A reference from audit entries to a name that is stored outside of the chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditNameRef {
    /// The id, as `kind/id`.
    pub id: String,
}

impl AuditNameRef {
    /// The names that these entries use.
    pub fn of_rows<'a>(rows: impl IntoIterator<Item = &'a AuditRow>) -> BTreeSet<Self> {
        let entries = rows.into_iter().filter_map(|row| AuditEntry::decode(&row.entry));
        entries.flat_map(|entry| [entry.content.about, entry.content.from]).map(|id| Self { id }).collect()
    }

    /// What every entry contains that uses the name. An actor is in an entry without its kind.
    pub fn needle(&self) -> &str {
        self.id.split_once('/').map_or(&self.id, |(_, id)| id)
    }

    /// The record of somebody who acts. Its name is kept as long as the record, because only the entries about the record
    /// bring the name.
    pub fn actor_record(&self) -> Option<Uuid> {
        let (kind, id) = self.id.split_once('/')?;
        matches!(kind, "person" | "notification_target").then(|| id.parse().ok()).flatten()
    }
}

/// The ends of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainEnds {
    /// The entry before the first one that is stored: the last that retention removed, or number 0.
    pub start: ChainLink,
    /// The latest entry.
    pub head: ChainLink,
}

/// A page of a chain, read in one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// The ends of the chain.
    pub ends: ChainEnds,
    /// The entries after the requested number, in order.
    pub rows: Vec<AuditRow>,
}

impl AuditRow {
    /// The event that announces an entry. All of a team have the same subject, so webhooks deliver them in order.
    pub fn event(&self, team: TeamId, entry: &NewAuditEntry) -> NewEvent {
        let data = json!({ "seq": self.seq, "action": entry.action, "about": entry.about });
        NewEvent { kind: EventKind::AuditRecorded, at: entry.at, subject_id: team.0, rev: 1, data }
    }
}

/// Whether the settings of a team, as stored, ask for an event per entry.
pub fn wants_events(settings: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct AuditSettings {
        #[serde(default)]
        audit_events: bool,
    }
    serde_json::from_str::<AuditSettings>(settings).is_ok_and(|settings| settings.audit_events)
}
