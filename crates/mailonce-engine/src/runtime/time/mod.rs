//! Ledger time, and what is decided by which clock (`docs/clocks.md` has the table).
//!
//! Three clocks are compared: this node's wall clock, the machine's boot clock, which counts suspends and never jumps,
//! and the clock of the database server, if there is one.
//!
//! - *Ledger time* (`Timekeeper::now`) dates what is written and drives retries. It follows the wall clock, never goes
//!   back and never stands still. After the clock was set back, it runs at half speed until the wall clock has caught
//!   up.
//! - The *earlier* of wall clock and database clock decides what expires and what is due by a schedule or a policy.
//! - The *later* of ledger time and database clock decides whether a provider's window or a link is still open.
//!
//! The time is *untrusted* while the wall clock has jumped against the boot clock, or is more than [`CLOCK_JUMP_MS`]
//! away from the database's. Ledger time then follows the boot clock, and nothing that depends on a date is decided.
//! After a start, nothing expires until the time is *confirmed*.

use mailonce_core::{
    installation::DatabaseClock,
    mutant,
    ports::{Clock, store::LedgerClock},
    time::{CLOCK_JUMP_MS, Time},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Other processes may have dated work by up to this many milliseconds later than the latest time that they reported.
const UNREPORTED_MS: i64 = 120_000;
/// After a longer downtime, the clock must be confirmed at the start. Also how long the boot clock must run before it
/// confirms the time by itself.
const DAY_MS: i64 = 24 * 3_600_000;
/// Two clocks that are read within this time, in milliseconds, count as read at the same moment.
const MAX_READ_GAP_MS: i64 = 50;
/// How often two clocks are read again when the process was suspended between the reads.
const MAX_REREADS: usize = 8;

/// What confirmed the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmedBy {
    /// An operator, or `clock.trusted` in the configuration.
    Operator,
    /// The kernel, whose clock a time service synchronizes.
    Kernel,
    /// A database on another host that shows the same time.
    Database,
    /// The boot clock ran for a day since the start. It never confirms a clock that jumped.
    BootClock,
}

impl ConfirmedBy {
    /// The name in APIs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Kernel => "kernel",
            Self::Database => "database",
            Self::BootClock => "boot_clock",
        }
    }
}

/// The state of this node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// Whether schedules, policies and windows may be decided by it.
    pub is_trusted: bool,
    /// What confirmed the time since the start or the last jump. Until then nothing expires.
    pub confirmed_by: Option<ConfirmedBy>,
    /// Whether the wall clock jumped, or was far from ledger time at the start.
    pub jumped: bool,
    /// By how much this node's wall clock is ahead of the database's, in milliseconds.
    pub ahead_of_database_ms: Option<i64>,
}

impl ClockState {
    /// Whether node and database are too far apart.
    pub fn is_off(&self) -> bool {
        self.ahead_of_database_ms.is_some_and(|ahead| ahead.abs() > CLOCK_JUMP_MS)
    }

    /// A warning for people, in one sentence. `None` when all is well.
    pub fn warning(&self) -> Option<String> {
        let effect = "no key expires and no scheduled email is sent";
        if let Some(ahead) = self.ahead_of_database_ms.filter(|_| self.is_off()) {
            let direction = if ahead > 0 { "ahead of" } else { "behind" };
            let seconds = ahead.abs() / 1000;
            return Some(format!(
                "this node's clock is {seconds} s {direction} the database's: {effect} until they agree within 30 s"
            ));
        }
        if self.jumped {
            return Some(format!("the clock jumped: {effect} until it is confirmed (POST /v1/clock/confirm)"));
        }
        let why = "nothing has confirmed the clock since the start: no key expires until a time service, a \
                   database on another host, an operator (POST /v1/clock/confirm) or 24 hours do";
        self.confirmed_by.is_none().then(|| why.to_owned())
    }
}

/// The boot clock before and after the database's clock was read, in milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct BootInterval {
    pub(crate) before: i64,
    pub(crate) after: i64,
}

