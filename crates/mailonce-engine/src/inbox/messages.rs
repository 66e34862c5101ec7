//! Reading received mail: message lists, views for models and for people, raw bytes, attachments, and deliveries with
//! their outcome.

use crate::{
    access::caller::Caller,
    inbox::{Inboxes, artifacts::may_see_value, inboxes::may_use},
    runtime::problems::unavailable,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::thread::Thread,
    id::{DeliveryId, InboxId, MessageId, TeamId, ThreadId},
    inbound::delivery::{Delivery, DeliveryQuery, DeliveryState},
    inbox::{
        Inbox,
        artifact::Artifact,
        message::{Message, MessagePage, MessageQuery, MessageState},
    },
    ports::store::StoreError,
    problem::{Code, Problem},
};
use mailonce_mail::{
    artifact::{self, ExtractedArtifacts},
    html::HtmlPage,
    link::{self, LinkPolicy},
    minimise,
    parse::{self, ParsedMail},
    quote::split_quotes,
};
use std::collections::{HashMap, hash_map::Entry};

pub use mailonce_mail::{
    link::{CheckedLink, Purpose},
    minimise::Flag,
};

pub(crate) fn thread_not_found(id: ThreadId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no thread {id}"))
}

/// How a message is rendered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageView {
    /// For models: only the text that a person would see, fenced. Codes and links are hidden unless the caller may see
    /// them.
    #[default]
    Min,
    /// The same, but codes and links are always hidden. Several models may share one API key, and a code must only go
    /// to the model that consumes it.
    Model,
    /// The visible text. Codes and links are hidden unless the caller may see them.
    Plain,
    /// Text, sanitized HTML and headers. Needs the scope `secrets`.
    Full,
}

impl MessageView {
    /// Parses the name of a view.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "min" => Some(Self::Min),
            "plain" => Some(Self::Plain),
            "full" => Some(Self::Full),
            _ => None,
        }
    }
}

/// A message as the caller may see it.
#[derive(Clone, Debug)]
pub struct RenderedMessage {
    /// The message.
    pub message: Message,
    /// The codes and links found in it, best first.
    pub artifacts: Vec<Artifact>,
    /// Its content in the requested view.
    pub body: RenderedBody,
}

/// The content of a message in one of its views.
#[derive(Clone, Debug)]
pub enum RenderedBody {
    /// The bytes of the message are no longer stored.
    Gone,
    /// The view for models.
    Min {
        /// The fenced text, what was removed from it, and signs of manipulation.
        view: minimise::MinimisedView,
        /// The links with their verdicts.
        links: Vec<CheckedLink>,
    },
    /// The view of the text alone.
    Plain {
        /// The visible text.
        text: String,
    },
    /// The full view.
    Full {
        /// The text part.
        text: Option<String>,
        /// The HTML part without scripts, forms and remote content.
        html: Option<String>,
        /// The header fields in order.
        headers: Vec<(String, String)>,
        /// The links with their verdicts.
        links: Vec<CheckedLink>,
    },
}

/// The bytes of one attachment.
#[derive(Clone, Debug)]
pub struct AttachmentBytes {
    /// The file name, without any path.
    pub filename: Option<String>,
    /// The content type that the mail declares.
    pub content_type: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The part of a text that its sender wrote, without quoted mails and the signature.
pub fn strip_quoted(text: &str) -> String {
    split_quotes(text).own_text
}

pub(crate) fn message_not_found(id: MessageId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no message {id}"))
}

fn raw_not_kept() -> Problem {
    Problem::new(Code::NotFound, "the bytes of this message are no longer kept")
}

impl Inboxes {
    /// One message of an inbox that the caller may use.
    pub async fn message(&self, caller: &Caller, id: MessageId) -> Result<Message, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let found = self.ctx.store.message(caller.team.id, id).await.map_err(unavailable)?;
        let mut messages = [found.ok_or_else(|| message_not_found(id))?];
        self.mark_leased_messages(caller.team.id, &mut messages).await.map_err(unavailable)?;
        let [message] = messages;
        self.inbox(caller, message.inbox).await.map_err(|_not_theirs| message_not_found(id))?;
        Ok(message)
    }

