//! What the server in memory decides: keys, answers, codes and work, by the rules of the real one. It has no guards against
//! loops, no caps, no transports and no clock.

use serde_json::{Map, Value, json};
use std::collections::HashMap;

use crate::{
    http::Request,
    key::{bare_address, derive_key},
    testing::{Arrival, Gone},
    wire::{Addresses, Intent},
};

/// Status and body, of an answer or a refusal.
type Told = (u16, Value);
type Said = Result<Told, Told>;

const NOW: &str = "2026-11-15T10:00:00.000Z";

/// What a first wording forgives.
const WORDS: [&str; 6] = ["subject", "text", "html", "headers", "tags", "metadata"];
const MEANING: [&str; 13] = [
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
pub(crate) struct Desk {
    pub(crate) mails: Vec<Gone>,
    /// Which mail a key is bound to, and how many calls it answered instead of making another.
    keys: HashMap<String, (usize, u64)>,
    others: HashMap<String, Told>,
    inboxes: Vec<Value>,
    messages: Vec<Value>,
    last: u64,
    /// What the caller calls the call at hand.
    call: Option<String>,
}

fn refused(status: u16, code: &str, detail: &str, more: &Value) -> Told {
    let mut problem = json!({
        "status": status, "code": code, "detail": detail, "title": code, "type": format!("/docs/errors/{code}"),
        "retry": "never", "next": format!("See /docs/errors/{code}."),
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        problem[name] = value.clone();
    }
    (status, problem)
}

fn missing(what: &str) -> Told {
    refused(404, "not_found", &format!("there is no {what}"), &Value::Null)
}

fn absent(what: &str) -> Told {
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

/// What a field means, as text: order and case of recipients, kinds of line ends and empty values do not count.
fn meant(field: &str, value: &Value) -> String {
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

/// A path segment or query value as it was before it was escaped.
fn plain(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        let pair: Vec<u8> = if byte == b'%' { rest.by_ref().take(2).collect() } else { Vec::new() };
        let escaped = std::str::from_utf8(&pair).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(byte));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A request, taken apart.
struct Asked {
    method: String,
    what: String,
    id: String,
    verb: String,
    query: HashMap<String, String>,
    key: Option<String>,
    /// What the caller calls this call.
    call: Option<String>,
    body: Value,
}

impl Asked {
    fn read(request: &Request) -> Self {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let mut parts = path.split('/').skip(2).map(plain);
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
            query: pairs.map(|(name, value)| (name.to_owned(), plain(value))).collect(),
            key: header("idempotency-key"),
            call: header("mailonce-call-id").map(|id| plain(&id)),
            body: serde_json::from_slice(&request.body).unwrap_or(Value::Null),
        }
    }
}

impl Desk {
    pub(crate) fn act(&mut self, request: &Request) -> Said {
        let asked = Asked::read(request);
        self.call.clone_from(&asked.call);
        match (asked.method.as_str(), asked.what.as_str(), asked.id.as_str(), asked.verb.as_str()) {
            ("POST", "emails", "", _) => self.send(&asked.body, asked.key.as_deref(), None),
            ("POST", "emails", "batch", _) => self.batch(&asked.body, asked.key.as_deref()),
            ("GET", "emails", id, _) => self.look(id, &asked.query),
            ("POST", "messages", id, "reply") => self.reply(id, &asked.body),
            ("GET", ..) => self.read(&asked),
            _ => self.once(&asked),
        }
    }

    /// A call that is no send, under its key.
    fn once(&mut self, asked: &Asked) -> Said {
        if let Some(told) = asked.key.as_ref().and_then(|key| self.others.get(key)) {
            return Ok(told.clone());
        }
        let told = self.other(asked)?;
        if let Some(key) = &asked.key {
            self.others.insert(key.clone(), told.clone());
        }
        Ok(told)
    }

    fn send(&mut self, mail: &Value, header: Option<&str>, child: Option<String>) -> Said {
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
        let usual = if key.is_some() && key == derived { "first_wins" } else { "reject" };
        let mode = mail["on_mismatch"].as_str().unwrap_or(usual).to_owned();
        self.accept(key, &mode, mail.clone(), None)
    }

    fn accept(&mut self, key: Option<String>, mode: &str, body: Value, reply_to_message: Option<String>) -> Said {
        let Some(name) = key.clone().filter(|key| self.keys.contains_key(key)) else {
            let id = self.id();
            self.mails.push(Gone { id, key: key.clone(), reply_to_message, call: self.call.clone(), body });
            let number = self.mails.len() - 1;
            if let Some(key) = key {
                self.keys.insert(key, (number, 0));
            }
            return Ok((202, told(&self.mails[number], 0, "first", false)));
        };
        let (number, suppressed) = self.keys.get(&name).copied().unwrap_or_default();
        self.keys.insert(name.clone(), (number, suppressed + 1));
        let first = &self.mails[number];
        let differs: Vec<&str> = MEANING
            .into_iter()
            .filter(|field| meant(field, &body[*field]) != meant(field, &first.body[*field]))
            .collect();
        if !differs.is_empty() && (mode == "reject" || differs.iter().any(|field| !WORDS.contains(field))) {
            let detail = format!("the key belongs to email {}, which differs in: {}", first.id, differs.join(", "));
            let more = json!({ "differing_fields": differs, "original_email": first.id, "key": name });
            return Err(refused(422, "key_mismatch", &detail, &more));
        }
        Ok((200, told(first, suppressed + 1, "replayed", !differs.is_empty())))
    }

    fn batch(&mut self, mails: &Value, key: Option<&str>) -> Said {
        let mut answers = Vec::new();
        for (number, mail) in mails.as_array().into_iter().flatten().enumerate() {
            answers.push(self.send(mail, None, key.map(|key| format!("{key}[{number}]")))?);
        }
        let status = if answers.iter().all(|(status, _)| *status == 200) { 200 } else { 202 };
        let data: Vec<Value> = answers.into_iter().map(|(_, body)| body).collect();
        Ok((status, json!({ "data": data, "errors": [] })))
    }

    fn look(&self, id: &str, query: &HashMap<String, String>) -> Said {
        let key = query.get("key");
        if id.is_empty() {
            let found = self.mails.iter().rev().filter(|mail| key.is_none() || mail.key.as_ref() == key);
            return Ok((200, json!({ "data": found.map(seen).collect::<Vec<_>>(), "next_cursor": null })));
        }
        let found = self.mails.iter().find(|mail| mail.id == id);
        found.map(|mail| (200, seen(mail))).ok_or_else(|| missing(&format!("email {id}")))
    }

    fn reply(&mut self, id: &str, body: &Value) -> Said {
        let number = self.message(id)?;
        let thread = self.messages[number]["thread_id"].clone();
        let key = format!("reply {id} {}", body["follow_up"].as_u64().unwrap_or(0));
        if let Some((first, suppressed)) = self.keys.get(&key).copied() {
            self.keys.insert(key, (first, suppressed + 1));
            let mail = &self.mails[first];
            let differs = meant("text", &body["text"]) != meant("text", &mail.body["text"]);
            let mut answer = told(mail, suppressed + 1, "replayed", differs);
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

    fn read(&self, asked: &Asked) -> Said {
        match (asked.what.as_str(), asked.id.as_str(), asked.verb.as_str()) {
            ("messages", id, "") => Ok((200, self.messages[self.message(id)?].clone())),
            ("inboxes", "", _) => Ok((200, json!({ "data": self.inboxes, "next_cursor": null }))),
            ("inboxes", id, "") => Ok((200, self.inbox(id)?.clone())),
            ("inboxes", id, verb @ ("messages" | "wait")) => self.arrived(id, verb, &asked.query),
            (what, _, verb) => Err(absent(&format!("GET {what}/{verb}"))),
        }
    }

    fn arrived(&self, id: &str, verb: &str, query: &HashMap<String, String>) -> Said {
        let inbox = &self.inbox(id)?["address"];
        let after = query.get("after").map(|cursor| place(cursor));
        let fits = |message: &&Value| {
            message["inbox"] == *inbox
                && matches(message, query)
                && place(message["cursor"].as_str().unwrap_or_default()) > after.unwrap_or(0)
        };
        let mut found: Vec<&Value> = self.messages.iter().filter(fits).collect();
        // Newest first, or oldest first behind a place.
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

    fn other(&mut self, asked: &Asked) -> Said {
        let body = &asked.body;
        match (asked.method.as_str(), asked.what.as_str(), asked.id.as_str(), asked.verb.as_str()) {
            ("POST", "inboxes", "", _) => self.create(body),
            ("POST", "inboxes", id, "consume") => self.consume_latest(id, body),
            ("POST", "artifacts", id, "consume") => self.consume(body, |artifact| artifact["id"] == id),
            ("POST", "inboxes", id, "next") => self.next(id, body),
            ("POST", "messages", id, verb @ ("ack" | "nack" | "extend")) => self.settle(id, verb),
            (method, what, _, verb) => Err(absent(&format!("{method} {what}/{verb}"))),
        }
    }

    fn consume_latest(&mut self, id: &str, body: &Value) -> Said {
        let address = self.inbox(id)?["address"].clone();
        let from = body["match"]["from"].as_str().map(|from| ("from".to_owned(), from.to_owned()));
        let query: HashMap<String, String> = from.into_iter().chain([("has".to_owned(), "code".to_owned())]).collect();
        let found = self.messages.iter().rev().filter(|one| one["inbox"] == address && matches(one, &query));
        let codes: Vec<&Value> = found.map(|one| &one["artifacts"][0]).collect();
        // A repeat gets its own, everybody else the newest that nobody took.
        let own = codes.iter().find(|one| one["consumed_for"] == body["for"]);
        let free = || codes.iter().find(|one| one["consumed_for"].is_null());
        let artifact = own.or_else(free).or(codes.first()).ok_or_else(|| missing("code"))?["id"].clone();
        self.consume(body, |one| one["id"] == artifact)
    }

    fn consume(&mut self, body: &Value, is: impl Fn(&Value) -> bool) -> Said {
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

    fn next(&mut self, id: &str, body: &Value) -> Said {
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

    fn settle(&mut self, id: &str, verb: &str) -> Said {
        let number = self.message(id)?;
        let message = &mut self.messages[number];
        if message["state"] == "leased" && verb != "extend" {
            message["state"] = json!(if verb == "ack" { "skipped" } else { "unanswered" });
        }
        Ok((200, json!({ "message": message, "lease": lease(id, None) })))
    }

    fn create(&mut self, body: &Value) -> Said {
        let given = |name: &str| body[name].as_str().map(str::to_owned);
        let usual = format!("inbox-{}", self.last + 1);
        let made = given("address").unwrap_or_else(|| {
            let (name, domain) = (given("username").unwrap_or(usual), given("domain"));
            format!("{name}@{}", domain.as_deref().unwrap_or("mailonce.test"))
        });
        let address = bare_address(&made)
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
        let place = 1 + self.messages.iter().filter(|one| one["inbox"] == address).count();
        let from = mail.from.unwrap_or_else(|| "ann@example.com".to_owned());
        let (id, thread) = (self.id(), self.id());
        let artifacts: Vec<Value> =
            mail.code.iter().map(|code| artifact(&self.id(), &id, &address, &from, code)).collect();
        let mut message = json!({
            "id": id, "inbox": address, "inbox_id": address, "thread_id": thread, "cursor": format!("1-{place}"),
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

    fn inbox(&self, id: &str) -> Result<&Value, Told> {
        let address = id.to_lowercase();
        let found = self.inboxes.iter().find(|one| one["id"] == id || one["address"] == address);
        found.ok_or_else(|| missing(&format!("inbox {id}")))
    }

    fn message(&self, id: &str) -> Result<usize, Told> {
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
fn place(cursor: &str) -> u64 {
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

fn told(mail: &Gone, suppressed: u64, outcome: &str, differs: bool) -> Value {
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

/// A mail as a look at it shows it.
fn seen(mail: &Gone) -> Value {
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
