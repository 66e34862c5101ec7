//! Servers under test: mailonce itself, and anything else that answers `GET /readyz`.

use super::http;
use crate::harness::child_processes::{ChildProcess, ChildProcesses, sleep};
use crate::harness::rng::SeededRng;
use anyhow::{Context as _, Result, bail, ensure};
use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering},
};
use std::time::{Duration, Instant};

/// The API key that the server creates at its first start and that every request carries.
pub const API_KEY: &str = "bench-key-0123456789abcdef";

/// How long a start may take; it may have a large store to open.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// How often a start is tried, since a port may be taken between choosing and binding it.
const PORT_TRIES: usize = 3;

/// The ports of servers under test, below the kernel's ephemeral range.
const FIRST_PORT: u16 = 15_000;
const PORT_COUNT: u32 = 17_000;

/// A server that is ready.
#[derive(Debug)]
pub struct ServerProcess {
    process: ChildProcess,
    /// Its address.
    pub at: SocketAddr,
}

/// The result of a start.
#[derive(Debug)]
pub enum StartOutcome {
    /// It is ready, or paused at a failpoint.
    Ready(ServerProcess),
    /// It exited: its status and its log.
    Ended(ExitStatus, String),
}

/// The settings of a mailonce server.
#[derive(Debug, Clone, Copy)]
pub struct ServerSetup<'a> {
    /// The server's binary.
    pub binary: &'a Path,
    /// Its data directory; the log is next to it.
    pub data: &'a Path,
    /// URL of the PostgreSQL database that keeps the ledger; `None` for SQLite in the data directory.
    pub store: Option<&'a str>,
    /// Whether hand-off is paused, so that only accepting is measured.
    pub paused: bool,
    /// Further environment variables.
    pub env: &'a [(&'a str, OsString)],
}

impl ServerSetup<'_> {
    /// Starts the server and waits until it is ready.
    pub fn start(&self, children: &ChildProcesses) -> Result<ServerProcess> {
        let log = self.data.with_extension("log");
        ServerProcess::start(children, &log, |at| Ok(self.command("dev", at)))
    }

    /// The command that starts the server: `dev` or `serve`.
    pub fn command(&self, verb: &str, at: SocketAddr) -> Command {
        let mut command = mailonce_command(self.binary);
        command.arg(verb).arg("--data").arg(self.data);
        command.arg("--http").arg(at.to_string()).arg("--smtp").arg("127.0.0.1:0");
        if let Some(store) = self.store {
            command.arg("--store").arg(store);
        }
        if self.paused {
            command.env("MAILONCE_HANDOFF", "paused");
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// The binary with none of our settings in its environment but the API key.
pub fn mailonce_command(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MAILONCE_") {
            command.env_remove(name);
        }
    }
    command.env("MAILONCE_API_KEY", API_KEY);
    command
}

/// The server's binary: the given one, else the one next to this program.
pub fn locate_binary(named: Option<&PathBuf>) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("mailonce"),
    };
    path.canonicalize().with_context(|| format!("no server binary at {}", path.display()))
}

/// The server's binary of the profile of this test, built once if it does not exist.
pub fn built_binary() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| find_or_build().map_err(|why| format!("{why:#}")));
    built.clone().map_err(anyhow::Error::msg)
}

fn find_or_build() -> Result<PathBuf> {
    // A test is target/PROFILE/deps/NAME, the server target/PROFILE/mailonce.
    let test = std::env::current_exe()?;
    let profile = test.ancestors().nth(2).context("a test outside target/")?;
    let path = profile.join("mailonce");
    if path.exists() {
        return Ok(path);
    }
    let name = profile.file_name().unwrap_or_default();
    let name = if name == "debug" { OsStr::new("dev") } else { name };
    let target = profile.parent().context("a test outside target/")?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "-p", "mailonce", "--features", "failpoints", "--profile"]).arg(name);
    command.arg("--target-dir").arg(target);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = command.status();
    ensure!(
        status.is_ok_and(|status| status.success()) && path.exists(),
        "there is no server binary at {}: run `cargo build -p mailonce --features failpoints --profile {}` first",
        path.display(),
        name.to_string_lossy()
    );
    Ok(path)
}

