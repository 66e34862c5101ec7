//! Providers that hold mail, on this machine: each in its own words, and misbehaving as it is told.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use mailonce_engine::ways::Outside;
use mailonce_transport::collect::Collector;
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::world::World;

/// The credential that it knows.
pub(crate) const API_KEY: &str = "re_0123456789abcdef";

/// What happens to one coming request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// This status, in words that are the provider's.
    Status(u16),
    /// 429 with so many seconds in Retry-After.
    TooMany(u32),
    /// Half of the answer, and the end of the connection.
    Cut,
    /// Somebody else's page, with status 200.
    Portal,
    /// Another place is named.
    Redirect,
    /// No answer, ever.
    Stall,
}

/// A mail that it holds.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) id: String,
    /// RFC 3339.
    pub(crate) at: String,
    pub(crate) to: String,
    pub(crate) raw: String,
    /// Whether the mail itself is given out. Else its fields.
    pub(crate) whole: bool,
    pub(crate) blocked: bool,
}

impl Held {
    pub(crate) fn new(id: &str, at: String, to: &str) -> Self {
        let raw = format!(
            "From: Ann <ann@shop.test>\r\nTo: {to}\r\nMessage-ID: <{id}@shop.test>\r\nSubject: Mail {id}\r\n\r\nHello {id}\r\n"
        );
        Self { id: id.into(), at, to: to.into(), raw, whole: true, blocked: false }
    }
}

#[derive(Default)]
struct State {
    mails: Vec<Held>,
    script: VecDeque<Act>,
    asked: Vec<String>,
    /// Mails of one page at the most.
    page: usize,
    url: String,
    /// Where it says that mails lie, when not here.
    downloads: Option<String>,
}

/// A provider. It ends when it is dropped.
pub(crate) struct Provider {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
    server: JoinHandle<()>,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Provider {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State { page: 100, url: url.clone(), ..State::default() }));
        let shared = Arc::clone(&state);
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { url, state, server }
    }

    pub(crate) fn holds(&self, mail: Held) {
        self.state.lock().unwrap().mails.push(mail);
    }

    pub(crate) fn loses(&self, id: &str) {
        self.state.lock().unwrap().mails.retain(|mail| mail.id != id);
    }

    pub(crate) fn acts(&self, acts: &[Act]) {
        self.state.lock().unwrap().script.extend(acts);
    }

    pub(crate) fn pages_of(&self, most: usize) {
        self.state.lock().unwrap().page = most;
    }

    pub(crate) fn downloads_at(&self, url: &str) {
        self.state.lock().unwrap().downloads = Some(url.into());
    }

    /// The paths that were asked for since the last time.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }
}

/// The same ledger behind an engine that may ask this machine, with a domain for inboxes.
pub(crate) fn outside() -> Outside {
    Outside {
        local_domains: vec!["agents.test".into()],
        bounce_domain: Some("agents.test".into()),
        collect: Arc::new(Collector::new(None, true)),
        ..Outside::default()
    }
}

impl World {
    pub(crate) async fn with_providers(self) -> Self {
        self.rewired(outside()).await
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_gone) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.split(' ').nth(1).unwrap().to_owned();
    let act = {
        let mut state = state.lock().unwrap();
        state.asked.push(target.clone());
        state.script.pop_front()
    };
    let (status, more, body) = match act {
        Some(Act::Stall) => std::future::pending().await,
        Some(Act::Status(status)) => (status, String::new(), error(status)),
        Some(Act::TooMany(seconds)) => (429, format!("retry-after: {seconds}\r\n"), error(429)),
        Some(Act::Portal) => (200, String::new(), b"<html>Please log in</html>".to_vec()),
        Some(Act::Redirect) => (302, "location: http://127.0.0.1:1/\r\n".into(), Vec::new()),
        Some(Act::Cut) | None => {
            let (status, body) = state.lock().unwrap().answer(&head, &target);
            (status, String::new(), body)
        }
    };
    let whole = body.len();
    let sent = if matches!(act, Some(Act::Cut)) { whole / 2 } else { whole };
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {whole}\r\n{more}connection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), &body[..sent]].concat()).await.ok();
    stream.shutdown().await.ok();
}

fn error(status: u16) -> Vec<u8> {
    json!({ "statusCode": status, "name": "some_error", "message": "not now" }).to_string().into_bytes()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
    Some(line.split_once(':')?.1.trim())
}

/// A parameter of a query.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

