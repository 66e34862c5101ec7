//! The header block: decoded fields in order, and parsers for structured fields.

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
};

use mail_parser::{Addr, Address, ContentType, HeaderValue, parsers::MessageStream};
use mailonce_core::{
    address::{Address as Bare, NamedAddress, remove_obsolete_spacing},
    header_block::{MAX_HEADER_BYTES, header_start},
    limits,
    time::Time,
};
use serde::{Deserialize, Serialize};

use super::{MAX_ADDRESSES, MAX_FIELD_BYTES, MAX_HEADER_FIELDS, MAX_MESSAGE_ID_BYTES, Truncation, one_line};

/// One header field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderField {
    /// The name as written.
    pub name: String,
    /// The unfolded value with encoded words decoded.
    pub value: String,
    /// The unfolded raw value, for structured fields in which encoded words have no meaning.
    #[serde(skip)]
    raw: Vec<u8>,
}

/// The fields of one header block, top to bottom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HeaderFields(pub Vec<HeaderField>);

impl HeaderFields {
    /// Parses the header block at the start of `raw`. Also returns where the body begins.
    pub(crate) fn parse(raw: &[u8], cut: &mut Truncation) -> (Self, usize) {
        let start = header_start(raw);
        let mut fields: Vec<HeaderField> = Vec::new();
        let mut at = start;
        while at < raw.len() {
            let end = raw[at..].iter().position(|&b| b == b'\n').map_or(raw.len(), |n| at + n + 1);
            let line = trim_end(&raw[at..end]);
            if line.is_empty() {
                return (Self::decode_all(fields, cut), end);
            }
            if at - start >= MAX_HEADER_BYTES {
                (cut.headers, cut.sender) = (true, true);
            } else if line.starts_with(b" ") || line.starts_with(b"\t") {
                if let Some(last) = fields.last_mut() {
                    let room = MAX_FIELD_BYTES.saturating_sub(last.raw.len());
                    let is_short = line.len() > room;
                    cut.headers |= is_short;
                    cut.sender |= is_short && decides_what_is_shown(&last.name);
                    last.raw.extend_from_slice(&line[..line.len().min(room)]);
                }
            } else if let Some(field) = parse_field(line) {
                let (is_dropped, is_short) = (fields.len() >= MAX_HEADER_FIELDS, line.len() > MAX_FIELD_BYTES);
                cut.headers |= is_dropped || is_short;
                cut.sender |= is_dropped || (is_short && decides_what_is_shown(&field.name));
                if fields.len() < MAX_HEADER_FIELDS {
                    fields.push(field);
                }
            } else if fields.is_empty() {
                // There is no header, so everything is body.
                return (Self::default(), start);
            } else {
                // Without an empty line, the header ends at the first line that is not a field.
                return (Self::decode_all(fields, cut), at);
            }
            at = end;
        }
        (Self::decode_all(fields, cut), raw.len())
    }

    fn decode_all(mut fields: Vec<HeaderField>, cut: &mut Truncation) -> Self {
        for field in &mut fields {
            field.value = decode_words(&field.raw).unwrap_or_else(|| {
                cut.unreadable = true;
                String::from_utf8_lossy(&field.raw).into_owned()
            });
        }
        Self(fields)
    }

    /// The value of the topmost field of this name.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value.as_str())
    }

    /// The values of all fields of this name, top to bottom.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields_named(name).map(|field| field.value.as_str())
    }

    /// Whether there is a field of this name.
    pub fn has(&self, name: &str) -> bool {
        self.fields_named(name).next().is_some()
    }

    /// Drops the raw values, which are only needed while parsing.
    pub(super) fn drop_raw(&mut self) {
        self.0.iter_mut().for_each(|field| field.raw = Vec::new());
    }

    fn fields_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a HeaderField> {
        self.0.iter().filter(move |field| field.name.eq_ignore_ascii_case(name))
    }

    fn raw_line(&self, name: &str) -> Option<Vec<u8>> {
        self.fields_named(name).next().map(|field| terminated_line(&field.raw))
    }
}

