//! Files and who may read them, the disk, and the clock.

use mailonce_core::time::Time;
use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use super::DoctorCheck;
use crate::{config::Config, secrets::KekSource};

/// How far the clock may be behind the ledger, and how long the ledger may have been away, in milliseconds. As the
/// engine has it.
const MAX_CLOCK_LAG_MS: i64 = 30_000;
const MAX_OFFLINE_MS: i64 = 24 * 3_600_000;
/// The middle of November 2026: a clock before it is certainly wrong.
const EARLIEST_VALID_TIME_MS: i64 = 1_794_700_800_000;
/// Free room below which accepts are at risk, in MiB.
const MIN_FREE_MIB: u64 = 1_024;
/// Files below which it is the same.
const MIN_FREE_INODES: u64 = 1_000;

/// Everybody's mail and all secrets: only their owner should read them.
pub(super) fn check_permissions(config: &Config, file: Option<&Path>) -> DoctorCheck {
    let data = &config.data;
    let kept =
        ["ledger.db", "ledger.db-wal", "ledger.db-shm", "dev.json", "dev.key", "agent.key"].map(|name| data.join(name));
    let open: Vec<String> =
        kept.iter().filter(|path| is_readable_by_others(path)).map(|path| path.display().to_string()).collect();
    if !open.is_empty() {
        let names = open.join(" ");
        return DoctorCheck::fail("permissions", format!("others can read {names}"), format!("chmod 600 {names}"));
    }
    let secrets: Vec<String> = secret_files(config, file)
        .into_iter()
        .filter(|path| is_readable_by_others(path))
        .map(|path| path.display().to_string())
        .collect();
    if !secrets.is_empty() {
        let names = secrets.join(" ");
        return DoctorCheck::warn(
            "permissions",
            format!("others can read the secrets in {names}"),
            format!("chmod 600 {names}"),
        );
    }
    if is_readable_by_others(data) {
        let place = data.display();
        return DoctorCheck::warn("permissions", format!("others can look into {place}"), format!("chmod 700 {place}"));
    }
    DoctorCheck::ok("permissions", "only you can read the data and the secrets")
}

fn is_readable_by_others(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o077 != 0)
}

/// Files that hold credentials: those that are named for it, and the configuration where it has some itself.
fn secret_files(config: &Config, file: Option<&Path>) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut inline = false;
    for way in &config.transports {
        files.extend(
            [&way.password_file, &way.api_key_file, &way.secret_access_key_file].into_iter().flatten().cloned(),
        );
        inline |= way.password.is_some() || way.api_key.is_some() || way.secret_access_key.is_some();
    }
    let listeners = [&config.http_options.tls_files, &config.smtp.tls_files];
    files.extend(listeners.into_iter().flatten().map(|(_, key)| key.clone()));
    if let Some(KekSource::File(path)) = &config.secrets.kek {
        files.push(path.clone());
    }
    if inline {
        files.push(file.unwrap_or(Path::new("mailonce.toml")).to_owned());
    }
    files
}

pub(super) fn check_disk(data: &Path) -> DoctorCheck {
    let place =
        data.ancestors().find(|place| place.exists() && !place.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Some(kind) = network_file_system(place) {
        let found = format!("{} is on {kind}, whose locks and syncs a ledger cannot rely on", data.display());
        return DoctorCheck::fail("disk", found, "put --data on a local disk, or use PostgreSQL by --store");
    }
    let Ok(about) = rustix::fs::statvfs(place) else {
        return DoctorCheck::warn(
            "disk",
            format!("{} does not say how much room it has", place.display()),
            "look with `df`",
        );
    };
    let free = about.f_bavail * about.f_frsize / (1024 * 1024);
    check_free_space(free, (about.f_files > 0).then_some(about.f_favail))
}

/// Free room in MiB, and files that can still be made where they are counted.
fn check_free_space(free: u64, files: Option<u64>) -> DoctorCheck {
    let found = if free < 10 * 1024 { format!("{free} MiB free") } else { format!("{} GiB free", free / 1024) };
    if free < MIN_FREE_MIB {
        return DoctorCheck::fail("disk", found, "make room: below 1 GiB accepts will soon answer 503");
    }
    match files {
        Some(left) if left < MIN_FREE_INODES => {
            DoctorCheck::fail("disk", format!("{left} files can still be made"), "remove files: inodes run out")
        }
        _ => DoctorCheck::ok("disk", found),
    }
}

/// The name of a file system that lies on another machine.
#[cfg(target_os = "linux")]
fn network_file_system(place: &Path) -> Option<&'static str> {
    let kind = rustix::fs::statfs(place).ok()?.f_type as u64 & 0xffff_ffff;
    [(0x6969, "NFS"), (0x517b, "SMB"), (0xff53_4d42, "CIFS"), (0xfe53_4d42, "SMB"), (0x0102_1997, "9P")]
        .into_iter()
        .find_map(|(magic, name)| (magic == kind).then_some(name))
}

