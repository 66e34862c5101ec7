//! Postmark: `POST /email`. It takes no key, but finds a mail again by a value we put into its metadata.

use mailonce_core::{
    handoff::{
        capabilities::{PayloadFormat, RecoveryMethod},
        reply::{ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    outbound::content::Attachment,
    ports::transport::Transport,
};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

use super::{
    BaseUrl, HttpProvider, HttpTransportConfig, ProviderRequest, Secret, TransportConfigError, build_transport,
    form::{self, MailLabels},
};
use crate::http::connection::ProviderResponse;

const DEFAULT_BASE_URL: &str = "https://api.postmarkapp.com";
/// The name of our correlation value: the search filters by `metadata_mailonce`.
const ID_NAME: &str = "mailonce";
/// A mail appears in the search some seconds after it was taken.
const SETTLE_DELAY_MS: i64 = 60_000;
/// Bytes of all attachments together.
const MAX_ATTACHMENT_BYTES: usize = 10 * 1024 * 1024;
/// Bytes of a text or HTML body.
const MAX_BODY_BYTES: usize = 5 * 1024 * 1024;
/// Characters of a metadata name and value.
const MAX_METADATA_NAME_CHARS: usize = 20;
const MAX_METADATA_VALUE_CHARS: usize = 80;
/// Mails looked at in one search.
const PAGE_SIZE: usize = 50;

/// What Postmark needs to know.
#[derive(Clone, Debug)]
pub struct PostmarkConfig {
    /// The server's token.
    pub server_token: Secret,
    /// The message stream, `outbound` at most servers.
    pub message_stream: Option<String>,
}

struct Postmark(PostmarkConfig);

/// Mail by Postmark.
pub fn transport(
    setting: HttpTransportConfig,
    config: PostmarkConfig,
) -> Result<Arc<dyn Transport>, TransportConfigError> {
    let stream = config.message_stream.clone().unwrap_or_default();
    build_transport(setting, Postmark(config), DEFAULT_BASE_URL, &stream)
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PostmarkSendRequest<'a> {
    from: String,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bcc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    subject: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text_body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    html_body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    metadata: BTreeMap<String, String>,
    headers: Vec<PostmarkHeader<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    attachments: Vec<PostmarkAttachment<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_stream: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PostmarkHeader<'a> {
    name: &'a str,
    value: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PostmarkAttachment<'a> {
    name: String,
    content: String,
    content_type: &'a str,
    #[serde(rename = "ContentID", skip_serializing_if = "Option::is_none")]
    content_id: Option<String>,
}

impl<'a> PostmarkAttachment<'a> {
    fn from_attachment((index, attachment): (usize, &'a Attachment)) -> Self {
        Self {
            name: form::filename(index, attachment),
            content: form::to_base64(&attachment.bytes),
            content_type: form::content_type(attachment),
            content_id: form::content_id(attachment).map(|id| format!("cid:{id}")),
        }
    }
}

fn check(mail: &OutboundMail<'_>, labels: &MailLabels) -> Result<(), UnsupportedMail> {
    let content = mail.content;
    form::check_limit("bytes of attachments by Postmark", form::attachment_bytes(content), MAX_ATTACHMENT_BYTES)?;
    for body in [&content.text, &content.html] {
        form::check_limit("bytes of a body by Postmark", body.as_ref().map_or(0, String::len), MAX_BODY_BYTES)?;
    }
    form::check_limit("tags without a value by Postmark", labels.bare.len(), 1)?;
    for (name, value) in &labels.named {
        form::check_limit(
            &format!("characters of the metadata name {name} by Postmark"),
            name.chars().count(),
            MAX_METADATA_NAME_CHARS,
        )?;
        form::check_limit(
            &format!("characters of metadata {name} by Postmark"),
            value.chars().count(),
            MAX_METADATA_VALUE_CHARS,
        )?;
    }
    Ok(())
}

impl HttpProvider for Postmark {
    const KIND: &'static str = "postmark";

    fn wire(&self) -> PayloadFormat {
        PayloadFormat::Content
    }

    fn recovery(&self) -> RecoveryMethod {
        RecoveryMethod::LookUp { settle_delay_ms: SETTLE_DELAY_MS }
    }

    fn secrets(&self) -> Vec<&Secret> {
        vec![&self.0.server_token]
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        let content = mail.content;
        let mut labels = MailLabels::collect(mail, ID_NAME)?;
        check(mail, &labels)?;
        // Postmark writes a Message-ID of its own unless it is told to keep ours.
        let ours = [("Message-ID", mail.message_id), ("X-PM-KeepID", "true")];
        let headers = form::headers(content, &ours);
        form::to_json(&PostmarkSendRequest {
            from: form::mailbox(&content.from),
            to: form::mailbox_list(&content.to).unwrap_or_default(),
            cc: form::mailbox_list(&content.cc),
            bcc: form::mailbox_list(&content.bcc),
            reply_to: form::mailbox_list(&content.reply_to),
            subject: &content.subject,
            text_body: content.text.as_deref(),
            html_body: content.html.as_deref(),
            tag: labels.bare.pop(),
            metadata: labels.named,
            headers: headers.into_iter().map(|(name, value)| PostmarkHeader { name, value }).collect(),
            attachments: content.attachments.iter().enumerate().map(PostmarkAttachment::from_attachment).collect(),
            message_stream: self.0.message_stream.as_deref(),
        })
    }

    fn send_request(&self, _base: &BaseUrl, parcel: &FrozenEnvelope) -> ProviderRequest {
        ProviderRequest::json("/email", parcel).with_header("X-Postmark-Server-Token", &self.0.server_token.0)
    }

    fn probe_request(&self) -> Option<ProviderRequest> {
        Some(ProviderRequest::get("/server".into()).with_header("X-Postmark-Server-Token", &self.0.server_token.0))
    }

    fn interpret_response(&self, answer: &ProviderResponse) -> TransportReply {
        let told = answer.json_object().unwrap_or(Value::Null);
        let code = told["ErrorCode"].as_i64();
        let said = told["Message"].as_str().map(|text| format!("{}: {text}", code.unwrap_or(-1)));
        match (answer.status, code, answer.str_at("/MessageID")) {
            (200, Some(0), Some(id)) => answer.accepted_reply(id, told["Message"].as_str().unwrap_or("OK")),
            // Out of credit, approval pending, sending forbidden: the account's trouble, not the mail's.
            (422, Some(405 | 412 | 413), _) => answer.reply(ReplyMeaning::Fault, &said.unwrap_or_default()),
            // "The Postmark API is offline for maintenance": documented, and nothing was read.
            (503, Some(100), _) => answer
                .reply(ReplyMeaning::Deferred, &said.unwrap_or_default())
                .with_retry_after(answer.retry_after_ms()),
            _ => answer.reply_by_status("Postmark", said),
        }
    }

    fn lookup_request(&self, asked: &LookUpRequest) -> Option<ProviderRequest> {
        // Postmark reads dates as Eastern time; a day before is early enough in every zone.
        let day = asked.in_doubt_since.plus(-86_400_000).to_string().chars().take(10).collect::<String>();
        // The id alone names the mail. Recipients are known here in small letters only, and nobody says that the
        // filter for them overlooks case.
        let path =
            format!("/messages/outbound?count={PAGE_SIZE}&offset=0&fromdate={day}&metadata_{ID_NAME}={}", asked.email);
        Some(ProviderRequest::get(path).with_header("X-Postmark-Server-Token", &self.0.server_token.0))
    }

    fn interpret_lookup(&self, asked: &LookUpRequest, answer: &ProviderResponse) -> LookUpResult {
        let told = answer.json_object().unwrap_or(Value::Null);
        let (200, Some(mails)) = (answer.status, told["Messages"].as_array()) else {
            return LookUpResult::Unavailable(told["Message"].as_str().map_or_else(|| answer.excerpt(), str::to_owned));
        };
        let id = asked.email.to_string();
        // The filter is trusted only as far as the mails it brings bear our value.
        if let Some(ours) = mails.iter().find(|mail| mail["Metadata"][ID_NAME] == id.as_str()) {
            let text = format!("Postmark lists it as {}", ours["Status"].as_str().unwrap_or("taken"));
            return LookUpResult::Found { remote_id: ours["MessageID"].as_str().map(str::to_owned), text };
        }
        match told["TotalCount"].as_u64() {
            Some(total) if total as usize <= mails.len() => LookUpResult::NotFound,
            _ => LookUpResult::Unavailable("Postmark lists more mails than one page holds".into()),
        }
    }
}
