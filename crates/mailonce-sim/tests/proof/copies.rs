//! P3, P4, P6, P7, P9 and P10: forged arrivals, states and moves.

use crate::honest::{CANCELLED, DOUBTED, FAILED, PLAIN, RESENT, Scribe, convicted, fail, ok};
use mailonce_sim::proof::Rule;
use mailonce_sim::proof::history::{Call, End, Evidence, Handoff, Reading, Verb};

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
fn a_second_mail_is_convicted_by_whatever_way_it_came() {
    assert_eq!(convicted(|scribe| scribe.arrive("keyed", "e0", Some("k0"), true)), [Rule::TakenTwice, Rule::Unflagged]);
    assert_eq!(convicted(|scribe| scribe.arrive("relay", "e0", None, true)), [Rule::TakenTwice, Rule::Unflagged]);
    let flagged = convicted(|scribe| {
        scribe.arrive("relay", "e0", None, true);
        scribe.history.emails[PLAIN].handoffs[0].may_duplicate = true;
    });
    assert_eq!(flagged, [Rule::TakenTwice], "a flag alone allows nothing");
}

#[test]
fn a_repeat_that_was_recognised_is_no_mail() {
    assert_eq!(convicted(|scribe| scribe.arrive("keyed", "e0", Some("k0"), false)), []);
}

#[test]
fn a_mail_of_no_email_is_convicted() {
    assert_eq!(convicted(|scribe| scribe.arrive("relay", "nobody", None, true)), [Rule::Stray]);
}

#[test]
fn more_copies_than_resends_are_convicted() {
    assert_eq!(convicted(|scribe| scribe.arrive("relay", "e1", None, true)), [Rule::TakenTooOften]);
}

#[test]
fn a_policy_that_nobody_asked_for_or_that_acts_twice_is_convicted() {
    assert_eq!(convicted(|scribe| scribe.history.emails[RESENT].resend = false), [Rule::TakenTooOften]);
    let twice = |scribe: &mut Scribe| {
        let fact = Evidence { source: "policy".into(), says: "again".into(), ..Evidence::default() };
        scribe.history.emails[RESENT].handoffs[0].evidence.push(fact);
    };
    assert_eq!(convicted(twice), [Rule::TakenTooOften]);
}

/// The resent email, with times: its first attempt was marked at 0 and the policy spoke at `ms`.
fn resent_at(ms: i64, forge: impl FnOnce(&mut Handoff)) -> Vec<Rule> {
    convicted(|scribe| {
        let handoff = &mut scribe.history.emails[RESENT].handoffs[0];
        handoff.evidence[0].at_ms = Some(ms);
        for (attempt, at) in handoff.attempts.iter_mut().zip([0, ms + 1]) {
            (attempt.at_ms, attempt.ended_ms) = (Some(at), Some(at + 1));
        }
        forge(handoff);
    })
}

#[test]
fn a_policy_that_does_not_wait_for_evidence_is_convicted() {
    assert_eq!(resent_at(600_000, |_| {}), []);
    assert_eq!(resent_at(590_000, |_| {}), [Rule::Hasty]);
    assert_eq!(resent_at(700_000, |handoff| handoff.attempts[0].outcome = "refused".into()), [Rule::Hasty]);
    for says in ["accepted", "delayed"] {
        let known = |handoff: &mut Handoff| {
            let fact = Evidence { source: "provider_event".into(), says: says.into(), ..Evidence::default() };
            handoff.evidence.insert(0, fact);
        };
        assert_eq!(resent_at(700_000, known), [Rule::Hasty], "{says}");
    }
}

#[test]
fn a_fact_that_changed_nothing_is_convicted() {
    let with = |place: usize, says: &str| {
        convicted(|scribe| {
            let fact = Evidence { source: "provider_event".into(), says: says.into(), ..Evidence::default() };
            scribe.history.emails[place].handoffs[0].evidence.push(fact);
        })
    };
    assert_eq!(with(PLAIN, "delayed"), []);
    assert_eq!(with(PLAIN, "bounced"), [Rule::Ignored], "it stands as delivered");
    assert_eq!(with(FAILED, "delayed"), [Rule::FalseFailure]);
    assert_eq!(with(CANCELLED, "accepted"), [Rule::FalseFailure]);
    assert_eq!(with(DOUBTED, "delayed"), [Rule::NeedlessDoubt]);
}

