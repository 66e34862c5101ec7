//! Small servers of the dialects: one that keeps its contract, and ones that break it in one way each.

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Mailonce,
    Resend,
    Usesend,
    Agentmail,
}

impl Speaks {
    pub(crate) const ALL: [Self; 4] = [Self::Mailonce, Self::Resend, Self::Usesend, Self::Agentmail];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Mailonce => "mailonce",
            Self::Resend => "resend",
            Self::Usesend => "usesend",
            Self::Agentmail => "agentmail",
        }
    }
}

/// How a server breaks its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Turns the first requests away, as the dialects allow.
    Limits,
    /// Every request is the first.
    Forgets,
    /// A refused request keeps its key.
    BindsRefusals,
    /// Callers at the same moment are all sent, and all told the first id.
    SendsTwiceInARace,
    /// Callers at the same moment get ids of their own.
    TwoIdsInARace,
    /// Another body under the key is sent and answered like the first.
    AnswersTheSecondBody,
    /// The key is in use from the head on, and stays so when the rest does not come.
    BindsTheHead,
    /// A mail is sent, and remembered only when the caller read the answer.
    RemembersAfterTheAnswer,
    /// Batches are not remembered.
    ForgetsBatches,
    /// Batches answer with the same ids in another order.
    TurnsBatches,
    /// Batches and single mails have keys of their own.
    KeysByRoute,
    /// A key may have any length.
    AnyKey,
    /// Everything is the same mail.
    OneForAll,
    /// Keys are compared with their quotes.
    KeepsQuotes,
    /// Nothing is sent.
    SendsNothing,
}

struct Bound {
    route: String,
    body: Value,
    ids: Vec<String>,
}

/// A running server.
pub(crate) struct Fake {
    speaks: Speaks,
    flaw: Flaw,
    sink: Option<SocketAddr>,
    keys: Mutex<HashMap<String, Option<Bound>>>,
    count: AtomicU32,
    address: SocketAddr,
}

pub(crate) const FAKE_KEY: &str = "a-key-that-counts";

