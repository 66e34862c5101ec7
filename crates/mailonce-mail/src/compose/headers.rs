//! The mail's own headers, from From to the caller's.

use jiff::{Timestamp, fmt::rfc2822, tz::TimeZone};
use mailonce_core::{address::NamedAddress, limits, time::Time};

use super::{
    AutoSubmitted, ComposeError, ComposeInput, LOOP_HEADER, MAX_HEADER_WORD_OCTETS, MAX_REFERENCES,
    reject_control_characters,
};
use crate::compose::header_writer::{HeaderWriter, is_plain};

/// A quoted name longer than this is encoded instead, since only then it can be folded.
const MAX_QUOTED_NAME_OCTETS: usize = 60;

/// Writes everything but the Content-* headers.
pub(super) fn write_headers(out: &mut Vec<u8>, letter: &ComposeInput<'_>) -> Result<(), ComposeError> {
    let content = letter.content;
    write_mailboxes(out, "From", std::slice::from_ref(&content.from))?;
    write_mailboxes(out, "To", &content.to)?;
    write_mailboxes(out, "Cc", &content.cc)?;
    write_mailboxes(out, "Reply-To", &content.reply_to)?;
    reject_control_characters("Subject", &content.subject)?;
    HeaderWriter::write_text(out, "Subject", &content.subject);
    HeaderWriter::write_text(out, "Date", &format_date(letter.date)?);
    if !is_message_id(letter.message_id) {
        return Err(ComposeError::MessageId("Message-ID"));
    }
    HeaderWriter::write_words(out, "Message-ID", [letter.message_id]);
    write_message_ids(out, "In-Reply-To", letter.in_reply_to)?;
    write_message_ids(out, "References", letter.references)?;
    match letter.auto_submitted {
        Some(AutoSubmitted::Generated) => HeaderWriter::write_text(out, "Auto-Submitted", "auto-generated"),
        Some(AutoSubmitted::Replied) => HeaderWriter::write_text(out, "Auto-Submitted", "auto-replied"),
        None => {}
    }
    HeaderWriter::write_text(out, "MIME-Version", "1.0");
    HeaderWriter::write_text(out, "X-Mailonce-Id", &letter.id.to_string());
    if let Some(mark) = letter.loop_marker {
        reject_control_characters(LOOP_HEADER, mark)?;
        HeaderWriter::write_text(out, LOOP_HEADER, mark);
    }
    write_custom_headers(out, letter)
}

/// Whether a text is a Message-ID with its angle brackets that can stand in a header.
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
    // With a zone, since the printer writes an instant without one as -0000: "the zone is not known".
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

/// People as somebody else read them: an address that is none stands as far as it can.
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
    // Space around a name means nothing, and readers disagree about it.
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

/// Whether an address has nothing in it that a header would read as more than an address.
fn is_address(text: &str) -> bool {
    let local = |part: &str| part.split('.').all(is_local_atom) && !looks_encoded(part);
    let domain = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    text.len() <= limits::ADDRESS_OCTETS
        && text.rsplit_once('@').is_some_and(|(l, d)| local(l) && domain(d) && !d.is_empty())
}

/// Whether some reader would take a part of the text for an encoded word, and what it decodes to for an address.
fn looks_encoded(text: &str) -> bool {
    text.split_once("=?").is_some_and(|(_, rest)| rest.contains("?="))
}

fn is_local_atom(text: &str) -> bool {
    let beyond = |c: char| !c.is_ascii() && !c.is_control() && !c.is_whitespace();
    !text.is_empty() && text.chars().all(|c| u8::try_from(c).is_ok_and(is_atext) || beyond(c))
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

/// The caller's headers, in the caller's order. The core has checked them; what could still break a mail is refused.
fn write_custom_headers(out: &mut Vec<u8>, letter: &ComposeInput<'_>) -> Result<(), ComposeError> {
    for (name, value) in &letter.content.headers {
        let token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
        if !token || name.len() > limits::HEADER_NAME_CHARS || is_reserved_header(name) {
            return Err(ComposeError::Header(name.clone()));
        }
        reject_control_characters(name, value)?;
        // A reply knows its thread better than a header that its author copied.
        let replaced = (name.eq_ignore_ascii_case("In-Reply-To") && !letter.in_reply_to.is_empty())
            || (name.eq_ignore_ascii_case("References") && !letter.references.is_empty());
        if !replaced {
            HeaderWriter::write_text(out, name, value);
        }
    }
    Ok(())
}

/// Headers that are written here, or that would change how the mail is read or where it came from.
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
