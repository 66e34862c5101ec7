//! Hand-off end to end: API in, SMTP out, with accept, marker and settlement each on disk.

use crate::args::Args;
use crate::figures::only;
use crate::mails;
use crate::results::Sample;
use crate::sink::Sink;
use anyhow::{Context as _, Result, bail, ensure};
use mailonce_core::time::Time;
use mailonce_sim::load::{Caller, Histogram, Sustain, Template, Until, sustain};
use mailonce_sim::rig::children::{Children, pause};
use mailonce_sim::rig::http;
use mailonce_sim::rig::server::{Server, Setup};
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Connections to the sink, here and with Postfix.
pub(crate) const CONNECTIONS: usize = 50;
/// How long a run may take, whoever hands over.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);
/// How often it is looked whether the last answers are written down.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long the events may take that tell of it; PostgreSQL numbers them behind the commit.
const TELLING: Duration = Duration::from_secs(10);

/// One hand-off figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handoff<'a> {
    pub(crate) args: &'a Args,
    pub(crate) children: &'a Children,
    pub(crate) binary: &'a Path,
    pub(crate) work: &'a Path,
    /// The PostgreSQL to keep the ledger in, else SQLite.
    pub(crate) store: Option<&'a str>,
}

impl Handoff<'_> {
    /// Emails a second from the first request until the sink has taken the last and its answer is written down.
    pub(crate) fn measure(&self) -> Result<Sample> {
        let home = tempfile::Builder::new().prefix("handoff").tempdir_in(self.work)?;
        let mut sink = Sink::start(self.children, home.path())?;
        let env = [("MAILONCE_CONFIG", relay_to(sink.at, home.path())?.into())];
        let data = home.path().join("data");
        let setup = Setup { binary: self.binary, data: &data, store: self.store, paused: false, env: &env };
        let server = setup.start(self.children)?;
        let (count, warm_up) = (self.args.emails(), self.args.warm_up_emails());
        self.hand_over(&server, &mut sink, "warm", 0..warm_up).context("warming up")?;
        let mut events = Events::new(server.at);
        events.read_sent(warm_up).context("warming up")?;
        let took = self.hand_over(&server, &mut sink, "user", warm_up..warm_up + count)?;
        let times = events.read_sent(count)?;
        sink.took_no_more_than(warm_up + count)?;
        let rss_mb = server.rss_mb();
        server.stop()?;
        Ok(Sample { rss_mb, ..Sample::of(&times, Some(count as f64 / took.as_secs_f64())) })
    }

    /// Posts emails under new keys. `counts` says what the sink has taken before and what it must have taken after.
    fn hand_over(&self, server: &Server, sink: &mut Sink, tag: &str, counts: std::ops::Range<u64>) -> Result<Duration> {
        let until = Until::Count { count: counts.end - counts.start, patience: PATIENCE };
        let (connections, threads) = (self.args.connections, self.args.threads);
        let plan = Sustain { to: server.at, connections, threads, until };
        let caller = Arc::new(Posting { template: mails::send(tag), began: OnceLock::new() });
        only(&sustain(&plan, &caller)?, 202)?;
        let began = *caller.began.get().context("nothing was posted")?;
        sink.wait_for(counts.end, PATIENCE)?;
        Ok(settled(server.at)? - began)
    }
}

/// Sends that note when the first of them begins.
struct Posting {
    template: Template,
    began: OnceLock<Instant>,
}

impl Caller for Posting {
    fn write(&self, n: u64, out: &mut Vec<u8>) {
        self.began.get_or_init(Instant::now);
        self.template.write(n, out);
    }
}

/// Writes a configuration with the sink as the only way out.
pub(crate) fn relay_to(sink: SocketAddr, dir: &Path) -> Result<PathBuf> {
    let path = dir.join("mailonce.toml");
    let (host, port) = (sink.ip(), sink.port());
    let text = format!(
        "[[transports]]\nname = \"relay\"\nkind = \"smtp\"\nhost = \"{host}\"\nport = {port}\ntls = \"none\"\n\
         connections = {CONNECTIONS}\n"
    );
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Waits until no hand-over is under way any more, which is after its answer was committed, and says when that was.
fn settled(at: SocketAddr) -> Result<Instant> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = page(at, "/v1/transports")?;
        let ways = page["data"].as_array().context("a page without data")?;
        let under_way: u64 = ways.iter().filter_map(|way| way["in_flight"].as_u64()).sum();
        let now = Instant::now();
        if under_way == 0 {
            return Ok(now);
        }
        if now > deadline {
            bail!("{under_way} hand-overs were still under way after {} s", PATIENCE.as_secs());
        }
        pause(LOOK_EVERY);
    }
}

fn page(at: SocketAddr, path: &str) -> Result<Value> {
    let reply = http::get(at, path)?;
    ensure!(reply.status == 200, "GET {path} answered {}: {}", reply.status, reply.body);
    Ok(reply.body)
}

/// The event log, read on from where it was left.
struct Events {
    at: SocketAddr,
    after: String,
}

impl Events {
    fn new(at: SocketAddr) -> Self {
        Self { at, after: "0".to_owned() }
    }

    /// Reads on until `count` emails were told to be sent, and says how long after its accept each was. Anything else
    /// told of an email is a failure: no rate is worth a mail in doubt.
    fn read_sent(&mut self, count: u64) -> Result<Histogram> {
        let (mut accepted, mut times) = (HashMap::new(), Histogram::default());
        let deadline = Instant::now() + TELLING;
        while times.count() < count {
            let page = page(self.at, &format!("/v1/events?limit=1000&after={}", self.after))?;
            for event in page["data"].as_array().context("a page without data")? {
                note(event, &mut accepted, &mut times)?;
            }
            match page["next_cursor"].as_str() {
                Some(cursor) => cursor.clone_into(&mut self.after),
                None if Instant::now() > deadline => {
                    bail!("{} of {count} emails were told to be sent", times.count())
                }
                None => pause(Duration::from_millis(20)),
            }
        }
        ensure!(times.count() == count, "{} emails were told to be sent, {count} were accepted", times.count());
        Ok(times)
    }
}

/// Notes an accept, or the time from it to the sending.
fn note(event: &Value, accepted: &mut HashMap<String, Time>, times: &mut Histogram) -> Result<()> {
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
    use super::{Histogram, note};
    use serde_json::json;
    use std::collections::HashMap;
    use std::time::Duration;

    #[test]
    fn each_email_is_accepted_and_then_sent_once() {
        let (mut accepted, mut times) = (HashMap::new(), Histogram::default());
        let event = |kind: &str, id: &str, ms: u32| json!({ "type": kind, "about": { "id": id }, "at": format!("2026-11-15T12:00:00.{ms:03}Z") });
        note(&event("email.accepted", "a", 100), &mut accepted, &mut times).unwrap();
        assert!(note(&event("email.sent", "b", 100), &mut accepted, &mut times).is_err());
        note(&event("email.sent", "a", 140), &mut accepted, &mut times).unwrap();
        assert_eq!((times.count(), times.max()), (1, Duration::from_millis(40)));
        assert!(note(&event("email.sent", "a", 150), &mut accepted, &mut times).is_err());
        note(&event("email.accepted", "c", 100), &mut accepted, &mut times).unwrap();
        assert!(note(&event("email.unknown", "c", 150), &mut accepted, &mut times).is_err());
    }
}
