//! Erasing: removes what names a person, one row at a time, and overwrites what it frees.

use async_trait::async_trait;
use mailonce_core::{
    access::call_origin::Alias,
    control::{audit::act::Act, erasure::AddressEraser, typed_text::TypedText},
    events::retention::EventRetention,
    handoff::{Attempt, Evidence},
    id::{ClaimId, DeliveryId, EmailId, InboxId, MessageId, TeamId, ThreadId, ordered_bits},
    inbound::delivery::DeliveryState,
    inbox::{artifact::Consumption, message::Message},
    outbound::email::Email,
    ports::{
        erasure_store::{EraseClaimResult, EraseEmailResult, ErasureStore},
        store::Result,
    },
    record::Record,
    time::Time,
};
use rusqlite::{Connection, params};
use serde_json::Value;

use crate::sqlite::{
    Sqlite, claims,
    control::{audit, typed_texts},
    conversation::threads,
    events::{event_log, event_retention},
    inbound::deliveries,
    inbox::messages,
    outbound::email_rows::work_json,
    rows::{self, to_json},
    schema::store_error,
    write_session::WriteSession,
    writer::FileJob,
};

const SAVE_EMAIL: &str =
    "UPDATE emails SET rev = ?3, digest = ?4, head = ?5, body = NULL WHERE email = ?2 AND team = ?1";
const SAVE_HANDOFF: &str =
    "UPDATE handoffs SET recipients = ?4, work = ?5 WHERE team = ?1 AND email = ?2 AND number = ?3";
const SAVE_ATTEMPT: &str = "UPDATE attempts SET reply = ?4 WHERE email = ?1 AND handoff = ?2 AND number = ?3";
const EVIDENCE: &str = "SELECT number, fact FROM evidence WHERE email = ?1 ORDER BY number";
const SAVE_EVIDENCE: &str = "UPDATE evidence SET once = ?3, fact = ?4 WHERE email = ?1 AND number = ?2";
/// Everything else of an email that has text or hashes of text.
const DELETE_OF_EMAIL: [&str; 5] = [
    "DELETE FROM bodies WHERE email = ?1",
    "DELETE FROM wires WHERE email = ?1",
    // The keyed hash of a meaning stays, so that a retry is still answered with the first email.
    "DELETE FROM likenesses WHERE email = ?1 AND NOT (words = x'' AND marks = zeroblob(16))",
    "DELETE FROM search_documents WHERE kind = 0 AND source = ?1",
    "UPDATE suppressed SET latest = '[]' WHERE email = ?1",
];
/// Both leave out an email that became active again after it had settled.
const DUE_BODIES: &str = "SELECT e.email FROM emails e \
     WHERE e.team = ?1 AND e.settled_at <= ?2 AND e.body IS NOT NULL \
       AND NOT EXISTS (SELECT 1 FROM handoffs h WHERE h.team = e.team AND h.email = e.email \
            AND h.state IN ('scheduled', 'queued', 'leased', 'sending', 'unknown', 'held')) \
     ORDER BY e.settled_at LIMIT ?3";
const DUE_LARGE_BODIES: &str = "SELECT e.email FROM bodies b JOIN emails e ON e.email = b.email \
     WHERE e.team = ?1 AND e.settled_at <= ?2 \
       AND NOT EXISTS (SELECT 1 FROM handoffs h WHERE h.team = e.team AND h.email = e.email \
            AND h.state IN ('scheduled', 'queued', 'leased', 'sending', 'unknown', 'held')) \
     LIMIT ?3";
const CONSUMERS: &str =
    "SELECT artifact, consumed FROM artifacts WHERE inbox = ?1 AND message = ?2 AND consumed IS NOT NULL";
const SAVE_MESSAGE: &str = "UPDATE messages SET rev = ?2, state = ?3, marks = ?4, head = ?5 WHERE message = ?1";
const SAVE_DELIVERY: &str =
    "UPDATE deliveries SET rev = ?3, about = ?4, trouble = NULL, raw = NULL WHERE team = ?1 AND delivery = ?2";
const DROP_TEXT: &str = "UPDATE search_documents SET text = '' WHERE kind = 1 AND source = ?1 AND text <> ''";
const DEAD_MAIL: &str = "SELECT delivery FROM deliveries \
     WHERE team = ?1 AND received_at <= ?2 AND state = 'dead' AND raw IS NOT NULL AND (?4 IS NULL OR inbox = ?4) \
     ORDER BY received_at LIMIT ?3";