    /// Messages of an inbox.
    pub async fn messages(
        &self,
        caller: &Caller,
        inbox: InboxId,
        mut query: MessageQuery,
    ) -> Result<MessagePage, Problem> {
        self.inbox(caller, inbox).await?;
        let wanted = query.state;
        // Whether a message is leased is stored in its thread.
        query.state = wanted.map(|state| if state == MessageState::Leased { MessageState::Unanswered } else { state });
        let mut page = self.ctx.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
        self.mark_leased_messages(caller.team.id, &mut page.rows).await.map_err(unavailable)?;
        page.rows.retain(|message| wanted.is_none_or(|state| message.state == state));
        Ok(page)
    }

    /// Renders a message in a view.
    pub async fn render_message(
        &self,
        caller: &Caller,
        id: MessageId,
        view: MessageView,
    ) -> Result<RenderedMessage, Problem> {
        let message = self.message(caller, id).await?;
        if view == MessageView::Full {
            caller.require_scope(ApiKeyScope::Secrets)?;
        }
        let artifacts = self.artifacts_of(caller, id).await?;
        let body = match self.raw_bytes(&message).await? {
            None => RenderedBody::Gone,
            Some(raw) => {
                let has_unseen_value = || {
                    !caller.key.has_scope(ApiKeyScope::Secrets)
                        && !artifacts.iter().all(|one| may_see_value(caller, one))
                };
                let hidden = view == MessageView::Model || has_unseen_value();
                let domains = self.inbox(caller, message.inbox).await?.settings.allowed_link_domains;
                let nonce = self.new_nonce();
                let rendered =
                    tokio::task::spawn_blocking(move || render_body(&raw, view, hidden, domains, &nonce)).await;
                rendered
                    .map_err(|_panicked| Problem::new(Code::Internal, "this message cannot be shown; read it raw"))?
            }
        };
        Ok(RenderedMessage { message, artifacts, body })
    }

    /// Wraps untrusted text for a model between delimiter lines that a sender cannot forge.
    pub fn fence_untrusted(&self, lines: &[String]) -> String {
        let lines: Vec<String> = lines.iter().map(|text| minimise::sanitize_line(text)).collect();
        minimise::wrap_untrusted(&lines.join("\n"), &self.new_nonce())
    }

    fn new_nonce(&self) -> String {
        let mut bytes = [0; 12];
        self.ctx.entropy.fill(&mut bytes);
        crate::runtime::hex::hex(&bytes)
    }

    pub(crate) async fn raw_bytes(&self, message: &Message) -> Result<Option<Vec<u8>>, Problem> {
        let packed = self.ctx.store.raw_message(message.team, message.id).await.map_err(unavailable)?;
        Ok(packed.and_then(|packed| self.ctx.packer.unpack_raw(&packed)))
    }

    /// The raw bytes of a message. Needs the scope `secrets`.
    pub async fn raw_message(&self, caller: &Caller, id: MessageId) -> Result<Vec<u8>, Problem> {
        let message = self.message(caller, id).await?;
        caller.require_scope(ApiKeyScope::Secrets)?;
        self.raw_bytes(&message).await?.ok_or_else(raw_not_kept)
    }

    /// The bytes of one attachment.
    pub async fn attachment(&self, caller: &Caller, id: MessageId, number: usize) -> Result<AttachmentBytes, Problem> {
        let message = self.message(caller, id).await?;
        let raw = self.raw_bytes(&message).await?.ok_or_else(raw_not_kept)?;
        let parsed = parse::parse(&raw);
        let found = parsed.attachments.get(number);
        let attachment = found.ok_or_else(|| {
            Problem::new(
                Code::NotFound,
                format!("the message has {} attachments, numbered from 0", parsed.attachments.len()),
            )
        })?;
        Ok(AttachmentBytes {
            filename: attachment.filename.clone(),
            content_type: attachment.content_type.clone(),
            bytes: attachment.decode(&raw),
        })
    }

    /// Deliveries with their outcome, newest first. Without an inbox in the query, only admins may list them.
    pub async fn deliveries(&self, caller: &Caller, query: DeliveryQuery) -> Result<Vec<Delivery>, Problem> {
        if let Some(inbox) = query.inbox {
            self.inbox(caller, inbox).await?;
        } else {
            caller.require_scope(ApiKeyScope::Admin)?;
            caller.require_unrestricted_key()?;
        }
        self.ctx.store.deliveries(caller.team.id, query).await.map_err(unavailable)
    }

