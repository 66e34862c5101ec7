//! Endpoints: receivers outside that are told of a team's events.

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

use crate::{
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
    /// Whether an endpoint is told of events.
    EndpointState {
        /// It is.
        Enabled = "enabled",
        /// Not for now: a person said so. What happens meanwhile is told later.
        Paused = "paused",
        /// Not until a person enables it. What happens meanwhile is told then.
        Disabled = "disabled",
    }
}

string_enum! {
    /// Why an endpoint is not told of events.
    EndpointReason {
        /// A person wanted it so.
        Asked = "asked",
        /// The receiver said that it is gone for good.
        Gone = "gone",
        /// Nothing reached it for two weeks.
        Failing = "failing",
    }
}

/// A wish for some events: `*`, one type, or everything about one kind of thing such as `email.*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventTypeFilter(String);

impl EventTypeFilter {
    /// Reads a filter. `None` when no event could ever match it.
    pub fn parse(text: &str) -> Option<Self> {
        let filter = Self(text.to_owned());
        EventKind::ALL.iter().any(|kind| filter.matches(*kind)).then_some(filter)
    }

    /// Whether an event of this type is wanted.
    pub fn matches(&self, kind: EventKind) -> bool {
        let family = self.0.strip_suffix(".*").and_then(|family| kind.as_str().strip_prefix(family));
        self.0 == "*" || self.0 == kind.as_str() || family.is_some_and(|rest| rest.starts_with('.'))
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A secret under which notices are signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointSecret {
    /// The secret, sealed.
    pub sealed: String,
    /// When it was made.
    pub made_at: Time,
    /// When it counts no more; `None` for the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Time>,
}

/// In whose words an endpoint is told of events, when not in ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialect {
    /// The dialect.
    pub dialect: String,
    /// The types that are wanted, in the words of the dialect; every one that it has when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// Only of these inboxes, whether something came to them or left from them; of every one when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inboxes: Vec<InboxId>,
    /// Makes the creation of the endpoint repeatable, where the dialect has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
}

/// What a person says of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointConfig {
    /// Where notices go.
    pub url: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Which events it wants; one match is enough.
    pub events: Vec<EventTypeFilter>,
    /// Only what happens at these inboxes; everything when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inboxes: Vec<InboxId>,
    /// The secrets that count, newest first.
    pub secrets: Vec<EndpointSecret>,
    /// Headers that every request carries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Requests a second, when limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u32>,
    /// The wire format it was made with.
    pub version: String,
    /// Whether notices of messages carry their text.
    #[serde(default)]
    pub bodies: bool,
    /// In whose words it is told, when not in ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tongue: Option<Dialect>,
    /// When somebody changed it last; none since it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Time>,
}

impl EndpointConfig {
    /// Gives it a new secret. The others count for `overlap_ms` more, or as long as they did; ended ones go.
    pub fn rotate_secret(&mut self, sealed: String, overlap_ms: i64, now: Time) {
        for secret in &mut self.secrets {
            let end = now.plus(overlap_ms);
            secret.ends_at = Some(secret.ends_at.map_or(end, |at| at.min(end)));
        }
        self.secrets.insert(0, EndpointSecret { sealed, made_at: now, ends_at: None });
        self.secrets.retain(|secret| secret.ends_at.is_none_or(|at| now < at));
        self.secrets.truncate(limits::ENDPOINT_SECRETS);
    }

    /// The secrets that a request made now is signed with, newest first.
    pub fn active_secrets(&self, now: Time) -> impl Iterator<Item = &EndpointSecret> {
        self.secrets.iter().filter(move |secret| secret.ends_at.is_none_or(|at| now < at))
    }
}

/// A receiver outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// Whose it is.
    pub team: TeamId,
    /// Grows with each change that a person can see.
    pub rev: u32,
    /// When it was made.
    pub created_at: Time,
    /// What a person says of it.
    pub config: EndpointConfig,
    /// Whether it is told of events.
    pub state: EndpointState,
    /// Why not.
    pub reason: Option<EndpointReason>,
    /// Since when its state is what it is.
    pub state_since: Time,
    /// The last event that was looked at for it.
    pub cursor: u64,
    /// Events up to this one are owed again, even where they were told before.
    pub resend_until_seq: u64,
    /// When it failed first since it last succeeded.
    pub failing_since: Option<Time>,
}

impl Endpoint {
    /// How an endpoint begins. Its cursor is set when it is made.
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

    /// Whether it wants to be told of an event.
    pub fn wants(&self, event: &Event) -> bool {
        let inboxes = &self.config.inboxes;
        let there = |inbox| inboxes.contains(&inbox);
        self.config.events.iter().any(|filter| filter.matches(event.event.kind))
            && (inboxes.is_empty() || event.event.inbox().is_some_and(there))
    }

    /// Whether an event that it was past already is owed again.
    pub fn must_resend(&self, seq: u64) -> bool {
        seq <= self.resend_until_seq
    }

    /// Looks at the events after `seq` again. What was told is owed again under the same ids.
    pub fn rewind_to(&mut self, seq: u64) {
        if seq < self.cursor {
            self.resend_until_seq = self.resend_until_seq.max(self.cursor);
            self.cursor = seq;
        }
    }

    /// What a person makes of it. `Some` when that disables it, with what is told of it.
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

    /// What its receiver's answer to any notice means for it. `Some` when that disables it.
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

/// Where a new endpoint begins to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointStart {
    /// With the next event.
    NextEvent,
    /// After this one; `0` for everything there ever was.
    After(u64),
}

/// A change of an endpoint as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointEdit {
    /// Whose it is.
    pub team: TeamId,
    /// Which.
    pub id: EndpointId,
    /// The rev that was seen.
    pub rev: u32,
    /// What it is to say from now on.
    pub config: EndpointConfig,
    /// Whether it is to be told of events from now on.
    pub state: EndpointState,
}

/// The answer to a change of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum EndpointChangeResult {
    /// What it became.
    Changed(Endpoint),
    /// It changed since it was looked at; this is what it is.
    Stale(Endpoint),
    /// No such endpoint in this team.
    Missing,
}

/// How far an endpoint is, for the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointGauge {
    /// Whose it is.
    pub team: TeamId,
    /// Which.
    pub id: EndpointId,
    /// Whether it is told of events.
    pub state: EndpointState,
    /// Events that nobody looked at for it yet.
    pub lag: u64,
    /// Notices that are still owed.
    pub pending: u64,
    /// Notices that were given up.
    pub dead: u64,
}

#[cfg(test)]
mod tests;
