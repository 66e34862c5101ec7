//! Commands and facts about a claim. A fact is recorded in every state; a command needs the latest token.

use serde_json::json;

use super::{
    Claim, ClaimChange, ClaimClock, ClaimDecision, ClaimEvidence, ClaimFailure, ClaimReport, ClaimResolution,
    ClaimState, ClaimToken, KEPT_REPORTS, RepeatCause, ResultPresence,
};
use crate::{
    control::{
        audit::act::Act,
        stop::{Stop, Stops},
    },
    events::event::{EventKind, NewEvent},
    id::ApiKeyId,
    mutant,
};

/// A result that a caller reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReportedResult {
    /// None.
    #[default]
    None,
    /// The bytes to store.
    Stored(Vec<u8>),
    /// It is too large to store.
    Omitted,
}

/// A command or a fact about a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimAction {
    /// Command: the holder begins the side effect.
    Begin {
        /// Its token.
        token: ClaimToken,
        /// The API key of the call.
        by: Option<ApiKeyId>,
    },
    /// Command: the holder needs more time. Brings a claim back whose holder only seemed lost.
    Renew {
        /// Its token.
        token: ClaimToken,
        /// The duration of the lease from now, in milliseconds.
        lease_ms: i64,
    },
    /// Fact: the side effect happened.
    Complete {
        /// The token of any lease of this claim.
        token: ClaimToken,
        /// What it returned.
        result: ReportedResult,
    },
    /// Command: the side effect surely did not happen.
    Fail {
        /// The token of the holder.
        token: ClaimToken,
        /// Whether the next caller may try again.
        retryable: bool,
        /// Why.
        reason: String,
    },
    /// Fact: what a look-up says.
    Evidence {
        /// What it says.
        says: ClaimEvidence,
        /// What the side effect returned.
        result: ReportedResult,
        /// The API key of the call.
        by: Option<ApiKeyId>,
    },
    /// Command: a person decides about an unknown claim.
    Resolve {
        /// The decision.
        resolution: ClaimResolution,
        /// The revision that the person saw. `None`: whichever it is.
        rev: Option<u32>,
        /// What the side effect returned.
        result: ReportedResult,
        /// The API key of the call.
        by: Option<ApiKeyId>,
    },
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimRefusal {
    /// The token is not that of the latest lease.
    StaleToken,
    /// The claim has ended.
    Ended,
    /// The outcome is not unknown.
    NotUnknown,
    /// The claim changed since the caller read it.
    StaleRev,
    /// A stop keeps it from beginning.
    Stopped(Stop),
}

/// Whether an action was applied.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimActionStatus {
    /// It was applied, or had been before.
    Applied,
    /// It was refused.
    Refused(ClaimRefusal),
}

/// The result of an action.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum ClaimActionResult {
    /// Whether it was applied, and the claim afterwards.
    Done(ClaimActionStatus, Box<Claim>),
    /// The team has no such claim.
    Missing,
}

use ClaimActionStatus::{Applied, Refused};

type ActionOutcome = (ClaimActionStatus, Option<NewEvent>, Option<Vec<u8>>);

fn refuse(refusal: ClaimRefusal) -> ActionOutcome {
    (Refused(refusal), None, None)
}

impl ClaimAction {
    /// The act that the audit log records about it. `None` for the actions of programs.
    pub fn act(&self, claim: &Claim) -> Option<Act> {
        let Self::Resolve { resolution, .. } = self else { return None };
        Some(Act::of_resolved_claim(claim, *resolution))
    }

    /// Whether a stop can refuse it. Its transaction then excludes new stops.
    pub fn is_stoppable(&self) -> bool {
        matches!(self, Self::Begin { .. })
    }
}

