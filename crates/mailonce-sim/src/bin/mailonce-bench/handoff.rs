//! Hand-off end to end: API in, SMTP out, with durable accept, marker and outcome.

use crate::args::Args;
use crate::figures::ensure_only_status;
use crate::mails;
use crate::results::FigureSample;
use crate::sink::PostfixSink;
use anyhow::{Context as _, Result, bail, ensure};
use mailonce_core::time::Time;
use mailonce_sim::harness::child_processes::{ChildProcesses, sleep};
use mailonce_sim::harness::http;
use mailonce_sim::harness::server::{ServerProcess, ServerSetup};
use mailonce_sim::load::{Histogram, LoadDuration, RequestGenerator, RequestTemplate, SteadyLoad, run_steady};
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Connections to the sink, here and with Postfix.
pub(crate) const CONNECTIONS: usize = 50;
/// The timeout of a run.
pub(crate) const RUN_TIMEOUT: Duration = Duration::from_mins(5);
/// The polling interval for the last outcomes.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How long the events may lag; PostgreSQL numbers them after the commit.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(10);

/// One hand-off figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandoffBench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) children: &'a ChildProcesses,
    pub(crate) binary: &'a Path,
    pub(crate) work: &'a Path,
    /// URL of the PostgreSQL database that keeps the ledger; `None` for SQLite.
    pub(crate) store: Option<&'a str>,
}

impl HandoffBench<'_> {
    /// Emails per second from the first request until the sink has accepted the last and its outcome is recorded.
    pub(crate) fn measure(&self) -> Result<FigureSample> {
        let home = tempfile::Builder::new().prefix("handoff").tempdir_in(self.work)?;
        let mut sink = PostfixSink::start(self.children, home.path())?;
        let env = [("MAILONCE_CONFIG", write_relay_config(sink.at, home.path())?.into())];
        let data = home.path().join("data");
        let setup = ServerSetup { binary: self.binary, data: &data, store: self.store, paused: false, env: &env };
        let server = setup.start(self.children)?;
        let (count, warm_up) = (self.args.emails(), self.args.warm_up_emails());
        self.hand_over(&server, &mut sink, "warm", 0..warm_up).context("warming up")?;
        let mut events = EventReader::new(server.at);
        events.read_sent(warm_up).context("warming up")?;
        let took = self.hand_over(&server, &mut sink, "user", warm_up..warm_up + count)?;
        let times = events.read_sent(count)?;
        sink.ensure_at_most(warm_up + count)?;
        let rss_mb = server.rss_mb();
        server.terminate()?;
        Ok(FigureSample { rss_mb, ..FigureSample::from_latency(&times, Some(count as f64 / took.as_secs_f64())) })
    }

    /// Posts emails under new keys. `counts` is the sink's count before and after.
    fn hand_over(
        &self,
        server: &ServerProcess,
        sink: &mut PostfixSink,
        tag: &str,
        counts: std::ops::Range<u64>,
    ) -> Result<Duration> {
        let until = LoadDuration::Count { count: counts.end - counts.start, timeout: RUN_TIMEOUT };
        let (connections, threads) = (self.args.connections, self.args.threads);
        let plan = SteadyLoad { to: server.at, connections, threads, duration: until };
        let caller = Arc::new(SendsWithStartTime { template: mails::send(tag), began: OnceLock::new() });
        ensure_only_status(&run_steady(&plan, &caller)?, 202)?;
        let began = *caller.began.get().context("nothing was posted")?;
        sink.wait_for(counts.end, RUN_TIMEOUT)?;
        Ok(wait_until_settled(server.at)? - began)
    }
}

/// Requests that record the start of the first.
struct SendsWithStartTime {
    template: RequestTemplate,
    began: OnceLock<Instant>,
}

impl RequestGenerator for SendsWithStartTime {
    fn write_request(&self, n: u64, out: &mut Vec<u8>) {
        self.began.get_or_init(Instant::now);
        self.template.write_numbered(n, out);
    }
}

