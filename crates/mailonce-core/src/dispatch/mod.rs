//! What may happen to an email on its way out, and what becomes of it.
//!
//! A worker, a look-up, a provider's event or a person says what happened as an [`Act`]; [`Email::act`] decides what
//! that means. Engines load an email, act, and save what it became together with the [`Effects`], so that every
//! engine decides alike and each act is one transaction.
//!
//! Fences refuse commands, never facts: a stale worker may not start anything, but its late answer is always
//! written down, and proof moves any state to `sent`.

use serde_json::json;
use std::sync::Arc;

use crate::{
    email::{Email, EmailState, Refusal},
    event::{Kind, NewEvent},
    handoff::{Attempt, AttemptAbout, Evidence, Handoff, Says, Source, State, Step},
    id::NodeId,
    port::{
        store::Envelope,
        transport::{Meaning, Reply},
    },
    retry,
    time::Time,
    words::words,
};

/// Leases in a row that may end with their worker before the handoff is put aside: something in it kills workers.
pub const LAPSES: u32 = 5;
/// The longest pause a next hop may ask for, in milliseconds.
const LONGEST_ASKED_MS: i64 = 3_600_000;
/// How soon after it became unknown a handoff is looked at, in milliseconds.
pub const LOOK_AFTER_MS: i64 = 1_000;

/// How long a handoff is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Attempts at the most.
    pub max_attempts: u32,
    /// Milliseconds after the first attempt.
    pub max_age_ms: i64,
    /// Uniform over all of `u64`: the jitter of the next pause.
    pub chance: u64,
}

/// Which worker speaks, about which handoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The handoff's number.
    pub number: u16,
    /// The fence of the worker's lease.
    pub fence: u64,
    /// The way out.
    pub transport: String,
    /// The provider account.
    pub account: String,
}

words! {
    /// What a person decides about an unknown outcome.
    Choice {
        /// It arrived.
        Sent = "sent",
        /// Send the same bytes again.
        Resend = "resend",
        /// Give it up.
        Abandon = "abandon",
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Act {
    /// A worker stands at the point of no return.
    Mark {
        /// Who.
        hold: Hold,
        /// The frozen bytes, when this is the first marker for the transport.
        wire: Option<Arc<[u8]>>,
    },
    /// A worker gives a lease back without having tried.
    Park {
        /// Who.
        hold: Hold,
        /// When it may be taken again.
        due: Time,
        /// Why.
        why: String,
    },
    /// An attempt was answered, or got stuck before the marker.
    Settle {
        /// Who.
        hold: Hold,
        /// The attempt's number; `None` when it never came to its marker.
        attempt: Option<u32>,
        /// When it was marked, or began.
        began: Time,
        /// The answer.
        reply: Reply,
        /// How long to go on.
        plan: Plan,
    },
    /// The process that held it ended.
    Crash {
        /// The handoff's number.
        number: u16,
        /// Its holder.
        holder: NodeId,
    },
    /// Repeat an attempt in doubt: same bytes, same key, same account. The worker holds it at once.
    Repeat {
        /// The handoff's number.
        number: u16,
        /// Who.
        holder: NodeId,
        /// The account it must go to.
        account: String,
    },
    /// Nothing new about an unknown handoff; look again later.
    Wait {
        /// The handoff's number.
        number: u16,
        /// What was learnt, if anything was.
        evidence: Option<Evidence>,
        /// When to look again.
        next: Option<Time>,
    },
    /// The email's own policy sends it again.
    ResendByPolicy {
        /// The handoff's number.
        number: u16,
    },
    /// A fact from outside.
    Fact(Evidence),
    /// A person decides.
    Resolve {
        /// What.
        choice: Choice,
        /// The rev that was seen.
        rev: u32,
        /// Which handoff; every unknown one when none is named.
        handoff: Option<u16>,
        /// Why.
        reason: String,
    },
    /// Another way out for one handoff of which nothing is under way or in doubt.
    Reroute {
        /// The handoff's number.
        number: u16,
        /// The way out it was to take.
        from: String,
        /// The way out it takes now.
        to: String,
    },
    /// Another way out for the whole email, which divides it into other envelopes. Only while nothing of it left, is
    /// under way or in doubt.
    Redirect {
        /// The way out it was to take.
        from: String,
        /// Its envelopes from now on.
        envelopes: Vec<Envelope>,
    },
}

impl Act {
    /// The name under which it counts only once.
    pub fn once(&self) -> Option<&str> {
        match self {
            Self::Fact(evidence) => evidence.once.as_deref(),
            _ => None,
        }
    }
}

/// What came of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done.
    Done,
    /// The worker no longer holds the handoff. Facts were written down all the same.
    Stale,
    /// It changes nothing.
    Unchanged,
    /// It may not be.
    Refused(Refusal),
}

/// What is to be written besides the email itself.
#[derive(Clone, Debug)]
pub struct Effects {
    /// What came of it.
    pub verdict: Verdict,
    /// Whether the email changed.
    pub changed: bool,
    /// Events, in order.
    pub events: Vec<NewEvent>,
    /// Attempts as they are now.
    pub attempts: Vec<Attempt>,
    /// New facts.
    pub evidence: Vec<Evidence>,
    /// New handoffs. They are among the email's own already.
    pub appended: Vec<Handoff>,
}

impl Effects {
    fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            changed: false,
            events: Vec::new(),
            attempts: Vec::new(),
            evidence: Vec::new(),
            appended: Vec::new(),
        }
    }

    fn done() -> Self {
        Self { changed: true, ..Self::of(Verdict::Done) }
    }

    fn attempt(mut self, attempt: Attempt) -> Self {
        self.attempts.push(attempt);
        self
    }

    fn note(mut self, evidence: Evidence) -> Self {
        self.evidence.push(evidence);
        self
    }
}

