//! The in-memory fake server: idempotency keys, replies, codes and work, by the rules of the real server. It has no loop
//! guards, no limits, no transports and no clock.

use serde_json::{Map, Value, json};
use std::collections::HashMap;

use crate::{
    http::Request,
    key::{bare_address, derive_key},
    testing::{Arrival, SentMail},
    wire::{Addresses, Intent},
};

/// HTTP status and body, of a success or a problem.
type StatusAndBody = (u16, Value);
type FakeResponse = Result<StatusAndBody, StatusAndBody>;

const NOW: &str = "2026-11-15T10:00:00.000Z";

/// Fields that `first_wins` allows to differ.
const CONTENT_FIELDS: [&str; 6] = ["subject", "text", "html", "headers", "tags", "metadata"];
const COMPARED_FIELDS: [&str; 13] = [
    "from",
    "to",
    "cc",
    "bcc",
    "reply_to",
    "subject",
    "text",
    "html",
    "headers",
    "attachments",
    "tags",
    "metadata",
    "scheduled_at",
];

#[derive(Default)]
pub(crate) struct FakeServer {
    pub(crate) mails: Vec<SentMail>,
    /// The email that a key is bound to, and how many repeated calls were suppressed.
    keys: HashMap<String, (usize, u64)>,
    keyed_responses: HashMap<String, StatusAndBody>,
    inboxes: Vec<Value>,
    messages: Vec<Value>,
    last: u64,
    /// `Mailonce-Call-Id` of the current request.
    call: Option<String>,
}

fn refused(status: u16, code: &str, detail: &str, more: &Value) -> StatusAndBody {
    let mut problem = json!({
        "status": status, "code": code, "detail": detail, "title": code, "type": format!("/docs/errors/{code}"),
        "retry": "never", "next": format!("See /docs/errors/{code}."),
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        problem[name] = value.clone();
    }
    (status, problem)
}

fn missing(what: &str) -> StatusAndBody {
    refused(404, "not_found", &format!("there is no {what}"), &Value::Null)
}

fn unsupported(what: &str) -> StatusAndBody {
    let next = json!({ "next": "Test this call against mailonce dev." });
    refused(501, "not_in_double", &format!("the double does not know {what}"), &next)
}

/// One text or a list of them.
pub(crate) fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

/// A field in the form in which it is compared: order and case of recipients, line endings and empty values are ignored.
fn comparable(field: &str, value: &Value) -> String {
    let nothing = value.is_null() || value == "" || value.as_array().is_some_and(Vec::is_empty);
    if nothing {
        return String::new();
    }
    if ["to", "cc", "bcc", "reply_to"].contains(&field) {
        let mut all: Vec<String> =
            texts(value).into_iter().map(|one| bare_address(one).unwrap_or_else(|| one.to_owned())).collect();
        all.sort_unstable();
        return all.join(",");
    }
    value.to_string().replace("\\r\\n", "\\n")
}

/// Percent-decodes a path segment or query value.
fn percent_decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        let pair: Vec<u8> = if byte == b'%' { rest.by_ref().take(2).collect() } else { Vec::new() };
        let escaped = std::str::from_utf8(&pair).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(byte));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A parsed request.
struct ParsedRequest {
    method: String,
    what: String,
    id: String,
    verb: String,
    query: HashMap<String, String>,
    key: Option<String>,
    /// The `Mailonce-Call-Id` header.
    call: Option<String>,
    body: Value,
}

impl ParsedRequest {
    fn read(request: &Request) -> Self {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let mut parts = path.split('/').skip(2).map(percent_decoded);
        let mut part = || parts.next().unwrap_or_default();
        let (what, id, verb) = (part(), part(), part());
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let header = |wanted: &str| {
            let found = request.headers.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.clone())
        };
        Self {
            method: request.method.to_string(),
            what,
            id,
            verb,
            query: pairs.map(|(name, value)| (name.to_owned(), percent_decoded(value))).collect(),
            key: header("idempotency-key"),
            call: header("mailonce-call-id").map(|id| percent_decoded(&id)),
            body: serde_json::from_slice(&request.body).unwrap_or(Value::Null),
        }
    }
}