const DROP_RAW: &str = "UPDATE deliveries SET raw = NULL WHERE team = ?1 AND delivery = ?2";
const HAS_MESSAGES: &str =
    "SELECT 1 FROM messages WHERE team = ?1 AND thread = ?2 AND head ->> '$.erased_at' IS NULL LIMIT 1";
const REPLACE_RECORD: &str = "UPDATE records SET rev = rev + 1, name = ?3, about = ?4 WHERE id = ?1 AND rev = ?2";
const FORGET_RESPONSES: &str = "UPDATE notices SET log = NULL WHERE seq = ?2 \
     AND endpoint IN (SELECT endpoint FROM endpoints WHERE team = ?1)";
const NAME_PAGE: &str = "SELECT id, name FROM audit_names WHERE team = ?1 AND id > ?2 ORDER BY id LIMIT ?3";

/// Erases a settled email with everything that belongs to it.
fn erase_email(ledger: &mut WriteSession<'_>, eraser: &AddressEraser, id: EmailId) -> Result<EraseEmailResult> {
    let Some(number) = ledger.team_number(eraser.team) else { return Ok(EraseEmailResult::Missing) };
    let Some(mut email) = rows::email_by_id(ledger.conn, eraser.team, number, id)? else {
        return Ok(EraseEmailResult::Missing);
    };
    if !email.erase(eraser) {
        return Ok(EraseEmailResult::NotSettled);
    }
    save_erased_email(ledger, number, &email)?;
    let bits = ordered_bits(id.0);
    erase_history(ledger, eraser, bits)?;
    for sql in DELETE_OF_EMAIL {
        ledger.execute(sql, [bits])?;
    }
    erase_subject_of_thread(ledger, (eraser.team, number), email.head.thread)?;
    ledger.queue_changed_email(email);
    Ok(EraseEmailResult::Erased)
}

fn save_erased_email(ledger: &WriteSession<'_>, team: i64, email: &Email) -> Result<()> {
    let bits = ordered_bits(email.id.0);
    ledger.execute(SAVE_EMAIL, params![team, bits, email.rev, email.digest.to_bytes(), to_json(&email.head)?])?;
    for handoff in &email.handoffs {
        let recipients = to_json(&handoff.recipients)?;
        ledger.execute(SAVE_HANDOFF, params![team, bits, handoff.number, recipients, work_json(handoff)])?;
    }
    Ok(())
}

