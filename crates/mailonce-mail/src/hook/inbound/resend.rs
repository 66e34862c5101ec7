//! Resend: `email.received` tells of a mail and does not bring it. A list of mails tells the same of each.

use mailonce_core::port::collect::Notice;
use serde_json::Value;

use super::{Bytes, Mail, people, standard};
use crate::hook::{Unreadable, json};

pub(super) fn read(body: &[u8]) -> Result<Option<Mail>, Unreadable> {
    let event = json::parse(body)?;
    if json::text(&event, "/type") != Some("email.received") {
        return Ok(None);
    }
    let id = json::text(&event, "/data/email_id").ok_or(Unreadable::Shape("a mail with email_id"))?;
    Ok(Some(told(id, &event["data"])))
}

/// One of a list.
pub(super) fn listed(mail: &Value) -> Result<Mail, Unreadable> {
    let id = json::text(mail, "/id").ok_or(Unreadable::Shape("a mail with id"))?;
    Ok(told(id, mail))
}

fn told(id: &str, mail: &Value) -> Mail {
    let told = people::list(mail.pointer("/received_for"));
    let envelope = !told.is_empty();
    let [to, cc, bcc] = ["/to", "/cc", "/bcc"].map(|at| people::list(mail.pointer(at)));
    Mail {
        name: id.to_owned(),
        sender: None,
        recipients: if envelope { people::addresses([&told]) } else { people::addresses([&to, &cc, &bcc]) },
        envelope,
        content: None,
        notice: Some(Notice { id: id.to_owned(), ..Notice::default() }),
    }
}

/// A mail put together from what Resend read, where it does not give out the mail itself.
pub(super) fn given(name: &str, mail: &Value) -> Result<Bytes, Unreadable> {
    let mut fields = mail.clone();
    // Not ours to read: it says where the mail would lie.
    fields.as_object_mut().ok_or(Unreadable::Shape("an object"))?.remove("raw");
    standard::from_fields(name, &fields)?.content.ok_or(Unreadable::Shape("fields that make a mail"))
}
