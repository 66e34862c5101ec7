//! Queries for emails and keys, on reader connections.

use mailonce_core::{
    handoff::HandoffState,
    id::{self, EmailId, TeamId, ordered_bits},
    key::KeyHash,
    limits,
    outbound::{
        email::{Email, EmailState},
        email_query::{EmailDetail, EmailQuery, EmailStats, ResultPage},
        key_binding::{KeyBinding, KeyView},
    },
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::collections::BTreeMap;
use uuid::Uuid;

use super::key_bindings::{self, KeyRow};
use crate::sqlite::{fresh_keys::FreshKeys, handoff::handoffs, rows, schema::store_error};

const BY_TEAM: &str = "SELECT DISTINCT email FROM handoffs WHERE team = ?1 AND email < ?2 ORDER BY email DESC LIMIT ?3";
const COUNT_EMAILS: &str = "SELECT count(DISTINCT email) FROM handoffs WHERE team = ?1 AND email >= ?2 AND email < ?3";
/// The rows of `handoffs` lead from a team to its emails, so duplicates are looked up by them.
const COUNT_DUPLICATES: &str = "SELECT COALESCE(sum(s.count), 0) FROM suppressed s WHERE s.email >= ?2 AND s.email < ?3 \
     AND EXISTS (SELECT 1 FROM handoffs h WHERE h.team = ?1 AND h.email = s.email)";
const COUNT_HANDOFFS: &str =
    "SELECT state, count(*) FROM handoffs WHERE team = ?1 AND email >= ?2 AND email < ?3 GROUP BY state";
/// The rest of an email's id, and whether its head may name an address: the JSON of a recipient is part of that of the head.
const NAMES_ADDRESS: &str = "SELECT tail, instr(head, ?2) > 0 FROM emails WHERE email = ?1";
/// Repeats the condition of the partial index `handoffs_rare` literally, so that SQLite can use the index.
const BY_RARE_STATE: &str = "SELECT DISTINCT email FROM handoffs WHERE team = ?1 AND state = ?2 AND email < ?3 \
     AND (state = 'held' OR state = 'unknown' OR state = 'failed' OR state = 'bounced' OR state = 'complained' \
     OR state = 'abandoned' OR state = 'cancelled') ORDER BY email DESC LIMIT ?4";

/// Teams with held or unknown handoffs, from a given team on. Each condition implies that of the partial index
/// `handoffs_rare`.
const TEAMS_WITH_HELD_OR_UNKNOWN: &str = "SELECT number, id FROM teams t WHERE id >= ?1 AND \
     (EXISTS (SELECT 1 FROM handoffs WHERE team = t.number AND state = 'held') \
     OR EXISTS (SELECT 1 FROM handoffs WHERE team = t.number AND state = 'unknown')) ORDER BY id";
const HELD_OR_UNKNOWN_EMAILS: &str = "SELECT email FROM handoffs WHERE team = ?1 AND state = 'held' AND email > ?2 \
     UNION SELECT email FROM handoffs WHERE team = ?1 AND state = 'unknown' AND email > ?2 ORDER BY email LIMIT ?3";

/// An email with its body, attempts, evidence and suppressed calls.
pub(crate) fn detail(conn: &Connection, team: TeamId, number: i64, id: EmailId) -> Result<Option<EmailDetail>> {
    let Some(email) = rows::email_by_id(conn, team, number, id)? else { return Ok(None) };
    let bits = ordered_bits(id.0);
    let mut suppressed = rows::suppressed(conn, bits)?.1;
    suppressed.reverse();
    Ok(Some(EmailDetail {
        email,
        body: rows::body(conn, bits)?,
        attempts: rows::attempts(conn, bits)?,
        evidence: handoffs::evidence(conn, bits)?,
        suppressed_calls: suppressed,
    }))
}

/// Emails of a team, newest first.
pub(crate) fn list_emails(
    conn: &Connection,
    fresh: &FreshKeys,
    (team, number): (TeamId, i64),
    query: &EmailQuery,
) -> Result<ResultPage<Email>> {
    if let Some(key) = query.key {
        let row = key_bindings::read_key_row(conn, fresh, number, key)?;
        return by_key(conn, team, number, row.as_ref(), query);
    }
    let before = query.before.map_or(i64::MAX, |id| ordered_bits(id.0));
    if let Some(state) = query.rare_state() {
        return by_rare_state(conn, team, number, state, before, query);
    }
    let mut statement = conn.prepare_cached(BY_TEAM).map_err(store_error)?;
    let asked = params![number, before, limits::SCAN_ROWS as i64 + 1];
    let bits = statement.query_map(asked, |row| row.get(0)).map_err(store_error)?;
    page_of(conn, team, number, bits, query)
}

/// The number of a team's emails with ids in the range `from..to`.
pub(crate) fn count_emails(conn: &Connection, number: i64, from: EmailId, to: EmailId) -> Result<u64> {
    let asked = params![number, ordered_bits(from.0), ordered_bits(to.0)];
    let mut statement = conn.prepare_cached(COUNT_EMAILS).map_err(store_error)?;
    statement.query_row(asked, |row| row.get::<_, i64>(0)).map(|count| count as u64).map_err(store_error)
}

/// Statistics of a team's emails with ids in the range `from..to`.
pub(crate) fn email_stats(conn: &Connection, number: i64, from: EmailId, to: EmailId) -> Result<EmailStats> {
    let asked = params![number, ordered_bits(from.0), ordered_bits(to.0)];
    let mut duplicates = conn.prepare_cached(COUNT_DUPLICATES).map_err(store_error)?;
    let duplicates: i64 = duplicates.query_row(asked, |row| row.get(0)).map_err(store_error)?;
    let mut statement = conn.prepare_cached(COUNT_HANDOFFS).map_err(store_error)?;
    let counted = statement.query_map(asked, |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)));
    let mut handoffs = BTreeMap::new();
    for row in counted.map_err(store_error)? {
        let (state, count) = row.map_err(store_error)?;
        handoffs.insert(HandoffState::parse(&state).ok_or_else(|| rows::corrupt_row("state"))?, count as u64);
    }
    Ok(EmailStats { accepted: count_emails(conn, number, from, to)?, duplicates: duplicates as u64, handoffs })
}

