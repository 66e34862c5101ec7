//! The content of an outbound email: sender, recipients, body. Validated once, when it is accepted, and immutable
//! afterwards.

use base64::{Engine as _, engine::general_purpose::STANDARD, engine::general_purpose::STANDARD_NO_PAD};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap};

use crate::{
    address::{Address, NamedAddress},
    limits, mutant,
    outbound::{schedule::Schedule, template::TemplateUse},
    problem::{Cause, Code, FieldError},
};

/// The header by which mailonce recognizes its own mail when it is received again.
pub const LOOP_HEADER: &str = "X-Mailonce-Loop";

/// The content as the caller sent it, before validation.
#[derive(Clone, Debug, Default)]
pub struct RawContent {
    /// Sender.
    pub from: String,
    /// Recipients.
    pub to: Vec<String>,
    /// Cc recipients.
    pub cc: Vec<String>,
    /// Bcc recipients.
    pub bcc: Vec<String>,
    /// Reply-To addresses.
    pub reply_to: Vec<String>,
    /// Subject.
    pub subject: String,
    /// Plain text body.
    pub text: Option<String>,
    /// HTML body.
    pub html: Option<String>,
    /// Custom headers, unvalidated.
    pub headers: Vec<(String, String)>,
    /// Attachments, still base64.
    pub attachments: Vec<RawAttachment>,
    /// Tags: a name and an optional value.
    pub tags: Vec<(String, Option<String>)>,
    /// Metadata.
    pub metadata: Vec<(String, MetadataValue)>,
    /// When to send it.
    pub scheduled_at: Option<String>,
    /// The template that writes subject and bodies.
    pub template: Option<TemplateUse>,
}

/// An attachment as the caller sent it.
#[derive(Clone, Debug, Default)]
pub struct RawAttachment {
    /// File name.
    pub filename: Option<String>,
    /// Base64, with or without line breaks.
    pub content: String,
    /// MIME type.
    pub content_type: Option<String>,
    /// Content-ID, for inline images.
    pub content_id: Option<String>,
}

/// A metadata value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "has a type that this field does not accept")]
pub enum MetadataValue {
    /// `true` or `false`.
    Bool(bool),
    /// An integer within ±(2^53-1), which every JSON parser keeps exact.
    Integer(i64),
    /// Any other number.
    Number(f64),
    /// Text.
    Text(String),
}

/// A validated attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// File name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// MIME type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Content-ID, for inline images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    /// The decoded file.
    #[serde(with = "as_base64")]
    pub bytes: Vec<u8>,
}

/// A validated email.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmailContent {
    /// Sender.
    pub from: NamedAddress,
    /// Recipients.
    pub to: Vec<NamedAddress>,
    /// Cc recipients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cc: Vec<NamedAddress>,
    /// Bcc recipients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bcc: Vec<NamedAddress>,
    /// Reply-To addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reply_to: Vec<NamedAddress>,
    /// Subject.
    pub subject: String,
    /// Plain text body, with LF line ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// HTML body, with LF line ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Custom headers in the caller's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// Attachments in the caller's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// Tags, sorted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, Option<String>>,
    /// Metadata, sorted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, MetadataValue>,
    /// When to send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<Schedule>,
    /// The template that writes subject and bodies, which are empty until it is rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateUse>,
}

impl EmailContent {
    /// Validates the content. Each error names the path of its field.
    pub fn validate(raw: RawContent) -> Result<Self, Vec<FieldError>> {
        let mut faults = Vec::new();
        let from = parse_address(|| "from".to_owned(), &raw.from, &mut faults);
        let content = Self {
            from: from.unwrap_or(NamedAddress { name: None, address: String::new() }),
            to: parse_addresses("to", &raw.to, &mut faults),
            cc: parse_addresses("cc", &raw.cc, &mut faults),
            bcc: parse_addresses("bcc", &raw.bcc, &mut faults),
            reply_to: parse_addresses("reply_to", &raw.reply_to, &mut faults),
            subject: check_line("subject", raw.subject, limits::SUBJECT_CHARS, &mut faults),
            text: normalize_body("text", raw.text, &mut faults),
            html: normalize_body("html", raw.html, &mut faults),
            headers: check_headers(raw.headers, &mut faults),
            attachments: decode_attachments(raw.attachments, &mut faults),
            tags: check_tags(raw.tags, &mut faults),
            metadata: check_metadata(raw.metadata, &mut faults),
            scheduled_at: parse_schedule(raw.scheduled_at.as_deref(), &mut faults),
            template: raw.template.map(|template| template.validate(&mut faults)),
        };
        content.validate_whole(&mut faults);
        if faults.is_empty() { Ok(content) } else { Err(faults) }
    }