impl Fake {
    pub(crate) async fn start(speaks: Speaks, flaw: Flaw, sink: Option<SocketAddr>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Arc::new(Self { speaks, flaw, sink, keys: Mutex::default(), count: AtomicU32::default(), address });
        let router = Router::new().fallback(serve).with_state(Arc::clone(&fake));
        tokio::spawn(async move { axum::serve(listener, router).await });
        fake
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn knows(&self, path: &str) -> bool {
        match self.speaks {
            Speaks::Mailonce => matches!(path, "/v1/emails" | "/v1/emails/batch"),
            Speaks::Resend => matches!(path, "/emails" | "/emails/batch"),
            Speaks::Usesend => matches!(path, "/api/v1/emails" | "/api/v1/emails/batch"),
            Speaks::Agentmail => path == "/v0/inboxes/a%40x.test/messages/send",
        }
    }

    /// The dialect's words for what went wrong.
    fn refuse(&self, what: What) -> Response {
        let (status, name, message) = match (self.speaks, what) {
            (Speaks::Mailonce, What::OtherBody) => (422, "key_mismatch", ""),
            (Speaks::Mailonce, What::BadKey) => (400, "invalid_key", ""),
            (Speaks::Mailonce, What::Invalid) => (422, "invalid_field", ""),
            (Speaks::Resend, What::OtherBody) => (409, "invalid_idempotent_request", ""),
            (Speaks::Resend, What::InFlight) => (409, "concurrent_idempotent_requests", ""),
            (Speaks::Resend, What::BadKey) => (400, "invalid_idempotency_key", ""),
            (Speaks::Resend, What::Invalid) => (422, "missing_required_field", ""),
            (Speaks::Usesend, What::OtherBody) => {
                (409, "NOT_UNIQUE", "Idempotency-Key already used with a different payload")
            }
            (Speaks::Usesend, What::InFlight) => {
                (409, "NOT_UNIQUE", "Request with same Idempotency-Key is in progress. Retry later.")
            }
            (Speaks::Usesend, What::BadKey) => (400, "BAD_REQUEST", "Invalid Idempotency-Key length"),
            (Speaks::Usesend, What::Invalid) => (400, "BAD_REQUEST", "No recipients"),
            (Speaks::Agentmail, What::OtherBody | What::InFlight) => (409, "IsTakenError", ""),
            (Speaks::Agentmail, _) => (400, "ValidationError", ""),
            (_, What::Limited) => (429, "rate_limit_exceeded", ""),
            (_, What::Unauthorized) => (401, "unauthorized", ""),
            (_, What::NotFound) => (404, "not_found", ""),
            (Speaks::Mailonce, What::InFlight) => (409, "busy", ""),
        };
        let body = match self.speaks {
            Speaks::Mailonce => json!({ "code": name, "status": status }),
            Speaks::Resend => json!({ "statusCode": status, "name": name, "message": message }),
            Speaks::Usesend => json!({ "error": { "code": name, "message": message } }),
            Speaks::Agentmail => json!({ "name": name, "message": message }),
        };
        (StatusCode::from_u16(status).unwrap(), [("retry-after", "1")], body.to_string()).into_response()
    }

    fn taken(&self, ids: &[String], batch: bool, replayed: bool) -> Response {
        let one = |id: &String| match self.speaks {
            Speaks::Mailonce | Speaks::Resend => json!({ "id": id }),
            Speaks::Usesend => json!({ "emailId": id }),
            Speaks::Agentmail => json!({ "message_id": id, "thread_id": "t" }),
        };
        let body = if batch { json!({ "data": ids.iter().map(one).collect::<Vec<_>>() }) } else { one(&ids[0]) };
        match (self.speaks, replayed) {
            (Speaks::Mailonce, true) => ([("idempotent-replayed", "true")], body.to_string()).into_response(),
            (Speaks::Mailonce, false) => (StatusCode::ACCEPTED, body.to_string()).into_response(),
            _ => body.to_string().into_response(),
        }
    }

    /// Whether a key has a fit length, by the dialect.
    fn fits(&self, key: &str) -> bool {
        self.speaks == Speaks::Agentmail || self.flaw == Flaw::AnyKey || (1..=256).contains(&key.len())
    }

    /// Puts a key into use, unless it is in use already.
    fn reserve(&self, key: &str) -> bool {
        let mut keys = self.keys.lock().unwrap();
        let free = !matches!(keys.get(key), Some(None));
        keys.entry(key.to_owned()).or_insert(None);
        free
    }

    /// Sends what a request holds, and gives it ids.
    async fn send(&self, body: &Value) -> Vec<String> {
        let one = std::slice::from_ref(body);
        let mut ids = Vec::new();
        for mail in body.as_array().map_or(one, Vec::as_slice) {
            if let (Some(sink), true) = (self.sink, self.flaw != Flaw::SendsNothing) {
                hand_over(sink, mail).await;
            }
            let id = if self.flaw == Flaw::OneForAll { 0 } else { self.count.fetch_add(1, Ordering::SeqCst) };
            ids.push(format!("id-{id}"));
        }
        ids
    }
}

#[derive(Clone, Copy)]
enum What {
    OtherBody,
    InFlight,
    BadKey,
    Invalid,
    Limited,
    Unauthorized,
    NotFound,
}

/// Tells that nobody waits for the answer any more.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

async fn serve(State(fake): State<Arc<Fake>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    if header("authorization") != Some(format!("Bearer {FAKE_KEY}")) {
        return fake.refuse(What::Unauthorized);
    }
    if !fake.knows(head.uri.path()) {
        return fake.refuse(What::NotFound);
    }
    if fake.flaw == Flaw::Limits && fake.count.fetch_add(1, Ordering::SeqCst) < 3 {
        return fake.refuse(What::Limited);
    }
    let mut key = header("idempotency-key");
    if fake.speaks == Speaks::Mailonce && fake.flaw != Flaw::KeepsQuotes {
        key = key.map(|key| key.trim_matches('"').to_owned());
    }
    if key.as_deref().is_some_and(|key| !fake.fits(key)) {
        return fake.refuse(What::BadKey);
    }
    let reserved = key.clone().filter(|_| fake.flaw == Flaw::BindsTheHead);
    if let Some(key) = &reserved
        && !fake.reserve(key)
    {
        return fake.refuse(What::InFlight);
    }
    let Some(body) = read(body).await else { return fake.refuse(What::Invalid) };
    if let Some(key) = &reserved {
        fake.keys.lock().unwrap().retain(|known, bound| known != key || bound.is_some());
    }
    let route = head.uri.path().to_owned();
    if fake.flaw == Flaw::KeysByRoute {
        key = key.map(|key| format!("{key} {route}"));
    }
    // The work goes on when the caller hangs up; whether it waits still is known all the same.
    let waits = Arc::new(AtomicBool::new(true));
    let waiting = Waiting(Arc::clone(&waits));
    let answer = tokio::spawn(async move { work(&fake, key, route, body, &waits).await }).await.unwrap();
    drop(waiting);
    answer
}

async fn read(body: Body) -> Option<Value> {
    let bytes: Bytes = to_bytes(body, 1 << 20).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

async fn work(fake: &Fake, key: Option<String>, route: String, body: Value, waits: &AtomicBool) -> Response {
    let batch = body.is_array();
    let remembers = fake.flaw != Flaw::Forgets && !(batch && fake.flaw == Flaw::ForgetsBatches);
    let key = key.filter(|_| remembers);
    let valid = batch || body["text"].is_string();
    if let Some(key) = &key {
        let mut waited = 0;
        loop {
            match look(fake, key, &route, &body, valid) {
                Look::Answer(answer) => return answer,
                Look::Second(ids) => {
                    fake.send(&body).await;
                    return fake.taken(&ids, batch, true);
                }
                Look::First => break,
                // Only mailonce lets a twin wait; the others say so.
                Look::Busy if matches!(fake.flaw, Flaw::SendsTwiceInARace | Flaw::TwoIdsInARace) => {
                    let ids = fake.send(&body).await;
                    if fake.flaw == Flaw::TwoIdsInARace {
                        return fake.taken(&ids, batch, false);
                    }
                    return wait_for(fake, key, batch).await;
                }
                Look::Busy if fake.speaks != Speaks::Mailonce => return fake.refuse(What::InFlight),
                Look::Busy if waited > 100 => return fake.refuse(What::InFlight),
                Look::Busy => waited += 1,
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    if !valid {
        return fake.refuse(What::Invalid);
    }
    let mut ids = fake.send(&body).await;
    // Long enough for twins to meet, and for callers to hang up.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let Some(key) = key else { return fake.taken(&ids, batch, false) };
    let mut keys = fake.keys.lock().unwrap();
    if fake.flaw == Flaw::RemembersAfterTheAnswer && !waits.load(Ordering::SeqCst) {
        keys.remove(&key);
    } else {
        keys.insert(key, Some(Bound { route, body, ids: ids.clone() }));
    }
    drop(keys);
    if fake.flaw == Flaw::TurnsBatches {
        ids.reverse();
    }
    fake.taken(&ids, batch, false)
}

enum Look {
    First,
    Busy,
    Answer(Response),
    Second(Vec<String>),
}

/// What a key says about a request. A new one is in use from here on.
fn look(fake: &Fake, key: &str, route: &str, body: &Value, valid: bool) -> Look {
    let mut keys = fake.keys.lock().unwrap();
    match keys.get(key) {
        Some(Some(bound)) if bound.route == route && bound.body == *body => {
            if bound.ids.is_empty() {
                return Look::Answer(fake.refuse(What::Invalid));
            }
            Look::Answer(fake.taken(&bound.ids, body.is_array(), true))
        }
        Some(Some(bound)) if fake.flaw == Flaw::AnswersTheSecondBody => Look::Second(bound.ids.clone()),
        Some(Some(_)) => Look::Answer(fake.refuse(What::OtherBody)),
        Some(None) => Look::Busy,
        None if valid => {
            keys.insert(key.to_owned(), None);
            Look::First
        }
        None if fake.flaw == Flaw::BindsRefusals => {
            let bound = Bound { route: route.to_owned(), body: body.clone(), ids: Vec::new() };
            keys.insert(key.to_owned(), Some(bound));
            Look::Answer(fake.refuse(What::Invalid))
        }
        None => Look::First,
    }
}

/// The first one's answer, once it has one.
async fn wait_for(fake: &Fake, key: &str, batch: bool) -> Response {
    loop {
        if let Some(Some(bound)) = fake.keys.lock().unwrap().get(key) {
            return fake.taken(&bound.ids, batch, true);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Hands a mail to the sink by SMTP.
async fn hand_over(sink: SocketAddr, mail: &Value) {
    let stream = TcpStream::connect(sink).await.unwrap();
    let mut stream = BufReader::new(stream);
    let subject = mail["subject"].as_str().unwrap_or_default();
    let letter = format!("Subject: {subject}\r\n\r\n{}\r\n.\r\n", mail["text"].as_str().unwrap_or_default());
    let lines = ["", "HELO fake\r\n", "MAIL FROM:<a@x.test>\r\n", "RCPT TO:<b@x.test>\r\n", "DATA\r\n", &letter];
    for said in lines {
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).await.unwrap();
        assert!(answer.starts_with('2') || answer.starts_with('3'), "{answer}");
    }
}
