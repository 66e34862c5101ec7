//! Random acts on one email, in any order, by workers that may be stale. After each, the rules must hold.

use proptest::{collection::vec, prelude::*};
use std::collections::BTreeMap;

use super::*;

/// A turn: what is done, and two numbers that say to whom and how.
type Turn = (u8, u8, u8);

/// A worker's lease, and the attempt it marked.
#[derive(Clone, Debug)]
struct Worker {
    hold: Hold,
    attempt: Option<u32>,
}

/// What the test itself knows about a handoff.
#[derive(Default)]
struct Truth {
    /// Attempts that were let go and not proven to have failed, and where they went.
    open: BTreeMap<u32, String>,
    policy_resends: usize,
}

struct Game {
    email: Email,
    now: Time,
    workers: Vec<Worker>,
    truth: [Truth; 2],
}

/// What a turn did, for the checks after it.
struct Played {
    /// Steps it may have taken.
    steps: &'static [Step],
    number: u16,
    verdict: Verdict,
    act: Option<Act>,
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

impl Game {
    fn new() -> Self {
        let mut email = email(2);
        email.handoffs[1].state = State::Scheduled;
        Self { email, now: T0, workers: Vec::new(), truth: [Truth::default(), Truth::default()] }
    }

    fn lease(&mut self, number: u16, holder: NodeId) -> Played {
        let done = self.email.lease(number, holder, self.now);
        if done {
            self.join(number);
        }
        let verdict = if done { Verdict::Done } else { Verdict::Stale };
        Played { steps: &[Step::Due, Step::Lease], number, verdict, act: None }
    }

    /// A worker comes to know that it holds a handoff.
    fn join(&mut self, number: u16) {
        let fence = self.email.handoffs[usize::from(number)].fence;
        let hold = Hold { number, fence, transport: "relay".into(), account: "A".into() };
        self.workers.push(Worker { hold, attempt: None });
    }

    /// The act of a turn. `None`: nothing can be done.
    fn act_of(&self, (what, a, b): Turn) -> Option<Act> {
        let number = u16::from(a % 2);
        let handoff = &self.email.handoffs[usize::from(number)];
        // The latest workers, mostly: the others are stale for sure.
        let worker = self.workers.iter().rev().nth(pick(&[0, 0, 0, 1, 1, 2], a / 2));
        Some(match what % 16 {
            3..=4 => Act::Mark { hold: Hold { account: account(b), ..worker?.hold.clone() }, wire: None },
            5..=7 => {
                let Worker { hold, attempt } = worker?.clone();
                Act::Settle { hold, attempt, began: self.now, reply: reply(pick(Meaning::ALL, b)), plan: PLAN }
            }
            8 => Act::Crash { number, holder: handoff.holder? },
            9 => Act::Repeat { number, holder: node(b), account: account(b) },
            10 => Act::Wait { number, evidence: None, next: (b % 2 == 0).then(|| self.now.plus(60_000)) },
            11 => Act::ResendByPolicy { number },
            12 => {
                let attempt = (b >= 128).then(|| u32::from(b % 4));
                Act::Fact(Evidence { attempt, ..fact(number, Source::LookUp, pick(Says::ALL, b), "", self.now) })
            }
            13 => Act::Resolve {
                choice: pick(Choice::ALL, b),
                rev: self.email.rev - u32::from(b >= 200),
                handoff: (b % 2 == 0).then_some(number),
                reason: String::new(),
            },
            14 => Act::Park { hold: worker?.hold.clone(), due: self.now, why: "busy".into() },
            _ => Act::Reroute { number, from: "relay".into(), to: "relay".into() },
        })
    }

    fn play(&mut self, turn: Turn) -> Option<Played> {
        let (what, a, b) = turn;
        match what % 16 {
            0..=1 => return Some(self.lease(u16::from(a % 2), node(b))),
            2 if b % 4 == 0 => {
                let verdict = self.email.cancel(self.now).map_or_else(Verdict::Refused, |_| Verdict::Done);
                return Some(Played { steps: &[Step::Cancel], number: 0, verdict, act: None });
            }
            2 => {
                self.now = self.now.plus(i64::from(b) * 1_000);
                return None;
            }
            _ => {}
        }
        let act = self.act_of(turn)?;
        let verdict = self.email.act(&act, self.now).verdict;
        let number = match &act {
            Act::Mark { hold, .. } | Act::Settle { hold, .. } | Act::Park { hold, .. } => hold.number,
            _ => u16::from(a % 2),
        };
        self.learn(&act, verdict);
        Some(Played { steps: act.steps(), number, verdict, act: Some(act) })
    }

