//! The process between `once` and its command: it starts the command, and kills the process group when `once` dies.
//!
//! The kernel tells only a direct child that its parent has died (`PR_SET_PDEATHSIG`), and such a signal kills one
//! process. A command that is a script has children of its own, which would go on without anybody renewing the lease. So
//! `once` starts its own binary as the hidden verb `once-child`, in a process group of its own. That process asks the
//! kernel for the signal, starts the command in the same group, and kills the whole group when the signal arrives.
//!
//! A process that leaves the group, such as a daemon, is not killed.

use rustix::process::{Pid, Signal, getpgrp, getppid, kill_process_group};
use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
};
use tokio::{
    process::Command,
    signal::unix::{Signal as SignalStream, SignalKind, signal},
};

use super::{child::exit_code, signals::FORWARDED};
use crate::cli::printer::print_stderr;

/// What the report contains once the command may have been started.
const STARTING: &str = "starting\n";
/// The exit code when the command was not started. The report says so, because a command may end with this code itself.
const NOT_STARTED: u8 = 126;

/// A file in which the supervisor writes whether it started the command.
pub(super) struct StartReport {
    path: PathBuf,
    file: File,
}

impl StartReport {
    /// A file in memory, because the root may be read-only and have no temporary folder.
    #[cfg(target_os = "linux")]
    pub(super) fn create() -> io::Result<Self> {
        use std::os::fd::AsRawFd as _;
        let file = File::from(rustix::fs::memfd_create("mailonce-once", rustix::fs::MemfdFlags::CLOEXEC)?);
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        Ok(Self { path, file })
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn create() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("mailonce-once-{}", crate::entropy::random_name()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Self { path, file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Why the command did not start; `None` if it did.
    pub(super) fn failure(&mut self) -> io::Result<Option<String>> {
        let mut text = String::new();
        io::Read::read_to_string(&mut self.file, &mut text)?;
        Ok(match text.strip_prefix(STARTING) {
            Some("") => None,
            Some(why) => Some(why.to_owned()),
            None => Some("the process that starts it has ended".to_owned()),
        })
    }
}

#[cfg(not(target_os = "linux"))]
impl Drop for StartReport {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

/// Runs the command of `once` in the group of this process. Returns its exit code.
pub(crate) fn supervise(parent: u32, report: &Path, command: &[OsString]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let supervised = runtime.and_then(|runtime| runtime.block_on(start_and_wait(parent, report, command)));
    match supervised {
        Ok(status) => ExitCode::from(exit_code(status)),
        Err(error) => {
            let program = command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
            print_stderr(&format!("mailonce once: {program}: {error}"));
            ExitCode::from(NOT_STARTED)
        }
    }
}

async fn start_and_wait(parent: u32, report: &Path, command: &[OsString]) -> io::Result<ExitStatus> {
    let Some((program, args)) = command.split_first() else { return Err(io::Error::other("the command is missing")) };
    let mut report = OpenOptions::new().write(true).open(report)?;
    // This process is in the group that gets these signals, and must outlive them. A new program starts without handlers.
    let _outlived = FORWARDED.iter().map(|(kind, _)| signal(*kind)).collect::<io::Result<Vec<_>>>()?;
    let mut orphaned = watch_parent(parent)?;
    report.write_all(STARTING.as_bytes())?;
    let started = Command::new(program).args(args).spawn();
    let mut child = started.inspect_err(|error| {
        let reported = write!(report, "{error}");
        reported.unwrap_or_else(|why| print_stderr(&format!("mailonce once: the report cannot be written: {why}")));
    })?;
    loop {
        tokio::select! {
            ended = child.wait() => return ended,
            // Anybody may send this signal.
            _ = orphaned.recv() => if is_orphaned(parent) {
                kill_process_group(getpgrp(), Signal::KILL)?;
            }
        }
    }
}

/// Asks the kernel for a signal when the parent dies.
fn watch_parent(parent: u32) -> io::Result<SignalStream> {
    let orphaned = signal(SignalKind::user_defined2())?;
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_parent_process_death_signal(Some(Signal::USR2))?;
        // This process disabled them for itself, and the command would inherit that.
        let _ignored = rustix::thread::disable_transparent_huge_pages(false);
    }
    // It may have died before the kernel was asked.
    if is_orphaned(parent) { Err(io::Error::other("`mailonce once` has ended")) } else { Ok(orphaned) }
}

fn is_orphaned(parent: u32) -> bool {
    let current = getppid().map(Pid::as_raw_nonzero);
    current.and_then(|pid| u32::try_from(pid.get()).ok()) != Some(parent)
}
