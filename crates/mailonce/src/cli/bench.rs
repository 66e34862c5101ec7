//! `bench`: measures how fast a server accepts emails. They go to the sandbox only.

use anyhow::Context as _;
use clap::Args;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use mailonce_transport::{dial, http::base::BaseUrl};
use serde_json::{Value, json};
use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

use super::{ServerArgs, UsageError, client::CliClient, exit, progress::Progress};
use crate::cli::{http_client::NoAnswer, printer::Printer};
use crate::{entropy::random_name, tls::load_ca_file};

/// Timeout of the connection, and again of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Size of the text of an email.
const TEXT_BYTES: usize = 1_000;

/// Size of the benchmark.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Number of emails
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: u64,
    /// Number of concurrent connections
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    connections: u64,
    /// Send the same idempotency key each time, to measure replays
    #[arg(long)]
    replay: bool,
}

/// State that all connections share.
struct BenchRun {
    base: BaseUrl,
    bearer: String,
    tls_config: Arc<rustls::ClientConfig>,
    name: String,
    replay: bool,
    count: u64,
    next: AtomicU64,
    progress: Progress,
}

/// Runs the benchmark and prints the result.
pub(super) async fn bench(out: &Printer, args: BenchArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.server)?;
    let base = BaseUrl::parse(client.server.url()).map_err(|bad| UsageError(format!("the URL {bad}")))?;
    // Reports a wrong server or API key once, before thousands of requests fail.
    client.get("/v1/emails?limit=1").await?;
    let run = Arc::new(BenchRun {
        base,
        bearer: format!("Bearer {}", client.api_key),
        tls_config: dial::tls_client_config(&load_ca_file(args.server.ca_file.as_deref())?)
            .context("setting up TLS")?,
        name: random_name(),
        replay: args.replay,
        count: args.count,
        next: AtomicU64::new(0),
        progress: Progress::bar("emails", args.count),
    });
    let started = Instant::now();
    let mut connections = JoinSet::new();
    for _ in 0..args.connections.min(args.count) {
        connections.spawn(Arc::clone(&run).run_connection());
    }
    let (mut latencies, mut refused) = (Vec::new(), 0_u64);
    while let Some(ended) = connections.join_next().await {
        let (times, failures) = ended.context("a connection ended")??;
        latencies.extend(times);
        refused += failures;
    }
    let elapsed = started.elapsed();
    drop(run);
    latencies.sort_unstable();
    show(out, &args, &latencies, refused, elapsed);
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

impl BenchRun {
    /// Sends on one connection until all emails are sent. Returns the latencies and the number of refusals.
    async fn run_connection(self: Arc<Self>) -> anyhow::Result<(Vec<Duration>, u64)> {
        let stream = dial::open_tcp(&self.base.host, self.base.port, CONNECT_TIMEOUT, None).await?;
        let mut sender = if self.base.is_https {
            let stream = dial::open_tls(stream, &self.base.host, &self.tls_config, CONNECT_TIMEOUT).await?;
            handshake(stream).await?
        } else {
            handshake(stream).await?
        };
        let (mut latencies, mut refused) = (Vec::new(), 0);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return Ok((latencies, refused));
            }
            let started = Instant::now();
            let response =
                sender.send_request(self.request(number)?).await.context(NoAnswer("no answer".to_owned()))?;
            let status = response.status();
            response.into_body().collect().await.context("the response is incomplete")?;
            latencies.push(started.elapsed());
            refused += u64::from(!status.is_success());
            self.progress.advance();
        }
    }

    fn request(&self, number: u64) -> anyhow::Result<Request<Full<Bytes>>> {
        let number = if self.replay { 0 } else { number };
        let body = json!({
            "from": "bench@mailonce.test",
            "to": format!("reader-{number}@example.com"),
            "subject": format!("Bench {} {number}", self.name),
            "text": "x".repeat(TEXT_BYTES),
            "transport": "sandbox",
        });
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}/v1/emails", self.base.path_prefix))
            .header("host", &self.base.authority)
            .header("authorization", &self.bearer)
            .header("content-type", "application/json")
            .header("idempotency-key", format!("bench-{}-{number}", self.name));
        request.body(Full::new(Bytes::from(body.to_string()))).context("building the request")
    }
}

async fn handshake(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
) -> anyhow::Result<http1::SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("starting HTTP")?;
    // A connection error is reported by the request that waits for it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn show(out: &Printer, args: &BenchArgs, latencies: &[Duration], refused: u64, elapsed: Duration) {
    let at = |share: f64| {
        let index = (latencies.len().saturating_sub(1) as f64 * share) as usize;
        latencies.get(index).copied().unwrap_or_default().as_secs_f64() * 1_000.0
    };
    let rate = latencies.len() as f64 / elapsed.as_secs_f64().max(1e-9);
    let what = if args.replay { "replays" } else { "accepts" };
    if out.is_json() {
        let round = |ms: f64| (ms * 100.0).round() / 100.0;
        let value: Value = json!({ "what": what, "count": latencies.len(), "refused": refused,
            "connections": args.connections, "seconds": round(elapsed.as_secs_f64()), "per_second": rate.round(),
            "p50_ms": round(at(0.5)), "p99_ms": round(at(0.99)), "max_ms": round(at(1.0)) });
        return out.print_json(&value);
    }
    out.print_fields(&[
        (what, latencies.len().to_string()),
        ("refused", refused.to_string()),
        ("per second", format!("{rate:.0}")),
        ("p50", format!("{:.2} ms", at(0.5))),
        ("p99", format!("{:.2} ms", at(0.99))),
        ("slowest", format!("{:.2} ms", at(1.0))),
    ]);
}
