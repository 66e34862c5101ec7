//! The table of failpoints: where each can be reached, what triggers it, and why it cannot be reached elsewhere.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The store of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// SQLite in the data directory.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

impl StoreKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sqlite, Self::Postgres];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// The class of next hop, by what can be done about an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum HopClass {
    /// The built-in sandbox, which captures mail in the accepting transaction. Its test addresses go through workers.
    Sandbox,
    /// An SMTP relay.
    Smtp,
    /// A provider that takes idempotency keys.
    Keyed,
    /// A provider that can be searched for a sent mail.
    LookUp,
    /// A provider with neither.
    Keyless,
    /// Received mail. Mail that is sent in the same round stays in the sandbox.
    Inbound,
}

impl HopClass {
    /// All classes.
    pub const ALL: [Self; 6] = [Self::Sandbox, Self::Smtp, Self::Keyed, Self::LookUp, Self::Keyless, Self::Inbound];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Smtp => "smtp",
            Self::Keyed => "keyed",
            Self::LookUp => "look_up",
            Self::Keyless => "keyless",
            Self::Inbound => "inbound",
        }
    }

    /// The name of the transport that sends the class's mail.
    pub fn transport_name(self) -> &'static str {
        if self == Self::Inbound { Self::Sandbox.as_str() } else { self.as_str() }
    }
}

impl fmt::Display for HopClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The workload that makes a server reach a failpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A start without an existing ledger.
    EmptyLedger,
    /// A start.
    Start,
    /// A start after the previous process left work unfinished.
    Leftover,
    /// Any send.
    Send,
    /// A batch.
    Batch,
    /// A cancel or a resend.
    CancelOrResend,
    /// An unknown outcome that an operator resolves.
    Resolve,
    /// An unknown outcome.
    Unknown,
    /// An unknown outcome that is a minute old.
    OldUnknown,
    /// A provider event.
    Hook,
    /// A mail that arrives by SMTP.
    InboundSmtp,
    /// A mail that arrives by webhook.
    InboundHook,
    /// A mail that is too large to be passed to the parser in memory.
    InboundLarge,
    /// A mail with a code, and agents that consume it.
    ConsumeCode,
    /// A mail from a person, and agents that reply to it.
    ReplyToPerson,
    /// A claim.
    Claim,
    /// A row in the outbox of another database.
    Outbox,
    /// The erasure of a person.
    Erasure,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct PointRow {
    /// The name of the failpoint.
    pub point: &'static str,
    /// What triggers it.
    pub trigger: Trigger,
    /// The crash happens at a random hit from the first up to this one.
    pub max_hit: u64,
    /// Where it can be reached.
    pub reachable: Reachability,
    /// Whether the short form includes it.
    pub short: bool,
}

/// Where a failpoint can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reachability {
    /// Everywhere.
    Any,
    /// With one store.
    Store(StoreKind),
    /// With one class.
    Class(HopClass),
    /// With the classes that use HTTP.
    Http,
    /// Where webhooks are delivered. The next hop makes no difference, so two classes are enough.
    Endpoints,
    /// With received mail.
    Inbound,
    /// With claims. Rounds of their own reach it: `tests/crash/claims.rs`.
    Claims,
    /// With an outbox. Its own tests reach it: `crates/mailonce/tests/outbox`.
    Outbox,
    /// With an erasure. Its own tests reach it: `crates/mailonce/tests/it/control/erasure_kills.rs`.
    Erasure,
}

/// The failpoints of claims, which have kills and worlds of their own.
pub fn claim_failpoints() -> Vec<&'static str> {
    POINTS.iter().filter(|row| row.reachable == Reachability::Claims).map(|row| row.point).collect()
}

const fn point(point: &'static str, trigger: Trigger, times: u64, only: Reachability, short: bool) -> PointRow {
    PointRow { point, trigger, max_hit: times, reachable: only, short }
}

const SQLITE: Reachability = Reachability::Store(StoreKind::Sqlite);
const POSTGRES: Reachability = Reachability::Store(StoreKind::Postgres);
const SMTP: Reachability = Reachability::Class(HopClass::Smtp);

