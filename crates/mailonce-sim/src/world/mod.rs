//! Simulated worlds: the real engine over the memory store, with time, randomness, network and crashes from a seed.
//!
//! A world is one thread with a paused runtime. Its seed expands into a plan: the number of nodes, the next hops, and a
//! random subset of all faults. Then clients, operators and providers work while faults happen, all faults end, time
//! passes, and [`crate::proof`] checks the whole history. The same seed gives the same trace, which [`replay`]
//! verifies.
//!
//! | file | what it holds |
//! |---|---|
//! | `plan` | what a seed expands into |
//! | `world_state` | time, randomness, the history and the trace of a world |
//! | `node_process` | one process of a node: running, paused or dead; and its clock |
//! | `store` | the store as a node sees it, with errors and lost replies |
//! | `next_hop`, `transport` | a next hop and what it remembers; the transport that leads there |
//! | `planned_sends`, `clients` | sends, and the clients that make them |
//! | `code_mail` | received mail with codes, and the agents that consume them |
//! | `conversation_mail`, `reply_agents` | received mail that needs a reply, and the agents that reply |
//! | `claim_workers` | workers that claim side effects, and people who decide about lost ones |
//! | `conversation_log` | the commits about conversations |
//! | `cluster` | the nodes, and faults that affect them |
//! | `simulation` | a world from its start to the check |
//! | `final_state` | the ledger at the end |
//! | `mutants` | deliberate defects that worlds must detect |
//! | `campaign` | many worlds in parallel, and their totals |
//! | `report` | the totals in the format of `docs/proof.md` |

pub mod campaign;
mod claim_workers;
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

/// The result of one world.
#[derive(Debug)]
pub struct WorldOutcome {
    /// The plan.
    pub plan: WorldPlan,
    /// A hash of everything that happened, in order.
    pub trace: u64,
    /// The trace, if it was requested.
    pub log: Vec<String>,
    /// Injected faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The history.
    pub history: History,
    /// Broken invariants.
    pub violations: Vec<Violation>,
}

/// Runs the world of a seed, optionally with a mutant. `tell` keeps a trace line for each event.
pub fn run(seed: u64, mutant: Option<&'static str>, tell: bool) -> WorldOutcome {
    let plan = WorldPlan::from_seed(seed);
    let plan = match mutant.and_then(mutants::find_mutant) {
        Some(mutant) => mutant.overrides.apply_to(plan),
        None => plan,
    };
    run_plan(plan, mutant, tell)
}

/// Runs a world with another plan than that of its seed.
pub fn run_plan(plan: WorldPlan, mutant: Option<&'static str>, tell: bool) -> WorldOutcome {
    mailonce_core::mutant::with(mutant, || simulation::run_simulation(plan, tell))
}

/// The command that replays the world of a seed.
pub fn replay_command(seed: u64, mutant: Option<&str>) -> String {
    let mutant = mutant.map(|name| format!(" --mutant {name}")).unwrap_or_default();
    format!("cargo run -q -p mailonce-sim --bin mailonce-worlds -- --replay {seed}{mutant}")
}

/// Runs the world of a seed twice and compares the traces. The error shows the first difference.
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
