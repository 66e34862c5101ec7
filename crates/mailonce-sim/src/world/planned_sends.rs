//! Planned sends. Each may be made several times, by any client, with other content.

use crate::proof::history::{CallKind, ExpectedEmail};
use crate::world::world_state::WorldState;
use mailonce_core::address::Address;
use mailonce_core::intent::Intent;
use mailonce_core::key::Key;
use mailonce_core::outbound::content::{EmailContent, RawContent};
use mailonce_core::outbound::email::OnUnknown;
use mailonce_core::ttl::Ttl;
use mailonce_engine::outbound::keyed_send::SendRequest;

/// What identifies a send.
#[derive(Debug, Clone)]
pub(super) enum SendIdentity {
    /// A key.
    Key(String),
    /// An intent.
    Intent(Intent),
    /// One key for several emails.
    Batch(String),
    /// Nothing: each call is a new email.
    None,
}

/// A planned send.
#[derive(Debug, Clone)]
pub(super) struct PlannedSend {
    pub(super) team: usize,
    pub(super) identity: SendIdentity,
    /// The recipients of each of its emails.
    pub(super) to: Vec<Vec<String>>,
    resend_on_unknown: bool,
    /// Minutes until it is due.
    pub(super) delay_minutes: Option<u64>,
    ttl: Option<i64>,
    /// The transport it names.
    transport: Option<String>,
}

/// Recipients of intents.
const INTENT_RECIPIENTS: [&str; 3] = ["ada@example.org", "bob@example.org", "cyd@example.org"];

impl PlannedSend {
    /// Draws a send.
    pub(super) fn draw(shared: &WorldState, number: usize) -> Self {
        // Teams use equal keys.
        let (team, index) = (number % shared.plan.teams, number / shared.plan.teams);
        let name = match shared.below(10) {
            0..=4 => SendIdentity::Key(format!("key-{index}")),
            5 | 6 => SendIdentity::Intent(Intent {
                kind: "order.confirmation".into(),
                entity: "order_1".into(),
                version: 1,
                period: None,
            }),
            7 | 8 => SendIdentity::Batch(format!("batch-{index}")),
            _ => SendIdentity::None,
        };
        let own = |item: u64| format!("w{number}-{item}@example.org");
        let to = match &name {
            SendIdentity::Intent(_) => {
                let (first, count) = (shared.below(3) as usize, shared.between(1, 2) as usize);
                vec![(0..count).map(|n| INTENT_RECIPIENTS[(first + n) % 3].to_owned()).collect()]
            }
            SendIdentity::Batch(_) => vec![vec![own(0)], vec![own(1)]],
            _ => vec![(0..shared.between(1, 2)).map(own).collect()],
        };
        let names_transport = shared.below(5) == 0;
        // Sends of one intent may coincide, and another time would change their content.
        let later = shared.below(6) == 0 && !matches!(name, SendIdentity::Intent(_));
        Self {
            team,
            identity: name,
            to,
            resend_on_unknown: shared.below(3) == 0,
            delay_minutes: later.then(|| shared.between(1, 90)),
            ttl: (shared.below(4) == 0).then_some(20 * 60_000),
            transport: names_transport.then(|| "hop0".to_owned()),
        }
    }

    pub(super) fn call_kind(&self) -> CallKind {
        if matches!(self.identity, SendIdentity::Batch(_)) { CallKind::Batch } else { CallKind::Send }
    }

    /// The idempotency key of all its calls.
    pub(super) fn idempotency_key(&self) -> Option<String> {
        match &self.identity {
            SendIdentity::Key(key) | SendIdentity::Batch(key) => Some(key.clone()),
            SendIdentity::Intent(intent) => {
                let to: Vec<Address> = self.to.iter().flatten().filter_map(|to| Address::parse(to).ok()).collect();
                Some(intent.derive_key(&to))
            }
            SendIdentity::None => None,
        }
    }

    /// Whether other content under its key is accepted as a repeat.
    pub(super) fn forgives_other_content(&self) -> bool {
        matches!(self.identity, SendIdentity::Intent(_))
    }

    /// The emails that it should create, with the content of this variant.
    pub(super) fn expected_emails(&self, variant: u64) -> Vec<ExpectedEmail> {
        let wanted =
            |to: &Vec<String>| ExpectedEmail { to: to.clone(), body: content_hash(&mail_text(variant, false)) };
        self.to.iter().map(wanted).collect()
    }

    /// Its requests, with the content of this variant. `turn` changes what must not matter.
    pub(super) fn to_requests(&self, variant: u64, turn: bool) -> Vec<SendRequest> {
        self.to.iter().filter_map(|to| self.to_request(to, variant, turn)).collect()
    }

    fn to_request(&self, to: &[String], variant: u64, turn: bool) -> Option<SendRequest> {
        let mut to = to.to_vec();
        if turn {
            to.reverse();
        }
        let raw = RawContent {
            from: "agent@example.com".into(),
            to,
            subject: "News".into(),
            text: Some(mail_text(variant, turn)),
            scheduled_at: self.delay_minutes.map(|minutes| format!("in {minutes} minutes")),
            ..RawContent::default()
        };
        Some(SendRequest {
            content: EmailContent::validate(raw).ok()?,
            intent: match &self.identity {
                SendIdentity::Intent(intent) => Some(intent.clone()),
                _ => None,
            },
            key: match &self.identity {
                SendIdentity::Key(key) => Key::parse(key).ok(),
                _ => None,
            },
            ttl: self.ttl.map(Ttl),
            on_mismatch: None,
            on_unknown: Some(if self.resend_on_unknown { OnUnknown::Resend } else { OnUnknown::Hold }),
            transport: self.transport.clone(),
            distinct_token: None,
            sender_name: None,
            refusal: None,
            wants_policy: false,
        })
    }
}

/// The hash of a mail's content. Line ends make no difference.
fn mail_text(variant: u64, turn: bool) -> String {
    let end = if turn { "\r\n" } else { "\n" };
    format!("Hello,{end}this is said in way {variant}.")
}

/// A text with normalized line ends.
pub(super) fn content_hash(text: &str) -> u64 {
    let plain = text.bytes().filter(|byte| *byte != b'\r');
    plain.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