impl Email {
    /// Gives a due handoff to a worker. The fence grows.
    pub fn lease(&mut self, number: u16, holder: NodeId, now: Time) -> bool {
        let Some(handoff) = self.handoffs.get_mut(usize::from(number)) else { return false };
        if handoff.state == State::Scheduled && handoff.step(Step::Due, now).is_err() {
            return false;
        }
        if handoff.step(Step::Lease, now).is_err() {
            return false;
        }
        handoff.fence += 1;
        handoff.holder = Some(holder);
        self.rev += 1;
        true
    }

    /// Decides what an act means.
    pub fn act(&mut self, act: &Act, now: Time) -> Effects {
        match act {
            Act::Mark { hold, .. } => self.mark(hold, now),
            Act::Park { hold, due, why } => self.park(hold, *due, why, now),
            Act::Settle { hold, attempt, began, reply, plan } => {
                self.settle(hold, (*attempt, *began), reply, *plan, now)
            }
            Act::Crash { number, holder } => self.crash(*number, *holder, now),
            Act::Repeat { number, holder, account } => self.repeat(*number, *holder, account, now),
            Act::Wait { number, evidence, next } => self.wait(*number, evidence.as_ref(), *next),
            Act::ResendByPolicy { number } => self.resend_by_policy(*number, now),
            Act::Fact(evidence) => self.fact(evidence, now),
            Act::Resolve { choice, rev, handoff, reason } => self.resolve(*choice, *rev, *handoff, reason, now),
            Act::Reroute { number, from, to } => self.reroute(*number, from, to),
            Act::Redirect { from, envelopes } => self.redirect(from, envelopes, now),
        }
    }

    fn handoff(&mut self, number: u16) -> Option<&mut Handoff> {
        self.handoffs.get_mut(usize::from(number))
    }

    /// The handoff, if this worker holds it.
    fn held(&mut self, hold: &Hold) -> Option<&mut Handoff> {
        let open = |h: &&mut Handoff| h.fence == hold.fence && matches!(h.state, State::Leased | State::Sending);
        self.handoff(hold.number).filter(open)
    }

