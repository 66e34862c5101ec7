//! Forged claims: P17.

use crate::valid_history::{HistoryBuilder, broken_rules};
use mailonce_sim::crash::verdict::SecondVerdict;
use mailonce_sim::proof::Rule;
use mailonce_sim::proof::history::{ClaimCall, ClaimCallKind, ClaimEffect, ClaimHistory, ClaimReply, ClaimRow, Event};
use std::path::Path;

pub(crate) const FORGED: &[Rule] = &[
    Rule::EffectTwice,
    Rule::ClaimShared,
    Rule::FreedTooSoon,
    Rule::RepeatUnflagged,
    Rule::StaleClaimObeyed,
    Rule::FailureIgnored,
    Rule::FactRefused,
    Rule::CompletionLost,
    Rule::OtherResult,
    Rule::WrongFingerprint,
    Rule::ClaimStuck,
    Rule::ClaimEvents,
];

const LEASE_MS: i64 = 60_000;
const PAUSE_MS: i64 = 600_000;

fn acquire(on_unknown: &str) -> ClaimCallKind {
    ClaimCallKind::Acquire { on_unknown: on_unknown.into(), fingerprint: "paper".into(), lease_ms: LEASE_MS }
}

fn won(fence: u64, may_repeat: bool) -> ClaimReply {
    ClaimReply::Won { fence, may_repeat }
}

fn completed(result: &str) -> ClaimReply {
    ClaimReply::Ended { state: "completed".into(), result: Some(result.into()) }
}

/// Adds a call at the next position and this time.
fn call(history: &mut ClaimHistory, now: i64, (caller, key): (&str, &str), kind: ClaimCallKind, reply: ClaimReply) {
    let at = 10 * (history.calls.len() + history.effects.len() + 1) as u64;
    history.calls.push(ClaimCall {
        at,
        started_ms: now,
        ended: Some(at + 1),
        ended_ms: now,
        team: "ours".into(),
        key: key.into(),
        caller: caller.into(),
        kind,
        reply,
    });
}

fn effect(history: &mut ClaimHistory, worker: &str, key: &str, fence: u64) {
    let at = 10 * (history.calls.len() + history.effects.len() + 1) as u64;
    history.effects.push(ClaimEffect { at, team: "ours".into(), key: key.into(), worker: worker.into(), fence });
}

fn row(id: &str, key: &str, state: &str, result: Option<&str>) -> ClaimRow {
    ClaimRow {
        id: id.into(),
        team: "ours".into(),
        key: key.into(),
        state: state.into(),
        fingerprint: "paper".into(),
        result: result.map(str::to_owned),
        escalated: state == "unknown",
        ..ClaimRow::default()
    }
}

/// One claim is completed and asked for again; one is freed by the policy; one is unknown; one failed.
pub(crate) fn add_claims(scribe: &mut HistoryBuilder) {
    let mut claims = ClaimHistory::default();
    let plain = ("one", "plain");
    call(&mut claims, 0, plain, acquire("hold"), ClaimReply::None);
    call(&mut claims, 0, plain, acquire("hold"), won(1, false));
    call(&mut claims, 0, ("two", "plain"), acquire("hold"), ClaimReply::Refused("busy".into()));
    effect(&mut claims, "one", "plain", 1);
    call(&mut claims, 0, plain, ClaimCallKind::Complete(1, "r1".into()), ClaimReply::Recorded);
    call(&mut claims, 0, ("two", "plain"), acquire("hold"), completed("r1"));
    call(&mut claims, 0, ("one", "policy"), acquire("retry"), won(1, false));
    effect(&mut claims, "one", "policy", 1);
    call(&mut claims, LEASE_MS + PAUSE_MS, ("two", "policy"), acquire("retry"), won(2, true));
    effect(&mut claims, "two", "policy", 2);
    call(&mut claims, 0, ("one", "lost"), acquire("hold"), won(1, false));
    effect(&mut claims, "one", "lost", 1);
    call(&mut claims, 0, ("one", "failed"), acquire("hold"), won(1, false));
    call(&mut claims, 0, ("one", "failed"), ClaimCallKind::Fail { fence: 1, retryable: false }, ClaimReply::Recorded);
    claims.claims = vec![
        row("c1", "plain", "completed", Some("r1")),
        row("c2", "policy", "unknown", None),
        row("c3", "lost", "unknown", None),
        row("c4", "failed", "failed", None),
    ];
    scribe.history.claims = claims;
    let events = [
        ("c1", &["claim.begun", "claim.completed"][..]),
        ("c2", &["claim.begun", "claim.unknown", "claim.freed", "claim.begun", "claim.unknown"]),
        ("c3", &["claim.begun", "claim.unknown"]),
        ("c4", &["claim.begun", "claim.failed"]),
    ];
    for (id, kinds) in events {
        for (rev, kind) in (1..).zip(kinds) {
            let seq = 1 + scribe.history.events.iter().filter(|event| event.team == "ours").count() as u64;
            scribe.history.events.push(Event {
                team: "ours".into(),
                seq,
                id: format!("{id}-{rev}"),
                kind: (*kind).to_owned(),
                about: id.into(),
                rev,
                ..Event::default()
            });
        }
    }
}

