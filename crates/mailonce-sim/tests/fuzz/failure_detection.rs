//! Parsers that are broken on purpose: each failure must be noticed, and its input saved and replayable.

use mailonce_sim::fuzz::{
    FuzzResult, FuzzTarget, InputOutcome,
    driver::{FuzzPlan, run_input, run_target},
};
use std::{fs, hint::black_box, path::Path, time::Duration};

fn seeds() -> Vec<Vec<u8>> {
    vec![b"hello 42".to_vec(), b"bye 7".to_vec()]
}

fn plan(inputs: u64, keep: &Path) -> FuzzPlan {
    let (timeout, slowest) = (Duration::from_mins(1), Duration::from_millis(100));
    FuzzPlan {
        seed: 7,
        max_inputs: inputs,
        time_limit: timeout,
        max_cpu_time: slowest,
        corpus: None,
        failures_dir: keep.to_owned(),
    }
}

#[track_caller]
fn assert_noticed(run: fn(&[u8]) -> FuzzResult, what: &str) {
    let target = FuzzTarget { name: "broken", run, seeds, slow: false };
    let keep = tempfile::tempdir().expect("a folder");
    let plan = plan(20_000, keep.path());
    let driven = run_target(&target, &plan).expect("a run");
    let failure = driven.failures.first().expect("a failure");
    assert!(failure.what.contains(what), "{failure:?}");
    assert!(failure.replay.contains("--target broken --replay"), "{failure:?}");
    let kept = fs::read(&failure.input).expect("the input");
    assert!(run_input(&target, &kept, plan.max_cpu_time).0.is_err(), "what was kept does not break");
}

#[test]
fn a_panic_is_noticed() {
    assert_noticed(|bytes| if bytes.contains(&0) { panic!("a zero") } else { Ok(InputOutcome::Rejected) }, "panicked");
}

#[test]
fn a_broken_rule_is_noticed() {
    assert_noticed(
        |bytes| if bytes.windows(3).any(|w| w == b"255") { Err("a number".into()) } else { Ok(InputOutcome::Rejected) },
        "a number",
    );
}

#[test]
fn a_slow_parser_is_noticed() {
    assert_noticed(
        |bytes| {
            let rounds: u64 = if bytes.len() > 2_000 { 50_000_000 } else { 0 };
            let sum = (0..rounds).fold(0_u64, |sum, round| black_box(sum ^ round));
            if sum == 1 { Err("not reached".into()) } else { Ok(InputOutcome::Rejected) }
        },
        "took",
    );
}

#[test]
fn the_same_number_gives_the_same_inputs() {
    let target = FuzzTarget { name: "same", run: |_| Ok(InputOutcome::Rejected), seeds, slow: false };
    let run = || {
        let keep = tempfile::tempdir().expect("a folder");
        let plan = plan(50, keep.path());
        run_target(&target, &plan).expect("a run").inputs
    };
    assert_eq!(run(), run());
    let bent = |number| {
        let mut rng = mailonce_sim::harness::rng::SeededRng::derive(7, &[number]);
        mailonce_sim::fuzz::mutate::mutate(&mut rng, &seeds())
    };
    assert_eq!(bent(1), bent(1));
    assert!((0..50).any(|number| bent(number) != bent(number + 50)), "every number gives the same");
}
