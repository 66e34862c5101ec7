//! The effect of each action on an email.

use serde_json::json;

use super::{Effects, HandoffAction, HandoffActionStatus, HandoffRetryPolicy, HoldRelease, LeaseRef, Resolution};
use crate::{
    control::budget::BudgetUsage,
    events::event::{EventKind, NewEvent},
    handoff::{
        Evidence, EvidenceFinding, EvidenceSource, Handoff, HandoffState, Transition,
        envelope::Envelope,
        reply::{ReplyMeaning, TransportReply},
    },
    id::NodeId,
    mutant,
    outbound::email::{Email, EmailChangeRefusal, EmailState, Guard},
    time::Time,
};

/// The attempt that a reply belongs to.
#[derive(Clone, Copy)]
struct AttemptRef {
    /// `None` when it never reached its marker.
    number: Option<u32>,
    started_at: Time,
}

impl Email {
    /// Leases a due handoff to a worker and increases its fencing token.
    pub fn lease_handoff(&mut self, number: u16, holder: NodeId, now: Time) -> bool {
        let Some(handoff) = self.handoffs.get_mut(usize::from(number)) else { return false };
        if handoff.state == HandoffState::Scheduled && handoff.apply_transition(Transition::Due, now).is_err() {
            return false;
        }
        if handoff.apply_transition(Transition::Lease, now).is_err() {
            return false;
        }
        handoff.fence += u64::from(!mutant!("lease-same-fence"));
        handoff.holder = Some(holder);
        handoff.progress.transport_missing_since = None;
        self.rev += 1;
        true
    }

    /// Applies an action and returns its effects.
    pub fn apply_action(&mut self, act: &HandoffAction, now: Time) -> Effects {
        #[cfg(feature = "failpoints")]
        let effects = super::mutants::apply_action(self, act, now);
        #[cfg(not(feature = "failpoints"))]
        let effects = self.run_action(act, now);
        effects
    }

    pub(super) fn run_action(&mut self, act: &HandoffAction, now: Time) -> Effects {
        match act {
            HandoffAction::Mark { lease: hold, .. } => self.mark(hold, now),
            HandoffAction::ReturnLease { lease: hold, due_at: due, reason: why } => {
                self.return_lease(hold, *due, why, now)
            }
            HandoffAction::RecordOutcome { lease: hold, attempt, started_at, reply, retry_policy: plan } => {
                let attempt = AttemptRef { number: *attempt, started_at: *started_at };
                self.record_outcome(hold, attempt, reply, *plan, now)
            }
            HandoffAction::Crash { number, holder } => self.crash(*number, *holder, now),
            HandoffAction::RetryInWindow { number, holder, account } => {
                self.retry_in_window(*number, *holder, account, now)
            }
            HandoffAction::CheckLater { number, evidence, next_check_at: next } => {
                self.check_later(*number, evidence.as_ref(), *next)
            }
            HandoffAction::ResendByPolicy { number } => self.resend_by_policy(*number, now),
            HandoffAction::AddEvidence(evidence) => self.add_evidence(evidence, now),
            HandoffAction::Resolve { resolution: choice, rev, handoff, reason } => {
                self.resolve(*choice, *rev, *handoff, reason, now)
            }
            // Nothing is known of its budgets here, so they have room.
            HandoffAction::Release(release) => self.release_hold(release, &BudgetUsage::default(), now),
            HandoffAction::FailOverHandoff { number, from, to } => self.fail_over_handoff(*number, from, to),
            HandoffAction::FailOverEmail { from, envelopes } => self.fail_over_email(from, envelopes, now),
            HandoffAction::ReportOrphan { number, transport, since } => {
                self.report_orphan(*number, transport, *since, now)
            }
            HandoffAction::GiveUpOrphan { number, transport, max_age_ms } => {
                self.give_up_orphan(*number, transport, *max_age_ms, now)
            }
            HandoffAction::RerouteByOperator { from, envelopes } => self.reroute_by_operator(from, envelopes, now),
        }
    }

