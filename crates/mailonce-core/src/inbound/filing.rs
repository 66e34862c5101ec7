//! Filing: how workers turn a delivery into a message, and what filing that message writes.
//!
//! Stores load a [`FilingContext`], apply these rules, and save the result. So every store makes the same decisions.

use std::sync::Arc;

use crate::{
    conversation::thread::Thread,
    events::event::{EventKind, NewEvent},
    id::{DeliveryId, EmailId, InboxId, MessageId, TeamId, ThreadId},
    inbound::delivery::{Delivery, DeliveryOutcome, DeliveryState, DeliverySuppression, NewDelivery, ReceiveResult},
    inbox::{
        artifact::{Artifact, NewArtifact},
        message::{FileMessageResult, Message, MessageFlag, NewMessage},
    },
    limits,
    time::Time,
};

impl Delivery {
    /// A delivery that was received before. No worker processes it.
    pub fn duplicate(new: NewDelivery, of: DeliveryId, message: Option<MessageId>, now: Time) -> Self {
        let mut delivery = Self::new(new, false, now);
        delivery.mark_duplicate(DeliverySuppression::SameDelivery, Some(of), message);
        delivery
    }

    /// The result reported when it was received. A delivery that was refused on arrival is still at its first revision;
    /// one that a worker refused later had been stored.
    pub fn receive_result(&self, refused: bool) -> ReceiveResult {
        let refused = refused || (self.state == DeliveryState::Refused && self.rev == 1);
        match self.duplicate_of.filter(|_| self.suppressed == Some(DeliverySuppression::SameDelivery)) {
            Some(of) => ReceiveResult::Duplicate { id: self.id, original: of },
            None if refused => ReceiveResult::Refused(self.id),
            None => ReceiveResult::Stored(self.id),
        }
    }

    /// Leases it to a worker, if it is due. Returns false, without a change, when it is not.
    pub fn lease(&mut self, now: Time) -> bool {
        if self.state != DeliveryState::Waiting || self.due_at.is_none_or(|due| due > now) {
            return false;
        }
        self.rev += 1;
        self.attempts += 1;
        self.due_at = Self::lease_end(now);
        true
    }

    /// Makes it due again after its worker died: at once, or with a delay when several workers died of it. Returns
    /// false when it is not waiting, or is due already.
    pub fn reclaim_lease(&mut self, now: Time) -> bool {
        let Some(due) = self.due_at.filter(|due| self.state == DeliveryState::Waiting && *due > now) else {
            return false;
        };
        self.rev += 1;
        self.due_at = Some(due.min(now.plus(self.reclaim_delay_ms())));
        true
    }

    /// The delay after its worker died, in milliseconds: none for the first three, then four times as long after each.
    fn reclaim_delay_ms(&self) -> i64 {
        let doubled_twice = self.attempts.saturating_sub(limits::CRASHES_BEFORE_RECLAIM_DELAY).min(5);
        if doubled_twice == 0 { 0 } else { 1_000 << (2 * doubled_twice) }
    }

    /// Ends it as a duplicate, because its inbox already has the message.
    pub fn mark_known_message(&mut self, message: MessageId, why: DeliverySuppression) {
        self.rev += 1;
        self.mark_duplicate(why, None, Some(message));
    }

    /// Whether its bytes are still needed: for processing, for a retry, or as the bytes of its message.
    pub fn needs_raw_bytes(&self) -> bool {
        match self.state {
            DeliveryState::Waiting | DeliveryState::Dead => true,
            DeliveryState::Done => self.message.is_some(),
            DeliveryState::Duplicate | DeliveryState::Refused => false,
        }
    }
}

/// What the inbox knows, before a new message is filed in it.
#[derive(Clone, Debug)]
pub struct FilingContext {
    /// The inbox.
    pub inbox: InboxId,
    /// The number of its latest message.
    pub latest_seq: u64,
    /// The thread of the first of the message's thread hashes that the inbox knows.
    pub thread: Option<ThreadId>,
    /// The current state of that thread.
    pub existing_thread: Option<Thread>,
    /// Whether the inbox has the Message-ID with other content.
    pub is_message_id_reused: bool,
    /// For each artifact, in order: the latest known one with the same kind, value and sender.
    pub known_artifacts: Vec<Option<Artifact>>,
}

