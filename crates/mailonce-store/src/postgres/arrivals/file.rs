//! Filing: messages that want to be filed together are filed in one transaction, one after the other.
//!
//! The rows of their deliveries are locked first and those of their inboxes then, each in their order. While an inbox's
//! row is held nobody else gives out its numbers, finds its threads or knows its messages, so what is read under it is
//! what is decided on.

use deadpool_postgres::Transaction;
use mailonce_core::{
    artifact::{Artifact, ArtifactKind},
    delivery::{Delivery, DeliveryState, Settle, Suppression},
    filing::{FiledArtifact, Ground},
    id::{ArtifactId, DeliveryId, InboxId, TeamId, ThreadId},
    message::{Filed, Known, Message, NewMessage, Novelty},
    port::arrivals::Hint,
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    gate::{Gate, Traveller},
    row::{
        ARTIFACT_COLUMNS, DELIVERY_COLUMNS, artifact_columns, delivery_columns, read_artifact, read_delivery, read_hash,
    },
};
use crate::postgres::{
    Ledger,
    trouble::Tried,
    write::{Asked, ask, ask_all},
};

const HOLD_DELIVERIES: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    ", d.raw FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id)
       JOIN deliveries d ON d.team = w.team AND d.id = w.id
      ORDER BY d.team, d.id FOR UPDATE OF d"
);
const HOLD_INBOXES: &str = "
    SELECT i.team, i.id, i.seq FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id)
      JOIN inboxes i ON i.team = w.team AND i.id = w.id AND i.removed_at IS NULL
     ORDER BY i.team, i.id FOR UPDATE OF i";
/// What an inbox has under a Message-ID or a content: the same, if there is, and any other, if there is. However many
/// mails share a Message-ID, two rows tell.
const KNOWN: &str = "
    SELECT w.inbox, m.name, m.content, m.id
      FROM unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::bytea[], $5::boolean[])
        AS w (team, inbox, hash, content, named),
           LATERAL (
               (SELECT m.name, m.content, m.id FROM messages m
                 WHERE m.team = w.team AND m.inbox = w.inbox AND coalesce(m.name, m.content) = w.hash
                   AND m.content = w.content AND (m.name IS NOT NULL) = w.named LIMIT 1)
               UNION
               (SELECT m.name, m.content, m.id FROM messages m
                 WHERE m.team = w.team AND m.inbox = w.inbox AND coalesce(m.name, m.content) = w.hash
                   AND (m.name IS NOT NULL) = w.named LIMIT 1)) m";
const THREADS: &str = "
    SELECT t.inbox, t.name, t.thread FROM unnest($1::uuid[], $2::uuid[], $3::bytea[]) AS w (team, inbox, name)
      JOIN thread_names t ON t.team = w.team AND t.inbox = w.inbox AND t.name = w.name";
/// The latest artifact of the same kind, value and sender. Others may take it meanwhile, so it is locked.
const SAME: &str = concat!(
    "SELECT ",
    artifact_columns!(),
    ", a.hash FROM artifacts a
      WHERE (a.team, a.id) IN (
          SELECT w.team, a.id FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::bytea[])
              AS w (team, inbox, kind, hash, sender),
              LATERAL (SELECT a.id FROM artifacts a
                        WHERE a.team = w.team AND a.inbox = w.inbox AND a.hash = w.hash AND a.kind = w.kind
                          AND a.sender = w.sender ORDER BY a.found_at DESC, a.id DESC LIMIT 1) a)
      ORDER BY a.team, a.id FOR UPDATE OF a"
);

/// A message that wants to be filed.
pub(in crate::postgres) struct Filing {
    pub team: TeamId,
    pub delivery: DeliveryId,
    pub message: NewMessage,
    pub now: Time,
}

type Place = (TeamId, DeliveryId);
/// A message's name, or its content when it has none, in an inbox.
type Name = (InboxId, Option<[u8; 32]>, Option<[u8; 32]>);
type Value = (InboxId, ArtifactKind, [u8; 32], String);

