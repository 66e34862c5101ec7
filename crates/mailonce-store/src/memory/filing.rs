//! Filing: from a delivery to a message.

use mailonce_core::{
    artifact::{Artifact, NewArtifact},
    delivery::{DeliveryState, Settle, Suppression},
    filing::Ground,
    id::{DeliveryId, InboxId, MessageId, TeamId},
    limits,
    message::{Filed, Known, Message, MessagePage, MessagePlace, MessageQuery, NewMessage, Novelty},
    mutant,
    time::Time,
};

use super::World;

impl World {
    pub(super) fn file(&mut self, team: TeamId, delivery: DeliveryId, message: NewMessage, now: Time) -> Filed {
        let Some(mut delivery) = self.inbound.delivery(team, delivery).cloned() else { return Filed::Missing };
        if delivery.state != DeliveryState::Waiting && !mutant!("filed-though-settled") {
            return Filed::Settled;
        }
        let inbox = delivery.target.inbox().and_then(|inbox| self.inbound.inbox(team, inbox));
        let Some((inbox, seq)) = inbox.map(|inbox| (inbox.id, inbox.seq)) else {
            delivery.settle(Settle::Refused(Suppression::UnknownInbox));
            self.end(&delivery, now);
            return Filed::Settled;
        };
        let novelty = message.novelty(&self.known(inbox, &message));
        if let (Novelty::Known(id, why), false) = (novelty, mutant!("message-unrecognised")) {
            delivery.known(id, why);
            self.end(&delivery, now);
            return Filed::Known(id, why);
        }
        let thread = message.names.iter().find_map(|name| self.inbound.threads.get(&(inbox, *name)).copied());
        let row = thread.and_then(|id| self.talk.threads.get(&id).cloned());
        let known = message.artifacts.iter().map(|new| self.same_artifact(inbox, new, message.sender())).collect();
        let (name, content, names) = (message.name, message.content, message.names.clone());
        let ground = Ground { inbox, seq, thread, row, reused: novelty == Novelty::Reused, known };
        let filing = message.file(&mut delivery, ground, now);
        let Message { id, thread, .. } = filing.message;
        self.talk.threads.insert(thread, filing.thread.clone());
        self.talk.emails.entry(thread).or_default().extend(filing.email);
        for name in names {
            self.inbound.threads.entry((inbox, name)).or_insert(thread);
        }
        self.inbound.known.entry((inbox, name)).or_default().push(Known { id, content });
        for filed in &filing.artifacts {
            self.note_id(filed.artifact.id.0);
            self.inbound.artifacts.insert(filed.artifact.id, (filed.hash, filed.artifact.clone()));
        }
        self.note_id(id.0);
        self.note_id(thread.0);
        self.inbound.inboxes.entry(inbox).and_modify(|row| row.seq = filing.message.seq);
        self.inbound.messages.insert(id, filing.message.clone());
        self.events.entry(team).or_default().extend(filing.events.iter().cloned());
        self.inbound.save(&delivery);
        filing.answer()
    }

    /// What the inbox has under the message's name, or without one under its content.
    fn known(&self, inbox: InboxId, message: &NewMessage) -> Vec<Known> {
        let known = self.inbound.known.get(&(inbox, message.name)).map_or(&[][..], Vec::as_slice);
        let alike = |known: &&Known| message.name.is_some() || known.content == message.content;
        known.iter().filter(alike).copied().collect()
    }

    /// The latest artifact of an inbox with this kind, value and sender.
    fn same_artifact(&self, inbox: InboxId, new: &NewArtifact, sender: &str) -> Option<Artifact> {
        let all = self.inbound.artifacts.values();
        let same = all.filter(|(hash, known)| {
            *hash == new.hash && known.inbox == inbox && known.kind == new.kind && known.sender == sender
        });
        same.map(|(_, known)| known).max_by_key(|known| (known.found_at, known.id)).cloned()
    }

    pub(super) fn message(&self, team: TeamId, id: MessageId) -> Option<Message> {
        self.inbound.messages.get(&id).filter(|message| message.team == team).cloned()
    }

    pub(super) fn raw(&self, team: TeamId, id: MessageId) -> Option<Vec<u8>> {
        let delivery = self.message(team, id)?.delivery;
        let raw = self.inbound.deliveries.get(&delivery)?.raw?;
        self.inbound.raws.get(&raw).map(|raw| raw.to_vec())
    }

    pub(super) fn messages(&self, team: TeamId, inbox: InboxId, query: &MessageQuery) -> MessagePage {
        let ours = |message: &&Message| message.team == team && message.inbox == inbox;
        let mut all: Vec<&Message> = self.inbound.messages.values().filter(ours).collect();
        all.sort_by_key(|message| message.seq);
        match query.place {
            MessagePlace::After(seq) => all.retain(|message| message.seq > seq),
            MessagePlace::Before(seq) => {
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
