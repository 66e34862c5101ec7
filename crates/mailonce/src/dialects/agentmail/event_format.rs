//! Events in AgentMail's format, for webhooks and WebSockets.

use mailonce_core::{
    conversation::thread::Thread,
    events::{
        event::EventKind,
        formatted_event::{FormattedEvent, NoticeContext},
    },
    inbound::sender_auth::AuthResult,
    inbox::{Inbox, message::Message},
    outbound::email::Email,
    problem::Problem,
    time::Time,
};
use mailonce_engine::{conversation::threads::ThreadEntry, inbox::messages::strip_quoted};
use serde_json::{Value, json};

use crate::dialects::agentmail::message_view::{AgentMailMessage, message_public_id};

/// The AgentMail event types that mailonce sends, with the native event kind behind each.
pub(super) const EVENT_TYPES: [(&str, EventKind); 8] = [
    ("message.received", EventKind::MessageReceived),
    ("message.received.unauthenticated", EventKind::MessageReceived),
    ("message.sent", EventKind::EmailSent),
    ("message.sent", EventKind::EmailResolved),
    ("message.delivered", EventKind::EmailDelivered),
    ("message.bounced", EventKind::EmailBounced),
    ("message.complained", EventKind::EmailComplained),
    ("message.rejected", EventKind::EmailFailed),
];

/// The native event types behind a list of AgentMail types; all of them if the list is empty.
pub(super) fn native_types(types: &[String]) -> Result<Vec<String>, Problem> {
    let mut known: Vec<&str> = EVENT_TYPES.iter().map(|(name, _)| *name).collect();
    known.dedup();
    if let Some(unsupported) = types.iter().find(|name| !known.contains(&name.as_str())) {
        let text = format!("names {unsupported}, which mailonce does not send; use one of {}", known.join(", "));
        return Err(Problem::invalid_field("event_types", text));
    }
    let wanted = |(name, _): &&(&str, EventKind)| types.is_empty() || types.iter().any(|wanted| wanted == name);
    let mut native: Vec<String> = EVENT_TYPES.iter().filter(wanted).map(|(_, kind)| kind.as_str().to_owned()).collect();
    native.dedup();
    Ok(native)
}

/// An event with the records that it is about.
pub(super) struct EventContext<'a> {
    pub(super) kind: EventKind,
    pub(super) id: String,
    pub(super) at: Time,
    pub(super) data: &'a Value,
    pub(super) inbox: Option<&'a Inbox>,
    pub(super) message: Option<&'a Message>,
    pub(super) thread: Option<&'a Thread>,
    pub(super) text: Option<&'a str>,
    pub(super) email: Option<(&'a Email, &'a str)>,
}

