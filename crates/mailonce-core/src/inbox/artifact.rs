//! Artifacts: what an agent waits for in a message. Each is taken once.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    events::event::{EventKind, NewEvent},
    id::{ApiKeyId, ArtifactId, InboxId, MessageId, TeamId, WatchId},
    limits, mutant,
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// What an artifact is.
    ArtifactKind {
        /// A one-time code.
        Code = "code",
        /// A link that does something once.
        Link = "link",
    }
}

/// A code or link that was found in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its id.
    pub id: ArtifactId,
    /// Whose it is.
    pub team: TeamId,
    /// The inbox it came to.
    pub inbox: InboxId,
    /// The message it was first found in.
    pub message: MessageId,
    /// Grows with each change.
    pub rev: u32,
    /// What it is.
    pub kind: ArtifactKind,
    /// What was found.
    pub extracted: ExtractedValue,
    /// The address that sent it.
    pub sender: String,
    /// When it was first found.
    pub found_at: Time,
    /// The number, in its inbox, of the latest message that holds it.
    pub seq: u64,
    /// Whether the sender of a message that holds it was authenticated.
    pub authenticated: bool,
    /// Its one consumer.
    pub consumption: Option<Consumption>,
    /// When the consumer said that it was used.
    pub applied_at: Option<Time>,
}

/// A value with how sure it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractedValue {
    /// A code without separators; a link as a browser would read it.
    pub value: String,
    /// The same with its secret hidden.
    pub masked: String,
    /// 0 to 100.
    pub confidence: u8,
    /// Why.
    pub reasons: Vec<String>,
}

/// Who took an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumption {
    /// When.
    pub at: Time,
    /// For which account, workflow or run.
    #[serde(rename = "for")]
    pub purpose: String,
    /// In which watch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchId>,
    /// With which credential.
    pub by: ApiKeyId,
}

/// A value that was found in a message that wants to be filed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewArtifact {
    /// The id it gets when it is new.
    pub id: ArtifactId,
    /// What it is.
    pub kind: ArtifactKind,
    /// What was found.
    pub extracted: ExtractedValue,
    /// A keyed hash of the value.
    pub hash: [u8; 32],
}

/// A wish to take an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumeRequest {
    /// For which account, workflow or run.
    pub purpose: String,
    /// In which watch.
    pub watch: Option<WatchId>,
    /// With which credential.
    pub by: ApiKeyId,
}

/// The answer to a wish to take an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ConsumeResult {
    /// It was free.
    First(Artifact),
    /// The same consumer took it before.
    Replayed(Artifact),
    /// Another consumer took it before.
    ConsumedByOther(Artifact),
    /// No such artifact in this team.
    Missing,
}

/// The answer to the word that an artifact was used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum MarkAppliedResult {
    /// It is noted, now or before.
    Done(Artifact),
    /// Another consumer has it, or nobody.
    NotYours(Artifact),
    /// No such artifact in this team.
    Missing,
}

impl Artifact {
    /// Gives it to its first consumer, and to nobody else. True when it changed.
    pub fn consume(&mut self, taking: ConsumeRequest, now: Time) -> bool {
        if self.consumption.is_some() && !mutant!("consume-unchecked") {
            return false;
        }
        self.consumption = Some(Consumption { at: now, purpose: taking.purpose, watch: taking.watch, by: taking.by });
        self.rev += 1;
        true
    }

    /// Whether a consumer is the one that has it. The credential may differ: agents change theirs.
    pub fn is_consumed_by(&self, purpose: &str, watch: Option<WatchId>) -> bool {
        self.consumption.as_ref().is_some_and(|consumed| consumed.purpose == purpose && consumed.watch == watch)
    }

    /// The whole answer to a wish to take it; the artifact inside is as it is afterwards.
    pub fn into_consume_result(mut self, taking: ConsumeRequest, now: Time) -> ConsumeResult {
        if self.is_consumed_by(&taking.purpose, taking.watch) {
            ConsumeResult::Replayed(self)
        } else if self.consume(taking, now) {
            ConsumeResult::First(self)
        } else {
            ConsumeResult::ConsumedByOther(self)
        }
    }

