//! Postmark: `POST /email`. Postmark has no idempotency key, but mails can be searched by a metadata value of ours.

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
/// The name of our correlation id: the search filters by `metadata_mailonce`.
const ID_NAME: &str = "mailonce";
/// A mail appears in the search some seconds after it was accepted.
const SETTLE_DELAY_MS: i64 = 60_000;
/// Maximum size of all attachments together.
const MAX_ATTACHMENT_BYTES: usize = 10 * 1024 * 1024;
/// Maximum size of a text or HTML body.
const MAX_BODY_BYTES: usize = 5 * 1024 * 1024;
/// Maximum length of a metadata name and value.
const MAX_METADATA_NAME_CHARS: usize = 20;
const MAX_METADATA_VALUE_CHARS: usize = 80;
/// Mails per page of a search.
const PAGE_SIZE: usize = 50;

/// The Postmark settings.
#[derive(Clone, Debug)]
pub struct PostmarkConfig {
    /// The server API token.
    pub server_token: Secret,
    /// The message stream, usually `outbound`.
    pub message_stream: Option<String>,
}

struct Postmark(PostmarkConfig);

/// Builds the Postmark transport.
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
        // Without `X-PM-KeepID` Postmark replaces our Message-ID.
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

    fn send_request(&self, _base: &BaseUrl, envelope: &FrozenEnvelope) -> ProviderRequest {
        ProviderRequest::json("/email", envelope).with_header("X-Postmark-Server-Token", &self.0.server_token.0)
    }

    fn probe_request(&self) -> Option<ProviderRequest> {
        Some(ProviderRequest::get("/server".into()).with_header("X-Postmark-Server-Token", &self.0.server_token.0))
    }

    fn interpret_response(&self, response: &ProviderResponse) -> TransportReply {
        let body = response.json_object().unwrap_or(Value::Null);
        let code = body["ErrorCode"].as_i64();
        let error_text = body["Message"].as_str().map(|text| format!("{}: {text}", code.unwrap_or(-1)));
        match (response.status, code, response.str_at("/MessageID")) {
            (200, Some(0), Some(id)) => response.accepted_reply(id, body["Message"].as_str().unwrap_or("OK")),
            // Out of credit, approval pending, sending forbidden: a fault of the account, not of the mail.
            (422, Some(405 | 412 | 413), _) => response.reply(ReplyMeaning::Fault, &error_text.unwrap_or_default()),
            // Documented as "The Postmark API is offline for maintenance", so the mail was not accepted.
            (503, Some(100), _) => response
                .reply(ReplyMeaning::Deferred, &error_text.unwrap_or_default())
                .with_retry_after(response.retry_after_ms()),
            _ => response.reply_by_status("Postmark", error_text),
        }
    }

    fn lookup_request(&self, wanted: &LookUpRequest) -> Option<ProviderRequest> {
        // Postmark reads dates in Eastern time. Starting one day earlier is safe in every time zone.
        let from_date = wanted.in_doubt_since.plus(-86_400_000).to_string().chars().take(10).collect::<String>();
        // The email id alone identifies the mail. We do not filter by recipient: here recipients are in lower case, and
        // Postmark does not document that its filter ignores case.
        let path = format!(
            "/messages/outbound?count={PAGE_SIZE}&offset=0&fromdate={from_date}&metadata_{ID_NAME}={}",
            wanted.email
        );
        Some(ProviderRequest::get(path).with_header("X-Postmark-Server-Token", &self.0.server_token.0))
    }

    fn interpret_lookup(&self, wanted: &LookUpRequest, response: &ProviderResponse) -> LookUpResult {
        let body = response.json_object().unwrap_or(Value::Null);
        let (200, Some(mails)) = (response.status, body["Messages"].as_array()) else {
            return LookUpResult::Unavailable(
                body["Message"].as_str().map_or_else(|| response.excerpt(), str::to_owned),
            );
        };
        let id = wanted.email.to_string();
        // Each mail is checked for our id, in case the filter was ignored.
        if let Some(ours) = mails.iter().find(|mail| mail["Metadata"][ID_NAME] == id.as_str()) {
            let text = format!("Postmark lists it as {}", ours["Status"].as_str().unwrap_or("accepted"));
            return LookUpResult::Found { remote_id: ours["MessageID"].as_str().map(str::to_owned), text };
        }
        match body["TotalCount"].as_u64() {
            Some(total) if total as usize <= mails.len() => LookUpResult::NotFound,
            _ => LookUpResult::Unavailable("Postmark lists more mails than fit on one page".into()),
        }
    }
}
