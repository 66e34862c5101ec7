//! Servers under measurement: mailonce itself, and anything else that answers `GET /readyz`.

use crate::children::{Children, Running, pause};
use anyhow::{Context as _, Result};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// The key that the server is told to create and that every request carries.
pub(crate) const API_KEY: &str = "bench-key-0123456789abcdef";

/// A start may have a large store to open.
const START: Duration = Duration::from_mins(2);

/// A port may be taken between choosing it and listening on it.
const TRIES: usize = 3;

/// A server that is ready.
#[derive(Debug)]
pub(crate) struct Server {
    running: Running,
    pub(crate) at: SocketAddr,
}

/// How a mailonce server is to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) binary: &'a Path,
    /// Its data directory; the log goes beside it.
    pub(crate) data: &'a Path,
    /// The PostgreSQL to keep the ledger in, else SQLite in the data directory.
    pub(crate) store: Option<&'a str>,
    /// Whether hand-off rests, so that accepting alone is measured.
    pub(crate) paused: bool,
}

impl Setup<'_> {
    /// Starts the server and waits until it is ready.
    pub(crate) fn start(&self, children: &Children) -> Result<Server> {
        let log = self.data.with_extension("log");
        Server::start(children, &log, |at| {
            let mut command = mailonce(self.binary);
            command
                .arg("dev")
                .arg("--data")
                .arg(self.data)
                .arg("--http")
                .arg(at.to_string());
            if let Some(store) = self.store {
                command.arg("--store").arg(store);
            }
            if self.paused {
                command.env("MAILONCE_HANDOFF", "paused");
            }
            command.env("MAILONCE_SMTP", free_address()?.to_string());
            command.env("MAILONCE_BENCH_ECHO", "1");
            Ok(command)
        })
    }
}

/// The binary with none of our own settings in its environment but the key.
pub(crate) fn mailonce(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MAILONCE_") {
            command.env_remove(name);
        }
    }
    command.env("MAILONCE_API_KEY", API_KEY);
    command
}

/// The server's binary: the one named, else the one built beside this program.
pub(crate) fn binary(named: Option<&PathBuf>) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("mailonce"),
    };
    path.canonicalize()
        .with_context(|| format!("no server binary at {}", path.display()))
}

impl Server {
    /// Starts what `command` makes of a free address, and waits until it is ready there.
    pub(crate) fn start(
        children: &Children,
        log: &Path,
        command: impl Fn(SocketAddr) -> Result<Command>,
    ) -> Result<Self> {
        let mut tries = 0;
        loop {
            tries += 1;
            let at = free_address()?;
            let mut running = children.spawn(command(at)?, log)?;
            match running.wait_until(START, || status(at, "/readyz") == Some(200)) {
                Ok(()) => return Ok(Self { running, at }),
                Err(why) if tries == TRIES => return Err(why),
                Err(_) => pause(Duration::from_millis(100)),
            }
        }
    }

    /// Asks it to end and waits for that.
    pub(crate) fn stop(self) -> Result<ExitStatus> {
        self.running.stop()
    }

    /// Resident memory in megabytes.
    pub(crate) fn rss_mb(&self) -> Option<f64> {
        self.running.rss_mb()
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The status that a plain `GET` is answered with.
fn status(at: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut start = [0; 12];
    stream.read_exact(&mut start).ok()?;
    std::str::from_utf8(start.strip_prefix(b"HTTP/1.1 ")?)
        .ok()?
        .parse()
        .ok()
}
