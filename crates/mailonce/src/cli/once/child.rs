//! The command that `once` runs: its process group, its signals and its output.
//!
//! The command and its children must not survive this process, or they would go on without anybody renewing the lease. So
//! the `supervisor` starts them, and kills their process group when this process dies.

use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Write},
    os::fd::OwnedFd,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    process::{ChildStderr, ChildStdout, Command},
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    task::JoinHandle,
};

use super::{
    recorded_run::{MAX_OUTPUT_BYTES, RecordedRun},
    signals::CaughtSignals,
    supervisor::StartReport,
};

/// How long output is read after the command has ended. A background process of it may keep the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_secs(2);

/// Says why a command cannot be started.
pub(super) fn check_command(command: &[OsString]) -> Result<(), String> {
    let Some(program) = command.first() else { return Err("the command is missing".to_owned()) };
    let is_executable = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let is_found = if program.as_encoded_bytes().contains(&b'/') {
        is_executable(Path::new(program))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| is_executable(&folder.join(program)))
    };
    if is_found { Ok(()) } else { Err(format!("there is no command {}", program.to_string_lossy())) }
}

/// Why there is no exit code of the command.
pub(super) enum RunError {
    /// It did not run.
    NotStarted(String),
    /// A signal came before it started.
    Interrupted(Signal),
    /// It ran, and nobody knows how it ended.
    Lost(String),
}

/// Runs the command to its end. Its output goes where that of this process goes, and its first part is recorded. Signals
/// that arrived before it started are passed on to it, too.
pub(super) async fn run(
    command: &[OsString],
    env: &[(&str, String)],
    signals: CaughtSignals,
) -> Result<RecordedRun, RunError> {
    // The same file as this process, also when it was replaced on the disk.
    let own = Path::new("/proc/self/exe");
    let current = || std::env::current_exe().map_err(|error| RunError::NotStarted(error.to_string()));
    let own = if own.exists() { own.to_owned() } else { current()? };
    let has_terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
    let mut report = StartReport::create().map_err(|error| RunError::NotStarted(error.to_string()))?;
    // A caller may ignore SIGCHLD, and a process inherits that: the end of the command would be lost. A handler ends it.
    let _ended = signal(SignalKind::child());
    let mut child = Command::new(own)
        .arg("once-child")
        .arg(std::process::id().to_string())
        .arg(report.path())
        .arg("--")
        .args(command)
        .envs(env.iter().map(|(name, value)| (name, value)))
        // A process group of its own cannot read from the terminal: the kernel would suspend it.
        .stdin(if has_terminal { Stdio::null() } else { Stdio::inherit() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| RunError::NotStarted(error.to_string()))?;
    let lost = |error: io::Error| RunError::Lost(error.to_string());
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).unwrap_or(0)));
    let forwarding = forward_signals(group, signals);
    let stdout = child.stdout.take().map(ChildStdout::into_owned_fd).transpose().map_err(lost)?;
    let stderr = child.stderr.take().map(ChildStderr::into_owned_fd).transpose().map_err(lost)?;
    let stdout = stdout.map(|from| OutputCopy::start(from, io::stdout()));
    let stderr = stderr.map(|from| OutputCopy::start(from, io::stderr()));
    let status = child.wait().await.map_err(lost)?;
    if let (Some(_killed), Some(group)) = (status.signal(), group) {
        // The supervisor was killed. The command must not go on, because it counts as ended.
        let _gone = kill_process_group(group, Signal::KILL);
    }
    let (stdout, stderr) = (finish(stdout).await, finish(stderr).await);
    forwarding.abort();
    if let Some(why) = report.failure().map_err(lost)? {
        return Err(RunError::NotStarted(why));
    }
    Ok(RecordedRun {
        exit_code: exit_code(status),
        is_truncated: stdout.len() > MAX_OUTPUT_BYTES || stderr.len() > MAX_OUTPUT_BYTES,
        stdout: limited(stdout),
        stderr: limited(stderr),
    })
}

fn limited(mut output: Vec<u8>) -> Vec<u8> {
    output.truncate(MAX_OUTPUT_BYTES);
    output
}

/// The exit code as shells report it: 128 and the number of the signal that ended the command.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn forward_signals(group: Option<Pid>, mut signals: CaughtSignals) -> JoinHandle<()> {
    tokio::spawn(async move {
        let Some(group) = group else { return };
        while let Some(number) = signals.next().await {
            // The group may have ended by now.
            let _gone = kill_process_group(group, number);
        }
    })
}

/// Output that is being copied, and its beginning so far.
struct OutputCopy {
    kept: Arc<Mutex<Vec<u8>>>,
    /// Whether a part is being written. A reader that is slow gets the time that it needs.
    is_writing: Arc<AtomicBool>,
    ended: oneshot::Receiver<()>,
}

impl OutputCopy {
    /// Copies on a thread of its own: a reader that is slow must not delay the renewals of the lease.
    fn start(from: OwnedFd, mut to: impl Write + Send + 'static) -> Self {
        let (kept, (ending, ended)) = (Arc::<Mutex<Vec<u8>>>::default(), oneshot::channel());
        let (shared, mut from) = (Arc::clone(&kept), File::from(from));
        let is_writing = Arc::<AtomicBool>::default();
        let writing = Arc::clone(&is_writing);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let part = buffer.get(..count).unwrap_or_default();
                writing.store(true, Ordering::Release);
                {
                    let mut kept = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    // One byte more than is recorded, to see whether the output was cut (`is_truncated`).
                    let room = (MAX_OUTPUT_BYTES + 1).saturating_sub(kept.len());
                    kept.extend(part.iter().take(room));
                }
                // A closed output must not stop the command.
                let _closed = to.write_all(part).and_then(|()| to.flush());
                writing.store(false, Ordering::Release);
            }
            let _gone = ending.send(());
        });
        Self { kept, is_writing, ended }
    }

    /// The beginning of the output, once it has ended or nothing came during the grace.
    async fn finish(mut self) -> Vec<u8> {
        let mut length = usize::MAX;
        while tokio::time::timeout(OUTPUT_GRACE, &mut self.ended).await.is_err() {
            let now = self.kept.lock().unwrap_or_else(PoisonError::into_inner).len();
            if now == length && !self.is_writing.load(Ordering::Acquire) {
                break;
            }
            length = now;
        }
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn finish(copy: Option<OutputCopy>) -> Vec<u8> {
    match copy {
        Some(copy) => copy.finish().await,
        None => Vec::new(),
    }
}
