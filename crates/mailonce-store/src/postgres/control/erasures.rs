//! Erasing: removes what names a person, one row at a time. The server's autovacuum frees the old versions of rows.

use async_trait::async_trait;
use deadpool_postgres::Transaction;
use mailonce_core::{
    access::call_origin::Alias,
    control::{audit::act::Act, erasure::AddressEraser, typed_text::TypedText},
    events::retention::EventRetention,
    handoff::{Evidence, HandoffProgress},
    id::{ClaimId, DeliveryId, EmailId, InboxId, MessageId, TeamId, ThreadId},
    inbound::delivery::DeliveryState,
    inbox::artifact::Consumption,
    outbound::email::Email,
    ports::{
        erasure_store::{EraseClaimResult, EraseEmailResult, ErasureStore},
        store::Result,
    },
    record::Record,
    time::Time,
};
use serde_json::Value;
use std::collections::BTreeSet;
use uuid::Uuid;

use crate::postgres::{
    Postgres, SharedState, claims,
    control::{audit_chain, typed_texts},
    conversation::row::{lock_message_and_thread, read_thread, thread_columns},
    error::{TxResult, call_until_final},
    events::event_retention,
    inbound::{
        deliveries::release_raws,
        row::{DELIVERY_COLUMNS, delivery_columns, read_delivery, read_first},
    },
    into_store_result,
    locked_tx::{load_unit_of_work, lock_emails},
    row::{read_json, write_json},
    statements::{execute, query_rows},
    when_durable,
};

const SAVE_EMAIL: &str = "UPDATE emails SET rev = $3, digest = $4, head = $5, body = NULL WHERE team = $1 AND id = $2";
const SAVE_HANDOFF: &str =
    "UPDATE handoffs SET recipients = $4, work = $5 WHERE team = $1 AND email = $2 AND number = $3";
const EVIDENCE: &str = "SELECT n, fact FROM evidence WHERE team = $1 AND email = $2 ORDER BY n";
const SAVE_EVIDENCE: &str = "UPDATE evidence SET once = $4, fact = $5 WHERE team = $1 AND email = $2 AND n = $3";
/// Everything else of an email that has text or hashes of text.
const DELETE_OF_EMAIL: [&str; 5] = [
    "UPDATE attempts SET reply = '' WHERE team = $1 AND email = $2 AND reply <> ''",
    "DELETE FROM wires WHERE team = $1 AND email = $2",
    // The keyed hash of a meaning stays, so that a retry is still answered with the first email.
    "DELETE FROM likenesses WHERE team = $1 AND latest LIKE '%' || $2::uuid::text || '%'
        AND latest NOT LIKE '%\"words\":[],\"marks\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]%'",
    "UPDATE suppressed SET latest = '[]' WHERE team = $1 AND email = $2",
    "DELETE FROM search_documents WHERE team = $1 AND kind = 0 AND id = $2",
];
/// Taken before documents are deleted; see the migration of search.
const LOCK_SEARCH: &str = "SELECT lock_search_shared($1)";
const LOCK_THREAD: &str =
    concat!("SELECT ", thread_columns!(), " FROM threads t WHERE t.team = $1 AND t.id = $2 FOR UPDATE");
const SAVE_THREAD: &str = "UPDATE threads SET rev = $3, about = $4 WHERE team = $1 AND id = $2";
const SAVE_MESSAGE: &str =
    "UPDATE messages SET rev = $3, state = $4, marks = $5, head = $6 WHERE team = $1 AND id = $2";
const LOCK_DELIVERY: &str =
    concat!("SELECT ", delivery_columns!(), ", d.raw FROM deliveries d WHERE d.team = $1 AND d.id = $2 FOR UPDATE");
const SAVE_DELIVERY: &str =
    "UPDATE deliveries SET rev = $3, about = $4, trouble = NULL, raw = NULL WHERE team = $1 AND id = $2";
const LOCK_CONSUMERS: &str = "
    SELECT id, consumed FROM artifacts WHERE team = $1 AND message = $2 AND consumed IS NOT NULL ORDER BY id FOR UPDATE";
