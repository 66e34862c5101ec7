//! A worked example: five recommended ways to send an email once, each broken by a model checker, and ours.
//!
//! A [`Protocol`] is a list of [`Op`]s that every caller runs, and the faults it has to survive. The checker tries
//! every order of events and returns the shortest one that sends a duplicate or loses the email. `docs/protocols.md`,
//! which `docs/proof.md` and the README link to, is the output of [`render_page`]. The last protocol, mailonce's own
//! marker, must hold under all faults at once: without it, a checker that rejects everything would look right.
//!
//! The full hand-off is checked by [`crate::model`], which calls the shipped code.

use stateright::{Checker, Model, Property};
use std::fmt::{self, Write as _};

const NO_DUPLICATE: &str = "no duplicate";
const NO_LOST_EMAIL: &str = "no email is lost after every caller was answered";

/// One step of a caller. Any event may happen between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets the lock; a caller that finds it set stops.
    Lock,
    /// Deletes the lock, whoever set it.
    Unlock,
    /// Reads the stored result; a caller that finds one stops.
    ReadResult,
    /// Stores the result.
    WriteResult,
    /// Marks the message as processed; a caller that finds the mark stops.
    MarkProcessed,
    /// Answers 200, so that the client never calls again.
    Acknowledge,
    /// Sends the email.
    Send,
    /// Begins a transaction and inserts the key; a caller that finds a committed key stops.
    InsertInTransaction,
    /// Commits the transaction.
    Commit,
    /// Inserts the key as `claimed` and commits; a caller that finds `confirmed` stops.
    ClaimRow,
    /// Sets the row to `confirmed` and commits.
    ConfirmRow,
    /// Binds the key and commits. A caller that finds `sending` records `unknown` and stops; one that finds `sent`
    /// stops.
    BindKey,
    /// Commits `sending`, only from `queued`.
    Marker,
    /// Commits `sent`.
    Settle,
}

impl Op {
    /// The step as the page prints it.
    fn description(self) -> &'static str {
        match self {
            Self::Lock => "sets the lock if it is free",
            Self::Unlock => "deletes the lock",
            Self::ReadResult => "reads the stored result",
            Self::WriteResult => "stores the result",
            Self::MarkProcessed => "marks the message as processed",
            Self::Acknowledge => "answers 200",
            Self::Send => "sends the email",
            Self::InsertInTransaction => "begins a transaction and inserts the key",
            Self::Commit => "commits",
            Self::ClaimRow => "inserts the row as `claimed` and commits, or reads it",
            Self::ConfirmRow => "sets the row to `confirmed` and commits",
            Self::BindKey => "binds the key and commits, or reads the bound row",
            Self::Marker => "commits the marker `sending`",
            Self::Settle => "commits `sent`",
        }
    }
}

/// The faults that a protocol is checked under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A caller may crash between two steps.
    pub crashes: bool,
    /// The next hop may accept the email while the caller gets an error.
    pub lost_replies: bool,
    /// The lock may expire at any time.
    pub lock_expires: bool,
}

/// How a protocol fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The email is sent twice.
    Duplicate,
    /// No email is sent, every caller was answered, and no one retries.
    LostEmail,
}

/// A protocol.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Its heading on the page.
    pub name: &'static str,
    /// Where it is recommended, and how it works.
    pub about: &'static str,
    /// The steps of each caller.
    pub program: &'static [Op],
    /// The step after a failed send.
    pub on_error: Option<Op>,
    /// Concurrent callers.
    pub callers: u8,
    /// Calls that each caller makes at most until it is answered.
    pub max_calls: u8,
    /// The faults.
    pub faults: Faults,
    /// How it fails.
    pub breaks: Option<Failure>,
    /// What to learn from it.
    pub lesson: &'static str,
}

const NO_FAULTS: Faults = Faults { crashes: false, lost_replies: false, lock_expires: false };
const CRASHES: Faults = Faults { crashes: true, ..NO_FAULTS };

