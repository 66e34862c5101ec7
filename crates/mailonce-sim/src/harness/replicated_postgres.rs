//! A PostgreSQL primary with a synchronous standby. The standby can be cut off and promoted; the lost primary returns
//! as the new standby.

use crate::harness::{child_processes::sleep, postgres_cluster::PostgresCluster, server_fixture::wait_until};
use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

/// How long a standby may take to catch up.
const CATCH_UP_TIMEOUT: Duration = Duration::from_mins(1);

/// Cancels the wait of commits for the standby, as an impatient operator does: they are committed on the primary only.
const CANCEL_SYNC_WAITS_SQL: &str = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid <> pg_backend_pid()";
/// Commits that wait for the standby and wrote to a table: their locks are released after the wait.
const SYNC_WAITS_OF_TABLE_SQL: &str = "
    SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE wait_event = 'SyncRep' AND mode = 'RowExclusiveLock' AND relation = to_regclass('TABLE')";
const SYNC_STANDBYS_SQL: &str =
    "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')";

/// The process of a standby that receives commits. Suspended, it confirms none: that takes no time, while a server needs a
/// second to stop on a busy machine.
#[derive(Debug)]
pub struct WalReceiver(Pid);

impl WalReceiver {
    /// Suspends it.
    pub fn suspend(&self) -> Result<()> {
        Ok(kill_process(self.0, Signal::STOP)?)
    }

    /// Resumes it.
    pub fn resume(&self) -> Result<()> {
        Ok(kill_process(self.0, Signal::CONT)?)
    }
}

/// Two servers, one of which is the primary.
#[derive(Debug)]
pub struct ReplicatedPostgres {
    primary: PostgresCluster,
    standby: PostgresCluster,
}

impl ReplicatedPostgres {
    /// Starts both. From then on every commit waits for the standby.
    pub fn start() -> Result<Self> {
        let primary = PostgresCluster::start()?;
        primary.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        let standby = PostgresCluster::standby_of(&primary)?;
        primary.psql("SELECT pg_reload_conf()")?;
        let replicas = Self { primary, standby };
        replicas.wait_until_synchronous()?;
        Ok(replicas)
    }

    /// The URL that reaches the current primary.
    pub fn url(&self) -> String {
        self.url_as("mailonce")
    }

    /// The same URL for another role.
    pub fn url_as(&self, role: &str) -> String {
        let ports = [self.primary.port(), self.standby.port()];
        let hosts = ports.map(|port| format!("127.0.0.1:{port}"));
        format!("postgres://{role}@{}/postgres", hosts.join(","))
    }

    /// The current primary.
    pub fn primary(&mut self) -> &mut PostgresCluster {
        &mut self.primary
    }

    /// The process of the standby that receives commits.
    pub fn wal_receiver(&self) -> Result<WalReceiver> {
        let pid = self.standby.psql("SELECT pid FROM pg_stat_wal_receiver")?.parse().context("no process id")?;
        Ok(WalReceiver(Pid::from_raw(pid).context("no process id")?))
    }

    /// Stops the standby.
    pub fn stop_standby(&mut self) -> Result<()> {
        self.standby.crash()
    }

    /// Starts the standby and waits until commits are confirmed again.
    pub fn restart_standby(&mut self) -> Result<()> {
        self.standby.start_again()?;
        self.wait_until_synchronous()
    }

    /// Cancels the wait of every commit that waits for the standby. Returns their number.
    pub fn cancel_sync_waits(&self) -> Result<u64> {
        self.primary.psql(CANCEL_SYNC_WAITS_SQL)?.parse().context("no number of backends")
    }

    /// Whether a commit that wrote to a table waits for the standby.
    pub fn has_sync_wait(&self, table: &str) -> Result<bool> {
        Ok(self.primary.psql(&SYNC_WAITS_OF_TABLE_SQL.replace("TABLE", table))? != "0")
    }

    /// Crashes the primary and promotes the standby, which may be stopped at that moment.
    pub fn fail_over(&mut self) -> Result<()> {
        self.primary.crash()?;
        if !self.standby.is_running() {
            self.standby.start_again()?;
        }
        self.standby.promote()?;
        std::mem::swap(&mut self.primary, &mut self.standby);
        Ok(())
    }

    /// Turns the lost server into the standby of the new primary. Until then no commit is confirmed.
    pub fn rejoin(&mut self) -> Result<()> {
        let Self { primary, standby } = self;
        standby.become_standby_of(primary)?;
        self.wait_until_synchronous()
    }

    fn wait_until_synchronous(&self) -> Result<()> {
        wait_until("a synchronous standby", CATCH_UP_TIMEOUT, || {
            sleep(Duration::from_millis(20));
            self.primary.psql(SYNC_STANDBYS_SQL).is_ok_and(|count| count != "0")
        })
    }
}