impl ServerProcess {
    /// Starts the command for a free address and waits until it is ready. It retries only if another process took the
    /// port: tests need to see every other failed start.
    pub fn start(
        children: &ChildProcesses,
        log: &Path,
        command: impl Fn(SocketAddr) -> Result<Command>,
    ) -> Result<Self> {
        let mut tries = 0;
        loop {
            tries += 1;
            let at = free_address()?;
            let mut running = children.spawn(command(at)?, log)?;
            match running.wait_until_ready(START_TIMEOUT, || http::get_status(at, "/readyz") == Some(200)) {
                Ok(()) => return Ok(Self { process: running, at }),
                Err(why) if tries == PORT_TRIES || !port_was_taken(&running) => return Err(why),
                Err(_) => sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Starts the command for a free address and waits until it is ready or exits. A server with a failpoint may exit
    /// before it is ready.
    pub fn start_or_end(
        children: &ChildProcesses,
        log: &Path,
        command: impl Fn(SocketAddr) -> Result<Command>,
    ) -> Result<StartOutcome> {
        let mut tries = 0;
        loop {
            tries += 1;
            let at = free_address()?;
            let mut running = children.spawn(command(at)?, log)?;
            let deadline = Instant::now() + START_TIMEOUT;
            let ended = loop {
                if let Some(status) = running.wait_for_exit(Duration::ZERO)? {
                    break status;
                }
                if running.is_paused() || is_ready(at) {
                    return Ok(StartOutcome::Ready(Self { process: running, at }));
                }
                ensure!(Instant::now() < deadline, "the server was not ready in time: {}", running.read_log());
                sleep(Duration::from_millis(10));
            };
            if tries == PORT_TRIES || !port_was_taken(&running) {
                return Ok(StartOutcome::Ended(ended, running.read_log()));
            }
        }
    }

    /// Sends SIGTERM and waits.
    pub fn terminate(self) -> Result<ExitStatus> {
        self.process.terminate()
    }

    /// Sends SIGKILL and waits.
    pub fn kill(self) -> Result<()> {
        self.process.kill()
    }

    /// Stops it with SIGSTOP.
    pub fn pause(&self) -> Result<()> {
        self.process.pause()
    }

    /// Continues it.
    pub fn resume(&self) -> Result<()> {
        self.process.resume()
    }

    /// Whether it is stopped.
    pub fn is_paused(&self) -> bool {
        self.process.is_paused()
    }

    /// The exit status; `None` if it still runs after `timeout`.
    pub fn wait_for_exit(&mut self, timeout: Duration) -> Result<Option<ExitStatus>> {
        self.process.wait_for_exit(timeout)
    }

    /// Its log.
    pub fn read_log(&self) -> String {
        self.process.read_log()
    }

    /// Resident memory in megabytes.
    pub fn rss_mb(&self) -> Option<f64> {
        self.process.rss_mb()
    }
}

/// Whether a server reports that it is ready. A short timeout, since a stopped server never replies.
fn is_ready(at: SocketAddr) -> bool {
    let ask = || -> Result<u16> {
        let mut stream = http::connect(at)?;
        stream.set_read_timeout(Some(Duration::from_millis(500)))?;
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {at}\r\n\r\n");
        Ok(http::exchange_on(&mut stream, request.as_bytes())?.status)
    };
    matches!(ask(), Ok(200))
}

/// The messages of mailonce and of other servers.
fn port_was_taken(running: &ChildProcess) -> bool {
    let log = running.read_log().to_ascii_lowercase();
    ["port_taken", "address already in use"].iter().any(|text| log.contains(text))
}

/// An address that is free and that this process gets once. It is below the kernel's ephemeral range: a client could
/// take a port of that range before the server binds it.
pub fn free_address() -> Result<SocketAddr> {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| {
        AtomicU32::new(SeededRng::derive(std::process::id().into(), &[]).below(PORT_COUNT.into()) as u32)
    });
    for _ in 0..PORT_COUNT {
        let port = FIRST_PORT + (next.fetch_add(1, Ordering::Relaxed) % PORT_COUNT) as u16;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Ok(listener.local_addr()?);
        }
    }
    bail!("every port from {FIRST_PORT} on is in use")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, sync::atomic::AtomicBool};

    #[test]
    fn a_port_is_given_once_and_to_no_client() {
        let given: BTreeSet<SocketAddr> = (0..100).map(|_| free_address().unwrap()).collect();
        assert_eq!(given.len(), 100);
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let lowest: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        assert!(given.iter().all(|at| at.port() < lowest), "{given:?}");
    }

    #[test]
    fn a_server_whose_port_was_taken_gets_another() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["mailonce: port_taken: something listens on 127.0.0.1:1 already", "Address already in use"] {
            let first = AtomicBool::new(true);
            let start = |at: SocketAddr| {
                let mut command = Command::new("python3");
                let says = format!("import sys; sys.exit({text:?})");
                let script = if first.swap(false, Ordering::Relaxed) { says.as_str() } else { READY };
                command.args(["-c", script, &at.port().to_string()]);
                Ok(command)
            };
            ServerProcess::start(&ChildProcesses::default(), &folder.path().join("log"), start).unwrap();
            assert!(!first.into_inner());
        }
    }

    const READY: &str = "
import http.server, sys
class Ready(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        self.send_response(200)
        self.send_header('content-length', '0')
        self.end_headers()
http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Ready).serve_forever()
";
}
