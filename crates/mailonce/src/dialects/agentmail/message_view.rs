//! An email in AgentMail's format, received or sent. `message_id` is its Message-ID; labels show its state.

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
    conversation::{links::LinkTarget, threads::ThreadEntry},
    inbox::{
        labels::LabelOverrides,
        messages::{MessageView, RenderedBody, strip_quoted},
    },
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::labels::system_labels;
use crate::dialects::agentmail::request::RequestContext;

/// Length of a preview in characters.
const PREVIEW_CHARS: usize = 200;

/// An email with the label changes of callers.
pub(super) struct AgentMailMessage {
    pub(super) entry: ThreadEntry,
    pub(super) labels: LabelOverrides,
    /// The content of a sent email; `None` for received ones, and after the content was deleted.
    content: Option<EmailContent>,
}

/// The metadata of an attachment.
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

/// The `message_id` of an email in this dialect.
pub(super) fn public_id(ctx: &RequestContext, entry: &ThreadEntry) -> String {
    match entry {
        ThreadEntry::Email(email) => ctx.engine.outbound.cache_message_id(email),
        ThreadEntry::Message(message) => message_public_id(message),
    }
}

/// The Message-ID of a received message. Its mailonce id replaces a Message-ID that is missing, was already used by
/// another message, or is not safe in a path.
pub(super) fn message_public_id(message: &Message) -> String {
    let reused = message.head.flags.contains(&MessageFlag::MessageIdReused);
    let message_id = message.head.message_id.clone().filter(|id| !reused && is_path_safe(id));
    message_id.unwrap_or_else(|| message.id.to_string())
}

/// Whether a Message-ID survives in a path that an SDK writes without escaping. Query and fragment delimiters, percent
/// escapes, backslashes, dot segments and empty segments would change the path.
fn is_path_safe(id: &str) -> bool {
    let has_empty_segment = id.contains("//") || id.starts_with('/') || id.ends_with('/');
    !id.contains(['?', '#', '%', '\\']) && !id.contains("/.") && !has_empty_segment
}

/// The thread id of an email. A sent email without a reply is a thread of its own.
pub(super) fn thread_id_of(entry: &ThreadEntry) -> Uuid {
    match entry {
        ThreadEntry::Message(message) => message.thread.0,
        ThreadEntry::Email(email) => email.head.thread.map_or(email.id.0, |thread| thread.0),
    }
}

/// The mailonce id of an entry of a thread: a message or an email.
pub(super) fn entry_id(entry: &ThreadEntry) -> Uuid {
    match entry {
        ThreadEntry::Message(message) => message.id.0,
        ThreadEntry::Email(email) => email.id.0,
    }
}

impl AgentMailMessage {
    pub(super) async fn load(ctx: &RequestContext, entry: ThreadEntry) -> Result<Self, Problem> {
        let labels = ctx.engine.inboxes.label_overrides(&ctx.caller, entry_id(&entry)).await?;
        let content = match &entry {
            ThreadEntry::Email(email) => ctx.engine.outbound.email_view(&ctx.caller, email.id).await?.content,
            ThreadEntry::Message(_) => None,
        };
        Ok(Self { entry, labels, content })
    }

    pub(super) fn labels(&self) -> Vec<String> {
        self.labels.apply_to(system_labels(&self.entry))
    }

    pub(super) fn timestamp(&self) -> Time {
        self.entry.at()
    }

    /// The latest of: received or accepted, settled, labels changed.
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

    /// The recipients: `to`, `cc` and `bcc`.
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

