//! A mail as AgentMail shows it, received or sent: `message_id` is its Message-ID, and its state shows in its labels.

use mailonce_core::{
    content::{Attachment, Content},
    email::Email,
    id::{EmailId, MessageId},
    inbox::Inbox,
    message::{Handle, Message, MessageFlag, Party},
    problem::{Code, Problem},
    team::Scope,
    time::Time,
};
use mailonce_engine::{
    labels::Labels,
    links::Linked,
    messages::{Body, View, own_words},
    threads::Said,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{door::Desk, labels::own_labels};

/// Characters of a preview.
const PREVIEW: usize = 200;

/// A mail with what callers made of its labels.
pub(super) struct Mail {
    pub(super) said: Said,
    pub(super) labels: Labels,
    /// What a mail of ours says; `None` for others, and once it was dropped.
    content: Option<Content>,
}

/// A file of a mail, by handle.
struct File<'a> {
    filename: Option<&'a str>,
    content_type: Option<&'a str>,
    content_id: Option<&'a str>,
    inline: bool,
    size: usize,
}

fn written(party: &Party) -> String {
    match &party.name {
        Some(name) => format!("{name} <{}>", party.address),
        None => party.address.clone(),
    }
}

fn mailbox(mailbox: &mailonce_core::address::Mailbox) -> String {
    match &mailbox.name {
        Some(name) => format!("{name} <{}>", mailbox.address),
        None => mailbox.address.clone(),
    }
}

/// The id under which AgentMail's callers know a mail.
pub(super) fn name_of(desk: &Desk, said: &Said) -> String {
    match said {
        Said::Email(email) => desk.engine.known_message_id(email),
        Said::Message(message) => message_name(message),
    }
}

/// Its Message-ID; our own id where it has none, one that another message had before, or one that a path cannot carry.
pub(super) fn message_name(message: &Message) -> String {
    let reused = message.head.flags.contains(&MessageFlag::MessageIdReused);
    let own = message.head.message_id.clone().filter(|id| !reused && is_speakable(id));
    own.unwrap_or_else(|| message.id.to_string())
}

/// Whether a Message-ID comes through a path as a package writes it that escapes nothing: what looks like the end of a
/// path, like an escape or like a step up would not.
fn is_speakable(id: &str) -> bool {
    !id.contains(['?', '#', '%', '\\']) && !id.contains("/.")
}

/// The thread of a mail. A mail that nobody answered yet is a thread of its own.
pub(super) fn thread_of(said: &Said) -> Uuid {
    match said {
        Said::Message(message) => message.thread.0,
        Said::Email(email) => email.head.thread.map_or(email.id.0, |thread| thread.0),
    }
}

/// Our own id of a mail.
pub(super) fn id_of(said: &Said) -> Uuid {
    match said {
        Said::Message(message) => message.id.0,
        Said::Email(email) => email.id.0,
    }
}

impl Mail {
    pub(super) async fn of(desk: &Desk, said: Said) -> Result<Self, Problem> {
        let labels = desk.engine.labels_of(&desk.caller, id_of(&said)).await?;
        let content = match &said {
            Said::Email(email) => desk.engine.email_view(&desk.caller, email.id).await?.content,
            Said::Message(_) => None,
        };
        Ok(Self { said, labels, content })
    }

    pub(super) fn labels(&self) -> Vec<String> {
        self.labels.on(own_labels(&self.said))
    }

    pub(super) fn at(&self) -> Time {
        self.said.at()
    }

    /// When it came or was said, ended or got other labels.
    pub(super) fn updated_at(&self) -> Time {
        let ended = match &self.said {
            Said::Email(email) => email.settled_at,
            Said::Message(_) => None,
        };
        [ended, self.labels.changed_at].into_iter().flatten().fold(self.at(), Time::max)
    }

    pub(super) fn from(&self) -> String {
        match (&self.said, &self.content) {
            (Said::Message(message), _) => message.head.from.as_ref().map(written).unwrap_or_default(),
            (Said::Email(_), Some(content)) => mailbox(&content.from),
            (Said::Email(email), None) => email.head.from.clone(),
        }
    }

    /// Recipients: to, copies, hidden copies.
    pub(super) fn people(&self) -> [Vec<String>; 3] {
        match (&self.said, &self.content) {
            (Said::Message(message), _) => {
                let all = |parties: &[Party]| parties.iter().map(written).collect();
                [all(&message.head.to), all(&message.head.cc), Vec::new()]
            }
            (Said::Email(_), Some(content)) => {
                [&content.to, &content.cc, &content.bcc].map(|all| all.iter().map(mailbox).collect())
            }
            (Said::Email(email), None) => [email.head.to.clone(), email.head.cc.clone(), email.head.bcc.clone()],
        }
    }