impl FakeServer {
    pub(crate) fn act(&mut self, request: &Request) -> FakeResponse {
        let request = ParsedRequest::read(request);
        self.call.clone_from(&request.call);
        match (request.method.as_str(), request.what.as_str(), request.id.as_str(), request.verb.as_str()) {
            ("POST", "emails", "", _) => self.send(&request.body, request.key.as_deref(), None),
            ("POST", "emails", "batch", _) => self.batch(&request.body, request.key.as_deref()),
            ("GET", "emails", id, _) => self.get_emails(id, &request.query),
            ("POST", "messages", id, "reply") => self.reply(id, &request.body),
            ("GET", ..) => self.read(&request),
            _ => self.once(&request),
        }
    }

    /// A call other than a send, replayed under its idempotency key.
    fn once(&mut self, request: &ParsedRequest) -> FakeResponse {
        if let Some(response) = request.key.as_ref().and_then(|key| self.keyed_responses.get(key)) {
            return Ok(response.clone());
        }
        let response = self.keyed_call(request)?;
        if let Some(key) = &request.key {
            self.keyed_responses.insert(key.clone(), response.clone());
        }
        Ok(response)
    }

    fn send(&mut self, mail: &Value, header: Option<&str>, child: Option<String>) -> FakeResponse {
        let to = texts(&mail["to"]);
        if to.is_empty() || to.iter().any(|one| bare_address(one).is_none()) {
            return Err(refused(422, "invalid_field", "`to` is no address", &json!({ "field": "to" })));
        }
        let intent: Option<Intent> = serde_json::from_value(mail["intent"].clone()).ok();
        let derived = match intent {
            Some(intent) => Some(
                derive_key(&intent, Addresses::from(to))
                    .map_err(|error| refused(422, "invalid_field", &error.detail, &json!({ "field": error.field })))?,
            ),
            None => None,
        };
        let key = match (child, header) {
            (Some(child), _) => Some(derived.clone().unwrap_or(child)),
            (None, Some(header)) => Some(header.to_owned()),
            (None, None) => derived.clone(),
        };
        let default_mode = if key.is_some() && key == derived { "first_wins" } else { "reject" };
        let mode = mail["on_mismatch"].as_str().unwrap_or(default_mode).to_owned();
        self.accept(key, &mode, mail.clone(), None)
    }

    fn accept(
        &mut self,
        key: Option<String>,
        mode: &str,
        body: Value,
        reply_to_message: Option<String>,
    ) -> FakeResponse {
        let Some(name) = key.clone().filter(|key| self.keys.contains_key(key)) else {
            let id = self.id();
            self.mails.push(SentMail { id, key: key.clone(), reply_to_message, call: self.call.clone(), body });
            let number = self.mails.len() - 1;
            if let Some(key) = key {
                self.keys.insert(key, (number, 0));
            }
            return Ok((202, receipt(&self.mails[number], 0, "first", false)));
        };
        let (number, suppressed) = self.keys.get(&name).copied().unwrap_or_default();
        self.keys.insert(name.clone(), (number, suppressed + 1));
        let first = &self.mails[number];
        let differs: Vec<&str> = COMPARED_FIELDS
            .into_iter()
            .filter(|field| comparable(field, &body[*field]) != comparable(field, &first.body[*field]))
            .collect();
        if !differs.is_empty() && (mode == "reject" || differs.iter().any(|field| !CONTENT_FIELDS.contains(field))) {
            let detail = format!("the key belongs to email {}, which differs in: {}", first.id, differs.join(", "));
            let more = json!({ "differing_fields": differs, "original_email": first.id, "key": name });
            return Err(refused(422, "key_mismatch", &detail, &more));
        }
        Ok((200, receipt(first, suppressed + 1, "replayed", !differs.is_empty())))
    }

    fn batch(&mut self, mails: &Value, key: Option<&str>) -> FakeResponse {
        let mut answers = Vec::new();
        for (number, mail) in mails.as_array().into_iter().flatten().enumerate() {
            answers.push(self.send(mail, None, key.map(|key| format!("{key}[{number}]")))?);
        }
        let status = if answers.iter().all(|(status, _)| *status == 200) { 200 } else { 202 };
        let data: Vec<Value> = answers.into_iter().map(|(_, body)| body).collect();
        Ok((status, json!({ "data": data, "errors": [] })))
    }

    fn get_emails(&self, id: &str, query: &HashMap<String, String>) -> FakeResponse {
        let key = query.get("key");
        if id.is_empty() {
            let found = self.mails.iter().rev().filter(|mail| key.is_none() || mail.key.as_ref() == key);
            return Ok((200, json!({ "data": found.map(email_detail).collect::<Vec<_>>(), "next_cursor": null })));
        }
        let found = self.mails.iter().find(|mail| mail.id == id);
        found.map(|mail| (200, email_detail(mail))).ok_or_else(|| missing(&format!("email {id}")))
    }

