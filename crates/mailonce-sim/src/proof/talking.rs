//! P14: each message is answered once, by whoever may work on its thread, never too often, and never by machines to
//! machines; and in the end somebody took care of it.
//!
//! The judge plays the commits again with rules of its own. What a lease, a tally or a slot is stands here a second time
//! on purpose.

use super::promise::Rule;
use super::story::{Subject, Violation};
use super::talk::{Answer, Desk, Did, Step};
use super::view::View;
use std::collections::BTreeMap;

const DAY_MS: i64 = 86_400_000;
/// Mails without a key that say the same within this are one too many.
const ALIKE_MS: i64 = 600_000;
/// With so many of the latest between the same people at least; later versions of a mail count among them.
const LATEST: usize = 4;
/// How often a message is offered at the most.
const OFFERS: usize = 5;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    if view.history.talk.steps.is_empty() {
        return;
    }
    let mut judge = Judge::new(view);
    for step in &view.history.talk.steps {
        judge.follow(step.at);
        judge.judge(step);
    }
    judge.follow(u64::MAX);
    judge.check_left();
    judge.check_told();
    if view.history.healed {
        judge.check_end();
    }
    found.append(&mut judge.found);
}

/// A message as the judge knows it.
pub(super) struct Known<'a> {
    thread: &'a str,
    seq: u64,
    /// Who wrote it: `person`, `machine`, `soft` or `own`.
    pub(super) kind: &'a str,
    /// Whose desk it is, and whom an answer goes to, a tag apart.
    person: String,
    desk: Desk,
    open: bool,
    /// Somebody said that it wants no answer.
    skipped: bool,
    offers: usize,
    not_before: i64,
}

/// The latest lease of a thread.
#[derive(Default)]
struct Lease<'a> {
    token: Option<&'a str>,
    until: i64,
    fence: u64,
}

/// What the judge knows after so many commits.
pub(super) struct Judge<'a, 'v> {
    pub(super) view: &'v View<'a>,
    pub(super) found: Vec<Violation>,
    /// How many moves were followed, and where they led.
    moved: usize,
    states: BTreeMap<&'a str, BTreeMap<u16, &'a str>>,
    pub(super) messages: BTreeMap<&'a str, Known<'a>>,
    leases: BTreeMap<&'a str, Lease<'a>>,
    pub(super) slots: BTreeMap<(&'a str, &'a str), Vec<&'a str>>,
    keys: BTreeMap<&'a str, &'a str>,
    threads: BTreeMap<&'a str, Vec<i64>>,
    /// How often each thread was answered in all.
    in_all: BTreeMap<&'a str, usize>,
    people: BTreeMap<String, Vec<i64>>,
    keyless: Vec<(&'a str, i64)>,
    pub(super) told: BTreeMap<(&'static str, &'a str), usize>,
}

fn plain(address: &str) -> String {
    let (local, domain) = address.split_once('@').unwrap_or((address, ""));
    format!("{}@{domain}", local.split('+').next().unwrap_or(local))
}

fn within(times: &[i64], ms: i64, now: i64) -> usize {
    times.iter().filter(|at| now - **at < ms).count()
}

impl<'a, 'v> Judge<'a, 'v> {
    fn new(view: &'v View<'a>) -> Self {
        Self {
            view,
            found: Vec::new(),
            moved: 0,
            states: BTreeMap::new(),
            messages: BTreeMap::new(),
            leases: BTreeMap::new(),
            slots: BTreeMap::new(),
            keys: BTreeMap::new(),
            threads: BTreeMap::new(),
            in_all: BTreeMap::new(),
            people: BTreeMap::new(),
            keyless: Vec::new(),
            told: BTreeMap::new(),
        }
    }

    pub(super) fn break_rule(&mut self, rule: Rule, about: &str, why: impl Into<String>) {
        self.found.push(self.view.of(rule, about, why, &Subject::id(about)));
    }

