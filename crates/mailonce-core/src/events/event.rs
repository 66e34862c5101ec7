//! Events: facts told outside, in one gap-free order per team.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt;
use uuid::Uuid;

use crate::{
    id::{self, EventId, InboxId},
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// What happened.
    EventKind {
        /// An email was accepted.
        EmailAccepted = "email.accepted",
        /// An email was accepted and is held by a guard.
        EmailHeld = "email.held",
        /// A call was answered with an earlier email.
        EmailDuplicate = "email.duplicate",
        /// A scheduled email got another time.
        EmailRescheduled = "email.rescheduled",
        /// The next hop has a part of the email.
        EmailSent = "email.sent",
        /// The recipient's server has a part of the email.
        EmailDelivered = "email.delivered",
        /// A part of the email came back.
        EmailBounced = "email.bounced",
        /// A recipient called the email spam.
        EmailComplained = "email.complained",
        /// The next hop refused a part of the email for good.
        EmailFailed = "email.failed",
        /// The next hop asks to come again with a part of the email.
        EmailDeferred = "email.deferred",
        /// Nobody can tell whether a part of the email arrived.
        EmailUnknown = "email.unknown",
        /// A part of the email whose outcome was unknown was settled.
        EmailResolved = "email.resolved",
        /// An email was taken back.
        EmailCancelled = "email.cancelled",
        /// The next version of an email was made.
        EmailResent = "email.resent",
        /// A part of the email waits for a transport that no node has.
        HandoffOrphaned = "handoff.orphaned",
        /// An operator moved a part of the email to another transport.
        HandoffRerouted = "handoff.rerouted",
        /// A message arrived in an inbox.
        MessageReceived = "message.received",
        /// A mail came again and made no message.
        DeliveryDuplicate = "delivery.duplicate",
        /// A mail was for nobody here, or for somebody who does not want it.
        DeliveryRefused = "delivery.refused",
        /// A delivery could not be read for good and is kept.
        DeliveryFailed = "delivery.failed",
        /// A code or link was found in a message.
        ArtifactFound = "artifact.found",
        /// A code or link was taken.
        ArtifactConsumed = "artifact.consumed",
        /// Whoever took a code or link says that it was used.
        ArtifactApplied = "artifact.applied",
        /// An email that was held may leave.
        EmailReleased = "email.released",
        /// A message was answered.
        MessageAnswered = "message.answered",
        /// A message was passed on.
        MessageForwarded = "message.forwarded",
        /// What answered a message surely never left, and it waits for an answer again.
        MessageReopened = "message.reopened",
        /// A message wants no answer any more.
        MessageSkipped = "message.skipped",
        /// A guard refused an answer.
        ReplyRefused = "reply.refused",
        /// An agent took a thread.
        ThreadLeased = "thread.leased",
        /// A thread was answered too often, and an answer is held.
        ThreadCap = "thread.cap",
        /// A person is asked.
        EscalationOpened = "escalation.opened",
        /// A question was answered, by a person, by time or by itself.
        EscalationResolved = "escalation.resolved",
        /// The records of a sending domain were all found.
        DomainVerified = "domain.verified",
        /// The records of a sending domain that was verified are there no more.
        DomainFailed = "domain.failed",
        /// An endpoint gets nothing any more until somebody enables it again.
        EndpointDisabled = "endpoint.disabled",
        /// A key got another memory.
        KeyExtended = "key.extended",
        /// A key was forgotten by hand.
        KeyForgotten = "key.forgotten",
        /// A way out rests: what goes by it waits.
        TransportOpened = "transport.opened",
        /// A way out works again.
        TransportClosed = "transport.closed",
    }
}

impl EventKind {
    /// The kind of thing it is about.
    pub fn subject_type(self) -> &'static str {
        match self {
            Self::KeyExtended | Self::KeyForgotten => "key",
            Self::MessageReceived
            | Self::MessageAnswered
            | Self::MessageForwarded
            | Self::MessageReopened
            | Self::MessageSkipped
            | Self::ReplyRefused => "message",
            Self::ThreadLeased | Self::ThreadCap => "thread",
            Self::EscalationOpened | Self::EscalationResolved => "escalation",
            Self::DeliveryDuplicate | Self::DeliveryRefused | Self::DeliveryFailed => "delivery",
            Self::ArtifactFound | Self::ArtifactConsumed | Self::ArtifactApplied => "artifact",
            Self::DomainVerified | Self::DomainFailed => "domain",
            Self::EndpointDisabled => "endpoint",
            Self::TransportOpened | Self::TransportClosed => "transport",
            _ => "email",
        }
    }
}

/// An event before it has its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// What happened.
    pub kind: EventKind,
    /// When.
    pub at: Time,
    /// The id of what it is about. Events about keys carry the id of the email they were bound to.
    pub subject_id: Uuid,
    /// That thing's rev after the change.
    pub rev: u32,
    /// The facts needed to act.
    pub data: Value,
}

impl NewEvent {
    /// The inbox that it happened at, when it did at one.
    pub fn inbox(&self) -> Option<InboxId> {
        self.data.get("inbox")?.as_str()?.parse().ok()
    }
}

/// An event with its place in the team's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// From 1, without gaps.
    pub seq: u64,
    /// The event itself.
    pub event: NewEvent,
}

impl Event {
    /// Its id: follows from what it says and where it stands, so it needs no place in the ledger.
    pub fn id(&self) -> EventId {
        let mut hash = Sha256::new();
        hash.update(self.event.subject_id.as_bytes());
        hash.update(self.event.kind.as_str().as_bytes());
        hash.update(self.seq.to_be_bytes());
        hash.update(self.event.rev.to_be_bytes());
        let sum = hash.finalize();
        let word = |at: usize| sum.iter().skip(at).take(8).fold(0_i64, |n, byte| (n << 8) | i64::from(*byte));
        EventId(id::from_bits((self.event.at.0 << 12) | (word(0) & 0xfff), word(8)))
    }
}

/// A place in the order of events: the epoch of the installation and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCursor {
    /// Renewed by a restore.
    pub epoch: u32,
    /// The last event seen.
    pub seq: u64,
}

impl EventCursor {
    /// Reads `epoch-seq`, or `0` for the very start.
    pub fn parse(text: &str) -> Option<Option<Self>> {
        if text == "0" {
            return Some(None);
        }
        let (epoch, seq) = text.split_once('-')?;
        Some(Some(Self { epoch: epoch.parse().ok()?, seq: seq.parse().ok()? }))
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_back() {
        let cursor = EventCursor { epoch: 3, seq: 42 };
        assert_eq!(EventCursor::parse(&cursor.to_string()), Some(Some(cursor)));
        assert_eq!(EventCursor::parse("0"), Some(None));
        for bad in ["", "x", "1", "1-", "-1", "1-x"] {
            assert_eq!(EventCursor::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn ids_of_events_are_uuid_v7_and_differ_by_place() {
        let event = |seq| Event {
            seq,
            event: NewEvent {
                kind: EventKind::EmailAccepted,
                at: Time(1_731_628_800_123),
                subject_id: Uuid::from_u128(9),
                rev: 1,
                data: Value::Null,
            },
        };
        assert_eq!(event(1).id(), event(1).id());
        assert_ne!(event(1).id(), event(2).id());
        assert_eq!(event(1).id().0.get_version_num(), 7);
    }
}
