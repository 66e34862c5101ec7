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

use super::{answer::Seen, dialect::Dialect};
use crate::cli::{
    Trouble, Usage,
    http::{Answer, Call, Place},
};

/// How often one call is repeated that the server asked to repeat, or that got no answer.
const REPEATS: usize = 60;
/// How long one answer may take, and how long a call is repeated that gets none.
const ANSWER: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(45);
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(250);
/// Before a caller hangs up in its request, so that the server notices the part it got.
const NOTICE: Duration = Duration::from_millis(50);
/// Padding that gives a body a middle to break off in.
const PADDING: &str = "One mail, however often it is asked for. ";

/// Where a call breaks off.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    /// After the head.
    Head,
    /// In the middle of the body.
    Body,
    /// After the body, so long before the answer is read.
    Answer(Duration),
}

/// Who asks.
pub(super) struct Caller {
    place: Place,
    pub(super) dialect: Dialect,
    api_key: String,
    from: String,
    to: String,
    /// Names this run, so that no two runs share a key or a marker.
    run: String,
    count: AtomicU32,
}

impl Caller {
    pub(super) fn new(
        place: Place,
        dialect: Dialect,
        api_key: String,
        (from, to): (&str, &str),
    ) -> anyhow::Result<Arc<Self>> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
        let run = format!("{:012x}", u64::from_be_bytes(seed) >> 16);
        let (from, to) = (from.to_owned(), to.to_owned());
        Ok(Arc::new(Self { place, dialect, api_key, from, to, run, count: AtomicU32::new(0) }))
    }

    pub(super) fn url(&self) -> String {
        self.place.url().to_owned()
    }

    /// A name that nobody used before: for a key, or for a mail to be found again.
    pub(super) fn marker(&self) -> String {
        format!("{}{}-{:04}", super::sink::PREFIX, self.run, self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// A mail that bears a marker.
    pub(super) fn mail(&self, marker: &str) -> Value {
        let text = format!("{marker}\n\n{}", PADDING.repeat(12));
        self.dialect.mail(&self.from, &self.to, &format!("Proof {marker}"), &text)
    }

    /// A send under a key.
    pub(super) fn send(&self, key: &str, mail: &Value) -> Call {
        self.call(self.dialect.send_path(&self.from), Some(key), mail)
    }

    /// A batch under a key, where the dialect has batches.
    pub(super) fn batch(&self, key: &str, mails: &[Value]) -> Option<Call> {
        Some(self.call(self.dialect.batch_path()?.to_owned(), Some(key), &Value::Array(mails.to_vec())))
    }

    fn call(&self, path: String, key: Option<&str>, body: &Value) -> Call {
        let mut headers = vec![("authorization", format!("Bearer {}", self.api_key))];
        headers.extend(key.map(|key| ("idempotency-key", key.to_owned())));
        Call { method: Method::POST, path, headers, body: body.to_string().into() }
    }

    /// Makes sure that there is something to prove: the route exists, the key counts, and a plain mail is taken.
    pub(super) async fn greet(&self) -> anyhow::Result<()> {
        let path = self.dialect.send_path(&self.from);
        let why = match self.once(&self.call(path.clone(), None, &serde_json::json!({}))).await {
            Seen::Refused(status @ (401 | 403), name) => format!("refuses the API key: {status} {name}"),
            Seen::Refused(status @ (404 | 405), name) | Seen::Odd(status @ (404 | 405), name) => {
                format!("has no {path}: {status} {name}; are --dialect and --from right?")
            }
            Seen::Lost(why) => {
                return Err(Trouble::nobody(format!("{}: {why}", self.place.url())).into());
            }
            _ => match self.ask(&self.send(&self.marker(), &self.mail(&self.marker()))).await {
                Seen::Taken { .. } => return Ok(()),
                other => format!("does not take a plain mail: {}; are --from and --to right?", other.words()),
            },
        };
        Err(Usage(format!("{} {why}", self.place.url())).into())
    }

    /// Asks once, whatever comes.
    async fn once(&self, call: &Call) -> Seen {
        self.seen(self.place.ask(call)).await
    }

    /// What comes of a call, or that nothing does.
    async fn seen(&self, asking: impl Future<Output = anyhow::Result<Answer>>) -> Seen {
        match timeout(ANSWER, asking).await {
            Ok(Ok(answer)) => self.dialect.read(&answer),
            Ok(Err(error)) => Seen::Lost(format!("{error:#}")),
            Err(_late) => Seen::Lost(format!("no answer within {} s", ANSWER.as_secs())),
        }
    }

    /// Asks as long as the server says to come again, and no longer than patience lasts.
    pub(super) async fn ask(&self, call: &Call) -> Seen {
        let first = self.once(call).await;
        self.insist(call, first).await.0
    }

    /// Asks, and does not come again when the key is said to be in use.
    pub(super) async fn ask_other(&self, call: &Call) -> Seen {
        let mut seen = self.once(call).await;
        for _ in 0..REPEATS {
            let Seen::Limited(pause) = seen else { break };
            sleep(pause).await;
            seen = self.once(call).await;
        }
        seen
    }

    /// Repeats a call until its answer is final. Also how many answers were not.
    async fn insist(&self, call: &Call, mut seen: Seen) -> (Seen, usize) {
        let (mut repeats, began) = (0, Instant::now());
        while repeats < REPEATS {
            let pause = match &seen {
                Seen::Limited(pause) => *pause,
                Seen::Lost(_) if began.elapsed() > PATIENCE => break,
                Seen::Lost(_) => PAUSE,
                busy if self.dialect.is_busy(busy) => PAUSE,
                _ => break,
            };
            repeats += 1;
            sleep(pause).await;
            seen = self.once(call).await;
        }
        (seen, repeats)
    }

    /// Lets many callers send the same at the same moment. Their final answers, and how many had to come again.
    pub(super) async fn race(self: &Arc<Self>, call: &Call, callers: u32) -> (Vec<Seen>, usize) {
        let start = Arc::new(Barrier::new(callers as usize));
        let mut racing = JoinSet::new();
        for _ in 0..callers {
            let (caller, call, start) = (Arc::clone(self), call.clone(), Arc::clone(&start));
            racing.spawn(async move {
                let line = caller.place.line().await;
                start.wait().await;
                let asking = async {
                    match line {
                        Ok(line) => caller.place.ask_on(line, &call).await,
                        Err(error) => Err(error),
                    }
                };
                let seen = caller.seen(asking).await;
                caller.insist(&call, seen).await
            });
        }
        let (mut answers, mut again) = (Vec::new(), 0);
        while let Some(ended) = racing.join_next().await {
            let (seen, repeats) = ended.unwrap_or_else(|error| (Seen::Lost(error.to_string()), 0));
            again += usize::from(repeats > 0);
            answers.push(seen);
        }
        (answers, again)
    }

    /// Begins a call and hangs up. Nothing is read.
    pub(super) async fn hang_up(&self, call: &Call, cut: Cut) -> anyhow::Result<()> {
        let mut stream = self.place.open().await?;
        let (part, pause) = match cut {
            Cut::Head => (0, NOTICE),
            Cut::Body => (call.body.len() / 2, NOTICE),
            Cut::Answer(pause) => (call.body.len(), pause),
        };
        stream.write_all(self.place.head(call).as_bytes()).await?;
        stream.write_all(&call.body[..part]).await?;
        stream.flush().await?;
        sleep(pause).await;
        Ok(())
    }
}
