//! Adding documents: which teams are behind, what documents are made of, and the transaction that adds them.

use deadpool_postgres::Transaction;
use mailonce_core::{
    id::{EmailId, TeamId},
    search::{
        SOURCE_BYTES, SearchBacklog, SearchKind, SearchPosition, SearchRef, SearchSource, document::SearchDocument,
    },
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use super::{kind_number, read_mail, vector::tsvector};
use crate::postgres::{
    SharedState,
    error::TxResult,
    inbound::row::{message_columns, read_message},
    locked_tx::read_email_rows,
    row::read_emails,
    statements::{execute, query_rows},
};

const BACKLOG: &str = "
    SELECT e.team, coalesce(c.seq, 0) FROM event_counters e LEFT JOIN search_cursors c ON c.team = e.team
     WHERE e.seq > coalesce(c.seq, 0) LIMIT $1";
/// The sizes of bodies, which are known without reading them. Erased mail is left out: a document that was made of it
/// before must not be added.
const EMAIL_SIZES: &str =
    "SELECT id, coalesce(octet_length(body), 0)::bigint FROM emails WHERE team = $1 AND id = ANY($2)
        AND NOT (body IS NULL AND head LIKE '%\"erased\":%')";
const MESSAGE_SIZES: &str = "
    SELECT m.id, coalesce(octet_length(r.bytes), 0)::bigint
      FROM messages m JOIN inboxes i ON i.team = m.team AND i.id = m.inbox AND i.removed_at IS NULL
      LEFT JOIN deliveries d ON d.team = m.team AND d.id = m.delivery LEFT JOIN raws r ON r.id = d.raw
     WHERE m.team = $1 AND m.id = ANY($2) AND NOT (r.bytes IS NULL AND m.head LIKE '%\"erased_at\":%')";
const EMAIL_BODIES: &str = "SELECT id, body FROM emails WHERE team = $1 AND id = ANY($2)";
const MESSAGES: &str = concat!(
    "SELECT ",
    message_columns!(),
    ", r.bytes FROM messages m
       LEFT JOIN deliveries d ON d.team = m.team AND d.id = m.delivery LEFT JOIN raws r ON r.id = d.raw
      WHERE m.team = $1 AND m.id = ANY($2)"
);
/// How many columns [`message_columns`] has.
const MESSAGE_COLUMNS: usize = 11;

/// Held alone by whoever indexes a team; see the migration.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1::uuid::text, 7883366252))";
const CURSOR: &str = "SELECT seq FROM search_cursors WHERE team = $1";
const SET_CURSOR: &str = "
    INSERT INTO search_cursors (team, seq) VALUES ($1, $2) ON CONFLICT (team) DO UPDATE SET seq = excluded.seq";
const INDEXED: &str = "SELECT kind, id FROM search_documents WHERE team = $1 AND id = ANY($2)";
const TAKEN: &str = "SELECT position FROM search_documents WHERE team = $1 AND position = ANY($2)";
const INSERT: &str = "
    INSERT INTO search_documents (team, position, kind, id, subject, text, words)
    SELECT $1, w.position, w.kind, w.id, w.subject, w.text, w.words::tsvector
      FROM unnest($2::bigint[], $3::smallint[], $4::uuid[], $5::text[], $6::text[], $7::text[])
        AS w (position, kind, id, subject, text, words)";

/// Teams with events that are not indexed yet.
pub(super) async fn backlog(shared: &SharedState, max: usize) -> TxResult<Vec<SearchBacklog>> {
    let rows = query_rows(&shared.connections.client().await?, BACKLOG, &[&(max as i64)]).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(SearchBacklog { team: TeamId(row.try_get(0)?), indexed_until: row.try_get::<_, i64>(1)? as u64 })
    };
    rows.iter().map(read).collect()
}

fn ids_of(mails: &[SearchRef], kind: SearchKind) -> Vec<Uuid> {
    mails.iter().filter(|mail| mail.kind == kind).map(|mail| mail.id).collect()
}

/// The size of the body of each mail that exists.
async fn sizes(tx: &Transaction<'_>, team: TeamId, mails: &[SearchRef]) -> TxResult<BTreeMap<SearchRef, usize>> {
    let mut sizes = BTreeMap::new();
    for (kind, sql) in [(SearchKind::Email, EMAIL_SIZES), (SearchKind::Message, MESSAGE_SIZES)] {
        let ids = ids_of(mails, kind);
        if ids.is_empty() {
            continue;
        }
        for row in query_rows(tx, sql, &[&team.0, &ids]).await? {
            sizes.insert(SearchRef { kind, id: row.try_get(0)? }, row.try_get::<_, i64>(1)? as usize);
        }
    }
    Ok(sizes)
}

