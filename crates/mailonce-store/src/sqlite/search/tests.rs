//! What only the SQLite store does: a long search is interrupted.

use mailonce_core::search::query_parser::parse_query;
use rusqlite::Connection;

use super::*;
use crate::sqlite::schema;

const TEAM: (TeamId, i64) = (TeamId(Uuid::from_u128(1)), 1);

fn insert_email(conn: &Connection, number: i64, text: &str) {
    let email = "INSERT INTO emails (email, team, tail, rev, bind, ttl, digest, head, body) \
         VALUES (?1, 1, 1, 1, 0, 1, x'', '', x'01')";
    conn.execute(email, [number]).unwrap();
    let document = params![number << 20, 1, 0, number, 1, "t1 kemail", "", "", "", text];
    conn.execute(INSERT, document).unwrap();
}

fn query(text: &str) -> SearchQuery {
    SearchQuery { terms: parse_query(text).unwrap().terms, limit: 10, ..SearchQuery::default() }
}

fn count(conn: &Connection, text: &str) -> usize {
    search(conn, TEAM, &query(text)).unwrap().hits.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_search_is_interrupted_and_the_connection_stays_usable() {
    let folder = tempfile::tempdir().unwrap();
    let (conn, _) = schema::open_writer(&folder.path().join("ledger.db"), &[7; 32]).unwrap();
    conn.execute_batch("BEGIN").unwrap();
    for number in 1..=20_000 {
        insert_email(&conn, number, if number % 2 == 0 { "even" } else { "odd" });
    }
    conn.execute_batch("COMMIT").unwrap();

    let millisecond = Duration::from_millis(1);
    let is_interrupted =
        |_| search_within(&conn, TEAM, &query("even odd"), millisecond).unwrap() == SearchResult::TimedOut;
    assert!((0..50).any(is_interrupted), "no search took a millisecond");
    assert_eq!(count(&conn, "even"), 10);
}