    /// Removes one hold. The email leaves when none is left, at its requested time. An email for which a budget has no
    /// room is held by that budget instead.
    pub fn release_hold(&mut self, release: &HoldRelease, usage: &BudgetUsage, now: Time) -> Effects {
        let mut holds = self.holds;
        let is_held = holds.remove(release.hold) && self.state() == EmailState::Held;
        if is_held && release.hold == Guard::Budget && release.ignores_budgets {
            holds.waive_budget();
        }
        if is_held && holds.is_empty() && !holds.is_budget_waived() && release.is_over_budget(usage) {
            holds.insert(Guard::Budget);
        }
        if !is_held || holds == self.holds {
            return Effects::from_status(HandoffActionStatus::Unchanged);
        }
        self.holds = holds;
        if let Some(first) = holds.first() {
            self.guard = Some(first);
            self.rev += 1;
            let event = self.event(EventKind::EmailHoldRemoved, now);
            return Effects { events: vec![event], ..Effects::done() };
        }
        let charges = release.charges.clone();
        Effects { charges, ..self.release(now) }
    }

    /// Releases a held email. It is due at its requested time.
    fn release(&mut self, now: Time) -> Effects {
        let mut released = false;
        for handoff in &mut self.handoffs {
            released |= handoff.apply_transition(Transition::Release, now).is_ok();
        }
        if !released {
            return Effects::from_status(HandoffActionStatus::Unchanged);
        }
        self.rev += 1;
        let mut effects = Effects::done();
        effects.events.push(self.event(EventKind::EmailReleased, now));
        effects
    }

    pub(crate) fn handoff_mut(&mut self, number: u16) -> Option<&mut Handoff> {
        self.handoffs.get_mut(usize::from(number))
    }

    /// The handoff, if this worker holds its lease.
    pub(super) fn leased_handoff_mut(&mut self, hold: &LeaseRef) -> Option<&mut Handoff> {
        let open = |h: &&mut Handoff| matches!(h.state, HandoffState::Leased | HandoffState::Sending);
        self.handoff_mut(hold.number).filter(|h| h.fence == hold.fence).filter(open)
    }

    /// Writes the marker. From now on only a reply or evidence tells the outcome of the attempt.
    fn mark(&mut self, hold: &LeaseRef, now: Time) -> Effects {
        let Some(handoff) = self.leased_handoff_mut(hold).filter(|h| h.state == HandoffState::Leased) else {
            return Effects::from_status(HandoffActionStatus::Stale);
        };
        if !handoff.may_use_account(&hold.account) {
            handoff.become_unknown_from_any(now);
            self.rev += 1;
            return Effects { changed: true, ..Effects::from_status(HandoffActionStatus::Stale) };
        }
        if handoff.apply_transition(Transition::Mark, now).is_err() {
            return Effects::from_status(HandoffActionStatus::Stale);
        }
        let attempt = handoff.begin_attempt(hold, now);
        handoff.progress.marked_at = Some(now);
        handoff.progress.lost_leases = 0;
        self.rev += 1;
        Effects::done().with_attempt(attempt)
    }

    fn return_lease(&mut self, hold: &LeaseRef, due: Time, why: &str, now: Time) -> Effects {
        let Some(handoff) = self.leased_handoff_mut(hold).filter(|h| h.state == HandoffState::Leased) else {
            return Effects::from_status(HandoffActionStatus::Stale);
        };
        if handoff.is_in_window_retry() {
            handoff.become_unknown_from_any(now);
        } else if handoff.apply_transition(Transition::Lapse, now).is_ok() {
            handoff.due_at = Some(due.max(now));
        }
        handoff.progress.reason = Some(why.to_owned());
        self.rev += 1;
        Effects::done()
    }

    fn record_outcome(
        &mut self,
        hold: &LeaseRef,
        AttemptRef { number, started_at }: AttemptRef,
        reply: &TransportReply,
        plan: HandoffRetryPolicy,
        now: Time,
    ) -> Effects {
        let Some(handoff) = self.leased_handoff_mut(hold) else {
            return self.record_late_reply(hold, AttemptRef { number, started_at }, reply, now);
        };
        let mut attempt = match number {
            Some(number) => handoff.build_attempt(number, hold, started_at),
            // The marker was committed, but its worker did not learn of it and sent nothing.
            None if handoff.state == HandoffState::Sending => handoff.build_attempt(handoff.attempts, hold, started_at),
            None => handoff.begin_attempt(hold, started_at),
        };
        attempt.record_outcome(reply, now);
        handoff.progress.lost_leases = 0;
        handoff.progress.marked_at = None;
        handoff.progress.reason = Some(reply.text.clone()).filter(|_| reply.meaning != ReplyMeaning::Accepted);
        let kind = handoff.apply_reply(&attempt, reply, plan, now);
        let mut effects = Effects::done().with_attempt(attempt);
        effects.events.push(self.outcome_event(kind, hold.number, reply, now));
        effects
    }

