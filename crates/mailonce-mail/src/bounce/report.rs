//! RFC 3464 delivery reports and RFC 5965 complaints.

use super::{Bounce, MAX_RECIPIENTS, RecipientResult, is_enhanced_status, is_permanent, reason_line};
use crate::{
    hooks::ReportedStatus,
    parse::{HeaderFields, ParsedMail, Truncation, one_line},
    return_path::AttemptTag,
};

/// Bytes of a report's machine-readable part that are looked at.
const MAX_REPORT_BYTES: usize = 256 * 1024;

pub(super) fn parse_report(raw: &[u8], mail: &ParsedMail) -> Option<Bounce> {
    let part = |kinds: &[&str]| {
        let part = mail.attachments.iter().find(|part| kinds.contains(&part.content_type.as_str()))?;
        let mut bytes = part.decode(raw);
        bytes.truncate(MAX_REPORT_BYTES);
        Some(bytes)
    };
    if let Some(bytes) = part(&["message/delivery-status", "message/global-delivery-status"]) {
        return parse_delivery_status(&bytes);
    }
    part(&["message/feedback-report"]).map(|bytes| parse_complaint(&bytes))
}

/// Groups of fields, an empty line between them: the first is about the mail, each other about a recipient.
fn parse_delivery_status(bytes: &[u8]) -> Option<Bounce> {
    let mut groups: Vec<HeaderFields> = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() && groups.len() <= MAX_RECIPIENTS {
        let (fields, end) = HeaderFields::parse(rest, &mut Truncation::default());
        // A line that begins no field is passed over as a whole: a long one must not be looked at once for each octet.
        let line = || rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |n| n + 1);
        rest = &rest[if end == 0 { line() } else { end }..];
        if !fields.0.is_empty() {
            groups.push(fields);
        }
    }
    let tag =
        groups.iter().find_map(|fields| fields.first("original-envelope-id")).and_then(AttemptTag::from_envelope_id);
    let recipients: Vec<RecipientResult> = groups.iter().filter_map(recipient_result).collect();
    if recipients.is_empty() {
        return None;
    }
    Some(Bounce { tag, email: None, message_id: None, recipients, is_standard: true })
}

fn recipient_result(fields: &HeaderFields) -> Option<RecipientResult> {
    let named = fields.first("original-recipient").or(fields.first("final-recipient"));
    let action = fields.first("action").map(str::to_ascii_lowercase);
    if named.is_none() && action.is_none() {
        return None;
    }
    let status = fields
        .first("status")
        .and_then(|status| status.split_whitespace().next())
        .filter(|status| is_enhanced_status(status))
        .map(str::to_owned);
    let diagnostic =
        fields.first("diagnostic-code").map(|text| text.split_once(';').map_or(text, |(_, text)| text).trim());
    let reason = reason_line(diagnostic.or(status.as_deref()).unwrap_or("no reason given"));
    let bounced = ReportedStatus::Bounced { permanent: is_permanent(status.as_deref(), &reason) };
    let says = match action.as_deref().map(|action| action.split([' ', '(']).next().unwrap_or_default()) {
        Some("failed") => bounced,
        Some("delayed") => ReportedStatus::Deferred,
        Some("delivered") => ReportedStatus::Delivered,
        Some("relayed" | "expanded") => ReportedStatus::Accepted,
        // Some systems leave the action out; the class of the status says as much.
        _ => match status.as_deref().and_then(|status| status.chars().next()) {
            Some('5') => bounced,
            Some('4') => ReportedStatus::Deferred,
            Some('2') => ReportedStatus::Delivered,
            _ => ReportedStatus::Other,
        },
    };
    Some(RecipientResult { recipient: typed_address(named.unwrap_or_default()), reported_status: says, status, reason })
}

fn parse_complaint(bytes: &[u8]) -> Bounce {
    let (fields, _) = HeaderFields::parse(bytes, &mut Truncation::default());
    let kind = fields.first("feedback-type").unwrap_or("abuse").to_ascii_lowercase();
    let says = if kind == "not-spam" { ReportedStatus::Other } else { ReportedStatus::Complained };
    let mut recipients: Vec<RecipientResult> = fields
        .all("original-rcpt-to")
        .take(MAX_RECIPIENTS)
        .map(|text| RecipientResult {
            recipient: typed_address(text),
            reported_status: says,
            status: None,
            reason: reason_line(&kind),
        })
        .collect();
    if recipients.is_empty() {
        recipients.push(RecipientResult {
            recipient: String::new(),
            reported_status: says,
            status: None,
            reason: reason_line(&kind),
        });
    }
    let tag = fields.first("original-envelope-id").and_then(AttemptTag::from_envelope_id);
    let tag = tag.or_else(|| {
        fields.first("original-mail-from").and_then(|path| AttemptTag::from_return_path(&typed_address(path)))
    });
    Bounce { tag, email: None, message_id: None, recipients, is_standard: true }
}

/// The address of `rfc822; user@example.com`.
fn typed_address(text: &str) -> String {
    let text = text.split_once(';').map_or(text, |(_, address)| address);
    one_line(text.trim().trim_matches(['<', '>', '"']), 320)
}
