//! The digest: a versioned hash over the meaning of an email. It decides whether a repeated key is a replay or a
//! mismatch.
//!
//! Beside the hash of the whole it keeps eight bytes per field, so that a mismatch error can name the differing fields
//! even after the body was deleted. Fields are hashed as typed, length-prefixed parts instead of JSON. So different
//! meanings never share an input, and the quirks of JSON parsers have no influence.

use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};
use std::{fmt, sync::Arc};

use crate::{
    key::InstallSecret,
    limits, mutant,
    outbound::{
        content::{EmailContent, MetadataValue, sorted_lowercased},
        schedule::Schedule,
    },
};

/// The version of new digests.
pub const CURRENT_VERSION: u8 = 1;
/// The bit of the version byte that marks a keyed digest.
const KEYED: u8 = 0x80;

/// A part of an email's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is the API field of that name")]
pub enum DigestField {
    From = 1,
    To,
    Cc,
    Bcc,
    ReplyTo,
    Subject,
    Text,
    Html,
    Headers,
    Attachments,
    Tags,
    Metadata,
    ScheduledAt,
    /// Display names of all addresses, separate from the addresses.
    Names,
    /// The name of the template and its variables, in the place of subject, text and HTML. Neither the version nor the
    /// wording counts, so that a retry after the template was changed is still the same email.
    Template,
}

const ALL_FIELDS: [DigestField; 15] = [
    DigestField::From,
    DigestField::To,
    DigestField::Cc,
    DigestField::Bcc,
    DigestField::ReplyTo,
    DigestField::Subject,
    DigestField::Text,
    DigestField::Html,
    DigestField::Headers,
    DigestField::Attachments,
    DigestField::Tags,
    DigestField::Metadata,
    DigestField::ScheduledAt,
    DigestField::Names,
    DigestField::Template,
];

impl DigestField {
    /// The field name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::From => "from",
            Self::To => "to",
            Self::Cc => "cc",
            Self::Bcc => "bcc",
            Self::ReplyTo => "reply_to",
            Self::Subject => "subject",
            Self::Text => "text",
            Self::Html => "html",
            Self::Headers => "headers",
            Self::Attachments => "attachments",
            Self::Tags => "tags",
            Self::Metadata => "metadata",
            Self::ScheduledAt => "scheduled_at",
            Self::Names => "display names",
            Self::Template => "template",
        }
    }

    /// Whether `first_wins` tolerates a difference in this field. A model that retries may change the wording, but not
    /// the recipients.
    pub fn is_forgivable(self) -> bool {
        match self {
            Self::Subject
            | Self::Text
            | Self::Html
            | Self::Headers
            | Self::Tags
            | Self::Metadata
            | Self::Names
            | Self::Template => true,
            Self::From | Self::To | Self::Cc | Self::Bcc | Self::ReplyTo | Self::Attachments | Self::ScheduledAt => {
                false
            }
        }
    }
}

/// The digest of one email.
#[derive(Clone, PartialEq, Eq)]
pub struct Digest {
    version: u8,
    full_hash: [u8; 32],
    /// Eight bytes for each present field.
    field_hashes: Arc<[(u8, [u8; 8])]>,
}

impl Digest {
    /// The digest of `content` in the current version.
    pub fn of_content(content: &EmailContent) -> Self {
        Self::in_version(CURRENT_VERSION, content)
    }

    /// The digest in a given version. A stored digest is compared in its own version, so that a new version never
    /// causes a false mismatch.
    pub fn in_version(version: u8, content: &EmailContent) -> Self {
        let mut whole = Sha256::new();
        whole.update([version]);
        let (mut parts, mut count) = ([(0, [0; 8]); ALL_FIELDS.len()], 0);
        for field in ALL_FIELDS {
            let mut hash = FieldHasher::default();
            hash_field(field, content, &mut hash);
            if let Some(sum) = hash.finish() {
                whole.update([field as u8]);
                whole.update(sum);
                parts[count].0 = field as u8;
                parts[count].1.copy_from_slice(&sum[..8]);
                count += 1;
            }
        }
        Self { version, full_hash: whole.finalize().into(), field_hashes: parts[..count].into() }
    }

