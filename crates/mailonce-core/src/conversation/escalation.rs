//! Escalations: questions for a person. One question is asked once, answered once, and what was decided is done even
//! when the process that heard it ends.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    control::rule::RuleRef,
    id::{ApiKeyId, EmailId, InboxId, MessageId, ThreadId},
    mutant,
    outbound::email::Guard,
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// Why a person is asked.
    EscalationReason {
        /// Too many answers.
        Cap = "cap",
        /// Nobody can tell whether an email arrived.
        Unknown = "unknown",
        /// It looks like a mail that was sent.
        LooksDuplicate = "looks_duplicate",
        /// The same intent already went to some of its recipients.
        Overlaps = "overlaps",
        /// A rule wants a person to look first.
        Approval = "approval",
        /// An agent asks.
        Asked = "asked",
        /// Machines seem to be talking to each other.
        Loop = "loop",
        /// A message was offered to agents too often, and none answered it.
        Unanswered = "unanswered",
        /// Mail waits for a transport that no node has.
        Orphaned = "orphaned",
    }
}

impl EscalationReason {
    /// The question that a guard asks when it holds an email.
    pub fn for_guard(guard: Guard) -> Option<Self> {
        match guard {
            Guard::Cap => (!mutant!("cap-unasked")).then_some(Self::Cap),
            Guard::LooksDuplicate => Some(Self::LooksDuplicate),
            Guard::Overlaps => Some(Self::Overlaps),
            Guard::Approval => Some(Self::Approval),
            Guard::Itself | Guard::Automatic => Some(Self::Loop),
            Guard::AlreadyAnswered | Guard::Leased | Guard::NewerMessage | Guard::ReplyTo => None,
        }
    }

    /// What may be decided about it.
    pub fn allowed_decisions(self) -> &'static [Decision] {
        match self {
            Self::Cap | Self::LooksDuplicate | Self::Overlaps | Self::Approval => {
                &[Decision::Release, Decision::Edit, Decision::Reject]
            }
            Self::Unknown => &[Decision::Sent, Decision::Resend, Decision::Abandon],
            // There is nothing to release: whoever asked reads the reason.
            Self::Asked | Self::Loop | Self::Unanswered => &[Decision::Release, Decision::Reject],
            // The answer is a transport: it closes by itself when the transport is back or the mail was rerouted.
            Self::Orphaned => &[Decision::Release],
        }
    }
}

string_enum! {
    /// Where a question stands.
    EscalationState {
        /// Nobody has answered it.
        Open = "open",
        /// A person decided.
        Resolved = "resolved",
        /// Nobody answered in time.
        Expired = "expired",
        /// It answered itself.
        Moot = "moot",
    }
}

string_enum! {
    /// What a person decides.
    Decision {
        /// Let it go.
        Release = "release",
        /// Let it go with other words.
        Edit = "edit",
        /// Do not let it go.
        Reject = "reject",
        /// It arrived.
        Sent = "sent",
        /// Send the same bytes again.
        Resend = "resend",
        /// Give it up.
        Abandon = "abandon",
    }
}

/// A question for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Escalation {
    /// Why.
    pub reason: EscalationReason,
    /// Where it stands.
    pub state: EscalationState,
    /// What it is about.
    pub about: EscalationSubject,
    /// When it is decided without a person, and how. None: it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<(Time, Decision)>,
    /// What was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<DecisionRecord>,
    /// When what was decided was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_at: Option<Time>,
    /// The credential that asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<ApiKeyId>,
}

/// What a question is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscalationSubject {
    /// The email that is held or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<EmailId>,
    /// How often it was tried when it became unknown: each doubt is a question of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The message that is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
    /// Its thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// Its inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxId>,
    /// The agent's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// What the agent calls the matter. Another question about it is another question: an answer is for what was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// The rule that wants a person to look first. It is no part of the question's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleRef>,
    /// The transport that no node has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// When that was found: each time it goes missing is a question of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// What was decided, by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// What.
    #[serde(rename = "as")]
    pub decision: Decision,
    /// When.
    pub at: Time,
    /// The credential; none when time decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ApiKeyId>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The other words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<EmailEdit>,
    /// The digest of what was shown to whoever decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

/// Other words for a held email.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmailEdit {
    /// Another subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Another text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Another page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
}

impl EmailEdit {
    /// The same, where words without a letter are no words: what is empty stays as it was.
    #[must_use]
    pub fn without_blanks(self) -> Self {
        let said = |words: Option<String>| words.filter(|words| !words.is_empty());
        Self { subject: said(self.subject), text: said(self.text), html: said(self.html) }
    }
}

impl Escalation {
    /// A question that nobody has answered.
    pub fn open(reason: EscalationReason, about: EscalationSubject, asked_by: Option<ApiKeyId>) -> Self {
        Self { reason, state: EscalationState::Open, about, expiry: None, decided: None, done_at: None, asked_by }
    }

    /// The name of the question: the same question has the same name, so it is asked once.
    pub fn dedup_name(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.reason.as_str());
        // A thread goes round as a whole, so the message that showed it is not part of the question.
        let about = match self.reason {
            EscalationReason::Loop => EscalationSubject { thread: self.about.thread, ..EscalationSubject::default() },
            EscalationReason::Asked => EscalationSubject {
                question: self.about.question.as_deref().map(normalize_question),
                ..self.about.clone()
            },
            _ => EscalationSubject { rule: None, ..self.about.clone() },
        };
        hash.update(serde_json::to_vec(&about).unwrap_or_default());
        let half = hash.finalize().iter().take(16).fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
        format!("{half:032x}")
    }

    /// Answers it. False when this is no choice, or it was answered already.
    pub fn decide(&mut self, decided: DecisionRecord) -> bool {
        if self.state != EscalationState::Open || !self.reason.allowed_decisions().contains(&decided.decision) {
            return false;
        }
        self.state = if decided.by.is_some() { EscalationState::Resolved } else { EscalationState::Expired };
        self.decided = Some(decided);
        true
    }

    /// Whether something that was decided is still to be done.
    pub fn has_pending_decision(&self) -> bool {
        self.decided.is_some() && self.done_at.is_none()
    }
}

/// The words of a question without what a repeat may change: capitals, and how lines are broken. A yes to one question
/// must never pass for a yes to another, so every word counts.
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
        DecisionRecord { decision, at: Time(1), by: Some(ApiKeyId(Uuid::nil())), reason: None, edit: None, shown: None }
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
    fn it_is_answered_once_and_only_with_a_choice() {
        let mut escalation = unknown(1);
        assert!(!escalation.decide(decided(Decision::Release)));
        assert!(escalation.decide(decided(Decision::Abandon)) && escalation.has_pending_decision());
        assert!(!escalation.decide(decided(Decision::Sent)));
        assert_eq!(escalation.decided.map(|decided| decided.decision), Some(Decision::Abandon));
    }
}