/// An artifact of a filed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiledArtifact {
    /// The artifact after filing.
    pub artifact: Artifact,
    /// The keyed hash of its value.
    pub hash: [u8; 32],
    /// Whether it was never seen before.
    pub is_new: bool,
}

/// Everything that filing a message writes, except its delivery.
#[derive(Clone, Debug)]
pub struct FilingWrites {
    /// The message.
    pub message: Message,
    /// Its thread after filing.
    pub thread: Thread,
    /// The email that joins the thread with it, unless it is there already.
    pub email: Option<EmailId>,
    /// The artifacts found in it, best first, without duplicates.
    pub artifacts: Vec<FiledArtifact>,
    /// The events, in order.
    pub events: Vec<NewEvent>,
}

impl FilingWrites {
    /// The result for the worker.
    pub fn into_result(self) -> FileMessageResult {
        FileMessageResult::New(Box::new(self.message), self.artifacts.into_iter().map(|filed| filed.artifact).collect())
    }
}

impl NewMessage {
    /// The address that counts as the sender of its artifacts.
    pub fn sender(&self) -> &str {
        self.head.from.as_ref().map_or("", |party| party.address.as_str())
    }

    /// Files it as the next message of its inbox and ends its delivery.
    pub fn file(mut self, delivery: &mut Delivery, mut ground: FilingContext, now: Time) -> FilingWrites {
        let email = self.answers_email;
        let artifacts = self.file_artifacts(delivery.team, &ground, now);
        let row = ground.existing_thread.take();
        let message = self.into_message(delivery, &ground, &artifacts);
        let mut thread = row.unwrap_or_else(|| {
            let mut begun = Thread::from_first_message(&message, now);
            // The email that it replies to came first, and is shown in the thread.
            begun.details.emails = u32::from(email.is_some());
            begun
        });
        thread.add_message(&message, now);
        delivery.record_outcome(DeliveryOutcome::Done);
        delivery.message = Some(message.id);
        let found = artifacts.iter().filter(|filed| filed.is_new);
        let found = found.map(|filed| filed.artifact.to_event(EventKind::ArtifactFound, now));
        let events = std::iter::once(message.received_event(now)).chain(found).collect();
        let writes = FilingWrites { message, thread, email, artifacts, events };
        #[cfg(feature = "failpoints")]
        let writes = super::mutants::alter_filing(writes);
        writes
    }

    /// The artifacts without duplicates: known ones updated, the others new.
    fn file_artifacts(&mut self, team: TeamId, ground: &FilingContext, now: Time) -> Vec<FiledArtifact> {
        let mut filed: Vec<FiledArtifact> = Vec::new();
        for (new, known) in std::mem::take(&mut self.artifacts).into_iter().zip(&ground.known_artifacts) {
            if filed.iter().any(|filed| (filed.artifact.kind, filed.hash) == (new.kind, new.hash)) {
                continue;
            }
            let known = known.as_ref().filter(|known| known.is_same_value(self.sender(), now));
            let (hash, is_new) = (new.hash, known.is_none());
            let mut artifact = known.cloned().unwrap_or_else(|| self.build_artifact(new, team, ground.inbox, now));
            artifact.seq = ground.latest_seq + 1;
            artifact.authenticated |= self.head.auth.is_pass();
            artifact.rev += 1;
            filed.push(FiledArtifact { artifact, hash, is_new });
        }
        filed
    }

    /// A new artifact, not yet counted as found.
    fn build_artifact(&self, new: NewArtifact, team: TeamId, inbox: InboxId, now: Time) -> Artifact {
        Artifact {
            id: new.id,
            team,
            inbox,
            message: self.id,
            rev: 0,
            kind: new.kind,
            extracted: new.extracted,
            sender: self.sender().to_owned(),
            found_at: now,
            seq: 0,
            authenticated: false,
            consumption: None,
            applied_at: None,
        }
    }

