//! Walks the MIME tree without recursion, and separates bodies from attachments.

use std::ops::Range;

use mailonce_core::limits;
use sha2::{Digest as _, Sha256};

use super::{
    ContentTransferEncoding, HeaderFields, MAX_DEPTH, MAX_PARTS, MAX_TEXT_BYTES, ParsedAttachment, Truncation, one_line,
};
use crate::parse::{header_fields::MediaType, transfer_encoding};

/// The result of walking a mail.
#[derive(Default)]
pub(super) struct MimeParts {
    pub(super) fields: HeaderFields,
    /// `type/subtype` of the mail itself.
    pub(super) content_type: String,
    /// `report-type` of the mail itself.
    pub(super) report_type: Option<String>,
    /// Whether the mail, or a part that is not an attachment, is a calendar reply to an invitation.
    pub(super) calendar_reply: bool,
    pub(super) text: Option<String>,
    pub(super) html: Option<String>,
    pub(super) attachments: Vec<ParsedAttachment>,
}

/// A part that is not parsed yet.
struct PendingPart {
    range: Range<usize>,
    depth: usize,
    /// In a `multipart/digest` the default type is `message/rfc822`.
    in_digest: bool,
}

/// A part without sub-parts.
struct LeafPart {
    fields: HeaderFields,
    media_type: String,
    media_subtype: String,
    charset: Option<String>,
    name: Option<String>,
    range: Range<usize>,
}

/// Walks all parts, within the limits.
pub(super) fn walk_parts(raw: &[u8], cut: &mut Truncation) -> MimeParts {
    let mut parts_found = MimeParts::default();
    let mut pending = vec![PendingPart { range: 0..raw.len(), depth: 0, in_digest: false }];
    let mut visited = 0;
    while let Some(part) = pending.pop() {
        if visited >= MAX_PARTS {
            cut.parts = true;
            break;
        }
        visited += 1;
        let (fields, body) = HeaderFields::parse(&raw[part.range.clone()], cut);
        let range = part.range.start + body..part.range.end;
        let kind =
            MediaType::parse(&fields, "content-type", cut).filter(|kind| !kind.main.is_empty() && !kind.sub.is_empty());
        let (main, sub) = match &kind {
            Some(kind) => (kind.main.clone(), kind.sub.clone()),
            None if part.in_digest => ("message".to_owned(), "rfc822".to_owned()),
            None => ("text".to_owned(), "plain".to_owned()),
        };
        let param = |name: &str| kind.as_ref().and_then(|kind| kind.param(name)).map(str::to_owned);
        if visited == 1 {
            parts_found.fields = fields.clone();
            parts_found.content_type = format!("{main}/{sub}");
            parts_found.report_type = param("report-type").map(|kind| kind.to_ascii_lowercase());
        }
        if main == "multipart" && part.depth < MAX_DEPTH {
            let parts =
                param("boundary").map(|line| split_at_boundary(raw, &range, line.as_bytes(), cut)).unwrap_or_default();
            let (depth, digest) = (part.depth + 1, sub == "digest");
            if !parts.is_empty() {
                pending.extend(parts.into_iter().rev().map(|range| PendingPart { range, depth, in_digest: digest }));
                continue;
            }
        }
        cut.parts |= main == "multipart" && part.depth >= MAX_DEPTH;
        if main == "text" && sub == "calendar" && param("method").is_some_and(|m| m.eq_ignore_ascii_case("reply")) {
            let disposition = MediaType::parse(&fields, "content-disposition", cut);
            parts_found.calendar_reply |= visited == 1 || disposition.is_none_or(|kind| kind.main != "attachment");
        }
        let leaf = LeafPart {
            media_type: main,
            media_subtype: sub,
            charset: param("charset"),
            name: param("name"),
            fields,
            range,
        };
        parts_found.add_leaf(raw, leaf, cut);
    }
    parts_found
}

/// The parts between boundary lines. A last part without a closing boundary extends to the end.
fn split_at_boundary(raw: &[u8], range: &Range<usize>, boundary: &[u8], cut: &mut Truncation) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    if boundary.is_empty() {
        return parts;
    }
    let (mut at, mut open) = (range.start, None);
    while at < range.end {
        let end = raw[at..range.end].iter().position(|&b| b == b'\n').map_or(range.end, |n| at + n + 1);
        if let Some(rest) = raw[at..end].strip_prefix(b"--").and_then(|line| line.strip_prefix(boundary)) {
            let closing = rest.starts_with(b"--");
            if closing || rest.trim_ascii().is_empty() {
                if let Some(start) = open.take() {
                    parts.push(start..end_before_boundary(raw, start, at));
                }
                if closing {
                    return parts;
                }
                if parts.len() >= MAX_PARTS {
                    cut.parts = true;
                    return parts;
                }
                open = Some(end);
            }
        }
        at = end;
    }
    parts.extend(open.map(|start| start..range.end));
    parts
}

