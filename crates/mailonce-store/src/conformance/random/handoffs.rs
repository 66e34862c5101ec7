//! Random steps of workers, next hops and people with handoffs.

use mailonce_core::{
    handoff::{
        Evidence, EvidenceFinding,
        action::{HandoffAction, LeaseRef, Resolution},
        envelope::Envelope,
        lease::LeaseRequest,
        reply::ReplyMeaning,
    },
    outbound::email::{Email, Guard},
    time::Time,
};

use crate::conformance::{
    DAY, HOUR, MINUTE, SANDBOX, SECOND,
    fixtures::handoffs::{LeasedJob, new_evidence, new_reply, node_id, outcome_action, release_of},
    random::step::{KeyChoice, OperationSpec, SplitMix64},
};

const NODES: u8 = 3;
const TRANSPORTS: [&str; 4] = [SANDBOX, SANDBOX, SANDBOX, "relay"];
/// Ids that next hops give to mails.
pub(super) const REMOTE_IDS: [&str; 3] = ["r0", "r1", "r2"];

/// What is done. Jobs and emails are named by their recency; 0 is the latest.
#[derive(Clone, Debug)]
pub(super) enum HandoffCommand {
    Lease {
        transport: &'static str,
        node: u8,
        max: usize,
        exclude_domain: bool,
        scheduled: bool,
    },
    Recover {
        node: u8,
        max: usize,
    },
    Worker(u8, WorkerCommand),
    Incident(u8, u16, HandoffIncident),
    Resolve {
        email: u8,
        number: Option<u16>,
        resolution: Resolution,
        is_current_rev: bool,
        call: Option<OperationSpec>,
    },
}

/// What a worker does with its job, even after it lost the lease.
#[derive(Clone, Copy, Debug)]
pub(super) enum WorkerCommand {
    Mark(&'static str),
    ReturnLease(i64),
    RecordOutcome {
        meaning: ReplyMeaning,
        retry_after: Option<i64>,
        remote_id: Option<&'static str>,
    },
    /// Like a worker whose marker was committed without a confirmation.
    RecordOutcomeUnmarked(ReplyMeaning),
}

/// What else happens to a handoff.
#[derive(Clone, Copy, Debug)]
pub(super) enum HandoffIncident {
    AddEvidence { says: EvidenceFinding, attempt: Option<u32>, once: Option<u8> },
    Retry { node: u8, account: &'static str },
    CheckLater(Option<i64>, bool),
    ResendByPolicy,
    Crash(u8),
    FailOver,
    Release,
    ReportOrphan,
    GiveUp,
    RerouteByOperator,
}

fn random_account(rng: &mut SplitMix64) -> &'static str {
    if rng.one_in(6) { "B" } else { "A" }
}

impl HandoffCommand {
    pub(super) fn random(rng: &mut SplitMix64) -> Self {
        match rng.below(24) {
            0..=5 => Self::Lease {
                transport: rng.pick(&TRANSPORTS),
                node: rng.below(NODES),
                max: rng.pick(&[1, 2, 100]),
                exclude_domain: rng.one_in(6),
                scheduled: !rng.one_in(4),
            },
            6 => Self::Recover { node: rng.below(NODES), max: rng.pick(&[1, 100]) },
            7..=15 => Self::Worker(rng.below(4), WorkerCommand::random(rng)),
            16..=20 => {
                let (recency, number) = (rng.below(6), u16::from(rng.one_in(3)));
                Self::Incident(recency, number, HandoffIncident::random(rng))
            }
            _ => Self::Resolve {
                email: rng.below(6),
                number: rng.maybe_one_in(3, |rng| rng.below(2).into()),
                resolution: rng.pick(Resolution::ALL),
                is_current_rev: !rng.one_in(4),
                call: rng.maybe_one_in(3, |rng| OperationSpec(KeyChoice::for_operation(rng), rng.below(2))),
            },
        }
    }
}

impl WorkerCommand {
    fn random(rng: &mut SplitMix64) -> Self {
        let meaning = |rng: &mut SplitMix64| rng.pick(ReplyMeaning::ALL);
        match rng.below(10) {
            0..=4 => Self::Mark(random_account(rng)),
            5 => Self::ReturnLease(rng.pick(&[-MINUTE, SECOND, HOUR])),
            6 => Self::RecordOutcomeUnmarked(meaning(rng)),
            _ => Self::RecordOutcome {
                meaning: meaning(rng),
                retry_after: rng.maybe_one_in(4, |rng| rng.pick(&[-1, MINUTE, 2 * DAY])),
                remote_id: rng.maybe_one_in(2, |rng| rng.pick(&REMOTE_IDS)),
            },
        }
    }

