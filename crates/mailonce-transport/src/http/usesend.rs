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
use mailonce_core::port::transport::{Asked, Found, Mail, Meaning, Parcel, Recovery, Reply, Transport, Unfit, Wire};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

use super::{
    BadSetting, Base, Call, Provider, Secret, Setting, carrier,
    form::{self, ID_HEADER},
    wire::Answer,
};

const USUAL_URL: &str = "https://app.usesend.com";
const PATH: &str = "/api/v1/emails";
/// Longer than useSend's lock of 60 s: afterwards no earlier request of ours holds it.
const SETTLE_MS: i64 = 90_000;
const ATTACHMENTS: usize = 10;
/// Both conflicts have one code, `NOT_UNIQUE`; only the words tell them apart.
const IN_PROGRESS: &str = "in progress";
const OTHER_PAYLOAD: &str = "different payload";
/// Well formed, and never a mail.
const QUESTION: &str = r#"{"from":"question@mailonce.invalid","to":"question@mailonce.invalid","subject":"Is this key known?","text":"Is this key known?","inReplyToId":"mailonce-asks"}"#;

struct UseSend {
    api_key: Secret,
}

/// Mail by useSend. `base_url` is the instance itself; `/api/v1` is added.
pub fn transport(setting: Setting, api_key: Secret) -> Result<Arc<dyn Transport>, BadSetting> {
    carrier(setting, UseSend { api_key }, USUAL_URL, "")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Email<'a> {
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
    attachments: Vec<File>,
}

#[derive(Serialize)]
struct File {
    filename: String,
    content: String,
}

fn check(mail: &Mail<'_>) -> Result<(), Unfit> {
    let content = mail.content;
    if content.subject.is_empty() {
        return Err(Unfit("useSend takes no mail without a subject".into()));
    }
    form::within("attachments by useSend", content.attachments.len(), ATTACHMENTS)?;
    if content.attachments.iter().any(|file| form::content_id(file).is_some()) {
        return Err(Unfit("useSend takes no inline files; an attachment has a content_id".into()));
    }
    if content.attachments.iter().any(|file| file.bytes.is_empty()) {
        return Err(Unfit("useSend takes no empty attachments".into()));
    }
    // useSend would drop these words without saying so.
    if matches!(content.html.as_deref(), Some("true" | "false")) {
        return Err(Unfit("useSend discards an html body that is only true or false".into()));
    }
    Ok(())
}

impl UseSend {
    fn keyed(&self, call: Call, key: uuid::Uuid) -> Call {
        call.bearer(&self.api_key).with("Idempotency-Key", key.as_hyphenated().to_string())
    }
}

fn said(answer: &Answer) -> Option<String> {
    let text = answer.word("/error/message")?;
    Some(format!("{}: {text}", answer.word("/error/code").as_deref().unwrap_or("error")))
}

impl Provider for UseSend {
    const KIND: &'static str = "usesend";

    fn wire(&self) -> Wire {
        Wire::Content
    }

    fn recovery(&self) -> Recovery {
        Recovery::LookUp { settle_ms: SETTLE_MS }
    }

    fn secrets(&self) -> Vec<&Secret> {
        vec![&self.api_key]
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        check(mail)?;
        let (content, id) = (mail.content, mail.id.to_string());
        let file = |(i, a): (usize, &_)| File { filename: form::filename(i, a), content: form::packed(&a.bytes) };
        form::json(&Email {
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

    fn call(&self, _base: &Base, parcel: &Parcel) -> Call {
        self.keyed(Call::json(PATH, parcel), parcel.key)
    }

    fn visit(&self) -> Option<Call> {
        Some(Call::get("/api/v1/domains".into()).bearer(&self.api_key))
    }

    fn judge(&self, answer: &Answer) -> Reply {
        if let (200, Some(id)) = (answer.status, answer.word("/emailId")) {
            return answer.taken(id, "accepted");
        }
        let said = said(answer);
        match (answer.status, said.as_deref()) {
            (409, Some(text)) if text.contains(IN_PROGRESS) => {
                answer.means(Meaning::Concurrent, text).after(answer.pause_ms())
            }
            (409, Some(text)) if text.contains(OTHER_PAYLOAD) => answer.means(Meaning::Mismatch, text),
            _ => answer.by_status("useSend", said),
        }
    }

    fn question(&self, asked: &Asked) -> Option<Call> {
        let body = Bytes::from_static(QUESTION.as_bytes());
        Some(self.keyed(Call::post(PATH, "application/json", body), asked.key))
    }

    fn found(&self, _asked: &Asked, answer: &Answer) -> Found {
        let text = said(answer).unwrap_or_else(|| answer.excerpt());
        // Only a refusal of the question's own sender or answered mail shows that the key was looked up before and was
        // not known. A schema error comes earlier and shows nothing.
        let unknown_key = text.contains("Domain:") || text.contains("domain:") || text.contains("inReplyTo");
        match answer.status {
            409 if text.contains(OTHER_PAYLOAD) => {
                Found::Yes { remote_id: None, text: "useSend knows the key for an earlier request".into() }
            }
            400 | 403 if unknown_key => Found::No,
            _ => Found::Silent(text),
        }
    }
}