#[cfg(not(target_os = "linux"))]
fn network_file_system(_: &Path) -> Option<&'static str> {
    None
}

/// The clock, against what the ledger last knew and what keeps it right.
pub(super) fn check_clock(seen_at: Option<Time>, offline: bool) -> DoctorCheck {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let wall = crate::cli::printer::format_time(&Time(now).to_string());
    let kept = (!offline).then(crate::wall_clock::is_kernel_clock_synchronized);
    compare_clocks(now, seen_at.map(|Time(ms)| ms), &wall, kept)
}

fn compare_clocks(now: i64, seen_at: Option<i64>, wall: &str, kept: Option<bool>) -> DoctorCheck {
    if now < EARLIEST_VALID_TIME_MS {
        return DoctorCheck::fail("clock", format!("it shows {wall}, which is long past"), "set it, by NTP at best");
    }
    match seen_at {
        Some(seen) if now < seen - MAX_CLOCK_LAG_MS => {
            let found = format!("it is {} s behind the ledger's own time", (seen - now) / 1_000);
            DoctorCheck::fail(
                "clock",
                found,
                "set it; time-bound work rests until then, or until POST /v1/clock/confirm",
            )
        }
        Some(seen) if now > seen + MAX_OFFLINE_MS => {
            let found = format!("the ledger was last used {} h ago", (now - seen) / 3_600_000);
            let next =
                "after the start, confirm the clock by POST /v1/clock/confirm: until then nothing scheduled goes";
            DoctorCheck::warn("clock", found, next)
        }
        _ if kept == Some(false) => DoctorCheck::warn(
            "clock",
            format!("{wall}, but nobody keeps it right"),
            "let systemd-timesyncd or chrony set it",
        ),
        _ => DoctorCheck::ok("clock", wall),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::CheckLevel, *};

    #[test]
    fn a_disk_is_judged_by_its_room_and_its_inodes() {
        assert_eq!(check_free_space(MIN_FREE_MIB, Some(MIN_FREE_INODES)).level, CheckLevel::Ok);
        assert_eq!(check_free_space(MIN_FREE_MIB, None).level, CheckLevel::Ok);
        let full = check_free_space(MIN_FREE_MIB - 1, Some(MIN_FREE_INODES));
        assert!(full.level == CheckLevel::Fail && full.next_step.contains("make room"), "{full:?}");
        let crowded = check_free_space(1 << 20, Some(MIN_FREE_INODES - 1));
        assert!(crowded.level == CheckLevel::Fail && crowded.next_step.contains("inodes"), "{crowded:?}");
    }

    #[test]
    fn a_clock_is_judged_by_what_the_ledger_knew() {
        let now = EARLIEST_VALID_TIME_MS + 1_000_000_000;
        let level = |now, seen, kept| compare_clocks(now, seen, "then", kept).level;
        assert_eq!(level(now, None, None), CheckLevel::Ok);
        assert_eq!(level(now, Some(now - 60_000), Some(true)), CheckLevel::Ok);
        assert_eq!(level(now, Some(now + 60_000), None), CheckLevel::Fail);
        assert_eq!(level(now, Some(now - MAX_OFFLINE_MS - 1), None), CheckLevel::Warn);
        assert_eq!(level(now, None, Some(false)), CheckLevel::Warn);
        assert_eq!(level(1_000, None, None), CheckLevel::Fail);
    }
}