impl Claim {
    /// Applies an action.
    pub fn apply(mut self, action: ClaimAction, stops: &Stops, clock: ClaimClock) -> ClaimChange<ClaimActionStatus> {
        let rev = self.rev;
        let mut events = self.apply_deadlines(clock);
        let (answer, event, new_result) = match action {
            ClaimAction::Begin { token, by } => self.begin(token, by, stops, clock),
            ClaimAction::Renew { token, lease_ms } => self.renew(token, lease_ms, clock),
            ClaimAction::Complete { token, result } => self.complete(token, result, clock),
            ClaimAction::Fail { token, retryable, reason } => self.fail(token, (retryable, reason), clock),
            ClaimAction::Evidence { says, result, by } => self.record_evidence(says, result, by, clock),
            ClaimAction::Resolve { resolution, rev, result, by } => self.resolve((resolution, rev), result, by, clock),
        };
        events.extend(event);
        ClaimChange { answer, new_result, new_payload: None, is_changed: self.rev != rev, events, claim: Some(self) }
    }

    fn begin(&mut self, token: ClaimToken, by: Option<ApiKeyId>, stops: &Stops, clock: ClaimClock) -> ActionOutcome {
        if self.is_ended() {
            return refuse(ClaimRefusal::Ended);
        }
        if !self.is_latest(token) {
            return refuse(ClaimRefusal::StaleToken);
        }
        if mutant!("claim-beginning-unsaved") {
            return (Applied, None, None);
        }
        match self.state {
            ClaimState::Begun => return (Applied, None, None),
            ClaimState::Claimed => {}
            // It began, and its lease ended. Renewing it tells that the holder is still there.
            _ => return refuse(ClaimRefusal::StaleToken),
        }
        let holder = self.lease.as_ref().and_then(|lease| lease.api_key);
        if let Some(stop) = stops.stop_for_claim(self.team, &[holder, by]) {
            return refuse(ClaimRefusal::Stopped(stop.clone()));
        }
        self.state = ClaimState::Begun;
        (Applied, Some(self.changed(EventKind::ClaimBegun, clock.now, &json!({}))), None)
    }

    fn renew(&mut self, token: ClaimToken, lease_ms: i64, clock: ClaimClock) -> ActionOutcome {
        if self.is_ended() {
            return refuse(ClaimRefusal::Ended);
        }
        if !self.is_latest(token) {
            return refuse(ClaimRefusal::StaleToken);
        }
        if let Some(lease) = &mut self.lease {
            lease.expires_at = clock.now.plus(lease_ms);
        }
        if self.state == ClaimState::Unknown {
            self.state = ClaimState::Begun;
            self.retry_at = None;
            return (
                Applied,
                Some(self.changed(EventKind::ClaimBegun, clock.now, &json!({ "reason": "renewed" }))),
                None,
            );
        }
        self.rev += 1;
        (Applied, None, None)
    }

    fn complete(&mut self, token: ClaimToken, result: ReportedResult, clock: ClaimClock) -> ActionOutcome {
        let is_known = self.completed_by.contains(&token.fence);
        let is_in_time = self.is_latest(token) && matches!(self.state, ClaimState::Claimed | ClaimState::Begun);
        let was_completed = self.state == ClaimState::Completed;
        #[cfg(feature = "failpoints")]
        if let Some(status) = super::mutants::late_completion(is_in_time) {
            return (status, None, None);
        }
        let presence = self.result;
        let new_result = self.store_first_result(result);
        if was_completed && is_known && new_result.is_none() && self.result == presence {
            return (Applied, None, None);
        }
        let repeats = !is_known && !self.completed_by.is_empty();
        if !is_known && self.completed_by.len() < KEPT_REPORTS {
            self.completed_by.push(token.fence);
        }
        if !was_completed {
            self.corrected = !is_in_time;
            self.end(ClaimState::Completed, clock.now);
        }
        let extra = if repeats { json!({ "repeated": true }) } else { json!({}) };
        (Applied, Some(self.changed(EventKind::ClaimCompleted, clock.now, &extra)), new_result)
    }

