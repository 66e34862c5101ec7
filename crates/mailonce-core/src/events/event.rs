//! Events: facts reported outside, in one gap-free order per team.

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
    /// The type of an event.
    EventKind {
        /// An email was accepted.
        EmailAccepted = "email.accepted",
        /// An email was accepted and is held by a guard.
        EmailHeld = "email.held",
        /// A call was answered with an earlier email.
        EmailDuplicate = "email.duplicate",
        /// A scheduled email was rescheduled.
        EmailRescheduled = "email.rescheduled",
        /// The next hop accepted a handoff of the email.
        EmailSent = "email.sent",
        /// The recipient's server accepted a handoff of the email.
        EmailDelivered = "email.delivered",
        /// A handoff of the email bounced.
        EmailBounced = "email.bounced",
        /// A recipient reported the email as spam.
        EmailComplained = "email.complained",
        /// The next hop refused a handoff of the email permanently.
        EmailFailed = "email.failed",
        /// The next hop asks for a retry of a handoff of the email.
        EmailDeferred = "email.deferred",
        /// The outcome of a handoff of the email is unknown.
        EmailUnknown = "email.unknown",
        /// An unknown outcome of a handoff of the email was resolved.
        EmailResolved = "email.resolved",
        /// An email was cancelled.
        EmailCancelled = "email.cancelled",
        /// An email was resent as a new version.
        EmailResent = "email.resent",
        /// A handoff of the email waits for a transport that no node has.
        HandoffOrphaned = "handoff.orphaned",
        /// An operator moved a handoff of the email to another transport.
        HandoffRerouted = "handoff.rerouted",
        /// A message arrived in an inbox.
        MessageReceived = "message.received",
        /// A mail was received again and made no message.
        DeliveryDuplicate = "delivery.duplicate",
        /// A mail had an unknown recipient, or its inbox does not accept it.
        DeliveryRefused = "delivery.refused",
        /// Processing a delivery failed permanently; it is kept as a dead letter.
        DeliveryFailed = "delivery.failed",
        /// A code or link was found in a message.
        ArtifactFound = "artifact.found",
        /// A code or link was consumed.
        ArtifactConsumed = "artifact.consumed",
        /// The consumer of a code or link reported that it was used.
        ArtifactApplied = "artifact.applied",
        /// One of several holds of an email was removed; it is still held.
        EmailHoldRemoved = "email.hold_removed",
        /// A held email was released.
        EmailReleased = "email.released",
        /// A message got a reply.
        MessageAnswered = "message.answered",
        /// A message was forwarded.
        MessageForwarded = "message.forwarded",
        /// The replies to a message were surely not sent, so it is unanswered again.
        MessageReopened = "message.reopened",
        /// A message needs no reply any more.
        MessageSkipped = "message.skipped",
        /// A guard refused a reply.
        ReplyRefused = "reply.refused",
        /// An agent leased a thread.
        ThreadLeased = "thread.leased",
        /// A reply exceeded a cap of its thread and is held.
        ThreadCapReached = "thread.cap_reached",
        /// A question for a person was opened.
        EscalationOpened = "escalation.opened",
        /// A question was answered, expired or became moot.
        EscalationResolved = "escalation.resolved",
        /// All DNS records of a sending domain were found.
        DomainVerified = "domain.verified",
        /// DNS records of a verified sending domain are missing.
        DomainFailed = "domain.failed",
        /// An endpoint was disabled and gets no notices until a person enables it.
        EndpointDisabled = "endpoint.disabled",
        /// How long a key is remembered was changed.
        KeyExtended = "key.extended",
        /// A key was forgotten on request.
        KeyForgotten = "key.forgotten",
        /// The circuit breaker of a transport opened: its email waits.
        TransportBreakerOpened = "transport.breaker_opened",
        /// The circuit breaker of a transport closed.
        TransportBreakerClosed = "transport.breaker_closed",
        /// Email of the installation, a transport, the team, an inbox or an API key was stopped.
        StopCreated = "stop.created",
        /// A stop ended, and its email is released.
        StopEnded = "stop.ended",
        /// A claim waits for a worker, with a payload.
        ClaimOffered = "claim.offered",
        /// A caller has a claim and may begin.
        ClaimClaimed = "claim.claimed",
        /// The side effect of a claim began.
        ClaimBegun = "claim.begun",
        /// The side effect of a claim happened.
        ClaimCompleted = "claim.completed",
        /// The holder of a claim reported that the side effect did not happen.
        ClaimFailed = "claim.failed",
        /// A claim is free for the next caller.
        ClaimFreed = "claim.freed",
        /// The holder of a claim was lost after it began.
        ClaimUnknown = "claim.unknown",
        /// A look-up did not find the side effect of a claim.
        ClaimEvidence = "claim.evidence",
        /// A person decided about an unknown claim.
        ClaimResolved = "claim.resolved",
        /// A row of an outbox was parked as a dead letter.
        OutboxRowParked = "outbox.row_parked",
        /// An outbox is not drained until an operator acts.
        OutboxStopped = "outbox.stopped",
        /// An outbox that had stopped is drained again.
        OutboxResumed = "outbox.resumed",
        /// An act was recorded in the audit log. Only teams that ask for these events get them.
        AuditRecorded = "audit.recorded",
    }
}

