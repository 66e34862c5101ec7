//! Faults of the machine: power cuts, and a database that crashes or is unreachable.
//!
//! | file | what it shows |
//! |---|---|
//! | `power` | SQLite after power cuts that drop and tear unsynced writes |
//! | `database` | PostgreSQL crashes, is unreachable, and loses commit replies, under load |
//! | `standby` | a synchronous standby that stops, is promoted or returns; a database restored from a dump; stops across both |
//! | `failover` | failovers to a synchronous standby under load |
//! | `stop` | stops in a storm of sends, with kills: no marker follows the answer |
//! | `partition` | a worker that cannot reach the database while its mail is being sent |
//!
//! Scenarios run in parallel (`parallel_scenarios`), since they mostly wait.
//!
//! `MAILONCE_CUTS=N` sets the power cuts, `MAILONCE_STORMS=N` the rounds of `database` and `partition`,
//! `MAILONCE_STOP_MAILS=N` the mails of `stop`, `MAILONCE_SEED=S` the seed. Results are in `target/proof/faults.json`. The server's binary must be built with
//! `--features failpoints`, and `MAILONCE_PG_BIN` must be the folder of PostgreSQL's programs (`scripts/services`).

#[cfg(test)]
mod database;
#[cfg(test)]
mod failover;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod parallel_scenarios;
#[cfg(test)]
mod partition;
#[cfg(test)]
mod power;
#[cfg(test)]
mod standby;
#[cfg(test)]
mod stop;