impl EventContext<'_> {
    /// The AgentMail type and body of the event; `None` if AgentMail has no type for it.
    pub(super) fn format(&self) -> Option<(&'static str, Value)> {
        let inbox = self.inbox?;
        let (name, member, details) = match self.kind {
            EventKind::MessageReceived => return self.format_received(inbox),
            // AgentMail sends one `message.sent` per message.
            EventKind::EmailSent if !self.data["sent_before"].is_null() => return None,
            EventKind::EmailResolved if self.data["first_sent"].is_null() => return None,
            EventKind::EmailSent | EventKind::EmailResolved => ("message.sent", "send", self.email_json(inbox)?),
            EventKind::EmailDelivered => ("message.delivered", "delivery", self.email_json(inbox)?),
            EventKind::EmailBounced => ("message.bounced", "bounce", self.bounce_json(inbox)?),
            EventKind::EmailComplained => {
                let mut details = self.email_json(inbox)?;
                (details["type"], details["sub_type"]) = ("abuse".into(), "".into());
                ("message.complained", "complaint", details)
            }
            EventKind::EmailFailed => ("message.rejected", "reject", self.rejection_json(inbox)?),
            _ => return None,
        };
        let mut body = json!({ "type": "event", "event_type": name, "event_id": self.id });
        body[member] = details;
        Some((name, body))
    }

    fn format_received(&self, inbox: &Inbox) -> Option<(&'static str, Value)> {
        let message = self.message?;
        let unauthenticated = message.head.auth.verdict == AuthResult::Fail;
        let name = if unauthenticated { "message.received.unauthenticated" } else { "message.received" };
        let mail = AgentMailMessage::without_labels(ThreadEntry::Message(Box::new(message.clone())));
        let id = message_public_id(message);
        let mut item = mail.list_item(&id, inbox);
        let thread = self.thread_json(&mail, &id, inbox);
        if let Some(text) = self.text {
            item.insert("extracted_text".to_owned(), strip_quoted(text).into());
            item.insert("text".to_owned(), text.into());
        }
        let body =
            json!({ "type": "event", "event_type": name, "event_id": self.id, "message": item, "thread": thread });
        Some((name, body))
    }

    /// The thread after this message.
    fn thread_json(&self, mail: &AgentMailMessage, id: &str, inbox: &Inbox) -> Value {
        let at = mail.timestamp().to_string();
        let details = self.thread.map(|thread| &thread.details);
        let mut labels = details.map(|details| details.labels.clone()).unwrap_or_default();
        labels.extend(mail.labels());
        json!({
            "inbox_id": inbox.address,
            "thread_id": crate::dialects::agentmail::message_view::thread_id_of(&mail.entry).to_string(),
            "labels": labels,
            "timestamp": at,
            "received_timestamp": at,
            "senders": [mail.from()],
            "recipients": mail.recipients().concat(),
            "subject": details.map_or_else(|| mail.subject().to_owned(), |details| details.subject.clone()),
            "preview": mail.preview(),
            "last_message_id": id,
            "message_count": details.map_or(1, |details| details.messages + details.emails),
            "size": mail.size(),
            "updated_at": at,
            "created_at": details.map_or_else(|| at.clone(), |details| details.created_at.to_string()),
        })
    }

    /// The recipients of the handoff that the event names, or of all handoffs if it concerns the whole email.
    fn recipients(&self, email: &Email) -> Vec<String> {
        let is_about_all = matches!(self.kind, EventKind::EmailSent | EventKind::EmailResolved);
        let number = self.data["handoff"].as_u64().filter(|_| !is_about_all);
        let number = number.and_then(|number| usize::try_from(number).ok());
        match number.and_then(|number| email.handoffs.get(number)) {
            Some(handoff) => handoff.recipients.clone(),
            None => email.handoffs.iter().flat_map(|handoff| handoff.recipients.iter().cloned()).collect(),
        }
    }

    fn email_json(&self, inbox: &Inbox) -> Option<Value> {
        let (email, message_id) = self.email?;
        Some(json!({
            "inbox_id": inbox.address,
            "thread_id": email.head.thread.map_or(email.id.0, |thread| thread.0).to_string(),
            "message_id": message_id,
            "timestamp": self.at.to_string(),
            "recipients": self.recipients(email),
        }))
    }

    fn bounce_json(&self, inbox: &Inbox) -> Option<Value> {
        let mut details = self.email_json(inbox)?;
        let (email, _) = self.email?;
        let recipients: Vec<Value> = self
            .recipients(email)
            .into_iter()
            .map(|address| json!({ "address": address, "status": "bounced" }))
            .collect();
        (details["type"], details["sub_type"], details["recipients"]) =
            ("Permanent".into(), "General".into(), recipients.into());
        Some(details)
    }

    fn rejection_json(&self, inbox: &Inbox) -> Option<Value> {
        let mut details = self.email_json(inbox)?;
        let reason = self.data["reply"]["text"].as_str().unwrap_or("the next hop refused it");
        details["reason"] = reason.into();
        if let Some(members) = details.as_object_mut() {
            members.remove("recipients");
        }
        Some(details)
    }
}

/// Formats an event for an AgentMail webhook; `None` if the webhook did not subscribe to it.
pub(crate) fn format_event(context: &NoticeContext<'_>) -> Option<FormattedEvent> {
    let dialect = context.endpoint.config.dialect.as_ref()?;
    let event = &context.event.event;
    let email = context.email.as_ref().map(|email_event| (&email_event.email, email_event.message_id.as_str()));
    let event_context = EventContext {
        kind: event.kind,
        id: context.event.id().to_string(),
        at: event.at,
        data: &event.data,
        inbox: context.inbox.as_ref(),
        message: context.message.as_ref(),
        thread: context.thread.as_ref(),
        text: context.text.as_deref(),
        email,
    };
    let (name, body) = event_context.format()?;
    let in_inboxes = context.inbox.as_ref().is_some_and(|inbox| dialect.inboxes.contains(&inbox.id));
    let wanted = dialect.types.is_empty() || dialect.types.iter().any(|wanted| wanted == name);
    let is_selected = wanted && (dialect.inboxes.is_empty() || in_inboxes);
    is_selected.then(|| FormattedEvent { body: body.to_string(), headers: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_never_happen_are_refused() {
        let native = |list: &[&str]| native_types(&list.iter().map(ToString::to_string).collect::<Vec<_>>());
        let sent = ["message.received", "email.sent", "email.resolved"];
        assert_eq!(native(&["message.sent", "message.received"]).unwrap(), sent);
        assert_eq!(native(&[]).unwrap().len(), 7);
        assert!(native(&["message.opened"]).is_err() && native(&["nonsense"]).is_err());
    }
}