/// Erases the texts of attempts and evidence.
fn erase_history(ledger: &WriteSession<'_>, eraser: &AddressEraser, bits: i64) -> Result<()> {
    for mut attempt in rows::attempts(ledger.conn, bits)? {
        attempt.erase();
        let Attempt { handoff, number, reply, .. } = &attempt;
        ledger.execute(SAVE_ATTEMPT, params![bits, handoff, number, reply])?;
    }
    let facts: Vec<(i64, String)> = {
        let mut statement = ledger.conn.prepare_cached(EVIDENCE).map_err(store_error)?;
        let rows = statement.query_map([bits], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.and_then(Iterator::collect).map_err(store_error)?
    };
    for (number, fact) in facts {
        let mut fact: Evidence = serde_json::from_str(&fact).map_err(|_json| rows::corrupt_row("evidence"))?;
        fact.erase(eraser);
        ledger.execute(SAVE_EVIDENCE, params![bits, number, fact.dedup_key, to_json(&fact)?])?;
    }
    Ok(())
}

fn erase_subject_of_thread(
    ledger: &WriteSession<'_>,
    (team, number): (TeamId, i64),
    thread: Option<ThreadId>,
) -> Result<()> {
    let Some(thread) = thread else { return Ok(()) };
    if let Some(mut thread) = threads::by_id(ledger.conn, (team, number), thread)? {
        thread.erase_subject();
        threads::save(ledger, number, &thread)?;
    }
    Ok(())
}

fn erase_message(ledger: &mut WriteSession<'_>, team: TeamId, id: MessageId, now: Time) -> Result<bool> {
    let Some(number) = ledger.team_number(team) else { return Ok(false) };
    let found = messages::by_id(ledger.conn, team, number, id)?;
    let Some(mut message) = found.filter(Message::is_visible) else { return Ok(false) };
    message.erase(now);
    let bits = ordered_bits(id.0);
    let (marks, head) = (to_json(&message.annotations)?, to_json(&message.head)?);
    ledger.execute(SAVE_MESSAGE, params![bits, message.rev, message.state.as_str(), marks, head])?;
    if let Some(mut kept) = deliveries::by_id(ledger.conn, team, number, message.delivery)? {
        kept.delivery.erase();
        let (rev, about) = (kept.delivery.rev, to_json(&kept.delivery.details)?);
        ledger.execute(SAVE_DELIVERY, params![number, ordered_bits(message.delivery.0), rev, about])?;
        kept.raw.map(|raw| deliveries::release_raw(ledger, raw)).transpose()?;
    }
    ledger.execute(
        "DELETE FROM artifacts WHERE inbox = ?1 AND message = ?2",
        params![ordered_bits(message.inbox.0), id.0.as_bytes()],
    )?;
    ledger.execute("DELETE FROM search_documents WHERE kind = 1 AND source = ?1", [bits])?;
    erase_subject_of_thread(ledger, (team, number), Some(message.thread))?;
    audit::record_act(ledger, Some(Act::of_deletion(team, "message", id.0)), now)?;
    Ok(true)
}

/// The settled emails of a team whose bodies are due, at most `max`.
fn due_bodies(conn: &Connection, team: i64, settled_by: Time, max: usize) -> Result<Vec<i64>> {
    let mut due = Vec::new();
    for sql in [DUE_BODIES, DUE_LARGE_BODIES] {
        let mut statement = conn.prepare_cached(sql).map_err(store_error)?;
        let left = max.saturating_sub(due.len()) as i64;
        let rows = statement.query_map(params![team, settled_by.0, left], |row| row.get(0));
        due.extend(rows.and_then(Iterator::collect::<rusqlite::Result<Vec<i64>>>).map_err(store_error)?);
    }
    Ok(due)
}

/// Deletes the bodies of these emails. None of them can have been needed again since they were found: a settled email
/// gets no new attempt.
fn drop_bodies(ledger: &WriteSession<'_>, emails: &[i64]) -> Result<()> {
    for bits in emails {
        ledger.execute("UPDATE emails SET body = NULL WHERE email = ?1 AND body IS NOT NULL", [bits])?;
        ledger.execute("DELETE FROM bodies WHERE email = ?1", [bits])?;
        ledger.execute("DELETE FROM wires WHERE email = ?1", [bits])?;
    }
    Ok(())
}

fn redact_thread(ledger: &WriteSession<'_>, eraser: &AddressEraser, id: ThreadId) -> Result<bool> {
    let Some(number) = ledger.team_number(eraser.team) else { return Ok(false) };
    let Some(mut thread) = threads::by_id(ledger.conn, (eraser.team, number), id)? else { return Ok(false) };
    let is_named = thread.redact(eraser);
    if is_named {
        threads::save(ledger, number, &thread)?;
    }
    Ok(is_named)
}

/// The artifacts of a message whose consumers name the person, with the consumers after redacting.
fn named_consumers(
    conn: &Connection,
    (eraser, number): (&AddressEraser, i64),
    inbox: InboxId,
    message: MessageId,
) -> Result<Vec<(i64, Consumption)>> {
    // The rows of artifacts have no team of their own.
    if messages::by_id(conn, eraser.team, number, message)?.is_none() {
        return Ok(Vec::new());
    }
    let mut statement = conn.prepare_cached(CONSUMERS).map_err(store_error)?;
    let rows = statement.query_map(params![ordered_bits(inbox.0), message.0.as_bytes()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
    });
    let rows: Vec<(i64, String)> = rows.and_then(Iterator::collect).map_err(store_error)?;
    let mut named = Vec::new();
    for (artifact, json) in rows {
        let mut consumed: Consumption = serde_json::from_str(&json).map_err(|_json| rows::corrupt_row("artifacts"))?;
        if consumed.redact(eraser) {
            named.push((artifact, consumed));
        }
    }
    Ok(named)
}

fn redact_consumers(
    ledger: &WriteSession<'_>,
    eraser: &AddressEraser,
    inbox: InboxId,
    message: MessageId,
) -> Result<usize> {
    let Some(number) = ledger.team_number(eraser.team) else { return Ok(0) };
    let named = named_consumers(ledger.conn, (eraser, number), inbox, message)?;
    for (artifact, consumed) in &named {
        ledger
            .execute("UPDATE artifacts SET consumed = ?2 WHERE artifact = ?1", params![artifact, to_json(consumed)?])?;
    }
    Ok(named.len())
}

/// The delivery of a message and its bytes, if they are still stored.
fn raw_of_message(
    conn: &Connection,
    (team, number): (TeamId, i64),
    id: MessageId,
) -> Result<Option<(DeliveryId, i64)>> {
    let Some(message) = messages::by_id(conn, team, number, id)? else { return Ok(None) };
    let kept = deliveries::by_id(conn, team, number, message.delivery)?;
    Ok(kept.and_then(|kept| kept.raw).map(|raw| (message.delivery, raw)))
}

fn drop_message_bytes(ledger: &mut WriteSession<'_>, team: TeamId, id: MessageId) -> Result<bool> {
    let Some(number) = ledger.team_number(team) else { return Ok(false) };
    let Some((delivery, raw)) = raw_of_message(ledger.conn, (team, number), id)? else { return Ok(false) };
    ledger.execute(DROP_RAW, params![number, ordered_bits(delivery.0)])?;
    deliveries::release_raw(ledger, raw)?;
    ledger.execute(DROP_TEXT, [ordered_bits(id.0)])?;
    Ok(true)
}

/// The dead deliveries of a team, or of one of its inboxes, that were received by a time and have bytes, at most `max`.
fn dead_mail(conn: &Connection, team: i64, inbox: Option<InboxId>, received_by: Time, max: usize) -> Result<Vec<i64>> {
    let mut statement = conn.prepare_cached(DEAD_MAIL).map_err(store_error)?;
    let inbox = inbox.map(|id| *id.0.as_bytes());
    let rows = statement.query_map(params![team, received_by.0, max as i64, inbox], |row| row.get(0));
    rows.and_then(Iterator::collect).map_err(store_error)
}

/// Deletes the bytes of deliveries that are still dead. Returns how many.
fn drop_dead_mail(ledger: &WriteSession<'_>, team: TeamId, due: &[i64]) -> Result<usize> {
    let Some(number) = ledger.team_number(team) else { return Ok(0) };
    let mut dropped = 0;
    for bits in due {
        let kept = deliveries::by_bits(ledger.conn, team, number, *bits)?;
        let dead = kept.filter(|kept| kept.delivery.state == DeliveryState::Dead);
        let Some(raw) = dead.and_then(|kept| kept.raw) else { continue };
        ledger.execute(DROP_RAW, params![number, bits])?;
        deliveries::release_raw(ledger, raw)?;
        dropped += 1;
    }
    Ok(dropped)
}

fn remove_thread(ledger: &mut WriteSession<'_>, team: TeamId, id: ThreadId, now: Time) -> Result<bool> {
    let Some(number) = ledger.team_number(team) else { return Ok(false) };
    let has_messages = ledger.conn.prepare_cached(HAS_MESSAGES);
    let has_messages = has_messages.and_then(|mut statement| statement.exists(params![number, id.0.as_bytes()]));
    if threads::by_id(ledger.conn, (team, number), id)?.is_none() || has_messages.map_err(store_error)? {
        return Ok(false);
    }
    ledger.execute("DELETE FROM thread_emails WHERE thread = ?1", [id.0.as_bytes()])?;
    ledger.execute("DELETE FROM threads WHERE thread = ?1", [id.0.as_bytes()])?;
    ledger.reserve_id(id.0);
    audit::record_act(ledger, Some(Act::of_deletion(team, "thread", id.0)), now)?;
    Ok(true)
}

fn remove_delivery(ledger: &mut WriteSession<'_>, team: TeamId, id: DeliveryId) -> Result<bool> {
    let Some(number) = ledger.team_number(team) else { return Ok(false) };
    let Some(kept) = deliveries::by_id(ledger.conn, team, number, id)? else { return Ok(false) };
    let delivery = &kept.delivery;
    let is_removable = match delivery.state {
        DeliveryState::Waiting => false,
        DeliveryState::Done => delivery.message.is_none(),
        DeliveryState::Duplicate | DeliveryState::Refused | DeliveryState::Dead => true,
    };
    if is_removable {
        kept.raw.map(|raw| deliveries::release_raw(ledger, raw)).transpose()?;
        let row = params![number, ordered_bits(id.0)];
        ledger.execute("DELETE FROM deliveries WHERE team = ?1 AND delivery = ?2", row)?;
        ledger.reserve_id(id.0);
    }
    Ok(is_removable)
}

fn replace_event_data(ledger: &WriteSession<'_>, team: TeamId, events: &[(u64, Value)]) -> Result<()> {
    let Some(number) = ledger.team_number(team) else { return Ok(()) };
    for (seq, _) in events {
        ledger.execute(FORGET_RESPONSES, params![number, *seq as i64])?;
    }
    event_log::replace_data(ledger, number, events)
}

fn name_page(conn: &Connection, team: TeamId, after: &str, limit: usize) -> Result<Vec<Alias>> {
    let mut statement = conn.prepare_cached(NAME_PAGE).map_err(store_error)?;
    let rows = statement.query_map(params![team.0.as_bytes(), after, limit as i64], |row| {
        Ok(Alias { id: row.get(0)?, name: row.get(1)? })
    });
    rows.and_then(Iterator::collect).map_err(store_error)
}

impl Sqlite {
    /// Runs a job that erases, and overwrites what it frees.
    async fn run_erasing<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&mut WriteSession<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_write(move |ledger| ledger.with_secure_delete(verb)).await
    }
}

