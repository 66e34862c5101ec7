//! Kills at random moments under heavy load, on one ledger, with checks every few kills and at the end.
//!
//! The rounds at failpoints ([`super::round`]) reach every step with few requests. These rounds reach no chosen step;
//! they have many requests in flight at each kill, retries of the same key among them, a disk that is slow in every
//! other cycle, and (in `tests/faults`) a power cut with each kill. Between kills the event log must not change.

use crate::crash::coverage::CoverageBoard;
use crate::crash::environment::CrashTools;
use crate::crash::failpoints::StoreKind;
use crate::crash::verdict::RoundVerdict;
use crate::harness::child_processes::{ChildProcesses, sleep};
use crate::harness::disk_faults::{DiskFault, FaultyDisk, build_shim};
use crate::harness::generated_send::GeneratedSend;
use crate::harness::ledger_snapshot::LedgerSnapshot;
use crate::harness::power_cut::{PowerLoss, PowerSupply};
use crate::harness::recorded_load::{RecordedLoad, SharedHistory, poll_until, send_again};
use crate::harness::rng::SeededRng;
use crate::harness::send_history::{CallCounts, CallOutcome};
use crate::harness::server::{ServerProcess, ServerSetup};
use crate::proof::{Violation, check, check_reread};
use anyhow::{Context as _, Result, ensure};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Kills between two checks of everything so far.
const CHECK_INTERVAL: u32 = 5;
/// Milliseconds of load before a kill.
const LOAD_MS: (u64, u64) = (20, 150);
/// Microseconds that a slow disk adds to each write.
const SLOW_WRITE_MICROS: (u64, u64) = (20, 400);
/// How long the load continues after the kill.
const LOAD_AFTER_KILL: Duration = Duration::from_millis(10);
/// How far events may lag behind their emails.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a killed server's last statement may still run in the database.
const RECHECK_DELAY: Duration = Duration::from_secs(1);
/// Kills per ledger. A longer campaign starts a new ledger, with the next seed.
const KILLS_PER_LEDGER: u64 = 100;

/// One round of the campaign: a new ledger and its kills.
#[derive(Debug, Clone)]
pub struct LoadRound {
    /// What keeps the ledger.
    pub store: StoreKind,
    /// The source of all randomness.
    pub seed: u64,
    /// Number of kills.
    pub kills: u32,
}

impl LoadRound {
    /// Splits a number of kills into rounds, each with its own seed and ledger.
    pub fn split(store: StoreKind, seed: u64, kills: u64) -> Vec<Self> {
        let round = |n: u64| {
            let kills = (kills - n * KILLS_PER_LEDGER).min(KILLS_PER_LEDGER) as u32;
            Self { store, seed: seed + n, kills }
        };
        (0..kills.div_ceil(KILLS_PER_LEDGER)).map(round).collect()
    }

    /// The command that runs this round again.
    pub fn replay_command(&self) -> String {
        let Self { store, seed, kills } = self;
        format!("mailonce-crash --under-load --store {} --seed {seed} --cycles {kills}", store.as_str())
    }

    /// Runs the round in a directory. Fails if the kills interrupted no call, since such a round proves nothing.
    pub fn run(&self, tools: &CrashTools, board: &CoverageBoard, root: &Path) -> Result<RoundVerdict> {
        let data = root.join("data");
        std::fs::create_dir(&data)?;
        let database = match self.store {
            StoreKind::Sqlite => None,
            StoreKind::Postgres => {
                let postgres = tools.postgres.as_ref().context("no PostgreSQL: see scripts/services")?;
                Some(postgres.create_database(&format!("mailonce_kills_{}_{}", std::process::id(), self.seed))?)
            }
        };
        let disk = match self.store {
            StoreKind::Sqlite => Some(FaultyDisk::new(build_shim(root)?, &data, root)?),
            StoreKind::Postgres => None,
        };
        let kills = KillsUnderLoad {
            children: &tools.children,
            binary: &tools.server,
            data: &data,
            store: database.as_ref().map(|database| database.url.as_str()),
            disk: disk.as_ref(),
            power: None,
            board,
            seed: self.seed,
            kills: self.kills,
        };
        let report = kills.run()?;
        if report.violations.is_empty() {
            ensure!(report.counts.answered > 0, "no call was answered: {report}");
            ensure!(report.counts.unknown >= u64::from(self.kills), "the kills interrupted too few calls: {report}");
            let was_slow = disk.as_ref().is_none_or(|disk| !disk.triggered_faults().is_empty());
            ensure!(self.kills < 2 || was_slow, "the disk was never slow");
        }
        let emails = report.emails as u64;
        board.update_counts(|counts| {
            counts.rounds += 1;
            counts.emails += emails;
        });
        Ok(RoundVerdict { log: format!("  {report}"), violations: report.violations, emails, mails_accepted: 0 })
    }
}

