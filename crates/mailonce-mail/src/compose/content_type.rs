//! The content type of an attachment: what its caller said if that is one, else what its name says.

use super::{field::Field, param};

/// What is said of bytes about which nothing is known.
const UNKNOWN: &str = "application/octet-stream";
/// Characters of `type/subtype`.
const ESSENCE: usize = 127;
/// Parameters kept.
const PARAMS: usize = 10;
/// Characters of a parameter's name.
const PARAM_NAME: usize = 40;

/// A content type, safe to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContentType {
    essence: String,
    params: Vec<(String, String)>,
}

/// The `type/subtype` under which an attachment travels.
pub fn kind_of(said: Option<&str>, filename: Option<&str>) -> String {
    ContentType::of(said, filename).essence
}

impl ContentType {
    /// Reads what the caller said. A type that is none, and one that would make bytes into structure, is replaced: an
    /// accepted mail does not fail because a file was called something odd.
    pub(super) fn of(said: Option<&str>, filename: Option<&str>) -> Self {
        let plain = |essence: &str| Self { essence: essence.to_owned(), params: Vec::new() };
        match said.map(str::trim).filter(|said| !said.is_empty()) {
            Some(said) => Self::parse(said).unwrap_or_else(|| plain(UNKNOWN)),
            None => plain(filename.and_then(by_extension).unwrap_or(UNKNOWN)),
        }
    }

    fn parse(said: &str) -> Option<Self> {
        let (essence, rest) = said.split_once(';').unwrap_or((said, ""));
        let essence = essence.trim().to_ascii_lowercase();
        let (kind, subtype) = essence.split_once('/')?;
        if !is_token(kind) || !is_token(subtype) || essence.len() > ESSENCE {
            return None;
        }
        // RFC 2046 §5.2.1: these may not be encoded, and their bytes are not ours to read.
        if kind == "multipart" || kind == "message" {
            return None;
        }
        Some(Self { params: params(rest)?, essence })
    }

    /// Writes the header. A name among the parameters gives way to the attachment's own.
    pub(super) fn write(&self, out: &mut Vec<u8>, named: bool) {
        let mut field = Field::begin(out, "Content-Type");
        field.word(&self.essence);
        for (name, value) in &self.params {
            if !(named && name == "name") {
                param::write(&mut field, name, value);
            }
        }
        field.end();
    }
}

/// Reads `a=b; c="d e"`. `None` when it is anything else.
fn params(mut rest: &str) -> Option<Vec<(String, String)>> {
    let mut list: Vec<(String, String)> = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ';']);
        if rest.is_empty() {
            return Some(list);
        }
        let (name, after) = rest.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        let named = is_token(&name) && !name.contains(['*', '\'', '%']) && name.len() <= PARAM_NAME;
        if !named || list.len() == PARAMS || list.iter().any(|(known, _)| *known == name) {
            return None;
        }
        let (value, after) = if let Some(inner) = after.trim_start().strip_prefix('"') {
            quoted(inner)?
        } else {
            let (value, after) = after.split_once(';').unwrap_or((after, ""));
            (value.trim().to_owned(), after)
        };
        list.push((name, value));
        rest = after;
    }
}

/// The inside of a quoted string and what follows it.
fn quoted(inner: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &inner[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&b))
}

/// The types that people attach, so that a picture or an invitation is shown as one.
fn by_extension(filename: &str) -> Option<&'static str> {
    let (_, extension) = filename.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "csv" => "text/csv",
        "gif" => "image/gif",
        "htm" | "html" => "text/html",
        "ics" => "text/calendar",
        "jpeg" | "jpg" => "image/jpeg",
        "json" => "application/json",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "txt" => "text/plain",
        "webp" => "image/webp",
        "zip" => "application/zip",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(said: Option<&str>, filename: Option<&str>, expected: &str) {
        let mut out = Vec::new();
        ContentType::of(said, filename).write(&mut out, filename.is_some());
        assert_eq!(String::from_utf8(out).unwrap(), format!("Content-Type: {expected}\r\n"));
    }

    #[test]
    fn types_are_said_guessed_or_unknown() {
        check(Some("Image/PNG"), None, "image/png");
        check(
            Some("text/calendar;method=REQUEST; charset=utf-8"),
            None,
            "text/calendar; method=\"REQUEST\"; charset=\"utf-8\"",
        );
        check(Some("text/x; a=\"b;\\\"c\" ; d=e"), None, "text/x; a*=utf-8''b%3B%22c; d=\"e\"");
        check(Some("text/csv; name=old.csv"), Some("new.csv"), "text/csv");
        check(None, Some("Photo.JPG"), "image/jpeg");
        check(None, Some("jpg"), UNKNOWN);
        check(None, None, UNKNOWN);
    }

    #[test]
    fn what_is_no_type_or_would_become_structure_is_just_bytes() {
        for said in [
            "text",
            "text/",
            "/x",
            "a b/c",
            "text/plain; charset",
            "text/plain; a=1; a=2",
            "text/plain; filename*0=x",
            "text/plain; a=\"b",
            "multipart/mixed; boundary=x",
            "message/rfc822",
            "texte/ünï",
        ] {
            check(Some(said), None, UNKNOWN);
        }
    }
}
