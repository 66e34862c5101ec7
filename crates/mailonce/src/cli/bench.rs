//! `bench`: how fast a server accepts, measured from here. Its mails go to the sandbox and nowhere else.

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
use crate::cli::printer::Printer;
use crate::{engine_deps::load_ca_file, entropy::random_name};

/// For the connection, and again for TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of the text of a mail.
const TEXT_BYTES: usize = 1_000;

/// How hard, and for how long.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    reach: ServerArgs,
    /// How many sends
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: u64,
    /// Over so many connections at a time
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    connections: u64,
    /// Send under one key again and again instead of a fresh one each time
    #[arg(long)]
    replay: bool,
}

/// What every connection shares.
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

/// Measures, and reports.
pub(super) async fn bench(out: &Printer, args: BenchArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.reach)?;
    let base = BaseUrl::parse(client.server.url()).map_err(|bad| UsageError(format!("the URL {bad}")))?;
    // Says what is wrong with the server or the key before thousands do.
    client.get("/v1/emails?limit=1").await?;
    let run = Arc::new(BenchRun {
        base,
        bearer: format!("Bearer {}", client.api_key),
        tls_config: dial::tls_client_config(&load_ca_file(args.reach.ca_file.as_deref())?).context("setting up TLS")?,
        name: random_name(),
        replay: args.replay,
        count: args.count,
        next: AtomicU64::new(0),
        progress: Progress::bar("sends", args.count),
    });
    let began = Instant::now();
    let mut lines = JoinSet::new();
    for _ in 0..args.connections.min(args.count) {
        lines.spawn(Arc::clone(&run).run_connection());
    }
    let (mut took, mut refused) = (Vec::new(), 0_u64);
    while let Some(line) = lines.join_next().await {
        let (times, bad) = line.context("a connection ended")??;
        took.extend(times);
        refused += bad;
    }
    let all = began.elapsed();
    drop(run);
    took.sort_unstable();
    show(out, &args, &took, refused, all);
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

impl BenchRun {
    /// Sends on one connection until all are sent. How long each took, and how many were refused.
    async fn run_connection(self: Arc<Self>) -> anyhow::Result<(Vec<Duration>, u64)> {
        let stream = dial::open_tcp(&self.base.host, self.base.port, CONNECT_TIMEOUT, None).await?;
        let mut sender = if self.base.is_https {
            let stream = dial::open_tls(stream, &self.base.host, &self.tls_config, CONNECT_TIMEOUT).await?;
            handshake(stream).await?
        } else {
            handshake(stream).await?
        };
        let (mut took, mut refused) = (Vec::new(), 0);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return Ok((took, refused));
            }
            let began = Instant::now();
            let answer = sender.send_request(self.request(number)?).await.context("no answer")?;
            let status = answer.status();
            answer.into_body().collect().await.context("the answer broke off")?;
            took.push(began.elapsed());
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
        request.body(Full::new(Bytes::from(body.to_string()))).context("this call cannot be written")
    }
}

async fn handshake(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
) -> anyhow::Result<http1::SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("HTTP does not begin")?;
    // How the connection ends is told to the request that waits on it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn show(out: &Printer, args: &BenchArgs, took: &[Duration], refused: u64, all: Duration) {
    let at = |share: f64| {
        let place = (took.len().saturating_sub(1) as f64 * share) as usize;
        took.get(place).copied().unwrap_or_default().as_secs_f64() * 1_000.0
    };
    let rate = took.len() as f64 / all.as_secs_f64().max(1e-9);
    let what = if args.replay { "replays" } else { "accepts" };
    if out.is_json() {
        let round = |ms: f64| (ms * 100.0).round() / 100.0;
        let value: Value = json!({ "what": what, "count": took.len(), "refused": refused,
            "connections": args.connections, "seconds": round(all.as_secs_f64()), "per_second": rate.round(),
            "p50_ms": round(at(0.5)), "p99_ms": round(at(0.99)), "max_ms": round(at(1.0)) });
        return out.print_json(&value);
    }
    out.print_fields(&[
        (what, took.len().to_string()),
        ("refused", refused.to_string()),
        ("a second", format!("{rate:.0}")),
        ("p50", format!("{:.2} ms", at(0.5))),
        ("p99", format!("{:.2} ms", at(0.99))),
        ("longest", format!("{:.2} ms", at(1.0))),
    ]);
}