/// The rules that a forged history breaks. The second checker must agree whether there are any.
fn broken(forge: impl FnOnce(&mut ClaimHistory)) -> Vec<Rule> {
    let mut second = None;
    let rules = broken_rules(|scribe| {
        forge(&mut scribe.history.claims);
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/prove-claims");
        second = SecondVerdict::of_claims(&program, &scribe.history.claims).ok();
    });
    let second = second.expect("the second checker ran");
    // It does not compare times.
    let is_judged_twice = |rule: &Rule| *rule != Rule::FreedTooSoon;
    assert_eq!(second.holds.contains("P17"), !rules.iter().any(is_judged_twice), "{rules:?}: {}", second.output);
    rules
}

#[test]
fn a_second_beginning_needs_a_permission() {
    assert_eq!(broken(|claims| effect(claims, "two", "plain", 1)), [Rule::EffectTwice]);
    let retry = ClaimCallKind::Resolve("retry".into());
    let refused = |claims: &mut ClaimHistory| {
        call(claims, 0, ("a person", "lost"), retry.clone(), ClaimReply::Refused("stale_rev".into()));
        effect(claims, "two", "lost", 1);
    };
    assert_eq!(broken(refused), [Rule::EffectTwice]);
    let allowed = |claims: &mut ClaimHistory| {
        call(claims, 0, ("a person", "lost"), retry.clone(), ClaimReply::Recorded);
        effect(claims, "two", "lost", 1);
    };
    assert_eq!(broken(allowed), []);
    // A worker that failed without a side effect does not permit two.
    let failed = ClaimCallKind::Fail { fence: 2, retryable: true };
    let unused = |claims: &mut ClaimHistory| {
        call(claims, 0, ("two", "lost"), failed.clone(), ClaimReply::Recorded);
        effect(claims, "three", "lost", 1);
    };
    assert_eq!(broken(unused), [Rule::EffectTwice]);
}

#[test]
fn a_lease_has_one_holder_and_the_policy_waits_and_warns() {
    let shared = broken(|claims| claims.calls[2].reply = won(1, false));
    assert_eq!(shared, [Rule::ClaimShared]);
    let second = |claims: &mut ClaimHistory| {
        claims.calls.iter().position(|call| call.key == "policy" && call.caller == "two").unwrap()
    };
    let soon = broken(|claims| {
        let index = second(claims);
        claims.calls[index].ended_ms = LEASE_MS + PAUSE_MS - 1;
    });
    assert_eq!(soon, [Rule::FreedTooSoon]);
    let silent = broken(|claims| {
        let index = second(claims);
        claims.calls[index].reply = won(2, false);
    });
    assert_eq!(silent, [Rule::RepeatUnflagged]);
}

#[test]
fn old_tokens_are_refused_and_a_final_failure_stands() {
    let stale = broken(|claims| {
        call(claims, 0, ("one", "policy"), ClaimCallKind::Begin(1), ClaimReply::Recorded);
    });
    assert_eq!(stale, [Rule::StaleClaimObeyed]);
    let freed = broken(|claims| {
        let fail = ClaimCallKind::Fail { fence: 1, retryable: true };
        call(claims, 0, ("one", "policy"), fail, ClaimReply::Recorded);
    });
    assert_eq!(freed, [Rule::StaleClaimObeyed], "it would free the claim under its present holder");
    let ended = broken(|claims| {
        let renew = ClaimCallKind::Renew { fence: 1, lease_ms: LEASE_MS };
        call(claims, 0, ("one", "plain"), renew, ClaimReply::Recorded);
    });
    assert_eq!(ended, [Rule::StaleClaimObeyed]);
    let again = broken(|claims| call(claims, 0, ("two", "failed"), acquire("hold"), won(2, false)));
    assert_eq!(again, [Rule::FailureIgnored]);
}

#[test]
fn facts_are_kept_and_results_are_one() {
    let late = ClaimCallKind::Complete(1, "r".into());
    let refused = broken(|claims| {
        call(claims, 0, ("one", "lost"), late.clone(), ClaimReply::Refused("stale_token".into()));
    });
    assert_eq!(refused, [Rule::FactRefused]);
    let dropped = broken(|claims| call(claims, 0, ("one", "lost"), late.clone(), ClaimReply::Recorded));
    assert_eq!(dropped, [Rule::CompletionLost]);
    let gone = broken(|claims| drop(claims.claims.pop()));
    assert_eq!(gone, [Rule::CompletionLost]);
    let other = broken(|claims| call(claims, 0, ("two", "plain"), acquire("hold"), completed("r2")));
    assert_eq!(other, [Rule::OtherResult]);
}

#[test]
fn a_fingerprint_decides_and_nothing_is_left_over() {
    let parchment =
        ClaimCallKind::Acquire { on_unknown: "hold".into(), fingerprint: "parchment".into(), lease_ms: LEASE_MS };
    let swallowed = broken(|claims| call(claims, 0, ("two", "plain"), parchment, completed("r1")));
    assert_eq!(swallowed, [Rule::WrongFingerprint]);
    let needless = broken(|claims| {
        call(claims, 0, ("two", "plain"), acquire("hold"), ClaimReply::Refused("key_mismatch".into()));
    });
    assert_eq!(needless, [Rule::WrongFingerprint]);
    assert_eq!(broken(|claims| claims.claims[2].escalated = false), [Rule::ClaimStuck]);
    let untold = broken_rules(|scribe| {
        let last = scribe.history.events.iter().rposition(|event| event.about == "c3").unwrap();
        scribe.history.events[last].kind = "claim.begun".into();
    });
    assert_eq!(untold, [Rule::ClaimEvents]);
}