    /// Records the reply of a worker that no longer holds the lease, as evidence.
    fn record_late_reply(
        &mut self,
        hold: &LeaseRef,
        AttemptRef { number, started_at }: AttemptRef,
        reply: &TransportReply,
        now: Time,
    ) -> Effects {
        let (Some(number), Some(handoff)) = (number, self.handoff_mut(hold.number)) else {
            return Effects::from_status(HandoffActionStatus::Stale);
        };
        let mut attempt = handoff.build_attempt(number, hold, started_at);
        attempt.record_outcome(reply, now);
        let says = match reply.meaning {
            ReplyMeaning::Accepted | ReplyMeaning::Repeated => EvidenceFinding::Accepted,
            ReplyMeaning::Deferred | ReplyMeaning::Refused | ReplyMeaning::Fault => EvidenceFinding::NotAccepted,
            ReplyMeaning::Concurrent | ReplyMeaning::Mismatch | ReplyMeaning::Unknown => EvidenceFinding::Lost,
        };
        let evidence = Evidence {
            handoff: hold.number,
            attempt: Some(number),
            at: now,
            source: EvidenceSource::LateReply,
            finding: says,
            detail: reply.text.clone(),
            dedup_key: None,
        };
        let mut effects = self.add_evidence(&evidence, now).with_attempt(attempt);
        effects.status = HandoffActionStatus::Stale;
        effects
    }

    /// Handles the death of the worker that held a handoff.
    fn crash(&mut self, number: u16, holder: NodeId, now: Time) -> Effects {
        let Some(handoff) = self.handoff_mut(number).filter(|h| h.holder == Some(holder)) else {
            return Effects::from_status(HandoffActionStatus::Unchanged);
        };
        let mut evidence = Evidence {
            handoff: number,
            attempt: None,
            at: now,
            source: EvidenceSource::Crash,
            finding: EvidenceFinding::NotAccepted,
            detail: "the worker ended before the marker; nothing had left".into(),
            dedup_key: None,
        };
        let kind = if handoff.state == HandoffState::Sending {
            evidence.attempt = Some(handoff.attempts);
            evidence.finding = EvidenceFinding::Lost;
            evidence.detail = "the worker ended after the marker; nobody saw the answer".into();
            handoff.mark_in_doubt(handoff.attempts, handoff.progress.marked_at.unwrap_or(now));
            handoff.become_unknown_from_any(now);
            Some(EventKind::EmailUnknown)
        } else {
            handoff.expire_lease(now)
        };
        self.rev += 1;
        let mut effects = Effects::done().with_evidence(evidence);
        if let Some(kind) = kind {
            effects.events.push(self.record_change(kind, now));
        }
        effects
    }

    fn retry_in_window(&mut self, number: u16, holder: NodeId, account: &str, now: Time) -> Effects {
        let fits = |h: &&mut Handoff| {
            let theirs = h.progress.account.as_deref() == Some(account);
            h.state == HandoffState::Unknown && !h.progress.needs_person && theirs
        };
        let Some(handoff) = self.handoff_mut(number).filter(fits) else {
            return Effects::from_status(HandoffActionStatus::Stale);
        };
        if handoff
            .apply_transition(Transition::Retry, now)
            .and_then(|()| handoff.apply_transition(Transition::Lease, now))
            .is_err()
        {
            return Effects::from_status(HandoffActionStatus::Stale);
        }
        handoff.fence += 1;
        handoff.holder = Some(holder);
        handoff.progress.unknown_checks += 1;
        handoff.progress.transport_missing_since = None;
        let detail = "repeated with the same key at the same account while its window is open";
        let evidence = new_evidence(number, EvidenceSource::Window, EvidenceFinding::Again, detail, now);
        self.rev += 1;
        Effects::done().with_evidence(evidence)
    }

