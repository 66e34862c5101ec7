//! Send receipts: the answer that callers get to a send.

use mailonce_core::{
    id::{EmailId, TeamId, ThreadId},
    key::InstallSecret,
    outbound::{
        email::{Email, EmailState, Guard},
        holds::Holds,
        policy_trace::PolicyStep,
    },
    time::Time,
};

use crate::{control::budgets::BudgetRoom, outbound::replay_cache::CachedEmail};

/// The answer to a send.
#[derive(Clone, Debug, PartialEq)]
pub struct SendReceipt {
    /// The id of the email.
    pub id: EmailId,
    /// The state of the email.
    pub state: EmailState,
    /// The rev of the email.
    pub rev: u32,
    /// The Message-ID, with angle brackets.
    pub message_id: String,
    /// When the email was accepted.
    pub created_at: Time,
    /// The most important guard that holds it, or the one that held or flagged it.
    pub guard: Option<Guard>,
    /// The guards that hold it.
    pub holds: Holds,
    /// Whether this call created the email.
    pub first: bool,
    /// The key that the email is bound to.
    pub key: Option<String>,
    /// When the key expires; `None` while the email is not finished.
    pub expires_at: Option<Time>,
    /// How many calls were answered with this email instead of creating another.
    pub suppressed: u64,
    /// Whether this call's content differs from the first call's.
    pub payload_differs: bool,
    /// Whether this call had no key, and was answered with an identical email just accepted.
    pub is_identical_repeat: bool,
    /// The token with which the sender confirms a held look-alike.
    pub distinct_token: Option<String>,
    /// The thread of the email.
    pub thread: Option<ThreadId>,
    /// The fence of that thread, for a reply.
    pub fence: Option<u64>,
    /// The next version, when the email was resent.
    pub resent_as: Option<EmailId>,
    /// Of the budgets that the email counts against, the one with the least room. `None` for a repeated call.
    pub tightest_budget: Option<BudgetRoom>,
    /// What each check decided, for an item of a batch that asked for it.
    pub policy: Option<Vec<PolicyStep>>,
}

/// The Message-ID of an email.
pub(crate) fn message_id(secret: &InstallSecret, team: TeamId, cached: &CachedEmail) -> String {
    let domain = cached.from.rsplit_once('@').map_or("mailonce.test", |(_, domain)| domain);
    let key = cached.key.as_ref().map(|name| (name, cached.bind_number));
    secret.message_id(team, cached.id, key, domain)
}

impl SendReceipt {
    /// Updates the receipt to the email's current state.
    pub fn refresh(&mut self, email: &Email) {
        (self.state, self.rev) = (email.state(), email.rev);
        (self.guard, self.holds) = (email.guard, email.holds);
        (self.expires_at, self.resent_as) = (email.expires_at(), email.resent_as);
        if !self.holds.contains(Guard::LooksDuplicate) || self.state != EmailState::Held {
            self.distinct_token = None;
        }
    }

    /// One sentence that says what the receipt means and what to do next.
    pub fn next_step(&self) -> &'static str {
        match (self.first, self.state) {
            _ if self.guard == Some(Guard::AlreadyAnswered) => next_of_answered(self.state),
            _ if self.payload_differs => {
                "Already accepted with different content; the first version counts, so do not send again."
            }
            (_, EmailState::Held) if self.distinct_token.is_some() && self.holds == Guard::LooksDuplicate.into() => {
                "Accepted but held: it looks like a recently sent email. If it is intended, send it again with the \
                 distinct_token; otherwise do nothing."
            }
            (true, EmailState::Held) => next_of_held(self.guard),
            (true, EmailState::Sent | EmailState::Delivered) => "Sent; there is nothing more to do.",
            (true, EmailState::Bounced) => "Sent, and it bounced; check the address.",
            (true, EmailState::Complained) => "Sent, and the recipient complained; do not write again.",
            (true, EmailState::Failed) => "The next hop refused it; read the email to see why before you try again.",
            (true, EmailState::Unknown) => {
                "Handed over, but nobody can tell whether it arrived; do not send again, resolve it."
            }
            (true, EmailState::Scheduled) => "Accepted and scheduled; it will be sent once, so do not send it again.",
            (false, EmailState::Cancelled | EmailState::Failed) if self.resent_as.is_some() => {
                "Already accepted, and resent as the email in resent_as; check that email, and do not send it again."
            }
            (false, EmailState::Cancelled) if self.guard.is_some() => {
                "Already accepted, held and then cancelled; do not send it again unless a person says so."
            }
            (true, _) => "Accepted; it will be sent once, so do not send it again.",
            (false, state) => next_of_replay(state),
        }
    }
}

fn next_of_answered(state: EmailState) -> &'static str {
    match state {
        EmailState::Held => {
            "This message already has an answer, which is held until a person decides; do not answer it again."
        }
        EmailState::Unknown => {
            "This message was already answered, but it is unknown whether the reply was sent; do not answer it again, \
             resolve the reply."
        }
        _ => "This message was already answered or forwarded by this email; do not do it again.",
    }
}

fn next_of_held(guard: Option<Guard>) -> &'static str {
    match guard {
        Some(Guard::LooksDuplicate) => {
            "Accepted but held: it looks like a recently sent email, so a person must decide; do not send again."
        }
        Some(Guard::Cap) => "Accepted but held: a reply limit is reached, so a person must decide; do not send again.",
        Some(Guard::Budget) => {
            "Accepted but held: a budget is used up. It leaves by itself when there is room; do not send again."
        }
        Some(Guard::Approval) => "Accepted but held: a person must approve it first; do not send again.",
        _ => "Accepted but held: the same intent already goes to some of these recipients, so a person must decide.",
    }
}

fn next_of_replay(state: EmailState) -> &'static str {
    match state {
        EmailState::Scheduled => "Already accepted; it is scheduled, so there is nothing to do.",
        EmailState::Queued | EmailState::Sending => "Already accepted; it is on its way, so there is nothing to do.",
        EmailState::Sent | EmailState::Delivered => "Already sent; there is nothing to do.",
        EmailState::Bounced => "Already sent and it bounced; check the address before you use a new key.",
        EmailState::Complained => "Already sent and the recipient complained; do not write again.",
        EmailState::Failed => {
            "Already accepted but the next hop refused it; use POST /v1/emails/{id}/resend to try again on purpose."
        }
        EmailState::Unknown => {
            "Already accepted, but it is unknown whether it was sent; do not send again, resolve it."
        }
        EmailState::Abandoned => "Already accepted and then abandoned by a person; ask before you send again.",
        EmailState::Held => "Already accepted but held until a person decides; do not send again.",
        EmailState::Cancelled => {
            "Already accepted and then cancelled; use POST /v1/emails/{id}/resend to send it after all."
        }
    }
}