    /// The digest as a keyed hash, so that nobody without the secret can test a guess of the content. Keying it twice
    /// changes nothing.
    #[must_use]
    pub fn keyed(&self, secret: &InstallSecret) -> Self {
        if self.is_keyed() {
            return self.clone();
        }
        let part = |(field, sum): &(u8, [u8; 8])| {
            let mac = secret.mac("digest-part", &[&[*field], sum]);
            let mut short = [0; 8];
            short.copy_from_slice(&mac[..8]);
            (*field, short)
        };
        let parts = self.field_hashes.iter().map(part).collect();
        Self { version: self.version | KEYED, full_hash: secret.mac("digest", &[&self.full_hash]), field_hashes: parts }
    }

    /// Whether it is a keyed hash.
    pub fn is_keyed(&self) -> bool {
        self.version & KEYED != 0
    }

    /// The digest of `content` in the form of this one, to compare the two.
    #[must_use]
    pub fn of_same_form(&self, content: &EmailContent, secret: &InstallSecret) -> Self {
        let plain = Self::in_version(self.version & !KEYED, content);
        if self.is_keyed() { plain.keyed(secret) } else { plain }
    }

    /// Its version.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The hash of the whole.
    pub fn full_hash(&self) -> [u8; 32] {
        self.full_hash
    }

    /// The fields in which another email differs. Empty when both mean the same.
    pub fn differences(&self, other: &Self) -> Vec<DigestField> {
        if self.full_hash == other.full_hash || mutant!("digest-ignored") {
            return Vec::new();
        }
        let part = |digest: &Self, field: DigestField| {
            digest.field_hashes.iter().find(|(f, _)| *f == field as u8).map(|(_, sum)| *sum)
        };
        ALL_FIELDS.into_iter().filter(|field| part(self, *field) != part(other, *field)).collect()
    }

    /// Encodes it for the store.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(33 + 9 * self.field_hashes.len());
        bytes.push(self.version);
        bytes.extend_from_slice(&self.full_hash);
        for (field, sum) in self.field_hashes.iter() {
            bytes.push(*field);
            bytes.extend_from_slice(sum);
        }
        bytes
    }

    /// Decodes the stored form. `None` when it is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (whole, rest) = rest.split_first_chunk::<32>()?;
        let (chunks, torn) = rest.as_chunks::<9>();
        if !torn.is_empty() {
            return None;
        }
        let parts = chunks.iter().map(|[field, sum @ ..]| (*field, *sum)).collect();
        Some(Self { version: *version, full_hash: *whole, field_hashes: parts })
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{}:", self.version)?;
        self.full_hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The fields that make two emails without a key identical. Headers, tags, metadata and display names may hold values
/// that a client makes anew for each attempt.
const IDENTITY_FIELDS: [DigestField; 9] = [
    DigestField::From,
    DigestField::To,
    DigestField::Cc,
    DigestField::Bcc,
    DigestField::Subject,
    DigestField::Text,
    DigestField::Html,
    DigestField::Attachments,
    DigestField::ScheduledAt,
];

/// A keyed hash over what two identical emails have in common: people, subject, text, HTML, attachments and schedule.
pub fn identity_hash(content: &EmailContent, secret: &InstallSecret) -> [u8; 16] {
    let mut whole = Sha256::new();
    for field in IDENTITY_FIELDS {
        let mut hash = FieldHasher::default();
        hash_field(field, content, &mut hash);
        whole.update([field as u8]);
        // A field that is absent differs from an empty one.
        whole.update(hash.finish().unwrap_or_default());
    }
    // Only where there is one, so that the hash of every other email stays as it was.
    if content.template.is_some() {
        let mut hash = FieldHasher::default();
        hash_field(DigestField::Template, content, &mut hash);
        whole.update([DigestField::Template as u8]);
        whole.update(hash.finish().unwrap_or_default());
    }
    let mac = secret.mac("identical-email", &[&whole.finalize()]);
    let mut half = [0; 16];
    half.copy_from_slice(&mac[..16]);
    half
}

