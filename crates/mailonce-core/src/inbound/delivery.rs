//! Deliveries: each arrival of a mail at an inbox, counted whether or not it made a message.

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
    /// The way in.
    Intake {
        /// Our own SMTP listener.
        Smtp = "smtp",
        /// A provider's hook.
        Hook = "hook",
        /// Asked from a provider that may have lost a hook.
        Poll = "poll",
        /// One of our own emails to one of our own inboxes.
        Local = "local",
        /// Made by hand, to try things out.
        Simulated = "simulated",
    }
}

string_enum! {
    /// How a delivery is.
    DeliveryState {
        /// Kept, not read yet.
        Waiting = "waiting",
        /// It made a message, or evidence.
        Done = "done",
        /// The same mail came before.
        Duplicate = "duplicate",
        /// It was for nobody here, or for somebody who does not want it.
        Refused = "refused",
        /// It could not be read for good. It is kept and can be tried again.
        Dead = "dead",
    }
}

string_enum! {
    /// Why a delivery made no message of its own.
    DeliverySuppression {
        /// The provider told of the same mail again, or the same bytes came again by SMTP.
        SameDelivery = "same_delivery",
        /// The inbox has a message with the same Message-ID and the same content.
        SameMessage = "same_message",
        /// The inbox has a message with the same content; neither has a Message-ID.
        SameContent = "same_content",
        /// No inbox has this address.
        UnknownInbox = "unknown_inbox",
        /// The inbox has expired.
        ExpiredInbox = "expired_inbox",
        /// A rule blocks it.
        Blocked = "blocked",
    }
}

string_enum! {
    /// What the kept bytes are.
    DeliveryFormat {
        /// A mail as it travels.
        Mime = "mime",
        /// A mail put together from fields that a provider read: no signature can be checked on it.
        Rebuilt = "rebuilt",
        /// What tells where the mail is: a provider's notice without it.
        Notice = "notice",
    }
}

/// Whom a delivery is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryTarget {
    /// An inbox.
    Inbox(InboxId),
    /// The return path of one of our own emails: a bounce.
    Return {
        /// Which email.
        email: EmailId,
        /// Which of its handoffs.
        handoff: u16,
        /// Which attempt at it.
        attempt: u32,
    },
    /// Nobody here.
    Nobody,
}

impl DeliveryTarget {
    /// The inbox, when it is one.
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
    /// Whose it is.
    pub team: TeamId,
    /// Grows with each change.
    pub rev: u32,
    /// How it is.
    pub state: DeliveryState,
    /// What never changes.
    pub details: Arc<DeliveryDetails>,
    /// The inbox and all that.
    pub target: DeliveryTarget,
    /// When it arrived.
    pub received_at: Time,
    /// How often a worker took it up.
    pub attempts: u32,
    /// When it is due to be read, while it waits.
    pub due_at: Option<Time>,
    /// Why it made no message of its own.
    pub suppressed: Option<DeliverySuppression>,
    /// The delivery that came first, when this one is a repeat of it.
    pub duplicate_of: Option<DeliveryId>,
    /// The message it made or repeated.
    pub message: Option<MessageId>,
    /// What went wrong the last time.
    pub last_error: Option<String>,
}

impl Delivery {
    /// How a delivery begins.
    pub fn new(new: NewDelivery, reader: bool, now: Time) -> Self {
        let due = if reader { now.plus(limits::DELIVERY_LEASE_MS) } else { now };
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
            due_at: waits.then_some(due).filter(|_| !(reader && mutant!("reading-never-lapses"))),
            suppressed: new.suppression,
            duplicate_of: None,
            message: None,
            last_error: None,
        }
    }

    /// Ends it as a repeat of another.
    pub fn mark_duplicate(&mut self, why: DeliverySuppression, of: Option<DeliveryId>, message: Option<MessageId>) {
        self.state = DeliveryState::Duplicate;
        self.suppressed = Some(why);
        self.duplicate_of = of;
        self.message = message;
        self.due_at = None;
    }

    /// What a worker says of it. False when it no longer waits: then nothing changes.
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
            DeliveryOutcome::Retry(at, trouble) => {
                self.due_at = Some(at);
                self.last_error = Some(trouble);
            }
            DeliveryOutcome::Dead(trouble) => {
                self.state = DeliveryState::Dead;
                self.last_error = Some(trouble);
            }
        }
        true
    }

    /// Lets it be read again when it is dead. True when it changed.
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

    /// Puts the mail in the place of the notice that told of it. False when it no longer waits, or has its mail: then
    /// nothing changes. Reading begins anew, since until now there was nothing to read.
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

    /// That it made no message: a repeat, refused, or dead. `None` for one that waits or is done.
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
                "of": self.duplicate_of,
                "message": self.message,
                "trouble": self.last_error,
            }),
        })
    }
}

