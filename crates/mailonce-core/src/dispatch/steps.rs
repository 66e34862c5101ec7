//! What becomes of one handoff: the steps that an act takes it through.

use super::{Choice, Hold, LAPSES, LONGEST_ASKED_MS, LOOK_AFTER_MS, Plan};
use crate::{
    event::Kind,
    handoff::{Attempt, AttemptAbout, Evidence, Handoff, Says, State, Step},
    mutant,
    port::transport::{Meaning, Reply},
    retry,
    time::Time,
};

impl Handoff {
    /// A new attempt.
    pub(super) fn begin(&mut self, hold: &Hold, at: Time) -> Attempt {
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
    pub(super) fn attempt(&self, number: u32, hold: &Hold, at: Time) -> Attempt {
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
    pub(super) fn settled(&mut self, attempt: &Attempt, reply: &Reply, plan: Plan, now: Time) -> Option<Kind> {
        if mutant!("refusal-ends-doubt") && reply.meaning == Meaning::Refused {
            self.work.doubts.clear();
        }
        match misread(reply.meaning) {
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
            _ if self.is_repeat() || misread(reply.meaning) == Meaning::Concurrent => {
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
    pub(super) fn give_up(&mut self, now: Time) -> Kind {
        if self.is_in_doubt() && !mutant!("given-up-in-doubt") {
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
    pub(super) fn may_go_to(&self, account: &str) -> bool {
        !self.is_repeat() || self.work.account.as_deref() == Some(account) || mutant!("any-account")
    }

    /// Notes that an attempt may have succeeded.
    pub(super) fn doubt(&mut self, attempt: u32, since: Time) {
        if !self.work.doubts.contains(&attempt) {
            self.work.doubts.push(attempt);
        }
        if mutant!("window-slides") {
            self.work.doubt_since = Some(since);
        }
        self.work.doubt_since.get_or_insert(since);
    }

    pub(super) fn lose(&mut self, now: Time) {
        if self.step(Step::Lose, now).is_ok() {
            let pause = (LOOK_AFTER_MS << self.work.asked.min(10)).min(retry::LONGEST_PAUSE_MS);
            self.due_at = Some(now.plus(pause));
            self.work.again = false;
        }
    }

    /// Back to unknown, also from before the marker of a repeat: the steps between are taken in one commit.
    pub(super) fn lose_from_any(&mut self, now: Time) {
        if self.state == State::Leased {
            self.step(Step::Mark, now).ok();
        }
        self.lose(now);
    }

    /// A lease that ended with its worker, before the marker.
    pub(super) fn lapse(&mut self, now: Time) -> Option<Kind> {
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
    pub(super) fn proven(&mut self, step: Step, now: Time) {
        if self.step(step, now).is_ok() {
            self.work.doubts.clear();
            (self.work.doubt_since, self.work.reason) = (None, None);
            (self.work.puzzling, self.work.again) = (false, false);
        }
    }

    /// Out of doubt and back to the queue, knowing that the recipient may get it twice.
    pub(super) fn send_again(&mut self, now: Time) {
        if self.step(Step::Retry, now).is_ok() {
            (self.work.may_duplicate, self.work.again) = (!mutant!("resend-unflagged"), true);
        }
    }

    pub(super) fn obey(&mut self, choice: Choice, now: Time) {
        match choice {
            Choice::Sent => self.proven(Step::Evidence, now),
            Choice::Resend => self.send_again(now),
            Choice::Abandon => {
                self.step(Step::Abandon, now).ok();
            }
        }
    }

    /// What a fact changes. The kind of event it makes, if any.
    pub(super) fn learn(&mut self, evidence: &Evidence, now: Time) -> Option<Kind> {
        if mutant!("proof-only-of-doubts") && self.state != State::Unknown {
            return None;
        }
        let gone = matches!(self.state, State::Sent | State::Delivered | State::Bounced | State::Complained);
        let step = match evidence.says {
            Says::Accepted => None,
            // Whoever reports a delay has the mail and keeps trying.
            Says::Delayed if !mutant!("delay-proves-nothing") => None,
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
    pub(super) fn disprove(&mut self, attempt: Option<u32>, now: Time) {
        let Some(attempt) = attempt else { return };
        self.work.doubts.retain(|doubt| *doubt != attempt && !mutant!("one-refusal-clears-all"));
        if self.work.doubts.is_empty() {
            (self.work.doubt_since, self.work.again) = (None, false);
            if self.state == State::Unknown {
                self.step(Step::Retry, now).ok();
            }
        }
    }
}

/// The meaning itself, unless a rig wants to see it taken for another.
fn misread(meaning: Meaning) -> Meaning {
    match meaning {
        Meaning::Unknown if mutant!("unknown-is-refused") => Meaning::Refused,
        Meaning::Unknown if mutant!("unknown-is-deferred") => Meaning::Deferred,
        Meaning::Unknown if mutant!("unknown-is-accepted") => Meaning::Accepted,
        Meaning::Refused if mutant!("refused-is-unknown") => Meaning::Unknown,
        Meaning::Refused if mutant!("refused-is-accepted") => Meaning::Accepted,
        Meaning::Accepted if mutant!("accepted-is-deferred") => Meaning::Deferred,
        Meaning::Accepted if mutant!("accepted-is-refused") => Meaning::Refused,
        Meaning::Deferred if mutant!("deferred-is-accepted") => Meaning::Accepted,
        Meaning::Deferred if mutant!("deferred-is-unknown") => Meaning::Unknown,
        Meaning::Fault if mutant!("fault-is-unknown") => Meaning::Unknown,
        Meaning::Concurrent if mutant!("concurrent-is-refused") => Meaning::Refused,
        Meaning::Mismatch if mutant!("mismatch-is-refused") => Meaning::Refused,
        Meaning::Repeated if mutant!("repeated-is-refused") => Meaning::Refused,
        read => read,
    }
}
