//! What callers ask for. A wish may be asked for often, by anybody, in other words.

use super::shared::Shared;
use crate::proof::history::{Verb, Wanted};
use mailonce_core::address::Address;
use mailonce_core::content::{Content, RawContent};
use mailonce_core::email::OnUnknown;
use mailonce_core::intent::Intent;
use mailonce_core::key::Key;
use mailonce_core::ttl::Ttl;
use mailonce_engine::send::SendRequest;

/// The name of a wish.
#[derive(Debug, Clone)]
pub(super) enum Name {
    /// A key of its own.
    Given(String),
    /// An intent.
    Intent(Intent),
    /// One key for several emails.
    Batch(String),
    /// None: each time it is asked for it is another wish.
    None,
}

/// A wish.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) team: usize,
    pub(super) name: Name,
    /// The recipients of each of its emails.
    pub(super) to: Vec<Vec<String>>,
    resend: bool,
    /// Minutes until it is due.
    pub(super) later: Option<u64>,
    ttl: Option<i64>,
    /// The transport it names.
    way: Option<String>,
}

/// People that intents are about.
const PEOPLE: [&str; 3] = ["ada@example.org", "bob@example.org", "cyd@example.org"];

impl Wish {
    /// A wish of this world.
    pub(super) fn draw(shared: &Shared, number: usize) -> Self {
        // Teams use the same words for their keys.
        let (team, word) = (number % shared.plan.teams, number / shared.plan.teams);
        let name = match shared.below(10) {
            0..=4 => Name::Given(format!("key-{word}")),
            5 | 6 => Name::Intent(Intent {
                kind: "order.confirmation".into(),
                entity: "order_1".into(),
                version: 1,
                period: None,
            }),
            7 | 8 => Name::Batch(format!("batch-{word}")),
            _ => Name::None,
        };
        let own = |item: u64| format!("w{number}-{item}@example.org");
        let to = match &name {
            Name::Intent(_) => {
                let (first, count) = (shared.below(3) as usize, shared.between(1, 2) as usize);
                vec![(0..count).map(|n| PEOPLE[(first + n) % 3].to_owned()).collect()]
            }
            Name::Batch(_) => vec![vec![own(0)], vec![own(1)]],
            _ => vec![(0..shared.between(1, 2)).map(own).collect()],
        };
        let way = shared.below(5) == 0;
        // Wishes of one intent may meet, and another time would be another meaning.
        let later = shared.below(6) == 0 && !matches!(name, Name::Intent(_));
        Self {
            team,
            name,
            to,
            resend: shared.below(3) == 0,
            later: later.then(|| shared.between(1, 90)),
            ttl: (shared.below(4) == 0).then_some(20 * 60_000),
            way: way.then(|| "hop0".to_owned()),
        }
    }

    pub(super) fn verb(&self) -> Verb {
        if matches!(self.name, Name::Batch(_)) { Verb::Batch } else { Verb::Send }
    }

    /// The key under which all calls for it go.
    pub(super) fn key(&self) -> Option<String> {
        match &self.name {
            Name::Given(key) | Name::Batch(key) => Some(key.clone()),
            Name::Intent(intent) => {
                let to: Vec<Address> = self.to.iter().flatten().filter_map(|to| Address::parse(to).ok()).collect();
                Some(intent.key(&to))
            }
            Name::None => None,
        }
    }

    /// Whether other words are forgiven.
    pub(super) fn forgives(&self) -> bool {
        matches!(self.name, Name::Intent(_))
    }

    /// The emails it asks for, in these words.
    pub(super) fn wanted(&self, words: u64) -> Vec<Wanted> {
        let wanted = |to: &Vec<String>| Wanted { to: to.clone(), body: meaning(&text(words, false)) };
        self.to.iter().map(wanted).collect()
    }

    /// The requests for it, in these words. `turn` changes what must not matter.
    pub(super) fn requests(&self, words: u64, turn: bool) -> Vec<SendRequest> {
        self.to.iter().filter_map(|to| self.request(to, words, turn)).collect()
    }

    fn request(&self, to: &[String], words: u64, turn: bool) -> Option<SendRequest> {
        let mut to = to.to_vec();
        if turn {
            to.reverse();
        }
        let raw = RawContent {
            from: "agent@example.com".into(),
            to,
            subject: "News".into(),
            text: Some(text(words, turn)),
            scheduled_at: self.later.map(|minutes| format!("in {minutes} minutes")),
            ..RawContent::default()
        };
        Some(SendRequest {
            content: Content::check(raw).ok()?,
            intent: match &self.name {
                Name::Intent(intent) => Some(intent.clone()),
                _ => None,
            },
            key: match &self.name {
                Name::Given(key) => Key::parse(key).ok(),
                _ => None,
            },
            ttl: self.ttl.map(Ttl),
            on_mismatch: None,
            on_unknown: Some(if self.resend { OnUnknown::Resend } else { OnUnknown::Hold }),
            transport: self.way.clone(),
            distinct_token: None,
            sender_name: None,
            stopped: None,
        })
    }
}

/// What a mail says. Line ends mean nothing.
fn text(words: u64, turn: bool) -> String {
    let end = if turn { "\r\n" } else { "\n" };
    format!("Hello,{end}this is said in way {words}.")
}

/// What a text means, whatever its line ends are.
pub(super) fn meaning(text: &str) -> u64 {
    let plain = text.bytes().filter(|byte| *byte != b'\r');
    plain.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
