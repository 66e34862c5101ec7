//! Kill -9 under load, again and again on the same data, with a judgement every few kills and at the end.

use super::chance::Chance;
use super::children::{Children, pause};
use super::drive::{Load, Shared, ask_again, until};
use super::fault::{Disk, Fault};
use super::history::{Counts, End};
use super::ledger::Ledger;
use super::power::{Power, Taken};
use super::server::{Server, Setup};
use super::wish::Wish;
use crate::proof::{Violation, check, check_reread};
use anyhow::{Context as _, Result, ensure};
use std::fmt;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Kills after which everything so far is judged.
const JUDGED_EVERY: u32 = 5;
/// Kills after which a line is printed.
const TOLD_EVERY: u32 = 10;
/// Milliseconds of load before a kill.
const LOAD_MS: (u64, u64) = (20, 150);
/// Microseconds that a write takes longer on a slow disk.
const SLOW_MICROS: (u64, u64) = (20, 400);
/// How long the load goes on against nobody.
const AFTERMATH: Duration = Duration::from_millis(10);
/// How long events may come behind the emails they tell of.
const EVENTS: Duration = Duration::from_secs(20);
/// What a dead server's database may still be doing when the next one starts.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// Kills on one ledger; a longer campaign begins a new one.
const PER_ROUND: u64 = 100;

/// One ledger and the kills it has to survive.
#[derive(Debug, Clone, Copy)]
pub struct Campaign<'a> {
    /// What it is called in the lines it prints.
    pub name: &'a str,
    /// Keeper of the servers.
    pub children: &'a Children,
    /// The server's binary.
    pub binary: &'a Path,
    /// Its data directory.
    pub data: &'a Path,
    /// The PostgreSQL to keep the ledger in, else SQLite.
    pub store: Option<&'a str>,
    /// The disk under the data directory, which is slow in every other cycle.
    pub disk: Option<&'a Disk>,
    /// The power, which is cut with every kill.
    pub power: Option<&'a Power<'a>>,
    /// The randomness.
    pub seed: u64,
    /// How many kills.
    pub kills: u32,
}

/// What a campaign came to.
#[derive(Debug, Default)]
pub struct Report {
    /// Kills.
    pub kills: u32,
    /// What the calls came to.
    pub counts: Counts,
    /// Wishes that had no answer when they were asked for again, and how many of those had been accepted.
    pub open: (usize, usize),
    /// Emails in the end.
    pub emails: usize,
    /// Events in the end.
    pub events: usize,
    /// What the power cuts took.
    pub taken: Taken,
    /// The slowest start after a kill.
    pub slowest_start: Duration,
    /// What was broken.
    pub violations: Vec<Violation>,
    /// How long it took.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cycles, {} answered, {} unknown, {} refused; of {} wishes left open {} had been accepted; \
             {} emails, {} events; slowest start {} ms; {} violations; {:.1} s",
            self.kills,
            self.counts.answered,
            self.counts.unknown,
            self.counts.refused,
            self.open.0,
            self.open.1,
            self.emails,
            self.events,
            self.slowest_start.as_millis(),
            self.violations.len(),
            self.took.as_secs_f64()
        )
    }
}

/// The rounds of a campaign: each with its seed and its number of kills.
pub fn rounds(seed: u64, kills: u64) -> Vec<(u64, u32)> {
    let round = |n: u64| (seed + n, (kills - n * PER_ROUND).min(PER_ROUND) as u32);
    (0..kills.div_ceil(PER_ROUND)).map(round).collect()
}

/// Says something at once, captured or not.
pub fn say(text: &str) {
    // Nobody reads it then.
    let _unread = writeln!(std::io::stderr(), "{text}");
}

/// A campaign in progress.
struct Progress<'a> {
    campaign: &'a Campaign<'a>,
    history: Shared,
    /// The ledger as it was read last.
    seen: Ledger,
    /// Calls that were judged already.
    judged: usize,
    report: Report,
}

impl Campaign<'_> {
    /// Runs it. It ends with the first judgement that finds something.
    pub fn run(&self) -> Result<Report> {
        let began = Instant::now();
        let mut progress = Progress {
            campaign: self,
            history: Shared::default(),
            seen: Ledger::default(),
            judged: 0,
            report: Report::default(),
        };
        progress.run()?;
        let mut report = progress.report;
        report.counts = progress.history.lock().counts();
        report.took = began.elapsed();
        Ok(report)
    }
}

