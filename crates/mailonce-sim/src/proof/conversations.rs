//! P14: each message is answered once, by the holder of its thread, within the limits, and never by one machine to
//! another; in the end each message was handled.
//!
//! The checker replays the commits with rules of its own. Leases, counters and slots are implemented a second time on
//! purpose.

use crate::proof::conversation_history::{ConversationChange, ConversationCommit, ReplyLimits, ReplyRecord};
use crate::proof::history_index::HistoryIndex;
use crate::proof::invariants::Rule;
use crate::proof::violation::{Violation, ViolationSubject};
use std::collections::BTreeMap;

const DAY_MS: i64 = 86_400_000;
/// Two equal mails without a key within this time are duplicates.
const LOOK_ALIKE_WINDOW_MS: i64 = 600_000;
/// The guard compares at least this many of the latest mails between the same people, resends included.
const LOOK_ALIKE_LATEST: usize = 4;
/// How often a message is offered at most.
const MAX_OFFERS: usize = 5;

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    if view.history.conversations.commits.is_empty() {
        return;
    }
    let mut checker = ConversationChecker::new(view);
    for step in &view.history.conversations.commits {
        checker.replay_transitions(step.at);
        checker.apply_commit(step);
    }
    checker.replay_transitions(u64::MAX);
    checker.check_replies_sent();
    checker.check_conversation_events();
    if view.history.healed {
        checker.check_nothing_left();
    }
    found.append(&mut checker.violations);
}

/// A message as the checker knows it.
pub(super) struct CheckedMessage<'a> {
    thread: &'a str,
    seq: u64,
    /// Its author: `person`, `machine`, `soft` or `own`.
    pub(super) kind: &'a str,
    /// The inbox, and the recipient of a reply without its tag.
    person_key: String,
    limits: ReplyLimits,
    is_open: bool,
    /// Whether an agent said that it needs no reply.
    is_skipped: bool,
    offers: usize,
    not_before: i64,
}

/// The latest lease of a thread.
#[derive(Default)]
struct CheckedLease<'a> {
    token: Option<&'a str>,
    until: i64,
    fence: u64,
}

/// The state of the checker after a number of commits.
pub(super) struct ConversationChecker<'a, 'v> {
    pub(super) view: &'v HistoryIndex<'a>,
    pub(super) violations: Vec<Violation>,
    /// How many transitions were applied, and the resulting states.
    transitions_replayed: usize,
    states: BTreeMap<&'a str, BTreeMap<u16, &'a str>>,
    pub(super) messages: BTreeMap<&'a str, CheckedMessage<'a>>,
    leases: BTreeMap<&'a str, CheckedLease<'a>>,
    pub(super) slots: BTreeMap<(&'a str, &'a str), Vec<&'a str>>,
    keys: BTreeMap<&'a str, &'a str>,
    reply_times_by_thread: BTreeMap<&'a str, Vec<i64>>,
    /// Replies per thread in all.
    replies_by_thread: BTreeMap<&'a str, usize>,
    reply_times_by_person: BTreeMap<String, Vec<i64>>,
    keyless_emails: Vec<(&'a str, i64)>,
    pub(super) expected_events: BTreeMap<(&'static str, &'a str), usize>,
}

fn strip_tag(address: &str) -> String {
    let (local, domain) = address.split_once('@').unwrap_or((address, ""));
    format!("{}@{domain}", local.split('+').next().unwrap_or(local))
}

fn count_within(times: &[i64], ms: i64, now: i64) -> usize {
    times.iter().filter(|at| now - **at < ms).count()
}

impl<'a, 'v> ConversationChecker<'a, 'v> {
    fn new(view: &'v HistoryIndex<'a>) -> Self {
        Self {
            view,
            violations: Vec::new(),
            transitions_replayed: 0,
            states: BTreeMap::new(),
            messages: BTreeMap::new(),
            leases: BTreeMap::new(),
            slots: BTreeMap::new(),
            keys: BTreeMap::new(),
            reply_times_by_thread: BTreeMap::new(),
            replies_by_thread: BTreeMap::new(),
            reply_times_by_person: BTreeMap::new(),
            keyless_emails: Vec::new(),
            expected_events: BTreeMap::new(),
        }
    }

    pub(super) fn add_violation(&mut self, rule: Rule, about: &str, why: impl Into<String>) {
        self.violations.push(self.view.violation(rule, about, why, &ViolationSubject::id(about)));
    }

