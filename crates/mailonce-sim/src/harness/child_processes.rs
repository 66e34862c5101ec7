//! Child processes that never outlive their parent.

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// How long a child may take to exit after SIGTERM.
const TERM_TIMEOUT: Duration = Duration::from_secs(30);

/// The running children.
#[derive(Debug, Clone, Default)]
pub struct ChildProcesses(Arc<Mutex<Vec<Pid>>>);

impl ChildProcesses {
    /// On SIGINT or SIGTERM, removes `work`, kills all children and exits.
    pub fn kill_children_on_signal(&self, work: Option<PathBuf>) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let children = self.clone();
        std::thread::spawn(move || {
            let code = runtime.block_on(async {
                let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
                else {
                    return None;
                };
                tokio::select! { _ = int.recv() => Some(130), _ = term.recv() => Some(143) }
            });
            if let Some(code) = code {
                for pid in children.lock_pids().drain(..) {
                    kill_group(pid);
                }
                if let Some(work) = work {
                    let _gone = std::fs::remove_dir_all(work);
                }
                std::process::exit(code);
            }
        });
        Ok(())
    }

    /// Starts a child whose output goes to a log file.
    pub fn spawn(&self, mut command: Command, log: &Path) -> Result<ChildProcess> {
        let name = command.get_program().to_string_lossy().into_owned();
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let pid = Pid::from_child(&child);
        self.lock_pids().push(pid);
        Ok(ChildProcess { name, child, pid, log: log.to_owned(), children: self.clone() })
    }

    fn lock_pids(&self) -> std::sync::MutexGuard<'_, Vec<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running child; it is killed when dropped.
#[derive(Debug)]
pub struct ChildProcess {
    name: String,
    child: Child,
    pid: Pid,
    log: PathBuf,
    children: ChildProcesses,
}

impl ChildProcess {
    /// Waits until `ready` returns true. Fails if the child exits first or the timeout passes.
    pub fn wait_until_ready(&mut self, timeout: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + timeout;
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended ({status}){}", self.name, self.log_tail());
            }
            if Instant::now() > deadline {
                bail!("{} was not ready after {} s{}", self.name, timeout.as_secs(), self.log_tail());
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until the child exits, which must be with success.
    pub fn wait_for_success(mut self) -> Result<()> {
        let status = self.child.wait()?;
        if !status.success() {
            bail!("{} failed ({status}){}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Sends SIGTERM and waits for the child.
    pub fn terminate(mut self) -> Result<ExitStatus> {
        kill_process(self.pid, Signal::TERM)?;
        let deadline = Instant::now() + TERM_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("{} did not end within {} s of SIGTERM", self.name, TERM_TIMEOUT.as_secs());
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// Sends SIGKILL and waits for the child.
    pub fn kill(mut self) -> Result<()> {
        kill_process(self.pid, Signal::KILL)?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops the child with SIGSTOP.
    pub fn pause(&self) -> Result<()> {
        Ok(kill_process(self.pid, Signal::STOP)?)
    }

    /// Continues a stopped child.
    pub fn resume(&self) -> Result<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// Whether the child is stopped.
    pub fn is_paused(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero())).unwrap_or_default();
        // The process name before it may contain anything, brackets too.
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    }

    /// The exit status; `None` if the child still runs after `timeout`.
    pub fn wait_for_exit(&mut self, timeout: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.child.try_wait()? {
                None if Instant::now() < deadline => sleep(Duration::from_millis(10)),
                status => return Ok(status),
            }
        }
    }

    /// The child's output so far.
    pub fn read_log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Resident memory in megabytes (10^6 bytes).
    pub fn rss_mb(&self) -> Option<f64> {
        let pid = self.pid.as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024.0 / 1e6)
    }

    fn log_tail(&self) -> String {
        let text = self.read_log();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(8)..].join("\n    ");
        if last.is_empty() { String::new() } else { format!(":\n    {last}") }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.children.lock_pids().retain(|pid| *pid != self.pid);
        // The pid of a child that was waited for may belong to another process by now.
        if matches!(self.child.try_wait(), Ok(None)) {
            kill_group(self.pid);
        }
        // It fails only if the child is gone already.
        let _gone = self.child.wait();
    }
}

/// Kills a child and the process group that it leads, if any. Postfix has children of its own that would run for
/// minutes.
fn kill_group(pid: Pid) {
    // Both may have exited already, and most children lead no group.
    let _gone = kill_process_group(pid, Signal::KILL);
    let _gone = kill_process(pid, Signal::KILL);
}

/// Sleeps.
#[expect(clippy::disallowed_methods, reason = "benches and rigs serve nobody while they wait")]
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::ChildProcesses;
    use rustix::process::{Pid, test_kill_process};
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_dropped_child_takes_the_group_that_it_leads_along() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("setsid");
        // The script prints the pid of its own child and waits for it.
        command.args(["sh", "-c", "sleep 600 & echo $!; wait"]);
        let mut running = ChildProcesses::default().spawn(command, &folder.path().join("log")).unwrap();
        let printed = folder.path().join("log");
        let number = || std::fs::read_to_string(&printed).unwrap_or_default();
        running.wait_until_ready(Duration::from_secs(30), || number().ends_with('\n')).unwrap();
        let grandchild = Pid::from_raw(number().trim().parse().unwrap()).unwrap();
        test_kill_process(grandchild).unwrap();
        drop(running);
        // The process that adopts the orphan takes a moment to reap it.
        let gone = || state(grandchild).is_none_or(|state| state == 'Z');
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while !gone() {
            assert!(std::time::Instant::now() < deadline, "it lives on");
            super::sleep(Duration::from_millis(5));
        }
    }

    /// The kernel's state letter of a process, while it exists.
    fn state(pid: Pid) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }
}
