//! The table: every point, where it can be reached, what leads there, and why it cannot be reached elsewhere.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What keeps the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Store {
    /// SQLite in the data directory.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

impl Store {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sqlite, Self::Postgres];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// What the next hop can do about an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Class {
    /// Inside our own commit; its misbehaving addresses go through workers.
    Sandbox,
    /// A relay.
    Smtp,
    /// A provider that takes a key.
    Keyed,
    /// A provider that can be asked.
    LookUp,
    /// A provider that can do nothing.
    Keyless,
    /// Mail that comes in. What goes out meanwhile stays in the sandbox.
    Inbound,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Sandbox, Self::Smtp, Self::Keyed, Self::LookUp, Self::Keyless, Self::Inbound];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Smtp => "smtp",
            Self::Keyed => "keyed",
            Self::LookUp => "look_up",
            Self::Keyless => "keyless",
            Self::Inbound => "inbound",
        }
    }

    /// The name of the transport that mail goes out by.
    pub fn transport(self) -> &'static str {
        if self == Self::Inbound { Self::Sandbox.word() } else { self.word() }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What leads to a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bait {
    /// A ledger that does not exist yet.
    Fresh,
    /// A start.
    Start,
    /// Something that the process before left unfinished.
    Leftover,
    /// Any mail.
    Mail,
    /// Several mails under one key.
    Batch,
    /// A cancel or a resend.
    Change,
    /// An unknown outcome and a person.
    Resolve,
    /// An unknown outcome.
    Doubt,
    /// An unknown outcome of a minute ago.
    OldDoubt,
    /// A hook.
    Hook,
    /// A mail that is brought by SMTP.
    Letter,
    /// A mail that is brought by a hook.
    Parcel,
    /// A mail that is too large for the short way to its reader.
    Large,
    /// A mail with a code, and agents that want it.
    Code,
    /// A mail of a person, and agents that answer it.
    Person,
}

/// A point of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name.
    pub point: &'static str,
    /// What leads there.
    pub bait: Bait,
    /// It is hit at one of so many first times.
    pub times: u64,
    /// Where it can be reached.
    pub only: Only,
    /// Whether the short form plays it.
    pub short: bool,
}

/// Where a point can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Only {
    /// Everywhere.
    Any,
    /// With one store.
    Store(Store),
    /// With one class.
    Class(Class),
    /// With the classes that speak HTTP.
    Http,
    /// Where an application is told. It does not depend on the next hop, so two classes are enough.
    Told,
    /// With mail that comes in.
    Inbound,
}

const fn row(point: &'static str, bait: Bait, times: u64, only: Only, short: bool) -> Row {
    Row { point, bait, times, only, short }
}

const SQLITE: Only = Only::Store(Store::Sqlite);
const POSTGRES: Only = Only::Store(Store::Postgres);
const SMTP: Only = Only::Class(Class::Smtp);

