//! A caller as agents are: it names its wishes, asks, asks again, and sometimes hangs up in the middle.

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

/// How often one call is repeated that the server asked to repeat, or that got no answer.
const MAX_RETRIES: usize = 60;
/// How long one answer may take, and how long a call is repeated that gets none.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
const RETRY_TIMEOUT: Duration = Duration::from_secs(45);
/// Between two of them.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// Before a caller hangs up in its request, so that the server notices the part it got.
const DISCONNECT_DELAY: Duration = Duration::from_millis(50);
/// Padding that gives a body a middle to break off in.
const PADDING: &str = "One mail, however often it is asked for. ";

/// Where a call breaks off.
#[derive(Clone, Copy, Debug)]
pub(super) enum DisconnectPoint {
    /// After the head.
    AfterHead,
    /// In the middle of the body.
    MidBody,
    /// After the body, so long before the answer is read.
    BeforeResponse(Duration),
}

/// Who asks.
pub(super) struct ProveClient {
    server: ApiServer,
    pub(super) dialect: TargetDialect,
    api_key: String,
    from: String,
    to: String,
    /// Names this run, so that no two runs share a key or a marker.
    run_id: String,
    count: AtomicU32,
}

impl ProveClient {
    pub(super) fn new(
        place: ApiServer,
        dialect: TargetDialect,
        api_key: String,
        (from, to): (&str, &str),
    ) -> anyhow::Result<Arc<Self>> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
        let run = format!("{:012x}", u64::from_be_bytes(seed) >> 16);
        let (from, to) = (from.to_owned(), to.to_owned());
        Ok(Arc::new(Self { server: place, dialect, api_key, from, to, run_id: run, count: AtomicU32::new(0) }))
    }

    pub(super) fn url(&self) -> String {
        self.server.url().to_owned()
    }

    /// A name that nobody used before: for a key, or for a mail to be found again.
    pub(super) fn marker(&self) -> String {
        format!("{}{}-{:04}", super::sink::MARKER_PREFIX, self.run_id, self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// A mail that bears a marker.
    pub(super) fn mail(&self, marker: &str) -> Value {
        let text = format!("{marker}\n\n{}", PADDING.repeat(12));
        self.dialect.mail(&self.from, &self.to, &format!("Proof {marker}"), &text)
    }

    /// A send under a key.
    pub(super) fn send(&self, key: &str, mail: &Value) -> Call {
        self.build_call(self.dialect.send_path(&self.from), Some(key), mail)
    }

    /// A batch under a key, where the dialect has batches.
    pub(super) fn batch(&self, key: &str, mails: &[Value]) -> Option<Call> {
        Some(self.build_call(self.dialect.batch_path()?.to_owned(), Some(key), &Value::Array(mails.to_vec())))
    }

    fn build_call(&self, path: String, key: Option<&str>, body: &Value) -> Call {
        let mut headers = vec![("authorization", format!("Bearer {}", self.api_key))];
        headers.extend(key.map(|key| ("idempotency-key", key.to_owned())));
        Call { method: Method::POST, path, headers, body: body.to_string().into() }
    }

    /// Makes sure that there is something to prove: the route exists, the key counts, and a plain mail is taken.
    pub(super) async fn check_setup(&self) -> anyhow::Result<()> {
        let path = self.dialect.send_path(&self.from);
        let why = match self.call_once(&self.build_call(path.clone(), None, &serde_json::json!({}))).await {
            CallResult::Refused(status @ (401 | 403), name) => format!("refuses the API key: {status} {name}"),
            CallResult::Refused(status @ (404 | 405), name) | CallResult::Unexpected(status @ (404 | 405), name) => {
                format!("has no {path}: {status} {name}; are --dialect and --from right?")
            }
            CallResult::NoAnswer(why) => {
                return Err(CliError::no_server(format!("{}: {why}", self.server.url())).into());
            }
            _ => match self.call_with_retries(&self.send(&self.marker(), &self.mail(&self.marker()))).await {
                CallResult::Accepted { .. } => return Ok(()),
                other => format!("does not take a plain mail: {}; are --from and --to right?", other.summary()),
            },
        };
        Err(UsageError(format!("{} {why}", self.server.url())).into())
    }

    /// Asks once, whatever comes.
    async fn call_once(&self, call: &Call) -> CallResult {
        self.classify(self.server.call(call)).await
    }

    /// What comes of a call, or that nothing does.
    async fn classify(&self, asking: impl Future<Output = anyhow::Result<Answer>>) -> CallResult {
        match timeout(CALL_TIMEOUT, asking).await {
            Ok(Ok(answer)) => self.dialect.parse_response(&answer),
            Ok(Err(error)) => CallResult::NoAnswer(format!("{error:#}")),
            Err(_late) => CallResult::NoAnswer(format!("no answer within {} s", CALL_TIMEOUT.as_secs())),
        }
    }

    /// Asks as long as the server says to come again, and no longer than patience lasts.
    pub(super) async fn call_with_retries(&self, call: &Call) -> CallResult {
        let first = self.call_once(call).await;
        self.call_until_final(call, first).await.0
    }

    /// Asks, and does not come again when the key is said to be in use.
    pub(super) async fn call_without_busy_retry(&self, call: &Call) -> CallResult {
        let mut seen = self.call_once(call).await;
        for _ in 0..MAX_RETRIES {
            let CallResult::RateLimited(pause) = seen else { break };
            sleep(pause).await;
            seen = self.call_once(call).await;
        }
        seen
    }

    /// Repeats a call until its answer is final. Also how many answers were not.
    async fn call_until_final(&self, call: &Call, mut seen: CallResult) -> (CallResult, usize) {
        let (mut repeats, began) = (0, Instant::now());
        while repeats < MAX_RETRIES {
            let pause = match &seen {
                CallResult::RateLimited(pause) => *pause,
                CallResult::NoAnswer(_) if began.elapsed() > RETRY_TIMEOUT => break,
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

    /// Lets many callers send the same at the same moment. Their final answers, and how many had to come again.
    pub(super) async fn call_concurrently(self: &Arc<Self>, call: &Call, callers: u32) -> (Vec<CallResult>, usize) {
        let start = Arc::new(Barrier::new(callers as usize));
        let mut racing = JoinSet::new();
        for _ in 0..callers {
            let (caller, call, start) = (Arc::clone(self), call.clone(), Arc::clone(&start));
            racing.spawn(async move {
                let line = caller.server.connect().await;
                start.wait().await;
                let asking = async {
                    match line {
                        Ok(line) => caller.server.call_on(line, &call).await,
                        Err(error) => Err(error),
                    }
                };
                let seen = caller.classify(asking).await;
                caller.call_until_final(&call, seen).await
            });
        }
        let (mut answers, mut again) = (Vec::new(), 0);
        while let Some(ended) = racing.join_next().await {
            let (seen, repeats) = ended.unwrap_or_else(|error| (CallResult::NoAnswer(error.to_string()), 0));
            again += usize::from(repeats > 0);
            answers.push(seen);
        }
        (answers, again)
    }

    /// Begins a call and hangs up. Nothing is read.
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
