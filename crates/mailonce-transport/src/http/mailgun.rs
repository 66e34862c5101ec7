//! Mailgun: `POST /v3/{domain}/messages.mime` with our own MIME bytes. Mailgun has no idempotency key, but its events
//! can be searched by the Message-ID that we chose.

use bytes::Bytes;
use mailonce_core::{
    handoff::{
        capabilities::{PayloadFormat, RecoveryMethod},
        reply::TransportReply,
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    ports::transport::Transport,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

use super::{
    BaseUrl, HttpProvider, HttpTransportConfig, ProviderRequest, Secret, TransportConfigError,
    base::percent_encode,
    build_transport,
    form::{self, ID_NAME, MailLabels},
};
use crate::http::connection::ProviderResponse;

const DEFAULT_BASE_URL: &str = "https://api.mailgun.net";
/// Events are indexed some seconds after they happen.
const SETTLE_DELAY_MS: i64 = 60_000;
/// Maximum size of a mail.
const MAX_MAIL_BYTES: usize = 25 * 1024 * 1024;
const MAX_TAGS: usize = 10;
const MAX_TAG_CHARS: usize = 128;
/// Events per page of a search.
const PAGE_SIZE: usize = 100;
/// How long before the first attempt the search starts, in milliseconds. It covers clock differences.
const SEARCH_MARGIN_MS: i64 = 10 * 60_000;

/// The Mailgun settings.
#[derive(Clone, Debug)]
pub struct MailgunConfig {
    /// The API key of the sending domain or of the account.
    pub api_key: Secret,
    /// The sending domain as registered at Mailgun.
    pub domain: String,
}

struct Mailgun(MailgunConfig);

/// Builds the Mailgun transport. European accounts use the base URL `https://api.eu.mailgun.net`.
pub fn transport(
    setting: HttpTransportConfig,
    config: MailgunConfig,
) -> Result<Arc<dyn Transport>, TransportConfigError> {
    if config.domain.trim().is_empty() {
        return Err(TransportConfigError(format!("transport {} has no Mailgun domain", setting.name)));
    }
    let domain = config.domain.clone();
    build_transport(setting, Mailgun(config), DEFAULT_BASE_URL, &domain)
}

impl Mailgun {
    fn path(&self, end: &str) -> String {
        format!("/v3/{}/{end}", percent_encode(&self.0.domain))
    }

    fn authorized(&self, call: ProviderRequest) -> ProviderRequest {
        call.with_header(
            "Authorization",
            format!("Basic {}", form::to_base64(format!("api:{}", self.0.api_key.0).as_bytes())),
        )
    }
}

/// A multipart boundary that is derived from the key and does not occur in the content.
fn boundary(mail: &OutboundMail<'_>, fields: &[(String, String)], mime: &[u8]) -> String {
    let mut round = 0_u32;
    loop {
        let mut hash = Sha256::new();
        hash.update(mail.key.as_bytes());
        hash.update(round.to_be_bytes());
        let boundary = format!("mailonce-{}", form::hex(&hash.finalize()[..16]));
        let contains_boundary = |bytes: &[u8]| bytes.windows(boundary.len()).any(|part| part == boundary.as_bytes());
        if !contains_boundary(mime)
            && !fields
                .iter()
                .any(|(name, value)| contains_boundary(name.as_bytes()) || contains_boundary(value.as_bytes()))
        {
            return boundary;
        }
        round += 1;
    }
}

/// The multipart form: the fields first, then the mail as a file.
fn multipart(boundary: &str, fields: &[(String, String)], mime: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(mime.len() + 2_048);
    for (name, value) in fields {
        // A quote would end the name early. HTML forms escape it as %22.
        let name = name.replace('"', "%22");
        let part = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    let file = "Content-Disposition: form-data; name=\"message\"; filename=\"message.eml\"";
    let head = format!("--{boundary}\r\n{file}\r\nContent-Type: message/rfc822\r\n\r\n");
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(mime);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    body
}

impl HttpProvider for Mailgun {
    const KIND: &'static str = "mailgun";

    fn wire(&self) -> PayloadFormat {
        PayloadFormat::Mime
    }

    fn recovery(&self) -> RecoveryMethod {
        RecoveryMethod::LookUp { settle_delay_ms: SETTLE_DELAY_MS }
    }

    fn secrets(&self) -> Vec<&Secret> {
        vec![&self.0.api_key]
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        let mime = form::require_mime(mail)?;
        form::check_limit("bytes of a mail by Mailgun", mime.len(), MAX_MAIL_BYTES)?;
        let labels = MailLabels::collect(mail, ID_NAME)?;
        form::check_limit("tags without a value by Mailgun", labels.bare.len(), MAX_TAGS)?;
        // The envelope recipients, including bcc, which the MIME bytes do not contain.
        let to: Vec<String> = mail.content.recipients().into_iter().map(str::to_owned).collect();
        let mut fields = vec![("to".to_owned(), to.join(","))];
        for tag in labels.bare {
            form::check_limit(&format!("characters of the tag {tag} by Mailgun"), tag.chars().count(), MAX_TAG_CHARS)?;
            fields.push(("o:tag".to_owned(), tag));
        }
        fields.extend(labels.named.into_iter().map(|(name, value)| (format!("v:{name}"), value)));
        Ok(multipart(&boundary(mail, &fields, mime), &fields, mime))
    }

    fn send_request(&self, _base: &BaseUrl, envelope: &FrozenEnvelope) -> ProviderRequest {
        // The frozen bytes start with the boundary.
        let first_line = envelope.bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let boundary = String::from_utf8_lossy(first_line.strip_prefix(b"--").unwrap_or_default()).into_owned();
        let content_type = format!("multipart/form-data; boundary={boundary}");
        self.authorized(ProviderRequest::post(
            self.path("messages.mime"),
            &content_type,
            Bytes::from_owner(Arc::clone(&envelope.bytes)),
        ))
    }

    fn probe_request(&self) -> Option<ProviderRequest> {
        Some(self.authorized(ProviderRequest::get(format!("{}?limit=1", self.path("events")))))
    }

    fn interpret_response(&self, response: &ProviderResponse) -> TransportReply {
        let message = response.str_at("/message");
        match (response.status, response.str_at("/id")) {
            (200, Some(id)) => response.accepted_reply(id, message.as_deref().unwrap_or("accepted")),
            _ => response.reply_by_status("Mailgun", message),
        }
    }

    fn lookup_request(&self, wanted: &LookUpRequest) -> Option<ProviderRequest> {
        let message_id = strip_angle_brackets(&wanted.message_id);
        let begin = wanted.in_doubt_since.plus(-SEARCH_MARGIN_MS).0 / 1_000;
        let query = format!("begin={begin}&ascending=yes&limit={PAGE_SIZE}&message-id={}", percent_encode(message_id));
        Some(self.authorized(ProviderRequest::get(format!("{}?{query}", self.path("events")))))
    }

    fn interpret_lookup(&self, wanted: &LookUpRequest, response: &ProviderResponse) -> LookUpResult {
        let body = response.json_object().unwrap_or(Value::Null);
        let (200, Some(events)) = (response.status, body["items"].as_array()) else {
            return LookUpResult::Unavailable(
                body["message"].as_str().map_or_else(|| response.excerpt(), str::to_owned),
            );
        };
        // Each event is checked for our Message-ID in case the filter was ignored. `rejected` is not an acceptance.
        let message_id = strip_angle_brackets(&wanted.message_id);
        let is_ours = |event: &&Value| {
            event["message"]["headers"]["message-id"].as_str().map(strip_angle_brackets) == Some(message_id)
                && event["event"].as_str().is_some_and(|name| name != "rejected")
        };
        match events.iter().find(is_ours) {
            Some(event) => LookUpResult::Found {
                remote_id: Some(format!("<{message_id}>")),
                text: format!("Mailgun has an event {} for this mail", event["event"].as_str().unwrap_or_default()),
            },
            None if events.len() < PAGE_SIZE => LookUpResult::NotFound,
            None => LookUpResult::Unavailable("Mailgun lists more events than fit on one page".into()),
        }
    }
}

/// A Message-ID without its angle brackets.
fn strip_angle_brackets(id: &str) -> &str {
    id.trim().trim_start_matches('<').trim_end_matches('>')
}
