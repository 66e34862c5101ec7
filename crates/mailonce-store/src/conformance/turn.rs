//! Turns: what random callers do. Few keys, few intents, few people, so that they often meet.

use mailonce_core::{
    email::{EmailState, Guard},
    id::TeamId,
    key::{Key, KeyHash, KeyName},
    time::{Time, show_span},
};
use std::fmt;

use super::{
    DAY, Draft, HOUR, MINUTE, OTHER, SECOND, TEAM, about, budgets::charge, chat::Chat, deed::Deed, errand::Errand,
    given, keyed, keyless, rumour::Rumour,
};

/// A small generator (splitmix64): the same numbers for the same seed, everywhere.
pub(super) struct Chance(pub(super) u64);

impl Chance {
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

    pub(super) fn maybe<T>(&mut self, one_in: u8, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.one_in(one_in) { Some(make(self)) } else { None }
    }
}

const GROUPS: [&str; 6] = ["a", "b", "ab", "bc", "abc", "c"];
const GIVEN: u8 = 5;
const INTENTS: u8 = 3;
const VERSIONS: [u32; 2] = [1, 2];
const BATCHES: u8 = 2;
const ITEMS: u8 = 4;
const TOGETHER: u8 = 10;
const OPERATIONS: u8 = 3;
const MEMORIES: [i64; 5] = [SECOND, HOUR, DAY, 8 * DAY, 35 * DAY];

/// The name of a wish or a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Name {
    Nameless,
    Given(u8),
    /// An intent, whom it is for, and its version.
    Intent(u8, &'static str, u32),
    Item(u8, u8),
    Batch(u8),
    Call(u8),
}

impl Name {
    /// Every name that can be looked up.
    pub(super) fn all() -> Vec<Self> {
        let groups = (0..INTENTS).flat_map(|n| GROUPS.map(|group| (n, group)));
        let intents = groups.flat_map(|(n, group)| VERSIONS.map(|version| Self::Intent(n, group, version)));
        let items = (0..BATCHES).flat_map(|n| (0..ITEMS).map(move |i| Self::Item(n, i)));
        let plain = (0..GIVEN).map(Self::Given).chain((0..BATCHES).map(Self::Batch));
        plain.chain((0..OPERATIONS).map(Self::Call)).chain(intents).chain(items).collect()
    }

    pub(super) fn hash(self, team: TeamId) -> KeyHash {
        match self {
            Self::Nameless => given(team, "nobody"),
            Self::Given(n) => given(team, &format!("k{n}")),
            Self::Batch(n) => given(team, &format!("b{n}")),
            Self::Call(n) => given(team, &format!("op{n}")),
            Self::Intent(n, group, version) => {
                about(&format!("o{n}"), &people(group)).version(version).team(team).hash()
            }
            Self::Item(n, index) => {
                let batch = Key::parse(&format!("b{n}")).unwrap();
                KeyName::Item { batch, index: index.into() }.hash(team)
            }
        }
    }

    fn of_wish(chance: &mut Chance) -> Self {
        match chance.below(10) {
            0 => Self::Nameless,
            1..=4 => Self::Given(chance.below(GIVEN)),
            5 => Self::Call(chance.below(OPERATIONS)),
            _ => Self::Intent(chance.below(INTENTS), chance.pick(&GROUPS), chance.pick(&[1, 1, 2])),
        }
    }

    pub(super) fn of_call(chance: &mut Chance) -> Self {
        if chance.one_in(4) { Self::Given(chance.below(GIVEN)) } else { Self::Call(chance.below(OPERATIONS)) }
    }
}

fn people(group: &str) -> Vec<&'static str> {
    let address = |letter| match letter {
        'a' => "a@example.com",
        'b' => "b@example.com",
        _ => "c@example.com",
    };
    group.chars().map(address).collect()
}

/// A wish in short.
#[derive(Clone)]
pub(super) struct Sketch {
    name: Name,
    says: char,
    due_in: Option<i64>,
    memory: i64,
    apart: bool,
    compared: bool,
    /// How much it counts for in a budget of one hour.
    charged: Option<u64>,
    /// What a guard said before: held, or only flagged.
    spoke: Option<bool>,
}

impl Sketch {
    fn random(chance: &mut Chance, name: Name) -> Self {
        Self {
            name,
            says: chance.pick(&['x', 'y']),
            due_in: chance.maybe(4, |chance| chance.pick(&[-HOUR, MINUTE, HOUR, 3 * DAY])),
            memory: chance.pick(&MEMORIES),
            apart: chance.one_in(3),
            compared: chance.one_in(4),
            charged: chance.maybe(3, |chance| chance.pick(&[1, 1, 2, 9])),
            spoke: chance.maybe(8, |chance| chance.one_in(2)),
        }
    }

    /// A wish that answers a message.
    pub(super) fn of_answer(chance: &mut Chance) -> Self {
        let name = Name::of_wish(chance);
        Self::random(chance, name)
    }