/// The end of a part. The line break before a boundary belongs to the boundary.
fn end_before_boundary(raw: &[u8], start: usize, at: usize) -> usize {
    let part = &raw[start..at];
    let part = part.strip_suffix(b"\n").unwrap_or(part);
    start + part.strip_suffix(b"\r").unwrap_or(part).len()
}

impl MimeParts {
    fn add_leaf(&mut self, raw: &[u8], leaf: LeafPart, cut: &mut Truncation) {
        let disposition = MediaType::parse(&leaf.fields, "content-disposition", cut);
        let filename = disposition
            .as_ref()
            .and_then(|kind| kind.param("filename"))
            .or(leaf.name.as_deref())
            .and_then(sanitize_filename);
        let is_attachment = disposition.as_ref().is_some_and(|kind| kind.main == "attachment");
        let encoding =
            ContentTransferEncoding::parse(leaf.fields.first("content-transfer-encoding").unwrap_or_default());
        let is_body = !is_attachment && filename.is_none() && leaf.media_type == "text";
        match leaf.media_subtype.as_str() {
            "plain" if is_body => append_text(&mut self.text, raw, &leaf, encoding, cut),
            "html" if is_body => append_text(&mut self.html, raw, &leaf, encoding, cut),
            _ => self.add_attachment(raw, &leaf, (filename, disposition), encoding, cut),
        }
    }

    fn add_attachment(
        &mut self,
        raw: &[u8],
        leaf: &LeafPart,
        (filename, disposition): (Option<String>, Option<MediaType>),
        transfer: ContentTransferEncoding,
        cut: &mut Truncation,
    ) {
        if self.attachments.len() >= limits::ATTACHMENTS {
            cut.attachments = true;
            return;
        }
        let bytes = transfer.decode_cow(&raw[leaf.range.clone()]);
        let id = leaf
            .fields
            .first("content-id")
            .map(|id| one_line(id.trim_matches(['<', '>', ' ']), limits::HEADER_VALUE_CHARS));
        self.attachments.push(ParsedAttachment {
            filename,
            content_type: one_line(&format!("{}/{}", leaf.media_type, leaf.media_subtype), 127),
            inline: disposition.is_some_and(|kind| kind.main == "inline") || id.is_some(),
            content_id: id.filter(|id| !id.is_empty()),
            size: bytes.len(),
            sha256: Sha256::digest(&bytes).into(),
            range: leaf.range.clone(),
            transfer,
        });
    }
}

/// Appends a text part to a body. Several inline texts are joined in order.
fn append_text(
    body: &mut Option<String>,
    raw: &[u8],
    leaf: &LeafPart,
    encoding: ContentTransferEncoding,
    cut: &mut Truncation,
) {
    let room = MAX_TEXT_BYTES.saturating_sub(body.as_ref().map_or(0, String::len));
    // No encoding uses more than three characters per byte, so this decodes only what can be kept.
    let source = &raw[leaf.range.clone()];
    let source = &source[..source.len().min(room.saturating_mul(3))];
    let mut text =
        normalize_line_ends(transfer_encoding::decode_text(&encoding.decode_cow(source), leaf.charset.as_deref()));
    cut.body |= text.len() > room || source.len() < leaf.range.len();
    text.truncate(text.floor_char_boundary(room));
    match body {
        Some(body) => {
            if !body.ends_with('\n') {
                body.push('\n');
            }
            body.push_str(&text);
        }
        None => *body = Some(text),
    }
}

/// Converts all line ends to `\n`. Copies only if needed, and never allocates more than the text's size.
fn normalize_line_ends(text: String) -> String {
    if !text.contains('\r') {
        return text;
    }
    let mut lines = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((line, after)) = rest.split_once('\r') {
        lines.push_str(line);
        lines.push('\n');
        rest = after.strip_prefix('\n').unwrap_or(after);
    }
    lines.push_str(rest);
    lines
}

/// A safe file name: without path, control or invisible characters.
fn sanitize_filename(text: &str) -> Option<String> {
    let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = last
        .chars()
        .filter(|&c| !c.is_control() && !crate::unicode::is_invisible(c))
        .take(limits::FILENAME_CHARS)
        .collect();
    let name = name.trim().trim_matches('.').trim();
    (!name.is_empty()).then(|| name.to_owned())
}