/// Recommended protocols that fail, one for each kind of mistake.
pub const PROTOCOLS: &[Protocol] = &[
    Protocol {
        name: "A claim that is deleted on error",
        about: "A guide for Redis: set a claim unless it exists, send, store the result. If sending throws, delete the \
                claim, so that a retry can send.",
        program: &[Op::Lock, Op::Send, Op::WriteResult],
        on_error: Some(Op::Unlock),
        callers: 1,
        max_calls: 2,
        faults: Faults { lost_replies: true, ..NO_FAULTS },
        breaks: Some(Failure::Duplicate),
        lesson: "An error after the bytes left does not mean that the email failed. mailonce records `sent` or `failed` only \
                 after a definite reply; every other outcome is `unknown`.",
    },
    Protocol {
        name: "A lock that expires",
        about: "A plan for an API with idempotency keys: the result is stored for a day, and a lock with a TTL of one \
                minute surrounds the send. This version is stricter than the original: it reads the result again under \
                the lock.",
        program: &[Op::ReadResult, Op::Lock, Op::ReadResult, Op::Send, Op::WriteResult, Op::Unlock],
        on_error: None,
        callers: 2,
        max_calls: 1,
        faults: Faults { lock_expires: true, ..NO_FAULTS },
        breaks: Some(Failure::Duplicate),
        lesson: "A slow worker is not a dead worker, and the next hop does not check our lock. In mailonce a lease only \
                 assigns work; a handoff in `sending` is never sent again automatically.",
    },
    Protocol {
        name: "Insert and send in one transaction",
        about: "A pattern for agents: a table with a unique key; insert, send and commit in one transaction.",
        program: &[Op::InsertInTransaction, Op::Send, Op::Commit],
        on_error: None,
        callers: 1,
        max_calls: 2,
        faults: CRASHES,
        breaks: Some(Failure::Duplicate),
        lesson: "A rollback undoes the insert, not the email. mailonce commits a marker before the bytes leave.",
    },
    Protocol {
        name: "A claim that is retried",
        about: "A pattern for agents: a row is `claimed`, then `confirmed`. A caller that finds `claimed` sends.",
        program: &[Op::ClaimRow, Op::Send, Op::ConfirmRow],
        on_error: None,
        callers: 1,
        max_calls: 2,
        faults: CRASHES,
        breaks: Some(Failure::Duplicate),
        lesson: "One state cannot distinguish a crash before the send from a crash after it. mailonce has two: `leased` \
                 returns to the queue, `sending` becomes `unknown`.",
    },
    Protocol {
        name: "Mark, then work",
        about: "A guide against duplicate replies: mark the message as processed first, so that a second delivery does \
                nothing.",
        program: &[Op::MarkProcessed, Op::Send, Op::Acknowledge],
        on_error: None,
        callers: 1,
        max_calls: 2,
        faults: CRASHES,
        breaks: Some(Failure::LostEmail),
        lesson: "A flag cannot express \"started\". mailonce has states for unfinished work, and looks for them when it \
                 starts.",
    },
];

/// mailonce's protocol, which holds under all faults.
pub const MARKER_PROTOCOL: Protocol = Protocol {
    name: "A marker before the bytes",
    about: "Bind the key, commit a marker, send the email, record the outcome. A caller that finds the marker of another \
            caller records the outcome as unknown, and an operator is notified.",
    program: &[Op::BindKey, Op::Marker, Op::Send, Op::Settle],
    on_error: None,
    callers: 2,
    max_calls: 3,
    faults: Faults { crashes: true, lost_replies: true, lock_expires: true },
    breaks: None,
    lesson: "",
};

/// The state of the row with the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Row {
    Absent,
    /// Inserted by a transaction that is still open.
    Uncommitted(u8),
    /// `claimed` or `queued`: nothing is known to have been sent.
    Claimed,
    Sending,
    Unknown,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Caller {
    /// The next step; `None` while no call runs.
    next_op: Option<u8>,
    answered: bool,
    calls_left: u8,
}

/// A state of the model: one key, one email, a few callers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    callers: Vec<Caller>,
    lock: Option<u8>,
    /// Whether a result is stored or the message is marked as processed.
    result: bool,
    row: Row,
    emails: u8,
}

/// What a caller does after a step.
enum Next {
    Continue,
    Stop,
    /// The step is blocked by another caller's transaction.
    Blocked,
}

fn caller_name(caller: u8) -> char {
    char::from(b'A' + caller)
}

impl State {
    fn run_op(&mut self, who: u8, op: Op) -> Next {
        match (op, self.row) {
            (Op::Lock, _) if self.lock.is_some() => return Next::Stop,
            (Op::Lock, _) => self.lock = Some(who),
            (Op::Unlock, _) => self.lock = None,
            (Op::ReadResult | Op::MarkProcessed, _) if self.result => return Next::Stop,
            (Op::WriteResult | Op::MarkProcessed, _) => self.result = true,
            (Op::Acknowledge, _) => self.callers.iter_mut().for_each(|caller| caller.answered = true),
            (Op::Send, _) => self.emails += 1,
            (Op::InsertInTransaction, Row::Absent) => self.row = Row::Uncommitted(who),
            (Op::InsertInTransaction, Row::Uncommitted(_)) => return Next::Blocked,
            (Op::InsertInTransaction | Op::ClaimRow | Op::BindKey, Row::Done) => return Next::Stop,
            (Op::ClaimRow | Op::BindKey, Row::Absent) => self.row = Row::Claimed,
            (Op::Commit | Op::ConfirmRow | Op::Settle, _) => self.row = Row::Done,
            (Op::BindKey | Op::Marker, Row::Sending | Row::Unknown) => {
                self.row = Row::Unknown;
                return Next::Stop;
            }
            (Op::Marker, Row::Claimed) => self.row = Row::Sending,
            (Op::Marker, _) => return Next::Stop,
            _ => {}
        }
        Next::Continue
    }