    pub(super) fn action(self, job: &LeasedJob, now: Time) -> HandoffAction {
        match self {
            Self::Mark(account) => {
                let wire = format!("{account} at {now}").into_bytes();
                HandoffAction::Mark {
                    lease: LeaseRef { account: account.into(), ..job.lease.clone() },
                    frozen_bytes: Some(wire.into()),
                    contacts: Vec::new(),
                }
            }
            Self::ReturnLease(ms) => {
                HandoffAction::ReturnLease { lease: job.lease.clone(), due_at: now.plus(ms), reason: "parked".into() }
            }
            Self::RecordOutcome { meaning, retry_after, remote_id } => outcome_action(
                job,
                new_reply(meaning).with_retry_after(retry_after).with_remote_id(remote_id.map(ToOwned::to_owned)),
                now,
            ),
            Self::RecordOutcomeUnmarked(meaning) => {
                outcome_action(&LeasedJob { attempt: None, ..job.clone() }, new_reply(meaning), now)
            }
        }
    }
}

impl HandoffIncident {
    fn random(rng: &mut SplitMix64) -> Self {
        match rng.below(10) {
            0..=4 => Self::AddEvidence {
                says: rng.pick(EvidenceFinding::ALL),
                attempt: rng.maybe_one_in(2, |rng| 1 + u32::from(rng.below(2))),
                once: rng.maybe_one_in(2, |rng| rng.below(4)),
            },
            5..=6 => Self::Retry { node: rng.below(NODES), account: random_account(rng) },
            7 => Self::CheckLater(rng.maybe_one_in(2, |rng| rng.pick(&[SECOND, DAY])), rng.one_in(2)),
            8 => rng.pick(&[
                Self::ResendByPolicy,
                Self::FailOver,
                Self::Release,
                Self::ReportOrphan,
                Self::GiveUp,
                Self::RerouteByOperator,
            ]),
            _ => Self::Crash(rng.below(NODES)),
        }
    }

    pub(super) fn action(self, number: u16, now: Time) -> HandoffAction {
        match self {
            Self::AddEvidence { says, attempt, once } => {
                let once = once.map(|n| format!("e{n}"));
                HandoffAction::AddEvidence(Evidence {
                    handoff: number,
                    attempt,
                    ..new_evidence(says, once.as_deref(), now)
                })
            }
            Self::Retry { node: n, account } => {
                HandoffAction::RetryInWindow { number, holder: node_id(n), account: account.into() }
            }
            Self::CheckLater(ms, asked) => {
                let evidence =
                    asked.then(|| Evidence { handoff: number, ..new_evidence(EvidenceFinding::NotFound, None, now) });
                HandoffAction::CheckLater { number, evidence, next_check_at: ms.map(|ms| now.plus(ms)) }
            }
            Self::ResendByPolicy => HandoffAction::ResendByPolicy { number },
            Self::Release => release_of(Guard::Approval),
            Self::Crash(n) => HandoffAction::Crash { number, holder: node_id(n) },
            Self::ReportOrphan => HandoffAction::ReportOrphan { number, transport: SANDBOX.into(), since: now },
            Self::GiveUp => HandoffAction::GiveUpOrphan { number, transport: SANDBOX.into(), max_age_ms: MINUTE },
            Self::RerouteByOperator => {
                let recipients = vec!["user@example.com".into()];
                let envelopes = vec![Envelope { transport: "relay".into(), recipients }];
                HandoffAction::RerouteByOperator { from: SANDBOX.into(), envelopes }
            }
            Self::FailOver => HandoffAction::FailOverHandoff { number, from: SANDBOX.into(), to: "relay".into() },
        }
    }
}

pub(super) fn lease_request(transport: &str, n: u8, max: usize, exclude_domain: bool, scheduled: bool) -> LeaseRequest {
    let excluded_domains = if exclude_domain { vec!["example.com".into()] } else { Vec::new() };
    LeaseRequest {
        transport: transport.into(),
        node: node_id(n),
        max,
        excluded_domains,
        schedule_cutoff: scheduled.then_some(Time(i64::MAX)),
    }
}

/// A person's decision, with the current revision of the email or with a wrong one.
pub(super) fn resolve_action(
    email: Option<&Email>,
    number: Option<u16>,
    resolution: Resolution,
    is_current_rev: bool,
) -> HandoffAction {
    let rev = email.map_or(1, |email| email.rev);
    HandoffAction::Resolve {
        resolution,
        rev: if is_current_rev { rev } else { rev + 1 },
        handoff: number,
        reason: "decided".into(),
    }
}
