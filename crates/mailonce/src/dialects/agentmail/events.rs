//! Events in AgentMail's words, for webhooks and sockets alike.

use mailonce_core::{
    conversation::thread::Thread,
    email::Email,
    event::Kind,
    inbox::Inbox,
    message::Message,
    port::{
        authenticate::AuthResult,
        wording::{Telling, Worded},
    },
    problem::{FieldError, Problem},
    time::Time,
};
use mailonce_engine::{messages::own_words, threads::Said};
use serde_json::{Value, json};

use super::mail::{Mail, message_name};

/// What AgentMail calls what happens here, and our word for it. What has no row never happens.
pub(super) const TYPES: [(&str, Kind); 7] = [
    ("message.received", Kind::MessageReceived),
    ("message.received.unauthenticated", Kind::MessageReceived),
    ("message.sent", Kind::EmailSent),
    ("message.delivered", Kind::EmailDelivered),
    ("message.bounced", Kind::EmailBounced),
    ("message.complained", Kind::EmailComplained),
    ("message.rejected", Kind::EmailFailed),
];

/// Our words for the types that are wanted; for every one that there is when none is named.
pub(super) fn kinds(types: &[String]) -> Result<Vec<String>, Problem> {
    let known: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
    if let Some(wrong) = types.iter().find(|name| !known.contains(&name.as_str())) {
        let text = format!("names {wrong}, which never happens here; what does is {}", known.join(", "));
        return Err(Problem::from(vec![FieldError::new("event_types", text)]));
    }
    let wanted = |(name, _): &&(&str, Kind)| types.is_empty() || types.iter().any(|wanted| wanted == name);
    let mut words: Vec<String> = TYPES.iter().filter(wanted).map(|(_, kind)| kind.word().to_owned()).collect();
    words.dedup();
    Ok(words)
}

/// Something that happened, with what is known of it.
pub(super) struct Fact<'a> {
    pub(super) kind: Kind,
    pub(super) id: String,
    pub(super) at: Time,
    pub(super) data: &'a Value,
    pub(super) inbox: Option<&'a Inbox>,
    pub(super) message: Option<&'a Message>,
    pub(super) thread: Option<&'a Thread>,
    pub(super) text: Option<&'a str>,
    pub(super) email: Option<(&'a Email, &'a str)>,
}

impl Fact<'_> {
    /// Its type and what is told of it; `None` when AgentMail has no word for it.
    pub(super) fn worded(&self) -> Option<(&'static str, Value)> {
        let inbox = self.inbox?;
        let (name, member, told) = match self.kind {
            Kind::MessageReceived => return self.received(inbox),
            Kind::EmailSent => ("message.sent", "send", self.about_email(inbox)?),
            Kind::EmailDelivered => ("message.delivered", "delivery", self.about_email(inbox)?),
            Kind::EmailBounced => ("message.bounced", "bounce", self.bounced(inbox)?),
            Kind::EmailComplained => {
                let mut told = self.about_email(inbox)?;
                (told["type"], told["sub_type"]) = ("abuse".into(), "".into());
                ("message.complained", "complaint", told)
            }
            Kind::EmailFailed => ("message.rejected", "reject", self.rejected(inbox)?),
            _ => return None,
        };
        let mut body = json!({ "type": "event", "event_type": name, "event_id": self.id });
        body[member] = told;
        Some((name, body))
    }

    fn received(&self, inbox: &Inbox) -> Option<(&'static str, Value)> {
        let message = self.message?;
        let fails = message.head.auth.verdict == AuthResult::Fail;
        let name = if fails { "message.received.unauthenticated" } else { "message.received" };
        let mail = Mail::bare(Said::Message(Box::new(message.clone())));
        let id = message_name(message);
        let mut item = mail.item(&id, inbox);
        let thread = self.thread_item(&mail, &id, inbox);
        if let Some(text) = self.text {
            item.insert("extracted_text".to_owned(), own_words(text).into());
            item.insert("text".to_owned(), text.into());
        }
        let body =
            json!({ "type": "event", "event_type": name, "event_id": self.id, "message": item, "thread": thread });
        Some((name, body))
    }

    /// The thread as the message leaves it.
    fn thread_item(&self, mail: &Mail, id: &str, inbox: &Inbox) -> Value {
        let at = mail.at().to_string();
        let about = self.thread.map(|thread| &thread.about);
        let mut labels = about.map(|about| about.labels.clone()).unwrap_or_default();
        labels.extend(mail.labels());
        json!({
            "inbox_id": inbox.address,
            "thread_id": super::mail::thread_of(&mail.said).to_string(),
            "labels": labels,
            "timestamp": at,
            "received_timestamp": at,
            "senders": [mail.from()],
            "recipients": mail.people().concat(),
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

    fn about_email(&self, inbox: &Inbox) -> Option<Value> {
        let (email, message_id) = self.email?;
        Some(json!({
            "inbox_id": inbox.address,
            "thread_id": email.head.thread.map_or(email.id.0, |thread| thread.0).to_string(),
            "message_id": message_id,
            "timestamp": self.at.to_string(),
            "recipients": self.recipients(email),
        }))
    }

    fn bounced(&self, inbox: &Inbox) -> Option<Value> {
        let mut told = self.about_email(inbox)?;
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

    fn rejected(&self, inbox: &Inbox) -> Option<Value> {
        let mut told = self.about_email(inbox)?;
        let said = self.data["reply"]["text"].as_str().unwrap_or("the next hop refused it");
        told["reason"] = said.into();
        if let Some(members) = told.as_object_mut() {
            members.remove("recipients");
        }
        Some(told)
    }
}

/// What an endpoint that was made in this dialect is told; `None` when nothing.
pub(crate) fn word(telling: &Telling<'_>) -> Option<Worded> {
    let tongue = telling.endpoint.about.tongue.as_ref()?;
    let event = &telling.event.event;
    let email = telling.email.as_ref().map(|told| (&told.email, told.message_id.as_str()));
    let fact = Fact {
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
    let (name, body) = fact.worded()?;
    let there = telling.inbox.as_ref().is_some_and(|inbox| tongue.inboxes.contains(&inbox.id));
    let wanted = tongue.types.is_empty() || tongue.types.iter().any(|wanted| wanted == name);
    let told = wanted && (tongue.inboxes.is_empty() || there);
    told.then(|| Worded { body: body.to_string(), headers: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_never_happen_are_refused() {
        let words = |list: &[&str]| kinds(&list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(words(&["message.sent", "message.received"]).unwrap(), ["message.received", "email.sent"]);
        assert_eq!(words(&[]).unwrap().len(), 6);
        assert!(words(&["message.opened"]).is_err() && words(&["nonsense"]).is_err());
    }
}
