//! Postmark: one JSON object for each mail, with the whole mail in `RawEmail` when the server is set to include it.

use mailonce_core::content::Attachment;
use serde_json::Value;

use super::{Bytes, Mail, base64, filled, people};
use crate::{
    compose::Fields,
    hook::{Unreadable, json},
};

pub(super) fn read(body: &[u8]) -> Result<Option<Mail>, Unreadable> {
    let mail = json::parse(body)?;
    let is_mail = mail.get("RecordType").is_none() && ["FromFull", "From"].iter().any(|key| mail.get(key).is_some());
    if is_mail { of(&mail).map(Some) } else { Ok(None) }
}

/// The mail in one object, as hooks bring it and as its details are answered.
pub(super) fn of(mail: &Value) -> Result<Mail, Unreadable> {
    let name = json::text(mail, "/MessageID").ok_or(Unreadable::Shape("a mail with MessageID"))?.to_owned();
    let headers = headers(mail);
    let [to, cc, bcc] = ["/ToFull", "/CcFull", "/BccFull"].map(|at| people::list(mail.pointer(at)));
    let told = people::list(mail.pointer("/OriginalRecipient"));
    let envelope = !told.is_empty();
    let recipients = if envelope { people::addresses([&told]) } else { people::addresses([&to, &cc, &bcc]) };
    let sender = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("return-path"));
    let sender = sender.map(|(_, value)| value.trim().trim_matches(['<', '>']).to_owned());
    let content = if let Some(raw) = json::text(mail, "/RawEmail") {
        Bytes::whole(raw.as_bytes().to_vec())
    } else {
        let fields = Fields {
            headers,
            from: people::list(mail.pointer("/FromFull").or_else(|| mail.pointer("/From"))),
            to,
            cc,
            reply_to: people::list(mail.pointer("/ReplyTo")),
            subject: filled(json::text(mail, "/Subject")),
            date: filled(json::text(mail, "/Date")),
            message_id: None,
            text: filled(json::text(mail, "/TextBody")),
            html: filled(json::text(mail, "/HtmlBody")),
            attachments: attachments(mail)?,
        };
        Bytes::rebuilt(fields, &name)?
    };
    Ok(Mail { name, sender, recipients, envelope, content: Some(content), notice: None })
}

fn headers(mail: &Value) -> Vec<(String, String)> {
    let all = mail.pointer("/Headers").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| Some((json::text(one, "/Name")?.to_owned(), one.pointer("/Value")?.as_str()?.to_owned())))
        .collect()
}

fn attachments(mail: &Value) -> Result<Vec<Attachment>, Unreadable> {
    let all = mail.pointer("/Attachments").and_then(Value::as_array).into_iter().flatten();
    all.map(|one| {
        Ok(Attachment {
            filename: filled(json::text(one, "/Name")),
            content_type: filled(json::text(one, "/ContentType")),
            content_id: filled(json::text(one, "/ContentID")),
            bytes: base64(json::text(one, "/Content").unwrap_or_default())?,
        })
    })
    .collect()
}