#[test]
fn a_resend_without_its_flag_is_convicted() {
    let forged = convicted(|scribe| scribe.history.emails[RESENT].handoffs[0].may_duplicate = false);
    assert_eq!(forged, [Rule::Unflagged]);
}

#[test]
fn a_false_success_is_convicted_unless_a_person_says_so() {
    let nowhere = |scribe: &mut Scribe| scribe.history.arrivals.retain(|arrival| arrival.email != "e0");
    assert_eq!(convicted(nowhere), [Rule::FalseSuccess]);
    let believed = convicted(|scribe| {
        nowhere(scribe);
        let fact = Evidence { source: "person".into(), says: "accepted".into(), ..Evidence::default() };
        scribe.history.emails[PLAIN].handoffs[0].evidence.push(fact);
    });
    assert_eq!(believed, []);
}

#[test]
fn a_false_failure_is_convicted() {
    for id in ["e2", "e3"] {
        assert_eq!(convicted(|scribe| scribe.arrive("relay", id, None, true)), [Rule::FalseFailure]);
    }
}

#[test]
fn a_mail_in_doubt_may_be_anywhere() {
    assert_eq!(convicted(|scribe| scribe.arrive("relay", "e4", None, true)), []);
}

#[test]
fn other_bytes_names_and_keys_are_convicted() {
    let bytes = convicted(|scribe| scribe.history.arrivals[1].bytes = 1);
    assert_eq!(bytes, [Rule::OtherBytes]);
    let name = convicted(|scribe| scribe.history.arrivals[0].message_id = "<other@mailonce>".into());
    assert_eq!(name, [Rule::OtherMessageId]);
    let key = convicted(|scribe| scribe.history.arrivals[1].key = Some("k1".into()));
    assert_eq!(key, [Rule::OtherKey]);
    let another = convicted(|scribe| {
        (scribe.history.arrivals[1].key, scribe.history.arrivals[1].handoff) = (Some("k1".into()), Some(1));
    });
    assert_eq!(another, [], "another handoff has another key");
    let shared = convicted(|scribe| scribe.arrive("keyed", "e2", Some("k0"), false));
    assert_eq!(shared, [Rule::OtherKey]);
}

/// Appends a move from where the email stands.
fn go(scribe: &mut Scribe, at: usize, to: &str, fence: u64) {
    let email = scribe.history.emails[at].id.clone();
    let last = scribe.history.moves.iter().rev().find(|step| step.email == email).unwrap().clone();
    let at = scribe.tick();
    scribe.history.moves.push(mailonce_sim::proof::history::Move {
        at,
        from: last.to.clone(),
        to: to.into(),
        fence,
        ..last
    });
}

#[test]
fn moves_that_cannot_be_are_convicted() {
    for (email, to) in
        [(PLAIN, "queued"), (FAILED, "queued"), (CANCELLED, "leased"), (DOUBTED, "sending"), (RESENT, "leased")]
    {
        assert!(convicted(|scribe| go(scribe, email, to, 9)).contains(&Rule::IllegalMove), "{to}");
    }
    let jumped = convicted(|scribe| scribe.history.moves[2].from = "queued".into());
    assert_eq!(jumped, [Rule::IllegalMove]);
}

#[test]
fn a_fence_that_goes_back_or_stands_is_convicted() {
    let back = convicted(|scribe| scribe.history.moves.iter_mut().rev().take(1).for_each(|step| step.fence = 0));
    assert_eq!(back, [Rule::FenceBack]);
    assert_eq!(convicted(|scribe| go(scribe, DOUBTED, "leased", 1)), [Rule::FenceBack]);
}

#[test]
fn attempts_out_of_order_are_convicted() {
    let fence = convicted(|scribe| scribe.history.emails[RESENT].handoffs[0].attempts[1].fence = Some(1));
    assert_eq!(fence, [Rule::AttemptOrder]);
    let number = convicted(|scribe| scribe.history.emails[RESENT].handoffs[0].attempts[1].number = 3);
    assert_eq!(number, [Rule::AttemptOrder]);
}

