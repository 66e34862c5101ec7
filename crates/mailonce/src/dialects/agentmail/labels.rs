//! System labels: those that mailonce derives from the type and the state of an email.

use mailonce_core::{inbound::sender_auth::AuthResult, outbound::email::EmailState, problem::Problem};
use mailonce_engine::conversation::threads::ThreadEntry;

/// The labels for the state of a sent email, with AgentMail's names where it has them.
fn state_labels(state: EmailState) -> &'static [&'static str] {
    match state {
        EmailState::Sent | EmailState::Delivered => &["sent"],
        EmailState::Bounced => &["sent", "bounced"],
        EmailState::Complained => &["sent", "complained"],
        EmailState::Failed => &["rejected"],
        EmailState::Queued | EmailState::Sending => &["sending"],
        EmailState::Scheduled => &["scheduled"],
        EmailState::Held => &["held"],
        EmailState::Unknown => &["unknown"],
        EmailState::Abandoned => &["abandoned"],
        EmailState::Cancelled => &["cancelled"],
    }
}

/// The system labels of an email, plus the labels stored with a received message.
pub(super) fn system_labels(entry: &ThreadEntry) -> Vec<String> {
    match entry {
        ThreadEntry::Email(email) => state_labels(email.state()).iter().map(ToString::to_string).collect(),
        ThreadEntry::Message(message) => {
            let mut labels = vec!["received".to_owned()];
            labels.extend((!message.annotations.read).then(|| "unread".to_owned()));
            let unauthenticated = message.head.auth.verdict == AuthResult::Fail;
            labels.extend(unauthenticated.then(|| "unauthenticated".to_owned()));
            labels.extend(message.annotations.labels.iter().cloned());
            labels
        }
    }
}

/// System labels that callers can neither add nor remove.
const RESERVED_LABELS: [&str; 12] = [
    "received",
    "sent",
    "sending",
    "scheduled",
    "held",
    "unknown",
    "rejected",
    "bounced",
    "complained",
    "abandoned",
    "cancelled",
    "unauthenticated",
];

/// Refuses malformed labels and reserved system labels.
pub(super) fn check_labels(labels: &[String], field: &str) -> Result<(), Problem> {
    mailonce_engine::inbox::labels::check_labels(labels, field)?;
    match labels.iter().find(|label| RESERVED_LABELS.contains(&label.as_str())) {
        Some(label) => {
            let text = format!("holds {label}, which is a system label and cannot be added or removed");
            Err(Problem::invalid_field(field, text))
        }
        None => Ok(()),
    }
}