    /// What emails were before this place.
    fn follow(&mut self, at: u64) {
        let moves = &self.view.history.moves;
        while let Some(step) = moves.get(self.moved).filter(|step| step.at <= at) {
            self.states.entry(&step.email).or_default().insert(step.handoff, &step.to);
            self.moved += 1;
        }
    }

    /// Whether nothing of an email, nor of its later versions, can have left.
    pub(super) fn is_unsent(&self, email: &str) -> bool {
        let unsent = |id: &str| {
            let states = self.states.get(id);
            states.is_some_and(|states| states.values().all(|state| matches!(*state, "failed" | "cancelled")))
        };
        let later = self.view.history.emails.iter().find(|later| later.resend_of == email);
        // A version that was not made yet does not count.
        let later = later.filter(|later| self.states.contains_key(later.id.as_str()));
        unsent(email) && later.is_none_or(|later| self.is_unsent(&later.id))
    }

    fn count_told(&mut self, kind: &'static str, about: &'a str) {
        *self.told.entry((kind, about)).or_default() += 1;
    }

    fn judge(&mut self, step: &'a Step) {
        let now = step.now;
        match &step.did {
            Did::Came { message, thread, seq, message_id } => self.came(message, (thread, *seq), message_id),
            Did::Leased { thread, token, until, fence, offered } => {
                self.leased(thread, (token, *until, *fence), now);
                if let Some(message) = offered {
                    self.offered(message, now);
                }
            }
            Did::Extended { thread, token, until } => self.holds(thread, token).until = *until,
            Did::Released { thread, token } => self.holds(thread, token).token = None,
            Did::Acked(message) => self.acked(message),
            Did::PutOff(message, until) => {
                if let Some(known) = self.messages.get_mut(message.as_str()) {
                    known.not_before = *until;
                }
            }
            Did::Answered(answer) => self.answered(answer, now),
            Did::Again { message, slot, email } => self.again(message, slot, email),
            Did::Refused { guard, wish } => self.refused(guard, wish, now),
            Did::Keyless { email, guard } => self.keyless(email, guard, now),
        }
    }

    fn came(&mut self, message: &'a str, (thread, seq): (&'a str, u64), message_id: &str) {
        let inbound = &self.view.history.inbound;
        let Some(brought) = inbound.brought.iter().find(|brought| brought.message_id == message_id) else { return };
        let Some(desk) = self.view.history.talk.desks.get(&brought.inbox) else { return };
        let soft = brought.kind == "soft" && desk.answers_soft;
        let open = brought.kind == "person" || soft;
        // Each team counts for itself, and has one desk.
        let person = format!("{} {}", brought.inbox, plain(&brought.sender));
        let (kind, desk) = (brought.kind.as_str(), desk.clone());
        let known = Known { thread, seq, kind, person, desk, open, skipped: false, offers: 0, not_before: i64::MIN };
        self.messages.insert(message, known);
    }

    /// The latest lease of a thread, of which only its holder may dispose.
    fn holds(&mut self, thread: &'a str, token: &str) -> &mut Lease<'a> {
        if self.leases.get(thread).and_then(|lease| lease.token) != Some(token) {
            self.break_rule(Rule::TwoHolders, thread, "somebody disposed of a lease that is not the latest");
        }
        self.leases.entry(thread).or_default()
    }

    fn leased(&mut self, thread: &'a str, (token, until, fence): (&'a str, i64, u64), now: i64) {
        self.count_told("thread.leased", thread);
        let before = self.leases.entry(thread).or_default();
        let (held, last) = (before.token.is_some() && now < before.until, before.fence);
        *before = Lease { token: Some(token), until, fence };
        if held {
            self.break_rule(Rule::TwoHolders, thread, format!("leased at {now} while another holds it"));
        }
        if fence <= last {
            self.break_rule(Rule::LeaseFence, thread, format!("fence {last}, then {fence}"));
        }
    }

