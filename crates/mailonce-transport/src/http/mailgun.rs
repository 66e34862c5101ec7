//! Mailgun: `POST /v3/{domain}/messages.mime`, our own bytes as they are. It takes no key, but its events name mails by
//! the Message-ID that we chose.

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
/// Bytes of a whole mail.
const MAX_MAIL_BYTES: usize = 25 * 1024 * 1024;
const MAX_TAGS: usize = 10;
const MAX_TAG_CHARS: usize = 128;
/// Events looked at in one search.
const PAGE_SIZE: usize = 100;
/// How long before the first attempt the search begins, in milliseconds: two clocks never agree.
const SEARCH_MARGIN_MS: i64 = 10 * 60_000;

/// What Mailgun needs to know.
#[derive(Clone, Debug)]
pub struct MailgunConfig {
    /// The sending domain's or the account's key.
    pub api_key: Secret,
    /// The sending domain, as Mailgun knows it.
    pub domain: String,
}

struct Mailgun(MailgunConfig);

/// Mail by Mailgun. European accounts have the base URL `https://api.eu.mailgun.net`.
pub fn transport(
    setting: HttpTransportConfig,
    config: MailgunConfig,
) -> Result<Arc<dyn Transport>, TransportConfigError> {
    if config.domain.trim().is_empty() {
        return Err(TransportConfigError(format!("transport {} names no Mailgun domain", setting.name)));
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

/// A boundary that follows from the key and does not occur in the mail.
fn boundary(mail: &OutboundMail<'_>, fields: &[(String, String)], mime: &[u8]) -> String {
    let mut round = 0_u32;
    loop {
        let mut hash = Sha256::new();
        hash.update(mail.key.as_bytes());
        hash.update(round.to_be_bytes());
        let boundary = format!("mailonce-{}", form::hex(&hash.finalize()[..16]));
        let inside = |bytes: &[u8]| bytes.windows(boundary.len()).any(|part| part == boundary.as_bytes());
        if !inside(mime) && !fields.iter().any(|(name, value)| inside(name.as_bytes()) || inside(value.as_bytes())) {
            return boundary;
        }
        round += 1;
    }
}

/// The form: plain fields first, the mail as a file at the end.
fn multipart(boundary: &str, fields: &[(String, String)], mime: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(mime.len() + 2_048);
    for (name, value) in fields {
        // A quote would end the name early. HTML forms escape it this way.
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
        // The envelope, hidden copies included: the bytes themselves name none.
        let to: Vec<String> = mail.content.recipients().into_iter().map(str::to_owned).collect();
        let mut fields = vec![("to".to_owned(), to.join(","))];
        for tag in labels.bare {
            form::check_limit(&format!("characters of the tag {tag} by Mailgun"), tag.chars().count(), MAX_TAG_CHARS)?;
            fields.push(("o:tag".to_owned(), tag));
        }
        fields.extend(labels.named.into_iter().map(|(name, value)| (format!("v:{name}"), value)));
        Ok(multipart(&boundary(mail, &fields, mime), &fields, mime))
    }

    fn send_request(&self, _base: &BaseUrl, parcel: &FrozenEnvelope) -> ProviderRequest {
        // The frozen bytes begin with their boundary.
        let first = parcel.bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let boundary = String::from_utf8_lossy(first.strip_prefix(b"--").unwrap_or_default()).into_owned();
        let kind = format!("multipart/form-data; boundary={boundary}");
        self.authorized(ProviderRequest::post(
            self.path("messages.mime"),
            &kind,
            Bytes::from_owner(Arc::clone(&parcel.bytes)),
        ))
    }

    fn probe_request(&self) -> Option<ProviderRequest> {
        Some(self.authorized(ProviderRequest::get(format!("{}?limit=1", self.path("events")))))
    }

    fn interpret_response(&self, answer: &ProviderResponse) -> TransportReply {
        let said = answer.str_at("/message");
        match (answer.status, answer.str_at("/id")) {
            (200, Some(id)) => answer.accepted_reply(id, said.as_deref().unwrap_or("accepted")),
            _ => answer.reply_by_status("Mailgun", said),
        }
    }

    fn lookup_request(&self, asked: &LookUpRequest) -> Option<ProviderRequest> {
        let message_id = strip_angle_brackets(&asked.message_id);
        let begin = asked.in_doubt_since.plus(-SEARCH_MARGIN_MS).0 / 1_000;
        let query = format!("begin={begin}&ascending=yes&limit={PAGE_SIZE}&message-id={}", percent_encode(message_id));
        Some(self.authorized(ProviderRequest::get(format!("{}?{query}", self.path("events")))))
    }

    fn interpret_lookup(&self, asked: &LookUpRequest, answer: &ProviderResponse) -> LookUpResult {
        let told = answer.json_object().unwrap_or(Value::Null);
        let (200, Some(events)) = (answer.status, told["items"].as_array()) else {
            return LookUpResult::Unavailable(told["message"].as_str().map_or_else(|| answer.excerpt(), str::to_owned));
        };
        // The filter is trusted only as far as the events bear our Message-ID. `rejected` means it was not taken.
        let message_id = strip_angle_brackets(&asked.message_id);
        let ours = |event: &&Value| {
            event["message"]["headers"]["message-id"].as_str().map(strip_angle_brackets) == Some(message_id)
                && event["event"].as_str().is_some_and(|name| name != "rejected")
        };
        match events.iter().find(ours) {
            Some(event) => LookUpResult::Found {
                remote_id: Some(format!("<{message_id}>")),
                text: format!("Mailgun has an event {} of it", event["event"].as_str().unwrap_or_default()),
            },
            None if events.len() < PAGE_SIZE => LookUpResult::NotFound,
            None => LookUpResult::Unavailable("Mailgun lists more events than one page holds".into()),
        }
    }
}

/// A Message-ID without its angle brackets.
fn strip_angle_brackets(id: &str) -> &str {
    id.trim().trim_start_matches('<').trim_end_matches('>')
}
