//! A start after `kill -9` with a long queue: how soon it serves, and whether the queue drains.

use crate::args::Args;
use crate::figures::ensure_only_status;
use crate::handoff::{RUN_TIMEOUT, write_relay_config};
use crate::mails;
use crate::results::{FigureSample, millis};
use crate::sink::PostfixSink;
use anyhow::{Context as _, Result, ensure};
use mailonce_sim::harness::child_processes::{ChildProcesses, sleep};
use mailonce_sim::harness::http;
use mailonce_sim::harness::server::{ServerProcess, ServerSetup};
use mailonce_sim::load::{LoadDuration, RequestTemplate, SteadyLoad, run_steady};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Emails of one batch: the most that the API takes.
const BATCH_SIZE: u64 = 1000;
/// Batches in flight while the queue is filled; more would only take memory.
const FILL_CONNECTIONS: usize = 4;

/// One restart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RestartBench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) children: &'a ChildProcesses,
    pub(crate) binary: &'a Path,
    pub(crate) work: &'a Path,
}

impl RestartBench<'_> {
    /// Fills a queue, kills the server, starts it again and watches the sink. The rate is that of the sink.
    pub(crate) fn measure(&self) -> Result<FigureSample> {
        let home = tempfile::Builder::new().prefix("restart").tempdir_in(self.work)?;
        let sink = PostfixSink::start(self.children, home.path())?;
        let env = [("MAILONCE_CONFIG", write_relay_config(sink.at, home.path())?.into())];
        let data = home.path().join("data");
        let resting = ServerSetup { binary: self.binary, data: &data, store: None, paused: true, env: &env };
        let queue = QueuePlan::for_emails(self.args.queued);
        let server = resting.start(self.children)?;
        queue.fill(&server)?;
        server.kill()?;
        sink.ensure_at_most(0).context("while hand-off rests")?;

        let began = Instant::now();
        let server = ServerSetup { paused: false, ..resting }.start(self.children)?;
        send_one(&server, &mails::send("after"), 0, 202).context("the first send after the start")?;
        let serving = began.elapsed();

        let rate = self.drain_rate(&sink, queue.emails() + 1)?;
        send_one(&server, &queue.batch, queue.batches - 1, 200).context("the last batch, asked again")?;
        let rss_mb = server.rss_mb();
        server.terminate()?;
        sink.ensure_at_most(queue.emails() + 1)?;
        Ok(FigureSample { rate: Some(rate), serving_ms: Some(millis(serving)), rss_mb, ..FigureSample::default() })
    }

    /// What the sink takes a second, until it has taken `all` or the time to look is over.
    fn drain_rate(&self, sink: &PostfixSink, all: u64) -> Result<f64> {
        let (began, before) = (Instant::now(), sink.count()?);
        let (mut taken, mut took) = (before, Duration::ZERO);
        while taken < all && took < self.args.drain_time() {
            sleep(Duration::from_millis(10));
            taken = sink.count()?;
            took = began.elapsed();
        }
        ensure!(taken > before || taken == all, "the queue did not drain: the sink took {taken} mails of {all}");
        Ok((taken - before) as f64 / took.as_secs_f64().max(f64::EPSILON))
    }
}

/// What waits when the server is killed.
struct QueuePlan {
    batch: RequestTemplate,
    size: u64,
    batches: u64,
}

impl QueuePlan {
    /// Of so many emails, or a few more when they do not fill the last batch.
    fn for_emails(emails: u64) -> Self {
        let size = emails.clamp(1, BATCH_SIZE);
        Self { batch: mails::batch(size as usize), size, batches: emails.div_ceil(size).max(1) }
    }

    fn emails(&self) -> u64 {
        self.size * self.batches
    }

    fn fill(&self, server: &ServerProcess) -> Result<()> {
        let until = LoadDuration::Count { count: self.batches, timeout: RUN_TIMEOUT };
        let plan = SteadyLoad { to: server.at, connections: FILL_CONNECTIONS, threads: 1, duration: until };
        let batch = self.batch.clone();
        let caller = Arc::new(move |n: u64, out: &mut Vec<u8>| batch.write_numbered(n, out));
        ensure_only_status(&run_steady(&plan, &caller)?, 202).context("filling the queue")
    }
}

/// Sends the n-th request of a template by itself, and expects one status.
fn send_one(server: &ServerProcess, template: &RequestTemplate, n: u64, status: u16) -> Result<()> {
    let mut request = Vec::with_capacity(template.size());
    template.write_numbered(n, &mut request);
    let reply = http::exchange(server.at, &request)?;
    ensure!(reply.status == status, "expected {status}, got {}: {}", reply.status, reply.body);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::QueuePlan;

    #[test]
    fn a_queue_has_at_least_what_was_asked_for() {
        let shape = |emails| {
            let queue = QueuePlan::for_emails(emails);
            (queue.size, queue.batches, queue.emails())
        };
        assert_eq!(shape(100_000), (1000, 100, 100_000));
        assert_eq!(shape(1500), (1000, 2, 2000));
        assert_eq!(shape(50), (50, 1, 50));
        assert_eq!(shape(0), (1, 1, 1));
    }
}
