//! Kill -9 under load, again and again on the same data, with a judgement every few kills and at the end.

use super::server::{ServerProcess, ServerSetup};
use crate::harness::child_processes::{ChildProcesses, sleep};
use crate::harness::disk_faults::{DiskFault, FaultyDisk};
use crate::harness::generated_send::GeneratedSend;
use crate::harness::ledger_snapshot::LedgerSnapshot;
use crate::harness::power_cut::{PowerLoss, PowerSupply};
use crate::harness::recorded_load::{RecordedLoad, SharedHistory, poll_until, send_again};
use crate::harness::rng::SeededRng;
use crate::harness::send_history::{CallCounts, CallOutcome};
use crate::proof::{Violation, check, check_reread};
use anyhow::{Context as _, Result, ensure};
use std::fmt;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Kills after which everything so far is judged.
const CHECK_INTERVAL: u32 = 5;
/// Kills after which a line is printed.
const PROGRESS_INTERVAL: u32 = 10;
/// Milliseconds of load before a kill.
const LOAD_MS: (u64, u64) = (20, 150);
/// Microseconds that a write takes longer on a slow disk.
const SLOW_WRITE_MICROS: (u64, u64) = (20, 400);
/// How long the load goes on against nobody.
const LOAD_AFTER_KILL: Duration = Duration::from_millis(10);
/// How long events may come behind the emails they tell of.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(20);
/// What a dead server's database may still be doing when the next one starts.
const RECHECK_DELAY: Duration = Duration::from_secs(1);
/// Kills on one ledger; a longer campaign begins a new one.
const KILLS_PER_LEDGER: u64 = 100;

/// One ledger and the kills it has to survive.
#[derive(Debug, Clone, Copy)]
pub struct KillCampaign<'a> {
    /// What it is called in the lines it prints.
    pub name: &'a str,
    /// Keeper of the servers.
    pub children: &'a ChildProcesses,
    /// The server's binary.
    pub binary: &'a Path,
    /// Its data directory.
    pub data: &'a Path,
    /// The PostgreSQL to keep the ledger in, else SQLite.
    pub store: Option<&'a str>,
    /// The disk under the data directory, which is slow in every other cycle.
    pub disk: Option<&'a FaultyDisk>,
    /// The power, which is cut with every kill.
    pub power: Option<&'a PowerSupply<'a>>,
    /// The randomness.
    pub seed: u64,
    /// How many kills.
    pub kills: u32,
}

/// What a campaign came to.
#[derive(Debug, Default)]
pub struct KillReport {
    /// Kills.
    pub kills: u32,
    /// What the calls came to.
    pub counts: CallCounts,
    /// Wishes that had no answer when they were asked for again, and how many of those had been accepted.
    pub unanswered_and_accepted: (usize, usize),
    /// Emails in the end.
    pub emails: usize,
    /// Events in the end.
    pub events: usize,
    /// What the power cuts took.
    pub power_loss: PowerLoss,
    /// The slowest start after a kill.
    pub slowest_start: Duration,
    /// What was broken.
    pub violations: Vec<Violation>,
    /// How long it took.
    pub elapsed: Duration,
}

impl fmt::Display for KillReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cycles, {} answered, {} unknown, {} refused; of {} wishes left open {} had been accepted; \
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

/// The rounds of a campaign: each with its seed and its number of kills.
pub fn split_into_rounds(seed: u64, kills: u64) -> Vec<(u64, u32)> {
    let round = |n: u64| (seed + n, (kills - n * KILLS_PER_LEDGER).min(KILLS_PER_LEDGER) as u32);
    (0..kills.div_ceil(KILLS_PER_LEDGER)).map(round).collect()
}

/// Says something at once, captured or not.
pub fn print_line(text: &str) {
    // Nobody reads it then.
    let _unread = writeln!(std::io::stderr(), "{text}");
}

/// A campaign in progress.
struct KillRun<'a> {
    campaign: &'a KillCampaign<'a>,
    history: SharedHistory,
    /// The ledger as it was read last.
    last_snapshot: LedgerSnapshot,
    /// Calls that were judged already.
    checked_calls: usize,
    report: KillReport,
}

impl KillCampaign<'_> {
    /// Runs it. It ends with the first judgement that finds something.
    pub fn run(&self) -> Result<KillReport> {
        let began = Instant::now();
        let mut progress = KillRun {
            campaign: self,
            history: SharedHistory::default(),
            last_snapshot: LedgerSnapshot::default(),
            checked_calls: 0,
            report: KillReport::default(),
        };
        progress.run()?;
        let mut report = progress.report;
        report.counts = progress.history.lock().counts();
        report.elapsed = began.elapsed();
        Ok(report)
    }
}

