//! Random actions on one email, in any order, by workers that may be stale. After each step the invariants must hold.

use proptest::{collection::vec, prelude::*};
use std::collections::BTreeMap;

use super::*;

/// A step: the action, and two numbers that choose its target and variant.
type StepSeed = (u8, u8, u8);

/// A worker's lease, and the attempt it marked.
#[derive(Clone, Debug)]
struct LeaseHolder {
    hold: LeaseRef,
    attempt: Option<u32>,
}

/// The test's own model of a handoff.
#[derive(Default)]
struct ExpectedState {
    /// Attempts that were sent and not proven to have failed, with their accounts.
    open: BTreeMap<u32, String>,
    policy_resends: usize,
}

struct RandomRun {
    email: Email,
    now: Time,
    workers: Vec<LeaseHolder>,
    truth: [ExpectedState; 2],
}

/// What a step did, for the checks after it.
struct StepResult {
    /// The transitions it may have applied.
    steps: &'static [Transition],
    number: u16,
    verdict: HandoffActionStatus,
    act: Option<HandoffAction>,
}

fn node(n: u8) -> NodeId {
    NodeId(Uuid::from_u128(u128::from(n % 2) + 1))
}

fn account(n: u8) -> String {
    if n.is_multiple_of(6) { "B".into() } else { "A".into() }
}

fn pick<T: Copy>(from: &[T], n: u8) -> T {
    from[usize::from(n) % from.len()]
}

impl RandomRun {
    fn new() -> Self {
        let mut email = email(2);
        email.handoffs[1].state = HandoffState::Scheduled;
        Self { email, now: T0, workers: Vec::new(), truth: [ExpectedState::default(), ExpectedState::default()] }
    }

    fn lease(&mut self, number: u16, holder: NodeId) -> StepResult {
        let done = self.email.lease_handoff(number, holder, self.now);
        if done {
            self.add_holder(number);
        }
        let verdict = if done { HandoffActionStatus::Done } else { HandoffActionStatus::Stale };
        StepResult { steps: &[Transition::Due, Transition::Lease], number, verdict, act: None }
    }

    /// Gives a worker the lease that the handoff has now.
    fn add_holder(&mut self, number: u16) {
        let fence = self.email.handoffs[usize::from(number)].fence;
        let hold = LeaseRef { number, fence, transport: "relay".into(), account: "A".into() };
        self.workers.push(LeaseHolder { hold, attempt: None });
    }

    /// The action of a step. `None` when there is nothing to do.
    fn action_for(&self, (what, a, b): StepSeed) -> Option<HandoffAction> {
        let number = u16::from(a % 2);
        let handoff = &self.email.handoffs[usize::from(number)];
        // Mostly the latest workers, because all others are surely stale.
        let worker = self.workers.iter().rev().nth(pick(&[0, 0, 0, 1, 1, 2], a / 2));
        Some(match what % 16 {
            3..=4 => HandoffAction::Mark {
                lease: LeaseRef { account: account(b), ..worker?.hold.clone() },
                frozen_bytes: None,
                contacts: Vec::new(),
            },
            5..=7 => {
                let LeaseHolder { hold, attempt } = worker?.clone();
                HandoffAction::RecordOutcome {
                    lease: hold,
                    attempt,
                    started_at: self.now,
                    reply: reply(pick(ReplyMeaning::ALL, b)),
                    retry_policy: PLAN,
                }
            }
            8 => HandoffAction::Crash { number, holder: handoff.holder? },
            9 => HandoffAction::RetryInWindow { number, holder: node(b), account: account(b) },
            10 => HandoffAction::CheckLater {
                number,
                evidence: None,
                next_check_at: (b % 2 == 0).then(|| self.now.plus(60_000)),
            },
            11 => HandoffAction::ResendByPolicy { number },
            12 => {
                let attempt = (b >= 128).then(|| u32::from(b % 4));
                HandoffAction::AddEvidence(Evidence {
                    attempt,
                    ..new_evidence(number, EvidenceSource::LookUp, pick(EvidenceFinding::ALL, b), "", self.now)
                })
            }
            13 => HandoffAction::Resolve {
                resolution: pick(Resolution::ALL, b),
                rev: self.email.rev - u32::from(b >= 200),
                handoff: (b % 2 == 0).then_some(number),
                reason: String::new(),
            },
            14 => HandoffAction::ReturnLease { lease: worker?.hold.clone(), due_at: self.now, reason: "busy".into() },
            _ => HandoffAction::FailOverHandoff { number, from: "relay".into(), to: "relay".into() },
        })
    }

