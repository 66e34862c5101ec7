//! Servers with a deliberate defect, which the checkers must detect.

use crate::fixtures::crash_tools;
use mailonce_sim::crash::{
    coverage::CoverageBoard,
    environment::CrashTools,
    failpoints::{HopClass, StoreKind},
    round::CrashRound,
};
use mailonce_sim::proof::Invariant;

/// Runs a short round with a mutant, and fails unless it breaks the invariant.
fn assert_detected(mutant: &str, class: HopClass, promise: Invariant) {
    let tools = CrashTools { mutant: Some(mutant.into()), second_checker: None, ..crash_tools(None) };
    let root = tempfile::Builder::new().prefix("mailonce-mutant").tempdir().unwrap();
    let round = CrashRound { store: StoreKind::Sqlite, class, seed: 21, short: true, cycles: usize::MAX };
    let verdict = round.run(&tools, &CoverageBoard::default(), root.path()).unwrap();
    let broken: Vec<Invariant> = verdict.violations.iter().map(|violation| violation.rule.promise()).collect();
    assert!(broken.contains(&promise), "the mutant was not detected; broken: {broken:?}\n{}", verdict.log);
}

#[test]
fn a_server_that_resends_unknown_outcomes_is_detected() {
    assert_detected("crash-requeues-sending", HopClass::Smtp, Invariant::P3);
}

#[test]
fn a_server_that_replies_twice_is_detected() {
    assert_detected("answered-twice", HopClass::Inbound, Invariant::P1);
}