impl EventKind {
    /// The type of its subject.
    pub fn subject_type(self) -> &'static str {
        match self {
            Self::KeyExtended | Self::KeyForgotten => "key",
            Self::MessageReceived
            | Self::MessageAnswered
            | Self::MessageForwarded
            | Self::MessageReopened
            | Self::MessageSkipped
            | Self::ReplyRefused => "message",
            Self::ThreadLeased | Self::ThreadCapReached => "thread",
            Self::EscalationOpened | Self::EscalationResolved => "escalation",
            Self::DeliveryDuplicate | Self::DeliveryRefused | Self::DeliveryFailed => "delivery",
            Self::ArtifactFound | Self::ArtifactConsumed | Self::ArtifactApplied => "artifact",
            Self::DomainVerified | Self::DomainFailed => "domain",
            Self::EndpointDisabled => "endpoint",
            Self::TransportBreakerOpened | Self::TransportBreakerClosed => "transport",
            Self::StopCreated | Self::StopEnded => "stop",
            Self::ClaimOffered
            | Self::ClaimClaimed
            | Self::ClaimBegun
            | Self::ClaimCompleted
            | Self::ClaimFailed
            | Self::ClaimFreed
            | Self::ClaimUnknown
            | Self::ClaimEvidence
            | Self::ClaimResolved => "claim",
            Self::OutboxRowParked => "outbox_row",
            Self::OutboxStopped | Self::OutboxResumed => "outbox",
            Self::AuditRecorded => "audit",
            _ => "email",
        }
    }
}

/// An event before it has its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Its type.
    pub kind: EventKind,
    /// When it happened.
    pub at: Time,
    /// The id of its subject. Events about keys carry the id of the email that the key is bound to.
    pub subject_id: Uuid,
    /// The subject's revision after the change.
    pub rev: u32,
    /// The data needed to act on it.
    pub data: Value,
}

impl NewEvent {
    /// The inbox at which it happened, if there is one.
    pub fn inbox(&self) -> Option<InboxId> {
        self.data.get("inbox")?.as_str()?.parse().ok()
    }
}

/// An event with its number in the team's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The number, from 1, without gaps.
    pub seq: u64,
    /// The event itself.
    pub event: NewEvent,
}

impl Event {
    /// Its id. It is derived from the event's content and number, so the ledger does not store it.
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

/// A position in the order of events: the epoch of the installation and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCursor {
    /// The epoch, which a restore changes.
    pub epoch: u32,
    /// The number of the last event seen.
    pub seq: u64,
}

impl EventCursor {
    /// Parses `epoch-seq`, or `0` for the beginning.
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
