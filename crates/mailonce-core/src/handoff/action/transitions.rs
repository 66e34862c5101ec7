//! The transitions that an action applies to one handoff.

use super::{FIRST_CHECK_DELAY_MS, HandoffRetryPolicy, LeaseRef, MAX_LEASE_LAPSES, MAX_REQUESTED_PAUSE_MS, Resolution};
use crate::{
    events::event::EventKind,
    handoff::{
        Attempt, AttemptDetails, Evidence, EvidenceFinding, Handoff, HandoffState, Transition,
        reply::{ReplyMeaning, TransportReply},
    },
    retry,
    time::Time,
};

impl Handoff {
    /// Starts a new attempt.
    pub(crate) fn begin_attempt(&mut self, hold: &LeaseRef, at: Time) -> Attempt {
        if !self.is_in_doubt() {
            self.progress.account = Some(hold.account.clone());
        } else if self.progress.account.as_ref() != Some(&hold.account) {
            // Attempts in doubt at two accounts cannot be repeated at either.
            self.progress.account = None;
        }
        self.attempts += 1;
        self.progress.first_attempt_at.get_or_insert(at);
        self.build_attempt(self.attempts, hold, at)
    }

    /// An attempt with what is known about it.
    pub(crate) fn build_attempt(&self, number: u32, hold: &LeaseRef, at: Time) -> Attempt {
        Attempt {
            handoff: self.number,
            number,
            at,
            ended_at: None,
            outcome: None,
            reply: String::new(),
            details: AttemptDetails {
                transport: hold.transport.clone(),
                account: hold.account.clone(),
                fence: hold.fence,
                may_duplicate: self.progress.may_duplicate,
                ..AttemptDetails::default()
            },
        }
    }

    /// Applies a reply. Returns the kind of the event; `None` when the handoff returns to the queue.
    pub(crate) fn apply_reply(
        &mut self,
        attempt: &Attempt,
        reply: &TransportReply,
        plan: HandoffRetryPolicy,
        now: Time,
    ) -> Option<EventKind> {
        match reply.meaning {
            ReplyMeaning::Accepted | ReplyMeaning::Repeated if self.state == HandoffState::Sending => {
                self.confirm_sent(Transition::Accept, now);
                Some(EventKind::EmailSent)
            }
            ReplyMeaning::Accepted | ReplyMeaning::Repeated | ReplyMeaning::Unknown | ReplyMeaning::Mismatch => {
                self.progress.needs_person |= reply.meaning == ReplyMeaning::Mismatch;
                self.mark_in_doubt(attempt.number, attempt.at);
                self.become_unknown_from_any(now);
                Some(EventKind::EmailUnknown)
            }
            // A refusal decides only its own attempt: an earlier one may still have succeeded.
            _ if self.is_in_window_retry() || reply.meaning == ReplyMeaning::Concurrent => {
                // The request that the next hop is processing may be another one than those already in doubt.
                if reply.meaning == ReplyMeaning::Concurrent {
                    self.mark_in_doubt(attempt.number, attempt.at);
                }
                self.become_unknown_from_any(now);
                self.due_at = Some(now.plus(self.retry_delay_ms(reply, plan)));
                Some(EventKind::EmailUnknown)
            }
            ReplyMeaning::Refused => Some(self.give_up(now)),
            ReplyMeaning::Deferred | ReplyMeaning::Fault | ReplyMeaning::Concurrent => self.defer(reply, plan, now),
        }
    }

    fn defer(&mut self, reply: &TransportReply, plan: HandoffRetryPolicy, now: Time) -> Option<EventKind> {
        if reply.meaning == ReplyMeaning::Fault {
            self.progress.transport_failures += 1;
        }
        let tried = self.attempts.saturating_sub(self.progress.transport_failures);
        let age = self.progress.first_attempt_at.map_or(0, |at| now.since(at));
        if tried >= plan.max_attempts || age >= plan.max_age_ms {
            let why = format!("given up after {} attempts in {} s: {}", self.attempts, age / 1000, reply.text);
            self.progress.reason = Some(why);
            return Some(self.give_up(now));
        }
        if self.apply_transition(Transition::Defer, now).is_ok() {
            self.due_at = Some(now.plus(self.retry_delay_ms(reply, plan)));
        }
        None
    }

    /// How long to wait before the next attempt.
    fn retry_delay_ms(&self, reply: &TransportReply, plan: HandoffRetryPolicy) -> i64 {
        let own = retry::backoff_ms(self.attempts + 1, plan.jitter_seed);
        own.max(reply.retry_after_ms.unwrap_or(0).clamp(0, MAX_REQUESTED_PAUSE_MS))
    }

    /// Ends the retries: failed, or unknown when an earlier attempt may have succeeded.
    pub(crate) fn give_up(&mut self, now: Time) -> EventKind {
        if self.is_in_doubt() {
            self.become_unknown_from_any(now);
            return EventKind::EmailUnknown;
        }
        self.apply_transition(Transition::Refuse, now).ok();
        EventKind::EmailFailed
    }

    /// Whether a worker holds it only to repeat an attempt in doubt.
    pub fn is_in_window_retry(&self) -> bool {
        self.is_in_doubt() && !self.progress.retry_despite_doubt
    }

