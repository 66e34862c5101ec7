//! Escalations: questions for a person. A question is asked once and answered once. Its decision is carried out even
//! when the process that received it dies.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    control::rule::RuleRef,
    id::{ApiKeyId, ClaimId, EmailId, InboxId, MessageId, PersonId, ThreadId},
    mutant,
    outbound::email::Guard,
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// Why a person is asked.
    EscalationReason {
        /// A cap on replies is reached.
        Cap = "cap",
        /// It is unknown whether an email was sent.
        Unknown = "unknown",
        /// The email looks like a duplicate.
        LooksDuplicate = "looks_duplicate",
        /// The same intent was already sent to some of its recipients.
        Overlaps = "overlaps",
        /// A rule requires approval by a person.
        Approval = "approval",
        /// A budget has no room for the email.
        Budget = "budget",
        /// An agent asks.
        Asked = "asked",
        /// Two automatic systems seem to reply to each other.
        Loop = "loop",
        /// A message was offered to agents too often without a reply.
        Unanswered = "unanswered",
        /// Email is waiting for a transport that no node has.
        Orphaned = "orphaned",
        /// The holder of a claim was lost after it began.
        ClaimUnknown = "claim_unknown",
    }
}

impl EscalationReason {
    /// The question for an email that this guard holds.
    pub fn for_guard(guard: Guard) -> Option<Self> {
        match guard {
            Guard::Cap => (!mutant!("cap-unasked")).then_some(Self::Cap),
            Guard::LooksDuplicate => Some(Self::LooksDuplicate),
            Guard::Overlaps => Some(Self::Overlaps),
            Guard::Approval => Some(Self::Approval),
            Guard::Budget => Some(Self::Budget),
            Guard::Itself | Guard::Automatic => Some(Self::Loop),
            Guard::AlreadyAnswered | Guard::Leased | Guard::NewerMessage | Guard::ReplyTo => None,
        }
    }

    /// The hold that a release removes. `None` when the question is about no held email.
    pub fn hold(self) -> Option<Guard> {
        match self {
            Self::Cap => Some(Guard::Cap),
            Self::LooksDuplicate => Some(Guard::LooksDuplicate),
            Self::Overlaps => Some(Guard::Overlaps),
            Self::Approval => Some(Guard::Approval),
            Self::Budget => Some(Guard::Budget),
            Self::Unknown | Self::Asked | Self::Loop | Self::Unanswered | Self::Orphaned | Self::ClaimUnknown => None,
        }
    }

    /// The question, in the words of approval pages and notifications.
    pub fn question(self) -> &'static str {
        match self {
            Self::Approval => "Approve this email?",
            Self::LooksDuplicate => "This email looks like one that was sent. Send it too?",
            Self::Overlaps => "Some recipients got an email about this already. Send it too?",
            Self::Cap => "The limit of replies is reached. Send this one?",
            Self::Budget => "A budget is used up. Send this email anyway?",
            Self::Unknown => "Nobody can tell whether this email was sent. Was it?",
            Self::ClaimUnknown => "A worker was lost half-way. Did it finish?",
            Self::Asked => "An agent asks",
            Self::Loop => "Two automatic systems seem to answer each other",
            Self::Unanswered => "A message was not answered",
            Self::Orphaned => "Email waits for a transport that no server has",
        }
    }

    /// The possible decisions.
    pub fn allowed_decisions(self) -> &'static [Decision] {
        match self {
            Self::Cap | Self::LooksDuplicate | Self::Overlaps | Self::Approval | Self::Budget => {
                &[Decision::Release, Decision::Edit, Decision::Reject]
            }
            Self::Unknown => &[Decision::Sent, Decision::Resend, Decision::Abandon],
            Self::ClaimUnknown => &[Decision::Done, Decision::Retry, Decision::Abandon],
            // There is no email to release: the agent that asked reads the reason.
            Self::Asked | Self::Loop | Self::Unanswered => &[Decision::Release, Decision::Reject],
            // It closes by itself when the transport is back or the email was rerouted.
            Self::Orphaned => &[Decision::Release],
        }
    }
}

string_enum! {
    /// The state of a question.
    EscalationState {
        /// Not answered yet.
        Open = "open",
        /// A person decided.
        Resolved = "resolved",
        /// It was not answered in time.
        Expired = "expired",
        /// It needs no answer any more.
        Moot = "moot",
    }
}

string_enum! {
    /// A person's decision.
    Decision {
        /// Release the email.
        Release = "release",
        /// Release it with changed content.
        Edit = "edit",
        /// Reject it.
        Reject = "reject",
        /// It was sent.
        Sent = "sent",
        /// Send the same bytes again.
        Resend = "resend",
        /// Abandon it.
        Abandon = "abandon",
        /// The side effect of a claim happened.
        Done = "done",
        /// The next caller may perform the side effect of a claim, possibly a second time.
        Retry = "retry",
    }
}

/// A question for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Escalation {
    /// Why.
    pub reason: EscalationReason,
    /// Its state.
    pub state: EscalationState,
    /// Its subject.
    pub about: EscalationSubject,
    /// When it is decided without a person, and how. `None`: it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<(Time, Decision)>,
    /// The decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionRecord>,
    /// When the decision was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_at: Option<Time>,
    /// The API key that asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_by: Option<ApiKeyId>,
    /// When it was asked again, after it had been closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopened_at: Option<Time>,
}

