//! A private PostgreSQL server that can be crashed and restarted, and that may have a standby.

use super::{
    postgres::{PostgresServer, run_for_output},
    server::free_address,
};
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// How long a start or stop may take, in seconds.
const PG_CTL_TIMEOUT_S: &str = "60";

/// A server, running or not. It is stopped and removed when dropped.
#[derive(Debug)]
pub struct PostgresCluster {
    folder: TempDir,
    bin: PathBuf,
    port: u16,
    running: bool,
}

impl PostgresCluster {
    /// Creates a server with full durability and starts it. `MAILONCE_PG_BIN` is the folder of its programs
    /// (`scripts/services`).
    pub fn start() -> Result<Self> {
        let mut cluster = Self::allocate()?;
        let data = cluster.data();
        let about = ["-U", "mailonce", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"];
        cluster.run_as_postgres("initdb", |command| command.arg("-D").arg(&data).args(about))?;
        cluster.start_again()?;
        Ok(cluster)
    }

    /// Creates and starts a standby of another server.
    pub fn standby_of(primary: &Self) -> Result<Self> {
        let mut standby = Self::allocate()?;
        standby.become_standby_of(primary)?;
        Ok(standby)
    }

    /// Turns this server into a standby of another, whatever it was before.
    pub fn become_standby_of(&mut self, primary: &Self) -> Result<()> {
        if self.running {
            self.crash()?;
        }
        let (data, port) = (self.data(), primary.port.to_string());
        if data.exists() {
            std::fs::remove_dir_all(&data).with_context(|| format!("removing {}", data.display()))?;
        }
        let about = ["-h", "127.0.0.1", "-p", &port, "-U", "mailonce", "-R", "-X", "stream", "-c", "fast", "--no-sync"];
        self.run_as_postgres("pg_basebackup", |command| command.arg("-D").arg(&data).args(about))?;
        self.start_again()
    }

    /// Promotes a standby to primary, on a new timeline.
    pub fn promote(&self) -> Result<()> {
        let data = self.data();
        self.run_as_postgres("pg_ctl", |command| {
            command.arg("-D").arg(&data).args(["-w", "-t", PG_CTL_TIMEOUT_S, "promote"])
        })
    }

    /// Restarts as an operator does: it ends sessions without waiting for them.
    pub fn restart(&mut self) -> Result<()> {
        let data = self.data();
        self.running = false;
        let args = ["-m", "fast", "-w", "-t", PG_CTL_TIMEOUT_S, "stop"];
        self.run_as_postgres("pg_ctl", |command| command.arg("-D").arg(&data).args(args))?;
        self.start_again()
    }

    /// Runs SQL statements and returns their unaligned output.
    pub fn psql(&self, sql: &str) -> Result<String> {
        let mut command = self.tools().command("psql");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", &self.url(), "-c", sql]);
        Ok(run_for_output(command)?.trim().to_owned())
    }

    /// Restores a dump of another server's database into this one.
    pub fn restore_dump_of(&self, other: &Self) -> Result<()> {
        let file = self.folder.path().join("dump.sql");
        let mut dump = self.tools().command("pg_dump");
        dump.arg("-f").arg(&file).arg(other.url());
        run_for_output(dump)?;
        let mut restore = self.tools().command("psql");
        restore.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", &self.url(), "-f"]).arg(&file);
        run_for_output(restore).map(drop)
    }

    fn tools(&self) -> PostgresServer {
        PostgresServer { admin_url: self.url(), bin: Some(self.bin.clone()) }
    }

    /// A folder and a port, with no server yet.
    fn allocate() -> Result<Self> {
        let bin = std::env::var_os("MAILONCE_PG_BIN").map(PathBuf::from).context(
            "MAILONCE_PG_BIN is not set; let `. scripts/services; services_install` find the programs of PostgreSQL",
        )?;
        let folder = tempfile::Builder::new().prefix("mailonce-cluster").tempdir()?;
        if rustix::process::geteuid().is_root() {
            let id = run_for_output(command_as_user("id", &["-u", "postgres"]))?.trim().parse().context("no number")?;
            std::os::unix::fs::chown(folder.path(), Some(id), None)?;
        }
        Ok(Self { bin, port: free_address()?.port(), folder, running: false })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// Its URL through another port of this machine.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://mailonce@127.0.0.1:{port}/postgres")
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Starts it on its existing data.
    pub fn start_again(&mut self) -> Result<()> {
        let (data, log, port) = (self.data(), self.folder.path().join("log"), self.port);
        let folder = self.folder.path().display();
        let options = format!("-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c max_connections=200");
        self.run_as_postgres("pg_ctl", |command| {
            command.arg("-D").arg(&data).arg("-l").arg(&log).args([
                "-o",
                &options,
                "-w",
                "-t",
                PG_CTL_TIMEOUT_S,
                "start",
            ])
        })?;
        self.running = true;
        Ok(())
    }

    /// Stops it immediately, as a crash does.
    pub fn crash(&mut self) -> Result<()> {
        let data = self.data();
        self.running = false;
        let args = ["-m", "immediate", "-w", "-t", PG_CTL_TIMEOUT_S, "stop"];
        self.run_as_postgres("pg_ctl", |command| command.arg("-D").arg(&data).args(args))
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Runs one of its programs, as a user other than root. The processes it starts must not inherit our pipes.
    fn run_as_postgres(&self, name: &str, args: impl FnOnce(&mut Command) -> &mut Command) -> Result<()> {
        let program = self.bin.join(name);
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = command_as_user("runuser", &["-u", "postgres", "--"]);
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        args(&mut command);
        let status = command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.with_context(|| format!("cannot run {name}"))?;
        ensure!(status.success(), "{name} failed ({status}){}", log_tail(&self.folder.path().join("log")));
        Ok(())
    }
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        if self.running
            && let Err(why) = self.crash()
        {
            eprintln!("a PostgreSQL stays in {}: {why:#}", self.folder.path().display());
        }
    }
}

fn command_as_user(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

fn log_tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().last().map(|line| format!(": {line}")).unwrap_or_default()
}
