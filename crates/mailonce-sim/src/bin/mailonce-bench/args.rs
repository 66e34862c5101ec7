//! The command line.

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use mailonce_sim::harness::postgres::PostgresServer;
use std::path::PathBuf;
use std::time::Duration;

/// Measures mailonce and what it is compared with. Run it with `scripts/bench`.
#[derive(Debug, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(name = "mailonce-bench", version)]
pub(crate) struct Args {
    /// One short round instead of three, without pg-handoff unless it is named: under two minutes
    #[arg(long)]
    pub(crate) quick: bool,
    /// Adds the figures at 10 k, 1 M and 10 M remembered keys, of lists and searches in 1 M emails, of accepting with
    /// search, and of the dashboard
    #[arg(long)]
    pub(crate) full: bool,
    /// Measure only these figures
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    pub(crate) only: Vec<Figure>,
    /// Write the figures as JSON to this file
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
    /// Emails of one hand-off figure; 20000 by default, 4000 with --quick
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    emails: Option<u64>,
    /// Emails that wait when the server of the restart figure is killed
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) queued: u64,
    /// Calls that wait at a time in the waiters figure
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) waiters: usize,
    /// Remembered keys of the growth figures, the smallest first
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000,10000000", value_name = "KEYS,..")]
    pub(crate) growth: Vec<u64>,
    /// Emails in the ledger of the list and search figures
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    pub(crate) ledger_emails: u64,
    /// The server's binary [default: the one next to this program]
    #[arg(long, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,
    /// Where data directories are created [default: the temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Print the services that the selected figures need, and exit
    #[arg(long, hide = true)]
    pub(crate) needs: bool,
    /// The folder of PostgreSQL's programs
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
    /// The script that loads pages of the dashboard
    #[arg(long, hide = true, default_value = "bench/first-paint.mjs")]
    pub(crate) first_paint: PathBuf,
}

/// A figure. `scripts/bench` explains each.
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
    Claim,
    PgClaim,
    Outbox,
    AdvisoryLock,
    Handoff,
    PgHandoff,
    Postfix,
    Restart,
    SmtpIn,
    PostfixIn,
    Dot,
    Wait,
    Waiters,
    Honest,
    Attacked,
    Growth,
    #[value(name = "list-1m")]
    List1m,
    #[value(name = "search-1m")]
    Search1m,
    #[value(name = "pg-list-1m")]
    PgList1m,
    #[value(name = "pg-search-1m")]
    PgSearch1m,
    AcceptSearch,
    Paint,
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
            Self::Claim => "claim",
            Self::PgClaim => "pg-claim",
            Self::Outbox => "outbox",
            Self::AdvisoryLock => "advisory-lock",
            Self::Handoff => "handoff",
            Self::PgHandoff => "pg-handoff",
            Self::Postfix => "postfix",
            Self::Restart => "restart",
            Self::SmtpIn => "smtp-in",
            Self::PostfixIn => "postfix-in",
            Self::Dot => "dot",
            Self::Wait => "wait",
            Self::Waiters => "waiters",
            Self::Honest => "honest",
            Self::Attacked => "attacked",
            Self::Growth => "growth",
            Self::List1m => "list-1m",
            Self::Search1m => "search-1m",
            Self::PgList1m => "pg-list-1m",
            Self::PgSearch1m => "pg-search-1m",
            Self::AcceptSearch => "accept-search",
            Self::Paint => "paint",
        }
    }

    /// What it needs besides the server's binary.
    fn required_services(self) -> &'static [&'static str] {
        match self {
            Self::Echo | Self::Accept | Self::Replay | Self::Batch | Self::Storm | Self::Growth | Self::Claim => &[],
            Self::Dot | Self::Wait | Self::Waiters | Self::Honest | Self::Attacked => &[],
            Self::List1m | Self::Search1m | Self::AcceptSearch => &[],
            Self::Paint => &["chromium"],
            Self::PgAccept | Self::PgReplay | Self::PgBatch | Self::PgStorm | Self::Pgbench => &["postgres"],
            Self::PgClaim | Self::Outbox | Self::AdvisoryLock | Self::PgList1m | Self::PgSearch1m => &["postgres"],
            Self::Redis => &["redis"],
            // `smtp-sink` and `smtp-source` come with Postfix.
            Self::Handoff | Self::Postfix | Self::Restart | Self::SmtpIn | Self::PostfixIn => &["postfix"],
            Self::PgHandoff => &["postfix", "postgres"],
            Self::Seeds => &["postgres", "redis", "node"],
        }
    }
}