    /// The attachments, in AgentMail's format.
    pub(super) fn attachments(&self) -> Vec<Value> {
        let id = entry_id(&self.entry).simple();
        let to_json = |(n, file): (usize, &AttachmentRef<'_>)| attachment_json(&format!("{id}_{n}"), file);
        self.attachment_refs().iter().enumerate().map(to_json).collect()
    }

    /// One attachment with a download link; `None` if there is no such attachment.
    pub(super) fn attachment(&self, ctx: &RequestContext, name: &str) -> Result<Option<Value>, Problem> {
        let number = name.strip_prefix(&format!("{}_", entry_id(&self.entry).simple()));
        let number = number.and_then(|number| number.parse::<usize>().ok());
        let files = self.attachment_refs();
        let Some((number, file)) = number.and_then(|number| Some((number, files.get(number)?))) else {
            return Ok(None);
        };
        let mut body = attachment_json(name, file);
        let target = match &self.entry {
            ThreadEntry::Message(message) => LinkTarget::File(message.id, number),
            ThreadEntry::Email(email) => LinkTarget::SentFile(email.id, number),
        };
        add_download_link(ctx, target, &mut body).map(|()| Some(body))
    }

    /// A download link to the raw email.
    pub(super) fn raw_json(&self, ctx: &RequestContext) -> Result<Value, Problem> {
        let mut body = json!({ "message_id": public_id(ctx, &self.entry), "size": self.size() });
        let target = match &self.entry {
            ThreadEntry::Message(message) => LinkTarget::Raw(message.id),
            ThreadEntry::Email(email) => LinkTarget::SentRaw(email.id),
        };
        add_download_link(ctx, target, &mut body).map(|()| body)
    }

    /// The Message-IDs of `References`, the direct parent last.
    fn references(&self) -> Vec<String> {
        match (&self.entry, &self.content) {
            (ThreadEntry::Message(message), _) => message.head.references.clone(),
            (ThreadEntry::Email(_), Some(content)) => {
                let is_references = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("references");
                let found = content.headers.iter().find(is_references);
                found.map(|(_, ids)| ids.split_whitespace().map(str::to_owned).collect()).unwrap_or_default()
            }
            (ThreadEntry::Email(_), None) => Vec::new(),
        }
    }

    /// An email without loading its label changes and content.
    pub(super) fn without_labels(entry: ThreadEntry) -> Self {
        Self { entry, labels: LabelOverrides::default(), content: None }
    }

    /// The `message_id` of this email in the dialect.
    pub(super) fn public_id(&self, ctx: &RequestContext) -> String {
        public_id(ctx, &self.entry)
    }

    /// The email as a list item, without its content.
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

    /// The email with its content. Codes and links are masked if the key lacks the scope `secrets`.
    pub(super) async fn full_json(&self, ctx: &RequestContext, inbox: &Inbox) -> Result<Value, Problem> {
        let mut body = self.list_item(&self.public_id(ctx), inbox);
        let (text, html, headers) = self.content(ctx).await?;
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

    /// The text, the HTML and the header fields.
    pub(super) async fn content(
        &self,
        ctx: &RequestContext,
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
        let view = if ctx.caller.key.has_scope(ApiKeyScope::Secrets) { MessageView::Full } else { MessageView::Plain };
        Ok(match ctx.engine.inboxes.render_message(&ctx.caller, message.id, view).await?.body {
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

/// Adds a download link and its expiry time.
pub(super) fn add_download_link(ctx: &RequestContext, target: LinkTarget, body: &mut Value) -> Result<(), Problem> {
    let (token, expires_at) = ctx.engine.conversations.create_link(&ctx.caller, target)?;
    body["download_url"] = ctx.link_url(&token).into();
    body["expires_at"] = expires_at.to_string().into();
    Ok(())
}

/// Finds an email of an inbox by its Message-ID or by its mailonce id.
pub(super) async fn find(ctx: &RequestContext, inbox: &Inbox, name: &str) -> Result<AgentMailMessage, Problem> {
    let missing = || Problem::new(Code::NotFound, format!("there is no message {name}"));
    let entry = match Uuid::try_parse(name) {
        Ok(id) => by_id(ctx, inbox, id).await?,
        Err(_a_message_id) => ctx.engine.conversations.find_by_message_id(&ctx.caller, inbox, name).await?,
    };
    let mail = AgentMailMessage::load(ctx, entry.ok_or_else(missing)?).await?;
    if mail.labels.hidden { Err(missing()) } else { Ok(mail) }
}

async fn by_id(ctx: &RequestContext, inbox: &Inbox, id: Uuid) -> Result<Option<ThreadEntry>, Problem> {
    let engine = &ctx.engine;
    match engine.inboxes.message(&ctx.caller, MessageId(id)).await {
        Ok(message) if message.inbox == inbox.id => return Ok(Some(ThreadEntry::Message(Box::new(message)))),
        Err(problem) if problem.code != Code::NotFound => return Err(problem),
        _ => {}
    }
    match engine.outbound.email(&ctx.caller, EmailId(id)).await {
        Ok(email) => Ok(sent_from(inbox, email)),
        Err(problem) if problem.code == Code::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

fn sent_from(inbox: &Inbox, email: Email) -> Option<ThreadEntry> {
    (email.head.from == inbox.address).then(|| ThreadEntry::Email(Box::new(email)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_a_path_would_change_is_not_used() {
        for id in ["<a@x.test>", "<a/b@x.test>", "a@x.test"] {
            assert!(is_path_safe(id), "{id}");
        }
        for id in ["<a//b@x.test>", "/a@x.test", "a@x.test/", "<a/../b@x.test>", "<a?b@x.test>", "<a%2Fb@x.test>"] {
            assert!(!is_path_safe(id), "{id}");
        }
    }
}
