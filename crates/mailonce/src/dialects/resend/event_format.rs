//! Webhook events in Resend's format, which Resend's own verifier and types accept.

use mailonce_core::{
    events::{
        event::{Event, EventKind},
        formatted_event::{EmailEvent, FormattedEvent, NoticeContext},
    },
    inbox::message::{AttachmentInfo, Message},
    outbound::email::EmailState,
};
use serde_json::{Map, Value, json};

use super::{
    attachments::file_id,
    receiving::{format_parties, format_party},
};
use crate::dialects::email_counts::is_suppressed;

/// The name of the dialect.
pub(crate) const NAME: &str = "resend";

/// The Resend event types that mailonce sends, with the native event types behind them.
const EVENT_TYPES: [(&str, &[&str]); 10] = [
    ("email.sent", &["email.resolved", "email.sent"]),
    ("email.scheduled", &["email.accepted"]),
    ("email.delivered", &["email.delivered"]),
    ("email.delivery_delayed", &["email.deferred", "email.unknown"]),
    ("email.complained", &["email.complained"]),
    ("email.bounced", &["email.bounced"]),
    ("email.failed", &["email.failed"]),
    ("email.suppressed", &["email.failed"]),
    ("email.received", &["message.received"]),
    ("inbox.email.received", &["message.received"]),
];

/// Resend event types that a webhook may request although mailonce never sends them.
const UNSUPPORTED_TYPES: [&str; 27] = [
    "email.opened",
    "email.clicked",
    "contact.created",
    "contact.updated",
    "contact.deleted",
    "contact.topics.updated",
    "domain.created",
    "domain.updated",
    "domain.deleted",
    "suppression.added",
    "suppression.removed",
    "topic.created",
    "topic.updated",
    "topic.deleted",
    "inbox.created",
    "inbox.updated",
    "inbox.deleted",
    "inbox.thread.created",
    "inbox.thread.folder.updated",
    "inbox.thread.assigned",
    "inbox.thread.unassigned",
    "inbox.thread.labels.updated",
    "inbox.email.sent",
    "inbox.draft.created",
    "inbox.draft.updated",
    "inbox.draft.sent",
    "inbox.draft.deleted",
];

/// Whether Resend has this event type.
pub(super) fn is_type(name: &str) -> bool {
    EVENT_TYPES.iter().any(|(known, _)| *known == name) || UNSUPPORTED_TYPES.contains(&name)
}

/// The types of a list that mailonce never sends.
pub(super) fn unsupported_types(types: &[String]) -> Vec<&'static str> {
    UNSUPPORTED_TYPES.into_iter().filter(|unsupported| types.iter().any(|wanted| wanted == unsupported)).collect()
}

/// The native event types behind a list of Resend types.
pub(super) fn native_types(types: &[String]) -> Vec<String> {
    let requested = EVENT_TYPES.iter().filter(|(name, _)| types.iter().any(|wanted| wanted == name));
    let mut kinds: Vec<String> = requested.flat_map(|(_, kinds)| kinds.iter().map(|kind| (*kind).to_owned())).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

/// The Resend types of an event, the preferred one first.
fn dialect_types(event: &Event, email_event: Option<&EmailEvent>) -> &'static [&'static str] {
    match event.event.kind {
        EventKind::EmailAccepted if event.event.data["state"] == EmailState::Scheduled.as_str() => &["email.scheduled"],
        // Resend sends one `email.sent` per email.
        EventKind::EmailSent | EventKind::EmailResolved if is_first_sent(event) => &["email.sent"],
        EventKind::EmailDelivered => &["email.delivered"],
        EventKind::EmailDeferred | EventKind::EmailUnknown => &["email.delivery_delayed"],
        EventKind::EmailComplained => &["email.complained"],
        EventKind::EmailBounced => &["email.bounced"],
        EventKind::EmailFailed if email_event.is_some_and(|sent| is_suppressed(&sent.email)) => &["email.suppressed"],
        EventKind::EmailFailed => &["email.failed"],
        EventKind::MessageReceived => &["email.received", "inbox.email.received"],
        _ => &[],
    }
}

/// Formats an event as a Resend webhook.
pub(crate) fn format_event(context: &NoticeContext<'_>) -> Option<FormattedEvent> {
    let wanted = context.endpoint.config.dialect.as_ref().map(|dialect| dialect.types.as_slice()).unwrap_or_default();
    let is_wanted = |name: &&&str| wanted.is_empty() || wanted.iter().any(|requested| requested == **name);
    let kind = *dialect_types(context.event, context.email.as_ref()).iter().find(is_wanted)?;
    let data = match (&context.email, &context.message) {
        (Some(email_event), _) => email_data(email_event, context.event),
        (None, Some(message)) if kind == "inbox.email.received" => inbox_data(message),
        (None, Some(message)) => received_data(message),
        (None, None) => return None,
    };
    let body = json!({ "type": kind, "created_at": context.event.event.at.to_string(), "data": data });
    Some(FormattedEvent { body: body.to_string(), headers: Vec::new() })
}