/// The digest of an operation other than a send: operation, path and body.
pub fn operation_digest(operation: &str, path: &str, body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [operation.as_bytes(), path.as_bytes(), body] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Length-prefixed parts of one field. A field without parts is absent.
#[derive(Default)]
struct FieldHasher(Option<Sha256>);

impl FieldHasher {
    fn add(&mut self, part: &[u8]) {
        let hash = self.0.get_or_insert_with(Sha256::new);
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }

    fn finish(self) -> Option<[u8; 32]> {
        self.0.map(|hash| hash.finalize().into())
    }
}

fn hash_field(field: DigestField, content: &EmailContent, hash: &mut FieldHasher) {
    match field {
        DigestField::Subject | DigestField::Text | DigestField::Html if content.template.is_some() => {}
        DigestField::From => hash.add(content.from.lowercased().as_bytes()),
        DigestField::To => hash_addresses(&content.to, hash),
        DigestField::Cc => hash_addresses(&content.cc, hash),
        DigestField::Bcc => hash_addresses(&content.bcc, hash),
        DigestField::ReplyTo => hash_addresses(&content.reply_to, hash),
        DigestField::Subject => hash.add(content.subject.as_bytes()),
        DigestField::Text => content.text.iter().for_each(|text| hash.add(text.as_bytes())),
        DigestField::Html => content.html.iter().for_each(|html| hash.add(html.as_bytes())),
        DigestField::Headers => hash_headers(content, hash),
        DigestField::Attachments => hash_attachments(content, hash),
        DigestField::Tags => hash_tags(content, hash),
        DigestField::Metadata => content.metadata.iter().for_each(|(name, value)| {
            hash.add(name.as_bytes());
            hash.add(&metadata_value_bytes(value));
        }),
        DigestField::ScheduledAt => match &content.scheduled_at {
            Some(Schedule::At(at)) => hash.add(&at.0.to_be_bytes()),
            Some(Schedule::In { words, .. }) => hash.add(words.as_bytes()),
            None => {}
        },
        DigestField::Names => hash_display_names(content, hash),
        DigestField::Template => content.template.iter().for_each(|template| {
            hash.add(template.name.as_bytes());
            for (name, value) in sorted_members(&template.variables) {
                hash.add(name.as_bytes());
                hash_json(value, hash);
            }
        }),
    }
}

fn hash_addresses(list: &[crate::address::NamedAddress], hash: &mut FieldHasher) {
    for address in sorted_lowercased(list) {
        hash.add(address.as_bytes());
    }
}

/// Header names are hashed in lower case and sorted, so case and order do not matter.
fn hash_headers(content: &EmailContent, hash: &mut FieldHasher) {
    let mut sorted: Vec<_> = content.headers.iter().map(|(n, v)| (n.to_ascii_lowercase(), v)).collect();
    sorted.sort();
    for (name, value) in sorted {
        hash.add(name.as_bytes());
        hash.add(value.as_bytes());
    }
}

fn hash_attachments(content: &EmailContent, hash: &mut FieldHasher) {
    for file in &content.attachments {
        for word in [&file.filename, &file.content_type, &file.content_id] {
            hash_optional(word.as_deref(), hash);
        }
        hash.add(&file.bytes);
    }
}

fn hash_tags(content: &EmailContent, hash: &mut FieldHasher) {
    for (name, value) in &content.tags {
        hash.add(name.as_bytes());
        hash_optional(value.as_deref(), hash);
    }
}

/// Names are hashed with their address, so that swapping two names is a difference.
fn hash_display_names(content: &EmailContent, hash: &mut FieldHasher) {
    let all = [&content.to, &content.cc, &content.bcc, &content.reply_to].into_iter().flatten();
    let mut named: Vec<_> = std::iter::once(&content.from)
        .chain(all)
        .filter_map(|mailbox| mailbox.name.as_ref().map(|name| (mailbox.to_address(), name)))
        .collect();
    named.sort();
    for (address, name) in named {
        hash.add(address.as_str().as_bytes());
        hash.add(name.as_bytes());
    }
}

/// Distinguishes absent from empty.
fn hash_optional(text: Option<&str>, hash: &mut FieldHasher) {
    match text {
        Some(text) => {
            hash.add(&[1]);
            hash.add(text.as_bytes());
        }
        None => hash.add(&[0]),
    }
}

/// Members in the order of their names, whatever the JSON library keeps.
fn sorted_members(object: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut members: Vec<_> = object.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    members
}

/// Hashes a JSON value with its type and, where it has parts, their number. So no two values share an input.
fn hash_json(value: &Value, hash: &mut FieldHasher) {
    match value {
        Value::Null => hash.add(b"n"),
        Value::Bool(b) => hash.add(&metadata_value_bytes(&MetadataValue::Bool(*b))),
        Value::Number(number) => hash.add(&number_bytes(number)),
        Value::String(text) => hash.add(&[b"t", text.as_bytes()].concat()),
        Value::Array(items) => {
            hash.add(&[b"a".as_slice(), &(items.len() as u64).to_be_bytes()].concat());
            items.iter().for_each(|item| hash_json(item, hash));
        }
        Value::Object(object) => {
            hash.add(&[b"o".as_slice(), &(object.len() as u64).to_be_bytes()].concat());
            for (name, value) in sorted_members(object) {
                hash.add(name.as_bytes());
                hash_json(value, hash);
            }
        }
    }
}

/// Unlike metadata, variables may have numbers that are no exact `i64`.
fn number_bytes(number: &Number) -> Vec<u8> {
    if let Some(integer) = number.as_i64() {
        return metadata_value_bytes(&MetadataValue::Integer(integer));
    }
    match (number.as_u64(), number.as_f64().unwrap_or_default()) {
        (Some(large), _) => [b"u".as_slice(), &large.to_be_bytes()].concat(),
        (None, float) if float.abs() <= limits::SAFE_INTEGER as f64 => {
            metadata_value_bytes(&MetadataValue::Number(float))
        }
        (None, float) => [b"f".as_slice(), &float.to_be_bytes()].concat(),
    }
}

/// `1` and `1.0` are the same number; `1` and `"1"` are not the same value.
fn metadata_value_bytes(value: &MetadataValue) -> Vec<u8> {
    match value {
        MetadataValue::Bool(b) => vec![b'b', u8::from(*b)],
        MetadataValue::Integer(n) => [b"i".as_slice(), &n.to_be_bytes()].concat(),
        MetadataValue::Number(n) if n.fract() == 0.0 => [b"i".as_slice(), &(*n as i64).to_be_bytes()].concat(),
        MetadataValue::Number(n) => [b"f".as_slice(), &n.to_be_bytes()].concat(),
        MetadataValue::Text(text) => [b"t", text.as_bytes()].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::{
        content::{RawAttachment, RawContent},
        template::TemplateUse,
    };
    use serde_json::json;

    fn raw() -> RawContent {
        RawContent {
            from: "Agent <agent@example.com>".into(),
            to: vec!["a@example.com".into(), "b@example.com".into()],
            subject: "Hello".into(),
            text: Some("one\ntwo\n".into()),
            headers: vec![("X-One".into(), "1".into()), ("X-Two".into(), "2".into())],
            attachments: vec![RawAttachment { content: "aGVsbG8gd29ybGQ=".into(), ..RawAttachment::default() }],
            metadata: vec![("n".into(), MetadataValue::Integer(1)), ("t".into(), MetadataValue::Text("x".into()))],
            tags: vec![("billing".into(), None)],
            scheduled_at: Some("2030-01-01T10:00:00Z".into()),
            ..RawContent::default()
        }
    }

    fn digest(change: impl FnOnce(&mut RawContent)) -> Digest {
        let mut raw = raw();
        change(&mut raw);
        Digest::of_content(&EmailContent::validate(raw).unwrap())
    }

    #[test]
    fn equal_meanings_have_equal_digests() {
        let base = digest(|_| {});
        let equals: [fn(&mut RawContent); 9] = [
            |r| r.to.reverse(),
            |r| r.to = vec!["B@EXAMPLE.com".into(), "A@example.COM".into()],
            |r| r.text = Some("one\r\ntwo\r\n".into()),
            |r| r.html = Some(String::new()),
            |r| r.headers = vec![("x-two".into(), " 2 ".into()), ("X-ONE".into(), "1".into())],
            |r| r.attachments[0].content = "aGVs\r\nbG8gd2\n9ybGQ".into(),
            |r| r.scheduled_at = Some("2030-01-01T12:00:00+02:00".into()),
            |r| {
                r.metadata =
                    vec![("t".into(), MetadataValue::Text("x".into())), ("n".into(), MetadataValue::Number(1.0))]
            },
            |r| r.reply_to = Vec::new(),
        ];
        for (i, change) in equals.into_iter().enumerate() {
            assert_eq!(base.differences(&digest(change)), [], "case {i}");
            assert_eq!(base, digest(change), "case {i}");
        }
    }

    #[test]
    fn different_meanings_have_different_digests_and_the_field_is_named() {
        let base = digest(|_| {});
        let others: [(DigestField, fn(&mut RawContent)); 15] = [
            (DigestField::From, |r| r.from = "Agent <other@example.com>".into()),
            (DigestField::To, |r| r.to.truncate(1)),
            (DigestField::Cc, |r| r.cc = vec!["c@example.com".into()]),
            (DigestField::Bcc, |r| r.bcc = vec!["c@example.com".into()]),
            (DigestField::ReplyTo, |r| r.reply_to = vec!["c@example.com".into()]),
            (DigestField::Subject, |r| r.subject = "hello".into()),
            (DigestField::Text, |r| r.text = Some("one\ntwo".into())),
            (DigestField::Html, |r| r.html = Some("<p>".into())),
            (DigestField::Headers, |r| r.headers[0].1 = "one".into()),
            (DigestField::Attachments, |r| r.attachments[0].content = "aGVsbG8gd29ybGs=".into()),
            (DigestField::Tags, |r| r.tags[0].1 = Some(String::new())),
            (DigestField::Metadata, |r| r.metadata[0].1 = MetadataValue::Text("1".into())),
            (DigestField::Metadata, |r| r.metadata[0].1 = MetadataValue::Bool(true)),
            (DigestField::ScheduledAt, |r| r.scheduled_at = Some("in 5 minutes".into())),
            (DigestField::Names, |r| r.from = "Robot <agent@example.com>".into()),
        ];
        for (field, change) in others {
            // A sender's name is hashed with its address, so a new address changes both fields.
            assert!(base.differences(&digest(change)).contains(&field), "{}", field.name());
        }
    }

    #[test]
    fn numbers_that_json_readers_would_merge_are_refused() {
        for number in [
            MetadataValue::Integer(9_007_199_254_740_993),
            MetadataValue::Number(1.8e19),
            MetadataValue::Integer(i64::MIN + 1),
        ] {
            let mut raw = raw();
            raw.metadata[0].1 = number;
            assert_eq!(EmailContent::validate(raw).unwrap_err()[0].path, "metadata.n");
        }
    }

    #[test]
    fn the_stored_form_is_read_back_and_damage_is_noticed() {
        let base = digest(|_| {});
        assert_eq!(Digest::from_bytes(&base.to_bytes()), Some(base.clone()));
        assert_eq!(Digest::from_bytes(&base.to_bytes()[..40]), None);
    }

    #[test]
    fn version_1_never_changes() {
        // A changed digest would turn every remembered key into a false mismatch. Add version 2 instead.
        assert_eq!(digest(|_| {}).to_string(), "d1:f03c584b7a6d3ecc645a776dbda0d1baf4d14a91b53387fe112271f059664282");
    }

    fn with_template(name: &str, version: Option<u32>, variables: Value) -> EmailContent {
        let Value::Object(variables) = variables else { panic!("not an object") };
        let template = Some(TemplateUse { name: name.into(), version, variables });
        let raw = RawContent { subject: String::new(), text: None, template, ..raw() };
        EmailContent::validate(raw).unwrap()
    }

    #[test]
    fn a_template_counts_by_its_name_and_variables() {
        let base = Digest::of_content(&with_template("a", None, json!({ "n": 1, "list": [{ "x": "y" }] })));
        let mut rendered = with_template("a", Some(3), json!({ "list": [{ "x": "y" }], "n": 1.0, "absent": null }));
        rendered.set_rendered(3, ("Hello".into(), Some("text".into()), None)).unwrap();
        assert_eq!(base.differences(&Digest::of_content(&rendered)), []);
        assert_eq!(base, Digest::of_content(&rendered));

        for other in [
            with_template("b", None, json!({ "n": 1, "list": [{ "x": "y" }] })),
            with_template("a", None, json!({ "n": "1", "list": [{ "x": "y" }] })),
            with_template("a", None, json!({ "n": 1, "list": [{ "x": "z" }] })),
            with_template("a", None, json!({ "n": 1, "list": ["x", "y"] })),
            with_template("a", None, json!({ "n": 1 })),
            with_template("a", None, json!({ "n": 1e300, "list": [{ "x": "y" }] })),
        ] {
            assert_eq!(base.differences(&Digest::of_content(&other)), [DigestField::Template], "{other:?}");
        }
        let plain = base.differences(&digest(|_| {}));
        assert_eq!(plain, [DigestField::Subject, DigestField::Text, DigestField::Template]);
    }

    #[test]
    fn identical_templated_emails_may_be_worded_differently() {
        let secret = InstallSecret([1; 32]);
        let plain = with_template("a", None, json!({ "n": 1 }));
        let mut rendered = plain.clone();
        rendered.set_rendered(2, ("Hello".into(), Some("text".into()), None)).unwrap();
        assert_eq!(identity_hash(&plain, &secret), identity_hash(&rendered, &secret));
        let other = with_template("a", None, json!({ "n": 2 }));
        assert_ne!(identity_hash(&plain, &secret), identity_hash(&other, &secret));
    }
}
