//! Parses received mail. Any bytes, even hostile ones, give a [`ParsedMail`].
//!
//! We walk the MIME tree ourselves, with limits on depth, parts and bytes, because the parser crate nests without a
//! limit and drops its values recursively. We use the crate only for single header fields and charsets, inside
//! `catch_unwind`.
//!
//! | file | what it holds |
//! |---|---|
//! | `header_fields` | the header block, and structured fields |
//! | `mime_parts` | parts and boundaries; what is body or attachment |
//! | `transfer_encoding` | lenient base64, quoted-printable and charsets |
//! | `automation_signs` | signs that a machine wrote the mail |
//! | `digest` | a hash of the content, for duplicates |

mod automation_signs;
mod digest;
mod header_fields;
mod mime_parts;
mod transfer_encoding;

use std::ops::Range;

use mailonce_core::{
    address::NamedAddress,
    header_block::{HeaderShape, header_shape},
    limits,
    time::Time,
};
use serde::{Deserialize, Serialize};

pub use automation_signs::AutomationSigns;
pub use digest::digest;
pub use header_fields::{HeaderField, HeaderFields};
pub use transfer_encoding::ContentTransferEncoding;

/// Maximum size of a mail that is parsed.
pub const MAX_MAIL_BYTES: usize = limits::BODY_BYTES;
/// Maximum number of fields in a header block.
pub const MAX_HEADER_FIELDS: usize = 500;
/// Maximum size of a header field.
pub const MAX_FIELD_BYTES: usize = 32 * 1024;
/// Maximum number of addresses in one field.
pub const MAX_ADDRESSES: usize = 200;
/// Maximum number of ids from `References`; the newest are kept.
pub const MAX_REFERENCES: usize = 100;
/// Maximum size of a message id.
pub const MAX_MESSAGE_ID_BYTES: usize = 998;
/// Maximum number of MIME parts.
pub const MAX_PARTS: usize = 500;
/// Maximum nesting depth of multiparts.
pub const MAX_DEPTH: usize = 20;
/// Maximum decoded size of the text, and of the HTML.
pub const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// A parsed mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParsedMail {
    /// The Message-ID, with angle brackets.
    pub message_id: Option<String>,
    /// The authors.
    pub from: Vec<NamedAddress>,
    /// The `Sender`, if another person sent it for the authors.
    pub sender: Option<NamedAddress>,
    /// The `Reply-To` addresses.
    pub reply_to: Vec<NamedAddress>,
    /// The `To` addresses.
    pub to: Vec<NamedAddress>,
    /// The `Cc` addresses.
    pub cc: Vec<NamedAddress>,
    /// The decoded subject on one line. Empty if there is none.
    pub subject: String,
    /// The `Date`, by the sender's clock.
    pub date: Option<Time>,
    /// The `In-Reply-To` ids, with angle brackets.
    pub in_reply_to: Vec<String>,
    /// The `References` ids, with angle brackets, oldest first.
    pub references: Vec<String>,
    /// The decoded plain text, with `\n` line ends.
    pub text: Option<String>,
    /// The decoded HTML.
    pub html: Option<String>,
    /// All other parts.
    pub attachments: Vec<ParsedAttachment>,
    /// The decoded header fields, top to bottom.
    pub headers: HeaderFields,
    /// Signs that a machine wrote the mail.
    pub signs: AutomationSigns,
    /// Which parts of the mail were not parsed.
    pub cut: Truncation,
}

/// A part that is not a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParsedAttachment {
    /// The file name, without path, control or bidi characters.
    pub filename: Option<String>,
    /// `type/subtype` in lower case.
    pub content_type: String,
    /// The Content-ID, without angle brackets.
    pub content_id: Option<String>,
    /// Whether it is displayed inline.
    pub inline: bool,
    /// The decoded size in bytes.
    pub size: usize,
    /// SHA-256 of the decoded bytes.
    pub sha256: [u8; 32],
    /// The position of the encoded bytes in the mail.
    pub range: Range<usize>,
    /// The transfer encoding.
    pub transfer: ContentTransferEncoding,
}

impl ParsedAttachment {
    /// The decoded bytes. `raw` must be the mail that was parsed.
    pub fn decode(&self, raw: &[u8]) -> Vec<u8> {
        self.transfer.decode(raw.get(self.range.clone()).unwrap_or_default())
    }
}

/// What was left out because of limits. The mail is complete if nothing is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub struct Truncation {
    /// The mail was too long.
    pub mail: bool,
    /// A header block was too long or had too many fields.
    pub headers: bool,
    /// The displayed header may differ from the authenticated one, so the sender must not count as authenticated: fields
    /// were dropped, a field that is shown was truncated, a line of the header is malformed, or `From` runs addresses
    /// together.
    pub sender: bool,
    /// There were too many parts, or they were nested too deep.
    pub parts: bool,
    /// The text or the HTML was too long.
    pub body: bool,
    /// There were too many attachments.
    pub attachments: bool,
    /// The parser failed on some field.
    pub unreadable: bool,
}

impl Truncation {
    /// Whether anything was left out.
    pub fn is_truncated(self) -> bool {
        self != Self::default()
    }
}

/// Parses a mail. Never fails: the result contains whatever could be parsed.
pub fn parse(raw: &[u8]) -> ParsedMail {
    let mut cut = Truncation { mail: raw.len() > MAX_MAIL_BYTES, ..Truncation::default() };
    let raw = &raw[..raw.len().min(MAX_MAIL_BYTES)];
    let parts = mime_parts::walk_parts(raw, &mut cut);
    let signs = AutomationSigns::collect(&parts);
    let fields = parts.fields;
    let list = |name: &str, cut: &mut Truncation| header_fields::addresses(&fields, name, cut);
    let mut references = header_fields::message_ids(&fields, "references");
    let excess = references.len().saturating_sub(MAX_REFERENCES);
    references.drain(..excess);
    let mut parsed = ParsedMail {
        message_id: header_fields::message_ids(&fields, "message-id").into_iter().next(),
        from: list("from", &mut cut),
        sender: list("sender", &mut cut).into_iter().next(),
        reply_to: list("reply-to", &mut cut),
        to: list("to", &mut cut),
        cc: list("cc", &mut cut),
        subject: one_line(fields.first("subject").unwrap_or_default(), limits::SUBJECT_CHARS),
        date: header_fields::date(&fields, &mut cut),
        in_reply_to: header_fields::message_ids(&fields, "in-reply-to"),
        references,
        text: parts.text,
        html: parts.html,
        attachments: parts.attachments,
        signs,
        headers: fields,
        cut,
    };
    parsed.cut.sender |=
        header_shape(raw) == HeaderShape::Ambiguous || parsed.from.iter().any(header_fields::is_ambiguous_address);
    parsed.in_reply_to.truncate(MAX_REFERENCES);
    parsed.headers.drop_raw();
    parsed
}

/// One line without control characters, truncated.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(max_chars).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests;
