//! Plays a protocol to the end and finds the shortest order of events that breaks it.

use stateright::{Checker, Model, Property};

use super::{
    catalogue::{Breaks, Protocol},
    program::{Op, Row, Then, World, name},
};

const TWICE: &str = "no second mail";
const LOST: &str = "no mail is lost while everybody believes that all is well";

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A caller does its next op.
    Does(u8),
    /// The next hop takes the mail of a caller, which gets an error.
    LosesReply(u8),
    /// A caller dies.
    Dies(u8),
    /// A caller calls again.
    CallsAgain(u8),
    /// The lock runs out.
    Lapses,
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Who.
    pub who: String,
    /// What.
    pub what: String,
    /// What the world has then.
    pub then: String,
}

struct Play(Protocol);

impl Model for Play {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.0.callers, self.0.calls, self.0.row)]
    }

    fn actions(&self, world: &World, all: &mut Vec<Event>) {
        for (number, caller) in (0..).zip(&world.callers) {
            match caller.at {
                Some(at) => {
                    all.push(Event::Does(number));
                    if self.0.faults.lost_replies && self.op(at) == Some(Op::Send) {
                        all.push(Event::LosesReply(number));
                    }
                    if self.0.faults.deaths {
                        all.push(Event::Dies(number));
                    }
                }
                None if !caller.answered && caller.calls > 0 => all.push(Event::CallsAgain(number)),
                None => {}
            }
        }
        if self.0.faults.lapses && world.lock.is_some() {
            all.push(Event::Lapses);
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut world = world.clone();
        match event {
            Event::Does(who) => self.does(&mut world, who)?,
            Event::LosesReply(who) => {
                world.mails += 1;
                if let Some(op) = self.0.on_error {
                    world.run(who, op);
                }
                world.roll_back(who);
                world.callers[usize::from(who)].at = None;
            }
            Event::Dies(who) => {
                world.roll_back(who);
                world.callers[usize::from(who)].at = None;
            }
            Event::CallsAgain(who) => {
                let caller = &mut world.callers[usize::from(who)];
                (caller.at, caller.calls) = (Some(0), caller.calls - 1);
            }
            Event::Lapses => world.lock = None,
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TWICE, |_, world: &World| world.mails <= 1),
            Property::always(LOST, |_, world: &World| {
                let over = world.callers.iter().all(|caller| caller.answered && caller.at.is_none());
                !over || world.mails > 0 || world.row == Row::Unknown
            }),
        ]
    }
}

impl Play {
    fn op(&self, at: u8) -> Option<Op> {
        self.0.program.get(usize::from(at)).copied()
    }

    fn does(&self, world: &mut World, who: u8) -> Option<()> {
        let at = world.callers[usize::from(who)].at?;
        let then = world.run(who, self.op(at)?);
        let caller = &mut world.callers[usize::from(who)];
        match then {
            Then::Wait => return None,
            Then::On if usize::from(at) + 1 < self.0.program.len() => caller.at = Some(at + 1),
            Then::On | Then::Stop => (caller.at, caller.answered) = (None, true),
        }
        Some(())
    }

    fn line(&self, before: &World, event: Event, after: &World) -> Line {
        let op = |who: u8| before.callers[usize::from(who)].at.and_then(|at| self.op(at));
        let stopped = |who: u8| {
            let caller = after.callers[usize::from(who)];
            let last = before.callers[usize::from(who)].at.map(usize::from) == Some(self.0.program.len() - 1);
            caller.at.is_none() && !last
        };
        let (who, what) = match event {
            Event::Does(who) => {
                let does = op(who).map_or("does nothing", Op::words);
                let end = if stopped(who) { ", finds that it is done, and stops" } else { "" };
                (name(who).to_string(), format!("{does}{end}"))
            }
            Event::LosesReply(who) => {
                let then = self.0.on_error.map_or(String::new(), |op| format!(", and {}", op.words()));
                (name(who).to_string(), format!("hands the mail over, gets no answer{then}"))
            }
            Event::Dies(who) => (name(who).to_string(), "dies".into()),
            Event::CallsAgain(who) => (name(who).to_string(), "calls again".into()),
            Event::Lapses => ("time".into(), "the lock runs out".into()),
        };
        Line { who, what, then: after.words() }
    }
}

/// What came of playing a protocol.
#[derive(Debug)]
pub struct Found {
    /// What it broke.
    pub breaks: Breaks,
    /// The shortest way there.
    pub trace: Vec<Line>,
    /// Worlds that were seen.
    pub states: usize,
}

/// Plays a protocol until it breaks, or to its end: all ways of one length before any that is longer, so that what is
/// found first is as short as can be.
pub fn check(protocol: Protocol) -> Found {
    let (mut depth, mut seen) = (1, 0);
    loop {
        let found = play(protocol, depth);
        if found.breaks != Breaks::Nothing || found.states == seen {
            return found;
        }
        (depth, seen) = (depth + 1, found.states);
    }
}

fn play(protocol: Protocol, depth: usize) -> Found {
    let checker = Play(protocol).checker().threads(1).target_max_depth(depth).spawn_bfs().join();
    let (mut found, states) = (checker.discoveries(), checker.unique_state_count());
    let (breaks, path) = match (found.remove(TWICE), found.remove(LOST)) {
        (Some(path), _) => (Breaks::Twice, path),
        (None, Some(path)) => (Breaks::Lost, path),
        (None, None) => return Found { breaks: Breaks::Nothing, trace: Vec::new(), states },
    };
    let line = |pair: &[(World, Option<Event>)]| match pair {
        [(before, Some(event)), (after, _)] => Some(checker.model().line(before, *event, after)),
        _ => None,
    };
    Found { breaks, trace: path.into_vec().windows(2).filter_map(line).collect(), states }
}