impl Progress<'_> {
    fn run(&mut self) -> Result<()> {
        for cycle in 0..self.campaign.kills {
            self.cycle(cycle).with_context(|| format!("in cycle {cycle}"))?;
            if !self.report.violations.is_empty() {
                return Ok(());
            }
            self.report.kills += 1;
            if self.report.kills.is_multiple_of(TOLD_EVERY) {
                self.tell();
            }
        }
        let server = self.start(false)?;
        self.judge_all(server.at)?;
        let status = server.stop()?;
        ensure!(status.success(), "the server ended with {status} when it was asked to");
        Ok(())
    }

    fn tell(&self) {
        let (name, all) = (self.campaign.name, self.campaign.kills);
        let counts = self.history.lock().counts();
        say(&format!(
            "{name}: {} of {all} cycles, {} answered, {} unknown",
            self.report.kills, counts.answered, counts.unknown
        ));
    }

    /// One life of the server.
    fn cycle(&mut self, cycle: u32) -> Result<()> {
        let mut chance = Chance::at(self.campaign.seed, &[u64::from(cycle), u64::MAX]);
        let server = self.start(chance.below(2) == 0)?;
        let at = server.at;
        if cycle > 0 && cycle.is_multiple_of(JUDGED_EVERY) {
            self.judge(at)?;
            if !self.report.violations.is_empty() {
                return Ok(());
            }
        }
        let life = Duration::from_millis(chance.between(LOAD_MS.0, LOAD_MS.1));
        let slow = Fault::Slow(chance.between(SLOW_MICROS.0, SLOW_MICROS.1));
        self.break_disk(if cycle.is_multiple_of(2) { Fault::None } else { slow })?;
        let (seed, window) = (self.campaign.seed, life + AFTERMATH);
        let killed = Load { at, seed, cycle, window }.run(&self.history, || {
            pause(life);
            server.kill()
        });
        self.break_disk(Fault::None)?;
        killed?;
        if let Some(power) = self.campaign.power {
            self.report.taken += power.cut(&mut chance)?;
        }
        Ok(())
    }

    fn break_disk(&self, fault: Fault) -> Result<()> {
        self.campaign.disk.map_or(Ok(()), |disk| disk.set(fault))
    }

    fn start(&mut self, paused: bool) -> Result<Server> {
        let began = Instant::now();
        let Campaign { binary, data, store, children, .. } = *self.campaign;
        let mut env = self.campaign.disk.map(|disk| disk.env().to_vec()).unwrap_or_default();
        if let Some(power) = self.campaign.power {
            power.begin()?;
            env = power.env();
        }
        let env = &env;
        let server = Setup { binary, data, store, paused, env }.start(children)?;
        self.report.slowest_start = self.report.slowest_start.max(began.elapsed());
        Ok(server)
    }

    /// Judges what survived, then asks again for everything since the last time.
    fn judge(&mut self, at: SocketAddr) -> Result<()> {
        self.look(at)?;
        if !self.report.violations.is_empty() {
            return Ok(());
        }
        let wishes = self.history.lock().wishes(self.judged);
        self.ask(at, wishes.into_iter().collect())?;
        self.judged = self.history.lock().calls.len();
        Ok(())
    }

    /// Reads the ledger and judges it. What a dead server's last statement changes while it is read is no violation,
    /// so only what is found twice is one.
    fn look(&mut self, at: SocketAddr) -> Result<()> {
        let mut found = self.look_once(at)?;
        if !found.is_empty() {
            pause(SECOND_LOOK);
            let again = self.look_once(at)?;
            let same = |a: &Violation, b: &Violation| (a.rule, &a.about) == (b.rule, &b.about);
            found.retain(|one| again.iter().any(|other| same(one, other)));
        }
        self.report.violations = found;
        Ok(())
    }

    fn look_once(&mut self, at: SocketAddr) -> Result<Vec<Violation>> {
        let ledger = Ledger::read(at)?;
        let mut found = check(&self.history.lock().proof(&ledger, false));
        found.extend(check_reread(&self.seen.events, &ledger.events));
        if found.is_empty() {
            self.seen = ledger;
        }
        Ok(found)
    }

    /// Asks for all of `wishes` once, and a second time for those that were never answered.
    fn ask(&mut self, at: SocketAddr, wishes: Vec<Wish>) -> Result<()> {
        let open: Vec<Wish> = self.history.lock().open().into_iter().collect();
        ask_again(at, &self.history, &wishes)?;
        ask_again(at, &self.history, &open)?;
        let history = self.history.lock();
        let calls = history.by_wish();
        let made_now = |wish: &&Wish| {
            let calls = calls.get(*wish).map_or(&[][..], Vec::as_slice);
            calls.iter().any(|call| matches!(call.end, End::Ok { first: true, .. }))
        };
        let made = open.iter().filter(made_now).count();
        self.report.open.0 += open.len();
        self.report.open.1 += open.len() - made;
        Ok(())
    }

    /// The last judgement: of everything, with every wish asked for once more.
    fn judge_all(&mut self, at: SocketAddr) -> Result<()> {
        self.look(at)?;
        if !self.report.violations.is_empty() {
            return Ok(());
        }
        let wishes = self.history.lock().wishes(0);
        self.ask(at, wishes.into_iter().collect())?;
        let mut ledger = Ledger::default();
        until(EVENTS, || {
            ledger = Ledger::read(at)?;
            Ok(ledger.births() == ledger.emails.len())
        })?;
        let mut found = check(&self.history.lock().proof(&ledger, true));
        found.extend(check_reread(&self.seen.events, &ledger.events));
        self.report.violations = found;
        (self.report.emails, self.report.events) = (ledger.emails.len(), ledger.events.len());
        Ok(())
    }
}
