//! The outbox: rows of the user's own PostgreSQL, from the commit until a server has accepted and marked all of them.

use crate::args::Args;
use crate::results::FigureSample;
use anyhow::{Result, ensure};
use mailonce_sim::harness::{
    child_processes::ChildProcesses,
    postgres::{PostgresServer, run_for_output},
    server::{ServerSetup, mailonce_command},
};
use std::{path::Path, time::Instant};

/// Rows that are drained before the clock runs.
const WARM_UP_ROWS: usize = 500;
/// Inserts this many emails of about 1 KB, in one transaction.
const INSERT: &str = "SELECT count(mailonce_outbox.send(jsonb_build_object('from', 'shop@mailonce.test', \
    'to', 'user-' || n || '@example.com', 'subject', 'Order ' || n, 'text', repeat(md5(n::text), 25)))) \
    FROM generate_series(1, {rows}) n";
/// Returns when no row waits. Each look sees the latest commits.
const WAIT: &str = "DO $$ BEGIN WHILE EXISTS (SELECT 1 FROM mailonce_outbox.rows WHERE state = 'pending') LOOP \
    PERFORM pg_sleep(0.02); END LOOP; END $$";

/// A server with its ledger in PostgreSQL that drains an outbox in another database of the same server.
pub(crate) struct OutboxBench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) children: &'a ChildProcesses,
    pub(crate) binary: &'a Path,
    pub(crate) work: &'a Path,
    pub(crate) round: usize,
}

impl OutboxBench<'_> {
    /// Rows that the server drains a second.
    pub(crate) fn measure(&self) -> Result<FigureSample> {
        let postgres = self.args.postgres()?;
        let ledger = postgres.create_database(&format!("mailonce_{}_outbox", self.round))?;
        let shop = postgres.create_database(&format!("shop_{}", self.round))?;
        let mut install = mailonce_command(self.binary);
        install.args(["outbox", "install", "--database", &shop.url]);
        run_for_output(install)?;
        let data = tempfile::Builder::new().prefix("data").tempdir_in(self.work)?;
        let config = data.path().with_extension("toml");
        std::fs::write(&config, format!("[[outboxes]]\nname = \"shop\"\ndatabase = \"{}\"\n", shop.url))?;
        let server = ServerSetup {
            binary: self.binary,
            data: data.path(),
            store: Some(&ledger.url),
            paused: true,
            env: &[("MAILONCE_CONFIG", config.into())],
        }
        .start(self.children)?;
        let rows = if self.args.quick { 4_000 } else { 20_000 };
        drain(&postgres, &shop.url, WARM_UP_ROWS)?;
        let seconds = drain(&postgres, &shop.url, rows)?;
        server.terminate()?;
        let done = query(&postgres, &shop.url, "SELECT count(*) FROM mailonce_outbox.rows WHERE state = 'done'")?;
        ensure!(done == (rows + WARM_UP_ROWS).to_string(), "{done} rows are done of {}", rows + WARM_UP_ROWS);
        shop.drop_database()?;
        ledger.drop_database()?;
        Ok(FigureSample { rate: Some(rows as f64 / seconds), ..FigureSample::default() })
    }
}

/// Inserts rows and waits until all are drained. Returns the seconds since the commit.
fn drain(postgres: &PostgresServer, url: &str, rows: usize) -> Result<f64> {
    postgres.psql(url, &INSERT.replace("{rows}", &rows.to_string()))?;
    let start = Instant::now();
    postgres.psql(url, WAIT)?;
    Ok(start.elapsed().as_secs_f64())
}

fn query(postgres: &PostgresServer, url: &str, sql: &str) -> Result<String> {
    let mut command = postgres.command("psql");
    command.args(["-X", "-q", "-A", "-t", url, "-c", sql]);
    Ok(run_for_output(command)?.trim().to_owned())
}
