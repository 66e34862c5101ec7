//! Filing: from a delivery to a message.
//!
//! Nearly every message is new, has a Message-ID that was never seen, and holds nothing: one look and one insert into
//! `message_names` tell, and its row is worded before the writer has it.

use mailonce_core::{
    delivery::{DeliveryState, Settle, Suppression},
    filing::{Filing, Ground},
    id::{DeliveryId, InboxId, MessageId, TeamId, ThreadId, ordered_bits, tail_bits},
    message::{Filed, Known, Message, NewMessage, Novelty},
    port::{arrivals::Hint, store::Result},
    time::Time,
};
use rusqlite::{OptionalExtension as _, params};
use uuid::Uuid;

use super::{
    artifact,
    delivery::{self, Kept},
    ledger::Ledger,
    rows::{maybe_id, to_json},
    schema::told,
    thread,
};

const INBOX: &str = "SELECT tail, seq FROM inboxes WHERE inbox = ?1 AND team = ?2 AND removed IS NULL";
const NUMBER: &str = "UPDATE inboxes SET seq = ?2 WHERE inbox = ?1";
const NAMED: &str = "SELECT thread, message, content FROM message_names WHERE inbox = ?1 AND name = ?2";
const OTHER: &str = "SELECT message FROM message_contents WHERE inbox = ?1 AND name = ?2 AND content = ?3";
/// First come, first kept.
const NAME: &str = "INSERT INTO message_names (inbox, name, thread, message, content) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET thread = COALESCE(thread, ?3), content = IIF(message IS NULL, ?5, content), \
     message = COALESCE(message, ?4)";
const NAME_OTHER: &str = "INSERT INTO message_contents (inbox, name, content, message) VALUES (?1, ?2, ?3, ?4)";
const MESSAGE: &str = "INSERT INTO messages (message, tail, team, inbox, seq, rev, thread, delivery, received_at, state, \
     marks, head) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

/// A message with its words worked out as they usually are, so that the writer only binds and steps.
pub(super) struct Prepared {
    message: NewMessage,
    marks: String,
    /// The head as it is when it holds nothing and is no odd one.
    head: Option<String>,
}

impl Prepared {
    pub(super) fn new(message: NewMessage) -> Result<Self> {
        let plain = message.artifacts.is_empty() && message.head.artifacts.is_empty();
        let head = plain.then(|| to_json(&message.head)).transpose()?;
        Ok(Self { marks: to_json(&message.marks)?, head, message })
    }
}

/// What an inbox knows under one Message-ID.
#[derive(Default)]
struct Name {
    thread: Option<ThreadId>,
    first: Option<Known>,
}

/// Files the message of a waiting delivery, unless its inbox has it.
pub(super) fn file(
    ledger: &mut Ledger<'_>,
    (team, id): (TeamId, DeliveryId),
    prepared: Prepared,
    now: Time,
) -> Result<Filed> {
    let Some(number) = ledger.team_number(team) else { return Ok(Filed::Missing) };
    let Some(mut kept) = delivery::one(ledger.conn, team, number, id)? else { return Ok(Filed::Missing) };
    if kept.delivery.state != DeliveryState::Waiting {
        return Ok(Filed::Settled);
    }
    let inbox = kept.delivery.target.inbox();
    let place = inbox.map(|inbox| place(ledger, number, inbox)).transpose()?.flatten();
    let Some((inbox, seq)) = inbox.zip(place) else {
        kept.delivery.settle(Settle::Refused(Suppression::UnknownInbox));
        delivery::end(ledger, number, kept, now)?;
        return Ok(Filed::Settled);
    };
    let message = &prepared.message;
    let own = message.name.map(|name| named(ledger, inbox, &name)).transpose()?.unwrap_or_default();
    let novelty = message.novelty(&known(ledger, inbox, message, &own)?);
    if let Novelty::Known(id, why) = novelty {
        kept.delivery.known(id, why);
        delivery::end(ledger, number, kept, now)?;
        return Ok(Filed::Known(id, why));
    }
    let thread = thread_id(ledger, inbox, message, &own)?;
    let ground = Ground {
        inbox,
        seq,
        thread,
        row: thread.map(|id| thread::one(ledger.conn, (team, number), id)).transpose()?.flatten(),
        reused: novelty == Novelty::Reused,
        known: artifact::known(ledger.conn, number, inbox, message, team)?,
    };
    file_new(ledger, number, kept, prepared, ground, now).map(Filing::answer)
}

/// The number of an inbox's latest message. `None` when the team has no such inbox.
fn place(ledger: &Ledger<'_>, team: i64, inbox: InboxId) -> Result<Option<u64>> {
    let mut statement = ledger.conn.prepare_cached(INBOX).map_err(told)?;
    let asked = params![ordered_bits(inbox.0), team];
    let row: Option<(i64, i64)> =
        statement.query_row(asked, |row| Ok((row.get(0)?, row.get(1)?))).optional().map_err(told)?;
    Ok(row.filter(|(tail, _)| *tail == tail_bits(inbox.0)).map(|(_, seq)| seq as u64))
}

