//! Resend: `email.received` announces a mail without its content. A list of received mails has the same fields.

use mailonce_core::inbound::provider_mail::ProviderMailRef;
use serde_json::Value;

use super::{HookMail, MailBytes, standard};
use crate::hooks::{HookParseError, inbound::mailboxes, json};

pub(crate) fn parse_mail(body: &[u8]) -> Result<Option<HookMail>, HookParseError> {
    let event = json::parse(body)?;
    if json::str_at(&event, "/type") != Some("email.received") {
        return Ok(None);
    }
    let id = json::str_at(&event, "/data/email_id").ok_or(HookParseError::Unexpected("a mail with email_id"))?;
    Ok(Some(mail_reference(id, &event["data"])))
}

/// One entry of a list.
pub(crate) fn parse_listed_mail(mail: &Value) -> Result<HookMail, HookParseError> {
    let id = json::str_at(mail, "/id").ok_or(HookParseError::Unexpected("a mail with id"))?;
    Ok(mail_reference(id, mail))
}

fn mail_reference(id: &str, mail: &Value) -> HookMail {
    let envelope_recipients = mailboxes::from_json(mail.pointer("/received_for"));
    let has_envelope_recipients = !envelope_recipients.is_empty();
    let [to, cc, bcc] = ["/to", "/cc", "/bcc"].map(|pointer| mailboxes::from_json(mail.pointer(pointer)));
    HookMail {
        dedupe_key: id.to_owned(),
        envelope_sender: None,
        recipients: if has_envelope_recipients {
            mailboxes::addresses([&envelope_recipients])
        } else {
            mailboxes::addresses([&to, &cc, &bcc])
        },
        has_envelope_recipients,
        content: None,
        location: Some(ProviderMailRef { id: id.to_owned(), ..ProviderMailRef::default() }),
    }
}

/// Rebuilds a mail from the fields that Resend parsed, if Resend does not return the raw mail.
pub(crate) fn mail_from_provider_fields(name: &str, mail: &Value) -> Result<MailBytes, HookParseError> {
    let mut fields = mail.clone();
    // Here `raw` is an object with a download URL, not the mail itself, so it is removed.
    fields.as_object_mut().ok_or(HookParseError::Unexpected("an object"))?.remove("raw");
    standard::mail_from_fields(name, &fields)?.content.ok_or(HookParseError::Unexpected("fields that make a mail"))
}