/// Every failpoint of the binary. A test fails if one is missing.
pub const POINTS: [PointRow; 82] = [
    point("sqlite-migrating", Trigger::EmptyLedger, 3, SQLITE, true),
    point("sqlite-migrated", Trigger::EmptyLedger, 1, SQLITE, false),
    point("postgres-migrating", Trigger::EmptyLedger, 3, POSTGRES, true),
    point("postgres-migrated", Trigger::EmptyLedger, 1, POSTGRES, false),
    point("heartbeat", Trigger::Start, 2, Reachability::Any, false),
    point("recovered", Trigger::Leftover, 1, Reachability::Any, true),
    point("api-before-send", Trigger::Send, 3, Reachability::Any, false),
    point("api-after-send", Trigger::Send, 3, Reachability::Any, true),
    point("api-before-batch", Trigger::Batch, 1, Reachability::Any, false),
    point("api-after-batch", Trigger::Batch, 1, Reachability::Any, true),
    point("api-before-change", Trigger::CancelOrResend, 1, Reachability::Any, false),
    point("api-after-change", Trigger::CancelOrResend, 1, Reachability::Any, true),
    point("api-before-resolve", Trigger::Resolve, 1, Reachability::Any, false),
    point("api-after-resolve", Trigger::Resolve, 1, Reachability::Any, true),
    point("sqlite-before-begin", Trigger::Send, 12, SQLITE, false),
    point("sqlite-after-begin", Trigger::Send, 12, SQLITE, false),
    point("sqlite-before-commit", Trigger::Send, 12, SQLITE, true),
    point("sqlite-after-commit", Trigger::Send, 12, SQLITE, true),
    point("sqlite-answering", Trigger::Send, 12, SQLITE, true),
    point("postgres-before-round", Trigger::Send, 3, POSTGRES, false),
    point("postgres-after-round", Trigger::Send, 3, POSTGRES, true),
    point("postgres-locked", Trigger::Send, 6, POSTGRES, false),
    point("postgres-before-commit", Trigger::Send, 6, POSTGRES, true),
    point("postgres-after-commit", Trigger::Send, 6, POSTGRES, true),
    point("postgres-numbering", Trigger::Send, 4, POSTGRES, true),
    point("postgres-numbered", Trigger::Send, 4, POSTGRES, false),
    point("captured", Trigger::Send, 2, Reachability::Class(HopClass::Sandbox), true),
    point("before-lease", Trigger::Send, 6, Reachability::Any, false),
    point("after-lease", Trigger::Send, 2, Reachability::Any, true),
    point("approach", Trigger::Send, 3, Reachability::Any, false),
    point("smtp-envelope", Trigger::Send, 3, SMTP, false),
    point("smtp-body", Trigger::Send, 3, SMTP, true),
    point("http-connected", Trigger::Send, 3, Reachability::Http, false),
    point("before-marker", Trigger::Send, 3, Reachability::Any, true),
    point("after-marker", Trigger::Send, 3, Reachability::Any, true),
    point("smtp-before-dot", Trigger::Send, 3, SMTP, true),
    point("smtp-after-dot", Trigger::Send, 3, SMTP, true),
    point("smtp-after-answer", Trigger::Send, 3, SMTP, true),
    point("http-before-request", Trigger::Send, 3, Reachability::Http, true),
    point("http-after-answer", Trigger::Send, 3, Reachability::Http, true),
    point("after-answer", Trigger::Send, 3, Reachability::Any, true),
    point("after-settle", Trigger::Send, 3, Reachability::Any, true),
    point("repeat", Trigger::Unknown, 1, Reachability::Class(HopClass::Keyed), true),
    point("before-look-up", Trigger::OldUnknown, 1, Reachability::Class(HopClass::LookUp), false),
    point("after-look-up", Trigger::OldUnknown, 1, Reachability::Class(HopClass::LookUp), false),
    point("hook-before-note", Trigger::Hook, 2, Reachability::Any, false),
    point("hook-after-note", Trigger::Hook, 2, Reachability::Any, true),
    point("notice-leased", Trigger::Send, 3, Reachability::Endpoints, true),
    point("notice-posting", Trigger::Send, 3, Reachability::Endpoints, true),
    point("notice-answered", Trigger::Send, 3, Reachability::Endpoints, true),
    point("notice-settled", Trigger::Send, 3, Reachability::Endpoints, true),
    point("mail-session", Trigger::InboundSmtp, 2, Reachability::Inbound, false),
    point("mail-data", Trigger::InboundSmtp, 2, Reachability::Inbound, true),
    point("hook-received", Trigger::InboundHook, 2, Reachability::Inbound, true),
    point("mail-before-commit", Trigger::InboundSmtp, 3, Reachability::Inbound, true),
    point("mail-after-commit", Trigger::InboundSmtp, 3, Reachability::Inbound, true),
    point("mail-before-250", Trigger::InboundSmtp, 2, Reachability::Inbound, true),
    point("hook-before-answer", Trigger::InboundHook, 2, Reachability::Inbound, true),
    point("mail-leased", Trigger::InboundLarge, 1, Reachability::Inbound, true),
    point("mail-parsed", Trigger::InboundSmtp, 3, Reachability::Inbound, true),
    point("before-filing", Trigger::InboundSmtp, 3, Reachability::Inbound, true),
    point("after-filing", Trigger::InboundSmtp, 3, Reachability::Inbound, true),
    point("mail-told", Trigger::ConsumeCode, 2, Reachability::Inbound, true),
    point("before-consume", Trigger::ConsumeCode, 3, Reachability::Inbound, true),
    point("after-consume", Trigger::ConsumeCode, 3, Reachability::Inbound, true),
    point("before-reply", Trigger::ReplyToPerson, 3, Reachability::Inbound, true),
    point("after-reply", Trigger::ReplyToPerson, 3, Reachability::Inbound, true),
    point("claim-before-acquire", Trigger::Claim, 1, Reachability::Claims, false),
    point("claim-after-acquire", Trigger::Claim, 1, Reachability::Claims, false),
    point("claim-before-action", Trigger::Claim, 1, Reachability::Claims, false),
    point("claim-after-action", Trigger::Claim, 1, Reachability::Claims, false),
    point("claim-lapsed", Trigger::Claim, 1, Reachability::Claims, false),
    point("outbox-leased", Trigger::Outbox, 1, Reachability::Outbox, false),
    point("outbox-accepted", Trigger::Outbox, 1, Reachability::Outbox, false),
    point("outbox-marked", Trigger::Outbox, 1, Reachability::Outbox, false),
    point("outbox-replay-recorded", Trigger::Outbox, 1, Reachability::Outbox, false),
    point("erasure-before-save", Trigger::Erasure, 1, Reachability::Erasure, false),
    point("erasure-after-save", Trigger::Erasure, 1, Reachability::Erasure, false),
    point("erasure-before-overwrite", Trigger::Erasure, 1, Reachability::Erasure, false),
    point("erasure-after-overwrite", Trigger::Erasure, 1, Reachability::Erasure, false),
    point("before-sweep", Trigger::Start, 1, Reachability::Any, false),
    point("after-sweep", Trigger::Start, 1, Reachability::Any, true),
];