    fn into_message(self, delivery: &Delivery, ground: &FilingContext, artifacts: &[FiledArtifact]) -> Message {
        let mut head = self.head;
        head.artifacts = artifacts.iter().map(|filed| (filed.artifact.kind, filed.artifact.id)).collect();
        if ground.is_message_id_reused && !head.flags.contains(&MessageFlag::MessageIdReused) {
            head.flags.push(MessageFlag::MessageIdReused);
        }
        Message {
            id: self.id,
            team: delivery.team,
            inbox: ground.inbox,
            seq: ground.latest_seq + 1,
            rev: 1,
            thread: ground.thread.unwrap_or(self.thread),
            delivery: delivery.id,
            received_at: delivery.received_at,
            state: self.state,
            head: Arc::new(head),
            annotations: self.annotations,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::ArtifactId,
        inbound::{
            delivery::{DeliveryDetails, DeliveryFormat, DeliveryTarget, Intake},
            sender_auth::{AuthResult, SenderAuth},
        },
        inbox::{
            artifact::{ArtifactKind, ExtractedValue},
            message::{MessageAnnotations, MessageHead, MessageState, Party},
        },
    };
    use uuid::Uuid;

    const INBOX: InboxId = InboxId(Uuid::from_u128(1));

    fn sample_delivery() -> NewDelivery {
        let about = DeliveryDetails {
            intake: Intake::Smtp,
            source: None,
            recipient: "a@b.test".into(),
            sender: None,
            ip: None,
            helo: None,
            form: DeliveryFormat::Mime,
            size: 3,
        };
        NewDelivery {
            id: DeliveryId(Uuid::from_u128(2)),
            team: TeamId(Uuid::from_u128(3)),
            details: about,
            target: DeliveryTarget::Inbox(INBOX),
            dedup_key: [0; 32],
            dedup_until: Time(1_000_000),
            suppression: None,
        }
    }

    fn code(id: u128, hash: u8) -> NewArtifact {
        let found = ExtractedValue { value: "1".into(), masked: "•".into(), confidence: 90, reasons: vec![] };
        NewArtifact {
            id: ArtifactId(Uuid::from_u128(id)),
            kind: ArtifactKind::Code,
            extracted: found,
            hash: [hash; 32],
        }
    }

    fn message(artifacts: Vec<NewArtifact>) -> NewMessage {
        let from = Party { name: None, address: "no-reply@shop.test".into() };
        let auth = SenderAuth { verdict: AuthResult::Pass, ..SenderAuth::default() };
        NewMessage {
            id: MessageId(Uuid::from_u128(4)),
            thread: ThreadId(Uuid::from_u128(5)),
            message_id_hash: None,
            content_hash: [0; 32],
            thread_hashes: Vec::new(),
            answers_email: None,
            head: MessageHead { from: Some(from), auth, ..MessageHead::default() },
            annotations: MessageAnnotations::default(),
            state: MessageState::Unanswered,
            artifacts,
        }
    }

    fn filed(message: NewMessage, known: Vec<Option<Artifact>>, now: Time) -> (Delivery, FilingWrites) {
        let mut delivery = Delivery::new(sample_delivery(), true, Time(7));
        let ground = FilingContext {
            inbox: INBOX,
            latest_seq: 41,
            thread: None,
            existing_thread: None,
            is_message_id_reused: true,
            known_artifacts: known,
        };
        let filing = message.file(&mut delivery, ground, now);
        (delivery, filing)
    }

    #[test]
    fn a_message_takes_the_next_number_and_ends_its_delivery() {
        let (delivery, filing) = filed(message(vec![]), vec![], Time(9));
        let FilingWrites { message, thread, artifacts, events, .. } = filing;
        assert_eq!((thread.id, thread.rev, thread.details.people.len()), (message.thread, 1, 1));
        assert_eq!((message.seq, message.received_at, message.thread.0), (42, Time(7), Uuid::from_u128(5)));
        assert_eq!(message.head.flags, [MessageFlag::MessageIdReused]);
        assert_eq!((delivery.state, delivery.due_at, delivery.message), (DeliveryState::Done, None, Some(message.id)));
        assert!(artifacts.is_empty() && delivery.needs_raw_bytes());
        assert_eq!(events.len(), 1);
    }

    #[test]
    fn a_value_is_found_once_in_a_message_and_told_once_in_an_hour() {
        let (_, first) = filed(message(vec![code(6, 1), code(7, 1), code(8, 2)]), vec![None, None, None], Time(9));
        let ids: Vec<u128> = first.artifacts.iter().map(|filed| filed.artifact.id.0.as_u128()).collect();
        assert_eq!(ids, [6, 8]);
        assert_eq!(first.message.head.artifacts.len(), 2);
        assert_eq!(first.events.len(), 3);

        let known = Artifact { authenticated: false, seq: 3, ..first.artifacts[0].artifact.clone() };
        let (_, again) = filed(message(vec![code(9, 1)]), vec![Some(known.clone())], Time(10));
        let filed_again = &again.artifacts[0];
        assert!(!filed_again.is_new && filed_again.artifact.authenticated);
        assert_eq!((filed_again.artifact.id, filed_again.artifact.seq, filed_again.artifact.rev), (known.id, 42, 2));
        assert_eq!(again.events.len(), 1);

        let later = Time(9 + limits::ARTIFACT_DEDUP_MS);
        let (_, other) = filed(message(vec![code(9, 1)]), vec![Some(known)], later);
        assert!(other.artifacts[0].is_new && other.events.len() == 2);
    }

    #[test]
    fn a_delivery_is_taken_up_when_due_and_given_back_once() {
        let mut delivery = Delivery::new(sample_delivery(), false, Time(7));
        assert!(!delivery.clone().lease(Time(6)));
        assert!(delivery.lease(Time(7)) && !delivery.lease(Time(8)));
        assert_eq!(
            (delivery.attempts, delivery.rev, delivery.due_at),
            (1, 2, Some(Time(7 + limits::DELIVERY_LEASE_MS)))
        );
        assert!(delivery.reclaim_lease(Time(9)) && !delivery.reclaim_lease(Time(9)));
        assert!(delivery.lease(Time(9)));
        assert_eq!(delivery.attempts, 2);
    }

    #[test]
    fn a_delivery_over_which_readers_end_waits_longer_each_time_but_never_past_its_lease() {
        let mut delivery = Delivery::new(sample_delivery(), false, Time(0));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let now = delivery.due_at.unwrap();
            assert!(delivery.lease(now) && delivery.reclaim_lease(now));
            pauses.push(delivery.due_at.unwrap().since(now));
        }
        assert_eq!(
            pauses,
            [0, 0, 0, 4_000, 16_000, limits::DELIVERY_LEASE_MS, limits::DELIVERY_LEASE_MS, limits::DELIVERY_LEASE_MS]
        );
    }