    /// Writes the marker. From here on only an answer tells what became of the attempt.
    fn mark(&mut self, hold: &Hold, now: Time) -> Effects {
        let Some(handoff) = self.held(hold).filter(|h| h.state == State::Leased) else {
            return Effects::of(Verdict::Stale);
        };
        if !handoff.may_go_to(&hold.account) {
            handoff.lose_from_any(now);
            self.rev += 1;
            return Effects { changed: true, ..Effects::of(Verdict::Stale) };
        }
        if handoff.step(Step::Mark, now).is_err() {
            return Effects::of(Verdict::Stale);
        }
        let attempt = handoff.begin(hold, now);
        handoff.work.marked_at = Some(now);
        handoff.work.lapses = 0;
        self.rev += 1;
        Effects::done().attempt(attempt)
    }

    fn park(&mut self, hold: &Hold, due: Time, why: &str, now: Time) -> Effects {
        let Some(handoff) = self.held(hold).filter(|h| h.state == State::Leased) else {
            return Effects::of(Verdict::Stale);
        };
        if handoff.is_repeat() {
            handoff.lose_from_any(now);
        } else if handoff.step(Step::Lapse, now).is_ok() {
            handoff.due_at = Some(due.max(now));
        }
        handoff.work.reason = Some(why.to_owned());
        self.rev += 1;
        Effects::done()
    }

    fn settle(
        &mut self,
        hold: &Hold,
        (number, began): (Option<u32>, Time),
        reply: &Reply,
        plan: Plan,
        now: Time,
    ) -> Effects {
        let Some(handoff) = self.held(hold) else { return self.late(hold, number, began, reply, now) };
        let mut attempt = match number {
            Some(number) => handoff.attempt(number, hold, began),
            // The marker was written after all, although its worker could not learn of it and let nothing go.
            None if handoff.state == State::Sending => handoff.attempt(handoff.attempts, hold, began),
            None => handoff.begin(hold, began),
        };
        attempt.end(reply, now);
        handoff.work.lapses = 0;
        handoff.work.marked_at = None;
        handoff.work.reason = Some(reply.text.clone()).filter(|_| reply.meaning != Meaning::Accepted);
        let kind = handoff.settled(&attempt, reply, plan, now);
        let mut effects = Effects::done().attempt(attempt);
        effects.events.push(self.told(kind, hold.number, reply, now));
        effects
    }

    /// The answer of a worker that no longer holds the handoff: a fact like any other.
    fn late(&mut self, hold: &Hold, number: Option<u32>, began: Time, reply: &Reply, now: Time) -> Effects {
        let (Some(number), Some(handoff)) = (number, self.handoff(hold.number)) else {
            return Effects::of(Verdict::Stale);
        };
        let mut attempt = handoff.attempt(number, hold, began);
        attempt.end(reply, now);
        let says = match reply.meaning {
            Meaning::Accepted | Meaning::Repeated => Says::Accepted,
            Meaning::Deferred | Meaning::Refused | Meaning::Fault => Says::NotAccepted,
            Meaning::Concurrent | Meaning::Mismatch | Meaning::Unknown => Says::Lost,
        };
        let evidence = Evidence {
            handoff: hold.number,
            attempt: Some(number),
            at: now,
            source: Source::LateReply,
            says,
            detail: reply.text.clone(),
            once: None,
        };
        let mut effects = self.fact(&evidence, now).attempt(attempt);
        effects.verdict = Verdict::Stale;
        effects
    }

