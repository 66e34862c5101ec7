//! The effect of an attack on honest clients: the latency of their sends while one address sends hostile requests.
//!
//! Everything goes over loopback. The server trusts this machine as a proxy, and `X-Forwarded-For` gives each client an
//! address of its own, so that the server's limits per address apply as they do behind a real proxy.

use crate::args::Args;
use crate::mails;
use crate::results::FigureSample;
use anyhow::{Context as _, Result, ensure};
use mailonce_sim::harness::child_processes::{ChildProcesses, sleep};
use mailonce_sim::harness::http;
use mailonce_sim::harness::rng::SeededRng;
use mailonce_sim::harness::server::{API_KEY, ServerSetup};
use mailonce_sim::load::Histogram;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Honest clients, each with its own address and connection.
const HONEST_CALLERS: usize = 20;
/// Sends per second of all of them.
const SENDS_PER_SECOND: usize = 200;
/// Connections of the attacker.
const ATTACKER_CONNECTIONS: usize = 50;
/// Hostile requests per second of all of them.
const ATTACKS_PER_SECOND: usize = 1_000;
/// The share of hostile requests that must really be sent for the attack to count.
const MIN_ATTACK_SHARE: f64 = 0.9;
/// How long the attacker waits for a reply before it continues.
const ATTACKER_TIMEOUT: Duration = Duration::from_millis(200);

/// One figure: honest sends, with an attack beside them or without.
#[derive(Clone, Copy)]
pub(crate) struct AttackBench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) children: &'a ChildProcesses,
    pub(crate) binary: &'a Path,
    pub(crate) work: &'a Path,
    pub(crate) attacked: bool,
}

impl AttackBench<'_> {
    pub(crate) fn measure(&self) -> Result<FigureSample> {
        let home = tempfile::Builder::new().prefix("attack").tempdir_in(self.work)?;
        let env = [("MAILONCE_HTTP_TRUSTED_PROXIES", "127.0.0.0/8".into())];
        let setup = ServerSetup { binary: self.binary, data: home.path(), store: None, paused: true, env: &env };
        let server = setup.start(self.children)?;
        let began = Instant::now();
        let end = began + self.args.attack_time();
        let (to, sent) = (server.at, Arc::new(AtomicU64::new(0)));
        let callers: Vec<_> = (0..HONEST_CALLERS).map(|n| spawn_caller(n, to, began, end)).collect();
        let attackers = if self.attacked { ATTACKER_CONNECTIONS } else { 0 };
        let attackers: Vec<_> = (0..attackers).map(|n| spawn_attacker(n, to, began, end, &sent)).collect();
        let mut all = Histogram::default();
        for caller in callers {
            for took in caller.join().map_err(|_panic| anyhow::anyhow!("a caller ended"))?? {
                all.record(took);
            }
        }
        for attacker in attackers {
            attacker.join().map_err(|_panic| anyhow::anyhow!("an attacker ended"))?;
        }
        let took = began.elapsed().as_secs_f64();
        let rate = sent.load(Ordering::Relaxed) as f64 / took;
        ensure!(
            !self.attacked || rate >= MIN_ATTACK_SHARE * ATTACKS_PER_SECOND as f64,
            "only {rate:.0} hostile requests a second were sent"
        );
        let rss_mb = server.rss_mb();
        server.terminate()?;
        Ok(FigureSample { rss_mb, ..FigureSample::from_latency(&all, Some(all.count() as f64 / took)) })
    }
}

/// The due times of clients that share a rate: evenly spread, and not delayed by late replies.
fn due_times(n: usize, of: usize, a_second: usize, began: Instant, end: Instant) -> impl Iterator<Item = Instant> {
    let each = Duration::from_secs_f64(of as f64 / a_second as f64);
    let first = began + each.mul_f64(n as f64 / of as f64);
    std::iter::successors(Some(first), move |due| Some(*due + each)).take_while(move |due| *due < end)
}

