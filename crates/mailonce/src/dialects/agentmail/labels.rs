//! The labels that a mail has by itself: what it is, and what became of it.

use mailonce_core::{
    inbound::sender_auth::AuthResult,
    outbound::email::EmailState,
    problem::{FieldError, Problem},
};
use mailonce_engine::conversation::threads::ThreadEntry;

/// Labels of a mail of ours: what became of it, in the nearest words there are.
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

/// Labels that a mail has by itself.
pub(super) fn system_labels(said: &ThreadEntry) -> Vec<String> {
    match said {
        ThreadEntry::Email(email) => state_labels(email.state()).iter().map(ToString::to_string).collect(),
        ThreadEntry::Message(message) => {
            let mut labels = vec!["received".to_owned()];
            labels.extend((!message.annotations.read).then(|| "unread".to_owned()));
            let fails = message.head.auth.verdict == AuthResult::Fail;
            labels.extend(fails.then(|| "unauthenticated".to_owned()));
            labels.extend(message.annotations.labels.iter().cloned());
            labels
        }
    }
}

/// Labels that say what a mail is; nobody adds or removes them.
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

/// Refuses labels that nobody could read, and those that are not for callers to give or take.
pub(super) fn check_labels(labels: &[String], field: &str) -> Result<(), Problem> {
    mailonce_engine::inbox::labels::check_labels(labels, field)?;
    match labels.iter().find(|label| RESERVED_LABELS.contains(&label.as_str())) {
        Some(label) => {
            let text = format!("holds {label}, which says what the mail is and cannot be changed");
            Err(Problem::from(vec![FieldError::new(field, text)]))
        }
        None => Ok(()),
    }
}