/// A ledger, the faults below it, and the kills it has to survive.
#[derive(Debug, Clone, Copy)]
pub struct KillsUnderLoad<'a> {
    /// Owner of the server processes.
    pub children: &'a ChildProcesses,
    /// The server's binary.
    pub binary: &'a Path,
    /// The server's data directory.
    pub data: &'a Path,
    /// URL of the PostgreSQL database that keeps the ledger; `None` for SQLite.
    pub store: Option<&'a str>,
    /// The disk under the data directory, which is slow in every other cycle.
    pub disk: Option<&'a FaultyDisk>,
    /// The power supply, which is cut with each kill.
    pub power: Option<&'a PowerSupply<'a>>,
    /// Where kills are counted.
    pub board: &'a CoverageBoard,
    /// The source of all randomness.
    pub seed: u64,
    /// Number of kills.
    pub kills: u32,
}

/// The result of a [`KillsUnderLoad`].
#[derive(Debug, Default)]
pub struct LoadKillReport {
    /// Kills.
    pub kills: u32,
    /// Calls by outcome.
    pub counts: CallCounts,
    /// Sends that were unanswered when they were retried, and how many of those had been accepted.
    pub unanswered_and_accepted: (usize, usize),
    /// Emails at the end.
    pub emails: usize,
    /// Events at the end.
    pub events: usize,
    /// Writes that the power cuts dropped or tore.
    pub power_loss: PowerLoss,
    /// The slowest start after a kill.
    pub slowest_start: Duration,
    /// Broken invariants.
    pub violations: Vec<Violation>,
    /// Duration of the run.
    pub elapsed: Duration,
}

impl fmt::Display for LoadKillReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills; calls: {} answered, {} unanswered, {} refused; of {} unanswered sends {} had been accepted; \
             {} emails, {} events; slowest start {} ms; {} violations; {:.1} s",
            self.kills,
            self.counts.answered,
            self.counts.unknown,
            self.counts.refused,
            self.unanswered_and_accepted.0,
            self.unanswered_and_accepted.1,
            self.emails,
            self.events,
            self.slowest_start.as_millis(),
            self.violations.len(),
            self.elapsed.as_secs_f64()
        )
    }
}

/// A run in progress.
struct LoadKillRun<'a> {
    plan: &'a KillsUnderLoad<'a>,
    history: SharedHistory,
    /// The ledger at the last check.
    last_snapshot: LedgerSnapshot,
    /// Number of calls that were retried after an earlier check.
    checked_calls: usize,
    report: LoadKillReport,
}

impl KillsUnderLoad<'_> {
    /// Runs the kills, and stops at the first check that finds a violation.
    pub fn run(&self) -> Result<LoadKillReport> {
        let started_at = Instant::now();
        let mut run = LoadKillRun {
            plan: self,
            history: SharedHistory::default(),
            last_snapshot: LedgerSnapshot::default(),
            checked_calls: 0,
            report: LoadKillReport::default(),
        };
        run.run()?;
        let mut report = run.report;
        report.counts = run.history.lock().counts();
        report.elapsed = started_at.elapsed();
        Ok(report)
    }
}

