//! P17: a side effect begins at most once per key, unless somebody allowed another, and what a worker reports is kept.

use crate::proof::claim_history::{ClaimCall, ClaimCallKind, ClaimEffect, ClaimReply, ClaimRow};
use crate::proof::history_index::HistoryIndex;
use crate::proof::invariants::Rule;
use crate::proof::violation::{Violation, ViolationSubject};
use std::collections::{BTreeMap, BTreeSet};

/// How long after the end of its lease the policy `retry` frees a claim, in milliseconds.
const POLICY_PAUSE_MS: i64 = 10 * 60_000;
/// The fault that makes times incomparable.
const CLOCK_JUMP: &str = "clock-jump";

/// The calls, side effects and final row of one claim key.
#[derive(Default)]
struct KeyHistory<'a> {
    calls: Vec<&'a ClaimCall>,
    effects: Vec<&'a ClaimEffect>,
    row: Option<&'a ClaimRow>,
}

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let history = &view.history.claims;
    let mut keys: BTreeMap<(&str, &str), KeyHistory<'_>> = BTreeMap::new();
    for call in &history.calls {
        keys.entry((&call.team, &call.key)).or_default().calls.push(call);
    }
    for effect in &history.effects {
        keys.entry((&effect.team, &effect.key)).or_default().effects.push(effect);
    }
    for row in &history.claims {
        keys.entry((&row.team, &row.key)).or_default().row = Some(row);
    }
    for ((team, key), one) in &keys {
        let mut broken = Vec::new();
        one.check_effects(&mut broken);
        one.check_grants(view, &mut broken);
        one.check_failures(&mut broken);
        one.check_commands(&mut broken);
        one.check_facts(&mut broken);
        one.check_results(&mut broken);
        one.check_fingerprints(&mut broken);
        if view.history.healed {
            one.check_end(&mut broken);
        }
        one.check_events(view, &mut broken);
        let subject = ViolationSubject::key(team, key);
        found.extend(broken.into_iter().map(|(rule, why)| view.violation(rule, key, why, &subject)));
    }
}

/// The broken rules, each with an explanation.
type BrokenRules = Vec<(Rule, String)>;

impl ClaimCall {
    /// Whether this call may have freed the claim after a worker had begun.
    fn may_have_freed_claim(&self) -> bool {
        let asks = match &self.kind {
            ClaimCallKind::Fail { retryable, .. } => *retryable,
            ClaimCallKind::Resolve(choice) => choice == "retry",
            _ => false,
        };
        asks && !matches!(self.reply, ClaimReply::Refused(_))
    }

    fn grant(&self) -> Option<(u64, bool)> {
        match self.reply {
            ClaimReply::Won { fence, may_repeat } => Some((fence, may_repeat)),
            _ => None,
        }
    }

    /// Whether it ended before this position.
    fn ended_before(&self, at: u64) -> bool {
        self.ended.is_some_and(|ended| ended < at)
    }
}