const SAVE_CONSUMER: &str = "UPDATE artifacts SET consumed = $3 WHERE team = $1 AND id = $2";
const DELETE_OF_MESSAGE: [&str; 2] = [
    "DELETE FROM artifacts WHERE team = $1 AND message = $2",
    "DELETE FROM search_documents WHERE team = $1 AND kind = 1 AND id = $2",
];
/// Leaves out an email that became active again after it had settled.
const LOCK_DUE_BODIES: &str = "
    SELECT e.id FROM emails e
     WHERE e.team = $1 AND e.settled_at <= $2 AND e.body IS NOT NULL
       AND NOT EXISTS (SELECT FROM handoffs h WHERE h.team = e.team AND h.email = e.id
            AND h.state IN ('scheduled', 'queued', 'leased', 'sending', 'unknown', 'held'))
     ORDER BY e.settled_at LIMIT $3 FOR UPDATE OF e SKIP LOCKED";
const DROP_BODIES: &str = "UPDATE emails SET body = NULL WHERE team = $1 AND id = ANY ($2)";
const DROP_WIRES: &str = "DELETE FROM wires WHERE team = $1 AND email = ANY ($2)";
const DROP_TEXT: &str = "
    UPDATE search_documents SET text = '', words = ts_filter(words, '{a,b,c}')
     WHERE team = $1 AND kind = 1 AND id = $2 AND text <> ''";
const LOCK_DEAD_MAIL: &str = "
    SELECT d.id, d.raw FROM deliveries d
     WHERE d.team = $1 AND d.received_at <= $2 AND d.state = 'dead' AND d.raw IS NOT NULL
       AND ($4::uuid IS NULL OR d.inbox = $4)
     ORDER BY d.received_at LIMIT $3 FOR UPDATE SKIP LOCKED";
const DROP_RAWS: &str = "UPDATE deliveries SET raw = NULL WHERE team = $1 AND id = ANY ($2)";
const HAS_MESSAGES: &str = "
    SELECT FROM messages m JOIN threads t ON t.team = m.team AND t.inbox = m.inbox
     WHERE t.team = $1 AND t.id = $2 AND m.thread = $2 AND m.head NOT LIKE '%\"erased_at\":%' LIMIT 1";
const DELIVERY_BYTES: &str =
    "SELECT r.bytes FROM deliveries d JOIN raws r ON r.id = d.raw WHERE d.team = $1 AND d.id = $2";
const DROP_DELIVERY: &str = "DELETE FROM deliveries WHERE team = $1 AND id = $2";
const SAVE_LAST_ID: &str = "UPDATE install SET last_id = greatest(last_id, $1)";
const REPLACE_RECORD: &str = "UPDATE records SET rev = rev + 1, name = $3, about = $4 WHERE id = $1 AND rev = $2";
/// The block of an event is the first that ends at or after it.
const REPLACE_EVENT: &str = "
    UPDATE events e SET data[($2 - e.seq + cardinality(e.about))::int] = $3
     WHERE e.team = $1 AND e.seq = (SELECT min(b.seq) FROM events b WHERE b.team = $1 AND b.seq >= $2)
       AND $2 > e.seq - cardinality(e.about)";
const FORGET_RESPONSES: &str = "
    UPDATE notices n SET log = NULL FROM endpoints p
     WHERE p.team = $1 AND n.endpoint = p.id AND n.seq = ANY($2) AND n.log IS NOT NULL";
const NAME_PAGE: &str = "SELECT id, name FROM audit_names WHERE team = $1 AND id > $2 ORDER BY id LIMIT $3";
const FORGET_TALLY: &str = "DELETE FROM tallies WHERE team = $1 AND person = $2";

