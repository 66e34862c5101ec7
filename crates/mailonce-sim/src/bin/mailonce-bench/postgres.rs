//! Databases of their own on the PostgreSQL under measurement, and `pgbench` there.

use crate::args::Args;
use crate::results::Sample;
use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::process::{Command, Output};

/// Clients of `pgbench`.
const CLIENTS: &str = "16";

/// Key row and outbox row, as a hand-written outbox has them.
const SCHEMA: &str = "CREATE TABLE keys (team int NOT NULL, key bytea NOT NULL, digest bytea NOT NULL, \
    created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (team, key)); \
    CREATE TABLE outbox (id bigserial PRIMARY KEY, key bytea NOT NULL, payload text NOT NULL, \
    state text NOT NULL DEFAULT 'queued', created_at timestamptz NOT NULL DEFAULT now());";

/// One transaction; 31 × 32 letters are about the payload of the other figures.
const TRANSACTION: &str = r"\set n random(1, 9000000000000000000)
BEGIN;
INSERT INTO keys (team, key, digest) VALUES (1, sha256(:n::text::bytea), sha256(:n::text::bytea)) ON CONFLICT DO NOTHING;
INSERT INTO outbox (key, payload) VALUES (sha256(:n::text::bytea), repeat(md5(:n::text), 31));
COMMIT;
";

/// A fresh database; [`Database::drop`] removes it.
pub(crate) struct Database<'a> {
    args: &'a Args,
    name: String,
    pub(crate) url: String,
}

impl<'a> Database<'a> {
    pub(crate) fn create(args: &'a Args, name: &str) -> Result<Self> {
        let admin = args
            .postgres
            .as_deref()
            .context("no PostgreSQL: MAILONCE_TEST_POSTGRES is not set")?;
        let (server, _) = admin
            .rsplit_once('/')
            .context("MAILONCE_TEST_POSTGRES names no database")?;
        psql(args, admin, &format!("CREATE DATABASE {name}"))?;
        Ok(Self {
            args,
            name: name.to_owned(),
            url: format!("{server}/{name}"),
        })
    }

    /// Removes it and leaves nothing to be written behind the next figure's back.
    pub(crate) fn drop(self) -> Result<()> {
        let admin = self.args.postgres.as_deref().unwrap_or_default();
        psql(
            self.args,
            admin,
            &format!("DROP DATABASE {} WITH (FORCE)", self.name),
        )?;
        psql(self.args, admin, "CHECKPOINT")
    }
}

/// Transactions of two inserts a second, as `pgbench` counts them.
pub(crate) fn pgbench(args: &Args, work: &Path, name: &str) -> Result<Sample> {
    let database = Database::create(args, name)?;
    psql(args, &database.url, SCHEMA)?;
    let script = work.join("pgbench.sql");
    std::fs::write(&script, TRANSACTION)?;
    let mut command = program(args, "pgbench");
    command.args(["-n", "-M", "prepared", "-c", CLIENTS, "-j", "2", "-T"]);
    command
        .arg(args.window().as_secs().to_string())
        .arg("-f")
        .arg(&script)
        .arg(&database.url);
    let text = output(command)?;
    let rate = number_after(&text, "tps = ").context("pgbench told no tps")?;
    database.drop()?;
    Ok(Sample {
        rate: Some(rate),
        ..Sample::default()
    })
}

fn number_after(text: &str, mark: &str) -> Option<f64> {
    text.split_once(mark)?.1.split_whitespace().next()?.parse().ok()
}

fn psql(args: &Args, url: &str, sql: &str) -> Result<()> {
    let mut command = program(args, "psql");
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", url, "-c", sql]);
    output(command).map(drop)
}

fn program(args: &Args, name: &str) -> Command {
    args.pg_bin
        .as_ref()
        .map_or_else(|| Command::new(name), |dir| Command::new(dir.join(name)))
}

/// What a program that succeeded printed.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().with_context(|| format!("cannot run {name}"))?;
    ensure!(
        status.success(),
        "{name} failed ({status}): {}",
        String::from_utf8_lossy(&stderr).trim()
    );
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_rate_is_found_in_what_pgbench_prints() {
        let text = "latency average = 3.5 ms\ntps = 4567.5 (without initial connection time)\n";
        assert_eq!(super::number_after(text, "tps = "), Some(4567.5));
    }
}
