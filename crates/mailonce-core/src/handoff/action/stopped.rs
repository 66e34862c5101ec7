//! What stops change about leases and actions: nothing new is sent, and everything that is a fact is still recorded.

use super::{Effects, HandoffAction, HandoffActionStatus, LeaseRef};
use crate::{
    control::{
        budget::{BudgetUsage, Charge},
        stop::{Stop, StopRelease, Stops},
    },
    handoff::{HandoffState, Transition},
    id::StopId,
    outbound::email::Email,
    time::Time,
};

/// How long an unknown handoff waits, in milliseconds, before its stopped repeat is tried again.
const STOPPED_RETRY_DELAY_MS: i64 = 30_000;

/// What may forbid an action, as the transaction sees it.
#[derive(Clone, Copy, Debug)]
pub struct ActionLimits<'a> {
    /// The stops that may cover the email.
    pub stops: &'a Stops,
    /// The usage of the budgets that the action charges.
    pub usage: &'a BudgetUsage,
}

impl HandoffAction {
    /// The charges that it may add to budgets.
    pub fn charges(&self) -> &[Charge] {
        match self {
            Self::Release(release) => &release.charges,
            _ => &[],
        }
    }

    /// Whether a stop may forbid it. Facts, and decisions of people, are never forbidden.
    pub fn is_stoppable(&self) -> bool {
        matches!(
            self,
            Self::Mark { .. }
                | Self::RetryInWindow { .. }
                | Self::ResendByPolicy { .. }
                | Self::FailOverHandoff { .. }
                | Self::FailOverEmail { .. }
                | Self::GiveUpOrphan { .. }
        )
    }
}

impl Email {
    /// Parks a due handoff that a stop covers. Returns false if none does.
    pub fn park_if_stopped(&mut self, number: u16, stops: &Stops) -> bool {
        let Some(handoff) = self.handoffs.get(usize::from(number)).filter(|h| h.is_waiting()) else { return false };
        let Some(stop) = stops.parking_stop(self, handoff) else { return false };
        self.handoffs[usize::from(number)].parked_by = Some(stop);
        true
    }

    /// Returns a parked handoff to its transport's queue. The time under the stop does not count against its retries.
    /// Returns false if this stop did not park it.
    pub fn release_parked(&mut self, number: u16, stop: StopId, release: &StopRelease, now: Time) -> bool {
        let parked = self.handoff_mut(number).filter(|handoff| handoff.parked_by == Some(stop));
        let Some(handoff) = parked else { return false };
        handoff.parked_by = None;
        let waited_ms = handoff.due_at.map_or(0, |due| now.since(due).max(0));
        handoff.progress.first_attempt_at = handoff.progress.first_attempt_at.map(|at| at.plus(waited_ms).min(now));
        handoff.progress.transport_missing_since = None;
        handoff.due_at = release.next_due(handoff.due_at, now);
        true
    }

    /// Applies an action, unless a stop or a budget forbids it.
    pub fn apply_limited_action(&mut self, act: &HandoffAction, limits: &ActionLimits<'_>, now: Time) -> Effects {
        let stop = self.stop_for_action(act, limits.stops).map(|stop| stop.id);
        match (stop, act) {
            (_, HandoffAction::Release(release)) => self.release_hold(release, limits.usage, now),
            (None, _) => self.apply_action(act, now),
            (Some(stop), HandoffAction::Mark { lease, .. }) => self.park_leased(lease, stop, now),
            (Some(stop), HandoffAction::RetryInWindow { number, .. } | HandoffAction::ResendByPolicy { number }) => {
                self.postpone_repeat(*number, stop, now)
            }
            (Some(stop), _) => Effects::from_status(HandoffActionStatus::Stopped(stop)),
        }
    }

    /// The stop that forbids an action. See [`HandoffAction::is_stoppable`].
    fn stop_for_action<'a>(&self, act: &HandoffAction, stops: &'a Stops) -> Option<&'a Stop> {
        let number = match act {
            HandoffAction::Mark { lease, .. } => lease.number,
            HandoffAction::RetryInWindow { number, .. }
            | HandoffAction::ResendByPolicy { number }
            | HandoffAction::GiveUpOrphan { number, .. } => *number,
            // Email neither leaves a stopped transport nor comes to one.
            HandoffAction::FailOverHandoff { from, to, .. } => {
                return stops.stop_for_handoff(self, from).or_else(|| stops.stop_for_handoff(self, to));
            }
            HandoffAction::FailOverEmail { from, envelopes } => {
                let to = envelopes.first().map_or(from, |envelope| &envelope.transport);
                return stops.stop_for_handoff(self, from).or_else(|| stops.stop_for_handoff(self, to));
            }
            _ => return None,
        };
        let handoff = self.handoffs.get(usize::from(number))?;
        stops.stop_for_handoff(self, &handoff.transport)
    }

    /// Takes a handoff back from the worker that is about to send it.
    fn park_leased(&mut self, lease: &LeaseRef, stop: StopId, now: Time) -> Effects {
        let Some(handoff) = self.leased_handoff_mut(lease).filter(|h| h.state == HandoffState::Leased) else {
            return Effects::from_status(HandoffActionStatus::Stale);
        };
        if handoff.is_in_window_retry() {
            handoff.become_unknown_from_any(now);
            handoff.due_at = Some(now.plus(STOPPED_RETRY_DELAY_MS));
        } else if handoff.apply_transition(Transition::Lapse, now).is_ok() {
            handoff.parked_by = Some(stop);
        }
        self.rev += 1;
        Effects { changed: true, ..Effects::from_status(HandoffActionStatus::Stopped(stop)) }
    }

    fn postpone_repeat(&mut self, number: u16, stop: StopId, now: Time) -> Effects {
        let Some(handoff) = self.handoff_mut(number).filter(|h| h.state == HandoffState::Unknown) else {
            return Effects::from_status(HandoffActionStatus::Stale);
        };
        handoff.due_at = Some(now.plus(STOPPED_RETRY_DELAY_MS));
        Effects { changed: true, ..Effects::from_status(HandoffActionStatus::Stopped(stop)) }
    }
}
