//! Random steps of callers. There are few keys, intents and recipients, so that steps often collide.

use mailonce_core::{
    id::TeamId,
    key::{EmailKey, Key, KeyHash},
    outbound::email::{EmailState, Guard},
    time::{Time, format_span},
};
use std::fmt;

use crate::conformance::{
    DAY, EmailFixture, HOUR, MINUTE, OTHER_TEAM, SECOND, TEAM,
    fixtures::emails::charge_at,
    given_key_hash, intent_email, keyed_email, keyless_email,
    random::{
        claims::ClaimCommand, conversations::ConversationCommand, handoffs::HandoffCommand,
        inbound_commands::InboundCommand, templates::TemplateCommand, webhooks::WebhookCommand,
    },
};

/// A small random number generator (SplitMix64): the same seed gives the same numbers on every machine.
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u8) -> u8 {
        (self.next() % u64::from(bound)) as u8
    }

    pub(super) fn one_in(&mut self, bound: u8) -> bool {
        self.below(bound) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u8) as usize]
    }

    pub(super) fn maybe_one_in<T>(&mut self, one_in: u8, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.one_in(one_in) { Some(make(self)) } else { None }
    }
}

const RECIPIENT_GROUPS: [&str; 6] = ["a", "b", "ab", "bc", "abc", "c"];
const GIVEN_KEYS: u8 = 5;
const INTENTS: u8 = 3;
const VERSIONS: [u32; 2] = [1, 2];
const BATCHES: u8 = 2;
const ITEMS: u8 = 4;
const MAX_EXTRA_CONCURRENT: u8 = 10;
const OPERATIONS: u8 = 3;
const TTLS: [i64; 5] = [SECOND, HOUR, DAY, 8 * DAY, 35 * DAY];

/// The key of an email or an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum KeyChoice {
    NoKey,
    Given(u8),
    /// An intent, its recipients and its version.
    Intent(u8, &'static str, u32),
    Item(u8, u8),
    Batch(u8),
    Operation(u8),
}

impl KeyChoice {
    /// Every key that can be looked up.
    pub(super) fn all() -> Vec<Self> {
        let groups = (0..INTENTS).flat_map(|n| RECIPIENT_GROUPS.map(|group| (n, group)));
        let intents = groups.flat_map(|(n, group)| VERSIONS.map(|version| Self::Intent(n, group, version)));
        let items = (0..BATCHES).flat_map(|n| (0..ITEMS).map(move |i| Self::Item(n, i)));
        let plain = (0..GIVEN_KEYS).map(Self::Given).chain((0..BATCHES).map(Self::Batch));
        plain.chain((0..OPERATIONS).map(Self::Operation)).chain(intents).chain(items).collect()
    }

    pub(super) fn hash(self, team: TeamId) -> KeyHash {
        match self {
            Self::NoKey => given_key_hash(team, "nobody"),
            Self::Given(n) => given_key_hash(team, &format!("k{n}")),
            Self::Batch(n) => given_key_hash(team, &format!("b{n}")),
            Self::Operation(n) => given_key_hash(team, &format!("op{n}")),
            Self::Intent(n, group, version) => {
                intent_email(&format!("o{n}"), &addresses_of(group)).version(version).team(team).hash()
            }
            Self::Item(n, index) => {
                let batch = Key::parse(&format!("b{n}")).unwrap();
                EmailKey::Item { batch, index: index.into() }.hash(team)
            }
        }
    }

    fn for_email(rng: &mut SplitMix64) -> Self {
        match rng.below(10) {
            0 => Self::NoKey,
            1..=4 => Self::Given(rng.below(GIVEN_KEYS)),
            5 => Self::Operation(rng.below(OPERATIONS)),
            _ => Self::Intent(rng.below(INTENTS), rng.pick(&RECIPIENT_GROUPS), rng.pick(&[1, 1, 2])),
        }
    }

    pub(super) fn for_operation(rng: &mut SplitMix64) -> Self {
        if rng.one_in(4) { Self::Given(rng.below(GIVEN_KEYS)) } else { Self::Operation(rng.below(OPERATIONS)) }
    }
}

fn addresses_of(group: &str) -> Vec<&'static str> {
    let address = |letter| match letter {
        'a' => "a@example.com",
        'b' => "b@example.com",
        _ => "c@example.com",
    };
    group.chars().map(address).collect()
}

