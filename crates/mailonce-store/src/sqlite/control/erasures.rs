//! Erasing: removes what names a person, one row at a time, and overwrites what it frees.

use async_trait::async_trait;
use mailonce_core::{
    access::call_origin::Alias,
    control::{audit::act::Act, erasure::AddressEraser},
    handoff::{Attempt, Evidence},
    id::{DeliveryId, EmailId, MessageId, TeamId, ThreadId, ordered_bits},
    inbound::delivery::DeliveryState,
    inbox::message::Message,
    outbound::email::Email,
    ports::{
        erasure_store::{EraseEmailResult, ErasureStore},
        store::Result,
    },
    record::Record,
    time::Time,
};
use rusqlite::{Connection, params};
use serde_json::Value;

use crate::sqlite::{
    Sqlite,
    control::audit,
    conversation::threads,
    events::event_log,
    inbound::deliveries,
    inbox::messages,
    outbound::email_rows::work_json,
    rows::{self, to_json},
    schema::store_error,
    write_session::WriteSession,
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
const SAVE_MESSAGE: &str = "UPDATE messages SET rev = ?2, state = ?3, marks = ?4, head = ?5 WHERE message = ?1";
const SAVE_DELIVERY: &str =
    "UPDATE deliveries SET rev = ?3, about = ?4, trouble = NULL, raw = NULL WHERE team = ?1 AND delivery = ?2";
const DROP_TEXT: &str = "UPDATE search_documents SET text = '' WHERE kind = 1 AND source = ?1 AND text <> ''";
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
        ledger.execute(SAVE_EVIDENCE, params![bits, number, fact.once, to_json(&fact)?])?;
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

fn drop_body(ledger: &mut WriteSession<'_>, team: TeamId, id: EmailId) -> Result<bool> {
    let Some(number) = ledger.team_number(team) else { return Ok(false) };
    let email = rows::email_by_id(ledger.conn, team, number, id)?;
    if !email.is_some_and(|email| email.state().is_terminal()) {
        return Ok(false);
    }
    let bits = ordered_bits(id.0);
    let inline = ledger.execute("UPDATE emails SET body = NULL WHERE email = ?1 AND body IS NOT NULL", [bits])?;
    let apart = ledger.execute("DELETE FROM bodies WHERE email = ?1", [bits])?;
    ledger.execute("DELETE FROM wires WHERE email = ?1", [bits])?;
    Ok(inline + apart > 0)
}

fn drop_message_bytes(ledger: &mut WriteSession<'_>, team: TeamId, id: MessageId) -> Result<bool> {
    let Some(number) = ledger.team_number(team) else { return Ok(false) };
    let Some(message) = messages::by_id(ledger.conn, team, number, id)? else { return Ok(false) };
    let kept = deliveries::by_id(ledger.conn, team, number, message.delivery)?;
    let Some(raw) = kept.and_then(|kept| kept.raw) else { return Ok(false) };
    let row = params![number, ordered_bits(message.delivery.0)];
    ledger.execute("UPDATE deliveries SET raw = NULL WHERE team = ?1 AND delivery = ?2", row)?;
    deliveries::release_raw(ledger, raw)?;
    ledger.execute(DROP_TEXT, [ordered_bits(id.0)])?;
    Ok(true)
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

    async fn erase_message(&self, team: TeamId, id: MessageId, now: Time) -> Result<bool> {
        self.run_erasing(move |ledger| erase_message(ledger, team, id, now)).await
    }

    async fn remove_thread(&self, team: TeamId, id: ThreadId, now: Time) -> Result<bool> {
        self.run_erasing(move |ledger| remove_thread(ledger, team, id, now)).await
    }

    async fn drop_body(&self, team: TeamId, id: EmailId) -> Result<bool> {
        self.run_erasing(move |ledger| drop_body(ledger, team, id)).await
    }

    async fn drop_message_bytes(&self, team: TeamId, id: MessageId) -> Result<bool> {
        self.run_erasing(move |ledger| drop_message_bytes(ledger, team, id)).await
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
        self.writer.rewrite_file().await
    }
}
