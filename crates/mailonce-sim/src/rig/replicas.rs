//! A PostgreSQL primary with a synchronous standby. The standby can be cut off and promoted; the primary that was lost
//! comes back as the new standby.

use super::{children::pause, cluster::Cluster, post::until};
use anyhow::{Context as _, Result};
use std::time::Duration;

/// How long a standby may take to catch up.
const CATCHES_UP: Duration = Duration::from_mins(1);

/// Ends the wait of commits for the standby, as an impatient operator does: they are done here and nowhere else.
const CANCEL_WAITS: &str = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid <> pg_backend_pid()";
const IN_SYNC: &str =
    "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')";

/// Two servers, of which one is the primary.
#[derive(Debug)]
pub struct Replicas {
    primary: Cluster,
    standby: Cluster,
}

impl Replicas {
    /// Starts both. From then on every commit waits for the standby, whichever of them it is.
    pub fn start() -> Result<Self> {
        let primary = Cluster::start()?;
        primary.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        let standby = Cluster::standby_of(&primary)?;
        primary.psql("SELECT pg_reload_conf()")?;
        let replicas = Self { primary, standby };
        replicas.wait_until_synchronous()?;
        Ok(replicas)
    }

    /// How to reach whichever of them is the primary.
    pub fn url(&self) -> String {
        self.url_as("mailonce")
    }

    /// The same as another role.
    pub fn url_as(&self, role: &str) -> String {
        let ports = [self.primary.port(), self.standby.port()];
        let hosts = ports.map(|port| format!("127.0.0.1:{port}"));
        format!("postgres://{role}@{}/postgres", hosts.join(","))
    }

    /// The one that takes writes.
    pub fn primary(&mut self) -> &mut Cluster {
        &mut self.primary
    }

    /// Takes the standby away.
    pub fn lose_standby(&mut self) -> Result<()> {
        self.standby.crash()
    }

    /// Brings the standby back, and waits until commits are confirmed again.
    pub fn return_standby(&mut self) -> Result<()> {
        self.standby.go_on()?;
        self.wait_until_synchronous()
    }

    /// Ends the wait of every commit that waits for the standby now. How many there were.
    pub fn cancel_waits(&self) -> Result<u64> {
        self.primary.psql(CANCEL_WAITS)?.parse().context("no number of backends")
    }

    /// The primary is lost and the standby takes its place. The standby may be away at that moment.
    pub fn fail_over(&mut self) -> Result<()> {
        self.primary.crash()?;
        if !self.standby.is_running() {
            self.standby.go_on()?;
        }
        self.standby.promote()?;
        std::mem::swap(&mut self.primary, &mut self.standby);
        Ok(())
    }

    /// The server that was lost becomes the standby of the other. Until then no commit is confirmed.
    pub fn rejoin(&mut self) -> Result<()> {
        let Self { primary, standby } = self;
        standby.follow(primary)?;
        self.wait_until_synchronous()
    }

    fn wait_until_synchronous(&self) -> Result<()> {
        until("a synchronous standby", CATCHES_UP, || {
            pause(Duration::from_millis(20));
            self.primary.psql(IN_SYNC).is_ok_and(|count| count != "0")
        })
    }
}
