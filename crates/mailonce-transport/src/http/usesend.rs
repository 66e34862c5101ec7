//! useSend: `POST /api/v1/emails`. It takes a key, but a weak one, so a lost answer is asked about instead.
//!
//! useSend keeps keys in Redis and writes the result after the mail: when that write fails the caller gets a 500 and a
//! repeat under the same key makes a second mail. Therefore the key goes along (it catches what it catches), but it is
//! no licence to send again, and the recovery is a look-up.
//!
//! Its lists show nothing by which one mail could be told from another. The key can be asked about, though: a request
//! under it with *another* payload is answered `409` when an earlier request completed. The payload of that question
//! can never become a mail: its sender's domain ends in `.invalid`, which nobody can verify, and it answers a mail
//! that does not exist. useSend keeps no key of a request that failed, so the question leaves no trace.

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
/// Longer than useSend's lock of 60 s: afterwards no earlier request of ours holds it.
const SETTLE_DELAY_MS: i64 = 90_000;
const MAX_ATTACHMENTS: usize = 10;
/// Both conflicts have one code, `NOT_UNIQUE`; only the words tell them apart.
const IN_PROGRESS: &str = "in progress";
const OTHER_PAYLOAD: &str = "different payload";
/// Well formed, and never a mail.
const LOOKUP_BODY: &str = r#"{"from":"question@mailonce.invalid","to":"question@mailonce.invalid","subject":"Is this key known?","text":"Is this key known?","inReplyToId":"mailonce-asks"}"#;

struct UseSend {
    api_key: Secret,
}

/// Mail by useSend. `base_url` is the instance itself; `/api/v1` is added.
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
        return Err(UnsupportedMail("useSend takes no mail without a subject".into()));
    }
    form::check_limit("attachments by useSend", content.attachments.len(), MAX_ATTACHMENTS)?;
    if content.attachments.iter().any(|file| form::content_id(file).is_some()) {
        return Err(UnsupportedMail("useSend takes no inline files; an attachment has a content_id".into()));
    }
    if content.attachments.iter().any(|file| file.bytes.is_empty()) {
        return Err(UnsupportedMail("useSend takes no empty attachments".into()));
    }
    // useSend would drop these words without saying so.
    if matches!(content.html.as_deref(), Some("true" | "false")) {
        return Err(UnsupportedMail("useSend discards an html body that is only true or false".into()));
    }
    Ok(())
}

impl UseSend {
    fn with_idempotency_key(&self, call: ProviderRequest, key: uuid::Uuid) -> ProviderRequest {
        call.with_bearer(&self.api_key).with_header("Idempotency-Key", key.as_hyphenated().to_string())
    }
}

fn error_text(answer: &ProviderResponse) -> Option<String> {
    let text = answer.str_at("/error/message")?;
    Some(format!("{}: {text}", answer.str_at("/error/code").as_deref().unwrap_or("error")))
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

    fn send_request(&self, _base: &BaseUrl, parcel: &FrozenEnvelope) -> ProviderRequest {
        self.with_idempotency_key(ProviderRequest::json(PATH, parcel), parcel.key)
    }

    fn probe_request(&self) -> Option<ProviderRequest> {
        Some(ProviderRequest::get("/api/v1/domains".into()).with_bearer(&self.api_key))
    }

    fn interpret_response(&self, answer: &ProviderResponse) -> TransportReply {
        if let (200, Some(id)) = (answer.status, answer.str_at("/emailId")) {
            return answer.accepted_reply(id, "accepted");
        }
        let said = error_text(answer);
        match (answer.status, said.as_deref()) {
            (409, Some(text)) if text.contains(IN_PROGRESS) => {
                answer.reply(ReplyMeaning::Concurrent, text).with_retry_after(answer.retry_after_ms())
            }
            (409, Some(text)) if text.contains(OTHER_PAYLOAD) => answer.reply(ReplyMeaning::Mismatch, text),
            _ => answer.reply_by_status("useSend", said),
        }
    }

    fn lookup_request(&self, asked: &LookUpRequest) -> Option<ProviderRequest> {
        let body = Bytes::from_static(LOOKUP_BODY.as_bytes());
        Some(self.with_idempotency_key(ProviderRequest::post(PATH, "application/json", body), asked.key))
    }

    fn interpret_lookup(&self, _asked: &LookUpRequest, answer: &ProviderResponse) -> LookUpResult {
        let text = error_text(answer).unwrap_or_else(|| answer.excerpt());
        // Only a refusal of the question's own sender or answered mail shows that the key was looked up before and was
        // not known. A schema error comes earlier and shows nothing.
        let unknown_key = text.contains("Domain:") || text.contains("domain:") || text.contains("inReplyTo");
        match answer.status {
            409 if text.contains(OTHER_PAYLOAD) => {
                LookUpResult::Found { remote_id: None, text: "useSend knows the key for an earlier request".into() }
            }
            400 | 403 if unknown_key => LookUpResult::NotFound,
            _ => LookUpResult::Unavailable(text),
        }
    }
}