/// The database's clock as an offset from our boot clock. The reading took time, so there are two bounds.
#[derive(Clone, Copy)]
struct DatabaseOffset {
    low: i64,
    high: i64,
    other_host: bool,
}

impl DatabaseOffset {
    fn new(clock: DatabaseClock, reading: BootInterval) -> Self {
        let (low, high) = (clock.now.0 - reading.after, clock.now.0 - reading.before);
        Self { low, high, other_host: clock.is_on_other_host }
    }

    /// Whether the reading took so long that it proves nothing, for example because the machine was suspended
    /// meanwhile.
    fn is_imprecise(self) -> bool {
        self.high - self.low > CLOCK_JUMP_MS
    }

    /// By how much a wall clock is ahead of the database, at least. Zero while both may show the same time.
    fn ahead(self, wall: i64, boot: i64) -> i64 {
        let (low, high) = (wall - boot - self.high, wall - boot - self.low);
        if low > 0 {
            low
        } else if high < 0 {
            high
        } else {
            0
        }
    }
}

struct TimekeeperState {
    /// Added to the boot clock to get the time.
    offset: i64,
    /// The latest ledger time ever returned.
    highest: i64,
    /// Boot clock and ledger time at the moment when the wall clock fell behind ledger time.
    slew: Option<(i64, i64)>,
    jumped: bool,
    confirmed_by: Option<ConfirmedBy>,
    /// The boot clock at the start or the last jump.
    steady_since: i64,
    database: Option<DatabaseOffset>,
    /// Whether node and database were too far apart at the last heartbeat.
    is_off: bool,
    /// Times up to here come from a clock that was set back since, so their age can't be measured.
    unmeasurable_until: i64,
}

impl TimekeeperState {
    fn is_trusted(&self) -> bool {
        !self.jumped && !self.is_off
    }

    /// Advances ledger time towards a target. It never goes back and never stands still.
    fn advance(&mut self, target: i64, boot: i64) -> i64 {
        if target >= self.highest || mutant!("time-goes-back") {
            (self.slew, self.highest) = (None, target);
            return target;
        }
        let (from, at) = *self.slew.get_or_insert((boot, self.highest));
        let time = at + (boot - from).max(0) / 2;
        if target >= time {
            self.slew = None;
        }
        self.highest = self.highest.max(time);
        self.highest
    }
}

/// Keeps ledger time. See the module documentation.
pub(crate) struct Timekeeper {
    clock: Arc<dyn Clock>,
    state: Mutex<TimekeeperState>,
}