    /// What becomes of a handoff whose worker ended.
    fn crash(&mut self, number: u16, holder: NodeId, now: Time) -> Effects {
        let Some(handoff) = self.handoff(number).filter(|h| h.holder == Some(holder)) else {
            return Effects::of(Verdict::Unchanged);
        };
        let mut evidence = Evidence {
            handoff: number,
            attempt: None,
            at: now,
            source: Source::Crash,
            says: Says::NotAccepted,
            detail: "the worker ended before the marker; nothing had left".into(),
            once: None,
        };
        let kind = if handoff.state == State::Sending {
            evidence.attempt = Some(handoff.attempts);
            evidence.says = Says::Lost;
            evidence.detail = "the worker ended after the marker; nobody saw the answer".into();
            handoff.doubt(handoff.attempts, handoff.work.marked_at.unwrap_or(now));
            handoff.lose(now);
            Some(Kind::EmailUnknown)
        } else {
            handoff.lapse(now)
        };
        self.rev += 1;
        let mut effects = Effects::done().note(evidence);
        if let Some(kind) = kind {
            effects.events.push(self.changed(kind, now));
        }
        effects
    }

    fn repeat(&mut self, number: u16, holder: NodeId, account: &str, now: Time) -> Effects {
        let fits = |h: &&mut Handoff| {
            h.state == State::Unknown && !h.work.puzzling && h.work.account.as_deref() == Some(account)
        };
        let Some(handoff) = self.handoff(number).filter(fits) else { return Effects::of(Verdict::Stale) };
        if handoff.step(Step::Retry, now).and_then(|()| handoff.step(Step::Lease, now)).is_err() {
            return Effects::of(Verdict::Stale);
        }
        handoff.fence += 1;
        handoff.holder = Some(holder);
        handoff.work.asked += 1;
        let detail = "repeated with the same key at the same account while its window is open";
        let evidence = fact(number, Source::Window, Says::Again, detail, now);
        self.rev += 1;
        Effects::done().note(evidence)
    }

    fn wait(&mut self, number: u16, evidence: Option<&Evidence>, next: Option<Time>) -> Effects {
        let Some(handoff) = self.handoff(number).filter(|h| h.state == State::Unknown) else {
            return Effects::of(Verdict::Stale);
        };
        handoff.due_at = next;
        let mut effects = Effects::done();
        if let Some(evidence) = evidence {
            handoff.work.asked += 1;
            effects.evidence.push(evidence.clone());
        }
        effects
    }

    fn resend_by_policy(&mut self, number: u16, now: Time) -> Effects {
        let fits = |h: &&mut Handoff| h.state == State::Unknown && !h.work.resent && !h.work.puzzling;
        let Some(handoff) = self.handoff(number).filter(fits) else { return Effects::of(Verdict::Stale) };
        handoff.send_again(now);
        handoff.work.resent = true;
        let evidence = fact(number, Source::Policy, Says::Again, "no evidence came; the email asks to be resent", now);
        let mut effects = Effects::done().note(evidence);
        effects.events.push(self.resolved(number, "resend", Source::Policy, now));
        effects
    }

    /// A fact from outside: never refused, harmless in any order and any number.
    fn fact(&mut self, evidence: &Evidence, now: Time) -> Effects {
        let Some(handoff) = self.handoff(evidence.handoff) else { return Effects::of(Verdict::Unchanged) };
        let (before, old) = (handoff.state, handoff.clone());
        let kind = handoff.learn(evidence, now);
        let resolved = before == State::Unknown && handoff.state != before;
        let mut effects = Effects::of(Verdict::Done).note(evidence.clone());
        effects.changed = *handoff != old;
        if let Some(kind) = kind {
            let corrected = before != State::Sending && kind == Kind::EmailSent;
            let mut event = self.changed(kind, now);
            event.data["handoff"] = evidence.handoff.into();
            event.data["source"] = evidence.source.word().into();
            if corrected {
                event.data["corrected"] = true.into();
            }
            effects.events.push(event);
        } else if effects.changed && !resolved {
            self.rev += 1;
        }
        if resolved {
            effects.events.push(self.resolved(evidence.handoff, evidence.says.word(), evidence.source, now));
        }
        effects
    }

