//! Filing: messages that are filed together share one transaction and are decided one after the other.
//!
//! The rows of their deliveries are locked first, then those of their inboxes, each in sorted order. While an inbox's
//! row is locked, no other transaction can assign its numbers or add threads and messages. So what is read under the
//! lock stays valid.

use deadpool_postgres::Transaction;
use mailonce_core::{
    id::{DeliveryId, InboxId, MessageId, TeamId, ThreadId},
    inbound::{delivery::DeliveryState, wake_up::InboundWakeUp},
    inbox::message::{FileMessageResult, KnownMessage, NewMessage},
    time::Time,
};
use std::collections::BTreeSet;
use tokio_postgres::Row;
use uuid::Uuid;

use super::row::{
    ARTIFACT_COLUMNS, DELIVERY_COLUMNS, artifact_columns, delivery_columns, read_artifact, read_delivery, read_hash,
};
use crate::postgres::{
    SharedState,
    call_batcher::{BatchedCall, CallBatcher},
    conversation::row::{read_thread, thread_columns},
    error::TxResult,
    inbound::filing_batch::{DeliveryRef, FilingBatch, artifact_identity},
    statements::{BoundStatement, query_pipelined, query_rows},
};

const LOCK_DELIVERIES: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    ", d.raw FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id)
       JOIN deliveries d ON d.team = w.team AND d.id = w.id
      ORDER BY d.team, d.id FOR UPDATE OF d"
);
const LOCK_INBOXES: &str = "
    SELECT i.team, i.id, i.seq FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id)
      JOIN inboxes i ON i.team = w.team AND i.id = w.id AND i.removed_at IS NULL
     ORDER BY i.team, i.id FOR NO KEY UPDATE OF i";
/// An inbox's messages with the same Message-ID, or the same content if there is none. Returns one with equal content
/// and one with any content. These two rows suffice, however many messages share a Message-ID.
const KNOWN_MESSAGES: &str = "
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
const THREADS_BY_MESSAGE_ID: &str = "
    SELECT t.inbox, t.name, t.thread FROM unnest($1::uuid[], $2::uuid[], $3::bytea[]) AS w (team, inbox, name)
      JOIN thread_names t ON t.team = w.team AND t.inbox = w.inbox AND t.name = w.name";
/// Locks the threads of these Message-IDs, because agents lease and answer them concurrently.
const LOCK_THREADS: &str = concat!(
    "SELECT ",
    thread_columns!(),
    " FROM (SELECT DISTINCT n.team, n.thread FROM unnest($1::uuid[], $2::uuid[], $3::bytea[]) AS w (team, inbox, name)
              JOIN thread_names n ON n.team = w.team AND n.inbox = w.inbox AND n.name = w.name) w
       JOIN threads t ON t.team = w.team AND t.id = w.thread
      ORDER BY t.team, t.id FOR UPDATE OF t"
);
/// The latest artifact of the same kind, value and sender. It is locked, because agents may consume it concurrently.
const SAME_ARTIFACTS: &str = concat!(
    "SELECT ",
    artifact_columns!(),
    ", a.hash FROM (
         SELECT DISTINCT w.team, s.id
           FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::bytea[])
             AS w (team, inbox, kind, hash, sender),
                LATERAL (SELECT a.id FROM artifacts a
                          WHERE a.team = w.team AND a.inbox = w.inbox AND a.hash = w.hash AND a.kind = w.kind
                            AND a.sender = w.sender ORDER BY a.found_at DESC, a.id DESC LIMIT 1) s) w
       JOIN artifacts a ON a.team = w.team AND a.id = w.id
      ORDER BY a.team, a.id FOR UPDATE OF a"
);

/// A message to be filed.
pub(crate) struct FileCall {
    pub team: TeamId,
    pub delivery: DeliveryId,
    pub message: NewMessage,
    pub now: Time,
}

impl BatchedCall for FileCall {
    type Answer = FileMessageResult;

    fn size(&self) -> usize {
        // The head is small compared with the mail, whose size is a good enough bound.
        self.message.head.size.min(64 * 1024) as usize + 4096
    }

    fn batcher(ledger: &SharedState) -> &CallBatcher<Self> {
        &ledger.file_batcher
    }

    async fn run_batch(ledger: &SharedState, together: &[Self]) -> TxResult<Vec<FileMessageResult>> {
        file_all(ledger, together).await
    }
}

async fn file_all(shared: &SharedState, all: &[FileCall]) -> TxResult<Vec<FileMessageResult>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let mut batch = FilingBatch::load_batch(&tx, all).await?;
    let answers: Vec<FileMessageResult> = all.iter().map(|filing| batch.decide_filing(filing)).collect();
    if batch.finished.is_empty() {
        tx.rollback().await?;
        return Ok(answers);
    }
    let filed: BTreeSet<InboxId> = batch.messages.iter().map(|(message, _, _)| message.inbox).collect();
    let hints: Vec<InboundWakeUp> = filed.into_iter().map(InboundWakeUp::MessageFiled).collect();
    let now = all.iter().map(|filing| filing.now).max().unwrap_or_default();
    batch.write(&tx, &shared.wake_up_bus.encode(&hints), now).await?;
    let committed = shared.commit(tx, all.len()).await;
    // After an unconfirmed commit the message may be filed, so wake up waiters in any case.
    shared.wake_up_bus.notify_local(&hints);
    committed.map(|()| answers)
}

