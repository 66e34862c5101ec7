//! P5, P8 and P13: missing events, unknown outcomes without a reason, and unfinished work.

use crate::valid_history::{UNKNOWN_EMAIL, broken_rules, expected_emails};
use mailonce_sim::proof::Rule;
use mailonce_sim::proof::history::{CallKind, CallOutcome, Evidence};

/// The rules that are forged here.
pub(crate) const FORGED: &[Rule] = &[Rule::Silent, Rule::Vanished, Rule::NeedlessDoubt, Rule::Stuck, Rule::Unanswered];

#[test]
fn a_silent_end_is_detected() {
    for kind in ["email.failed", "email.cancelled", "email.unknown"] {
        let forged = broken_rules(|scribe| {
            for event in scribe.history.events.iter_mut().filter(|event| event.kind == kind) {
                (event.kind, event.rev) = ("email.duplicate".into(), 0);
            }
        });
        assert_eq!(forged, [Rule::Silent, Rule::UnmatchedEvent], "{kind}");
    }
}

#[test]
fn a_recipient_that_no_handoff_is_for_is_detected() {
    let forged = broken_rules(|scribe| scribe.history.emails[UNKNOWN_EMAIL].handoffs[0].to.clear());
    assert_eq!(forged, [Rule::Vanished]);
}

#[test]
fn an_unknown_outcome_without_a_fault_is_detected() {
    assert_eq!(broken_rules(|scribe| scribe.history.faults.clear()), [Rule::NeedlessDoubt]);
    let of_another = broken_rules(|scribe| scribe.history.faults[1].emails = vec!["e0".into()]);
    assert_eq!(of_another, [Rule::NeedlessDoubt]);
    let harmless = broken_rules(|scribe| scribe.history.faults[1].ambiguous = false);
    assert_eq!(harmless, [Rule::NeedlessDoubt]);
    assert_eq!(broken_rules(|scribe| scribe.history.faults[1].emails.clear()), [], "it may have touched any");
    let too_late = broken_rules(|scribe| scribe.history.faults[1].at = scribe.next_position());
    assert_eq!(too_late, [Rule::NeedlessDoubt]);
}

#[test]
fn unfinished_work_is_detected_only_after_all_faults_ended() {
    for (state, wrong) in [("queued", true), ("leased", true), ("sending", true), ("scheduled", true), ("held", false)]
    {
        for healed in [true, false] {
            let found = broken_rules(|scribe| {
                scribe.history.healed = healed;
                scribe.history.emails[UNKNOWN_EMAIL].handoffs[0].state = state.into();
            });
            assert_eq!(found.contains(&Rule::Stuck), wrong && healed, "{state}");
        }
    }
    let later = broken_rules(|scribe| {
        let handoff = &mut scribe.history.emails[UNKNOWN_EMAIL].handoffs[0];
        (handoff.state, handoff.later) = ("scheduled".into(), true);
    });
    assert_eq!(later, []);
}

#[test]
fn an_unknown_outcome_that_is_disproven_is_detected() {
    let forged = broken_rules(|scribe| {
        let fact = Evidence { source: "look_up".into(), says: "accepted".into(), ..Evidence::default() };
        scribe.history.emails[UNKNOWN_EMAIL].handoffs[0].evidence.push(fact);
    });
    assert_eq!(forged, [Rule::NeedlessDoubt]);
}

#[test]
fn an_unknown_outcome_that_a_process_knows_is_detected() {
    let forged = |heard: bool| {
        broken_rules(|scribe| {
            scribe.add_arrival("relay", "e4", None, true);
            scribe.history.arrivals.last_mut().unwrap().is_known_accepted = heard;
        })
    };
    assert_eq!(forged(true), [Rule::NeedlessDoubt]);
    assert_eq!(forged(false), []);
}

#[test]
fn an_unknown_outcome_that_the_next_hop_could_decide_is_detected() {
    let forged = broken_rules(|scribe| scribe.history.emails[UNKNOWN_EMAIL].handoffs[0].decidable = true);
    assert_eq!(forged, [Rule::Stuck]);
}

#[test]
fn an_unanswered_send_is_detected() {
    let forged = broken_rules(|scribe| {
        scribe.add_call("ours", CallKind::Send, Some("new"), expected_emails(&["e9"]), CallOutcome::Info)
    });
    assert_eq!(forged, [Rule::Unanswered]);
}