/// Mails with their bodies, in the given order, as far as the bodies fit.
pub(super) async fn sources(shared: &SharedState, team: TeamId, mails: &[SearchRef]) -> TxResult<Vec<SearchSource>> {
    let mut client = shared.connections.client().await?;
    // One snapshot: a mail that is deleted in between must not look like the end of the list.
    let tx = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let sizes = sizes(&tx, team, mails).await?;
    let (mut bytes, mut fitting) = (0, Vec::new());
    for (mail, size) in mails.iter().filter_map(|mail| Some((*mail, sizes.get(mail)?))) {
        bytes += size;
        if bytes > SOURCE_BYTES && !fitting.is_empty() {
            break;
        }
        fitting.push(mail);
    }
    let emails = ids_of(&fitting, SearchKind::Email);
    let refs: BTreeSet<_> = emails.iter().map(|id| (team, EmailId(*id))).collect();
    let mut bodies: BTreeMap<Uuid, Option<Vec<u8>>> = BTreeMap::new();
    for row in query_rows(&tx, EMAIL_BODIES, &[&team.0, &emails]).await? {
        bodies.insert(row.try_get(0)?, row.try_get(1)?);
    }
    let mut found: BTreeMap<SearchRef, SearchSource> = BTreeMap::new();
    for email in read_emails(&read_email_rows(&tx, &refs).await?, 0)? {
        let body = bodies.remove(&email.id.0).flatten();
        let source = SearchSource::Email { email: Box::new(email), body };
        found.insert(source.reference(), source);
    }
    for row in query_rows(&tx, MESSAGES, &[&team.0, &ids_of(&fitting, SearchKind::Message)]).await? {
        let source =
            SearchSource::Message { message: Box::new(read_message(&row)?), raw: row.try_get(MESSAGE_COLUMNS)? };
        found.insert(source.reference(), source);
    }
    Ok(fitting.iter().filter_map(|mail| found.remove(mail)).collect())
}

/// Adds documents and moves the team's cursor, unless another worker moved it.
pub(super) async fn index_documents(
    shared: &SharedState,
    team: TeamId,
    (since, until): (u64, u64),
    documents: &[SearchDocument],
) -> TxResult<bool> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    execute(&tx, LOCK, &[&team.0]).await?;
    let cursor = query_rows(&tx, CURSOR, &[&team.0]).await?;
    let cursor: i64 = cursor.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
    if cursor as u64 != since {
        tx.rollback().await?;
        return Ok(false);
    }
    insert_documents(&tx, team, documents).await?;
    execute(&tx, SET_CURSOR, &[&team.0, &(until as i64)]).await?;
    shared.commit(tx, 1).await?;
    Ok(true)
}

/// Adds the documents whose mail exists and has none yet.
async fn insert_documents(tx: &Transaction<'_>, team: TeamId, documents: &[SearchDocument]) -> TxResult<()> {
    let mails: Vec<SearchRef> = documents.iter().map(|document| document.mail).collect();
    let sizes = sizes(tx, team, &mails).await?;
    let ids: Vec<Uuid> = mails.iter().map(|mail| mail.id).collect();
    let indexed = query_rows(tx, INDEXED, &[&team.0, &ids]).await?;
    let mut known = indexed.iter().map(|row| read_mail(row, 0)).collect::<TxResult<BTreeSet<_>>>()?;
    let mut new = Vec::with_capacity(documents.len());
    for document in documents {
        if let Some(size) = sizes.get(&document.mail).filter(|_| known.insert(document.mail)) {
            let text = if *size > 0 { document.text.clone() } else { String::new() };
            new.push(SearchDocument { text, ..document.clone() });
        }
    }
    if new.is_empty() {
        return Ok(());
    }
    let positions = free_positions(tx, team, &new).await?;
    let column = |text: fn(&SearchDocument) -> &String| new.iter().map(text).collect::<Vec<_>>();
    let kinds: Vec<i16> = new.iter().map(|document| kind_number(document.mail.kind)).collect();
    let ids: Vec<Uuid> = new.iter().map(|document| document.mail.id).collect();
    let words: Vec<String> = new.iter().map(|document| tsvector(team, document)).collect();
    let (subjects, texts) = (column(|document| &document.subject), column(|document| &document.text));
    execute(tx, INSERT, &[&team.0, &positions, &kinds, &ids, &subjects, &texts, &words]).await.map(drop)
}

/// A position for each document that no other document has.
async fn free_positions(tx: &Transaction<'_>, team: TeamId, documents: &[SearchDocument]) -> TxResult<Vec<i64>> {
    let mut taken: BTreeSet<i64> = BTreeSet::new();
    loop {
        let mut used = taken.clone();
        let mut positions = Vec::with_capacity(documents.len());
        for document in documents {
            let mut position = SearchPosition::preferred(document.at, document.mail.id);
            while !used.insert(position.0) {
                position = position.next();
            }
            positions.push(position.0);
        }
        let rows = query_rows(tx, TAKEN, &[&team.0, &positions]).await?;
        if rows.is_empty() {
            return Ok(positions);
        }
        for row in &rows {
            taken.insert(row.try_get(0)?);
        }
    }
}
