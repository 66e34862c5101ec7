//! Resend: `POST /emails`, a key remembered for 24 hours.

use mailonce_core::{
    content::Attachment,
    port::transport::{Mail, Meaning, Parcel, Recovery, Reply, Transport, Unfit, Wire},
};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

use super::{
    BadSetting, Base, Call, Provider, Secret, Setting, carrier,
    form::{self, ID_HEADER, ID_NAME},
    wire::Answer,
};

const USUAL_URL: &str = "https://api.resend.com";
const WINDOW_MS: i64 = 24 * 3_600_000;
/// Bytes of a mail with its attachments as base64.
const MAIL_BYTES: usize = 40 * 1024 * 1024;
/// Characters of a tag's name or value.
const TAG_CHARS: usize = 256;

struct Resend {
    api_key: Secret,
}

/// Mail by Resend.
pub fn transport(setting: Setting, api_key: Secret) -> Result<Arc<dyn Transport>, BadSetting> {
    carrier(setting, Resend { api_key }, USUAL_URL, "")
}

#[derive(Serialize)]
struct Email<'a> {
    from: String,
    to: Vec<String>,
    #[serde(skip_serializing_if = "form::none")]
    cc: Vec<String>,
    #[serde(skip_serializing_if = "form::none")]
    bcc: Vec<String>,
    #[serde(skip_serializing_if = "form::none")]
    reply_to: Vec<String>,
    subject: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<&'a str>,
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "form::none")]
    attachments: Vec<File<'a>>,
    tags: Vec<Tag<'a>>,
}

#[derive(Serialize)]
struct File<'a> {
    filename: String,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_id: Option<&'a str>,
}

impl<'a> File<'a> {
    fn of((index, attachment): (usize, &'a Attachment)) -> Self {
        Self {
            filename: form::filename(index, attachment),
            content: form::packed(&attachment.bytes),
            content_type: attachment.content_type.as_deref(),
            content_id: form::content_id(attachment),
        }
    }
}

#[derive(Serialize)]
struct Tag<'a> {
    name: &'a str,
    value: &'a str,
}

/// Our id beside the caller's tags. Resend takes ASCII letters, digits, `_` and `-`, and refuses the whole mail
/// otherwise; metadata has no place there and stays with us.
fn tags<'a>(mail: &Mail<'a>, id: &'a str) -> Result<Vec<Tag<'a>>, Unfit> {
    let mut tags = vec![Tag { name: ID_NAME, value: id }];
    for (name, value) in &mail.content.tags {
        let value = value.as_deref().unwrap_or("true");
        let fits = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if !fits(name) || !fits(value) || name.len() > TAG_CHARS || value.len() > TAG_CHARS {
            return Err(Unfit(format!("Resend takes tags of ASCII letters, digits, _ and -; {name}={value} is none")));
        }
        tags.push(Tag { name, value });
    }
    Ok(tags)
}

impl Provider for Resend {
    const KIND: &'static str = "resend";

    fn wire(&self) -> Wire {
        Wire::Content
    }

    fn recovery(&self) -> Recovery {
        Recovery::Key { window_ms: WINDOW_MS }
    }

    fn secrets(&self) -> Vec<&Secret> {
        vec![&self.api_key]
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        let (content, id) = (mail.content, mail.id.to_string());
        let body = form::json(&Email {
            from: form::mailbox(&content.from),
            to: form::mailboxes(&content.to),
            cc: form::mailboxes(&content.cc),
            bcc: form::mailboxes(&content.bcc),
            reply_to: form::mailboxes(&content.reply_to),
            subject: &content.subject,
            text: content.text.as_deref(),
            html: content.html.as_deref(),
            // Resend names the mail itself, whatever Message-ID it is given; so the id travels beside it.
            headers: form::headers(content, &[(ID_HEADER, &id)]),
            attachments: content.attachments.iter().enumerate().map(File::of).collect(),
            tags: tags(mail, &id)?,
        })?;
        form::within("bytes of a mail by Resend", body.len(), MAIL_BYTES)?;
        Ok(body)
    }

    fn call(&self, _base: &Base, parcel: &Parcel) -> Call {
        let call = Call::json("/emails", parcel).bearer(&self.api_key);
        call.with("Idempotency-Key", parcel.key.as_hyphenated().to_string())
    }

    fn visit(&self) -> Option<Call> {
        Some(Call::get("/domains".into()).bearer(&self.api_key))
    }

    fn sends_only(&self, refusal: &str) -> bool {
        refusal.contains("restricted_api_key")
    }

    fn judge(&self, answer: &Answer) -> Reply {
        if let (200..300, Some(id)) = (answer.status, answer.word("/id")) {
            return answer.taken(id, "accepted");
        }
        let name = answer.word("/name");
        let said = answer.word("/message").map(|text| format!("{}: {text}", name.as_deref().unwrap_or("error")));
        match (answer.status, name.as_deref()) {
            (409, Some("concurrent_idempotent_requests")) => {
                answer.means(Meaning::Concurrent, &said.unwrap_or_default()).after(answer.pause_ms())
            }
            (409, Some("invalid_idempotent_request")) => answer.means(Meaning::Mismatch, &said.unwrap_or_default()),
            _ => answer.by_status("Resend", said),
        }
    }
}