/// Fields whose truncated value could show another sender, subject or body than the authenticated one. Anybody can pad
/// a signed field with spaces, so its truncation can be the work of a forger.
const SHOWN_FIELDS: [&str; 9] = [
    "From",
    "Sender",
    "Reply-To",
    "Subject",
    "Date",
    "Message-ID",
    "Content-Type",
    "Content-Transfer-Encoding",
    "Content-Disposition",
];

fn decides_what_is_shown(name: &str) -> bool {
    SHOWN_FIELDS.iter().any(|shown| name.eq_ignore_ascii_case(shown))
}

/// Whether an address could be taken for another one: it has a second `@`, as in `a@b.example@c.example`. An address
/// without a local part has it in the name.
pub(super) fn is_ambiguous_address(from: &NamedAddress) -> bool {
    let count = |text: &str| text.matches(['@', '\u{ff20}', '\u{fe6b}']).count();
    let name = from.name.as_deref().filter(|_| from.address.starts_with('@'));
    count(&from.address) + name.map_or(0, count) > 1
}

fn trim_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Parses `Name: value`. `None` for anything else.
fn parse_field(line: &[u8]) -> Option<HeaderField> {
    let colon = line.iter().take(limits::HEADER_VALUE_CHARS).position(|&b| b == b':')?;
    let name = line[..colon].trim_ascii_end();
    if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let value = &line[colon + 1..];
    let value = &value[..value.len().min(MAX_FIELD_BYTES)];
    let name = String::from_utf8_lossy(name).into_owned();
    Some(HeaderField { name, value: String::new(), raw: value.trim_ascii_start().to_vec() })
}

/// One line with a line end, as the parser crate expects it.
fn terminated_line(raw: &[u8]) -> Vec<u8> {
    let mut line: Vec<u8> = raw.iter().map(|&b| if b == b'\n' || b == b'\r' { b' ' } else { b }).collect();
    line.extend_from_slice(b"\r\n");
    line
}

/// Catches panics of the parser crate, which have occurred on hostile input. Then only this field is lost.
fn catch_panic<T>(read: impl FnOnce() -> Option<T>) -> Result<Option<T>, ()> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|_panic| ())
}

/// Unstructured text with its encoded words decoded.
fn decode_words(raw: &[u8]) -> Option<String> {
    if !raw.windows(2).any(|pair| pair == b"=?") {
        return Some(String::from_utf8_lossy(raw).trim().to_owned());
    }
    let line = terminated_line(raw);
    let read = || MessageStream::new(&line).parse_unstructured().into_text().map(|text| text.trim().to_owned());
    catch_panic(read).ok().map(Option::unwrap_or_default)
}

/// The addresses of the topmost field of this name. Groups are flattened.
pub(super) fn addresses(fields: &HeaderFields, name: &str, cut: &mut Truncation) -> Vec<NamedAddress> {
    let Some(line) = fields.raw_line(name) else { return Vec::new() };
    let read = || MessageStream::new(&line).parse_address().into_address().map(flatten_groups);
    let Ok(addresses) = catch_panic(read) else {
        cut.unreadable = true;
        return Vec::new();
    };
    let mut addresses = addresses.unwrap_or_default();
    cut.headers |= addresses.len() > MAX_ADDRESSES;
    addresses.truncate(MAX_ADDRESSES);
    addresses
}

fn flatten_groups(address: Address<'_>) -> Vec<NamedAddress> {
    let list = match address {
        Address::List(list) => list,
        Address::Group(groups) => groups.into_iter().flat_map(|group| group.addresses).collect(),
    };
    list.into_iter().filter_map(mailbox).collect()
}

