//! Texts that people typed: finds those of a team that contain the address of an erased person, and replaces it.

use mailonce_core::{
    control::{erasure::AddressEraser, typed_text::TypedText},
    ports::store::Result,
};
use rusqlite::{Connection, params, types::Value};

use crate::sqlite::{rows::corrupt_row, schema::store_error, write_session::WriteSession};

/// The rows of a table whose JSON contains one of two texts in lower case.
macro_rules! named {
    ($table:literal, $id:literal, $json:literal) => {
        concat!(
            "SELECT ",
            $id,
            ", ",
            $json,
            " FROM ",
            $table,
            " WHERE team = ?1 AND (instr(lower(",
            $json,
            "), ?2) > 0 OR instr(lower(",
            $json,
            "), ?3) > 0)"
        )
    };
}

/// The statements that find the rows of a kind and save one of them.
fn statements(kind: TypedText) -> [&'static str; 2] {
    match kind {
        TypedText::ApiKeys => [named!("api_keys", "id", "about"), "UPDATE api_keys SET about = ?2 WHERE id = ?1"],
        TypedText::Endpoints => [
            named!("endpoints", "endpoint", "about"),
            "UPDATE endpoints SET rev = rev + 1, about = ?2 WHERE endpoint = ?1",
        ],
        TypedText::Inboxes => {
            [named!("inboxes", "inbox", "about"), "UPDATE inboxes SET rev = rev + 1, about = ?2 WHERE inbox = ?1"]
        }
        TypedText::Stops => [named!("stops", "id", "stop"), "UPDATE stops SET stop = ?2 WHERE id = ?1"],
    }
}

/// The rows whose texts contain the address, with the JSON that replaces theirs.
pub(super) fn named_rows(
    conn: &Connection,
    team: i64,
    eraser: &AddressEraser,
    kind: TypedText,
) -> Result<Vec<(Value, String)>> {
    let [find, _] = statements(kind);
    let [plain, encoded] = eraser.spellings();
    let mut statement = conn.prepare_cached(find).map_err(store_error)?;
    let rows = statement.query_map(params![team, plain, encoded], |row| Ok((row.get(0)?, row.get(1)?)));
    let rows: Vec<(Value, String)> = rows.and_then(Iterator::collect).map_err(store_error)?;
    let mut named = Vec::new();
    for (id, json) in rows {
        let redacted = kind.redact_row(eraser, &json).map_err(|_json| corrupt_row("typed texts"))?;
        named.extend(redacted.map(|json| (id, json)));
    }
    Ok(named)
}

/// Replaces the address in all rows of a kind. Returns in how many it was.
pub(super) fn redact(ledger: &WriteSession<'_>, eraser: &AddressEraser, kind: TypedText) -> Result<usize> {
    let Some(number) = ledger.team_number(eraser.team) else { return Ok(0) };
    let [_, save] = statements(kind);
    let named = named_rows(ledger.conn, number, eraser, kind)?;
    for (id, json) in &named {
        ledger.execute(save, params![id, json])?;
    }
    Ok(named.len())
}
