//! RFC 3464 delivery reports and RFC 5965 complaints.

use super::{Bounce, Fate, RECIPIENTS, is_permanent, is_status, line};
use crate::{
    hook::Says,
    parse::{Cut, Fields, Parsed, one_line},
    return_path::Tag,
};

/// Bytes of a report's machine-readable part that are looked at.
const REPORT_BYTES: usize = 256 * 1024;

pub(super) fn read(raw: &[u8], mail: &Parsed) -> Option<Bounce> {
    let part = |kinds: &[&str]| {
        let part = mail.attachments.iter().find(|part| kinds.contains(&part.content_type.as_str()))?;
        let mut bytes = part.bytes(raw);
        bytes.truncate(REPORT_BYTES);
        Some(bytes)
    };
    if let Some(bytes) = part(&["message/delivery-status", "message/global-delivery-status"]) {
        return delivery(&bytes);
    }
    part(&["message/feedback-report"]).map(|bytes| complaint(&bytes))
}

/// Groups of fields, an empty line between them: the first is about the mail, each other about a recipient.
fn delivery(bytes: &[u8]) -> Option<Bounce> {
    let mut groups: Vec<Fields> = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() && groups.len() <= RECIPIENTS {
        let (fields, end) = Fields::read(rest, &mut Cut::default());
        // A line that begins no field is passed over as a whole: a long one must not be looked at once for each octet.
        let line = || rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |n| n + 1);
        rest = &rest[if end == 0 { line() } else { end }..];
        if !fields.0.is_empty() {
            groups.push(fields);
        }
    }
    let tag = groups.iter().find_map(|fields| fields.first("original-envelope-id")).and_then(Tag::from_envelope_id);
    let recipients: Vec<Fate> = groups.iter().filter_map(fate).collect();
    if recipients.is_empty() {
        return None;
    }
    Some(Bounce { tag, email: None, message_id: None, recipients, standard: true })
}

fn fate(fields: &Fields) -> Option<Fate> {
    let named = fields.first("original-recipient").or(fields.first("final-recipient"));
    let action = fields.first("action").map(str::to_ascii_lowercase);
    if named.is_none() && action.is_none() {
        return None;
    }
    let status = fields
        .first("status")
        .and_then(|status| status.split_whitespace().next())
        .filter(|status| is_status(status))
        .map(str::to_owned);
    let diagnostic =
        fields.first("diagnostic-code").map(|text| text.split_once(';').map_or(text, |(_, text)| text).trim());
    let reason = line(diagnostic.or(status.as_deref()).unwrap_or("no reason given"));
    let bounced = Says::Bounced { permanent: is_permanent(status.as_deref(), &reason) };
    let says = match action.as_deref().map(|action| action.split([' ', '(']).next().unwrap_or_default()) {
        Some("failed") => bounced,
        Some("delayed") => Says::Deferred,
        Some("delivered") => Says::Delivered,
        Some("relayed" | "expanded") => Says::Accepted,
        // Some systems leave the action out; the class of the status says as much.
        _ => match status.as_deref().and_then(|status| status.chars().next()) {
            Some('5') => bounced,
            Some('4') => Says::Deferred,
            Some('2') => Says::Delivered,
            _ => Says::Other,
        },
    };
    Some(Fate { recipient: address(named.unwrap_or_default()), says, status, reason })
}

fn complaint(bytes: &[u8]) -> Bounce {
    let (fields, _) = Fields::read(bytes, &mut Cut::default());
    let kind = fields.first("feedback-type").unwrap_or("abuse").to_ascii_lowercase();
    let says = if kind == "not-spam" { Says::Other } else { Says::Complained };
    let mut recipients: Vec<Fate> = fields
        .all("original-rcpt-to")
        .take(RECIPIENTS)
        .map(|text| Fate { recipient: address(text), says, status: None, reason: line(&kind) })
        .collect();
    if recipients.is_empty() {
        recipients.push(Fate { recipient: String::new(), says, status: None, reason: line(&kind) });
    }
    let tag = fields.first("original-envelope-id").and_then(Tag::from_envelope_id);
    let tag = tag.or_else(|| fields.first("original-mail-from").and_then(|path| Tag::from_return_path(&address(path))));
    Bounce { tag, email: None, message_id: None, recipients, standard: true }
}

/// The address of `rfc822; user@example.com`.
fn address(text: &str) -> String {
    let text = text.split_once(';').map_or(text, |(_, address)| address);
    one_line(text.trim().trim_matches(['<', '>', '"']), 320)
}