    fn reply(&mut self, id: &str, body: &Value) -> FakeResponse {
        let number = self.message(id)?;
        let thread = self.messages[number]["thread_id"].clone();
        let key = format!("reply {id} {}", body["follow_up"].as_u64().unwrap_or(0));
        if let Some((first, suppressed)) = self.keys.get(&key).copied() {
            self.keys.insert(key, (first, suppressed + 1));
            let mail = &self.mails[first];
            let differs = comparable("text", &body["text"]) != comparable("text", &mail.body["text"]);
            let mut answer = receipt(mail, suppressed + 1, "replayed", differs);
            answer["guard"] = json!("already_answered");
            answer["thread_id"] = thread;
            return Ok((200, answer));
        }
        let message = &mut self.messages[number];
        message["state"] = json!("answered");
        let mail = json!({
            "from": message["inbox"], "to": message["from"]["address"], "text": body["text"],
            "subject": format!("Re: {}", message["subject"].as_str().unwrap_or_default()),
        });
        let (status, mut answer) = self.accept(Some(key), "first_wins", mail, Some(id.to_owned()))?;
        answer["thread_id"] = thread;
        Ok((status, answer))
    }

    fn read(&self, request: &ParsedRequest) -> FakeResponse {
        match (request.what.as_str(), request.id.as_str(), request.verb.as_str()) {
            ("messages", id, "") => Ok((200, self.messages[self.message(id)?].clone())),
            ("inboxes", "", _) => Ok((200, json!({ "data": self.inboxes, "next_cursor": null }))),
            ("inboxes", id, "") => Ok((200, self.inbox(id)?.clone())),
            ("inboxes", id, verb @ ("messages" | "wait")) => self.list_messages(id, verb, &request.query),
            (what, _, verb) => Err(unsupported(&format!("GET {what}/{verb}"))),
        }
    }

    fn list_messages(&self, id: &str, verb: &str, query: &HashMap<String, String>) -> FakeResponse {
        let inbox = &self.inbox(id)?["address"];
        let after = query.get("after").map(|cursor| cursor_number(cursor));
        let fits = |message: &&Value| {
            message["inbox"] == *inbox
                && matches(message, query)
                && cursor_number(message["cursor"].as_str().unwrap_or_default()) > after.unwrap_or(0)
        };
        let mut found: Vec<&Value> = self.messages.iter().filter(fits).collect();
        // Newest first, or oldest first after a cursor.
        if after.is_none() {
            found.reverse();
        }
        if verb == "messages" {
            return Ok((200, json!({ "data": found, "next_cursor": null })));
        }
        Ok(found
            .first()
            .map_or((204, Value::Null), |message| (200, json!({ "message": message, "cursor": message["cursor"] }))))
    }

    fn keyed_call(&mut self, request: &ParsedRequest) -> FakeResponse {
        let body = &request.body;
        match (request.method.as_str(), request.what.as_str(), request.id.as_str(), request.verb.as_str()) {
            ("POST", "inboxes", "", _) => self.create(body),
            ("POST", "inboxes", id, "consume") => self.consume_latest(id, body),
            ("POST", "artifacts", id, "consume") => self.consume(body, |artifact| artifact["id"] == id),
            ("POST", "inboxes", id, "next") => self.next(id, body),
            ("POST", "messages", id, verb @ ("ack" | "nack" | "extend")) => self.acknowledge(id, verb),
            (method, what, _, verb) => Err(unsupported(&format!("{method} {what}/{verb}"))),
        }
    }

    fn consume_latest(&mut self, id: &str, body: &Value) -> FakeResponse {
        let address = self.inbox(id)?["address"].clone();
        let from = body["match"]["from"].as_str().map(|from| ("from".to_owned(), from.to_owned()));
        let query: HashMap<String, String> = from.into_iter().chain([("has".to_owned(), "code".to_owned())]).collect();
        let found = self.messages.iter().rev().filter(|one| one["inbox"] == address && matches(one, &query));
        let codes: Vec<&Value> = found.map(|one| &one["artifacts"][0]).collect();
        // A retry gets its own code, other callers the newest one that is not consumed.
        let own = codes.iter().find(|one| one["consumed_for"] == body["for"]);
        let free = || codes.iter().find(|one| one["consumed_for"].is_null());
        let artifact = own.or_else(free).or(codes.first()).ok_or_else(|| missing("code"))?["id"].clone();
        self.consume(body, |one| one["id"] == artifact)
    }

