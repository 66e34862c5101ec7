//! Resend: `POST /emails`. Resend remembers an idempotency key for 24 hours.

use mailonce_core::{
    handoff::{
        capabilities::{PayloadFormat, RecoveryMethod},
        reply::{ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, OutboundMail, UnsupportedMail},
    },
    outbound::content::Attachment,
    ports::transport::Transport,
};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

use super::{
    BaseUrl, HttpProvider, HttpTransportConfig, ProviderRequest, Secret, TransportConfigError, build_transport,
    form::{self, ID_HEADER, ID_NAME},
};
use crate::http::connection::ProviderResponse;

const DEFAULT_BASE_URL: &str = "https://api.resend.com";
const KEY_WINDOW_MS: i64 = 24 * 3_600_000;
/// Maximum size of a mail, with its attachments as base64.
const MAX_MAIL_BYTES: usize = 40 * 1024 * 1024;
/// Maximum length of a tag's name or value.
const MAX_TAG_CHARS: usize = 256;

struct ResendTransport {
    api_key: Secret,
}

/// Builds the Resend transport.
pub fn transport(setting: HttpTransportConfig, api_key: Secret) -> Result<Arc<dyn Transport>, TransportConfigError> {
    build_transport(setting, ResendTransport { api_key }, DEFAULT_BASE_URL, "")
}

#[derive(Serialize)]
struct ResendSendRequest<'a> {
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
    attachments: Vec<ResendAttachment<'a>>,
    tags: Vec<ResendTag<'a>>,
}

#[derive(Serialize)]
struct ResendAttachment<'a> {
    filename: String,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_id: Option<&'a str>,
}

impl<'a> ResendAttachment<'a> {
    fn from_attachment((index, attachment): (usize, &'a Attachment)) -> Self {
        Self {
            filename: form::filename(index, attachment),
            content: form::to_base64(&attachment.bytes),
            content_type: attachment.content_type.as_deref(),
            content_id: form::content_id(attachment),
        }
    }
}

#[derive(Serialize)]
struct ResendTag<'a> {
    name: &'a str,
    value: &'a str,
}

/// Our email id and the caller's tags. Resend allows ASCII letters, digits, `_` and `-`, and rejects the whole mail
/// otherwise. Metadata is not passed on, because Resend has no field for it.
fn tags<'a>(mail: &OutboundMail<'a>, id: &'a str) -> Result<Vec<ResendTag<'a>>, UnsupportedMail> {
    let mut tags = vec![ResendTag { name: ID_NAME, value: id }];
    for (name, value) in &mail.content.tags {
        let value = value.as_deref().unwrap_or("true");
        let is_valid = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if !is_valid(name) || !is_valid(value) || name.len() > MAX_TAG_CHARS || value.len() > MAX_TAG_CHARS {
            return Err(UnsupportedMail(format!(
                "the tag {name}={value} is not valid at Resend: use up to 256 ASCII letters, digits, _ and -"
            )));
        }
        tags.push(ResendTag { name, value });
    }
    Ok(tags)
}

impl HttpProvider for ResendTransport {
    const KIND: &'static str = "resend";

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
        let (content, id) = (mail.content, mail.id.to_string());
        let body = form::to_json(&ResendSendRequest {
            from: form::mailbox(&content.from),
            to: form::mailboxes(&content.to),
            cc: form::mailboxes(&content.cc),
            bcc: form::mailboxes(&content.bcc),
            reply_to: form::mailboxes(&content.reply_to),
            subject: &content.subject,
            text: content.text.as_deref(),
            html: content.html.as_deref(),
            // Resend replaces our Message-ID, so our email id travels in its own header.
            headers: form::headers(content, &[(ID_HEADER, &id)]),
            attachments: content.attachments.iter().enumerate().map(ResendAttachment::from_attachment).collect(),
            tags: tags(mail, &id)?,
        })?;
        form::check_limit("bytes of a mail by Resend", body.len(), MAX_MAIL_BYTES)?;
        Ok(body)
    }

    fn send_request(&self, _base: &BaseUrl, envelope: &FrozenEnvelope) -> ProviderRequest {
        let request = ProviderRequest::json("/emails", envelope).with_bearer(&self.api_key);
        request.with_header("Idempotency-Key", envelope.key.as_hyphenated().to_string())
    }

    fn probe_request(&self) -> Option<ProviderRequest> {
        Some(ProviderRequest::get("/domains".into()).with_bearer(&self.api_key))
    }

    fn is_send_only_key(&self, refusal: &str) -> bool {
        refusal.contains("restricted_api_key")
    }

    fn interpret_response(&self, response: &ProviderResponse) -> TransportReply {
        if let (200..300, Some(id)) = (response.status, response.str_at("/id")) {
            return response.accepted_reply(id, "accepted");
        }
        let name = response.str_at("/name");
        let error_text =
            response.str_at("/message").map(|text| format!("{}: {text}", name.as_deref().unwrap_or("error")));
        match (response.status, name.as_deref()) {
            (409, Some("concurrent_idempotent_requests")) => response
                .reply(ReplyMeaning::Concurrent, &error_text.unwrap_or_default())
                .with_retry_after(response.retry_after_ms()),
            (409, Some("invalid_idempotent_request")) => {
                response.reply(ReplyMeaning::Mismatch, &error_text.unwrap_or_default())
            }
            _ => response.reply_by_status("Resend", error_text),
        }
    }
}