/// Erases a settled email with everything that belongs to it.
async fn erase_email(shared: &SharedState, eraser: &AddressEraser, id: EmailId) -> TxResult<EraseEmailResult> {
    let team = eraser.team;
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    lock_emails(&tx, &BTreeSet::from([(team, id)])).await?;
    let work = load_unit_of_work(&tx, &shared.time, &BTreeSet::new(), &[(team, id)]).await?;
    let Some(mut email) = work.email_of_team(team, id) else { return Ok(EraseEmailResult::Missing) };
    if !email.erase(eraser) {
        return Ok(EraseEmailResult::NotSettled);
    }
    save_erased_email(&tx, &email).await?;
    for row in query_rows(&tx, EVIDENCE, &[&team.0, &id.0]).await? {
        let mut fact: Evidence = read_json(row.try_get(1)?, "evidence")?;
        fact.erase(eraser);
        let number: i64 = row.try_get(0)?;
        execute(&tx, SAVE_EVIDENCE, &[&team.0, &id.0, &number, &fact.dedup_key, &write_json(&fact)?]).await?;
    }
    erase_subject_of_thread(&tx, team, email.head.thread).await?;
    query_rows(&tx, LOCK_SEARCH, &[&team.0]).await?;
    for sql in DELETE_OF_EMAIL {
        execute(&tx, sql, &[&team.0, &id.0]).await?;
    }
    shared.commit(tx, 1).await?;
    Ok(EraseEmailResult::Erased)
}

async fn save_erased_email(tx: &Transaction<'_>, email: &Email) -> TxResult<()> {
    let (team, id) = (email.team.0, email.id.0);
    let (rev, head) = (email.rev as i32, write_json(&email.head)?);
    execute(tx, SAVE_EMAIL, &[&team, &id, &rev, &email.digest.to_bytes(), &head]).await?;
    for handoff in &email.handoffs {
        let number = i32::from(handoff.number);
        let has_work = handoff.progress != HandoffProgress::default();
        let work = has_work.then(|| write_json(&handoff.progress)).transpose()?;
        execute(tx, SAVE_HANDOFF, &[&team, &id, &number, &write_json(&handoff.recipients)?, &work]).await?;
    }
    Ok(())
}

async fn erase_subject_of_thread(tx: &Transaction<'_>, team: TeamId, thread: Option<ThreadId>) -> TxResult<()> {
    let Some(id) = thread else { return Ok(()) };
    let found = read_first(&query_rows(tx, LOCK_THREAD, &[&team.0, &id.0]).await?, |row| read_thread(row, 0))?;
    if let Some(mut thread) = found {
        thread.erase_subject();
        execute(tx, SAVE_THREAD, &[&team.0, &id.0, &(thread.rev as i32), &write_json(&thread.details)?]).await?;
    }
    Ok(())
}

async fn erase_message(shared: &SharedState, team: TeamId, id: MessageId, now: Time) -> TxResult<bool> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let Some((mut message, mut thread)) = lock_message_and_thread(&tx, team, id).await? else { return Ok(false) };
    if !message.is_visible() {
        return Ok(false);
    }
    message.erase(now);
    let (marks, head) = (write_json(&message.annotations)?, write_json(&message.head)?);
    let (rev, state) = (message.rev as i32, message.state.as_str());
    execute(&tx, SAVE_MESSAGE, &[&team.0, &id.0, &rev, &state, &marks, &head]).await?;
    thread.erase_subject();
    let (rev, about) = (thread.rev as i32, write_json(&thread.details)?);
    execute(&tx, SAVE_THREAD, &[&team.0, &thread.id.0, &rev, &about]).await?;
    let delivery = message.delivery.0;
    for row in query_rows(&tx, LOCK_DELIVERY, &[&team.0, &delivery]).await? {
        let mut kept = read_delivery(&row)?;
        kept.erase();
        let (rev, about) = (kept.rev as i32, write_json(&kept.details)?);
        execute(&tx, SAVE_DELIVERY, &[&team.0, &delivery, &rev, &about]).await?;
        release_raws(&tx, row.try_get::<_, Option<Uuid>>(DELIVERY_COLUMNS)?.into_iter()).await?;
    }
    query_rows(&tx, LOCK_SEARCH, &[&team.0]).await?;
    for sql in DELETE_OF_MESSAGE {
        execute(&tx, sql, &[&team.0, &id.0]).await?;
    }
    audit_chain::record_act(&tx, Some(&Act::of_deletion(team, "message", id.0)), now).await?;
    shared.commit(tx, 1).await?;
    Ok(true)
}