    fn check_later(&mut self, number: u16, evidence: Option<&Evidence>, next: Option<Time>) -> Effects {
        let Some(handoff) = self.handoff_mut(number).filter(|h| h.state == HandoffState::Unknown) else {
            return Effects::from_status(HandoffActionStatus::Stale);
        };
        handoff.due_at = next;
        // Only a node that has the transport checks the handoff, so it is no orphan.
        handoff.progress.transport_missing_since = None;
        let mut effects = Effects::done();
        if let Some(evidence) = evidence {
            handoff.progress.unknown_checks += 1;
            effects.evidence.push(evidence.clone());
        }
        effects
    }

    fn resend_by_policy(&mut self, number: u16, now: Time) -> Effects {
        let fits =
            |h: &&mut Handoff| h.state == HandoffState::Unknown && !h.progress.resent && !h.progress.needs_person;
        let Some(handoff) = self.handoff_mut(number).filter(fits) else {
            return Effects::from_status(HandoffActionStatus::Stale);
        };
        handoff.requeue_despite_doubt(now);
        handoff.progress.resent = true;
        let evidence = new_evidence(
            number,
            EvidenceSource::Policy,
            EvidenceFinding::Again,
            "no evidence came; the email asks to be resent",
            now,
        );
        let mut effects = Effects::done().with_evidence(evidence);
        effects.events.push(self.resolved_event(number, "resend", EvidenceSource::Policy, now));
        effects
    }

    /// Adds evidence from outside. It is never refused, and harmless in any order and any number of repeats.
    fn add_evidence(&mut self, evidence: &Evidence, now: Time) -> Effects {
        let Some(handoff) = self.handoff_mut(evidence.handoff) else {
            return Effects::from_status(HandoffActionStatus::Unchanged);
        };
        let (before, old) = (handoff.state, handoff.clone());
        let kind = handoff.apply_evidence(evidence, now);
        let resolved = before == HandoffState::Unknown && handoff.state != before;
        let mut effects = Effects::from_status(HandoffActionStatus::Done).with_evidence(evidence.clone());
        effects.changed = *handoff != old;
        if let Some(kind) = kind {
            let corrected = before != HandoffState::Sending && kind == EventKind::EmailSent;
            let mut event = self.record_change(kind, now);
            event.data["handoff"] = evidence.handoff.into();
            event.data["source"] = evidence.source.as_str().into();
            if corrected {
                event.data["corrected"] = true.into();
            }
            effects.events.push(event);
        } else if effects.changed && !resolved {
            self.rev += 1;
        }
        if resolved {
            effects.events.push(self.resolved_event(evidence.handoff, evidence.finding.as_str(), evidence.source, now));
        }
        effects
    }

    fn resolve(&mut self, choice: Resolution, rev: u32, which: Option<u16>, reason: &str, now: Time) -> Effects {
        if self.rev != rev {
            return Effects::from_status(HandoffActionStatus::Refused(EmailChangeRefusal::StaleRev));
        }
        let unknown = |h: &&Handoff| h.state == HandoffState::Unknown && which.is_none_or(|number| number == h.number);
        let numbers: Vec<u16> = self.handoffs.iter().filter(unknown).map(|h| h.number).collect();
        if numbers.is_empty() {
            return Effects::from_status(HandoffActionStatus::Refused(EmailChangeRefusal::NotUnknown));
        }
        let mut effects = Effects::done();
        for number in numbers {
            let says = match choice {
                Resolution::Sent => EvidenceFinding::Accepted,
                Resolution::Resend => EvidenceFinding::Again,
                Resolution::Abandon => EvidenceFinding::Abandoned,
            };
            effects.evidence.push(new_evidence(number, EvidenceSource::Person, says, reason, now));
            if let Some(handoff) = self.handoff_mut(number) {
                handoff.apply_resolution(choice, now);
            }
            effects.events.push(self.resolved_event(number, choice.as_str(), EvidenceSource::Person, now));
        }
        self.mark_resolved_as_first_sent_event(&mut effects);
        effects
    }

