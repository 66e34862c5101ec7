//! Random histories: the store under test and the memory store get the same calls and must give the same answers.
//!
//! A seed gives a list of steps. A step names emails by how recent they are, not by id, so that a list still runs when
//! steps are left out. A failing list is therefore shortened before it is reported.
//!
//! `MAILONCE_RANDOM_SEEDS` sets the number of seeds, `MAILONCE_RANDOM_SEED` runs only that one.

mod claims;
mod conversations;
mod handoffs;
mod inbound;
mod inbound_commands;
mod model_comparison;
mod step;
mod templates;
mod webhooks;

use mailonce_core::id::IdGenerator;
use std::cell::RefCell;

use super::fixtures::{
    emails::IDS,
    open_store::{self, OpenStore},
};
use model_comparison::ModelComparison;
use step::{RandomStep, SplitMix64};

/// Statement and name of the promise, as `docs/promises.md` shows them.
pub(super) const PROMISE: (&str, &str) =
    ("All stores agree with the memory store on random histories.", "random_histories_agree_with_the_model");

const SEEDS: u64 = 40;
const STEPS_PER_SEED: usize = 150;
/// How often a failing list is run again to make it shorter.
const MAX_SHRINK_RUNS: usize = 300;

async fn check_random_histories(open: impl AsyncFn() -> OpenStore) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("MAILONCE_RANDOM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MAILONCE_RANDOM_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let mut rng = SplitMix64(seed);
        let steps: Vec<RandomStep> = (0..STEPS_PER_SEED).map(|_| RandomStep::random(&mut rng)).collect();
        if let Some((_, first_difference)) = run(&open, &steps).await {
            // A difference that depends on timing may not show up again. Then the whole list and its message remain.
            let (steps, difference) = shrink(&open, steps, first_difference).await;
            let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}\n")).collect();
            panic!("MAILONCE_RANDOM_SEED={seed} differs from the model after\n{}{difference}", steps.concat());
        }
    }
}

/// Runs steps on new stores. Returns the first difference, and how many steps it took.
async fn run(open: &impl AsyncFn() -> OpenStore, steps: &[RandomStep]) -> Option<(usize, String)> {
    let opened = open().await;
    let mut comparison = ModelComparison::new(opened.store.clone());
    let history = async {
        comparison.create_teams().await;
        for (i, step) in steps.iter().enumerate() {
            if let Err(difference) = comparison.run_step(step).await {
                return Some((i + 1, difference));
            }
            if (i + 1) % 25 == 0
                && let Err(difference) = comparison.compare().await
            {
                return Some((i + 1, difference));
            }
        }
        comparison.compare().await.err().map(|difference| (steps.len(), difference))
    };
    let difference = Box::pin(IDS.scope(RefCell::new(IdGenerator::default()), history)).await;
    opened.store.close().await;
    difference
}

/// Leaves out steps while there is still a difference.
async fn shrink(
    open: &impl AsyncFn() -> OpenStore,
    mut steps: Vec<RandomStep>,
    first_difference: String,
) -> (Vec<RandomStep>, String) {
    let mut last_difference = first_difference;
    let (mut size, mut at, mut runs_left) = (steps.len(), 0, MAX_SHRINK_RUNS);
    // The first run repeats the whole list, which cuts off the steps after the difference.
    let mut candidate = steps.clone();
    while size > 0 && runs_left > 0 {
        runs_left -= 1;
        if let Some((length, difference)) = run(open, &candidate).await {
            last_difference = difference;
            candidate.truncate(length);
            steps = candidate;
        } else {
            at += size;
        }
        if at >= steps.len() || size > steps.len() {
            (size, at) = (size.min(steps.len()) / 2, 0);
        }
        let end = (at + size).min(steps.len());
        candidate = [&steps[..at], &steps[end..]].concat();
    }
    (steps, last_difference)
}

mod memory {
    use super::{check_random_histories, open_store};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn random_histories_agree_with_the_model() {
        check_random_histories(async || open_store::memory()).await;
    }
}

mod sqlite {
    use super::{check_random_histories, open_store};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn random_histories_agree_with_the_model() {
        check_random_histories(async || open_store::sqlite()).await;
    }
}

mod postgres {
    use super::{check_random_histories, open_store};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn random_histories_agree_with_the_model() {
        check_random_histories(open_store::postgres).await;
    }
}
