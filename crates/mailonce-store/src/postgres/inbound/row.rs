//! Rows: how inboxes, deliveries, messages, artifacts and watches are stored in tables and read back.

use mailonce_core::{
    id::{ArtifactId, DeliveryId, InboxId, MessageId, TeamId, ThreadId, WatchId},
    inbound::delivery::{Delivery, DeliveryState, DeliverySuppression, DeliveryTarget},
    inbox::{
        Inbox,
        artifact::{Artifact, ArtifactKind},
        message::{Message, MessageState},
        watch::Watch,
    },
    time::Time,
};
use std::sync::Arc;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::postgres::{
    error::{TxError, TxResult},
    row::read_json,
};

/// The columns of an inbox: its row `i`.
macro_rules! inbox_columns {
    () => {
        "i.team, i.id, i.rev, i.address, i.client_id, i.created_at, i.seq, i.about"
    };
}
/// The columns of a delivery: its row `d`.
macro_rules! delivery_columns {
    () => {
        "d.team, d.id, d.rev, d.state, d.about, d.inbox, d.target, d.received_at, d.attempts, d.due, d.suppressed,
         d.repeats, d.message, d.trouble"
    };
}
/// The columns of a message: its row `m`.
macro_rules! message_columns {
    () => {
        "m.team, m.id, m.inbox, m.seq, m.rev, m.thread, m.delivery, m.received_at, m.state, m.head, m.marks"
    };
}
/// The columns of an artifact: its row `a`.
macro_rules! artifact_columns {
    () => {
        "a.team, a.id, a.inbox, a.message, a.rev, a.kind, a.found, a.sender, a.found_at, a.seq, a.authenticated,
         a.consumed, a.applied_at"
    };
}
/// The columns of a watch: its row `w`.
macro_rules! watch_columns {
    () => {
        "w.id, w.team, w.inbox, w.rev, w.started_at, w.after, w.deadline, w.budget, w.spent, w.require_auth"
    };
}
pub(crate) use message_columns;
pub(crate) use {artifact_columns, delivery_columns, inbox_columns, watch_columns};

/// How many columns [`inbox_columns`] has.
pub(crate) const INBOX_COLUMNS: usize = 8;
/// How many columns [`delivery_columns`] has.
pub(crate) const DELIVERY_COLUMNS: usize = 14;
/// How many columns [`message_columns`] has.
pub(crate) const MESSAGE_COLUMNS: usize = 11;
/// How many columns [`artifact_columns`] has.
pub(crate) const ARTIFACT_COLUMNS: usize = 13;

/// Reads the first row, if there is one.
pub(crate) fn read_first<T>(rows: &[Row], read: impl Fn(&Row) -> TxResult<T>) -> TxResult<Option<T>> {
    rows.first().map(read).transpose()
}

/// Parses a column that holds an enum value.
fn parse_column<T>(parse: impl Fn(&str) -> Option<T>, text: &str, what: &str) -> TxResult<T> {
    parse(text).ok_or_else(|| TxError::corrupt(what))
}

/// Reads [`inbox_columns`].
pub(crate) fn read_inbox(row: &Row) -> TxResult<Inbox> {
    Ok(Inbox {
        team: TeamId(row.try_get(0)?),
        id: InboxId(row.try_get(1)?),
        rev: row.try_get::<_, i32>(2)? as u32,
        address: row.try_get(3)?,
        client_id: row.try_get(4)?,
        created_at: Time(row.try_get(5)?),
        latest_seq: row.try_get::<_, i64>(6)? as u64,
        settings: read_json(row.try_get(7)?, "an inbox")?,
    })
}

