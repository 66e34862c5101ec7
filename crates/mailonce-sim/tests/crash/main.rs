//! The crash campaign in its short form, and tests of its checkers.
//!
//! | file | what it shows |
//! |---|---|
//! | `short` | crashes at every failpoint of the short form, with both stores and every class of next hop |
//! | `under_load` | kills at random moments under heavy load, with both stores |
//! | `forged` | forged histories: both checkers detect the same violations |
//! | `mutant` | servers with a deliberate defect are detected |
//!
//! They need the binary built with `--features failpoints`, and a PostgreSQL (`scripts/services`). `mailonce-crash`
//! runs longer campaigns.

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
