//! Turns: what random callers do. Few keys, few intents, few people, so that they often meet.

use mailonce_core::{
    id::TeamId,
    key::{EmailKey, Key, KeyHash},
    outbound::email::{EmailState, Guard},
    time::{Time, format_span},
};
use std::fmt;

use super::{
    DAY, EmailFixture, HOUR, MINUTE, OTHER_TEAM, SECOND, TEAM, budgets::charge_at, chat::ConversationCommand,
    deed::HandoffCommand, errand::InboundCommand, given_key_hash, intent_email, keyed_email, keyless_email,
    rumour::WebhookCommand,
};

/// A small generator (splitmix64): the same numbers for the same seed, everywhere.
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, most: u8) -> u8 {
        (self.next() % u64::from(most)) as u8
    }

    pub(super) fn one_in(&mut self, most: u8) -> bool {
        self.below(most) == 0
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

/// The name of a wish or a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum KeyChoice {
    NoKey,
    Given(u8),
    /// An intent, whom it is for, and its version.
    Intent(u8, &'static str, u32),
    Item(u8, u8),
    Batch(u8),
    Operation(u8),
}

impl KeyChoice {
    /// Every name that can be looked up.
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

    fn for_email(chance: &mut SplitMix64) -> Self {
        match chance.below(10) {
            0 => Self::NoKey,
            1..=4 => Self::Given(chance.below(GIVEN_KEYS)),
            5 => Self::Operation(chance.below(OPERATIONS)),
            _ => Self::Intent(chance.below(INTENTS), chance.pick(&RECIPIENT_GROUPS), chance.pick(&[1, 1, 2])),
        }
    }

    pub(super) fn for_operation(chance: &mut SplitMix64) -> Self {
        if chance.one_in(4) { Self::Given(chance.below(GIVEN_KEYS)) } else { Self::Operation(chance.below(OPERATIONS)) }
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

/// A wish in short.
#[derive(Clone)]
pub(super) struct EmailSpec {
    key: KeyChoice,
    text: char,
    due_in: Option<i64>,
    ttl_ms: i64,
    separate_envelopes: bool,
    compared: bool,
    /// How much it counts for in a budget of one hour.
    charged: Option<u64>,
    /// What a guard said before: held, or only flagged.
    guard_holds: Option<bool>,
}

impl EmailSpec {
    fn random(chance: &mut SplitMix64, name: KeyChoice) -> Self {
        Self {
            key: name,
            text: chance.pick(&['x', 'y']),
            due_in: chance.maybe_one_in(4, |chance| chance.pick(&[-HOUR, MINUTE, HOUR, 3 * DAY])),
            ttl_ms: chance.pick(&TTLS),
            separate_envelopes: chance.one_in(3),
            compared: chance.one_in(4),
            charged: chance.maybe_one_in(3, |chance| chance.pick(&[1, 1, 2, 9])),
            guard_holds: chance.maybe_one_in(8, |chance| chance.one_in(2)),
        }
    }

    /// A wish that answers a message.
    pub(super) fn for_reply(chance: &mut SplitMix64) -> Self {
        let name = KeyChoice::for_email(chance);
        Self::random(chance, name)
    }

    pub(super) fn to_fixture(&self, team: TeamId, now: Time) -> EmailFixture {
        let draft = match self.key {
            KeyChoice::NoKey => keyless_email(),
            KeyChoice::Given(n) => keyed_email(&format!("k{n}")).to(&addresses_of("ab")),
            KeyChoice::Batch(n) => keyed_email(&format!("b{n}")),
            KeyChoice::Operation(n) => keyed_email(&format!("op{n}")),
            KeyChoice::Intent(n, group, version) => {
                intent_email(&format!("o{n}"), &addresses_of(group)).version(version)
            }
            KeyChoice::Item(n, index) => keyless_email().batch_item(&format!("b{n}"), index.into()),
        };
        let draft = draft.team(team).text(&self.text.to_string()).ttl(self.ttl_ms);
        let draft = self.due_in.map_or(draft.clone(), |ms| draft.due(now.plus(ms)));
        let draft = if self.compared { draft.compared() } else { draft };
        let draft = self.charged.map_or(draft.clone(), |amount| draft.with_charge(charge_at(1, amount, 8, HOUR, now)));
        let draft = match self.guard_holds {
            Some(true) => draft.held(Guard::Approval),
            Some(false) => draft.flagged(Guard::LooksDuplicate),
            None => draft,
        };
        if self.separate_envelopes { draft.separate_envelopes() } else { draft }
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

/// A call's key and what it asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationSpec(pub(super) KeyChoice, pub(super) u8);

/// What a caller does. Emails are named by their place, counted from the latest.
#[derive(Clone, Debug)]
pub(super) enum RandomCommand {
    Accept(EmailSpec),
    /// Accepts that are called at the same moment.
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
    AdvanceTime(i64),
}

/// Who does what. Most belongs to one team.
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

    pub(super) fn random(chance: &mut SplitMix64) -> Self {
        let mine = !chance.one_in(8);
        let name = |chance: &mut SplitMix64| chance.pick(&KeyChoice::all());
        let call = |chance: &mut SplitMix64| OperationSpec(KeyChoice::for_operation(chance), chance.below(2));
        let verb = match chance.below(164) {
            0..=9 => {
                let name = KeyChoice::for_email(chance);
                RandomCommand::Accept(EmailSpec::random(chance, name))
            }
            10..=13 => random_concurrent(chance),
            14..=15 => random_batch(chance),
            16..=18 => RandomCommand::Cancel(chance.below(6), chance.maybe_one_in(3, call)),
            19 => RandomCommand::Reschedule(chance.below(6), chance.pick(&[-MINUTE, HOUR, 2 * DAY])),
            20..=22 => RandomCommand::Resend(chance.below(6), chance.maybe_one_in(3, call)),
            23..=25 => RandomCommand::Capture(chance.pick(&[1, 2, 100])),
            26 => RandomCommand::NoteSuppressed(chance.below(6), chance.below(30)),
            27 => RandomCommand::Extend(name(chance), chance.pick(&TTLS)),
            28..=29 => RandomCommand::Forget(name(chance)),
            30..=31 => RandomCommand::LookUpKey(name(chance)),
            32 => random_list(chance),
            33 => RandomCommand::Sweep,
            34..=38 => RandomCommand::AdvanceTime(chance.pick(&[1, SECOND, MINUTE, HOUR, DAY])),
            40..=63 => RandomCommand::Handoff(HandoffCommand::random(chance)),
            64..=103 => RandomCommand::Inbound(InboundCommand::random(chance)),
            104..128 => RandomCommand::Conversation(ConversationCommand::random(chance)),
            128.. => RandomCommand::Webhook(WebhookCommand::random(chance)),
            _ => RandomCommand::AdvanceTime(chance.pick(&[2 * DAY, 9 * DAY, 31 * DAY, 36 * DAY, 440 * DAY])),
        };
        Self { is_own_team: mine, command: verb }
    }
}

fn random_concurrent(chance: &mut SplitMix64) -> RandomCommand {
    let sketch = |chance: &mut SplitMix64| {
        let name = KeyChoice::for_email(chance);
        // Which of them gets the last place of a budget depends on the order, which differs from store to store.
        EmailSpec { charged: None, ..EmailSpec::random(chance, name) }
    };
    RandomCommand::Concurrent((0..2 + chance.below(MAX_EXTRA_CONCURRENT)).map(|_| sketch(chance)).collect())
}

fn random_batch(chance: &mut SplitMix64) -> RandomCommand {
    let number = chance.below(BATCHES);
    let item = |index: u8, chance: &mut SplitMix64| {
        let name = if chance.one_in(2) { KeyChoice::Item(number, index) } else { KeyChoice::for_email(chance) };
        EmailSpec::random(chance, name)
    };
    let count = 1 + chance.below(ITEMS);
    let items = (0..count).map(|index| item(index, chance)).collect();
    let key = if chance.one_in(8) { KeyChoice::Given(chance.below(GIVEN_KEYS)) } else { KeyChoice::Batch(number) };
    let call = OperationSpec(key, u8::from(chance.one_in(4)));
    RandomCommand::Batch(if chance.one_in(4) { None } else { Some(call) }, items)
}

fn random_list(chance: &mut SplitMix64) -> RandomCommand {
    use EmailState as S;
    let states = [S::Queued, S::Scheduled, S::Sending, S::Unknown, S::Sent, S::Held, S::Failed, S::Cancelled];
    let state = chance.maybe_one_in(2, |chance| chance.pick(&states));
    let to = chance.maybe_one_in(2, |chance| addresses_of(chance.pick(&["a", "b", "c"]))[0]);
    RandomCommand::List(state, to, chance.pick(&[1, 3, 50]))
}
