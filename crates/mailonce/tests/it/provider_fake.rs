//! Fake providers that store received mail, each in its own wire format, with scripted faults.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use mailonce_engine::EngineDeps;
use mailonce_transport::collect::HttpMailCollector;
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

/// The API key that the fake providers accept.
pub(crate) const API_KEY: &str = "re_0123456789abcdef";

/// What happens to one request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProviderFault {
    /// This status, with an error body in the provider's format.
    Status(u16),
    /// 429 with this many seconds in Retry-After.
    TooManyRequests(u32),
    /// Half of the response, then the connection closes.
    TruncatedBody,
    /// A captive portal's HTML page, with status 200.
    CaptivePortalPage,
    /// A redirect to another host.
    Redirect,
    /// The request is never answered.
    Stall,
}

/// A mail stored at the provider.
#[derive(Clone, Debug)]
pub(crate) struct ProviderMail {
    pub(crate) id: String,
    /// RFC 3339.
    pub(crate) received_at: String,
    pub(crate) to: String,
    pub(crate) raw: String,
    /// Whether the raw mail can be fetched. Otherwise only its fields.
    pub(crate) has_raw: bool,
    pub(crate) blocked: bool,
}

impl ProviderMail {
    pub(crate) fn new(id: &str, at: String, to: &str) -> Self {
        let raw = format!(
            "From: Ann <ann@shop.test>\r\nTo: {to}\r\nMessage-ID: <{id}@shop.test>\r\nSubject: Mail {id}\r\n\r\nHello {id}\r\n"
        );
        Self { id: id.into(), received_at: at, to: to.into(), raw, has_raw: true, blocked: false }
    }
}

#[derive(Default)]
struct ProviderState {
    mails: Vec<ProviderMail>,
    faults: VecDeque<ProviderFault>,
    requested_paths: Vec<String>,
    /// The maximum number of mails per page.
    page_size: usize,
    url: String,
    /// The base of download URLs, when it is not this server.
    download_base_url: Option<String>,
}

/// A fake provider. It stops when it is dropped.
pub(crate) struct FakeProvider {
    pub(crate) url: String,
    state: Arc<Mutex<ProviderState>>,
    server: JoinHandle<()>,
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FakeProvider {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state =
            Arc::new(Mutex::new(ProviderState { page_size: 100, url: url.clone(), ..ProviderState::default() }));
        let shared = Arc::clone(&state);
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve_connection(stream, Arc::clone(&shared)));
            }
        });
        Self { url, state, server }
    }

    pub(crate) fn add_mail(&self, mail: ProviderMail) {
        self.state.lock().unwrap().mails.push(mail);
    }

    pub(crate) fn remove_mail(&self, id: &str) {
        self.state.lock().unwrap().mails.retain(|mail| mail.id != id);
    }

    pub(crate) fn queue_faults(&self, faults: &[ProviderFault]) {
        self.state.lock().unwrap().faults.extend(faults);
    }

    pub(crate) fn set_page_size(&self, page_size: usize) {
        self.state.lock().unwrap().page_size = page_size;
    }

    pub(crate) fn set_download_url(&self, url: &str) {
        self.state.lock().unwrap().download_base_url = Some(url.into());
    }

    /// The paths that were requested since the last call.
    pub(crate) fn take_requested_paths(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requested_paths)
    }
}

/// Dependencies of an engine that may call this machine, with a domain for inboxes.
pub(crate) fn engine_deps_with_collector() -> EngineDeps {
    EngineDeps {
        local_domains: vec!["agents.test".into()],
        bounce_domain: Some("agents.test".into()),
        mail_collector: Arc::new(HttpMailCollector::new(None, true)),
        ..EngineDeps::default()
    }
}

impl World {
    pub(crate) async fn with_providers(self) -> Self {
        self.with_engine_deps(engine_deps_with_collector()).await
    }
}

