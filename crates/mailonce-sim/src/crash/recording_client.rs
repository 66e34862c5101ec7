//! Callers: they ask, and whatever they asked and were told becomes a line of the history at once.

use crate::crash::inbox_snapshot::InboundRecord;
use crate::crash::operations::RepeatableCall;
use crate::harness::http::{self, HttpReply};
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

/// A team, and the credential that speaks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamCredential {
    /// Its name in the history.
    pub name: String,
    /// Its API key.
    pub credential: String,
}

/// A call.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiCall {
    /// What it asks for.
    pub verb: CallKind,
    /// Where.
    pub path: String,
    /// Its key.
    pub key: Option<String>,
    /// Whether the key is only the history's: a message is the key of its answer, and the first words win.
    pub key_is_implied: bool,
    /// The email it is about.
    pub about: Option<String>,
    /// Its JSON; without it is a `GET`.
    pub body: Option<Value>,
    /// The emails that it asks for.
    pub expected_emails: Vec<ExpectedEmail>,
    /// Codes with which it may be refused.
    pub allowed_errors: &'static [&'static str],
}

/// Everything that was asked, in memory and in a file.
#[derive(Debug)]
pub struct RecordingClient {
    history: Mutex<History>,
    history_file: Mutex<File>,
    mail_file: Mutex<File>,
    /// Connections on which somebody waits.
    open_connections: Mutex<Vec<TcpStream>>,
    /// Whether nobody is to wait.
    is_hung_up: AtomicBool,
}

fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RecordingClient {
    /// A client with an empty history, which it writes into a folder.
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

    /// Somebody waits on a connection.
    pub(super) fn track_connection(&self, stream: &TcpStream) {
        lock(&self.open_connections).extend(stream.try_clone());
        if self.is_hung_up.load(Ordering::SeqCst) {
            self.drop_connections();
        }
    }

    /// Lets callers wait for answers again.
    pub(super) fn accept_calls(&self) {
        self.is_hung_up.store(false, Ordering::SeqCst);
    }

    /// Notes that a mail is brought to each of its inboxes, and under which numbers.
    pub(super) fn begin_deliveries(&self, tries: Vec<DeliveryTry>) -> Range<usize> {
        let brought = &mut self.history().inbound.brought;
        let first = brought.len();
        brought.extend(tries.into_iter().map(|one| DeliveryTry { at: now_us(), ..one }));
        first..brought.len()
    }

    /// Notes what its sender was told.
    pub(super) fn end_deliveries(&self, tries: Range<usize>, acknowledged: bool) {
        for place in tries {
            let mut history = self.history();
            let Some(one) = history.inbound.brought.get_mut(place) else { continue };
            (one.ended, one.acknowledged) = (Some(now_us()), acknowledged);
            let line = json!(InboundRecord::Brought(one.clone()));
            drop(history);
            append_line(&self.mail_file, &line);
        }
    }

    /// Notes that somebody wants a code, and under which number.
    pub(super) fn begin_consume(&self, take: ConsumeTry) -> usize {
        let takes = &mut self.history().inbound.takes;
        takes.push(ConsumeTry { at: now_us(), ..take });
        takes.len() - 1
    }

    /// Notes what came of it.
    pub(super) fn end_consume(&self, place: usize, got: Option<ConsumedCode>, refused: String) {
        let mut history = self.history();
        let Some(take) = history.inbound.takes.get_mut(place) else { return };
        (take.ended, take.got, take.refused) = (Some(now_us()), got, refused);
        let line = json!(InboundRecord::Take(take.clone()));
        drop(history);
        append_line(&self.mail_file, &line);
    }

    /// What senders brought and agents took.
    pub(super) fn inbound_records(&self) -> Vec<InboundRecord> {
        let inbound = self.history().inbound.clone();
        let brought = inbound.brought.into_iter().map(InboundRecord::Brought);
        brought.chain(inbound.takes.into_iter().map(InboundRecord::Take)).collect()
    }

    /// The history so far.
    pub fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Asks. `None` when nobody listened, so that nothing was asked; else the answer, if one came.
    pub fn send(&self, at: SocketAddr, team: &TeamCredential, ask: &ApiCall) -> Option<Option<HttpReply>> {
        let mut stream = http::connect(at).ok()?;
        self.track_connection(&stream);
        let call = self.history().begin_call(begin_call(team, ask));
        let reply = http::exchange_on(&mut stream, &request(at, team, ask)).ok();
        let end = reply.as_ref().map_or(CallOutcome::Info, |reply| classify_reply(ask, reply));
        self.record_outcome(call, end);
        Some(reply)
    }

    /// Notes that a key may be forgotten any time from now on, by its own wish.
    pub fn record_key_expiry(&self, team: &TeamCredential, wish: &RepeatableCall) {
        let ask = ApiCall { verb: CallKind::Forget, expected_emails: Vec::new(), ..wish.call.clone() };
        let call = self.history().begin_call(begin_call(team, &ask));
        self.record_outcome(call, CallOutcome::Info);
    }

    fn record_outcome(&self, call: usize, end: CallOutcome) {
        let mut history = self.history();
        history.end_call(call, now_us(), end);
        let line = history.calls.get(call).map(|call| json!(call)).unwrap_or_default();
        drop(history);
        append_line(&self.history_file, &line);
    }

    /// Lets everybody go who still waits for an answer, or begins to before somebody picks up again.
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

/// A call that begins now.
fn begin_call(team: &TeamCredential, ask: &ApiCall) -> CallRecord {
    CallRecord {
        at: now_us(),
        ended: None,
        team: team.name.clone(),
        verb: ask.verb,
        key: ask.key.clone(),
        about: ask.about.clone(),
        wanted: ask.expected_emails.clone(),
        forgives: ask.key_is_implied,
        may_fail: ask.allowed_errors.iter().map(ToString::to_string).collect(),
        // What belongs to somebody else is not there.
        must_fail: ask.allowed_errors.contains(&"not_found"),
        end: CallOutcome::Info,
    }
}

fn request(at: SocketAddr, team: &TeamCredential, ask: &ApiCall) -> Vec<u8> {
    let method = if ask.body.is_some() { "POST" } else { "GET" };
    let key = ask
        .key
        .as_ref()
        .filter(|_| !ask.key_is_implied)
        .map(|key| format!("Idempotency-Key: {key}\r\n"))
        .unwrap_or_default();
    let body = ask.body.as_ref().map(Value::to_string).unwrap_or_default();
    format!(
        "{method} {} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {}\r\n{key}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        ask.path,
        team.credential,
        body.len()
    )
    .into_bytes()
}

/// What an answer means. One that says less than it must is a refusal with a word of our own.
fn classify_reply(ask: &ApiCall, reply: &HttpReply) -> CallOutcome {
    if !matches!(reply.status, 200..=202) {
        let code = reply.body["code"].as_str().unwrap_or("no_code").to_owned();
        return CallOutcome::Fail { status: reply.status, code };
    }
    let ids: Vec<String> = match reply.body["data"].as_array() {
        Some(rows) => rows.iter().filter_map(|row| row["id"].as_str()).map(str::to_owned).collect(),
        None => reply.body["id"].as_str().map(str::to_owned).into_iter().collect(),
    };
    if !ask.expected_emails.is_empty() && ids.len() != ask.expected_emails.len() {
        return CallOutcome::Fail { status: reply.status, code: "answer_without_all_ids".to_owned() };
    }
    CallOutcome::Ok { first: reply.status == 202, ids }
}