    /// One delivery.
    pub async fn delivery(&self, caller: &Caller, id: DeliveryId) -> Result<Delivery, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let missing = || Problem::new(Code::NotFound, format!("there is no delivery {id}"));
        let found = self.ctx.store.delivery(caller.team.id, id).await.map_err(unavailable)?;
        let delivery = found.ok_or_else(missing)?;
        if let Some(inbox) = delivery.target.inbox() {
            self.inbox(caller, inbox).await.map_err(|_not_theirs| missing())?;
        } else {
            caller.require_scope(ApiKeyScope::Admin)?;
            caller.require_unrestricted_key().map_err(|_not_theirs| missing())?;
        }
        Ok(delivery)
    }

    /// Replays a dead delivery: the worker processes it again.
    pub async fn replay_delivery(&self, caller: &Caller, id: DeliveryId) -> Result<Delivery, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let delivery = self.delivery(caller, id).await?;
        if delivery.state != DeliveryState::Dead {
            let detail = format!("this delivery is {}; only dead deliveries can be replayed", delivery.state.as_str());
            return Err(Problem::new(Code::NotDead, detail));
        }
        let replayed = self.ctx.store.replay_delivery(caller.team.id, id, self.ctx.now()).await.map_err(unavailable)?;
        let replayed = replayed.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no delivery {id}")))?;
        if replayed.state == DeliveryState::Dead {
            let detail =
                "the bytes of this delivery were deleted by the team's `retention.raw`, so it cannot be replayed";
            return Err(Problem::new(Code::NotFound, detail));
        }
        Ok(replayed)
    }
}

/// Renders the bytes of a mail in a view. With `hidden`, codes and links are redacted.
pub(crate) fn render_body(
    raw: &[u8],
    view: MessageView,
    hidden: bool,
    domains: Vec<String>,
    nonce: &str,
) -> RenderedBody {
    let parsed = parse::parse(raw);
    let page = parsed.html.as_deref().map(HtmlPage::parse);
    let sender = parsed.from.first().map(|from| from.to_address().domain().to_owned());
    let links =
        link::check_links(&parsed, page.as_ref(), &LinkPolicy { allowed_domains: domains, sender_domain: sender });
    let found = if hidden { artifact::extract(&parsed, page.as_ref(), &links) } else { ExtractedArtifacts::default() };
    match view {
        MessageView::Min | MessageView::Model => {
            RenderedBody::Min { view: minimise::build_view(&parsed, page.as_ref(), &found, nonce), links }
        }
        MessageView::Plain => {
            let text = minimise::visible_text(&parsed, page.as_ref());
            RenderedBody::Plain { text: if hidden { artifact::redact_text(&text, &found) } else { text } }
        }
        MessageView::Full => render_full(parsed, page, links),
    }
}

fn render_full(parsed: ParsedMail, page: Option<HtmlPage>, links: Vec<CheckedLink>) -> RenderedBody {
    let headers = parsed.headers.0.into_iter().map(|field| (field.name, field.value)).collect();
    RenderedBody::Full { text: parsed.text, html: page.map(|page| page.clean_html), headers, links }
}

impl Inboxes {
    /// A thread in an inbox that the caller may use.
    pub async fn thread(&self, caller: &Caller, id: ThreadId) -> Result<(Thread, Inbox), Problem> {
        let found = self.ctx.store.thread(caller.team.id, id).await.map_err(unavailable)?;
        let thread = found.ok_or_else(|| thread_not_found(id))?;
        let inbox = self.ctx.store.inbox(caller.team.id, thread.inbox).await.map_err(unavailable)?;
        let inbox = inbox.filter(|inbox| may_use(caller, inbox)).ok_or_else(|| thread_not_found(id))?;
        Ok((thread, inbox))
    }

    /// Sets the state `leased` on unanswered messages whose thread has an active lease for them.
    pub(crate) async fn mark_leased_messages(&self, team: TeamId, messages: &mut [Message]) -> Result<(), StoreError> {
        let now = self.ctx.now();
        let mut threads: HashMap<ThreadId, Option<Thread>> = HashMap::new();
        for message in messages.iter_mut().filter(|message| message.state == MessageState::Unanswered) {
            let thread = match threads.entry(message.thread) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(vacant) => vacant.insert(self.ctx.store.thread(team, message.thread).await?),
            };
            let lease = thread.as_ref().and_then(|thread| thread.active_lease(now));
            if lease.is_some_and(|lease| lease.message.is_none_or(|leased| leased == message.id)) {
                message.state = MessageState::Leased;
            }
        }
        Ok(())
    }
}