/// Writes a configuration with the sink as the only transport.
pub(crate) fn write_relay_config(sink: SocketAddr, dir: &Path) -> Result<PathBuf> {
    let path = dir.join("mailonce.toml");
    let (host, port) = (sink.ip(), sink.port());
    let text = format!(
        "[[transports]]\nname = \"relay\"\nkind = \"smtp\"\nhost = \"{host}\"\nport = {port}\ntls = \"none\"\n\
         max_connections = {CONNECTIONS}\n"
    );
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Waits until no attempt is running, which is after its outcome is committed, and returns the time.
fn wait_until_settled(at: SocketAddr) -> Result<Instant> {
    let deadline = Instant::now() + RUN_TIMEOUT;
    loop {
        let page = get_page(at, "/v1/transports")?;
        let transports = page["data"].as_array().context("a page without data")?;
        let in_flight: u64 = transports.iter().filter_map(|transport| transport["in_flight"].as_u64()).sum();
        let now = Instant::now();
        if in_flight == 0 {
            return Ok(now);
        }
        if now > deadline {
            bail!("{in_flight} hand-overs were still under way after {} s", RUN_TIMEOUT.as_secs());
        }
        sleep(POLL_INTERVAL);
    }
}

fn get_page(at: SocketAddr, path: &str) -> Result<Value> {
    let reply = http::get(at, path)?;
    ensure!(reply.status == 200, "GET {path} answered {}: {}", reply.status, reply.body);
    Ok(reply.body)
}

/// The event log, with a cursor.
struct EventReader {
    at: SocketAddr,
    after: String,
}

impl EventReader {
    fn new(at: SocketAddr) -> Self {
        Self { at, after: "0".to_owned() }
    }

    /// Reads until `count` emails are sent, and returns the time from accept to sent of each. Any other event fails the
    /// run: an unknown outcome invalidates every rate.
    fn read_sent(&mut self, count: u64) -> Result<Histogram> {
        let (mut accepted, mut times) = (HashMap::new(), Histogram::default());
        let deadline = Instant::now() + EVENTS_TIMEOUT;
        while times.count() < count {
            let page = get_page(self.at, &format!("/v1/events?limit=1000&after={}", self.after))?;
            for event in page["data"].as_array().context("a page without data")? {
                record_event(event, &mut accepted, &mut times)?;
            }
            match page["next_cursor"].as_str() {
                Some(cursor) => cursor.clone_into(&mut self.after),
                None if Instant::now() > deadline => {
                    bail!("{} of {count} emails were told to be sent", times.count())
                }
                None => sleep(Duration::from_millis(20)),
            }
        }
        ensure!(times.count() == count, "{} emails were told to be sent, {count} were accepted", times.count());
        Ok(times)
    }
}

/// Records an accept, or the time from it to sent.
fn record_event(event: &Value, accepted: &mut HashMap<String, Time>, times: &mut Histogram) -> Result<()> {
    let id = event["about"]["id"].as_str().context("an event about nothing")?;
    let at = event["at"].as_str().and_then(Time::parse).context("an event without a time")?;
    match event["type"].as_str() {
        Some("email.accepted") => {
            accepted.insert(id.to_owned(), at);
        }
        Some("email.sent") => {
            let from = accepted.remove(id).with_context(|| format!("{id} was sent twice, or never accepted"))?;
            times.record(Duration::from_millis(at.since(from).max(0) as u64));
        }
        other => bail!("the server told {} of {id}", other.unwrap_or("nothing")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Histogram, record_event};
    use serde_json::json;
    use std::collections::HashMap;
    use std::time::Duration;

    #[test]
    fn each_email_is_accepted_and_then_sent_once() {
        let (mut accepted, mut times) = (HashMap::new(), Histogram::default());
        let event = |kind: &str, id: &str, ms: u32| json!({ "type": kind, "about": { "id": id }, "at": format!("2026-11-15T12:00:00.{ms:03}Z") });
        record_event(&event("email.accepted", "a", 100), &mut accepted, &mut times).unwrap();
        assert!(record_event(&event("email.sent", "b", 100), &mut accepted, &mut times).is_err());
        record_event(&event("email.sent", "a", 140), &mut accepted, &mut times).unwrap();
        assert_eq!((times.count(), times.max()), (1, Duration::from_millis(40)));
        assert!(record_event(&event("email.sent", "a", 150), &mut accepted, &mut times).is_err());
        record_event(&event("email.accepted", "c", 100), &mut accepted, &mut times).unwrap();
        assert!(record_event(&event("email.unknown", "c", 150), &mut accepted, &mut times).is_err());
    }
}
