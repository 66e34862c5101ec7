//! Events as they are told outside: one form for lists, streams and webhooks.

use mailonce_core::event::{Cursor, Event};
use serde::Serialize;
use serde_json::Value;

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