    /// Applies the transitions before this position.
    fn replay_transitions(&mut self, at: u64) {
        let moves = &self.view.history.moves;
        while let Some(step) = moves.get(self.transitions_replayed).filter(|step| step.at <= at) {
            self.states.entry(&step.email).or_default().insert(step.handoff, &step.to);
            self.transitions_replayed += 1;
        }
    }

    /// Whether no part of an email, nor of its resends, can have been sent.
    pub(super) fn is_unsent(&self, email: &str) -> bool {
        let unsent = |id: &str| {
            let states = self.states.get(id);
            states.is_some_and(|states| states.values().all(|state| matches!(*state, "failed" | "cancelled")))
        };
        let later = self.view.history.emails.iter().find(|later| later.resend_of == email);
        // A resend that was not made yet does not count.
        let later = later.filter(|later| self.states.contains_key(later.id.as_str()));
        unsent(email) && later.is_none_or(|later| self.is_unsent(&later.id))
    }

    fn expect_event(&mut self, kind: &'static str, about: &'a str) {
        *self.expected_events.entry((kind, about)).or_default() += 1;
    }

    fn apply_commit(&mut self, step: &'a ConversationCommit) {
        let now = step.now;
        match &step.change {
            ConversationChange::Filed { message, thread, seq, message_id } => {
                self.apply_filed(message, thread, *seq, message_id)
            }
            ConversationChange::Leased { thread, token, until, fence, offered } => {
                self.apply_lease(thread, CheckedLease { token: Some(token), until: *until, fence: *fence }, now);
                if let Some(message) = offered {
                    self.apply_offer(message, now);
                }
            }
            ConversationChange::Extended { thread, token, until } => self.held_lease(thread, token).until = *until,
            ConversationChange::Released { thread, token } => self.held_lease(thread, token).token = None,
            ConversationChange::Acked(message) => self.apply_ack(message),
            ConversationChange::Postponed(message, until) => {
                if let Some(known) = self.messages.get_mut(message.as_str()) {
                    known.not_before = *until;
                }
            }
            ConversationChange::Answered(answer) => self.apply_reply(answer, now),
            ConversationChange::Again { message, slot, email } => self.apply_repeat(message, slot, email),
            ConversationChange::Refused { guard, reply } => self.apply_refusal(guard, reply, now),
            ConversationChange::Keyless { email, guard } => self.apply_keyless(email, guard, now),
        }
    }

    fn apply_filed(&mut self, message: &'a str, thread: &'a str, seq: u64, message_id: &str) {
        let inbound = &self.view.history.inbound;
        let Some(delivery_try) =
            inbound.delivery_tries.iter().find(|delivery_try| delivery_try.message_id == message_id)
        else {
            return;
        };
        let Some(limits) = self.view.history.conversations.limits_by_inbox.get(&delivery_try.inbox) else { return };
        let soft = delivery_try.kind == "soft" && limits.answers_soft;
        let open = delivery_try.kind == "person" || soft;
        // Each team counts for itself, and has one inbox with agents.
        let person = format!("{} {}", delivery_try.inbox, strip_tag(&delivery_try.sender));
        let (kind, limits) = (delivery_try.kind.as_str(), limits.clone());
        let known = CheckedMessage {
            thread,
            seq,
            kind,
            person_key: person,
            limits,
            is_open: open,
            is_skipped: false,
            offers: 0,
            not_before: i64::MIN,
        };
        self.messages.insert(message, known);
    }