impl KeyHistory<'_> {
    /// Whether any worker asked for the policy `retry`.
    fn may_retry_by_policy(&self) -> bool {
        let retries =
            |call: &ClaimCall| matches!(&call.kind, ClaimCallKind::Acquire { on_unknown, .. } if on_unknown == "retry");
        self.calls.iter().any(|call| retries(call))
    }

    /// The permissions for another side effect that somebody gave before this position. A worker that fails gives back only
    /// the beginning that it had itself: without a side effect of its own it permits none.
    fn permissions_before(&self, at: u64) -> usize {
        let permits = |call: &ClaimCall| match call.kind {
            ClaimCallKind::Fail { fence, .. } => self.effects.iter().any(|effect| effect.fence == fence),
            _ => true,
        };
        self.calls.iter().filter(|call| call.may_have_freed_claim() && call.at < at && permits(call)).count()
    }

    /// Each further beginning needs a permission of its own: a retryable failure, a person's decision, or the policy.
    fn check_effects(&self, broken: &mut BrokenRules) {
        let by_policy = usize::from(self.may_retry_by_policy());
        for (before, effect) in self.effects.iter().enumerate() {
            let allowed = 1 + by_policy + self.permissions_before(effect.at);
            if before >= allowed {
                let why = format!("{} began it, the {}th of {allowed} allowed", effect.worker, before + 1);
                broken.push((Rule::EffectTwice, why));
            }
        }
    }

    /// A lease belongs to one worker, has a new fence, and follows the policy's pause and flag if nobody else freed the
    /// claim.
    fn check_grants(&self, view: &HistoryIndex<'_>, broken: &mut BrokenRules) {
        let times_count = !view.history.faults.iter().any(|fault| fault.kind == CLOCK_JUMP);
        let mut owners: BTreeMap<u64, &str> = BTreeMap::new();
        for call in &self.calls {
            let Some((fence, may_repeat)) = call.grant() else { continue };
            if *owners.entry(fence).or_insert(&call.caller) != call.caller {
                broken.push((Rule::ClaimShared, format!("{} and {} have fence {fence}", owners[&fence], call.caller)));
            }
            let begun = |effect: &ClaimEffect| effect.fence < fence && effect.at < call.at;
            let Some(earlier) = self.effects.iter().rfind(|effect| begun(effect)) else { continue };
            if self.permissions_before(call.ended.unwrap_or(u64::MAX)) > 0 {
                continue;
            }
            if !may_repeat {
                broken.push((Rule::RepeatUnflagged, format!("{} is not told about {}", call.caller, earlier.worker)));
            }
            let lease_end = self.earliest_lease_end(earlier.fence);
            if times_count && lease_end.is_some_and(|end| call.ended_ms < end + POLICY_PAUSE_MS) {
                broken.push((Rule::FreedTooSoon, format!("{} has it at {} ms", call.caller, call.ended_ms)));
            }
        }
    }

    /// The earliest time at which the lease with this fence can have ended.
    fn earliest_lease_end(&self, fence: u64) -> Option<i64> {
        let ends = self.calls.iter().filter_map(|call| match (&call.kind, call.grant()) {
            (ClaimCallKind::Acquire { lease_ms, .. }, Some((own, _))) if own == fence => {
                Some(call.started_ms + lease_ms)
            }
            (ClaimCallKind::Renew { fence: own, lease_ms }, _) if *own == fence => Some(call.started_ms + lease_ms),
            _ => None,
        });
        // A repeated call gets the lease of the first, and a worker may shorten its lease.
        ends.min()
    }

    /// After a final failure only a person lets somebody try again.
    fn check_failures(&self, broken: &mut BrokenRules) {
        let is_final = |call: &ClaimCall| {
            matches!(call.kind, ClaimCallKind::Fail { retryable: false, .. }) && call.reply == ClaimReply::Recorded
        };
        let by_person =
            |call: &ClaimCall| matches!(call.kind, ClaimCallKind::Resolve(_)) && call.may_have_freed_claim();
        for grant in self.calls.iter().filter(|call| call.grant().is_some()) {
            let failed = self.calls.iter().find(|call| is_final(call) && call.ended_before(grant.at));
            let allowed = self.calls.iter().any(|call| by_person(call) && Some(call.at) < grant.ended);
            if let Some(failed) = failed.filter(|_| !allowed) {
                let why = format!("{} has it after {} failed for good", grant.caller, failed.caller);
                broken.push((Rule::FailureIgnored, why));
            }
        }
    }

    /// A command under an old fence is refused.
    fn check_commands(&self, broken: &mut BrokenRules) {
        for call in self.calls.iter().filter(|call| call.reply == ClaimReply::Recorded) {
            let (fence, continues) = match call.kind {
                ClaimCallKind::Begin(fence) | ClaimCallKind::Renew { fence, .. } => (fence, true),
                // A repeated failure is answered as the first one, also after the end of the claim.
                ClaimCallKind::Fail { fence, .. } => (fence, false),
                _ => continue,
            };
            let newer = |other: &ClaimCall| {
                other.ended_before(call.at) && other.grant().is_some_and(|(granted, _)| granted > fence)
            };
            if let Some(newer) = self.calls.iter().find(|other| newer(other)) {
                let why = format!("{} was obeyed under fence {fence} after {} got it", call.caller, newer.caller);
                broken.push((Rule::StaleClaimObeyed, why));
            }
            let ended = |other: &ClaimCall| {
                other.ended_before(call.at)
                    && other.reply == ClaimReply::Recorded
                    && matches!(other.kind, ClaimCallKind::Complete(..))
            };
            if let Some(done) = self.calls.iter().find(|other| continues && ended(other)) {
                broken.push((
                    Rule::StaleClaimObeyed,
                    format!("{} goes on after {} completed it", call.caller, done.caller),
                ));
            }
        }
    }

    /// A completion is recorded whenever it comes.
    fn check_facts(&self, broken: &mut BrokenRules) {
        for call in &self.calls {
            let is_fact = matches!(call.kind, ClaimCallKind::Complete(..) | ClaimCallKind::Found(_));
            if let (true, ClaimReply::Refused(code)) = (is_fact, &call.reply) {
                broken.push((Rule::FactRefused, format!("{} got {code}", call.caller)));
            }
            let told = is_fact && call.reply == ClaimReply::Recorded;
            if told && self.row.is_none_or(|row| row.state != "completed") {
                let state = self.row.map_or("missing", |row| row.state.as_str());
                broken.push((Rule::CompletionLost, format!("{} completed it, and it is {state}", call.caller)));
            }
        }
    }

    /// Every caller gets the same result, and a worker reported it.
    fn check_results(&self, broken: &mut BrokenRules) {
        let mut reported: BTreeSet<&str> = BTreeSet::new();
        for call in &self.calls {
            if let ClaimCallKind::Complete(_, result) | ClaimCallKind::Found(result) = &call.kind {
                reported.insert(result);
            }
        }
        let answers = self.calls.iter().filter_map(|call| match &call.reply {
            ClaimReply::Ended { state, result } if state == "completed" => result.as_deref(),
            _ => None,
        });
        let results: BTreeSet<&str> = answers.chain(self.row.and_then(|row| row.result.as_deref())).collect();
        if results.len() > 1 || !results.is_subset(&reported) {
            broken.push((Rule::OtherResult, format!("{results:?} of {reported:?}")));
        }
    }

    /// Only calls with the fingerprint of the claim get it or its result.
    fn check_fingerprints(&self, broken: &mut BrokenRules) {
        let Some(row) = self.row.filter(|row| !row.fingerprint.is_empty()) else { return };
        for call in &self.calls {
            let ClaimCallKind::Acquire { fingerprint, .. } = &call.kind else { continue };
            let got = matches!(call.reply, ClaimReply::Won { .. } | ClaimReply::Ended { .. });
            let mismatched = call.reply == ClaimReply::Refused("key_mismatch".into());
            let same = fingerprint.is_empty() || *fingerprint == row.fingerprint;
            if (got && !same) || (mismatched && same) {
                broken.push((Rule::WrongFingerprint, format!("{} with `{fingerprint}`", call.caller)));
            }
        }
    }

    /// After all faults ended no worker has the claim, and a person is asked about what nobody knows.
    fn check_end(&self, broken: &mut BrokenRules) {
        let Some(row) = self.row else {
            if self.calls.iter().any(|call| call.grant().is_some()) {
                broken.push((Rule::CompletionLost, "there is no such claim".into()));
            }
            return;
        };
        if row.leased && matches!(row.state.as_str(), "claimed" | "begun") {
            broken.push((Rule::ClaimStuck, format!("{} is {}", row.id, row.state)));
        }
        if row.state == "unknown" && !row.escalated {
            broken.push((Rule::ClaimStuck, format!("nobody is asked about {}", row.id)));
        }
    }

    /// Each change has one event, each beginning has one, and the last event names the state.
    fn check_events(&self, view: &HistoryIndex<'_>, broken: &mut BrokenRules) {
        let Some(row) = self.row.filter(|_| !view.history.events.is_empty()) else { return };
        let events: Vec<_> = view.history.events.iter().filter(|event| event.about == row.id).collect();
        if !events.is_sorted_by(|a, b| a.rev < b.rev) {
            let revs: Vec<u32> = events.iter().map(|event| event.rev).collect();
            broken.push((Rule::ClaimEvents, format!("{} has events at {revs:?}", row.id)));
        }
        let begun = events.iter().filter(|event| event.kind == "claim.begun").count();
        let fences: BTreeSet<u64> = self.effects.iter().map(|effect| effect.fence).collect();
        if begun < fences.len() {
            broken.push((Rule::ClaimEvents, format!("{} beginnings and {begun} events", fences.len())));
        }
        let last = events.iter().rev().find(|event| event.kind != "claim.evidence").map(|event| event.kind.as_str());
        let expected: &[&str] = match row.state.as_str() {
            "claimed" => &["claim.offered", "claim.claimed", "claim.freed", "claim.resolved"],
            "begun" => &["claim.begun"],
            "completed" => &["claim.completed", "claim.resolved"],
            "failed" => &["claim.failed"],
            "unknown" => &["claim.unknown"],
            _ => &["claim.resolved"],
        };
        if last.is_none_or(|last| !expected.contains(&last)) {
            broken.push((Rule::ClaimEvents, format!("{} is {} after {last:?}", row.id, row.state)));
        }
    }
}
