//! The content guard's fingerprints of recent emails, by sender and recipients. Only emails that the guard compares
//! read or write this table.

use mailonce_core::{
    id::TeamId,
    limits,
    outbound::{
        content_guard::{Comparison, ContentFingerprint, MAX_COMPARED, MAX_IDENTICAL_WINDOW_MS},
        email::Email,
    },
    ports::store::Result,
    time::Time,
};
use rusqlite::{Row, params};

use crate::sqlite::{rows, schema::store_error, write_session::WriteSession};

const RECENT: &str = "SELECT at, email, marks, words FROM likenesses WHERE team = ?1 AND pair = ?2 \
     ORDER BY number DESC LIMIT ?3";
const INSERT: &str = "INSERT INTO likenesses (team, pair, at, email, marks, words) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const DELETE_OLD: &str = "DELETE FROM likenesses WHERE team = ?1 AND pair = ?2 AND at <= ?3";
/// Row numbers rise with time, so the old rows come first and no index on `at` is needed.
const SWEEP: &str = "DELETE FROM likenesses WHERE number IN (SELECT number FROM likenesses ORDER BY number LIMIT ?2) \
     AND at <= ?1";

/// The latest email in the window that has similar content, and was or may be sent.
pub(crate) fn find_similar_email(
    ledger: &WriteSession<'_>,
    (id, team): (TeamId, i64),
    Comparison { fingerprint, window_ms }: Comparison<'_>,
    now: Time,
) -> Result<Option<Email>> {
    let mut statement = ledger.conn.prepare_cached(RECENT).map_err(store_error)?;
    let mut rows =
        statement.query(params![team, fingerprint.correspondents_hash, MAX_COMPARED as i64]).map_err(store_error)?;
    while let Some(row) = rows.next().map_err(store_error)? {
        let is_recent = now.since(Time(row.get(0).map_err(store_error)?)) < window_ms;
        if !is_recent || !fingerprint.is_similar_to(&read_fingerprint(row, fingerprint.correspondents_hash)?) {
            continue;
        }
        let email = rows::email_by_bits(ledger.conn, id, team, row.get(1).map_err(store_error)?)?;
        if let Some(email) = email.filter(|email| !email.is_surely_unsent()) {
            return Ok(Some(email));
        }
    }
    Ok(None)
}

fn read_fingerprint(row: &Row<'_>, pair: [u8; 16]) -> Result<ContentFingerprint> {
    let words: Vec<u8> = row.get(3).map_err(store_error)?;
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| (word << 8) | u32::from(*byte));
    Ok(ContentFingerprint {
        correspondents_hash: pair,
        numbers_hash: row.get(2).map_err(store_error)?,
        words: words.chunks_exact(4).map(word).collect(),
    })
}

/// Saves the fingerprint of an email, to compare later emails with it.
pub(crate) fn remember(
    ledger: &WriteSession<'_>,
    team: i64,
    fingerprint: &ContentFingerprint,
    email: i64,
    now: Time,
) -> Result<()> {
    let words: Vec<u8> = fingerprint.words.iter().flat_map(|word| word.to_be_bytes()).collect();
    ledger.execute(DELETE_OLD, params![team, fingerprint.correspondents_hash, now.plus(-MAX_IDENTICAL_WINDOW_MS).0])?;
    ledger
        .execute(INSERT, params![team, fingerprint.correspondents_hash, now.0, email, fingerprint.numbers_hash, words])
        .map(drop)
}

/// Deletes up to `SCAN_ROWS` fingerprints that are older than every comparison window.
pub(crate) fn sweep(ledger: &WriteSession<'_>, now: Time) -> Result<()> {
    ledger.execute(SWEEP, params![now.plus(-MAX_IDENTICAL_WINDOW_MS).0, limits::SCAN_ROWS as i64]).map(drop)
}
