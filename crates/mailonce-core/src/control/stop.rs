//! Stops: durable switches that keep email from leaving, for the whole installation, a transport, a team, an inbox or
//! an API key.
//!
//! A stop changes no state. The transaction that writes the marker of an attempt reads the stops, and creating a stop
//! excludes such transactions. So once a stop is created, no marker of an email in its scope commits, on any node. A
//! handoff that would be leased is parked instead: it stays queued or scheduled, and leaves the queue of its transport
//! until the stop ends.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    access::team::ApiKey,
    control::erasure::AddressEraser,
    events::event::{EventKind, NewEvent},
    handoff::Handoff,
    id::{ApiKeyId, InboxId, StopId, TeamId},
    inbox, mutant,
    outbound::email::{Email, EmailHead},
    string_enum::string_enum,
    time::Time,
};

/// The maximum number of stops of a team.
pub const MAX_STOPS: usize = 1_000;
/// The maximum length of a reason, in characters.
pub const MAX_REASON_CHARS: usize = 1_000;
/// For how long an unused rate is saved up, in milliseconds.
const MAX_SAVED_MS: i64 = 1_000;
/// How long a release with a rate waits for handoffs that are not parked yet, in milliseconds.
const UNPARKED_GRACE_MS: i64 = 10_000;
/// The author of the stop that the configuration asks for. It ends when a process starts without it.
pub const CONFIGURATION_AUTHOR: &str = "configuration";
/// The author of the stop that keeps restored email from leaving until the journal of erasures is applied. It ends by
/// itself, so it exists beside any other stop of the installation.
pub const ERASURE_JOURNAL_AUTHOR: &str = "the journal of erasures";
/// The highest rate at which stopped email is released, in handoffs per second.
pub const MAX_RELEASE_RATE: u32 = 10_000;

string_enum! {
    /// What happens to new sends in the scope of a stop.
    StopMode {
        /// They are accepted, and wait.
        Wait = "wait",
        /// They are refused, and their idempotency keys stay free.
        Refuse = "refuse",
    }
}

string_enum! {
    /// The kind of a stop's scope.
    StopKind {
        /// The whole installation.
        Installation = "installation",
        /// A transport.
        Transport = "transport",
        /// A team.
        Team = "team",
        /// An inbox.
        Inbox = "inbox",
        /// An API key or a connection.
        ApiKey = "api_key",
    }
}

/// The emails that a stop covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopScope {
    /// Every email of every team.
    Installation,
    /// Every handoff of this transport, by name.
    Transport(String),
    /// Every email of a team.
    Team(TeamId),
    /// Emails from the address of this inbox, plus tags included.
    Inbox {
        /// Its team.
        team: TeamId,
        /// The inbox.
        id: InboxId,
        /// The addresses by which mail finds it; of a catch-all also `*@domain`.
        addresses: Vec<String>,
    },
    /// Emails that were sent with this API key.
    ApiKey {
        /// Its team.
        team: TeamId,
        /// The API key.
        id: ApiKeyId,
    },
}

impl StopScope {
    /// The team whose email it covers. `None` for the email of every team.
    pub fn team(&self) -> Option<TeamId> {
        match self {
            Self::Installation | Self::Transport(_) => None,
            Self::Team(team) | Self::Inbox { team, .. } | Self::ApiKey { team, .. } => Some(*team),
        }
    }

