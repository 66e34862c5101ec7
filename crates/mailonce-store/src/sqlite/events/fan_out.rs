//! Fan-out: turns the events after an endpoint's cursor into notices.
//!
//! A reader loads and filters the events. The writer then inserts the notices, if the endpoint has not changed since.

use mailonce_core::{
    events::{
        endpoint::Endpoint,
        event::Event,
        notice::{FanOutCounts, Notice},
    },
    id::ordered_bits,
    limits,
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, params};

use crate::sqlite::events::{endpoints, event_log, notices};
use crate::sqlite::write_session::{TeamNumberMap, WriteSession};

const ADVANCE_CURSOR: &str = "UPDATE endpoints SET cursor = ?2, spread_at = ?3 WHERE endpoint = ?1 AND cursor = ?4 \
     AND redo_until = ?5 AND rev = ?6 AND removed IS NULL";

/// The next events of one endpoint, as a reader found them.
pub(crate) struct FanOutBatch {
    endpoint: Endpoint,
    team: i64,
    events_read: usize,
    /// The sequence number of the last event that was read.
    last_seq: u64,
    matching_events: Vec<Event>,
}

/// Reads and filters the next events of the endpoints that lag behind.
pub(crate) fn plan_fan_out(conn: &Connection, teams: &TeamNumberMap, max: usize) -> Result<Vec<FanOutBatch>> {
    let lagging = endpoints::lagging(conn, limits::FAN_OUT_ENDPOINTS)?;
    let each = (max / lagging.len().max(1)).max(1);
    let mut shares = Vec::with_capacity(lagging.len());
    for endpoint in lagging {
        let Some(team) = teams.number(endpoint.team) else { continue };
        let mut events = event_log::events_after(conn, team, endpoint.cursor, each)?;
        let (read, last) = (events.len(), events.last().map_or(endpoint.cursor, |event| event.seq));
        events.retain(|event| endpoint.wants(event));
        shares.push(FanOutBatch { endpoint, team, events_read: read, last_seq: last, matching_events: events });
    }
    Ok(shares)
}

/// Creates the notices and advances the cursors.
pub(crate) fn fan_out(ledger: &WriteSession<'_>, shares: &[FanOutBatch], now: Time) -> Result<FanOutCounts> {
    let mut counts = FanOutCounts::default();
    for share in shares {
        let FanOutBatch { endpoint, team, events_read: read, last_seq: last, matching_events: wanted } = share;
        let seen = params![
            ordered_bits(endpoint.id.0),
            *last as i64,
            now.0,
            endpoint.cursor as i64,
            endpoint.resend_until_seq as i64,
            endpoint.rev
        ];
        // The endpoint changed since it was read. The next call reads it again.
        if ledger.execute(ADVANCE_CURSOR, seen)? == 0 {
            continue;
        }
        counts.events_read += read;
        for event in wanted {
            counts.notices_created += usize::from(create_notice(ledger, *team, endpoint, event, now)?);
        }
    }
    counts.has_more = !endpoints::lagging(ledger.conn, 1)?.is_empty();
    Ok(counts)
}

/// Creates the notice of an event for an endpoint. If the endpoint was rewound, replays a settled notice and leaves an
/// open one unchanged. Returns false for the latter.
fn create_notice(ledger: &WriteSession<'_>, team: i64, endpoint: &Endpoint, event: &Event, now: Time) -> Result<bool> {
    if !endpoint.must_resend(event.seq) {
        let in_line = notices::has_pending(ledger, endpoint.id, event.event.subject_id)?;
        notices::save(ledger, team, &Notice::new(endpoint.team, endpoint.id, event, in_line, now))?;
        return Ok(true);
    }
    let owed = match notices::by_seq(ledger.conn, endpoint.id, event.seq)? {
        None => Notice::new(endpoint.team, endpoint.id, event, true, now),
        Some(mut notice) if !notice.is_open() => {
            notice.replay(now);
            notice
        }
        Some(_) => return Ok(false),
    };
    notices::save_and_reschedule(ledger, team, owed, now)?;
    Ok(true)
}
