//! A filing batch: what is known about the messages to be filed, and what was decided about them.

use mailonce_core::{
    conversation::thread::Thread,
    events::event::NewEvent,
    id::{ArtifactId, DeliveryId, InboxId, TeamId, ThreadId},
    inbound::{
        delivery::{Delivery, DeliveryOutcome, DeliveryState, DeliverySuppression},
        filing::{FiledArtifact, FilingContext},
    },
    inbox::{
        artifact::{Artifact, ArtifactKind, NewArtifact},
        message::{DuplicateCheck, FileMessageResult, KnownMessage, Message},
    },
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use crate::postgres::conversation::changes::ConversationChanges;
use crate::postgres::inbound::filing::FileCall;

pub(crate) type DeliveryRef = (TeamId, DeliveryId);
/// Identifies a message in an inbox by its Message-ID, or by its content if it has none.
type MessageIdentity = (InboxId, Option<[u8; 32]>, Option<[u8; 32]>);
type ArtifactIdentity = (InboxId, ArtifactKind, [u8; 32], String);

/// The loaded rows and the pending changes of one filing transaction.
#[derive(Default)]
pub(crate) struct FilingBatch {
    pub(crate) deliveries: BTreeMap<DeliveryRef, (Delivery, Option<Uuid>)>,
    /// The latest message number of each inbox that exists.
    pub(crate) inboxes: BTreeMap<(TeamId, InboxId), u64>,
    known_messages: BTreeMap<MessageIdentity, Vec<KnownMessage>>,
    pub(crate) threads_by_message_id: BTreeMap<(InboxId, [u8; 32]), ThreadId>,
    /// The current state of those threads.
    pub(crate) locked_threads: BTreeMap<ThreadId, Thread>,
    pub(crate) same_artifacts: BTreeMap<ArtifactIdentity, Artifact>,
    /// Inboxes that no longer exist although a delivery was waiting for them.
    pub(crate) missing_inboxes: BTreeSet<(TeamId, InboxId)>,
    /// Deliveries that finished.
    pub(crate) finished: BTreeSet<DeliveryRef>,
    /// New messages with the hashes of their Message-IDs and contents.
    pub(crate) messages: Vec<(Message, Option<[u8; 32]>, [u8; 32])>,
    /// Message-ID hashes that are new to their inboxes.
    pub(crate) new_message_ids: Vec<(TeamId, InboxId, [u8; 32], ThreadId)>,
    /// Artifacts that are new or were found again.
    pub(crate) artifacts: BTreeMap<ArtifactId, FiledArtifact>,
    /// New and changed threads, and the emails that joined them.
    pub(crate) conversation_changes: ConversationChanges,
    pub(crate) events: Vec<(TeamId, NewEvent)>,
}

impl FilingBatch {
    /// Adds a message that its inbox already has.
    pub(crate) fn add_known_message(&mut self, inbox: InboxId, name: Option<[u8; 32]>, known: KnownMessage) {
        let all = self.known_messages.entry(message_identity(inbox, name, known.content_hash)).or_default();
        if !all.contains(&known) {
            all.push(known);
        }
    }

    /// Decides one message.
    pub(crate) fn decide_filing(&mut self, filing: &FileCall) -> FileMessageResult {
        let place = (filing.team, filing.delivery);
        let Some((delivery, _)) = self.deliveries.get(&place) else { return FileMessageResult::Missing };
        if delivery.state != DeliveryState::Waiting {
            return FileMessageResult::AlreadyFinished;
        }
        let mut delivery = delivery.clone();
        let inbox = delivery.target.inbox().and_then(|id| Some((id, *self.inboxes.get(&(filing.team, id))?)));
        let Some((inbox, seq)) = inbox else {
            self.missing_inboxes.extend(delivery.target.inbox().map(|inbox| (filing.team, inbox)));
            delivery.record_outcome(DeliveryOutcome::Refused(DeliverySuppression::UnknownInbox));
            self.finish_delivery(place, delivery, filing.now);
            return FileMessageResult::AlreadyFinished;
        };
        let message = &filing.message;
        let known = self
            .known_messages
            .get(&message_identity(inbox, message.message_id_hash, message.content_hash))
            .map_or(&[][..], Vec::as_slice);
        let duplicate_check = message.check_duplicate(known);
        if let DuplicateCheck::Duplicate(id, why) = duplicate_check {
            delivery.mark_known_message(id, why);
            self.finish_delivery(place, delivery, filing.now);
            return FileMessageResult::Duplicate(id, why);
        }
        let reused = duplicate_check == DuplicateCheck::MessageIdReused;
        self.file_new(
            filing,
            delivery,
            FilingContext {
                inbox,
                latest_seq: seq,
                is_message_id_reused: reused,
                thread: None,
                existing_thread: None,
                known_artifacts: Vec::new(),
            },
        )
    }

    /// Files a message that is new to its inbox.
    fn file_new(&mut self, filing: &FileCall, mut delivery: Delivery, mut context: FilingContext) -> FileMessageResult {
        let (message, inbox) = (&filing.message, context.inbox);
        context.thread =
            message.thread_hashes.iter().find_map(|name| self.threads_by_message_id.get(&(inbox, *name)).copied());
        context.existing_thread = context.thread.and_then(|id| self.locked_threads.get(&id).cloned());
        let sender = message.sender();
        let same =
            |new: &NewArtifact| self.same_artifacts.get(&(inbox, new.kind, new.hash, sender.to_owned())).cloned();
        context.known_artifacts = message.artifacts.iter().map(same).collect();
        let filed = message.clone().file(&mut delivery, context, filing.now);
        for name in &message.thread_hashes {
            self.threads_by_message_id.entry((inbox, *name)).or_insert_with(|| {
                self.new_message_ids.push((filing.team, inbox, *name, filed.message.thread));
                filed.message.thread
            });
        }
        self.add_known_message(
            inbox,
            message.message_id_hash,
            KnownMessage { id: filed.message.id, content_hash: message.content_hash },
        );
        for found in &filed.artifacts {
            self.same_artifacts.insert(artifact_identity(&found.artifact, found.hash), found.artifact.clone());
            let known = self.artifacts.entry(found.artifact.id).or_insert_with(|| found.clone());
            // If it was found twice in this batch, it keeps `is_new` and is still inserted.
            known.artifact = found.artifact.clone();
        }
        let thread = filed.thread.id;
        self.locked_threads.insert(thread, filed.thread.clone());
        self.conversation_changes.threads.insert(thread, filed.thread.clone());
        self.conversation_changes.joined_emails.extend(filed.email.map(|email| (filing.team, thread, email)));
        self.inboxes.insert((filing.team, inbox), filed.message.seq);
        self.messages.push((filed.message.clone(), message.message_id_hash, message.content_hash));
        self.events.extend(filed.events.iter().map(|event| (filing.team, event.clone())));
        self.finish_delivery((filing.team, filing.delivery), delivery, filing.now);
        filed.into_result()
    }

    /// Records the outcome of a delivery, with an event unless it became a message.
    fn finish_delivery(&mut self, place: DeliveryRef, delivery: Delivery, now: Time) {
        self.events.extend(delivery.to_event(now).map(|event| (delivery.team, event)));
        self.finished.insert(place);
        self.deliveries.entry(place).and_modify(|(known, _)| *known = delivery);
    }

    /// Deliveries that finished, with the ids of their raw bytes.
    pub(crate) fn finished_deliveries(&self) -> impl Iterator<Item = &(Delivery, Option<Uuid>)> {
        self.finished.iter().filter_map(|place| self.deliveries.get(place))
    }
}

fn message_identity(inbox: InboxId, name: Option<[u8; 32]>, content: [u8; 32]) -> MessageIdentity {
    (inbox, name, name.is_none().then_some(content))
}

/// The properties that make two artifacts the same.
pub(crate) fn artifact_identity(artifact: &Artifact, hash: [u8; 32]) -> ArtifactIdentity {
    (artifact.inbox, artifact.kind, hash, artifact.sender.clone())
}
