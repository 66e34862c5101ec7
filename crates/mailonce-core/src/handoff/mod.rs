//! The state machine of one handoff: one envelope on its way to one next hop.
//!
//! [`HandoffState::next_state`] defines every legal transition. No other transition can be stored.

pub mod action;
pub mod capabilities;
pub mod envelope;
pub mod lease;
pub mod reply;
pub mod transport_request;
pub mod unknown;
use serde::{Deserialize, Serialize};

use crate::{
    control::erasure::AddressEraser,
    handoff::{
        envelope::Envelope,
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
    },
    id::{NodeId, StopId},
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// The state of a handoff.
    HandoffState {
        /// Due later.
        Scheduled = "scheduled",
        /// Due now.
        Queued = "queued",
        /// Leased by a worker; nothing irrevocable has happened.
        Leased = "leased",
        /// The marker is durable: the bytes may be on the wire.
        Sending = "sending",
        /// The next hop accepted it.
        Sent = "sent",
        /// The recipient's server accepted it.
        Delivered = "delivered",
        /// It bounced.
        Bounced = "bounced",
        /// The recipient reported it as spam.
        Complained = "complained",
        /// The next hop refused it permanently.
        Failed = "failed",
        /// It is unknown whether the next hop accepted it.
        Unknown = "unknown",
        /// A person abandoned it while it was unknown.
        Abandoned = "abandoned",
        /// A guard holds it until a person decides.
        Held = "held",
        /// Cancelled before anything was sent.
        Cancelled = "cancelled",
    }
}

string_enum! {
    /// A transition of a handoff.
    Transition {
        /// Its scheduled time came.
        Due = "due",
        /// A worker leases it.
        Lease = "lease",
        /// The lease ended before the marker, because the worker died or returned it.
        Lapse = "lapse",
        /// The durable marker is written, before the point of no return.
        Mark = "mark",
        /// The next hop accepted it.
        Accept = "accept",
        /// The next hop asks for a retry later.
        Defer = "defer",
        /// The next hop refused it permanently.
        Refuse = "refuse",
        /// No reply, a crash, or a reply that decides nothing.
        Lose = "lose",
        /// Proof that the next hop accepted it, from any source, at any time.
        Evidence = "evidence",
        /// Retry although the outcome is unknown: with the same key at the same provider, by policy, or by a person.
        Retry = "retry",
        /// A person abandons it.
        Abandon = "abandon",
        /// The caller cancels it.
        Cancel = "cancel",
        /// It is released from a hold.
        Release = "release",
        /// The next hop reports delivery.
        Deliver = "deliver",
        /// The next hop reports a bounce.
        Bounce = "bounce",
        /// The next hop reports a complaint.
        Complain = "complain",
    }
}

/// A transition that is not allowed in the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {} handoff cannot {}", .from.as_str(), .transition.as_str())]
pub struct IllegalTransition {
    /// The current state.
    pub from: HandoffState,
    /// The attempted transition.
    pub transition: Transition,
}

impl HandoffState {
    /// Whether the next hop surely has the mail.
    pub fn has_left(self) -> bool {
        matches!(self, Self::Sent | Self::Delivered | Self::Bounced | Self::Complained)
    }

    /// The state after a transition, or an error when it is not allowed.
    pub fn next_state(self, step: Transition) -> Result<Self, IllegalTransition> {
        use HandoffState as S;
        let next = match (self, step) {
            (S::Scheduled, Transition::Due) | (S::Held, Transition::Release) | (S::Unknown, Transition::Retry) => {
                S::Queued
            }
            (S::Queued, Transition::Lease) => S::Leased,
            (S::Leased, Transition::Lapse | Transition::Defer) | (S::Sending, Transition::Defer) => S::Queued,
            (S::Leased, Transition::Mark) => S::Sending,
            (S::Sending, Transition::Accept) => S::Sent,
            (S::Leased | S::Sending, Transition::Refuse) => S::Failed,
            (S::Sending, Transition::Lose) => S::Unknown,
            (S::Unknown, Transition::Abandon) => S::Abandoned,
            (S::Scheduled | S::Queued | S::Leased | S::Held, Transition::Cancel) => S::Cancelled,
            (S::Sent, Transition::Deliver) => S::Delivered,
            (S::Sent | S::Delivered, Transition::Bounce) => S::Bounced,
            // A complaint overrides every other report, so that reports may arrive in any order.
            (S::Sent | S::Delivered | S::Bounced, Transition::Complain) => S::Complained,
            // Evidence is never refused: proof moves any state to sent, and adds nothing after that.
            (S::Sent | S::Delivered | S::Bounced | S::Complained, Transition::Evidence) => self,
            (_, Transition::Evidence) => S::Sent,
            _ => return Err(IllegalTransition { from: self, transition: step }),
        };
        Ok(next)
    }

