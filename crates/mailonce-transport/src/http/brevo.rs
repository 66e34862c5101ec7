//! Brevo: `POST /v3/smtp/email`. The idempotency key is one of the mail's headers, and Brevo rejects a
//! duplicate as a duplicate.

use mailonce_core::{
    handoff::{
        capabilities::{PayloadFormat, RecoveryMethod},
        reply::{ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, OutboundMail, UnsupportedMail},
    },
    ports::transport::Transport,
};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

use super::{
    BaseUrl, HttpProvider, HttpTransportConfig, ProviderRequest, Secret, TransportConfigError, build_transport,
    form::{self, AddressObject, ID_HEADER, ID_NAME},
};
use crate::http::connection::ProviderResponse;

const DEFAULT_BASE_URL: &str = "https://api.brevo.com";
/// Brevo documents 30 minutes in one place and 15 in another. The shorter one is safe.
const KEY_WINDOW_MS: i64 = 15 * 60_000;

struct Brevo {
    api_key: Secret,
}

/// Builds the Brevo transport.
pub fn transport(setting: HttpTransportConfig, api_key: Secret) -> Result<Arc<dyn Transport>, TransportConfigError> {
    build_transport(setting, Brevo { api_key }, DEFAULT_BASE_URL, "")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BrevoSendRequest<'a> {
    sender: AddressObject<'a>,
    to: Vec<AddressObject<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    cc: Vec<AddressObject<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    bcc: Vec<AddressObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<AddressObject<'a>>,
    subject: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    html_content: Option<&'a str>,
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "form::none")]
    attachment: Vec<BrevoAttachment>,
    #[serde(skip_serializing_if = "form::none")]
    tags: Vec<String>,
}

#[derive(Serialize)]
struct BrevoAttachment {
    name: String,
    content: String,
}

fn check(mail: &OutboundMail<'_>) -> Result<(), UnsupportedMail> {
    form::check_limit("reply-to addresses by Brevo", mail.content.reply_to.len(), 1)?;
    if mail.content.attachments.iter().any(|file| form::content_id(file).is_some()) {
        return Err(UnsupportedMail(
            "Brevo does not support inline attachments; remove content_id from the attachment".into(),
        ));
    }
    Ok(())
}

impl HttpProvider for Brevo {
    const KIND: &'static str = "brevo";

    fn wire(&self) -> PayloadFormat {
        PayloadFormat::Content
    }

    fn recovery(&self) -> RecoveryMethod {
        RecoveryMethod::IdempotencyKey { window_ms: KEY_WINDOW_MS }
    }

    fn secrets(&self) -> Vec<&Secret> {
        vec![&self.api_key]
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        check(mail)?;
        let content = mail.content;
        let (id, key) = (mail.id.to_string(), mail.key.as_hyphenated().to_string());
        // Brevo returns `X-Mailin-custom` in its events.
        let custom = format!("{ID_NAME}={id}");
        let ours = [("idempotencyKey", key.as_str()), (ID_HEADER, &id), ("X-Mailin-custom", &custom)];
        let tag = |(name, value): (&String, &Option<String>)| match value {
            Some(value) => format!("{name}:{value}"),
            None => name.clone(),
        };
        let file =
            |(i, a): (usize, &_)| BrevoAttachment { name: form::filename(i, a), content: form::to_base64(&a.bytes) };
        form::to_json(&BrevoSendRequest {
            sender: AddressObject::from_mailbox(&content.from),
            to: AddressObject::from_mailboxes(&content.to),
            cc: AddressObject::from_mailboxes(&content.cc),
            bcc: AddressObject::from_mailboxes(&content.bcc),
            reply_to: content.reply_to.first().map(AddressObject::from_mailbox),
            subject: &content.subject,
            text_content: content.text.as_deref(),
            html_content: content.html.as_deref(),
            headers: form::headers(content, &ours),
            attachment: content.attachments.iter().enumerate().map(file).collect(),
            tags: content.tags.iter().map(tag).collect(),
        })
    }

    fn send_request(&self, _base: &BaseUrl, envelope: &FrozenEnvelope) -> ProviderRequest {
        ProviderRequest::json("/v3/smtp/email", envelope).with_header("api-key", &self.api_key.0)
    }

    fn probe_request(&self) -> Option<ProviderRequest> {
        Some(ProviderRequest::get("/v3/account".into()).with_header("api-key", &self.api_key.0))
    }

    fn interpret_response(&self, response: &ProviderResponse) -> TransportReply {
        if let (200..300, Some(id)) = (response.status, response.str_at("/messageId")) {
            return response.accepted_reply(id, "accepted");
        }
        let code = response.str_at("/code");
        let error_text =
            response.str_at("/message").map(|text| format!("{}: {text}", code.as_deref().unwrap_or("error")));
        match (response.status, code.as_deref()) {
            // Only the idempotency key must be unique, and only this mail uses it: an earlier attempt arrived.
            (400, Some("duplicate_parameter")) => {
                response.reply(ReplyMeaning::Repeated, &error_text.unwrap_or_default())
            }
            (400, Some("not_enough_credits" | "account_under_validation")) => {
                response.reply(ReplyMeaning::Fault, &error_text.unwrap_or_default())
            }
            _ => response.reply_by_status("Brevo", error_text),
        }
    }
}
