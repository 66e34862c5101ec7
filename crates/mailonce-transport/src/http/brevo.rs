//! Brevo: `POST /v3/smtp/email`. A key rides among the mail's headers, and a repeat is refused as a repeat.

use mailonce_core::port::transport::{Mail, Meaning, Parcel, Recovery, Reply, Transport, Unfit, Wire};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

use super::{
    BadSetting, Base, Call, Provider, Secret, Setting, carrier,
    form::{self, ID_HEADER, ID_NAME, Person},
    wire::Answer,
};

const USUAL_URL: &str = "https://api.brevo.com";
/// Brevo documents 30 minutes in one place and 15 in another. The shorter one is safe.
const WINDOW_MS: i64 = 15 * 60_000;

struct Brevo {
    api_key: Secret,
}

/// Mail by Brevo.
pub fn transport(setting: Setting, api_key: Secret) -> Result<Arc<dyn Transport>, BadSetting> {
    carrier(setting, Brevo { api_key }, USUAL_URL, "")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Email<'a> {
    sender: Person<'a>,
    to: Vec<Person<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    cc: Vec<Person<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    bcc: Vec<Person<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<Person<'a>>,
    subject: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    html_content: Option<&'a str>,
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "form::none")]
    attachment: Vec<File>,
    #[serde(skip_serializing_if = "form::none")]
    tags: Vec<String>,
}

#[derive(Serialize)]
struct File {
    name: String,
    content: String,
}

fn check(mail: &Mail<'_>) -> Result<(), Unfit> {
    form::within("reply-to addresses by Brevo", mail.content.reply_to.len(), 1)?;
    if mail.content.attachments.iter().any(|file| form::content_id(file).is_some()) {
        return Err(Unfit("Brevo takes no inline files; an attachment has a content_id".into()));
    }
    Ok(())
}

impl Provider for Brevo {
    const KIND: &'static str = "brevo";

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
        check(mail)?;
        let content = mail.content;
        let (id, key) = (mail.id.to_string(), mail.key.as_hyphenated().to_string());
        // Brevo gives `X-Mailin-custom` back with its events.
        let custom = format!("{ID_NAME}={id}");
        let ours = [("idempotencyKey", key.as_str()), (ID_HEADER, &id), ("X-Mailin-custom", &custom)];
        let tag = |(name, value): (&String, &Option<String>)| match value {
            Some(value) => format!("{name}:{value}"),
            None => name.clone(),
        };
        let file = |(i, a): (usize, &_)| File { name: form::filename(i, a), content: form::packed(&a.bytes) };
        form::json(&Email {
            sender: Person::of(&content.from),
            to: Person::all(&content.to),
            cc: Person::all(&content.cc),
            bcc: Person::all(&content.bcc),
            reply_to: content.reply_to.first().map(Person::of),
            subject: &content.subject,
            text_content: content.text.as_deref(),
            html_content: content.html.as_deref(),
            headers: form::headers(content, &ours),
            attachment: content.attachments.iter().enumerate().map(file).collect(),
            tags: content.tags.iter().map(tag).collect(),
        })
    }

    fn call(&self, _base: &Base, parcel: &Parcel) -> Call {
        Call::json("/v3/smtp/email", parcel).with("api-key", &self.api_key.0)
    }

    fn visit(&self) -> Option<Call> {
        Some(Call::get("/v3/account".into()).with("api-key", &self.api_key.0))
    }

    fn judge(&self, answer: &Answer) -> Reply {
        if let (200..300, Some(id)) = (answer.status, answer.word("/messageId")) {
            return answer.taken(id, "accepted");
        }
        let code = answer.word("/code");
        let said = answer.word("/message").map(|text| format!("{}: {text}", code.as_deref().unwrap_or("error")));
        match (answer.status, code.as_deref()) {
            // Of all we send only the key must be unique, and only this mail has it: an earlier attempt arrived.
            (400, Some("duplicate_parameter")) => answer.means(Meaning::Repeated, &said.unwrap_or_default()),
            (400, Some("not_enough_credits" | "account_under_validation")) => {
                answer.means(Meaning::Fault, &said.unwrap_or_default())
            }
            _ => answer.by_status("Brevo", said),
        }
    }
}