    pub(super) fn subject(&self) -> &str {
        match &self.said {
            Said::Message(message) => &message.head.subject,
            Said::Email(email) => &email.head.subject,
        }
    }

    pub(super) fn preview(&self) -> String {
        match (&self.said, &self.content) {
            (Said::Message(message), _) => message.head.preview.clone(),
            (Said::Email(_), content) => {
                let text = content.as_ref().and_then(|content| content.text.as_deref()).unwrap_or_default();
                text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(PREVIEW).collect()
            }
        }
    }

    pub(super) fn size(&self) -> u64 {
        match (&self.said, &self.content) {
            (Said::Message(message), _) => message.head.size,
            (Said::Email(_), Some(content)) => {
                let texts = [&content.text, &content.html].into_iter().flatten().map(String::len).sum::<usize>();
                (texts + content.attachments.iter().map(|file| file.bytes.len()).sum::<usize>()) as u64
            }
            (Said::Email(_), None) => 0,
        }
    }

    fn files(&self) -> Vec<File<'_>> {
        fn attached(file: &Attachment) -> File<'_> {
            File {
                filename: file.filename.as_deref(),
                content_type: file.content_type.as_deref(),
                content_id: file.content_id.as_deref(),
                inline: file.content_id.is_some(),
                size: file.bytes.len(),
            }
        }
        fn handle(handle: &Handle) -> File<'_> {
            File {
                filename: handle.filename.as_deref(),
                content_type: Some(&handle.content_type),
                content_id: handle.content_id.as_deref(),
                inline: handle.inline,
                size: handle.size as usize,
            }
        }
        match (&self.said, &self.content) {
            (Said::Message(message), _) => message.head.attachments.iter().map(handle).collect(),
            (Said::Email(_), Some(content)) => content.attachments.iter().map(attached).collect(),
            (Said::Email(_), None) => Vec::new(),
        }
    }

    /// The files that go with it, as AgentMail lists them.
    pub(super) fn attachments(&self) -> Vec<Value> {
        let id = id_of(&self.said).simple();
        let shown = |(n, file): (usize, &File<'_>)| file_body(&format!("{id}_{n}"), file);
        self.files().iter().enumerate().map(shown).collect()
    }

    /// A file of it with a link to its bytes; `None` when it has no such file.
    pub(super) fn attachment(&self, desk: &Desk, name: &str) -> Result<Option<Value>, Problem> {
        let number = name.strip_prefix(&format!("{}_", id_of(&self.said).simple()));
        let number = number.and_then(|number| number.parse::<usize>().ok());
        let files = self.files();
        let Some((number, file)) = number.and_then(|number| Some((number, files.get(number)?))) else {
            return Ok(None);
        };
        let mut body = file_body(name, file);
        let linked = match &self.said {
            Said::Message(message) => Linked::File(message.id, number),
            Said::Email(email) => Linked::SentFile(email.id, number),
        };
        open_for_a_while(desk, linked, &mut body).map(|()| Some(body))
    }

    /// The mail as it travelled, behind a link.
    pub(super) fn raw(&self, desk: &Desk) -> Result<Value, Problem> {
        let mut body = json!({ "message_id": name_of(desk, &self.said), "size": self.size() });
        let linked = match &self.said {
            Said::Message(message) => Linked::Raw(message.id),
            Said::Email(email) => Linked::SentRaw(email.id),
        };
        open_for_a_while(desk, linked, &mut body).map(|()| body)
    }

    /// What it answers, the closest last.
    fn references(&self) -> Vec<String> {
        match (&self.said, &self.content) {
            (Said::Message(message), _) => message.head.references.clone(),
            (Said::Email(_), Some(content)) => {
                let named = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("references");
                let found = content.headers.iter().find(named);
                found.map(|(_, ids)| ids.split_whitespace().map(str::to_owned).collect()).unwrap_or_default()
            }
            (Said::Email(_), None) => Vec::new(),
        }
    }

    /// A mail that nobody labelled, as far as is known.
    pub(super) fn bare(said: Said) -> Self {
        Self { said, labels: Labels::default(), content: None }
    }

    /// The id under which AgentMail's callers know it.
    pub(super) fn name(&self, desk: &Desk) -> String {
        name_of(desk, &self.said)
    }

    /// The mail as it stands in lists: without what it says.
    pub(super) fn item(&self, name: &str, inbox: &Inbox) -> Map<String, Value> {
        let [to, cc, bcc] = self.people();
        let (at, references) = (self.at().to_string(), self.references());
        let mut body = json!({
            "inbox_id": inbox.address,
            "thread_id": thread_of(&self.said).to_string(),
            "message_id": name,
            "labels": self.labels(),
            "timestamp": at,
            "from": self.from(),
            "to": to,
            "subject": self.subject(),
            "preview": self.preview(),
            "size": self.size(),
            "updated_at": self.updated_at().to_string(),
            "created_at": at,
        });
        let lists = [("cc", cc), ("bcc", bcc), ("reply_to", self.reply_to()), ("references", references.clone())];
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            body[name] = list.into();
        }
        if let Some(last) = references.last() {
            body["in_reply_to"] = last.as_str().into();
        }
        let files = self.attachments();
        if !files.is_empty() {
            body["attachments"] = files.into();
        }
        match body {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    fn reply_to(&self) -> Vec<String> {
        match (&self.said, &self.content) {
            (Said::Message(message), _) => message.head.reply_to.iter().map(written).collect(),
            (Said::Email(_), Some(content)) => content.reply_to.iter().map(mailbox).collect(),
            (Said::Email(_), None) => Vec::new(),
        }
    }

    /// The mail with what it says. Codes and links in it are hidden from callers without the scope `secrets`.
    pub(super) async fn whole(&self, desk: &Desk, inbox: &Inbox) -> Result<Value, Problem> {
        let mut body = self.item(&self.name(desk), inbox);
        let (text, html, headers) = self.words(desk).await?;
        if let Some(text) = text {
            body.insert("extracted_text".to_owned(), own_words(&text).into());
            body.insert("text".to_owned(), text.into());
        }
        if let Some(html) = html {
            body.insert("html".to_owned(), html.into());
        }
        if !headers.is_empty() {
            body.insert("headers".to_owned(), Value::Object(headers));
        }
        Ok(Value::Object(body))
    }

    /// Text, HTML and header fields.
    pub(super) async fn words(
        &self,
        desk: &Desk,
    ) -> Result<(Option<String>, Option<String>, Map<String, Value>), Problem> {
        let message = match &self.said {
            Said::Message(message) => message,
            Said::Email(_) => {
                let content = self.content.as_ref();
                let headers = content.map(|content| fields(&content.headers)).unwrap_or_default();
                let text = content.and_then(|content| content.text.clone());
                return Ok((text, content.and_then(|content| content.html.clone()), headers));
            }
        };
        let view = if desk.caller.key.may(Scope::Secrets) { View::Full } else { View::Plain };
        Ok(match desk.engine.show(&desk.caller, message.id, view).await?.body {
            Body::Full { text, html, headers, .. } => (text, html, fields(&headers)),
            Body::Plain { text } => (Some(text), None, Map::new()),
            Body::Min { .. } | Body::Gone => (None, None, Map::new()),
        })
    }
}

fn fields(headers: &[(String, String)]) -> Map<String, Value> {
    headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect()
}

fn file_body(name: &str, file: &File<'_>) -> Value {
    let disposition = if file.inline { "inline" } else { "attachment" };
    let mut body = json!({ "attachment_id": name, "size": file.size, "content_disposition": disposition });
    let texts = [("filename", file.filename), ("content_type", file.content_type), ("content_id", file.content_id)];
    for (name, text) in texts {
        if let Some(text) = text {
            body[name] = text.into();
        }
    }
    body
}

/// Adds a link, and until when it opens something.
pub(super) fn open_for_a_while(desk: &Desk, linked: Linked, body: &mut Value) -> Result<(), Problem> {
    let (token, until) = desk.engine.link(&desk.caller, linked)?;
    body["download_url"] = desk.link(&token).into();
    body["expires_at"] = until.to_string().into();
    Ok(())
}

/// The mail of an inbox that a path or a body names: by its Message-ID, or by our own id.
pub(super) async fn find(desk: &Desk, inbox: &Inbox, name: &str) -> Result<Mail, Problem> {
    let missing = || Problem::new(Code::NotFound, format!("there is no message {name}"));
    let said = match Uuid::try_parse(name) {
        Ok(id) => by_id(desk, inbox, id).await?,
        Err(_a_message_id) => desk.engine.mail_named(&desk.caller, inbox, name).await?,
    };
    let mail = Mail::of(desk, said.ok_or_else(missing)?).await?;
    if mail.labels.hidden { Err(missing()) } else { Ok(mail) }
}

async fn by_id(desk: &Desk, inbox: &Inbox, id: Uuid) -> Result<Option<Said>, Problem> {
    let engine = &desk.engine;
    match engine.message(&desk.caller, MessageId(id)).await {
        Ok(message) if message.inbox == inbox.id => return Ok(Some(Said::Message(Box::new(message)))),
        Err(problem) if problem.code != Code::NotFound => return Err(problem),
        _ => {}
    }
    match engine.email(&desk.caller, EmailId(id)).await {
        Ok(email) => Ok(sent_from(inbox, email)),
        Err(problem) if problem.code == Code::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

fn sent_from(inbox: &Inbox, email: Email) -> Option<Said> {
    (email.head.from == inbox.address).then(|| Said::Email(Box::new(email)))
}
