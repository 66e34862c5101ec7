//! A client that records each call and its reply in the history.

use crate::crash::inbox_snapshot::InboundRecord;
use crate::crash::operations::RepeatableCall;
use crate::harness::http::{self, HttpReply};
use crate::harness::send_history::classify_reply;
use crate::proof::history::{
    CallKind, CallOutcome, CallRecord, ConsumeTry, ConsumedCode, DeliveryTry, ExpectedEmail, History,
};
use crate::sink::oracle::sink_log::now_us;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A team and its API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamCredential {
    /// Its name in the history.
    pub name: String,
    /// Its API key.
    pub credential: String,
}

/// A call of the API.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiCall {
    /// The operation.
    pub verb: CallKind,
    /// The path.
    pub path: String,
    /// Its idempotency key.
    pub key: Option<String>,
    /// Whether the key is used in the history only: a message identifies its reply, and the first reply wins.
    pub key_is_implied: bool,
    /// The email it is about.
    pub about: Option<String>,
    /// The JSON body; a call without one is a `GET`.
    pub body: Option<Value>,
    /// The emails that it should create.
    pub expected_emails: Vec<ExpectedEmail>,
    /// Error codes that are allowed.
    pub allowed_errors: &'static [&'static str],
}

/// A client whose history is kept in memory and in files.
#[derive(Debug)]
pub struct RecordingClient {
    history: Mutex<History>,
    history_file: Mutex<File>,
    mail_file: Mutex<File>,
    /// Connections that wait for a reply.
    open_connections: Mutex<Vec<TcpStream>>,
    /// Whether connections are closed at once.
    is_hung_up: AtomicBool,
}

fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RecordingClient {
    /// A client with an empty history, which writes its files to a folder.
    pub fn new(folder: &Path) -> Result<Self> {
        let create = |name: &str| {
            let file = folder.join(name);
            File::create(&file).map(Mutex::new).with_context(|| format!("cannot write {}", file.display()))
        };
        let (file, mail) = (create("history.jsonl")?, create("mail.jsonl")?);
        Ok(Self {
            history: Mutex::default(),
            history_file: file,
            mail_file: mail,
            open_connections: Mutex::default(),
            is_hung_up: AtomicBool::new(false),
        })
    }

    /// Registers a connection, so that it can be closed while it waits for a reply.
    pub(super) fn track_connection(&self, stream: &TcpStream) {
        lock(&self.open_connections).extend(stream.try_clone());
        if self.is_hung_up.load(Ordering::SeqCst) {
            self.drop_connections();
        }
    }

    /// Lets calls wait for replies again.
    pub(super) fn accept_calls(&self) {
        self.is_hung_up.store(false, Ordering::SeqCst);
    }

    /// Records that a mail is delivered to each of its inboxes. Returns the indexes of the records.
    pub(super) fn begin_deliveries(&self, tries: Vec<DeliveryTry>) -> Range<usize> {
        let delivery_tries = &mut self.history().inbound.delivery_tries;
        let first = delivery_tries.len();
        delivery_tries.extend(tries.into_iter().map(|one| DeliveryTry { at: now_us(), ..one }));
        first..delivery_tries.len()
    }

    /// Records whether the delivery was acknowledged.
    pub(super) fn end_deliveries(&self, tries: Range<usize>, acknowledged: bool) {
        for index in tries {
            let mut history = self.history();
            let Some(one) = history.inbound.delivery_tries.get_mut(index) else { continue };
            (one.ended, one.acknowledged) = (Some(now_us()), acknowledged);
            let line = json!(InboundRecord::Delivery(one.clone()));
            drop(history);
            append_line(&self.mail_file, &line);
        }
    }

    /// Records the start of a consume call. Returns the index of the record.
    pub(super) fn begin_consume(&self, take: ConsumeTry) -> usize {
        let consume_tries = &mut self.history().inbound.consume_tries;
        consume_tries.push(ConsumeTry { at: now_us(), ..take });
        consume_tries.len() - 1
    }

    /// Records the result of a consume call.
    pub(super) fn end_consume(&self, index: usize, consumed: Option<ConsumedCode>, refused: String) {
        let mut history = self.history();
        let Some(take) = history.inbound.consume_tries.get_mut(index) else { return };
        (take.ended, take.consumed, take.refused) = (Some(now_us()), consumed, refused);
        let line = json!(InboundRecord::Consume(take.clone()));
        drop(history);
        append_line(&self.mail_file, &line);
    }

    /// The deliveries and consume calls so far.
    pub(super) fn inbound_records(&self) -> Vec<InboundRecord> {
        let inbound = self.history().inbound.clone();
        let delivery_tries = inbound.delivery_tries.into_iter().map(InboundRecord::Delivery);
        delivery_tries.chain(inbound.consume_tries.into_iter().map(InboundRecord::Consume)).collect()
    }

    /// The history so far.
    pub fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Sends a call. Returns `None` if no connection could be made, else the reply, if one arrived.
    pub fn send(&self, at: SocketAddr, team: &TeamCredential, call_spec: &ApiCall) -> Option<Option<HttpReply>> {
        let mut stream = http::connect(at).ok()?;
        self.track_connection(&stream);
        let call = self.history().begin_call(begin_call(team, call_spec));
        let reply = http::exchange_on(&mut stream, &request(at, team, call_spec)).ok();
        let end = reply.as_ref().map_or(CallOutcome::Info, |reply| {
            classify_reply(reply.status, &reply.body, call_spec.expected_emails.len())
        });
        self.record_outcome(call, end);
        Some(reply)
    }

    /// Records that a key with a short TTL may expire from now on.
    pub fn record_key_expiry(&self, team: &TeamCredential, send: &RepeatableCall) {
        let call_spec = ApiCall { verb: CallKind::Forget, expected_emails: Vec::new(), ..send.call.clone() };
        let call = self.history().begin_call(begin_call(team, &call_spec));
        self.record_outcome(call, CallOutcome::Info);
    }

    fn record_outcome(&self, call: usize, end: CallOutcome) {
        let mut history = self.history();
        history.end_call(call, now_us(), end);
        let line = history.calls.get(call).map(|call| json!(call)).unwrap_or_default();
        drop(history);
        append_line(&self.history_file, &line);
    }

    /// Closes every connection that waits for a reply, and new ones until [`Self::accept_calls`].
    pub fn drop_connections(&self) {
        self.is_hung_up.store(true, Ordering::SeqCst);
        for stream in lock(&self.open_connections).drain(..) {
            // It may be closed already.
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }
}

fn append_line(file: &Mutex<File>, line: &Value) {
    if let Err(why) = writeln!(lock(file), "{line}") {
        eprintln!("the history cannot be written: {why}");
    }
}

/// The record of a call that starts now.
fn begin_call(team: &TeamCredential, call_spec: &ApiCall) -> CallRecord {
    CallRecord {
        at: now_us(),
        ended: None,
        team: team.name.clone(),
        verb: call_spec.verb,
        key: call_spec.key.clone(),
        about: call_spec.about.clone(),
        wanted: call_spec.expected_emails.clone(),
        forgives: call_spec.key_is_implied,
        may_fail: call_spec.allowed_errors.iter().map(ToString::to_string).collect(),
        // Another team's email must not be found.
        must_fail: call_spec.allowed_errors.contains(&"not_found"),
        end: CallOutcome::Info,
    }
}

fn request(at: SocketAddr, team: &TeamCredential, call_spec: &ApiCall) -> Vec<u8> {
    let method = if call_spec.body.is_some() { "POST" } else { "GET" };
    let key = call_spec
        .key
        .as_ref()
        .filter(|_| !call_spec.key_is_implied)
        .map(|key| format!("Idempotency-Key: {key}\r\n"))
        .unwrap_or_default();
    let body = call_spec.body.as_ref().map(Value::to_string).unwrap_or_default();
    format!(
        "{method} {} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {}\r\n{key}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        call_spec.path,
        team.credential,
        body.len()
    )
    .into_bytes()
}
