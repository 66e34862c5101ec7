//! Simulated worlds: invariants hold in all of them, each is deterministic, and mutants are detected.
//!
//! | file | what it shows |
//! |---|---|
//! | `many` | ten thousand worlds have no violation, and every fault and every state occurs in them |
//! | `again` | a seed is deterministic, and the command that a failure prints replays it |
//! | `lost` | leases whose replies were lost, which worlds found first |
//! | `mutants` | every mutant is detected |
//!
//! `MAILONCE_WORLDS=N` sets the number of worlds, `MAILONCE_SEED=S` the seed.

#[cfg(test)]
mod again;
#[cfg(test)]
mod lost;
#[cfg(test)]
mod many;
#[cfg(test)]
mod mutants;
