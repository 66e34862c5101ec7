//! Writes the headers of a mail, including the caller's custom headers.

use jiff::{Timestamp, fmt::rfc2822, tz::TimeZone};
use mailonce_core::{address::NamedAddress, limits, time::Time};

use super::{
    AutoSubmitted, ComposeError, ComposeInput, LOOP_HEADER, MAX_HEADER_WORD_OCTETS, MAX_REFERENCES,
    reject_control_characters,
};
use crate::compose::header_writer::{HeaderWriter, is_plain};

/// A longer quoted name is written as encoded words instead, because only those can be folded.
const MAX_QUOTED_NAME_OCTETS: usize = 60;

/// Writes all headers except `Content-*`.
pub(super) fn write_headers(out: &mut Vec<u8>, input: &ComposeInput<'_>) -> Result<(), ComposeError> {
    let content = input.content;
    write_mailboxes(out, "From", std::slice::from_ref(&content.from))?;
    write_mailboxes(out, "To", &content.to)?;
    write_mailboxes(out, "Cc", &content.cc)?;
    write_mailboxes(out, "Reply-To", &content.reply_to)?;
    reject_control_characters("Subject", &content.subject)?;
    HeaderWriter::write_text(out, "Subject", &content.subject);
    HeaderWriter::write_text(out, "Date", &format_date(input.date)?);
    if !is_message_id(input.message_id) {
        return Err(ComposeError::MessageId("Message-ID"));
    }
    HeaderWriter::write_words(out, "Message-ID", [input.message_id]);
    write_message_ids(out, "In-Reply-To", input.in_reply_to)?;
    write_message_ids(out, "References", input.references)?;
    match input.auto_submitted {
        Some(AutoSubmitted::Generated) => HeaderWriter::write_text(out, "Auto-Submitted", "auto-generated"),
        Some(AutoSubmitted::Replied) => HeaderWriter::write_text(out, "Auto-Submitted", "auto-replied"),
        None => {}
    }
    HeaderWriter::write_text(out, "MIME-Version", "1.0");
    HeaderWriter::write_text(out, "X-Mailonce-Id", &input.id.to_string());
    if let Some(marker) = input.loop_marker {
        reject_control_characters(LOOP_HEADER, marker)?;
        HeaderWriter::write_text(out, LOOP_HEADER, marker);
    }
    write_custom_headers(out, input)
}

/// Whether a text is a valid Message-ID with angle brackets.
pub fn is_message_id(text: &str) -> bool {
    let inner = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
    inner.is_some_and(|inner| {
        !inner.is_empty()
            && text.len() <= MAX_HEADER_WORD_OCTETS
            && inner.bytes().all(|b| b.is_ascii_graphic() && b != b'<' && b != b'>')
            && !inner.contains("=?")
    })
}

fn format_date(at: Time) -> Result<String, ComposeError> {
    // With an explicit zone, because the printer writes a timestamp without one as -0000, "zone unknown".
    let at = Timestamp::from_millisecond(at.0).map(|at| at.to_zoned(TimeZone::UTC));
    let text = at.and_then(|at| rfc2822::DateTimePrinter::new().zoned_to_string(&at));
    text.map_err(|_range| ComposeError::Date)
}

fn write_mailboxes(out: &mut Vec<u8>, name: &'static str, list: &[NamedAddress]) -> Result<(), ComposeError> {
    if list.is_empty() {
        return Ok(());
    }
    let mut field = HeaderWriter::begin(out, name);
    for (i, mailbox) in list.iter().enumerate() {
        if i > 0 {
            field.append(",");
        }
        write_mailbox(&mut field, name, mailbox)?;
    }
    field.finish();
    Ok(())
}

/// Writes mailboxes that a provider parsed. An invalid address is cleaned and kept as far as possible.
pub(super) fn write_provider_mailboxes(out: &mut Vec<u8>, name: &'static str, list: &[NamedAddress]) {
    let plain = |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let cleaned = list.iter().map(|mailbox| NamedAddress {
        name: mailbox.name.as_deref().map(plain),
        address: mailbox.address.chars().filter(|c| !c.is_control() && !" <>,;:\"()\\".contains(*c)).collect(),
    });
    let list: Vec<NamedAddress> = cleaned.filter(|mailbox| !mailbox.address.is_empty()).collect();
    let start = out.len();
    if write_mailboxes(out, name, &list).is_err() {
        out.truncate(start);
        HeaderWriter::write_words(
            out,
            name,
            list.iter().map(|mailbox| format!("<{}>,", mailbox.address)).collect::<Vec<_>>().iter().map(String::as_str),
        );
    }
}

