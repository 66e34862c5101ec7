//! Bounces in prose. Read only of senders that write nothing else.

use super::{Bounce, Fate, RECIPIENTS, is_permanent, line, status_in};
use crate::{
    hook::Says,
    parse::{Cut, Fields, Parsed},
};

/// Where the returned mail begins.
const RETURNED: &[&str] = &[
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
/// Words of failure, in lower case.
const FAILED: &[&str] = &[
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
/// Words of delay.
const DELAYED: &[&str] = &[
    "delayed",
    "will be retried",
    "will keep trying",
    "still being retried",
    "not been delivered yet",
    "verzögert",
    "temporarily deferred",
];

pub(super) fn read(mail: &Parsed) -> Option<Bounce> {
    let text = mail.text.as_deref().unwrap_or_default();
    let lower = text.to_ascii_lowercase();
    let end = RETURNED.iter().filter_map(|mark| lower.find(mark)).min().unwrap_or(text.len());
    let (told, returned) = text.split_at(end);
    let subject = mail.subject.to_lowercase();
    let lower = told.to_lowercase();
    let said = |words: &[&str]| words.iter().any(|words| lower.contains(words) || subject.contains(words));
    let says = if said(DELAYED) {
        Says::Deferred
    } else if said(FAILED) || mail.headers.has("x-failed-recipients") {
        let status = status_in(told);
        Says::Bounced { permanent: is_permanent(status.as_deref(), told) }
    } else {
        return None;
    };
    let recipients = fates(mail, told, says);
    let mut bounce = Bounce { tag: None, email: None, message_id: None, recipients, standard: false };
    if let Some((_, header)) = returned.split_once('\n') {
        let (fields, _) = Fields::read(header.trim_start_matches(['-', ' ', '\n']).as_bytes(), &mut Cut::default());
        bounce.hints(&fields);
    }
    Some(bounce)
}

fn fates(mail: &Parsed, told: &str, says: Says) -> Vec<Fate> {
    let listed: Vec<String> = mail
        .headers
        .all("x-failed-recipients")
        .flat_map(|list| list.split(','))
        .filter_map(address)
        .take(RECIPIENTS)
        .collect();
    let mut addresses =
        if listed.is_empty() { told.lines().filter_map(named).take(RECIPIENTS).collect() } else { listed };
    if addresses.is_empty() {
        addresses.push(String::new());
    }
    addresses.dedup();
    let fate = |recipient: String| {
        let reason = reason(told, &recipient);
        Fate { recipient, says, status: status_in(&reason).or_else(|| status_in(told)), reason: line(&reason) }
    };
    addresses.into_iter().map(fate).collect()
}

/// A line that is about one address: `<user@example.com>:` or the address alone.
fn named(text: &str) -> Option<String> {
    let text = text.trim();
    let bracketed = text.strip_prefix('<').and_then(|rest| rest.split_once('>')).map(|(address, _)| address);
    let alone = text.trim_end_matches(':');
    address(bracketed.unwrap_or(alone))
}

fn address(text: &str) -> Option<String> {
    let text = text.trim();
    mailonce_core::address::Address::parse(text).is_ok().then(|| text.to_owned())
}

/// What stands behind the address, up to an empty line.
fn reason(told: &str, recipient: &str) -> String {
    let behind = told.split_once(recipient).filter(|_| !recipient.is_empty()).map_or(told, |(_, behind)| behind);
    let behind = behind.trim_start_matches(['>', ':', ' ']);
    let lines: Vec<&str> = behind
        .lines()
        .map(str::trim)
        .skip_while(|line| line.is_empty())
        .take_while(|line| !line.is_empty())
        .take(10)
        .collect();
    lines.join(" ")
}
