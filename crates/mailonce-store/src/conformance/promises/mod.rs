//! The promises, one folder per domain. Each domain lists its promises in its `mod.rs` with [`promises!`].
//!
//! To add a promise, write the function in the file of its topic and add its name with a one-sentence statement to the
//! list of the domain. `MAILONCE_BLESS=1` then writes it to `docs/promises.md`.

/// Lists the promises of a domain and runs each of them on every store.
///
/// An entry is a file with a title and a summary. It holds the promises of that file, each with its statement.
macro_rules! promises {
    ($(
        $(#[doc = $summary:literal])+
        $file:ident $title:literal {$(
            $(#[doc = $statement:literal])+
            $promise:ident,
        )+}
    )+) => {
        /// The promises of this domain as `docs/promises.md` shows them.
        pub(super) const GROUPS: &[$crate::conformance::page::Group] = &[$($crate::conformance::page::Group {
            file: stringify!($file),
            title: $title,
            summary: concat!($($summary),+),
            promises: &[$((concat!($($statement),+), stringify!($promise))),+],
        }),+];

        promises! { @tests memory, open_store::memory(), $($file [$($promise)+])+ }
        promises! { @tests sqlite, open_store::sqlite(), $($file [$($promise)+])+ }
        promises! { @tests postgres, open_store::postgres().await, $($file [$($promise)+])+ }
    };
    (@tests $store:ident, $open:expr, $($file:ident [$($promise:ident)+])+) => {
        mod $store {
            use crate::conformance::{check_promise, fixtures::open_store};

            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                check_promise($open, super::$file::$promise).await;
            })+)+
        }
    };
}

mod access;
mod claims;
mod control;
mod conversation;
mod events;
mod handoff;
mod inbound;
mod inbox;
mod outbound;
mod search;

use super::page::Domain;

/// All promises, in the order of `docs/promises.md`.
pub(super) const DOMAINS: &[Domain] = &[
    Domain { folder: "outbound", title: "Accepting emails", groups: outbound::GROUPS },
    Domain { folder: "handoff", title: "Handing emails over", groups: handoff::GROUPS },
    Domain { folder: "inbound", title: "Receiving mail", groups: inbound::GROUPS },
    Domain { folder: "inbox", title: "Inboxes, messages and artifacts", groups: inbox::GROUPS },
    Domain { folder: "conversation", title: "Conversations", groups: conversation::GROUPS },
    Domain { folder: "events", title: "Events and webhooks", groups: events::GROUPS },
    Domain { folder: "control", title: "Budgets and records", groups: control::GROUPS },
    Domain { folder: "claims", title: "Claims", groups: claims::GROUPS },
    Domain { folder: "search", title: "Search", groups: search::GROUPS },
    Domain { folder: "access", title: "Teams and API keys", groups: access::GROUPS },
];