/// Whether this is the first event that says that an email was sent. An email with several recipients has one such
/// event for each part that the next hop took. If a person knew of every part, it is the event of the resolution.
pub(crate) fn is_first_sent(event: &Event) -> bool {
    let data = &event.event.data;
    if event.event.kind == EventKind::EmailResolved {
        data.get("first_sent").is_some()
    } else {
        data.get("sent_before").is_none()
    }
}

/// The recipients that an event concerns: those of its handoff, or all `to` recipients if it concerns the whole email.
pub(crate) fn affected_recipients(email_event: &EmailEvent, event: &Event) -> Vec<String> {
    if matches!(event.event.kind, EventKind::EmailSent | EventKind::EmailResolved) {
        return email_event.email.head.to.clone();
    }
    let number = event.event.data["handoff"].as_u64();
    let handoff = email_event.email.handoffs.iter().find(|handoff| Some(u64::from(handoff.number)) == number);
    handoff.map_or_else(|| email_event.email.head.to.clone(), |handoff| handoff.recipients.clone())
}

/// The reply text of the next hop.
pub(crate) fn reply_text(event: &Event) -> String {
    let data = &event.event.data;
    let text = data["reply"]["text"].as_str().or(data["detail"].as_str());
    text.unwrap_or_default().to_owned()
}

fn email_data(email_event: &EmailEvent, event: &Event) -> Value {
    let head = &email_event.email.head;
    let from = email_event.content.as_ref().map(|content| match &content.from.name {
        Some(name) => format!("{name} <{}>", content.from.address),
        None => content.from.address.clone(),
    });
    let mut data = json!({
        "email_id": email_event.email.id.to_string(),
        "message_id": email_event.message_id,
        "created_at": head.created_at.to_string(),
        "from": from.unwrap_or_else(|| head.from.clone()),
        "to": affected_recipients(email_event, event),
        "subject": head.subject,
    });
    let tags = email_event.content.as_ref().map(|content| &content.tags).filter(|tags| !tags.is_empty());
    if let Some(tags) = tags {
        let tags: Map<String, Value> =
            tags.iter().map(|(name, value)| (name.clone(), value.clone().unwrap_or_default().into())).collect();
        data["tags"] = tags.into();
    }
    match event.event.kind {
        EventKind::EmailBounced => {
            let message = reply_text(event);
            data["bounce"] =
                json!({ "type": "Permanent", "subType": "General", "message": message, "diagnosticCode": [message] });
        }
        EventKind::EmailFailed if is_suppressed(&email_event.email) => {
            data["suppressed"] = json!({ "message": reply_text(event), "type": "OnAccountSuppressionList" });
        }
        EventKind::EmailFailed => data["failed"] = json!({ "reason": reply_text(event) }),
        _ => {}
    }
    data
}

fn attachment_json((number, info): (usize, &AttachmentInfo), message: &Message) -> Value {
    json!({
        "id": file_id(message.id.0, number).to_string(),
        "filename": info.filename,
        "content_type": info.content_type,
        "content_disposition": if info.inline { "inline" } else { "attachment" },
        "content_id": info.content_id,
    })
}

fn received_data(message: &Message) -> Value {
    let head = &message.head;
    let files: Vec<Value> = head.attachments.iter().enumerate().map(|one| attachment_json(one, message)).collect();
    json!({
        "email_id": message.id.to_string(),
        "created_at": message.received_at.to_string(),
        "from": head.from.as_ref().map(format_party).unwrap_or_default(),
        "to": format_parties(&head.to),
        "cc": format_parties(&head.cc),
        "bcc": [],
        "received_for": [head.recipient],
        "message_id": head.message_id.clone().unwrap_or_default(),
        "subject": head.subject,
        "attachments": files,
    })
}

fn inbox_data(message: &Message) -> Value {
    json!({
        "source": "system",
        "inbox_id": message.inbox.to_string(),
        "thread_id": message.thread.to_string(),
        "email_id": message.id.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_stands_for_events_that_there_are() {
        for (name, native) in EVENT_TYPES {
            assert!(is_type(name));
            for kind in native {
                assert!(EventKind::parse(kind).is_some(), "{kind}");
            }
        }
        assert_eq!(native_types(&["email.sent".into()]), ["email.resolved", "email.sent"]);
        assert_eq!(native_types(&["email.received".into(), "inbox.email.received".into()]), ["message.received"]);
        assert!(native_types(&["contact.created".into()]).is_empty() && !is_type("email.eaten"));
    }

    #[test]
    fn the_documents_name_every_type_that_never_happens() {
        let text = include_str!("../../../../../docs/dialects.md");
        let row = text.lines().find(|line| line.starts_with("| never |")).unwrap_or_default();
        let documented: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert_eq!(documented, UNSUPPORTED_TYPES);
    }
}
