//! Postmark: one JSON object per mail, with the raw mail in `RawEmail` if the server is set to include it. A list of
//! mails and a mail's details have the same fields, without the contents of attachments.

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

/// One entry of a list. `None` if the account's rules blocked the mail.
pub(crate) fn parse_listed_mail(mail: &Value) -> Result<Option<HookMail>, HookParseError> {
    let blocked = json::str_at(mail, "/Status").is_some_and(|status| status.eq_ignore_ascii_case("blocked"));
    if blocked {
        return Ok(None);
    }
    let reference = mail_reference(mail)?;
    let location = ProviderMailRef { id: reference.dedupe_key.clone(), ..ProviderMailRef::default() };
    Ok(Some(HookMail { location: Some(location), ..reference }))
}

/// Dedupe key and recipients, equal in webhooks, lists and details.
fn mail_reference(mail: &Value) -> Result<HookMail, HookParseError> {
    let dedupe_key =
        json::str_at(mail, "/MessageID").ok_or(HookParseError::Unexpected("a mail with MessageID"))?.to_owned();
    let [to, cc, bcc] = ["/ToFull", "/CcFull", "/BccFull"].map(|pointer| mailboxes::from_json(mail.pointer(pointer)));
    let envelope_recipients = mailboxes::from_json(mail.pointer("/OriginalRecipient"));
    let has_envelope_recipients = !envelope_recipients.is_empty();
    let recipients = if has_envelope_recipients {
        mailboxes::addresses([&envelope_recipients])
    } else {
        mailboxes::addresses([&to, &cc, &bcc])
    };
    Ok(HookMail {
        dedupe_key,
        envelope_sender: None,
        recipients,
        has_envelope_recipients,
        content: None,
        location: None,
    })
}

/// The mail in a JSON object, from a webhook or from the details API.
pub(crate) fn mail_from_json(mail: &Value) -> Result<HookMail, HookParseError> {
    let reference = mail_reference(mail)?;
    let mut headers = parse_headers(mail);
    let sender = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("return-path"));
    let sender = sender.map(|(_, value)| value.trim().trim_matches(['<', '>']).to_owned());
    let content = if let Some(raw) = json::str_at(mail, "/RawEmail") {
        MailBytes::original(raw.as_bytes().to_vec())
    } else {
        let (attachments, missing) = parse_attachments(mail)?;
        headers.extend(missing.into_iter().map(|name| (MISSING_FILE_HEADER.to_owned(), name)));
        let [to, cc] = ["/ToFull", "/CcFull"].map(|pointer| mailboxes::from_json(mail.pointer(pointer)));
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
        MailBytes::rebuild(fields, &reference.dedupe_key)?
    };
    Ok(HookMail { envelope_sender: sender, content: Some(content), ..reference })
}

fn parse_headers(mail: &Value) -> Vec<(String, String)> {
    let all = mail.pointer("/Headers").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| Some((json::str_at(one, "/Name")?.to_owned(), one.pointer("/Value")?.as_str()?.to_owned())))
        .collect()
}

/// The attachments, and the names of those without content.
fn parse_attachments(mail: &Value) -> Result<(Vec<Attachment>, Vec<String>), HookParseError> {
    let (mut attachments, mut missing) = (Vec::new(), Vec::new());
    for one in mail.pointer("/Attachments").and_then(Value::as_array).into_iter().flatten() {
        let filename = non_empty(json::str_at(one, "/Name"));
        let size = one.pointer("/ContentLength").and_then(Value::as_u64).unwrap_or_default();
        if one.get("Content").is_none() && size > 0 {
            missing.push(filename.unwrap_or_else(|| "unnamed".into()));
            continue;
        }
        attachments.push(Attachment {
            filename,
            content_type: non_empty(json::str_at(one, "/ContentType")),
            content_id: non_empty(json::str_at(one, "/ContentID")),
            bytes: decode_base64(json::str_at(one, "/Content").unwrap_or_default())?,
        });
    }
    Ok((attachments, missing))
}
