//! Texts that people typed: replaces the address of an erased person in those of a team.

use mailonce_core::control::{erasure::AddressEraser, typed_text::TypedText};
use uuid::Uuid;

use crate::postgres::{
    SharedState,
    error::{TxError, TxResult},
    statements::{execute, query_rows},
};

/// The rows of a table whose JSON contains one of two texts in lower case, locked. The collation makes `lower` the same
/// under every locale.
macro_rules! named_locked {
    ($table:literal, $json:literal) => {
        concat!(
            "SELECT id, ",
            $json,
            " FROM ",
            $table,
            " WHERE team = $1 AND (strpos(lower(",
            $json,
            " COLLATE \"C\"), $2) > 0 OR strpos(lower(",
            $json,
            " COLLATE \"C\"), $3) > 0) ORDER BY id FOR UPDATE"
        )
    };
}

/// The statements that find the rows of a kind and save one of them.
fn statements(kind: TypedText) -> [&'static str; 2] {
    match kind {
        TypedText::ApiKeys => {
            [named_locked!("api_keys", "about"), "UPDATE api_keys SET about = $3 WHERE team = $1 AND id = $2"]
        }
        TypedText::Endpoints => [
            named_locked!("endpoints", "about"),
            "UPDATE endpoints SET rev = rev + 1, about = $3 WHERE team = $1 AND id = $2",
        ],
        TypedText::Inboxes => [
            named_locked!("inboxes", "about"),
            "UPDATE inboxes SET rev = rev + 1, about = $3 WHERE team = $1 AND id = $2",
        ],
        TypedText::Stops => [named_locked!("stops", "stop"), "UPDATE stops SET stop = $3 WHERE team = $1 AND id = $2"],
    }
}

/// Replaces the address in all rows of a kind. Returns in how many it was.
pub(super) async fn redact(shared: &SharedState, eraser: &AddressEraser, kind: TypedText) -> TxResult<usize> {
    let (team, [plain, encoded], [find, save]) = (eraser.team.0, eraser.spellings(), statements(kind));
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let mut named = 0;
    for row in query_rows(&tx, find, &[&team, plain, encoded]).await? {
        let (id, json): (Uuid, String) = (row.try_get(0)?, row.try_get(1)?);
        let redacted = kind.redact_row(eraser, &json).map_err(|_json| TxError::corrupt("typed texts"))?;
        if let Some(redacted) = redacted {
            execute(&tx, save, &[&team, &id, &redacted]).await?;
            named += 1;
        }
    }
    if named > 0 {
        shared.commit(tx, 1).await?;
    }
    Ok(named)
}
