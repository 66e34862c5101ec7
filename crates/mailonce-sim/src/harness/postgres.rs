//! Temporary databases on the PostgreSQL server for tests and benchmarks.

use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use std::process::{Command, Output};

/// A PostgreSQL server and its client programs.
#[derive(Debug, Clone, Default)]
pub struct PostgresServer {
    /// URL of a superuser's database: `postgres://user@host:port/postgres`.
    pub admin_url: String,
    /// The folder of `psql` and the other programs; by default they are on the path.
    pub bin: Option<PathBuf>,
}

impl PostgresServer {
    /// The server that `scripts/services` started.
    pub fn from_env() -> Result<Self> {
        let admin = std::env::var("MAILONCE_TEST_POSTGRES").ok();
        Ok(Self {
            admin_url: admin.filter(|url| !url.is_empty()).context(
                "MAILONCE_TEST_POSTGRES is not set; start one by `. scripts/services; services_start_postgres off`",
            )?,
            bin: std::env::var_os("MAILONCE_PG_BIN").map(PathBuf::from),
        })
    }

    /// Creates an empty database.
    pub fn create_database(&self, name: &str) -> Result<TemporaryDatabase> {
        let (server, _) = self.admin_url.rsplit_once('/').context("MAILONCE_TEST_POSTGRES names no database")?;
        self.psql(&self.admin_url, &format!("CREATE DATABASE {name}"))?;
        Ok(TemporaryDatabase {
            postgres: self.clone(),
            name: name.to_owned(),
            url: format!("{server}/{name}"),
            exists: true,
        })
    }

    /// Runs SQL statements.
    pub fn psql(&self, url: &str, sql: &str) -> Result<()> {
        let mut command = self.command("psql");
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", url, "-c", sql]);
        run_for_output(command).map(drop)
    }

    /// A command for one of its programs.
    pub fn command(&self, name: &str) -> Command {
        self.bin.as_ref().map_or_else(|| Command::new(name), |dir| Command::new(dir.join(name)))
    }
}

/// A database that is dropped with this value.
#[derive(Debug)]
pub struct TemporaryDatabase {
    postgres: PostgresServer,
    name: String,
    /// Its URL.
    pub url: String,
    exists: bool,
}

impl TemporaryDatabase {
    /// Drops the database and runs a checkpoint, so that no pending writes slow down the next test.
    pub fn drop_database(mut self) -> Result<()> {
        self.drop_if_exists()?;
        self.postgres.psql(&self.postgres.admin_url, "CHECKPOINT")
    }

    fn drop_if_exists(&mut self) -> Result<()> {
        self.exists = false;
        let sql = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        self.postgres.psql(&self.postgres.admin_url, &sql)
    }
}

impl Drop for TemporaryDatabase {
    fn drop(&mut self) {
        if self.exists
            && let Err(why) = self.drop_if_exists()
        {
            eprintln!("the database {} stays: {why:#}", self.name);
        }
    }
}

/// Runs a program and returns its output. Fails if the program fails.
pub fn run_for_output(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } = command.output().with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "{name} failed ({status}): {}", String::from_utf8_lossy(&stderr).trim());
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
