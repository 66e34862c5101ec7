//! A received mail as values: hostile bytes in, [`Parsed`] out, whatever they are.
//!
//! The tree of parts is walked here, with a bound on depth, parts and bytes, because the parser crate nests without
//! one and its values are dropped recursively. It reads single header fields and charsets, behind `catch_unwind`.
//!
//! | file | what it holds |
//! |---|---|
//! | `fields` | the header block, and fields with a grammar |
//! | `tree` | parts, boundaries and what is body or attachment |
//! | `transfer` | base64, quoted-printable and charsets, forgiving |
//! | `signs` | what tells a machine's mail from a person's |
//! | `digest` | when two mails say the same |

mod automation_signs;
mod digest;
mod header_fields;
mod mime_parts;
mod transfer_encoding;

use std::ops::Range;

use mailonce_core::{address::NamedAddress, limits, time::Time};
use serde::{Deserialize, Serialize};

pub use automation_signs::AutomationSigns;
pub use digest::digest;
pub use header_fields::{HeaderField, HeaderFields};
pub use transfer_encoding::ContentTransferEncoding;

/// Bytes of a mail that are looked at.
pub const MAX_MAIL_BYTES: usize = limits::BODY_BYTES;
/// Bytes of one header block that are looked at.
pub const MAX_HEADER_BYTES: usize = 256 * 1024;
/// Header fields kept of one block.
pub const MAX_HEADER_FIELDS: usize = 500;
/// Bytes of one header field that are looked at.
pub const MAX_FIELD_BYTES: usize = 32 * 1024;
/// Addresses kept of one field.
pub const MAX_ADDRESSES: usize = 200;
/// Ids kept of `References`: the newest ones.
pub const MAX_REFERENCES: usize = 100;
/// Bytes of one message id.
pub const MAX_MESSAGE_ID_BYTES: usize = 998;
/// Parts of one mail that are looked at.
pub const MAX_PARTS: usize = 500;
/// How deep multiparts are followed.
pub const MAX_DEPTH: usize = 20;
/// Decoded bytes kept of the text, and of the HTML.
pub const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// A received mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParsedMail {
    /// With angle brackets.
    pub message_id: Option<String>,
    /// Authors.
    pub from: Vec<NamedAddress>,
    /// Who sent it for them.
    pub sender: Option<NamedAddress>,
    /// Where answers go.
    pub reply_to: Vec<NamedAddress>,
    /// Recipients.
    pub to: Vec<NamedAddress>,
    /// More recipients.
    pub cc: Vec<NamedAddress>,
    /// Decoded, one line. Empty when there is none.
    pub subject: String,
    /// When it was written, by the writer's clock.
    pub date: Option<Time>,
    /// Ids with angle brackets.
    pub in_reply_to: Vec<String>,
    /// Ids with angle brackets, oldest first.
    pub references: Vec<String>,
    /// The plain text, decoded, with `\n`.
    pub text: Option<String>,
    /// The HTML, decoded.
    pub html: Option<String>,
    /// Everything else that the mail carries.
    pub attachments: Vec<ParsedAttachment>,
    /// The header, top to bottom, decoded.
    pub headers: HeaderFields,
    /// What tells a machine's mail from a person's.
    pub signs: AutomationSigns,
    /// What of the mail was not looked at.
    pub cut: Truncation,
}

/// A part that is no body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParsedAttachment {
    /// A bare name without path, control or direction characters.
    pub filename: Option<String>,
    /// `type/subtype` in lower case.
    pub content_type: String,
    /// Without angle brackets.
    pub content_id: Option<String>,
    /// Whether it is shown with the text.
    pub inline: bool,
    /// Decoded bytes.
    pub size: usize,
    /// SHA-256 of the decoded bytes.
    pub sha256: [u8; 32],
    /// Where its encoded bytes are in the mail.
    pub range: Range<usize>,
    /// How they are encoded.
    pub transfer: ContentTransferEncoding,
}

impl ParsedAttachment {
    /// The decoded bytes. `raw` is the mail that was parsed; of another mail they are empty or nonsense.
    pub fn decode(&self, raw: &[u8]) -> Vec<u8> {
        self.transfer.decode(raw.get(self.range.clone()).unwrap_or_default())
    }
}

/// What was left out. A mail is whole when nothing is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each told by its name")]
pub struct Truncation {
    /// The mail was too long.
    pub mail: bool,
    /// A header block was too long or had too many fields.
    pub headers: bool,
    /// Header fields were dropped, or `From` was shortened. The sender that is shown may then be another than the one that
    /// was authenticated.
    pub sender: bool,
    /// There were too many parts, or they were nested too deep.
    pub parts: bool,
    /// The text or the HTML was too long.
    pub body: bool,
    /// There were too many attachments.
    pub attachments: bool,
    /// The parser gave up on something.
    pub unreadable: bool,
}

impl Truncation {
    /// Whether anything is missing.
    pub fn is_truncated(self) -> bool {
        self != Self::default()
    }
}

/// Reads a mail. Whatever the bytes are, the answer is what could be read of them.
pub fn parse(raw: &[u8]) -> ParsedMail {
    let mut cut = Truncation { mail: raw.len() > MAX_MAIL_BYTES, ..Truncation::default() };
    let raw = &raw[..raw.len().min(MAX_MAIL_BYTES)];
    let found = mime_parts::walk_parts(raw, &mut cut);
    let signs = AutomationSigns::collect(&found);
    let fields = found.fields;
    let list = |name: &str, cut: &mut Truncation| header_fields::addresses(&fields, name, cut);
    let mut references = header_fields::message_ids(&fields, "references");
    let over = references.len().saturating_sub(MAX_REFERENCES);
    references.drain(..over);
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
        text: found.text,
        html: found.html,
        attachments: found.attachments,
        signs,
        headers: fields,
        cut,
    };
    parsed.in_reply_to.truncate(MAX_REFERENCES);
    parsed.headers.drop_raw();
    parsed
}

/// One line without control characters, cut.
pub(crate) fn one_line(text: &str, chars: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(chars).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests;
