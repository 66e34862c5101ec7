//! P1, P2, P15 and P16: forged replies, rows and contents.

use crate::valid_history::{
    CANCELLED_EMAIL, HistoryBuilder, PLAIN_EMAIL, UNKNOWN_EMAIL, broken_rules, expected_emails, fail, ok,
};
use mailonce_sim::proof::Rule;
use mailonce_sim::proof::history::{CallKind, CallOutcome, CallRecord, ExpectedEmail};

/// The rules that are forged here.
pub(crate) const FORGED: &[Rule] = &[
    Rule::TwoIds,
    Rule::TwoFirsts,
    Rule::Duplicated,
    Rule::SharedKey,
    Rule::OutOfOrder,
    Rule::Torn,
    Rule::Unasked,
    Rule::Refusal,
    Rule::Lost,
    Rule::Swallowed,
    Rule::FalseMismatch,
    Rule::OtherWords,
    Rule::Crossed,
];

/// Removes an email and everything about it.
fn remove_email(scribe: &mut HistoryBuilder, at: usize) {
    let history = &mut scribe.history;
    let row = history.emails.remove(at);
    history.events.retain(|event| event.about != row.id);
    history.moves.retain(|step| step.email != row.id);
    history.arrivals.retain(|arrival| arrival.email != row.id);
    let mut last = std::collections::BTreeMap::new();
    for event in &mut history.events {
        let seq = last.entry(event.team.clone()).or_insert(0);
        *seq += 1;
        event.seq = *seq;
    }
}

/// Adds a second email for the plain send, with consistent events.
fn add_duplicate(scribe: &mut HistoryBuilder, key: &str) {
    scribe.add_email("ours", "twin", key, "keyed", &["queued", "cancelled"]);
    let twin = scribe.history.emails.last_mut().unwrap();
    twin.to = vec!["e0@example.org".into()];
    twin.handoffs[0].to.clone_from(&twin.to);
}

#[test]
fn a_lost_email_is_detected() {
    assert_eq!(broken_rules(|scribe| remove_email(scribe, PLAIN_EMAIL)), [Rule::Lost]);
}

#[test]
fn two_ids_for_one_key_are_detected_unless_it_expired() {
    let again = |scribe: &mut HistoryBuilder| {
        scribe.add_call("ours", CallKind::Send, Some("plain"), expected_emails(&["e0"]), ok(false, &["twin"]));
        add_duplicate(scribe, "another");
    };
    assert_eq!(broken_rules(again), [Rule::TwoIds, Rule::Duplicated]);
    let forgotten = broken_rules(|scribe| {
        scribe.add_call("ours", CallKind::Forget, Some("plain"), Vec::new(), ok(true, &["e0"]));
        again(scribe);
    });
    assert_eq!(forgotten, []);
}

#[test]
fn two_first_answers_are_detected() {
    let forged = broken_rules(|scribe| {
        scribe.add_call("ours", CallKind::Send, Some("plain"), expected_emails(&["e0"]), ok(true, &["e0"]))
    });
    assert_eq!(forged, [Rule::TwoFirsts]);
}

#[test]
fn an_unacknowledged_second_email_is_detected() {
    assert_eq!(broken_rules(|scribe| add_duplicate(scribe, "another")), [Rule::Duplicated]);
    assert_eq!(broken_rules(|scribe| add_duplicate(scribe, "plain")), [Rule::Duplicated, Rule::SharedKey]);
}

#[test]
fn a_next_version_is_no_second_email() {
    let forged = broken_rules(|scribe| {
        let at = scribe.next_position();
        let mut call = CallRecord::new(at, "ours", CallKind::Resend);
        (call.about, call.end) = (Some("e0".into()), ok(true, &["twin"]));
        scribe.history.begin_call(call);
        add_duplicate(scribe, "resend of e0");
    });
    assert_eq!(forged, []);
}

#[test]
fn an_answer_with_the_email_of_another_is_detected() {
    let swapped = broken_rules(|scribe| {
        for call in scribe.history.calls.iter_mut().filter(|call| call.verb == CallKind::Batch) {
            if let CallOutcome::Ok { ids, .. } = &mut call.end {
                ids.swap(0, 1);
            }
        }
    });
    assert_eq!(swapped, [Rule::OutOfOrder]);
}