    /// Checks a reply. Its subject comes from the thread, also if a template writes the rest.
    pub fn validate_reply(mut raw: RawContent) -> Result<Self, Vec<FieldError>> {
        if raw.template.is_none() {
            return Self::validate(raw);
        }
        let subject = std::mem::take(&mut raw.subject);
        let mut faults = Vec::new();
        let subject = check_line("subject", subject, limits::SUBJECT_CHARS, &mut faults);
        let content = Self::validate(raw)?;
        if faults.is_empty() { Ok(Self { subject, ..content }) } else { Err(faults) }
    }

    fn validate_whole(&self, faults: &mut Vec<FieldError>) {
        if self.to.is_empty() && !faults.iter().any(|f| f.path.starts_with("to")) {
            let cause = Some(Cause::NoRecipient);
            faults.push(FieldError { cause, ..FieldError::new("to", "names no recipient") });
        }
        let recipients = self.to.len() + self.cc.len() + self.bcc.len();
        if recipients > limits::RECIPIENTS {
            let text =
                format!("names {recipients} recipients with cc and bcc; at most {} fit one email", limits::RECIPIENTS);
            faults.push(FieldError::new("to", text));
        }
        if self.template.is_some() {
            if !self.subject.is_empty() || self.text.is_some() || self.html.is_some() {
                let text =
                    "cannot be combined with subject, text or html: the template writes them. Leave one of the two out";
                faults.push(FieldError::new("template", text));
            }
            return;
        }
        if self.text.is_none() && self.html.is_none() && !faults.iter().any(|f| f.path == "text" || f.path == "html") {
            faults.push(FieldError::new("text", "is missing, and so is html: a mail needs a body"));
        }
    }

    /// Sets what the template wrote. The subject of a reply stays.
    pub fn set_rendered(
        &mut self,
        version: u32,
        (subject, text, html): (String, Option<String>, Option<String>),
    ) -> Result<(), Vec<FieldError>> {
        let mut faults = Vec::new();
        if self.subject.is_empty() {
            self.subject = check_line("subject", subject, limits::SUBJECT_CHARS, &mut faults);
        }
        self.text = normalize_body("text", text, &mut faults);
        self.html = normalize_body("html", html, &mut faults);
        if self.text.is_none() && self.html.is_none() && faults.is_empty() {
            faults.push(FieldError::new("text", "is empty, and so is html: a mail needs a body"));
        }
        if let Some(template) = &mut self.template {
            template.version = Some(version);
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// Whether a template has yet to write its subject and bodies.
    pub fn awaits_rendering(&self) -> bool {
        self.template.is_some() && self.text.is_none() && self.html.is_none()
    }

    /// The `to` recipients in the normalized form that keys use.
    pub fn to_addresses(&self) -> Vec<Address> {
        sorted_addresses(&self.to)
    }

    /// All recipients, without duplicates, in the given order and spelling. The case of the local part is kept, because
    /// only the recipient's server knows whether it matters.
    pub fn recipients(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::with_capacity(self.to.len() + self.cc.len() + self.bcc.len());
        for mailbox in self.to.iter().chain(&self.cc).chain(&self.bcc) {
            // An email has few recipients, so a linear search is cheaper than a set.
            if !all.iter().any(|known| known.eq_ignore_ascii_case(&mailbox.address)) {
                all.push(&mailbox.address);
            }
        }
        all
    }
}

/// Normalized addresses, sorted, without duplicates.
pub fn sorted_addresses(list: &[NamedAddress]) -> Vec<Address> {
    sort_and_dedup(list.iter().map(NamedAddress::to_address).collect())
}

/// Like [`sorted_addresses`], as strings that are borrowed where possible.
pub(crate) fn sorted_lowercased(list: &[NamedAddress]) -> Vec<Cow<'_, str>> {
    sort_and_dedup(list.iter().map(NamedAddress::lowercased).collect())
}

fn sort_and_dedup<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    if !mutant!("recipients-unsorted") {
        all.sort_unstable();
    }
    all.dedup();
    all
}

