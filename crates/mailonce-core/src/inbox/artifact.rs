//! Artifacts: one-time codes and links in messages, for which agents wait. Each is consumed once.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    control::erasure::AddressEraser,
    events::event::{EventKind, NewEvent},
    id::{ApiKeyId, ArtifactId, InboxId, MessageId, TeamId, WatchId},
    limits, mutant,
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// The kind of an artifact.
    ArtifactKind {
        /// A one-time code.
        Code = "code",
        /// A link that has an effect once.
        Link = "link",
    }
}

/// A code or link found in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its id.
    pub id: ArtifactId,
    /// Its team.
    pub team: TeamId,
    /// Its inbox.
    pub inbox: InboxId,
    /// The message in which it was first found.
    pub message: MessageId,
    /// The revision. Each change increases it.
    pub rev: u32,
    /// Its kind.
    pub kind: ArtifactKind,
    /// Its value.
    pub extracted: ExtractedValue,
    /// The address that sent it.
    pub sender: String,
    /// When it was first found.
    pub found_at: Time,
    /// The number of the latest message in its inbox that contains it.
    pub seq: u64,
    /// Whether the sender of a message that contains it was authenticated.
    pub authenticated: bool,
    /// Its only consumer.
    pub consumption: Option<Consumption>,
    /// When the consumer reported that it was used.
    pub applied_at: Option<Time>,
}

/// An extracted value with its confidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractedValue {
    /// A code without separators, or a link as a browser would resolve it.
    pub value: String,
    /// The value with its secret masked.
    pub masked: String,
    /// The confidence, 0 to 100.
    pub confidence: u8,
    /// The reasons for the confidence.
    pub reasons: Vec<String>,
}

/// Who consumed an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumption {
    /// When it was consumed.
    pub at: Time,
    /// The account, workflow or run it is for.
    #[serde(rename = "for")]
    pub purpose: String,
    /// The watch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchId>,
    /// The API key.
    pub by: ApiKeyId,
}

impl Consumption {
    /// Replaces a person's address in what it is for. Returns whether it was there.
    pub fn redact(&mut self, eraser: &AddressEraser) -> bool {
        let redacted = eraser.redact(&self.purpose);
        let is_named = redacted.is_some();
        self.purpose = redacted.unwrap_or_else(|| std::mem::take(&mut self.purpose));
        is_named
    }
}

/// An artifact of a new message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewArtifact {
    /// The id it gets when it is new.
    pub id: ArtifactId,
    /// Its kind.
    pub kind: ArtifactKind,
    /// Its value.
    pub extracted: ExtractedValue,
    /// A keyed hash of the value.
    pub hash: [u8; 32],
}

/// A request to consume an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumeRequest {
    /// The account, workflow or run it is for.
    pub purpose: String,
    /// The watch.
    pub watch: Option<WatchId>,
    /// The API key.
    pub by: ApiKeyId,
    /// What the consumer held when it chose. `None` if it may take any number.
    pub held_before: Option<HeldArtifacts>,
}

/// The artifacts that a consumer held when it chose another one. If the transaction finds one more, a concurrent call
/// of the same consumer took it, and the choice must be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldArtifacts {
    /// Only artifacts of messages after this number count.
    pub after: u64,
    /// Those that the caller knows.
    pub known: Vec<ArtifactId>,
}

impl HeldArtifacts {
    /// The artifact that a concurrent call took, among those that the consumer has now.
    pub fn concurrently_taken(&self, held: Vec<Artifact>) -> Option<Artifact> {
        let is_new = |one: &Artifact| one.applied_at.is_none() && !self.known.contains(&one.id);
        held.into_iter().find(is_new)
    }
}

/// The result of consuming an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ConsumeResult {
    /// It was free.
    First(Artifact),
    /// The same consumer had consumed it before.
    Replayed(Artifact),
    /// Another consumer had consumed it before.
    ConsumedByOther(Artifact),
    /// A concurrent call of the same consumer took this one. Nothing was consumed.
    TookMeanwhile(Artifact),
    /// No such artifact in this team.
    Missing,
}

/// The result of marking an artifact as used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum MarkAppliedResult {
    /// It is marked, now or earlier.
    Done(Artifact),
    /// Another consumer has it, or none.
    NotYours(Artifact),
    /// No such artifact in this team.
    Missing,
}

impl Artifact {
    /// Gives it to its first consumer only. Returns whether it changed.
    pub fn consume(&mut self, taking: ConsumeRequest, now: Time) -> bool {
        if self.consumption.is_some() && !mutant!("consume-unchecked") {
            return false;
        }
        self.consumption = Some(Consumption { at: now, purpose: taking.purpose, watch: taking.watch, by: taking.by });
        self.rev += 1;
        true
    }

    /// Whether this consumer has it. The API key may differ, because agents rotate theirs.
    pub fn is_consumed_by(&self, purpose: &str, watch: Option<WatchId>) -> bool {
        self.consumption.as_ref().is_some_and(|consumed| consumed.purpose == purpose && consumed.watch == watch)
    }

    /// Whether this consumer has it, in whichever watch it was taken.
    pub fn is_held_by(&self, purpose: &str) -> bool {
        self.consumption.as_ref().is_some_and(|consumed| consumed.purpose == purpose)
    }

    /// The result of a request to consume it, with the artifact after it.
    pub fn into_consume_result(mut self, taking: ConsumeRequest, now: Time) -> ConsumeResult {
        if self.is_consumed_by(&taking.purpose, taking.watch) {
            ConsumeResult::Replayed(self)
        } else if self.consume(taking, now) {
            ConsumeResult::First(self)
        } else {
            ConsumeResult::ConsumedByOther(self)
        }
    }

    /// The result of marking it as used, and whether it changed.
    pub fn mark_applied(mut self, purpose: &str, now: Time) -> (MarkAppliedResult, bool) {
        if !self.is_held_by(purpose) {
            return (MarkAppliedResult::NotYours(self), false);
        }
        let first = self.applied_at.is_none();
        if first {
            self.applied_at = Some(now);
            self.rev += 1;
        }
        (MarkAppliedResult::Done(self), first)
    }

    /// The event that it was found, consumed or used. It never contains the value.
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

    /// Whether a value with the same hash and kind from this sender is the same artifact.
    pub fn is_same_value(&self, sender: &str, now: Time) -> bool {
        let recent = now.since(self.found_at) < limits::ARTIFACT_DEDUP_MS;
        self.sender == sender && recent
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
        ConsumeRequest { purpose: purpose.into(), watch: None, by: ApiKeyId(Uuid::from_u128(5)), held_before: None }
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