    fn run_step(&mut self, turn: StepSeed) -> Option<StepResult> {
        let (what, a, b) = turn;
        match what % 16 {
            0..=1 => return Some(self.lease(u16::from(a % 2), node(b))),
            2 if b % 4 == 0 => {
                let verdict = self
                    .email
                    .cancel(self.now)
                    .map_or_else(HandoffActionStatus::Refused, |_| HandoffActionStatus::Done);
                return Some(StepResult { steps: &[Transition::Cancel], number: 0, verdict, act: None });
            }
            2 => {
                self.now = self.now.plus(i64::from(b) * 1_000);
                return None;
            }
            _ => {}
        }
        let act = self.action_for(turn)?;
        let verdict = self.email.apply_action(&act, self.now).status;
        let number = match &act {
            HandoffAction::Mark { lease: hold, .. }
            | HandoffAction::RecordOutcome { lease: hold, .. }
            | HandoffAction::ReturnLease { lease: hold, .. } => hold.number,
            _ => u16::from(a % 2),
        };
        self.update_expected(&act, verdict);
        Some(StepResult { steps: act.allowed_transitions(), number, verdict, act: Some(act) })
    }

    /// Updates the model after an action.
    fn update_expected(&mut self, act: &HandoffAction, verdict: HandoffActionStatus) {
        let done = verdict == HandoffActionStatus::Done;
        match act {
            HandoffAction::Mark { lease: hold, .. } if done => {
                let attempt = self.email.handoffs[usize::from(hold.number)].attempts;
                self.truth[usize::from(hold.number)].open.insert(attempt, hold.account.clone());
                let same = |w: &&mut LeaseHolder| w.hold.number == hold.number && w.hold.fence == hold.fence;
                self.workers.iter_mut().filter(same).for_each(|worker| worker.attempt = Some(attempt));
            }
            HandoffAction::RecordOutcome { lease: hold, attempt: Some(attempt), reply, .. } => {
                if matches!(reply.meaning, ReplyMeaning::Deferred | ReplyMeaning::Refused | ReplyMeaning::Fault) {
                    self.truth[usize::from(hold.number)].open.remove(attempt);
                }
            }
            HandoffAction::AddEvidence(Evidence {
                handoff,
                attempt: Some(attempt),
                finding: EvidenceFinding::NotAccepted,
                ..
            }) => {
                self.truth[usize::from(*handoff)].open.remove(attempt);
            }
            HandoffAction::RetryInWindow { number, account, .. } if done => {
                let mut went = self.truth[usize::from(*number)].open.values();
                assert!(went.all(|went| went == account), "repeated elsewhere than tried");
                self.add_holder(*number);
            }
            HandoffAction::ResendByPolicy { number } if done => self.truth[usize::from(*number)].policy_resends += 1,
            _ => {}
        }
    }
}

fn is_gone(state: HandoffState) -> bool {
    matches!(state, HandoffState::Sent | HandoffState::Delivered | HandoffState::Bounced | HandoffState::Complained)
}

/// The invariants of a handoff in any state.
fn check_state(handoff: &Handoff, truth: &ExpectedState) -> Result<(), TestCaseError> {
    let (state, work) = (handoff.state, &handoff.progress);
    let open = !truth.open.is_empty();
    let waits = matches!(state, HandoffState::Queued | HandoffState::Scheduled);
    prop_assert!(!(state.is_surely_unsent() && (open || handoff.is_in_doubt())), "in doubt and {}", state.as_str());
    prop_assert!(!(waits && (open || handoff.is_in_doubt()) && !(work.may_duplicate && work.retry_despite_doubt)));
    prop_assert_eq!(handoff.holder.is_some(), matches!(state, HandoffState::Leased | HandoffState::Sending));
    prop_assert!(state != HandoffState::Unknown || handoff.is_in_doubt());
    prop_assert!(!is_gone(state) || !handoff.is_in_doubt());
    prop_assert!(!waits || handoff.due_at.is_some());
    prop_assert!(truth.policy_resends <= 1);
    Ok(())
}