impl KillRun<'_> {
    fn run(&mut self) -> Result<()> {
        for cycle in 0..self.campaign.kills {
            self.run_cycle(cycle).with_context(|| format!("in cycle {cycle}"))?;
            if !self.report.violations.is_empty() {
                return Ok(());
            }
            self.report.kills += 1;
            if self.report.kills.is_multiple_of(PROGRESS_INTERVAL) {
                self.print_progress();
            }
        }
        let server = self.start(false)?;
        self.check_everything(server.at)?;
        let status = server.terminate()?;
        ensure!(status.success(), "the server ended with {status} when it was asked to");
        Ok(())
    }

    fn print_progress(&self) {
        let (name, all) = (self.campaign.name, self.campaign.kills);
        let counts = self.history.lock().counts();
        print_line(&format!(
            "{name}: {} of {all} cycles, {} answered, {} unknown",
            self.report.kills, counts.answered, counts.unknown
        ));
    }

    /// One life of the server.
    fn run_cycle(&mut self, cycle: u32) -> Result<()> {
        let mut chance = SeededRng::derive(self.campaign.seed, &[u64::from(cycle), u64::MAX]);
        let server = self.start(chance.below(2) == 0)?;
        let at = server.at;
        if cycle > 0 && cycle.is_multiple_of(CHECK_INTERVAL) {
            self.check_and_retry(at)?;
            if !self.report.violations.is_empty() {
                return Ok(());
            }
        }
        let life = Duration::from_millis(chance.between(LOAD_MS.0, LOAD_MS.1));
        let slow = DiskFault::Slow(chance.between(SLOW_WRITE_MICROS.0, SLOW_WRITE_MICROS.1));
        self.set_disk_fault(if cycle.is_multiple_of(2) { DiskFault::None } else { slow })?;
        let (seed, window) = (self.campaign.seed, life + LOAD_AFTER_KILL);
        let killed = RecordedLoad { at, seed, cycle, window }.run(&self.history, || {
            sleep(life);
            server.kill()
        });
        self.set_disk_fault(DiskFault::None)?;
        killed?;
        if let Some(power) = self.campaign.power {
            self.report.power_loss += power.cut_power(&mut chance)?;
        }
        Ok(())
    }

    fn set_disk_fault(&self, fault: DiskFault) -> Result<()> {
        self.campaign.disk.map_or(Ok(()), |disk| disk.set(fault))
    }

    fn start(&mut self, paused: bool) -> Result<ServerProcess> {
        let began = Instant::now();
        let KillCampaign { binary, data, store, children, .. } = *self.campaign;
        let mut env = self.campaign.disk.map(|disk| disk.env().to_vec()).unwrap_or_default();
        if let Some(power) = self.campaign.power {
            power.snapshot_files()?;
            env = power.env();
        }
        let env = &env;
        let server = ServerSetup { binary, data, store, paused, env }.start(children)?;
        self.report.slowest_start = self.report.slowest_start.max(began.elapsed());
        Ok(server)
    }

    /// Judges what survived, then asks again for everything since the last time.
    fn check_and_retry(&mut self, at: SocketAddr) -> Result<()> {
        self.check_ledger(at)?;
        if !self.report.violations.is_empty() {
            return Ok(());
        }
        let wishes = self.history.lock().sends_since(self.checked_calls);
        self.retry(at, wishes.into_iter().collect())?;
        self.checked_calls = self.history.lock().calls.len();
        Ok(())
    }

    /// Reads the ledger and judges it. What a dead server's last statement changes while it is read is no violation,
    /// so only what is found twice is one.
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

    /// Asks for all of `wishes` once, and a second time for those that were never answered.
    fn retry(&mut self, at: SocketAddr, wishes: Vec<GeneratedSend>) -> Result<()> {
        let open: Vec<GeneratedSend> = self.history.lock().unanswered().into_iter().collect();
        send_again(at, &self.history, &wishes)?;
        send_again(at, &self.history, &open)?;
        let history = self.history.lock();
        let calls = history.calls_by_send();
        let made_now = |wish: &&GeneratedSend| {
            let calls = calls.get(*wish).map_or(&[][..], Vec::as_slice);
            calls.iter().any(|call| matches!(call.outcome, CallOutcome::Ok { first: true, .. }))
        };
        let made = open.iter().filter(made_now).count();
        self.report.unanswered_and_accepted.0 += open.len();
        self.report.unanswered_and_accepted.1 += open.len() - made;
        Ok(())
    }

    /// The last judgement: of everything, with every wish asked for once more.
    fn check_everything(&mut self, at: SocketAddr) -> Result<()> {
        self.check_ledger(at)?;
        if !self.report.violations.is_empty() {
            return Ok(());
        }
        let wishes = self.history.lock().sends_since(0);
        self.retry(at, wishes.into_iter().collect())?;
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
