//! A mail as RFC 5322 bytes, the same bytes for the same letter.
//!
//! Written by hand: the builders at hand invent dates, ids and boundaries where none is given, and would have to be
//! watched at every update so that a repeat stays the same mail. What leaves here is 7-bit with CRLF and short lines,
//! save an address whose local part is international: then the address headers are UTF-8 (RFC 6532) and
//! [`needs_smtputf8`] says so. Bcc is never written.

mod body;
mod content_type;
mod encoded_word;
mod header_writer;
mod headers;
mod hex;
mod param;
mod part;
mod rebuild;

use mailonce_core::{id::EmailId, outbound::content::EmailContent, time::Time};

pub use content_type::attachment_media_type;
pub use headers::is_message_id;
pub use rebuild::{ProviderFields, rebuild_mail};

/// How many earlier messages a mail names. Of a longer thread the first and the latest are kept.
pub const MAX_REFERENCES: usize = 100;
/// Octets of a Message-ID with its angle brackets, of a Content-ID, and of one unbroken word in a header.
pub const MAX_HEADER_WORD_OCTETS: usize = 900;

/// Everything that becomes a mail.
#[derive(Clone, Copy, Debug)]
pub struct ComposeInput<'a> {
    /// What it says and to whom.
    pub content: &'a EmailContent,
    /// With angle brackets.
    pub message_id: &'a str,
    /// Its Date.
    pub date: Time,
    /// The email's id.
    pub id: EmailId,
    /// The messages it answers, with angle brackets.
    pub in_reply_to: &'a [String],
    /// The thread so far, oldest first, with angle brackets.
    pub references: &'a [String],
    /// Whether a machine wrote it by itself.
    pub auto_submitted: Option<AutoSubmitted>,
    /// By which we know our own mail when it comes round.
    pub loop_marker: Option<&'a str>,
}

pub use mailonce_core::outbound::content::LOOP_HEADER;

/// Why a machine wrote a mail (RFC 3834).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoSubmitted {
    /// By itself.
    Generated,
    /// In answer to another mail.
    Replied,
}

/// Why a letter cannot become a mail. Each is a fault of whoever made the letter; nothing is cut to fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// A control character, with which one header could become two.
    #[error("{0} contains a control character")]
    ControlCharacter(String),
    /// An address that is none.
    #[error("{0} holds an address that is none")]
    Address(&'static str),
    /// A Message-ID that is none.
    #[error("{0} holds a message id that is none")]
    MessageId(&'static str),
    /// A custom header that mailonce writes itself, or a name that is none.
    #[error("{0:?} is no header that a caller can set")]
    Header(String),
    /// A Content-ID that fits no line.
    #[error("content id of attachment {0} is too long")]
    ContentId(usize),
    /// A date that mail cannot say.
    #[error("date is outside of the years that mail can say")]
    Date,
}

/// The bytes of a mail.
pub fn compose(letter: &ComposeInput<'_>) -> Result<Vec<u8>, ComposeError> {
    let root = part::build_parts(letter.content, letter.message_id)?;
    let mut out = Vec::with_capacity(4_096 + root.estimated_octets());
    headers::write_headers(&mut out, letter)?;
    root.write(&mut out);
    if !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    Ok(out)
}

/// Whether the mail's headers can only be said in UTF-8, so that each hop must offer SMTPUTF8 (RFC 6531).
///
/// An envelope needs it too when its own recipient does, such as a Bcc: see [`address_needs_smtputf8`].
pub fn needs_smtputf8(content: &EmailContent) -> bool {
    let shown = std::iter::once(&content.from).chain(&content.to).chain(&content.cc).chain(&content.reply_to);
    shown.into_iter().any(|mailbox| address_needs_smtputf8(&mailbox.address))
}

/// Whether an address can only be said in UTF-8.
pub fn address_needs_smtputf8(address: &str) -> bool {
    !address.is_ascii()
}

/// Refuses what could end a header or hide in one.
fn reject_control_characters(field: &str, text: &str) -> Result<(), ComposeError> {
    if text.chars().any(char::is_control) { Err(ComposeError::ControlCharacter(field.to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