    /// Whether some order of these transitions, each used at most once, leads to `to`. True when the state is already
    /// `to`.
    pub fn can_reach(self, to: Self, steps: &[Transition]) -> bool {
        let by = |step: &Transition| {
            let rest: Vec<Transition> = steps.iter().copied().filter(|other| other != step).collect();
            self.next_state(*step).is_ok_and(|state| state.can_reach(to, &rest))
        };
        self == to || steps.iter().any(by)
    }

    /// Whether the state changes no more without outside evidence or a command.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Queued | Self::Leased | Self::Sending | Self::Unknown | Self::Held)
    }

    /// Whether it ended and surely was not sent.
    pub fn is_surely_unsent(self) -> bool {
        matches!(self, Self::Failed | Self::Cancelled)
    }
}

string_enum! {
    /// How an attempt ended.
    Outcome {
        /// The next hop accepted it.
        Accepted = "accepted",
        /// The next hop asks for a retry later.
        Deferred = "deferred",
        /// The next hop refused it.
        Refused = "refused",
        /// The outcome cannot be determined.
        Unknown = "unknown",
    }
}

impl Outcome {
    /// The outcome of an attempt with this reply.
    pub fn from_meaning(meaning: ReplyMeaning) -> Self {
        match meaning {
            ReplyMeaning::Accepted | ReplyMeaning::Repeated => Self::Accepted,
            ReplyMeaning::Deferred | ReplyMeaning::Fault | ReplyMeaning::Concurrent => Self::Deferred,
            ReplyMeaning::Refused => Self::Refused,
            ReplyMeaning::Mismatch | ReplyMeaning::Unknown => Self::Unknown,
        }
    }
}

/// One envelope of an email for one transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handoff {
    /// Its place among the email's handoffs, from 0.
    pub number: u16,
    /// The name of the transport.
    pub transport: String,
    /// The recipients, as bare addresses.
    pub recipients: Vec<String>,
    /// Its state.
    pub state: HandoffState,
    /// When a worker may lease it next, or, for an unknown handoff, when to check it next. `None`: no work is due.
    pub due_at: Option<Time>,
    /// The number of attempts.
    pub attempts: u32,
    /// The fencing token. Each lease increases it.
    pub fence: u64,
    /// The process that holds the lease, while it is leased or sending.
    pub holder: Option<NodeId>,
    /// The history of its attempts. Empty for most handoffs.
    pub progress: HandoffProgress,
    /// The stop that took it out of its transport's queue. It stays queued or scheduled.
    pub parked_by: Option<StopId>,
}