    fn offered(&mut self, message: &'a str, now: i64) {
        let Some(known) = self.messages.get_mut(message) else { return };
        known.offers += 1;
        let (open, early, often) = (known.open, now < known.not_before, known.offers > OFFERS);
        known.not_before = i64::MIN;
        if !open && !self.is_open_again(message) {
            self.break_rule(Rule::OfferedSettled, message, "it was offered although nothing is left to do");
        }
        if early {
            self.break_rule(Rule::OfferedEarly, message, "it was offered although it had been put off");
        }
        if often {
            self.break_rule(Rule::OfferedTooOften, message, "nobody was asked instead");
        }
    }

    fn acked(&mut self, message: &'a str) {
        let again = self.is_open_again(message);
        let Some(known) = self.messages.get_mut(message) else { return };
        known.skipped |= known.open || again;
        if std::mem::take(&mut known.open) || again {
            self.count_told("message.skipped", message);
        }
    }

    /// Whether it was answered and waits again: whatever answered it surely never left.
    pub(super) fn is_open_again(&self, message: &str) -> bool {
        let replies = || self.slots.iter().filter(|((of, slot), _)| *of == message && slot.starts_with("reply"));
        let skipped = self.messages.get(message).is_none_or(|known| known.skipped);
        let latest = |(_, emails): (_, &Vec<&str>)| emails.last().is_none_or(|email| self.is_unsent(email));
        !skipped && replies().next().is_some() && replies().all(latest)
    }

    /// Why a lease forbids an answer, if it does.
    fn is_leased(&self, wish: &Answer, known: &Known<'_>, now: i64) -> bool {
        let lease = self.leases.get(known.thread);
        match &wish.token {
            Some(token) => lease.and_then(|lease| lease.token) != Some(token),
            None => lease.is_some_and(|lease| lease.token.is_some() && now < lease.until),
        }
    }

    /// Whether a person wrote something since that the answer does not know of.
    fn is_behind(&self, wish: &Answer, known: &Known<'_>) -> bool {
        let newer = |(id, other): (&&str, &Known<'_>)| {
            other.thread == known.thread
                && other.kind == "person"
                && other.seq > known.seq
                && !wish.seen.iter().any(|seen| seen == *id)
        };
        wish.is_reply() && self.messages.iter().any(newer)
    }

    fn is_capped(&self, wish: &Answer, known: &Known<'_>, now: i64) -> bool {
        let desk = &known.desk;
        let thread = self.threads.get(known.thread).map_or(&[][..], Vec::as_slice);
        let person = self.people.get(&known.person).filter(|_| wish.is_reply()).map_or(&[][..], Vec::as_slice);
        within(thread, desk.window_ms, now) >= desk.per_window
            || within(thread, DAY_MS, now) >= desk.per_day
            || desk.per_thread.is_some_and(|most| self.in_all.get(known.thread).is_some_and(|all| *all >= most))
            || within(person, DAY_MS, now) >= desk.per_person
    }

