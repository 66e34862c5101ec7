//! Simulated worlds: the real engine over the model store, with time, chance, network and crashes that follow from a
//! seed.
//!
//! One world is one thread and one paused runtime. A seed is expanded into a [`Plan`] (how many nodes, which next hops,
//! which faults: a random subset of all, so that each world has its own weather); then callers, operators and providers
//! do their work while faults happen, everything is healed, time passes, and [`crate::proof`] judges the whole history.
//! The same seed gives the same trace, which [`replay`] shows by running it twice.
//!
//! | file | what it holds |
//! |---|---|
//! | `plan` | what a seed expands into |
//! | `shared` | time, chance, the history and the trace of one world |
//! | `body` | one life of a node: it runs, sleeps or is dead; and its clock |
//! | `ledger` | the store as a node sees it, with errors and lost answers |
//! | `hop`, `wire` | a next hop and what it remembers; the transport that leads there |
//! | `wishes`, `client` | what callers ask for, and asking |
//! | `mail` | mail that comes in, and those who want the codes in it |
//! | `desk`, `agents` | letters that want an answer, and agents that answer them |
//! | `conversations`, `steps` | what the ledger commits about conversations |
//! | `town` | the nodes, and what happens to them |
//! | `course` | a world from its beginning to the judgement |
//! | `reading` | what the ledger shows in the end |
//! | `mutants` | wrong turns that worlds must notice |
//! | `campaign` | many worlds at once, and the sum of them |
//! | `report` | the sum in the form of every rig |

pub mod campaign;
mod clients;
mod cluster;
mod code_mail;
mod conversation_log;
mod conversation_mail;
mod final_state;
pub mod mutants;
mod next_hop;
mod node_process;
mod plan;
mod planned_sends;
mod reply_agents;
pub mod report;
mod simulation;
mod store;
mod transport;
mod world_state;

pub use plan::{FaultKind, HopProfile, WorldPlan};

use crate::proof::{History, Violation};
use std::collections::BTreeMap;

/// What one world came to.
#[derive(Debug)]
pub struct WorldOutcome {
    /// What was planned.
    pub plan: WorldPlan,
    /// A hash over everything that happened, in order.
    pub trace: u64,
    /// What happened, if it was to be told.
    pub log: Vec<String>,
    /// Faults that were made, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What was seen.
    pub history: History,
    /// What was broken.
    pub violations: Vec<Violation>,
}

/// Runs the world of a seed, with a wrong turn or without. `tell` keeps a line for each thing that happens.
pub fn run(seed: u64, mutant: Option<&'static str>, tell: bool) -> WorldOutcome {
    let plan = WorldPlan::from_seed(seed);
    let plan = match mutant.and_then(mutants::find_mutant) {
        Some(mutant) => mutant.overrides.apply_to(plan),
        None => plan,
    };
    run_plan(plan, mutant, tell)
}

/// Runs a world that is planned otherwise than its seed would have it.
pub fn run_plan(plan: WorldPlan, mutant: Option<&'static str>, tell: bool) -> WorldOutcome {
    mailonce_core::mutant::with(mutant, || simulation::run_simulation(plan, tell))
}

/// The command that runs the world of a seed again.
pub fn replay_command(seed: u64, mutant: Option<&str>) -> String {
    let mutant = mutant.map(|name| format!(" --mutant {name}")).unwrap_or_default();
    format!("cargo run -q -p mailonce-sim --bin mailonce-worlds -- --replay {seed}{mutant}")
}

/// Runs the world of a seed twice and compares. The error says where the two part.
pub fn run_twice(seed: u64, mutant: Option<&'static str>) -> Result<WorldOutcome, String> {
    let (first, second) = (run(seed, mutant, true), run(seed, mutant, true));
    if first.trace == second.trace {
        return Ok(second);
    }
    let pairs = first.log.iter().zip(&second.log);
    let parted = pairs.enumerate().find(|(_, (a, b))| a != b);
    Err(match parted {
        Some((at, (a, b))) => format!("line {at} is once `{a}` and once `{b}`"),
        None => format!("one run has {} lines and the other {}", first.log.len(), second.log.len()),
    })
}
