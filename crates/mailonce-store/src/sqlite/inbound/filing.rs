//! Filing: turns a delivery into a message of an inbox.
//!
//! Nearly every message is new, has a Message-ID that the inbox has not seen, and contains no artifacts. It takes one
//! lookup and one insert in `message_names`. Its row is serialized before the writer thread receives it.

use mailonce_core::{
    id::{DeliveryId, InboxId, MessageId, TeamId, ThreadId, ordered_bits, random_bits},
    inbound::{
        delivery::{DeliveryOutcome, DeliveryState, DeliverySuppression},
        filing::{FilingContext, FilingWrites},
        wake_up::InboundWakeUp,
    },
    inbox::message::{DuplicateCheck, FileMessageResult, KnownMessage, Message, NewMessage},
    ports::store::Result,
    time::Time,
};
use rusqlite::{OptionalExtension as _, params};
use uuid::Uuid;

use crate::sqlite::{
    conversation::threads,
    inbound::deliveries::{self, DeliveryRow},
    inbox::artifacts,
    rows::{optional_id, to_json},
    schema::store_error,
    write_session::WriteSession,
};

const INBOX_SEQ: &str = "SELECT tail, seq FROM inboxes WHERE inbox = ?1 AND team = ?2 AND removed IS NULL";
const SAVE_INBOX_SEQ: &str = "UPDATE inboxes SET seq = ?2 WHERE inbox = ?1";
const BY_MESSAGE_ID: &str = "SELECT thread, message, content FROM message_names WHERE inbox = ?1 AND name = ?2";
const BY_CONTENT: &str = "SELECT message FROM message_contents WHERE inbox = ?1 AND name = ?2 AND content = ?3";
/// The first message and the first thread under a Message-ID are kept.
const SAVE_MESSAGE_ID: &str = "INSERT INTO message_names (inbox, name, thread, message, content) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET thread = COALESCE(thread, ?3), content = IIF(message IS NULL, ?5, content), \
     message = COALESCE(message, ?4)";
const SAVE_CONTENT: &str = "INSERT INTO message_contents (inbox, name, content, message) VALUES (?1, ?2, ?3, ?4)";
const INSERT_MESSAGE: &str = "INSERT INTO messages (message, tail, team, inbox, seq, rev, thread, delivery, received_at, state, \
     marks, head) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

/// A message with its JSON columns serialized for the usual case, so that the writer thread only binds parameters.
pub(crate) struct PreparedMessage {
    message: NewMessage,
    marks: String,
    /// The serialized head, if the message has no artifacts. It is discarded if the Message-ID is reused.
    head: Option<String>,
}

impl PreparedMessage {
    pub(crate) fn new(message: NewMessage) -> Result<Self> {
        let plain = message.artifacts.is_empty() && message.head.artifacts.is_empty();
        let head = plain.then(|| to_json(&message.head)).transpose()?;
        Ok(Self { marks: to_json(&message.annotations)?, head, message })
    }
}

/// The thread and the first message that an inbox has under one Message-ID.
#[derive(Default)]
struct MessageIdEntry {
    thread: Option<ThreadId>,
    first: Option<KnownMessage>,
}

