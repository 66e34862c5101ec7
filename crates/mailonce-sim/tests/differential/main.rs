//! Differential test: the same seeded calls run against memory, SQLite and PostgreSQL, through the real engine and the
//! real HTTP and SMTP handlers, and the three installations must agree.
//!
//! PostgreSQL has two nodes and a synchronous standby. Its nodes differ in their transports, the second one's clock is
//! up to two days off, and the standby stops, is promoted and returns while calls run. All installations restart with
//! other transports and lose inboxes in the middle of SMTP sessions.
//!
//! After each step the test compares the installations with each other and checks each one by itself:
//!
//! | invariant | where |
//! |---|---|
//! | a replay shows the same id, state and revision as `GET`, on every node | `invariants` |
//! | a refused cancel means that something was sent or is unknown | `invariants` |
//! | a `250` means that there is a delivery | `mail` |
//! | whatever waits has a transport and a due time, or is reported as orphaned or escalated | `invariants` |
//! | a reader of events gets every event or `410` | `readers` |
//! | each next hop got each email at most once, and none before its time | `invariants` |
//!
//! | file | what it holds |
//! |---|---|
//! | `plan` | the emails and calls that a seed gives |
//! | `clock` | one time for all installations, with an offset for each node |
//! | `installation`, `node` | a store with its next hops and nodes, and one engine with its handlers |
//! | `scenario` | runs the steps and compares |
//!
//! `MAILONCE_DIFFERENTIAL=N` runs N seeds, each with more steps. `MAILONCE_SEED=S` sets the first seed. PostgreSQL's
//! programs must be named by `MAILONCE_PG_BIN` (`scripts/services`).

#[cfg(test)]
mod clock;
#[cfg(test)]
mod installation;
#[cfg(test)]
mod invariants;
#[cfg(test)]
mod mail;
#[cfg(test)]
mod node;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod readers;
#[cfg(test)]
mod scenario;

#[cfg(test)]
mod tests {
    use mailonce_sim::harness::{
        rng::{env_number, seed_from_env},
        summary_writer::SummaryWriter,
    };
    use std::path::Path;

    use crate::scenario::Scenario;

    /// Steps of a seed in the short and in the long form.
    const STEPS: (usize, usize) = (14, 60);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn memory_sqlite_and_postgresql_agree() {
        let long = env_number("MAILONCE_DIFFERENTIAL");
        let (seeds, steps) = long.map_or((1, STEPS.0), |seeds| (seeds, STEPS.1));
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let command = format!("MAILONCE_DIFFERENTIAL={seeds} cargo test -p mailonce-sim --test differential");
        let (proof, first) = (SummaryWriter::new(target, "differential", &command), seed_from_env());
        for seed in first..first + seeds {
            let counts = Box::pin(Scenario::run(seed, steps)).await;
            println!("seed {seed}: {counts:?}, 0 violations");
            if long.is_some() {
                let counts: Vec<(&str, u64)> = counts.iter().map(|(name, count)| (*name, *count as u64)).collect();
                proof.add(seed, &counts, &[]).unwrap();
            }
        }
    }
}
