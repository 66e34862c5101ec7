//! Claims: the right to perform one side effect once, such as an invoice, a post or a write to another system.
//!
//! A claim is a state machine. **Commands** (acquire, begin, renew, fail, resolve) need the latest token and are refused
//! otherwise. **Facts** (complete, positive evidence) are recorded in every state, because the side effect happened
//! whether or not its holder still has the lease.
//!
//! ```text
//! claimed ─begin─► begun ─complete─► completed
//!    │               ├──fail───────► failed (a retryable failure frees the claim)
//!    │ lease ends    │ lease ends
//!    ▼               ▼
//!  free           unknown ─evidence, a person─► completed | abandoned | free
//! ```
//!
//! Invariant: a claim that has begun is never freed by the end of its lease alone. Only a retryable failure, the
//! claim's own policy `retry` (once) or a person frees it.
//!
//! | file | what it holds |
//! |---|---|
//! | [`acquire`] | who gets the claim, and what everybody else is answered |
//! | [`action`] | commands and facts |
//! | [`erasure`] | what is left of a claim that named an erased person |
//! | [`lapse`] | what happens when a lease ends |
//! | [`offer`] | claims that wait for a worker, with their payload |
//! | [`period`] | periods that the server computes: days, weeks and months |

pub mod acquire;
pub mod action;
pub mod erasure;
pub mod lapse;
#[cfg(feature = "failpoints")]
mod mutants;
pub mod offer;
pub mod period;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    events::event::{EventKind, NewEvent},
    id::{ApiKeyId, ClaimId, TeamId},
    intent::Intent,
    key::KeyHash,
    mutant,
    string_enum::string_enum,
    time::Time,
    ttl::{self, Ttl},
};

/// The shortest and the longest lease, in seconds.
pub const LEASE_SECONDS: std::ops::RangeInclusive<i64> = 1..=3_600;
/// The most bytes of a result. A claim with a larger one is completed without it.
pub const MAX_RESULT_BYTES: usize = 4 * 1024 * 1024;
/// The maximum length of a holder or a label, in characters.
pub const MAX_HOLDER_CHARS: usize = 128;
/// The maximum length of a fingerprint, in characters.
pub const MAX_FINGERPRINT_CHARS: usize = 256;
/// The maximum length of a reason, in characters.
pub const MAX_REASON_CHARS: usize = 1_000;
/// How long after the end of the lease the policy `retry` frees a claim, in milliseconds.
pub const RETRY_AFTER_MS: i64 = 10 * 60_000;
/// The longest time that a busy answer asks to wait, in seconds. The holder may finish before its lease ends.
const MAX_RETRY_HINT_S: i64 = 30;
/// How many reports and completions are kept individually.
const KEPT_REPORTS: usize = 20;

string_enum! {
    /// The state of a claim.
    ClaimState {
        /// Somebody may begin. Without a lease the claim is free.
        Claimed = "claimed",
        /// The side effect may be happening.
        Begun = "begun",
        /// The side effect happened.
        Completed = "completed",
        /// The side effect surely did not happen.
        Failed = "failed",
        /// The holder was lost after it began.
        Unknown = "unknown",
        /// A person gave it up without knowing what happened.
        Abandoned = "abandoned",
    }
}

string_enum! {
    /// What happens to a claim whose holder was lost after it began.
    LostHolderPolicy {
        /// It waits for evidence or a person.
        Hold = "hold",
        /// It is freed once, ten minutes after the lease ended.
        Retry = "retry",
    }
}

string_enum! {
    /// Who freed a claim although an earlier holder may have performed the side effect.
    RepeatCause {
        /// The policy. Nobody knows what happened, so a later failure does not prove that the side effect never
        /// happened.
        Policy = "policy",
        /// A person, who answers for it.
        Person = "person",
    }
}

string_enum! {
    /// What a look-up says about a side effect.
    ClaimEvidence {
        /// It happened.
        Done = "done",
        /// It was not found. That does not prove that it did not happen.
        NotFound = "not_found",
    }
}

string_enum! {
    /// A person's decision about an unknown claim.
    ClaimResolution {
        /// The side effect happened.
        Done = "done",
        /// Somebody may perform it, possibly a second time.
        Retry = "retry",
        /// Nobody performs it any more.
        Abandon = "abandon",
    }
}

/// The right of one holder to perform the side effect, for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimLease {
    /// When its token was issued. With the fence this identifies the token.
    pub issued_at: Time,
    /// When it ends, unless it is renewed.
    pub expires_at: Time,
    /// The keyed hash of the holder's secret. `None`: no other call gets this token again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The name of the holder that others see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The API key of the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKeyId>,
}

