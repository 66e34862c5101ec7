//! A server in memory for your tests: it accepts like mailonce, remembers what would have gone out, and can lose an answer
//! after the commit. sdks/contract/behaviour.json holds it to what the real one does.
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
    call::{Made, Opened, Wire},
    double::Desk,
    http::{Answer, Request, Trouble},
};

/// A mail that would have gone out.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Gone {
    /// Its id.
    pub id: String,
    /// The key that it was accepted under.
    pub key: Option<String>,
    /// The message it answers.
    pub reply_to_message: Option<String>,
    /// The `call_id` that it was sent with.
    pub call: Option<String>,
    /// What was sent, in the words of the wire.
    pub body: Value,
}

/// What may arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The inbox; made if it is not there.
    pub to: String,
    /// `ann@example.com` unless you say so.
    pub from: Option<String>,
    /// The subject.
    pub subject: String,
    /// The text.
    pub text: String,
    /// A one-time code that was found in it.
    pub code: Option<String>,
}

/// Which mails are counted. What is left out is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Like {
    /// The key it was accepted under.
    pub key: Option<String>,
    /// Somebody whom it is for.
    pub to: Option<String>,
    /// The type of its intent.
    pub kind: Option<String>,
    /// The entity of its intent.
    pub entity: Option<String>,
    /// The message it answers.
    pub reply_to_message: Option<String>,
}

/// A server in memory. Clones are the same server.
#[derive(Clone, Default)]
pub struct Double(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    desk: Desk,
    calls: u64,
    lose: u64,
    refuse: u64,
}

impl std::fmt::Debug for Double {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inside = self.inside();
        f.debug_struct("Double")
            .field("calls", &inside.calls)
            .field("mails", &inside.desk.mails.len())
            .finish_non_exhaustive()
    }
}

impl Double {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client of this server. It makes no pauses between its tries, and 4 retries.
    pub fn client(&self) -> Client {
        self.client_with(Client::builder().max_retries(4))
    }

    /// A client with settings of its own.
    pub fn client_with(&self, builder: Builder) -> Client {
        builder.backoff(std::time::Duration::ZERO).over(Arc::new(self.clone()), "double".to_owned())
    }

    /// Every mail that would have gone out, in order.
    pub fn mails(&self) -> Vec<Gone> {
        self.inside().desk.mails.clone()
    }

    /// How many calls came.
    pub fn calls(&self) -> u64 {
        self.inside().calls
    }

    /// The next `count` calls are committed, and their answers are lost.
    pub fn lose_answers(&self, count: u64) -> &Self {
        self.inside().lose = count;
        self
    }

    /// The next `count` calls are answered 503, before anything is committed.
    pub fn refuse(&self, count: u64) -> &Self {
        self.inside().refuse = count;
        self
    }

    /// Runs `work` as if its process died after the commit: no answer ever comes.
    ///
    /// # Panics
    ///
    /// If `work` ends well, since then it did not notice.
    pub async fn crash<T, E>(&self, work: impl Future<Output = Result<T, E>>) {
        self.lose_answers(u64::MAX);
        let ended = work.await;
        self.lose_answers(0);
        assert!(ended.is_err(), "the work ended well although no call was answered");
    }

    /// Lets a mail arrive; answers the message's id.
    pub fn receive(&self, mail: Arrival) -> String {
        self.inside().desk.receive(mail)
    }

    fn answered(&self, request: &Request) -> Result<Answer, Trouble> {
        let mut inside = self.inside();
        inside.calls += 1;
        if inside.refuse > 0 {
            inside.refuse -= 1;
            let problem = json!({
                "status": 503, "code": "unavailable", "detail": "the ledger could not answer", "retry": "same",
                "next": "Send the same call again with the same key.",
            });
            return Ok(answer(503, &problem));
        }
        let (status, body) = inside.desk.act(request).unwrap_or_else(|refused| refused);
        if inside.lose > 0 {
            inside.lose -= 1;
            return Err(Trouble::Lost("the answer was lost".to_owned()));
        }
        Ok(answer(status, &body))
    }
}

impl Wire for Double {
    fn url(&self) -> &'static str {
        "http://double.mailonce.test"
    }

    fn ask<'a>(&'a self, request: &'a Request, _fresh: bool) -> Made<'a, Result<Answer, Trouble>> {
        Box::pin(async move { self.answered(request) })
    }

    fn follow<'a>(&'a self, request: &'a Request) -> Made<'a, Result<Opened, Trouble>> {
        Box::pin(async move { self.answered(request).map(Opened::Refused) })
    }
}

fn answer(status: u16, body: &Value) -> Answer {
    let body = if status == 204 { Bytes::new() } else { body.to_string().into() };
    Answer { status, headers: HeaderMap::new(), body }
}

/// Fails unless exactly one mail that fits went out. With an empty `like`, exactly one mail at all.
///
/// # Panics
///
/// If there is none or more than one; the message lists what went out.
#[track_caller]
#[expect(clippy::panic, reason = "this is how a test fails")]
pub fn expect_sent_once(double: &Double, like: &Like) {
    let mails = double.mails();
    let found = mails.iter().filter(|mail| like.fits(mail)).count();
    if found == 1 {
        return;
    }
    let said: Vec<String> = mails.iter().map(Gone::line).collect();
    let calls = double.calls();
    panic!("{found} mails went out, wanted 1; {calls} calls came, and these went out:\n{}", said.join("\n"));
}

impl Like {
    fn fits(&self, mail: &Gone) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|one| found == Some(one));
        let intent = |name: &str| mail.body["intent"][name].as_str();
        is(&self.key, mail.key.as_deref())
            && is(&self.reply_to_message, mail.reply_to_message.as_deref())
            && is(&self.kind, intent("type"))
            && is(&self.entity, intent("entity"))
            && self.to.as_deref().is_none_or(|to| mail.to().contains(&to))
    }
}

impl Gone {
    /// Whom it is for.
    pub fn to(&self) -> Vec<&str> {
        crate::double::texts(&self.body["to"])
    }

    fn line(&self) -> String {
        let key = self.key.as_deref().unwrap_or("no key");
        format!("  {key}: {} to {}", self.body["subject"].as_str().unwrap_or_default(), self.to().join(", "))
    }
}