/// What never changes about a delivery, save that the mail itself takes the place of a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryDetails {
    /// The way in.
    pub intake: Intake,
    /// The source, when a provider told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceId>,
    /// The recipient of the envelope.
    pub recipient: String,
    /// The sender of the envelope; empty for the null return path, `None` when nobody told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<std::net::IpAddr>,
    /// What that host called itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helo: Option<String>,
    /// What the kept bytes are.
    pub form: DeliveryFormat,
    /// Octets, as they came.
    pub size: u64,
}

/// A mail that arrived, for everyone here whom it is for.
#[derive(Clone, Debug)]
pub struct InboundMail {
    /// The bytes, packed.
    pub raw: Arc<[u8]>,
    /// The process that reads them at once, if it has room. Nobody else does within [`crate::limits::READING_MS`]
    /// unless that process ends.
    pub leased_to: Option<NodeId>,
    /// One for each recipient.
    pub deliveries: Vec<NewDelivery>,
}

/// A mail that a provider only told of and that was fetched since.
#[derive(Clone, Debug)]
pub struct FetchedContent {
    /// The id that its bytes are kept under, which nothing else has.
    pub storage_id: DeliveryId,
    /// What the bytes are: anything but a notice.
    pub form: DeliveryFormat,
    /// Octets, before they were packed.
    pub size: u64,
    /// The bytes, packed.
    pub raw: Arc<[u8]>,
}

/// A delivery that wants to be kept.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    /// The id it gets.
    pub id: DeliveryId,
    /// Whose it is.
    pub team: TeamId,
    /// What it is about.
    pub details: DeliveryDetails,
    /// Whom it is for.
    pub target: DeliveryTarget,
    /// The same for the same delivery, and for no other in this team.
    pub dedup_key: [u8; 32],
    /// Until when the same key is the same delivery.
    pub dedup_until: Time,
    /// Why it makes no message in any case. Its bytes are not kept.
    pub suppression: Option<DeliverySuppression>,
}

impl NewDelivery {
    /// The inbox that must still be there when this delivery is committed.
    pub fn required_inbox(&self) -> Option<InboxId> {
        self.target.inbox().filter(|_| self.suppression.is_none())
    }

    /// Refuses it because its inbox was removed between the look-up and the commit. The row belongs to no inbox, so
    /// that it outlives what the removed inbox leaves behind.
    pub fn refuse_missing_inbox(&mut self) {
        self.target = DeliveryTarget::Nobody;
        self.suppression = Some(DeliverySuppression::UnknownInbox);
    }
}

/// What became of one recipient's delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ReceiveResult {
    /// Kept, and to be read.
    Stored(DeliveryId),
    /// The same delivery came before.
    Duplicate {
        /// The row that tells of it.
        id: DeliveryId,
        /// The first.
        original: DeliveryId,
    },
    /// Told, and nothing more.
    Refused(DeliveryId),
}

impl ReceiveResult {
    /// Whether the sender may be told that the mail was taken for this recipient.
    pub fn is_accepted(self) -> bool {
        match self {
            Self::Stored(_) | Self::Duplicate { .. } => true,
            Self::Refused(_) => false,
        }
    }
}

/// A delivery that a worker reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedDelivery {
    /// The delivery.
    pub delivery: Delivery,
    /// The bytes, packed.
    pub raw: Vec<u8>,
}

/// What a worker says of a delivery that makes no message now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// It was something else than mail for an inbox, and that is done.
    Done,
    /// A rule that looks inside, or the inbox's end, refuses it.
    Refused(DeliverySuppression),
    /// Again at this time.
    Retry(Time, String),
    /// Never again by itself.
    Dead(String),
}

/// Which deliveries to list.
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
    /// At most so many.
    pub limit: usize,
}

impl DeliveryQuery {
    /// Whether a delivery belongs on the page, its place apart.
    pub fn matches(&self, delivery: &Delivery) -> bool {
        self.inbox.is_none_or(|inbox| delivery.target == DeliveryTarget::Inbox(inbox))
            && self.source.is_none_or(|source| delivery.details.source == Some(source))
            && self.state.is_none_or(|state| delivery.state == state)
            && self.message.is_none_or(|message| delivery.message == Some(message))
    }
}