    fn consume(&mut self, body: &Value, is: impl Fn(&Value) -> bool) -> FakeResponse {
        let all = self.messages.iter_mut().filter_map(|message| message["artifacts"].as_array_mut()).flatten();
        let artifact = all.into_iter().find(|one| is(one)).ok_or_else(|| missing("artifact"))?;
        let taken = artifact["consumed_for"].clone();
        if !taken.is_null() && taken != body["for"] {
            let detail = format!("this code was taken for {taken}");
            return Err(refused(409, "already_consumed", &detail, &json!({ "consumed_for": taken })));
        }
        artifact["consumed_for"] = body["for"].clone();
        artifact["consumed_at"] = json!(NOW);
        Ok((200, json!({ "artifact": artifact })))
    }

    fn next(&mut self, id: &str, body: &Value) -> FakeResponse {
        let address = self.inbox(id)?["address"].clone();
        let limit = body["limit"].as_u64().unwrap_or(1) as usize;
        let open = self.messages.iter_mut().filter(|one| one["inbox"] == address && one["state"] == "unanswered");
        let mut data = Vec::new();
        for message in open.take(limit) {
            message["state"] = json!("leased");
            let lease = lease(message["id"].as_str().unwrap_or_default(), body["holder"].as_str());
            data.push(json!({ "message": message, "lease": lease }));
        }
        Ok((200, json!({ "data": data })))
    }

    fn acknowledge(&mut self, id: &str, verb: &str) -> FakeResponse {
        let number = self.message(id)?;
        let message = &mut self.messages[number];
        if message["state"] == "leased" && verb != "extend" {
            message["state"] = json!(if verb == "ack" { "skipped" } else { "unanswered" });
        }
        Ok((200, json!({ "message": message, "lease": lease(id, None) })))
    }

    fn create(&mut self, body: &Value) -> FakeResponse {
        let given = |name: &str| body[name].as_str().map(str::to_owned);
        let default_name = format!("inbox-{}", self.last + 1);
        let address = given("address").unwrap_or_else(|| {
            let (name, domain) = (given("username").unwrap_or(default_name), given("domain"));
            format!("{name}@{}", domain.as_deref().unwrap_or("mailonce.test"))
        });
        let address = bare_address(&address)
            .ok_or_else(|| refused(422, "invalid_field", "it is no address", &json!({ "field": "address" })))?;
        let same =
            self.inboxes.iter().find(|one| !body["client_id"].is_null() && one["client_id"] == body["client_id"]);
        if let Some(same) = same {
            return Ok((200, same.clone()));
        }
        if self.inboxes.iter().any(|one| one["address"] == address) {
            return Err(refused(409, "name_taken", &format!("{address} is taken"), &Value::Null));
        }
        let mut inbox = self.blank_inbox(&address);
        for (name, value) in body.as_object().into_iter().flatten() {
            inbox[name] = value.clone();
        }
        self.inboxes.push(inbox.clone());
        Ok((201, inbox))
    }

    pub(crate) fn receive(&mut self, mail: Arrival) -> String {
        let address = bare_address(&mail.to).unwrap_or_else(|| mail.to.clone());
        if !self.inboxes.iter().any(|one| one["address"] == address) {
            let inbox = self.blank_inbox(&address);
            self.inboxes.push(inbox);
        }
        let number = 1 + self.messages.iter().filter(|one| one["inbox"] == address).count();
        let from = mail.from.unwrap_or_else(|| "ann@example.com".to_owned());
        let (id, thread) = (self.id(), self.id());
        let artifacts: Vec<Value> =
            mail.code.iter().map(|code| artifact(&self.id(), &id, &address, &from, code)).collect();
        let mut message = json!({
            "id": id, "inbox": address, "inbox_id": address, "thread_id": thread, "cursor": format!("1-{number}"),
            "rev": 1, "recipient": mail.to, "subject": mail.subject, "text": mail.text, "preview": mail.text,
            "from": { "address": from }, "received_at": NOW, "state": "unanswered", "read": false, "size": 0,
            "auth": { "spf": "none", "dkim": "none", "dmarc": "none", "verdict": "none" }, "view": "min",
            "reply_target": { "to": [from], "flags": [] },
        });
        message["has"] = if artifacts.is_empty() { json!([]) } else { json!(["code"]) };
        message["artifacts"] = json!(artifacts);
        let lists = [
            "to",
            "cc",
            "reply_to",
            "replies",
            "flags",
            "labels",
            "rules",
            "attachments",
            "links",
            "injection_flags",
            "candidates",
        ];
        for name in lists {
            message[name] = json!([]);
        }
        self.messages.push(message);
        id
    }