async fn drop_bodies(shared: &SharedState, team: TeamId, settled_by: Time, max: usize) -> TxResult<usize> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let rows = query_rows(&tx, LOCK_DUE_BODIES, &[&team.0, &settled_by.0, &(max as i64)]).await?;
    let due: Vec<Uuid> = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<TxResult<_>>()?;
    if !due.is_empty() {
        execute(&tx, DROP_BODIES, &[&team.0, &due]).await?;
        execute(&tx, DROP_WIRES, &[&team.0, &due]).await?;
        shared.commit(tx, 1).await?;
    }
    Ok(due.len())
}

async fn redact_thread(shared: &SharedState, eraser: &AddressEraser, id: ThreadId) -> TxResult<bool> {
    let team = eraser.team.0;
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let found = read_first(&query_rows(&tx, LOCK_THREAD, &[&team, &id.0]).await?, |row| read_thread(row, 0))?;
    let Some(mut thread) = found else { return Ok(false) };
    if !thread.redact(eraser) {
        return Ok(false);
    }
    execute(&tx, SAVE_THREAD, &[&team, &id.0, &(thread.rev as i32), &write_json(&thread.details)?]).await?;
    shared.commit(tx, 1).await?;
    Ok(true)
}

async fn redact_consumers(shared: &SharedState, eraser: &AddressEraser, message: MessageId) -> TxResult<usize> {
    let team = eraser.team.0;
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let mut named = 0;
    for row in query_rows(&tx, LOCK_CONSUMERS, &[&team, &message.0]).await? {
        let (id, mut consumed): (Uuid, Consumption) = (row.try_get(0)?, read_json(row.try_get(1)?, "an artifact")?);
        if consumed.redact(eraser) {
            execute(&tx, SAVE_CONSUMER, &[&team, &id, &write_json(&consumed)?]).await?;
            named += 1;
        }
    }
    if named > 0 {
        shared.commit(tx, 1).await?;
    }
    Ok(named)
}

async fn drop_message_bytes(shared: &SharedState, team: TeamId, id: MessageId) -> TxResult<bool> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let Some((message, _)) = lock_message_and_thread(&tx, team, id).await? else { return Ok(false) };
    let rows = query_rows(&tx, LOCK_DELIVERY, &[&team.0, &message.delivery.0]).await?;
    let raw: Option<Uuid> = rows.first().map(|row| row.try_get(DELIVERY_COLUMNS)).transpose()?.flatten();
    let Some(raw) = raw else { return Ok(false) };
    execute(&tx, DROP_RAWS, &[&team.0, &[message.delivery.0].as_slice()]).await?;
    release_raws(&tx, std::iter::once(raw)).await?;
    query_rows(&tx, LOCK_SEARCH, &[&team.0]).await?;
    execute(&tx, DROP_TEXT, &[&team.0, &id.0]).await?;
    shared.commit(tx, 1).await?;
    Ok(true)
}

async fn drop_dead_mail(
    shared: &SharedState,
    team: TeamId,
    inbox: Option<InboxId>,
    received_by: Time,
    max: usize,
) -> TxResult<usize> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let inbox = inbox.map(|id| id.0);
    let rows = query_rows(&tx, LOCK_DEAD_MAIL, &[&team.0, &received_by.0, &(max as i64), &inbox]).await?;
    let (mut due, mut raws): (Vec<Uuid>, Vec<Uuid>) = (Vec::new(), Vec::new());
    for row in &rows {
        due.push(row.try_get(0)?);
        raws.push(row.try_get(1)?);
    }
    if !due.is_empty() {
        execute(&tx, DROP_RAWS, &[&team.0, &due]).await?;
        release_raws(&tx, raws.into_iter()).await?;
        shared.commit(tx, 1).await?;
    }
    Ok(due.len())
}

