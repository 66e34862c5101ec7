//! P3, P4, P6, P7, P9 and P10: forged arrivals, states and transitions.

use crate::valid_history::{
    CANCELLED_EMAIL, FAILED_EMAIL, HistoryBuilder, PLAIN_EMAIL, RESENT_EMAIL, UNKNOWN_EMAIL, broken_rules, fail, ok,
};
use mailonce_sim::proof::Rule;
use mailonce_sim::proof::history::{CallKind, CallOutcome, CallRecord, Evidence, Handoff, ReportedTime};

/// The rules that are forged here.
pub(crate) const FORGED: &[Rule] = &[
    Rule::TakenTwice,
    Rule::Stray,
    Rule::Overlapped,
    Rule::TakenTooOften,
    Rule::Unflagged,
    Rule::Hasty,
    Rule::Ignored,
    Rule::FalseSuccess,
    Rule::FalseFailure,
    Rule::OtherBytes,
    Rule::OtherMessageId,
    Rule::OtherKey,
    Rule::IllegalMove,
    Rule::FenceBack,
    Rule::AttemptOrder,
    Rule::Unearned,
    Rule::Early,
    Rule::TimeBack,
];

#[test]
fn a_duplicate_is_detected_by_any_transport() {
    assert_eq!(
        broken_rules(|scribe| scribe.add_arrival("keyed", "e0", Some("k0"), true)),
        [Rule::TakenTwice, Rule::Unflagged]
    );
    assert_eq!(
        broken_rules(|scribe| scribe.add_arrival("relay", "e0", None, true)),
        [Rule::TakenTwice, Rule::Unflagged]
    );
    let flagged = broken_rules(|scribe| {
        scribe.add_arrival("relay", "e0", None, true);
        scribe.history.emails[PLAIN_EMAIL].handoffs[0].may_duplicate = true;
    });
    assert_eq!(flagged, [Rule::TakenTwice], "a flag alone allows nothing");
}

#[test]
fn a_repeat_that_was_recognised_is_no_mail() {
    assert_eq!(broken_rules(|scribe| scribe.add_arrival("keyed", "e0", Some("k0"), false)), []);
}

#[test]
fn a_mail_of_no_email_is_detected() {
    assert_eq!(broken_rules(|scribe| scribe.add_arrival("relay", "nobody", None, true)), [Rule::Stray]);
}

#[test]
fn more_copies_than_resends_are_detected() {
    assert_eq!(broken_rules(|scribe| scribe.add_arrival("relay", "e1", None, true)), [Rule::TakenTooOften]);
}

#[test]
fn a_policy_that_nobody_asked_for_or_that_acts_twice_is_detected() {
    assert_eq!(broken_rules(|scribe| scribe.history.emails[RESENT_EMAIL].resend = false), [Rule::TakenTooOften]);
    let twice = |scribe: &mut HistoryBuilder| {
        let fact = Evidence { source: "policy".into(), says: "again".into(), ..Evidence::default() };
        scribe.history.emails[RESENT_EMAIL].handoffs[0].evidence.push(fact);
    };
    assert_eq!(broken_rules(twice), [Rule::TakenTooOften]);
}

/// The resent email, with times: its first attempt was marked at 0, and the policy resent it at `ms`.
fn rules_for_resend_at(ms: i64, forge: impl FnOnce(&mut Handoff)) -> Vec<Rule> {
    broken_rules(|scribe| {
        let handoff = &mut scribe.history.emails[RESENT_EMAIL].handoffs[0];
        handoff.evidence[0].at_ms = Some(ms);
        for (attempt, at) in handoff.attempts.iter_mut().zip([0, ms + 1]) {
            (attempt.at_ms, attempt.ended_ms) = (Some(at), Some(at + 1));
        }
        forge(handoff);
    })
}

#[test]
fn a_policy_that_does_not_wait_for_evidence_is_detected() {
    assert_eq!(rules_for_resend_at(600_000, |_| {}), []);
    assert_eq!(rules_for_resend_at(590_000, |_| {}), [Rule::Hasty]);
    assert_eq!(rules_for_resend_at(700_000, |handoff| handoff.attempts[0].outcome = "refused".into()), [Rule::Hasty]);
    for says in ["accepted", "delayed"] {
        let known = |handoff: &mut Handoff| {
            let fact = Evidence { source: "provider_event".into(), says: says.into(), ..Evidence::default() };
            handoff.evidence.insert(0, fact);
        };
        assert_eq!(rules_for_resend_at(700_000, known), [Rule::Hasty], "{says}");
    }
}

