//! The hand-off model, small enough to be explored completely. `mailonce-model` checks larger ones.

use mailonce_core::outbound::email::OnUnknown;
use mailonce_sim::model::{
    config::{ModelConfig, ModelHopClass, SeededBug},
    properties::{NO_DUPLICATE, NO_FALSE_FAILURE},
    run::{ModelSummary, PropertyViolation, RunBounds, check_model},
};

const BOUNDS: RunBounds = RunBounds { threads: 1, timeout: None };

/// One email with one handoff that two workers may lease twice.
const SMALL: ModelConfig = ModelConfig {
    class: ModelHopClass::Keyless,
    on_unknown: OnUnknown::Hold,
    workers: 2,
    handoffs: 1,
    leases: 2,
    news: false,
    flaw: None,
};

fn run_model(size: ModelConfig) -> ModelSummary {
    let summary = check_model(size, BOUNDS).expect("a world");
    println!("{}", serde_json::to_string_pretty(&summary).expect("JSON"));
    summary
}

#[track_caller]
fn assert_holds(size: ModelConfig) {
    let summary = run_model(size);
    assert_eq!(summary.missed, [""; 0], "not everything happened");
    assert!(summary.holds(), "{:#?}", summary.violations);
}

#[test]
fn a_keyed_next_hop_takes_nothing_twice_inside_its_window() {
    assert_holds(ModelConfig { class: ModelHopClass::Keyed, ..SMALL });
}

#[test]
fn a_next_hop_that_can_be_asked_takes_nothing_twice_under_hold() {
    assert_holds(ModelConfig { class: ModelHopClass::LookUp, news: true, ..SMALL });
}

#[test]
fn a_next_hop_that_knows_nothing_takes_nothing_twice_under_hold() {
    assert_holds(ModelConfig { workers: 3, ..SMALL });
}

#[test]
fn an_email_that_asks_for_it_is_resent_once_and_flagged() {
    assert_holds(ModelConfig { on_unknown: OnUnknown::Resend, news: true, ..SMALL });
}

#[test]
fn two_handoffs_of_one_email_do_not_disturb_each_other() {
    assert_holds(ModelConfig { handoffs: 2, leases: 1, ..SMALL });
}

#[test]
fn a_handoff_that_crashes_its_workers_fails_unsent() {
    assert_holds(ModelConfig { workers: 1, leases: 5, ..SMALL });
}

/// A property that no bug can violate proves nothing: the checker must find each seeded bug.
#[test]
fn every_seeded_bug_is_found() {
    for flaw in [
        SeededBug::OldConnection,
        SeededBug::SendingIsRetried,
        SeededBug::LostMarker,
        SeededBug::WireFirst,
        SeededBug::NegativeIsProof,
        SeededBug::RefusalSettlesAll,
        SeededBug::FenceOfNow,
    ] {
        let summary = run_model(ModelConfig { class: flaw.hop_class(), flaw: Some(flaw), ..SMALL });
        let about_mails = |found: &PropertyViolation| [NO_DUPLICATE, NO_FALSE_FAILURE].contains(&found.law);
        assert!(summary.violations.iter().any(about_mails), "{flaw:?} was not found out");
    }
}
