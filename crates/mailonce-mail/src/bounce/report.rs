//! RFC 3464 delivery reports and RFC 5965 complaints.

use super::{Bounce, MAX_RECIPIENTS, RecipientResult, is_enhanced_status, is_permanent, reason_line};
use crate::{
    hooks::ReportedStatus,
    parse::{HeaderFields, ParsedMail, Truncation, one_line},
    return_path::AttemptTag,
};

/// Maximum size of the machine-readable part of a report.
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

/// Parses groups of fields, separated by empty lines. The first describes the mail, each other one a recipient.
fn parse_delivery_status(bytes: &[u8]) -> Option<Bounce> {
    let mut groups: Vec<HeaderFields> = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() && groups.len() <= MAX_RECIPIENTS {
        let (fields, end) = HeaderFields::parse(rest, &mut Truncation::default());
        // A line that is not a field is skipped as a whole. Otherwise a long line would be parsed once per octet.
        let line_len = || rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |n| n + 1);
        rest = &rest[if end == 0 { line_len() } else { end }..];
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
    let recipient = fields.first("original-recipient").or(fields.first("final-recipient"));
    let action = fields.first("action").map(str::to_ascii_lowercase);
    if recipient.is_none() && action.is_none() {
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
    let reported_status = match action.as_deref().map(|action| action.split([' ', '(']).next().unwrap_or_default()) {
        Some("failed") => bounced,
        Some("delayed") => ReportedStatus::Deferred,
        Some("delivered") => ReportedStatus::Delivered,
        Some("relayed" | "expanded") => ReportedStatus::Accepted,
        // Some systems omit the action; the class of the status code says the same.
        _ => match status.as_deref().and_then(|status| status.chars().next()) {
            Some('5') => bounced,
            Some('4') => ReportedStatus::Deferred,
            Some('2') => ReportedStatus::Delivered,
            _ => ReportedStatus::Other,
        },
    };
    Some(RecipientResult { recipient: typed_address(recipient.unwrap_or_default()), reported_status, status, reason })
}

fn parse_complaint(bytes: &[u8]) -> Bounce {
    let (fields, _) = HeaderFields::parse(bytes, &mut Truncation::default());
    let feedback_type = fields.first("feedback-type").unwrap_or("abuse").to_ascii_lowercase();
    let reported_status = if feedback_type == "not-spam" { ReportedStatus::Other } else { ReportedStatus::Complained };
    let mut recipients: Vec<RecipientResult> = fields
        .all("original-rcpt-to")
        .take(MAX_RECIPIENTS)
        .map(|text| RecipientResult {
            recipient: typed_address(text),
            reported_status,
            status: None,
            reason: reason_line(&feedback_type),
        })
        .collect();
    if recipients.is_empty() {
        recipients.push(RecipientResult {
            recipient: String::new(),
            reported_status,
            status: None,
            reason: reason_line(&feedback_type),
        });
    }
    let tag = fields.first("original-envelope-id").and_then(AttemptTag::from_envelope_id);
    let tag = tag.or_else(|| {
        fields.first("original-mail-from").and_then(|path| AttemptTag::from_return_path(&typed_address(path)))
    });
    Bounce { tag, email: None, message_id: None, recipients, is_standard: true }
}

/// The address in `rfc822; user@example.com`.
fn typed_address(text: &str) -> String {
    let text = text.split_once(';').map_or(text, |(_, address)| address);
    one_line(text.trim().trim_matches(['<', '>', '"']), 320)
}
