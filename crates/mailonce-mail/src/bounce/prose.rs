//! Parses bounces in prose, for mail systems that send no standard report.

use super::{Bounce, MAX_RECIPIENTS, RecipientResult, find_enhanced_status, is_permanent, reason_line};
use crate::{
    hooks::ReportedStatus,
    parse::{HeaderFields, ParsedMail, Truncation},
};

/// Lines that mark the start of the returned mail.
const RETURNED_MAIL_MARKERS: &[&str] = &[
    "--- below this line is a copy of the message",
    "this is a copy of the message",
    "copy of the original message",
    "original message headers",
    "----- original message -----",
    "------ original message",
    "message header",
    "original message follows",
    "the header of the original message",
    "included is a copy of the message header",
];
/// Phrases of a failure, in lower case.
const FAILURE_PHRASES: &[&str] = &[
    "could not be delivered",
    "couldn't be delivered",
    "wasn't able to deliver",
    "was not able to deliver",
    "unable to deliver",
    "undeliverable",
    "delivery has failed",
    "delivery failed",
    "delivery to the following",
    "permanent error",
    "permanent failure",
    "returned to sender",
    "delivery failure",
    "failed permanently",
    "user unknown",
    "mailbox unavailable",
    "not delivered",
    "unzustellbar",
    "konnte nicht zugestellt",
    "n'a pas pu être",
    "no se ha podido entregar",
    "no se pudo entregar",
    "non è stato possibile recapitare",
    "não pôde ser entregue",
    "niet worden bezorgd",
    "не удалось доставить",
    "配信できません",
    "无法投递",
];
/// Phrases of a delay, in lower case.
const DELAY_PHRASES: &[&str] = &[
    "delayed",
    "will be retried",
    "will keep trying",
    "still being retried",
    "not been delivered yet",
    "verzögert",
    "temporarily deferred",
];

pub(super) fn parse_prose(mail: &ParsedMail) -> Option<Bounce> {
    let text = mail.text.as_deref().unwrap_or_default();
    let lower = text.to_ascii_lowercase();
    let end = RETURNED_MAIL_MARKERS.iter().filter_map(|mark| lower.find(mark)).min().unwrap_or(text.len());
    let (notice, returned) = text.split_at(end);
    let subject = mail.subject.to_lowercase();
    let lower = notice.to_lowercase();
    let mentions = |words: &[&str]| words.iter().any(|words| lower.contains(words) || subject.contains(words));
    let reported_status = if mentions(DELAY_PHRASES) {
        ReportedStatus::Deferred
    } else if mentions(FAILURE_PHRASES) || mail.headers.has("x-failed-recipients") {
        let status = find_enhanced_status(notice);
        ReportedStatus::Bounced { permanent: is_permanent(status.as_deref(), notice) }
    } else {
        return None;
    };
    let recipients = recipient_results(mail, notice, reported_status);
    let mut bounce = Bounce { tag: None, email: None, message_id: None, recipients, is_standard: false };
    if let Some((_, header)) = returned.split_once('\n') {
        let (fields, _) =
            HeaderFields::parse(header.trim_start_matches(['-', ' ', '\n']).as_bytes(), &mut Truncation::default());
        bounce.add_hints(&fields);
    }
    Some(bounce)
}

fn recipient_results(mail: &ParsedMail, notice: &str, reported_status: ReportedStatus) -> Vec<RecipientResult> {
    let listed: Vec<String> = mail
        .headers
        .all("x-failed-recipients")
        .flat_map(|list| list.split(','))
        .filter_map(parse_address)
        .take(MAX_RECIPIENTS)
        .collect();
    let mut addresses =
        if listed.is_empty() { notice.lines().filter_map(address_line).take(MAX_RECIPIENTS).collect() } else { listed };
    if addresses.is_empty() {
        addresses.push(String::new());
    }
    addresses.dedup();
    let result = |recipient: String| {
        let reason = reason_for(notice, &recipient);
        RecipientResult {
            recipient,
            reported_status,
            status: find_enhanced_status(&reason).or_else(|| find_enhanced_status(notice)),
            reason: reason_line(&reason),
        }
    };
    addresses.into_iter().map(result).collect()
}

/// The address of a line such as `<user@example.com>:` or of a line with only an address.
fn address_line(text: &str) -> Option<String> {
    let text = text.trim();
    let bracketed = text.strip_prefix('<').and_then(|rest| rest.split_once('>')).map(|(address, _)| address);
    let bare = text.trim_end_matches(':');
    parse_address(bracketed.unwrap_or(bare))
}

fn parse_address(text: &str) -> Option<String> {
    let text = text.trim();
    mailonce_core::address::Address::parse(text).is_ok().then(|| text.to_owned())
}

/// The text after the address, up to an empty line.
fn reason_for(notice: &str, recipient: &str) -> String {
    let after = notice.split_once(recipient).filter(|_| !recipient.is_empty()).map_or(notice, |(_, after)| after);
    let after = after.trim_start_matches(['>', ':', ' ']);
    let lines: Vec<&str> = after
        .lines()
        .map(str::trim)
        .skip_while(|line| line.is_empty())
        .take_while(|line| !line.is_empty())
        .take(10)
        .collect();
    lines.join(" ")
}
