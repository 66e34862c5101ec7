//! The state machine of one handoff: one envelope on its way to one next hop.
//!
//! [`State::after`] is the only way from one state to another. What it does not allow cannot be written.

use crate::{time::Time, words::words};

words! {
    /// Where a handoff stands.
    State {
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

words! {
    /// What may happen to a handoff.
    Step {
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
#[error("a {} handoff cannot {}", .from.word(), .step.word())]
pub struct Illegal {
    /// Where it stands.
    pub from: State,
    /// What was tried.
    pub step: Step,
}

impl State {
    /// The state after a step, or why there is none.
    pub fn after(self, step: Step) -> Result<Self, Illegal> {
        use State as S;
        let next = match (self, step) {
            (S::Scheduled, Step::Due) | (S::Held, Step::Release) | (S::Unknown, Step::Retry) => S::Queued,
            (S::Queued, Step::Lease) => S::Leased,
            (S::Leased, Step::Lapse | Step::Defer) | (S::Sending, Step::Defer) => S::Queued,
            (S::Leased, Step::Mark) => S::Sending,
            (S::Sending, Step::Accept) => S::Sent,
            (S::Leased | S::Sending, Step::Refuse) => S::Failed,
            (S::Sending, Step::Lose) => S::Unknown,
            (S::Unknown, Step::Abandon) => S::Abandoned,
            (S::Scheduled | S::Queued | S::Leased | S::Held, Step::Cancel) => S::Cancelled,
            (S::Sent, Step::Deliver) => S::Delivered,
            (S::Sent | S::Delivered, Step::Bounce) => S::Bounced,
            (S::Sent | S::Delivered, Step::Complain) => S::Complained,
            // Facts are never refused: proof moves any state to sent, and says nothing new after it.
            (S::Sent | S::Delivered | S::Bounced | S::Complained, Step::Evidence) => self,
            (_, Step::Evidence) => S::Sent,
            _ => return Err(Illegal { from: self, step }),
        };
        Ok(next)
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

words! {
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
    pub state: State,
    /// When a worker may take it. `None` when none may.
    pub due_at: Option<Time>,
    /// How often it was tried.
    pub attempts: u32,
    /// Grows with each lease.
    pub fence: u64,
}

/// One try at a handoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The handoff's number.
    pub handoff: u16,
    /// From 1.
    pub number: u32,
    /// When it was marked.
    pub at: Time,
    /// How it ended; `None` while it is on the wire.
    pub outcome: Option<Outcome>,
    /// What the next hop said.
    pub reply: String,
}

impl Handoff {
    /// Takes a step, or says why not. The due time follows: only queued and scheduled handoffs have one.
    pub fn step(&mut self, step: Step, now: Time) -> Result<(), Illegal> {
        self.state = self.state.after(step)?;
        self.due_at = match self.state {
            State::Queued => Some(self.due_at.map_or(now, |at| at.max(now))),
            State::Scheduled => self.due_at,
            _ => None,
        };
        Ok(())
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
    ];

    #[test]
    fn every_legal_step_and_no_other() {
        for from in State::ALL {
            for step in Step::ALL {
                let told = from.after(*step).ok().map(State::word);
                let wanted = LEGAL.iter().find(|(f, s, _)| *f == from.word() && *s == step.word()).map(|(_, _, t)| *t);
                if *step == Step::Evidence {
                    assert!(matches!(told, Some("sent" | "delivered" | "bounced" | "complained")));
                } else {
                    assert_eq!(told, wanted, "{} {}", from.word(), step.word());
                }
            }
        }
    }

    #[test]
    fn a_row_in_sending_is_never_dispatched_again_by_itself() {
        for step in [Step::Lease, Step::Lapse, Step::Due, Step::Cancel, Step::Release, Step::Mark] {
            assert!(State::Sending.after(step).is_err());
        }
    }

    #[test]
    fn words_are_read_back() {
        for state in State::ALL {
            assert_eq!(State::parse(state.word()), Some(*state));
        }
    }
}
