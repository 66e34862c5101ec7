//! The state machine of one handoff: one envelope on its way to one next hop.
//!
//! [`State::after`] is the only way from one state to another. What it does not allow cannot be written.

pub mod action;
pub mod unknown;
use serde::{Deserialize, Serialize};

use crate::{
    id::NodeId,
    mutant,
    ports::{
        store::Envelope,
        transport::{AttemptPhase, ReplyMeaning, TransportReply},
    },
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// Where a handoff stands.
    HandoffState {
        /// Due later.
        Scheduled = "scheduled",
        /// Due now.
        Queued = "queued",
        /// A worker holds it; nothing irrevocable has happened.
        Leased = "leased",
        /// The marker is durable: the bytes may be on the wire.
        Sending = "sending",
        /// The next hop has it.
        Sent = "sent",
        /// The recipient's server has it.
        Delivered = "delivered",
        /// It came back.
        Bounced = "bounced",
        /// The recipient called it spam.
        Complained = "complained",
        /// The next hop refused it for good.
        Failed = "failed",
        /// Nobody can tell whether the next hop has it.
        Unknown = "unknown",
        /// A person gave it up while it was unknown.
        Abandoned = "abandoned",
        /// A guard keeps it until a person decides.
        Held = "held",
        /// Taken back before anything left.
        Cancelled = "cancelled",
    }
}

string_enum! {
    /// What may happen to a handoff.
    Transition {
        /// Its time came.
        Due = "due",
        /// A worker takes it.
        Lease = "lease",
        /// The worker let go before the marker: its lease lapsed, or the next hop deferred or refused the log-in.
        Lapse = "lapse",
        /// The durable marker before the point of no return.
        Mark = "mark",
        /// The next hop took it.
        Accept = "accept",
        /// The next hop asks to come again.
        Defer = "defer",
        /// The next hop refuses for good.
        Refuse = "refuse",
        /// No answer, a crash, or an answer that decides nothing.
        Lose = "lose",
        /// Proof that the next hop has it, from anywhere, at any time.
        Evidence = "evidence",
        /// Try again although the outcome is unknown: same key at the same provider, or by policy, or by a person.
        Retry = "retry",
        /// A person gives it up.
        Abandon = "abandon",
        /// The caller takes it back.
        Cancel = "cancel",
        /// A person lets it go.
        Release = "release",
        /// The next hop reports delivery.
        Deliver = "deliver",
        /// The next hop reports a bounce.
        Bounce = "bounce",
        /// The next hop reports a complaint.
        Complain = "complain",
    }
}

/// A step that is not allowed where the handoff stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {} handoff cannot {}", .from.as_str(), .transition.as_str())]
pub struct IllegalTransition {
    /// Where it stands.
    pub from: HandoffState,
    /// What was tried.
    pub transition: Transition,
}

impl HandoffState {
    /// The state after a step, or why there is none.
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
            (S::Sending, Transition::Cancel) if mutant!("cancel-after-marker") => S::Cancelled,
            (S::Bounced | S::Complained, Transition::Deliver) if mutant!("bounce-undone") => S::Delivered,
            (S::Sent, Transition::Deliver) => S::Delivered,
            (S::Sent | S::Delivered, Transition::Bounce) => S::Bounced,
            // A complaint is the worst news, whatever came before: so that news may come in any order.
            (S::Sent | S::Delivered | S::Bounced, Transition::Complain) => S::Complained,
            // Facts are never refused: proof moves any state to sent, and says nothing new after it.
            (S::Sent | S::Delivered | S::Bounced | S::Complained, Transition::Evidence) => self,
            (_, Transition::Evidence) => S::Sent,
            _ => return Err(IllegalTransition { from: self, transition: step }),
        };
        Ok(next)
    }

    /// Whether some order of these steps, each at most once, leads to another state, or none is needed.
    pub fn can_reach(self, to: Self, steps: &[Transition]) -> bool {
        let by = |step: &Transition| {
            let rest: Vec<Transition> = steps.iter().copied().filter(|other| other != step).collect();
            self.next_state(*step).is_ok_and(|state| state.can_reach(to, &rest))
        };
        self == to || steps.iter().any(by)
    }

    /// Whether nothing more will happen by itself.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Queued | Self::Leased | Self::Sending | Self::Unknown | Self::Held)
    }

    /// Whether it ended surely unsent.
    pub fn is_surely_unsent(self) -> bool {
        matches!(self, Self::Failed | Self::Cancelled)
    }
}

string_enum! {
    /// How an attempt ended.
    Outcome {
        /// The next hop has it.
        Accepted = "accepted",
        /// It asks to come again.
        Deferred = "deferred",
        /// It refuses.
        Refused = "refused",
        /// Nobody can tell.
        Unknown = "unknown",
    }
}

impl Outcome {
    /// How an attempt ended that was answered so.
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
    /// The way out.
    pub transport: String,
    /// Whom it is for.
    pub recipients: Vec<String>,
    /// Where it stands.
    pub state: HandoffState,
    /// When a worker may take it next: to hand it over, or, when it is unknown, to find out. `None` when none may.
    pub due_at: Option<Time>,
    /// How often it was tried.
    pub attempts: u32,
    /// Grows with each lease.
    pub fence: u64,
    /// The process that leased it, while it is leased or sending.
    pub holder: Option<NodeId>,
    /// What happened on its way so far. Nothing, for most.
    pub progress: HandoffProgress,
}

