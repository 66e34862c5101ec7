//! Handoffs whose transport no node has any more: they are reported, given up in the end, or moved by an operator.
//!
//! What is in doubt is never moved or called failed here: only evidence or a person settles it.

use serde_json::json;

use super::{Effects, Verdict};
use crate::{
    email::Email,
    event::Kind,
    handoff::{Handoff, State, Step},
    mutant,
    port::{
        store::Envelope,
        transport::{Meaning, Phase, Reply},
    },
    time::Time,
};

impl Handoff {
    /// Whether it waits for its transport, held by nobody.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Queued | State::Scheduled)
    }

    /// Whether something is still to become of it at this transport.
    pub fn is_open_at(&self, transport: &str) -> bool {
        let open = matches!(self.state, State::Leased | State::Sending | State::Unknown) || self.is_waiting();
        open && self.transport == transport
    }

    /// Whether an operator may move it: it waits, and no attempt may have succeeded.
    fn may_move(&self, from: &str) -> bool {
        let free = !self.is_in_doubt() || mutant!("doubt-rerouted");
        self.is_waiting() && self.transport == from && free
    }

    /// Whether an orphan is to be given up: it was due for so long, and it was reported for so long.
    pub fn orphan_is_over(&self, max_age_ms: i64, now: Time) -> bool {
        let since = self.work.orphaned.map(|reported| self.due_at.map_or(reported, |due| due.max(reported)));
        self.is_waiting() && since.is_some_and(|since| now.since(since) >= max_age_ms)
    }
}

impl Email {
    /// Reports that no node has the transport of a handoff, once for each time it goes missing.
    pub(super) fn orphan(&mut self, number: u16, transport: &str, since: Time, now: Time) -> Effects {
        let open = |h: &&mut Handoff| h.is_waiting() || h.state == State::Unknown;
        let Some(handoff) = self.handoff(number).filter(|h| h.transport == transport).filter(open) else {
            return Effects::of(Verdict::Stale);
        };
        if handoff.work.orphaned == Some(since) {
            return Effects::of(Verdict::Unchanged);
        }
        handoff.work.orphaned = Some(since);
        let state = handoff.state;
        let mut event = self.changed(Kind::HandoffOrphaned, now);
        event.data["handoff"] = number.into();
        event.data["handoff_state"] = state.word().into();
        event.data["transport"] = transport.into();
        let mut effects = Effects::done();
        effects.events.push(event);
        effects
    }

    /// Ends an orphan that waited for as long as any handoff is tried.
    pub(super) fn give_up_orphan(&mut self, number: u16, transport: &str, max_age_ms: i64, now: Time) -> Effects {
        let over = |h: &&mut Handoff| h.transport == transport && h.orphan_is_over(max_age_ms, now);
        let Some(handoff) = self.handoff(number).filter(over) else {
            return Effects::of(Verdict::Stale);
        };
        // The steps between are taken in one commit: nobody holds it, and nobody can.
        if handoff.state == State::Scheduled {
            handoff.step(Step::Due, now).ok();
        }
        handoff.step(Step::Lease, now).ok();
        handoff.fence += 1;
        let why = format!("given up: no transport named `{transport}` was configured for {} s", max_age_ms / 1000);
        handoff.work.reason = Some(why.clone());
        let kind = handoff.give_up(now);
        let mut effects = Effects::done();
        let reply = Reply::new(Meaning::Fault, Phase::Connect, None, &why);
        effects.events.push(self.told(Some(kind), number, &reply, now));
        effects
    }

    /// Moves what waits for a transport to other envelopes, as an operator asks. Handoffs keep their numbers where the new
    /// transport takes the same recipients together; otherwise the whole email is divided anew, if nothing of it left.
    pub(super) fn relocate(&mut self, from: &str, envelopes: &[Envelope], now: Time) -> Effects {
        let movable: Vec<&Handoff> = self.handoffs.iter().filter(|h| h.may_move(from)).collect();
        let numbers: Vec<u16> = movable.iter().map(|h| h.number).collect();
        let fits = |h: &&&Handoff| envelopes.iter().find(|envelope| same_people(envelope, h));
        let Some(to) = movable.iter().map(|h| fits(&h).map(|envelope| envelope.transport.clone())).collect() else {
            return self.divide_anew(from, envelopes, &numbers, now);
        };
        let to: Vec<String> = to;
        if to.is_empty() {
            return Effects::of(Verdict::Stale);
        }
        for (number, to) in numbers.iter().zip(to) {
            if let Some(handoff) = self.handoff(*number) {
                handoff.transport = to;
                (handoff.work.orphaned, handoff.work.reason) = (None, None);
            }
        }
        let mut effects = Effects::done();
        self.report_move(from, envelopes, &numbers, &mut effects, now);
        effects
    }

    fn divide_anew(&mut self, from: &str, envelopes: &[Envelope], numbers: &[u16], now: Time) -> Effects {
        let mut effects = self.redirect(from, envelopes, now);
        if effects.verdict == Verdict::Done {
            self.report_move(from, envelopes, numbers, &mut effects, now);
        }
        effects
    }

    fn report_move(&mut self, from: &str, envelopes: &[Envelope], numbers: &[u16], effects: &mut Effects, now: Time) {
        let mut to: Vec<&str> = envelopes.iter().map(|envelope| envelope.transport.as_str()).collect();
        to.dedup();
        let mut event = self.changed(Kind::HandoffRerouted, now);
        event.data["handoffs"] = json!(numbers);
        event.data["from"] = from.into();
        event.data["to"] = json!(to);
        effects.events.push(event);
    }
}

/// Whether an envelope goes to exactly the people of a handoff.
fn same_people(envelope: &Envelope, handoff: &Handoff) -> bool {
    let sorted = |people: &[String]| {
        let mut people = people.to_vec();
        people.sort_unstable();
        people
    };
    sorted(&envelope.recipients) == sorted(&handoff.recipients)
}
