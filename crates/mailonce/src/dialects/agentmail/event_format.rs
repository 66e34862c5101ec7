//! Events in AgentMail's words, for webhooks and sockets alike.

use mailonce_core::{
    conversation::thread::Thread,
    events::{
        event::EventKind,
        formatted_event::{FormattedEvent, NoticeContext},
    },
    inbound::sender_auth::AuthResult,
    inbox::{Inbox, message::Message},
    outbound::email::Email,
    problem::{FieldError, Problem},
    time::Time,
};
use mailonce_engine::{conversation::threads::ThreadEntry, inbox::messages::strip_quoted};
use serde_json::{Value, json};

use crate::dialects::agentmail::message_view::{AgentMailMessage, message_public_id};

/// What AgentMail calls what happens here, and our word for it. What has no row never happens.
pub(super) const EVENT_TYPES: [(&str, EventKind); 7] = [
    ("message.received", EventKind::MessageReceived),
    ("message.received.unauthenticated", EventKind::MessageReceived),
    ("message.sent", EventKind::EmailSent),
    ("message.delivered", EventKind::EmailDelivered),
    ("message.bounced", EventKind::EmailBounced),
    ("message.complained", EventKind::EmailComplained),
    ("message.rejected", EventKind::EmailFailed),
];

/// Our words for the types that are wanted; for every one that there is when none is named.
pub(super) fn native_types(types: &[String]) -> Result<Vec<String>, Problem> {
    let known: Vec<&str> = EVENT_TYPES.iter().map(|(name, _)| *name).collect();
    if let Some(wrong) = types.iter().find(|name| !known.contains(&name.as_str())) {
        let text = format!("names {wrong}, which never happens here; what does is {}", known.join(", "));
        return Err(Problem::from(vec![FieldError::new("event_types", text)]));
    }
    let wanted = |(name, _): &&(&str, EventKind)| types.is_empty() || types.iter().any(|wanted| wanted == name);
    let mut words: Vec<String> = EVENT_TYPES.iter().filter(wanted).map(|(_, kind)| kind.as_str().to_owned()).collect();
    words.dedup();
    Ok(words)
}

/// Something that happened, with what is known of it.
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
    /// Its type and what is told of it; `None` when AgentMail has no word for it.
    pub(super) fn format(&self) -> Option<(&'static str, Value)> {
        let inbox = self.inbox?;
        let (name, member, told) = match self.kind {
            EventKind::MessageReceived => return self.format_received(inbox),
            EventKind::EmailSent => ("message.sent", "send", self.email_json(inbox)?),
            EventKind::EmailDelivered => ("message.delivered", "delivery", self.email_json(inbox)?),
            EventKind::EmailBounced => ("message.bounced", "bounce", self.bounce_json(inbox)?),
            EventKind::EmailComplained => {
                let mut told = self.email_json(inbox)?;
                (told["type"], told["sub_type"]) = ("abuse".into(), "".into());
                ("message.complained", "complaint", told)
            }
            EventKind::EmailFailed => ("message.rejected", "reject", self.rejection_json(inbox)?),
            _ => return None,
        };
        let mut body = json!({ "type": "event", "event_type": name, "event_id": self.id });
        body[member] = told;
        Some((name, body))
    }

    fn format_received(&self, inbox: &Inbox) -> Option<(&'static str, Value)> {
        let message = self.message?;
        let fails = message.head.auth.verdict == AuthResult::Fail;
        let name = if fails { "message.received.unauthenticated" } else { "message.received" };
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

    /// The thread as the message leaves it.
    fn thread_json(&self, mail: &AgentMailMessage, id: &str, inbox: &Inbox) -> Value {
        let at = mail.timestamp().to_string();
        let about = self.thread.map(|thread| &thread.details);
        let mut labels = about.map(|about| about.labels.clone()).unwrap_or_default();
        labels.extend(mail.labels());
        json!({
            "inbox_id": inbox.address,
            "thread_id": crate::dialects::agentmail::message_view::thread_id_of(&mail.entry).to_string(),
            "labels": labels,
            "timestamp": at,
            "received_timestamp": at,
            "senders": [mail.from()],
            "recipients": mail.recipients().concat(),
            "subject": about.map_or_else(|| mail.subject().to_owned(), |about| about.subject.clone()),
            "preview": mail.preview(),
            "last_message_id": id,
            "message_count": about.map_or(1, |about| about.messages + about.emails),
            "size": mail.size(),
            "updated_at": at,
            "created_at": about.map_or_else(|| at.clone(), |about| about.created_at.to_string()),
        })
    }

    /// The recipients of the envelope that it is about; of every one where it does not say.
    fn recipients(&self, email: &Email) -> Vec<String> {
        let number = self.data["handoff"].as_u64().and_then(|number| usize::try_from(number).ok());
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
        let mut told = self.email_json(inbox)?;
        let (email, _) = self.email?;
        let recipients: Vec<Value> = self
            .recipients(email)
            .into_iter()
            .map(|address| json!({ "address": address, "status": "bounced" }))
            .collect();
        (told["type"], told["sub_type"], told["recipients"]) =
            ("Permanent".into(), "General".into(), recipients.into());
        Some(told)
    }

    fn rejection_json(&self, inbox: &Inbox) -> Option<Value> {
        let mut told = self.email_json(inbox)?;
        let said = self.data["reply"]["text"].as_str().unwrap_or("the next hop refused it");
        told["reason"] = said.into();
        if let Some(members) = told.as_object_mut() {
            members.remove("recipients");
        }
        Some(told)
    }
}

/// What an endpoint that was made in this dialect is told; `None` when nothing.
pub(crate) fn format_event(telling: &NoticeContext<'_>) -> Option<FormattedEvent> {
    let tongue = telling.endpoint.config.tongue.as_ref()?;
    let event = &telling.event.event;
    let email = telling.email.as_ref().map(|told| (&told.email, told.message_id.as_str()));
    let fact = EventContext {
        kind: event.kind,
        id: telling.event.id().to_string(),
        at: event.at,
        data: &event.data,
        inbox: telling.inbox.as_ref(),
        message: telling.message.as_ref(),
        thread: telling.thread.as_ref(),
        text: telling.text.as_deref(),
        email,
    };
    let (name, body) = fact.format()?;
    let there = telling.inbox.as_ref().is_some_and(|inbox| tongue.inboxes.contains(&inbox.id));
    let wanted = tongue.types.is_empty() || tongue.types.iter().any(|wanted| wanted == name);
    let told = wanted && (tongue.inboxes.is_empty() || there);
    told.then(|| FormattedEvent { body: body.to_string(), headers: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_never_happen_are_refused() {
        let words = |list: &[&str]| native_types(&list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(words(&["message.sent", "message.received"]).unwrap(), ["message.received", "email.sent"]);
        assert_eq!(words(&[]).unwrap().len(), 6);
        assert!(words(&["message.opened"]).is_err() && words(&["nonsense"]).is_err());
    }
}
