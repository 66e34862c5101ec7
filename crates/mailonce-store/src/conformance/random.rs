//! Random verbs: the engine under test and the model get the same calls and must give the same answers.
//!
//! A seed is a list of turns; a turn names emails by their place, so that a list with gaps still plays and a
//! difference can be boiled down. `MAILONCE_RANDOM_SEEDS` plays more seeds, `MAILONCE_RANDOM_SEED` only that one.

use mailonce_core::id::IdGenerator;
use std::cell::RefCell;

use super::{
    OpenStore,
    draft::IDS,
    play::ModelComparison,
    turn::{RandomStep, SplitMix64},
};

const SEEDS: u64 = 40;
const STEPS_PER_SEED: usize = 150;
/// How often a failing list is played again to make it shorter.
const MAX_SHRINK_RUNS: usize = 300;

pub(super) async fn random_verbs_agree_with_the_model(open: impl AsyncFn() -> OpenStore) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("MAILONCE_RANDOM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MAILONCE_RANDOM_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let mut chance = SplitMix64(seed);
        let turns: Vec<RandomStep> = (0..STEPS_PER_SEED).map(|_| RandomStep::random(&mut chance)).collect();
        if replay(&open, &turns).await.is_some() {
            let (turns, difference) = shrink(&open, turns).await;
            let turns: Vec<String> = turns.iter().map(|turn| format!("  {turn:?}\n")).collect();
            panic!("MAILONCE_RANDOM_SEED={seed} differs from the model after\n{}{difference}", turns.concat());
        }
    }
}

/// Plays turns on fresh stores. The first difference: the turns it took and what differs.
async fn replay(open: &impl AsyncFn() -> OpenStore, turns: &[RandomStep]) -> Option<(usize, String)> {
    let opened = open().await;
    let mut world = ModelComparison::new(opened.store.clone());
    let game = async {
        world.create_teams().await;
        for (i, turn) in turns.iter().enumerate() {
            if let Err(difference) = world.run_step(turn).await {
                return Some((i + 1, difference));
            }
            if (i + 1) % 25 == 0
                && let Err(difference) = world.compare().await
            {
                return Some((i + 1, difference));
            }
        }
        world.compare().await.err().map(|difference| (turns.len(), difference))
    };
    let difference = Box::pin(IDS.scope(RefCell::new(IdGenerator::default()), game)).await;
    opened.store.close().await;
    difference
}

/// Leaves out turns while there is still a difference.
async fn shrink(open: &impl AsyncFn() -> OpenStore, mut turns: Vec<RandomStep>) -> (Vec<RandomStep>, String) {
    let mut told = String::new();
    let (mut size, mut at, mut left) = (turns.len(), 0, MAX_SHRINK_RUNS);
    // The whole list is played once more, which cuts off what came after the difference.
    let mut candidate = turns.clone();
    while size > 0 && left > 0 {
        left -= 1;
        if let Some((played, difference)) = replay(open, &candidate).await {
            told = difference;
            candidate.truncate(played);
            turns = candidate;
        } else {
            at += size;
        }
        if at >= turns.len() || size > turns.len() {
            (size, at) = (size.min(turns.len()) / 2, 0);
        }
        let end = (at + size).min(turns.len());
        candidate = [&turns[..at], &turns[end..]].concat();
    }
    (turns, told)
}