/// What is known before anything is decided, and what was decided.
#[derive(Default)]
pub(super) struct Cabinet {
    deliveries: BTreeMap<Place, (Delivery, Option<Uuid>)>,
    /// The latest number of each inbox that is there.
    pub(super) inboxes: BTreeMap<(TeamId, InboxId), u64>,
    known: BTreeMap<Name, Vec<Known>>,
    threads: BTreeMap<(InboxId, [u8; 32]), ThreadId>,
    same: BTreeMap<Value, Artifact>,
    /// Deliveries that ended.
    pub(super) ended: BTreeSet<Place>,
    /// New messages with their names and contents.
    pub(super) messages: Vec<(Message, Option<[u8; 32]>, [u8; 32])>,
    /// Names that are new to their inboxes.
    pub(super) names: Vec<(TeamId, InboxId, [u8; 32], ThreadId)>,
    /// Artifacts that are new or were found again.
    pub(super) artifacts: BTreeMap<ArtifactId, FiledArtifact>,
    pub(super) events: Vec<(TeamId, mailonce_core::event::NewEvent)>,
}

impl Traveller for Filing {
    type Answer = Filed;

    fn size(&self) -> usize {
        // The head is small beside the mail it comes from; its size bounds it well enough.
        self.message.head.size.min(64 * 1024) as usize + 4096
    }

    fn gate(ledger: &Ledger) -> &Gate<Self> {
        &ledger.files
    }

    async fn travel(ledger: &Ledger, together: &[Self]) -> Tried<Vec<Filed>> {
        ledger.file_all(together).await
    }
}

impl Ledger {
    async fn file_all(&self, all: &[Filing]) -> Tried<Vec<Filed>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        let mut cabinet = Cabinet::open(&tx, all).await?;
        let answers: Vec<Filed> = all.iter().map(|filing| cabinet.file(filing)).collect();
        if cabinet.ended.is_empty() {
            tx.rollback().await?;
            return Ok(answers);
        }
        let filed: BTreeSet<InboxId> = cabinet.messages.iter().map(|(message, _, _)| message.inbox).collect();
        let hints: Vec<Hint> = filed.into_iter().map(Hint::Filed).collect();
        cabinet.write(&tx, &self.ears.letters(&hints)).await?;
        let committed = self.commit(tx, all.len()).await;
        // A commit that nobody confirmed may be one.
        self.ears.tell(&hints);
        committed.map(|()| answers)
    }
}

impl Cabinet {
    /// Locks deliveries and inboxes, and reads what the messages may meet there.
    async fn open(tx: &Transaction<'_>, all: &[Filing]) -> Tried<Self> {
        let mut cabinet = Self::default();
        let places: BTreeSet<Place> = all.iter().map(|filing| (filing.team, filing.delivery)).collect();
        let (teams, ids): (Vec<Uuid>, Vec<Uuid>) = places.iter().map(|(team, id)| (team.0, id.0)).unzip();
        for row in ask(tx, HOLD_DELIVERIES, &[&teams, &ids]).await? {
            let delivery = read_delivery(&row)?;
            cabinet.deliveries.insert((delivery.team, delivery.id), (delivery, row.try_get(DELIVERY_COLUMNS)?));
        }
        let waiting: Vec<(InboxId, &Filing)> =
            all.iter().filter_map(|filing| Some((cabinet.waiting(filing)?, filing))).collect();
        if !waiting.is_empty() {
            cabinet.look(tx, &waiting).await?;
        }
        Ok(cabinet)
    }

    /// The inbox that a filing is about, while its delivery waits.
    fn waiting(&self, filing: &Filing) -> Option<InboxId> {
        let (delivery, _) = self.deliveries.get(&(filing.team, filing.delivery))?;
        delivery.target.inbox().filter(|_| delivery.state == DeliveryState::Waiting)
    }

