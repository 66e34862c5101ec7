//! Fake servers of the dialects: one that keeps its contract, and others that break it in one point each.

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

/// The dialect of a fake server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FakeDialect {
    Mailonce,
    Resend,
    Usesend,
    Agentmail,
}

impl FakeDialect {
    pub(crate) const ALL: [Self; 4] = [Self::Mailonce, Self::Resend, Self::Usesend, Self::Agentmail];

    pub(crate) fn as_str(self) -> &'static str {
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
pub(crate) enum ContractFlaw {
    None,
    /// Rate-limits the first requests, as the dialects allow.
    RateLimitsFirstRequests,
    /// Treats every request as the first.
    ForgetsKeys,
    /// A refused request keeps its key.
    RefusalKeepsKey,
    /// Sends a mail for each concurrent request and answers all with the first id.
    SendsTwiceInARace,
    /// Gives each concurrent request its own id.
    TwoIdsInARace,
    /// Sends a different body under the same key and answers with the first id.
    AcceptsDifferentBody,
    /// Reserves the key when the headers arrive and keeps it reserved when the body never comes.
    ReservesKeyOnHeaders,
    /// Sends the mail and records the key only if the caller is still connected.
    RecordsAfterResponse,
    /// Forgets the keys of batches.
    ForgetsBatchKeys,
    /// Replays the ids of a batch in another order.
    ReversesBatchIds,
    /// Keeps separate keys for batches and single mails.
    KeysPerRoute,
    /// Accepts keys of any length.
    AcceptsAnyKeyLength,
    /// Answers every request with the same id.
    SameIdForEverything,
    /// Compares keys with their quotes.
    KeepsKeyQuotes,
    /// Sends nothing.
    SendsNothing,
}

struct FakeKeyBinding {
    route: String,
    body: Value,
    ids: Vec<String>,
}

/// A running fake server.
pub(crate) struct FakeDialectServer {
    dialect: FakeDialect,
    flaw: ContractFlaw,
    sink: Option<SocketAddr>,
    keys: Mutex<HashMap<String, Option<FakeKeyBinding>>>,
    count: AtomicU32,
    address: SocketAddr,
}

pub(crate) const FAKE_API_KEY: &str = "a-key-that-counts";

impl FakeDialectServer {
    pub(crate) async fn start(dialect: FakeDialect, flaw: ContractFlaw, sink: Option<SocketAddr>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Arc::new(Self { dialect, flaw, sink, keys: Mutex::default(), count: AtomicU32::default(), address });
        let router = Router::new().fallback(handle_request).with_state(Arc::clone(&fake));
        tokio::spawn(async move { axum::serve(listener, router).await });
        fake
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn serves_path(&self, path: &str) -> bool {
        match self.dialect {
            FakeDialect::Mailonce => matches!(path, "/v1/emails" | "/v1/emails/batch"),
            FakeDialect::Resend => matches!(path, "/emails" | "/emails/batch"),
            FakeDialect::Usesend => matches!(path, "/api/v1/emails" | "/api/v1/emails/batch"),
            FakeDialect::Agentmail => path == "/v0/inboxes/a%40x.test/messages/send",
        }
    }

    /// An error response in the format of the dialect.
    fn refusal_response(&self, kind: RefusalKind) -> Response {
        let (status, name, message) = match (self.dialect, kind) {
            (FakeDialect::Mailonce, RefusalKind::KeyMismatch) => (422, "key_mismatch", ""),
            (FakeDialect::Mailonce, RefusalKind::InvalidKey) => (400, "invalid_key", ""),
            (FakeDialect::Mailonce, RefusalKind::InvalidBody) => (422, "invalid_field", ""),
            (FakeDialect::Resend, RefusalKind::KeyMismatch) => (409, "invalid_idempotent_request", ""),
            (FakeDialect::Resend, RefusalKind::InFlight) => (409, "concurrent_idempotent_requests", ""),
            (FakeDialect::Resend, RefusalKind::InvalidKey) => (400, "invalid_idempotency_key", ""),
            (FakeDialect::Resend, RefusalKind::InvalidBody) => (422, "missing_required_field", ""),
            (FakeDialect::Usesend, RefusalKind::KeyMismatch) => {
                (409, "NOT_UNIQUE", "Idempotency-Key already used with a different payload")
            }
            (FakeDialect::Usesend, RefusalKind::InFlight) => {
                (409, "NOT_UNIQUE", "Request with same Idempotency-Key is in progress. Retry later.")
            }
            (FakeDialect::Usesend, RefusalKind::InvalidKey) => (400, "BAD_REQUEST", "Invalid Idempotency-Key length"),
            (FakeDialect::Usesend, RefusalKind::InvalidBody) => (400, "BAD_REQUEST", "No recipients"),
            (FakeDialect::Agentmail, RefusalKind::KeyMismatch | RefusalKind::InFlight) => (409, "IsTakenError", ""),
            (FakeDialect::Agentmail, _) => (400, "ValidationError", ""),
            (_, RefusalKind::RateLimited) => (429, "rate_limit_exceeded", ""),
            (_, RefusalKind::Unauthorized) => (401, "unauthorized", ""),
            (_, RefusalKind::NotFound) => (404, "not_found", ""),
            (FakeDialect::Mailonce, RefusalKind::InFlight) => (409, "busy", ""),
        };
        let body = match self.dialect {
            FakeDialect::Mailonce => json!({ "code": name, "status": status }),
            FakeDialect::Resend => json!({ "statusCode": status, "name": name, "message": message }),
            FakeDialect::Usesend => json!({ "error": { "code": name, "message": message } }),
            FakeDialect::Agentmail => json!({ "name": name, "message": message }),
        };
        (StatusCode::from_u16(status).unwrap(), [("retry-after", "1")], body.to_string()).into_response()
    }

    fn accepted_response(&self, ids: &[String], batch: bool, replayed: bool) -> Response {
        let one = |id: &String| match self.dialect {
            FakeDialect::Mailonce | FakeDialect::Resend => json!({ "id": id }),
            FakeDialect::Usesend => json!({ "emailId": id }),
            FakeDialect::Agentmail => json!({ "message_id": id, "thread_id": "t" }),
        };
        let body = if batch { json!({ "data": ids.iter().map(one).collect::<Vec<_>>() }) } else { one(&ids[0]) };
        match (self.dialect, replayed) {
            (FakeDialect::Mailonce, true) => ([("idempotent-replayed", "true")], body.to_string()).into_response(),
            (FakeDialect::Mailonce, false) => (StatusCode::ACCEPTED, body.to_string()).into_response(),
            _ => body.to_string().into_response(),
        }
    }

    /// Whether the dialect allows a key of this length.
    fn is_key_length_valid(&self, key: &str) -> bool {
        self.dialect == FakeDialect::Agentmail
            || self.flaw == ContractFlaw::AcceptsAnyKeyLength
            || (1..=256).contains(&key.len())
    }

    /// Reserves a key. Returns false when it is already reserved.
    fn reserve_key(&self, key: &str) -> bool {
        let mut keys = self.keys.lock().unwrap();
        let free = !matches!(keys.get(key), Some(None));
        keys.entry(key.to_owned()).or_insert(None);
        free
    }

    /// Sends the mails of a request and returns their ids.
    async fn send_mails(&self, body: &Value) -> Vec<String> {
        let one = std::slice::from_ref(body);
        let mut ids = Vec::new();
        for mail in body.as_array().map_or(one, Vec::as_slice) {
            if let (Some(sink), true) = (self.sink, self.flaw != ContractFlaw::SendsNothing) {
                deliver_to_sink(sink, mail).await;
            }
            let id = if self.flaw == ContractFlaw::SameIdForEverything {
                0
            } else {
                self.count.fetch_add(1, Ordering::SeqCst)
            };
            ids.push(format!("id-{id}"));
        }
        ids
    }
}

#[derive(Clone, Copy)]
enum RefusalKind {
    KeyMismatch,
    InFlight,
    InvalidKey,
    InvalidBody,
    RateLimited,
    Unauthorized,
    NotFound,
}

/// Clears its flag when the caller no longer waits for the response.
struct CallerWaitGuard(Arc<AtomicBool>);

impl Drop for CallerWaitGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

async fn handle_request(State(fake): State<Arc<FakeDialectServer>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    if header("authorization") != Some(format!("Bearer {FAKE_API_KEY}")) {
        return fake.refusal_response(RefusalKind::Unauthorized);
    }
    if !fake.serves_path(head.uri.path()) {
        return fake.refusal_response(RefusalKind::NotFound);
    }
    if fake.flaw == ContractFlaw::RateLimitsFirstRequests && fake.count.fetch_add(1, Ordering::SeqCst) < 3 {
        return fake.refusal_response(RefusalKind::RateLimited);
    }
    let mut key = header("idempotency-key");
    if fake.dialect == FakeDialect::Mailonce && fake.flaw != ContractFlaw::KeepsKeyQuotes {
        key = key.map(|key| key.trim_matches('"').to_owned());
    }
    if key.as_deref().is_some_and(|key| !fake.is_key_length_valid(key)) {
        return fake.refusal_response(RefusalKind::InvalidKey);
    }
    let reserved = key.clone().filter(|_| fake.flaw == ContractFlaw::ReservesKeyOnHeaders);
    if let Some(key) = &reserved
        && !fake.reserve_key(key)
    {
        return fake.refusal_response(RefusalKind::InFlight);
    }
    let Some(body) = read_json(body).await else { return fake.refusal_response(RefusalKind::InvalidBody) };
    if let Some(key) = &reserved {
        fake.keys.lock().unwrap().retain(|known, bound| known != key || bound.is_some());
    }
    let route = head.uri.path().to_owned();
    if fake.flaw == ContractFlaw::KeysPerRoute {
        key = key.map(|key| format!("{key} {route}"));
    }
    // The request is processed even when the caller disconnects. The flag tells whether it is still connected.
    let caller_waits = Arc::new(AtomicBool::new(true));
    let wait_guard = CallerWaitGuard(Arc::clone(&caller_waits));
    let response =
        tokio::spawn(async move { process_request(&fake, key, route, body, &caller_waits).await }).await.unwrap();
    drop(wait_guard);
    response
}

async fn read_json(body: Body) -> Option<Value> {
    let bytes: Bytes = to_bytes(body, 1 << 20).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

async fn process_request(
    fake: &FakeDialectServer,
    key: Option<String>,
    route: String,
    body: Value,
    caller_waits: &AtomicBool,
) -> Response {
    let batch = body.is_array();
    let remembers = fake.flaw != ContractFlaw::ForgetsKeys && !(batch && fake.flaw == ContractFlaw::ForgetsBatchKeys);
    let key = key.filter(|_| remembers);
    let valid = batch || body["text"].is_string();
    if let Some(key) = &key {
        let mut waited = 0;
        loop {
            match look_up_key(fake, key, &route, &body, valid) {
                KeyLookup::Respond(response) => return response,
                KeyLookup::SecondBody(ids) => {
                    fake.send_mails(&body).await;
                    return fake.accepted_response(&ids, batch, true);
                }
                KeyLookup::First => break,
                // Only mailonce lets a concurrent duplicate wait. The other dialects refuse it.
                KeyLookup::InFlight
                    if matches!(fake.flaw, ContractFlaw::SendsTwiceInARace | ContractFlaw::TwoIdsInARace) =>
                {
                    let ids = fake.send_mails(&body).await;
                    if fake.flaw == ContractFlaw::TwoIdsInARace {
                        return fake.accepted_response(&ids, batch, false);
                    }
                    return wait_for_first_response(fake, key, batch).await;
                }
                KeyLookup::InFlight if fake.dialect != FakeDialect::Mailonce => {
                    return fake.refusal_response(RefusalKind::InFlight);
                }
                KeyLookup::InFlight if waited > 100 => return fake.refusal_response(RefusalKind::InFlight),
                KeyLookup::InFlight => waited += 1,
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    if !valid {
        return fake.refusal_response(RefusalKind::InvalidBody);
    }
    let mut ids = fake.send_mails(&body).await;
    // Long enough for concurrent duplicates to meet and for callers to disconnect.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let Some(key) = key else { return fake.accepted_response(&ids, batch, false) };
    let mut keys = fake.keys.lock().unwrap();
    if fake.flaw == ContractFlaw::RecordsAfterResponse && !caller_waits.load(Ordering::SeqCst) {
        keys.remove(&key);
    } else {
        keys.insert(key, Some(FakeKeyBinding { route, body, ids: ids.clone() }));
    }
    drop(keys);
    if fake.flaw == ContractFlaw::ReversesBatchIds {
        ids.reverse();
    }
    fake.accepted_response(&ids, batch, false)
}

enum KeyLookup {
    First,
    InFlight,
    Respond(Response),
    SecondBody(Vec<String>),
}

/// Looks up the key of a request. A new key of a valid request is reserved from here on.
fn look_up_key(fake: &FakeDialectServer, key: &str, route: &str, body: &Value, valid: bool) -> KeyLookup {
    let mut keys = fake.keys.lock().unwrap();
    match keys.get(key) {
        Some(Some(bound)) if bound.route == route && bound.body == *body => {
            if bound.ids.is_empty() {
                return KeyLookup::Respond(fake.refusal_response(RefusalKind::InvalidBody));
            }
            KeyLookup::Respond(fake.accepted_response(&bound.ids, body.is_array(), true))
        }
        Some(Some(bound)) if fake.flaw == ContractFlaw::AcceptsDifferentBody => {
            KeyLookup::SecondBody(bound.ids.clone())
        }
        Some(Some(_)) => KeyLookup::Respond(fake.refusal_response(RefusalKind::KeyMismatch)),
        Some(None) => KeyLookup::InFlight,
        None if valid => {
            keys.insert(key.to_owned(), None);
            KeyLookup::First
        }
        None if fake.flaw == ContractFlaw::RefusalKeepsKey => {
            let bound = FakeKeyBinding { route: route.to_owned(), body: body.clone(), ids: Vec::new() };
            keys.insert(key.to_owned(), Some(bound));
            KeyLookup::Respond(fake.refusal_response(RefusalKind::InvalidBody))
        }
        None => KeyLookup::First,
    }
}

/// Waits for the response to the first request and returns it.
async fn wait_for_first_response(fake: &FakeDialectServer, key: &str, batch: bool) -> Response {
    loop {
        if let Some(Some(bound)) = fake.keys.lock().unwrap().get(key) {
            return fake.accepted_response(&bound.ids, batch, true);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Delivers a mail to the sink by SMTP.
async fn deliver_to_sink(sink: SocketAddr, mail: &Value) {
    let stream = TcpStream::connect(sink).await.unwrap();
    let mut stream = BufReader::new(stream);
    let subject = mail["subject"].as_str().unwrap_or_default();
    let data = format!("Subject: {subject}\r\n\r\n{}\r\n.\r\n", mail["text"].as_str().unwrap_or_default());
    let lines = ["", "HELO fake\r\n", "MAIL FROM:<a@x.test>\r\n", "RCPT TO:<b@x.test>\r\n", "DATA\r\n", &data];
    for line in lines {
        stream.write_all(line.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_line(&mut response).await.unwrap();
        assert!(response.starts_with('2') || response.starts_with('3'), "{response}");
    }
}
