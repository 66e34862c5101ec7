//! The mail's own headers, from From to the caller's.

use jiff::{Timestamp, fmt::rfc2822, tz::TimeZone};
use mailonce_core::{address::Mailbox, limits, time::Time};

use super::{
    AutoSubmitted, ComposeError, LOOP_FIELD, Letter, REFERENCES, WORD_OCTETS,
    field::{Field, is_plain},
    no_control,
};

/// A quoted name longer than this is encoded instead, since only then it can be folded.
const NAME_LINE: usize = 60;

/// Writes everything but the Content-* headers.
pub(super) fn write(out: &mut Vec<u8>, letter: &Letter<'_>) -> Result<(), ComposeError> {
    let content = letter.content;
    mailboxes(out, "From", std::slice::from_ref(&content.from))?;
    mailboxes(out, "To", &content.to)?;
    mailboxes(out, "Cc", &content.cc)?;
    mailboxes(out, "Reply-To", &content.reply_to)?;
    no_control("Subject", &content.subject)?;
    Field::text(out, "Subject", &content.subject);
    Field::text(out, "Date", &date(letter.date)?);
    if !is_message_id(letter.message_id) {
        return Err(ComposeError::MessageId("Message-ID"));
    }
    Field::words(out, "Message-ID", [letter.message_id]);
    thread(out, "In-Reply-To", letter.in_reply_to)?;
    thread(out, "References", letter.references)?;
    match letter.auto_submitted {
        Some(AutoSubmitted::Generated) => Field::text(out, "Auto-Submitted", "auto-generated"),
        Some(AutoSubmitted::Replied) => Field::text(out, "Auto-Submitted", "auto-replied"),
        None => {}
    }
    Field::text(out, "MIME-Version", "1.0");
    Field::text(out, "X-Mailonce-Id", &letter.id.to_string());
    if let Some(mark) = letter.loop_mark {
        no_control(LOOP_FIELD, mark)?;
        Field::text(out, LOOP_FIELD, mark);
    }
    custom(out, letter)
}

/// Whether a text is a Message-ID with its angle brackets that can stand in a header.
pub fn is_message_id(text: &str) -> bool {
    let inner = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
    inner.is_some_and(|inner| {
        !inner.is_empty()
            && text.len() <= WORD_OCTETS
            && inner.bytes().all(|b| b.is_ascii_graphic() && b != b'<' && b != b'>')
            && !inner.contains("=?")
    })
}

fn date(at: Time) -> Result<String, ComposeError> {
    // With a zone, since the printer writes an instant without one as -0000: "the zone is not known".
    let at = Timestamp::from_millisecond(at.0).map(|at| at.to_zoned(TimeZone::UTC));
    let text = at.and_then(|at| rfc2822::DateTimePrinter::new().zoned_to_string(&at));
    text.map_err(|_range| ComposeError::Date)
}

fn mailboxes(out: &mut Vec<u8>, name: &'static str, list: &[Mailbox]) -> Result<(), ComposeError> {
    if list.is_empty() {
        return Ok(());
    }
    let mut field = Field::begin(out, name);
    for (i, mailbox) in list.iter().enumerate() {
        if i > 0 {
            field.glue(",");
        }
        one_mailbox(&mut field, name, mailbox)?;
    }
    field.end();
    Ok(())
}

/// People as somebody else read them: an address that is none stands as far as it can.
pub(super) fn people(out: &mut Vec<u8>, name: &'static str, list: &[Mailbox]) {
    let plain = |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let cleaned = list.iter().map(|mailbox| Mailbox {
        name: mailbox.name.as_deref().map(plain),
        address: mailbox.address.chars().filter(|c| !c.is_control() && !" <>,;:\"()\\".contains(*c)).collect(),
    });
    let list: Vec<Mailbox> = cleaned.filter(|mailbox| !mailbox.address.is_empty()).collect();
    let start = out.len();
    if mailboxes(out, name, &list).is_err() {
        out.truncate(start);
        Field::words(
            out,
            name,
            list.iter().map(|mailbox| format!("<{}>,", mailbox.address)).collect::<Vec<_>>().iter().map(String::as_str),
        );
    }
}

fn one_mailbox(field: &mut Field<'_>, header: &'static str, mailbox: &Mailbox) -> Result<(), ComposeError> {
    if !is_address(&mailbox.address) {
        return Err(ComposeError::Address(header));
    }
    let name = mailbox.name.as_deref().unwrap_or_default();
    no_control(header, name)?;
    // Space around a name means nothing, and readers disagree about it.
    let name = name.trim();
    if name.is_empty() {
        field.word(&mailbox.address);
        return Ok(());
    }
    let quoted = format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    if !is_plain(name) || name.contains("  ") {
        field.encoded(name);
    } else if name.split(' ').all(is_atom) {
        field.plain(name);
    } else if quoted.len() <= NAME_LINE {
        field.word(&quoted);
    } else {
        field.encoded(name);
    }
    field.word(&format!("<{}>", mailbox.address));
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

fn thread(out: &mut Vec<u8>, name: &'static str, ids: &[String]) -> Result<(), ComposeError> {
    if !ids.iter().all(|id| is_message_id(id)) {
        return Err(ComposeError::MessageId(name));
    }
    let Some((first, rest)) = ids.split_first() else { return Ok(()) };
    let latest = &rest[rest.len().saturating_sub(REFERENCES - 1)..];
    Field::words(out, name, std::iter::once(first).chain(latest).map(String::as_str));
    Ok(())
}

/// The caller's headers, in the caller's order. The core has checked them; what could still break a mail is refused.
fn custom(out: &mut Vec<u8>, letter: &Letter<'_>) -> Result<(), ComposeError> {
    for (name, value) in &letter.content.headers {
        let token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
        if !token || name.len() > limits::HEADER_NAME_CHARS || is_ours(name) {
            return Err(ComposeError::Header(name.clone()));
        }
        no_control(name, value)?;
        // A reply knows its thread better than a header that its author copied.
        let replaced = (name.eq_ignore_ascii_case("In-Reply-To") && !letter.in_reply_to.is_empty())
            || (name.eq_ignore_ascii_case("References") && !letter.references.is_empty());
        if !replaced {
            Field::text(out, name, value);
        }
    }
    Ok(())
}

/// Headers that are written here, or that would change how the mail is read or where it came from.
fn is_ours(name: &str) -> bool {
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
