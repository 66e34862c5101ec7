//! A short run of every parser, and the files for libFuzzer.

use mailonce_sim::{
    fuzz::{
        self, FuzzTarget, InputOutcome, TARGETS,
        driver::{FuzzPlan, MAX_CPU_TIME, run_target},
        libfuzzer_files,
    },
    harness::rng::seed_from_env,
};
use std::{collections::BTreeSet, fs, path::Path, time::Duration};

/// The limits of a short run.
fn plan() -> FuzzPlan {
    let seconds = std::env::var("MAILONCE_FUZZ_SECONDS").ok().and_then(|text| text.parse::<u64>().ok());
    let timeout = seconds.map_or(Duration::from_millis(1_500), Duration::from_secs);
    let inputs = if seconds.is_some() { u64::MAX } else { 1_000 };
    let keep = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
    FuzzPlan {
        seed: seed_from_env(),
        max_inputs: inputs,
        time_limit: timeout,
        max_cpu_time: MAX_CPU_TIME,
        corpus: None,
        failures_dir: keep,
    }
}

#[track_caller]
fn assert_targets_hold(chosen: impl Fn(&FuzzTarget) -> bool) {
    for target in TARGETS.iter().filter(|target| chosen(target)) {
        let plan = plan();
        let driven = run_target(target, &plan).expect("a run");
        println!("seed {}: {driven:?}", plan.seed);
        assert!(driven.failures.is_empty(), "seed {}: {:#?}", plan.seed, driven.failures);
        assert!(driven.inputs > (target.seeds)().len() as u64, "{} tried nothing", target.name);
        assert!(driven.memory_kb < 256 * 1024, "{} took {} kB", target.name, driven.memory_kb);
    }
}

#[test]
fn parsers_of_the_core_and_the_api_hold() {
    assert_targets_hold(|target| ["core", "api", "mcp"].iter().any(|room| target.name.starts_with(room)));
}

#[test]
fn parsers_of_mail_hold() {
    assert_targets_hold(|target| target.name.starts_with("mail"));
}

#[test]
fn parsers_of_webhooks_hold() {
    assert_targets_hold(|target| target.name.starts_with("hook"));
}

#[test]
fn parsers_of_next_hop_replies_hold() {
    assert_targets_hold(|target| target.slow);
}

/// Words that an attacker may repeat, to make a parser scan the same bytes again and again.
const REPEATED_WORDS: &[&str] = &[
    "\n",
    " \n",
    "a\n",
    "a ",
    ">",
    ">\n",
    "> a\n",
    "-- \n",
    "--\n",
    "1 wrote:\n",
    "1 wrote:\n\n",
    "from:\n",
    "From: a\nSent: b\n",
    "=?utf-8?q?a",
    "=?utf-8?b?YQ==?= ",
    "\"",
    "(",
    "a@",
    "a@x.example, ",
    "<a@x.example> ",
    "<",
    "<<",
    "</",
    "<!--",
    "<a href=",
    "<div>",
    "</div>",
    "<p>a",
    "<b><i>",
    "<table><tr><td>",
    "<style>",
    "<a href=\"https://x.example/1\">",
    "&",
    "&amp;",
    "&#1",
    "https://",
    "https://x.example/1 ",
    "http://x.example/?a=b&",
    "123456 ",
    "1234 56 ",
    "code: ",
    "code 123456\n",
    "1",
    "1-",
    "\u{200b}",
    "\u{202e}",
    "é",
    "ﬁ",
    "--b\n",
    "--b\nContent-Type: text/plain\n\n",
    "Re: ",
    "[a] ",
    "\t",
    "x-a: b\n",
];
/// Long enough to distinguish linear from quadratic time.
const REPEATED_BYTES: usize = 64 * 1024;

#[test]
fn repeated_words_are_parsed_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let heads = [
        "From: a@x.example\nSubject: x\n\n",
        "From: a@x.example\nContent-Type: text/html\n\n",
        "From: a@x.example\nContent-Type: multipart/mixed; boundary=b\n\n--b\n",
        "Subject: ",
        "From: ",
        "References: ",
        "",
    ];
    for (at, head) in heads.iter().enumerate() {
        for (number, word) in REPEATED_WORDS.iter().enumerate() {
            let text = format!("{head}{}", word.repeat(REPEATED_BYTES / word.len()));
            fs::write(folder.path().join(format!("{at}-{number}")), text).expect("a file");
        }
    }
    let corpus = Some(folder.path().to_owned());
    // The view uses all other parsers.
    for target in ["mail_minimise", "mail_thread", "mail_automatic", "mail_bounce"]
        .map(|name| fuzz::find_target(name).expect(name))
    {
        let plan = FuzzPlan { max_inputs: 0, corpus: corpus.clone(), ..plan() };
        let driven = run_target(target, &plan).expect("a run");
        println!("{driven:?}");
        assert!(driven.failures.is_empty(), "{:#?}", driven.failures);
    }
}

#[test]
fn every_parser_has_seeds_that_are_parsed() {
    for target in TARGETS {
        let came: Vec<_> = (target.seeds)().iter().map(|seed| (target.run)(seed)).collect();
        assert!(came.iter().all(Result::is_ok), "{}: {came:?}", target.name);
        assert!(came.contains(&Ok(InputOutcome::Accepted)), "{} refuses every seed it has", target.name);
    }
}

#[test]
fn every_target_is_a_target_of_libfuzzer_too() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let again = "write them again: cargo run -p mailonce-sim --bin mailonce-fuzz -- --write-targets fuzz";
    assert!(fs::read_to_string(dir.join("Cargo.toml")).expect("a manifest") == libfuzzer_files::manifest(), "{again}");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir.join("fuzz_targets")).expect("targets") {
        found.insert(entry.expect("an entry").file_name().into_string().expect("a name"));
    }
    assert_eq!(found, TARGETS.iter().map(|target| format!("{}.rs", target.name)).collect(), "{again}");
    for target in TARGETS {
        let file = dir.join("fuzz_targets").join(format!("{}.rs", target.name));
        assert!(fs::read_to_string(file).expect("a file") == libfuzzer_files::target_file(target.name), "{again}");
    }
}
