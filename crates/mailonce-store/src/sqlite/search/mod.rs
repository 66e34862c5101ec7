//! Search: implements `SearchStore` for [`Sqlite`] with an FTS5 table.
//!
//! Results are ordered by position, which is the row number of the FTS5 table, so that the newest results of a frequent
//! word are found without reading the others. The team is an exact name in the index, so that a team pays only for its
//! own mail. Triggers erase documents with their mail.

mod match_expression;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use mailonce_core::{
    id::{EmailId, MessageId, TeamId, from_bits, ordered_bits, random_bits},
    inbox::message::Message,
    limits,
    ports::{search_store::SearchStore, store::Result},
    search::{
        SEARCH_TIMEOUT_MS, SOURCE_BYTES, SearchBacklog, SearchHit, SearchKind, SearchPage, SearchPosition, SearchRef,
        SearchResult, SearchSource,
        document::SearchDocument,
        query::{SearchQuery, StateFilter},
        snippet::snippet,
    },
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use uuid::Uuid;

use crate::sqlite::{
    Sqlite, inbox::messages, rows, schema::store_error, search::match_expression::match_expression,
    write_session::WriteSession,
};

const BACKLOG: &str = "SELECT t.id, COALESCE(c.seq, 0) FROM teams t LEFT JOIN search_cursors c ON c.team = t.number \
     WHERE EXISTS (SELECT 1 FROM event_blocks b WHERE b.team = t.number AND b.last > COALESCE(c.seq, 0)) LIMIT ?1";
const CURSOR: &str = "SELECT seq FROM search_cursors WHERE team = ?1";
const SET_CURSOR: &str = "INSERT INTO search_cursors (team, seq) VALUES (?1, ?2) \
     ON CONFLICT (team) DO UPDATE SET seq = excluded.seq";
const BY_SOURCE: &str =
    "SELECT position FROM search_documents WHERE kind = ?1 AND source = ?2 AND tail = ?3 AND team = ?4";
const IS_TAKEN: &str = "SELECT 1 FROM search_documents WHERE position = ?1";
const INSERT: &str = "INSERT OR IGNORE INTO search_documents \
     (position, team, kind, source, tail, scope, sender, recipients, subject, text) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
/// Whether an email has its body. No row when the email is gone.
const HAS_BODY: &str = "SELECT body IS NOT NULL OR EXISTS (SELECT 1 FROM bodies b WHERE b.email = e.email) \
     FROM emails e WHERE email = ?1 AND tail = ?2 AND team = ?3 AND (body IS NOT NULL OR head ->> '$.erased' IS NULL)";
/// The cross join keeps the order of the index, which is that of the results.
const SEARCH: &str = "SELECT d.position, d.kind, d.source, d.tail, d.subject, d.text \
     FROM search_words w CROSS JOIN search_documents d ON d.position = w.rowid \
     WHERE search_words MATCH ?1 AND w.rowid < ?2 AND w.rowid >= ?3 AND d.team = ?4 ORDER BY w.rowid DESC";

fn kind_number(kind: SearchKind) -> i64 {
    match kind {
        SearchKind::Email => 0,
        SearchKind::Message => 1,
    }
}

fn backlog(conn: &Connection, max: usize) -> Result<Vec<SearchBacklog>> {
    let mut statement = conn.prepare_cached(BACKLOG).map_err(store_error)?;
    let rows = statement.query_map([max as i64], |row| {
        let team = TeamId(Uuid::from_bytes(row.get(0)?));
        Ok(SearchBacklog { team, indexed_until: row.get::<_, i64>(1)? as u64 })
    });
    rows.and_then(Iterator::collect).map_err(store_error)
}

fn source(conn: &Connection, (team, number): (TeamId, i64), mail: SearchRef) -> Result<Option<SearchSource>> {
    match mail.kind {
        SearchKind::Email => {
            let Some(email) = rows::email_by_id(conn, team, number, EmailId(mail.id))? else { return Ok(None) };
            let body = rows::body(conn, ordered_bits(mail.id))?;
            Ok(Some(SearchSource::Email { email: Box::new(email), body }))
        }
        SearchKind::Message => {
            let id = MessageId(mail.id);
            let found = messages::by_id(conn, team, number, id)?;
            let Some(message) = found.filter(Message::is_visible) else { return Ok(None) };
            let raw = messages::raw(conn, team, number, id)?;
            Ok(Some(SearchSource::Message { message: Box::new(message), raw }))
        }
    }
}

fn sources(conn: &Connection, team: (TeamId, i64), mails: &[SearchRef]) -> Result<Vec<SearchSource>> {
    let (mut bytes, mut found) = (0, Vec::new());
    for mail in mails {
        let Some(source) = source(conn, team, *mail)? else { continue };
        let (SearchSource::Email { body, .. } | SearchSource::Message { raw: body, .. }) = &source;
        bytes += body.as_ref().map_or(0, Vec::len);
        if bytes > SOURCE_BYTES && !found.is_empty() {
            break;
        }
        found.push(source);
    }
    Ok(found)
}

/// Adds documents and moves the team's cursor, unless another worker moved it.
fn index_documents(
    ledger: &WriteSession<'_>,
    team: TeamId,
    (since, until): (u64, u64),
    documents: &[SearchDocument],
) -> Result<bool> {
    let Some(number) = ledger.team_number(team) else { return Ok(false) };
    let cursor = ledger.conn.prepare_cached(CURSOR).and_then(|mut cursor| cursor.query_row([number], |row| row.get(0)));
    if cursor.optional().map_err(store_error)?.unwrap_or(0_i64) as u64 != since {
        return Ok(false);
    }
    for document in documents {
        insert(ledger, team, number, document)?;
    }
    ledger.execute(SET_CURSOR, params![number, until as i64])?;
    Ok(true)
}

/// Adds a document, unless its mail has one or is gone.
fn insert(ledger: &WriteSession<'_>, team: TeamId, number: i64, document: &SearchDocument) -> Result<()> {
    let SearchRef { kind, id } = document.mail;
    let (source, tail) = (ordered_bits(id), random_bits(id));
    let has_body = match kind {
        SearchKind::Email => {
            let row = ledger.conn.prepare_cached(HAS_BODY);
            row.and_then(|mut row| row.query_row(params![source, tail, number], |row| row.get(0))).optional()
        }
        SearchKind::Message => Ok(messages::has_raw(ledger.conn, team, number, MessageId(id))?),
    };
    let Some(has_body) = has_body.map_err(store_error)? else { return Ok(()) };
    let mut position = SearchPosition::preferred(document.at, id);
    let mut is_taken = ledger.conn.prepare_cached(IS_TAKEN).map_err(store_error)?;
    while is_taken.exists([position.0]).map_err(store_error)? {
        position = position.next();
    }
    let scope = format!("t{number} {}", document.scope.join(" "));
    let SearchDocument { sender, recipients, subject, text, .. } = document;
    let text = if has_body { text } else { "" };
    let row = params![position.0, number, kind_number(kind), source, tail, scope, sender, recipients, subject, text];
    ledger.execute(INSERT, row).map(drop)
}

/// A row of [`SEARCH`].
struct DocumentRow {
    position: SearchPosition,
    mail: SearchRef,
    subject: String,
    text: String,
}

fn document_row(row: &Row<'_>) -> rusqlite::Result<DocumentRow> {
    let kind = if row.get::<_, i64>(1)? == 0 { SearchKind::Email } else { SearchKind::Message };
    Ok(DocumentRow {
        position: SearchPosition(row.get(0)?),
        mail: SearchRef { kind, id: from_bits(row.get(2)?, row.get(3)?) },
        subject: row.get(4)?,
        text: row.get(5)?,
    })
}

/// Whether a mail can be seen and is in the state that the query asks for.
fn is_wanted(
    conn: &Connection,
    (team, number): (TeamId, i64),
    mail: SearchRef,
    state: Option<StateFilter>,
) -> Result<bool> {
    match (mail.kind, state) {
        (SearchKind::Email, None) => Ok(true),
        (SearchKind::Email, Some(StateFilter::Email(state))) => {
            let email = rows::email_by_id(conn, team, number, EmailId(mail.id))?;
            Ok(email.is_some_and(|email| email.state() == state))
        }
        (SearchKind::Message, None | Some(StateFilter::Message(_))) => {
            // A removed inbox is empty at once, although its rows are swept later.
            let message = messages::by_id(conn, team, number, MessageId(mail.id))?;
            let is_in = |wanted| !matches!(state, Some(StateFilter::Message(state)) if state != wanted);
            Ok(message.is_some_and(|message| is_in(message.state)))
        }
        (SearchKind::Email | SearchKind::Message, Some(_)) => Ok(false),
    }
}

fn search(conn: &Connection, (team, number): (TeamId, i64), query: &SearchQuery) -> Result<SearchPage> {
    let (mut page, mut looked) = (SearchPage::default(), 0);
    if query.is_empty() {
        return Ok(page);
    }
    let expression = match_expression(number, query);
    let mut statement = conn.prepare_cached(SEARCH).map_err(store_error)?;
    for (from, to) in position_ranges(conn, number, query)? {
        let mut rows = statement.query(params![expression, to.0, from.0, number]).map_err(store_error)?;
        while let Some(row) = rows.next().map_err(store_error)? {
            if page.hits.len() == query.limit || looked == limits::SCAN_ROWS {
                return Ok(page);
            }
            let document = document_row(row).map_err(store_error)?;
            (page.next, looked) = (Some(document.position), looked + 1);
            if is_wanted(conn, (team, number), document.mail, query.state)? {
                let snippet = snippet(query, &document.subject, &document.text);
                page.hits.push(SearchHit { mail: document.mail, at: document.position.time(), snippet });
            }
        }
    }
    page.next = None;
    Ok(page)
}

/// The positions to search, newest first: the range of the query, or the places of the mails that it names.
fn position_ranges(
    conn: &Connection,
    number: i64,
    query: &SearchQuery,
) -> Result<Vec<(SearchPosition, SearchPosition)>> {
    let (from, to) = query.position_range();
    let Some(only) = &query.only else { return Ok(vec![(from, to)]) };
    let mut statement = conn.prepare_cached(BY_SOURCE).map_err(store_error)?;
    let mut places: Vec<i64> = Vec::new();
    for SearchRef { kind, id } in only {
        let place = params![kind_number(*kind), ordered_bits(*id), random_bits(*id), number];
        places.extend(statement.query_row(place, |row| row.get::<_, i64>(0)).optional().map_err(store_error)?);
    }
    places.retain(|place| (from.0..to.0).contains(place));
    places.sort_unstable_by(|a, b| b.cmp(a));
    Ok(places.into_iter().map(|place| (SearchPosition(place), SearchPosition(place + 1))).collect())
}

/// Interrupts the statements of a connection after a time, unless it is finished first.
struct QueryTimeout(Arc<Mutex<TimeoutState>>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum TimeoutState {
    Running,
    Finished,
    Interrupted,
}

impl QueryTimeout {
    fn start(conn: &Connection, after: Duration) -> Self {
        let (handle, state) = (conn.get_interrupt_handle(), Arc::new(Mutex::new(TimeoutState::Running)));
        let shared = Arc::clone(&state);
        tokio::runtime::Handle::current().spawn(async move {
            tokio::time::sleep(after).await;
            // The lock is held while the connection is interrupted, so that the next query on it is never hit.
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if *state == TimeoutState::Running {
                *state = TimeoutState::Interrupted;
                handle.interrupt();
            }
        });
        Self(state)
    }

    /// Ends the timeout. Returns whether the connection was interrupted.
    fn finish(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *state, TimeoutState::Finished) == TimeoutState::Interrupted
    }
}

/// Searches, and gives up after a time.
fn search_within(
    conn: &Connection,
    team: (TeamId, i64),
    query: &SearchQuery,
    timeout: Duration,
) -> Result<SearchResult> {
    let timeout = QueryTimeout::start(conn, timeout);
    let found = search(conn, team, query);
    match (found, timeout.finish()) {
        (Ok(page), _) => Ok(SearchResult::Page(page)),
        (Err(_), true) => Ok(SearchResult::TimedOut),
        (Err(error), false) => Err(error),
    }
}

#[async_trait]
impl SearchStore for Sqlite {
    async fn search_backlog(&self, max: usize) -> Result<Vec<SearchBacklog>> {
        self.run_query(move |conn| backlog(conn, max)).await
    }

    async fn search_sources(&self, team: TeamId, mails: Vec<SearchRef>) -> Result<Vec<SearchSource>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| sources(conn, (team, number), &mails)).await
    }

    async fn index_documents(&self, team: TeamId, events: (u64, u64), documents: Vec<SearchDocument>) -> Result<bool> {
        // Merging the index frees pages that hold words of mail.
        let verb = move |ledger: &mut WriteSession<'_>| index_documents(ledger, team, events, &documents);
        self.run_write(move |ledger| ledger.with_secure_delete(verb)).await
    }

    async fn search(&self, team: TeamId, query: SearchQuery) -> Result<SearchResult> {
        let Some(number) = self.team_number(team) else { return Ok(SearchResult::Page(SearchPage::default())) };
        let timeout = Duration::from_millis(SEARCH_TIMEOUT_MS);
        self.run_query(move |conn| search_within(conn, (team, number), &query, timeout)).await
    }
}