/// Sends at its rate. Returns the latency of each send from its due time.
fn spawn_caller(n: usize, to: SocketAddr, began: Instant, end: Instant) -> JoinHandle<Result<Vec<Duration>>> {
    std::thread::spawn(move || {
        let template = mails::send_from(&format!("honest-{n}"), &format!("192.0.2.{n}"));
        let mut stream = http::connect(to)?;
        let (mut times, mut out) = (Vec::new(), Vec::new());
        for (number, due) in (0..).zip(due_times(n, HONEST_CALLERS, SENDS_PER_SECOND, began, end)) {
            sleep(due.saturating_duration_since(Instant::now()));
            out.clear();
            template.write_numbered(number, &mut out);
            let status =
                http::exchange_on(&mut stream, &out).with_context(|| format!("send {number} of caller {n}"))?.status;
            ensure!(status == 202, "send {number} of caller {n} was answered {status}");
            times.push(due.elapsed());
        }
        Ok(times)
    })
}

/// Sends hostile requests at its rate and ignores the replies.
fn spawn_attacker(n: usize, to: SocketAddr, began: Instant, end: Instant, sent: &Arc<AtomicU64>) -> JoinHandle<()> {
    let sent = Arc::clone(sent);
    std::thread::spawn(move || {
        let mut stream = None;
        let mut rng = SeededRng::derive(n as u64, &[]);
        for due in due_times(n, ATTACKER_CONNECTIONS, ATTACKS_PER_SECOND, began, end) {
            sleep(due.saturating_duration_since(Instant::now()));
            let request = hostile_request(&mut rng);
            // Disconnects and slow replies are expected.
            if send_hostile(&mut stream, to, &request).is_err() {
                stream = None;
            }
            sent.fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn send_hostile(stream: &mut Option<TcpStream>, to: SocketAddr, request: &[u8]) -> std::io::Result<()> {
    let mut open = match stream.take() {
        Some(open) => open,
        None => TcpStream::connect(to)?,
    };
    open.set_write_timeout(Some(ATTACKER_TIMEOUT))?;
    open.set_read_timeout(Some(ATTACKER_TIMEOUT))?;
    open.write_all(request)?;
    let mut answer = [0; 4096];
    // The whole of a short reply; the rest of a long one is read as the next.
    if open.read(&mut answer)? > 0 {
        *stream = Some(open);
    }
    Ok(())
}

/// A request that is expensive for a careless server: long names, deep and wide JSON, wrong keys, wrong hosts, invalid
/// HTTP.
fn hostile_request(rng: &mut SeededRng) -> Vec<u8> {
    let size = rng.between(1_000, 64_000) as usize;
    let deep = |open: &str| format!("{{\"text\":{}", open.repeat(size / open.len()));
    let members = |pattern: &str| {
        let mut all = String::new();
        for n in 0..size / 12 {
            // Writing to a `String` cannot fail.
            let _infallible = write!(all, "{}\"{pattern}{n}\":\"\"", if n == 0 { "" } else { "," });
        }
        all
    };
    match rng.below(10) {
        0 => get(&format!("/{}", "a".repeat(size))),
        1 => get(&format!("/v1/emails?limit={}", "9".repeat(size.min(8_000)))),
        2 => post("/v1/emails", "mo_guess", "{}"),
        3 => post("/v1/emails", API_KEY, &deep("[")),
        4 => post("/v1/emails", API_KEY, &deep("{\"a\":")),
        5 => post("/v1/emails", API_KEY, &format!("{{\"headers\":{{{}}}}}", members("X-"))),
        6 => post("/v1/emails", API_KEY, &format!("{{{}}}", members("field"))),
        7 => post("/v1/emails", API_KEY, &format!("{{\"{}\":1}}", "n".repeat(size))),
        8 => post("/v1/emails/batch", API_KEY, &format!("[{}0]", "0,".repeat(size / 2))),
        _ => (0..size).map(|_| rng.next() as u8).collect(),
    }
}

/// The attacker's one address.
const ATTACKER_ADDRESS: &str = "198.51.100.7";

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: {ATTACKER_ADDRESS}\r\n\r\n").into_bytes()
}

fn post(path: &str, key: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: {ATTACKER_ADDRESS}\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
