//! Looking at mail that came in: lists, views for models and for people, bytes, and every delivery with its reason.

use mailonce_core::{
    artifact::Artifact,
    delivery::{Delivery, DeliveryQuery},
    id::{DeliveryId, InboxId, MessageId},
    message::{Message, MessagePage, MessageQuery, MessageState},
    problem::{Code, Problem},
    team::Scope,
};
use mailonce_mail::{
    artifact::{self, Found},
    html::Page,
    link::{self, Policy},
    minimise,
    parse::{self, Parsed},
};

pub use mailonce_mail::{
    link::{Link, Purpose},
    minimise::Flag,
};

use crate::{Caller, Engine, artifacts::may_see, unavailable};

/// How a message is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
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

impl View {
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
pub struct Shown {
    /// The message.
    pub message: Message,
    /// What was found in it, best first.
    pub artifacts: Vec<Artifact>,
    /// What it says.
    pub body: Body,
}

/// What a message says, in one of its views.
#[derive(Clone, Debug)]
pub enum Body {
    /// Its bytes are gone.
    Gone,
    /// For models.
    Min {
        /// Fenced text, what was taken out, and signs of trickery.
        view: minimise::View,
        /// Its links with their verdicts.
        links: Vec<Link>,
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
        links: Vec<Link>,
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
pub fn own_words(text: &str) -> String {
    minimise::split(text).own
}

fn missing(id: MessageId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no message {id}"))
}

fn no_bytes() -> Problem {
    Problem::new(Code::NotFound, "the bytes of this message are no longer kept")
}

impl Engine {
    /// One message of an inbox that the caller may use.
    pub async fn message(&self, caller: &Caller, id: MessageId) -> Result<Message, Problem> {
        caller.need(Scope::Read)?;
        let found = self.store.message(caller.team.id, id).await.map_err(unavailable)?;
        let mut messages = [found.ok_or_else(|| missing(id))?];
        self.derive_states(caller.team.id, &mut messages).await.map_err(unavailable)?;
        let [message] = messages;
        self.inbox(caller, message.inbox).await.map_err(|_not_theirs| missing(id))?;
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
        let mut page = self.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
        self.derive_states(caller.team.id, &mut page.rows).await.map_err(unavailable)?;
        page.rows.retain(|message| wanted.is_none_or(|state| message.state == state));
        Ok(page)
    }

    /// A message in a view.
    pub async fn show(&self, caller: &Caller, id: MessageId, view: View) -> Result<Shown, Problem> {
        let message = self.message(caller, id).await?;
        if view == View::Full {
            caller.need(Scope::Secrets)?;
        }
        let artifacts = self.artifacts_of(caller, id).await?;
        let body = match self.bytes_of(&message).await? {
            None => Body::Gone,
            Some(raw) => {
                let unseen = || !caller.key.may(Scope::Secrets) && !artifacts.iter().all(|one| may_see(caller, one));
                let hidden = view == View::Model || unseen();
                let domains = self.inbox(caller, message.inbox).await?.about.link_domains;
                let nonce = self.nonce();
                let drawn = tokio::task::spawn_blocking(move || draw(&raw, view, hidden, domains, &nonce)).await;
                drawn.map_err(|_panicked| Problem::new(Code::Internal, "this message cannot be shown; read it raw"))?
            }
        };
        Ok(Shown { message, artifacts, body })
    }

    /// Words of strangers as a model may be shown them: between lines that nobody outside can forge.
    pub fn fenced(&self, lines: &[String]) -> String {
        let lines: Vec<String> = lines.iter().map(|text| minimise::line(text)).collect();
        minimise::fence(&lines.join("\n"), &self.nonce())
    }

    fn nonce(&self) -> String {
        let mut bytes = [0; 12];
        self.chance.fill(&mut bytes);
        crate::hex(&bytes)
    }

    pub(crate) async fn bytes_of(&self, message: &Message) -> Result<Option<Vec<u8>>, Problem> {
        let packed = self.store.raw(message.team, message.id).await.map_err(unavailable)?;
        Ok(packed.and_then(|packed| self.bodies.unpack_raw(&packed)))
    }

    /// A message as it travelled. Needs the scope `secrets`.
    pub async fn raw_message(&self, caller: &Caller, id: MessageId) -> Result<Vec<u8>, Problem> {
        let message = self.message(caller, id).await?;
        caller.need(Scope::Secrets)?;
        self.bytes_of(&message).await?.ok_or_else(no_bytes)
    }

    /// The bytes of one attachment.
    pub async fn attachment(&self, caller: &Caller, id: MessageId, number: usize) -> Result<AttachmentBytes, Problem> {
        let message = self.message(caller, id).await?;
        let raw = self.bytes_of(&message).await?.ok_or_else(no_bytes)?;
        let parsed = parse::parse(&raw);
        let found = parsed.attachments.get(number);
        let attachment = found.ok_or_else(|| {
            Problem::new(Code::NotFound, format!("the message has {} attachments, from 0", parsed.attachments.len()))
        })?;
        Ok(AttachmentBytes {
            filename: attachment.filename.clone(),
            content_type: attachment.content_type.clone(),
            bytes: attachment.bytes(&raw),
        })
    }

    /// Deliveries, newest first: what arrived, how often, and what became of each.
    pub async fn deliveries(&self, caller: &Caller, query: DeliveryQuery) -> Result<Vec<Delivery>, Problem> {
        if let Some(inbox) = query.inbox {
            self.inbox(caller, inbox).await?;
        } else {
            caller.need(Scope::Admin)?;
            caller.need_whole_team()?;
        }
        self.store.deliveries(caller.team.id, query).await.map_err(unavailable)
    }

    /// One delivery.
    pub async fn delivery(&self, caller: &Caller, id: DeliveryId) -> Result<Delivery, Problem> {
        caller.need(Scope::Read)?;
        let missing = || Problem::new(Code::NotFound, format!("there is no delivery {id}"));
        let found = self.store.delivery(caller.team.id, id).await.map_err(unavailable)?;
        let delivery = found.ok_or_else(missing)?;
        if let Some(inbox) = delivery.target.inbox() {
            self.inbox(caller, inbox).await.map_err(|_not_theirs| missing())?;
        } else {
            caller.need(Scope::Admin)?;
            caller.need_whole_team().map_err(|_not_theirs| missing())?;
        }
        Ok(delivery)
    }

    /// Lets a delivery that could not be read be tried again.
    pub async fn replay_delivery(&self, caller: &Caller, id: DeliveryId) -> Result<Delivery, Problem> {
        caller.need(Scope::Admin)?;
        let delivery = self.delivery(caller, id).await?;
        if delivery.state != mailonce_core::delivery::DeliveryState::Dead {
            let detail = format!("this delivery is {}; only dead ones are read again", delivery.state.word());
            return Err(Problem::new(Code::NotDead, detail));
        }
        let replayed = self.store.replay_delivery(caller.team.id, id, self.now()).await.map_err(unavailable)?;
        replayed.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no delivery {id}")))
    }
}

/// Draws a view of the bytes. `hidden`: the reader may not see what was found.
pub(crate) fn draw(raw: &[u8], view: View, hidden: bool, domains: Vec<String>, nonce: &str) -> Body {
    let parsed = parse::parse(raw);
    let page = parsed.html.as_deref().map(Page::read);
    let sender = parsed.from.first().map(|from| from.bare().domain().to_owned());
    let links = link::links(&parsed, page.as_ref(), &Policy { allow: domains, sender });
    let found = if hidden { artifact::find(&parsed, page.as_ref(), &links) } else { Found::default() };
    match view {
        View::Min | View::Model => Body::Min { view: minimise::view(&parsed, page.as_ref(), &found, nonce), links },
        View::Plain => {
            let text = minimise::visible(&parsed, page.as_ref());
            Body::Plain { text: if hidden { artifact::hide(&text, &found) } else { text } }
        }
        View::Full => full(parsed, page, links),
    }
}

fn full(parsed: Parsed, page: Option<Page>, links: Vec<Link>) -> Body {
    let headers = parsed.headers.0.into_iter().map(|field| (field.name, field.value)).collect();
    Body::Full { text: parsed.text, html: page.map(|page| page.clean), headers, links }
}