    fn blank_inbox(&mut self, address: &str) -> Value {
        json!({
            "id": self.id(), "address": address, "rev": 1, "created_at": NOW, "catch_all": false,
            "allowed_link_domains": [],
            "caps": { "per_window": 3, "window_s": 300, "per_thread_per_day": 20, "per_recipient_per_day": 20 },
            "reply_to_likely_automatic": false,
            "mark_auto_submitted": false, "metadata": {}, "message_count": 0, "cursor": "1-0",
        })
    }

    fn inbox(&self, id: &str) -> Result<&Value, StatusAndBody> {
        let address = id.to_lowercase();
        let found = self.inboxes.iter().find(|one| one["id"] == id || one["address"] == address);
        found.ok_or_else(|| missing(&format!("inbox {id}")))
    }

    fn message(&self, id: &str) -> Result<usize, StatusAndBody> {
        self.messages.iter().position(|one| one["id"] == id).ok_or_else(|| missing(&format!("message {id}")))
    }

    fn id(&mut self) -> String {
        self.last += 1;
        format!("00000000-0000-7000-8000-{:012}", self.last)
    }
}

fn artifact(id: &str, message: &str, inbox: &str, from: &str, code: &str) -> Value {
    json!({
        "id": id, "type": "code", "rev": 1, "value": code, "masked": "******", "confidence": 100, "reasons": [],
        "message": message, "inbox_id": inbox, "sender": from, "found_at": NOW, "sender_authenticated": false,
    })
}

fn lease(message: &str, holder: Option<&str>) -> Value {
    json!({ "token": format!("lt_{message}"), "fence": 1, "holder": holder.unwrap_or("double"), "expires_at": NOW })
}

/// The number in a cursor.
fn cursor_number(cursor: &str) -> u64 {
    cursor.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn matches(message: &Value, query: &HashMap<String, String>) -> bool {
    let sender = message["from"]["address"].as_str().unwrap_or_default();
    let subject = message["subject"].as_str().unwrap_or_default().to_lowercase();
    let has = texts(&message["has"]);
    query.get("from").is_none_or(|from| if from.starts_with('@') { sender.ends_with(from) } else { sender == from })
        && query.get("has").is_none_or(|wanted| has.contains(&wanted.as_str()))
        && query.get("subject").is_none_or(|wanted| subject.contains(&wanted.to_lowercase()))
        && query.get("state").is_none_or(|wanted| message["state"] == *wanted)
}

fn receipt(mail: &SentMail, suppressed: u64, outcome: &str, differs: bool) -> Value {
    let first = outcome == "first";
    let next = if first {
        "Accepted; it will be sent once, so do not send it again."
    } else {
        "Already sent; there is nothing to do."
    };
    json!({
        "id": mail.id, "state": if first { "queued" } else { "sent" }, "rev": if first { 1 } else { 4 },
        "message_id": format!("<{}@mailonce.test>", mail.id), "created_at": NOW, "next": next,
        "dedupe": {
            "outcome": outcome, "key": mail.key, "expires_at": null, "suppressed": suppressed,
            "payload_differs": differs,
        },
    })
}

/// An email as `GET /v1/emails/{id}` shows it.
fn email_detail(mail: &SentMail) -> Value {
    let mut view: Map<String, Value> = mail.body.as_object().cloned().unwrap_or_default();
    let facts = json!({
        "id": mail.id, "key": mail.key, "to": texts(&mail.body["to"]), "state": "sent", "rev": 4,
        "message_id": format!("<{}@mailonce.test>", mail.id), "created_at": NOW, "version": 1, "counts": { "sent": 1 },
        "suppressed": 0, "handoffs": [], "evidence": [], "timeline": [], "suppressed_calls": [], "on_unknown": "hold",
        "cc": texts(&mail.body["cc"]), "bcc": texts(&mail.body["bcc"]), "reply_to": texts(&mail.body["reply_to"]),
        "subject": mail.body["subject"].as_str().unwrap_or_default(), "attachments": [], "tags": {},
    });
    view.extend(facts.as_object().cloned().unwrap_or_default());
    if let Some(id) = &mail.call {
        view.insert("call".to_owned(), json!({ "id": id }));
    }
    Value::Object(view)
}