    /// Changes the latest lease of a thread, which only its holder may do.
    fn held_lease(&mut self, thread: &'a str, token: &str) -> &mut CheckedLease<'a> {
        if self.leases.get(thread).and_then(|lease| lease.token) != Some(token) {
            self.add_violation(Rule::TwoHolders, thread, "somebody disposed of a lease that is not the latest");
        }
        self.leases.entry(thread).or_default()
    }

    fn apply_lease(&mut self, thread: &'a str, lease: CheckedLease<'a>, now: i64) {
        self.expect_event("thread.leased", thread);
        let before = self.leases.entry(thread).or_default();
        let (held, last) = (before.token.is_some() && now < before.until, before.fence);
        let fence = lease.fence;
        *before = lease;
        if held {
            self.add_violation(Rule::TwoHolders, thread, format!("leased at {now} while another holds it"));
        }
        if fence <= last {
            self.add_violation(Rule::LeaseFence, thread, format!("fence {last}, then {fence}"));
        }
    }

    fn apply_offer(&mut self, message: &'a str, now: i64) {
        let Some(known) = self.messages.get_mut(message) else { return };
        known.offers += 1;
        let (open, early, often) = (known.is_open, now < known.not_before, known.offers > MAX_OFFERS);
        known.not_before = i64::MIN;
        if !open && !self.is_open_again(message) {
            self.add_violation(Rule::OfferedSettled, message, "it was offered although nothing is left to do");
        }
        if early {
            self.add_violation(Rule::OfferedEarly, message, "it was offered although it had been put off");
        }
        if often {
            self.add_violation(Rule::OfferedTooOften, message, "nobody was asked instead");
        }
    }

    fn apply_ack(&mut self, message: &'a str) {
        let again = self.is_open_again(message);
        let Some(known) = self.messages.get_mut(message) else { return };
        known.is_skipped |= known.is_open || again;
        if std::mem::take(&mut known.is_open) || again {
            self.expect_event("message.skipped", message);
        }
    }

    /// Whether it was answered and is open again: the reply certainly was never sent.
    pub(super) fn is_open_again(&self, message: &str) -> bool {
        let replies = || self.slots.iter().filter(|((of, slot), _)| *of == message && slot.starts_with("reply"));
        let skipped = self.messages.get(message).is_none_or(|known| known.is_skipped);
        let latest = |(_, emails): (_, &Vec<&str>)| emails.last().is_none_or(|email| self.is_unsent(email));
        !skipped && replies().next().is_some() && replies().all(latest)
    }

    /// Whether a lease forbids a reply.
    fn is_blocked_by_lease(&self, reply: &ReplyRecord, known: &CheckedMessage<'_>, now: i64) -> bool {
        let lease = self.leases.get(known.thread);
        match &reply.token {
            Some(token) => lease.and_then(|lease| lease.token) != Some(token),
            None => lease.is_some_and(|lease| lease.token.is_some() && now < lease.until),
        }
    }

    /// Whether a person sent a newer message that the reply does not know.
    fn misses_newer_message(&self, reply: &ReplyRecord, known: &CheckedMessage<'_>) -> bool {
        let newer = |(id, other): (&&str, &CheckedMessage<'_>)| {
            other.thread == known.thread
                && other.kind == "person"
                && other.seq > known.seq
                && !reply.seen.iter().any(|seen| seen == *id)
        };
        reply.is_reply() && self.messages.iter().any(newer)
    }

    fn is_capped(&self, reply: &ReplyRecord, known: &CheckedMessage<'_>, now: i64) -> bool {
        let limits = &known.limits;
        let thread = self.reply_times_by_thread.get(known.thread).map_or(&[][..], Vec::as_slice);
        let person = self
            .reply_times_by_person
            .get(&known.person_key)
            .filter(|_| reply.is_reply())
            .map_or(&[][..], Vec::as_slice);
        count_within(thread, limits.window_ms, now) >= limits.per_window
            || count_within(thread, DAY_MS, now) >= limits.per_day
            || limits
                .per_thread
                .is_some_and(|most| self.replies_by_thread.get(known.thread).is_some_and(|all| *all >= most))
            || count_within(person, DAY_MS, now) >= limits.per_person
    }

    /// The replies of a slot that were sent or may still be sent.
    fn slot_holder(&self, message: &str, slot: &str) -> Option<&'a str> {
        let before = self.slots.get(&(message, slot))?;
        before.iter().find(|email| !self.is_unsent(email)).copied()
    }