    #[test]
    fn bytes_are_needed_until_nobody_can_ask_for_them() {
        let waiting = Delivery::new(sample_delivery(), false, Time(7));
        assert!(waiting.needs_raw_bytes());
        for (settle, needs) in [
            (DeliveryOutcome::Done, false),
            (DeliveryOutcome::Refused(DeliverySuppression::Blocked), false),
            (DeliveryOutcome::Retry(Time(8), "busy".into()), true),
            (DeliveryOutcome::Dead("broken".into()), true),
        ] {
            let mut delivery = waiting.clone();
            assert!(delivery.record_outcome(settle));
            assert_eq!(delivery.needs_raw_bytes(), needs, "{delivery:?}");
        }
        let mut known = waiting.clone();
        known.mark_known_message(MessageId(Uuid::from_u128(4)), DeliverySuppression::SameMessage);
        assert!(!known.needs_raw_bytes());
        assert_eq!((known.rev, known.state), (2, DeliveryState::Duplicate));
    }

    #[test]
    fn a_repeated_call_is_answered_as_the_first_was() {
        let kept = Delivery::new(sample_delivery(), false, Time(7));
        assert_eq!(kept.receive_result(false), ReceiveResult::Stored(kept.id));
        assert_eq!(kept.receive_result(true), ReceiveResult::Refused(kept.id));
        let of = DeliveryId(Uuid::from_u128(9));
        let duplicate = Delivery::duplicate(sample_delivery(), of, None, Time(7));
        assert_eq!(duplicate.receive_result(false), ReceiveResult::Duplicate { id: duplicate.id, original: of });
        assert_eq!((duplicate.attempts, duplicate.due_at), (0, None));
        let mut known = kept.clone();
        known.mark_known_message(MessageId(Uuid::from_u128(4)), DeliverySuppression::SameMessage);
        assert_eq!(known.receive_result(false), ReceiveResult::Stored(kept.id));
    }
}
