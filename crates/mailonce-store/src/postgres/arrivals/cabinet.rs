//! The cabinet: what inboxes have to say about messages that want to be filed, and what is decided about them.

use mailonce_core::{
    artifact::{Artifact, ArtifactKind, NewArtifact},
    conversation::thread::Thread,
    delivery::{Delivery, DeliveryState, Settle, Suppression},
    event::NewEvent,
    filing::{FiledArtifact, Ground},
    id::{ArtifactId, DeliveryId, InboxId, TeamId, ThreadId},
    message::{Filed, Known, Message, Novelty},
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use super::file::Filing;
use crate::postgres::conversation::talk::Talk;

pub(super) type Place = (TeamId, DeliveryId);
/// A message's name, or its content when it has none, in an inbox.
type Name = (InboxId, Option<[u8; 32]>, Option<[u8; 32]>);
type Value = (InboxId, ArtifactKind, [u8; 32], String);

/// What is known before anything is decided, and what was decided.
#[derive(Default)]
pub(super) struct Cabinet {
    pub(super) deliveries: BTreeMap<Place, (Delivery, Option<Uuid>)>,
    /// The latest number of each inbox that is there.
    pub(super) inboxes: BTreeMap<(TeamId, InboxId), u64>,
    known: BTreeMap<Name, Vec<Known>>,
    pub(super) threads: BTreeMap<(InboxId, [u8; 32]), ThreadId>,
    /// Those threads, as they are.
    pub(super) held: BTreeMap<ThreadId, Thread>,
    pub(super) same: BTreeMap<Value, Artifact>,
    /// Inboxes that are not there although a delivery waited for them.
    pub(super) gone: BTreeSet<(TeamId, InboxId)>,
    /// Deliveries that ended.
    pub(super) ended: BTreeSet<Place>,
    /// New messages with their names and contents.
    pub(super) messages: Vec<(Message, Option<[u8; 32]>, [u8; 32])>,
    /// Names that are new to their inboxes.
    pub(super) names: Vec<(TeamId, InboxId, [u8; 32], ThreadId)>,
    /// Artifacts that are new or were found again.
    pub(super) artifacts: BTreeMap<ArtifactId, FiledArtifact>,
    /// Threads that grew or began, and emails that joined them.
    pub(super) talk: Talk,
    pub(super) events: Vec<(TeamId, NewEvent)>,
}

impl Cabinet {
    /// Notes a message that its inbox has.
    pub(super) fn know(&mut self, inbox: InboxId, name: Option<[u8; 32]>, known: Known) {
        let all = self.known.entry(name_of(inbox, name, known.content)).or_default();
        if !all.contains(&known) {
            all.push(known);
        }
    }

    /// Decides about one message.
    pub(super) fn file(&mut self, filing: &Filing) -> Filed {
        let place = (filing.team, filing.delivery);
        let Some((delivery, _)) = self.deliveries.get(&place) else { return Filed::Missing };
        if delivery.state != DeliveryState::Waiting {
            return Filed::Settled;
        }
        let mut delivery = delivery.clone();
        let inbox = delivery.target.inbox().and_then(|id| Some((id, *self.inboxes.get(&(filing.team, id))?)));
        let Some((inbox, seq)) = inbox else {
            self.gone.extend(delivery.target.inbox().map(|inbox| (filing.team, inbox)));
            delivery.settle(Settle::Refused(Suppression::UnknownInbox));
            self.end(place, delivery, filing.now);
            return Filed::Settled;
        };
        let message = &filing.message;
        let known = self.known.get(&name_of(inbox, message.name, message.content)).map_or(&[][..], Vec::as_slice);
        let novelty = message.novelty(known);
        if let Novelty::Known(id, why) = novelty {
            delivery.known(id, why);
            self.end(place, delivery, filing.now);
            return Filed::Known(id, why);
        }
        let reused = novelty == Novelty::Reused;
        self.shelve(filing, delivery, Ground { inbox, seq, reused, thread: None, row: None, known: Vec::new() })
    }

    /// Files a message that is new to its inbox.
    fn shelve(&mut self, filing: &Filing, mut delivery: Delivery, mut ground: Ground) -> Filed {
        let (message, inbox) = (&filing.message, ground.inbox);
        ground.thread = message.names.iter().find_map(|name| self.threads.get(&(inbox, *name)).copied());
        ground.row = ground.thread.and_then(|id| self.held.get(&id).cloned());
        let sender = message.sender();
        let same = |new: &NewArtifact| self.same.get(&(inbox, new.kind, new.hash, sender.to_owned())).cloned();
        ground.known = message.artifacts.iter().map(same).collect();
        let filed = message.clone().file(&mut delivery, ground, filing.now);
        for name in &message.names {
            self.threads.entry((inbox, *name)).or_insert_with(|| {
                self.names.push((filing.team, inbox, *name, filed.message.thread));
                filed.message.thread
            });
        }
        self.know(inbox, message.name, Known { id: filed.message.id, content: message.content });
        for found in &filed.artifacts {
            self.same.insert(value_of(&found.artifact, found.hash), found.artifact.clone());
            let known = self.artifacts.entry(found.artifact.id).or_insert_with(|| found.clone());
            // Found again in the same company: it is still one that must be made.
            known.artifact = found.artifact.clone();
        }
        let thread = filed.thread.id;
        self.held.insert(thread, filed.thread.clone());
        self.talk.threads.insert(thread, filed.thread.clone());
        self.talk.joined.extend(filed.email.map(|email| (filing.team, thread, email)));
        self.inboxes.insert((filing.team, inbox), filed.message.seq);
        self.messages.push((filed.message.clone(), message.name, message.content));
        self.events.extend(filed.events.iter().map(|event| (filing.team, event.clone())));
        self.end((filing.team, filing.delivery), delivery, filing.now);
        filed.answer()
    }

    /// Notes what became of a delivery, and tells of it unless it made a message.
    fn end(&mut self, place: Place, delivery: Delivery, now: Time) {
        self.events.extend(delivery.told(now).map(|event| (delivery.team, event)));
        self.ended.insert(place);
        self.deliveries.entry(place).and_modify(|(known, _)| *known = delivery);
    }

    /// Deliveries that ended, with where their bytes are.
    pub(super) fn ended(&self) -> impl Iterator<Item = &(Delivery, Option<Uuid>)> {
        self.ended.iter().filter_map(|place| self.deliveries.get(place))
    }
}

fn name_of(inbox: InboxId, name: Option<[u8; 32]>, content: [u8; 32]) -> Name {
    (inbox, name, name.is_none().then_some(content))
}

/// What makes an artifact the same as another.
pub(super) fn value_of(artifact: &Artifact, hash: [u8; 32]) -> Value {
    (artifact.inbox, artifact.kind, hash, artifact.sender.clone())
}
