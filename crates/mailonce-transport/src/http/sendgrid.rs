//! SendGrid: `POST /v3/mail/send`. SendGrid has no idempotency key; the paid activity feed can be searched.

use mailonce_core::{
    address::NamedAddress,
    handoff::{
        capabilities::{PayloadFormat, RecoveryMethod},
        reply::TransportReply,
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    outbound::content::Attachment,
    ports::transport::Transport,
};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    BaseUrl, HttpProvider, HttpTransportConfig, ProviderRequest, Secret, TransportConfigError,
    base::percent_encode,
    build_transport,
    form::{self, AddressObject, ID_NAME, MailLabels},
};
use crate::http::connection::ProviderResponse;

const DEFAULT_BASE_URL: &str = "https://api.sendgrid.com";
/// The activity feed lags by minutes.
const SETTLE_DELAY_MS: i64 = 5 * 60_000;
/// Maximum size of a mail.
const MAX_MAIL_BYTES: usize = 30 * 1024 * 1024;
const MAX_CATEGORIES: usize = 10;
const MAX_CATEGORY_CHARS: usize = 255;
/// Maximum size of all custom arguments together.
const MAX_CUSTOM_ARGS_BYTES: usize = 10_000;

/// The SendGrid settings.
#[derive(Clone, Debug)]
pub struct SendGridConfig {
    /// The API key.
    pub api_key: Secret,
    /// Whether the account has the activity history and the API key may read it. Without it there is no lookup.
    pub can_read_activity: bool,
}

struct SendGrid(SendGridConfig);

/// Builds the SendGrid transport.
pub fn transport(
    setting: HttpTransportConfig,
    config: SendGridConfig,
) -> Result<Arc<dyn Transport>, TransportConfigError> {
    build_transport(setting, SendGrid(config), DEFAULT_BASE_URL, "")
}

#[derive(Serialize)]
struct SendGridSendRequest<'a> {
    personalizations: [Personalization<'a>; 1],
    from: AddressObject<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<AddressObject<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    reply_to_list: Vec<AddressObject<'a>>,
    subject: &'a str,
    content: Vec<SendGridContent<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    attachments: Vec<SendGridAttachment<'a>>,
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "form::none")]
    categories: Vec<String>,
    custom_args: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Personalization<'a> {
    to: Vec<AddressObject<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    cc: Vec<AddressObject<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    bcc: Vec<AddressObject<'a>>,
}

impl<'a> Personalization<'a> {
    /// SendGrid rejects duplicate addresses, so only the first occurrence across to, cc and bcc is kept.
    fn from_mail(mail: &OutboundMail<'a>) -> Self {
        let mut seen = BTreeSet::new();
        let mut without_duplicates = |list: &'a [NamedAddress]| -> Vec<AddressObject<'a>> {
            list.iter().filter(|mailbox| seen.insert(mailbox.to_address())).map(AddressObject::from_mailbox).collect()
        };
        Self {
            to: without_duplicates(&mail.content.to),
            cc: without_duplicates(&mail.content.cc),
            bcc: without_duplicates(&mail.content.bcc),
        }
    }
}

#[derive(Serialize)]
struct SendGridContent<'a> {
    r#type: &'static str,
    value: &'a str,
}

#[derive(Serialize)]
struct SendGridAttachment<'a> {
    content: String,
    r#type: &'a str,
    filename: String,
    disposition: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_id: Option<&'a str>,
}

impl<'a> SendGridAttachment<'a> {
    fn from_attachment((index, attachment): (usize, &'a Attachment)) -> Self {
        let content_id = form::content_id(attachment);
        Self {
            content: form::to_base64(&attachment.bytes),
            r#type: form::content_type(attachment),
            filename: form::filename(index, attachment),
            disposition: if content_id.is_some() { "inline" } else { "attachment" },
            content_id,
        }
    }
}

fn check(mail: &OutboundMail<'_>, labels: &MailLabels) -> Result<(), UnsupportedMail> {
    if mail.content.subject.is_empty() {
        return Err(UnsupportedMail("SendGrid requires a subject".into()));
    }
    form::check_limit("tags without a value by SendGrid", labels.bare.len(), MAX_CATEGORIES)?;
    for tag in &labels.bare {
        form::check_limit(
            &format!("characters of the tag {tag} by SendGrid"),
            tag.chars().count(),
            MAX_CATEGORY_CHARS,
        )?;
    }
    let bytes = labels.named.iter().map(|(name, value)| name.len() + value.len()).sum();
    form::check_limit("bytes of metadata by SendGrid", bytes, MAX_CUSTOM_ARGS_BYTES)
}

impl HttpProvider for SendGrid {
    const KIND: &'static str = "sendgrid";