/// A random email.
#[derive(Clone)]
pub(super) struct EmailSpec {
    key: KeyChoice,
    text: char,
    due_in: Option<i64>,
    ttl_ms: i64,
    separate_envelopes: bool,
    compared: bool,
    /// What it is charged in a budget of one hour.
    charged: Option<u64>,
    /// Whether a guard holds it (true) or only flags it (false).
    guard_holds: Option<bool>,
}

impl EmailSpec {
    fn random(rng: &mut SplitMix64, name: KeyChoice) -> Self {
        Self {
            key: name,
            text: rng.pick(&['x', 'y']),
            due_in: rng.maybe_one_in(4, |rng| rng.pick(&[-HOUR, MINUTE, HOUR, 3 * DAY])),
            ttl_ms: rng.pick(&TTLS),
            separate_envelopes: rng.one_in(3),
            compared: rng.one_in(4),
            charged: rng.maybe_one_in(3, |rng| rng.pick(&[1, 1, 2, 9])),
            guard_holds: rng.maybe_one_in(8, |rng| rng.one_in(2)),
        }
    }

    /// An email that replies to a message.
    pub(super) fn for_reply(rng: &mut SplitMix64) -> Self {
        let name = KeyChoice::for_email(rng);
        Self::random(rng, name)
    }

    pub(super) fn to_fixture(&self, team: TeamId, now: Time) -> EmailFixture {
        let fixture = match self.key {
            KeyChoice::NoKey => keyless_email(),
            KeyChoice::Given(n) => keyed_email(&format!("k{n}")).to(&addresses_of("ab")),
            KeyChoice::Batch(n) => keyed_email(&format!("b{n}")),
            KeyChoice::Operation(n) => keyed_email(&format!("op{n}")),
            KeyChoice::Intent(n, group, version) => {
                intent_email(&format!("o{n}"), &addresses_of(group)).version(version)
            }
            KeyChoice::Item(n, index) => keyless_email().batch_item(&format!("b{n}"), index.into()),
        };
        let fixture = fixture.team(team).text(&self.text.to_string()).ttl(self.ttl_ms);
        let fixture = self.due_in.map_or(fixture.clone(), |ms| fixture.due(now.plus(ms)));
        let fixture = if self.compared { fixture.compared() } else { fixture };
        let fixture =
            self.charged.map_or(fixture.clone(), |amount| fixture.with_charge(charge_at(1, amount, 8, HOUR, now)));
        let fixture = match self.guard_holds {
            Some(true) => fixture.held(Guard::Approval),
            Some(false) => fixture.flagged(Guard::LooksDuplicate),
            None => fixture,
        };
        if self.separate_envelopes { fixture.separate_envelopes() } else { fixture }
    }
}

impl fmt::Debug for EmailSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} ttl {}", self.key, self.text, format_span(self.ttl_ms))?;
        if let Some(ms) = self.due_in {
            write!(f, " in {}", format_span(ms))?;
        }
        f.write_str(if self.compared { " compared" } else { "" })?;
        f.write_str(&self.charged.map_or_else(String::new, |amount| format!(" charged {amount}")))?;
        f.write_str(self.guard_holds.map_or("", |held| if held { " held" } else { " flagged" }))?;
        f.write_str(if self.separate_envelopes { " apart" } else { "" })
    }
}

/// The key and the digest of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationSpec(pub(super) KeyChoice, pub(super) u8);

/// What a caller does. Emails are named by their recency; 0 is the latest.
#[derive(Clone, Debug)]
pub(super) enum RandomCommand {
    Accept(EmailSpec),
    /// Concurrent sends.
    Concurrent(Vec<EmailSpec>),
    Batch(Option<OperationSpec>, Vec<EmailSpec>),
    Cancel(u8, Option<OperationSpec>),
    Reschedule(u8, i64),
    Resend(u8, Option<OperationSpec>),
    Capture(usize),
    NoteSuppressed(u8, u8),
    Extend(KeyChoice, i64),
    Forget(KeyChoice),
    LookUpKey(KeyChoice),
    List(Option<EmailState>, Option<&'static str>, usize),
    Sweep,
    Handoff(HandoffCommand),
    Inbound(InboundCommand),
    Conversation(ConversationCommand),
    Webhook(WebhookCommand),
    Template(TemplateCommand),
    Claim(ClaimCommand),
    AdvanceTime(i64),
}

/// A command and its team. Most commands belong to one team.
#[derive(Clone)]
pub(super) struct RandomStep {
    is_own_team: bool,
    pub(super) command: RandomCommand,
}

impl fmt::Debug for RandomStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_own_team { "team  " } else { "other " })?;
        match self.command {
            RandomCommand::AdvanceTime(ms) => write!(f, "Later({})", format_span(ms)),
            _ => self.command.fmt(f),
        }
    }
}

