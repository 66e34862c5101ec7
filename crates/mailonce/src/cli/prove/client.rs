//! The client of `prove`: sends with idempotency keys, retries, and disconnects halfway.

use hyper::Method;
use serde_json::Value;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::AsyncWriteExt as _,
    sync::Barrier,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::dialect::TargetDialect;
use crate::cli::prove::call_result::CallResult;
use crate::cli::{
    CliError, UsageError,
    http_client::{Answer, ApiServer, Call},
};

/// Retries of a call that the server asked to retry, or that got no response.
const MAX_RETRIES: usize = 60;
/// Timeout of one response, and of all retries of a call without a response.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
const RETRY_TIMEOUT: Duration = Duration::from_secs(45);
/// Delay between two retries.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// Delay before the client disconnects, so that the server processes what it received.
const DISCONNECT_DELAY: Duration = Duration::from_millis(50);
/// Padding, so that a request can be cut in the middle of its body.
const PADDING: &str = "One email, however often the client retries. ";

/// Where a request is cut.
#[derive(Clone, Copy, Debug)]
pub(super) enum DisconnectPoint {
    /// After the head.
    AfterHead,
    /// In the middle of the body.
    MidBody,
    /// After the body, this long before the response is read.
    BeforeResponse(Duration),
}

/// The client.
pub(super) struct ProveClient {
    server: ApiServer,
    pub(super) dialect: TargetDialect,
    api_key: String,
    from: String,
    to: String,
    /// Identifies this run, so that no two runs share a key or a marker.
    run_id: String,
    count: AtomicU32,
}

