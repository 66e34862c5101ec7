//! Deliveries: each arrival of a mail at an inbox, recorded whether or not it makes a message.

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

use crate::{
    events::event::{EventKind, NewEvent},
    id::{DeliveryId, EmailId, InboxId, MessageId, NodeId, SourceId, TeamId},
    limits, mutant,
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// The channel through which a mail was received.
    Intake {
        /// The built-in SMTP listener.
        Smtp = "smtp",
        /// A provider's webhook.
        Hook = "hook",
        /// Polling a provider, in case a webhook was lost.
        Poll = "poll",
        /// An email from this installation to one of its own inboxes.
        Local = "local",
        /// Created by hand, for testing.
        Simulated = "simulated",
    }
}

string_enum! {
    /// The state of a delivery.
    DeliveryState {
        /// Stored, not processed yet.
        Waiting = "waiting",
        /// It made a message, or evidence.
        Done = "done",
        /// The same mail was received before.
        Duplicate = "duplicate",
        /// No inbox has its address, or the inbox does not accept it.
        Refused = "refused",
        /// A dead letter: processing failed permanently. It is kept and can be replayed.
        Dead = "dead",
    }
}

string_enum! {
    /// Why a delivery made no message of its own.
    DeliverySuppression {
        /// The provider repeated a webhook, or the same bytes were received again by SMTP.
        SameDelivery = "same_delivery",
        /// The inbox has a message with the same Message-ID and the same content.
        SameMessage = "same_message",
        /// The inbox has a message with the same content; neither has a Message-ID.
        SameContent = "same_content",
        /// No inbox has this address.
        UnknownInbox = "unknown_inbox",
        /// The inbox has expired.
        ExpiredInbox = "expired_inbox",
        /// A rule or a block list refuses its sender.
        Blocked = "blocked",
    }
}

string_enum! {
    /// The format of the stored bytes.
    DeliveryFormat {
        /// The original RFC 5322 bytes.
        Mime = "mime",
        /// A mail rebuilt from a provider's parsed fields. Its signatures cannot be verified.
        Rebuilt = "rebuilt",
        /// A reference to the mail, from a provider's webhook without the content.
        Notice = "notice",
    }
}

/// The target of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryTarget {
    /// An inbox.
    Inbox(InboxId),
    /// The return path of an email that mailonce sent: a bounce.
    Return {
        /// The email.
        email: EmailId,
        /// The number of its handoff.
        handoff: u16,
        /// The number of the attempt.
        attempt: u32,
    },
    /// No known recipient.
    Nobody,
}

impl DeliveryTarget {
    /// The inbox, if the target is one.
    pub fn inbox(self) -> Option<InboxId> {
        match self {
            Self::Inbox(id) => Some(id),
            Self::Return { .. } | Self::Nobody => None,
        }
    }
}

/// One arrival at an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its id.
    pub id: DeliveryId,
    /// Its team.
    pub team: TeamId,
    /// The revision. Each change increases it.
    pub rev: u32,
    /// Its state.
    pub state: DeliveryState,
    /// The immutable part.
    pub details: Arc<DeliveryDetails>,
    /// The inbox or other target.
    pub target: DeliveryTarget,
    /// When it was received.
    pub received_at: Time,
    /// How often a worker leased it.
    pub attempts: u32,
    /// When it is due for processing, while it waits.
    pub due_at: Option<Time>,
    /// Why it made no message of its own.
    pub suppressed: Option<DeliverySuppression>,
    /// The first delivery, when this one is a duplicate.
    pub duplicate_of: Option<DeliveryId>,
    /// The message that it made or duplicates.
    pub message: Option<MessageId>,
    /// The latest error.
    pub last_error: Option<String>,
}

impl Delivery {
    /// Erases who sent it and from where. The caller deletes its bytes.
    pub fn erase(&mut self) {
        let DeliveryDetails { intake, source, form, .. } = *self.details;
        let (recipient, sender, ip, helo, size) = (String::new(), None, None, None, 0);
        self.details = Arc::new(DeliveryDetails { intake, source, recipient, sender, ip, helo, form, size });
        self.last_error = None;
        self.rev += 1;
    }