    fn apply_reply(&mut self, answer: &'a ReplyRecord, now: i64) {
        let message = answer.message.as_str();
        let Some(known) = self.messages.get(message) else { return };
        let mut broken: Vec<(Rule, String)> = Vec::new();
        let soft = known.kind == "soft" && !known.limits.answers_soft;
        if answer.is_reply() && known.kind == "own" {
            broken.push((Rule::OwnAnswered, answer.email.clone()));
        }
        if answer.is_reply() && (known.kind == "machine" || soft) {
            broken.push((Rule::MachineAnswered, answer.email.clone()));
        }
        if let Some(first) = self.slot_holder(message, &answer.slot) {
            broken.push((Rule::AnsweredTwice, format!("{} by {first} and {}", answer.slot, answer.email)));
        }
        if let Some(first) = answer.key.as_deref().and_then(|key| self.keys.get(key)) {
            broken.push((Rule::AnsweredTwice, format!("one key made {first} and {}", answer.email)));
        }
        if self.is_blocked_by_lease(answer, known, now) {
            broken.push((Rule::LeaseIgnored, format!("{} with {:?} at {now}", answer.email, answer.token)));
        }
        if self.misses_newer_message(answer, known) {
            broken.push((Rule::NewerIgnored, answer.email.clone()));
        }
        let capped = self.is_capped(answer, known, now);
        if capped && answer.guard.is_empty() {
            broken.push((Rule::CapExceeded, answer.email.clone()));
        }
        if !capped && answer.guard == "cap" {
            broken.push((Rule::NeedlessGuard, format!("cap holds {}", answer.email)));
        }
        self.count_reply(answer, now);
        broken.into_iter().for_each(|(rule, why)| self.add_violation(rule, message, why));
    }

    fn count_reply(&mut self, answer: &'a ReplyRecord, now: i64) {
        let message = answer.message.as_str();
        let Some(known) = self.messages.get_mut(message) else { return };
        let (thread, person) = (known.thread, known.person_key.clone());
        known.is_open &= !answer.is_reply();
        // A reply after a skip means that the message needs one.
        known.is_skipped &= !answer.is_reply();
        let add = |times: &mut Vec<i64>| {
            times.retain(|at| now - *at < DAY_MS);
            times.push(now);
        };
        if answer.guard.is_empty() {
            add(self.reply_times_by_thread.entry(thread).or_default());
            *self.replies_by_thread.entry(thread).or_default() += 1;
            if answer.is_reply() {
                add(self.reply_times_by_person.entry(person).or_default());
            }
        } else if answer.guard == "cap" {
            self.expect_event("thread.cap_reached", thread);
        }
        self.slots.entry((message, &answer.slot)).or_default().push(&answer.email);
        if let Some(key) = &answer.key {
            self.keys.insert(key, &answer.email);
        }
        self.expect_event(if answer.is_reply() { "message.answered" } else { "message.forwarded" }, message);
    }

    fn apply_repeat(&mut self, message: &str, slot: &str, email: &str) {
        if self.messages.contains_key(message) && self.slot_holder(message, slot).is_none() {
            let why = format!("{slot} counts as taken by {email}, which surely never left");
            self.add_violation(Rule::NeedlessGuard, message, why);
        }
    }

    fn apply_refusal(&mut self, guard: &str, reply: &'a ReplyRecord, now: i64) {
        self.expect_event("reply.refused", &reply.message);
        let Some(known) = self.messages.get(reply.message.as_str()) else { return };
        let deserved = match guard {
            "self" => known.kind == "own",
            "automatic" => matches!(known.kind, "machine" | "soft"),
            "leased" => self.is_blocked_by_lease(reply, known, now),
            "newer_message" => self.misses_newer_message(reply, known),
            _ => false,
        };
        if !deserved {
            let why = format!("{guard} refused {} with {:?} at {now}", reply.slot, reply.token);
            self.add_violation(Rule::NeedlessGuard, &reply.message, why);
        }
    }

    /// Two equal mails without a key to the same people are duplicates.
    fn apply_keyless(&mut self, email: &'a str, guard: &str, now: i64) {
        let shown = |id: &str| self.view.emails_by_id.get(id).map(|email| (&email.team, &email.to, email.body));
        // A clock that is behind may know fewer mails.
        let sure = self.keyless_emails.iter().all(|(_, at)| *at <= now);
        let people = |id: &str| self.view.emails_by_id.get(id).map(|email| (&email.team, &email.to));
        let like = |(other, at): &&(&str, i64)| {
            now - at < LOOK_ALIKE_WINDOW_MS
                && shown(other) == shown(email)
                && shown(email).is_some()
                && !self.is_unsent(other)
        };
        let latest = self
            .keyless_emails
            .iter()
            .rev()
            .filter(|(other, _)| people(other) == people(email))
            .take(LOOK_ALIKE_LATEST);
        let like = latest.into_iter().find(like).map(|(other, _)| *other);
        if let Some(other) = like.filter(|_| sure && guard.is_empty()) {
            self.add_violation(Rule::LookAlike, email, format!("it says the same as {other} and is not held"));
        }
        self.keyless_emails.push((email, now));
    }
}
