//! The figures of a running mailonce: echo, accept, replay, batch, storm and claims.

use crate::args::Args;
use crate::mails;
use crate::results::FigureSample;
use anyhow::{Context as _, Result, bail, ensure};
use mailonce_sim::harness::child_processes::sleep;
use mailonce_sim::harness::server::ServerProcess;
use mailonce_sim::load::{
    BurstPlan, LoadDuration, LoadResponse, LoadStats, RequestGenerator, RequestTemplate, SteadyLoad, run_burst,
    run_steady,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Keys that are repeated over and over.
const REPLAYED_KEYS: u64 = 1000;
/// How long the hand-off of those may take.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(1);
/// Emails of one batch request.
const BATCH_SIZE: usize = 100;
/// Batches in flight; more would only queue.
const BATCH_CONNECTIONS: usize = 32;

/// A steady load of `template` that must be answered with `status` alone.
pub(crate) fn measure_steady(
    args: &Args,
    to: SocketAddr,
    template: RequestTemplate,
    status: u16,
) -> Result<FigureSample> {
    measure(args, to, args.connections, move |n: u64, out: &mut Vec<u8>| template.write_numbered(n, out), status)
}

fn measure(
    args: &Args,
    to: SocketAddr,
    connections: usize,
    caller: impl RequestGenerator,
    status: u16,
) -> Result<FigureSample> {
    let until = LoadDuration::Window { warm_up: args.warm_up(), window: args.measured_time() };
    let plan = SteadyLoad { to, connections, threads: args.threads, duration: until };
    let tally = run_steady(&plan, &Arc::new(caller))?;
    ensure_only_status(&tally, status)?;
    Ok(FigureSample::from_latency(&tally.latency, Some(tally.responses_per_second())))
}

/// Fails when any answer had another status.
pub(crate) fn ensure_only_status(tally: &LoadStats, status: u16) -> Result<()> {
    let right = tally.broken == 0 && tally.total() > 0 && tally.status_count(status) == tally.total();
    ensure!(right, "expected {status} alone, got {tally}");
    Ok(())
}

/// The bare JSON echo of the same server.
pub(crate) fn echo(args: &Args, server: &ServerProcess) -> Result<FigureSample> {
    measure_steady(args, server.at, mails::echo(), 200)
}

/// First sends, each under a key of its own.
pub(crate) fn accept(args: &Args, server: &ServerProcess) -> Result<FigureSample> {
    accept_as("user", args, server)
}

/// First sends whose keys begin with `tag`, for a store that has seen others before.
pub(crate) fn accept_as(tag: &str, args: &Args, server: &ServerProcess) -> Result<FigureSample> {
    let sample = measure_steady(args, server.at, mails::send(tag), 202)?;
    Ok(FigureSample { rss_mb: server.rss_mb(), ..sample })
}

/// Batches of a hundred, counted in emails.
pub(crate) fn batch(args: &Args, server: &ServerProcess) -> Result<FigureSample> {
    let template = mails::batch(BATCH_SIZE);
    let caller = move |n: u64, out: &mut Vec<u8>| template.write_numbered(n, out);
    let sample = measure(args, server.at, BATCH_CONNECTIONS, caller, 202)?;
    Ok(FigureSample { rate: sample.rate.map(|rate| rate * BATCH_SIZE as f64), ..sample })
}

/// Claims and their completions, counted in pairs.
pub(crate) fn claim(args: &Args, server: &ServerProcess) -> Result<FigureSample> {
    let until = LoadDuration::Window { warm_up: args.warm_up(), window: args.measured_time() };
    let plan = SteadyLoad { to: server.at, connections: args.connections, threads: args.threads, duration: until };
    let caller = Arc::new(ClaimRequests { template: mails::claim(), won: Mutex::default() });
    let tally = run_steady(&plan, &caller)?;
    let (claimed, completed) = (tally.status_count(201), tally.status_count(200));
    let right = tally.broken == 0 && completed > 0 && claimed + completed == tally.total();
    ensure!(right, "expected 201 and 200 alone, got {tally}");
    Ok(FigureSample::from_latency(&tally.latency, Some(tally.responses_per_second() / 2.0)))
}

/// Completes each claim that was won, and claims another one when none waits for that.
struct ClaimRequests {
    template: RequestTemplate,
    /// Ids and tokens.
    won: Mutex<Vec<(String, String)>>,
}

impl RequestGenerator for ClaimRequests {
    fn write_request(&self, n: u64, out: &mut Vec<u8>) {
        let won = self.won.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match won {
            Some((id, token)) => mails::complete(&id, &token).write_numbered(n, out),
            None => self.template.write_numbered(n, out),
        }
    }

    fn on_response(&self, _n: u64, answer: &LoadResponse<'_>) {
        let field =
            |mark: &[u8]| string_field(answer.body, mark).map(|text| String::from_utf8_lossy(text).into_owned());
        if let (Some(id), Some(token)) = (field(b"\"id\":\""), field(b"\"token\":\"")) {
            self.won.lock().unwrap_or_else(PoisonError::into_inner).push((id, token));
        }
    }
}

/// Repeats of keys whose emails are settled.
pub(crate) fn replay(args: &Args, server: &ServerProcess) -> Result<FigureSample> {
    let template = mails::send("settled");
    send_until_settled(args, server.at, &template)?;
    let caller = move |n: u64, out: &mut Vec<u8>| template.write_numbered(n % REPLAYED_KEYS, out);
    measure(args, server.at, args.connections, caller, 200)
}

/// Sends the first thousand keys and repeats them until each answer shows an email that was handed off.
fn send_until_settled(args: &Args, to: SocketAddr, template: &RequestTemplate) -> Result<()> {
    let until = LoadDuration::Count { count: REPLAYED_KEYS, timeout: SETTLE_TIMEOUT };
    let plan = SteadyLoad { to, connections: args.connections, threads: 1, duration: until };
    let caller = Arc::new(SettledCounter { template: template.clone(), sent: AtomicU64::new(0) });
    ensure_only_status(&run_steady(&plan, &caller)?, 202).context("the first sends")?;
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    loop {
        caller.sent.store(0, Ordering::Relaxed);
        ensure_only_status(&run_steady(&plan, &caller)?, 200).context("the repeats")?;
        let sent = caller.sent.load(Ordering::Relaxed);
        if sent == REPLAYED_KEYS {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("only {sent} of {REPLAYED_KEYS} emails were handed off within {} s", SETTLE_TIMEOUT.as_secs());
        }
        sleep(Duration::from_millis(100));
    }
}

/// Counts the answers whose email is `sent` or beyond.
struct SettledCounter {
    template: RequestTemplate,
    sent: AtomicU64,
}

impl RequestGenerator for SettledCounter {
    fn write_request(&self, n: u64, out: &mut Vec<u8>) {
        self.template.write_numbered(n, out);
    }

    fn on_response(&self, _n: u64, answer: &LoadResponse<'_>) {
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
pub(crate) fn measure_storm(args: &Args, server: &ServerProcess) -> Result<FigureSample> {
    let caller = Arc::new(StormRequests { template: mails::storm(), ids: Mutex::default() });
    let timeout = Duration::from_mins(1);
    let plan = BurstPlan { to: server.at, connections: args.storm, threads: args.threads, timeout };
    let tally = run_burst(&plan, &caller)?;
    let rest = args.storm as u64 - 1;
    let right = tally.broken == 0 && tally.status_count(202) == 1 && tally.status_count(200) == rest;
    ensure!(right, "expected 1×202 {rest}×200, got {tally}");
    let mut ids = std::mem::take(&mut *caller.ids.lock().unwrap_or_else(PoisonError::into_inner));
    let answers = ids.len();
    ids.sort_unstable();
    ids.dedup();
    ensure!(answers == args.storm && ids.len() == 1, "{answers} answers carried {} different ids", ids.len());
    Ok(FigureSample::from_latency(&tally.latency, Some(tally.responses_per_second())))
}

/// Keeps the ids of all answers.
struct StormRequests {
    template: RequestTemplate,
    ids: Mutex<Vec<Vec<u8>>>,
}

impl RequestGenerator for StormRequests {
    fn write_request(&self, n: u64, out: &mut Vec<u8>) {
        self.template.write_numbered(n, out);
    }

    fn on_response(&self, _n: u64, answer: &LoadResponse<'_>) {
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
