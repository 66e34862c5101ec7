//! SendGrid: `POST /v3/mail/send`. It takes no key; the activity feed, which is paid for, can be asked.

use mailonce_core::{
    address::Mailbox,
    content::Attachment,
    port::transport::{Asked, Found, Mail, Parcel, Recovery, Reply, Transport, Unfit, Wire},
};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    BadSetting, Base, Call, Provider, Secret, Setting,
    base::escaped,
    carrier,
    form::{self, ID_NAME, Labels, Person},
    wire::Answer,
};

const USUAL_URL: &str = "https://api.sendgrid.com";
/// The activity feed follows minutes behind.
const SETTLE_MS: i64 = 5 * 60_000;
/// Bytes of a whole mail.
const MAIL_BYTES: usize = 30 * 1024 * 1024;
const CATEGORIES: usize = 10;
const CATEGORY_CHARS: usize = 255;
/// Bytes of all custom arguments.
const ARGUMENT_BYTES: usize = 10_000;

/// What SendGrid needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The API key.
    pub api_key: Secret,
    /// Whether the account has bought the activity history and the key may read it. Without it nothing can be asked.
    pub lookup: bool,
}

struct SendGrid(Config);

/// Mail by SendGrid.
pub fn transport(setting: Setting, config: Config) -> Result<Arc<dyn Transport>, BadSetting> {
    carrier(setting, SendGrid(config), USUAL_URL, "")
}

#[derive(Serialize)]
struct Email<'a> {
    personalizations: [Envelope<'a>; 1],
    from: Person<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<Person<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    reply_to_list: Vec<Person<'a>>,
    subject: &'a str,
    content: Vec<Part<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    attachments: Vec<File<'a>>,
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "form::none")]
    categories: Vec<String>,
    custom_args: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    to: Vec<Person<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    cc: Vec<Person<'a>>,
    #[serde(skip_serializing_if = "form::none")]
    bcc: Vec<Person<'a>>,
}

impl<'a> Envelope<'a> {
    /// SendGrid refuses a mail that names an address twice; the first place counts, as it does for the recipient.
    fn of(mail: &Mail<'a>) -> Self {
        let mut seen = BTreeSet::new();
        let mut fresh = |list: &'a [Mailbox]| -> Vec<Person<'a>> {
            list.iter().filter(|mailbox| seen.insert(mailbox.bare())).map(Person::of).collect()
        };
        Self { to: fresh(&mail.content.to), cc: fresh(&mail.content.cc), bcc: fresh(&mail.content.bcc) }
    }
}

#[derive(Serialize)]
struct Part<'a> {
    r#type: &'static str,
    value: &'a str,
}

#[derive(Serialize)]
struct File<'a> {
    content: String,
    r#type: &'a str,
    filename: String,
    disposition: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_id: Option<&'a str>,
}

impl<'a> File<'a> {
    fn of((index, attachment): (usize, &'a Attachment)) -> Self {
        let content_id = form::content_id(attachment);
        Self {
            content: form::packed(&attachment.bytes),
            r#type: form::content_type(attachment),
            filename: form::filename(index, attachment),
            disposition: if content_id.is_some() { "inline" } else { "attachment" },
            content_id,
        }
    }
}

fn check(mail: &Mail<'_>, labels: &Labels) -> Result<(), Unfit> {
    if mail.content.subject.is_empty() {
        return Err(Unfit("SendGrid takes no mail without a subject".into()));
    }
    form::within("tags without a value by SendGrid", labels.bare.len(), CATEGORIES)?;
    for tag in &labels.bare {
        form::within(&format!("characters of the tag {tag} by SendGrid"), tag.chars().count(), CATEGORY_CHARS)?;
    }
    let bytes = labels.named.iter().map(|(name, value)| name.len() + value.len()).sum();
    form::within("bytes of metadata by SendGrid", bytes, ARGUMENT_BYTES)
}

impl Provider for SendGrid {
    const KIND: &'static str = "sendgrid";

    fn wire(&self) -> Wire {
        Wire::Content
    }

    fn recovery(&self) -> Recovery {
        if self.0.lookup { Recovery::LookUp { settle_ms: SETTLE_MS } } else { Recovery::None }
    }

    fn secrets(&self) -> Vec<&Secret> {
        vec![&self.0.api_key]
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        let content = mail.content;
        let labels = Labels::of(mail, ID_NAME)?;
        check(mail, &labels)?;
        let text = content.text.as_deref().map(|value| Part { r#type: "text/plain", value });
        let html = content.html.as_deref().map(|value| Part { r#type: "text/html", value });
        let (reply_to, reply_to_list) = match content.reply_to.as_slice() {
            [one] => (Some(Person::of(one)), Vec::new()),
            many => (None, Person::all(many)),
        };
        let body = form::json(&Email {
            personalizations: [Envelope::of(mail)],
            from: Person::of(&content.from),
            reply_to,
            reply_to_list,
            subject: &content.subject,
            // Text must stand before HTML.
            content: text.into_iter().chain(html).collect(),
            attachments: content.attachments.iter().enumerate().map(File::of).collect(),
            headers: form::headers(content, &[("Message-ID", mail.message_id)]),
            categories: labels.bare,
            custom_args: labels.named,
        })?;
        form::within("bytes of a mail by SendGrid", body.len(), MAIL_BYTES)?;
        Ok(body)
    }

    fn call(&self, _base: &Base, parcel: &Parcel) -> Call {
        Call::json("/v3/mail/send", parcel).bearer(&self.0.api_key)
    }

    fn visit(&self) -> Option<Call> {
        Some(Call::get("/v3/scopes".into()).bearer(&self.0.api_key))
    }

    fn judge(&self, answer: &Answer) -> Reply {
        // The acceptance is an empty 202 that names the mail in a header. A 200 only says that the mail was well
        // formed (sandbox mode), and a 202 without the name is not SendGrid's.
        match (answer.status, answer.header("x-message-id")) {
            (202, Some(id)) if !id.is_empty() => answer.taken(id.to_owned(), "accepted"),
            _ => answer.by_status("SendGrid", answer.word("/errors/0/message")),
        }
    }

    fn question(&self, asked: &Asked) -> Option<Call> {
        let query = format!("(unique_args['{ID_NAME}']=\"{}\")", asked.email);
        let call = Call::get(format!("/v3/messages?limit=10&query={}", escaped(&query)));
        self.0.lookup.then(|| call.bearer(&self.0.api_key))
    }

    fn found(&self, asked: &Asked, answer: &Answer) -> Found {
        let told = answer.object().unwrap_or(Value::Null);
        let (200, Some(mails)) = (answer.status, told["messages"].as_array()) else {
            let said = answer.word("/errors/0/message");
            return Found::Silent(said.unwrap_or_else(|| answer.excerpt()));
        };
        // The list does not show the argument it was filtered by; a mail to somebody else would betray a filter that
        // was not heeded.
        let ours = |mail: &&Value| {
            let to = mail["to_email"].as_str().unwrap_or_default();
            asked.recipients.iter().any(|recipient| recipient.eq_ignore_ascii_case(to))
        };
        match mails.iter().find(ours) {
            Some(mail) if mails.iter().all(|mail| ours(&mail)) => Found::Yes {
                remote_id: mail["msg_id"].as_str().map(str::to_owned),
                text: format!("SendGrid lists it as {}", mail["status"].as_str().unwrap_or("taken")),
            },
            None if mails.is_empty() => Found::No,
            _ => Found::Silent("SendGrid lists mails to others than the recipients".into()),
        }
    }
}