    /// A new delivery. `reader`: whether this process leases it at once.
    pub fn new(new: NewDelivery, reader: bool, now: Time) -> Self {
        let due = if reader { Self::lease_end(now) } else { Some(now) };
        let waits = new.suppression.is_none();
        Self {
            id: new.id,
            team: new.team,
            rev: 1,
            state: if waits { DeliveryState::Waiting } else { DeliveryState::Refused },
            details: Arc::new(new.details),
            target: new.target,
            received_at: now,
            attempts: u32::from(waits && reader),
            due_at: due.filter(|_| waits),
            suppressed: new.suppression,
            duplicate_of: None,
            message: None,
            last_error: None,
        }
    }

    /// When a lease that starts now ends.
    pub(super) fn lease_end(now: Time) -> Option<Time> {
        (!mutant!("reading-never-lapses")).then(|| now.plus(limits::DELIVERY_LEASE_MS))
    }

    /// Ends it as a duplicate of another.
    pub fn mark_duplicate(&mut self, why: DeliverySuppression, of: Option<DeliveryId>, message: Option<MessageId>) {
        self.state = DeliveryState::Duplicate;
        self.suppressed = Some(why);
        self.duplicate_of = of;
        self.message = message;
        self.due_at = None;
    }

    /// Records the outcome of a worker. Returns false, without a change, when it no longer waits.
    pub fn record_outcome(&mut self, settle: DeliveryOutcome) -> bool {
        if self.state != DeliveryState::Waiting {
            return false;
        }
        self.rev += 1;
        self.due_at = None;
        match settle {
            DeliveryOutcome::Done => self.state = DeliveryState::Done,
            DeliveryOutcome::Refused(why) => {
                self.state = DeliveryState::Refused;
                self.suppressed = Some(why);
            }
            DeliveryOutcome::Retry(at, error) => {
                self.due_at = Some(at);
                self.last_error = Some(error);
            }
            DeliveryOutcome::Dead(error) => {
                self.state = DeliveryState::Dead;
                self.last_error = Some(error);
            }
        }
        true
    }

    /// Makes a dead delivery due again. Returns whether it changed.
    pub fn replay(&mut self, now: Time) -> bool {
        if self.state != DeliveryState::Dead {
            return false;
        }
        self.state = DeliveryState::Waiting;
        self.attempts = 0;
        self.due_at = Some(now);
        self.rev += 1;
        true
    }

    /// Replaces the reference to a mail by the fetched mail. Processing starts anew, because there was nothing to
    /// process before. Returns false, without a change, when it no longer waits or has its mail.
    pub fn attach_fetched_content(&mut self, brought: &FetchedContent) -> bool {
        if self.state != DeliveryState::Waiting || self.details.form != DeliveryFormat::Notice {
            return false;
        }
        let about = Arc::make_mut(&mut self.details);
        about.form = brought.form;
        about.size = brought.size;
        self.attempts = 1;
        self.rev += 1;
        true
    }

    /// The event for a delivery without a message: duplicate, refused or dead. `None` while it waits and when it is
    /// done.
    pub fn to_event(&self, now: Time) -> Option<NewEvent> {
        let kind = match self.state {
            DeliveryState::Waiting | DeliveryState::Done => return None,
            DeliveryState::Duplicate => EventKind::DeliveryDuplicate,
            DeliveryState::Refused => EventKind::DeliveryRefused,
            DeliveryState::Dead => EventKind::DeliveryFailed,
        };
        Some(NewEvent {
            kind,
            at: now,
            subject_id: self.id.0,
            rev: self.rev,
            data: json!({
                "inbox": self.target.inbox(),
                "recipient": self.details.recipient,
                "intake": self.details.intake,
                "reason": self.suppressed,
                "duplicate_of": self.duplicate_of,
                "message": self.message,
                "last_error": self.last_error,
            }),
        })
    }
}

/// The immutable part of a delivery. Only a fetched mail changes it, by replacing the reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryDetails {
    /// The channel.
    pub intake: Intake,
    /// The source, when it came from a provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceId>,
    /// The envelope recipient.
    pub recipient: String,
    /// The envelope sender. Empty for the null return path, `None` when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The IP address of the sending host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<std::net::IpAddr>,
    /// The name that the host gave in HELO or EHLO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helo: Option<String>,
    /// The format of the stored bytes.
    pub form: DeliveryFormat,
    /// The size in bytes, as received.
    pub size: u64,
}

