//! A short run of every reader, and the files that libFuzzer finds them by.

use mailonce_sim::{
    fuzz::{
        Came, TARGETS, Target,
        drive::{Plan, SLOWEST, drive},
        layout,
    },
    rig::chance::seed,
};
use std::{collections::BTreeSet, fs, path::Path, time::Duration};

/// Readers as a test has time for.
fn plan() -> Plan {
    let seconds = std::env::var("MAILONCE_FUZZ_SECONDS").ok().and_then(|text| text.parse::<u64>().ok());
    let patience = seconds.map_or(Duration::from_millis(1_500), Duration::from_secs);
    let inputs = if seconds.is_some() { u64::MAX } else { 1_000 };
    let keep = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
    Plan { seed: seed(), inputs, patience, slowest: SLOWEST, corpus: None, keep }
}

#[track_caller]
fn hold(chosen: impl Fn(&Target) -> bool) {
    for target in TARGETS.iter().filter(|target| chosen(target)) {
        let plan = plan();
        let driven = drive(target, &plan).expect("a run");
        println!("seed {}: {driven:?}", plan.seed);
        assert!(driven.failures.is_empty(), "seed {}: {:#?}", plan.seed, driven.failures);
        assert!(driven.inputs > (target.seeds)().len() as u64, "{} tried nothing", target.name);
        assert!(driven.memory_kb < 256 * 1024, "{} took {} kB", target.name, driven.memory_kb);
    }
}

#[test]
fn readers_of_the_core_and_of_what_callers_say_hold() {
    hold(|target| ["core", "api", "mcp"].iter().any(|room| target.name.starts_with(room)));
}

#[test]
fn readers_of_mail_hold() {
    hold(|target| target.name.starts_with("mail"));
}

#[test]
fn readers_of_hooks_hold() {
    hold(|target| target.name.starts_with("hook"));
}

#[test]
fn readers_of_next_hops_hold() {
    hold(|target| target.slow);
}

#[test]
fn every_reader_has_seeds_that_come_through() {
    for target in TARGETS {
        let came: Vec<_> = (target.seeds)().iter().map(|seed| (target.run)(seed)).collect();
        assert!(came.iter().all(Result::is_ok), "{}: {came:?}", target.name);
        assert!(came.contains(&Ok(Came::Through)), "{} refuses every seed it has", target.name);
    }
}

#[test]
fn every_target_is_a_target_of_libfuzzer_too() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let again = "write them again: cargo run -p mailonce-sim --bin mailonce-fuzz -- --write-targets fuzz";
    assert!(fs::read_to_string(dir.join("Cargo.toml")).expect("a manifest") == layout::manifest(), "{again}");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir.join("fuzz_targets")).expect("targets") {
        found.insert(entry.expect("an entry").file_name().into_string().expect("a name"));
    }
    assert_eq!(found, TARGETS.iter().map(|target| format!("{}.rs", target.name)).collect(), "{again}");
    for target in TARGETS {
        let file = dir.join("fuzz_targets").join(format!("{}.rs", target.name));
        assert!(fs::read_to_string(file).expect("a file") == layout::file(target.name), "{again}");
    }
}
