//! Parses form bodies: `multipart/form-data` and `application/x-www-form-urlencoded`.

use memchr::memmem;
use std::borrow::Cow;

use crate::hooks::{HookParseError, HookRequest};

/// Maximum number of fields.
const MAX_FIELDS: usize = 2_000;
/// Maximum size of a part's headers.
const MAX_PART_HEADER_BYTES: usize = 16 * 1024;

/// One form field.
#[derive(Debug)]
pub(in crate::hooks) struct FormField<'a> {
    pub(in crate::hooks) name: String,
    pub(in crate::hooks) filename: Option<String>,
    pub(in crate::hooks) content_type: Option<String>,
    pub(in crate::hooks) bytes: Cow<'a, [u8]>,
}

/// The fields of a form, in order.
#[derive(Debug)]
pub(in crate::hooks) struct HookForm<'a>(pub(in crate::hooks) Vec<FormField<'a>>);

impl<'a> HookForm<'a> {
    /// The form of a request. `None` if the body is not a form.
    pub(in crate::hooks) fn from_request(request: &HookRequest<'a>) -> Result<Option<Self>, HookParseError> {
        Self::parse(request.header_named("content-type").ok().flatten().unwrap_or_default(), request.body)
    }

    /// Parses a body of this content type.
    fn parse(content_type: &str, body: &'a [u8]) -> Result<Option<Self>, HookParseError> {
        let (media_type, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
        let media_type = media_type.trim();
        if media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return urlencoded(body).map(Some);
        }
        if media_type.eq_ignore_ascii_case("multipart/form-data") {
            let boundary = header_parameter(parameters, "boundary").filter(|text| (1..=200).contains(&text.len()));
            return parse_multipart(body, &boundary.ok_or(HookParseError::Unexpected("a boundary"))?).map(Some);
        }
        Ok(None)
    }

    /// A field's text. `None` if it occurs twice: two readers could see different values.
    pub(in crate::hooks) fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.field(name).map(|field| String::from_utf8_lossy(&field.bytes))
    }

    /// A field. `None` if it is missing or occurs twice.
    pub(in crate::hooks) fn field(&self, name: &str) -> Option<&FormField<'a>> {
        let mut found = self.0.iter().filter(|field| field.name == name);
        let one = found.next()?;
        found.next().is_none().then_some(one)
    }
}

fn urlencoded(body: &[u8]) -> Result<HookForm<'_>, HookParseError> {
    let count = memchr::memchr_iter(b'&', body).count();
    if count >= MAX_FIELDS {
        return Err(HookParseError::TooMany(count));
    }
    let field = |(name, value): (Cow<'_, str>, Cow<'_, str>)| FormField {
        name: name.into_owned(),
        filename: None,
        content_type: None,
        bytes: Cow::Owned(value.into_owned().into_bytes()),
    };
    Ok(HookForm(url::form_urlencoded::parse(body).map(field).collect()))
}

fn parse_multipart<'a>(body: &'a [u8], boundary: &str) -> Result<HookForm<'a>, HookParseError> {
    let first = format!("--{boundary}");
    let next = format!("\r\n--{boundary}");
    let finder = memmem::Finder::new(next.as_bytes());
    let incomplete = HookParseError::Unexpected("a whole form");
    let mut rest = match body.strip_prefix(first.as_bytes()) {
        Some(rest) => rest,
        None => finder.find(body).map(|start| &body[start + next.len()..]).ok_or(incomplete.clone())?,
    };
    let mut fields = Vec::new();
    while !rest.starts_with(b"--") {
        if fields.len() >= MAX_FIELDS {
            return Err(HookParseError::TooMany(fields.len()));
        }
        let inner = rest.strip_prefix(b"\r\n").ok_or(incomplete.clone())?;
        let end = finder.find(inner).ok_or(incomplete.clone())?;
        fields.push(parse_part(&inner[..end]).ok_or(incomplete.clone())?);
        rest = &inner[end + next.len()..];
    }
    Ok(HookForm(fields))
}

fn parse_part(part: &[u8]) -> Option<FormField<'_>> {
    let end = memmem::find(&part[..part.len().min(MAX_PART_HEADER_BYTES)], b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&part[..end]);
    let header = |name: &str| {
        let lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
        lines
            .filter(|(header_name, _)| header_name.trim().eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .next()
    };
    let disposition = header("content-disposition")?;
    let (_, parameters) = disposition.split_once(';')?;
    Some(FormField {
        name: header_parameter(parameters, "name")?,
        filename: header_parameter(parameters, "filename"),
        content_type: header("content-type").map(str::to_owned),
        bytes: Cow::Borrowed(&part[end + 4..]),
    })
}

/// A header parameter, quoted or not. Browsers write `"` as `%22` or `\"`.
fn header_parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        let (key, after) = rest.split_once('=')?;
        let (value, after) = parse_value(after)?;
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = after;
    }
}

/// Parses one value. Also returns the rest of the text.
fn parse_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return Some((text[..end].trim().to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[index + 1..])),
            '\\' if quoted[index + 1..].starts_with('"') => value.extend(chars.next().map(|(_, quote)| quote)),
            _ => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(kind: &str, body: &'a [u8]) -> Result<Option<HookForm<'a>>, HookParseError> {
        HookForm::parse(kind, body)
    }

    #[test]
    fn multipart_field_bytes_are_preserved() {
        let body = b"preamble\r\n--x y\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--x\r\n\r\n--x y\r\n\
            content-disposition: form-data; name=\"f\"; filename=\"a;\\\"b.bin\"\r\nContent-Type: image/png\r\n\r\n\0\r\n\r\n--x y--\r\n";
        let form = read("multipart/form-data; boundary=\"x y\"", body).unwrap().unwrap();
        assert_eq!(form.text("a").as_deref(), Some("one\r\n--x\r\n"));
        let file = form.field("f").unwrap();
        assert_eq!((file.filename.as_deref(), file.content_type.as_deref()), (Some("a;\"b.bin"), Some("image/png")));
        assert_eq!(&*file.bytes, b"\0\r\n");
    }

    #[test]
    fn an_incomplete_form_is_rejected() {
        for body in [
            "",
            "--x",
            "--x\r\n",
            "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none",
            "--x\r\n\r\n\r\n--x--",
        ] {
            assert!(read("multipart/form-data; boundary=x", body.as_bytes()).is_err(), "{body:?}");
        }
        assert!(read("multipart/form-data", b"--x--").is_err());
        let many = "a=b&".repeat(MAX_FIELDS + 1);
        assert!(matches!(read("application/x-www-form-urlencoded", many.as_bytes()), Err(HookParseError::TooMany(_))));
        let many = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n".repeat(MAX_FIELDS + 1);
        assert!(matches!(read("multipart/form-data; boundary=x", many.as_bytes()), Err(HookParseError::TooMany(_))));
    }

    #[test]
    fn a_duplicate_field_has_no_value() {
        let form = read("application/x-www-form-urlencoded; charset=utf-8", b"a=1&a=2&b=x%20y+z").unwrap().unwrap();
        assert_eq!((form.text("a"), form.text("b").as_deref()), (None, Some("x y z")));
        assert!(read("application/json", b"{}").unwrap().is_none());
    }
}
