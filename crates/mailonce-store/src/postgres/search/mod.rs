//! Search: implements `SearchStore` for [`Postgres`] with a `tsvector` for each document.
//!
//! A frequent word is found by walking the newest documents. If these don't fill the page, the words are rare, or only in
//! old mail, and the GIN index finds them. Triggers erase documents with their mail.

mod indexing;
mod vector;

use async_trait::async_trait;
use deadpool_postgres::Transaction;
use mailonce_core::{
    handoff::HandoffState,
    id::TeamId,
    inbox::message::MessageState,
    limits,
    outbound::email::EmailState,
    ports::{search_store::SearchStore, store::Result},
    search::{
        SEARCH_TIMEOUT_MS, SearchBacklog, SearchHit, SearchKind, SearchPage, SearchPosition, SearchRef, SearchResult,
        SearchSource,
        document::SearchDocument,
        query::{SearchQuery, StateFilter},
        snippet::snippet,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{Postgres, SharedState, into_store_result, when_durable};
use crate::postgres::{
    error::{TxError, TxResult, call_until_final},
    statements::query_rows,
};

/// How many documents are read at a time when few of them are wanted.
const DOCUMENTS_PER_READ: usize = 200;

/// A plan for any words would ignore how frequent they are, and compiling a plan takes longer than running it.
const SETTINGS: &str = "SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL jit = off";
/// Walks the newest documents.
const WALK: &str = "
    SELECT d.position, d.kind, d.id, d.subject, d.text
      FROM (SELECT * FROM search_documents WHERE team = $1 AND position >= $2 AND position < $3
             ORDER BY position DESC LIMIT 1000) d
     WHERE d.words @@ $4::text::tsquery
     ORDER BY d.position DESC LIMIT $5";
/// The sum keeps the planner from walking all documents in their order, which takes long for words of old mail.
const SEARCH: &str = "
    SELECT d.position, d.kind, d.id, d.subject, d.text FROM search_documents d
     WHERE d.team = $1 AND d.position >= $2 AND d.position < $3 AND d.words @@ $4::text::tsquery
     ORDER BY d.position + 0 DESC LIMIT $5";
const SEARCH_ONLY: &str = "
    SELECT d.position, d.kind, d.id, d.subject, d.text
      FROM unnest($6::smallint[], $7::uuid[]) AS o (kind, id)
      JOIN search_documents d ON d.team = $1 AND d.kind = o.kind AND d.id = o.id
     WHERE d.position >= $2 AND d.position < $3 AND d.words @@ $4::text::tsquery
     ORDER BY d.position DESC LIMIT $5";
const EMAIL_STATES: &str = "SELECT email, state FROM handoffs WHERE team = $1 AND email = ANY($2)";
/// Messages of removed inboxes are missing.
const MESSAGE_STATES: &str = "
    SELECT m.id, m.state FROM messages m
      JOIN inboxes i ON i.team = m.team AND i.id = m.inbox AND i.removed_at IS NULL
     WHERE m.team = $1 AND m.id = ANY($2)";

fn kind_number(kind: SearchKind) -> i16 {
    match kind {
        SearchKind::Email => 0,
        SearchKind::Message => 1,
    }
}

fn read_mail(row: &Row, at: usize) -> TxResult<SearchRef> {
    let kind = if row.try_get::<_, i16>(at)? == 0 { SearchKind::Email } else { SearchKind::Message };
    Ok(SearchRef { kind, id: row.try_get(at + 1)? })
}

/// Documents that match, newest first.
async fn read_documents(
    tx: &Transaction<'_>,
    team: TeamId,
    query: &SearchQuery,
    (from, to): (SearchPosition, SearchPosition),
    limit: usize,
) -> TxResult<Vec<Row>> {
    let (words, limit) = (vector::tsquery(team, query), limit as i64);
    match &query.only {
        None => {
            let (walk, search) = (tx.prepare_cached(WALK).await?, tx.prepare_cached(SEARCH).await?);
            let rows = tx.query(&walk, &[&team.0, &from.0, &to.0, &words, &limit]).await?;
            if rows.len() as i64 == limit {
                return Ok(rows);
            }
            Ok(tx.query(&search, &[&team.0, &from.0, &to.0, &words, &limit]).await?)
        }
        Some(only) => {
            let (kinds, ids): (Vec<i16>, Vec<Uuid>) = only.iter().map(|mail| (kind_number(mail.kind), mail.id)).unzip();
            let statement = tx.prepare_cached(SEARCH_ONLY).await?;
            Ok(tx.query(&statement, &[&team.0, &from.0, &to.0, &words, &limit, &kinds, &ids]).await?)
        }
    }
}

/// Those of the mails that can be seen and are in the state that the query asks for.
async fn wanted_mails(
    tx: &Transaction<'_>,
    team: TeamId,
    mails: &[SearchRef],
    state: Option<StateFilter>,
) -> TxResult<BTreeSet<SearchRef>> {
    let ids = |kind| mails.iter().filter(|mail| mail.kind == kind).map(|mail| mail.id).collect::<Vec<Uuid>>();
    let (emails, messages) = (ids(SearchKind::Email), ids(SearchKind::Message));
    let mut wanted = BTreeSet::new();
    match state {
        None => wanted.extend(emails.into_iter().map(|id| SearchRef { kind: SearchKind::Email, id })),
        Some(StateFilter::Email(state)) => {
            let mut states: BTreeMap<Uuid, Vec<HandoffState>> = BTreeMap::new();
            for row in query_rows(tx, EMAIL_STATES, &[&team.0, &emails]).await? {
                let word = HandoffState::parse(row.try_get(1)?).ok_or_else(|| TxError::corrupt("a state"))?;
                states.entry(row.try_get(0)?).or_default().push(word);
            }
            let in_state = states.into_iter().filter(|(_, states)| EmailState::fold(states) == state);
            wanted.extend(in_state.map(|(id, _)| SearchRef { kind: SearchKind::Email, id }));
        }
        Some(StateFilter::Message(_)) => {}
    }
    if !messages.is_empty() && !matches!(state, Some(StateFilter::Email(_))) {
        for row in query_rows(tx, MESSAGE_STATES, &[&team.0, &messages]).await? {
            let found = MessageState::parse(row.try_get(1)?);
            if !matches!(state, Some(StateFilter::Message(state)) if found != Some(state)) {
                wanted.insert(SearchRef { kind: SearchKind::Message, id: row.try_get(0)? });
            }
        }
    }
    Ok(wanted)
}

async fn search(shared: &SharedState, team: TeamId, query: &SearchQuery, timeout: Duration) -> TxResult<SearchResult> {
    let (from, to) = query.position_range();
    if query.is_empty() || from >= to {
        return Ok(SearchResult::Page(SearchPage::default()));
    }
    let started = Instant::now();
    let mut client = shared.connections.client().await?;
    let tx = client.build_transaction().read_only(true).start().await?;
    tx.batch_execute(&format!("{SETTINGS}; SET LOCAL statement_timeout = {}", timeout.as_millis())).await?;
    match tokio::time::timeout(timeout, read_page(&tx, team, query, (from, to))).await {
        Ok(Ok(page)) => Ok(SearchResult::Page(page)),
        // The database cancels whichever statement is running, also one that only prepares another.
        Ok(Err(TxError::Rejected(_))) if started.elapsed() >= timeout => Ok(SearchResult::TimedOut),
        Ok(Err(error)) => Err(error),
        Err(_late) => Ok(SearchResult::TimedOut),
    }
}

async fn read_page(
    tx: &Transaction<'_>,
    team: TeamId,
    query: &SearchQuery,
    (from, mut to): (SearchPosition, SearchPosition),
) -> TxResult<SearchPage> {
    let (mut page, mut looked) = (SearchPage::default(), 0);
    loop {
        let chunk = if looked == 0 { query.limit + 1 } else { DOCUMENTS_PER_READ };
        let rows = read_documents(tx, team, query, (from, to), chunk).await?;
        let mails = rows.iter().map(|row| read_mail(row, 1)).collect::<TxResult<Vec<_>>>()?;
        let wanted = wanted_mails(tx, team, &mails, query.state).await?;
        for (row, mail) in rows.iter().zip(mails) {
            if page.hits.len() == query.limit || looked == limits::SCAN_ROWS {
                return Ok(page);
            }
            to = SearchPosition(row.try_get(0)?);
            (page.next, looked) = (Some(to), looked + 1);
            if wanted.contains(&mail) {
                let snippet = snippet(query, row.try_get(3)?, row.try_get(4)?);
                page.hits.push(SearchHit { mail, at: to.time(), snippet });
            }
        }
        if rows.len() < chunk {
            page.next = None;
            return Ok(page);
        }
    }
}

#[async_trait]
impl SearchStore for Postgres {
    async fn search_backlog(&self, max: usize) -> Result<Vec<SearchBacklog>> {
        into_store_result(call_until_final!(indexing::backlog(&self.shared, max)))
    }

    async fn search_sources(&self, team: TeamId, mails: Vec<SearchRef>) -> Result<Vec<SearchSource>> {
        into_store_result(call_until_final!(indexing::sources(&self.shared, team, &mails)))
    }

    async fn index_documents(&self, team: TeamId, events: (u64, u64), documents: Vec<SearchDocument>) -> Result<bool> {
        into_store_result(call_until_final!(indexing::index_documents(&self.shared, team, events, &documents)))
    }

    async fn search(&self, team: TeamId, query: SearchQuery) -> Result<SearchResult> {
        let timeout = Duration::from_millis(SEARCH_TIMEOUT_MS);
        when_durable!(self, search(&self.shared, team, &query, timeout).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::tests::TestDatabase;
    use mailonce_core::search::query_parser::parse_query;

    const FILL: &str = "
        INSERT INTO search_documents
        SELECT $1, n::bigint << 20, 0, gen_random_uuid(), '', '', $2::text::tsvector FROM generate_series(1, 20) n";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_long_search_is_cancelled_and_the_connection_stays_usable() {
        let database = TestDatabase::create().await;
        let store = Postgres::open(&database.url, [7; 32]).await.unwrap();
        let team = TeamId(Uuid::from_u128(7));
        let client = store.shared.connections.client().await.unwrap();
        let words = format!("'#t{}':1A 'even':2D", team.0.simple());
        client.execute(FILL, &[&team.0, &words]).await.unwrap();

        // The lock makes the search long on every machine, however fast it reads.
        client.batch_execute("BEGIN; LOCK TABLE search_documents IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let query = SearchQuery { terms: parse_query("even").unwrap().terms, limit: 10, ..SearchQuery::default() };
        for _ in 0..3 {
            let short = search(&store.shared, team, &query, Duration::from_millis(50)).await.unwrap();
            assert_eq!(short, SearchResult::TimedOut);
        }

        client.batch_execute("COMMIT").await.unwrap();
        drop(client);
        let SearchResult::Page(page) = search(&store.shared, team, &query, Duration::from_mins(1)).await.unwrap()
        else {
            panic!("the search timed out");
        };
        assert_eq!(page.hits.len(), 10);
    }
}
