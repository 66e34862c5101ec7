//! What is to be measured, as the command line says it.

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use mailonce_sim::rig::postgres::Postgres;
use std::path::PathBuf;
use std::time::Duration;

/// Measures mailonce, and beside it what it is compared with. `scripts/bench` is the way to run it.
#[derive(Debug, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(name = "mailonce-bench", version)]
pub(crate) struct Args {
    /// One short round instead of three: under two minutes
    #[arg(long)]
    pub(crate) quick: bool,
    /// Adds the accept figures at 10 k, 1 M and 10 M remembered keys
    #[arg(long)]
    pub(crate) full: bool,
    /// Measures these alone
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    pub(crate) only: Vec<Figure>,
    /// Where the figures go as JSON
    #[arg(long, value_name = "FILE", default_value = "target/bench.json")]
    pub(crate) json: PathBuf,
    /// Exit code 1 when a gate fails
    #[arg(long)]
    pub(crate) gate: bool,
    /// Connections of the load generator
    #[arg(long, default_value_t = 256)]
    pub(crate) connections: usize,
    /// Threads of the load generator
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Simultaneous sends of one key
    #[arg(long, default_value_t = 10_000)]
    pub(crate) storm: usize,
    /// Remembered keys of the growth figures, the smallest first
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000,10000000", value_name = "KEYS,..")]
    pub(crate) growth: Vec<u64>,
    /// The server's binary; by default the one beside this program
    #[arg(long, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,
    /// Where data directories are made; by default the temporary directory
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Prints which services the chosen figures need, and ends
    #[arg(long, hide = true)]
    pub(crate) needs: bool,
    /// The programs of PostgreSQL
    #[arg(long, hide = true, env = "MAILONCE_PG_BIN")]
    pub(crate) pg_bin: Option<PathBuf>,
    /// The PostgreSQL to measure on
    #[arg(long, hide = true, env = "MAILONCE_TEST_POSTGRES")]
    pub(crate) postgres: Option<String>,
    /// The Redis to measure on
    #[arg(long, hide = true, env = "MAILONCE_TEST_REDIS")]
    pub(crate) redis: Option<String>,
    /// The service that follows the seeds' pattern
    #[arg(long, hide = true, default_value = "bench/seed-pattern")]
    pub(crate) seed_pattern: PathBuf,
}

/// One figure. What each means is said at the top of `scripts/bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Figure {
    Echo,
    Accept,
    Replay,
    Batch,
    Storm,
    PgAccept,
    PgReplay,
    PgBatch,
    PgStorm,
    Seeds,
    Redis,
    Pgbench,
    Growth,
}

impl Figure {
    /// The name on the command line, in the table and in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Accept => "accept",
            Self::Replay => "replay",
            Self::Batch => "batch",
            Self::Storm => "storm",
            Self::PgAccept => "pg-accept",
            Self::PgReplay => "pg-replay",
            Self::PgBatch => "pg-batch",
            Self::PgStorm => "pg-storm",
            Self::Seeds => "seeds",
            Self::Redis => "redis",
            Self::Pgbench => "pgbench",
            Self::Growth => "growth",
        }
    }

    /// What it needs beside the server's binary.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Echo | Self::Accept | Self::Replay | Self::Batch | Self::Storm | Self::Growth => &[],
            Self::PgAccept | Self::PgReplay | Self::PgBatch | Self::PgStorm | Self::Pgbench => &["postgres"],
            Self::Redis => &["redis"],
            Self::Seeds => &["postgres", "redis", "node"],
        }
    }
}

impl Args {
    /// Whether a figure is to be measured.
    pub(crate) fn wants(&self, figure: Figure) -> bool {
        if self.only.is_empty() { figure != Figure::Growth || self.full } else { self.only.contains(&figure) }
    }

    /// The figures to be measured.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        Figure::value_variants().iter().copied().filter(|figure| self.wants(*figure)).collect()
    }

    /// The services the chosen figures need, each once.
    pub(crate) fn needs(&self) -> Vec<&'static str> {
        let mut needs: Vec<_> = self.figures().iter().flat_map(|figure| figure.needs()).copied().collect();
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// The PostgreSQL to measure on.
    pub(crate) fn postgres(&self) -> Result<Postgres> {
        let admin = self.postgres.clone();
        Ok(Postgres {
            admin: admin.context("no PostgreSQL: MAILONCE_TEST_POSTGRES is not set")?,
            bin: self.pg_bin.clone(),
        })
    }

    /// How often everything is measured.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    /// What is sent before the counting begins.
    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs(if self.quick { 1 } else { 2 })
    }

    /// How long is counted.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(if self.quick { 4 } else { 8 })
    }
}
