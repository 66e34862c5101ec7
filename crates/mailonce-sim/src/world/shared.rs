//! What all parts of one world share: time, chance, the history and the trace.

use super::plan::{FaultKind, Plan};
use crate::proof::History;
use crate::proof::history::{
    self, Arrival, Brought, Call, Desk, Did, End, Event, Fault, Got, Hop, Inbound, Move, Question, Reading, Step, Take,
};
use crate::rig::chance::Chance;
use mailonce_core::email::Email;
use mailonce_core::handoff::State;
use mailonce_core::id::{EmailId, NodeId};
use mailonce_core::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// When every world begins, in milliseconds since the epoch.
const BEGINNING: i64 = 1_794_715_200_000;

pub(super) struct Shared {
    pub(super) plan: Plan,
    began: Instant,
    inner: Mutex<Inner>,
}

struct Inner {
    chance: Chance,
    /// Milliseconds that passed beside the runtime's own time.
    leapt: i64,
    /// Milliseconds that were skipped since that was noted as a fault.
    skipped: i64,
    /// The latest time that a node told the ledger.
    latest: i64,
    /// Whether faults happen now.
    stormy: bool,
    at: u64,
    trace: u64,
    lines: Option<Vec<String>>,
    faults: BTreeMap<&'static str, u64>,
    history: History,
    known: BTreeMap<(EmailId, u16), Known>,
    /// When scheduled emails are due by the true time.
    due: BTreeMap<EmailId, i64>,
    /// When each wish was asked for first.
    asked: BTreeMap<(String, String), i64>,
    /// Emails whose keys were forgotten in time.
    forgotten: BTreeSet<EmailId>,
}

/// A handoff as it was last seen.
#[derive(Clone, Copy)]
struct Known {
    state: State,
    holder: Option<NodeId>,
}