    /// Marks the `email.resolved` event as the first one that says that the email was sent, if no handoff had an
    /// `email.sent` event and none can still get one.
    fn mark_resolved_as_first_sent_event(&mut self, effects: &mut Effects) {
        let has_silent_part = self.handoffs.iter().any(|h| h.state.has_left() && h.progress.left_without_sent_event);
        let may_still_be_announced =
            |h: &Handoff| !h.state.is_terminal() || (h.state.has_left() && !h.progress.left_without_sent_event);
        if !has_silent_part || self.handoffs.iter().any(may_still_be_announced) {
            return;
        }
        let Some(event) = effects.events.last_mut() else { return };
        event.data["first_sent"] = true.into();
        // From here on they count as announced, so that no later event is the first one, too.
        for handoff in &mut self.handoffs {
            handoff.progress.left_without_sent_event = false;
        }
    }

    fn fail_over_handoff(&mut self, number: u16, from: &str, to: &str) -> Effects {
        let fits = |h: &&mut Handoff| {
            matches!(h.state, HandoffState::Queued | HandoffState::Scheduled) && !h.is_in_doubt() && h.transport == from
        };
        let Some(handoff) = self.handoff_mut(number).filter(fits) else {
            return Effects::from_status(HandoffActionStatus::Stale);
        };
        to.clone_into(&mut handoff.transport);
        handoff.parked_by = None;
        self.rev += 1;
        Effects::done()
    }

    /// Cancels the email's envelopes and creates new ones. The old handoffs stay, cancelled, with their attempts.
    pub(crate) fn fail_over_email(&mut self, from: &str, envelopes: &[Envelope], now: Time) -> Effects {
        let unsent = |h: &Handoff| {
            let waits = matches!(h.state, HandoffState::Queued | HandoffState::Scheduled) && h.transport == from;
            !h.is_in_doubt() && (waits || h.state.is_surely_unsent())
        };
        let waiting: Vec<&Handoff> = self.handoffs.iter().filter(|h| !h.state.is_terminal()).collect();
        if waiting.is_empty() || !(self.handoffs.iter().all(unsent) || mutant!("redirect-after-sent")) {
            return Effects::from_status(HandoffActionStatus::Stale);
        }
        let due = waiting.iter().filter_map(|h| h.due_at).min().unwrap_or(now);
        // A scheduled email stays scheduled, so that it is not sent early and can still be rescheduled.
        let scheduled = waiting.iter().all(|h| h.state == HandoffState::Scheduled);
        let state = if scheduled { HandoffState::Scheduled } else { HandoffState::Queued };
        for handoff in self.handoffs.iter_mut().filter(|h| !h.state.is_terminal()) {
            handoff.apply_transition(Transition::Cancel, now).ok();
        }
        let mut effects = Effects::done();
        for envelope in envelopes {
            let handoff = Handoff::new(self.handoffs.len() as u16, envelope.clone(), state, Some(due));
            effects.new_handoffs.push(handoff.clone());
            self.handoffs.push(handoff);
        }
        self.rev += 1;
        effects
    }

    /// The event that reports how a handoff was resolved.
    pub(crate) fn outcome_event(
        &mut self,
        kind: Option<EventKind>,
        number: u16,
        reply: &TransportReply,
        now: Time,
    ) -> NewEvent {
        let mut event = self.record_change(kind.unwrap_or(EventKind::EmailDeferred), now);
        event.data["handoff"] = number.into();
        event.data["reply"] = json!({ "code": reply.code, "phase": reply.phase.as_str(), "text": reply.text });
        event
    }

    fn resolved_event(&mut self, number: u16, outcome: &str, source: EvidenceSource, now: Time) -> NewEvent {
        let mut event = self.record_change(EventKind::EmailResolved, now);
        event.data["handoff"] = number.into();
        event.data["outcome"] = outcome.into();
        event.data["source"] = source.as_str().into();
        event
    }

    /// Whether some attempt of it may have succeeded, so that it must not be cancelled.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.handoffs.iter().any(Handoff::is_in_doubt) || self.state() == EmailState::Unknown
    }
}

/// Evidence without a deduplication key.
pub(crate) fn new_evidence(
    handoff: u16,
    source: EvidenceSource,
    says: EvidenceFinding,
    detail: &str,
    at: Time,
) -> Evidence {
    Evidence { handoff, attempt: None, at, source, finding: says, detail: detail.to_owned(), dedup_key: None }
}
