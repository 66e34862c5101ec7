//! Plays a protocol to the end and finds the shortest order of events that breaks it.

use stateright::{Checker, Model, Property};

use super::catalogue::{Protocol, ProtocolFailure};
use crate::protocol::ops::{NextStep, Op, ProtocolRow, ProtocolState, caller_name};

const NO_DUPLICATE: &str = "no second mail";
const NO_LOST_MAIL: &str = "no mail is lost while everybody believes that all is well";

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolEvent {
    /// A caller does its next op.
    Step(u8),
    /// The next hop takes the mail of a caller, which gets an error.
    LoseReply(u8),
    /// A caller dies.
    Crash(u8),
    /// A caller calls again.
    Retry(u8),
    /// The lock runs out.
    LockExpires,
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLine {
    /// Who.
    pub who: String,
    /// What.
    pub what: String,
    /// What the world has then.
    pub state_after: String,
}

struct ProtocolModel(Protocol);

impl Model for ProtocolModel {
    type State = ProtocolState;
    type Action = ProtocolEvent;

    fn init_states(&self) -> Vec<ProtocolState> {
        vec![ProtocolState::new(self.0.callers, self.0.max_calls, self.0.initial_row)]
    }

    fn actions(&self, world: &ProtocolState, all: &mut Vec<ProtocolEvent>) {
        for (number, caller) in (0..).zip(&world.callers) {
            match caller.next_op {
                Some(at) => {
                    all.push(ProtocolEvent::Step(number));
                    if self.0.faults.lost_replies && self.op_at(at) == Some(Op::Send) {
                        all.push(ProtocolEvent::LoseReply(number));
                    }
                    if self.0.faults.crashes {
                        all.push(ProtocolEvent::Crash(number));
                    }
                }
                None if !caller.answered && caller.calls_left > 0 => all.push(ProtocolEvent::Retry(number)),
                None => {}
            }
        }
        if self.0.faults.lock_expires && world.lock.is_some() {
            all.push(ProtocolEvent::LockExpires);
        }
    }

    fn next_state(&self, world: &ProtocolState, event: ProtocolEvent) -> Option<ProtocolState> {
        let mut world = world.clone();
        match event {
            ProtocolEvent::Step(who) => self.run_step(&mut world, who)?,
            ProtocolEvent::LoseReply(who) => {
                world.mails += 1;
                if let Some(op) = self.0.on_error {
                    world.run_op(who, op);
                }
                world.roll_back(who);
                world.callers[usize::from(who)].next_op = None;
            }
            ProtocolEvent::Crash(who) => {
                world.roll_back(who);
                world.callers[usize::from(who)].next_op = None;
            }
            ProtocolEvent::Retry(who) => {
                let caller = &mut world.callers[usize::from(who)];
                (caller.next_op, caller.calls_left) = (Some(0), caller.calls_left - 1);
            }
            ProtocolEvent::LockExpires => world.lock = None,
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_DUPLICATE, |_, world: &ProtocolState| world.mails <= 1),
            Property::always(NO_LOST_MAIL, |_, world: &ProtocolState| {
                let over = world.callers.iter().all(|caller| caller.answered && caller.next_op.is_none());
                !over || world.mails > 0 || world.row == ProtocolRow::Unknown
            }),
        ]
    }
}

impl ProtocolModel {
    fn op_at(&self, at: u8) -> Option<Op> {
        self.0.program.get(usize::from(at)).copied()
    }

    fn run_step(&self, world: &mut ProtocolState, who: u8) -> Option<()> {
        let at = world.callers[usize::from(who)].next_op?;
        let then = world.run_op(who, self.op_at(at)?);
        let caller = &mut world.callers[usize::from(who)];
        match then {
            NextStep::Wait => return None,
            NextStep::Continue if usize::from(at) + 1 < self.0.program.len() => caller.next_op = Some(at + 1),
            NextStep::Continue | NextStep::Stop => (caller.next_op, caller.answered) = (None, true),
        }
        Some(())
    }

    fn trace_line(&self, before: &ProtocolState, event: ProtocolEvent, after: &ProtocolState) -> TraceLine {
        let op = |who: u8| before.callers[usize::from(who)].next_op.and_then(|at| self.op_at(at));
        let stopped = |who: u8| {
            let caller = after.callers[usize::from(who)];
            let last = before.callers[usize::from(who)].next_op.map(usize::from) == Some(self.0.program.len() - 1);
            caller.next_op.is_none() && !last
        };
        let (who, what) = match event {
            ProtocolEvent::Step(who) => {
                let does = op(who).map_or("does nothing", Op::description);
                let end = if stopped(who) { ", finds that it is done, and stops" } else { "" };
                (caller_name(who).to_string(), format!("{does}{end}"))
            }
            ProtocolEvent::LoseReply(who) => {
                let then = self.0.on_error.map_or(String::new(), |op| format!(", and {}", op.description()));
                (caller_name(who).to_string(), format!("hands the mail over, gets no answer{then}"))
            }
            ProtocolEvent::Crash(who) => (caller_name(who).to_string(), "dies".into()),
            ProtocolEvent::Retry(who) => (caller_name(who).to_string(), "calls again".into()),
            ProtocolEvent::LockExpires => ("time".into(), "the lock runs out".into()),
        };
        TraceLine { who, what, state_after: after.describe() }
    }
}

/// What came of playing a protocol.
#[derive(Debug)]
pub struct ProtocolResult {
    /// What it broke.
    pub breaks: ProtocolFailure,
    /// The shortest way there.
    pub trace: Vec<TraceLine>,
    /// Worlds that were seen.
    pub states: usize,
}

/// Plays a protocol until it breaks, or to its end: all ways of one length before any that is longer, so that what is
/// found first is as short as can be.
pub fn check_protocol(protocol: Protocol) -> ProtocolResult {
    let (mut depth, mut seen) = (1, 0);
    loop {
        let found = check_to_depth(protocol, depth);
        if found.breaks != ProtocolFailure::None || found.states == seen {
            return found;
        }
        (depth, seen) = (depth + 1, found.states);
    }
}

fn check_to_depth(protocol: Protocol, depth: usize) -> ProtocolResult {
    let checker = ProtocolModel(protocol).checker().threads(1).target_max_depth(depth).spawn_bfs().join();
    let (mut found, states) = (checker.discoveries(), checker.unique_state_count());
    let (breaks, path) = match (found.remove(NO_DUPLICATE), found.remove(NO_LOST_MAIL)) {
        (Some(path), _) => (ProtocolFailure::Duplicate, path),
        (None, Some(path)) => (ProtocolFailure::LostMail, path),
        (None, None) => return ProtocolResult { breaks: ProtocolFailure::None, trace: Vec::new(), states },
    };
    let line = |pair: &[(ProtocolState, Option<ProtocolEvent>)]| match pair {
        [(before, Some(event)), (after, _)] => Some(checker.model().trace_line(before, *event, after)),
        _ => None,
    };
    ProtocolResult { breaks, trace: path.into_vec().windows(2).filter_map(line).collect(), states }
}
