//! Deeds: what random workers, next hops and persons do about emails on their way out.

use mailonce_core::{
    handoff::{
        Evidence, EvidenceFinding,
        action::{HandoffAction, LeaseRef, Resolution},
        lease::LeaseRequest,
        reply::ReplyMeaning,
    },
    id::NodeId,
    outbound::{accept::Envelope, email::Email},
    time::Time,
};
use uuid::Uuid;

use super::{
    DAY, HOUR, MINUTE, SANDBOX, SECOND,
    turn::{KeyChoice, OperationSpec, SplitMix64},
    work::{LeasedJob, new_evidence, new_reply, settle_action},
};

const NODES: u8 = 3;
const TRANSPORTS: [&str; 4] = [SANDBOX, SANDBOX, SANDBOX, "relay"];
/// Names that next hops give to mails.
pub(super) const REMOTE_IDS: [&str; 3] = ["r0", "r1", "r2"];

/// What is done. Jobs and emails are named by their place, counted from the latest.
#[derive(Clone, Debug)]
pub(super) enum HandoffCommand {
    Lease { way: &'static str, node: u8, max: usize, but: bool, scheduled: bool },
    Recover { node: u8, max: usize },
    Worker(u8, WorkerCommand),
    Incident(u8, u16, HandoffIncident),
    Resolve { email: u8, number: Option<u16>, choice: Resolution, seen: bool, call: Option<OperationSpec> },
}

/// What a worker does with its job, whether it still holds it or not.
#[derive(Clone, Copy, Debug)]
pub(super) enum WorkerCommand {
    Mark(&'static str),
    Park(i64),
    Settle {
        meaning: ReplyMeaning,
        after: Option<i64>,
        named: Option<&'static str>,
    },
    /// Like a worker that never heard that its marker was written.
    SettleUnmarked(ReplyMeaning),
}

/// What happens to a handoff besides.
#[derive(Clone, Copy, Debug)]
pub(super) enum HandoffIncident {
    Fact { says: EvidenceFinding, attempt: Option<u32>, once: Option<u8> },
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

pub(super) fn node_id(n: u8) -> NodeId {
    NodeId(Uuid::from_u128(u128::from(n) + 1))
}

fn random_account(chance: &mut SplitMix64) -> &'static str {
    if chance.one_in(6) { "B" } else { "A" }
}

impl HandoffCommand {
    pub(super) fn random(chance: &mut SplitMix64) -> Self {
        match chance.below(24) {
            0..=5 => Self::Lease {
                way: chance.pick(&TRANSPORTS),
                node: chance.below(NODES),
                max: chance.pick(&[1, 2, 100]),
                but: chance.one_in(6),
                scheduled: !chance.one_in(4),
            },
            6 => Self::Recover { node: chance.below(NODES), max: chance.pick(&[1, 100]) },
            7..=15 => Self::Worker(chance.below(4), WorkerCommand::random(chance)),
            16..=20 => {
                let (place, number) = (chance.below(6), u16::from(chance.one_in(3)));
                Self::Incident(place, number, HandoffIncident::random(chance))
            }
            _ => Self::Resolve {
                email: chance.below(6),
                number: chance.maybe_one_in(3, |chance| chance.below(2).into()),
                choice: chance.pick(Resolution::ALL),
                seen: !chance.one_in(4),
                call: chance.maybe_one_in(3, |chance| OperationSpec(KeyChoice::for_operation(chance), chance.below(2))),
            },
        }
    }
}

impl WorkerCommand {
    fn random(chance: &mut SplitMix64) -> Self {
        let meaning = |chance: &mut SplitMix64| chance.pick(ReplyMeaning::ALL);
        match chance.below(10) {
            0..=4 => Self::Mark(random_account(chance)),
            5 => Self::Park(chance.pick(&[-MINUTE, SECOND, HOUR])),
            6 => Self::SettleUnmarked(meaning(chance)),
            _ => Self::Settle {
                meaning: meaning(chance),
                after: chance.maybe_one_in(4, |chance| chance.pick(&[-1, MINUTE, 2 * DAY])),
                named: chance.maybe_one_in(2, |chance| chance.pick(&REMOTE_IDS)),
            },
        }
    }