/// How far the order of ids may differ from the order of creation times, in milliseconds. An email gets its id a moment
/// after its time.
const ID_TIME_SKEW_MS: i64 = 60_000;

/// Loads the emails with these ordered bits one by one, until the page is full or `SCAN_ROWS` were read.
fn page_of(
    conn: &Connection,
    team: TeamId,
    number: i64,
    bits: impl Iterator<Item = rusqlite::Result<i64>>,
    query: &EmailQuery,
) -> Result<ResultPage<Email>> {
    let mut page = ResultPage { rows: Vec::new(), next: None };
    let address = query.to.as_ref().map(rows::to_json).transpose()?;
    for (looked, bits) in bits.enumerate() {
        if page.rows.len() == query.limit || looked == limits::SCAN_ROWS {
            return Ok(page);
        }
        let bits = bits.map_err(store_error)?;
        // Ids follow time, so all further emails are older than `since`.
        if query.since.is_some_and(|since| id_time(bits).plus(ID_TIME_SKEW_MS) < since) {
            break;
        }
        if let Some(address) = &address {
            let Some((id, may_match)) = names_address(conn, bits, address)? else { continue };
            if !may_match {
                page.next = Some(id);
                continue;
            }
        }
        let Some(email) = rows::email_by_bits(conn, team, number, bits)? else { continue };
        page.next = Some(email.id);
        if query.matches(&email) {
            page.rows.push(email);
        }
    }
    page.next = None;
    Ok(page)
}

/// The time in the ordered bits of an id.
fn id_time(bits: i64) -> Time {
    Time(bits >> 12)
}

/// The id of the email with these ordered bits, and whether its head may name the address, which is JSON. Most emails of
/// a list are to somebody else; this passes over them without loading them.
fn names_address(conn: &Connection, bits: i64, address: &str) -> Result<Option<(EmailId, bool)>> {
    let mut statement = conn.prepare_cached(NAMES_ADDRESS).map_err(store_error)?;
    let row = statement.query_row(params![bits, address], |row| Ok((row.get(0)?, row.get(1)?))).optional();
    let id = |tail| EmailId(id::from_bits(bits, tail));
    Ok(row.map_err(store_error)?.map(|(tail, may_match)| (id(tail), may_match)))
}

/// Emails with a handoff in a rare state. The email's own state may differ, because it combines all its handoffs, so
/// `page_of` checks each email.
fn by_rare_state(
    conn: &Connection,
    team: TeamId,
    number: i64,
    state: EmailState,
    before: i64,
    query: &EmailQuery,
) -> Result<ResultPage<Email>> {
    let mut statement = conn.prepare_cached(BY_RARE_STATE).map_err(store_error)?;
    let asked = params![number, state.as_str(), before, limits::SCAN_ROWS as i64 + 1];
    let bits = statement.query_map(asked, |row| row.get(0)).map_err(store_error)?;
    page_of(conn, team, number, bits, query)
}

/// The one email that a key is bound to, or was bound to last.
fn by_key(
    conn: &Connection,
    team: TeamId,
    number: i64,
    row: Option<&KeyRow>,
    query: &EmailQuery,
) -> Result<ResultPage<Email>> {
    let bits = row.and_then(|row| row.email);
    let email = bits.map(|bits| rows::email_by_bits(conn, team, number, bits)).transpose()?.flatten();
    let wanted = |email: &Email| query.matches(email) && query.before.is_none_or(|before| email.id < before);
    Ok(ResultPage { rows: email.into_iter().filter(wanted).collect(), next: None })
}

