//! Records: small things a team owns that are not mail. A sending domain, a suppressed address, a source of events.
//!
//! The ledger knows their names and keeps the rest as it is given; what it means is for the engine to say.

use uuid::Uuid;

use crate::{event::NewEvent, id::TeamId, time::Time, words::words};

words! {
    /// What a record is.
    RecordKind {
        /// A domain that the team sends from.
        Domain = "domain",
        /// An address that the team does not write to.
        Suppression = "suppression",
        /// Where provider events come from.
        Source = "source",
        /// What to do with some mail.
        Rule = "rule",
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
    pub about: String,
}

/// The answer to a wish for a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Created {
    /// It was made.
    Made(Record),
    /// The name is taken by this one; nothing was made.
    Taken(Record),
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
    pub about: String,
    /// What is told of it, when it is changed.
    pub told: Option<NewEvent>,
}

/// The answer to a change of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum RecordChange {
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
    pub fn of(mut rows: Vec<Record>, limit: usize) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        Self { next: rows.last().filter(|_| more).map(|row| row.id), rows }
    }
}