    fn resolve(&mut self, choice: Choice, rev: u32, which: Option<u16>, reason: &str, now: Time) -> Effects {
        if self.rev != rev {
            return Effects::of(Verdict::Refused(Refusal::StaleRev));
        }
        let unknown = |h: &&Handoff| h.state == State::Unknown && which.is_none_or(|number| number == h.number);
        let numbers: Vec<u16> = self.handoffs.iter().filter(unknown).map(|h| h.number).collect();
        if numbers.is_empty() {
            return Effects::of(Verdict::Refused(Refusal::NotUnknown));
        }
        let mut effects = Effects::done();
        for number in numbers {
            let says = match choice {
                Choice::Sent => Says::Accepted,
                Choice::Resend => Says::Again,
                Choice::Abandon => Says::Abandoned,
            };
            effects.evidence.push(fact(number, Source::Person, says, reason, now));
            if let Some(handoff) = self.handoff(number) {
                handoff.obey(choice, now);
            }
            effects.events.push(self.resolved(number, choice.word(), Source::Person, now));
        }
        effects
    }

    fn reroute(&mut self, number: u16, from: &str, to: &str) -> Effects {
        let fits = |h: &&mut Handoff| {
            matches!(h.state, State::Queued | State::Scheduled) && !h.is_in_doubt() && h.transport == from
        };
        let Some(handoff) = self.handoff(number).filter(fits) else { return Effects::of(Verdict::Stale) };
        to.clone_into(&mut handoff.transport);
        self.rev += 1;
        Effects::done()
    }

    /// Takes the email's envelopes back and makes others. The old ones stay, cancelled, with their attempts.
    fn redirect(&mut self, from: &str, envelopes: &[Envelope], now: Time) -> Effects {
        let unsent = |h: &Handoff| {
            let waits = matches!(h.state, State::Queued | State::Scheduled) && h.transport == from;
            !h.is_in_doubt() && (waits || h.state.is_surely_unsent())
        };
        let waiting: Vec<&Handoff> = self.handoffs.iter().filter(|h| !h.state.is_terminal()).collect();
        if waiting.is_empty() || !self.handoffs.iter().all(unsent) {
            return Effects::of(Verdict::Stale);
        }
        let due = waiting.iter().filter_map(|h| h.due_at).min().unwrap_or(now);
        for handoff in self.handoffs.iter_mut().filter(|h| !h.state.is_terminal()) {
            handoff.step(Step::Cancel, now).ok();
        }
        let mut effects = Effects::done();
        for envelope in envelopes {
            let handoff = Handoff::new(self.handoffs.len() as u16, envelope.clone(), State::Queued, Some(due));
            effects.appended.push(handoff.clone());
            self.handoffs.push(handoff);
        }
        self.rev += 1;
        effects
    }

    /// The event that tells how a handoff was settled.
    fn told(&mut self, kind: Option<Kind>, number: u16, reply: &Reply, now: Time) -> NewEvent {
        let mut event = self.changed(kind.unwrap_or(Kind::EmailDeferred), now);
        event.data["handoff"] = number.into();
        event.data["reply"] = json!({ "code": reply.code, "phase": reply.phase.word(), "text": reply.text });
        event
    }

    fn resolved(&mut self, number: u16, outcome: &str, source: Source, now: Time) -> NewEvent {
        let mut event = self.changed(Kind::EmailResolved, now);
        event.data["handoff"] = number.into();
        event.data["outcome"] = outcome.into();
        event.data["source"] = source.word().into();
        event
    }

    /// Whether it may still be taken back: nothing left, and nothing in doubt.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.handoffs.iter().any(Handoff::is_in_doubt) || self.state() == EmailState::Unknown
    }
}

/// A fact without a name of its own.
fn fact(handoff: u16, source: Source, says: Says, detail: &str, at: Time) -> Evidence {
    Evidence { handoff, attempt: None, at, source, says, detail: detail.to_owned(), once: None }
}