async fn remove_thread(shared: &SharedState, team: TeamId, id: ThreadId, now: Time) -> TxResult<bool> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let is_there = !query_rows(&tx, LOCK_THREAD, &[&team.0, &id.0]).await?.is_empty();
    if !is_there || !query_rows(&tx, HAS_MESSAGES, &[&team.0, &id.0]).await?.is_empty() {
        return Ok(false);
    }
    execute(&tx, "DELETE FROM thread_emails WHERE team = $1 AND thread = $2", &[&team.0, &id.0]).await?;
    execute(&tx, "DELETE FROM threads WHERE team = $1 AND id = $2", &[&team.0, &id.0]).await?;
    reserve_id(&tx, id.0).await?;
    audit_chain::record_act(&tx, Some(&Act::of_deletion(team, "thread", id.0)), now).await?;
    shared.commit(tx, 1).await?;
    Ok(true)
}

/// Keeps an id from being used again after its row is gone.
async fn reserve_id(tx: &Transaction<'_>, id: Uuid) -> TxResult<()> {
    execute(tx, SAVE_LAST_ID, &[&mailonce_core::id::ordered_bits(id)]).await.map(drop)
}

async fn delivery_bytes(shared: &SharedState, team: TeamId, id: DeliveryId) -> TxResult<Option<Vec<u8>>> {
    let rows = query_rows(&shared.connections.client().await?, DELIVERY_BYTES, &[&team.0, &id.0]).await?;
    read_first(&rows, |row| Ok(row.try_get(0)?))
}

async fn remove_delivery(shared: &SharedState, team: TeamId, id: DeliveryId) -> TxResult<bool> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let rows = query_rows(&tx, LOCK_DELIVERY, &[&team.0, &id.0]).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let delivery = read_delivery(row)?;
    let is_removable = match delivery.state {
        DeliveryState::Waiting => false,
        DeliveryState::Done => delivery.message.is_none(),
        DeliveryState::Duplicate | DeliveryState::Refused | DeliveryState::Dead => true,
    };
    if !is_removable {
        return Ok(false);
    }
    execute(&tx, DROP_DELIVERY, &[&team.0, &id.0]).await?;
    release_raws(&tx, row.try_get::<_, Option<Uuid>>(DELIVERY_COLUMNS)?.into_iter()).await?;
    reserve_id(&tx, id.0).await?;
    shared.commit(tx, 1).await?;
    Ok(true)
}

async fn has_removed_inboxes(shared: &SharedState, team: TeamId) -> TxResult<bool> {
    let sql = "SELECT FROM inboxes WHERE sweep_at IS NOT NULL AND team = $1 LIMIT 1";
    Ok(!query_rows(&shared.connections.client().await?, sql, &[&team.0]).await?.is_empty())
}

async fn replace_record(shared: &SharedState, record: &Record) -> TxResult<bool> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&record.id, &(record.rev as i32), &record.name, &record.json];
    let changed = execute(&tx, REPLACE_RECORD, &params).await?;
    shared.commit(tx, 1).await?;
    Ok(changed == 1)
}

async fn replace_event_data(shared: &SharedState, team: TeamId, events: &[(u64, Value)]) -> TxResult<()> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    for (seq, data) in events {
        execute(&tx, REPLACE_EVENT, &[&team.0, &(*seq as i64), &data.to_string()]).await?;
    }
    let seqs: Vec<i64> = events.iter().map(|(seq, _)| *seq as i64).collect();
    execute(&tx, FORGET_RESPONSES, &[&team.0, &seqs]).await?;
    shared.commit(tx, 1).await
}

async fn name_page(shared: &SharedState, team: TeamId, after: &str, limit: usize) -> TxResult<Vec<Alias>> {
    let rows = query_rows(&shared.connections.client().await?, NAME_PAGE, &[&team.0, &after, &(limit as i64)]).await?;
    rows.iter().map(|row| Ok(Alias { id: row.try_get(0)?, name: row.try_get(1)? })).collect()
}

async fn forget_reply_tally(shared: &SharedState, team: TeamId, person: Uuid) -> TxResult<()> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    execute(&tx, FORGET_TALLY, &[&team.0, &person]).await?;
    shared.commit(tx, 1).await
}