/// The history of a handoff's attempts.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandoffProgress {
    /// When the first attempt was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "first_try")]
    pub first_attempt_at: Option<Time>,
    /// When the running attempt was marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marked_at: Option<Time>,
    /// Attempts that may have succeeded. While there is one, the handoff is in doubt: it is never cancelled, failed
    /// over or marked as failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "doubts")]
    pub attempts_in_doubt: Vec<u32>,
    /// When the first attempt in doubt was marked. The next hop's key window is counted from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "doubt_since")]
    pub in_doubt_since: Option<Time>,
    /// The provider account of the attempts in doubt. They may be repeated only there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// How often, since it is in doubt, the next hop was queried or the attempt repeated.
    #[serde(skip_serializing_if = "is_zero")]
    #[serde(rename = "asked")]
    pub unknown_checks: u32,
    /// Whether only a person can resolve it, because the next hop contradicts itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "puzzling")]
    pub needs_person: bool,
    /// Whether the email's policy has resent it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resent: bool,
    /// Whether it is retried despite the doubt: the policy or a person asked for it, and no attempt since then was
    /// lost. An attempt that was surely refused or deferred does not reset this.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "again")]
    pub retry_despite_doubt: bool,
    /// Whether the recipient may get it twice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_duplicate: bool,
    /// Consecutive leases that ended with the death of their worker.
    #[serde(skip_serializing_if = "is_zero")]
    #[serde(rename = "lapses")]
    pub lost_leases: u32,
    /// Attempts that failed because of the transport itself. They do not count against the email.
    #[serde(skip_serializing_if = "is_zero")]
    #[serde(rename = "faults")]
    pub transport_failures: u32,
    /// When no node was found to have its transport. Set when that was reported, until a node with the transport takes
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "orphaned")]
    pub transport_missing_since: Option<Time>,
    /// Why it failed or was deferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it left without an event that says so to consumers of `email.sent`: a report or a person proved it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "unannounced")]
    pub left_without_sent_event: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One attempt of a handoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The handoff's number.
    pub handoff: u16,
    /// The attempt's number, from 1.
    pub number: u32,
    /// When it was marked, or when it began if it never got that far.
    pub at: Time,
    /// When its reply was recorded.
    pub ended_at: Option<Time>,
    /// How it ended. `None` while it is running.
    pub outcome: Option<Outcome>,
    /// The reply text of the next hop.
    pub reply: String,
    /// The details.
    pub details: AttemptDetails,
}

/// Where an attempt was sent, and how far it got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptDetails {
    /// The name of the transport.
    pub transport: String,
    /// The provider account.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub account: String,
    /// The fencing token of its lease.
    pub fence: u64,
    /// How far it got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<AttemptPhase>,
    /// The SMTP or HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The next hop's id for the mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<String>,
    /// Whether an earlier attempt may have succeeded already.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_duplicate: bool,
}

impl Attempt {
    /// Erases what the next hop replied. Its id for the mail stays, for late reports.
    pub fn erase(&mut self) {
        self.reply = String::new();
    }

    /// Records its reply.
    pub fn record_outcome(&mut self, reply: &TransportReply, now: Time) {
        self.ended_at = Some(now);
        self.outcome = Some(Outcome::from_meaning(reply.meaning));
        self.reply.clone_from(&reply.text);
        self.details.phase = Some(reply.phase);
        self.details.code = reply.code;
        self.details.remote_id.clone_from(&reply.remote_id);
    }
}

string_enum! {
    /// The source of evidence about an attempt.
    EvidenceSource {
        /// The reply to a worker that no longer held the lease.
        LateReply = "late_reply",
        /// A query to the next hop.
        LookUp = "look_up",
        /// A webhook or event of the provider.
        ProviderEvent = "provider_event",
        /// A bounce message.
        Bounce = "bounce",
        /// A person's decision.
        Person = "person",
        /// The email's own policy.
        Policy = "policy",
        /// A repeat with the same key at the same account, within its window.
        Window = "window",
        /// The process that held it died.
        Crash = "crash",
    }
}

string_enum! {
    /// What evidence states.
    EvidenceFinding {
        /// The next hop accepted it.
        Accepted = "accepted",
        /// The next hop does not know it. This proves nothing.
        NotFound = "not_found",
        /// The next hop could not be queried.
        Silent = "silent",
        /// The next hop never accepted it.
        NotAccepted = "not_accepted",
        /// The recipient's server accepted it.
        Delivered = "delivered",
        /// The next hop accepted it and retries the delivery.
        Delayed = "delayed",
        /// It bounced.
        Bounced = "bounced",
        /// The recipient reported it as spam.
        Complained = "complained",
        /// It is sent again.
        Again = "again",
        /// It was abandoned.
        Abandoned = "abandoned",
        /// Its outcome is unknown.
        Lost = "lost",
    }
}

/// A fact about what the next hop did. It is never changed, and deleted only together with its email.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The handoff's number.
    pub handoff: u16,
    /// The attempt, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// When it was recorded.
    pub at: Time,
    /// Its source.
    pub source: EvidenceSource,
    /// What it states.
    #[serde(rename = "says")]
    pub finding: EvidenceFinding,
    /// A description.
    pub detail: String,
    /// A deduplication key: evidence with the same one is recorded once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "once")]
    pub dedup_key: Option<String>,
}