    pub(super) fn draft(&self, team: TeamId, now: Time) -> Draft {
        let draft = match self.name {
            Name::Nameless => keyless(),
            Name::Given(n) => keyed(&format!("k{n}")).to(&people("ab")),
            Name::Batch(n) => keyed(&format!("b{n}")),
            Name::Call(n) => keyed(&format!("op{n}")),
            Name::Intent(n, group, version) => about(&format!("o{n}"), &people(group)).version(version),
            Name::Item(n, index) => keyless().item(&format!("b{n}"), index.into()),
        };
        let draft = draft.team(team).text(&self.says.to_string()).ttl(self.memory);
        let draft = self.due_in.map_or(draft.clone(), |ms| draft.due(now.plus(ms)));
        let draft = if self.compared { draft.compared() } else { draft };
        let draft = self.charged.map_or(draft.clone(), |amount| draft.charged(charge(1, amount, 8, HOUR, now)));
        let draft = match self.spoke {
            Some(true) => draft.held(Guard::Approval),
            Some(false) => draft.flagged(Guard::LooksDuplicate),
            None => draft,
        };
        if self.apart { draft.apart() } else { draft }
    }
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} ttl {}", self.name, self.says, show_span(self.memory))?;
        if let Some(ms) = self.due_in {
            write!(f, " in {}", show_span(ms))?;
        }
        f.write_str(if self.compared { " compared" } else { "" })?;
        f.write_str(&self.charged.map_or_else(String::new, |amount| format!(" charged {amount}")))?;
        f.write_str(self.spoke.map_or("", |held| if held { " held" } else { " flagged" }))?;
        f.write_str(if self.apart { " apart" } else { "" })
    }
}

/// A call's key and what it asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call(pub(super) Name, pub(super) u8);

/// What a caller does. Emails are named by their place, counted from the latest.
#[derive(Clone, Debug)]
pub(super) enum Verb {
    Accept(Sketch),
    /// Accepts that are called at the same moment.
    Together(Vec<Sketch>),
    Batch(Option<Call>, Vec<Sketch>),
    Cancel(u8, Option<Call>),
    Reschedule(u8, i64),
    Resend(u8, Option<Call>),
    Capture(usize),
    Note(u8, u8),
    Extend(Name, i64),
    Forget(Name),
    Look(Name),
    List(Option<EmailState>, Option<&'static str>, usize),
    Sweep,
    Deed(Deed),
    Errand(Errand),
    Chat(Chat),
    Rumour(Rumour),
    Later(i64),
}

/// Who does what. Most belongs to one team.
#[derive(Clone)]
pub(super) struct Turn {
    mine: bool,
    pub(super) verb: Verb,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.mine { "team  " } else { "other " })?;
        match self.verb {
            Verb::Later(ms) => write!(f, "Later({})", show_span(ms)),
            _ => self.verb.fmt(f),
        }
    }
}

impl Turn {
    pub(super) fn team(&self) -> TeamId {
        if self.mine { TEAM } else { OTHER }
    }

    pub(super) fn random(chance: &mut Chance) -> Self {
        let mine = !chance.one_in(8);
        let name = |chance: &mut Chance| chance.pick(&Name::all());
        let call = |chance: &mut Chance| Call(Name::of_call(chance), chance.below(2));
        let verb = match chance.below(164) {
            0..=9 => {
                let name = Name::of_wish(chance);
                Verb::Accept(Sketch::random(chance, name))
            }
            10..=13 => together(chance),
            14..=15 => batch(chance),
            16..=18 => Verb::Cancel(chance.below(6), chance.maybe(3, call)),
            19 => Verb::Reschedule(chance.below(6), chance.pick(&[-MINUTE, HOUR, 2 * DAY])),
            20..=22 => Verb::Resend(chance.below(6), chance.maybe(3, call)),
            23..=25 => Verb::Capture(chance.pick(&[1, 2, 100])),
            26 => Verb::Note(chance.below(6), chance.below(30)),
            27 => Verb::Extend(name(chance), chance.pick(&MEMORIES)),
            28..=29 => Verb::Forget(name(chance)),
            30..=31 => Verb::Look(name(chance)),
            32 => list(chance),
            33 => Verb::Sweep,
            34..=38 => Verb::Later(chance.pick(&[1, SECOND, MINUTE, HOUR, DAY])),
            40..=63 => Verb::Deed(Deed::random(chance)),
            64..=103 => Verb::Errand(Errand::random(chance)),
            104..128 => Verb::Chat(Chat::random(chance)),
            128.. => Verb::Rumour(Rumour::random(chance)),
            _ => Verb::Later(chance.pick(&[2 * DAY, 9 * DAY, 31 * DAY, 36 * DAY, 440 * DAY])),
        };
        Self { mine, verb }
    }
}

fn together(chance: &mut Chance) -> Verb {
    let sketch = |chance: &mut Chance| {
        let name = Name::of_wish(chance);
        // Which of them gets the last place of a budget depends on the order, which differs from store to store.
        Sketch { charged: None, ..Sketch::random(chance, name) }
    };
    Verb::Together((0..2 + chance.below(TOGETHER)).map(|_| sketch(chance)).collect())
}

fn batch(chance: &mut Chance) -> Verb {
    let number = chance.below(BATCHES);
    let item = |index: u8, chance: &mut Chance| {
        let name = if chance.one_in(2) { Name::Item(number, index) } else { Name::of_wish(chance) };
        Sketch::random(chance, name)
    };
    let count = 1 + chance.below(ITEMS);
    let items = (0..count).map(|index| item(index, chance)).collect();
    let key = if chance.one_in(8) { Name::Given(chance.below(GIVEN)) } else { Name::Batch(number) };
    let call = Call(key, u8::from(chance.one_in(4)));
    Verb::Batch(if chance.one_in(4) { None } else { Some(call) }, items)
}

fn list(chance: &mut Chance) -> Verb {
    use EmailState as S;
    let states = [S::Queued, S::Scheduled, S::Sending, S::Unknown, S::Sent, S::Held, S::Failed, S::Cancelled];
    let state = chance.maybe(2, |chance| chance.pick(&states));
    let to = chance.maybe(2, |chance| people(chance.pick(&["a", "b", "c"]))[0]);
    Verb::List(state, to, chance.pick(&[1, 3, 50]))
}
