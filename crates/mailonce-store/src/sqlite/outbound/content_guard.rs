//! What was said of late between the same people. Only an email that is to be compared reads or writes here.

use mailonce_core::{
    id::TeamId,
    limits,
    outbound::{
        content_guard::{COMPARE_WINDOW_MS, ContentFingerprint, MAX_COMPARED},
        email::EmailState,
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
/// Numbers rise with time, so the old ones are at the start and no index is needed.
const SWEEP: &str = "DELETE FROM likenesses WHERE number IN (SELECT number FROM likenesses ORDER BY number LIMIT ?2) \
     AND at <= ?1";

/// Whether a mail between the same people that stands says the same.
pub(crate) fn has_recent_duplicate(
    ledger: &WriteSession<'_>,
    (id, team): (TeamId, i64),
    likeness: &ContentFingerprint,
    now: Time,
) -> Result<bool> {
    let mut statement = ledger.conn.prepare_cached(RECENT).map_err(store_error)?;
    let mut rows = statement.query(params![team, likeness.pair, MAX_COMPARED as i64]).map_err(store_error)?;
    while let Some(row) = rows.next().map_err(store_error)? {
        let recent = now.since(Time(row.get(0).map_err(store_error)?)) < COMPARE_WINDOW_MS;
        if recent
            && likeness.is_similar_to(&read_fingerprint(row, likeness.pair)?)
            && may_have_been_sent(ledger, (id, team), row)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_fingerprint(row: &Row<'_>, pair: [u8; 16]) -> Result<ContentFingerprint> {
    let words: Vec<u8> = row.get(3).map_err(store_error)?;
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| (word << 8) | u32::from(*byte));
    Ok(ContentFingerprint {
        pair,
        marks: row.get(2).map_err(store_error)?,
        words: words.chunks_exact(4).map(word).collect(),
    })
}

/// Whether the mail may have left, or may still leave.
fn may_have_been_sent(ledger: &WriteSession<'_>, (id, team): (TeamId, i64), row: &Row<'_>) -> Result<bool> {
    let email = rows::email_by_bits(ledger.conn, id, team, row.get(1).map_err(store_error)?)?;
    Ok(email.is_some_and(|email| !matches!(email.state(), EmailState::Failed | EmailState::Cancelled)))
}

/// Remembers what an email says for those to come.
pub(crate) fn remember(
    ledger: &WriteSession<'_>,
    team: i64,
    likeness: &ContentFingerprint,
    email: i64,
    now: Time,
) -> Result<()> {
    let words: Vec<u8> = likeness.words.iter().flat_map(|word| word.to_be_bytes()).collect();
    ledger.execute(DELETE_OLD, params![team, likeness.pair, now.plus(-COMPARE_WINDOW_MS).0])?;
    ledger.execute(INSERT, params![team, likeness.pair, now.0, email, likeness.marks, words]).map(drop)
}

/// Lets go of what nobody compares with any more, a piece at a time.
pub(crate) fn sweep(ledger: &WriteSession<'_>, now: Time) -> Result<()> {
    ledger.execute(SWEEP, params![now.plus(-COMPARE_WINDOW_MS).0, limits::SCAN_ROWS as i64]).map(drop)
}