#[test]
fn a_partial_batch_is_detected_even_without_a_reply() {
    let forged = broken_rules(|scribe| {
        for call in scribe.history.calls.iter_mut().filter(|call| call.verb == CallKind::Batch) {
            call.end = CallOutcome::Info;
        }
        remove_email(scribe, CANCELLED_EMAIL);
    });
    assert_eq!(forged, [Rule::Torn, Rule::Unanswered]);
    let short = |scribe: &mut HistoryBuilder| {
        scribe.add_call("ours", CallKind::Batch, Some("batch"), expected_emails(&["e2", "e3"]), ok(false, &["e2"]));
    };
    assert!(broken_rules(short).contains(&Rule::Torn));
}

#[test]
fn an_email_that_nobody_asked_for_is_detected() {
    let forged = broken_rules(|scribe| scribe.add_email("ours", "eve", "eve", "relay", &["queued", "cancelled"]));
    assert_eq!(forged, [Rule::Unasked]);
}

#[test]
fn a_refusal_is_detected_unless_it_is_allowed_or_leaves_the_outcome_open() {
    let refused = |status, code: &str, allowed: &[&str]| {
        broken_rules(|scribe| {
            scribe.add_call("ours", CallKind::Send, Some("plain"), expected_emails(&["e0"]), fail(status, code));
            let call = scribe.history.calls.last_mut().unwrap();
            call.may_fail = allowed.iter().map(|code| (*code).to_owned()).collect();
        })
    };
    assert_eq!(refused(422, "invalid_field", &[]), [Rule::Refusal]);
    assert_eq!(refused(500, "internal", &[]), [Rule::Refusal]);
    assert_eq!(refused(503, "unavailable", &[]), []);
    assert_eq!(refused(409, "too_late", &["too_late"]), []);
}

/// A call under the plain key with other content.
fn add_mismatching_call(scribe: &mut HistoryBuilder, end: CallOutcome, forgives: bool) {
    let other = vec![ExpectedEmail { body: 8, ..expected_emails(&["e0"]).remove(0) }];
    scribe.add_call("ours", CallKind::Send, Some("plain"), other, end);
    let call = scribe.history.calls.last_mut().unwrap();
    (call.forgives, call.may_fail) = (forgives, vec!["key_mismatch".into()]);
}

#[test]
fn another_meaning_under_a_bound_key_is_refused_or_forgiven() {
    assert_eq!(broken_rules(|scribe| add_mismatching_call(scribe, fail(422, "key_mismatch"), false)), []);
    assert_eq!(broken_rules(|scribe| add_mismatching_call(scribe, ok(false, &["e0"]), true)), []);
    assert_eq!(broken_rules(|scribe| add_mismatching_call(scribe, ok(false, &["e0"]), false)), [Rule::Swallowed]);
}

#[test]
fn the_same_meaning_refused_as_another_is_detected() {
    let forged = broken_rules(|scribe| {
        scribe.add_call("ours", CallKind::Send, Some("plain"), expected_emails(&["e0"]), fail(422, "key_mismatch"));
        scribe.history.calls.last_mut().unwrap().may_fail = vec!["key_mismatch".into()];
    });
    assert_eq!(forged, [Rule::FalseMismatch]);
}

#[test]
fn an_email_with_unrequested_content_is_detected() {
    let forged = broken_rules(|scribe| {
        scribe.history.emails[PLAIN_EMAIL].body = Some(1234);
        for call in scribe.history.calls.iter_mut().filter(|call| call.key.as_deref() == Some("plain")) {
            call.forgives = true;
        }
    });
    assert_eq!(forged, [Rule::OtherWords]);
}

#[test]
fn an_answer_about_another_team_is_detected() {
    let about = |end: CallOutcome| {
        broken_rules(|scribe| {
            let at = scribe.next_position();
            let mut call = CallRecord::new(at, "ours", CallKind::Cancel);
            (call.about, call.end, call.may_fail) =
                (Some("e4".into()), end, vec!["not_found".into(), "too_late".into()]);
            scribe.history.begin_call(call);
        })
    };
    assert_eq!(about(fail(404, "not_found")), []);
    assert_eq!(about(fail(409, "too_late")), [Rule::Crossed]);
    assert_eq!(about(ok(false, &["e4"])), [Rule::Crossed]);
    let event = broken_rules(|scribe| {
        let team = scribe.history.emails[UNKNOWN_EMAIL].team.clone();
        scribe.add_event("ours", "e4", "email.duplicate", 0);
        assert_eq!(team, "theirs");
    });
    assert_eq!(event, [Rule::Crossed]);
}
