//! Postfix as a relay: what hand-off is compared with. An instance of its own, apart from the system's.

use crate::args::Args;
use crate::handoff::{CONNECTIONS, RUN_TIMEOUT};
use crate::results::FigureSample;
use crate::sink::{PostfixSink, has_smtp_greeting, postfix_command, start_on_free_port};
use anyhow::{Context as _, Result, ensure};
use mailonce_sim::harness::child_processes::{ChildProcess, ChildProcesses};
use mailonce_sim::harness::postgres::run_for_output;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long it may take until it greets.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Sessions of `smtp-source`, which keeps each open for all its mails.
const SESSIONS: &str = "50";
/// Bytes of a mail's body.
pub(crate) const BODY_BYTES: &str = "1200";

/// Mails a second through Postfix, from the first that it is given until the sink has taken the last.
pub(crate) fn measure(args: &Args, children: &ChildProcesses, work: &Path) -> Result<FigureSample> {
    let home = tempfile::Builder::new().prefix("postfix").tempdir_in(work)?;
    let mut sink = PostfixSink::start(children, home.path())?;
    let postfix = PostfixInstance::start(children, home.path(), sink.at, "")?;
    let (count, warm_up) = (args.emails(), args.warm_up_emails());
    postfix.send_mails(children, warm_up)?;
    sink.wait_for(warm_up, RUN_TIMEOUT).with_context(|| postfix.log_tail())?;
    let began = Instant::now();
    postfix.send_mails(children, count)?;
    let ended = sink.wait_for(warm_up + count, RUN_TIMEOUT).with_context(|| postfix.log_tail())?;
    sink.ensure_at_most(warm_up + count)?;
    postfix.running.terminate()?;
    Ok(FigureSample { rate: Some(count as f64 / (ended - began).as_secs_f64()), ..FigureSample::default() })
}

/// Mails a second that Postfix accepts and keeps, without handing them on.
pub(crate) fn measure_accept(args: &Args, children: &ChildProcesses, work: &Path) -> Result<FigureSample> {
    let home = tempfile::Builder::new().prefix("postfix").tempdir_in(work)?;
    let sink = PostfixSink::start(children, home.path())?;
    let postfix = PostfixInstance::start(children, home.path(), sink.at, HOLD_CONFIG)?;
    let (count, warm_up) = (args.emails(), args.warm_up_emails());
    postfix.send_mails(children, warm_up)?;
    let began = Instant::now();
    postfix.send_mails(children, count)?;
    let took = began.elapsed();
    sink.ensure_at_most(0)?;
    postfix.running.terminate()?;
    Ok(FigureSample { rate: Some(count as f64 / took.as_secs_f64()), ..FigureSample::default() })
}

/// Keeps every mail in the queue.
const HOLD_CONFIG: &str = "smtpd_client_restrictions = check_client_access static:hold\n";

/// Gives `count` mails to a server and waits until it has accepted them.
pub(crate) fn send_mails(children: &ChildProcesses, home: &Path, at: SocketAddr, to: &str, count: u64) -> Result<()> {
    let mut command = postfix_command("smtp-source");
    command.args(["-s", SESSIONS, "-l", BODY_BYTES, "-m", &count.to_string(), "-d"]);
    command.args(["-f", "agent@example.com", "-t", to]).arg(at.to_string());
    let mut source = children.spawn(command, &home.join("smtp-source.log"))?;
    let status = source.wait_for_exit(RUN_TIMEOUT)?.context("smtp-source did not end")?;
    ensure!(status.success(), "smtp-source failed ({status}): {}", source.read_log().trim());
    Ok(())
}

/// Whether this process can start Postfix. Only root can, because each Postfix program runs as another user.
pub(crate) fn can_start() -> bool {
    rustix::process::geteuid().is_root()
}

/// A Postfix that runs.
struct PostfixInstance {
    running: ChildProcess,
    at: SocketAddr,
    home: PathBuf,
}

impl PostfixInstance {
    fn start(children: &ChildProcesses, home: &Path, relay: SocketAddr, more: &str) -> Result<Self> {
        let (etc, data) = (home.join("etc"), home.join("data"));
        for dir in [&etc, &home.join("queue"), &data] {
            fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        // Its programs reach their files as a user of their own, which also owns the data.
        fs::set_permissions(home, Permissions::from_mode(0o711))?;
        let mut owner = Command::new("chown");
        owner.arg("postfix").arg(&data);
        run_for_output(owner)?;
        let daemons = daemon_directory()?;
        start_on_free_port(|at| {
            fs::write(etc.join("main.cf"), main_cf(home, relay) + more)?;
            fs::write(etc.join("master.cf"), master_cf(at))?;
            let mut check = postfix_command("postfix");
            check.arg("-c").arg(&etc).arg("check");
            run_for_output(check)?;
            // The master itself rather than `postfix start`, so that it is our child and ends when we do: its own
            // children end when it is gone, and SIGTERM to it reaches them all.
            let mut command = Command::new(daemons.join("master"));
            command.arg("-s").arg("-c").arg(&etc);
            let mut running = children.spawn(command, &home.join("master.log"))?;
            let ready = running.wait_until_ready(START_TIMEOUT, || has_smtp_greeting(at));
            let postfix = Self { running, at, home: home.to_owned() };
            ready.with_context(|| postfix.log_tail())?;
            Ok(postfix)
        })
    }

    /// Gives it `count` mails and waits until it has accepted them.
    fn send_mails(&self, children: &ChildProcesses, count: u64) -> Result<()> {
        send_mails(children, &self.home, self.at, "user@example.org", count).with_context(|| self.log_tail())
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.home.join("maillog")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("Postfix logged at last:\n    {}", lines[lines.len().saturating_sub(5)..].join("\n    "))
    }
}

fn daemon_directory() -> Result<PathBuf> {
    let mut command = postfix_command("postconf");
    command.args(["-h", "daemon_directory"]);
    Ok(PathBuf::from(run_for_output(command)?.trim()))
}

/// As Postfix comes, but kept to this directory and to loopback: no look-ups, no TLS, no local delivery. Two settings are for
/// throughput: as many connections to the sink as mailonce has, and no pause of the intake in favour of the queue.
fn main_cf(home: &Path, relay: SocketAddr) -> String {
    let home = home.display();
    let (host, port) = (relay.ip(), relay.port());
    format!(
        "compatibility_level = 3.6
queue_directory = {home}/queue
data_directory = {home}/data
maillog_file = {home}/maillog
maillog_file_prefixes = {home}
myhostname = bench.invalid
mydestination =
alias_maps =
alias_database =
local_recipient_maps =
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_peername_lookup = no
smtpd_tls_security_level = none
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
relayhost = [{host}]:{port}
smtp_tls_security_level = none
smtp_dns_support_level = disabled
smtp_destination_concurrency_limit = {CONNECTIONS}
in_flow_delay = 0
"
    )
}

/// The services that relaying needs, each with the process limit that it comes with, and none in a root of its own.
fn master_cf(at: SocketAddr) -> String {
    format!(
        "{at} inet n - n - - smtpd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"
    )
}