impl Handoff {
    /// A new attempt.
    fn begin(&mut self, hold: &Hold, at: Time) -> Attempt {
        if !self.is_in_doubt() {
            self.work.account = Some(hold.account.clone());
        } else if self.work.account.as_ref() != Some(&hold.account) {
            // Attempts in doubt at two accounts can be repeated at neither.
            self.work.account = None;
        }
        self.attempts += 1;
        self.work.first_try.get_or_insert(at);
        self.attempt(self.attempts, hold, at)
    }

    /// An attempt as far as it is known.
    fn attempt(&self, number: u32, hold: &Hold, at: Time) -> Attempt {
        Attempt {
            handoff: self.number,
            number,
            at,
            ended_at: None,
            outcome: None,
            reply: String::new(),
            about: AttemptAbout {
                transport: hold.transport.clone(),
                account: hold.account.clone(),
                fence: hold.fence,
                may_duplicate: self.work.may_duplicate,
                ..AttemptAbout::default()
            },
        }
    }

    /// Moves on after an answer. The kind of event it makes; `None` when it goes back to the queue.
    fn settled(&mut self, attempt: &Attempt, reply: &Reply, plan: Plan, now: Time) -> Option<Kind> {
        match reply.meaning {
            Meaning::Accepted | Meaning::Repeated if self.state == State::Sending => {
                self.proven(Step::Accept, now);
                Some(Kind::EmailSent)
            }
            Meaning::Accepted | Meaning::Repeated | Meaning::Unknown | Meaning::Mismatch => {
                self.work.puzzling |= reply.meaning == Meaning::Mismatch;
                self.doubt(attempt.number, attempt.at);
                self.lose_from_any(now);
                Some(Kind::EmailUnknown)
            }
            // A refusal settles only its own attempt: an earlier one may still have succeeded.
            _ if self.is_repeat() || reply.meaning == Meaning::Concurrent => {
                // Whatever the next hop is busy with need not be what we doubt already.
                if reply.meaning == Meaning::Concurrent {
                    self.doubt(attempt.number, attempt.at);
                }
                self.lose_from_any(now);
                self.due_at = Some(now.plus(self.pause(reply, plan)));
                Some(Kind::EmailUnknown)
            }
            Meaning::Refused => Some(self.give_up(now)),
            Meaning::Deferred | Meaning::Fault | Meaning::Concurrent => self.put_off(reply, plan, now),
        }
    }

    fn put_off(&mut self, reply: &Reply, plan: Plan, now: Time) -> Option<Kind> {
        if reply.meaning == Meaning::Fault {
            self.work.faults += 1;
        }
        let tried = self.attempts.saturating_sub(self.work.faults);
        let age = self.work.first_try.map_or(0, |at| now.since(at));
        if tried >= plan.max_attempts || age >= plan.max_age_ms {
            let why = format!("given up after {} attempts in {} s: {}", self.attempts, age / 1000, reply.text);
            self.work.reason = Some(why);
            return Some(self.give_up(now));
        }
        if self.step(Step::Defer, now).is_ok() {
            self.due_at = Some(now.plus(self.pause(reply, plan)));
        }
        None
    }

    /// How long to wait before the next attempt.
    fn pause(&self, reply: &Reply, plan: Plan) -> i64 {
        let own = retry::backoff(self.attempts + 1, plan.chance);
        own.max(reply.retry_after_ms.unwrap_or(0).clamp(0, LONGEST_ASKED_MS))
    }

    /// Ends the tries: failed, or unknown when an earlier attempt may have succeeded.
    fn give_up(&mut self, now: Time) -> Kind {
        if self.is_in_doubt() {
            self.lose_from_any(now);
            return Kind::EmailUnknown;
        }
        self.step(Step::Refuse, now).ok();
        Kind::EmailFailed
    }

    /// Whether a worker holds it only to repeat an attempt in doubt.
    pub fn is_repeat(&self) -> bool {
        self.is_in_doubt() && !self.work.again
    }