    pub(super) fn act(self, job: &LeasedJob, now: Time) -> HandoffAction {
        match self {
            Self::Mark(account) => {
                let wire = format!("{account} at {now}").into_bytes();
                HandoffAction::Mark {
                    lease: LeaseRef { account: account.into(), ..job.hold.clone() },
                    frozen_bytes: Some(wire.into()),
                }
            }
            Self::Park(ms) => {
                HandoffAction::ReturnLease { lease: job.hold.clone(), due_at: now.plus(ms), reason: "parked".into() }
            }
            Self::Settle { meaning, after, named } => settle_action(
                job,
                new_reply(meaning).with_retry_after(after).with_remote_id(named.map(ToOwned::to_owned)),
                now,
            ),
            Self::SettleUnmarked(meaning) => {
                settle_action(&LeasedJob { attempt: None, ..job.clone() }, new_reply(meaning), now)
            }
        }
    }
}

impl HandoffIncident {
    fn random(chance: &mut SplitMix64) -> Self {
        match chance.below(10) {
            0..=4 => Self::Fact {
                says: chance.pick(EvidenceFinding::ALL),
                attempt: chance.maybe_one_in(2, |chance| 1 + u32::from(chance.below(2))),
                once: chance.maybe_one_in(2, |chance| chance.below(4)),
            },
            5..=6 => Self::Repeat { node: chance.below(NODES), account: random_account(chance) },
            7 => Self::Wait(chance.maybe_one_in(2, |chance| chance.pick(&[SECOND, DAY])), chance.one_in(2)),
            8 => chance.pick(&[Self::Policy, Self::Reroute, Self::Release, Self::Orphan, Self::GiveUp, Self::Relocate]),
            _ => Self::Crash(chance.below(NODES)),
        }
    }

    pub(super) fn act(self, number: u16, now: Time) -> HandoffAction {
        match self {
            Self::Fact { says, attempt, once } => {
                let once = once.map(|n| format!("e{n}"));
                HandoffAction::AddEvidence(Evidence {
                    handoff: number,
                    attempt,
                    ..new_evidence(says, once.as_deref(), now)
                })
            }
            Self::Repeat { node: n, account } => {
                HandoffAction::RetryInWindow { number, holder: node_id(n), account: account.into() }
            }
            Self::Wait(ms, asked) => {
                let evidence =
                    asked.then(|| Evidence { handoff: number, ..new_evidence(EvidenceFinding::NotFound, None, now) });
                HandoffAction::CheckLater { number, evidence, next_check_at: ms.map(|ms| now.plus(ms)) }
            }
            Self::Policy => HandoffAction::ResendByPolicy { number },
            Self::Release => HandoffAction::Release,
            Self::Crash(n) => HandoffAction::Crash { number, holder: node_id(n) },
            Self::Orphan => HandoffAction::ReportOrphan { number, transport: SANDBOX.into(), since: now },
            Self::GiveUp => HandoffAction::GiveUpOrphan { number, transport: SANDBOX.into(), max_age_ms: MINUTE },
            Self::Relocate => {
                let recipients = vec!["user@example.com".into()];
                let envelopes = vec![Envelope { transport: "relay".into(), recipients }];
                HandoffAction::RerouteByOperator { from: SANDBOX.into(), envelopes }
            }
            Self::Reroute => HandoffAction::FailOverHandoff { number, from: SANDBOX.into(), to: "relay".into() },
        }
    }
}

pub(super) fn lease_request(way: &str, n: u8, max: usize, but: bool, scheduled: bool) -> LeaseRequest {
    let but = if but { vec!["example.com".into()] } else { Vec::new() };
    LeaseRequest {
        transport: way.into(),
        node: node_id(n),
        max,
        excluded_domains: but,
        schedule_cutoff: scheduled.then_some(Time(i64::MAX)),
    }
}

/// A person's decision about an email as it is, or as it was.
pub(super) fn resolve_action(
    email: Option<&Email>,
    number: Option<u16>,
    choice: Resolution,
    seen: bool,
) -> HandoffAction {
    let rev = email.map_or(1, |email| email.rev);
    HandoffAction::Resolve {
        resolution: choice,
        rev: if seen { rev } else { rev + 1 },
        handoff: number,
        reason: "decided".into(),
    }
}