impl PointRow {
    /// Why this failpoint cannot be reached with a store and a class, or `None` if it can.
    pub fn unreachable_reason(&self, store: StoreKind, class: HopClass) -> Option<&'static str> {
        let http = matches!(class, HopClass::Keyed | HopClass::LookUp | HopClass::Keyless);
        // A failpoint that belongs to no store is a step of either sending or receiving.
        if class == HopClass::Inbound && !matches!(self.reachable, Reachability::Inbound | Reachability::Store(_)) {
            return Some("a step of sending");
        }
        match self.reachable {
            Reachability::Claims => Some("a step of a claim, which has rounds of its own"),
            Reachability::Outbox => Some("a step of an outbox, which has its own tests"),
            Reachability::Erasure => Some("a step of an erasure, which has its own tests"),
            Reachability::Inbound if class != HopClass::Inbound => Some("a step of receiving"),
            Reachability::Store(only) if only != store => Some("a step of the other store"),
            Reachability::Class(HopClass::Smtp) if class != HopClass::Smtp => Some("does not use SMTP"),
            Reachability::Class(HopClass::Sandbox) if class != HopClass::Sandbox => Some("not captured in the ledger"),
            Reachability::Class(HopClass::Keyed) if class != HopClass::Keyed => {
                Some("takes no idempotency key, so nothing is repeated")
            }
            Reachability::Class(HopClass::LookUp) if class != HopClass::LookUp => Some("cannot be searched"),
            Reachability::Http if !http => Some("does not use HTTP"),
            Reachability::Endpoints if !matches!(class, HopClass::Sandbox | HopClass::Smtp) => {
                Some("webhooks do not depend on the class")
            }
            _ => None,
        }
    }
}

/// The failpoints that can be reached with a store and a class.
pub fn reachable_points(store: StoreKind, class: HopClass, short: bool) -> Vec<&'static PointRow> {
    let fits = |row: &&PointRow| row.unreachable_reason(store, class).is_none() && (row.short || !short);
    POINTS.iter().filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::{HopClass, POINTS as POINT_ROWS, Reachability, StoreKind, reachable_points};
    use mailonce_core::failpoint::POINTS;

    #[test]
    fn every_point_of_the_binary_is_in_the_table() {
        assert_eq!(POINT_ROWS.map(|row| row.point), POINTS);
    }

    #[test]
    fn every_point_can_be_reached_somewhere_and_the_short_form_is_long_enough() {
        let mut short = 0;
        for store in StoreKind::ALL {
            for class in HopClass::ALL {
                short += reachable_points(store, class, true).len();
            }
        }
        assert!(short >= 150, "{short} cells");
        let somewhere = |point: &str| {
            let cells = StoreKind::ALL.iter().flat_map(|store| HopClass::ALL.iter().map(move |class| (*store, *class)));
            cells
                .into_iter()
                .any(|(store, class)| reachable_points(store, class, false).iter().any(|row| row.point == point))
        };
        let has_own_tests = |only| matches!(only, Reachability::Outbox | Reachability::Claims | Reachability::Erasure);
        let mut here = POINT_ROWS.iter().filter(|row| !has_own_tests(row.reachable));
        assert!(here.all(|row| somewhere(row.point)));
    }
}