    /// Whether an attempt may go to this account: a repeat only to where the attempts in doubt went.
    fn may_go_to(&self, account: &str) -> bool {
        !self.is_repeat() || self.work.account.as_deref() == Some(account)
    }

    /// Notes that an attempt may have succeeded.
    fn doubt(&mut self, attempt: u32, since: Time) {
        if !self.work.doubts.contains(&attempt) {
            self.work.doubts.push(attempt);
        }
        self.work.doubt_since.get_or_insert(since);
    }

    fn lose(&mut self, now: Time) {
        if self.step(Step::Lose, now).is_ok() {
            let pause = (LOOK_AFTER_MS << self.work.asked.min(10)).min(retry::LONGEST_PAUSE_MS);
            self.due_at = Some(now.plus(pause));
            self.work.again = false;
        }
    }

    /// Back to unknown, also from before the marker of a repeat: the steps between are taken in one commit.
    fn lose_from_any(&mut self, now: Time) {
        if self.state == State::Leased {
            self.step(Step::Mark, now).ok();
        }
        self.lose(now);
    }

    /// A lease that ended with its worker, before the marker.
    fn lapse(&mut self, now: Time) -> Option<Kind> {
        if self.is_repeat() {
            self.lose_from_any(now);
            return None;
        }
        self.work.lapses += 1;
        if self.work.lapses >= LAPSES {
            self.work.reason = Some(format!("put aside: {LAPSES} workers ended while they held it"));
            return Some(self.give_up(now));
        }
        self.step(Step::Lapse, now).ok();
        None
    }

    /// The next hop has it: nothing is in doubt any more.
    fn proven(&mut self, step: Step, now: Time) {
        if self.step(step, now).is_ok() {
            self.work.doubts.clear();
            (self.work.doubt_since, self.work.reason) = (None, None);
            (self.work.puzzling, self.work.again) = (false, false);
        }
    }

    /// Out of doubt and back to the queue, knowing that the recipient may get it twice.
    fn send_again(&mut self, now: Time) {
        if self.step(Step::Retry, now).is_ok() {
            (self.work.may_duplicate, self.work.again) = (true, true);
        }
    }

    fn obey(&mut self, choice: Choice, now: Time) {
        match choice {
            Choice::Sent => self.proven(Step::Evidence, now),
            Choice::Resend => self.send_again(now),
            Choice::Abandon => {
                self.step(Step::Abandon, now).ok();
            }
        }
    }

    /// What a fact changes. The kind of event it makes, if any.
    fn learn(&mut self, evidence: &Evidence, now: Time) -> Option<Kind> {
        let gone = matches!(self.state, State::Sent | State::Delivered | State::Bounced | State::Complained);
        let step = match evidence.says {
            Says::Accepted => None,
            Says::Delivered => Some((Step::Deliver, Kind::EmailDelivered)),
            Says::Bounced => Some((Step::Bounce, Kind::EmailBounced)),
            Says::Complained => Some((Step::Complain, Kind::EmailComplained)),
            Says::NotAccepted => {
                self.disprove(evidence.attempt, now);
                return None;
            }
            Says::NotFound | Says::Silent | Says::Delayed | Says::Again | Says::Abandoned | Says::Lost => return None,
        };
        // Whatever came back or arrived was taken by the next hop.
        self.proven(Step::Evidence, now);
        match step {
            Some((step, kind)) => self.step(step, now).ok().map(|()| kind),
            None => (!gone).then_some(Kind::EmailSent),
        }
    }

    /// An attempt in doubt is proven not to have succeeded. When it was the last one, the handoff may be tried again.
    fn disprove(&mut self, attempt: Option<u32>, now: Time) {
        let Some(attempt) = attempt else { return };
        self.work.doubts.retain(|doubt| *doubt != attempt);
        if self.work.doubts.is_empty() {
            (self.work.doubt_since, self.work.again) = (None, false);
            if self.state == State::Unknown {
                self.step(Step::Retry, now).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests;
