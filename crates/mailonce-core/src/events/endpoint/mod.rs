//! Endpoints: the webhook receivers of a team's events.

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

use crate::{
    control::erasure::AddressEraser,
    events::{
        event::{Event, EventKind, NewEvent},
        notice::WebhookVerdict,
    },
    id::{EndpointId, InboxId, TeamId},
    limits,
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// Whether an endpoint gets notices.
    EndpointState {
        /// It gets notices.
        Enabled = "enabled",
        /// A person paused it. Events are kept and delivered later.
        Paused = "paused",
        /// It gets no notices until a person enables it. Events are kept and delivered then.
        Disabled = "disabled",
    }
}

string_enum! {
    /// Why an endpoint gets no notices.
    EndpointReason {
        /// A person asked for it.
        Asked = "asked",
        /// The receiver answered that it is gone for good.
        Gone = "gone",
        /// Every attempt failed for two weeks.
        Failing = "failing",
    }
}

/// A filter of event types: `*`, one type, or all types of one subject such as `email.*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventTypePattern(String);

impl EventTypePattern {
    /// Parses a filter. `None` when no event type could match it.
    pub fn parse(text: &str) -> Option<Self> {
        let filter = Self(text.to_owned());
        EventKind::ALL.iter().any(|kind| filter.matches(*kind)).then_some(filter)
    }

    /// Whether it matches this type.
    pub fn matches(&self, kind: EventKind) -> bool {
        let family = self.0.strip_suffix(".*").and_then(|family| kind.as_str().strip_prefix(family));
        self.0 == "*" || self.0 == kind.as_str() || family.is_some_and(|rest| rest.starts_with('.'))
    }

    /// The filter as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A signing secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointSecret {
    /// The sealed secret.
    pub sealed: String,
    /// When it was created.
    #[serde(rename = "made_at")]
    pub created_at: Time,
    /// When it expires. `None` for the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Time>,
}

/// The dialect of an endpoint that expects the webhook format of another service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialect {
    /// The name of the dialect.
    pub dialect: String,
    /// The wanted event types, with their names in the dialect. Empty: all that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// Restricts events to those of these inboxes, received or sent. Empty: no restriction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inboxes: Vec<InboxId>,
    /// Makes the creation of the endpoint idempotent, where the dialect supports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
}

/// The configuration of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointConfig {
    /// The URL.
    pub url: String,
    /// A description for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The event filters. One match is enough.
    pub events: Vec<EventTypePattern>,
    /// Restricts events to those of these inboxes. Empty: no restriction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inboxes: Vec<InboxId>,
    /// The valid secrets, newest first.
    pub secrets: Vec<EndpointSecret>,
    /// Additional headers of every request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The rate limit in requests per second, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u32>,
    /// The version of the wire format with which it was created.
    pub version: String,
    /// Whether notices about messages include their text.
    #[serde(default)]
    #[serde(rename = "bodies")]
    pub include_text: bool,
    /// The dialect, unless it gets mailonce's own format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "tongue")]
    pub dialect: Option<Dialect>,
    /// When it was last changed. `None` when it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Time>,
}

impl EndpointConfig {
    /// Replaces a person's address in the description. Returns whether it was there.
    pub fn redact(&mut self, eraser: &AddressEraser) -> bool {
        eraser.redact_all(std::iter::once(&mut self.description))
    }

    /// Adds a new secret. The older ones stay valid for `overlap_ms`, or until they expire anyway; expired ones are
    /// removed.
    pub fn rotate_secret(&mut self, sealed: String, overlap_ms: i64, now: Time) {
        for secret in &mut self.secrets {
            let end = now.plus(overlap_ms);
            secret.ends_at = Some(secret.ends_at.map_or(end, |at| at.min(end)));
        }
        self.secrets.insert(0, EndpointSecret { sealed, created_at: now, ends_at: None });
        self.secrets.retain(|secret| secret.ends_at.is_none_or(|at| now < at));
        self.secrets.truncate(limits::ENDPOINT_SECRETS);
    }

    /// The secrets that sign a request made now, newest first.
    pub fn active_secrets(&self, now: Time) -> impl Iterator<Item = &EndpointSecret> {
        self.secrets.iter().filter(move |secret| secret.ends_at.is_none_or(|at| now < at))
    }
}