#[async_trait]
impl ErasureStore for Sqlite {
    async fn erase_email(&self, eraser: &AddressEraser, id: EmailId) -> Result<EraseEmailResult> {
        let eraser = eraser.clone();
        self.run_erasing(move |ledger| erase_email(ledger, &eraser, id)).await
    }

    async fn erase_claim(&self, eraser: &AddressEraser, id: ClaimId) -> Result<EraseClaimResult> {
        let eraser = eraser.clone();
        self.run_erasing(move |ledger| claims::erase(ledger, &eraser, id)).await
    }

    async fn erase_message(&self, team: TeamId, id: MessageId, now: Time) -> Result<bool> {
        self.run_erasing(move |ledger| erase_message(ledger, team, id, now)).await
    }

    async fn redact_thread(&self, eraser: &AddressEraser, id: ThreadId) -> Result<bool> {
        let eraser = eraser.clone();
        self.run_erasing(move |ledger| redact_thread(ledger, &eraser, id)).await
    }

    async fn redact_consumers(&self, eraser: &AddressEraser, inbox: InboxId, message: MessageId) -> Result<usize> {
        let Some(number) = self.team_number(eraser.team) else { return Ok(0) };
        let (eraser, reader_eraser) = (eraser.clone(), eraser.clone());
        // Found by a reader, because most messages have none.
        let found = self.run_query(move |conn| named_consumers(conn, (&reader_eraser, number), inbox, message)).await?;
        if found.is_empty() {
            return Ok(0);
        }
        self.run_erasing(move |ledger| redact_consumers(ledger, &eraser, inbox, message)).await
    }

