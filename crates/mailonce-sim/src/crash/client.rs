//! Callers: they ask, and whatever they asked and were told becomes a line of the history at once.

use super::deed::Wish;
use super::inbound::MailDeed;
use crate::proof::history::{Brought, Call, End, Got, History, Take, Verb, Wanted};
use crate::rig::http::{self, Reply};
use crate::sink::oracle::journal::now_us;
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
pub struct Team {
    /// Its name in the history.
    pub name: String,
    /// Its API key.
    pub credential: String,
}

/// A call.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// What it asks for.
    pub verb: Verb,
    /// Where.
    pub path: String,
    /// Its key.
    pub key: Option<String>,
    /// Whether the key is only the history's: a message is the key of its answer, and the first words win.
    pub implied: bool,
    /// The email it is about.
    pub about: Option<String>,
    /// Its JSON; without it is a `GET`.
    pub body: Option<Value>,
    /// The emails that it asks for.
    pub wanted: Vec<Wanted>,
    /// Codes with which it may be refused.
    pub may_fail: &'static [&'static str],
}

/// Everything that was asked, in memory and in a file.
#[derive(Debug)]
pub struct Client {
    history: Mutex<History>,
    file: Mutex<File>,
    mail: Mutex<File>,
    /// Connections on which somebody waits.
    open: Mutex<Vec<TcpStream>>,
    /// Whether nobody is to wait.
    hung_up: AtomicBool,
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// A client with an empty history, which it writes into a folder.
    pub fn new(folder: &Path) -> Result<Self> {
        let create = |name: &str| {
            let file = folder.join(name);
            File::create(&file).map(Mutex::new).with_context(|| format!("cannot write {}", file.display()))
        };
        let (file, mail) = (create("history.jsonl")?, create("mail.jsonl")?);
        Ok(Self { history: Mutex::default(), file, mail, open: Mutex::default(), hung_up: AtomicBool::new(false) })
    }

    /// Somebody waits on a connection.
    pub(super) fn holds(&self, stream: &TcpStream) {
        held(&self.open).extend(stream.try_clone());
        if self.hung_up.load(Ordering::SeqCst) {
            self.hang_up();
        }
    }

    /// Lets callers wait for answers again.
    pub(super) fn pick_up(&self) {
        self.hung_up.store(false, Ordering::SeqCst);
    }

    /// Notes that a mail is brought to each of its inboxes, and under which numbers.
    pub(super) fn brings(&self, tries: Vec<Brought>) -> Range<usize> {
        let brought = &mut self.history().inbound.brought;
        let first = brought.len();
        brought.extend(tries.into_iter().map(|one| Brought { at: now_us(), ..one }));
        first..brought.len()
    }

    /// Notes what its sender was told.
    pub(super) fn brought(&self, tries: Range<usize>, acknowledged: bool) {
        for place in tries {
            let mut history = self.history();
            let Some(one) = history.inbound.brought.get_mut(place) else { continue };
            (one.ended, one.acknowledged) = (Some(now_us()), acknowledged);
            let line = json!(MailDeed::Brought(one.clone()));
            drop(history);
            write(&self.mail, &line);
        }
    }

    /// Notes that somebody wants a code, and under which number.
    pub(super) fn takes(&self, take: Take) -> usize {
        let takes = &mut self.history().inbound.takes;
        takes.push(Take { at: now_us(), ..take });
        takes.len() - 1
    }

    /// Notes what came of it.
    pub(super) fn took(&self, place: usize, got: Option<Got>, refused: String) {
        let mut history = self.history();
        let Some(take) = history.inbound.takes.get_mut(place) else { return };
        (take.ended, take.got, take.refused) = (Some(now_us()), got, refused);
        let line = json!(MailDeed::Take(take.clone()));
        drop(history);
        write(&self.mail, &line);
    }

    /// What senders brought and agents took.
    pub(super) fn mail(&self) -> Vec<MailDeed> {
        let inbound = self.history().inbound.clone();
        let brought = inbound.brought.into_iter().map(MailDeed::Brought);
        brought.chain(inbound.takes.into_iter().map(MailDeed::Take)).collect()
    }

    /// The history so far.
    pub fn history(&self) -> MutexGuard<'_, History> {
        held(&self.history)
    }

    /// Asks. `None` when nobody listened, so that nothing was asked; else the answer, if one came.
    pub fn ask(&self, at: SocketAddr, team: &Team, ask: &Ask) -> Option<Option<Reply>> {
        let mut stream = http::connect(at).ok()?;
        self.holds(&stream);
        let call = self.history().invoke(call(team, ask));
        let reply = http::converse(&mut stream, &request(at, team, ask)).ok();
        let end = reply.as_ref().map_or(End::Info, |reply| end_of(ask, reply));
        self.end(call, end);
        Some(reply)
    }

    /// Notes that a key may be forgotten any time from now on, by its own wish.
    pub fn may_forget(&self, team: &Team, wish: &Wish) {
        let ask = Ask { verb: Verb::Forget, wanted: Vec::new(), ..wish.ask.clone() };
        let call = self.history().invoke(call(team, &ask));
        self.end(call, End::Info);
    }

    fn end(&self, call: usize, end: End) {
        let mut history = self.history();
        history.end(call, now_us(), end);
        let line = history.calls.get(call).map(|call| json!(call)).unwrap_or_default();
        drop(history);
        write(&self.file, &line);
    }

    /// Lets everybody go who still waits for an answer, or begins to before somebody picks up again.
    pub fn hang_up(&self) {
        self.hung_up.store(true, Ordering::SeqCst);
        for stream in held(&self.open).drain(..) {
            // It may be closed already.
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }
}

fn write(file: &Mutex<File>, line: &Value) {
    if let Err(why) = writeln!(held(file), "{line}") {
        eprintln!("the history cannot be written: {why}");
    }
}

/// A call that begins now.
fn call(team: &Team, ask: &Ask) -> Call {
    Call {
        at: now_us(),
        ended: None,
        team: team.name.clone(),
        verb: ask.verb,
        key: ask.key.clone(),
        about: ask.about.clone(),
        wanted: ask.wanted.clone(),
        forgives: ask.implied,
        may_fail: ask.may_fail.iter().map(ToString::to_string).collect(),
        // What belongs to somebody else is not there.
        must_fail: ask.may_fail.contains(&"not_found"),
        end: End::Info,
    }
}

fn request(at: SocketAddr, team: &Team, ask: &Ask) -> Vec<u8> {
    let method = if ask.body.is_some() { "POST" } else { "GET" };
    let key =
        ask.key.as_ref().filter(|_| !ask.implied).map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
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
fn end_of(ask: &Ask, reply: &Reply) -> End {
    if !matches!(reply.status, 200..=202) {
        let code = reply.body["code"].as_str().unwrap_or("no_code").to_owned();
        return End::Fail { status: reply.status, code };
    }
    let ids: Vec<String> = match reply.body["data"].as_array() {
        Some(rows) => rows.iter().filter_map(|row| row["id"].as_str()).map(str::to_owned).collect(),
        None => reply.body["id"].as_str().map(str::to_owned).into_iter().collect(),
    };
    if !ask.wanted.is_empty() && ids.len() != ask.wanted.len() {
        return End::Fail { status: reply.status, code: "answer_without_all_ids".to_owned() };
    }
    End::Ok { first: reply.status == 202, ids }
}