    /// What took a slot and may have left, or may still leave.
    fn taken_by(&self, message: &str, slot: &str) -> Option<&'a str> {
        let before = self.slots.get(&(message, slot))?;
        before.iter().find(|email| !self.is_unsent(email)).copied()
    }

    fn answered(&mut self, answer: &'a Answer, now: i64) {
        let message = answer.message.as_str();
        let Some(known) = self.messages.get(message) else { return };
        let mut broken: Vec<(Rule, String)> = Vec::new();
        let soft = known.kind == "soft" && !known.desk.answers_soft;
        if answer.is_reply() && known.kind == "own" {
            broken.push((Rule::OwnAnswered, answer.email.clone()));
        }
        if answer.is_reply() && (known.kind == "machine" || soft) {
            broken.push((Rule::MachineAnswered, answer.email.clone()));
        }
        if let Some(first) = self.taken_by(message, &answer.slot) {
            broken.push((Rule::AnsweredTwice, format!("{} by {first} and {}", answer.slot, answer.email)));
        }
        if let Some(first) = answer.key.as_deref().and_then(|key| self.keys.get(key)) {
            broken.push((Rule::AnsweredTwice, format!("one key made {first} and {}", answer.email)));
        }
        if self.is_leased(answer, known, now) {
            broken.push((Rule::LeaseIgnored, format!("{} with {:?} at {now}", answer.email, answer.token)));
        }
        if self.is_behind(answer, known) {
            broken.push((Rule::NewerIgnored, answer.email.clone()));
        }
        let capped = self.is_capped(answer, known, now);
        if capped && answer.guard.is_empty() {
            broken.push((Rule::CapExceeded, answer.email.clone()));
        }
        if !capped && answer.guard == "cap" {
            broken.push((Rule::NeedlessGuard, format!("cap holds {}", answer.email)));
        }
        self.note(answer, now);
        broken.into_iter().for_each(|(rule, why)| self.break_rule(rule, message, why));
    }

    fn note(&mut self, answer: &'a Answer, now: i64) {
        let message = answer.message.as_str();
        let Some(known) = self.messages.get_mut(message) else { return };
        let (thread, person) = (known.thread, known.person.clone());
        known.open &= !answer.is_reply();
        // Whoever answers it after all wants it answered.
        known.skipped &= !answer.is_reply();
        let add = |times: &mut Vec<i64>| {
            times.retain(|at| now - *at < DAY_MS);
            times.push(now);
        };
        if answer.guard.is_empty() {
            add(self.threads.entry(thread).or_default());
            *self.in_all.entry(thread).or_default() += 1;
            if answer.is_reply() {
                add(self.people.entry(person).or_default());
            }
        } else if answer.guard == "cap" {
            self.count_told("thread.cap", thread);
        }
        self.slots.entry((message, &answer.slot)).or_default().push(&answer.email);
        if let Some(key) = &answer.key {
            self.keys.insert(key, &answer.email);
        }
        self.count_told(if answer.is_reply() { "message.answered" } else { "message.forwarded" }, message);
    }

    fn again(&mut self, message: &str, slot: &str, email: &str) {
        if self.messages.contains_key(message) && self.taken_by(message, slot).is_none() {
            let why = format!("{slot} counts as taken by {email}, which surely never left");
            self.break_rule(Rule::NeedlessGuard, message, why);
        }
    }

    fn refused(&mut self, guard: &str, wish: &'a Answer, now: i64) {
        self.count_told("reply.refused", &wish.message);
        let Some(known) = self.messages.get(wish.message.as_str()) else { return };
        let deserved = match guard {
            "self" => known.kind == "own",
            "automatic" => matches!(known.kind, "machine" | "soft"),
            "leased" => self.is_leased(wish, known, now),
            "newer_message" => self.is_behind(wish, known),
            _ => false,
        };
        if !deserved {
            let why = format!("{guard} refused {} with {:?} at {now}", wish.slot, wish.token);
            self.break_rule(Rule::NeedlessGuard, &wish.message, why);
        }
    }

    /// Two mails without a key that say the same to the same people are one too many.
    fn keyless(&mut self, email: &'a str, guard: &str, now: i64) {
        let shown = |id: &str| self.view.by_id.get(id).map(|email| (&email.team, &email.to, email.body));
        // A clock that is behind may know of less.
        let sure = self.keyless.iter().all(|(_, at)| *at <= now);
        let people = |id: &str| self.view.by_id.get(id).map(|email| (&email.team, &email.to));
        let like = |(other, at): &&(&str, i64)| {
            now - at < ALIKE_MS && shown(other) == shown(email) && shown(email).is_some() && !self.is_unsent(other)
        };
        let latest = self.keyless.iter().rev().filter(|(other, _)| people(other) == people(email)).take(LATEST);
        let like = latest.into_iter().find(like).map(|(other, _)| *other);
        if let Some(other) = like.filter(|_| sure && guard.is_empty()) {
            self.break_rule(Rule::LookAlike, email, format!("it says the same as {other} and is not held"));
        }
        self.keyless.push((email, now));
    }
}