fn parse_address(path: impl FnOnce() -> String, text: &str, faults: &mut Vec<FieldError>) -> Option<NamedAddress> {
    match NamedAddress::parse(text) {
        Ok(mailbox) => Some(mailbox),
        Err(error) => {
            faults.push(FieldError::new(&path(), error.to_string()));
            None
        }
    }
}

fn parse_addresses(path: &str, list: &[String], faults: &mut Vec<FieldError>) -> Vec<NamedAddress> {
    let one = |(i, text): (usize, &String)| parse_address(|| format!("{path}[{i}]"), text, faults);
    list.iter().enumerate().take(limits::RECIPIENTS * 4).filter_map(one).collect()
}

/// Checks one line of text: no control characters, at most `most` characters.
fn check_line(path: &str, text: String, most: usize, faults: &mut Vec<FieldError>) -> String {
    if text.chars().any(char::is_control) {
        faults.push(FieldError::new(path, "contains a control character such as CR, LF or NUL"));
    } else if text.chars().count() > most {
        faults.push(FieldError::new(path, format!("is longer than {most} characters")));
    }
    text
}

/// Normalizes line ends to LF and refuses NUL. An empty body counts as absent.
fn normalize_body(path: &str, text: Option<String>, faults: &mut Vec<FieldError>) -> Option<String> {
    let text = text.filter(|text| !text.is_empty())?;
    if text.contains('\0') {
        faults.push(FieldError::new(path, "contains NUL"));
    }
    Some(if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text })
}

/// Headers that mailonce or a mail server writes, or that have a field of their own. Some of them would add recipients,
/// claim an authenticated sender, or change how the whole mail is displayed.
fn is_reserved_header(name: &str) -> bool {
    const NAMES: [&str; 19] = [
        "message-id",
        "date",
        "auto-submitted",
        "return-path",
        "from",
        "sender",
        "to",
        "cc",
        "bcc",
        "apparently-to",
        "subject",
        "reply-to",
        "mime-version",
        "received",
        "received-spf",
        "authentication-results",
        "domainkey-signature",
        "delivered-to",
        "envelope-to",
    ];
    const PREFIXES: [&str; 5] = ["resent-", "arc-", "dkim-", "content-", "x-mailonce-"];
    let name = name.to_ascii_lowercase();
    NAMES.contains(&name.as_str())
        || (PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && name != "content-language")
        || name.ends_with("idempotency-key")
}

