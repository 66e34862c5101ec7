//! A server with a wrong turn in it, to see that the rig notices.

use crate::setting::crash_tools;
use mailonce_sim::crash::{
    coverage::CoverageBoard,
    environment::CrashTools,
    failpoints::{HopClass, StoreKind},
    round::CrashRound,
};
use mailonce_sim::proof::Invariant;

/// Plays a short round with a mutant, and fails unless it breaks a promise.
fn assert_convicted(mutant: &str, class: HopClass, promise: Invariant) {
    let tools = CrashTools { mutant: Some(mutant.into()), second_checker: None, ..crash_tools(None) };
    let root = tempfile::Builder::new().prefix("mailonce-mutant").tempdir().unwrap();
    let round = CrashRound { store: StoreKind::Sqlite, class, seed: 21, short: true, cycles: usize::MAX };
    let verdict = round.run(&tools, &CoverageBoard::default(), root.path()).unwrap();
    let broken: Vec<Invariant> = verdict.violations.iter().map(|violation| violation.rule.promise()).collect();
    assert!(broken.contains(&promise), "nobody noticed; broken: {broken:?}\n{}", verdict.log);
}

#[test]
fn a_server_that_sends_again_what_was_on_the_wire_is_convicted() {
    assert_convicted("crash-requeues-sending", HopClass::Smtp, Invariant::P3);
}

#[test]
fn a_server_that_answers_a_message_again_is_convicted() {
    assert_convicted("answered-twice", HopClass::Inbound, Invariant::P1);
}
