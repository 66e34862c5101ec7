//! The texts of received mail in the event log, which are removed with the mail.

use mailonce_core::{
    events::event::Event,
    id::{MessageId, TeamId},
    limits,
    ports::store::{Store, StoreError},
    time::Time,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// How far the times of events may be out of order, in milliseconds.
const MAX_TIME_DISORDER_MS: i64 = 3_600_000;

/// Removes fields from the data of an event.
pub(crate) fn remove_fields(data: &mut Value, names: &[&str]) {
    if let Some(fields) = data.as_object_mut() {
        fields.retain(|name, _| !names.contains(&name.as_str()));
    }
}

/// Removes the texts from the data of an event about a deleted message.
pub(crate) fn strip_message_event(data: &mut Value) {
    remove_fields(data, &["from", "subject", "message_id"]);
}

/// Removes the texts from the data of an event about a code or link of a deleted message.
pub(crate) fn strip_artifact_event(data: &mut Value) {
    remove_fields(data, &["masked", "for"]);
}

/// Messages whose texts are removed from the events about them.
pub(crate) struct DeletedTexts<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) team: TeamId,
    pub(crate) messages: BTreeSet<MessageId>,
}

impl DeletedTexts<'_> {
    /// Removes the texts from the events after a number. Returns the number of the last event.
    pub(crate) async fn strip_after(&self, mut after: u64) -> Result<u64, StoreError> {
        loop {
            let page = self.store.events(self.team, after, limits::EVENT_ROWS).await?;
            let Some(last) = page.last().map(|event| event.seq) else { return Ok(after) };
            let replaced: Vec<(u64, Value)> = page.iter().filter_map(|event| self.stripped(event)).collect();
            if !replaced.is_empty() {
                self.store.replace_event_data(self.team, replaced).await?;
            }
            after = last;
        }
    }

    /// The number and the new data of an event that has such texts.
    fn stripped(&self, event: &Event) -> Option<(u64, Value)> {
        let mut data = event.event.data.clone();
        let names = |id: &Value| {
            let id = id.as_str().and_then(|id| id.parse::<MessageId>().ok());
            id.is_some_and(|id| self.messages.contains(&id))
        };
        match event.event.kind.subject_type() {
            "message" if self.messages.contains(&MessageId(event.event.subject_id)) => strip_message_event(&mut data),
            "artifact" if names(&data["message"]) => strip_artifact_event(&mut data),
            _ => return None,
        }
        (data != event.event.data).then_some((event.seq, data))
    }

    /// A number before all events since a time, near the first of them. Most of a long log need not be read then.
    pub(crate) async fn number_before(&self, since: Time) -> Result<u64, StoreError> {
        let since = since.plus(-MAX_TIME_DISORDER_MS);
        let (mut before, mut end) = (0, 1);
        while self.is_earlier(end, since).await? {
            (before, end) = (end, end * 2);
        }
        while end - before > 1 {
            let middle = before + (end - before) / 2;
            if self.is_earlier(middle, since).await? {
                before = middle;
            } else {
                end = middle;
            }
        }
        Ok(before)
    }

    /// Whether the first event after a number happened before a time.
    async fn is_earlier(&self, after: u64, since: Time) -> Result<bool, StoreError> {
        Ok(self.store.events(self.team, after, 1).await?.first().is_some_and(|event| event.event.at < since))
    }
}
