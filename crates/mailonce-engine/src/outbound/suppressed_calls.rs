//! Suppressed calls: calls that created no email. They are counted in memory and written once a second, so that a
//! replay needs no commit of its own.

use crate::{access::caller::Caller, outbound::Outbound};
use mailonce_core::{
    id::{EmailId, TeamId},
    limits,
    outbound::suppressed_call::{SuppressedCall, SuppressedCalls, SuppressedReason},
    time::Time,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

#[derive(Default)]
struct PendingSuppressedCalls {
    count: u64,
    latest: VecDeque<SuppressedCall>,
}

/// Calls that are not written yet. Bounded by the keys that can be answered without the store: those in the replay
/// cache.
#[derive(Default)]
pub(crate) struct SuppressedCallBuffer(Mutex<BTreeMap<(TeamId, EmailId), PendingSuppressedCalls>>);

impl SuppressedCallBuffer {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(TeamId, EmailId), PendingSuppressedCalls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call. Returns how many calls of this email are not written yet, this one included.
    pub(crate) fn record(&self, team: TeamId, email: EmailId, call: SuppressedCall) -> u64 {
        let mut waiting = self.lock();
        let pending = waiting.entry((team, email)).or_default();
        pending.count += 1;
        if pending.latest.len() == limits::SUPPRESSED_CALLS_KEPT {
            pending.latest.pop_front();
        }
        pending.latest.push_back(call);
        pending.count
    }

    /// Takes all unwritten calls.
    pub(crate) fn drain(&self) -> Vec<SuppressedCalls> {
        let waiting = std::mem::take(&mut *self.lock());
        let to_calls = |((team, email), pending): ((TeamId, EmailId), PendingSuppressedCalls)| SuppressedCalls {
            team,
            email,
            count: pending.count,
            latest: pending.latest.into(),
        };
        waiting.into_iter().map(to_calls).collect()
    }

    /// Puts back calls that could not be written.
    pub(crate) fn restore(&self, unwritten: Vec<SuppressedCalls>) {
        let mut waiting = self.lock();
        for calls in unwritten {
            let pending = waiting.entry((calls.team, calls.email)).or_default();
            pending.count += calls.count;
            for call in calls.latest.into_iter().rev() {
                if pending.latest.len() < limits::SUPPRESSED_CALLS_KEPT {
                    pending.latest.push_front(call);
                }
            }
        }
    }
}

impl Outbound {
    /// Counts a call that was answered with an earlier email. Returns how many calls wait for the next flush.
    pub(crate) fn record_suppressed_call(
        &self,
        caller: &Caller,
        email: EmailId,
        reason: SuppressedReason,
        now: Time,
    ) -> u64 {
        self.suppressed_calls.record(caller.team.id, email, caller.suppressed_call(reason, now))
    }

    /// Writes the suppressed calls counted since the last flush.
    pub async fn flush_suppressed_calls(&self) {
        let calls = self.suppressed_calls.drain();
        if calls.is_empty() {
            return;
        }
        if let Err(error) = self.ctx.store.record_suppressed_calls(calls.clone(), self.ctx.now()).await {
            tracing::warn!(%error, "cannot write suppressed calls; retrying with the next flush");
            self.suppressed_calls.restore(calls);
        }
    }
}
