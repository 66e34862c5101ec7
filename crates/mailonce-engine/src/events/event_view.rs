//! Events as they are told outside: one form for lists, streams and webhooks.

use crate::events::Events;
use mailonce_core::{
    events::{
        endpoint::Endpoint,
        event::{Event, EventCursor, EventKind},
    },
    id::{MessageId, TeamId},
    ports::store::StoreError,
};
use serde::Serialize;
use serde_json::Value;

/// Characters of a message's text that a notice may carry.
const MAX_TEXT_CHARS: usize = 65_536;

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
    pub about: EventResource,
    /// The facts.
    pub data: &'a Value,
}

/// What an event is about.
#[derive(Clone, Debug, Serialize)]
pub struct EventResource {
    /// The kind of thing.
    pub kind: &'static str,
    /// Its id.
    pub id: String,
    /// Its rev after the change.
    pub rev: u32,
}

impl<'a> EventView<'a> {
    /// An event of an installation's epoch.
    pub fn new(event: &'a Event, epoch: u32) -> Self {
        let new = &event.event;
        Self {
            seq: event.seq,
            cursor: EventCursor { epoch, seq: event.seq }.to_string(),
            id: event.id().to_string(),
            kind: new.kind.as_str(),
            at: new.at.to_string(),
            about: EventResource { kind: new.kind.subject_type(), id: new.subject_id.to_string(), rev: new.rev },
            data: &new.data,
        }
    }

    /// As JSON. The facts are words and numbers, which JSON can always say.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Events {
    /// An event as an endpoint wants to be told of it: with the text of a message where it asked for that. What cannot
    /// be read now is left out, so that the news itself is not held up by it.
    pub(crate) async fn to_event(&self, endpoint: &Endpoint, event: &Event) -> String {
        let mut view = EventView::new(event, self.ctx.epoch());
        if !endpoint.config.bodies || event.event.kind != EventKind::MessageReceived {
            return view.to_json();
        }
        let text = self.message_text(endpoint.team, MessageId(event.event.subject_id)).await.unwrap_or_else(|error| {
            tracing::warn!(%error, message = %event.event.subject_id, "a notice goes without the text of its message");
            None
        });
        let mut data = event.event.data.clone();
        data["text"] = text.into();
        view.data = &data;
        view.to_json()
    }

    /// The beginning of what a message says.
    async fn message_text(&self, team: TeamId, id: MessageId) -> Result<Option<String>, StoreError> {
        let Some(message) = self.ctx.store.message(team, id).await? else { return Ok(None) };
        let text = self.plain_text(&message).await?;
        Ok(text.map(|text| text.chars().take(MAX_TEXT_CHARS).collect()))
    }
}