async fn serve_connection(mut stream: TcpStream, state: Arc<Mutex<ProviderState>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_gone) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.split(' ').nth(1).unwrap().to_owned();
    let fault = {
        let mut state = state.lock().unwrap();
        state.requested_paths.push(target.clone());
        state.faults.pop_front()
    };
    let (status, more, body) = match fault {
        Some(ProviderFault::Stall) => std::future::pending().await,
        Some(ProviderFault::Status(status)) => (status, String::new(), error_body(status)),
        Some(ProviderFault::TooManyRequests(seconds)) => (429, format!("retry-after: {seconds}\r\n"), error_body(429)),
        Some(ProviderFault::CaptivePortalPage) => (200, String::new(), b"<html>Please log in</html>".to_vec()),
        Some(ProviderFault::Redirect) => (302, "location: http://127.0.0.1:1/\r\n".into(), Vec::new()),
        Some(ProviderFault::TruncatedBody) | None => {
            let (status, body) = state.lock().unwrap().respond(&head, &target);
            (status, String::new(), body)
        }
    };
    let whole = body.len();
    let sent = if matches!(fault, Some(ProviderFault::TruncatedBody)) { whole / 2 } else { whole };
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {whole}\r\n{more}connection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), &body[..sent]].concat()).await.ok();
    stream.shutdown().await.ok();
}

fn error_body(status: u16) -> Vec<u8> {
    json!({ "statusCode": status, "name": "some_error", "message": "not now" }).to_string().into_bytes()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
    Some(line.split_once(':')?.1.trim())
}

/// A parameter of a query string.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

