//! The searchable form of an email or message.

use super::{
    DOCUMENT_TEXT_BYTES, DOCUMENT_WORDS, SearchKind, SearchRef,
    words::{SEPARATOR, separate_ideographs, word_ranges},
};
use crate::{
    id::InboxId,
    inbox::message::{Message, Party},
    outbound::email::Email,
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// What `has:` finds.
    SearchFeature {
        /// An attachment.
        Attachment = "attachment",
        /// A one-time code.
        Code = "code",
        /// A link that was found as an artifact.
        Link = "link",
    }
}

/// The searchable form of an email or message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchDocument {
    /// The mail.
    pub mail: SearchRef,
    /// When it was accepted or received.
    pub at: Time,
    /// Exact names that the document can be found by; see [`scope_token`].
    pub scope: Vec<String>,
    /// The sender: address and display name.
    pub sender: String,
    /// The recipients.
    pub recipients: String,
    /// The subject.
    pub subject: String,
    /// The text of the body. Empty when bodies are sealed, and once the body was deleted.
    pub text: String,
}

/// An exact name under which documents are found. Each is one word of letters and digits.
pub mod scope_token {
    use sha2::{Digest as _, Sha256};

    use super::{InboxId, SearchFeature, SearchKind};

    fn hashed(prefix: char, value: &str) -> String {
        let sum = Sha256::digest(value.as_bytes());
        let hex = sum.iter().take(16).map(|byte| format!("{byte:02x}"));
        std::iter::once(prefix.to_string()).chain(hex).collect()
    }

    /// The direction.
    pub fn kind(kind: SearchKind) -> String {
        format!("k{}", kind.as_str())
    }

    /// The inbox of a message.
    pub fn inbox(id: InboxId) -> String {
        format!("i{}", id.0.simple())
    }

    /// The bare address that an email is from.
    pub fn sender(address: &str) -> String {
        hashed('f', &address.to_ascii_lowercase())
    }

    /// What the mail has.
    pub fn feature(feature: SearchFeature) -> String {
        format!("h{}", feature.as_str())
    }

    /// The Message-ID, with or without angle brackets.
    pub fn message_id(message_id: &str) -> String {
        hashed('m', message_id.trim().trim_start_matches('<').trim_end_matches('>'))
    }

    /// The caller's own id of the call.
    pub fn call_id(id: &str) -> String {
        hashed('c', id)
    }
}

/// What the body of a mail adds to its document. Empty when bodies are sealed, and once the body was deleted.
#[derive(Clone, Debug, Default)]
pub struct SearchBody {
    /// The display name of the sender of an email.
    pub sender_name: String,
    /// The display names of the recipients of an email.
    pub recipient_names: Vec<String>,
    /// The text.
    pub text: String,
    /// Whether an email has an attachment.
    pub has_attachment: bool,
}

impl SearchDocument {
    /// The document of an email.
    pub fn of_email(email: &Email, message_id: &str, body: &SearchBody) -> Self {
        let head = &email.head;
        let mut scope = vec![
            scope_token::kind(SearchKind::Email),
            scope_token::sender(&head.from),
            scope_token::message_id(message_id),
        ];
        scope.extend(head.call.as_ref().and_then(|call| call.id.as_deref()).map(scope_token::call_id));
        scope.extend(body.has_attachment.then(|| scope_token::feature(SearchFeature::Attachment)));
        let recipients: Vec<&str> =
            head.to.iter().chain(&head.cc).chain(&head.bcc).chain(&body.recipient_names).map(String::as_str).collect();
        Self {
            mail: SearchRef { kind: SearchKind::Email, id: email.id.0 },
            at: head.created_at,
            scope,
            sender: searchable(&format!("{} {}", body.sender_name, head.from), DOCUMENT_TEXT_BYTES),
            recipients: searchable(&recipients.join(" ; "), DOCUMENT_TEXT_BYTES),
            subject: searchable(&head.subject, DOCUMENT_TEXT_BYTES),
            text: searchable(&body.text, DOCUMENT_TEXT_BYTES),
        }
    }

    /// The document of a message. Codes must be masked in `body`; the subject has them masked already.
    pub fn of_message(message: &Message, body: &SearchBody) -> Self {
        let head = &message.head;
        let mut scope = vec![scope_token::kind(SearchKind::Message), scope_token::inbox(message.inbox)];
        scope.extend(head.message_id.as_deref().map(scope_token::message_id));
        let mut features: Vec<SearchFeature> =
            head.artifacts.iter().filter_map(|(kind, _)| SearchFeature::parse(kind.as_str())).collect();
        features.extend((!head.attachments.is_empty()).then_some(SearchFeature::Attachment));
        features.sort_unstable();
        features.dedup();
        scope.extend(features.into_iter().map(scope_token::feature));
        let party = |party: &Party| format!("{} {}", party.name.as_deref().unwrap_or_default(), party.address);
        let recipients: Vec<String> =
            head.to.iter().chain(&head.cc).map(party).chain([head.recipient.clone()]).collect();
        Self {
            mail: SearchRef { kind: SearchKind::Message, id: message.id.0 },
            at: message.received_at,
            scope,
            sender: searchable(&head.from.as_ref().map(party).unwrap_or_default(), DOCUMENT_TEXT_BYTES),
            recipients: searchable(&recipients.join(" ; "), DOCUMENT_TEXT_BYTES),
            subject: searchable(&head.subject, DOCUMENT_TEXT_BYTES),
            text: searchable(&body.text, DOCUMENT_TEXT_BYTES),
        }
    }
}

/// Text as it is stored: on one line, without control characters, with separated ideographs, and bounded in words and
/// bytes. Cuts between words, so that no half of a word is searchable.
fn searchable(text: &str, max_bytes: usize) -> String {
    let mut line = String::with_capacity(text.len().min(max_bytes));
    for part in text.split(|c: char| c.is_whitespace() || c.is_control() || c == SEPARATOR) {
        if line.len() >= max_bytes {
            break;
        }
        if !line.is_empty() && !part.is_empty() {
            line.push(' ');
        }
        line.push_str(part);
    }
    let mut line = separate_ideographs(&line);
    if line.len() > max_bytes || line.len() > DOCUMENT_WORDS {
        let kept = word_ranges(&line).take(DOCUMENT_WORDS).map(|(_, end)| end).take_while(|end| *end <= max_bytes);
        let (cut, is_cut) = (kept.last().unwrap_or(0), line.len() > max_bytes);
        if is_cut || word_ranges(&line[cut..]).next().is_some() {
            line.truncate(cut);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::words::words;

    #[test]
    fn stored_text_is_one_bounded_line() {
        assert_eq!(searchable(" a\r\n\tb\u{0}c  ", 100), "a b c");
        assert_eq!(searchable("aaa bbb ccc", 9), "aaa bbb");
        assert_eq!(searchable(&"漢".repeat(9), 12), "漢\u{200b}漢");
        let long = searchable(&"ab ".repeat(DOCUMENT_WORDS + 5), DOCUMENT_TEXT_BYTES);
        assert_eq!(words(&long).count(), DOCUMENT_WORDS);
    }

    #[test]
    fn message_ids_are_found_with_and_without_brackets() {
        assert_eq!(scope_token::message_id("<a@b>"), scope_token::message_id("a@b"));
        assert_ne!(scope_token::message_id("a@b"), scope_token::call_id("a@b"));
        assert_eq!(scope_token::sender("A@B.test"), scope_token::sender("a@b.test"));
    }
}