#[test]
fn a_fact_that_changed_nothing_is_detected() {
    let with = |index: usize, says: &str| {
        broken_rules(|scribe| {
            let fact = Evidence { source: "provider_event".into(), says: says.into(), ..Evidence::default() };
            scribe.history.emails[index].handoffs[0].evidence.push(fact);
        })
    };
    assert_eq!(with(PLAIN_EMAIL, "delayed"), []);
    assert_eq!(with(PLAIN_EMAIL, "bounced"), [Rule::Ignored], "it stands as delivered");
    assert_eq!(with(FAILED_EMAIL, "delayed"), [Rule::FalseFailure]);
    assert_eq!(with(CANCELLED_EMAIL, "accepted"), [Rule::FalseFailure]);
    assert_eq!(with(UNKNOWN_EMAIL, "delayed"), [Rule::NeedlessDoubt]);
}

#[test]
fn a_resend_without_its_flag_is_detected() {
    let forged = broken_rules(|scribe| scribe.history.emails[RESENT_EMAIL].handoffs[0].may_duplicate = false);
    assert_eq!(forged, [Rule::Unflagged]);
}

#[test]
fn a_false_success_is_detected_unless_an_operator_says_so() {
    let nowhere = |scribe: &mut HistoryBuilder| scribe.history.arrivals.retain(|arrival| arrival.email != "e0");
    assert_eq!(broken_rules(nowhere), [Rule::FalseSuccess]);
    let believed = broken_rules(|scribe| {
        nowhere(scribe);
        let fact = Evidence { source: "person".into(), says: "accepted".into(), ..Evidence::default() };
        scribe.history.emails[PLAIN_EMAIL].handoffs[0].evidence.push(fact);
    });
    assert_eq!(believed, []);
}

#[test]
fn a_false_failure_is_detected() {
    for id in ["e2", "e3"] {
        assert_eq!(broken_rules(|scribe| scribe.add_arrival("relay", id, None, true)), [Rule::FalseFailure]);
    }
}

#[test]
fn an_unknown_mail_may_have_arrived_or_not() {
    assert_eq!(broken_rules(|scribe| scribe.add_arrival("relay", "e4", None, true)), []);
}

#[test]
fn other_bytes_names_and_keys_are_detected() {
    let bytes = broken_rules(|scribe| scribe.history.arrivals[1].bytes = 1);
    assert_eq!(bytes, [Rule::OtherBytes]);
    let name = broken_rules(|scribe| scribe.history.arrivals[0].message_id = "<other@mailonce>".into());
    assert_eq!(name, [Rule::OtherMessageId]);
    let key = broken_rules(|scribe| scribe.history.arrivals[1].key = Some("k1".into()));
    assert_eq!(key, [Rule::OtherKey]);
    let another = broken_rules(|scribe| {
        (scribe.history.arrivals[1].key, scribe.history.arrivals[1].handoff) = (Some("k1".into()), Some(1));
    });
    assert_eq!(another, [], "another handoff has another key");
    let shared = broken_rules(|scribe| scribe.add_arrival("keyed", "e2", Some("k0"), false));
    assert_eq!(shared, [Rule::OtherKey]);
}

/// Appends a transition from the email's current state.
fn add_transition(scribe: &mut HistoryBuilder, at: usize, to: &str, fence: u64) {
    let email = scribe.history.emails[at].id.clone();
    let last = scribe.history.moves.iter().rev().find(|step| step.email == email).unwrap().clone();
    let at = scribe.next_position();
    scribe.history.moves.push(mailonce_sim::proof::history::HandoffTransition {
        at,
        from: last.to.clone(),
        to: to.into(),
        fence,
        ..last
    });
}

#[test]
fn illegal_transitions_are_detected() {
    for (email, to) in [
        (PLAIN_EMAIL, "queued"),
        (FAILED_EMAIL, "queued"),
        (CANCELLED_EMAIL, "leased"),
        (UNKNOWN_EMAIL, "sending"),
        (RESENT_EMAIL, "leased"),
    ] {
        assert!(broken_rules(|scribe| add_transition(scribe, email, to, 9)).contains(&Rule::IllegalMove), "{to}");
    }
    let jumped = broken_rules(|scribe| scribe.history.moves[2].from = "queued".into());
    assert_eq!(jumped, [Rule::IllegalMove]);
}

#[test]
fn a_fence_that_does_not_grow_is_detected() {
    let back = broken_rules(|scribe| scribe.history.moves.iter_mut().rev().take(1).for_each(|step| step.fence = 0));
    assert_eq!(back, [Rule::FenceBack]);
    assert_eq!(broken_rules(|scribe| add_transition(scribe, UNKNOWN_EMAIL, "leased", 1)), [Rule::FenceBack]);
}

#[test]
fn attempts_out_of_order_are_detected() {
    let fence = broken_rules(|scribe| scribe.history.emails[RESENT_EMAIL].handoffs[0].attempts[1].fence = Some(1));
    assert_eq!(fence, [Rule::AttemptOrder]);
    let number = broken_rules(|scribe| scribe.history.emails[RESENT_EMAIL].handoffs[0].attempts[1].number = 3);
    assert_eq!(number, [Rule::AttemptOrder]);
}