impl Args {
    /// Whether a figure is selected.
    pub(crate) fn wants(&self, figure: Figure) -> bool {
        if !self.only.is_empty() {
            return self.only.contains(&figure);
        }
        match figure {
            Figure::Growth | Figure::AcceptSearch | Figure::Paint => self.full,
            Figure::List1m | Figure::Search1m | Figure::PgList1m | Figure::PgSearch1m => self.full,
            Figure::PgHandoff => !self.quick,
            _ => true,
        }
    }

    /// The selected figures.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        Figure::value_variants().iter().copied().filter(|figure| self.wants(*figure)).collect()
    }

    /// The services that the selected figures need.
    pub(crate) fn required_services(&self) -> Vec<&'static str> {
        let mut needs: Vec<_> = self.figures().iter().flat_map(|figure| figure.required_services()).copied().collect();
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// The PostgreSQL to measure on.
    pub(crate) fn postgres(&self) -> Result<PostgresServer> {
        let admin = self.postgres.clone();
        Ok(PostgresServer {
            admin_url: admin.context("no PostgreSQL: MAILONCE_TEST_POSTGRES is not set")?,
            bin: self.pg_bin.clone(),
        })
    }

    /// Number of rounds.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    /// The warm-up time.
    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs(if self.quick { 1 } else { 2 })
    }

    /// Emails of a hand-off figure.
    pub(crate) fn emails(&self) -> u64 {
        self.emails.unwrap_or(if self.quick { 4000 } else { 20_000 })
    }

    /// Emails that are sent before the measurement.
    pub(crate) fn warm_up_emails(&self) -> u64 {
        self.emails().div_ceil(10).min(500)
    }

    /// How long a draining queue is measured.
    pub(crate) fn drain_time(&self) -> Duration {
        Duration::from_secs(if self.quick { 3 } else { 10 })
    }

    /// Duration of an attack.
    pub(crate) fn attack_time(&self) -> Duration {
        Duration::from_secs(if self.quick { 5 } else { 60 })
    }

    /// Duration of the measurement.
    pub(crate) fn measured_time(&self) -> Duration {
        Duration::from_secs(if self.quick { 4 } else { 8 })
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, Figure};
    use clap::{Parser as _, ValueEnum as _};

    fn args(words: &str) -> Args {
        Args::try_parse_from(words.split(' ')).unwrap()
    }

    #[test]
    fn long_figures_are_measured_when_asked_for() {
        assert!(args("bench").wants(Figure::PgHandoff) && !args("bench").wants(Figure::Growth));
        for figure in [Figure::Growth, Figure::List1m, Figure::PgSearch1m, Figure::AcceptSearch, Figure::Paint] {
            assert!(args("bench --full").wants(figure) && !args("bench --quick").wants(figure), "{figure:?}");
        }
        let quick = args("bench --quick");
        assert!(quick.wants(Figure::Handoff) && quick.wants(Figure::Restart) && !quick.wants(Figure::PgHandoff));
        assert!(args("bench --quick --only pg-handoff").wants(Figure::PgHandoff));
    }

    #[test]
    fn needs_are_those_of_the_chosen_figures() {
        assert_eq!(args("bench --only handoff,postfix,restart").required_services(), ["postfix"]);
        assert_eq!(args("bench --only pg-handoff").required_services(), ["postfix", "postgres"]);
        assert!(args("bench --only echo,list-1m,accept-search").required_services().is_empty());
        assert_eq!(args("bench --only paint,pg-search-1m").required_services(), ["chromium", "postgres"]);
    }

    #[test]
    fn figures_have_the_same_name_in_the_table_and_on_the_command_line() {
        for figure in Figure::value_variants() {
            assert_eq!(figure.to_possible_value().unwrap().get_name(), figure.name());
        }
    }
}
