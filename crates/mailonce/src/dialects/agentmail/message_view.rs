//! A mail as AgentMail shows it, received or sent: `message_id` is its Message-ID, and its state shows in its labels.

use mailonce_core::{
    access::team::ApiKeyScope,
    id::{EmailId, MessageId},
    inbox::{
        Inbox,
        message::{AttachmentInfo, Message, MessageFlag, Party},
    },
    outbound::{
        content::{Attachment, EmailContent},
        email::Email,
    },
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::{
    conversation::threads::ThreadEntry,
    inbox::{
        labels::LabelOverrides,
        links::LinkTarget,
        messages::{MessageView, RenderedBody, strip_quoted},
    },
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::labels::system_labels;
use crate::dialects::agentmail::request::RequestContext;

/// Characters of a preview.
const PREVIEW_CHARS: usize = 200;

/// A mail with what callers made of its labels.
pub(super) struct AgentMailMessage {
    pub(super) entry: ThreadEntry,
    pub(super) labels: LabelOverrides,
    /// What a mail of ours says; `None` for others, and once it was dropped.
    content: Option<EmailContent>,
}

/// A file of a mail, by handle.
struct AttachmentRef<'a> {
    filename: Option<&'a str>,
    content_type: Option<&'a str>,
    content_id: Option<&'a str>,
    inline: bool,
    size: usize,
}

fn format_party(party: &Party) -> String {
    match &party.name {
        Some(name) => format!("{name} <{}>", party.address),
        None => party.address.clone(),
    }
}

fn format_mailbox(mailbox: &mailonce_core::address::NamedAddress) -> String {
    match &mailbox.name {
        Some(name) => format!("{name} <{}>", mailbox.address),
        None => mailbox.address.clone(),
    }
}

/// The id under which AgentMail's callers know a mail.
pub(super) fn public_id(desk: &RequestContext, said: &ThreadEntry) -> String {
    match said {
        ThreadEntry::Email(email) => desk.engine.cache_message_id(email),
        ThreadEntry::Message(message) => message_public_id(message),
    }
}

/// Its Message-ID; our own id where it has none, one that another message had before, or one that a path cannot carry.
pub(super) fn message_public_id(message: &Message) -> String {
    let reused = message.head.flags.contains(&MessageFlag::MessageIdReused);
    let own = message.head.message_id.clone().filter(|id| !reused && is_path_safe(id));
    own.unwrap_or_else(|| message.id.to_string())
}

/// Whether a Message-ID comes through a path as a package writes it that escapes nothing: what looks like the end of a
/// path, like an escape or like a step up would not.
fn is_path_safe(id: &str) -> bool {
    !id.contains(['?', '#', '%', '\\']) && !id.contains("/.")
}

/// The thread of a mail. A mail that nobody answered yet is a thread of its own.
pub(super) fn thread_id_of(said: &ThreadEntry) -> Uuid {
    match said {
        ThreadEntry::Message(message) => message.thread.0,
        ThreadEntry::Email(email) => email.head.thread.map_or(email.id.0, |thread| thread.0),
    }
}

/// Our own id of a mail.
pub(super) fn entry_id(said: &ThreadEntry) -> Uuid {
    match said {
        ThreadEntry::Message(message) => message.id.0,
        ThreadEntry::Email(email) => email.id.0,
    }
}

impl AgentMailMessage {
    pub(super) async fn load(desk: &RequestContext, said: ThreadEntry) -> Result<Self, Problem> {
        let labels = desk.engine.label_overrides(&desk.caller, entry_id(&said)).await?;
        let content = match &said {
            ThreadEntry::Email(email) => desk.engine.email_view(&desk.caller, email.id).await?.content,
            ThreadEntry::Message(_) => None,
        };
        Ok(Self { entry: said, labels, content })
    }

    pub(super) fn labels(&self) -> Vec<String> {
        self.labels.apply_to(system_labels(&self.entry))
    }

    pub(super) fn timestamp(&self) -> Time {
        self.entry.at()
    }

    /// When it came or was said, ended or got other labels.
    pub(super) fn updated_at(&self) -> Time {
        let ended = match &self.entry {
            ThreadEntry::Email(email) => email.settled_at,
            ThreadEntry::Message(_) => None,
        };
        [ended, self.labels.changed_at].into_iter().flatten().fold(self.timestamp(), Time::max)
    }

    pub(super) fn from(&self) -> String {
        match (&self.entry, &self.content) {
            (ThreadEntry::Message(message), _) => message.head.from.as_ref().map(format_party).unwrap_or_default(),
            (ThreadEntry::Email(_), Some(content)) => format_mailbox(&content.from),
            (ThreadEntry::Email(email), None) => email.head.from.clone(),
        }
    }

    /// Recipients: to, copies, hidden copies.
    pub(super) fn recipients(&self) -> [Vec<String>; 3] {
        match (&self.entry, &self.content) {
            (ThreadEntry::Message(message), _) => {
                let all = |parties: &[Party]| parties.iter().map(format_party).collect();
                [all(&message.head.to), all(&message.head.cc), Vec::new()]
            }
            (ThreadEntry::Email(_), Some(content)) => {
                [&content.to, &content.cc, &content.bcc].map(|all| all.iter().map(format_mailbox).collect())
            }
            (ThreadEntry::Email(email), None) => [email.head.to.clone(), email.head.cc.clone(), email.head.bcc.clone()],
        }
    }

    pub(super) fn subject(&self) -> &str {
        match &self.entry {
            ThreadEntry::Message(message) => &message.head.subject,
            ThreadEntry::Email(email) => &email.head.subject,
        }
    }

    pub(super) fn preview(&self) -> String {
        match (&self.entry, &self.content) {
            (ThreadEntry::Message(message), _) => message.head.preview.clone(),
            (ThreadEntry::Email(_), content) => {
                let text = content.as_ref().and_then(|content| content.text.as_deref()).unwrap_or_default();
                text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(PREVIEW_CHARS).collect()
            }
        }
    }

    pub(super) fn size(&self) -> u64 {
        match (&self.entry, &self.content) {
            (ThreadEntry::Message(message), _) => message.head.size,
            (ThreadEntry::Email(_), Some(content)) => {
                let texts = [&content.text, &content.html].into_iter().flatten().map(String::len).sum::<usize>();
                (texts + content.attachments.iter().map(|file| file.bytes.len()).sum::<usize>()) as u64
            }
            (ThreadEntry::Email(_), None) => 0,
        }
    }

    fn attachment_refs(&self) -> Vec<AttachmentRef<'_>> {
        fn attached(file: &Attachment) -> AttachmentRef<'_> {
            AttachmentRef {
                filename: file.filename.as_deref(),
                content_type: file.content_type.as_deref(),
                content_id: file.content_id.as_deref(),
                inline: file.content_id.is_some(),
                size: file.bytes.len(),
            }
        }
        fn handle(handle: &AttachmentInfo) -> AttachmentRef<'_> {
            AttachmentRef {
                filename: handle.filename.as_deref(),
                content_type: Some(&handle.content_type),
                content_id: handle.content_id.as_deref(),
                inline: handle.inline,
                size: handle.size as usize,
            }
        }
        match (&self.entry, &self.content) {
            (ThreadEntry::Message(message), _) => message.head.attachments.iter().map(handle).collect(),
            (ThreadEntry::Email(_), Some(content)) => content.attachments.iter().map(attached).collect(),
            (ThreadEntry::Email(_), None) => Vec::new(),
        }
    }

    /// The files that go with it, as AgentMail lists them.
    pub(super) fn attachments(&self) -> Vec<Value> {
        let id = entry_id(&self.entry).simple();
        let shown = |(n, file): (usize, &AttachmentRef<'_>)| attachment_json(&format!("{id}_{n}"), file);
        self.attachment_refs().iter().enumerate().map(shown).collect()
    }

    /// A file of it with a link to its bytes; `None` when it has no such file.
    pub(super) fn attachment(&self, desk: &RequestContext, name: &str) -> Result<Option<Value>, Problem> {
        let number = name.strip_prefix(&format!("{}_", entry_id(&self.entry).simple()));
        let number = number.and_then(|number| number.parse::<usize>().ok());
        let files = self.attachment_refs();
        let Some((number, file)) = number.and_then(|number| Some((number, files.get(number)?))) else {
            return Ok(None);
        };
        let mut body = attachment_json(name, file);
        let linked = match &self.entry {
            ThreadEntry::Message(message) => LinkTarget::File(message.id, number),
            ThreadEntry::Email(email) => LinkTarget::SentFile(email.id, number),
        };
        add_download_link(desk, linked, &mut body).map(|()| Some(body))
    }

    /// The mail as it travelled, behind a link.
    pub(super) fn raw_json(&self, desk: &RequestContext) -> Result<Value, Problem> {
        let mut body = json!({ "message_id": public_id(desk, &self.entry), "size": self.size() });
        let linked = match &self.entry {
            ThreadEntry::Message(message) => LinkTarget::Raw(message.id),
            ThreadEntry::Email(email) => LinkTarget::SentRaw(email.id),
        };
        add_download_link(desk, linked, &mut body).map(|()| body)
    }

    /// What it answers, the closest last.
    fn references(&self) -> Vec<String> {
        match (&self.entry, &self.content) {
            (ThreadEntry::Message(message), _) => message.head.references.clone(),
            (ThreadEntry::Email(_), Some(content)) => {
                let named = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("references");
                let found = content.headers.iter().find(named);
                found.map(|(_, ids)| ids.split_whitespace().map(str::to_owned).collect()).unwrap_or_default()
            }
            (ThreadEntry::Email(_), None) => Vec::new(),
        }
    }

    /// A mail that nobody labelled, as far as is known.
    pub(super) fn without_labels(said: ThreadEntry) -> Self {
        Self { entry: said, labels: LabelOverrides::default(), content: None }
    }

    /// The id under which AgentMail's callers know it.
    pub(super) fn public_id(&self, desk: &RequestContext) -> String {
        public_id(desk, &self.entry)
    }

    /// The mail as it stands in lists: without what it says.
    pub(super) fn list_item(&self, name: &str, inbox: &Inbox) -> Map<String, Value> {
        let [to, cc, bcc] = self.recipients();
        let (at, references) = (self.timestamp().to_string(), self.references());
        let mut body = json!({
            "inbox_id": inbox.address,
            "thread_id": thread_id_of(&self.entry).to_string(),
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
        match (&self.entry, &self.content) {
            (ThreadEntry::Message(message), _) => message.head.reply_to.iter().map(format_party).collect(),
            (ThreadEntry::Email(_), Some(content)) => content.reply_to.iter().map(format_mailbox).collect(),
            (ThreadEntry::Email(_), None) => Vec::new(),
        }
    }

    /// The mail with what it says. Codes and links in it are hidden from callers without the scope `secrets`.
    pub(super) async fn full_json(&self, desk: &RequestContext, inbox: &Inbox) -> Result<Value, Problem> {
        let mut body = self.list_item(&self.public_id(desk), inbox);
        let (text, html, headers) = self.content(desk).await?;
        if let Some(text) = text {
            body.insert("extracted_text".to_owned(), strip_quoted(&text).into());
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
    pub(super) async fn content(
        &self,
        desk: &RequestContext,
    ) -> Result<(Option<String>, Option<String>, Map<String, Value>), Problem> {
        let message = match &self.entry {
            ThreadEntry::Message(message) => message,
            ThreadEntry::Email(_) => {
                let content = self.content.as_ref();
                let headers = content.map(|content| headers_json(&content.headers)).unwrap_or_default();
                let text = content.and_then(|content| content.text.clone());
                return Ok((text, content.and_then(|content| content.html.clone()), headers));
            }
        };
        let view = if desk.caller.key.has_scope(ApiKeyScope::Secrets) { MessageView::Full } else { MessageView::Plain };
        Ok(match desk.engine.render_message(&desk.caller, message.id, view).await?.body {
            RenderedBody::Full { text, html, headers, .. } => (text, html, headers_json(&headers)),
            RenderedBody::Plain { text } => (Some(text), None, Map::new()),
            RenderedBody::Min { .. } | RenderedBody::Gone => (None, None, Map::new()),
        })
    }
}

fn headers_json(headers: &[(String, String)]) -> Map<String, Value> {
    headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect()
}

fn attachment_json(name: &str, file: &AttachmentRef<'_>) -> Value {
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
pub(super) fn add_download_link(desk: &RequestContext, linked: LinkTarget, body: &mut Value) -> Result<(), Problem> {
    let (token, until) = desk.engine.create_link(&desk.caller, linked)?;
    body["download_url"] = desk.link_url(&token).into();
    body["expires_at"] = until.to_string().into();
    Ok(())
}

/// The mail of an inbox that a path or a body names: by its Message-ID, or by our own id.
pub(super) async fn find(desk: &RequestContext, inbox: &Inbox, name: &str) -> Result<AgentMailMessage, Problem> {
    let missing = || Problem::new(Code::NotFound, format!("there is no message {name}"));
    let said = match Uuid::try_parse(name) {
        Ok(id) => by_id(desk, inbox, id).await?,
        Err(_a_message_id) => desk.engine.find_by_message_id(&desk.caller, inbox, name).await?,
    };
    let mail = AgentMailMessage::load(desk, said.ok_or_else(missing)?).await?;
    if mail.labels.hidden { Err(missing()) } else { Ok(mail) }
}

async fn by_id(desk: &RequestContext, inbox: &Inbox, id: Uuid) -> Result<Option<ThreadEntry>, Problem> {
    let engine = &desk.engine;
    match engine.message(&desk.caller, MessageId(id)).await {
        Ok(message) if message.inbox == inbox.id => return Ok(Some(ThreadEntry::Message(Box::new(message)))),
        Err(problem) if problem.code != Code::NotFound => return Err(problem),
        _ => {}
    }
    match engine.email(&desk.caller, EmailId(id)).await {
        Ok(email) => Ok(sent_from(inbox, email)),
        Err(problem) if problem.code == Code::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

fn sent_from(inbox: &Inbox, email: Email) -> Option<ThreadEntry> {
    (email.head.from == inbox.address).then(|| ThreadEntry::Email(Box::new(email)))
}
