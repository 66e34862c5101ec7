//! Events as clients see them: one JSON format for lists, streams and webhooks.

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

/// The most characters of a message's text that a webhook includes.
const MAX_TEXT_CHARS: usize = 65_536;

/// An event as clients see it.
#[derive(Clone, Debug, Serialize)]
pub struct EventView<'a> {
    /// The number of the event within its team: from 1, without gaps.
    pub seq: u64,
    /// The cursor of the event, as `epoch-seq`.
    pub cursor: String,
    /// The id of the event.
    pub id: String,
    /// The type of the event.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// When it happened.
    pub at: String,
    /// The resource that it is about.
    pub about: EventResource,
    /// Details that depend on the type.
    pub data: &'a Value,
}

/// The resource that an event is about.
#[derive(Clone, Debug, Serialize)]
pub struct EventResource {
    /// The kind of resource.
    pub kind: &'static str,
    /// Its id.
    pub id: String,
    /// Its rev after the change.
    pub rev: u32,
}

impl<'a> EventView<'a> {
    /// The view of an event, with the epoch of its cursor.
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

    /// The event as JSON. Serialization cannot fail, because the data is JSON already.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Events {
    /// An event as JSON for an endpoint, with the text of a received message if the endpoint is configured so. A text
    /// that cannot be read now is left out, so that it doesn't delay the webhook.
    pub(crate) async fn to_event(&self, endpoint: &Endpoint, event: &Event) -> String {
        let mut view = EventView::new(event, self.ctx.epoch());
        if !endpoint.config.include_text || event.event.kind != EventKind::MessageReceived {
            return view.to_json();
        }
        let text = self.message_text(endpoint.team, MessageId(event.event.subject_id)).await.unwrap_or_else(|error| {
            tracing::warn!(%error, message = %event.event.subject_id, "a webhook is sent without its message's text");
            None
        });
        let mut data = event.event.data.clone();
        data["text"] = text.into();
        view.data = &data;
        view.to_json()
    }

    /// The text of a message, cut to the limit.
    async fn message_text(&self, team: TeamId, id: MessageId) -> Result<Option<String>, StoreError> {
        let Some(message) = self.ctx.store.message(team, id).await? else { return Ok(None) };
        let text = self.plain_text(&message).await?;
        Ok(text.map(|text| text.chars().take(MAX_TEXT_CHARS).collect()))
    }
}
