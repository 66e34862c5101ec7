//! Postmark: one JSON object for each mail, with the whole mail in `RawEmail` when the server is set to include it. A
//! list of mails and a mail's details have the same fields, without the contents of files.

use mailonce_core::{inbound::provider_mail::ProviderMailRef, outbound::content::Attachment};
use serde_json::Value;

use super::{HookMail, MISSING_FILE_HEADER, MailBytes, decode_base64, non_empty};
use crate::{
    compose::ProviderFields,
    hooks::{HookParseError, inbound::mailboxes, json},
};

pub(crate) fn parse_mail(body: &[u8]) -> Result<Option<HookMail>, HookParseError> {
    let mail = json::parse(body)?;
    let is_mail = mail.get("RecordType").is_none() && ["FromFull", "From"].iter().any(|key| mail.get(key).is_some());
    if is_mail { mail_from_json(&mail).map(Some) } else { Ok(None) }
}

/// One of a list. `None` when Postmark blocked it, by rules of the account.
pub(crate) fn parse_listed_mail(mail: &Value) -> Result<Option<HookMail>, HookParseError> {
    let blocked = json::str_at(mail, "/Status").is_some_and(|status| status.eq_ignore_ascii_case("blocked"));
    if blocked {
        return Ok(None);
    }
    let told = mail_reference(mail)?;
    let notice = ProviderMailRef { id: told.dedupe_key.clone(), ..ProviderMailRef::default() };
    Ok(Some(HookMail { location: Some(notice), ..told }))
}

/// Name and recipients, the same wherever the mail is told of.
fn mail_reference(mail: &Value) -> Result<HookMail, HookParseError> {
    let name = json::str_at(mail, "/MessageID").ok_or(HookParseError::Unexpected("a mail with MessageID"))?.to_owned();
    let [to, cc, bcc] = ["/ToFull", "/CcFull", "/BccFull"].map(|at| mailboxes::from_json(mail.pointer(at)));
    let told = mailboxes::from_json(mail.pointer("/OriginalRecipient"));
    let envelope = !told.is_empty();
    let recipients = if envelope { mailboxes::addresses([&told]) } else { mailboxes::addresses([&to, &cc, &bcc]) };
    Ok(HookMail {
        dedupe_key: name,
        envelope_sender: None,
        recipients,
        has_envelope_recipients: envelope,
        content: None,
        location: None,
    })
}

/// The mail in one object, as hooks bring it and as its details are answered.
pub(crate) fn mail_from_json(mail: &Value) -> Result<HookMail, HookParseError> {
    let told = mail_reference(mail)?;
    let mut headers = parse_headers(mail);
    let sender = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("return-path"));
    let sender = sender.map(|(_, value)| value.trim().trim_matches(['<', '>']).to_owned());
    let content = if let Some(raw) = json::str_at(mail, "/RawEmail") {
        MailBytes::original(raw.as_bytes().to_vec())
    } else {
        let (attachments, missing) = parse_attachments(mail)?;
        headers.extend(missing.into_iter().map(|name| (MISSING_FILE_HEADER.to_owned(), name)));
        let [to, cc] = ["/ToFull", "/CcFull"].map(|at| mailboxes::from_json(mail.pointer(at)));
        let fields = ProviderFields {
            headers,
            from: mailboxes::from_json(mail.pointer("/FromFull").or_else(|| mail.pointer("/From"))),
            to,
            cc,
            reply_to: mailboxes::from_json(mail.pointer("/ReplyTo")),
            subject: non_empty(json::str_at(mail, "/Subject")),
            date: non_empty(json::str_at(mail, "/Date")),
            message_id: None,
            text: non_empty(json::str_at(mail, "/TextBody")),
            html: non_empty(json::str_at(mail, "/HtmlBody")),
            attachments,
        };
        MailBytes::rebuild(fields, &told.dedupe_key)?
    };
    Ok(HookMail { envelope_sender: sender, content: Some(content), ..told })
}

fn parse_headers(mail: &Value) -> Vec<(String, String)> {
    let all = mail.pointer("/Headers").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| Some((json::str_at(one, "/Name")?.to_owned(), one.pointer("/Value")?.as_str()?.to_owned())))
        .collect()
}

/// The files, and the names of those whose content is not told.
fn parse_attachments(mail: &Value) -> Result<(Vec<Attachment>, Vec<String>), HookParseError> {
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for one in mail.pointer("/Attachments").and_then(Value::as_array).into_iter().flatten() {
        let filename = non_empty(json::str_at(one, "/Name"));
        let octets = one.pointer("/ContentLength").and_then(Value::as_u64).unwrap_or_default();
        if one.get("Content").is_none() && octets > 0 {
            missing.push(filename.unwrap_or_else(|| "unnamed".into()));
            continue;
        }
        there.push(Attachment {
            filename,
            content_type: non_empty(json::str_at(one, "/ContentType")),
            content_id: non_empty(json::str_at(one, "/ContentID")),
            bytes: decode_base64(json::str_at(one, "/Content").unwrap_or_default())?,
        });
    }
    Ok((there, missing))
}