impl ProveClient {
    pub(super) fn new(
        server: ApiServer,
        dialect: TargetDialect,
        api_key: String,
        from: String,
        to: String,
    ) -> anyhow::Result<Arc<Self>> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
        let run = format!("{:012x}", u64::from_be_bytes(seed) >> 16);
        Ok(Arc::new(Self { server, dialect, api_key, from, to, run_id: run, count: AtomicU32::new(0) }))
    }

    pub(super) fn url(&self) -> String {
        self.server.url().to_owned()
    }

    /// A unique string, for a key or to find an email in the sink.
    pub(super) fn marker(&self) -> String {
        format!("{}{}-{:04}", super::sink::MARKER_PREFIX, self.run_id, self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// An email that contains a marker.
    pub(super) fn mail(&self, marker: &str) -> Value {
        let text = format!("{marker}\n\n{}", PADDING.repeat(12));
        self.dialect.mail(&self.from, &self.to, &format!("Proof {marker}"), &text)
    }

    /// A send with a key.
    pub(super) fn send(&self, key: &str, mail: &Value) -> Call {
        self.build_call(self.dialect.send_path(&self.from), Some(key), mail)
    }

    /// A batch with a key, if the dialect has batches.
    pub(super) fn batch(&self, key: &str, mails: &[Value]) -> Option<Call> {
        Some(self.build_call(self.dialect.batch_path()?.to_owned(), Some(key), &Value::Array(mails.to_vec())))
    }

    fn build_call(&self, path: String, key: Option<&str>, body: &Value) -> Call {
        let mut headers = vec![("authorization", format!("Bearer {}", self.api_key))];
        headers.extend(key.map(|key| ("idempotency-key", key.to_owned())));
        Call { method: Method::POST, path, headers, body: body.to_string().into() }
    }

    /// Checks that the route exists, the API key is valid, and a plain email is accepted.
    pub(super) async fn check_setup(&self) -> anyhow::Result<()> {
        let path = self.dialect.send_path(&self.from);
        let why = match self.call_once(&self.build_call(path.clone(), None, &serde_json::json!({}))).await {
            CallResult::Refused(status @ (401 | 403), name) => format!("rejects the API key: {status} {name}"),
            CallResult::Refused(status @ (404 | 405), name) | CallResult::Unexpected(status @ (404 | 405), name) => {
                format!("has no {path}: {status} {name}; check --dialect and --from")
            }
            CallResult::NoAnswer(why) => {
                return Err(CliError::no_server(format!("{}: {why}", self.server.url())).into());
            }
            _ => match self.call_with_retries(&self.send(&self.marker(), &self.mail(&self.marker()))).await {
                CallResult::Accepted { .. } => return Ok(()),
                other => format!("does not accept a plain email: {}; check --from and --to", other.summary()),
            },
        };
        Err(UsageError(format!("{} {why}", self.server.url())).into())
    }

    /// Calls once.
    async fn call_once(&self, call: &Call) -> CallResult {
        self.classify(self.server.call(call)).await
    }

    /// Waits for a response and classifies it.
    async fn classify(&self, request: impl Future<Output = anyhow::Result<Answer>>) -> CallResult {
        match timeout(CALL_TIMEOUT, request).await {
            Ok(Ok(answer)) => self.dialect.parse_response(&answer),
            Ok(Err(error)) => CallResult::NoAnswer(format!("{error:#}")),
            Err(_elapsed) => CallResult::NoAnswer(format!("timeout after {} s", CALL_TIMEOUT.as_secs())),
        }
    }

    /// Calls until the response is final or the retries are used up.
    pub(super) async fn call_with_retries(&self, call: &Call) -> CallResult {
        let first = self.call_once(call).await;
        self.call_until_final(call, first).await.0
    }

    /// Calls, but does not retry when the key is in use.
    pub(super) async fn call_without_busy_retry(&self, call: &Call) -> CallResult {
        let mut seen = self.call_once(call).await;
        for _ in 0..MAX_RETRIES {
            let CallResult::RateLimited(pause) = seen else { break };
            sleep(pause).await;
            seen = self.call_once(call).await;
        }
        seen
    }

    /// Retries a call until its response is final. Also returns the number of retries.
    async fn call_until_final(&self, call: &Call, mut seen: CallResult) -> (CallResult, usize) {
        let (mut repeats, started) = (0, Instant::now());
        while repeats < MAX_RETRIES {
            let pause = match &seen {
                CallResult::RateLimited(pause) => *pause,
                CallResult::NoAnswer(_) if started.elapsed() > RETRY_TIMEOUT => break,
                CallResult::NoAnswer(_) => RETRY_DELAY,
                busy if self.dialect.is_busy(busy) => RETRY_DELAY,
                _ => break,
            };
            repeats += 1;
            sleep(pause).await;
            seen = self.call_once(call).await;
        }
        (seen, repeats)
    }

    /// Sends the same request from many clients at once. Returns the final responses and the number of retries.
    pub(super) async fn call_concurrently(self: &Arc<Self>, call: &Call, callers: u32) -> (Vec<CallResult>, usize) {
        let start = Arc::new(Barrier::new(callers as usize));
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let (caller, call, start) = (Arc::clone(self), call.clone(), Arc::clone(&start));
            tasks.spawn(async move {
                let line = caller.server.connect().await;
                start.wait().await;
                let request = async {
                    match line {
                        Ok(line) => caller.server.call_on(line, &call).await,
                        Err(error) => Err(error),
                    }
                };
                let seen = caller.classify(request).await;
                caller.call_until_final(&call, seen).await
            });
        }
        let (mut answers, mut again) = (Vec::new(), 0);
        while let Some(ended) = tasks.join_next().await {
            let (seen, repeats) = ended.unwrap_or_else(|error| (CallResult::NoAnswer(error.to_string()), 0));
            again += usize::from(repeats > 0);
            answers.push(seen);
        }
        (answers, again)
    }

    /// Starts a request and disconnects without reading the response.
    pub(super) async fn call_and_disconnect(&self, call: &Call, cut: DisconnectPoint) -> anyhow::Result<()> {
        let mut stream = self.server.open_stream().await?;
        let (part, pause) = match cut {
            DisconnectPoint::AfterHead => (0, DISCONNECT_DELAY),
            DisconnectPoint::MidBody => (call.body.len() / 2, DISCONNECT_DELAY),
            DisconnectPoint::BeforeResponse(pause) => (call.body.len(), pause),
        };
        stream.write_all(self.server.request_head(call).as_bytes()).await?;
        stream.write_all(&call.body[..part]).await?;
        stream.flush().await?;
        sleep(pause).await;
        Ok(())
    }
}