/// A token that this claim issued. The engine verifies it before it gets here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimToken {
    /// The fence of its lease.
    pub fence: u64,
    /// When it was issued.
    pub issued_at: Time,
}

/// A failure that a holder reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimFailure {
    /// The fence of the holder.
    pub fence: u64,
    /// Whether the next caller may try again.
    pub retryable: bool,
    /// The reason that the holder gave.
    pub reason: String,
    /// When it was reported.
    pub at: Time,
}

/// A report about what happened outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimReport {
    /// When it was recorded.
    pub at: Time,
    /// What it says.
    #[serde(rename = "says")]
    pub finding: ClaimEvidence,
    /// The API key that reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ApiKeyId>,
}

/// A person's decision, and who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimDecision {
    /// The decision.
    #[serde(rename = "as")]
    pub resolution: ClaimResolution,
    /// When it was made.
    pub at: Time,
    /// The API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ApiKeyId>,
}

/// Whether a claim has a result. The store keeps the result itself beside the claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultPresence {
    /// Nobody reported one.
    #[default]
    None,
    /// It is stored.
    Stored,
    /// It was too large to store, or was erased.
    Omitted,
}

/// The once-only right to a side effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its id.
    pub id: ClaimId,
    /// Its team.
    pub team: TeamId,
    /// Its key, unique in the team while the claim is remembered. Claims have a key space of their own.
    pub key: erasure::ClaimKey,
    /// How often this key was bound. Keys of other systems are derived from it.
    pub bind_number: u32,
    /// What the side effect is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// What the side effect contains. Another fingerprint under the same key is a mismatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// That it was offered with a payload. Another payload under the same key is a mismatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<offer::ClaimOffer>,
    /// Its state.
    pub state: ClaimState,
    /// The revision. Each change increases it.
    pub rev: u32,
    /// When it was created.
    pub created_at: Time,
    /// The number of leases so far.
    pub fence: u64,
    /// The latest lease. `None` once the claim was freed or has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<ClaimLease>,
    /// What happens when its holder is lost after it began.
    pub on_unknown: LostHolderPolicy,
    /// How long it is remembered after its end.
    pub ttl: Ttl,
    /// When the policy frees it. Only of an unknown claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// How often its outcome became unknown. Each time is a separate question for a person.
    #[serde(default)]
    #[serde(rename = "losses")]
    pub times_unknown: u32,
    /// Whether the policy freed it once.
    #[serde(default)]
    pub retried: bool,
    /// Why an earlier holder may have performed the side effect. `None`: none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat_cause: Option<RepeatCause>,
    /// When it was freed. `None` while somebody has it, and after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// The latest failure that a holder reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ClaimFailure>,
    /// The fences of the holders that reported completion. More than one: the side effect happened more than once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed_by: Vec<u64>,
    /// Whether the completion arrived after the claim had moved on.
    #[serde(default)]
    pub corrected: bool,
    /// Whether it has a result.
    #[serde(default)]
    pub result: ResultPresence,
    /// The latest reports, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<ClaimReport>,
    /// The latest decision of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ClaimDecision>,
}

/// The times by which claims are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimClock {
    /// Ledger time. It decides when leases end.
    pub now: Time,
    /// The earlier of node time and database time, by which policies are decided. `None` while time is not confirmed.
    pub policy: Option<Time>,
}

impl Claim {
    /// The hash under which the ledger stores its key.
    pub fn key_hash(&self) -> KeyHash {
        self.key.hash(self.team)
    }

    /// Whether the next caller gets it. The lease may have ended without anybody having noticed; see [`lapse`].
    pub fn is_free(&self) -> bool {
        match self.state {
            ClaimState::Claimed => self.lease.is_none(),
            ClaimState::Failed => self.failure.as_ref().is_some_and(|failure| failure.retryable),
            _ => false,
        }
    }

    /// Whether it has ended: every further caller gets the stored answer.
    pub fn is_ended(&self) -> bool {
        match self.state {
            ClaimState::Completed | ClaimState::Abandoned => true,
            ClaimState::Failed => !self.is_free(),
            ClaimState::Claimed | ClaimState::Begun | ClaimState::Unknown => false,
        }
    }

    /// Whether an earlier holder may have performed the side effect.
    pub fn may_repeat(&self) -> bool {
        self.repeat_cause.is_some()
    }

    /// Whether a person must decide: its holder is lost, and no policy frees it.
    pub fn needs_decision(&self) -> bool {
        self.state == ClaimState::Unknown && self.retry_at.is_none()
    }