impl State {
    fn answer(&self, head: &str, target: &str) -> (u16, Vec<u8>) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let bearer = header(head, "authorization") == Some(&format!("Bearer {API_KEY}"));
        let token = header(head, "x-postmark-server-token") == Some(API_KEY);
        match parts.as_slice() {
            // A signed address takes no other credential beside it.
            ["raw", id] if header(head, "authorization").is_none() => self.raw(id),
            ["raw", _] => (400, error(400)),
            ["emails" | "v3", ..] if !bearer => (401, error(401)),
            ["messages", ..] if !token => (401, json!({ "ErrorCode": 10, "Message": "No token" }).to_string().into()),
            ["emails", "receiving"] => (200, self.resend_list(query)),
            ["emails", "receiving", id] => self.one(id, |mail| self.resend_one(mail)),
            ["emails", "receiving", id, "attachments"] => self.one(id, |mail| self.resend_files(mail)),
            ["messages", "inbound"] => (200, self.postmark_list(query)),
            ["messages", "inbound", id, "dump"] => match self.mail(id).filter(|mail| mail.whole) {
                Some(mail) => (200, json!({ "Body": mail.raw }).to_string().into()),
                None => (404, Vec::new()),
            },
            ["messages", "inbound", id, "details"] => match self.mail(id) {
                Some(mail) => (200, postmark_details(mail).to_string().into()),
                None => (422, json!({ "ErrorCode": 701, "Message": "Not found" }).to_string().into()),
            },
            ["v3", "grants", "g1", "messages", id] if query == "fields=raw_mime" => self.one(id, |mail| {
                let raw = URL_SAFE_NO_PAD.encode(&mail.raw);
                json!({ "request_id": "r", "data": { "grant_id": "g1", "object": "message", "id": id, "raw_mime": raw } })
            }),
            _ => (404, error(404)),
        }
    }

    fn mail(&self, id: &str) -> Option<&Held> {
        self.mails.iter().find(|mail| mail.id == id)
    }

    fn one(&self, id: &str, told: impl Fn(&Held) -> Value) -> (u16, Vec<u8>) {
        self.mail(id).map_or_else(|| (404, error(404)), |mail| (200, told(mail).to_string().into_bytes()))
    }

    fn raw(&self, id: &str) -> (u16, Vec<u8>) {
        self.mail(id).map_or_else(|| (403, Vec::new()), |mail| (200, mail.raw.clone().into_bytes()))
    }

    /// Newest first.
    fn newest(&self) -> Vec<&Held> {
        let mut mails: Vec<&Held> = self.mails.iter().collect();
        mails.sort_by(|a, b| b.at.cmp(&a.at));
        mails
    }

    fn resend_one(&self, mail: &Held) -> Value {
        let downloads = self.downloads.as_deref().unwrap_or(&self.url);
        let raw = json!({ "download_url": format!("{downloads}/raw/{}?signature=s", mail.id), "expires_at": mail.at });
        let file = json!({ "id": "f", "filename": "a.txt", "content_type": "text/plain", "content_id": null });
        json!({
            "object": "email", "id": mail.id, "to": [mail.to], "from": "Ann <ann@shop.test>", "created_at": mail.at,
            "subject": format!("Mail {}", mail.id), "html": null, "text": format!("Hello {}", mail.id), "bcc": [],
            "cc": [], "reply_to": [], "message_id": format!("<{}@shop.test>", mail.id), "headers": {},
            "raw": if mail.whole { raw } else { Value::Null },
            "attachments": if mail.whole { json!([]) } else { json!([file]) },
        })
    }

    fn resend_files(&self, mail: &Held) -> Value {
        let url = format!("{}/raw/{}?signature=s", self.url, mail.id);
        let file = json!({ "id": "f", "filename": "a.txt", "size": 3, "content_type": "text/plain",
            "content_disposition": "attachment", "content_id": null, "download_url": url, "expires_at": mail.at });
        json!({ "object": "list", "has_more": false, "data": [file] })
    }

    fn resend_list(&self, query: &str) -> Vec<u8> {
        let mails = self.newest();
        let after = parameter(query, "after").map(|id| mails.iter().position(|mail| mail.id == id).unwrap() + 1);
        let rest = &mails[after.unwrap_or_default()..];
        let limit: usize = parameter(query, "limit").unwrap().parse().unwrap();
        let page = &rest[..rest.len().min(limit).min(self.page)];
        let row = |mail: &&Held| {
            json!({ "id": mail.id, "to": [mail.to], "from": "ann@shop.test", "created_at": mail.at,
            "subject": "s", "bcc": [], "cc": [], "reply_to": [], "message_id": "<m>", "attachments": [] })
        };
        let data: Vec<Value> = page.iter().map(row).collect();
        json!({ "object": "list", "has_more": page.len() < rest.len(), "data": data }).to_string().into()
    }

    fn postmark_list(&self, query: &str) -> Vec<u8> {
        let from = parameter(query, "fromdate").unwrap();
        assert_eq!(from.len(), 10, "a date: {from}");
        let mails: Vec<&Held> = self.newest().into_iter().filter(|mail| mail.at.as_str() >= from).collect();
        let number = |name: &str| parameter(query, name).unwrap().parse::<usize>().unwrap();
        let (count, offset) = (number("count"), number("offset"));
        let page = mails.iter().skip(offset).take(count);
        let data: Vec<Value> = page.map(|mail| postmark_row(mail)).collect();
        json!({ "TotalCount": mails.len(), "InboundMessages": data }).to_string().into()
    }
}

fn postmark_row(mail: &Held) -> Value {
    json!({ "From": "ann@shop.test", "FromFull": { "Email": "ann@shop.test", "Name": "Ann" }, "To": mail.to,
        "ToFull": [{ "Email": mail.to, "Name": "" }], "CcFull": [], "OriginalRecipient": mail.to, "Subject": format!("Mail {}", mail.id),
        "Date": mail.at, "MailboxHash": "", "Tag": "", "MessageID": mail.id,
        "Attachments": if mail.whole { json!([]) } else { json!([{ "Name": "a.pdf", "ContentType": "application/pdf", "ContentLength": 9 }]) },
        "Status": if mail.blocked { "Blocked" } else { "Processed" } })
}

fn postmark_details(mail: &Held) -> Value {
    let mut row = postmark_row(mail);
    row["TextBody"] = json!(format!("Hello {}", mail.id));
    row["HtmlBody"] = json!("");
    row["Headers"] = json!([{ "Name": "Message-ID", "Value": format!("<{}@shop.test>", mail.id) }]);
    row
}
