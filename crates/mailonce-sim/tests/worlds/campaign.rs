//! Thousands of worlds.

use mailonce_core::handoff::HandoffState;
use mailonce_sim::harness::rng::env_number;
use mailonce_sim::world::FaultKind;
use mailonce_sim::world::campaign::{WorldCampaign, WorldSummary};

/// The number of worlds, unless `MAILONCE_WORLDS` is set.
const WORLDS: u64 = 10_000;
/// The first seed, fixed unless another is set, so that a failure comes from the change. `mailonce-worlds` uses new
/// seeds.
const SEED: u64 = 1;
/// Each fault and each state occurs this often in this many worlds.
const MIN_OCCURRENCES: u64 = 1;
/// Guards, and other events of conversations.
const CONVERSATION_COUNTS: [&str; 22] = [
    "self",
    "automatic",
    "already_answered",
    "leased",
    "stale lease",
    "newer_message",
    "cap of the window",
    "cap of the day",
    "cap of the person",
    "looks_duplicate",
    "filed",
    "offered",
    "leased by hand",
    "extended",
    "released",
    "acked",
    "postponed",
    "answered",
    "passed on",
    "asked about cap",
    "asked about unanswered",
    "asked about unknown",
];
/// What happens to claims.
const CLAIM_COUNTS: [&str; 6] = [
    "begun",
    "begun under a later lease",
    "ended as completed",
    "ended as failed",
    "ended as unknown",
    "ended as abandoned",
];
/// Failures that are shown.
const SHOWN: usize = 3;

#[test]
fn worlds_have_no_violations() {
    let worlds = env_number("MAILONCE_WORLDS").unwrap_or(WORLDS);
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let seed = env_number("MAILONCE_SEED").unwrap_or(SEED);
    let summary = WorldCampaign { seed, worlds, jobs, mutant: None, stop_at_first: false }.run();
    println!("{} (from seed {})", summary.headline(), summary.seed);
    println!("conversations: {:?}", summary.conversations);
    println!("claims: {:?}", summary.claims);
    let shown: Vec<String> = summary.failures.iter().take(SHOWN).map(ToString::to_string).collect();
    assert_eq!(summary.violations, 0, "\n{}", shown.join("\n"));
    if worlds >= WORLDS {
        assert_everything_occurs(&summary);
    }
}

/// Everything must occur, since what never happens proves nothing.
fn assert_everything_occurs(summary: &WorldSummary) {
    let seldom = |count: Option<&u64>| count.copied().unwrap_or_default() < MIN_OCCURRENCES;
    let faults: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let faults: Vec<&&str> = faults.iter().filter(|word| seldom(summary.faults.get(**word))).collect();
    assert!(faults.is_empty(), "{faults:?} hardly happened: {:?}", summary.faults);
    // Transient states, which nothing is in at the end.
    let passing = [HandoffState::Leased, HandoffState::Sending, HandoffState::Queued, HandoffState::Scheduled];
    let ends = HandoffState::ALL.iter().filter(|state| !passing.contains(state)).map(|state| state.as_str());
    let missed: Vec<&str> = ends.filter(|word| seldom(summary.states.get(*word))).collect();
    assert!(missed.is_empty(), "hardly anything ended as {missed:?}: {:?}", summary.states);
    let silent: Vec<&&str> =
        CONVERSATION_COUNTS.iter().filter(|word| seldom(summary.conversations.get(**word))).collect();
    assert!(silent.is_empty(), "{silent:?} hardly happened in conversations: {:?}", summary.conversations);
    let unclaimed: Vec<&&str> = CLAIM_COUNTS.iter().filter(|word| seldom(summary.claims.get(**word))).collect();
    assert!(unclaimed.is_empty(), "{unclaimed:?} hardly happened to claims: {:?}", summary.claims);
    assert!(summary.replayed >= WORLDS / 100, "{} worlds were run twice", summary.replayed);
}