impl Shared {
    pub(super) fn new(plan: Plan, tell: bool) -> Arc<Self> {
        let chance = Chance::at(plan.seed, &[1]);
        Arc::new(Self {
            plan,
            began: Instant::now(),
            inner: Mutex::new(Inner {
                chance,
                leapt: 0,
                skipped: 0,
                latest: 0,
                stormy: true,
                at: 0,
                trace: 0xcbf2_9ce4_8422_2325,
                lines: tell.then(Vec::new),
                faults: BTreeMap::new(),
                history: History::default(),
                known: BTreeMap::new(),
                due: BTreeMap::new(),
                asked: BTreeMap::new(),
                forgotten: BTreeSet::new(),
            }),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the beginning. What really passed, whatever clocks say.
    pub(super) fn passed(&self) -> i64 {
        let own = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        own + self.inner().leapt
    }

    /// The true time.
    pub(super) fn now(&self) -> i64 {
        BEGINNING + self.passed()
    }

    /// Lets time pass at once.
    pub(super) fn leap(&self, ms: i64) {
        self.inner().leapt += ms;
        self.note(|| format!("{ms} ms pass at once"));
    }

    /// How much was skipped since that was noted last.
    pub(super) fn skipped(&self, ms: i64) -> i64 {
        let mut inner = self.inner();
        inner.skipped += ms;
        inner.skipped
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.inner().chance.below(bound)
    }

    pub(super) fn between(&self, low: u64, high: u64) -> u64 {
        self.inner().chance.between(low, high)
    }

    /// One of several.
    pub(super) fn pick<T: Copy>(&self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Whether a fault of this kind happens now.
    pub(super) fn strikes(&self, kind: FaultKind) -> bool {
        let likely = self.plan.has(kind) && self.inner().stormy;
        likely && self.below(100) < self.plan.rate
    }

    /// No more faults.
    pub(super) fn calm(&self) {
        self.inner().stormy = false;
        self.note(|| "everything is healed".to_owned());
    }

    /// Whether faults happen now.
    pub(super) fn is_stormy(&self) -> bool {
        self.inner().stormy
    }

    /// Notes when an email is due. Only where one clock counts all the time is it known exactly.
    pub(super) fn due(&self, id: EmailId, at: i64) {
        let ends = [FaultKind::Crash, FaultKind::CrashAtPoint].iter().any(|kind| self.plan.has(*kind));
        if self.plan.nodes == 1 && !ends {
            self.inner().due.entry(id).or_insert(at);
        }
    }

    /// When a wish was asked for first: now, if it has no key.
    pub(super) fn first_asked(&self, (team, key): &(String, Option<String>)) -> i64 {
        let now = self.now();
        let Some(key) = key else { return now };
        *self.inner().asked.entry((team.clone(), key.clone())).or_insert(now)
    }

    /// Whether a scheduled email comes before its time.
    pub(super) fn is_early(&self, id: EmailId) -> bool {
        let now = self.now();
        self.inner().due.get(&id).is_some_and(|due| now < *due)
    }

    /// Notes that the key of an email was forgotten in time. True for the first time.
    pub(super) fn forgotten(&self, id: EmailId) -> bool {
        self.inner().forgotten.insert(id)
    }

    /// Adds to the trace. The words are made only when they are kept or hashed.
    pub(super) fn note(&self, words: impl FnOnce() -> String) {
        let words = words();
        let now = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let mut inner = self.inner();
        for byte in words.bytes().chain(now.to_be_bytes()) {
            inner.trace = (inner.trace ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if let Some(lines) = &mut inner.lines {
            lines.push(format!("{now:>7} {words}"));
        }
    }

    /// The next place in the order of the history.
    fn next(&self) -> u64 {
        let mut inner = self.inner();
        inner.at += 1;
        inner.at
    }

    /// Notes a fault that was made, and whom it can have touched.
    pub(super) fn fault(&self, kind: FaultKind, emails: Vec<String>) {
        self.note(|| format!("fault: {} {}", kind.word(), emails.join(" ")));
        let at = self.next();
        let mut inner = self.inner();
        if kind == FaultKind::Leap {
            inner.skipped = 0;
        }
        *inner.faults.entry(kind.word()).or_default() += 1;
        let (ambiguous, kind) = (kind.is_ambiguous(), kind.word().to_owned());
        inner.history.faults.push(Fault { at, kind, ambiguous, emails });
    }

    /// Notes what reached a next hop.
    pub(super) fn arrive(&self, arrival: Arrival) {
        let word = if arrival.taken { "takes" } else { "sees" };
        self.note(|| format!("{} {word} {} to {}", arrival.transport, arrival.email, arrival.to.join("+")));
        let at = self.next();
        self.inner().history.arrivals.push(Arrival { at, ..arrival });
    }

    /// Notes that a call begins.
    pub(super) fn invoke(&self, call: Call) -> usize {
        self.note(|| format!("{} asks {:?} {:?} {:?}", call.team, call.verb, call.key, call.about));
        let at = self.next();
        self.inner().history.invoke(Call { at, ..call })
    }

    /// Notes how a call ended, and whether it had to be refused.
    pub(super) fn end(&self, call: usize, end: End, must_fail: bool) {
        self.note(|| format!("call {call} ends: {end:?}"));
        let at = self.next();
        let mut inner = self.inner();
        inner.history.end(call, at, end);
        if let Some(call) = inner.history.calls.get_mut(call) {
            call.must_fail = must_fail;
        }
    }

    /// Notes that a sender brings a mail, and under which number.
    pub(super) fn brings(&self, brought: Brought) -> usize {
        self.note(|| format!("{} comes to {} by {}", brought.message_id, brought.inbox, brought.way));
        let at = self.next();
        let all = &mut self.inner().history.inbound.brought;
        all.push(Brought { at, ..brought });
        all.len() - 1
    }

    /// Notes what its sender was told.
    pub(super) fn brought(&self, place: usize, acknowledged: bool) {
        self.note(|| format!("mail {place} is acknowledged: {acknowledged}"));
        let at = self.next();
        if let Some(brought) = self.inner().history.inbound.brought.get_mut(place) {
            (brought.ended, brought.acknowledged) = (Some(at), acknowledged);
        }
    }

    /// Whether the sender of a mail was told that it is kept.
    pub(super) fn is_kept(&self, message_id: &str) -> bool {
        let inner = self.inner();
        inner.history.inbound.brought.iter().any(|brought| brought.acknowledged && brought.message_id == message_id)
    }

    /// Notes that somebody wants a code, and under which number.
    pub(super) fn takes(&self, take: Take) -> usize {
        self.note(|| format!("{} wants the code of {} for {}", take.team, take.sender, take.purpose));
        let at = self.next();
        let all = &mut self.inner().history.inbound.takes;
        all.push(Take { at, ..take });
        all.len() - 1
    }

    /// Notes what came of it.
    pub(super) fn took(&self, place: usize, got: Option<Got>, refused: String) {
        self.note(|| format!("take {place} ends: {got:?} {refused}"));
        let at = self.next();
        if let Some(take) = self.inner().history.inbound.takes.get_mut(place) {
            (take.ended, take.got, take.refused) = (Some(at), got, refused);
        }
    }

    /// Notes the limits of an inbox that agents answer from.
    pub(super) fn opens(&self, address: &str, desk: Desk) {
        self.inner().history.talk.desks.insert(address.to_owned(), desk);
    }

    /// Notes what was committed about a conversation.
    pub(super) fn step(&self, did: Did, now: Time) {
        self.note(|| format!("{did:?}"));
        let at = self.next();
        self.inner().history.talk.steps.push(Step { at, now: now.0, did });
    }

    /// Notes the questions for people in the end.
    pub(super) fn end_questions(&self, questions: Vec<Question>) {
        self.inner().history.talk.questions = questions;
    }

    /// Notes what inboxes show in the end.
    pub(super) fn end_inboxes(&self, shown: Inbound) {
        let (messages, artifacts) = (shown.messages.len(), shown.artifacts.len());
        self.note(|| format!("in the end {messages} messages, {artifacts} artifacts"));
        let inbound = &mut self.inner().history.inbound;
        (inbound.messages, inbound.artifacts, inbound.kept) = (shown.messages, shown.artifacts, shown.kept);
    }

    /// Notes what a process says that time is.
    pub(super) fn read_clock(&self, process: String, time: i64) {
        let at = self.next();
        self.inner().history.readings.push(Reading { at, process, time });
    }

    /// Notes what an email became. Called by the ledger after each commit.
    pub(super) fn watch(&self, email: &Email) {
        for handoff in &email.handoffs {
            let place = (email.id, handoff.number);
            let now = Known { state: handoff.state, holder: handoff.holder };
            let before = self.inner().known.insert(place, now);
            let moved = before.is_none_or(|before| before.state != now.state);
            if !moved {
                continue;
            }
            let from = before.map_or("", |before| before.state.word()).to_owned();
            let to = handoff.state.word().to_owned();
            self.note(|| format!("{} {}: {from} -> {to} fence {}", email.id, handoff.number, handoff.fence));
            let at = self.next();
            let (email, rev) = (email.id.to_string(), email.rev);
            let step = Move { at, email, handoff: handoff.number, from, to, fence: handoff.fence, rev };
            self.inner().history.moves.push(step);
        }
    }

    /// Emails of which something is on the wire, held under one of these names.
    pub(super) fn on_the_wire(&self, names: &BTreeSet<NodeId>) -> Vec<String> {
        let inner = self.inner();
        let sending = inner.known.iter().filter(|(_, known)| known.state == State::Sending);
        let theirs = sending.filter(|(_, known)| known.holder.is_some_and(|holder| names.contains(&holder)));
        theirs.map(|((id, _), _)| id.to_string()).collect()
    }

    /// Learns what time a node thinks it is.
    pub(super) fn tell_time(&self, now: Time) {
        let mut inner = self.inner();
        inner.latest = inner.latest.max(now.0);
    }

    /// The latest time that it is anywhere.
    pub(super) fn latest(&self) -> i64 {
        let now = self.now();
        self.inner().latest.max(now)
    }

    /// Everything had the time it needed.
    pub(super) fn heal(&self) {
        self.inner().history.healed = true;
    }

    /// Notes what the ledger shows in the end, and which mails living nodes heard were taken.
    pub(super) fn end_with(
        &self,
        hops: BTreeMap<String, Hop>,
        emails: Vec<history::Email>,
        events: Vec<Event>,
        heard: BTreeSet<(String, Vec<String>)>,
    ) {
        let states: Vec<String> =
            emails.iter().map(|email| format!("{} {} {}", email.id, email.state, email.rev)).collect();
        self.note(|| format!("in the end: {}, {} events", states.join(", "), events.len()));
        let mut inner = self.inner();
        for arrival in &mut inner.history.arrivals {
            arrival.heard = heard.contains(&(arrival.email.clone(), arrival.to.clone()));
        }
        (inner.history.hops, inner.history.emails, inner.history.events) = (hops, emails, events);
    }

    /// Takes what was seen.
    pub(super) fn finish(&self) -> (History, u64, Vec<String>, BTreeMap<&'static str, u64>) {
        let mut inner = self.inner();
        let history = std::mem::take(&mut inner.history);
        (history, inner.trace, inner.lines.take().unwrap_or_default(), std::mem::take(&mut inner.faults))
    }
}