/// The invariants of the transition that a step made.
fn check_move(before: &Handoff, after: &Handoff, result: &StepResult) -> Result<(), TestCaseError> {
    let mine = before.number == result.number;
    prop_assert!(
        before.state.can_reach(after.state, result.steps),
        "{} to {}",
        before.state.as_str(),
        after.state.as_str()
    );
    prop_assert!(!is_gone(before.state) || is_gone(after.state));
    let done = result.verdict == HandoffActionStatus::Done;
    let leases = matches!(result.act, None | Some(HandoffAction::RetryInWindow { .. }))
        && done
        && mine
        && after.state == HandoffState::Leased;
    prop_assert_eq!(after.fence, before.fence + u64::from(leases && before.state != HandoffState::Leased));
    let again = match &result.act {
        Some(HandoffAction::ResendByPolicy { .. }) => done && mine,
        Some(HandoffAction::Resolve { resolution: Resolution::Resend, handoff, .. }) => {
            done && before.state == HandoffState::Unknown && handoff.is_none_or(|number| number == before.number)
        }
        _ => false,
    };
    prop_assert_eq!(after.progress.may_duplicate, before.progress.may_duplicate || again);
    match &result.act {
        Some(HandoffAction::Mark { lease: hold, .. }) if mine => {
            let may = hold.fence == before.fence && before.state == HandoffState::Leased;
            let repeat = before.is_in_doubt() && !before.progress.retry_despite_doubt;
            let elsewhere = repeat && before.progress.account.as_ref() != Some(&hold.account);
            prop_assert_eq!(done, may && !elsewhere);
            prop_assert_eq!(after.attempts, before.attempts + u32::from(done));
        }
        Some(HandoffAction::AddEvidence(evidence)) if mine => {
            let proofs = [
                EvidenceFinding::Accepted,
                EvidenceFinding::Delayed,
                EvidenceFinding::Delivered,
                EvidenceFinding::Bounced,
                EvidenceFinding::Complained,
            ];
            prop_assert!(!proofs.contains(&evidence.finding) || is_gone(after.state));
        }
        Some(HandoffAction::RecordOutcome { attempt: Some(_), reply, .. }) if mine => {
            let proof = matches!(reply.meaning, ReplyMeaning::Accepted | ReplyMeaning::Repeated);
            prop_assert!(!proof || is_gone(after.state));
        }
        _ => {}
    }
    Ok(())
}

/// A cancel succeeds unless something was sent, is on the wire or is in doubt. After it, no handoff is waiting.
fn check_cancel(before: &Email, after: &Email, result: &StepResult) -> Result<(), TestCaseError> {
    let late = |handoff: &Handoff| {
        let state = handoff.state;
        is_gone(state)
            || handoff.is_in_doubt()
            || matches!(state, HandoffState::Sending | HandoffState::Unknown | HandoffState::Abandoned)
    };
    let refused = matches!(result.verdict, HandoffActionStatus::Refused(_));
    prop_assert_eq!(refused, before.handoffs.iter().any(late));
    let kept = if refused { before == after } else { after.handoffs.iter().all(|h| h.state.is_surely_unsent()) };
    prop_assert!(kept);
    Ok(())
}

fn check_email(before: &Email, after: &Email, result: &StepResult) -> Result<(), TestCaseError> {
    for ((old, new), number) in before.handoffs.iter().zip(&after.handoffs).zip(0..) {
        prop_assert_eq!(new.number, number);
        check_move(old, new, result)?;
    }
    if result.steps == [Transition::Cancel] {
        check_cancel(before, after, result)?;
    }
    prop_assert!(after.rev >= before.rev);
    prop_assert!(before.state() == after.state() || after.rev > before.rev);
    prop_assert!(!after.state().is_terminal() || after.settled_at.is_some());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_acts_breaks_a_rule(turns in vec(any::<StepSeed>(), 1..80)) {
        let mut game = RandomRun::new();
        for turn in turns {
            let before = game.email.clone();
            if let Some(result) = game.run_step(turn) {
                check_email(&before, &game.email, &result)?;
            }
            for (handoff, truth) in game.email.handoffs.iter().zip(&game.truth) {
                check_state(handoff, truth)?;
            }
        }
    }
}