/// Held and unknown emails of all teams, ordered by team and id.
pub(crate) fn held_or_unknown_emails(
    conn: &Connection,
    after: Option<(TeamId, EmailId)>,
    limit: usize,
) -> Result<Vec<Email>> {
    let from = after.as_ref().map_or(&[][..], |(team, _)| team.0.as_bytes());
    let mut statement = conn.prepare_cached(TEAMS_WITH_HELD_OR_UNKNOWN).map_err(store_error)?;
    let teams = statement.query_map([from], |row| Ok((row.get(0)?, TeamId(Uuid::from_bytes(row.get(1)?)))));
    let teams: Vec<(i64, TeamId)> = teams.and_then(Iterator::collect).map_err(store_error)?;
    let mut found = Vec::new();
    for (number, team) in teams {
        let behind = after.filter(|(last, _)| *last == team).map_or(i64::MIN, |(_, id)| ordered_bits(id.0));
        let mut statement = conn.prepare_cached(HELD_OR_UNKNOWN_EMAILS).map_err(store_error)?;
        let asked = params![number, behind, (limit - found.len()) as i64];
        let bits: Vec<i64> =
            statement.query_map(asked, |row| row.get(0)).and_then(Iterator::collect).map_err(store_error)?;
        for bits in bits {
            found.extend(rows::email_by_bits(conn, team, number, bits)?);
        }
    }
    Ok(found)
}

/// The state of a key, also after it was forgotten, until its tombstone expires.
pub(crate) fn key_view(
    conn: &Connection,
    fresh: &FreshKeys,
    (team, number): (TeamId, i64),
    key: KeyHash,
    forget_by: Time,
) -> Result<Option<KeyView>> {
    let Some(row) = key_bindings::read_key_row(conn, fresh, number, key)?.filter(|row| row.bind_number > 0) else {
        return Ok(None);
    };
    let bound = key_bindings::binding_of_row(conn, team, number, &row, forget_by)?;
    let expires_at = match &bound {
        Some(KeyBinding::Email(email)) => email.expires_at(),
        Some(KeyBinding::Operation { .. }) => row.operation.map(|(_, expires_at)| expires_at),
        None => None,
    };
    let mut suppressed = Vec::new();
    let forgotten_at = match (&bound, row.operation, row.email) {
        (Some(KeyBinding::Email(email)), _, _) => {
            suppressed = rows::suppressed(conn, ordered_bits(email.id.0))?.1;
            suppressed.reverse();
            None
        }
        (Some(KeyBinding::Operation { .. }), _, _) => None,
        (None, Some((_, expires_at)), _) => Some(expires_at),
        (None, None, Some(bits)) => rows::email_by_bits(conn, team, number, bits)?.and_then(|email| email.expires_at()),
        (None, None, None) => row.forgotten_at,
    };
    Ok(Some(KeyView {
        bind_number: row.bind_number,
        binding: bound,
        expires_at,
        forgotten_at,
        suppressed_calls: suppressed,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{Sqlite, outbound::accept_statements, schema};

    fn ledger() -> (tempfile::TempDir, Connection) {
        let home = tempfile::tempdir().unwrap();
        drop(Sqlite::open(home.path(), [7; 32]).unwrap());
        let conn = schema::open_reader(&home.path().join("ledger.db")).unwrap();
        (home, conn)
    }

    #[test]
    fn rare_states_are_found_by_their_index() {
        let (_home, conn) = ledger();
        let plan: String = conn
            .query_row(&format!("EXPLAIN QUERY PLAN {BY_RARE_STATE}"), params![1, "held", 9, 9], |row| row.get(3))
            .unwrap();
        assert!(plan.contains("handoffs_rare (team=? AND state=? AND email<?)"), "{plan}");
    }

    #[test]
    fn what_is_stuck_is_found_by_its_index() {
        let (_home, conn) = ledger();
        for (sql, index) in [
            (HELD_OR_UNKNOWN_EMAILS, "(team=? AND state=? AND email>?)"),
            (TEAMS_WITH_HELD_OR_UNKNOWN, "(team=? AND state=?)"),
        ] {
            let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps = explain.raw_query().mapped(|row| row.get::<_, String>(3)).collect::<Vec<_>>();
            let steps: Vec<String> = steps.into_iter().map(rusqlite::Result::unwrap).collect();
            let index = format!("handoffs_rare {index}");
            assert_eq!(steps.iter().filter(|step| step.contains(&index)).count(), 2, "{steps:?}");
        }
    }

    #[test]
    fn an_accept_makes_no_table_for_itself() {
        let (_home, conn) = ledger();
        let mut explain = conn.prepare(&format!("EXPLAIN {}", accept_statements::INSERT_HANDOFF)).unwrap();
        let steps = explain.query_map(params![1, 2, 3, "t", "[]", "queued", 4], |row| row.get::<_, String>(1)).unwrap();
        let steps: Vec<String> = steps.map(rusqlite::Result::unwrap).collect();
        assert!(steps.iter().any(|step| step == "IdxInsert") && !steps.iter().any(|step| step == "OpenEphemeral"));
    }
}
