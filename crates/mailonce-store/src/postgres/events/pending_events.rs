//! Events that the sequencer has not numbered yet.

use deadpool_postgres::Transaction;
use mailonce_core::{events::event::NewEvent, id::TeamId};
use uuid::Uuid;

use crate::postgres::{error::TxResult, row::write_json, statements::execute};

const INSERT_PENDING_EVENTS: &str = "
    INSERT INTO events_pending (team, at, about, rev, kind, data)
    SELECT team, array_agg(at ORDER BY place), array_agg(about ORDER BY place), array_agg(rev ORDER BY place),
           array_agg(kind ORDER BY place), array_agg(data ORDER BY place)
      FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::int[], $5::text[], $6::text[]) WITH ORDINALITY
        AS w (team, at, about, rev, kind, data, place)
     GROUP BY team";

/// Inserts events into `events_pending`, in order. The sequencer numbers them later.
pub(crate) async fn write_events(tx: &Transaction<'_>, events: &[(TeamId, NewEvent)]) -> TxResult<()> {
    if events.is_empty() {
        return Ok(());
    }
    let team: Vec<Uuid> = events.iter().map(|(team, _)| team.0).collect();
    let at: Vec<i64> = events.iter().map(|(_, event)| event.at.0).collect();
    let about: Vec<Uuid> = events.iter().map(|(_, event)| event.subject_id).collect();
    let rev: Vec<i32> = events.iter().map(|(_, event)| event.rev as i32).collect();
    let kind: Vec<&str> = events.iter().map(|(_, event)| event.kind.as_str()).collect();
    let data = events.iter().map(|(_, event)| write_json(&event.data)).collect::<TxResult<Vec<String>>>()?;
    execute(tx, INSERT_PENDING_EVENTS, &[&team, &at, &about, &rev, &kind, &data]).await?;
    Ok(())
}