    /// Whether an attempt may use this account. A repeat may use only the account of the attempts in doubt.
    pub(crate) fn may_use_account(&self, account: &str) -> bool {
        !self.is_in_window_retry() || self.progress.account.as_deref() == Some(account)
    }

    /// Records that an attempt may have succeeded.
    pub(crate) fn mark_in_doubt(&mut self, attempt: u32, since: Time) {
        if !self.progress.attempts_in_doubt.contains(&attempt) {
            self.progress.attempts_in_doubt.push(attempt);
        }
        self.progress.in_doubt_since.get_or_insert(since);
    }

    pub(crate) fn become_unknown(&mut self, now: Time) {
        if self.apply_transition(Transition::Lose, now).is_ok() {
            let pause = (FIRST_CHECK_DELAY_MS << self.progress.unknown_checks.min(10)).min(retry::MAX_BACKOFF_MS);
            self.due_at = Some(now.plus(pause));
            self.progress.retry_despite_doubt = false;
        }
    }

    /// Moves it to unknown, even from before the marker of a repeat. The transitions between happen in one commit.
    pub(crate) fn become_unknown_from_any(&mut self, now: Time) {
        if self.state == HandoffState::Leased {
            self.apply_transition(Transition::Mark, now).ok();
        }
        self.become_unknown(now);
    }

    /// Expires the lease of a dead worker that had not committed a marker.
    pub(crate) fn expire_lease(&mut self, now: Time) -> Option<EventKind> {
        if self.is_in_window_retry() {
            self.become_unknown_from_any(now);
            return None;
        }
        self.progress.lost_leases += 1;
        if self.progress.lost_leases >= MAX_LEASE_LAPSES {
            self.progress.reason = Some(format!("put aside: {MAX_LEASE_LAPSES} workers ended while they held it"));
            return Some(self.give_up(now));
        }
        self.apply_transition(Transition::Lapse, now).ok();
        None
    }

    /// Records that the next hop accepted it. This resolves all doubts.
    pub(crate) fn confirm_sent(&mut self, step: Transition, now: Time) {
        if self.apply_transition(step, now).is_ok() {
            self.progress.attempts_in_doubt.clear();
            (self.progress.in_doubt_since, self.progress.reason) = (None, None);
            (self.progress.needs_person, self.progress.retry_despite_doubt) = (false, false);
        }
    }

    /// Moves it from unknown back to the queue. The recipient may then get it twice.
    pub(crate) fn requeue_despite_doubt(&mut self, now: Time) {
        if self.apply_transition(Transition::Retry, now).is_ok() {
            (self.progress.may_duplicate, self.progress.retry_despite_doubt) = (true, true);
        }
    }

    pub(crate) fn apply_resolution(&mut self, choice: Resolution, now: Time) {
        match choice {
            Resolution::Sent => {
                self.confirm_sent(Transition::Evidence, now);
                self.progress.left_without_sent_event = true;
            }
            Resolution::Resend => self.requeue_despite_doubt(now),
            Resolution::Abandon => {
                self.apply_transition(Transition::Abandon, now).ok();
            }
        }
    }

    /// Applies evidence. Returns the kind of the event, if there is one.
    pub(crate) fn apply_evidence(&mut self, evidence: &Evidence, now: Time) -> Option<EventKind> {
        let gone = self.state.has_left();
        let step = match evidence.finding {
            // A next hop that reports a delay has the mail and keeps retrying.
            EvidenceFinding::Accepted | EvidenceFinding::Delayed => None,
            EvidenceFinding::Delivered => Some((Transition::Deliver, EventKind::EmailDelivered)),
            EvidenceFinding::Bounced => Some((Transition::Bounce, EventKind::EmailBounced)),
            EvidenceFinding::Complained => Some((Transition::Complain, EventKind::EmailComplained)),
            EvidenceFinding::NotAccepted => {
                self.clear_doubt(evidence.attempt, now);
                return None;
            }
            EvidenceFinding::NotFound
            | EvidenceFinding::Silent
            | EvidenceFinding::Again
            | EvidenceFinding::Abandoned
            | EvidenceFinding::Lost => return None,
        };
        // A bounce, delivery or complaint proves that the next hop accepted the mail.
        self.confirm_sent(Transition::Evidence, now);
        self.progress.left_without_sent_event |= !gone && step.is_some();
        match step {
            Some((step, kind)) => self.apply_transition(step, now).ok().map(|()| kind),
            None => (!gone).then_some(EventKind::EmailSent),
        }
    }

    /// Records that an attempt in doubt surely failed. After the last one, the handoff is queued again.
    pub(crate) fn clear_doubt(&mut self, attempt: Option<u32>, now: Time) {
        let Some(attempt) = attempt else { return };
        self.progress.attempts_in_doubt.retain(|doubt| *doubt != attempt);
        if self.progress.attempts_in_doubt.is_empty() {
            (self.progress.in_doubt_since, self.progress.retry_despite_doubt) = (None, false);
            if self.state == HandoffState::Unknown {
                self.apply_transition(Transition::Retry, now).ok();
            }
        }
    }
}