    fn wire(&self) -> PayloadFormat {
        PayloadFormat::Content
    }

    fn recovery(&self) -> RecoveryMethod {
        if self.0.can_read_activity {
            RecoveryMethod::LookUp { settle_delay_ms: SETTLE_DELAY_MS }
        } else {
            RecoveryMethod::None
        }
    }

    fn secrets(&self) -> Vec<&Secret> {
        vec![&self.0.api_key]
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        let content = mail.content;
        let labels = MailLabels::collect(mail, ID_NAME)?;
        check(mail, &labels)?;
        let text = content.text.as_deref().map(|value| SendGridContent { r#type: "text/plain", value });
        let html = content.html.as_deref().map(|value| SendGridContent { r#type: "text/html", value });
        let (reply_to, reply_to_list) = match content.reply_to.as_slice() {
            [one] => (Some(AddressObject::from_mailbox(one)), Vec::new()),
            many => (None, AddressObject::from_mailboxes(many)),
        };
        let body = form::to_json(&SendGridSendRequest {
            personalizations: [Personalization::from_mail(mail)],
            from: AddressObject::from_mailbox(&content.from),
            reply_to,
            reply_to_list,
            subject: &content.subject,
            // SendGrid requires the text before the HTML.
            content: text.into_iter().chain(html).collect(),
            attachments: content.attachments.iter().enumerate().map(SendGridAttachment::from_attachment).collect(),
            headers: form::headers(content, &[("Message-ID", mail.message_id)]),
            categories: labels.bare,
            custom_args: labels.named,
        })?;
        form::check_limit("bytes of a mail by SendGrid", body.len(), MAX_MAIL_BYTES)?;
        Ok(body)
    }

    fn send_request(&self, _base: &BaseUrl, envelope: &FrozenEnvelope) -> ProviderRequest {
        ProviderRequest::json("/v3/mail/send", envelope).with_bearer(&self.0.api_key)
    }

    fn probe_request(&self) -> Option<ProviderRequest> {
        Some(ProviderRequest::get("/v3/scopes".into()).with_bearer(&self.0.api_key))
    }

    fn interpret_response(&self, response: &ProviderResponse) -> TransportReply {
        // SendGrid accepts with an empty 202 and the message id in a header. A 200 only validates the mail (sandbox
        // mode), and a 202 without the header does not come from SendGrid.
        match (response.status, response.header("x-message-id")) {
            (202, Some(id)) if !id.is_empty() => response.accepted_reply(id.to_owned(), "accepted"),
            _ => response.reply_by_status("SendGrid", response.str_at("/errors/0/message")),
        }
    }

    fn lookup_request(&self, wanted: &LookUpRequest) -> Option<ProviderRequest> {
        let query = format!("(unique_args['{ID_NAME}']=\"{}\")", wanted.email);
        let request = ProviderRequest::get(format!("/v3/messages?limit=10&query={}", percent_encode(&query)));
        self.0.can_read_activity.then(|| request.with_bearer(&self.0.api_key))
    }

    fn interpret_lookup(&self, wanted: &LookUpRequest, response: &ProviderResponse) -> LookUpResult {
        let body = response.json_object().unwrap_or(Value::Null);
        let (200, Some(mails)) = (response.status, body["messages"].as_array()) else {
            let error_text = response.str_at("/errors/0/message");
            return LookUpResult::Unavailable(error_text.unwrap_or_else(|| response.excerpt()));
        };
        // The list does not contain the argument that it was filtered by. A mail to another recipient shows that the
        // filter was ignored.
        let is_ours = |mail: &&Value| {
            let to = mail["to_email"].as_str().unwrap_or_default();
            wanted.recipients.iter().any(|recipient| recipient.eq_ignore_ascii_case(to))
        };
        match mails.iter().find(is_ours) {
            Some(mail) if mails.iter().all(|mail| is_ours(&mail)) => LookUpResult::Found {
                remote_id: mail["msg_id"].as_str().map(str::to_owned),
                text: format!("SendGrid lists it as {}", mail["status"].as_str().unwrap_or("accepted")),
            },
            None if mails.is_empty() => LookUpResult::NotFound,
            _ => {
                LookUpResult::Unavailable("SendGrid lists mails to other recipients, so its filter was ignored".into())
            }
        }
    }
}
