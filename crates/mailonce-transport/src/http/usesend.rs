//! useSend: `POST /api/v1/emails`. Its idempotency keys are weak, so a lost response leads to a lookup, not to a retry.
//!
//! useSend keeps keys in Redis and stores the result after it queued the mail. If that write fails, the caller gets a
//! 500 and a retry under the same key creates a second mail. So we send the key as an extra protection, but never retry
//! because of it; the recovery method is a lookup.
//!
//! useSend's lists do not contain anything that identifies one mail. But the key can be tested: a request under it with
//! *another* payload gets a `409` if an earlier request completed. The payload of that test request can never become a
//! mail: the domain of its sender ends in `.invalid`, which cannot be verified, and it replies to a mail that does not
//! exist. useSend does not keep the key of a failed request, so the test leaves no trace.

use bytes::Bytes;
use mailonce_core::{
    handoff::{
        capabilities::{PayloadFormat, RecoveryMethod},
        reply::{ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    ports::transport::Transport,
};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

use super::{
    BaseUrl, HttpProvider, HttpTransportConfig, ProviderRequest, Secret, TransportConfigError, build_transport,
    form::{self, ID_HEADER},
};
use crate::http::connection::ProviderResponse;

const DEFAULT_BASE_URL: &str = "https://app.usesend.com";
const PATH: &str = "/api/v1/emails";
/// Longer than useSend's lock of 60 s, so that no earlier request of ours still holds the lock.
const SETTLE_DELAY_MS: i64 = 90_000;
const MAX_ATTACHMENTS: usize = 10;
/// Both conflicts have the code `NOT_UNIQUE`; only their messages differ.
const IN_PROGRESS: &str = "in progress";
const OTHER_PAYLOAD: &str = "different payload";
/// The body of the test request: well formed, but useSend can never send it.
const LOOKUP_BODY: &str = r#"{"from":"question@mailonce.invalid","to":"question@mailonce.invalid","subject":"Is this key known?","text":"Is this key known?","inReplyToId":"mailonce-asks"}"#;

struct UseSend {
    api_key: Secret,
}

/// Builds the useSend transport. `base_url` is the URL of the instance; `/api/v1` is appended.
pub fn transport(setting: HttpTransportConfig, api_key: Secret) -> Result<Arc<dyn Transport>, TransportConfigError> {
    build_transport(setting, UseSend { api_key }, DEFAULT_BASE_URL, "")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UseSendSendRequest<'a> {
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
    attachments: Vec<UseSendAttachment>,
}

#[derive(Serialize)]
struct UseSendAttachment {
    filename: String,
    content: String,
}

fn check(mail: &OutboundMail<'_>) -> Result<(), UnsupportedMail> {
    let content = mail.content;
    if content.subject.is_empty() {
        return Err(UnsupportedMail("useSend requires a subject".into()));
    }
    form::check_limit("attachments by useSend", content.attachments.len(), MAX_ATTACHMENTS)?;
    if content.attachments.iter().any(|file| form::content_id(file).is_some()) {
        return Err(UnsupportedMail(
            "useSend does not support inline attachments; remove content_id from the attachment".into(),
        ));
    }
    if content.attachments.iter().any(|file| file.bytes.is_empty()) {
        return Err(UnsupportedMail("useSend does not accept empty attachments".into()));
    }
    // useSend silently drops such a body.
    if matches!(content.html.as_deref(), Some("true" | "false")) {
        return Err(UnsupportedMail("useSend discards an html body that is only true or false".into()));
    }
    Ok(())
}

impl UseSend {
    fn with_idempotency_key(&self, request: ProviderRequest, key: uuid::Uuid) -> ProviderRequest {
        request.with_bearer(&self.api_key).with_header("Idempotency-Key", key.as_hyphenated().to_string())
    }
}

fn error_text(response: &ProviderResponse) -> Option<String> {
    let text = response.str_at("/error/message")?;
    Some(format!("{}: {text}", response.str_at("/error/code").as_deref().unwrap_or("error")))
}

impl HttpProvider for UseSend {
    const KIND: &'static str = "usesend";

    fn wire(&self) -> PayloadFormat {
        PayloadFormat::Content
    }

    fn recovery(&self) -> RecoveryMethod {
        RecoveryMethod::LookUp { settle_delay_ms: SETTLE_DELAY_MS }
    }

    fn secrets(&self) -> Vec<&Secret> {
        vec![&self.api_key]
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        check(mail)?;
        let (content, id) = (mail.content, mail.id.to_string());
        let file = |(i, a): (usize, &_)| UseSendAttachment {
            filename: form::filename(i, a),
            content: form::to_base64(&a.bytes),
        };
        form::to_json(&UseSendSendRequest {
            from: form::mailbox(&content.from),
            to: form::mailboxes(&content.to),
            cc: form::mailboxes(&content.cc),
            bcc: form::mailboxes(&content.bcc),
            reply_to: form::mailboxes(&content.reply_to),
            subject: &content.subject,
            text: content.text.as_deref(),
            html: content.html.as_deref(),
            headers: form::headers(content, &[(ID_HEADER, &id)]),
            attachments: content.attachments.iter().enumerate().map(file).collect(),
        })
    }

    fn send_request(&self, _base: &BaseUrl, envelope: &FrozenEnvelope) -> ProviderRequest {
        self.with_idempotency_key(ProviderRequest::json(PATH, envelope), envelope.key)
    }

    fn probe_request(&self) -> Option<ProviderRequest> {
        Some(ProviderRequest::get("/api/v1/domains".into()).with_bearer(&self.api_key))
    }

    fn interpret_response(&self, response: &ProviderResponse) -> TransportReply {
        if let (200, Some(id)) = (response.status, response.str_at("/emailId")) {
            return response.accepted_reply(id, "accepted");
        }
        let error = error_text(response);
        match (response.status, error.as_deref()) {
            (409, Some(text)) if text.contains(IN_PROGRESS) => {
                response.reply(ReplyMeaning::Concurrent, text).with_retry_after(response.retry_after_ms())
            }
            (409, Some(text)) if text.contains(OTHER_PAYLOAD) => response.reply(ReplyMeaning::Mismatch, text),
            _ => response.reply_by_status("useSend", error),
        }
    }

    fn lookup_request(&self, wanted: &LookUpRequest) -> Option<ProviderRequest> {
        let body = Bytes::from_static(LOOKUP_BODY.as_bytes());
        Some(self.with_idempotency_key(ProviderRequest::post(PATH, "application/json", body), wanted.key))
    }

    fn interpret_lookup(&self, _wanted: &LookUpRequest, response: &ProviderResponse) -> LookUpResult {
        let text = error_text(response).unwrap_or_else(|| response.excerpt());
        // useSend checks the key before the sender and the replied-to mail. Only a rejection of one of these two proves
        // that the key is unknown. A schema error comes before the key check and proves nothing.
        let unknown_key = text.contains("Domain:") || text.contains("domain:") || text.contains("inReplyTo");
        match response.status {
            409 if text.contains(OTHER_PAYLOAD) => {
                LookUpResult::Found { remote_id: None, text: "useSend knows the key from an earlier request".into() }
            }
            400 | 403 if unknown_key => LookUpResult::NotFound,
            _ => LookUpResult::Unavailable(text),
        }
    }
}