impl Timekeeper {
    /// Continues from the latest time in the ledger.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        last: Option<Time>,
        database: Option<DatabaseClock>,
        reading: BootInterval,
    ) -> Self {
        let (wall, boot) = read_clocks(&*clock);
        let last = last.map(|last| last.0);
        let is_jump = |last: i64| wall < last - CLOCK_JUMP_MS || wall > last + DAY_MS;
        let jumped = last.is_some_and(|last| is_jump(last) || clock.was_wall_clock_set());
        let database = database.map(|database| DatabaseOffset::new(database, reading));
        // An imprecise reading leaves the clock untrusted until a heartbeat brings a better one.
        let is_off = database
            .is_some_and(|database| database.is_imprecise() || database.ahead(wall, boot).abs() > CLOCK_JUMP_MS);
        // An untrusted clock isn't used: time continues from the ledger's latest time, or from the database's clock if
        // that is the later one.
        let start = match database.filter(|_| is_off) {
            Some(database) => last.unwrap_or(i64::MIN).max(boot + database.low),
            None => last.filter(|_| jumped).unwrap_or(wall),
        };
        let state = TimekeeperState {
            offset: start - boot,
            highest: last.unwrap_or(start).max(start),
            slew: None,
            jumped,
            confirmed_by: None,
            steady_since: boot,
            database,
            is_off,
            unmeasurable_until: i64::MIN,
        };
        let keeper = Self { clock, state: Mutex::new(state) };
        keeper.try_confirm();
        keeper
    }

    fn state(&self) -> MutexGuard<'_, TimekeeperState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ledger time.
    pub(crate) fn now(&self) -> Time {
        let mut state = self.state();
        Time(self.read_ledger_time(&mut state))
    }

    fn read_ledger_time(&self, state: &mut TimekeeperState) -> i64 {
        let (wall, boot) = read_clocks(&*self.clock);
        let expected = boot + state.offset;
        let target = if !state.is_trusted() {
            expected
        } else if (wall - expected).abs() > CLOCK_JUMP_MS && !mutant!("jump-followed") {
            (state.jumped, state.confirmed_by, state.steady_since) = (true, None, boot);
            tracing::error!(
                wall,
                expected,
                "the clock jumped; nothing that depends on a date is decided until the time is confirmed"
            );
            expected
        } else {
            state.offset = wall - boot;
            wall
        };
        state.advance(target, boot)
    }

    /// The earlier of wall clock and database clock. It decides what is due by a schedule, a policy or an expiry.
    /// `None` while the time is untrusted.
    pub(crate) fn earlier_time(&self) -> Option<Time> {
        let mut state = self.state();
        let ledger_ms = self.read_ledger_time(&mut state);
        if !state.is_trusted() {
            return None;
        }
        let (wall, boot) = read_clocks(&*self.clock);
        Some(Time(ledger_ms.min(wall).min(state.database.map_or(i64::MAX, |database| boot + database.low))))
    }

    /// Emails scheduled for later than this wait. While the time is untrusted, ledger time may follow a peer that is
    /// some seconds ahead, so the database's clock limits it.
    pub(crate) fn schedule_cutoff(&self) -> Time {
        if let Some(earlier) = self.earlier_time() {
            return earlier;
        }
        let mut state = self.state();
        let ledger_ms = self.read_ledger_time(&mut state);
        let boot = self.clock.boot_clock_ms();
        Time(ledger_ms.min(state.database.map_or(i64::MAX, |database| boot + database.low)))
    }

    /// The later of ledger time and database clock. A window or a link is open only if it is open at this time.
    pub(crate) fn later_time(&self) -> Time {
        let mut state = self.state();
        let ledger_ms = self.read_ledger_time(&mut state);
        let boot = self.clock.boot_clock_ms();
        let database = state.database.filter(|database| !database.is_imprecise());
        Time(ledger_ms.max(database.map_or(i64::MIN, |database| boot + database.high)))
    }

    /// Data that expired before this time may be deleted. `None` while this process may delete nothing.
    pub(crate) fn expiry_cutoff(&self) -> Option<Time> {
        let confirmed = self.state().confirmed_by.is_some();
        self.earlier_time().filter(|_| confirmed)
    }

    /// Handles a heartbeat's answer: the latest time of all processes, and the database's clock.
    pub(crate) fn on_heartbeat(&self, latest: Time, database: Option<DatabaseClock>, reading: BootInterval) {
        if let Some(database) = database {
            self.compare_database_clock(DatabaseOffset::new(database, reading));
        }
        self.follow_peer_time(latest);
        self.try_confirm();
    }

    fn compare_database_clock(&self, database: DatabaseOffset) {
        if database.is_imprecise() {
            return;
        }
        let (wall, boot) = read_clocks(&*self.clock);
        let ahead = database.ahead(wall, boot);
        let mut state = self.state();
        let is_off = ahead.abs() > CLOCK_JUMP_MS;
        if is_off && !state.is_off {
            tracing::error!(ahead_ms = ahead, "this node's clock and the database's are more than 30 s apart");
        } else if !is_off && state.is_off {
            tracing::info!("this node's clock and the database's agree again");
        }
        (state.database, state.is_off) = (Some(database), is_off);
    }

    /// Handles a later time that a peer reported. An untrusted process adopts it: it may have started from an old
    /// time, and would date its work before data that peers have already deleted. A trusted process only notes that
    /// the clocks differ, because it can't measure the age of what the peer dated.
    fn follow_peer_time(&self, latest: Time) {
        let boot = self.clock.boot_clock_ms();
        let mut state = self.state();
        if !state.is_trusted() {
            state.offset = state.offset.max(latest.0 - boot);
        } else if latest.0 > self.read_ledger_time(&mut state) + CLOCK_JUMP_MS {
            state.unmeasurable_until = state.unmeasurable_until.max(latest.0 + UNREPORTED_MS);
        }
    }

    /// Confirms the time when another clock vouches for it.
    fn try_confirm(&self) {
        let boot = self.clock.boot_clock_ms();
        let by = {
            let mut state = self.state();
            // Detects a jump that was not noticed yet, before the boot clock could confirm it.
            self.read_ledger_time(&mut state);
            if state.is_off || (state.confirmed_by.is_some() && !state.jumped) {
                return;
            }
            if state.database.is_some_and(|database| database.other_host) {
                Some(ConfirmedBy::Database)
            } else if self.clock.is_synchronized() {
                Some(ConfirmedBy::Kernel)
            } else if boot - state.steady_since >= DAY_MS && !state.jumped {
                Some(ConfirmedBy::BootClock)
            } else {
                None
            }
        };
        if let Some(by) = by {
            self.confirm(by);
        }
    }

    /// The boot clock, for delays and deadlines within this process.
    pub(crate) fn boot_clock_ms(&self) -> i64 {
        self.clock.boot_clock_ms()
    }

    /// Whether dates may decide anything.
    pub(crate) fn is_trusted(&self) -> bool {
        let mut state = self.state();
        self.read_ledger_time(&mut state);
        state.is_trusted()
    }

    /// The state of the clocks.
    pub(crate) fn clock_state(&self) -> ClockState {
        let mut state = self.state();
        self.read_ledger_time(&mut state);
        let (wall, boot) = read_clocks(&*self.clock);
        ClockState {
            is_trusted: state.is_trusted(),
            confirmed_by: state.confirmed_by,
            jumped: state.jumped,
            ahead_of_database_ms: state.database.map(|database| database.ahead(wall, boot)),
        }
    }

    /// The age of anything dated from here on can be measured.
    pub(crate) fn measured_since(&self) -> Time {
        Time(self.state().unmeasurable_until.saturating_add(1))
    }

    /// Confirms that the wall clock is right.
    pub(crate) fn confirm(&self, by: ConfirmedBy) {
        let (wall, boot) = read_clocks(&*self.clock);
        let mut state = self.state();
        if wall < state.highest {
            // Work that a process did after its last report is dated even later.
            state.unmeasurable_until = state.unmeasurable_until.max(state.highest + UNREPORTED_MS);
        }
        // A node that is too far from its database stays untrusted, even after its clock was confirmed.
        if !state.is_off {
            state.offset = wall - boot;
        }
        (state.jumped, state.confirmed_by, state.steady_since) = (false, Some(by), boot);
    }
}

impl LedgerClock for Timekeeper {
    fn now(&self) -> Time {
        Timekeeper::now(self)
    }

    fn expiry_cutoff(&self) -> Time {
        Timekeeper::expiry_cutoff(self).unwrap_or(Time(i64::MIN))
    }
}

/// Reads wall clock and boot clock at the same moment. If the process was suspended between the reads, it reads again,
/// because the pause would look like a jump.
fn read_clocks(clock: &dyn Clock) -> (i64, i64) {
    let mut before = clock.boot_clock_ms();
    for _ in 0..MAX_REREADS {
        let wall = clock.now().0;
        let after = clock.boot_clock_ms();
        if after - before <= MAX_READ_GAP_MS {
            return (wall, after);
        }
        before = after;
    }
    (clock.now().0, before)
}

#[cfg(test)]
mod tests;
