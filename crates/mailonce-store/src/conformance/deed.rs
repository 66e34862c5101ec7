//! Deeds: what random workers, next hops and persons do about emails on their way out.

use mailonce_core::{
    dispatch::{Act, Choice, Hold},
    email::Email,
    handoff::{Evidence, Says},
    id::NodeId,
    port::{
        store::{Envelope, LeaseWish},
        transport::Meaning,
    },
    time::Time,
};
use uuid::Uuid;

use super::{
    DAY, HOUR, MINUTE, SANDBOX, SECOND,
    turn::{Call, Chance, Name},
    work::{Job, fact, reply, settle},
};

const NODES: u8 = 3;
const WAYS: [&str; 4] = [SANDBOX, SANDBOX, SANDBOX, "relay"];
/// Names that next hops give to mails.
pub(super) const REMOTE: [&str; 3] = ["r0", "r1", "r2"];

/// What is done. Jobs and emails are named by their place, counted from the latest.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    Lease { way: &'static str, node: u8, max: usize, but: bool, scheduled: bool },
    Recover { node: u8, max: usize },
    Work(u8, Labour),
    Learn(u8, u16, Lesson),
    Resolve { email: u8, number: Option<u16>, choice: Choice, seen: bool, call: Option<Call> },
}

/// What a worker does with its job, whether it still holds it or not.
#[derive(Clone, Copy, Debug)]
pub(super) enum Labour {
    Mark(&'static str),
    Park(i64),
    Settle {
        meaning: Meaning,
        after: Option<i64>,
        named: Option<&'static str>,
    },
    /// Like a worker that never heard that its marker was written.
    Unheard(Meaning),
}

/// What happens to a handoff besides.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lesson {
    Fact { says: Says, attempt: Option<u32>, once: Option<u8> },
    Repeat { node: u8, account: &'static str },
    Wait(Option<i64>, bool),
    Policy,
    Crash(u8),
    Reroute,
    Release,
    Orphan,
    GiveUp,
    Relocate,
}

pub(super) fn node(n: u8) -> NodeId {
    NodeId(Uuid::from_u128(u128::from(n) + 1))
}

fn account(chance: &mut Chance) -> &'static str {
    if chance.one_in(6) { "B" } else { "A" }
}

impl Deed {
    pub(super) fn random(chance: &mut Chance) -> Self {
        match chance.below(24) {
            0..=5 => Self::Lease {
                way: chance.pick(&WAYS),
                node: chance.below(NODES),
                max: chance.pick(&[1, 2, 100]),
                but: chance.one_in(6),
                scheduled: !chance.one_in(4),
            },
            6 => Self::Recover { node: chance.below(NODES), max: chance.pick(&[1, 100]) },
            7..=15 => Self::Work(chance.below(4), Labour::random(chance)),
            16..=20 => {
                let (place, number) = (chance.below(6), u16::from(chance.one_in(3)));
                Self::Learn(place, number, Lesson::random(chance))
            }
            _ => Self::Resolve {
                email: chance.below(6),
                number: chance.maybe(3, |chance| chance.below(2).into()),
                choice: chance.pick(Choice::ALL),
                seen: !chance.one_in(4),
                call: chance.maybe(3, |chance| Call(Name::of_call(chance), chance.below(2))),
            },
        }
    }
}

impl Labour {
    fn random(chance: &mut Chance) -> Self {
        let meaning = |chance: &mut Chance| chance.pick(Meaning::ALL);
        match chance.below(10) {
            0..=4 => Self::Mark(account(chance)),
            5 => Self::Park(chance.pick(&[-MINUTE, SECOND, HOUR])),
            6 => Self::Unheard(meaning(chance)),
            _ => Self::Settle {
                meaning: meaning(chance),
                after: chance.maybe(4, |chance| chance.pick(&[-1, MINUTE, 2 * DAY])),
                named: chance.maybe(2, |chance| chance.pick(&REMOTE)),
            },
        }
    }

    pub(super) fn act(self, job: &Job, now: Time) -> Act {
        match self {
            Self::Mark(account) => {
                let wire = format!("{account} at {now}").into_bytes();
                Act::Mark { hold: Hold { account: account.into(), ..job.hold.clone() }, wire: Some(wire.into()) }
            }
            Self::Park(ms) => Act::Park { hold: job.hold.clone(), due: now.plus(ms), why: "parked".into() },
            Self::Settle { meaning, after, named } => {
                settle(job, reply(meaning).after(after).named(named.map(ToOwned::to_owned)), now)
            }
            Self::Unheard(meaning) => settle(&Job { attempt: None, ..job.clone() }, reply(meaning), now),
        }
    }
}

impl Lesson {
    fn random(chance: &mut Chance) -> Self {
        match chance.below(10) {
            0..=4 => Self::Fact {
                says: chance.pick(Says::ALL),
                attempt: chance.maybe(2, |chance| 1 + u32::from(chance.below(2))),
                once: chance.maybe(2, |chance| chance.below(4)),
            },
            5..=6 => Self::Repeat { node: chance.below(NODES), account: account(chance) },
            7 => Self::Wait(chance.maybe(2, |chance| chance.pick(&[SECOND, DAY])), chance.one_in(2)),
            8 => chance.pick(&[Self::Policy, Self::Reroute, Self::Release, Self::Orphan, Self::GiveUp, Self::Relocate]),
            _ => Self::Crash(chance.below(NODES)),
        }
    }

    pub(super) fn act(self, number: u16, now: Time) -> Act {
        match self {
            Self::Fact { says, attempt, once } => {
                let once = once.map(|n| format!("e{n}"));
                Act::Fact(Evidence { handoff: number, attempt, ..fact(says, once.as_deref(), now) })
            }
            Self::Repeat { node: n, account } => Act::Repeat { number, holder: node(n), account: account.into() },
            Self::Wait(ms, asked) => {
                let evidence = asked.then(|| Evidence { handoff: number, ..fact(Says::NotFound, None, now) });
                Act::Wait { number, evidence, next: ms.map(|ms| now.plus(ms)) }
            }
            Self::Policy => Act::ResendByPolicy { number },
            Self::Release => Act::Release,
            Self::Crash(n) => Act::Crash { number, holder: node(n) },
            Self::Orphan => Act::Orphan { number, transport: SANDBOX.into(), since: now },
            Self::GiveUp => Act::GiveUpOrphan { number, transport: SANDBOX.into(), max_age_ms: MINUTE },
            Self::Relocate => {
                let recipients = vec!["user@example.com".into()];
                let envelopes = vec![Envelope { transport: "relay".into(), recipients }];
                Act::Relocate { from: SANDBOX.into(), envelopes }
            }
            Self::Reroute => Act::Reroute { number, from: SANDBOX.into(), to: "relay".into() },
        }
    }
}

pub(super) fn lease_wish(way: &str, n: u8, max: usize, but: bool, scheduled: bool) -> LeaseWish {
    let but = if but { vec!["example.com".into()] } else { Vec::new() };
    LeaseWish { transport: way.into(), node: node(n), max, but, scheduled_by: scheduled.then_some(Time(i64::MAX)) }
}

/// A person's decision about an email as it is, or as it was.
pub(super) fn resolve(email: Option<&Email>, number: Option<u16>, choice: Choice, seen: bool) -> Act {
    let rev = email.map_or(1, |email| email.rev);
    Act::Resolve { choice, rev: if seen { rev } else { rev + 1 }, handoff: number, reason: "decided".into() }
}
