//! Postmark: one JSON object for each mail, with the whole mail in `RawEmail` when the server is set to include it. A
//! list of mails and a mail's details have the same fields, without the contents of files.

use mailonce_core::{content::Attachment, port::collect::Notice};
use serde_json::Value;

use super::{Bytes, MISSING_FILE, Mail, base64, filled, people};
use crate::{
    compose::Fields,
    hook::{Unreadable, json},
};

pub(super) fn read(body: &[u8]) -> Result<Option<Mail>, Unreadable> {
    let mail = json::parse(body)?;
    let is_mail = mail.get("RecordType").is_none() && ["FromFull", "From"].iter().any(|key| mail.get(key).is_some());
    if is_mail { of(&mail).map(Some) } else { Ok(None) }
}

/// One of a list. `None` when Postmark blocked it, by rules of the account.
pub(super) fn listed(mail: &Value) -> Result<Option<Mail>, Unreadable> {
    let blocked = json::text(mail, "/Status").is_some_and(|status| status.eq_ignore_ascii_case("blocked"));
    if blocked {
        return Ok(None);
    }
    let told = told(mail)?;
    let notice = Notice { id: told.name.clone(), ..Notice::default() };
    Ok(Some(Mail { notice: Some(notice), ..told }))
}

/// Name and recipients, the same wherever the mail is told of.
fn told(mail: &Value) -> Result<Mail, Unreadable> {
    let name = json::text(mail, "/MessageID").ok_or(Unreadable::Shape("a mail with MessageID"))?.to_owned();
    let [to, cc, bcc] = ["/ToFull", "/CcFull", "/BccFull"].map(|at| people::list(mail.pointer(at)));
    let told = people::list(mail.pointer("/OriginalRecipient"));
    let envelope = !told.is_empty();
    let recipients = if envelope { people::addresses([&told]) } else { people::addresses([&to, &cc, &bcc]) };
    Ok(Mail { name, sender: None, recipients, envelope, content: None, notice: None })
}

/// The mail in one object, as hooks bring it and as its details are answered.
pub(super) fn of(mail: &Value) -> Result<Mail, Unreadable> {
    let told = told(mail)?;
    let mut headers = headers(mail);
    let sender = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("return-path"));
    let sender = sender.map(|(_, value)| value.trim().trim_matches(['<', '>']).to_owned());
    let content = if let Some(raw) = json::text(mail, "/RawEmail") {
        Bytes::whole(raw.as_bytes().to_vec())
    } else {
        let (attachments, missing) = attachments(mail)?;
        headers.extend(missing.into_iter().map(|name| (MISSING_FILE.to_owned(), name)));
        let [to, cc] = ["/ToFull", "/CcFull"].map(|at| people::list(mail.pointer(at)));
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
            attachments,
        };
        Bytes::rebuilt(fields, &told.name)?
    };
    Ok(Mail { sender, content: Some(content), ..told })
}

fn headers(mail: &Value) -> Vec<(String, String)> {
    let all = mail.pointer("/Headers").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| Some((json::text(one, "/Name")?.to_owned(), one.pointer("/Value")?.as_str()?.to_owned())))
        .collect()
}

/// The files, and the names of those whose content is not told.
fn attachments(mail: &Value) -> Result<(Vec<Attachment>, Vec<String>), Unreadable> {
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for one in mail.pointer("/Attachments").and_then(Value::as_array).into_iter().flatten() {
        let filename = filled(json::text(one, "/Name"));
        let octets = one.pointer("/ContentLength").and_then(Value::as_u64).unwrap_or_default();
        if one.get("Content").is_none() && octets > 0 {
            missing.push(filename.unwrap_or_else(|| "unnamed".into()));
            continue;
        }
        there.push(Attachment {
            filename,
            content_type: filled(json::text(one, "/ContentType")),
            content_id: filled(json::text(one, "/ContentID")),
            bytes: base64(json::text(one, "/Content").unwrap_or_default())?,
        });
    }
    Ok((there, missing))
}