    async fn redact_typed_texts(&self, eraser: &AddressEraser, kind: TypedText) -> Result<usize> {
        let Some(number) = self.team_number(eraser.team) else { return Ok(0) };
        let (eraser, reader_eraser) = (eraser.clone(), eraser.clone());
        // Found by a reader, because usually there are none.
        let named = self.run_query(move |conn| typed_texts::named_rows(conn, number, &reader_eraser, kind)).await?;
        if named.is_empty() {
            return Ok(0);
        }
        self.run_erasing(move |ledger| typed_texts::redact(ledger, &eraser, kind)).await
    }

    async fn remove_thread(&self, team: TeamId, id: ThreadId, now: Time) -> Result<bool> {
        self.run_erasing(move |ledger| remove_thread(ledger, team, id, now)).await
    }

    async fn drop_bodies(&self, team: TeamId, settled_by: Time, max: usize) -> Result<usize> {
        let Some(number) = self.team_number(team) else { return Ok(0) };
        // Found by a reader, so that a round with nothing to do does not keep the writer busy.
        let due = self.run_query(move |conn| due_bodies(conn, number, settled_by, max)).await?;
        let dropped = due.len();
        if dropped > 0 {
            self.run_erasing(move |ledger| drop_bodies(ledger, &due)).await?;
        }
        Ok(dropped)
    }

