//! The rounds of a failover campaign.

use crate::{
    harness::{
        child_processes::{ChildProcesses, sleep},
        http,
        ledger_snapshot::LedgerSnapshot,
        recorded_load::poll_until,
        replicated_postgres::ReplicatedPostgres,
        rng::SeededRng,
        server::ServerProcess,
        server_fixture::{OutboundTarget, ServerFixture},
        summary_writer::print_line,
    },
    sink::smtp::{self, SmtpSink},
};
use anyhow::{Context as _, Result, ensure};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
    sync::atomic::Ordering,
    time::Duration,
};
use tokio::runtime::Runtime;

use super::clients::{FailoverClients, check_readers};

/// Concurrent senders.
const SENDERS: u64 = 6;
/// How long the load runs between two rounds.
const PAUSE_BETWEEN_ROUNDS: Duration = Duration::from_millis(500);
/// How long senders may wait until they are acknowledged again.
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(2);
/// How long it may take until all mails are sent.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(3);

/// The settings of a campaign.
#[derive(Debug)]
pub struct FailoverCampaign<'a> {
    /// Number of failovers.
    pub failovers: u64,
    /// The seed of all randomness.
    pub seed: u64,
    /// The server's binary.
    pub binary: &'a Path,
    /// Owner of the server processes.
    pub children: &'a ChildProcesses,
}

/// The results of a campaign.
#[derive(Debug, Default)]
pub struct FailoverReport {
    /// Counts by name.
    pub counts: BTreeMap<String, u64>,
    /// Broken invariants.
    pub violations: Vec<String>,
}

struct FailoverFixture<'a> {
    replicas: ReplicatedPostgres,
    nodes: [ServerProcess; 2],
    sink: &'a SmtpSink,
    clients: &'a FailoverClients,
    rng: SeededRng,
    cancelled: u64,
}

impl FailoverCampaign<'_> {
    /// Runs the campaign.
    pub fn run(&self) -> Result<FailoverReport> {
        let root = tempfile::Builder::new().prefix("mailonce-failover").tempdir()?;
        let runtime: Runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let sink = runtime.block_on(SmtpSink::start(smtp::SmtpSinkConfig::default())).context("the sink")?;
        let (replicas, clients) = (ReplicatedPostgres::start()?, &FailoverClients::default());
        let (store, config) = (replicas.url(), OutboundTarget::Relay(sink.at.port()).toml());
        let servers = ServerFixture {
            children: self.children,
            binary: self.binary,
            root: root.path(),
            store: Some(&store),
            config,
        };
        let nodes = [servers.start("one", None, false)?, servers.start("two", None, false)?];
        let at = [nodes[0].at, nodes[1].at];
        let rng = SeededRng::derive(self.seed, &[self.failovers]);
        let mut fixture = FailoverFixture { replicas, nodes, sink: &sink, clients, rng, cancelled: 0 };
        std::thread::scope(|scope| {
            let senders: Vec<_> =
                (0..SENDERS).map(|sender| scope.spawn(move || clients.run_sender(sender, self.seed, &at))).collect();
            let readers = at.map(|at| scope.spawn(move || clients.run_reader(at)));
            let failovers_result = (0..self.failovers).try_for_each(|round| fixture.fail_over_once(round));
            clients.stop_senders.store(true, Ordering::SeqCst);
            let senders_joined = senders.into_iter().all(|sender| sender.join().is_ok());
            let settled = failovers_result.and_then(|()| fixture.wait_until_drained());
            clients.stop_readers.store(true, Ordering::SeqCst);
            let readers_joined = readers.into_iter().all(|reader| reader.join().is_ok());
            settled?;
            ensure!(senders_joined && readers_joined, "a client panicked");
            fixture.check(self.failovers)
        })
    }
}

