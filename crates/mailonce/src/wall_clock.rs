//! The wall clock, and a file in the data directory with the last readings of the wall clock and the boot clock. If the
//! wall clock is set while mailonce is stopped, the next start detects it, unless the machine rebooted in between.

use mailonce_core::{
    ports::Clock,
    time::{CLOCK_JUMP_MS, Time},
};
use mailonce_engine::Engine;
use serde::{Deserialize, Serialize};
use std::{
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::sync::watch;

/// How often the clocks are recorded.
const RECORD_INTERVAL: Duration = Duration::from_secs(10);
/// Identifies the current boot of the machine. Exists only on Linux.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// The system's wall clock and boot clock.
#[derive(Debug, Default)]
pub(crate) struct WallClock {
    was_set: bool,
}

impl WallClock {
    /// Opens the clock, and detects whether it was set since the last reading in this data directory.
    pub(crate) fn open(data: &Path) -> Self {
        let (before, now) = (ClockReading::read(&reading_path(data)), ClockReading::now());
        Self { was_set: before.zip(now).is_some_and(|(before, now)| now.was_set_since(&before)) }
    }
}

impl Clock for WallClock {
    fn now(&self) -> Time {
        // A clock before 1970 is broken. Ledger time never moves backwards, so 0 does no harm.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time(since.as_millis() as i64 + rigged::offset_ms())
    }

    fn boot_clock_ms(&self) -> i64 {
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        boot.tv_sec * 1000 + boot.tv_nsec / 1_000_000
    }

    fn was_wall_clock_set(&self) -> bool {
        self.was_set
    }

    fn is_synchronized(&self) -> bool {
        rigged::is_synchronized().unwrap_or_else(is_kernel_clock_synchronized)
    }
}

/// Whether a time service synchronizes the kernel's clock. The kernel clears this state when the clock is set by hand.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "adjtimex has no safe wrapper; with no mode set it only reads")]
pub(crate) fn is_kernel_clock_synchronized() -> bool {
    // SAFETY: all fields of `timex` are integers, for which zero is valid; the pointer is to a live local.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut timex)
    };
    (libc::TIME_OK..libc::TIME_ERROR).contains(&state)
}

/// On other systems the state is not known.
#[cfg(not(target_os = "linux"))]
pub(crate) fn kernel_keeps_time() -> bool {
    false
}

/// Test overrides: an offset of this process's wall clock, and the kernel's synchronization state.
#[cfg(feature = "failpoints")]
mod rigged {
    use std::sync::LazyLock;

    static OFFSET_MS: LazyLock<i64> = LazyLock::new(|| read("MAILONCE_CLOCK_OFFSET_MS").unwrap_or(0));
    static SYNCHRONIZED: LazyLock<Option<bool>> = LazyLock::new(|| read("MAILONCE_CLOCK_SYNCHRONIZED"));

    fn read<T: std::str::FromStr>(name: &str) -> Option<T> {
        std::env::var(name).ok()?.parse().ok()
    }

    pub(super) fn offset_ms() -> i64 {
        *OFFSET_MS
    }

    pub(super) fn is_synchronized() -> Option<bool> {
        *SYNCHRONIZED
    }
}

#[cfg(not(feature = "failpoints"))]
mod rigged {
    pub(super) fn offset_ms() -> i64 {
        0
    }

    pub(super) fn is_synchronized() -> Option<bool> {
        None
    }
}

/// Both clocks at one moment, and the boot id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClockReading {
    boot: String,
    #[serde(rename = "even")]
    boot_ms: i64,
    #[serde(rename = "wall")]
    wall_ms: i64,
}

impl ClockReading {
    fn now() -> Option<Self> {
        let boot = std::fs::read_to_string(BOOT_ID_PATH).ok()?.trim().to_owned();
        let clock = WallClock::default();
        Some(Self { boot, boot_ms: clock.boot_clock_ms(), wall_ms: clock.now().0 })
    }

    /// Reads the last recorded reading. A missing or damaged file counts as no reading.
    fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    fn was_set_since(&self, before: &Self) -> bool {
        let offset = |reading: &Self| reading.wall_ms - reading.boot_ms;
        self.boot == before.boot && (offset(self) - offset(before)).abs() > CLOCK_JUMP_MS
    }

    /// Saves the reading for the next start. The rename makes the change atomic.
    fn save(&self, path: &Path) -> std::io::Result<()> {
        let temporary = path.with_extension("fresh");
        let mut file = std::fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        std::fs::rename(temporary, path)
    }
}

fn reading_path(data: &Path) -> PathBuf {
    data.join("clock.json")
}

/// Records the clocks while time is trusted. An unconfirmed jump is not recorded, so it still needs confirmation after
/// the next start. Without a data directory nothing is recorded.
pub(crate) async fn record_readings(engine: Arc<Engine>, data: PathBuf, mut ended: watch::Receiver<bool>) {
    let path = reading_path(&data);
    while data.is_dir() && !*ended.borrow() {
        // The reading comes first, then the engine reads the clock. So the engine notices a jump before it is recorded.
        let reading = ClockReading::now();
        engine.ctx.now();
        if let Some(reading) = reading.filter(|_| engine.ctx.is_time_trusted())
            && let Err(error) = reading.save(&path)
        {
            tracing::warn!(%error, file = %path.display(), "recording the clock reading failed");
        }
        // An error means that the sender is gone, so the server has ended.
        if let Ok(Err(_)) = tokio::time::timeout(RECORD_INTERVAL, ended.changed()).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_while_nothing_runs_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let now = ClockReading::now().expect("this machine has a boot id");
        assert!(!WallClock::open(folder.path()).was_wall_clock_set(), "no earlier reading");
        for (wall, boot, was_set) in [
            (now.wall_ms, now.boot.as_str(), false),
            (now.wall_ms + CLOCK_JUMP_MS / 2, &now.boot, false),
            (now.wall_ms - 7_200_000, &now.boot, true),
            (now.wall_ms + 7_200_000, &now.boot, true),
            (now.wall_ms + 7_200_000, "another start", false),
        ] {
            let before = ClockReading { wall_ms: wall, boot: boot.to_owned(), boot_ms: now.boot_ms };
            before.save(&reading_path(folder.path())).unwrap();
            assert_eq!(ClockReading::read(&reading_path(folder.path())), Some(before));
            assert_eq!(WallClock::open(folder.path()).was_wall_clock_set(), was_set, "{wall} {boot}");
        }
        std::fs::write(reading_path(folder.path()), "half a fi").unwrap();
        assert!(!WallClock::open(folder.path()).was_wall_clock_set());
    }
}