/// What happened to a handoff on its way.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandoffProgress {
    /// When it was first tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_try: Option<Time>,
    /// When the attempt on the wire was marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marked_at: Option<Time>,
    /// Attempts that may have succeeded. While there is one the handoff is in doubt: it is never cancelled, failed
    /// over or called failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<u32>,
    /// When the first attempt in doubt was marked: from then on the next hop's memory of its key counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt_since: Option<Time>,
    /// The provider account of the attempts in doubt. Only there may they be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// How often the next hop was asked, or the attempt repeated, since it is in doubt.
    #[serde(skip_serializing_if = "is_zero")]
    pub asked: u32,
    /// Whether only a person can settle it, because the next hop contradicts itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub puzzling: bool,
    /// Whether the email's own policy has sent it again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resent: bool,
    /// Whether it is to be tried although it is in doubt: the policy or a person said so, and no attempt since was
    /// lost. An attempt that was surely refused or deferred does not use that up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// Whether the recipient may have it twice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_duplicate: bool,
    /// Leases in a row that ended with their worker.
    #[serde(skip_serializing_if = "is_zero")]
    pub lapses: u32,
    /// Attempts that failed for the transport's own fault. They do not count against the email.
    #[serde(skip_serializing_if = "is_zero")]
    pub faults: u32,
    /// When its transport was found to exist on no node, if that was reported and no node with the transport took it since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphaned: Option<Time>,
    /// Why it failed or was put off, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One try at a handoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The handoff's number.
    pub handoff: u16,
    /// From 1.
    pub number: u32,
    /// When it was marked, or began when it never came so far.
    pub at: Time,
    /// When its answer was written down.
    pub ended_at: Option<Time>,
    /// How it ended; `None` while it is on the wire.
    pub outcome: Option<Outcome>,
    /// What the next hop said.
    pub reply: String,
    /// The rest.
    pub details: AttemptDetails,
}

/// Where an attempt went, and how far it came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptDetails {
    /// The way out.
    pub transport: String,
    /// The provider account.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub account: String,
    /// The fence it was made under.
    pub fence: u64,
    /// How far it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<AttemptPhase>,
    /// The SMTP or HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The next hop's own name for the mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<String>,
    /// Whether an earlier attempt may have succeeded already.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_duplicate: bool,
}

impl Attempt {
    /// Writes its answer down.
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
    /// Where a fact about an attempt came from.
    EvidenceSource {
        /// The answer of a worker that no longer held the handoff.
        LateReply = "late_reply",
        /// The next hop was asked.
        LookUp = "look_up",
        /// The next hop told us by itself.
        ProviderEvent = "provider_event",
        /// A bounce that came as mail.
        Bounce = "bounce",
        /// A person decided.
        Person = "person",
        /// The email's own policy decided.
        Policy = "policy",
        /// Repeated with the same key at the same account, inside its window.
        Window = "window",
        /// The process that held it ended.
        Crash = "crash",
    }
}

string_enum! {
    /// What a fact says.
    EvidenceFinding {
        /// The next hop has it.
        Accepted = "accepted",
        /// The next hop knows nothing of it. Only evidence.
        NotFound = "not_found",
        /// The next hop could not be asked.
        Silent = "silent",
        /// The next hop never took it.
        NotAccepted = "not_accepted",
        /// The recipient's server has it.
        Delivered = "delivered",
        /// The next hop has it, and will try again to deliver it.
        Delayed = "delayed",
        /// It came back.
        Bounced = "bounced",
        /// The recipient called it spam.
        Complained = "complained",
        /// It is tried again.
        Again = "again",
        /// It is given up.
        Abandoned = "abandoned",
        /// Nobody knows what became of it.
        Lost = "lost",
    }
}

/// A fact about what the next hop did. Never changed, never removed before its email.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The handoff's number.
    pub handoff: u16,
    /// The attempt it is about, when it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// When it was written down.
    pub at: Time,
    /// Where it came from.
    pub source: EvidenceSource,
    /// What it says.
    pub says: EvidenceFinding,
    /// In words.
    pub detail: String,
    /// A name under which it counts only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
}

impl Handoff {
    /// An envelope that nobody has touched.
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
        }
    }

    /// Whether a worker may take it at `now`. A scheduled one is due only by the time that schedules follow.
    pub fn is_due(&self, scheduled_by: Option<Time>, now: Time) -> bool {
        let Some(due) = self.due_at.filter(|due| *due <= now) else { return false };
        match self.state {
            HandoffState::Queued => true,
            HandoffState::Scheduled => scheduled_by.is_some_and(|by| due <= by),
            _ => false,
        }
    }

    /// Takes a step, or says why not. The due time follows: only queued and scheduled handoffs have one.
    pub fn apply_transition(&mut self, step: Transition, now: Time) -> Result<(), IllegalTransition> {
        self.state = self.state.next_state(step)?;
        self.due_at = match self.state {
            // Until now its time was that of the next look.
            HandoffState::Queued if step == Transition::Retry => Some(now),
            HandoffState::Queued => Some(self.due_at.map_or(now, |at| at.max(now))),
            HandoffState::Scheduled => self.due_at,
            _ => None,
        };
        if !matches!(self.state, HandoffState::Leased | HandoffState::Sending) {
            self.holder = None;
        }
        Ok(())
    }

    /// Whether some attempt may have succeeded without our knowing.
    pub fn is_in_doubt(&self) -> bool {
        !self.progress.doubts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every legal move but `evidence`, which is legal everywhere.
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