impl FailoverFixture<'_> {
    /// Fails over once and waits until sends are acknowledged again.
    fn fail_over_once(&mut self, round: u64) -> Result<()> {
        sleep(PAUSE_BETWEEN_ROUNDS);
        let with_doubt = self.rng.below(2) == 0;
        if with_doubt {
            self.leave_unconfirmed_commits()?;
        }
        self.replicas.fail_over().context("failing over")?;
        sleep(Duration::from_millis(self.rng.below(500)));
        self.replicas.rejoin().context("rebuilding the standby")?;
        let before = self.clients.acknowledged();
        let recovers = poll_until(RECOVERY_TIMEOUT, || Ok(self.clients.acknowledged() > before))?;
        let logs = || self.nodes.iter().map(ServerProcess::read_log).collect::<Vec<_>>().join("\n");
        ensure!(recovers, "nothing was acknowledged within {} s of a failover: {}", RECOVERY_TIMEOUT.as_secs(), logs());
        let doubt = if with_doubt { " with commits in doubt" } else { "" };
        print_line(&format!("failover {}{doubt}: {} keys acknowledged", round + 1, self.clients.acknowledged()));
        Ok(())
    }

    /// Stops the standby and cancels the wait of commits for it, long enough for retries to see them.
    fn leave_unconfirmed_commits(&mut self) -> Result<()> {
        self.replicas.stop_standby()?;
        for _ in 0..self.rng.between(3, 10) {
            sleep(Duration::from_millis(100));
            self.cancelled += self.replicas.cancel_sync_waits()?;
        }
        Ok(())
    }

    /// Waits until every mail is sent.
    fn wait_until_drained(&self) -> Result<()> {
        let at = self.nodes[0].at;
        let empty = |state: &str| -> Result<bool> {
            let reply = http::get(at, &format!("/v1/emails?limit=1&state={state}"))?;
            Ok(reply.status == 200 && reply.body["data"].as_array().is_some_and(Vec::is_empty))
        };
        let left = poll_until(DRAIN_TIMEOUT, || Ok(empty("queued")? && empty("sending")?))?;
        ensure!(left, "mails did not leave within {} s", DRAIN_TIMEOUT.as_secs());
        Ok(())
    }

    fn check(self, failovers: u64) -> Result<FailoverReport> {
        let at = self.nodes[0].at;
        let ledger = LedgerSnapshot::read(at)?;
        let unknown = self.unknown_emails(at)?;
        let observed = self.clients.observations();
        let mut violations = observed.violations.clone();
        let there: BTreeSet<(&str, &str)> =
            ledger.emails.iter().map(|email| (email.key.as_str(), email.id.as_str())).collect();
        let lost = observed.acknowledged.iter().filter(|(key, id)| !there.contains(&(key.as_str(), id.as_str())));
        violations.extend(lost.map(|(key, id)| format!("{key} was acknowledged as {id} and is lost")));
        let mut arrived: BTreeMap<String, u64> = BTreeMap::new();
        for mail in self.sink.mails() {
            *arrived.entry(mail.recipients[0].0.clone()).or_default() += 1;
        }
        for email in &ledger.emails {
            let (to, open) = (email.to.join(" "), unknown.contains(&email.id));
            let copies = arrived.remove(&to).unwrap_or_default();
            if copies > 1 || (copies == 0 && !open) {
                violations.push(format!("{to} arrived {copies} times{}", if open { " and is unknown" } else { "" }));
            }
        }
        violations.extend(arrived.keys().map(|to| format!("{to} arrived and no email is there")));
        let events: Vec<(u64, String)> = ledger.events.iter().map(|event| (event.seq, event.id.clone())).collect();
        violations.extend(check_readers(&observed.events_read, &events));
        let counts = [
            ("failovers", failovers),
            ("commits_in_doubt", self.cancelled),
            ("acknowledged", observed.acknowledged.len() as u64),
            ("repeated", self.clients.repeated.load(Ordering::SeqCst)),
            ("refused", self.clients.refused.load(Ordering::SeqCst)),
            ("mails", self.sink.mail_count() as u64),
            ("unknown", unknown.len() as u64),
            ("events", events.len() as u64),
            ("cursor_resets", self.clients.resets.load(Ordering::SeqCst)),
        ];
        Ok(FailoverReport { counts: counts.map(|(name, count)| (name.to_owned(), count)).into(), violations })
    }

    /// The ids of emails with an unknown outcome.
    fn unknown_emails(&self, at: SocketAddr) -> Result<BTreeSet<String>> {
        let (mut ids, mut from) = (BTreeSet::new(), String::new());
        loop {
            let reply = http::get(at, &format!("/v1/emails?limit=100&state=unknown{from}"))?;
            ensure!(reply.status == 200, "emails were answered {}: {}", reply.status, reply.body);
            let page = reply.body["data"].as_array().context("a page without data")?;
            ids.extend(page.iter().filter_map(|row| row["id"].as_str()).map(str::to_owned));
            match reply.body["next_cursor"].as_str() {
                Some(cursor) => from = format!("&cursor={cursor}"),
                None => return Ok(ids),
            }
        }
    }
}
