//! Worlds are deterministic.

use mailonce_sim::world::{replay_command, run, run_twice};
use std::collections::BTreeSet;

#[test]
fn a_seed_is_deterministic_and_seeds_differ() {
    let mut traces = BTreeSet::new();
    for seed in 500..560 {
        let outcome = run_twice(seed, None).unwrap_or_else(|why| panic!("{why}"));
        assert!(outcome.log.len() > 50, "seed {seed} has {} lines", outcome.log.len());
        assert_eq!(outcome.trace, run(seed, None, false).trace, "telling changes the world");
        traces.insert(outcome.trace);
    }
    assert_eq!(traces.len(), 60);
}

#[test]
fn a_failure_prints_the_command_that_runs_it() {
    assert_eq!(
        replay_command(7, Some("key-ignored")),
        "cargo run -q -p mailonce-sim --bin mailonce-worlds -- --replay 7 --mutant key-ignored"
    );
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_mailonce-worlds"))
        .args(["--replay", "7", "--mutant", "key-ignored"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && text.contains("P1 TwoIds"), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("trace ") && line.contains("twice")), "{text}");
}
