//! Resend: `email.received` tells of a mail and does not bring it.

use mailonce_core::port::collect::Notice;

use super::{Mail, people};
use crate::hook::{Unreadable, json};

pub(super) fn read(body: &[u8]) -> Result<Option<Mail>, Unreadable> {
    let event = json::parse(body)?;
    if json::text(&event, "/type") != Some("email.received") {
        return Ok(None);
    }
    let id = json::text(&event, "/data/email_id").ok_or(Unreadable::Shape("a mail with email_id"))?.to_owned();
    let told = people::list(event.pointer("/data/received_for"));
    let envelope = !told.is_empty();
    let [to, cc, bcc] = ["/data/to", "/data/cc", "/data/bcc"].map(|at| people::list(event.pointer(at)));
    Ok(Some(Mail {
        name: id.clone(),
        sender: None,
        recipients: if envelope { people::addresses([&told]) } else { people::addresses([&to, &cc, &bcc]) },
        envelope,
        content: None,
        notice: Some(Notice { id, ..Notice::default() }),
    }))
}