    /// The transport whose handoffs alone it covers, by name.
    pub fn transport(&self) -> Option<&str> {
        match self {
            Self::Transport(name) => Some(name),
            Self::Installation | Self::Team(_) | Self::Inbox { .. } | Self::ApiKey { .. } => None,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> StopKind {
        match self {
            Self::Installation => StopKind::Installation,
            Self::Transport(_) => StopKind::Transport,
            Self::Team(_) => StopKind::Team,
            Self::Inbox { .. } => StopKind::Inbox,
            Self::ApiKey { .. } => StopKind::ApiKey,
        }
    }

    /// The unique name of the scope.
    pub fn name(&self) -> String {
        match self {
            Self::Installation => "installation".into(),
            Self::Transport(name) => format!("transport/{name}"),
            Self::Team(team) => format!("team/{team}"),
            Self::Inbox { id, .. } => format!("inbox/{id}"),
            Self::ApiKey { id, .. } => format!("api_key/{id}"),
        }
    }

    /// Whether it covers email of this origin.
    pub fn covers(&self, origin: SendOrigin<'_>) -> bool {
        match self {
            Self::Installation => true,
            Self::Transport(name) => origin.transport == Some(name.as_str()),
            Self::Team(team) => *team == origin.team,
            Self::Inbox { team, id, addresses } => {
                let candidates = || inbox::candidate_addresses(&origin.from.to_ascii_lowercase());
                let has_address = || candidates().iter().any(|candidate| addresses.contains(candidate));
                *team == origin.team && origin.inbox.map_or_else(has_address, |inbox| inbox == *id)
            }
            Self::ApiKey { team, id } => *team == origin.team && origin.api_key == Some(*id),
        }
    }
}

/// Where an email comes from, and the transport that hands it on.
#[derive(Clone, Copy, Debug)]
pub struct SendOrigin<'a> {
    /// Its team.
    pub team: TeamId,
    /// The bare address of its sender.
    pub from: &'a str,
    /// The inbox of the sender. If it is not known, the address decides.
    pub inbox: Option<InboxId>,
    /// The API key that sent it.
    pub api_key: Option<ApiKeyId>,
    /// The transport. `None` before one is selected.
    pub transport: Option<&'a str>,
}

impl<'a> SendOrigin<'a> {
    fn of(email: &'a Email, transport: &'a str) -> Self {
        let EmailHead { from, inbox, caller, .. } = &*email.head;
        Self { team: email.team, from, inbox: *inbox, api_key: *caller, transport: Some(transport) }
    }
}

/// The API key, the configuration or the restore that created a stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopAuthor {
    /// The API key of the call. `None`: the server itself, as after a restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKeyId>,
    /// The name of the API key, or of the command.
    pub name: String,
}

impl StopAuthor {
    fn is_configuration(&self) -> bool {
        self.api_key.is_none() && self.name == CONFIGURATION_AUTHOR
    }

    fn is_erasure_journal(&self) -> bool {
        self.api_key.is_none() && self.name == ERASURE_JOURNAL_AUTHOR
    }
}

impl From<&ApiKey> for StopAuthor {
    fn from(key: &ApiKey) -> Self {
        Self { api_key: Some(key.id), name: key.details.name.clone() }
    }
}

/// A stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Its id.
    pub id: StopId,
    /// The emails that it covers.
    pub scope: StopScope,
    /// What happens to new sends.
    pub mode: StopMode,
    /// Why it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who created it.
    pub by: StopAuthor,
    /// When it was created.
    pub created_at: Time,
    /// How its email is being released. `None` while it is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<StopRelease>,
}

/// The release of the email of a stop that has ended. Stores release it in bounded steps, and remove the stop after the
/// last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRelease {
    /// When the stop ended.
    pub since: Time,
    /// The number of handoffs per second. `None`: all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u32>,
    /// Up to when the rate is used: the time of the latest release.
    pub used_until: Time,
}

impl StopRelease {
    /// How many parked handoffs may return to their queues now. What a rate allows is saved up for one second only, so
    /// that a process that was down does not release everything at once.
    pub fn allowance(&self, now: Time) -> usize {
        let Some(rate) = self.rate_per_s else { return usize::MAX };
        let saved_ms = now.since(self.used_until).clamp(0, MAX_SAVED_MS);
        usize::try_from(saved_ms * i64::from(rate) / MAX_SAVED_MS).unwrap_or(usize::MAX)
    }

    /// Uses the rate for handoffs that were released. Rounded up, so that a high rate is never exceeded.
    pub fn use_rate(&mut self, count: usize, now: Time) {
        let Some(rate) = self.rate_per_s.filter(|_| count > 0) else { return };
        let used_ms = (count as u64).saturating_mul(MAX_SAVED_MS as u64).div_ceil(u64::from(rate.max(1)));
        let saved_since = self.used_until.max(now.plus(-MAX_SAVED_MS));
        self.used_until = saved_since.plus(i64::try_from(used_ms).unwrap_or(i64::MAX));
    }