    /// Ends a call without an answer: by a crash or an error. An open transaction is rolled back.
    fn abort(&mut self, who: u8) {
        if self.row == Row::Uncommitted(who) {
            self.row = Row::Absent;
        }
        self.callers[usize::from(who)].next_op = None;
    }

    fn describe(&self) -> String {
        let row = match self.row {
            Row::Absent => None,
            Row::Uncommitted(who) => Some(format!("row in the open transaction of {}", caller_name(who))),
            Row::Claimed => Some("row `claimed`".to_owned()),
            Row::Sending => Some("row `sending`".to_owned()),
            Row::Unknown => Some("row `unknown`".to_owned()),
            Row::Done => Some("row done".to_owned()),
        };
        let emails = match self.emails {
            0 => None,
            1 => Some("**1 email sent**".to_owned()),
            many => Some(format!("**{many} emails sent**")),
        };
        let lock = self.lock.map(|who| format!("lock held by {}", caller_name(who)));
        let result = self.result.then(|| "marked as done".to_owned());
        let parts: Vec<String> = [lock, result, row, emails].into_iter().flatten().collect();
        if parts.is_empty() { "empty".to_owned() } else { parts.join(", ") }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Step(u8),
    /// The next hop accepts the email, and the caller gets an error.
    LoseReply(u8),
    Crash(u8),
    Retry(u8),
    LockExpires,
}

struct ProtocolModel(Protocol);

impl Model for ProtocolModel {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let caller = Caller { next_op: Some(0), answered: false, calls_left: self.0.max_calls - 1 };
        let callers = vec![caller; usize::from(self.0.callers)];
        vec![State { callers, lock: None, result: false, row: Row::Absent, emails: 0 }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for (number, caller) in (0..).zip(&state.callers) {
            match caller.next_op {
                Some(at) => {
                    events.push(Event::Step(number));
                    if self.0.faults.lost_replies && self.op_at(at) == Some(Op::Send) {
                        events.push(Event::LoseReply(number));
                    }
                    if self.0.faults.crashes {
                        events.push(Event::Crash(number));
                    }
                }
                None if !caller.answered && caller.calls_left > 0 => events.push(Event::Retry(number)),
                None => {}
            }
        }
        if self.0.faults.lock_expires && state.lock.is_some() {
            events.push(Event::LockExpires);
        }
    }

    fn next_state(&self, state: &State, event: Event) -> Option<State> {
        let mut state = state.clone();
        match event {
            Event::Step(who) => self.run_step(&mut state, who)?,
            Event::LoseReply(who) => {
                state.emails += 1;
                if let Some(op) = self.0.on_error {
                    state.run_op(who, op);
                }
                state.abort(who);
            }
            Event::Crash(who) => state.abort(who),
            Event::Retry(who) => {
                let caller = &mut state.callers[usize::from(who)];
                (caller.next_op, caller.calls_left) = (Some(0), caller.calls_left - 1);
            }
            Event::LockExpires => state.lock = None,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_DUPLICATE, |_, state: &State| state.emails <= 1),
            Property::always(NO_LOST_EMAIL, |_, state: &State| {
                let over = state.callers.iter().all(|caller| caller.answered && caller.next_op.is_none());
                !over || state.emails > 0 || state.row == Row::Unknown
            }),
        ]
    }
}

impl ProtocolModel {
    fn op_at(&self, at: u8) -> Option<Op> {
        self.0.program.get(usize::from(at)).copied()
    }

    fn run_step(&self, state: &mut State, who: u8) -> Option<()> {
        let at = state.callers[usize::from(who)].next_op?;
        let next = state.run_op(who, self.op_at(at)?);
        let caller = &mut state.callers[usize::from(who)];
        match next {
            Next::Blocked => return None,
            Next::Continue if usize::from(at) + 1 < self.0.program.len() => caller.next_op = Some(at + 1),
            Next::Continue | Next::Stop => (caller.next_op, caller.answered) = (None, true),
        }
        Some(())
    }