/// Every point of the binary. One that is missing here fails a test.
pub const ROWS: [Row; 69] = [
    row("sqlite-migrating", Bait::Fresh, 3, SQLITE, true),
    row("sqlite-migrated", Bait::Fresh, 1, SQLITE, false),
    row("postgres-migrating", Bait::Fresh, 3, POSTGRES, true),
    row("postgres-migrated", Bait::Fresh, 1, POSTGRES, false),
    row("heartbeat", Bait::Start, 2, Only::Any, false),
    row("recovered", Bait::Leftover, 1, Only::Any, true),
    row("api-before-send", Bait::Mail, 3, Only::Any, false),
    row("api-after-send", Bait::Mail, 3, Only::Any, true),
    row("api-before-batch", Bait::Batch, 1, Only::Any, false),
    row("api-after-batch", Bait::Batch, 1, Only::Any, true),
    row("api-before-change", Bait::Change, 1, Only::Any, false),
    row("api-after-change", Bait::Change, 1, Only::Any, true),
    row("api-before-resolve", Bait::Resolve, 1, Only::Any, false),
    row("api-after-resolve", Bait::Resolve, 1, Only::Any, true),
    row("sqlite-before-begin", Bait::Mail, 12, SQLITE, false),
    row("sqlite-after-begin", Bait::Mail, 12, SQLITE, false),
    row("sqlite-before-commit", Bait::Mail, 12, SQLITE, true),
    row("sqlite-after-commit", Bait::Mail, 12, SQLITE, true),
    row("sqlite-answering", Bait::Mail, 12, SQLITE, true),
    row("postgres-before-round", Bait::Mail, 3, POSTGRES, false),
    row("postgres-after-round", Bait::Mail, 3, POSTGRES, true),
    row("postgres-locked", Bait::Mail, 6, POSTGRES, false),
    row("postgres-before-commit", Bait::Mail, 6, POSTGRES, true),
    row("postgres-after-commit", Bait::Mail, 6, POSTGRES, true),
    row("postgres-numbering", Bait::Mail, 4, POSTGRES, true),
    row("postgres-numbered", Bait::Mail, 4, POSTGRES, false),
    row("captured", Bait::Mail, 2, Only::Class(Class::Sandbox), true),
    row("before-lease", Bait::Mail, 6, Only::Any, false),
    row("after-lease", Bait::Mail, 2, Only::Any, true),
    row("approach", Bait::Mail, 3, Only::Any, false),
    row("smtp-envelope", Bait::Mail, 3, SMTP, false),
    row("smtp-body", Bait::Mail, 3, SMTP, true),
    row("http-connected", Bait::Mail, 3, Only::Http, false),
    row("before-marker", Bait::Mail, 3, Only::Any, true),
    row("after-marker", Bait::Mail, 3, Only::Any, true),
    row("smtp-before-dot", Bait::Mail, 3, SMTP, true),
    row("smtp-after-dot", Bait::Mail, 3, SMTP, true),
    row("smtp-after-answer", Bait::Mail, 3, SMTP, true),
    row("http-before-request", Bait::Mail, 3, Only::Http, true),
    row("http-after-answer", Bait::Mail, 3, Only::Http, true),
    row("after-answer", Bait::Mail, 3, Only::Any, true),
    row("after-settle", Bait::Mail, 3, Only::Any, true),
    row("repeat", Bait::Doubt, 1, Only::Class(Class::Keyed), true),
    row("before-look-up", Bait::OldDoubt, 1, Only::Class(Class::LookUp), false),
    row("after-look-up", Bait::OldDoubt, 1, Only::Class(Class::LookUp), false),
    row("hook-before-note", Bait::Hook, 2, Only::Any, false),
    row("hook-after-note", Bait::Hook, 2, Only::Any, true),
    row("notice-leased", Bait::Mail, 3, Only::Told, true),
    row("notice-posting", Bait::Mail, 3, Only::Told, true),
    row("notice-answered", Bait::Mail, 3, Only::Told, true),
    row("notice-settled", Bait::Mail, 3, Only::Told, true),
    row("mail-session", Bait::Letter, 2, Only::Inbound, false),
    row("mail-data", Bait::Letter, 2, Only::Inbound, true),
    row("hook-received", Bait::Parcel, 2, Only::Inbound, true),
    row("mail-before-commit", Bait::Letter, 3, Only::Inbound, true),
    row("mail-after-commit", Bait::Letter, 3, Only::Inbound, true),
    row("mail-before-250", Bait::Letter, 2, Only::Inbound, true),
    row("hook-before-answer", Bait::Parcel, 2, Only::Inbound, true),
    row("mail-leased", Bait::Large, 1, Only::Inbound, true),
    row("mail-parsed", Bait::Letter, 3, Only::Inbound, true),
    row("before-filing", Bait::Letter, 3, Only::Inbound, true),
    row("after-filing", Bait::Letter, 3, Only::Inbound, true),
    row("mail-told", Bait::Code, 2, Only::Inbound, true),
    row("before-consume", Bait::Code, 3, Only::Inbound, true),
    row("after-consume", Bait::Code, 3, Only::Inbound, true),
    row("before-reply", Bait::Person, 3, Only::Inbound, true),
    row("after-reply", Bait::Person, 3, Only::Inbound, true),
    row("before-sweep", Bait::Start, 1, Only::Any, false),
    row("after-sweep", Bait::Start, 1, Only::Any, true),
];

impl Row {
    /// Why this point cannot be reached with a store and a class, if so.
    pub fn obstacle(&self, store: Store, class: Class) -> Option<&'static str> {
        let http = matches!(class, Class::Keyed | Class::LookUp | Class::Keyless);
        // What is not a step of a store is one of mail that goes out, or of mail that comes in.
        if class == Class::Inbound && !matches!(self.only, Only::Inbound | Only::Store(_)) {
            return Some("a step of mail that goes out");
        }
        match self.only {
            Only::Inbound if class != Class::Inbound => Some("a step of mail that comes in"),
            Only::Store(only) if only != store => Some("a step of the other store"),
            Only::Class(Class::Smtp) if class != Class::Smtp => Some("speaks no SMTP"),
            Only::Class(Class::Sandbox) if class != Class::Sandbox => Some("leaves the machine"),
            Only::Class(Class::Keyed) if class != Class::Keyed => Some("takes no key, so nothing is repeated"),
            Only::Class(Class::LookUp) if class != Class::LookUp => Some("cannot be asked"),
            Only::Http if !http => Some("speaks no HTTP"),
            Only::Told if !matches!(class, Class::Sandbox | Class::Smtp) => Some("told as with other classes"),
            _ => None,
        }
    }
}

/// The rows that can be reached with a store and a class.
pub fn rows(store: Store, class: Class, short: bool) -> Vec<&'static Row> {
    let fits = |row: &&Row| row.obstacle(store, class).is_none() && (row.short || !short);
    ROWS.iter().filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::{Class, ROWS, Store, rows};
    use mailonce_core::failpoint::POINTS;

    #[test]
    fn every_point_of_the_binary_is_in_the_table() {
        assert_eq!(ROWS.map(|row| row.point), POINTS);
    }

    #[test]
    fn every_point_can_be_reached_somewhere_and_the_short_form_is_long_enough() {
        let mut short = 0;
        for store in Store::ALL {
            for class in Class::ALL {
                short += rows(store, class, true).len();
            }
        }
        assert!(short >= 150, "{short} cells");
        let somewhere = |point: &str| {
            let cells = Store::ALL.iter().flat_map(|store| Class::ALL.iter().map(move |class| (*store, *class)));
            cells.into_iter().any(|(store, class)| rows(store, class, false).iter().any(|row| row.point == point))
        };
        assert!(POINTS.iter().all(|point| somewhere(point)));
    }
}