    /// When a released handoff is due. With a rate this is after [`Self::since`]. By this, handoffs that were released
    /// differ from those that waited without being parked.
    pub(crate) fn next_due(&self, due: Option<Time>, now: Time) -> Option<Time> {
        match self.rate_per_s {
            Some(_) => Some(due.unwrap_or(now).max(now).max(self.since.plus(1))),
            None => due,
        }
    }

    /// Whether the release is over once nothing is parked. With a rate, handoffs that wait without being parked get a
    /// few seconds in which a worker parks them.
    pub fn is_over(&self, now: Time) -> bool {
        self.rate_per_s.is_none() || now.since(self.used_until.max(self.since)) > UNPARKED_GRACE_MS
    }
}

impl Stop {
    /// Replaces a person's address in the reason and the name of the author. Returns whether it was in one.
    pub fn redact(&mut self, eraser: &AddressEraser) -> bool {
        eraser.redact_all(self.reason.iter_mut().chain([&mut self.by.name]))
    }

    /// Whether it ends by itself when the journal of erasures is applied.
    pub fn is_of_erasure_journal(&self) -> bool {
        self.by.is_erasure_journal()
    }

    /// Its unique name: the name of its scope. The stop of the journal of erasures has a name of its own, so that it
    /// neither replaces another stop nor is taken for one.
    pub fn name(&self) -> String {
        let scope = self.scope.name();
        if self.is_of_erasure_journal() { format!("{scope}/erasures") } else { scope }
    }

    /// Whether it keeps email from leaving. A stop whose email is being released no longer does.
    pub fn is_in_force(&self) -> bool {
        self.release.is_none()
    }

    /// Whether workers lease nothing at all from the queue of its transport, or from any queue if it covers the
    /// installation. Handoffs that become due there wait without being parked.
    pub fn closes_queues(&self) -> bool {
        self.is_in_force() && self.scope.team().is_none()
    }

    /// The same, for the queue of one transport.
    pub fn closes_queue_of(&self, transport: &str) -> bool {
        self.closes_queues() && self.scope.transport().is_none_or(|name| name == transport)
    }

    /// Whether a new stop of the same name replaces this one: it has another mode, or somebody takes over the stop of
    /// the configuration, which would end with the next start.
    fn is_replaced_by(&self, new: &Self) -> bool {
        let is_taken_over = self.by.is_configuration() && !new.by.is_configuration();
        is_taken_over || (self.mode != new.mode && !new.by.is_configuration())
    }

    /// The event of its creation or its end. Its team gets it, or every team if it belongs to none.
    pub fn event(&self, kind: EventKind, at: Time) -> NewEvent {
        let mut data = json!({ "scope": self.scope.name(), "mode": self.mode.as_str(), "by": self.by.name });
        if let Some(reason) = &self.reason {
            data["reason"] = reason.as_str().into();
        }
        if let StopScope::Inbox { id, .. } = &self.scope {
            data["inbox"] = id.to_string().into();
        }
        NewEvent { kind, at, subject_id: self.id.0, rev: 1, data }
    }

    /// Ends it. If it had ended before, only the rate changes.
    pub fn end(&mut self, rate_per_s: Option<u32>, now: Time) -> StopChange {
        let Some(release) = &mut self.release else {
            self.release = Some(StopRelease { since: now, rate_per_s, used_until: now });
            return StopChange::Ended;
        };
        let before = std::mem::replace(&mut release.rate_per_s, rate_per_s);
        if before == rate_per_s { StopChange::Nothing } else { StopChange::Rate }
    }

    /// Whether a due handoff is parked instead of leased.
    fn parks(&self, email: &Email, handoff: &Handoff) -> bool {
        let applies = match &self.release {
            None => true,
            // What was due before the release began waits for its turn.
            Some(release) => release.rate_per_s.is_some() && handoff.due_at.is_some_and(|due| due <= release.since),
        };
        applies && self.scope.covers(SendOrigin::of(email, &handoff.transport))
    }
}

/// What a call that ends a stop changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum StopChange {
    /// It ended.
    Ended,
    /// The rate at which its email is released.
    Rate,
    /// Nothing.
    Nothing,
}

impl StopChange {
    /// The verb of its entry in the audit log.
    pub fn audit_verb(self) -> Option<&'static str> {
        match self {
            Self::Ended => Some("ended"),
            Self::Rate => Some("rate_changed"),
            Self::Nothing => None,
        }
    }
}

