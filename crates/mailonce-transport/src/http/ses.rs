//! Amazon SES, API version 2: `POST /v2/email/outbound-emails` with our own MIME bytes, signed for each attempt.
//!
//! SES has no idempotency key and no lookup by a correlation id. But a configuration set that publishes `Send` events
//! returns our tag `mailonce` together with the SES message id. The engine records that as evidence.

use mailonce_core::{
    address::NamedAddress,
    handoff::{
        capabilities::{PayloadFormat, RecoveryMethod},
        reply::{ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, OutboundMail, UnsupportedMail},
    },
    ports::{Clock, transport::Transport},
};
use serde::Serialize;
use std::{fmt, sync::Arc};

use super::{
    BaseUrl, HttpProvider, HttpTransportConfig, ProviderRequest, Secret, TransportConfigError, build_transport,
    form::{self, ID_NAME},
    sigv4::{SigV4Request, SigV4Signer, amz_date},
};
use crate::http::connection::ProviderResponse;

const PATH: &str = "/v2/email/outbound-emails";
/// Maximum size of a mail as base64.
const MAX_MAIL_BYTES: usize = 40 * 1024 * 1024;
const MAX_RECIPIENTS: usize = 50;
const MAX_TAG_CHARS: usize = 256;

/// The SES settings.
#[derive(Clone)]
pub struct SesConfig {
    /// The access key id, the public half of the credential.
    pub access_key_id: String,
    /// The secret access key.
    pub secret_access_key: Secret,
    /// The session token of temporary credentials.
    pub session_token: Option<Secret>,
    /// The AWS region, such as `eu-west-1`.
    pub region: String,
    /// The configuration set that publishes the events.
    pub configuration_set: Option<String>,
    /// The clock for the timestamps of signatures.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for SesConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SES {} in {}", self.access_key_id, self.region)
    }
}

struct Ses(SesConfig);

/// Builds the Amazon SES transport.
pub fn transport(setting: HttpTransportConfig, config: SesConfig) -> Result<Arc<dyn Transport>, TransportConfigError> {
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !is_plain(&config.region) || !is_plain(&config.access_key_id) {
        return Err(TransportConfigError(format!("transport {} needs a region and an access key id", setting.name)));
    }
    let default_url = format!("https://email.{}.amazonaws.com", config.region);
    let region = config.region.clone();
    build_transport(setting, Ses(config), &default_url, &region)
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SesSendRequest<'a> {
    from_email_address: String,
    destination: Destination<'a>,
    content: SesContent,
    email_tags: Vec<SesTag<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration_set_name: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Destination<'a> {
    to_addresses: Vec<&'a str>,
    #[serde(skip_serializing_if = "form::none")]
    cc_addresses: Vec<&'a str>,
    #[serde(skip_serializing_if = "form::none")]
    bcc_addresses: Vec<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SesContent {
    raw: SesRawContent,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SesRawContent {
    data: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SesTag<'a> {
    name: &'a str,
    value: &'a str,
}

fn tags<'a>(mail: &OutboundMail<'a>, id: &'a str) -> Result<Vec<SesTag<'a>>, UnsupportedMail> {
    let mut tags = vec![SesTag { name: ID_NAME, value: id }];
    for (name, value) in &mail.content.tags {
        let value = value.as_deref().unwrap_or("true");
        let is_valid = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.@".contains(&b));
        if !is_valid(name) || !is_valid(value) || name.len() >= MAX_TAG_CHARS || value.len() >= MAX_TAG_CHARS {
            return Err(UnsupportedMail(format!(
                "the tag {name}={value} is not valid at SES: use ASCII letters, digits, _, -, . and @, fewer than 256"
            )));
        }
        tags.push(SesTag { name, value });
    }
    Ok(tags)
}

impl HttpProvider for Ses {
    const KIND: &'static str = "ses";

    fn wire(&self) -> PayloadFormat {
        PayloadFormat::Mime
    }

    fn recovery(&self) -> RecoveryMethod {
        RecoveryMethod::None
    }

    fn secrets(&self) -> Vec<&Secret> {
        std::iter::once(&self.0.secret_access_key).chain(&self.0.session_token).collect()
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        let (content, id) = (mail.content, mail.id.to_string());
        form::check_limit("recipients by SES", content.recipients().len(), MAX_RECIPIENTS)?;
        let body = form::to_json(&SesSendRequest {
            from_email_address: form::mailbox(&content.from),
            destination: Destination {
                to_addresses: addresses(&content.to),
                cc_addresses: addresses(&content.cc),
                bcc_addresses: addresses(&content.bcc),
            },
            content: SesContent { raw: SesRawContent { data: form::to_base64(form::require_mime(mail)?) } },
            email_tags: tags(mail, &id)?,
            configuration_set_name: self.0.configuration_set.as_deref(),
        })?;
        form::check_limit("bytes of a mail by SES", body.len(), MAX_MAIL_BYTES)?;
        Ok(body)
    }

    fn send_request(&self, base: &BaseUrl, envelope: &FrozenEnvelope) -> ProviderRequest {
        let SesConfig { access_key_id, secret_access_key: secret, session_token: token, region, clock, .. } = &self.0;
        let now = clock.now();
        let amz_date_text = amz_date(now);
        let path = format!("{}{PATH}", base.path_prefix);
        let mut headers = vec![
            ("content-type", "application/json"),
            ("host", base.authority.as_str()),
            ("x-amz-date", &amz_date_text),
        ];
        headers.extend(token.iter().map(|token| ("x-amz-security-token", token.0.as_str())));
        let signer = SigV4Signer { access_key_id, secret, region, service: "ses" };
        let to_sign =
            SigV4Request { method: "POST", path: &path, query: &[], headers: &headers, body: &envelope.bytes };
        let authorization = signer.authorization(&to_sign, now);
        let mut request = ProviderRequest::json(PATH, envelope)
            .with_header("X-Amz-Date", amz_date_text)
            .with_header("Authorization", authorization);
        if let Some(token) = token {
            request = request.with_header("X-Amz-Security-Token", &token.0);
        }
        request
    }

    fn interpret_response(&self, response: &ProviderResponse) -> TransportReply {
        if let (200, Some(id)) = (response.status, response.str_at("/MessageId")) {
            return response.accepted_reply(id, "accepted");
        }
        let error_type = response.header("x-amzn-errortype").map(str::to_owned).or_else(|| response.str_at("/__type"));
        let name =
            error_type.as_deref().map(|name| name.split(':').next().unwrap_or(name).to_owned()).unwrap_or_default();
        let message = response.str_at("/message").or_else(|| response.str_at("/Message"));
        let error_text =
            message.map(|text| format!("{name}: {text}")).or_else(|| Some(name.clone()).filter(|n| !n.is_empty()));
        let text = error_text.clone().unwrap_or_default();
        match (response.status, name.as_str()) {
            // SES reports some account faults and throttling as a bad request.
            (400, "AccountSuspendedException" | "SendingPausedException") => response.reply(ReplyMeaning::Fault, &text),
            (400, "LimitExceededException" | "TooManyRequestsException" | "ThrottlingException" | "Throttling") => {
                response.reply(ReplyMeaning::Deferred, &text).with_retry_after(response.retry_after_ms())
            }
            _ => response.reply_by_status("SES", error_text),
        }
    }
}

fn addresses(list: &[NamedAddress]) -> Vec<&str> {
    list.iter().map(|mailbox| mailbox.address.as_str()).collect()
}