    /// The whole answer to the word that it was used. `true` beside it when it changed.
    pub fn mark_applied(mut self, purpose: &str, now: Time) -> (MarkAppliedResult, bool) {
        if self.consumption.as_ref().is_none_or(|consumed| consumed.purpose != purpose) {
            return (MarkAppliedResult::NotYours(self), false);
        }
        let first = self.applied_at.is_none();
        if first {
            self.applied_at = Some(now);
            self.rev += 1;
        }
        (MarkAppliedResult::Done(self), first)
    }

    /// That it was found, taken or used. The value itself is never told.
    pub fn to_event(&self, kind: EventKind, now: Time) -> NewEvent {
        let consumer = self.consumption.as_ref();
        NewEvent {
            kind,
            at: now,
            subject_id: self.id.0,
            rev: self.rev,
            data: json!({
                "type": self.kind,
                "inbox": self.inbox,
                "message": self.message,
                "masked": self.extracted.masked,
                "confidence": self.extracted.confidence,
                "for": consumer.map(|consumed| &consumed.purpose),
                "watch": consumer.and_then(|consumed| consumed.watch),
            }),
        }
    }

    /// Whether a value with the same hash and kind from this sender is this one.
    pub fn is_same_value(&self, sender: &str, now: Time) -> bool {
        let recent = now.since(self.found_at) < limits::ARTIFACT_DEDUP_MS;
        self.sender == sender && recent && !mutant!("artifact-window-ignored")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn artifact() -> Artifact {
        Artifact {
            id: ArtifactId(Uuid::from_u128(1)),
            team: TeamId(Uuid::from_u128(2)),
            inbox: InboxId(Uuid::from_u128(3)),
            message: MessageId(Uuid::from_u128(4)),
            rev: 1,
            kind: ArtifactKind::Code,
            extracted: ExtractedValue {
                value: "123456".into(),
                masked: "••••56".into(),
                confidence: 90,
                reasons: vec![],
            },
            sender: "no-reply@a.test".into(),
            found_at: Time(0),
            seq: 1,
            authenticated: true,
            consumption: None,
            applied_at: None,
        }
    }

    fn taking(purpose: &str) -> ConsumeRequest {
        ConsumeRequest { purpose: purpose.into(), watch: None, by: ApiKeyId(Uuid::from_u128(5)) }
    }

    #[test]
    fn the_first_consumer_gets_it_and_gets_it_again_and_nobody_else_does() {
        let ConsumeResult::First(taken) = artifact().into_consume_result(taking("run-1"), Time(10)) else {
            panic!("not first")
        };
        assert!(
            matches!(taken.clone().into_consume_result(taking("run-1"), Time(20)), ConsumeResult::Replayed(same) if same == taken)
        );
        assert!(
            matches!(taken.clone().into_consume_result(taking("run-2"), Time(20)), ConsumeResult::ConsumedByOther(same) if same == taken)
        );
    }

    #[test]
    fn only_its_consumer_may_say_that_it_was_used_and_only_the_first_word_counts() {
        assert!(matches!(artifact().mark_applied("run-1", Time(5)), (MarkAppliedResult::NotYours(_), false)));
        let ConsumeResult::First(taken) = artifact().into_consume_result(taking("run-1"), Time(10)) else {
            panic!("not first")
        };
        assert!(matches!(taken.clone().mark_applied("run-2", Time(15)), (MarkAppliedResult::NotYours(_), false)));
        let (MarkAppliedResult::Done(applied), true) = taken.mark_applied("run-1", Time(15)) else {
            panic!("not applied")
        };
        let (MarkAppliedResult::Done(again), false) = applied.clone().mark_applied("run-1", Time(25)) else {
            panic!("not again")
        };
        assert_eq!(again.applied_at, Some(Time(15)));
    }

    #[test]
    fn the_same_value_is_the_same_artifact_for_an_hour_and_from_the_same_sender() {
        let known = artifact();
        assert!(known.is_same_value("no-reply@a.test", Time(limits::ARTIFACT_DEDUP_MS - 1)));
        assert!(!known.is_same_value("no-reply@a.test", Time(limits::ARTIFACT_DEDUP_MS)));
        assert!(!known.is_same_value("other@a.test", Time(1)));
    }
}
