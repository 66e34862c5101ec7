//! P1, P2, P15 and P16: forged answers, rows and meanings.

use crate::honest::{CANCELLED, DOUBTED, PLAIN, Scribe, convicted, fail, ok, wanted};
use mailonce_sim::proof::Rule;
use mailonce_sim::proof::history::{Call, End, Verb, Wanted};

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

/// Takes an email and all that is known of it away.
fn erase(scribe: &mut Scribe, at: usize) {
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

/// Adds a twin of the plain email, told of as if it were right.
fn double(scribe: &mut Scribe, key: &str) {
    scribe.email("ours", "twin", key, "keyed", &["queued", "cancelled"]);
    let twin = scribe.history.emails.last_mut().unwrap();
    twin.to = vec!["e0@example.org".into()];
    twin.handoffs[0].to.clone_from(&twin.to);
}

#[test]
fn a_lost_email_is_convicted() {
    assert_eq!(convicted(|scribe| erase(scribe, PLAIN)), [Rule::Lost]);
}

#[test]
fn two_ids_for_one_key_are_convicted_unless_it_was_forgotten() {
    let again = |scribe: &mut Scribe| {
        scribe.call("ours", Verb::Send, Some("plain"), wanted(&["e0"]), ok(false, &["twin"]));
        double(scribe, "another");
    };
    assert_eq!(convicted(again), [Rule::TwoIds, Rule::Duplicated]);
    let forgotten = convicted(|scribe| {
        scribe.call("ours", Verb::Forget, Some("plain"), Vec::new(), ok(true, &["e0"]));
        again(scribe);
    });
    assert_eq!(forgotten, []);
}

#[test]
fn two_first_answers_are_convicted() {
    let forged = convicted(|scribe| scribe.call("ours", Verb::Send, Some("plain"), wanted(&["e0"]), ok(true, &["e0"])));
    assert_eq!(forged, [Rule::TwoFirsts]);
}

#[test]
fn a_second_email_that_nobody_was_told_of_is_convicted() {
    assert_eq!(convicted(|scribe| double(scribe, "another")), [Rule::Duplicated]);
    assert_eq!(convicted(|scribe| double(scribe, "plain")), [Rule::Duplicated, Rule::SharedKey]);
}

#[test]
fn a_next_version_is_no_second_email() {
    let forged = convicted(|scribe| {
        let at = scribe.tick();
        let mut call = Call::new(at, "ours", Verb::Resend);
        (call.about, call.end) = (Some("e0".into()), ok(true, &["twin"]));
        scribe.history.invoke(call);
        double(scribe, "resend of e0");
    });
    assert_eq!(forged, []);
}

#[test]
fn an_answer_with_the_email_of_another_is_convicted() {
    let swapped = convicted(|scribe| {
        for call in scribe.history.calls.iter_mut().filter(|call| call.verb == Verb::Batch) {
            if let End::Ok { ids, .. } = &mut call.end {
                ids.swap(0, 1);
            }
        }
    });
    assert_eq!(swapped, [Rule::OutOfOrder]);
}

#[test]
fn a_torn_batch_is_convicted_even_when_it_was_never_answered() {
    let forged = convicted(|scribe| {
        for call in scribe.history.calls.iter_mut().filter(|call| call.verb == Verb::Batch) {
            call.end = End::Info;
        }
        erase(scribe, CANCELLED);
    });
    assert_eq!(forged, [Rule::Torn, Rule::Unanswered]);
    let short = |scribe: &mut Scribe| {
        scribe.call("ours", Verb::Batch, Some("batch"), wanted(&["e2", "e3"]), ok(false, &["e2"]));
    };
    assert!(convicted(short).contains(&Rule::Torn));
}

#[test]
fn an_email_that_nobody_asked_for_is_convicted() {
    let forged = convicted(|scribe| scribe.email("ours", "eve", "eve", "relay", &["queued", "cancelled"]));
    assert_eq!(forged, [Rule::Unasked]);
}

#[test]
fn a_refusal_is_convicted_unless_it_is_deserved_or_says_that_it_cannot_tell() {
    let refused = |status, code: &str, allowed: &[&str]| {
        convicted(|scribe| {
            scribe.call("ours", Verb::Send, Some("plain"), wanted(&["e0"]), fail(status, code));
            let call = scribe.history.calls.last_mut().unwrap();
            call.may_fail = allowed.iter().map(|code| (*code).to_owned()).collect();
        })
    };
    assert_eq!(refused(422, "invalid_field", &[]), [Rule::Refusal]);
    assert_eq!(refused(500, "internal", &[]), [Rule::Refusal]);
    assert_eq!(refused(503, "unavailable", &[]), []);
    assert_eq!(refused(409, "too_late", &["too_late"]), []);
}

/// A call under the plain key that means something else.
fn other_meaning(scribe: &mut Scribe, end: End, forgives: bool) {
    let other = vec![Wanted { body: 8, ..wanted(&["e0"]).remove(0) }];
    scribe.call("ours", Verb::Send, Some("plain"), other, end);
    let call = scribe.history.calls.last_mut().unwrap();
    (call.forgives, call.may_fail) = (forgives, vec!["key_mismatch".into()]);
}

#[test]
fn another_meaning_under_a_bound_key_is_refused_or_forgiven() {
    assert_eq!(convicted(|scribe| other_meaning(scribe, fail(422, "key_mismatch"), false)), []);
    assert_eq!(convicted(|scribe| other_meaning(scribe, ok(false, &["e0"]), true)), []);
    assert_eq!(convicted(|scribe| other_meaning(scribe, ok(false, &["e0"]), false)), [Rule::Swallowed]);
}

#[test]
fn the_same_meaning_refused_as_another_is_convicted() {
    let forged = convicted(|scribe| {
        scribe.call("ours", Verb::Send, Some("plain"), wanted(&["e0"]), fail(422, "key_mismatch"));
        scribe.history.calls.last_mut().unwrap().may_fail = vec!["key_mismatch".into()];
    });
    assert_eq!(forged, [Rule::FalseMismatch]);
}

#[test]
fn an_email_that_says_what_nobody_asked_for_is_convicted() {
    let forged = convicted(|scribe| {
        scribe.history.emails[PLAIN].body = Some(1234);
        for call in scribe.history.calls.iter_mut().filter(|call| call.key.as_deref() == Some("plain")) {
            call.forgives = true;
        }
    });
    assert_eq!(forged, [Rule::OtherWords]);
}

#[test]
fn an_answer_about_another_team_is_convicted() {
    let about = |end: End| {
        convicted(|scribe| {
            let at = scribe.tick();
            let mut call = Call::new(at, "ours", Verb::Cancel);
            (call.about, call.end, call.may_fail) =
                (Some("e4".into()), end, vec!["not_found".into(), "too_late".into()]);
            scribe.history.invoke(call);
        })
    };
    assert_eq!(about(fail(404, "not_found")), []);
    assert_eq!(about(fail(409, "too_late")), [Rule::Crossed]);
    assert_eq!(about(ok(false, &["e4"])), [Rule::Crossed]);
    let event = convicted(|scribe| {
        let team = scribe.history.emails[DOUBTED].team.clone();
        scribe.event("ours", "e4", "email.duplicate", 0);
        assert_eq!(team, "theirs");
    });
    assert_eq!(event, [Rule::Crossed]);
}
