//! `http`: any other provider, by a template of its request.
//!
//! The body is JSON. A string that is exactly one placeholder, such as `"{{to}}"`, becomes that value with its own type
//! (recipients are lists), and the member is left out when the mail has none. Inside a longer string a placeholder
//! is written as text. What the template has no place for is never dropped: such a mail is unfit.

use hyper::Method;
use mailonce_core::{
    content::LOOP_FIELD,
    port::transport::{Mail, Meaning, Parcel, Recovery, Reply, Transport, Unfit, Wire},
};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{BadSetting, Base, Call, Provider, Secret, Setting, carrier, form, wire::Answer};

/// What may stand between `{{` and `}}`.
const PLACES: [&str; 19] = [
    "from",
    "from_address",
    "from_name",
    "to",
    "cc",
    "bcc",
    "recipients",
    "reply_to",
    "subject",
    "text",
    "html",
    "headers",
    "attachments",
    "tags",
    "metadata",
    "key",
    "id",
    "message_id",
    "mime_base64",
];

/// How a provider that mailonce does not know is spoken to.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where mails go, in full. It takes the place of `base_url`.
    pub url: String,
    /// `POST` or `PUT`.
    pub method: String,
    /// Headers of each request. Their values are kept like secrets, since one of them usually is.
    pub headers: Vec<(String, Secret)>,
    /// The body: JSON with placeholders.
    pub body: String,
    /// The header that carries the key, where the provider takes one.
    pub key_header: Option<String>,
    /// How long the provider remembers a key. Only with it is an unknown outcome tried again.
    pub window: Option<Duration>,
    /// Statuses that mean the mail was taken.
    pub accepted: Vec<u16>,
    /// Where in the answer the provider names the mail (RFC 6901). When set, an answer without it proves nothing.
    pub id_pointer: Option<String>,
    /// Statuses by which a repeat is refused as a repeat, `409` at some.
    pub repeated: Vec<u16>,
}

struct Template {
    config: Config,
    method: Method,
    body: Value,
    uses: BTreeSet<String>,
    /// The headers' values and their words, since a provider may quote a token without its scheme.
    secrets: Vec<Secret>,
}

/// Mail by any provider that takes JSON.
pub fn transport(mut setting: Setting, config: Config) -> Result<Arc<dyn Transport>, BadSetting> {
    let bad = |why: String| BadSetting(format!("transport {}: {why}", setting.name));
    let method = match config.method.as_str() {
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        other => return Err(bad(format!("method {other} is neither POST nor PUT"))),
    };
    let body: Value = serde_json::from_str(&config.body).map_err(|e| bad(format!("body is no JSON: {e}")))?;
    let mut uses = BTreeSet::new();
    places(&body, &mut uses);
    if let Some(unknown) = uses.iter().find(|place| !PLACES.contains(&place.as_str())) {
        return Err(bad(format!("body has the unknown placeholder {{{{{unknown}}}}}")));
    }
    if config.window.is_some() && config.key_header.is_none() && !uses.contains("key") {
        return Err(bad("window is set, but no key_header and no {{key}}: the provider never sees the key".into()));
    }
    if config.accepted.is_empty() || config.accepted.iter().any(|status| !(200..300).contains(status)) {
        return Err(bad("accepted must list statuses from 200 to 299".into()));
    }
    if config.repeated.iter().any(|status| !(400..500).contains(status)) {
        return Err(bad("repeated must list statuses from 400 to 499".into()));
    }
    setting.base_url = Some(config.url.clone());
    let values = config.headers.iter().map(|(_, value)| value.0.as_str());
    let words = values.clone().flat_map(str::split_whitespace);
    let secrets = values.chain(words).map(Secret::new).collect();
    carrier(setting, Template { config, method, body, uses, secrets }, "", "")
}

