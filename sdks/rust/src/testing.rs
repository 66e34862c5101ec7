//! An in-memory server for your tests. It accepts emails like mailonce, records what would have been sent, and can lose a
//! response after the commit. sdks/contract/behaviour.json compares it with the real server.
//!
//! ```ignore
//! let double = Double::new();
//! double.crash(follow_up(double.client())).await; // the process dies after the commit
//! follow_up(double.client()).await?;              // and is started again
//! expect_sent_once(&double, &Like::default());
//! ```

use bytes::Bytes;
use hyper::HeaderMap;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    Builder, Client,
    call::{BoxedFuture, StreamOpening, Wire},
    double::FakeServer,
    http::{Answer, Request, RequestError},
};

/// An email that would have been sent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SentMail {
    /// Its id.
    pub id: String,
    /// Its idempotency key.
    pub key: Option<String>,
    /// The message that it replies to.
    pub reply_to_message: Option<String>,
    /// The `call_id` that it was sent with.
    pub call: Option<String>,
    /// The body of the call, as JSON.
    pub body: Value,
}

/// A message for [`Double::receive`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The inbox; created if it does not exist.
    pub to: String,
    /// The sender; `ann@example.com` by default.
    pub from: Option<String>,
    /// The subject.
    pub subject: String,
    /// The text.
    pub text: String,
    /// A one-time code that it contains.
    pub code: Option<String>,
}

/// A filter for sent emails. Fields that are `None` match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Like {
    /// The idempotency key.
    pub key: Option<String>,
    /// One of its recipients.
    pub to: Option<String>,
    /// The type of its intent.
    pub kind: Option<String>,
    /// The entity of its intent.
    pub entity: Option<String>,
    /// The message that it replies to.
    pub reply_to_message: Option<String>,
}

/// An in-memory server. Clones share their state.
#[derive(Clone, Default)]
pub struct Double(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    server: FakeServer,
    calls: u64,
    lose: u64,
    refuse: u64,
}

impl std::fmt::Debug for Double {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_struct("Double")
            .field("calls", &state.calls)
            .field("mails", &state.server.mails.len())
            .finish_non_exhaustive()
    }
}

impl Double {
    /// An empty server.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client for this server, with 4 retries and no pauses between tries.
    pub fn client(&self) -> Client {
        self.client_with(Client::builder().max_retries(4))
    }

    /// Configures a client.
    pub fn client_with(&self, builder: Builder) -> Client {
        builder.backoff(std::time::Duration::ZERO).over(Arc::new(self.clone()), "double".to_owned())
    }

    /// All emails that would have been sent, in order.
    pub fn mails(&self) -> Vec<SentMail> {
        self.state().server.mails.clone()
    }

    /// Number of calls received.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Commits the next `count` calls but loses their responses.
    pub fn lose_answers(&self, count: u64) -> &Self {
        self.state().lose = count;
        self
    }

    /// Answers the next `count` calls with 503, before anything is committed.
    pub fn refuse(&self, count: u64) -> &Self {
        self.state().refuse = count;
        self
    }

    /// Runs `work` as if its process died after the commit: it never gets a response.
    ///
    /// # Panics
    ///
    /// If `work` succeeds, because it ignored the missing responses.
    pub async fn crash<T, E>(&self, work: impl Future<Output = Result<T, E>>) {
        self.lose_answers(u64::MAX);
        let ended = work.await;
        self.lose_answers(0);
        assert!(ended.is_err(), "the work ended well although no call was answered");
    }

    /// Delivers a message and returns its id.
    pub fn receive(&self, mail: Arrival) -> String {
        self.state().server.receive(mail)
    }

    fn respond(&self, request: &Request) -> Result<Answer, RequestError> {
        let mut state = self.state();
        state.calls += 1;
        if state.refuse > 0 {
            state.refuse -= 1;
            let problem = json!({
                "status": 503, "code": "unavailable", "detail": "the ledger could not answer", "retry": "same",
                "next": "Send the same call again with the same key.",
            });
            return Ok(answer(503, &problem));
        }
        let (status, body) = state.server.act(request).unwrap_or_else(|refused| refused);
        if state.lose > 0 {
            state.lose -= 1;
            return Err(RequestError::Lost("the answer was lost".to_owned()));
        }
        Ok(answer(status, &body))
    }
}

impl Wire for Double {
    fn url(&self) -> &'static str {
        "http://double.mailonce.test"
    }

    fn call<'a>(&'a self, request: &'a Request, _fresh: bool) -> BoxedFuture<'a, Result<Answer, RequestError>> {
        Box::pin(async move { self.respond(request) })
    }

    fn open_stream<'a>(&'a self, request: &'a Request) -> BoxedFuture<'a, Result<StreamOpening, RequestError>> {
        Box::pin(async move { self.respond(request).map(StreamOpening::Refused) })
    }
}

fn answer(status: u16, body: &Value) -> Answer {
    let body = if status == 204 { Bytes::new() } else { body.to_string().into() };
    Answer { status, headers: HeaderMap::new(), body }
}

/// Fails unless exactly one email that matches was sent. An empty `like` matches every email.
///
/// # Panics
///
/// If none or more than one was sent; the message lists the emails.
#[track_caller]
#[expect(clippy::panic, reason = "this is how a test fails")]
pub fn expect_sent_once(double: &Double, like: &Like) {
    let mails = double.mails();
    let found = mails.iter().filter(|mail| like.fits(mail)).count();
    if found == 1 {
        return;
    }
    let lines: Vec<String> = mails.iter().map(SentMail::line).collect();
    let calls = double.calls();
    panic!("{found} mails went out, wanted 1; {calls} calls came, and these went out:\n{}", lines.join("\n"));
}

impl Like {
    fn fits(&self, mail: &SentMail) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|one| found == Some(one));
        let intent = |name: &str| mail.body["intent"][name].as_str();
        is(&self.key, mail.key.as_deref())
            && is(&self.reply_to_message, mail.reply_to_message.as_deref())
            && is(&self.kind, intent("type"))
            && is(&self.entity, intent("entity"))
            && self.to.as_deref().is_none_or(|to| mail.to().contains(&to))
    }
}

impl SentMail {
    /// Its recipients.
    pub fn to(&self) -> Vec<&str> {
        crate::double::texts(&self.body["to"])
    }

    fn line(&self) -> String {
        let key = self.key.as_deref().unwrap_or("no key");
        format!("  {key}: {} to {}", self.body["subject"].as_str().unwrap_or_default(), self.to().join(", "))
    }
}
