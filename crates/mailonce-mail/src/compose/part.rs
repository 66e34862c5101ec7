//! The MIME tree: text and HTML alternatives, inline images of the HTML, and attachments.

use mailonce_core::outbound::content::{Attachment, EmailContent};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;

use super::{
    ComposeError, MAX_HEADER_WORD_OCTETS,
    body::{self, BodyEncoding},
    content_type::AttachmentType,
    hex, param, reject_control_characters,
};
use crate::compose::header_writer::HeaderWriter;

/// A MIME part.
pub(super) enum MimePart<'a> {
    /// A text or HTML body.
    Text {
        /// `text/plain` or `text/html`.
        kind: &'static str,
        /// Lines ended by LF.
        text: Cow<'a, str>,
    },
    /// An attachment.
    Attachment(AttachmentPart<'a>),
    /// Several parts.
    Multipart {
        /// The type, such as `multipart/mixed`.
        kind: &'static str,
        /// The boundary between the parts.
        boundary: String,
        /// The parts, at least two.
        parts: Vec<MimePart<'a>>,
    },
}

/// An attachment with validated names.
pub(super) struct AttachmentPart<'a> {
    bytes: &'a [u8],
    content_type: AttachmentType,
    name: Option<&'a str>,
    content_id: Option<String>,
    is_inline: bool,
}

/// Builds the MIME tree of a mail.
pub(super) fn build_parts<'a>(content: &'a EmailContent, message_id: &str) -> Result<MimePart<'a>, ComposeError> {
    let (mut inline_parts, mut attachments) = (Vec::new(), Vec::new());
    for (i, attachment) in content.attachments.iter().enumerate() {
        let part = attachment_part(i, attachment, content.html.is_some())?;
        if part.is_inline {
            inline_parts.push(MimePart::Attachment(part))
        } else {
            attachments.push(MimePart::Attachment(part))
        }
    }
    let text = content.text.as_deref().map(|text| text_part("text/plain", text)).transpose()?;
    let html = content.html.as_deref().map(|html| text_part("text/html", html)).transpose()?;
    let html = html.map(|html| wrap_multipart("multipart/related", message_id, html, inline_parts));
    let body = match (text, html) {
        (Some(text), Some(html)) => wrap_multipart("multipart/alternative", message_id, text, vec![html]),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => text_part("text/plain", "")?,
    };
    Ok(wrap_multipart("multipart/mixed", message_id, body, attachments))
}

/// Wraps the parts in a multipart. A single part stays unwrapped.
fn wrap_multipart<'a>(
    kind: &'static str,
    message_id: &str,
    first: MimePart<'a>,
    rest: Vec<MimePart<'a>>,
) -> MimePart<'a> {
    if rest.is_empty() {
        return first;
    }
    let mut parts = vec![first];
    parts.extend(rest);
    MimePart::Multipart { kind, boundary: boundary(kind, message_id), parts }
}

/// A boundary that is derived from the Message-ID. It begins with `=_`, which no encoded body can contain (RFC 2045
/// §6.7).
fn boundary(kind: &str, message_id: &str) -> String {
    let hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(message_id).finalize();
    let digits = hash.iter().take(16).flat_map(|&b| [hex::high(b), hex::low(b)]);
    "=_".chars().chain(digits).collect()
}

fn text_part<'a>(kind: &'static str, text: &'a str) -> Result<MimePart<'a>, ComposeError> {
    if text.contains('\0') {
        return Err(ComposeError::ControlCharacter(kind.to_owned()));
    }
    let text = if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    };
    Ok(MimePart::Text { kind, text })
}

fn attachment_part(i: usize, attachment: &Attachment, has_html: bool) -> Result<AttachmentPart<'_>, ComposeError> {
    for word in [&attachment.filename, &attachment.content_type, &attachment.content_id].into_iter().flatten() {
        reject_control_characters(&format!("attachment {i}"), word)?;
    }
    // Whitespace around a file name has no meaning, and parsers treat it differently.
    let name = attachment.filename.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let id = attachment.content_id.as_deref().map(normalize_content_id).filter(|id| !id.is_empty());
    if id.as_ref().is_some_and(|id| id.len() > MAX_HEADER_WORD_OCTETS) {
        return Err(ComposeError::ContentId(i));
    }
    Ok(AttachmentPart {
        bytes: &attachment.bytes,
        content_type: AttachmentType::for_attachment(attachment.content_type.as_deref(), name),
        name,
        is_inline: has_html && id.is_some(),
        content_id: id,
    })
}

/// A content id without angle brackets. Special characters are percent-encoded as in a `cid:` link (RFC 2392).
fn normalize_content_id(text: &str) -> String {
    let text = text.trim();
    let text = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text);
    let is_word = text.bytes().all(|b| b.is_ascii_graphic() && !b"<>()[]\\,;:\"".contains(&b)) && !text.contains("=?");
    if is_word { text.to_owned() } else { param::percent_encode(text) }
}

impl MimePart<'_> {
    /// An estimate of the encoded size.
    pub(super) fn estimated_octets(&self) -> usize {
        match self {
            Self::Text { text, .. } => text.len() + text.len() / 2 + 200,
            Self::Attachment(file) => body::base64_len(file.bytes.len()) + 600,
            Self::Multipart { parts, .. } => parts.iter().map(|part| part.estimated_octets() + 50).sum::<usize>() + 200,
        }
    }

    /// Writes headers, empty line and body, without a last line end.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text { kind, text } => {
                let encoding = BodyEncoding::choose(text);
                let mut field = HeaderWriter::begin(out, "Content-Type");
                field.push_word(kind);
                param::write_param(&mut field, "charset", "utf-8");
                field.finish();
                HeaderWriter::write_text(out, "Content-Transfer-Encoding", encoding.as_str());
                out.extend_from_slice(b"\r\n");
                encoding.write(out, text);
            }
            Self::Attachment(file) => file.write(out),
            Self::Multipart { kind, boundary, parts } => write_multipart(out, kind, boundary, parts),
        }
    }
}

impl AttachmentPart<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        self.content_type.write(out, self.name.is_some());
        HeaderWriter::write_text(out, "Content-Transfer-Encoding", BodyEncoding::Base64.as_str());
        let mut field = HeaderWriter::begin(out, "Content-Disposition");
        field.push_word(if self.is_inline { "inline" } else { "attachment" });
        if let Some(name) = self.name {
            param::write_param(&mut field, "filename", name);
        }
        field.finish();
        if let Some(id) = &self.content_id {
            HeaderWriter::write_words(out, "Content-ID", [format!("<{id}>").as_str()]);
        }
        out.extend_from_slice(b"\r\n");
        body::write_base64(out, self.bytes);
    }
}

fn write_multipart(out: &mut Vec<u8>, kind: &str, boundary: &str, parts: &[MimePart<'_>]) {
    let mut field = HeaderWriter::begin(out, "Content-Type");
    field.push_word(kind);
    if kind == "multipart/related" {
        // RFC 2387 §3.1: the type of the first part.
        param::write_param(&mut field, "type", "text/html");
    }
    field.append(";");
    field.push_word(&format!("boundary=\"{boundary}\""));
    field.finish();
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
