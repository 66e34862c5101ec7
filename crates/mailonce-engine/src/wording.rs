//! Telling endpoints in the words of another service: what is known of an event is gathered here, worded elsewhere.

use mailonce_core::{
    endpoint::Endpoint,
    id::{EmailId, MessageId},
    message::Message,
    notice::{Answer, Notice, NoticeAttempt, Owed},
    port::{
        notify::Post,
        store::StoreError,
        wording::{EmailTold, Telling, Worded},
    },
    time::Time,
};

use crate::{
    Engine,
    messages::{Body, View, draw},
    read::apart,
};

/// What is to be posted for a notice.
pub(crate) enum ToPost {
    /// This.
    This(Post),
    /// Nothing: the dialect of the endpoint has no word for it.
    Nothing(String),
    /// The secrets of the endpoint cannot be opened.
    Sealed,
    /// The ledger could not tell what it is about.
    Later(StoreError),
}

impl Engine {
    /// What an endpoint is told, in its own words.
    pub(crate) async fn to_post(&self, endpoint: &Endpoint, owed: &Owed, at: Time) -> ToPost {
        let id = owed.notice.id.to_string();
        let Some(tongue) = &endpoint.about.tongue else {
            let body = self.told_to(endpoint, &owed.event).await;
            return self.post_to(endpoint, id, body, at).map_or(ToPost::Sealed, ToPost::This);
        };
        let worded = match self.worded(endpoint, (&owed.event, &owed.notice), at).await {
            Ok(worded) => worded,
            Err(error) => return ToPost::Later(error),
        };
        let Some(worded) = worded else {
            let kind = owed.event.event.kind.word();
            return ToPost::Nothing(format!("{} has no word for {kind}, or it is not wanted", tongue.dialect));
        };
        match self.post_to(endpoint, id, worded.body, at) {
            Some(mut post) => {
                post.headers.extend(worded.headers);
                ToPost::This(post)
            }
            None => ToPost::Sealed,
        }
    }

    /// An event in the words of an endpoint's dialect.
    pub(crate) async fn worded(
        &self,
        endpoint: &Endpoint,
        (event, notice): (&mailonce_core::event::Event, &Notice),
        at: Time,
    ) -> Result<Option<Worded>, StoreError> {
        let secrets = self.endpoint_secrets(endpoint, at).unwrap_or_default();
        let (team, about) = (endpoint.team, event.event.about);
        let (mut email, mut message, mut inbox, mut thread, mut text) = (None, None, None, None, None);
        match event.event.kind.about() {
            "email" => {
                let detail = self.store.email_detail(team, EmailId(about)).await?;
                if let Some(detail) = &detail {
                    let from = [detail.email.head.from.clone()];
                    inbox = self.store.inbox_at(&from).await?.filter(|inbox| inbox.team == team);
                }
                email = detail.map(|detail| EmailTold {
                    message_id: self.message_id(&detail.email),
                    content: detail.body.as_deref().and_then(|body| self.bodies.unpack(body)),
                    email: detail.email,
                });
            }
            "message" => {
                message = self.store.message(team, MessageId(about)).await?;
                if let Some(message) = &message {
                    inbox = self.store.inbox(team, message.inbox).await?;
                    thread = self.store.thread(team, message.thread).await?;
                    text = self.plain_words(message).await?;
                }
            }
            _ => {}
        }
        let telling = Telling { event, notice, endpoint, email, message, inbox, thread, text, secrets: &secrets, at };
        Ok(self.outside.wording.word(&telling))
    }
}

impl Engine {
    /// What a message says, its codes and links hidden. `None` when its bytes are gone or cannot be shown.
    pub(crate) async fn plain_words(&self, message: &Message) -> Result<Option<String>, StoreError> {
        let packed = self.store.raw(message.team, message.id).await?;
        let Some(raw) = packed.and_then(|packed| self.bodies.unpack_raw(&packed)) else { return Ok(None) };
        let hidden = !message.head.artifacts.is_empty();
        let drawn = apart(move || draw(&raw, View::Plain, hidden, Vec::new(), "")).await;
        Ok(match drawn {
            Ok(Body::Plain { text }) => Some(text),
            _ => None,
        })
    }
}

/// An attempt at a notice that nobody is told of.
pub(crate) fn untold(owed: &Owed, why: String, at: Time) -> (NoticeAttempt, Answer) {
    let number = owed.notice.attempts;
    (NoticeAttempt { number, at, status: None, latency_ms: 0, answer: why, trouble: None }, Answer::Dropped)
}
