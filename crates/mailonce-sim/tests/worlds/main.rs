//! Simulated worlds: the promises hold in all of them, each is the same again, and wrong turns are noticed.
//!
//! | file | what it shows |
//! |---|---|
//! | `many` | ten thousand worlds break no promise, and every fault and every state occurs in them |
//! | `again` | a seed gives the same world again, and the command that a failure prints runs it |
//! | `lost` | leases whose answers were lost, which worlds found first |
//! | `mutants` | every wrong turn is convicted |
//!
//! `MAILONCE_WORLDS=N` asks for more or fewer worlds, `MAILONCE_SEED=S` for other or the same randomness.

#[cfg(test)]
mod again;
#[cfg(test)]
mod lost;
#[cfg(test)]
mod many;
#[cfg(test)]
mod mutants;