impl RandomStep {
    pub(super) fn team(&self) -> TeamId {
        if self.is_own_team { TEAM } else { OTHER_TEAM }
    }

    pub(super) fn random(rng: &mut SplitMix64) -> Self {
        let is_own_team = !rng.one_in(8);
        let name = |rng: &mut SplitMix64| rng.pick(&KeyChoice::all());
        let call = |rng: &mut SplitMix64| OperationSpec(KeyChoice::for_operation(rng), rng.below(2));
        let command = match rng.below(204) {
            0..=9 => {
                let name = KeyChoice::for_email(rng);
                RandomCommand::Accept(EmailSpec::random(rng, name))
            }
            10..=13 => random_concurrent(rng),
            14..=15 => random_batch(rng),
            16..=18 => RandomCommand::Cancel(rng.below(6), rng.maybe_one_in(3, call)),
            19 => RandomCommand::Reschedule(rng.below(6), rng.pick(&[-MINUTE, HOUR, 2 * DAY])),
            20..=22 => RandomCommand::Resend(rng.below(6), rng.maybe_one_in(3, call)),
            23..=25 => RandomCommand::Capture(rng.pick(&[1, 2, 100])),
            26 => RandomCommand::NoteSuppressed(rng.below(6), rng.below(30)),
            27 => RandomCommand::Extend(name(rng), rng.pick(&TTLS)),
            28..=29 => RandomCommand::Forget(name(rng)),
            30..=31 => RandomCommand::LookUpKey(name(rng)),
            32 => random_list(rng),
            33 => RandomCommand::Sweep,
            34..=38 => RandomCommand::AdvanceTime(rng.pick(&[1, SECOND, MINUTE, HOUR, DAY])),
            40..=63 => RandomCommand::Handoff(HandoffCommand::random(rng)),
            64..=103 => RandomCommand::Inbound(InboundCommand::random(rng)),
            104..128 => RandomCommand::Conversation(ConversationCommand::random(rng)),
            128..164 => RandomCommand::Webhook(WebhookCommand::random(rng)),
            164..174 => RandomCommand::Template(TemplateCommand::random(rng)),
            174.. => RandomCommand::Claim(ClaimCommand::random(rng)),
            _ => RandomCommand::AdvanceTime(rng.pick(&[2 * DAY, 9 * DAY, 31 * DAY, 36 * DAY, 440 * DAY])),
        };
        Self { is_own_team, command }
    }
}

fn random_concurrent(rng: &mut SplitMix64) -> RandomCommand {
    let spec = |rng: &mut SplitMix64| {
        let name = KeyChoice::for_email(rng);
        // No charges: which email gets the last unit of a budget depends on the order, which differs between stores.
        EmailSpec { charged: None, ..EmailSpec::random(rng, name) }
    };
    RandomCommand::Concurrent((0..2 + rng.below(MAX_EXTRA_CONCURRENT)).map(|_| spec(rng)).collect())
}

fn random_batch(rng: &mut SplitMix64) -> RandomCommand {
    let number = rng.below(BATCHES);
    let item = |index: u8, rng: &mut SplitMix64| {
        let name = if rng.one_in(2) { KeyChoice::Item(number, index) } else { KeyChoice::for_email(rng) };
        EmailSpec::random(rng, name)
    };
    let count = 1 + rng.below(ITEMS);
    let items = (0..count).map(|index| item(index, rng)).collect();
    let key = if rng.one_in(8) { KeyChoice::Given(rng.below(GIVEN_KEYS)) } else { KeyChoice::Batch(number) };
    let call = OperationSpec(key, u8::from(rng.one_in(4)));
    RandomCommand::Batch(if rng.one_in(4) { None } else { Some(call) }, items)
}

fn random_list(rng: &mut SplitMix64) -> RandomCommand {
    use EmailState as S;
    let states = [S::Queued, S::Scheduled, S::Sending, S::Unknown, S::Sent, S::Held, S::Failed, S::Cancelled];
    let state = rng.maybe_one_in(2, |rng| rng.pick(&states));
    let to = rng.maybe_one_in(2, |rng| addresses_of(rng.pick(&["a", "b", "c"]))[0]);
    RandomCommand::List(state, to, rng.pick(&[1, 3, 50]))
}
