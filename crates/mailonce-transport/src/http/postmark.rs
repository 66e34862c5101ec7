//! Postmark: `POST /email`. It takes no key, but finds a mail again by a value we put into its metadata.

use mailonce_core::{
    content::Attachment,
    port::transport::{Asked, Found, Mail, Meaning, Parcel, Recovery, Reply, Transport, Unfit, Wire},
};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

use super::{
    BadSetting, Base, Call, Provider, Secret, Setting, carrier,
    form::{self, Labels},
    wire::Answer,
};

const USUAL_URL: &str = "https://api.postmarkapp.com";
/// The name of our correlation value: the search filters by `metadata_mailonce`.
const ID_NAME: &str = "mailonce";
/// A mail appears in the search some seconds after it was taken.
const SETTLE_MS: i64 = 60_000;
/// Bytes of all attachments together.
const ATTACHED_BYTES: usize = 10 * 1024 * 1024;
/// Bytes of a text or HTML body.
const BODY_BYTES: usize = 5 * 1024 * 1024;
/// Characters of a metadata name and value.
const NAME_CHARS: usize = 20;
const VALUE_CHARS: usize = 80;
/// Mails looked at in one search.
const PAGE: usize = 50;

/// What Postmark needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server's token.
    pub server_token: Secret,
    /// The message stream, `outbound` at most servers.
    pub message_stream: Option<String>,
}

struct Postmark(Config);

/// Mail by Postmark.
pub fn transport(setting: Setting, config: Config) -> Result<Arc<dyn Transport>, BadSetting> {
    let stream = config.message_stream.clone().unwrap_or_default();
    carrier(setting, Postmark(config), USUAL_URL, &stream)
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Email<'a> {
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
    headers: Vec<Header<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    attachments: Vec<File<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_stream: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Header<'a> {
    name: &'a str,
    value: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct File<'a> {
    name: String,
    content: String,
    content_type: &'a str,
    #[serde(rename = "ContentID", skip_serializing_if = "Option::is_none")]
    content_id: Option<String>,
}

impl<'a> File<'a> {
    fn of((index, attachment): (usize, &'a Attachment)) -> Self {
        Self {
            name: form::filename(index, attachment),
            content: form::packed(&attachment.bytes),
            content_type: form::content_type(attachment),
            content_id: form::content_id(attachment).map(|id| format!("cid:{id}")),
        }
    }
}

fn check(mail: &Mail<'_>, labels: &Labels) -> Result<(), Unfit> {
    let content = mail.content;
    form::within("bytes of attachments by Postmark", form::attached(content), ATTACHED_BYTES)?;
    for body in [&content.text, &content.html] {
        form::within("bytes of a body by Postmark", body.as_ref().map_or(0, String::len), BODY_BYTES)?;
    }
    form::within("tags without a value by Postmark", labels.bare.len(), 1)?;
    for (name, value) in &labels.named {
        form::within(&format!("characters of the metadata name {name} by Postmark"), name.chars().count(), NAME_CHARS)?;
        form::within(&format!("characters of metadata {name} by Postmark"), value.chars().count(), VALUE_CHARS)?;
    }
    Ok(())
}

impl Provider for Postmark {
    const KIND: &'static str = "postmark";

    fn wire(&self) -> Wire {
        Wire::Content
    }

    fn recovery(&self) -> Recovery {
        Recovery::LookUp { settle_ms: SETTLE_MS }
    }

    fn secrets(&self) -> Vec<&Secret> {
        vec![&self.0.server_token]
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        let content = mail.content;
        let mut labels = Labels::of(mail, ID_NAME)?;
        check(mail, &labels)?;
        // Postmark writes a Message-ID of its own unless it is told to keep ours.
        let ours = [("Message-ID", mail.message_id), ("X-PM-KeepID", "true")];
        let headers = form::headers(content, &ours);
        form::json(&Email {
            from: form::mailbox(&content.from),
            to: form::line(&content.to).unwrap_or_default(),
            cc: form::line(&content.cc),
            bcc: form::line(&content.bcc),
            reply_to: form::line(&content.reply_to),
            subject: &content.subject,
            text_body: content.text.as_deref(),
            html_body: content.html.as_deref(),
            tag: labels.bare.pop(),
            metadata: labels.named,
            headers: headers.into_iter().map(|(name, value)| Header { name, value }).collect(),
            attachments: content.attachments.iter().enumerate().map(File::of).collect(),
            message_stream: self.0.message_stream.as_deref(),
        })
    }

    fn call(&self, _base: &Base, parcel: &Parcel) -> Call {
        Call::json("/email", parcel).with("X-Postmark-Server-Token", &self.0.server_token.0)
    }

    fn visit(&self) -> Option<Call> {
        Some(Call::get("/server".into()).with("X-Postmark-Server-Token", &self.0.server_token.0))
    }

    fn judge(&self, answer: &Answer) -> Reply {
        let told = answer.object().unwrap_or(Value::Null);
        let code = told["ErrorCode"].as_i64();
        let said = told["Message"].as_str().map(|text| format!("{}: {text}", code.unwrap_or(-1)));
        match (answer.status, code, answer.word("/MessageID")) {
            (200, Some(0), Some(id)) => answer.taken(id, told["Message"].as_str().unwrap_or("OK")),
            // Out of credit, approval pending, sending forbidden: the account's trouble, not the mail's.
            (422, Some(405 | 412 | 413), _) => answer.means(Meaning::Fault, &said.unwrap_or_default()),
            // "The Postmark API is offline for maintenance": documented, and nothing was read.
            (503, Some(100), _) => answer.means(Meaning::Deferred, &said.unwrap_or_default()).after(answer.pause_ms()),
            _ => answer.by_status("Postmark", said),
        }
    }

    fn question(&self, asked: &Asked) -> Option<Call> {
        // Postmark reads dates as Eastern time; a day before is early enough in every zone.
        let day = asked.since.plus(-86_400_000).to_string().chars().take(10).collect::<String>();
        // The id alone names the mail. Recipients are known here in small letters only, and nobody says that the
        // filter for them overlooks case.
        let path =
            format!("/messages/outbound?count={PAGE}&offset=0&fromdate={day}&metadata_{ID_NAME}={}", asked.email);
        Some(Call::get(path).with("X-Postmark-Server-Token", &self.0.server_token.0))
    }

    fn found(&self, asked: &Asked, answer: &Answer) -> Found {
        let told = answer.object().unwrap_or(Value::Null);
        let (200, Some(mails)) = (answer.status, told["Messages"].as_array()) else {
            return Found::Silent(told["Message"].as_str().map_or_else(|| answer.excerpt(), str::to_owned));
        };
        let id = asked.email.to_string();
        // The filter is trusted only as far as the mails it brings bear our value.
        if let Some(ours) = mails.iter().find(|mail| mail["Metadata"][ID_NAME] == id.as_str()) {
            let text = format!("Postmark lists it as {}", ours["Status"].as_str().unwrap_or("taken"));
            return Found::Yes { remote_id: ours["MessageID"].as_str().map(str::to_owned), text };
        }
        match told["TotalCount"].as_u64() {
            Some(total) if total as usize <= mails.len() => Found::No,
            _ => Found::Silent("Postmark lists more mails than one page holds".into()),
        }
    }
}