impl LoadKillRun<'_> {
    fn run(&mut self) -> Result<()> {
        for cycle in 0..self.plan.kills {
            self.run_cycle(cycle).with_context(|| format!("in cycle {cycle}"))?;
            if !self.report.violations.is_empty() {
                return Ok(());
            }
            self.report.kills += 1;
            self.plan.board.update_counts(|counts| counts.others += 1);
        }
        let server = self.start(false)?;
        self.check_everything(server.at)?;
        let status = server.terminate()?;
        ensure!(status.success(), "the server exited with {status} after SIGTERM");
        Ok(())
    }

    /// Starts a server, checks now and then, and kills it under load.
    fn run_cycle(&mut self, cycle: u32) -> Result<()> {
        let mut rng = SeededRng::derive(self.plan.seed, &[u64::from(cycle), u64::MAX]);
        let server = self.start(rng.below(2) == 0)?;
        let at = server.at;
        if cycle > 0 && cycle.is_multiple_of(CHECK_INTERVAL) {
            self.check_and_retry(at)?;
            if !self.report.violations.is_empty() {
                return Ok(());
            }
        }
        let lifetime = Duration::from_millis(rng.between(LOAD_MS.0, LOAD_MS.1));
        let slow = DiskFault::Slow(rng.between(SLOW_WRITE_MICROS.0, SLOW_WRITE_MICROS.1));
        self.set_disk_fault(if cycle.is_multiple_of(2) { DiskFault::None } else { slow })?;
        let (seed, window) = (self.plan.seed, lifetime + LOAD_AFTER_KILL);
        let killed = RecordedLoad { at, seed, cycle, window }.run(&self.history, || {
            sleep(lifetime);
            server.kill()
        });
        self.set_disk_fault(DiskFault::None)?;
        killed?;
        if let Some(power) = self.plan.power {
            self.report.power_loss += power.cut_power(&mut rng)?;
        }
        Ok(())
    }

    fn set_disk_fault(&self, fault: DiskFault) -> Result<()> {
        self.plan.disk.map_or(Ok(()), |disk| disk.set(fault))
    }

    fn start(&mut self, paused: bool) -> Result<ServerProcess> {
        let started_at = Instant::now();
        let KillsUnderLoad { binary, data, store, children, .. } = *self.plan;
        let mut env = self.plan.disk.map(|disk| disk.env().to_vec()).unwrap_or_default();
        if let Some(power) = self.plan.power {
            power.snapshot_files()?;
            env = power.env();
        }
        let env = &env;
        let server = ServerSetup { binary, data, store, paused, env }.start(children)?;
        self.report.slowest_start = self.report.slowest_start.max(started_at.elapsed());
        Ok(server)
    }

    /// Checks the ledger, then retries every send since the last check.
    fn check_and_retry(&mut self, at: SocketAddr) -> Result<()> {
        self.check_ledger(at)?;
        if !self.report.violations.is_empty() {
            return Ok(());
        }
        let sends = self.history.lock().sends_since(self.checked_calls);
        self.retry(at, sends.into_iter().collect())?;
        self.checked_calls = self.history.lock().calls.len();
        Ok(())
    }

    /// Reads and checks the ledger. A killed server's last statement may still commit while the ledger is read, so a
    /// violation counts only if a second read finds it again.
    fn check_ledger(&mut self, at: SocketAddr) -> Result<()> {
        let mut found = self.check_ledger_once(at)?;
        if !found.is_empty() {
            sleep(RECHECK_DELAY);
            let again = self.check_ledger_once(at)?;
            let same = |a: &Violation, b: &Violation| (a.rule, &a.about) == (b.rule, &b.about);
            found.retain(|one| again.iter().any(|other| same(one, other)));
        }
        self.report.violations = found;
        Ok(())
    }

    fn check_ledger_once(&mut self, at: SocketAddr) -> Result<Vec<Violation>> {
        let ledger = LedgerSnapshot::read(at)?;
        let mut found = check(&self.history.lock().to_checker_history(&ledger, false));
        found.extend(check_reread(&self.last_snapshot.events, &ledger.events));
        if found.is_empty() {
            self.last_snapshot = ledger;
        }
        Ok(found)
    }

    /// Retries all of `sends` once, and those that were never answered a second time.
    fn retry(&mut self, at: SocketAddr, sends: Vec<GeneratedSend>) -> Result<()> {
        let unanswered: Vec<GeneratedSend> = self.history.lock().unanswered().into_iter().collect();
        send_again(at, &self.history, &sends)?;
        send_again(at, &self.history, &unanswered)?;
        let history = self.history.lock();
        let calls = history.calls_by_send();
        let accepted_now = |send: &&GeneratedSend| {
            let calls = calls.get(*send).map_or(&[][..], Vec::as_slice);
            calls.iter().any(|call| matches!(call.outcome, CallOutcome::Ok { first: true, .. }))
        };
        let accepted_now = unanswered.iter().filter(accepted_now).count();
        self.report.unanswered_and_accepted.0 += unanswered.len();
        self.report.unanswered_and_accepted.1 += unanswered.len() - accepted_now;
        Ok(())
    }

    /// The last check: of everything, after every send was retried once more.
    fn check_everything(&mut self, at: SocketAddr) -> Result<()> {
        self.check_ledger(at)?;
        if !self.report.violations.is_empty() {
            return Ok(());
        }
        let sends = self.history.lock().sends_since(0);
        self.retry(at, sends.into_iter().collect())?;
        let mut ledger = LedgerSnapshot::default();
        poll_until(EVENTS_TIMEOUT, || {
            ledger = LedgerSnapshot::read(at)?;
            Ok(ledger.emails_with_accept_event() == ledger.emails.len())
        })?;
        let mut found = check(&self.history.lock().to_checker_history(&ledger, true));
        found.extend(check_reread(&self.last_snapshot.events, &ledger.events));
        self.report.violations = found;
        (self.report.emails, self.report.events) = (ledger.emails.len(), ledger.events.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{LoadRound, StoreKind};

    #[test]
    fn a_long_campaign_is_split_into_rounds_with_seeds_of_their_own() {
        let rounds = LoadRound::split(StoreKind::Sqlite, 7, 250);
        let parts: Vec<(u64, u32)> = rounds.iter().map(|round| (round.seed, round.kills)).collect();
        assert_eq!(parts, [(7, 100), (8, 100), (9, 50)]);
    }
}