    /// When the end of a lease or a policy changes it next.
    pub fn due_at(&self) -> Option<Time> {
        match self.state {
            ClaimState::Claimed | ClaimState::Begun => self.lease.as_ref().map(|lease| lease.expires_at),
            ClaimState::Unknown => self.retry_at,
            ClaimState::Completed | ClaimState::Failed | ClaimState::Abandoned => None,
        }
    }

    /// When it is forgotten. `None` while somebody has it or its outcome is unknown. A claim that is free, or ended
    /// without a completion of its only holder, is kept for at least the default time, so that a late completion still
    /// finds it. An offered claim waits for its worker without a limit. After its end it is kept for at least the default
    /// time, so that the row of its outbox, when it is offered again, still finds it.
    pub fn forget_at(&self) -> Option<Time> {
        let kept = Ttl(self.ttl.0.max(ttl::DEFAULT.0));
        if let Some(offer) = &self.offer {
            let ended_at = self.ended_at.filter(|_| self.is_ended());
            return kept.expires_at(ended_at.map(|at| at.max(offer.at)));
        }
        if self.state == ClaimState::Unknown && mutant!("claim-unknown-forgotten") {
            return self.lease.as_ref().map(|lease| lease.expires_at);
        }
        if self.is_ended() {
            let is_settled = self.state == ClaimState::Completed && self.times_unknown == 0;
            let from = if mutant!("claim-memory-from-creation") { Some(self.created_at) } else { self.ended_at };
            return if is_settled { self.ttl } else { kept }.expires_at(from);
        }
        kept.expires_at(self.freed_at.filter(|_| self.is_free()))
    }

    /// Whether it was forgotten by this time.
    pub fn is_forgotten(&self, cutoff: Time) -> bool {
        self.forget_at().is_some_and(|at| at <= cutoff)
    }

    /// In how many seconds another caller should try again.
    pub fn retry_after_s(&self, now: Time) -> i64 {
        let left_ms = self.lease.as_ref().map_or(0, |lease| lease.expires_at.since(now));
        // Rounded up: a second earlier the lease would still be there.
        left_ms.saturating_add(999).div_euclid(1_000).clamp(1, MAX_RETRY_HINT_S)
    }

    /// Whether this is the token of the latest lease.
    fn is_latest(&self, token: ClaimToken) -> bool {
        let issued = self.lease.as_ref().map(|lease| lease.issued_at);
        (self.fence == token.fence && issued == Some(token.issued_at)) || mutant!("claim-any-token")
    }

    fn set_free(&mut self, now: Time) {
        self.lease = None;
        self.retry_at = None;
        self.freed_at = Some(now);
    }

    fn end(&mut self, state: ClaimState, now: Time) {
        self.state = state;
        self.lease = None;
        self.retry_at = None;
        self.freed_at = None;
        self.ended_at = Some(now);
    }

    /// Counts a change and describes it.
    fn changed(&mut self, kind: EventKind, now: Time, extra: &Value) -> NewEvent {
        self.rev += 1;
        let mut data = json!({ "key": self.key.to_string(), "state": self.state.as_str(), "fence": self.fence });
        for (name, flag) in [("may_repeat", self.may_repeat()), ("corrected", self.corrected)] {
            if flag {
                data[name] = true.into();
            }
        }
        for (name, value) in extra.as_object().into_iter().flatten() {
            data[name.as_str()] = value.clone();
        }
        NewEvent { kind, at: now, subject_id: self.id.0, rev: self.rev, data }
    }
}

/// A claim after a call, and what the store must write.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimChange<T> {
    /// The answer to the caller.
    pub answer: T,
    /// The claim afterwards. `None` if there is none.
    pub claim: Option<Claim>,
    /// The result to store beside the claim.
    pub new_result: Option<Vec<u8>>,
    /// The payload to store beside the claim.
    pub new_payload: Option<Vec<u8>>,
    /// Whether the claim changed and must be saved.
    pub is_changed: bool,
    /// The events of the change. Renewing a lease has none.
    pub events: Vec<NewEvent>,
}

/// Which claims a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimQuery {
    /// Only those in this state.
    pub state: Option<ClaimState>,
    /// Only the one with this key.
    pub key: Option<KeyHash>,
    /// Only those with a smaller id.
    pub before: Option<ClaimId>,
    /// The most rows.
    pub limit: usize,
}

impl ClaimQuery {
    /// Whether a claim belongs into the list.
    pub fn matches(&self, claim: &Claim) -> bool {
        self.state.is_none_or(|state| claim.state == state)
            && self.key.is_none_or(|key| claim.key_hash() == key)
            && self.before.is_none_or(|before| claim.id < before)
    }
}