impl Evidence {
    /// Erases the text that a next hop or a person gave.
    pub fn erase(&mut self, eraser: &AddressEraser) {
        self.detail = String::new();
        self.dedup_key = self.dedup_key.take().map(|once| eraser.redact(&once).unwrap_or(once));
    }
}

impl Handoff {
    /// A new handoff without attempts.
    pub fn new(number: u16, envelope: Envelope, state: HandoffState, due_at: Option<Time>) -> Self {
        Self {
            number,
            transport: envelope.transport,
            recipients: envelope.recipients,
            state,
            due_at,
            attempts: 0,
            fence: 0,
            holder: None,
            progress: HandoffProgress::default(),
            parked_by: None,
        }
    }

    /// Whether a worker may lease it at `now`. A scheduled handoff must also be due by `scheduled_by`.
    pub fn is_due(&self, scheduled_by: Option<Time>, now: Time) -> bool {
        let is_parked = self.parked_by.is_some();
        let Some(due) = self.due_at.filter(|due| *due <= now && !is_parked) else { return false };
        match self.state {
            HandoffState::Queued => true,
            HandoffState::Scheduled => scheduled_by.is_some_and(|by| due <= by),
            _ => false,
        }
    }

    /// Applies a transition, or returns why it is not allowed. Also updates the due time: only queued and scheduled
    /// handoffs keep one.
    pub fn apply_transition(&mut self, step: Transition, now: Time) -> Result<(), IllegalTransition> {
        self.state = self.state.next_state(step)?;
        self.due_at = match self.state {
            // Until now the due time was that of the next check.
            HandoffState::Queued if step == Transition::Retry => Some(now),
            HandoffState::Queued => Some(self.due_at.map_or(now, |at| at.max(now))),
            HandoffState::Scheduled => self.due_at,
            _ => None,
        };
        if !matches!(self.state, HandoffState::Leased | HandoffState::Sending) {
            self.holder = None;
        }
        self.parked_by = None;
        Ok(())
    }

    /// Whether some attempt may have succeeded without a known outcome.
    pub fn is_in_doubt(&self) -> bool {
        !self.progress.attempts_in_doubt.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every legal transition except `evidence`, which is legal in every state.
    const LEGAL: &[(&str, &str, &str)] = &[
        ("scheduled", "due", "queued"),
        ("scheduled", "cancel", "cancelled"),
        ("queued", "lease", "leased"),
        ("queued", "cancel", "cancelled"),
        ("leased", "lapse", "queued"),
        ("leased", "defer", "queued"),
        ("leased", "refuse", "failed"),
        ("leased", "mark", "sending"),
        ("leased", "cancel", "cancelled"),
        ("sending", "accept", "sent"),
        ("sending", "defer", "queued"),
        ("sending", "refuse", "failed"),
        ("sending", "lose", "unknown"),
        ("unknown", "retry", "queued"),
        ("unknown", "abandon", "abandoned"),
        ("held", "release", "queued"),
        ("held", "cancel", "cancelled"),
        ("sent", "deliver", "delivered"),
        ("sent", "bounce", "bounced"),
        ("sent", "complain", "complained"),
        ("delivered", "bounce", "bounced"),
        ("delivered", "complain", "complained"),
        ("bounced", "complain", "complained"),
    ];

    #[test]
    fn every_legal_step_and_no_other() {
        for from in HandoffState::ALL {
            for step in Transition::ALL {
                let told = from.next_state(*step).ok().map(HandoffState::as_str);
                let wanted =
                    LEGAL.iter().find(|(f, s, _)| *f == from.as_str() && *s == step.as_str()).map(|(_, _, t)| *t);
                if *step == Transition::Evidence {
                    assert!(matches!(told, Some("sent" | "delivered" | "bounced" | "complained")));
                } else {
                    assert_eq!(told, wanted, "{} {}", from.as_str(), step.as_str());
                }
            }
        }
    }

    #[test]
    fn a_row_in_sending_is_never_dispatched_again_by_itself() {
        for step in [
            Transition::Lease,
            Transition::Lapse,
            Transition::Due,
            Transition::Cancel,
            Transition::Release,
            Transition::Mark,
        ] {
            assert!(HandoffState::Sending.next_state(step).is_err());
        }
    }

    #[test]
    fn words_are_read_back() {
        for state in HandoffState::ALL {
            assert_eq!(HandoffState::parse(state.as_str()), Some(*state));
        }
    }
}
