//! The figures of a running mailonce: echo, accept, replay, batch and storm.

use crate::args::Args;
use crate::mails;
use crate::results::Sample;
use anyhow::{Context as _, Result, bail, ensure};
use mailonce_sim::load::{Answer, Burst, Caller, Sustain, Tally, Template, Until, burst, sustain};
use mailonce_sim::rig::children::pause;
use mailonce_sim::rig::server::Server;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Keys that are repeated over and over.
const SETTLED: u64 = 1000;
/// How long the hand-off of those may take.
const SETTLING: Duration = Duration::from_mins(1);
/// Emails of one batch request.
const BATCH: usize = 100;
/// Batches in flight; more would only queue.
const BATCH_CONNECTIONS: usize = 32;

/// A steady load of `template` that must be answered with `status` alone.
pub(crate) fn steady(args: &Args, to: SocketAddr, template: Template, status: u16) -> Result<Sample> {
    measure(args, to, args.connections, move |n: u64, out: &mut Vec<u8>| template.write(n, out), status)
}

fn measure(args: &Args, to: SocketAddr, connections: usize, caller: impl Caller, status: u16) -> Result<Sample> {
    let until = Until::Window { warm_up: args.warm_up(), window: args.window() };
    let plan = Sustain { to, connections, threads: args.threads, until };
    let tally = sustain(&plan, &Arc::new(caller))?;
    only(&tally, status)?;
    Ok(Sample::of(&tally.latency, Some(tally.rate())))
}

/// Fails when any answer had another status.
pub(crate) fn only(tally: &Tally, status: u16) -> Result<()> {
    let right = tally.broken == 0 && tally.total() > 0 && tally.count(status) == tally.total();
    ensure!(right, "expected {status} alone, got {tally}");
    Ok(())
}

/// The bare JSON echo of the same server.
pub(crate) fn echo(args: &Args, server: &Server) -> Result<Sample> {
    steady(args, server.at, mails::echo(), 200)
}

/// First sends, each under a key of its own.
pub(crate) fn accept(args: &Args, server: &Server) -> Result<Sample> {
    accept_as("user", args, server)
}

/// First sends whose keys begin with `tag`, for a store that has seen others before.
pub(crate) fn accept_as(tag: &str, args: &Args, server: &Server) -> Result<Sample> {
    let sample = steady(args, server.at, mails::send(tag), 202)?;
    Ok(Sample { rss_mb: server.rss_mb(), ..sample })
}

/// Batches of a hundred, counted in emails.
pub(crate) fn batch(args: &Args, server: &Server) -> Result<Sample> {
    let template = mails::batch(BATCH);
    let caller = move |n: u64, out: &mut Vec<u8>| template.write(n, out);
    let sample = measure(args, server.at, BATCH_CONNECTIONS, caller, 202)?;
    Ok(Sample { rate: sample.rate.map(|rate| rate * BATCH as f64), ..sample })
}

/// Repeats of keys whose emails are settled.
pub(crate) fn replay(args: &Args, server: &Server) -> Result<Sample> {
    let template = mails::send("settled");
    settle(args, server.at, &template)?;
    let caller = move |n: u64, out: &mut Vec<u8>| template.write(n % SETTLED, out);
    measure(args, server.at, args.connections, caller, 200)
}

/// Sends the first thousand keys and repeats them until each answer shows an email that was handed off.
fn settle(args: &Args, to: SocketAddr, template: &Template) -> Result<()> {
    let until = Until::Count { count: SETTLED, patience: SETTLING };
    let plan = Sustain { to, connections: args.connections, threads: 1, until };
    let caller = Arc::new(Settling { template: template.clone(), sent: AtomicU64::new(0) });
    only(&sustain(&plan, &caller)?, 202).context("the first sends")?;
    let deadline = Instant::now() + SETTLING;
    loop {
        caller.sent.store(0, Ordering::Relaxed);
        only(&sustain(&plan, &caller)?, 200).context("the repeats")?;
        let sent = caller.sent.load(Ordering::Relaxed);
        if sent == SETTLED {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("only {sent} of {SETTLED} emails were handed off within {} s", SETTLING.as_secs());
        }
        pause(Duration::from_millis(100));
    }
}

/// Counts the answers whose email is `sent` or beyond.
struct Settling {
    template: Template,
    sent: AtomicU64,
}

impl Caller for Settling {
    fn write(&self, n: u64, out: &mut Vec<u8>) {
        self.template.write(n, out);
    }

    fn read(&self, _n: u64, answer: &Answer<'_>) {
        if matches!(string_field(answer.body, b"\"state\":\""), Some(b"sent" | b"delivered")) {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The string after the first occurrence of `mark`, without parsing what is around it.
fn string_field<'a>(body: &'a [u8], mark: &[u8]) -> Option<&'a [u8]> {
    let start = body.windows(mark.len()).position(|window| window == mark)? + mark.len();
    let length = body[start..].iter().position(|byte| *byte == b'"')?;
    Some(&body[start..start + length])
}

/// Simultaneous sends of one key: one first answer, the rest replays, one id.
pub(crate) fn storm(args: &Args, server: &Server) -> Result<Sample> {
    let caller = Arc::new(Storm { template: mails::storm(), ids: Mutex::default() });
    let patience = Duration::from_mins(1);
    let plan = Burst { to: server.at, connections: args.storm, threads: args.threads, patience };
    let tally = burst(&plan, &caller)?;
    let rest = args.storm as u64 - 1;
    let right = tally.broken == 0 && tally.count(202) == 1 && tally.count(200) == rest;
    ensure!(right, "expected 1×202 {rest}×200, got {tally}");
    let mut ids = std::mem::take(&mut *caller.ids.lock().unwrap_or_else(PoisonError::into_inner));
    let answers = ids.len();
    ids.sort_unstable();
    ids.dedup();
    ensure!(answers == args.storm && ids.len() == 1, "{answers} answers carried {} different ids", ids.len());
    Ok(Sample::of(&tally.latency, Some(tally.rate())))
}

/// Keeps the ids of all answers.
struct Storm {
    template: Template,
    ids: Mutex<Vec<Vec<u8>>>,
}

impl Caller for Storm {
    fn write(&self, n: u64, out: &mut Vec<u8>) {
        self.template.write(n, out);
    }

    fn read(&self, _n: u64, answer: &Answer<'_>) {
        if let Some(id) = string_field(answer.body, b"\"id\":\"") {
            self.ids.lock().unwrap_or_else(PoisonError::into_inner).push(id.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::string_field;

    #[test]
    fn fields_are_found_without_parsing() {
        let body = br#"{"id":"0192","state":"sent","next":"Nothing to do."}"#;
        assert_eq!(string_field(body, b"\"state\":\""), Some(&b"sent"[..]));
        assert_eq!(string_field(body, b"\"id\":\""), Some(&b"0192"[..]));
        assert_eq!(string_field(body, b"\"key\":\""), None);
        assert_eq!(string_field(br#"{"id":"01"#, b"\"id\":\""), None);
    }
}