fn named(ledger: &Ledger<'_>, inbox: InboxId, name: &[u8; 32]) -> Result<Name> {
    let mut statement = ledger.conn.prepare_cached(NAMED).map_err(told)?;
    let mut rows = statement.query(params![ordered_bits(inbox.0), name]).map_err(told)?;
    let Some(row) = rows.next().map_err(told)? else { return Ok(Name::default()) };
    let content: Option<[u8; 32]> = row.get(2).map_err(told)?;
    let first = maybe_id(row, 1)?.zip(content).map(|(id, content)| Known { id: MessageId(id), content });
    Ok(Name { thread: maybe_id(row, 0)?.map(ThreadId), first })
}

/// What the inbox has under the message's name, or without one under its content.
fn known(ledger: &Ledger<'_>, inbox: InboxId, message: &NewMessage, own: &Name) -> Result<Vec<Known>> {
    let mut known: Vec<Known> = own.first.into_iter().collect();
    let content = message.content;
    let elsewhere = message.name.is_none() || own.first.is_some_and(|first| first.content != content);
    if elsewhere {
        let asked = params![ordered_bits(inbox.0), name_bytes(message.name.as_ref()), content];
        let mut statement = ledger.conn.prepare_cached(OTHER).map_err(told)?;
        let found: Option<[u8; 16]> = statement.query_row(asked, |row| row.get(0)).optional().map_err(told)?;
        known.extend(found.map(|id| Known { id: MessageId(Uuid::from_bytes(id)), content }));
    }
    Ok(known)
}

fn name_bytes(name: Option<&[u8; 32]>) -> &[u8] {
    name.map_or(&[], |name| name.as_slice())
}

/// The thread of the first of its names that the inbox knows.
fn thread_id(ledger: &Ledger<'_>, inbox: InboxId, message: &NewMessage, own: &Name) -> Result<Option<ThreadId>> {
    for name in &message.names {
        let thread = if message.name.as_ref() == Some(name) { own.thread } else { named(ledger, inbox, name)?.thread };
        if thread.is_some() {
            return Ok(thread);
        }
    }
    Ok(None)
}

/// Files a message that is new to its inbox.
fn file_new(
    ledger: &mut Ledger<'_>,
    team: i64,
    mut kept: Kept,
    prepared: Prepared,
    ground: Ground,
    now: Time,
) -> Result<Filing> {
    let Prepared { message, marks, head } = prepared;
    let (inbox, reused) = (ground.inbox, ground.reused);
    let (name, content, names) = (message.name, message.content, message.names.clone());
    let filing = message.file(&mut kept.delivery, ground, now);
    let head = head.filter(|_| !reused).map_or_else(|| to_json(&filing.message.head), Ok)?;
    write_message(ledger, team, &filing.message, &marks, &head)?;
    write_names(ledger, &filing.message, (name, content), &names)?;
    if name.is_none() || reused {
        let (bits, id) = (ordered_bits(inbox.0), filing.message.id.0.as_bytes());
        ledger.execute(NAME_OTHER, params![bits, name_bytes(name.as_ref()), content, id])?;
    }
    thread::save(ledger, team, &filing.thread)?;
    if let Some(email) = filing.email {
        thread::add_email(ledger, filing.thread.id, email)?;
    }
    for filed in &filing.artifacts {
        artifact::save(ledger, team, filed)?;
    }
    filing.events.iter().for_each(|event| ledger.emit(team, event));
    delivery::save(ledger, team, kept)?;
    ledger.note_hint(Hint::Filed(inbox));
    Ok(filing)
}

fn write_message(ledger: &mut Ledger<'_>, team: i64, message: &Message, marks: &str, head: &str) -> Result<()> {
    let Message { id, seq, rev, thread, delivery, received_at, state, .. } = message;
    let (bits, tail, inbox) = (ordered_bits(id.0), tail_bits(id.0), ordered_bits(message.inbox.0));
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
        state.word(),
        marks,
        head
    ];
    ledger.execute(MESSAGE, row)?;
    ledger.execute(NUMBER, params![inbox, *seq as i64])?;
    ledger.note_id(id.0);
    ledger.note_id(thread.0);
    Ok(())
}

/// Notes a message's own name with its content, and all its names for its thread.
fn write_names(
    ledger: &Ledger<'_>,
    message: &Message,
    (own, content): (Option<[u8; 32]>, [u8; 32]),
    names: &[[u8; 32]],
) -> Result<()> {
    let (inbox, thread, id) = (ordered_bits(message.inbox.0), message.thread.0.as_bytes(), message.id.0.as_bytes());
    let none: Option<[u8; 16]> = None;
    for name in names.iter().filter(|name| Some(**name) != own) {
        ledger.execute(NAME, params![inbox, name, thread, none, none])?;
    }
    if let Some(name) = own {
        let thread = names.contains(&name).then_some(thread);
        ledger.execute(NAME, params![inbox, name, thread, id, content])?;
    }
    Ok(())
}
