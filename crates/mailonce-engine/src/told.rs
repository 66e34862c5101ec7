//! Events as they are told outside: one form for lists, streams and webhooks.

use mailonce_core::{
    endpoint::Endpoint,
    event::{Cursor, Event, Kind},
    id::{MessageId, TeamId},
    port::store::StoreError,
};
use serde::Serialize;
use serde_json::Value;

use crate::Engine;

/// Characters of a message's text that a notice may carry.
const TEXT: usize = 65_536;

/// An event as it is told.
#[derive(Clone, Debug, Serialize)]
pub struct EventView<'a> {
    /// From 1, without gaps.
    pub seq: u64,
    /// `epoch-seq`.
    pub cursor: String,
    /// Its id.
    pub id: String,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// When.
    pub at: String,
    /// What it is about.
    pub about: AboutView,
    /// The facts.
    pub data: &'a Value,
}

/// What an event is about.
#[derive(Clone, Debug, Serialize)]
pub struct AboutView {
    /// The kind of thing.
    pub kind: &'static str,
    /// Its id.
    pub id: String,
    /// Its rev after the change.
    pub rev: u32,
}

impl<'a> EventView<'a> {
    /// An event of an installation's epoch.
    pub fn of(event: &'a Event, epoch: u32) -> Self {
        let new = &event.event;
        Self {
            seq: event.seq,
            cursor: Cursor { epoch, seq: event.seq }.to_string(),
            id: event.id().to_string(),
            kind: new.kind.word(),
            at: new.at.to_string(),
            about: AboutView { kind: new.kind.about(), id: new.about.to_string(), rev: new.rev },
            data: &new.data,
        }
    }

    /// As JSON. The facts are words and numbers, which JSON can always say.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Engine {
    /// An event as an endpoint wants to be told of it: with the text of a message where it asked for that. What cannot
    /// be read now is left out, so that the news itself is not held up by it.
    pub(crate) async fn told_to(&self, endpoint: &Endpoint, event: &Event) -> String {
        let mut view = EventView::of(event, self.epoch());
        if !endpoint.about.bodies || event.event.kind != Kind::MessageReceived {
            return view.json();
        }
        let text = self.text_of(endpoint.team, MessageId(event.event.about)).await.unwrap_or_else(|error| {
            tracing::warn!(%error, message = %event.event.about, "a notice goes without the text of its message");
            None
        });
        let mut data = event.event.data.clone();
        data["text"] = text.into();
        view.data = &data;
        view.json()
    }

    /// The beginning of what a message says.
    async fn text_of(&self, team: TeamId, id: MessageId) -> Result<Option<String>, StoreError> {
        let Some(message) = self.store.message(team, id).await? else { return Ok(None) };
        let text = self.plain_words(&message).await?;
        Ok(text.map(|text| text.chars().take(TEXT).collect()))
    }
}