    async fn look(&mut self, tx: &Transaction<'_>, waiting: &[(InboxId, &Filing)]) -> Tried<()> {
        let inboxes: BTreeSet<(Uuid, Uuid)> = waiting.iter().map(|(inbox, filing)| (filing.team.0, inbox.0)).collect();
        let (held_teams, held): (Vec<Uuid>, Vec<Uuid>) = inboxes.into_iter().unzip();
        let (team, inbox): (Vec<Uuid>, Vec<Uuid>) = waiting.iter().map(|(inbox, f)| (f.team.0, inbox.0)).unzip();
        let hash: Vec<&[u8]> =
            waiting.iter().map(|(_, f)| f.message.name.as_ref().unwrap_or(&f.message.content).as_slice()).collect();
        let content: Vec<&[u8]> = waiting.iter().map(|(_, f)| f.message.content.as_slice()).collect();
        let named: Vec<bool> = waiting.iter().map(|(_, f)| f.message.name.is_some()).collect();
        let names = || waiting.iter().flat_map(|(inbox, f)| f.message.names.iter().map(move |name| (inbox, f, name)));
        let name_team: Vec<Uuid> = names().map(|(_, f, _)| f.team.0).collect();
        let name_inbox: Vec<Uuid> = names().map(|(inbox, _, _)| inbox.0).collect();
        let name: Vec<&[u8]> = names().map(|(_, _, name)| name.as_slice()).collect();
        let found = || waiting.iter().flat_map(|(inbox, f)| f.message.artifacts.iter().map(move |new| (inbox, f, new)));
        let found_team: Vec<Uuid> = found().map(|(_, f, _)| f.team.0).collect();
        let found_inbox: Vec<Uuid> = found().map(|(inbox, _, _)| inbox.0).collect();
        let kind: Vec<&str> = found().map(|(_, _, new)| new.kind.word()).collect();
        let value: Vec<&[u8]> = found().map(|(_, _, new)| new.hash.as_slice()).collect();
        let sender: Vec<&[u8]> = found().map(|(_, f, _)| f.message.sender().as_bytes()).collect();
        let asked: [Asked<'_>; 4] = [
            (HOLD_INBOXES, &[&held_teams, &held]),
            (KNOWN, &[&team, &inbox, &hash, &content, &named]),
            (THREADS, &[&name_team, &name_inbox, &name]),
            (SAME, &[&found_team, &found_inbox, &kind, &value, &sender]),
        ];
        let answers = ask_all(tx, &asked).await?;
        let [inboxes, known, threads, same] = answers.as_slice() else { return Ok(()) };
        self.note(inboxes, known)?;
        self.note_found(threads, same)
    }

    fn note(&mut self, inboxes: &[Row], known: &[Row]) -> Tried<()> {
        for row in inboxes {
            let inbox = (TeamId(row.try_get(0)?), InboxId(row.try_get(1)?));
            self.inboxes.insert(inbox, row.try_get::<_, i64>(2)? as u64);
        }
        for row in known {
            let name = row.try_get::<_, Option<&[u8]>>(1)?.map(read_hash).transpose()?;
            let content = read_hash(row.try_get(2)?)?;
            let id = mailonce_core::id::MessageId(row.try_get(3)?);
            self.know(InboxId(row.try_get(0)?), name, Known { id, content });
        }
        Ok(())
    }

    fn note_found(&mut self, threads: &[Row], same: &[Row]) -> Tried<()> {
        for row in threads {
            let name = (InboxId(row.try_get(0)?), read_hash(row.try_get(1)?)?);
            self.threads.insert(name, ThreadId(row.try_get(2)?));
        }
        for row in same {
            let artifact = read_artifact(row)?;
            let hash = read_hash(row.try_get(ARTIFACT_COLUMNS)?)?;
            self.same.insert(value_of(&artifact, hash), artifact);
        }
        Ok(())
    }

    fn know(&mut self, inbox: InboxId, name: Option<[u8; 32]>, known: Known) {
        let all = self.known.entry(name_of(inbox, name, known.content)).or_default();
        if !all.contains(&known) {
            all.push(known);
        }
    }

    /// Decides about one message.
    fn file(&mut self, filing: &Filing) -> Filed {
        let place = (filing.team, filing.delivery);
        let Some((delivery, _)) = self.deliveries.get(&place) else { return Filed::Missing };
        if delivery.state != DeliveryState::Waiting {
            return Filed::Settled;
        }
        let mut delivery = delivery.clone();
        let inbox = delivery.target.inbox().and_then(|id| Some((id, *self.inboxes.get(&(filing.team, id))?)));
        let Some((inbox, seq)) = inbox else {
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
        self.shelve(filing, delivery, Ground { inbox, seq, reused, thread: None, known: Vec::new() })
    }

    /// Files a message that is new to its inbox.
    fn shelve(&mut self, filing: &Filing, mut delivery: Delivery, mut ground: Ground) -> Filed {
        let (message, inbox) = (&filing.message, ground.inbox);
        ground.thread = message.names.iter().find_map(|name| self.threads.get(&(inbox, *name)).copied());
        let sender = message.sender();
        let same = |new: &mailonce_core::artifact::NewArtifact| {
            self.same.get(&(inbox, new.kind, new.hash, sender.to_owned())).cloned()
        };
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

fn value_of(artifact: &Artifact, hash: [u8; 32]) -> Value {
    (artifact.inbox, artifact.kind, hash, artifact.sender.clone())
}
