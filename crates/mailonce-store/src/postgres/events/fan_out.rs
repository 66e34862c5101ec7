//! Fan-out: creates notices from the events after each endpoint's cursor.

use deadpool_postgres::Transaction;
use mailonce_core::{
    events::{
        endpoint::Endpoint,
        event::Event,
        notice::{FanOutCounts, Notice},
    },
    limits,
    time::Time,
};
use std::collections::BTreeSet;
use uuid::Uuid;

use super::row::{endpoint_columns, read_all, read_endpoint, save_notices};
use crate::postgres::events::notices::recreate_notice;
use crate::postgres::{
    SharedState,
    error::TxResult,
    statements::{execute, query_rows},
};

/// Enabled endpoints with numbered events after their cursor, the longest waiting first, skipping locked ones.
const LAGGING_ENDPOINTS: &str = concat!(
    "SELECT ",
    endpoint_columns!(),
    " FROM endpoints e JOIN event_counters c ON c.team = e.team AND c.seq > e.cursor
      WHERE NOT e.removed AND e.state = 'enabled'
      ORDER BY e.spread_at NULLS FIRST, e.id LIMIT $1 FOR UPDATE OF e SKIP LOCKED"
);
const ANY_LAGGING: &str = "
    SELECT FROM endpoints e JOIN event_counters c ON c.team = e.team AND c.seq > e.cursor
     WHERE NOT e.removed AND e.state = 'enabled' LIMIT 1";
/// Locks the scheduled notices of these subjects. A transaction that finishes one waits until the notices queued
/// behind it are visible.
const LOCK_SCHEDULED: &str = "
    SELECT n.about FROM notices n WHERE n.endpoint = $1 AND n.about = ANY ($2) AND n.next_at IS NOT NULL
     ORDER BY n.seq FOR UPDATE";
const PENDING_SUBJECTS: &str = "
    SELECT w.about FROM unnest($2::uuid[]) AS w (about)
     WHERE EXISTS (SELECT FROM notices n WHERE n.endpoint = $1 AND n.about = w.about AND n.state = 'pending')";
const ADVANCE_CURSOR: &str = "UPDATE endpoints SET cursor = $3, spread_at = $4 WHERE team = $1 AND id = $2";

/// Reads the events after the cursors of endpoints and creates their notices.
pub(crate) async fn fan_out(shared: &SharedState, max: usize, now: Time) -> TxResult<FanOutCounts> {
    shared.wait_until_numbered(None).await?;
    let mut client = shared.connections.client().await?;
    if query_rows(&client, ANY_LAGGING, &[]).await?.is_empty() {
        return Ok(FanOutCounts::default());
    }
    let tx = client.transaction().await?;
    let lagging =
        read_all(&query_rows(&tx, LAGGING_ENDPOINTS, &[&(limits::FAN_OUT_ENDPOINTS as i64)]).await?, read_endpoint)?;
    let each = (max / lagging.len().max(1)).max(1);
    let mut counts = FanOutCounts::default();
    for endpoint in &lagging {
        let events = shared.events_after(&tx, endpoint.team, endpoint.cursor, each).await?;
        counts.events_read += events.len();
        counts.notices_created += create_notices(&tx, endpoint, &events, now).await?;
        let last = events.last().map_or(endpoint.cursor, |event| event.seq);
        execute(&tx, ADVANCE_CURSOR, &[&endpoint.team.0, &endpoint.id.0, &(last as i64), &now.0]).await?;
    }
    counts.has_more = !query_rows(&tx, ANY_LAGGING, &[]).await?.is_empty();
    shared.commit(tx, 1).await?;
    Ok(counts)
}

/// Creates an endpoint's notices for these events. Returns how many were not pending before.
async fn create_notices(tx: &Transaction<'_>, endpoint: &Endpoint, events: &[Event], now: Time) -> TxResult<usize> {
    let wanted = || events.iter().filter(|event| endpoint.wants(event));
    let fresh = |event: &Event, in_line| Notice::new(endpoint.team, endpoint.id, event, in_line, now);
    let mut owed = 0;
    for event in wanted().filter(|event| endpoint.must_resend(event.seq)) {
        owed += usize::from(recreate_notice(tx, fresh(event, true), now).await?);
    }
    let new: Vec<&Event> = wanted().filter(|event| !endpoint.must_resend(event.seq)).collect();
    if new.is_empty() {
        return Ok(owed);
    }
    let mut open =
        lock_pending_subjects(tx, endpoint, new.iter().map(|event| event.event.subject_id).collect()).await?;
    let notices: Vec<Notice> = new.iter().map(|event| fresh(event, !open.insert(event.event.subject_id))).collect();
    save_notices(tx, &notices).await?;
    Ok(owed + notices.len())
}

/// The subjects that have a pending notice. The locks keep the answer valid until the commit.
async fn lock_pending_subjects(
    tx: &Transaction<'_>,
    endpoint: &Endpoint,
    about: BTreeSet<Uuid>,
) -> TxResult<BTreeSet<Uuid>> {
    let about: Vec<Uuid> = about.into_iter().collect();
    let (mut locked, asked) = (BTreeSet::new(), (&endpoint.id.0, &about));
    loop {
        for row in query_rows(tx, LOCK_SCHEDULED, &[asked.0, asked.1]).await? {
            locked.insert(row.try_get::<_, Uuid>(0)?);
        }
        let mut open = BTreeSet::new();
        for row in query_rows(tx, PENDING_SUBJECTS, &[asked.0, asked.1]).await? {
            open.insert(row.try_get::<_, Uuid>(0)?);
        }
        // A notice finished while we waited for its lock, and the next one was scheduled: lock that one too.
        if open.is_subset(&locked) {
            return Ok(open);
        }
    }
}
