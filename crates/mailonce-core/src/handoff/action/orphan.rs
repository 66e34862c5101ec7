//! Orphans: handoffs whose transport no node has any more. They are reported, given up in the end, or moved by an
//! operator.
//!
//! A handoff in doubt is never moved or marked as failed here. Only evidence or a person resolves it.

use serde_json::json;

use super::{Effects, HandoffActionStatus};
use crate::{
    events::event::EventKind,
    handoff::{
        Handoff, HandoffState, Transition,
        envelope::Envelope,
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
    },
    outbound::email::Email,
    time::Time,
};

impl Handoff {
    /// Whether it waits for its transport and no worker holds it.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, HandoffState::Queued | HandoffState::Scheduled)
    }

    /// Whether it is still unfinished at this transport.
    pub fn is_open_at(&self, transport: &str) -> bool {
        let open = matches!(self.state, HandoffState::Leased | HandoffState::Sending | HandoffState::Unknown)
            || self.is_waiting();
        open && self.transport == transport
    }

    /// Whether an operator may move it: it is waiting, and no attempt may have succeeded.
    fn may_reroute(&self, from: &str) -> bool {
        self.is_waiting() && self.transport == from && !self.is_in_doubt()
    }

    /// Whether an orphan is given up: both its due time and the report are older than `max_age_ms`.
    pub fn is_orphan_expired(&self, max_age_ms: i64, now: Time) -> bool {
        let since =
            self.progress.transport_missing_since.map(|reported| self.due_at.map_or(reported, |due| due.max(reported)));
        self.is_waiting() && since.is_some_and(|since| now.since(since) >= max_age_ms)
    }
}

impl Email {
    /// Reports that no node has the transport of a handoff, once each time the transport disappears.
    pub(crate) fn report_orphan(&mut self, number: u16, transport: &str, since: Time, now: Time) -> Effects {
        let open = |h: &&mut Handoff| h.is_waiting() || h.state == HandoffState::Unknown;
        let Some(handoff) = self.handoff_mut(number).filter(|h| h.transport == transport).filter(open) else {
            return Effects::from_status(HandoffActionStatus::Stale);
        };
        if handoff.progress.transport_missing_since == Some(since) {
            return Effects::from_status(HandoffActionStatus::Unchanged);
        }
        handoff.progress.transport_missing_since = Some(since);
        let state = handoff.state;
        let mut event = self.record_change(EventKind::HandoffOrphaned, now);
        event.data["handoff"] = number.into();
        event.data["handoff_state"] = state.as_str().into();
        event.data["transport"] = transport.into();
        let mut effects = Effects::done();
        effects.events.push(event);
        effects
    }

    /// Gives up an orphan that has waited for the maximum retry time.
    pub(crate) fn give_up_orphan(&mut self, number: u16, transport: &str, max_age_ms: i64, now: Time) -> Effects {
        let over = |h: &&mut Handoff| h.transport == transport && h.is_orphan_expired(max_age_ms, now);
        let Some(handoff) = self.handoff_mut(number).filter(over) else {
            return Effects::from_status(HandoffActionStatus::Stale);
        };
        // The transitions between happen in one commit, so no worker can lease it.
        if handoff.state == HandoffState::Scheduled {
            handoff.apply_transition(Transition::Due, now).ok();
        }
        handoff.apply_transition(Transition::Lease, now).ok();
        handoff.fence += 1;
        let why = format!("given up: no transport named `{transport}` was configured for {} s", max_age_ms / 1000);
        handoff.progress.reason = Some(why.clone());
        let kind = handoff.give_up(now);
        let mut effects = Effects::done();
        let reply = TransportReply::new(ReplyMeaning::Fault, AttemptPhase::Connect, None, &why);
        effects.events.push(self.outcome_event(Some(kind), number, &reply, now));
        effects
    }

    /// Moves waiting handoffs to other envelopes, as an operator asks. Handoffs keep their numbers where the new
    /// transport groups the recipients the same way. Otherwise the whole email is divided anew, if nothing of it was
    /// sent.
    pub(crate) fn reroute_by_operator(&mut self, from: &str, envelopes: &[Envelope], now: Time) -> Effects {
        let movable: Vec<&Handoff> = self.handoffs.iter().filter(|h| h.may_reroute(from)).collect();
        let numbers: Vec<u16> = movable.iter().map(|h| h.number).collect();
        let fits = |h: &&&Handoff| envelopes.iter().find(|envelope| has_same_recipients(envelope, h));
        let Some(to) = movable.iter().map(|h| fits(&h).map(|envelope| envelope.transport.clone())).collect() else {
            return self.split_again(from, envelopes, &numbers, now);
        };
        let to: Vec<String> = to;
        if to.is_empty() {
            return Effects::from_status(HandoffActionStatus::Stale);
        }
        for (number, to) in numbers.iter().zip(to) {
            if let Some(handoff) = self.handoff_mut(*number) {
                handoff.transport = to;
                handoff.parked_by = None;
                (handoff.progress.transport_missing_since, handoff.progress.reason) = (None, None);
            }
        }
        let mut effects = Effects::done();
        self.push_reroute_event(from, envelopes, &numbers, &mut effects, now);
        effects
    }

    fn split_again(&mut self, from: &str, envelopes: &[Envelope], numbers: &[u16], now: Time) -> Effects {
        let mut effects = self.fail_over_email(from, envelopes, now);
        if effects.status == HandoffActionStatus::Done {
            self.push_reroute_event(from, envelopes, numbers, &mut effects, now);
        }
        effects
    }

    fn push_reroute_event(
        &mut self,
        from: &str,
        envelopes: &[Envelope],
        numbers: &[u16],
        effects: &mut Effects,
        now: Time,
    ) {
        let mut to: Vec<&str> = envelopes.iter().map(|envelope| envelope.transport.as_str()).collect();
        to.dedup();
        let mut event = self.record_change(EventKind::HandoffRerouted, now);
        event.data["handoffs"] = json!(numbers);
        event.data["from"] = from.into();
        event.data["to"] = json!(to);
        effects.events.push(event);
    }
}

/// Whether an envelope has exactly the recipients of a handoff.
fn has_same_recipients(envelope: &Envelope, handoff: &Handoff) -> bool {
    let sorted = |people: &[String]| {
        let mut people = people.to_vec();
        people.sort_unstable();
        people
    };
    sorted(&envelope.recipients) == sorted(&handoff.recipients)
}