    /// Notes what the test must know to judge what comes later.
    fn learn(&mut self, act: &Act, verdict: Verdict) {
        let done = verdict == Verdict::Done;
        match act {
            Act::Mark { hold, .. } if done => {
                let attempt = self.email.handoffs[usize::from(hold.number)].attempts;
                self.truth[usize::from(hold.number)].open.insert(attempt, hold.account.clone());
                let same = |w: &&mut Worker| w.hold.number == hold.number && w.hold.fence == hold.fence;
                self.workers.iter_mut().filter(same).for_each(|worker| worker.attempt = Some(attempt));
            }
            Act::Settle { hold, attempt: Some(attempt), reply, .. } => {
                if matches!(reply.meaning, Meaning::Deferred | Meaning::Refused | Meaning::Fault) {
                    self.truth[usize::from(hold.number)].open.remove(attempt);
                }
            }
            Act::Fact(Evidence { handoff, attempt: Some(attempt), says: Says::NotAccepted, .. }) => {
                self.truth[usize::from(*handoff)].open.remove(attempt);
            }
            Act::Repeat { number, account, .. } if done => {
                let mut went = self.truth[usize::from(*number)].open.values();
                assert!(went.all(|went| went == account), "repeated elsewhere than tried");
                self.join(*number);
            }
            Act::ResendByPolicy { number } if done => self.truth[usize::from(*number)].policy_resends += 1,
            _ => {}
        }
    }
}

fn is_gone(state: State) -> bool {
    matches!(state, State::Sent | State::Delivered | State::Bounced | State::Complained)
}

/// What must hold of a handoff at any time.
fn check_state(handoff: &Handoff, truth: &Truth) -> Result<(), TestCaseError> {
    let (state, work) = (handoff.state, &handoff.work);
    let open = !truth.open.is_empty();
    let waits = matches!(state, State::Queued | State::Scheduled);
    prop_assert!(!(state.is_surely_unsent() && (open || handoff.is_in_doubt())), "in doubt and {}", state.word());
    prop_assert!(!(waits && (open || handoff.is_in_doubt()) && !(work.may_duplicate && work.again)));
    prop_assert_eq!(handoff.holder.is_some(), matches!(state, State::Leased | State::Sending));
    prop_assert!(state != State::Unknown || handoff.is_in_doubt());
    prop_assert!(!is_gone(state) || !handoff.is_in_doubt());
    prop_assert!(!waits || handoff.due_at.is_some());
    prop_assert!(truth.policy_resends <= 1);
    Ok(())
}

/// What must hold of the move that a turn made.
fn check_move(before: &Handoff, after: &Handoff, played: &Played) -> Result<(), TestCaseError> {
    let mine = before.number == played.number;
    prop_assert!(before.state.leads_to(after.state, played.steps), "{} to {}", before.state.word(), after.state.word());
    prop_assert!(!is_gone(before.state) || is_gone(after.state));
    let done = played.verdict == Verdict::Done;
    let leases = matches!(played.act, None | Some(Act::Repeat { .. })) && done && mine && after.state == State::Leased;
    prop_assert_eq!(after.fence, before.fence + u64::from(leases && before.state != State::Leased));
    let again = match &played.act {
        Some(Act::ResendByPolicy { .. }) => done && mine,
        Some(Act::Resolve { choice: Choice::Resend, handoff, .. }) => {
            done && before.state == State::Unknown && handoff.is_none_or(|number| number == before.number)
        }
        _ => false,
    };
    prop_assert_eq!(after.work.may_duplicate, before.work.may_duplicate || again);
    match &played.act {
        Some(Act::Mark { hold, .. }) if mine => {
            let may = hold.fence == before.fence && before.state == State::Leased;
            let repeat = before.is_in_doubt() && !before.work.again;
            let elsewhere = repeat && before.work.account.as_ref() != Some(&hold.account);
            prop_assert_eq!(done, may && !elsewhere);
            prop_assert_eq!(after.attempts, before.attempts + u32::from(done));
        }
        Some(Act::Fact(evidence)) if mine => {
            let proofs = [Says::Accepted, Says::Delayed, Says::Delivered, Says::Bounced, Says::Complained];
            prop_assert!(!proofs.contains(&evidence.says) || is_gone(after.state));
        }
        Some(Act::Settle { attempt: Some(_), reply, .. }) if mine => {
            let proof = matches!(reply.meaning, Meaning::Accepted | Meaning::Repeated);
            prop_assert!(!proof || is_gone(after.state));
        }
        _ => {}
    }
    Ok(())
}

/// A cancel wins unless something left, is on the wire or is in doubt; then nothing waits any more.
fn check_cancel(before: &Email, after: &Email, played: &Played) -> Result<(), TestCaseError> {
    let late = |handoff: &Handoff| {
        let state = handoff.state;
        is_gone(state) || handoff.is_in_doubt() || matches!(state, State::Sending | State::Unknown | State::Abandoned)
    };
    let refused = matches!(played.verdict, Verdict::Refused(_));
    prop_assert_eq!(refused, before.handoffs.iter().any(late));
    let kept = if refused { before == after } else { after.handoffs.iter().all(|h| h.state.is_surely_unsent()) };
    prop_assert!(kept);
    Ok(())
}

fn check_email(before: &Email, after: &Email, played: &Played) -> Result<(), TestCaseError> {
    for ((old, new), number) in before.handoffs.iter().zip(&after.handoffs).zip(0..) {
        prop_assert_eq!(new.number, number);
        check_move(old, new, played)?;
    }
    if played.steps == [Step::Cancel] {
        check_cancel(before, after, played)?;
    }
    prop_assert!(after.rev >= before.rev);
    prop_assert!(before.state() == after.state() || after.rev > before.rev);
    prop_assert!(!after.state().is_terminal() || after.settled_at.is_some());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_acts_breaks_a_rule(turns in vec(any::<Turn>(), 1..80)) {
        let mut game = Game::new();
        for turn in turns {
            let before = game.email.clone();
            if let Some(played) = game.play(turn) {
                check_email(&before, &game.email, &played)?;
            }
            for (handoff, truth) in game.email.handoffs.iter().zip(&game.truth) {
                check_state(handoff, truth)?;
            }
        }
    }
}