fn write_mailbox(
    field: &mut HeaderWriter<'_>,
    header: &'static str,
    mailbox: &NamedAddress,
) -> Result<(), ComposeError> {
    if !is_address(&mailbox.address) {
        return Err(ComposeError::Address(header));
    }
    let name = mailbox.name.as_deref().unwrap_or_default();
    reject_control_characters(header, name)?;
    // Whitespace around a name has no meaning, and parsers treat it differently.
    let name = name.trim();
    if name.is_empty() {
        field.push_word(&mailbox.address);
        return Ok(());
    }
    let quoted = format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    if !is_plain(name) || name.contains("  ") {
        field.push_encoded(name);
    } else if name.split(' ').all(is_atom) {
        field.push_plain(name);
    } else if quoted.len() <= MAX_QUOTED_NAME_OCTETS {
        field.push_word(&quoted);
    } else {
        field.push_encoded(name);
    }
    field.push_word(&format!("<{}>", mailbox.address));
    Ok(())
}

/// Whether an address can be written into a header without being parsed as anything else.
fn is_address(text: &str) -> bool {
    let local = |part: &str| part.split('.').all(is_local_atom) && !looks_encoded(part);
    let domain = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    text.len() <= limits::ADDRESS_OCTETS
        && text.rsplit_once('@').is_some_and(|(l, d)| local(l) && domain(d) && !d.is_empty())
}

/// Whether some parser would decode part of the text as an encoded word and get another address.
fn looks_encoded(text: &str) -> bool {
    text.split_once("=?").is_some_and(|(_, rest)| rest.contains("?="))
}

fn is_local_atom(text: &str) -> bool {
    let is_international = |c: char| !c.is_ascii() && !c.is_control() && !c.is_whitespace();
    !text.is_empty() && text.chars().all(|c| u8::try_from(c).is_ok_and(is_atext) || is_international(c))
}

fn is_atom(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_atext)
}

fn is_atext(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&b)
}

fn write_message_ids(out: &mut Vec<u8>, name: &'static str, ids: &[String]) -> Result<(), ComposeError> {
    if !ids.iter().all(|id| is_message_id(id)) {
        return Err(ComposeError::MessageId(name));
    }
    let Some((first, rest)) = ids.split_first() else { return Ok(()) };
    let latest = &rest[rest.len().saturating_sub(MAX_REFERENCES - 1)..];
    HeaderWriter::write_words(out, name, std::iter::once(first).chain(latest).map(String::as_str));
    Ok(())
}

/// Writes the caller's headers in the given order. The core has checked them; what could still break a mail is
/// rejected.
fn write_custom_headers(out: &mut Vec<u8>, input: &ComposeInput<'_>) -> Result<(), ComposeError> {
    for (name, value) in &input.content.headers {
        let is_token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
        if !is_token || name.len() > limits::HEADER_NAME_CHARS || is_reserved_header(name) {
            return Err(ComposeError::Header(name.clone()));
        }
        reject_control_characters(name, value)?;
        // The thread ids of a reply take precedence over headers that the caller copied.
        let is_replaced = (name.eq_ignore_ascii_case("In-Reply-To") && !input.in_reply_to.is_empty())
            || (name.eq_ignore_ascii_case("References") && !input.references.is_empty());
        if !is_replaced {
            HeaderWriter::write_text(out, name, value);
        }
    }
    Ok(())
}

/// Headers that mailonce writes itself, or that would change how the mail is parsed or where it seems to come from.
fn is_reserved_header(name: &str) -> bool {
    const NAMES: [&str; 16] = [
        "from",
        "sender",
        "to",
        "cc",
        "bcc",
        "reply-to",
        "subject",
        "date",
        "message-id",
        "auto-submitted",
        "mime-version",
        "content-type",
        "content-transfer-encoding",
        "dkim-signature",
        "received",
        "return-path",
    ];
    let name = name.to_ascii_lowercase();
    NAMES.contains(&name.as_str()) || name.starts_with("x-mailonce-")
}
