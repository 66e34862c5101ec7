//! Spreading: what lies past an endpoint's cursor becomes notices.
//!
//! Events are read and chosen apart from the writer, which only writes what was chosen, if the endpoint is still as it
//! was seen.

use mailonce_core::{
    endpoint::Endpoint,
    event::Event,
    id::ordered_bits,
    limits,
    notice::{Notice, Spread},
    port::store::Result,
    time::Time,
};
use rusqlite::{Connection, params};

use super::{
    endpoint, events,
    ledger::{Ledger, Teams},
    notice,
};

const MOVE: &str = "UPDATE endpoints SET cursor = ?2, spread_at = ?3 WHERE endpoint = ?1 AND cursor = ?4 \
     AND redo_until = ?5 AND rev = ?6 AND removed IS NULL";

/// What an endpoint is owed.
pub(super) struct Share {
    endpoint: Endpoint,
    team: i64,
    read: usize,
    /// The number of the last event that was looked at.
    last: u64,
    wanted: Vec<Event>,
}

/// Looks at the events before endpoints.
pub(super) fn plan(conn: &Connection, teams: &Teams, max: usize) -> Result<Vec<Share>> {
    let lagging = endpoint::lagging(conn, limits::SPREAD_ENDPOINTS)?;
    let each = (max / lagging.len().max(1)).max(1);
    let mut shares = Vec::with_capacity(lagging.len());
    for endpoint in lagging {
        let Some(team) = teams.number(endpoint.team) else { continue };
        let mut events = events::after(conn, team, endpoint.cursor, each)?;
        let (read, last) = (events.len(), events.last().map_or(endpoint.cursor, |event| event.seq));
        events.retain(|event| endpoint.wants(event));
        shares.push(Share { endpoint, team, read, last, wanted: events });
    }
    Ok(shares)
}

/// Writes down what is owed.
pub(super) fn spread(ledger: &Ledger<'_>, shares: &[Share], now: Time) -> Result<Spread> {
    let mut spread = Spread::default();
    for share in shares {
        let Share { endpoint, team, read, last, wanted } = share;
        let seen = params![
            ordered_bits(endpoint.id.0),
            *last as i64,
            now.0,
            endpoint.cursor as i64,
            endpoint.redo_until as i64,
            endpoint.rev
        ];
        // Changed since it was looked at: the next call looks again.
        if ledger.execute(MOVE, seen)? == 0 {
            continue;
        }
        spread.read += read;
        for event in wanted {
            spread.owed += usize::from(owe(ledger, *team, endpoint, event, now)?);
        }
    }
    spread.more = !endpoint::lagging(ledger.conn, 1)?.is_empty();
    Ok(spread)
}

/// Owes an event to an endpoint, unless it is past that. True when it was not owed before.
fn owe(ledger: &Ledger<'_>, team: i64, endpoint: &Endpoint, event: &Event, now: Time) -> Result<bool> {
    if !endpoint.owes_again(event.seq) {
        let in_line = notice::is_open(ledger, endpoint.id, event.event.about)?;
        notice::save(ledger, team, &Notice::new(endpoint.team, endpoint.id, event, in_line, now))?;
        return Ok(true);
    }
    let owed = match notice::at(ledger.conn, endpoint.id, event.seq)? {
        None => Notice::new(endpoint.team, endpoint.id, event, true, now),
        Some(mut notice) if !notice.is_open() => {
            notice.replay(now);
            notice
        }
        Some(_) => return Ok(false),
    };
    notice::change(ledger, team, owed, now)?;
    Ok(true)
}