/// Files the message of a waiting delivery, unless its inbox already has the message.
pub(crate) fn file_message(
    ledger: &mut WriteSession<'_>,
    (team, id): (TeamId, DeliveryId),
    prepared: PreparedMessage,
    now: Time,
) -> Result<FileMessageResult> {
    let Some(number) = ledger.team_number(team) else { return Ok(FileMessageResult::Missing) };
    let Some(mut kept) = deliveries::by_id(ledger.conn, team, number, id)? else {
        return Ok(FileMessageResult::Missing);
    };
    if kept.delivery.state != DeliveryState::Waiting {
        return Ok(FileMessageResult::AlreadyFinished);
    }
    let inbox = kept.delivery.target.inbox();
    let place = inbox.map(|inbox| inbox_seq(ledger, number, inbox)).transpose()?.flatten();
    let Some((inbox, seq)) = inbox.zip(place) else {
        kept.delivery.record_outcome(DeliveryOutcome::Refused(DeliverySuppression::UnknownInbox));
        deliveries::finish(ledger, number, kept, now)?;
        return Ok(FileMessageResult::AlreadyFinished);
    };
    let message = &prepared.message;
    let own =
        message.message_id_hash.map(|name| find_message_id(ledger, inbox, &name)).transpose()?.unwrap_or_default();
    let duplicate_check = message.check_duplicate(&find_known_messages(ledger, inbox, message, &own)?);
    if let DuplicateCheck::Duplicate(id, why) = duplicate_check {
        kept.delivery.mark_known_message(id, why);
        deliveries::finish(ledger, number, kept, now)?;
        return Ok(FileMessageResult::Duplicate(id, why));
    }
    let thread = find_thread(ledger, inbox, message, &own)?;
    let context = FilingContext {
        inbox,
        latest_seq: seq,
        thread,
        existing_thread: thread.map(|id| threads::by_id(ledger.conn, (team, number), id)).transpose()?.flatten(),
        is_message_id_reused: duplicate_check == DuplicateCheck::MessageIdReused,
        known_artifacts: artifacts::find_same(ledger.conn, number, inbox, message, team)?,
    };
    file_new(ledger, number, kept, prepared, context, now).map(FilingWrites::into_result)
}

/// The sequence number of an inbox's latest message. `None` when the team has no such inbox.
fn inbox_seq(ledger: &WriteSession<'_>, team: i64, inbox: InboxId) -> Result<Option<u64>> {
    let mut statement = ledger.conn.prepare_cached(INBOX_SEQ).map_err(store_error)?;
    let asked = params![ordered_bits(inbox.0), team];
    let row: Option<(i64, i64)> =
        statement.query_row(asked, |row| Ok((row.get(0)?, row.get(1)?))).optional().map_err(store_error)?;
    Ok(row.filter(|(tail, _)| *tail == random_bits(inbox.0)).map(|(_, seq)| seq as u64))
}

fn find_message_id(ledger: &WriteSession<'_>, inbox: InboxId, name: &[u8; 32]) -> Result<MessageIdEntry> {
    let mut statement = ledger.conn.prepare_cached(BY_MESSAGE_ID).map_err(store_error)?;
    let mut rows = statement.query(params![ordered_bits(inbox.0), name]).map_err(store_error)?;
    let Some(row) = rows.next().map_err(store_error)? else { return Ok(MessageIdEntry::default()) };
    let content: Option<[u8; 32]> = row.get(2).map_err(store_error)?;
    let first = optional_id(row, 1)?
        .zip(content)
        .map(|(id, content)| KnownMessage { id: MessageId(id), content_hash: content });
    Ok(MessageIdEntry { thread: optional_id(row, 0)?.map(ThreadId), first })
}

/// Messages that the inbox has under the same Message-ID, or with the same content if there is no Message-ID.
fn find_known_messages(
    ledger: &WriteSession<'_>,
    inbox: InboxId,
    message: &NewMessage,
    own: &MessageIdEntry,
) -> Result<Vec<KnownMessage>> {
    let mut known: Vec<KnownMessage> = own.first.into_iter().collect();
    let content = message.content_hash;
    let elsewhere = message.message_id_hash.is_none() || own.first.is_some_and(|first| first.content_hash != content);
    if elsewhere {
        let asked = params![ordered_bits(inbox.0), message_id_bytes(message.message_id_hash.as_ref()), content];
        let mut statement = ledger.conn.prepare_cached(BY_CONTENT).map_err(store_error)?;
        let found: Option<[u8; 16]> = statement.query_row(asked, |row| row.get(0)).optional().map_err(store_error)?;
        known.extend(found.map(|id| KnownMessage { id: MessageId(Uuid::from_bytes(id)), content_hash: content }));
    }
    Ok(known)
}

fn message_id_bytes(name: Option<&[u8; 32]>) -> &[u8] {
    name.map_or(&[], |name| name.as_slice())
}