    fn trace_line(&self, before: &State, event: Event, after: &State) -> String {
        let (who, what) = match event {
            Event::Step(who) => {
                let at = before.callers[usize::from(who)].next_op.unwrap_or_default();
                let is_last = usize::from(at) + 1 == self.0.program.len();
                let stopped = !is_last && after.callers[usize::from(who)].next_op.is_none();
                let step = self.op_at(at).map_or("", Op::description);
                (Some(who), format!("{step}{}", if stopped { ", and stops" } else { "" }))
            }
            Event::LoseReply(who) => {
                let then = self.0.on_error.map_or(String::new(), |op| format!(", and {}", op.description()));
                (Some(who), format!("sends the email, gets no reply{then}"))
            }
            Event::Crash(who) => (Some(who), "crashes".to_owned()),
            Event::Retry(who) => (Some(who), "retries".to_owned()),
            Event::LockExpires => (None, "the lock expires".to_owned()),
        };
        format!("{} | {what} | {}", who.map_or(' ', caller_name), after.describe())
    }
}

/// The result of checking a protocol.
#[derive(Debug)]
pub struct CheckResult {
    /// How it fails.
    pub breaks: Option<Failure>,
    /// The shortest order of events that leads there, as rows of a table.
    pub trace: Vec<String>,
    /// Distinct states that were explored.
    pub states: usize,
}

/// Checks a protocol. The depth grows by one until it finds a violation or no new state, so the trace is a shortest
/// one.
pub fn check_protocol(protocol: Protocol) -> CheckResult {
    let (mut depth, mut states) = (1, 0);
    loop {
        let result = check_to_depth(protocol, depth);
        if result.breaks.is_some() || result.states == states {
            return result;
        }
        (depth, states) = (depth + 1, result.states);
    }
}

fn check_to_depth(protocol: Protocol, depth: usize) -> CheckResult {
    let checker = ProtocolModel(protocol).checker().threads(1).target_max_depth(depth).spawn_bfs().join();
    let (mut found, states) = (checker.discoveries(), checker.unique_state_count());
    let (breaks, path) = match (found.remove(NO_DUPLICATE), found.remove(NO_LOST_EMAIL)) {
        (Some(path), _) => (Failure::Duplicate, path),
        (None, Some(path)) => (Failure::LostEmail, path),
        (None, None) => return CheckResult { breaks: None, trace: Vec::new(), states },
    };
    let line = |pair: &[(State, Option<Event>)]| match pair {
        [(before, Some(event)), (after, _)] => Some(checker.model().trace_line(before, *event, after)),
        _ => None,
    };
    CheckResult { breaks: Some(breaks), trace: path.into_vec().windows(2).filter_map(line).collect(), states }
}

const PAGE_HEADER: &str = "\
# Protocols that do not hold

Published guides recommend many ways to send an email once. This page shows five of them, and the order of events that breaks each.
A model checker tried every order and wrote this page (`mailonce-model protocols`); a test fails when the two differ. Each trace is a
shortest one.

A model has one idempotency key and one or two callers, **A** and **B**, that run the same steps under the faults named. A caller that gets no
answer retries. Any event may happen between two steps.
";

/// Renders `docs/protocols.md` from what the checker finds.
pub fn render_page() -> Result<String, fmt::Error> {
    let mut page = PAGE_HEADER.to_owned();
    for protocol in PROTOCOLS.iter().chain([&MARKER_PROTOCOL]) {
        let result = check_protocol(*protocol);
        writeln!(page, "\n## {}\n\n{}\n", protocol.name, protocol.about)?;
        for (number, op) in (1..).zip(protocol.program) {
            writeln!(page, "{number}. {}", op.description())?;
        }
        if let Some(op) = protocol.on_error {
            writeln!(page, "\nIf the send fails: {}.", op.description())?;
        }
        let outcome = match result.breaks {
            Some(Failure::Duplicate) => "**a duplicate**".to_owned(),
            Some(Failure::LostEmail) => "**a lost email**, although the caller was told that it is done".to_owned(),
            None => format!("no duplicate and no lost email in all {} states", result.states),
        };
        writeln!(page, "\nFaults: {}. Result: {outcome}.", describe_faults(protocol.faults))?;
        if !result.trace.is_empty() {
            writeln!(page, "\n| step | caller | event | state afterwards |\n|---|---|---|---|")?;
            for (number, line) in (1..).zip(&result.trace) {
                writeln!(page, "| {number} | {line} |")?;
            }
            writeln!(page, "\n{}", protocol.lesson)?;
        }
    }
    writeln!(
        page,
        "\nThe whole hand-off, with leases, fences, evidence and operators, has a model of its own that calls the shipped code: see\n\
         `crates/mailonce-sim/src/model` and [handoff.md](handoff.md)."
    )?;
    Ok(page)
}

fn describe_faults(faults: Faults) -> String {
    let names = [
        (faults.crashes, "callers crash"),
        (faults.lost_replies, "replies of the next hop are lost"),
        (faults.lock_expires, "locks expire"),
    ];
    let names: Vec<&str> = names.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
    names.join(", ")
}
