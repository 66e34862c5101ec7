//! The sink of the benchmarks: Postfix's `smtp-sink`, which counts mails and discards them.

use anyhow::{Context as _, Result, bail, ensure};
use mailonce_sim::harness::child_processes::{ChildProcess, ChildProcesses, sleep};
use mailonce_sim::harness::server::free_address;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a Postfix program may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a start is tried, since a port may be taken between choosing and binding it.
const TRIES: usize = 3;
/// The polling interval: a small part of the shortest run.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The listen backlog.
const LISTEN_BACKLOG: &str = "1024";
/// Enough of the end of the counter file to hold the last value.
const COUNTER_TAIL_BYTES: u64 = 256;

/// A running `smtp-sink`.
#[derive(Debug)]
pub(crate) struct PostfixSink {
    running: ChildProcess,
    /// Its address.
    pub(crate) at: SocketAddr,
    counters: PathBuf,
}

impl PostfixSink {
    /// Starts one that writes its counter to `work`.
    pub(crate) fn start(children: &ChildProcesses, work: &Path) -> Result<Self> {
        let counters = work.join("smtp-sink.log");
        start_on_free_port(|at| {
            let mut command = postfix_command("smtp-sink");
            command.arg("-c");
            if rustix::process::geteuid().is_root() {
                // It refuses to run as root.
                command.args(["-u", "nobody"]);
            }
            command.arg(at.to_string()).arg(LISTEN_BACKLOG);
            let mut running = children.spawn(command, &counters)?;
            running.wait_until_ready(START_TIMEOUT, || TcpStream::connect(at).is_ok())?;
            Ok(Self { running, at, counters: counters.clone() })
        })
    }

    /// The number of accepted mails.
    pub(crate) fn count(&self) -> Result<u64> {
        let mut file = File::open(&self.counters).context("the counters of smtp-sink")?;
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(COUNTER_TAIL_BYTES)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok(last_count(&tail))
    }

    /// Waits until it has accepted `count` mails in all, and returns the time.
    pub(crate) fn wait_for(&mut self, count: u64, timeout: Duration) -> Result<Instant> {
        let deadline = Instant::now() + timeout;
        loop {
            let taken = self.count()?;
            let now = Instant::now();
            if taken >= count {
                return Ok(now);
            }
            if now > deadline {
                bail!("the sink took {taken} of {count} mails within {} s", timeout.as_secs());
            }
            if let Some(status) = self.running.wait_for_exit(Duration::ZERO)? {
                bail!("smtp-sink ended ({status}) after {taken} mails");
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Fails if it accepted more than `count` mails: a duplicate invalidates every rate.
    pub(crate) fn ensure_at_most(&self, count: u64) -> Result<()> {
        let taken = self.count()?;
        ensure!(taken <= count, "the sink took {taken} mails where {count} were sent");
        Ok(())
    }
}

/// The last complete value of the counter; each ends with a carriage return.
fn last_count(tail: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(tail);
    let whole = text.rfind('\r').map_or("", |end| &text[..end]);
    let digits = whole.rsplit_once("mesg=").map_or("", |(_, count)| count);
    digits.chars().take_while(char::is_ascii_digit).fold(0, |n, digit| n * 10 + u64::from(digit as u32 - '0' as u32))
}

/// A Postfix program. They are not on a plain user's path.
pub(crate) fn postfix_command(name: &str) -> Command {
    let usual = Path::new("/usr/sbin").join(name);
    if usual.exists() { Command::new(usual) } else { Command::new(name) }
}

/// Starts a server on a free port. It retries only if another process took the port.
pub(crate) fn start_on_free_port<T>(start: impl Fn(SocketAddr) -> Result<T>) -> Result<T> {
    let mut tries = 0;
    loop {
        tries += 1;
        match start(free_address()?) {
            Err(why) if tries < TRIES && is_port_taken(&why) => sleep(Duration::from_millis(100)),
            outcome => return outcome,
        }
    }
}

fn is_port_taken(why: &anyhow::Error) -> bool {
    format!("{why:#}").to_ascii_lowercase().contains("address already in use")
}

/// Whether an SMTP server greets there.
pub(crate) fn has_smtp_greeting(at: SocketAddr) -> bool {
    let greeting = || -> io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&at, START_TIMEOUT)?;
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        let mut code = [0; 3];
        stream.read_exact(&mut code)?;
        Ok(&code == b"220")
    };
    greeting().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::{is_port_taken, last_count};

    #[test]
    fn the_last_complete_counter_is_read() {
        assert_eq!(last_count(b""), 0);
        assert_eq!(last_count(b"sess=0 quit=0 mesg=1\rsess=1 quit=0 mesg=42\r"), 42);
        assert_eq!(last_count(b"sess=0 quit=0 mesg=41\rsess=1 quit=0 mesg=4"), 41);
        assert_eq!(last_count(b"=7 quit=0 mesg=1999\rsess=7 qu"), 1999);
        assert_eq!(last_count(b"sess=1 quit=1 mesg=12 max=3\r"), 12);
    }

    #[test]
    fn only_a_taken_port_is_tried_again() {
        assert!(is_port_taken(&anyhow::anyhow!("fatal: bind 127.0.0.1 port 25: Address already in use")));
        assert!(!is_port_taken(&anyhow::anyhow!("fatal: -u option is required if running as root")));
    }
}