/// The stops that a transaction read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stops(pub Vec<Stop>);

impl Stops {
    /// The stop that keeps a handoff from getting a marker.
    pub fn stop_for_handoff(&self, email: &Email, transport: &str) -> Option<&Stop> {
        self.in_force().find(|stop| stop.scope.covers(SendOrigin::of(email, transport)))
    }

    /// The stop that keeps a claim of one of these API keys from beginning.
    pub fn stop_for_claim(&self, team: TeamId, api_keys: &[Option<ApiKeyId>]) -> Option<&Stop> {
        let covers = |stop: &&Stop| match &stop.scope {
            StopScope::Installation => true,
            StopScope::Team(own) => *own == team,
            StopScope::ApiKey { team: own, id } => *own == team && api_keys.contains(&Some(*id)),
            StopScope::Transport(_) | StopScope::Inbox { .. } => false,
        };
        self.in_force().find(covers).filter(|_| !mutant!("claim-stop-ignored"))
    }

    /// The stop that parks a due handoff.
    pub fn parking_stop(&self, email: &Email, handoff: &Handoff) -> Option<StopId> {
        self.0.iter().find(|stop| stop.parks(email, handoff)).map(|stop| stop.id)
    }

    /// The stop that refuses a new send.
    pub fn stop_refusing_send(&self, origin: SendOrigin<'_>) -> Option<&Stop> {
        self.in_force().find(|stop| stop.mode == StopMode::Refuse && stop.scope.covers(origin))
    }

    /// The stop that makes a new send wait.
    pub fn stop_delaying_send(&self, origin: SendOrigin<'_>) -> Option<&Stop> {
        self.in_force().find(|stop| stop.mode == StopMode::Wait && stop.scope.covers(origin))
    }

    fn in_force(&self) -> impl Iterator<Item = &Stop> {
        self.0.iter().filter(|stop| stop.is_in_force())
    }
}

/// The result of creating a stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum CreateStopResult {
    /// It was created.
    Created(Stop),
    /// The scope is stopped already, by this stop.
    AlreadyStopped(Stop),
    /// The team has the maximum number of stops.
    TooMany,
}

impl CreateStopResult {
    /// Decides about a new stop, from the stops of its team, or from those that belong to no team.
    pub fn decide(new: Stop, existing: &[Stop]) -> Self {
        match existing.iter().find(|stop| stop.name() == new.name()) {
            Some(stop) if stop.is_in_force() && !stop.is_replaced_by(&new) => Self::AlreadyStopped(stop.clone()),
            // Its email is being released, or the new one replaces it. It keeps its id, so that what it has parked stays
            // parked.
            Some(stop) => Self::Created(Stop { id: stop.id, ..new }),
            None if existing.len() >= MAX_STOPS => Self::TooMany,
            None => Self::Created(new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ending_a_stop_and_changing_its_rate_are_two_acts() {
        let by = StopAuthor { api_key: None, name: "tests".into() };
        let (id, scope, created_at) = (StopId(uuid::Uuid::nil()), StopScope::Installation, Time(0));
        let mut stop = Stop { id, scope, mode: StopMode::Wait, reason: None, by, created_at, release: None };
        let rates = [Some(1), Some(1), Some(2), None];
        let verbs = rates.map(|rate| stop.end(rate, Time(1)).audit_verb());
        assert_eq!(verbs, [Some("ended"), None, Some("rate_changed"), Some("rate_changed")]);
    }

    #[test]
    fn a_release_never_exceeds_its_rate() {
        for rate in [1, 3, 300, 1_000, 9_999, MAX_RELEASE_RATE] {
            let mut release = StopRelease { since: Time(0), rate_per_s: Some(rate), used_until: Time(0) };
            let mut released = 0;
            for now in (0..=10_000).step_by(10).map(Time) {
                loop {
                    let count = release.allowance(now).min(256);
                    if count == 0 {
                        break;
                    }
                    release.use_rate(count, now);
                    released += count as u64;
                }
                let most = u64::from(rate) * (now.0 as u64 + 1_000) / 1_000;
                assert!(released <= most, "{released} of {most} at {} ms, {rate} per second", now.0);
            }
            assert!(released * 10 >= u64::from(rate) * 10 * 7, "{released} in 10 s at {rate} per second is too slow");
        }
    }
}