/// The placeholders of a template.
fn places(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => found.extend(pieces(text).into_iter().filter_map(|piece| match piece {
            Piece::Place(name) => Some(name.to_owned()),
            Piece::Text(_) => None,
        })),
        Value::Array(list) => list.iter().for_each(|value| places(value, found)),
        Value::Object(map) => map.values().for_each(|value| places(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

enum Piece<'a> {
    Text(&'a str),
    Place(&'a str),
}

fn pieces(mut text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    while let Some((before, name, after)) = text
        .split_once("{{")
        .and_then(|(before, rest)| rest.split_once("}}").map(|(name, after)| (before, name, after)))
    {
        pieces.extend((!before.is_empty()).then_some(Piece::Text(before)));
        pieces.push(Piece::Place(name.trim()));
        text = after;
    }
    pieces.extend((!text.is_empty()).then_some(Piece::Text(text)));
    pieces
}

/// The template with the mail in it. `None` for a value that the mail does not have.
fn filled(template: &Value, mail: &Mail<'_>) -> Option<Value> {
    match template {
        Value::String(text) => match pieces(text).as_slice() {
            [Piece::Place(name)] => place(name, mail),
            many => Some(Value::String(many.iter().map(|piece| written(piece, mail)).collect())),
        },
        Value::Array(list) => Some(list.iter().filter_map(|value| filled(value, mail)).collect()),
        Value::Object(map) => {
            let member = |(name, value): (&String, &Value)| Some((name.clone(), filled(value, mail)?));
            Some(Value::Object(map.iter().filter_map(member).collect()))
        }
        plain => Some(plain.clone()),
    }
}

/// A piece of a longer string.
fn written(piece: &Piece<'_>, mail: &Mail<'_>) -> String {
    match piece {
        Piece::Text(text) => (*text).to_owned(),
        Piece::Place(name) => match place(name, mail) {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(Value::Array(list)) if list.iter().all(Value::is_string) => {
                list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
            }
            Some(other) => other.to_string(),
        },
    }
}

fn place(name: &str, mail: &Mail<'_>) -> Option<Value> {
    let content = mail.content;
    let list = |list: Vec<String>| (!list.is_empty()).then(|| Value::from(list));
    let text = |text: &Option<String>| text.clone().map(Value::String);
    match name {
        "from" => Some(form::mailbox(&content.from).into()),
        "from_address" => Some(content.from.address.clone().into()),
        "from_name" => text(&content.from.name),
        "to" => list(form::mailboxes(&content.to)),
        "cc" => list(form::mailboxes(&content.cc)),
        "bcc" => list(form::mailboxes(&content.bcc)),
        "recipients" => list(content.recipients().into_iter().map(str::to_owned).collect()),
        "reply_to" => list(form::mailboxes(&content.reply_to)),
        "subject" => Some(content.subject.clone().into()),
        "text" => text(&content.text),
        "html" => text(&content.html),
        "headers" => object(content.headers.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())))),
        "attachments" => (!content.attachments.is_empty()).then(|| files(mail)),
        "tags" => object(content.tags.iter().map(|(name, value)| (name.clone(), Value::from(value.as_deref())))),
        "metadata" => object(content.metadata.iter().map(|(name, value)| (name.clone(), form::scalar(value).into()))),
        "key" => Some(mail.key.as_hyphenated().to_string().into()),
        "id" => Some(mail.id.to_string().into()),
        "message_id" => Some(mail.message_id.into()),
        "mime_base64" => mail.mime.map(|mime| form::packed(mime).into()),
        _ => None,
    }
}

fn object(members: impl Iterator<Item = (String, Value)>) -> Option<Value> {
    let map: Map<String, Value> = members.collect();
    (!map.is_empty()).then_some(Value::Object(map))
}

fn files(mail: &Mail<'_>) -> Value {
    let file = |(index, attachment)| {
        let id = form::content_id(attachment).map(|id| ("content_id".to_owned(), Value::from(id)));
        let plain = [
            ("filename".to_owned(), Value::from(form::filename(index, attachment))),
            ("content".to_owned(), form::packed(&attachment.bytes).into()),
            ("content_type".to_owned(), form::content_type(attachment).into()),
        ];
        Value::Object(plain.into_iter().chain(id).collect())
    };
    mail.content.attachments.iter().enumerate().map(file).collect()
}

impl Template {
    fn uses(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.uses.contains(*name))
    }

    /// Every part of the mail that must arrive has a place in the template.
    fn check(&self, mail: &Mail<'_>) -> Result<(), Unfit> {
        let content = mail.content;
        let body = self.uses(&["mime_base64"]);
        // Our own mark is of use only where there is room for it; a mail goes without it all the same.
        let headers = content.headers.iter().any(|(name, _)| name != LOOP_FIELD);
        let needs = [
            ("to", true, self.uses(&["to", "recipients"])),
            ("cc", !content.cc.is_empty(), self.uses(&["cc", "recipients"])),
            ("bcc", !content.bcc.is_empty(), self.uses(&["bcc", "recipients"])),
            ("reply_to", !content.reply_to.is_empty(), body || self.uses(&["reply_to"])),
            ("text", content.text.is_some() && content.html.is_none(), body || self.uses(&["text"])),
            ("html", content.html.is_some(), body || self.uses(&["html"])),
            ("attachments", !content.attachments.is_empty(), body || self.uses(&["attachments"])),
            ("headers", headers, body || self.uses(&["headers"])),
        ];
        match needs.iter().find(|(_, given, has_place)| *given && !has_place) {
            Some((name, ..)) => Err(Unfit(format!("the transport's template has no place for the mail's {name}"))),
            None => Ok(()),
        }
    }
}

impl Provider for Template {
    const KIND: &'static str = "http";

    fn wire(&self) -> Wire {
        if self.uses(&["mime_base64"]) { Wire::Mime } else { Wire::Content }
    }

    fn recovery(&self) -> Recovery {
        let ms = self.config.window.and_then(|window| i64::try_from(window.as_millis()).ok());
        ms.map_or(Recovery::None, |window_ms| Recovery::Key { window_ms })
    }

    fn secrets(&self) -> Vec<&Secret> {
        self.secrets.iter().collect()
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        self.check(mail)?;
        if self.uses(&["mime_base64"]) {
            form::mime(mail)?;
        }
        form::json(&filled(&self.body, mail).unwrap_or(Value::Null))
    }

    fn call(&self, _base: &Base, parcel: &Parcel) -> Call {
        let mut call = Call::json("", parcel);
        call.method = self.method.clone();
        for (name, value) in &self.config.headers {
            call = call.with(name, &value.0);
        }
        match &self.config.key_header {
            Some(name) => call.with(name, parcel.key.as_hyphenated().to_string()),
            None => call,
        }
    }

    fn judge(&self, answer: &Answer) -> Reply {
        if self.config.repeated.contains(&answer.status) {
            return answer.means(Meaning::Repeated, &answer.excerpt());
        }
        if !self.config.accepted.contains(&answer.status) {
            return answer.by_status("the provider", None);
        }
        match (&self.config.id_pointer, &answer.body) {
            (Some(pointer), _) => match id_at(answer, pointer) {
                Some(id) => answer.taken(id, "accepted"),
                None => answer.by_status("the provider", None),
            },
            // Without a named id the status must do, but a page for people is nobody's API.
            (None, Ok(body)) if body.is_empty() || answer.object().is_some() => {
                answer.means(Meaning::Accepted, "accepted")
            }
            (None, _) => answer.by_status("the provider", None),
        }
    }
}

fn id_at(answer: &Answer, pointer: &str) -> Option<String> {
    match answer.object()?.pointer(pointer)? {
        Value::String(id) if !id.trim().is_empty() => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}
