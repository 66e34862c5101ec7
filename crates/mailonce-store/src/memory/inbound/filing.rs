//! Filing: turns a delivery into a message of an inbox. Also the queries for messages.

use mailonce_core::{
    id::{DeliveryId, InboxId, MessageId, TeamId},
    inbound::{
        delivery::{DeliveryOutcome, DeliveryState, DeliverySuppression},
        filing::FilingContext,
    },
    inbox::{
        artifact::{Artifact, NewArtifact},
        message::{
            DuplicateCheck, FileMessageResult, KnownMessage, Message, MessagePage, MessagePosition, MessageQuery,
            NewMessage,
        },
    },
    limits, mutant,
    time::Time,
};

use crate::memory::{Tables, inbound::tables::InboundTables};

impl Tables {
    pub(crate) fn file_message(
        &mut self,
        team: TeamId,
        delivery: DeliveryId,
        message: NewMessage,
        now: Time,
    ) -> FileMessageResult {
        let Some(mut delivery) = self.inbound.delivery(team, delivery).cloned() else {
            return FileMessageResult::Missing;
        };
        if delivery.state != DeliveryState::Waiting && !mutant!("filed-though-settled") {
            return FileMessageResult::AlreadyFinished;
        }
        let inbox = delivery.target.inbox().and_then(|inbox| self.inbound.inbox(team, inbox));
        let Some((inbox, seq)) = inbox.map(|inbox| (inbox.id, inbox.latest_seq)) else {
            delivery.record_outcome(DeliveryOutcome::Refused(DeliverySuppression::UnknownInbox));
            self.finish_delivery(&delivery, now);
            return FileMessageResult::AlreadyFinished;
        };
        let duplicate_check = message.check_duplicate(&self.inbound.known_messages(inbox, &message));
        if let (DuplicateCheck::Duplicate(id, why), false) = (duplicate_check, mutant!("message-unrecognised")) {
            delivery.mark_known_message(id, why);
            self.finish_delivery(&delivery, now);
            return FileMessageResult::Duplicate(id, why);
        }
        let thread = message
            .thread_hashes
            .iter()
            .find_map(|name| self.inbound.threads_by_message_id.get(&(inbox, *name)).copied());
        let row = thread.and_then(|id| self.conversations.threads.get(&id).cloned());
        let known =
            message.artifacts.iter().map(|new| self.inbound.same_artifact(inbox, new, message.sender())).collect();
        let (name, content, names) = (message.message_id_hash, message.content_hash, message.thread_hashes.clone());
        let context = FilingContext {
            inbox,
            latest_seq: seq,
            thread,
            existing_thread: row,
            is_message_id_reused: duplicate_check == DuplicateCheck::MessageIdReused,
            known_artifacts: known,
        };
        let filing = message.file(&mut delivery, context, now);
        let Message { id, thread, .. } = filing.message;
        self.conversations.threads.insert(thread, filing.thread.clone());
        self.conversations.emails.entry(thread).or_default().extend(filing.email);
        for name in names {
            self.inbound.threads_by_message_id.entry((inbox, name)).or_insert(thread);
        }
        self.inbound
            .messages_by_message_id
            .entry((inbox, name))
            .or_default()
            .push(KnownMessage { id, content_hash: content });
        for filed in &filing.artifacts {
            self.reserve_id(filed.artifact.id.0);
            self.inbound.artifacts.insert(filed.artifact.id, (filed.hash, filed.artifact.clone()));
        }
        self.reserve_id(id.0);
        self.reserve_id(thread.0);
        self.inbound.inboxes.entry(inbox).and_modify(|row| row.latest_seq = filing.message.seq);
        self.inbound.messages.insert(id, filing.message.clone());
        self.events.log.entry(team).or_default().extend(filing.events.iter().cloned());
        self.inbound.save_delivery(&delivery);
        filing.into_result()
    }
}

impl InboundTables {
    /// Messages that the inbox has under the same Message-ID, or with the same content if there is no Message-ID.
    pub(crate) fn known_messages(&self, inbox: InboxId, message: &NewMessage) -> Vec<KnownMessage> {
        let known = self.messages_by_message_id.get(&(inbox, message.message_id_hash)).map_or(&[][..], Vec::as_slice);
        let alike =
            |known: &&KnownMessage| message.message_id_hash.is_some() || known.content_hash == message.content_hash;
        known.iter().filter(alike).copied().collect()
    }

    /// The latest artifact of an inbox with the same kind, value and sender.
    pub(crate) fn same_artifact(&self, inbox: InboxId, new: &NewArtifact, sender: &str) -> Option<Artifact> {
        let all = self.artifacts.values();
        let same = all.filter(|(hash, known)| {
            *hash == new.hash && known.inbox == inbox && known.kind == new.kind && known.sender == sender
        });
        same.map(|(_, known)| known).max_by_key(|known| (known.found_at, known.id)).cloned()
    }

    pub(crate) fn message(&self, team: TeamId, id: MessageId) -> Option<Message> {
        self.messages.get(&id).filter(|message| message.team == team).cloned()
    }

    pub(crate) fn raw_message(&self, team: TeamId, id: MessageId) -> Option<Vec<u8>> {
        let delivery = self.message(team, id)?.delivery;
        let raw = self.deliveries.get(&delivery)?.raw?;
        self.raws.get(&raw).map(|raw| raw.to_vec())
    }

    pub(crate) fn messages(&self, team: TeamId, inbox: InboxId, query: &MessageQuery) -> MessagePage {
        let ours = |message: &&Message| message.team == team && message.inbox == inbox;
        let mut all: Vec<&Message> = self.messages.values().filter(ours).collect();
        all.sort_by_key(|message| message.seq);
        match query.position {
            MessagePosition::After(seq) => all.retain(|message| message.seq > seq),
            MessagePosition::Before(seq) => {
                all.retain(|message| message.seq < seq);
                all.reverse();
            }
        }
        let mut page = MessagePage::default();
        for (looked, message) in all.into_iter().enumerate() {
            if page.rows.len() == query.limit || looked == limits::SCAN_ROWS {
                return page;
            }
            if query.matches(message) {
                page.rows.push(message.clone());
            }
            page.next = Some(message.seq);
        }
        page.next = None;
        page
    }
}