#[test]
fn two_emails_of_one_intent_to_one_recipient_are_convicted() {
    let overlapping = |forge: &dyn Fn(&mut Scribe)| {
        convicted(|scribe| {
            scribe.history.emails[PLAIN].intent = "order 1".into();
            scribe.history.emails[RESENT].intent = "order 1".into();
            forge(scribe);
        })
    };
    assert_eq!(overlapping(&|_| {}), [], "they went to different people");
    let shared = overlapping(&|scribe| {
        for email in &mut scribe.history.emails[PLAIN..=RESENT] {
            email.to = vec!["e0@example.org".into()];
            email.handoffs[0].to = email.to.clone();
        }
        scribe.history.arrivals.iter_mut().for_each(|arrival| arrival.to = vec!["e0@example.org".into()]);
        scribe.history.calls.iter_mut().filter(|call| call.team == "ours" && call.verb == Verb::Send).for_each(
            |call| {
                call.wanted[0].to = vec!["e0@example.org".into()];
            },
        );
    });
    assert_eq!(shared, [Rule::Overlapped]);
}

/// A call about the plain email that ended so.
fn about_plain(verb: Verb, end: End, must_fail: bool) -> Vec<Rule> {
    about_email("e0", verb, end, must_fail)
}

/// The same about another one.
fn about_email(id: &str, verb: Verb, end: End, must_fail: bool) -> Vec<Rule> {
    convicted(|scribe| {
        let at = scribe.tick();
        let mut call = Call::new(at, "ours", verb);
        (call.about, call.end, call.must_fail) = (Some(id.into()), end, must_fail);
        call.may_fail = vec!["too_late".into()];
        scribe.history.invoke(call);
    })
}

#[test]
fn a_caller_that_was_told_a_false_cancel_convicts() {
    assert_eq!(about_plain(Verb::Cancel, ok(false, &["e0"]), false), [Rule::FalseFailure]);
    assert_eq!(about_plain(Verb::Cancel, fail(409, "too_late"), false), []);
}

#[test]
fn a_cancel_that_was_refused_without_a_reason_convicts() {
    for (id, rules) in [("e0", vec![]), ("e1", vec![]), ("e2", vec![Rule::Refusal]), ("e3", vec![Rule::Refusal])] {
        assert_eq!(about_email(id, Verb::Cancel, fail(409, "too_late"), false), rules, "{id}");
    }
    // By the times on record, where the rig sees no moves.
    let by_times = |outcome: &str, ended: i64, stalled: bool| {
        convicted(|scribe| {
            scribe.history.moves.clear();
            let mut call = Call::new(10_000_000, "ours", Verb::Cancel);
            (call.about, call.ended, call.end) = (Some("e2".into()), Some(10_001_000), fail(409, "too_late"));
            call.may_fail = vec!["too_late".into()];
            scribe.history.invoke(call);
            scribe.history.stalls.extend(stalled.then_some((9_000_000, 9_500_000)));
            let attempt = &mut scribe.history.emails[FAILED].handoffs[0].attempts[0];
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
fn a_call_that_had_to_be_refused_convicts() {
    assert_eq!(about_plain(Verb::Resolve, ok(false, &["e0"]), true), [Rule::Unearned]);
    assert_eq!(about_plain(Verb::Resolve, fail(409, "too_late"), true), []);
    assert_eq!(about_plain(Verb::Resolve, End::Info, true), []);
}

#[test]
fn an_early_mail_and_time_that_goes_back_are_convicted() {
    assert_eq!(convicted(|scribe| scribe.history.arrivals[0].early = true), [Rule::Early]);
    let times = |times: [i64; 2], processes: [&str; 2]| {
        convicted(|scribe| {
            for (time, process) in times.into_iter().zip(processes) {
                let at = scribe.tick();
                scribe.history.readings.push(Reading { at, process: process.into(), time });
            }
        })
    };
    assert_eq!(times([2, 1], ["a", "a"]), [Rule::TimeBack]);
    assert_eq!(times([2, 1], ["a", "b"]), []);
    assert_eq!(times([1, 2], ["a", "a"]), []);
}
