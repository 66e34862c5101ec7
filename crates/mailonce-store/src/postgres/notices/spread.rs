//! Spreading: what lies past an endpoint's cursor becomes notices.

use deadpool_postgres::Transaction;
use mailonce_core::{
    endpoint::Endpoint,
    event::Event,
    limits,
    notice::{Notice, Spread},
    time::Time,
};
use std::collections::BTreeSet;
use uuid::Uuid;

use super::{
    notice::owe_again,
    row::{endpoint_columns, read_all, read_endpoint, save},
};
use crate::postgres::{
    Ledger,
    trouble::Tried,
    write::{ask, run},
};

/// Enabled endpoints that numbered events lie before and that nobody else looks at, those that waited longest first.
const LAGGING: &str = concat!(
    "SELECT ",
    endpoint_columns!(),
    " FROM endpoints e JOIN event_counters c ON c.team = e.team AND c.seq > e.cursor
      WHERE NOT e.removed AND e.state = 'enabled'
      ORDER BY e.spread_at NULLS FIRST, e.id LIMIT $1 FOR UPDATE OF e SKIP LOCKED"
);
const ANY_LAGGING: &str = "
    SELECT FROM endpoints e JOIN event_counters c ON c.team = e.team AND c.seq > e.cursor
     WHERE NOT e.removed AND e.state = 'enabled' LIMIT 1";
/// Whoever ends one of these waits until those behind it are there to be seen.
const LOCK_TIMED: &str = "
    SELECT n.about FROM notices n WHERE n.endpoint = $1 AND n.about = ANY ($2) AND n.next_at IS NOT NULL
     ORDER BY n.seq FOR UPDATE";
const OPEN: &str = "
    SELECT w.about FROM unnest($2::uuid[]) AS w (about)
     WHERE EXISTS (SELECT FROM notices n WHERE n.endpoint = $1 AND n.about = w.about AND n.state = 'pending')";
const MOVE: &str = "UPDATE endpoints SET cursor = $3, spread_at = $4 WHERE team = $1 AND id = $2";

impl Ledger {
    /// Looks at the events before endpoints and writes down what is owed.
    pub(super) async fn spread(&self, max: usize, now: Time) -> Tried<Spread> {
        self.catch_up(None).await?;
        let mut client = self.link.client().await?;
        if ask(&client, ANY_LAGGING, &[]).await?.is_empty() {
            return Ok(Spread::default());
        }
        let tx = client.transaction().await?;
        let lagging = read_all(&ask(&tx, LAGGING, &[&(limits::SPREAD_ENDPOINTS as i64)]).await?, read_endpoint)?;
        let each = (max / lagging.len().max(1)).max(1);
        let mut spread = Spread::default();
        for endpoint in &lagging {
            let events = self.events_after(&tx, endpoint.team, endpoint.cursor, each).await?;
            spread.read += events.len();
            spread.owed += owe(&tx, endpoint, &events, now).await?;
            let last = events.last().map_or(endpoint.cursor, |event| event.seq);
            run(&tx, MOVE, &[&endpoint.team.0, &endpoint.id.0, &(last as i64), &now.0]).await?;
        }
        spread.more = !ask(&tx, ANY_LAGGING, &[]).await?.is_empty();
        self.commit(tx, 1).await?;
        Ok(spread)
    }
}

/// Owes events to an endpoint. How many were not owed before.
async fn owe(tx: &Transaction<'_>, endpoint: &Endpoint, events: &[Event], now: Time) -> Tried<usize> {
    let wanted = || events.iter().filter(|event| endpoint.wants(event));
    let fresh = |event: &Event, in_line| Notice::new(endpoint.team, endpoint.id, event, in_line, now);
    let mut owed = 0;
    for event in wanted().filter(|event| endpoint.owes_again(event.seq)) {
        owed += usize::from(owe_again(tx, fresh(event, true), now).await?);
    }
    let new: Vec<&Event> = wanted().filter(|event| !endpoint.owes_again(event.seq)).collect();
    if new.is_empty() {
        return Ok(owed);
    }
    let mut open = lock_open(tx, endpoint, new.iter().map(|event| event.event.about).collect()).await?;
    let notices: Vec<Notice> = new.iter().map(|event| fresh(event, !open.insert(event.event.about))).collect();
    save(tx, &notices).await?;
    Ok(owed + notices.len())
}

/// Which of these subjects something is owed about. That stays so until the commit.
async fn lock_open(tx: &Transaction<'_>, endpoint: &Endpoint, about: BTreeSet<Uuid>) -> Tried<BTreeSet<Uuid>> {
    let about: Vec<Uuid> = about.into_iter().collect();
    let (mut locked, asked) = (BTreeSet::new(), (&endpoint.id.0, &about));
    loop {
        for row in ask(tx, LOCK_TIMED, &[asked.0, asked.1]).await? {
            locked.insert(row.try_get::<_, Uuid>(0)?);
        }
        let mut open = BTreeSet::new();
        for row in ask(tx, OPEN, &[asked.0, asked.1]).await? {
            open.insert(row.try_get::<_, Uuid>(0)?);
        }
        // One was ended while we waited for it, and the next got its time: that one is to be locked too.
        if open.is_subset(&locked) {
            return Ok(open);
        }
    }
}