/// The thread of the first of the message's `thread_hashes` that the inbox knows.
fn find_thread(
    ledger: &WriteSession<'_>,
    inbox: InboxId,
    message: &NewMessage,
    own: &MessageIdEntry,
) -> Result<Option<ThreadId>> {
    for name in &message.thread_hashes {
        let thread = if message.message_id_hash.as_ref() == Some(name) {
            own.thread
        } else {
            find_message_id(ledger, inbox, name)?.thread
        };
        if thread.is_some() {
            return Ok(thread);
        }
    }
    Ok(None)
}

/// Files a message that is new to its inbox.
fn file_new(
    ledger: &mut WriteSession<'_>,
    team: i64,
    mut kept: DeliveryRow,
    prepared: PreparedMessage,
    context: FilingContext,
    now: Time,
) -> Result<FilingWrites> {
    let PreparedMessage { message, marks, head } = prepared;
    let (inbox, reused) = (context.inbox, context.is_message_id_reused);
    let (name, content, names) = (message.message_id_hash, message.content_hash, message.thread_hashes.clone());
    let filing = message.file(&mut kept.delivery, context, now);
    let head = head.filter(|_| !reused).map_or_else(|| to_json(&filing.message.head), Ok)?;
    write_message(ledger, team, &filing.message, &marks, &head)?;
    write_message_ids(ledger, &filing.message, (name, content), &names)?;
    if name.is_none() || reused {
        let (bits, id) = (ordered_bits(inbox.0), filing.message.id.0.as_bytes());
        ledger.execute(SAVE_CONTENT, params![bits, message_id_bytes(name.as_ref()), content, id])?;
    }
    threads::save(ledger, team, &filing.thread)?;
    if let Some(email) = filing.email {
        threads::add_email(ledger, filing.thread.id, email)?;
    }
    for filed in &filing.artifacts {
        artifacts::save(ledger, team, filed)?;
    }
    filing.events.iter().for_each(|event| ledger.emit(team, event));
    deliveries::save(ledger, team, kept)?;
    ledger.queue_wake_up(InboundWakeUp::MessageFiled(inbox));
    Ok(filing)
}

fn write_message(ledger: &mut WriteSession<'_>, team: i64, message: &Message, marks: &str, head: &str) -> Result<()> {
    let Message { id, seq, rev, thread, delivery, received_at, state, .. } = message;
    let (bits, tail, inbox) = (ordered_bits(id.0), random_bits(id.0), ordered_bits(message.inbox.0));
    let (thread_id, delivery) = (thread.0.as_bytes(), delivery.0.as_bytes());
    let row = params![
        bits,
        tail,
        team,
        inbox,
        *seq as i64,
        rev,
        thread_id,
        delivery,
        received_at.0,
        state.as_str(),
        marks,
        head
    ];
    ledger.execute(INSERT_MESSAGE, row)?;
    ledger.execute(SAVE_INBOX_SEQ, params![inbox, *seq as i64])?;
    ledger.reserve_id(id.0);
    ledger.reserve_id(thread.0);
    Ok(())
}

/// Saves the message's own Message-ID with its content hash, and assigns the Message-IDs `names` to its thread.
fn write_message_ids(
    ledger: &WriteSession<'_>,
    message: &Message,
    (own, content): (Option<[u8; 32]>, [u8; 32]),
    names: &[[u8; 32]],
) -> Result<()> {
    let (inbox, thread, id) = (ordered_bits(message.inbox.0), message.thread.0.as_bytes(), message.id.0.as_bytes());
    let none: Option<[u8; 16]> = None;
    for name in names.iter().filter(|name| Some(**name) != own) {
        ledger.execute(SAVE_MESSAGE_ID, params![inbox, name, thread, none, none])?;
    }
    if let Some(name) = own {
        let thread = names.contains(&name).then_some(thread);
        ledger.execute(SAVE_MESSAGE_ID, params![inbox, name, thread, id, content])?;
    }
    Ok(())
}
