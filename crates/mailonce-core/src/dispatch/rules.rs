//! What each act means for an email.

use serde_json::json;

use super::{Act, Choice, Effects, Hold, Plan, Verdict};
use crate::{
    email::{Email, EmailState, Refusal},
    event::{Kind, NewEvent},
    handoff::{Evidence, Handoff, Says, Source, State, Step},
    id::NodeId,
    mutant,
    port::{
        store::Envelope,
        transport::{Meaning, Reply},
    },
    time::Time,
};

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
        handoff.fence += u64::from(!mutant!("lease-same-fence"));
        handoff.holder = Some(holder);
        handoff.work.orphaned = None;
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
            Act::Release => self.release(now),
            Act::Reroute { number, from, to } => self.reroute(*number, from, to),
            Act::Redirect { from, envelopes } => self.redirect(from, envelopes, now),
            Act::Orphan { number, transport, since } => self.orphan(*number, transport, *since, now),
            Act::GiveUpOrphan { number, transport, max_age_ms } => {
                self.give_up_orphan(*number, transport, *max_age_ms, now)
            }
            Act::Relocate { from, envelopes } => self.relocate(from, envelopes, now),
        }
    }

    /// Lets what is held go, at the time it was wished for.
    fn release(&mut self, now: Time) -> Effects {
        let mut released = false;
        for handoff in &mut self.handoffs {
            released |= handoff.step(Step::Release, now).is_ok();
        }
        if !released {
            return Effects::of(Verdict::Unchanged);
        }
        self.rev += 1;
        let mut effects = Effects::done();
        effects.events.push(self.event(Kind::EmailReleased, now));
        effects
    }

    pub(super) fn handoff(&mut self, number: u16) -> Option<&mut Handoff> {
        self.handoffs.get_mut(usize::from(number))
    }

    /// The handoff, if this worker holds it.
    fn held(&mut self, hold: &Hold) -> Option<&mut Handoff> {
        let fenced = |h: &Handoff| h.fence == hold.fence || mutant!("any-fence");
        let open = |h: &&mut Handoff| fenced(h) && matches!(h.state, State::Leased | State::Sending);
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
        if mutant!("late-reply-dropped") {
            return Effects::of(Verdict::Stale);
        }
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
        if mutant!("crash-requeues-sending") {
            handoff.state = State::Leased;
        }
        let kind = if handoff.state == State::Sending || mutant!("crash-doubts-leased") {
            evidence.attempt = Some(handoff.attempts);
            evidence.says = Says::Lost;
            evidence.detail = "the worker ended after the marker; nobody saw the answer".into();
            handoff.doubt(handoff.attempts, handoff.work.marked_at.unwrap_or(now));
            handoff.lose_from_any(now);
            Some(Kind::EmailUnknown).filter(|_| !mutant!("crash-untold"))
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
            let theirs = h.work.account.as_deref() == Some(account) || mutant!("any-account");
            h.state == State::Unknown && !h.work.puzzling && theirs
        };
        let Some(handoff) = self.handoff(number).filter(fits) else { return Effects::of(Verdict::Stale) };
        if handoff.step(Step::Retry, now).and_then(|()| handoff.step(Step::Lease, now)).is_err() {
            return Effects::of(Verdict::Stale);
        }
        handoff.fence += 1;
        handoff.holder = Some(holder);
        handoff.work.asked += 1;
        handoff.work.orphaned = None;
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
        // Only a node that has the transport looks at it.
        handoff.work.orphaned = None;
        let mut effects = Effects::done();
        if let Some(evidence) = evidence {
            handoff.work.asked += 1;
            effects.evidence.push(evidence.clone());
        }
        effects
    }

    fn resend_by_policy(&mut self, number: u16, now: Time) -> Effects {
        let resent = |h: &Handoff| h.work.resent && !mutant!("policy-twice");
        let fits = |h: &&mut Handoff| h.state == State::Unknown && !resent(h) && !h.work.puzzling;
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
        let number = if mutant!("fact-of-another-handoff") { 0 } else { evidence.handoff };
        let Some(handoff) = self.handoff(number) else { return Effects::of(Verdict::Unchanged) };
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
        if self.rev != rev && !mutant!("stale-rev-obeyed") {
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
        if let Some(doubted) = self.handoff(number).filter(|h| mutant!("doubt-rerouted") && h.state == State::Unknown) {
            doubted.work.doubts.clear();
            doubted.step(Step::Retry, Time(0)).ok();
        }
        let Some(handoff) = self.handoff(number).filter(fits) else { return Effects::of(Verdict::Stale) };
        to.clone_into(&mut handoff.transport);
        self.rev += 1;
        Effects::done()
    }

    /// Takes the email's envelopes back and makes others. The old ones stay, cancelled, with their attempts.
    pub(super) fn redirect(&mut self, from: &str, envelopes: &[Envelope], now: Time) -> Effects {
        let unsent = |h: &Handoff| {
            let waits = matches!(h.state, State::Queued | State::Scheduled) && h.transport == from;
            !h.is_in_doubt() && (waits || h.state.is_surely_unsent())
        };
        let waiting: Vec<&Handoff> = self.handoffs.iter().filter(|h| !h.state.is_terminal()).collect();
        if waiting.is_empty() || !(self.handoffs.iter().all(unsent) || mutant!("redirect-after-sent")) {
            return Effects::of(Verdict::Stale);
        }
        let due = waiting.iter().filter_map(|h| h.due_at).min().unwrap_or(now);
        // What is scheduled stays so: it is neither early nor beyond a change of its time.
        let scheduled = waiting.iter().all(|h| h.state == State::Scheduled);
        let state = if scheduled { State::Scheduled } else { State::Queued };
        for handoff in self.handoffs.iter_mut().filter(|h| !h.state.is_terminal()) {
            handoff.step(Step::Cancel, now).ok();
        }
        let mut effects = Effects::done();
        for envelope in envelopes {
            let handoff = Handoff::new(self.handoffs.len() as u16, envelope.clone(), state, Some(due));
            effects.appended.push(handoff.clone());
            self.handoffs.push(handoff);
        }
        self.rev += 1;
        effects
    }

    /// The event that tells how a handoff was settled.
    pub(super) fn told(&mut self, kind: Option<Kind>, number: u16, reply: &Reply, now: Time) -> NewEvent {
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
pub(super) fn fact(handoff: u16, source: Source, says: Says, detail: &str, at: Time) -> Evidence {
    Evidence { handoff, attempt: None, at, source, says, detail: detail.to_owned(), once: None }
}
