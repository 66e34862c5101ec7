//! Events in Resend's words: what its webhooks carry, so that its own verifier and its own types take them.

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

/// The name of the dialect.
pub(crate) const NAME: &str = "resend";

/// The types that ever happen here, and the events of ours that they stand for.
const EVENT_TYPES: [(&str, &[&str]); 9] = [
    ("email.sent", &["email.sent"]),
    ("email.scheduled", &["email.accepted"]),
    ("email.delivered", &["email.delivered"]),
    ("email.delivery_delayed", &["email.deferred", "email.unknown"]),
    ("email.complained", &["email.complained"]),
    ("email.bounced", &["email.bounced"]),
    ("email.failed", &["email.failed"]),
    ("email.received", &["message.received"]),
    ("inbox.email.received", &["message.received"]),
];

/// Types that may be asked for and never happen here: nothing is tracked, and there are no contacts, topics or drafts.
const UNSUPPORTED_TYPES: [&str; 28] = [
    "email.opened",
    "email.clicked",
    "email.suppressed",
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

/// Whether the dialect has this type.
pub(super) fn is_type(name: &str) -> bool {
    EVENT_TYPES.iter().any(|(known, _)| *known == name) || UNSUPPORTED_TYPES.contains(&name)
}

/// Those of some types that never happen here.
pub(super) fn unsupported_types(types: &[String]) -> Vec<&'static str> {
    UNSUPPORTED_TYPES.into_iter().filter(|never| types.iter().any(|wanted| wanted == never)).collect()
}

/// Our events behind some types.
pub(super) fn native_types(types: &[String]) -> Vec<String> {
    let own = EVENT_TYPES.iter().filter(|(name, _)| types.iter().any(|wanted| wanted == name));
    let mut kinds: Vec<String> = own.flat_map(|(_, kinds)| kinds.iter().map(|kind| (*kind).to_owned())).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

/// The types that an event may be told as, the best first.
fn dialect_types(event: &Event) -> &'static [&'static str] {
    match event.event.kind {
        EventKind::EmailAccepted if event.event.data["state"] == EmailState::Scheduled.as_str() => &["email.scheduled"],
        EventKind::EmailSent => &["email.sent"],
        EventKind::EmailDelivered => &["email.delivered"],
        EventKind::EmailDeferred | EventKind::EmailUnknown => &["email.delivery_delayed"],
        EventKind::EmailComplained => &["email.complained"],
        EventKind::EmailBounced => &["email.bounced"],
        EventKind::EmailFailed => &["email.failed"],
        EventKind::MessageReceived => &["email.received", "inbox.email.received"],
        _ => &[],
    }
}

/// An event as Resend tells it.
pub(crate) fn format_event(telling: &NoticeContext<'_>) -> Option<FormattedEvent> {
    let wanted = telling.endpoint.config.tongue.as_ref().map(|tongue| tongue.types.as_slice()).unwrap_or_default();
    let is_wanted = |name: &&&str| wanted.is_empty() || wanted.iter().any(|one| one == **name);
    let kind = *dialect_types(telling.event).iter().find(is_wanted)?;
    let data = match (&telling.email, &telling.message) {
        (Some(told), _) => email_data(told, telling.event),
        (None, Some(message)) if kind == "inbox.email.received" => inbox_data(message),
        (None, Some(message)) => received_data(message),
        (None, None) => return None,
    };
    let body = json!({ "type": kind, "created_at": telling.event.event.at.to_string(), "data": data });
    Some(FormattedEvent { body: body.to_string(), headers: Vec::new() })
}

/// Whom an event about an email concerns: the recipients of its envelope, or everybody.
pub(crate) fn affected_recipients(told: &EmailEvent, event: &Event) -> Vec<String> {
    let number = event.event.data["handoff"].as_u64();
    let handoff = told.email.handoffs.iter().find(|handoff| Some(u64::from(handoff.number)) == number);
    handoff.map_or_else(|| told.email.head.to.clone(), |handoff| handoff.recipients.clone())
}

/// What the other side said.
pub(crate) fn reply_text(event: &Event) -> String {
    let data = &event.event.data;
    let said = data["reply"]["text"].as_str().or(data["detail"].as_str());
    said.unwrap_or_default().to_owned()
}

fn email_data(told: &EmailEvent, event: &Event) -> Value {
    let head = &told.email.head;
    let from = told.content.as_ref().map(|content| match &content.from.name {
        Some(name) => format!("{name} <{}>", content.from.address),
        None => content.from.address.clone(),
    });
    let mut data = json!({
        "email_id": told.email.id.to_string(),
        "message_id": told.message_id,
        "created_at": head.created_at.to_string(),
        "from": from.unwrap_or_else(|| head.from.clone()),
        "to": affected_recipients(told, event),
        "subject": head.subject,
    });
    let tags = told.content.as_ref().map(|content| &content.tags).filter(|tags| !tags.is_empty());
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
        EventKind::EmailFailed => data["failed"] = json!({ "reason": reply_text(event) }),
        _ => {}
    }
    data
}

fn attachment_json((number, handle): (usize, &AttachmentInfo), message: &Message) -> Value {
    json!({
        "id": file_id(message.id.0, number).to_string(),
        "filename": handle.filename,
        "content_type": handle.content_type,
        "content_disposition": if handle.inline { "inline" } else { "attachment" },
        "content_id": handle.content_id,
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
        for (name, own) in EVENT_TYPES {
            assert!(is_type(name));
            for kind in own {
                assert!(EventKind::parse(kind).is_some(), "{kind}");
            }
        }
        assert_eq!(native_types(&["email.received".into(), "inbox.email.received".into()]), ["message.received"]);
        assert!(native_types(&["contact.created".into()]).is_empty() && !is_type("email.eaten"));
    }

    #[test]
    fn the_documents_name_every_type_that_never_happens() {
        let text = include_str!("../../../../../docs/dialects.md");
        let row = text.lines().find(|line| line.starts_with("| never |")).unwrap_or_default();
        let told: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert_eq!(told, UNSUPPORTED_TYPES);
    }
}
