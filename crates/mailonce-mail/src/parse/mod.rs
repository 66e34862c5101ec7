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

mod digest;
mod fields;
mod signs;
mod transfer;
mod tree;

use std::ops::Range;

use mailonce_core::{address::Mailbox, limits, time::Time};
use serde::{Deserialize, Serialize};

pub use digest::digest;
pub use fields::{Field, Fields};
pub use signs::Signs;
pub use transfer::Transfer;

/// Bytes of a mail that are looked at.
pub const MAIL_BYTES: usize = limits::BODY_BYTES;
/// Bytes of one header block that are looked at.
pub const HEAD_BYTES: usize = 256 * 1024;
/// Header fields kept of one block.
pub const FIELDS: usize = 500;
/// Bytes of one header field that are looked at.
pub const FIELD_BYTES: usize = 32 * 1024;
/// Addresses kept of one field.
pub const ADDRESSES: usize = 200;
/// Ids kept of `References`: the newest ones.
pub const REFERENCES: usize = 100;
/// Bytes of one message id.
pub const ID_BYTES: usize = 998;
/// Parts of one mail that are looked at.
pub const PARTS: usize = 500;
/// How deep multiparts are followed.
pub const DEPTH: usize = 20;
/// Decoded bytes kept of the text, and of the HTML.
pub const TEXT_BYTES: usize = 1024 * 1024;

/// A received mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parsed {
    /// With angle brackets.
    pub message_id: Option<String>,
    /// Authors.
    pub from: Vec<Mailbox>,
    /// Who sent it for them.
    pub sender: Option<Mailbox>,
    /// Where answers go.
    pub reply_to: Vec<Mailbox>,
    /// Recipients.
    pub to: Vec<Mailbox>,
    /// More recipients.
    pub cc: Vec<Mailbox>,
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
    pub attachments: Vec<Attachment>,
    /// The header, top to bottom, decoded.
    pub headers: Fields,
    /// What tells a machine's mail from a person's.
    pub signs: Signs,
    /// What of the mail was not looked at.
    pub cut: Cut,
}

/// A part that is no body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
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
    pub transfer: Transfer,
}

impl Attachment {
    /// The decoded bytes. `raw` is the mail that was parsed; of another mail they are empty or nonsense.
    pub fn bytes(&self, raw: &[u8]) -> Vec<u8> {
        self.transfer.decode(raw.get(self.range.clone()).unwrap_or_default())
    }
}

/// What was left out. A mail is whole when nothing is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each told by its name")]
pub struct Cut {
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

impl Cut {
    /// Whether anything is missing.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// Reads a mail. Whatever the bytes are, the answer is what could be read of them.
pub fn parse(raw: &[u8]) -> Parsed {
    let mut cut = Cut { mail: raw.len() > MAIL_BYTES, ..Cut::default() };
    let raw = &raw[..raw.len().min(MAIL_BYTES)];
    let found = tree::walk(raw, &mut cut);
    let signs = Signs::read(&found);
    let fields = found.fields;
    let list = |name: &str, cut: &mut Cut| fields::addresses(&fields, name, cut);
    let mut references = fields::ids(&fields, "references");
    let over = references.len().saturating_sub(REFERENCES);
    references.drain(..over);
    let mut parsed = Parsed {
        message_id: fields::ids(&fields, "message-id").into_iter().next(),
        from: list("from", &mut cut),
        sender: list("sender", &mut cut).into_iter().next(),
        reply_to: list("reply-to", &mut cut),
        to: list("to", &mut cut),
        cc: list("cc", &mut cut),
        subject: one_line(fields.first("subject").unwrap_or_default(), limits::SUBJECT_CHARS),
        date: fields::date(&fields, &mut cut),
        in_reply_to: fields::ids(&fields, "in-reply-to"),
        references,
        text: found.text,
        html: found.html,
        attachments: found.attachments,
        signs,
        headers: fields,
        cut,
    };
    parsed.in_reply_to.truncate(REFERENCES);
    parsed.headers.forget_raw();
    parsed
}

/// One line without control characters, cut.
pub(crate) fn one_line(text: &str, chars: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(chars).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests;