    async fn drop_message_bytes(&self, team: TeamId, id: MessageId) -> Result<bool> {
        let Some(number) = self.team_number(team) else { return Ok(false) };
        // Found by a reader: after a restart most old messages have no bytes any more.
        if self.run_query(move |conn| raw_of_message(conn, (team, number), id)).await?.is_none() {
            return Ok(false);
        }
        self.run_erasing(move |ledger| drop_message_bytes(ledger, team, id)).await
    }

    async fn drop_dead_mail(
        &self,
        team: TeamId,
        inbox: Option<InboxId>,
        received_by: Time,
        max: usize,
    ) -> Result<usize> {
        let Some(number) = self.team_number(team) else { return Ok(0) };
        // Found by a reader, so that a round with nothing to do does not keep the writer busy.
        let due = self.run_query(move |conn| dead_mail(conn, number, inbox, received_by, max)).await?;
        if due.is_empty() {
            return Ok(0);
        }
        self.run_erasing(move |ledger| drop_dead_mail(ledger, team, &due)).await
    }

    async fn delivery_bytes(&self, team: TeamId, id: DeliveryId) -> Result<Option<Vec<u8>>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let query = move |conn: &Connection| {
            let kept = deliveries::by_id(conn, team, number, id)?;
            Ok(kept.and_then(|kept| kept.raw).map(|raw| deliveries::raw_bytes(conn, raw)).transpose()?.flatten())
        };
        self.run_query(query).await
    }

    async fn remove_delivery(&self, team: TeamId, id: DeliveryId) -> Result<bool> {
        self.run_erasing(move |ledger| remove_delivery(ledger, team, id)).await
    }

    async fn has_removed_inboxes(&self, team: TeamId) -> Result<bool> {
        let Some(number) = self.team_number(team) else { return Ok(false) };
        let sql = "SELECT 1 FROM inboxes WHERE removed = 1 AND team = ?1 LIMIT 1";
        let query = move |conn: &Connection| {
            conn.prepare_cached(sql).and_then(|mut statement| statement.exists([number])).map_err(store_error)
        };
        self.run_query(query).await
    }

    async fn replace_record(&self, record: &Record) -> Result<bool> {
        let Record { id, rev, name, json, .. } = record.clone();
        let verb = move |ledger: &mut WriteSession<'_>| {
            ledger.execute(REPLACE_RECORD, params![id.as_bytes(), rev, name, json]).map(|changed| changed == 1)
        };
        self.run_erasing(verb).await
    }

    async fn replace_event_data(&self, team: TeamId, events: Vec<(u64, Value)>) -> Result<()> {
        self.run_erasing(move |ledger| replace_event_data(ledger, team, &events)).await
    }

    async fn drop_events(&self, team: TeamId, retention: EventRetention) -> Result<bool> {
        let Some(number) = self.team_number(team) else { return Ok(false) };
        // Found by a reader, to spare the writer thread.
        let old = self.run_query(move |conn| event_retention::last_old(conn, number, retention)).await?;
        let Some(old) = old else { return Ok(false) };
        self.run_erasing(move |ledger| event_retention::drop_blocks(ledger, team, retention, old)).await
    }

    async fn audit_name_page(&self, team: TeamId, after: &str, limit: usize) -> Result<Vec<Alias>> {
        let after = after.to_owned();
        self.run_query(move |conn| name_page(conn, team, &after, limit)).await
    }

    async fn forget_reply_tally(&self, team: TeamId, person: [u8; 16]) -> Result<()> {
        let Some(number) = self.team_number(team) else { return Ok(()) };
        let sql = "DELETE FROM tallies WHERE team = ?1 AND person = ?2";
        self.run_erasing(move |ledger| ledger.execute(sql, params![number, person]).map(drop)).await
    }

    async fn overwrite_freed_storage(&self) -> Result<()> {
        self.writer.run_file_job(FileJob::Rewrite).await
    }

    async fn truncate_log(&self) -> Result<()> {
        self.writer.run_file_job(FileJob::TruncateLog).await
    }
}
