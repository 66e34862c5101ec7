//! Amazon SES, API version 2: `POST /v2/email/outbound-emails` with our own bytes, signed for each attempt.
//!
//! SES takes no key and cannot be asked by a value of ours. It can tell, though: a configuration set that publishes
//! `Send` events returns our tag `mailonce` with its own name for the mail. That is evidence for the engine.

use mailonce_core::{
    address::Mailbox,
    port::{
        Clock,
        transport::{Mail, Meaning, Parcel, Recovery, Reply, Transport, Unfit, Wire},
    },
};
use serde::Serialize;
use std::{fmt, sync::Arc};

use super::{
    BadSetting, Base, Call, Provider, Secret, Setting, carrier,
    form::{self, ID_NAME},
    sigv4::{Signed, Signer, stamp},
    wire::Answer,
};

const PATH: &str = "/v2/email/outbound-emails";
/// Bytes of a whole mail as base64.
const MAIL_BYTES: usize = 40 * 1024 * 1024;
const RECIPIENTS: usize = 50;
const TAG_CHARS: usize = 256;

/// What SES needs to know.
#[derive(Clone)]
pub struct Config {
    /// The public half of the credential.
    pub access_key_id: String,
    /// The secret half.
    pub secret_access_key: Secret,
    /// Of temporary credentials.
    pub session_token: Option<Secret>,
    /// Such as `eu-west-1`.
    pub region: String,
    /// The configuration set whose events are evidence.
    pub configuration_set: Option<String>,
    /// Signatures carry the time.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SES {} in {}", self.access_key_id, self.region)
    }
}

struct Ses(Config);

/// Mail by Amazon SES.
pub fn transport(setting: Setting, config: Config) -> Result<Arc<dyn Transport>, BadSetting> {
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !plain(&config.region) || !plain(&config.access_key_id) {
        return Err(BadSetting(format!("transport {} needs a region and an access key id", setting.name)));
    }
    let usual = format!("https://email.{}.amazonaws.com", config.region);
    let region = config.region.clone();
    carrier(setting, Ses(config), &usual, &region)
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Email<'a> {
    from_email_address: String,
    destination: Destination<'a>,
    content: Content,
    email_tags: Vec<Tag<'a>>,
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
struct Content {
    raw: Raw,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Raw {
    data: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Tag<'a> {
    name: &'a str,
    value: &'a str,
}

fn tags<'a>(mail: &Mail<'a>, id: &'a str) -> Result<Vec<Tag<'a>>, Unfit> {
    let mut tags = vec![Tag { name: ID_NAME, value: id }];
    for (name, value) in &mail.content.tags {
        let value = value.as_deref().unwrap_or("true");
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.@".contains(&b));
        if !plain(name) || !plain(value) || name.len() >= TAG_CHARS || value.len() >= TAG_CHARS {
            return Err(Unfit(format!(
                "SES takes tags of ASCII letters, digits, _, -, . and @; {name}={value} is none"
            )));
        }
        tags.push(Tag { name, value });
    }
    Ok(tags)
}

impl Provider for Ses {
    const KIND: &'static str = "ses";

    fn wire(&self) -> Wire {
        Wire::Mime
    }

    fn recovery(&self) -> Recovery {
        Recovery::None
    }

    fn secrets(&self) -> Vec<&Secret> {
        std::iter::once(&self.0.secret_access_key).chain(&self.0.session_token).collect()
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        let (content, id) = (mail.content, mail.id.to_string());
        form::within("recipients by SES", content.recipients().len(), RECIPIENTS)?;
        let body = form::json(&Email {
            from_email_address: form::mailbox(&content.from),
            destination: Destination {
                to_addresses: addresses(&content.to),
                cc_addresses: addresses(&content.cc),
                bcc_addresses: addresses(&content.bcc),
            },
            content: Content { raw: Raw { data: form::packed(form::mime(mail)?) } },
            email_tags: tags(mail, &id)?,
            configuration_set_name: self.0.configuration_set.as_deref(),
        })?;
        form::within("bytes of a mail by SES", body.len(), MAIL_BYTES)?;
        Ok(body)
    }

    fn call(&self, base: &Base, parcel: &Parcel) -> Call {
        let Config { access_key_id, secret_access_key: secret, session_token: token, region, clock, .. } = &self.0;
        let now = clock.now();
        let stamp = stamp(now);
        let path = format!("{}{PATH}", base.prefix);
        let mut headers =
            vec![("content-type", "application/json"), ("host", base.authority.as_str()), ("x-amz-date", &stamp)];
        headers.extend(token.iter().map(|token| ("x-amz-security-token", token.0.as_str())));
        let signer = Signer { access_key_id, secret, region, service: "ses" };
        let signed = Signed { method: "POST", path: &path, query: &[], headers: &headers, body: &parcel.bytes };
        let authorization = signer.authorization(&signed, now);
        let mut call = Call::json(PATH, parcel).with("X-Amz-Date", stamp).with("Authorization", authorization);
        if let Some(token) = token {
            call = call.with("X-Amz-Security-Token", &token.0);
        }
        call
    }

    fn judge(&self, answer: &Answer) -> Reply {
        if let (200, Some(id)) = (answer.status, answer.word("/MessageId")) {
            return answer.taken(id, "accepted");
        }
        let named = answer.header("x-amzn-errortype").map(str::to_owned).or_else(|| answer.word("/__type"));
        let name = named.as_deref().map(|name| name.split(':').next().unwrap_or(name).to_owned()).unwrap_or_default();
        let message = answer.word("/message").or_else(|| answer.word("/Message"));
        let said =
            message.map(|text| format!("{name}: {text}")).or_else(|| Some(name.clone()).filter(|n| !n.is_empty()));
        let text = said.clone().unwrap_or_default();
        match (answer.status, name.as_str()) {
            // SES words some troubles of the account and of the moment as a bad request.
            (400, "AccountSuspendedException" | "SendingPausedException") => answer.means(Meaning::Fault, &text),
            (400, "LimitExceededException" | "TooManyRequestsException" | "ThrottlingException" | "Throttling") => {
                answer.means(Meaning::Deferred, &text).after(answer.pause_ms())
            }
            _ => answer.by_status("SES", said),
        }
    }
}

fn addresses(list: &[Mailbox]) -> Vec<&str> {
    list.iter().map(|mailbox| mailbox.address.as_str()).collect()
}