/// A webhook receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// Its team.
    pub team: TeamId,
    /// The revision. Each change that a person can see increases it.
    pub rev: u32,
    /// When it was created.
    pub created_at: Time,
    /// Its configuration.
    pub config: EndpointConfig,
    /// Whether it gets notices.
    pub state: EndpointState,
    /// Why it gets none.
    pub reason: Option<EndpointReason>,
    /// Since when it has its state.
    pub state_since: Time,
    /// The cursor: the number of the last event that was fanned out to it.
    pub cursor: u64,
    /// Events up to this number are delivered again, even if they were delivered before.
    pub resend_until_seq: u64,
    /// When it first failed since its last success.
    pub failing_since: Option<Time>,
}

impl Endpoint {
    /// A new endpoint. Its cursor is set when it is stored.
    pub fn new(id: EndpointId, team: TeamId, about: EndpointConfig, now: Time) -> Self {
        Self {
            id,
            team,
            rev: 1,
            created_at: now,
            config: about,
            state: EndpointState::Enabled,
            reason: None,
            state_since: now,
            cursor: 0,
            resend_until_seq: 0,
            failing_since: None,
        }
    }

    /// Whether it subscribes to an event.
    pub fn wants(&self, event: &Event) -> bool {
        let inboxes = &self.config.inboxes;
        let there = |inbox| inboxes.contains(&inbox);
        self.config.events.iter().any(|filter| filter.matches(event.event.kind))
            && (inboxes.is_empty() || event.event.inbox().is_some_and(there))
    }

    /// Whether an event that was fanned out before is to be delivered again.
    pub fn must_resend(&self, seq: u64) -> bool {
        seq <= self.resend_until_seq
    }

    /// Moves the cursor back, so that events after `seq` are delivered again under the same ids.
    pub fn rewind_to(&mut self, seq: u64) {
        if seq < self.cursor {
            self.resend_until_seq = self.resend_until_seq.max(self.cursor);
            self.cursor = seq;
        }
    }

    /// Applies a person's change. `Some` with the event when that disables it.
    pub fn edit(&mut self, about: EndpointConfig, state: EndpointState, now: Time) -> Option<NewEvent> {
        self.rev += 1;
        self.config = about;
        if state == self.state {
            return None;
        }
        let reason = (state != EndpointState::Enabled).then_some(EndpointReason::Asked);
        (self.state, self.reason, self.state_since, self.failing_since) = (state, reason, now, None);
        (state == EndpointState::Disabled).then(|| self.disabled_event(now))
    }

    /// Applies the receiver's response to any notice. `Some` with the event when that disables it.
    pub fn record_response(&mut self, answer: WebhookVerdict, now: Time) -> Option<NewEvent> {
        let reason = match answer {
            WebhookVerdict::Delivered => {
                self.failing_since = None;
                return None;
            }
            WebhookVerdict::Dropped => return None,
            WebhookVerdict::Gone => EndpointReason::Gone,
            WebhookVerdict::Retry(_) => {
                let since = *self.failing_since.get_or_insert(now);
                if now.since(since) < limits::DISABLE_FAILING_ENDPOINT_AFTER_MS {
                    return None;
                }
                EndpointReason::Failing
            }
        };
        if self.state == EndpointState::Disabled {
            return None;
        }
        self.rev += 1;
        (self.state, self.reason, self.state_since) = (EndpointState::Disabled, Some(reason), now);
        Some(self.disabled_event(now))
    }

    fn disabled_event(&self, now: Time) -> NewEvent {
        let data = json!({ "url": self.config.url, "reason": self.reason, "failing_since": self.failing_since.map(|at| at.to_string()) });
        NewEvent { kind: EventKind::EndpointDisabled, at: now, subject_id: self.id.0, rev: self.rev, data }
    }
}

/// The first event that a new endpoint gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointStart {
    /// The next event.
    NextEvent,
    /// The event after this number; `0` means all events.
    After(u64),
}

/// A change of an endpoint, based on a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointEdit {
    /// Its team.
    pub team: TeamId,
    /// The endpoint.
    pub id: EndpointId,
    /// The revision that the caller saw.
    pub rev: u32,
    /// The new configuration.
    pub config: EndpointConfig,
    /// The new state.
    pub state: EndpointState,
}

/// The result of changing an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum EndpointChangeResult {
    /// The endpoint after the change.
    Changed(Endpoint),
    /// It changed since the caller read it; this is its current state.
    Stale(Endpoint),
    /// No such endpoint in this team.
    Missing,
}

/// The progress of an endpoint, for the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointGauge {
    /// Its team.
    pub team: TeamId,
    /// The endpoint.
    pub id: EndpointId,
    /// Whether it gets notices.
    pub state: EndpointState,
    /// The number of events past its cursor.
    pub lag: u64,
    /// The number of pending notices.
    pub pending: u64,
    /// The number of dead notices.
    pub dead: u64,
}

#[cfg(test)]
mod tests;
