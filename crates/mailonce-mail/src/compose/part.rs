//! The tree of parts: alternatives of one body, what belongs to its HTML, and the files beside it.

use mailonce_core::content::{Attachment, Content};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;

use super::{
    ComposeError, WORD_OCTETS,
    body::{self, Encoding},
    content_type::ContentType,
    field::Field,
    hex, no_control, param,
};

/// A part of a mail.
pub(super) enum Part<'a> {
    /// A body for people.
    Text {
        /// `text/plain` or `text/html`.
        kind: &'static str,
        /// Lines ended by LF.
        text: Cow<'a, str>,
    },
    /// An attachment.
    File(File<'a>),
    /// Several parts.
    Many {
        /// `multipart/mixed`, say.
        kind: &'static str,
        /// Stands between the parts.
        boundary: String,
        /// At least two.
        parts: Vec<Part<'a>>,
    },
}

/// An attachment with checked names.
pub(super) struct File<'a> {
    bytes: &'a [u8],
    kind: ContentType,
    name: Option<&'a str>,
    id: Option<String>,
    inline: bool,
}

/// Arranges a mail's content.
pub(super) fn arrange<'a>(content: &'a Content, message_id: &str) -> Result<Part<'a>, ComposeError> {
    let (mut pictures, mut files) = (Vec::new(), Vec::new());
    for (i, attachment) in content.attachments.iter().enumerate() {
        let file = file(i, attachment, content.html.is_some())?;
        if file.inline { pictures.push(Part::File(file)) } else { files.push(Part::File(file)) }
    }
    let text = content.text.as_deref().map(|text| words("text/plain", text)).transpose()?;
    let html = content.html.as_deref().map(|html| words("text/html", html)).transpose()?;
    let html = html.map(|html| join("multipart/related", message_id, html, pictures));
    let body = match (text, html) {
        (Some(text), Some(html)) => join("multipart/alternative", message_id, text, vec![html]),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => words("text/plain", "")?,
    };
    Ok(join("multipart/mixed", message_id, body, files))
}

/// The first part with what goes with it; alone if nothing does.
fn join<'a>(kind: &'static str, message_id: &str, first: Part<'a>, rest: Vec<Part<'a>>) -> Part<'a> {
    if rest.is_empty() {
        return first;
    }
    let mut parts = vec![first];
    parts.extend(rest);
    Part::Many { kind, boundary: boundary(kind, message_id), parts }
}

/// Begins with `=_`, which no encoded body can contain (RFC 2045 §6.7), and is the same for the same mail.
fn boundary(kind: &str, message_id: &str) -> String {
    let hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(message_id).finalize();
    let digits = hash.iter().take(16).flat_map(|&b| [hex::high(b), hex::low(b)]);
    "=_".chars().chain(digits).collect()
}

fn words<'a>(kind: &'static str, text: &'a str) -> Result<Part<'a>, ComposeError> {
    if text.contains('\0') {
        return Err(ComposeError::Control(kind.to_owned()));
    }
    let text = if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    };
    Ok(Part::Text { kind, text })
}

fn file(i: usize, attachment: &Attachment, has_html: bool) -> Result<File<'_>, ComposeError> {
    for word in [&attachment.filename, &attachment.content_type, &attachment.content_id].into_iter().flatten() {
        no_control(&format!("attachment {i}"), word)?;
    }
    // Space around a file's name means nothing, and readers disagree about it.
    let name = attachment.filename.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let id = attachment.content_id.as_deref().map(content_id).filter(|id| !id.is_empty());
    if id.as_ref().is_some_and(|id| id.len() > WORD_OCTETS) {
        return Err(ComposeError::ContentId(i));
    }
    Ok(File {
        bytes: &attachment.bytes,
        kind: ContentType::of(attachment.content_type.as_deref(), name),
        name,
        inline: has_html && id.is_some(),
        id,
    })
}

/// An id without its angle brackets, percent-encoded as in a `cid:` link (RFC 2392) where it is no plain word.
fn content_id(text: &str) -> String {
    let text = text.trim();
    let text = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text);
    let word = text.bytes().all(|b| b.is_ascii_graphic() && !b"<>()[]\\,;:\"".contains(&b)) && !text.contains("=?");
    if word { text.to_owned() } else { param::percent(text) }
}

impl Part<'_> {
    /// About how many octets it will be.
    pub(super) fn estimate(&self) -> usize {
        match self {
            Self::Text { text, .. } => text.len() + text.len() / 2 + 200,
            Self::File(file) => body::base64_len(file.bytes.len()) + 600,
            Self::Many { parts, .. } => parts.iter().map(|part| part.estimate() + 50).sum::<usize>() + 200,
        }
    }

    /// Writes its headers, the empty line and its body, without a last line end.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text { kind, text } => {
                let encoding = Encoding::of(text);
                let mut field = Field::begin(out, "Content-Type");
                field.word(kind);
                param::write(&mut field, "charset", "utf-8");
                field.end();
                Field::text(out, "Content-Transfer-Encoding", encoding.word());
                out.extend_from_slice(b"\r\n");
                encoding.write(out, text);
            }
            Self::File(file) => file.write(out),
            Self::Many { kind, boundary, parts } => many(out, kind, boundary, parts),
        }
    }
}

impl File<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        self.kind.write(out, self.name.is_some());
        Field::text(out, "Content-Transfer-Encoding", Encoding::Base64.word());
        let mut field = Field::begin(out, "Content-Disposition");
        field.word(if self.inline { "inline" } else { "attachment" });
        if let Some(name) = self.name {
            param::write(&mut field, "filename", name);
        }
        field.end();
        if let Some(id) = &self.id {
            Field::words(out, "Content-ID", [format!("<{id}>").as_str()]);
        }
        out.extend_from_slice(b"\r\n");
        body::base64(out, self.bytes);
    }
}

fn many(out: &mut Vec<u8>, kind: &str, boundary: &str, parts: &[Part<'_>]) {
    let mut field = Field::begin(out, "Content-Type");
    field.word(kind);
    if kind == "multipart/related" {
        // RFC 2387 §3.1: says what its first part is.
        param::write(&mut field, "type", "text/html");
    }
    field.glue(";");
    field.word(&format!("boundary=\"{boundary}\""));
    field.end();
    for part in parts {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(boundary.as_bytes());
        out.extend_from_slice(b"\r\n");
        part.write(out);
    }
    out.extend_from_slice(b"\r\n--");
    out.extend_from_slice(boundary.as_bytes());
    out.extend_from_slice(b"--\r\n");
}