fn mailbox(addr: Addr<'_>) -> Option<NamedAddress> {
    let (written, name) = unquote_local_part(addr.address?, addr.name);
    let written = remove_obsolete_spacing(written.trim().trim_matches(['<', '>']));
    let written = written.as_ref();
    // An invalid address is kept as written: a rule or a person may need it.
    let address = match (written.rsplit_once('@'), Bare::parse(written)) {
        (Some((local, _)), Ok(bare)) => format!("{local}@{}", bare.domain()),
        _ => one_line(written, limits::ADDRESS_OCTETS),
    };
    let name = name.map(|name| one_line(&name, limits::NAME_CHARS)).filter(|name| !name.is_empty());
    (!address.is_empty()).then_some(NamedAddress { name, address })
}

/// Removes unnecessary quotes around a local part. The parser crate reads a lone quoted local part as a name, and the
/// rest as an address without a local part; this repairs it.
fn unquote_local_part<'a>(address: Cow<'a, str>, name: Option<Cow<'a, str>>) -> (Cow<'a, str>, Option<Cow<'a, str>>) {
    let (local, domain, rest) = match (address.strip_prefix('"').and_then(|quoted| quoted.split_once("\"@")), &name) {
        (Some((local, domain)), _) => (local, domain, name.clone()),
        (None, Some(local)) if address.starts_with('@') => (local.as_ref(), &address[1..], None),
        _ => return (address, name),
    };
    let plain = format!("{local}@{domain}");
    if Bare::parse(&plain).is_ok() { (plain.into(), rest) } else { (address, name) }
}

/// The message ids of a field, with angle brackets. Text between them is ignored; a bare id gets brackets.
pub(super) fn message_ids(fields: &HeaderFields, name: &str) -> Vec<String> {
    let Some(line) = fields.raw_line(name) else { return Vec::new() };
    let text = String::from_utf8_lossy(&line);
    let mut ids: Vec<String> = Vec::new();
    let mut rest = text.as_ref();
    while let Some((_, after)) = rest.split_once('<') {
        let Some((id, remaining)) = after.split_once('>') else { break };
        ids.extend(normalize_id(id));
        rest = remaining;
    }
    if ids.is_empty() {
        ids.extend(text.split([' ', '\t', ',']).filter(|word| word.contains('@')).filter_map(normalize_id));
    }
    ids
}

fn normalize_id(text: &str) -> Option<String> {
    let id: String = text.chars().filter(|c| !c.is_whitespace() && !c.is_control() && *c != '<' && *c != '>').collect();
    (!id.is_empty() && id.len() <= MAX_MESSAGE_ID_BYTES).then(|| format!("<{id}>"))
}

/// The date, if it is valid.
pub(super) fn date(fields: &HeaderFields, cut: &mut Truncation) -> Option<Time> {
    let line = fields.raw_line("date")?;
    let read = || MessageStream::new(&line).parse_date().into_datetime().filter(mail_parser::DateTime::is_valid);
    let seconds = catch_panic(|| read().map(|date| date.to_timestamp()));
    cut.unreadable |= seconds.is_err();
    seconds.ok().flatten().and_then(|seconds| seconds.checked_mul(1000)).map(Time)
}

/// A media type in lower case with its parameters. Also used for `Content-Disposition`.
pub(super) struct MediaType {
    pub(super) main: String,
    pub(super) sub: String,
    params: Vec<(String, String)>,
}

impl MediaType {
    pub(super) fn parse(fields: &HeaderFields, name: &str, cut: &mut Truncation) -> Option<Self> {
        let line = fields.raw_line(name)?;
        let read = || match MessageStream::new(&line).parse_content_type() {
            HeaderValue::ContentType(kind) => Some(Self::from(kind)),
            _ => None,
        };
        catch_panic(read).unwrap_or_else(|()| {
            cut.unreadable = true;
            None
        })
    }

    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl From<ContentType<'_>> for MediaType {
    fn from(kind: ContentType<'_>) -> Self {
        let params = kind.attributes.unwrap_or_default();
        Self {
            main: kind.c_type.to_ascii_lowercase(),
            sub: kind.c_subtype.unwrap_or_default().to_ascii_lowercase(),
            params: params.into_iter().take(50).map(|p| (p.name.into_owned(), p.value.into_owned())).collect(),
        }
    }
}