impl FilingBatch {
    /// Locks deliveries and inboxes, and loads the messages, threads and artifacts that these messages may match.
    async fn load_batch(tx: &Transaction<'_>, all: &[FileCall]) -> TxResult<Self> {
        let mut batch = Self::default();
        let places: BTreeSet<DeliveryRef> = all.iter().map(|filing| (filing.team, filing.delivery)).collect();
        let (teams, ids): (Vec<Uuid>, Vec<Uuid>) = places.iter().map(|(team, id)| (team.0, id.0)).unzip();
        for row in query_rows(tx, LOCK_DELIVERIES, &[&teams, &ids]).await? {
            let delivery = read_delivery(&row)?;
            batch.deliveries.insert((delivery.team, delivery.id), (delivery, row.try_get(DELIVERY_COLUMNS)?));
        }
        let waiting: Vec<(InboxId, &FileCall)> =
            all.iter().filter_map(|filing| Some((batch.waiting_inbox(filing)?, filing))).collect();
        if !waiting.is_empty() {
            batch.load_inboxes(tx, &waiting).await?;
        }
        Ok(batch)
    }

    /// The inbox of a filing, while its delivery is waiting.
    fn waiting_inbox(&self, filing: &FileCall) -> Option<InboxId> {
        let (delivery, _) = self.deliveries.get(&(filing.team, filing.delivery))?;
        delivery.target.inbox().filter(|_| delivery.state == DeliveryState::Waiting)
    }

    async fn load_inboxes(&mut self, tx: &Transaction<'_>, waiting: &[(InboxId, &FileCall)]) -> TxResult<()> {
        let inboxes: BTreeSet<(Uuid, Uuid)> = waiting.iter().map(|(inbox, filing)| (filing.team.0, inbox.0)).collect();
        let (held_teams, held): (Vec<Uuid>, Vec<Uuid>) = inboxes.into_iter().unzip();
        let (team, inbox): (Vec<Uuid>, Vec<Uuid>) = waiting.iter().map(|(inbox, f)| (f.team.0, inbox.0)).unzip();
        let hash: Vec<&[u8]> = waiting
            .iter()
            .map(|(_, f)| f.message.message_id_hash.as_ref().unwrap_or(&f.message.content_hash).as_slice())
            .collect();
        let content: Vec<&[u8]> = waiting.iter().map(|(_, f)| f.message.content_hash.as_slice()).collect();
        let named: Vec<bool> = waiting.iter().map(|(_, f)| f.message.message_id_hash.is_some()).collect();
        let names =
            || waiting.iter().flat_map(|(inbox, f)| f.message.thread_hashes.iter().map(move |name| (inbox, f, name)));
        let name_team: Vec<Uuid> = names().map(|(_, f, _)| f.team.0).collect();
        let name_inbox: Vec<Uuid> = names().map(|(inbox, _, _)| inbox.0).collect();
        let name: Vec<&[u8]> = names().map(|(_, _, name)| name.as_slice()).collect();
        let found = || waiting.iter().flat_map(|(inbox, f)| f.message.artifacts.iter().map(move |new| (inbox, f, new)));
        let found_team: Vec<Uuid> = found().map(|(_, f, _)| f.team.0).collect();
        let found_inbox: Vec<Uuid> = found().map(|(inbox, _, _)| inbox.0).collect();
        let kind: Vec<&str> = found().map(|(_, _, new)| new.kind.as_str()).collect();
        let value: Vec<&[u8]> = found().map(|(_, _, new)| new.hash.as_slice()).collect();
        let sender: Vec<&[u8]> = found().map(|(_, f, _)| f.message.sender().as_bytes()).collect();
        let asked: [BoundStatement<'_>; 5] = [
            (LOCK_INBOXES, &[&held_teams, &held]),
            (KNOWN_MESSAGES, &[&team, &inbox, &hash, &content, &named]),
            (THREADS_BY_MESSAGE_ID, &[&name_team, &name_inbox, &name]),
            (LOCK_THREADS, &[&name_team, &name_inbox, &name]),
            (SAME_ARTIFACTS, &[&found_team, &found_inbox, &kind, &value, &sender]),
        ];
        let answers = query_pipelined(tx, &asked).await?;
        let [inboxes, known, threads, held, same] = answers.as_slice() else { return Ok(()) };
        self.add_inboxes_and_messages(inboxes, known)?;
        for row in held {
            let thread = read_thread(row, 0)?;
            self.locked_threads.insert(thread.id, thread);
        }
        self.add_threads_and_artifacts(threads, same)
    }

    fn add_inboxes_and_messages(&mut self, inboxes: &[Row], known: &[Row]) -> TxResult<()> {
        for row in inboxes {
            let inbox = (TeamId(row.try_get(0)?), InboxId(row.try_get(1)?));
            self.inboxes.insert(inbox, row.try_get::<_, i64>(2)? as u64);
        }
        for row in known {
            let name = row.try_get::<_, Option<&[u8]>>(1)?.map(read_hash).transpose()?;
            let content = read_hash(row.try_get(2)?)?;
            let id = MessageId(row.try_get(3)?);
            self.add_known_message(InboxId(row.try_get(0)?), name, KnownMessage { id, content_hash: content });
        }
        Ok(())
    }

    fn add_threads_and_artifacts(&mut self, threads: &[Row], same: &[Row]) -> TxResult<()> {
        for row in threads {
            let name = (InboxId(row.try_get(0)?), read_hash(row.try_get(1)?)?);
            self.threads_by_message_id.insert(name, ThreadId(row.try_get(2)?));
        }
        for row in same {
            let artifact = read_artifact(row)?;
            let hash = read_hash(row.try_get(ARTIFACT_COLUMNS)?)?;
            self.same_artifacts.insert(artifact_identity(&artifact, hash), artifact);
        }
        Ok(())
    }
}