/// The subject of a question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscalationSubject {
    /// The email that is held or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<EmailId>,
    /// The number of attempts, or the fence of the claim, when it became unknown. Each unknown attempt is a separate question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The message that it replies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
    /// Its thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// Its inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxId>,
    /// The agent's own text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The agent's id for the matter. Questions with different ids are different questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// The rule that requires approval. It does not distinguish questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleRef>,
    /// The claim whose holder was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimId>,
    /// The transport that no node has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// When that was found. Each disappearance is a separate question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// A decision, and who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// The decision.
    #[serde(rename = "as")]
    pub decision: Decision,
    /// When it was made.
    pub at: Time,
    /// The API key, session or approval link. `None` when the deadline decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ApiKeyId>,
    /// The person, or the notification target whose link was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<PersonId>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The changed content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<EmailEdit>,
    /// The digest of what the person was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

/// Changed content for a held email.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmailEdit {
    /// The new subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The new text body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The new HTML body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
}

impl EmailEdit {
    /// The same without empty fields. An absent field leaves the content as it was.
    #[must_use]
    pub fn without_blanks(self) -> Self {
        let said = |words: Option<String>| words.filter(|words| !words.is_empty());
        Self { subject: said(self.subject), text: said(self.text), html: said(self.html) }
    }
}

impl Escalation {
    /// A new question.
    pub fn open(reason: EscalationReason, about: EscalationSubject, opened_by: Option<ApiKeyId>) -> Self {
        Self {
            reason,
            state: EscalationState::Open,
            about,
            expiry: None,
            decision: None,
            executed_at: None,
            opened_by,
            reopened_at: None,
        }
    }

    /// Asks a closed question again.
    pub fn reopen(&mut self, now: Time) {
        (self.state, self.decision, self.executed_at) = (EscalationState::Open, None, None);
        self.reopened_at = Some(now);
    }

    /// When it was asked last: when it was reopened, else `created_at`, the time of the escalation's record.
    pub fn asked_at(&self, created_at: Time) -> Time {
        self.reopened_at.unwrap_or(created_at)
    }

    /// The deduplication name. The same question has the same name, so it is asked once.
    pub fn dedup_name(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.reason.as_str());
        // A loop concerns the whole thread, so the message that revealed it does not distinguish questions.
        let about = match self.reason {
            EscalationReason::Loop => EscalationSubject { thread: self.about.thread, ..EscalationSubject::default() },
            EscalationReason::Asked => EscalationSubject {
                question: self.about.question.as_deref().map(normalize_question),
                ..self.about.clone()
            },
            // The words depend on what is still known about the holder.
            EscalationReason::ClaimUnknown => EscalationSubject { question: None, ..self.about.clone() },
            _ => EscalationSubject { rule: None, ..self.about.clone() },
        };
        hash.update(serde_json::to_vec(&about).unwrap_or_default());
        let half = hash.finalize().iter().take(16).fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
        format!("{half:032x}")
    }

    /// Records the decision. Returns false when it is not among the possible ones, or the question was answered before.
    pub fn decide(&mut self, decided: DecisionRecord) -> bool {
        if self.state != EscalationState::Open || !self.reason.allowed_decisions().contains(&decided.decision) {
            return false;
        }
        self.state = if decided.by.is_some() { EscalationState::Resolved } else { EscalationState::Expired };
        self.decision = Some(decided);
        true
    }

    /// Whether a decision is still to be carried out.
    pub fn has_pending_decision(&self) -> bool {
        self.decision.is_some() && self.executed_at.is_none()
    }
}

/// Normalizes case and line breaks of a question, which a repeat may change. Every word counts, so that approving one
/// question never approves another.
fn normalize_question(question: &str) -> String {
    question.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn unknown(attempts: u32) -> Escalation {
        let about = EscalationSubject {
            email: Some(EmailId(Uuid::from_u128(1))),
            attempts: Some(attempts),
            ..EscalationSubject::default()
        };
        Escalation::open(EscalationReason::Unknown, about, None)
    }

    fn decided(decision: Decision) -> DecisionRecord {
        let by = Some(ApiKeyId(Uuid::nil()));
        DecisionRecord { decision, at: Time(1), by, person: None, reason: None, edit: None, shown: None }
    }

    #[test]
    fn the_same_question_has_the_same_name() {
        assert_eq!(unknown(1).dedup_name(), unknown(1).dedup_name());
        assert_ne!(unknown(1).dedup_name(), unknown(2).dedup_name());
        let held = Escalation::open(EscalationReason::Cap, unknown(1).about, None);
        assert_ne!(held.dedup_name(), unknown(1).dedup_name());
    }

    #[test]
    fn every_question_about_something_is_its_own_and_a_repeat_is_none() {
        let asked = |entity: Option<&str>, words: &str| {
            let (entity, question) = (entity.map(str::to_owned), Some(words.to_owned()));
            Escalation::open(
                EscalationReason::Asked,
                EscalationSubject { question, entity, ..EscalationSubject::default() },
                None,
            )
            .dedup_name()
        };
        assert_eq!(asked(Some("refund_7"), "May I pay 7?"), asked(Some("refund_7"), "may I\n pay 7? "));
        assert_ne!(asked(Some("refund_7"), "May I pay 7?"), asked(Some("refund_7"), "May I pay 700?"));
        assert_ne!(asked(Some("refund_7"), "May I?"), asked(Some("refund_8"), "May I?"));
        assert_ne!(asked(None, "May I?"), asked(None, "Am I allowed to?"));
    }

    #[test]
    fn an_escalation_is_decided_once_and_only_with_an_offered_decision() {
        let mut escalation = unknown(1);
        assert!(!escalation.decide(decided(Decision::Release)));
        assert!(escalation.decide(decided(Decision::Abandon)) && escalation.has_pending_decision());
        assert!(!escalation.decide(decided(Decision::Sent)));
        assert_eq!(escalation.decision.map(|decided| decided.decision), Some(Decision::Abandon));
    }
}
