//! Faults of the machine: power that goes, a database that crashes or cannot be reached.
//!
//! | file | what it shows |
//! |---|---|
//! | `power` | SQLite after power cuts that drop and tear what was not synced |
//! | `database` | PostgreSQL crashed, cut off, and the answers of its commits lost, under load |
//! | `standby` | a synchronous standby away, promoted or back; a database restored from a dump |
//! | `failover` | failovers to a synchronous standby under load |
//! | `partition` | a worker that cannot reach the database while its mail is on the wire |
//!
//! Scenes are played beside each other (`beside`), since most of their time they wait.
//!
//! `MAILONCE_CUTS=N` asks for more power cuts, `MAILONCE_STORMS=N` for more rounds of `database` and `partition`,
//! `MAILONCE_SEED=S` for other or the same randomness. What was found is in `target/proof/faults.json`. The server's
//! binary must be built with `--features failpoints`, and `MAILONCE_PG_BIN` must name the programs of PostgreSQL
//! (`scripts/services`).

#[cfg(test)]
mod beside;
#[cfg(test)]
mod database;
#[cfg(test)]
mod failover;
#[cfg(test)]
mod partition;
#[cfg(test)]
mod power;
#[cfg(test)]
mod setting;
#[cfg(test)]
mod standby;
