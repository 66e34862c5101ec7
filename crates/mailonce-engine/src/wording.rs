//! Telling endpoints in the words of another service: what is known of an event is gathered here, worded elsewhere.

use mailonce_core::{
    endpoint::Endpoint,
    id::{EmailId, MessageId},
    notice::{Answer, Notice, NoticeAttempt, Owed},
    port::{
        notify::Post,
        store::StoreError,
        wording::{EmailTold, Telling, Worded},
    },
    time::Time,
};

use crate::{Engine, pack};

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
        let (mut email, mut message) = (None, None);
        match event.event.kind.about() {
            "email" => {
                let detail = self.store.email_detail(team, EmailId(about)).await?;
                email = detail.map(|detail| EmailTold {
                    message_id: self.message_id(&detail.email),
                    content: detail.body.as_deref().and_then(pack::unpack),
                    email: detail.email,
                });
            }
            "message" => message = self.store.message(team, MessageId(about)).await?,
            _ => {}
        }
        let telling = Telling { event, notice, endpoint, email, message, secrets: &secrets, at };
        Ok(self.outside.wording.word(&telling))
    }
}

/// An attempt at a notice that nobody is told of.
pub(crate) fn untold(owed: &Owed, why: String, at: Time) -> (NoticeAttempt, Answer) {
    let number = owed.notice.attempts;
    (NoticeAttempt { number, at, status: None, latency_ms: 0, answer: why, trouble: None }, Answer::Dropped)
}