#[test]
fn two_emails_of_one_intent_to_one_recipient_are_detected() {
    let overlapping = |forge: &dyn Fn(&mut HistoryBuilder)| {
        broken_rules(|scribe| {
            scribe.history.emails[PLAIN_EMAIL].intent = "order 1".into();
            scribe.history.emails[RESENT_EMAIL].intent = "order 1".into();
            forge(scribe);
        })
    };
    assert_eq!(overlapping(&|_| {}), [], "they went to different people");
    let shared = overlapping(&|scribe| {
        for email in &mut scribe.history.emails[PLAIN_EMAIL..=RESENT_EMAIL] {
            email.to = vec!["e0@example.org".into()];
            email.handoffs[0].to = email.to.clone();
        }
        scribe.history.arrivals.iter_mut().for_each(|arrival| arrival.to = vec!["e0@example.org".into()]);
        scribe.history.calls.iter_mut().filter(|call| call.team == "ours" && call.verb == CallKind::Send).for_each(
            |call| {
                call.wanted[0].to = vec!["e0@example.org".into()];
            },
        );
    });
    assert_eq!(shared, [Rule::Overlapped]);
}

/// A call about the plain email with this outcome.
fn rules_for_plain_call(verb: CallKind, end: CallOutcome, must_fail: bool) -> Vec<Rule> {
    rules_for_call("e0", verb, end, must_fail)
}

/// The same about another email.
fn rules_for_call(id: &str, verb: CallKind, end: CallOutcome, must_fail: bool) -> Vec<Rule> {
    broken_rules(|scribe| {
        let at = scribe.next_position();
        let mut call = CallRecord::new(at, "ours", verb);
        (call.about, call.end, call.must_fail) = (Some(id.into()), end, must_fail);
        call.may_fail = vec!["too_late".into()];
        scribe.history.begin_call(call);
    })
}

#[test]
fn a_false_cancel_is_detected() {
    assert_eq!(rules_for_plain_call(CallKind::Cancel, ok(false, &["e0"]), false), [Rule::FalseFailure]);
    assert_eq!(rules_for_plain_call(CallKind::Cancel, fail(409, "too_late"), false), []);
}

#[test]
fn a_cancel_that_was_refused_without_a_reason_is_detected() {
    for (id, rules) in [("e0", vec![]), ("e1", vec![]), ("e2", vec![Rule::Refusal]), ("e3", vec![Rule::Refusal])] {
        assert_eq!(rules_for_call(id, CallKind::Cancel, fail(409, "too_late"), false), rules, "{id}");
    }
    // By the recorded times, if the test sees no transitions.
    let by_times = |outcome: &str, ended: i64, stalled: bool| {
        broken_rules(|scribe| {
            scribe.history.moves.clear();
            let mut call = CallRecord::new(10_000_000, "ours", CallKind::Cancel);
            (call.about, call.ended, call.end) = (Some("e2".into()), Some(10_001_000), fail(409, "too_late"));
            call.may_fail = vec!["too_late".into()];
            scribe.history.begin_call(call);
            scribe.history.stalls.extend(stalled.then_some((9_000_000, 9_500_000)));
            let attempt = &mut scribe.history.emails[FAILED_EMAIL].handoffs[0].attempts[0];
            (attempt.outcome, attempt.at_ms, attempt.ended_ms) = (outcome.into(), Some(1_000), Some(ended));
        })
    };
    assert_eq!(by_times("refused", 2_000, false), [Rule::Refusal]);
    assert_eq!(by_times("deferred", 2_000, false), [Rule::Refusal]);
    assert_eq!(by_times("refused", 2_000, true), [], "times lag behind a process that was stopped");
    assert_eq!(by_times("refused", 11_000, false), [], "it was on the wire");
    assert_eq!(by_times("accepted", 2_000, false), []);
}

#[test]
fn a_call_that_had_to_be_refused_is_detected() {
    assert_eq!(rules_for_plain_call(CallKind::Resolve, ok(false, &["e0"]), true), [Rule::Unearned]);
    assert_eq!(rules_for_plain_call(CallKind::Resolve, fail(409, "too_late"), true), []);
    assert_eq!(rules_for_plain_call(CallKind::Resolve, CallOutcome::Info, true), []);
}

#[test]
fn an_early_mail_and_time_that_goes_back_are_detected() {
    assert_eq!(broken_rules(|scribe| scribe.history.arrivals[0].early = true), [Rule::Early]);
    let times = |times: [i64; 2], processes: [&str; 2]| {
        broken_rules(|scribe| {
            for (time, process) in times.into_iter().zip(processes) {
                let at = scribe.next_position();
                scribe.history.readings.push(ReportedTime { at, process: process.into(), time });
            }
        })
    };
    assert_eq!(times([2, 1], ["a", "a"]), [Rule::TimeBack]);
    assert_eq!(times([2, 1], ["a", "b"]), []);
    assert_eq!(times([1, 2], ["a", "a"]), []);
}
