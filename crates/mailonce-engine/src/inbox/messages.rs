//! Looking at mail that came in: lists, views for models and for people, bytes, and every delivery with its reason.

use crate::{
    access::caller::Caller,
    inbox::{Inboxes, artifacts::may_see_value, inboxes::may_use},
    runtime::problems::unavailable,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::thread::Thread,
    id::{DeliveryId, InboxId, MessageId, TeamId, ThreadId},
    inbound::delivery::{Delivery, DeliveryQuery},
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
};
use std::collections::{HashMap, hash_map::Entry};

pub use mailonce_mail::{
    link::{CheckedLink, Purpose},
    minimise::Flag,
};

pub(crate) fn thread_not_found(id: ThreadId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no thread {id}"))
}

/// How a message is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageView {
    /// For models: only what a person would have read, fenced, secrets hidden.
    #[default]
    Min,
    /// The same for a model that has the credential of somebody else: secrets are hidden whoever asks, since several
    /// models may share one credential, and only taking a code gives it to one of them.
    Model,
    /// The text as it is, secrets hidden.
    Plain,
    /// Everything, HTML made harmless. Needs the scope `secrets`.
    Full,
}

impl MessageView {
    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "min" => Some(Self::Min),
            "plain" => Some(Self::Plain),
            "full" => Some(Self::Full),
            _ => None,
        }
    }
}

/// A message as somebody may see it.
#[derive(Clone, Debug)]
pub struct RenderedMessage {
    /// The message.
    pub message: Message,
    /// What was found in it, best first.
    pub artifacts: Vec<Artifact>,
    /// What it says.
    pub body: RenderedBody,
}

/// What a message says, in one of its views.
#[derive(Clone, Debug)]
pub enum RenderedBody {
    /// Its bytes are gone.
    Gone,
    /// For models.
    Min {
        /// Fenced text, what was taken out, and signs of trickery.
        view: minimise::MinimisedView,
        /// Its links with their verdicts.
        links: Vec<CheckedLink>,
    },
    /// The text.
    Plain {
        /// The visible text.
        text: String,
    },
    /// Everything.
    Full {
        /// The text.
        text: Option<String>,
        /// HTML without anything that acts or loads.
        html: Option<String>,
        /// The header fields in order.
        headers: Vec<(String, String)>,
        /// Its links with their verdicts.
        links: Vec<CheckedLink>,
    },
}

/// The bytes of one attachment.
#[derive(Clone, Debug)]
pub struct AttachmentBytes {
    /// A name without any path.
    pub filename: Option<String>,
    /// What it says it is.
    pub content_type: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What of a text its writer wrote, without older mails and a signature below it.
pub fn strip_quoted(text: &str) -> String {
    minimise::split_quotes(text).own_text
}

fn message_not_found(id: MessageId) -> Problem {
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
        // Whether somebody works on a message is written in its thread.
        query.state = wanted.map(|state| if state == MessageState::Leased { MessageState::Unanswered } else { state });
        let mut page = self.ctx.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
        self.mark_leased_messages(caller.team.id, &mut page.rows).await.map_err(unavailable)?;
        page.rows.retain(|message| wanted.is_none_or(|state| message.state == state));
        Ok(page)
    }

    /// A message in a view.
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
                let unseen = || {
                    !caller.key.has_scope(ApiKeyScope::Secrets)
                        && !artifacts.iter().all(|one| may_see_value(caller, one))
                };
                let hidden = view == MessageView::Model || unseen();
                let domains = self.inbox(caller, message.inbox).await?.settings.allowed_link_domains;
                let nonce = self.new_nonce();
                let drawn = tokio::task::spawn_blocking(move || render_body(&raw, view, hidden, domains, &nonce)).await;
                drawn.map_err(|_panicked| Problem::new(Code::Internal, "this message cannot be shown; read it raw"))?
            }
        };
        Ok(RenderedMessage { message, artifacts, body })
    }

    /// Words of strangers as a model may be shown them: between lines that nobody outside can forge.
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

    /// A message as it travelled. Needs the scope `secrets`.
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
            Problem::new(Code::NotFound, format!("the message has {} attachments, from 0", parsed.attachments.len()))
        })?;
        Ok(AttachmentBytes {
            filename: attachment.filename.clone(),
            content_type: attachment.content_type.clone(),
            bytes: attachment.decode(&raw),
        })
    }

    /// Deliveries, newest first: what arrived, how often, and what became of each.
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

    /// Lets a delivery that could not be read be tried again.
    pub async fn replay_delivery(&self, caller: &Caller, id: DeliveryId) -> Result<Delivery, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let delivery = self.delivery(caller, id).await?;
        if delivery.state != mailonce_core::inbound::delivery::DeliveryState::Dead {
            let detail = format!("this delivery is {}; only dead ones are read again", delivery.state.as_str());
            return Err(Problem::new(Code::NotDead, detail));
        }
        let replayed = self.ctx.store.replay_delivery(caller.team.id, id, self.ctx.now()).await.map_err(unavailable)?;
        replayed.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no delivery {id}")))
    }
}

/// Draws a view of the bytes. `hidden`: the reader may not see what was found.
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

    /// Says which unanswered messages somebody works on: those of threads that are leased.
    pub(crate) async fn mark_leased_messages(&self, team: TeamId, messages: &mut [Message]) -> Result<(), StoreError> {
        let now = self.ctx.now();
        let mut threads: HashMap<ThreadId, Option<Thread>> = HashMap::new();
        for message in messages.iter_mut().filter(|message| message.state == MessageState::Unanswered) {
            let thread = match threads.entry(message.thread) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(self.ctx.store.thread(team, message.thread).await?),
            };
            let lease = thread.as_ref().and_then(|thread| thread.active_lease(now));
            if lease.is_some_and(|lease| lease.message.is_none_or(|named| named == message.id)) {
                message.state = MessageState::Leased;
            }
        }
        Ok(())
    }
}
