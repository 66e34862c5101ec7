//! The content type of an attachment: the caller's if it is valid, else by file extension.

use super::param;
use crate::compose::header_writer::HeaderWriter;

/// The type of unknown bytes.
const DEFAULT_TYPE: &str = "application/octet-stream";
/// Maximum length of `type/subtype`.
const MAX_ESSENCE_CHARS: usize = 127;
/// Maximum number of parameters.
const MAX_PARAMS: usize = 10;
/// Maximum length of a parameter's name.
const MAX_PARAM_NAME_CHARS: usize = 40;

/// A validated content type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AttachmentType {
    essence: String,
    params: Vec<(String, String)>,
}

/// The `type/subtype` of an attachment in the composed mail.
pub fn attachment_media_type(given_type: Option<&str>, filename: Option<&str>) -> String {
    AttachmentType::for_attachment(given_type, filename).essence
}

impl AttachmentType {
    /// Parses the caller's type. An invalid type, or one that would turn bytes into MIME structure, is replaced: an
    /// accepted mail must not fail because of an odd attachment type.
    pub(super) fn for_attachment(given_type: Option<&str>, filename: Option<&str>) -> Self {
        let plain = |essence: &str| Self { essence: essence.to_owned(), params: Vec::new() };
        match given_type.map(str::trim).filter(|given_type| !given_type.is_empty()) {
            Some(given_type) => Self::parse(given_type).unwrap_or_else(|| plain(DEFAULT_TYPE)),
            None => plain(filename.and_then(by_extension).unwrap_or(DEFAULT_TYPE)),
        }
    }

    fn parse(given_type: &str) -> Option<Self> {
        let (essence, rest) = given_type.split_once(';').unwrap_or((given_type, ""));
        let essence = essence.trim().to_ascii_lowercase();
        let (kind, subtype) = essence.split_once('/')?;
        if !is_token(kind) || !is_token(subtype) || essence.len() > MAX_ESSENCE_CHARS {
            return None;
        }
        // RFC 2046 §5.2.1: these types may not be encoded, and their bytes are not parsed here.
        if kind == "multipart" || kind == "message" {
            return None;
        }
        Some(Self { params: parse_params(rest)?, essence })
    }

    /// Writes the header. If `has_filename` is true, a `name` parameter is dropped.
    pub(super) fn write(&self, out: &mut Vec<u8>, has_filename: bool) {
        let mut field = HeaderWriter::begin(out, "Content-Type");
        field.push_word(&self.essence);
        for (name, value) in &self.params {
            if !(has_filename && name == "name") {
                param::write_param(&mut field, name, value);
            }
        }
        field.finish();
    }
}

/// Parses `a=b; c="d e"`. `None` for anything else.
fn parse_params(mut rest: &str) -> Option<Vec<(String, String)>> {
    let mut list: Vec<(String, String)> = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ';']);
        if rest.is_empty() {
            return Some(list);
        }
        let (name, after) = rest.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        let is_valid_name = is_token(&name) && !name.contains(['*', '\'', '%']) && name.len() <= MAX_PARAM_NAME_CHARS;
        if !is_valid_name || list.len() == MAX_PARAMS || list.iter().any(|(known, _)| *known == name) {
            return None;
        }
        let (value, after) = if let Some(inner) = after.trim_start().strip_prefix('"') {
            parse_quoted_string(inner)?
        } else {
            let (value, after) = after.split_once(';').unwrap_or((after, ""));
            (value.trim().to_owned(), after)
        };
        list.push((name, value));
        rest = after;
    }
}

/// The content of a quoted string, and the rest.
fn parse_quoted_string(inner: &str) -> Option<(String, &str)> {
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

/// Common attachment types, so that an image or an invitation is displayed as such.
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
    fn check(given_type: Option<&str>, filename: Option<&str>, expected: &str) {
        let mut out = Vec::new();
        AttachmentType::for_attachment(given_type, filename).write(&mut out, filename.is_some());
        assert_eq!(String::from_utf8(out).unwrap(), format!("Content-Type: {expected}\r\n"));
    }

    #[test]
    fn types_are_given_guessed_or_unknown() {
        check(Some("Image/PNG"), None, "image/png");
        check(
            Some("text/calendar;method=REQUEST; charset=utf-8"),
            None,
            "text/calendar; method=\"REQUEST\"; charset=\"utf-8\"",
        );
        check(Some("text/x; a=\"b;\\\"c\" ; d=e"), None, "text/x; a*=utf-8''b%3B%22c; d=\"e\"");
        check(Some("text/csv; name=old.csv"), Some("new.csv"), "text/csv");
        check(None, Some("Photo.JPG"), "image/jpeg");
        check(None, Some("jpg"), DEFAULT_TYPE);
        check(None, None, DEFAULT_TYPE);
    }

    #[test]
    fn invalid_and_structural_types_become_octet_stream() {
        for given_type in [
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
            check(Some(given_type), None, DEFAULT_TYPE);
        }
    }
}
