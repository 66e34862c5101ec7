//! The crash rig in its short form, and its judges put on trial.
//!
//! | file | what it shows |
//! |---|---|
//! | `short` | deaths at every point of the short form, over both stores and every class of next hop |
//! | `forged` | histories that were tampered with: both judges convict, and of the same |
//! | `mutant` | a server with a wrong turn in it is convicted |
//!
//! It needs the binary built with `--features failpoints`, and a PostgreSQL (`scripts/services`). Longer campaigns are run
//! by `mailonce-crash`.

#[cfg(test)]
mod forged;
#[cfg(test)]
mod mutant;
#[cfg(test)]
mod setting;
#[cfg(test)]
mod short;
#[cfg(test)]
mod under_load;
