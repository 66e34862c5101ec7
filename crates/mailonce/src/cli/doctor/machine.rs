//! File permissions, the disk and the clock.

use mailonce_core::time::Time;
use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use super::DoctorCheck;
use crate::{config::Config, secrets::KekSource};

/// How far the clock may be behind the ledger, and how long the ledger may have been unused, in milliseconds. The same
/// values as in the engine.
const MAX_CLOCK_LAG_MS: i64 = 30_000;
const MAX_OFFLINE_MS: i64 = 24 * 3_600_000;
/// The middle of November 2026. A clock before it is wrong.
const EARLIEST_VALID_TIME_MS: i64 = 1_794_700_800_000;
/// With less free space, the server may soon be unable to accept, in MiB.
const MIN_FREE_MIB: u64 = 1_024;
/// With fewer free inodes likewise.
const MIN_FREE_INODES: u64 = 1_000;

/// Whether only the owner can read mail and secrets.
pub(super) fn check_permissions(config: &Config, file: Option<&Path>) -> DoctorCheck {
    let data = &config.data;
    let kept =
        ["ledger.db", "ledger.db-wal", "ledger.db-shm", "dev.json", "dev.key", "agent.key"].map(|name| data.join(name));
    let open: Vec<String> =
        kept.iter().filter(|path| is_readable_by_others(path)).map(|path| path.display().to_string()).collect();
    if !open.is_empty() {
        let names = open.join(" ");
        return DoctorCheck::fail("permissions", format!("other users can read {names}"), format!("chmod 600 {names}"));
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
            format!("other users can read the secrets in {names}"),
            format!("chmod 600 {names}"),
        );
    }
    if is_readable_by_others(data) {
        let folder = data.display();
        return DoctorCheck::warn(
            "permissions",
            format!("other users can list {folder}"),
            format!("chmod 700 {folder}"),
        );
    }
    DoctorCheck::ok("permissions", "only you can read the data and secrets")
}

fn is_readable_by_others(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

/// Files with credentials: those that the configuration names, and the configuration if it contains some.
fn secret_files(config: &Config, file: Option<&Path>) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut inline = false;
    for transport in &config.transports {
        files.extend(
            [&transport.password_file, &transport.api_key_file, &transport.secret_access_key_file]
                .into_iter()
                .flatten()
                .cloned(),
        );
        inline |= transport.password.is_some() || transport.api_key.is_some() || transport.secret_access_key.is_some();
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
    let folder =
        data.ancestors().find(|folder| folder.exists() && !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Some(kind) = network_file_system(folder) {
        let found =
            format!("{} is on {kind}, whose locks and fsync are not reliable enough for SQLite", data.display());
        return DoctorCheck::fail("disk", found, "put --data on a local disk, or use PostgreSQL with --store");
    }
    let Ok(stat) = rustix::fs::statvfs(folder) else {
        return DoctorCheck::warn(
            "disk",
            format!("the free space of {} is unknown", folder.display()),
            "check it with `df`",
        );
    };
    let free = stat.f_bavail * stat.f_frsize / (1024 * 1024);
    check_free_space(free, (stat.f_files > 0).then_some(stat.f_favail))
}

/// Free space in MiB, and free inodes if the file system counts them.
fn check_free_space(free: u64, files: Option<u64>) -> DoctorCheck {
    let found = if free < 10 * 1024 { format!("{free} MiB free") } else { format!("{} GiB free", free / 1024) };
    if free < MIN_FREE_MIB {
        return DoctorCheck::fail("disk", found, "free some space: on a full disk the server answers 503");
    }
    match files {
        Some(left) if left < MIN_FREE_INODES => {
            DoctorCheck::fail("disk", format!("{left} inodes free"), "remove files, the disk runs out of inodes")
        }
        _ => DoctorCheck::ok("disk", found),
    }
}

/// The name of a file system that lies on another machine.
#[cfg(target_os = "linux")]
fn network_file_system(folder: &Path) -> Option<&'static str> {
    let kind = rustix::fs::statfs(folder).ok()?.f_type as u64 & 0xffff_ffff;
    [(0x6969, "NFS"), (0x517b, "SMB"), (0xff53_4d42, "CIFS"), (0xfe53_4d42, "SMB"), (0x0102_1997, "9P")]
        .into_iter()
        .find_map(|(magic, name)| (magic == kind).then_some(name))
}

#[cfg(not(target_os = "linux"))]
fn network_file_system(_: &Path) -> Option<&'static str> {
    None
}

/// Compares the clock with the latest time in the ledger, and checks that it is synchronized.
pub(super) fn check_clock(latest_time: Option<Time>, offline: bool) -> DoctorCheck {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let wall = crate::cli::printer::format_time(&Time(now).to_string());
    let synchronized = (!offline).then(crate::wall_clock::is_kernel_clock_synchronized);
    compare_clocks(now, latest_time.map(|Time(ms)| ms), &wall, synchronized)
}

fn compare_clocks(now: i64, latest_time: Option<i64>, wall: &str, synchronized: Option<bool>) -> DoctorCheck {
    if now < EARLIEST_VALID_TIME_MS {
        return DoctorCheck::fail(
            "clock",
            format!("the clock shows {wall}, which is in the past"),
            "set the clock, preferably with NTP",
        );
    }
    match latest_time {
        Some(latest) if now < latest - MAX_CLOCK_LAG_MS => {
            let found = format!("the clock is {} s behind the latest time in the ledger", (latest - now) / 1_000);
            DoctorCheck::fail(
                "clock",
                found,
                "set the clock; scheduled work waits until then, or until POST /v1/clock/confirm",
            )
        }
        Some(latest) if now > latest + MAX_OFFLINE_MS => {
            let found = format!("the ledger was last used {} h ago", (now - latest) / 3_600_000);
            let next =
                "after the start, confirm the clock with POST /v1/clock/confirm; scheduled emails wait until then";
            DoctorCheck::warn("clock", found, next)
        }
        _ if synchronized == Some(false) => DoctorCheck::warn(
            "clock",
            format!("{wall}, but the clock is not synchronized"),
            "synchronize it with systemd-timesyncd or chrony",
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
        assert!(full.level == CheckLevel::Fail && full.next_step.contains("free some space"), "{full:?}");
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
