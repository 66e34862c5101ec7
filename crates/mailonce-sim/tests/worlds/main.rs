//! Simulated worlds: invariants hold in all of them, each is deterministic, and mutants are detected.
//!
//! | file | what it shows |
//! |---|---|
//! | `campaign` | ten thousand worlds have no violation, and every fault and every state occurs in them |
//! | `determinism` | a seed is deterministic, and the command that a failure prints replays it |
//! | `lost_leases` | leases whose replies were lost, which worlds found first |
//! | `mutants` | every mutant is detected |
//!
//! `MAILONCE_WORLDS=N` sets the number of worlds, `MAILONCE_SEED=S` the seed.

#[cfg(test)]
mod campaign;
#[cfg(test)]
mod determinism;
#[cfg(test)]
mod lost_leases;
#[cfg(test)]
mod mutants;
