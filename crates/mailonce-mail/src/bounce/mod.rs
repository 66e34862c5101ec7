//! Parses reports about our mail: delivery status notifications, complaints, and bounces in plain prose.
//!
//! A report is an unverified claim. Only the [`AttemptTag`], whose MAC the caller checks, proves that it concerns our
//! mail. The Message-ID and our email id are only hints if there is no tag.
//!
//! | file | what it holds |
//! |---|---|
//! | `report` | RFC 3464 reports and RFC 5965 complaints |
//! | `prose` | bounces in prose: qmail, Exim and similar |

mod prose;
mod report;

use mailonce_core::{handoff::reply::TransportReply, id::EmailId};

use crate::{
    automatic::{self, Why},
    hooks::ReportedStatus,
    parse::{HeaderFields, ParsedMail, Truncation, one_line},
    return_path::AttemptTag,
};

/// Maximum number of recipients per report.
pub const MAX_RECIPIENTS: usize = 100;

/// A parsed report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounce {
    /// The attempt that the report concerns. Only its MAC proves that we created the tag.
    pub tag: Option<AttemptTag>,
    /// Our email id from the returned header. A hint.
    pub email: Option<EmailId>,
    /// The Message-ID of the returned mail, with angle brackets. A hint.
    pub message_id: Option<String>,
    /// The result for each recipient.
    pub recipients: Vec<RecipientResult>,
    /// Whether it follows RFC 3464 or RFC 5965.
    pub is_standard: bool,
}

/// The result for one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipientResult {
    /// The bare address: the original recipient if the report has it, else the final one. Empty if unknown.
    pub recipient: String,
    /// The reported status.
    pub reported_status: ReportedStatus,
    /// The enhanced status code, such as `5.1.1`.
    pub status: Option<String>,
    /// The remote server's explanation: one printable line, truncated.
    pub reason: String,
}

/// Parses a bounce. `recipient` is the address that received it: the return path of the mail that bounced.
///
/// `None` if the mail is not a bounce, for example an out-of-office reply to a return path.
pub fn parse_bounce(raw: &[u8], mail: &ParsedMail, envelope_sender: Option<&str>, recipient: &str) -> Option<Bounce> {
    let mut bounce = report::parse_report(raw, mail).or_else(|| {
        let reason = automatic::detect(mail, envelope_sender)?.reason;
        // Prose is trusted only from senders that write bounces: mail systems and the null return path.
        matches!(reason, Why::NullReturnPath | Why::MailSystem | Why::Report)
            .then(|| prose::parse_prose(mail))
            .flatten()
    })?;
    let to = mail.to.iter().map(|to| to.address.as_str());
    let tag = std::iter::once(recipient).chain(to).find_map(AttemptTag::from_return_path);
    bounce.tag = tag.or(bounce.tag);
    bounce.add_returned_headers(raw, mail);
    Some(bounce)
}

impl Bounce {
    /// Adds the hints from the returned header.
    fn add_returned_headers(&mut self, raw: &[u8], mail: &ParsedMail) {
        let kinds = [
            "text/rfc822-headers",
            "message/rfc822",
            "message/global",
            "message/global-headers",
            "message/rfc822-headers",
        ];
        let returned = mail.attachments.iter().find(|part| kinds.contains(&part.content_type.as_str()));
        let Some(part) = returned else { return };
        let (fields, _) = HeaderFields::parse(&part.decode(raw), &mut Truncation::default());
        self.add_hints(&fields);
    }

    fn add_hints(&mut self, fields: &HeaderFields) {
        self.email = fields.first("x-mailonce-id").and_then(|id| id.trim().parse().ok()).or(self.email);
        let id = fields
            .first("message-id")
            .map(|id| one_line(id, 998))
            .filter(|id| id.starts_with('<') && id.ends_with('>'));
        self.message_id = id.or(self.message_id.take());
    }
}

/// The first enhanced status code in a text, such as `5.1.1`.
fn find_enhanced_status(text: &str) -> Option<String> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.')
        .take(2000)
        .find(|word| is_enhanced_status(word.trim_matches('.')))
        .map(|word| word.trim_matches('.').to_owned())
}

fn is_enhanced_status(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    parts.len() == 3
        && ["2", "4", "5"].contains(&parts[0])
        && parts[1..].iter().all(|part| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether the address itself is permanently invalid, so that it should not be used again.
fn is_permanent(status: Option<&str>, reason: &str) -> bool {
    const DEAD: &[&str] = &["5.1.0", "5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10", "5.2.1", "5.4.4"];
    const WORDS: &[&str] = &[
        "user unknown",
        "unknown user",
        "no such user",
        "no such mailbox",
        "does not exist",
        "doesn't exist",
        "no mailbox",
        "user not found",
        "mailbox not found",
        "recipient not found",
        "invalid recipient",
        "unknown recipient",
        "address rejected",
        "account disabled",
        "account has been disabled",
        "mailbox unavailable",
        "no such recipient",
        "host or domain name not found",
        "unrouteable address",
        "unknown address",
        "not a valid recipient",
    ];
    let is_temporary = status.is_some_and(|status| status.starts_with('4'));
    let reason = reason.to_ascii_lowercase();
    // A vague code such as 5.0.0 says nothing, so the text decides.
    let is_vague = status.is_none_or(|status| matches!(status, "5.0.0" | "5.3.0" | "5.5.0"));
    !is_temporary
        && (status.is_some_and(|status| DEAD.contains(&status))
            || is_vague && WORDS.iter().any(|words| reason.contains(words)))
}

fn reason_line(text: &str) -> String {
    one_line(text, TransportReply::TEXT_CHARS)
}

#[cfg(test)]
mod tests;