    /// Keeps the first result that was reported. Returns the bytes to store.
    fn store_first_result(&mut self, result: ReportedResult) -> Option<Vec<u8>> {
        match (self.result, result) {
            (presence, ReportedResult::Stored(bytes))
                if presence == ResultPresence::None || mutant!("claim-result-replaced") =>
            {
                self.result = ResultPresence::Stored;
                Some(bytes)
            }
            (ResultPresence::None, ReportedResult::Omitted) => {
                self.result = ResultPresence::Omitted;
                None
            }
            _ => None,
        }
    }

    fn fail(&mut self, token: ClaimToken, (retryable, reason): (bool, String), clock: ClaimClock) -> ActionOutcome {
        if self.failure.as_ref().is_some_and(|failure| failure.fence == token.fence) {
            return (Applied, None, None);
        }
        if self.is_ended() {
            return refuse(ClaimRefusal::Ended);
        }
        if !self.is_latest(token) {
            return refuse(ClaimRefusal::StaleToken);
        }
        let retryable = retryable || mutant!("claim-failure-always-frees");
        self.failure = Some(ClaimFailure { fence: token.fence, retryable, reason, at: clock.now });
        if retryable {
            self.state = ClaimState::Failed;
            self.set_free(clock.now);
        } else if self.repeat_cause == Some(RepeatCause::Policy) && !mutant!("claim-failure-hides-doubt") {
            // A failure settles its own attempt. An earlier one may have performed the side effect.
            self.state = ClaimState::Unknown;
            self.times_unknown += 1;
            self.lease = None;
            self.retry_at = None;
        } else {
            self.end(ClaimState::Failed, clock.now);
        }
        let kind = if self.state == ClaimState::Unknown { EventKind::ClaimUnknown } else { EventKind::ClaimFailed };
        (Applied, Some(self.changed(kind, clock.now, &json!({ "retryable": retryable }))), None)
    }

    fn record_evidence(
        &mut self,
        says: ClaimEvidence,
        result: ReportedResult,
        by: Option<ApiKeyId>,
        clock: ClaimClock,
    ) -> ActionOutcome {
        if self.reports.len() == KEPT_REPORTS {
            self.reports.remove(0);
        }
        self.reports.push(ClaimReport { at: clock.now, finding: says, by });
        if says == ClaimEvidence::NotFound {
            if self.state == ClaimState::Unknown && mutant!("claim-not-found-frees") {
                self.state = ClaimState::Claimed;
                self.set_free(clock.now);
            }
            return (Applied, Some(self.changed(EventKind::ClaimEvidence, clock.now, &json!({ "says": says }))), None);
        }
        let new_result = self.store_first_result(result);
        if self.state != ClaimState::Completed {
            self.corrected = self.state != ClaimState::Unknown;
            self.end(ClaimState::Completed, clock.now);
        }
        let event = self.changed(EventKind::ClaimCompleted, clock.now, &json!({ "says": says }));
        (Applied, Some(event), new_result)
    }

    fn resolve(
        &mut self,
        (resolution, rev): (ClaimResolution, Option<u32>),
        result: ReportedResult,
        by: Option<ApiKeyId>,
        clock: ClaimClock,
    ) -> ActionOutcome {
        if self.state != ClaimState::Unknown {
            return refuse(ClaimRefusal::NotUnknown);
        }
        if rev.is_some_and(|rev| rev != self.rev) && !mutant!("claim-stale-rev-obeyed") {
            return refuse(ClaimRefusal::StaleRev);
        }
        let new_result = match resolution {
            ClaimResolution::Done => {
                let new_result = self.store_first_result(result);
                self.end(ClaimState::Completed, clock.now);
                new_result
            }
            ClaimResolution::Retry => {
                self.state = ClaimState::Claimed;
                self.set_free(clock.now);
                (self.repeat_cause, self.failure) = (Some(RepeatCause::Person), None);
                None
            }
            ClaimResolution::Abandon => {
                self.end(ClaimState::Abandoned, clock.now);
                None
            }
        };
        self.decision = Some(ClaimDecision { resolution, at: clock.now, by });
        let event = self.changed(EventKind::ClaimResolved, clock.now, &json!({ "as": resolution }));
        (Applied, Some(event), new_result)
    }
}