impl ProviderState {
    fn respond(&self, head: &str, target: &str) -> (u16, Vec<u8>) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let bearer = header(head, "authorization") == Some(&format!("Bearer {API_KEY}"));
        let token = header(head, "x-postmark-server-token") == Some(API_KEY);
        match parts.as_slice() {
            // A signed URL refuses an additional Authorization header.
            ["raw", id] if header(head, "authorization").is_none() => self.raw_response(id),
            ["raw", _] => (400, error_body(400)),
            ["emails" | "v3", ..] if !bearer => (401, error_body(401)),
            ["messages", ..] if !token => (401, json!({ "ErrorCode": 10, "Message": "No token" }).to_string().into()),
            ["emails", "receiving"] => (200, self.resend_list(query)),
            ["emails", "receiving", id] => self.mail_response(id, |mail| self.resend_mail_json(mail)),
            ["emails", "receiving", id, "attachments"] => self.mail_response(id, |mail| self.resend_attachments_json(mail)),
            ["messages", "inbound"] => (200, self.postmark_list(query)),
            ["messages", "inbound", id, "dump"] => match self.find_mail(id).filter(|mail| mail.has_raw) {
                Some(mail) => (200, json!({ "Body": mail.raw }).to_string().into()),
                None => (404, Vec::new()),
            },
            ["messages", "inbound", id, "details"] => match self.find_mail(id) {
                Some(mail) => (200, postmark_details(mail).to_string().into()),
                None => (422, json!({ "ErrorCode": 701, "Message": "Not found" }).to_string().into()),
            },
            ["v3", "grants", "g1", "messages", id] if query == "fields=raw_mime" => self.mail_response(id, |mail| {
                let raw = URL_SAFE_NO_PAD.encode(&mail.raw);
                json!({ "request_id": "r", "data": { "grant_id": "g1", "object": "message", "id": id, "raw_mime": raw } })
            }),
            _ => (404, error_body(404)),
        }
    }

    fn find_mail(&self, id: &str) -> Option<&ProviderMail> {
        self.mails.iter().find(|mail| mail.id == id)
    }

    fn mail_response(&self, id: &str, to_json: impl Fn(&ProviderMail) -> Value) -> (u16, Vec<u8>) {
        self.find_mail(id).map_or_else(|| (404, error_body(404)), |mail| (200, to_json(mail).to_string().into_bytes()))
    }

    fn raw_response(&self, id: &str) -> (u16, Vec<u8>) {
        self.find_mail(id).map_or_else(|| (403, Vec::new()), |mail| (200, mail.raw.clone().into_bytes()))
    }

    /// Newest first.
    fn newest_first(&self) -> Vec<&ProviderMail> {
        let mut mails: Vec<&ProviderMail> = self.mails.iter().collect();
        mails.sort_by(|a, b| b.received_at.cmp(&a.received_at));
        mails
    }

    fn resend_mail_json(&self, mail: &ProviderMail) -> Value {
        let downloads = self.download_base_url.as_deref().unwrap_or(&self.url);
        let raw = json!({ "download_url": format!("{downloads}/raw/{}?signature=s", mail.id), "expires_at": mail.received_at });
        let file = json!({ "id": "f", "filename": "a.txt", "content_type": "text/plain", "content_id": null });
        json!({
            "object": "email", "id": mail.id, "to": [mail.to], "from": "Ann <ann@shop.test>", "created_at": mail.received_at,
            "subject": format!("Mail {}", mail.id), "html": null, "text": format!("Hello {}", mail.id), "bcc": [],
            "cc": [], "reply_to": [], "message_id": format!("<{}@shop.test>", mail.id), "headers": {},
            "raw": if mail.has_raw { raw } else { Value::Null },
            "attachments": if mail.has_raw { json!([]) } else { json!([file]) },
        })
    }

    fn resend_attachments_json(&self, mail: &ProviderMail) -> Value {
        let url = format!("{}/raw/{}?signature=s", self.url, mail.id);
        let file = json!({ "id": "f", "filename": "a.txt", "size": 3, "content_type": "text/plain",
            "content_disposition": "attachment", "content_id": null, "download_url": url, "expires_at": mail.received_at });
        json!({ "object": "list", "has_more": false, "data": [file] })
    }

    fn resend_list(&self, query: &str) -> Vec<u8> {
        let mails = self.newest_first();
        let after = parameter(query, "after").map(|id| mails.iter().position(|mail| mail.id == id).unwrap() + 1);
        let rest = &mails[after.unwrap_or_default()..];
        let limit: usize = parameter(query, "limit").unwrap().parse().unwrap();
        let page = &rest[..rest.len().min(limit).min(self.page_size)];
        let row = |mail: &&ProviderMail| {
            json!({ "id": mail.id, "to": [mail.to], "from": "ann@shop.test", "created_at": mail.received_at,
            "subject": "s", "bcc": [], "cc": [], "reply_to": [], "message_id": "<m>", "attachments": [] })
        };
        let data: Vec<Value> = page.iter().map(row).collect();
        json!({ "object": "list", "has_more": page.len() < rest.len(), "data": data }).to_string().into()
    }

    fn postmark_list(&self, query: &str) -> Vec<u8> {
        let from = parameter(query, "fromdate").unwrap();
        assert_eq!(from.len(), 10, "a date: {from}");
        let mails: Vec<&ProviderMail> =
            self.newest_first().into_iter().filter(|mail| mail.received_at.as_str() >= from).collect();
        let number = |name: &str| parameter(query, name).unwrap().parse::<usize>().unwrap();
        let (count, offset) = (number("count"), number("offset"));
        let page = mails.iter().skip(offset).take(count);
        let data: Vec<Value> = page.map(|mail| postmark_row(mail)).collect();
        json!({ "TotalCount": mails.len(), "InboundMessages": data }).to_string().into()
    }
}

fn postmark_row(mail: &ProviderMail) -> Value {
    json!({ "From": "ann@shop.test", "FromFull": { "Email": "ann@shop.test", "Name": "Ann" }, "To": mail.to,
        "ToFull": [{ "Email": mail.to, "Name": "" }], "CcFull": [], "OriginalRecipient": mail.to, "Subject": format!("Mail {}", mail.id),
        "Date": mail.received_at, "MailboxHash": "", "Tag": "", "MessageID": mail.id,
        "Attachments": if mail.has_raw { json!([]) } else { json!([{ "Name": "a.pdf", "ContentType": "application/pdf", "ContentLength": 9 }]) },
        "Status": if mail.blocked { "Blocked" } else { "Processed" } })
}

fn postmark_details(mail: &ProviderMail) -> Value {
    let mut row = postmark_row(mail);
    row["TextBody"] = json!(format!("Hello {}", mail.id));
    row["HtmlBody"] = json!("");
    row["Headers"] = json!([{ "Name": "Message-ID", "Value": format!("<{}@shop.test>", mail.id) }]);
    row
}
