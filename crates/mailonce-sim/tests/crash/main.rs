//! The crash campaign in its short form, and tests of its checkers.
//!
//! | file | what it shows |
//! |---|---|
//! | `every_failpoint` | crashes at every failpoint of the short form, with both stores and every class of next hop |
//! | `under_load` | kills at random moments under heavy load, with both stores |
//! | `claims` | claims while servers are killed between the steps of a call, with both stores |
//! | `forged_histories` | forged histories: both checkers detect the same violations |
//! | `mutants` | servers with a deliberate defect are detected |
//!
//! They need the binary built with `--features failpoints`, and a PostgreSQL (`scripts/services`). `mailonce-crash`
//! runs longer campaigns.

#[cfg(test)]
mod claims;
#[cfg(test)]
mod every_failpoint;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod forged_histories;
#[cfg(test)]
mod mutants;
#[cfg(test)]
mod under_load;
