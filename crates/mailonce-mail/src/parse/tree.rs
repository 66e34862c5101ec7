//! The tree of parts, walked without recursion, and what in it is body and what is attachment.

use std::ops::Range;

use mailonce_core::limits;
use sha2::{Digest as _, Sha256};

use super::{Attachment, Cut, DEPTH, Fields, PARTS, TEXT_BYTES, Transfer, fields::Kind, one_line, transfer};

/// What a walk found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) fields: Fields,
    /// `type/subtype` of the mail itself.
    pub(super) content_type: String,
    /// `report-type` of the mail itself.
    pub(super) report_type: Option<String>,
    /// Whether the mail, or a part that is no file, is a calendar's answer to an invitation.
    pub(super) calendar_reply: bool,
    pub(super) text: Option<String>,
    pub(super) html: Option<String>,
    pub(super) attachments: Vec<Attachment>,
}

/// A part that waits to be looked at.
struct Waiting {
    range: Range<usize>,
    depth: usize,
    /// In a digest a part without a type is a mail.
    digest: bool,
}

/// A part that holds no parts.
struct Leaf {
    fields: Fields,
    main: String,
    sub: String,
    charset: Option<String>,
    name: Option<String>,
    range: Range<usize>,
}

/// Looks at every part, within the limits.
pub(super) fn walk(raw: &[u8], cut: &mut Cut) -> Found {
    let mut found = Found::default();
    let mut waiting = vec![Waiting { range: 0..raw.len(), depth: 0, digest: false }];
    let mut seen = 0;
    while let Some(part) = waiting.pop() {
        if seen >= PARTS {
            cut.parts = true;
            break;
        }
        seen += 1;
        let (fields, body) = Fields::read(&raw[part.range.clone()], cut);
        let range = part.range.start + body..part.range.end;
        let kind =
            Kind::read(&fields, "content-type", cut).filter(|kind| !kind.main.is_empty() && !kind.sub.is_empty());
        let (main, sub) = match &kind {
            Some(kind) => (kind.main.clone(), kind.sub.clone()),
            None if part.digest => ("message".to_owned(), "rfc822".to_owned()),
            None => ("text".to_owned(), "plain".to_owned()),
        };
        let param = |name: &str| kind.as_ref().and_then(|kind| kind.param(name)).map(str::to_owned);
        if seen == 1 {
            found.fields = fields.clone();
            found.content_type = format!("{main}/{sub}");
            found.report_type = param("report-type").map(|kind| kind.to_ascii_lowercase());
        }
        if main == "multipart" && part.depth < DEPTH {
            let parts = param("boundary").map(|line| split(raw, &range, line.as_bytes(), cut)).unwrap_or_default();
            let (depth, digest) = (part.depth + 1, sub == "digest");
            if !parts.is_empty() {
                waiting.extend(parts.into_iter().rev().map(|range| Waiting { range, depth, digest }));
                continue;
            }
        }
        cut.parts |= main == "multipart" && part.depth >= DEPTH;
        if main == "text" && sub == "calendar" && param("method").is_some_and(|m| m.eq_ignore_ascii_case("reply")) {
            let disposition = Kind::read(&fields, "content-disposition", cut);
            found.calendar_reply |= seen == 1 || disposition.is_none_or(|kind| kind.main != "attachment");
        }
        let leaf = Leaf { main, sub, charset: param("charset"), name: param("name"), fields, range };
        found.take(raw, leaf, cut);
    }
    found
}

/// The parts between boundary lines. A last part without its end reaches to the end.
fn split(raw: &[u8], range: &Range<usize>, boundary: &[u8], cut: &mut Cut) -> Vec<Range<usize>> {
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
                    parts.push(start..before(raw, start, at));
                }
                if closing {
                    return parts;
                }
                if parts.len() >= PARTS {
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

/// The line break before a boundary belongs to the boundary.
fn before(raw: &[u8], start: usize, at: usize) -> usize {
    let part = &raw[start..at];
    let part = part.strip_suffix(b"\n").unwrap_or(part);
    start + part.strip_suffix(b"\r").unwrap_or(part).len()
}

impl Found {
    fn take(&mut self, raw: &[u8], leaf: Leaf, cut: &mut Cut) {
        let disposition = Kind::read(&leaf.fields, "content-disposition", cut);
        let filename =
            disposition.as_ref().and_then(|kind| kind.param("filename")).or(leaf.name.as_deref()).and_then(bare_name);
        let attached = disposition.as_ref().is_some_and(|kind| kind.main == "attachment");
        let encoding = Transfer::read(leaf.fields.first("content-transfer-encoding").unwrap_or_default());
        let body = !attached && filename.is_none() && leaf.main == "text";
        match leaf.sub.as_str() {
            "plain" if body => append(&mut self.text, raw, &leaf, encoding, cut),
            "html" if body => append(&mut self.html, raw, &leaf, encoding, cut),
            _ => self.attach(raw, &leaf, (filename, disposition), encoding, cut),
        }
    }

    fn attach(
        &mut self,
        raw: &[u8],
        leaf: &Leaf,
        (filename, disposition): (Option<String>, Option<Kind>),
        transfer: Transfer,
        cut: &mut Cut,
    ) {
        if self.attachments.len() >= limits::ATTACHMENTS {
            cut.attachments = true;
            return;
        }
        let bytes = transfer.decoded(&raw[leaf.range.clone()]);
        let id = leaf
            .fields
            .first("content-id")
            .map(|id| one_line(id.trim_matches(['<', '>', ' ']), limits::HEADER_VALUE_CHARS));
        self.attachments.push(Attachment {
            filename,
            content_type: one_line(&format!("{}/{}", leaf.main, leaf.sub), 127),
            inline: disposition.is_some_and(|kind| kind.main == "inline") || id.is_some(),
            content_id: id.filter(|id| !id.is_empty()),
            size: bytes.len(),
            sha256: Sha256::digest(&bytes).into(),
            range: leaf.range.clone(),
            transfer,
        });
    }
}

/// Adds a text to a body; several inline texts are one, in order.
fn append(body: &mut Option<String>, raw: &[u8], leaf: &Leaf, encoding: Transfer, cut: &mut Cut) {
    let room = TEXT_BYTES.saturating_sub(body.as_ref().map_or(0, String::len));
    // No encoding makes more than three letters of one, so that only what can be kept is decoded.
    let source = &raw[leaf.range.clone()];
    let source = &source[..source.len().min(room.saturating_mul(3))];
    let mut text = unix_lines(transfer::text(&encoding.decoded(source), leaf.charset.as_deref()));
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

/// Every line end as `\n`. A copy is made only where there is another one, and no larger than the text.
fn unix_lines(text: String) -> String {
    if !text.contains('\r') {
        return text;
    }
    let mut lines = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((line, behind)) = rest.split_once('\r') {
        lines.push_str(line);
        lines.push('\n');
        rest = behind.strip_prefix('\n').unwrap_or(behind);
    }
    lines.push_str(rest);
    lines
}

/// A file name that can only be a name.
fn bare_name(text: &str) -> Option<String> {
    let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = last
        .chars()
        .filter(|&c| !c.is_control() && !crate::glyph::is_invisible(c))
        .take(limits::FILENAME_CHARS)
        .collect();
    let name = name.trim().trim_matches('.').trim();
    (!name.is_empty()).then(|| name.to_owned())
}