#[async_trait]
impl ErasureStore for Postgres {
    async fn erase_email(&self, eraser: &AddressEraser, id: EmailId) -> Result<EraseEmailResult> {
        into_store_result(call_until_final!(erase_email(&self.shared, eraser, id)))
    }

    async fn erase_claim(&self, eraser: &AddressEraser, id: ClaimId) -> Result<EraseClaimResult> {
        into_store_result(call_until_final!(claims::erase(&self.shared, eraser, id)))
    }

    async fn erase_message(&self, team: TeamId, id: MessageId, now: Time) -> Result<bool> {
        into_store_result(call_until_final!(erase_message(&self.shared, team, id, now)))
    }

    async fn redact_thread(&self, eraser: &AddressEraser, id: ThreadId) -> Result<bool> {
        into_store_result(call_until_final!(redact_thread(&self.shared, eraser, id)))
    }

    async fn redact_consumers(&self, eraser: &AddressEraser, _inbox: InboxId, message: MessageId) -> Result<usize> {
        into_store_result(call_until_final!(redact_consumers(&self.shared, eraser, message)))
    }

    async fn redact_typed_texts(&self, eraser: &AddressEraser, kind: TypedText) -> Result<usize> {
        into_store_result(call_until_final!(typed_texts::redact(&self.shared, eraser, kind)))
    }

    async fn remove_thread(&self, team: TeamId, id: ThreadId, now: Time) -> Result<bool> {
        into_store_result(call_until_final!(remove_thread(&self.shared, team, id, now)))
    }

    async fn drop_bodies(&self, team: TeamId, settled_by: Time, max: usize) -> Result<usize> {
        into_store_result(call_until_final!(drop_bodies(&self.shared, team, settled_by, max)))
    }

    async fn drop_message_bytes(&self, team: TeamId, id: MessageId) -> Result<bool> {
        into_store_result(call_until_final!(drop_message_bytes(&self.shared, team, id)))
    }

    async fn drop_dead_mail(
        &self,
        team: TeamId,
        inbox: Option<InboxId>,
        received_by: Time,
        max: usize,
    ) -> Result<usize> {
        into_store_result(call_until_final!(drop_dead_mail(&self.shared, team, inbox, received_by, max)))
    }

    async fn delivery_bytes(&self, team: TeamId, id: DeliveryId) -> Result<Option<Vec<u8>>> {
        when_durable!(self, delivery_bytes(&self.shared, team, id).await)
    }

    async fn remove_delivery(&self, team: TeamId, id: DeliveryId) -> Result<bool> {
        into_store_result(call_until_final!(remove_delivery(&self.shared, team, id)))
    }

    async fn has_removed_inboxes(&self, team: TeamId) -> Result<bool> {
        when_durable!(self, has_removed_inboxes(&self.shared, team).await)
    }

    async fn replace_record(&self, record: &Record) -> Result<bool> {
        into_store_result(call_until_final!(replace_record(&self.shared, record)))
    }

    async fn replace_event_data(&self, team: TeamId, events: Vec<(u64, Value)>) -> Result<()> {
        into_store_result(call_until_final!(replace_event_data(&self.shared, team, &events)))
    }

    async fn drop_events(&self, team: TeamId, retention: EventRetention) -> Result<bool> {
        into_store_result(call_until_final!(event_retention::drop_events(&self.shared, team, retention)))
    }

    async fn audit_name_page(&self, team: TeamId, after: &str, limit: usize) -> Result<Vec<Alias>> {
        when_durable!(self, name_page(&self.shared, team, after, limit).await)
    }

    async fn forget_reply_tally(&self, team: TeamId, person: [u8; 16]) -> Result<()> {
        into_store_result(call_until_final!(forget_reply_tally(&self.shared, team, Uuid::from_bytes(person))))
    }

    async fn overwrite_freed_storage(&self) -> Result<()> {
        Ok(())
    }

    async fn truncate_log(&self) -> Result<()> {
        Ok(())
    }
}