fn check_headers(list: Vec<(String, String)>, faults: &mut Vec<FieldError>) -> Vec<(String, String)> {
    if list.len() > limits::HEADERS {
        faults.push(FieldError::new("headers", format!("holds more than {} headers", limits::HEADERS)));
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut kept = Vec::with_capacity(list.len());
    for (name, value) in list {
        let path = format!("headers.{name}");
        let token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
        if !token || name.len() > limits::HEADER_NAME_CHARS {
            faults.push(FieldError::new("headers", "holds a name that is no header name"));
            continue;
        }
        if is_reserved_header(&name) {
            faults.push(FieldError::new(&path, "is written by mailonce and cannot be set"));
        }
        if !seen.insert(name.to_ascii_lowercase()) {
            faults.push(FieldError::new(&path, "is given twice, in different case"));
        }
        let value = check_line(&path, value, limits::HEADER_VALUE_CHARS, faults).trim().to_owned();
        kept.push((name, value));
    }
    kept
}

fn decode_attachments(list: Vec<RawAttachment>, faults: &mut Vec<FieldError>) -> Vec<Attachment> {
    if list.len() > limits::ATTACHMENTS {
        faults.push(FieldError::new("attachments", format!("holds more than {} files", limits::ATTACHMENTS)));
        return Vec::new();
    }
    let checked: Vec<Attachment> =
        list.into_iter().enumerate().filter_map(|(i, raw)| decode_attachment(i, raw, faults)).collect();
    if checked.iter().map(|a| a.bytes.len()).sum::<usize>() > limits::ATTACHMENT_BYTES {
        faults.push(FieldError {
            code: Code::TooLarge,
            ..FieldError::new("attachments", format!("decode to more than {} bytes", limits::ATTACHMENT_BYTES))
        });
    }
    checked
}

fn decode_attachment(i: usize, raw: RawAttachment, faults: &mut Vec<FieldError>) -> Option<Attachment> {
    let at = |field: &str| format!("attachments[{i}].{field}");
    let mut word = |field: &str, text: Option<String>| {
        text.map(|text| check_line(&at(field), text, limits::FILENAME_CHARS, faults))
    };
    let filename = word("filename", raw.filename);
    let content_type = word("content_type", raw.content_type);
    let content_id = word("content_id", raw.content_id);
    let mut packed = raw.content.into_bytes();
    packed.retain(|b| !b.is_ascii_whitespace());
    let bytes = STANDARD.decode(&packed).or_else(|_padding| STANDARD_NO_PAD.decode(&packed));
    match bytes {
        Ok(bytes) => Some(Attachment { filename, content_type, content_id, bytes }),
        Err(error) => {
            faults.push(FieldError::new(&at("content"), format!("is not base64: {error}")));
            None
        }
    }
}

fn check_tags(list: Vec<(String, Option<String>)>, faults: &mut Vec<FieldError>) -> BTreeMap<String, Option<String>> {
    if list.len() > limits::TAGS {
        faults.push(FieldError::new("tags", format!("holds more than {} tags", limits::TAGS)));
    }
    let mut kept = BTreeMap::new();
    for (i, (name, value)) in list.into_iter().enumerate() {
        let path = format!("tags[{i}]");
        if name.is_empty() {
            faults.push(FieldError::new(&path, "has no name"));
        }
        let name = check_line(&path, name, limits::LABEL_CHARS, faults);
        let value = value.map(|value| check_line(&path, value, limits::LABEL_CHARS, faults));
        if kept.insert(name, value).is_some() {
            faults.push(FieldError::new(&path, "repeats the name of another tag"));
        }
    }
    kept
}

fn check_metadata(list: Vec<(String, MetadataValue)>, faults: &mut Vec<FieldError>) -> BTreeMap<String, MetadataValue> {
    if list.len() > limits::METADATA {
        faults.push(FieldError::new("metadata", format!("holds more than {} entries", limits::METADATA)));
    }
    let mut kept = BTreeMap::new();
    for (name, value) in list {
        let path = format!("metadata.{name}");
        let safe = match &value {
            MetadataValue::Integer(n) => n.unsigned_abs() <= limits::SAFE_INTEGER.unsigned_abs(),
            MetadataValue::Number(n) => n.abs() <= limits::SAFE_INTEGER as f64,
            MetadataValue::Bool(_) | MetadataValue::Text(_) => true,
        };
        if !safe {
            faults.push(FieldError::new(
                &path,
                "is a number beyond 2^53-1, which JSON readers round: send it as a string",
            ));
        }
        let long = matches!(&value, MetadataValue::Text(text) if text.chars().count() > limits::LABEL_CHARS);
        if name.is_empty() || name.chars().count() > limits::LABEL_CHARS || long {
            faults
                .push(FieldError::new(&path, format!("names and values are 1 to {} characters", limits::LABEL_CHARS)));
        }
        kept.insert(name, value);
    }
    kept
}

fn parse_schedule(text: Option<&str>, faults: &mut Vec<FieldError>) -> Option<Schedule> {
    match Schedule::parse(text?) {
        Ok(schedule) => Some(schedule),
        Err(error) => {
            faults.push(FieldError::new("scheduled_at", error.to_string()));
            None
        }
    }
}

/// Stores attachments as base64 inside the JSON.
mod as_base64 {
    use super::STANDARD;
    use base64::Engine as _;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(from)?;
        STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)
    }
}
