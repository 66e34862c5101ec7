//! What was said of late between the same people. Only an email that is to be compared reads or writes here.

use mailonce_core::{
    conversation::likeness::{LATEST, Likeness, WINDOW_MS},
    email::EmailState,
    id::TeamId,
    limits,
    port::store::Result,
    time::Time,
};
use rusqlite::{Row, params};

use super::{ledger::Ledger, rows, schema::told};

const RECENT: &str = "SELECT at, email, marks, words FROM likenesses WHERE team = ?1 AND pair = ?2 \
     ORDER BY number DESC LIMIT ?3";
const NOTE: &str = "INSERT INTO likenesses (team, pair, at, email, marks, words) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const DROP: &str = "DELETE FROM likenesses WHERE team = ?1 AND pair = ?2 AND at <= ?3";
/// Numbers rise with time, so the old ones are at the start and no index is needed.
const SWEEP: &str = "DELETE FROM likenesses WHERE number IN (SELECT number FROM likenesses ORDER BY number LIMIT ?2) \
     AND at <= ?1";

/// Whether a mail between the same people that stands says the same.
pub(super) fn is_known(ledger: &Ledger<'_>, (id, team): (TeamId, i64), likeness: &Likeness, now: Time) -> Result<bool> {
    let mut statement = ledger.conn.prepare_cached(RECENT).map_err(told)?;
    let mut rows = statement.query(params![team, likeness.pair, LATEST as i64]).map_err(told)?;
    while let Some(row) = rows.next().map_err(told)? {
        let recent = now.since(Time(row.get(0).map_err(told)?)) < WINDOW_MS;
        if recent && likeness.is_like(&read(row, likeness.pair)?) && stands(ledger, (id, team), row)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read(row: &Row<'_>, pair: [u8; 16]) -> Result<Likeness> {
    let words: Vec<u8> = row.get(3).map_err(told)?;
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| (word << 8) | u32::from(*byte));
    Ok(Likeness { pair, marks: row.get(2).map_err(told)?, words: words.chunks_exact(4).map(word).collect() })
}

/// Whether the mail may have left, or may still leave.
fn stands(ledger: &Ledger<'_>, (id, team): (TeamId, i64), row: &Row<'_>) -> Result<bool> {
    let email = rows::email(ledger.conn, id, team, row.get(1).map_err(told)?)?;
    Ok(email.is_some_and(|email| !matches!(email.state(), EmailState::Failed | EmailState::Cancelled)))
}

/// Remembers what an email says for those to come.
pub(super) fn note(ledger: &Ledger<'_>, team: i64, likeness: &Likeness, email: i64, now: Time) -> Result<()> {
    let words: Vec<u8> = likeness.words.iter().flat_map(|word| word.to_be_bytes()).collect();
    ledger.execute(DROP, params![team, likeness.pair, now.plus(-WINDOW_MS).0])?;
    ledger.execute(NOTE, params![team, likeness.pair, now.0, email, likeness.marks, words]).map(drop)
}

/// Lets go of what nobody compares with any more, a piece at a time.
pub(super) fn sweep(ledger: &Ledger<'_>, now: Time) -> Result<()> {
    ledger.execute(SWEEP, params![now.plus(-WINDOW_MS).0, limits::SCAN_ROWS as i64]).map(drop)
}