/// A received mail with all its recipients at this installation.
#[derive(Clone, Debug)]
pub struct InboundMail {
    /// The packed bytes.
    pub raw: Arc<[u8]>,
    /// The process that processes it at once, if it has capacity. The lease ends after
    /// [`crate::limits::DELIVERY_LEASE_MS`], or when the process dies.
    pub leased_to: Option<NodeId>,
    /// One delivery for each recipient.
    pub deliveries: Vec<NewDelivery>,
}

/// A mail that was announced by a provider and then fetched.
#[derive(Clone, Debug)]
pub struct FetchedContent {
    /// The id under which its bytes are stored. It is used for nothing else.
    pub storage_id: DeliveryId,
    /// The format of the bytes. Never a reference.
    pub form: DeliveryFormat,
    /// The size in bytes, before packing.
    pub size: u64,
    /// The packed bytes.
    pub raw: Arc<[u8]>,
}

/// A new delivery, to be stored.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    /// The id that it gets.
    pub id: DeliveryId,
    /// Its team.
    pub team: TeamId,
    /// Its immutable part.
    pub details: DeliveryDetails,
    /// Its target.
    pub target: DeliveryTarget,
    /// The deduplication key, unique in the team.
    pub dedup_key: [u8; 32],
    /// Until when a delivery with the same key is a duplicate.
    pub dedup_until: Time,
    /// Why it makes no message in any case. Its bytes are not stored.
    pub suppression: Option<DeliverySuppression>,
}

impl NewDelivery {
    /// The inbox that must still exist when this delivery is committed.
    pub fn required_inbox(&self) -> Option<InboxId> {
        self.target.inbox().filter(|_| self.suppression.is_none())
    }

    /// Refuses it because its inbox was removed between the look-up and the commit. The row gets no inbox, so that it
    /// is not deleted with the removed one.
    pub fn refuse_missing_inbox(&mut self) {
        self.target = DeliveryTarget::Nobody;
        self.suppression = Some(DeliverySuppression::UnknownInbox);
    }
}

/// The result for one recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ReceiveResult {
    /// Stored for processing.
    Stored(DeliveryId),
    /// A duplicate of an earlier delivery.
    Duplicate {
        /// The row of the duplicate.
        id: DeliveryId,
        /// The first delivery.
        original: DeliveryId,
    },
    /// Refused. A row records it.
    Refused(DeliveryId),
}

impl ReceiveResult {
    /// Whether the mail may be acknowledged to the sender for this recipient.
    pub fn is_accepted(self) -> bool {
        match self {
            Self::Stored(_) | Self::Duplicate { .. } => true,
            Self::Refused(_) => false,
        }
    }
}

/// A delivery leased to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedDelivery {
    /// The delivery.
    pub delivery: Delivery,
    /// The packed bytes.
    pub raw: Vec<u8>,
}

/// The outcome of a delivery that makes no message now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// It was something other than mail for an inbox, such as a bounce, and is done.
    Done,
    /// Refused, by a rule on its content or because the inbox has expired.
    Refused(DeliverySuppression),
    /// Retry at this time, after this error.
    Retry(Time, String),
    /// Processing failed permanently, with this error.
    Dead(String),
}

/// A filter for a list of deliveries.
#[derive(Clone, Debug, Default)]
pub struct DeliveryQuery {
    /// At this inbox.
    pub inbox: Option<InboxId>,
    /// From this source.
    pub source: Option<SourceId>,
    /// In this state.
    pub state: Option<DeliveryState>,
    /// Of this message.
    pub message: Option<MessageId>,
    /// Older than this one.
    pub before: Option<DeliveryId>,
    /// The maximum number of deliveries.
    pub limit: usize,
}

impl DeliveryQuery {
    /// Whether a delivery passes the filter. The page position is not checked.
    pub fn matches(&self, delivery: &Delivery) -> bool {
        self.inbox.is_none_or(|inbox| delivery.target == DeliveryTarget::Inbox(inbox))
            && self.source.is_none_or(|source| delivery.details.source == Some(source))
            && self.state.is_none_or(|state| delivery.state == state)
            && self.message.is_none_or(|message| delivery.message == Some(message))
    }
}