/// Reads [`delivery_columns`].
pub(crate) fn read_delivery(row: &Row) -> TxResult<Delivery> {
    let target = match (row.try_get::<_, Option<&str>>(6)?, row.try_get::<_, Option<Uuid>>(5)?) {
        (Some(target), _) => read_json(target, "whom a delivery is for")?,
        (None, Some(inbox)) => DeliveryTarget::Inbox(InboxId(inbox)),
        (None, None) => DeliveryTarget::Nobody,
    };
    let suppressed: Option<&str> = row.try_get(10)?;
    let trouble: Option<&str> = row.try_get(13)?;
    Ok(Delivery {
        team: TeamId(row.try_get(0)?),
        id: DeliveryId(row.try_get(1)?),
        rev: row.try_get::<_, i32>(2)? as u32,
        state: parse_column(DeliveryState::parse, row.try_get(3)?, "the state of a delivery")?,
        details: Arc::new(read_json(row.try_get(4)?, "a delivery")?),
        target,
        received_at: Time(row.try_get(7)?),
        attempts: row.try_get::<_, i32>(8)? as u32,
        due_at: row.try_get::<_, Option<i64>>(9)?.map(Time),
        suppressed: suppressed
            .map(|text| parse_column(DeliverySuppression::parse, text, "why a delivery was suppressed"))
            .transpose()?,
        duplicate_of: row.try_get::<_, Option<Uuid>>(11)?.map(DeliveryId),
        message: row.try_get::<_, Option<Uuid>>(12)?.map(MessageId),
        last_error: trouble.map(|text| read_json(text, "the trouble of a delivery")).transpose()?,
    })
}

/// Reads [`message_columns`].
pub(crate) fn read_message(row: &Row) -> TxResult<Message> {
    Ok(Message {
        team: TeamId(row.try_get(0)?),
        id: MessageId(row.try_get(1)?),
        inbox: InboxId(row.try_get(2)?),
        seq: row.try_get::<_, i64>(3)? as u64,
        rev: row.try_get::<_, i32>(4)? as u32,
        thread: ThreadId(row.try_get(5)?),
        delivery: DeliveryId(row.try_get(6)?),
        received_at: Time(row.try_get(7)?),
        state: parse_column(MessageState::parse, row.try_get(8)?, "the state of a message")?,
        head: Arc::new(read_json(row.try_get(9)?, "the head of a message")?),
        annotations: read_json(row.try_get(10)?, "the marks of a message")?,
    })
}

/// Reads [`artifact_columns`].
pub(crate) fn read_artifact(row: &Row) -> TxResult<Artifact> {
    let sender: Vec<u8> = row.try_get(7)?;
    let consumed: Option<&str> = row.try_get(11)?;
    Ok(Artifact {
        team: TeamId(row.try_get(0)?),
        id: ArtifactId(row.try_get(1)?),
        inbox: InboxId(row.try_get(2)?),
        message: MessageId(row.try_get(3)?),
        rev: row.try_get::<_, i32>(4)? as u32,
        kind: parse_column(ArtifactKind::parse, row.try_get(5)?, "the kind of an artifact")?,
        extracted: read_json(row.try_get(6)?, "an artifact")?,
        sender: String::from_utf8(sender).map_err(|_bytes| TxError::corrupt("the sender of an artifact"))?,
        found_at: Time(row.try_get(8)?),
        seq: row.try_get::<_, i64>(9)? as u64,
        authenticated: row.try_get(10)?,
        consumption: consumed.map(|text| read_json(text, "the consumer of an artifact")).transpose()?,
        applied_at: row.try_get::<_, Option<i64>>(12)?.map(Time),
    })
}

/// Reads [`watch_columns`].
pub(crate) fn read_watch(row: &Row) -> TxResult<Watch> {
    Ok(Watch {
        id: WatchId(row.try_get(0)?),
        team: TeamId(row.try_get(1)?),
        inbox: InboxId(row.try_get(2)?),
        rev: row.try_get::<_, i32>(3)? as u32,
        started_at: Time(row.try_get(4)?),
        after_seq: row.try_get::<_, i64>(5)? as u64,
        deadline: Time(row.try_get(6)?),
        resend_budget: row.try_get::<_, i32>(7)? as u32,
        resends_used: row.try_get::<_, i32>(8)? as u32,
        require_auth: row.try_get(9)?,
    })
}

/// Reads a 32-byte hash.
pub(crate) fn read_hash(bytes: &[u8]) -> TxResult<[u8; 32]> {
    bytes.try_into().map_err(|_short| TxError::corrupt("a hash"))
}
