//! The event log: transactions insert events without numbers, and a sequencer numbers them.
//!
//! Every node runs a sequencer. An advisory lock lets one at a time run a round; it ends with the transaction, so
//! there is no leader to fail over. The lock only saves work. For correctness, each team's counter row is locked
//! until the commit. So numbers have no gaps and become visible in order, whichever node assigns them.

use deadpool_postgres::GenericClient;
use mailonce_core::{
    events::event::{Event, EventKind, NewEvent},
    id::TeamId,
    time::Time,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::postgres::{
    SharedState,
    error::{TxError, TxResult, call_until_final},
    row::read_json,
    statements::{execute, query_rows},
};

/// The maximum number of pending blocks in one round.
const BLOCKS_PER_ROUND: usize = 256;
/// The minimum pause between rounds, so that each has several events to number.
const ROUND_INTERVAL: Duration = Duration::from_millis(15);
/// How long the sequencer sleeps without a wake-up. Other nodes insert events too, and may die before they number
/// them.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a reader waits for events that were committed before its call.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(1);
/// After this many numbered blocks `events_pending` is vacuumed, because every round must skip its dead rows.
const VACUUM_AFTER_BLOCKS: usize = 5_000;

const ANY_PENDING: &str = "SELECT FROM events_pending LIMIT 1";
const TRY_LOCK: &str = "SELECT pg_try_advisory_xact_lock(7883366246)";
/// Numbers each team's blocks in insertion order. The joined sets are as large as the round, hence the hash joins.
const NUMBER_PENDING: &str = "
    WITH taken AS (
        DELETE FROM events_pending
         WHERE ctid = ANY (ARRAY(SELECT ctid FROM events_pending ORDER BY team, n LIMIT $1))
        RETURNING team, n, at, about, rev, kind, data
    ), counted AS (
        INSERT INTO event_counters AS c (team, seq)
        SELECT team, sum(cardinality(about)) FROM taken GROUP BY team ORDER BY team
        ON CONFLICT (team) DO UPDATE SET seq = c.seq + excluded.seq
        RETURNING team, seq
    ), placed AS (
        SELECT *, sum(cardinality(about)) OVER (PARTITION BY team ORDER BY n DESC) - cardinality(about) AS behind
          FROM taken
    )
    INSERT INTO events (team, seq, at, about, rev, kind, data)
    SELECT p.team, c.seq - p.behind, p.at, p.about, p.rev, p.kind, p.data
      FROM placed p JOIN counted c ON c.team = p.team";
const ENABLE_HASH_JOIN: &str = "SET LOCAL enable_hashjoin = on";
const VACUUM_PENDING: &str = "VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) events_pending";

const NEWEST_PENDING: &str = "SELECT n FROM events_pending WHERE team = $1 ORDER BY n DESC LIMIT 1";
const STILL_PENDING: &str = "SELECT FROM events_pending WHERE team = $1 AND n <= $2 LIMIT 1";
/// The same for all teams.
const NEWEST_PENDING_OF_ALL: &str = "SELECT max(n) FROM events_pending HAVING max(n) IS NOT NULL";
const STILL_PENDING_OF_ALL: &str = "SELECT FROM events_pending WHERE n <= $1 LIMIT 1";
const EVENTS_AFTER: &str = "
    SELECT e.seq - cardinality(e.about) + x.place, x.at, x.about, x.rev, x.kind, x.data
      FROM events e,
           unnest(e.at, e.about, e.rev, e.kind, e.data) WITH ORDINALITY AS x (at, about, rev, kind, data, place)
     WHERE e.team = $1 AND e.seq > $2 AND e.seq - cardinality(e.about) + x.place > $2
     ORDER BY e.seq, x.place LIMIT $3";

const EVENTS_BY_SEQ: &str = "
    SELECT w.seq, e.at[w.place], e.about[w.place], e.rev[w.place], e.kind[w.place], e.data[w.place]
      FROM (SELECT n.seq, b.last, (n.seq - b.last + b.size)::int AS place
              FROM unnest($2::bigint[]) AS n (seq)
             CROSS JOIN LATERAL (SELECT e.seq AS last, cardinality(e.about) AS size FROM events e
                                  WHERE e.team = $1 AND e.seq >= n.seq ORDER BY e.seq LIMIT 1) b) w
      JOIN events e ON e.team = $1 AND e.seq = w.last";

/// Numbers events until the store closes.
pub(crate) async fn run_sequencer(ledger: Arc<SharedState>, mut closing: watch::Receiver<bool>) {
    let mut untidy = 0;
    loop {
        let nudged = tokio::select! {
            () = ledger.sequencer_wakeup.notified() => true,
            () = tokio::time::sleep(POLL_INTERVAL) => false,
            _ = closing.wait_for(|closing| *closing) => return,
        };
        match ledger.number_all_pending(&mut untidy).await {
            Ok(numbered) => {
                // Another node may have numbered this node's events; readers wait for that themselves.
                if numbered > 0 || nudged {
                    ledger.notify_event_subscribers();
                }
                tokio::time::sleep(ROUND_INTERVAL).await;
            }
            Err(error) => {
                tracing::warn!("events could not be numbered: {error:?}");
                tokio::time::sleep(10 * POLL_INTERVAL).await;
            }
        }
    }
}

impl SharedState {
    /// Wakes up the event subscribers on this node, for all teams.
    fn notify_event_subscribers(&self) {
        let handlers = self.event_subscribers.read().unwrap_or_else(PoisonError::into_inner);
        handlers.iter().for_each(|handler| handler(None));
    }

    /// Numbers all pending events. Returns how many blocks.
    async fn number_all_pending(&self, untidy: &mut usize) -> TxResult<usize> {
        let mut all = 0;
        while let Some(numbered) = self.number_round().await? {
            *untidy += numbered;
            all += numbered;
            if *untidy >= VACUUM_AFTER_BLOCKS {
                *untidy = 0;
                self.connections.client().await?.batch_execute(VACUUM_PENDING).await?;
            }
            if numbered < BLOCKS_PER_ROUND {
                break;
            }
        }
        Ok(all)
    }

    /// Runs one round. `None` when nothing is pending, or when another node is running one.
    async fn number_round(&self) -> TxResult<Option<usize>> {
        let mut client = self.connections.client().await?;
        if query_rows(&client, ANY_PENDING, &[]).await?.is_empty() {
            return Ok(None);
        }
        let tx = client.transaction().await?;
        let locked = query_rows(&tx, TRY_LOCK, &[]).await?;
        if !locked.first().map_or(Ok(false), |row| row.try_get(0))? {
            return Ok(None);
        }
        tx.batch_execute(ENABLE_HASH_JOIN).await?;
        let numbered = execute(&tx, NUMBER_PENDING, &[&(BLOCKS_PER_ROUND as i64)]).await?;
        mailonce_core::failpoint!("postgres-numbering");
        tx.commit().await.map_err(|error| TxError::at_commit(&error))?;
        mailonce_core::failpoint!("postgres-numbered");
        Ok(Some(numbered as usize))
    }

    /// Events after a sequence number, in order. They include all events committed before the call.
    pub(crate) async fn events(&self, team: TeamId, after: u64, limit: usize) -> TxResult<Vec<Event>> {
        self.wait_until_numbered(Some(team)).await?;
        self.events_after(&self.connections.client().await?, team, after, limit).await
    }

    /// Numbered events after a sequence number, in order.
    pub(crate) async fn events_after(
        &self,
        client: &(impl GenericClient + ?Sized),
        team: TeamId,
        after: u64,
        limit: usize,
    ) -> TxResult<Vec<Event>> {
        let (after, limit) = (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
        query_rows(client, EVENTS_AFTER, &[&team.0, &after, &limit]).await?.iter().map(read_event).collect()
    }

    /// The events with these sequence numbers.
    pub(crate) async fn events_by_seq(
        &self,
        client: &(impl GenericClient + ?Sized),
        team: TeamId,
        numbers: &[u64],
    ) -> TxResult<BTreeMap<u64, Event>> {
        let numbers: Vec<i64> = numbers.iter().map(|seq| *seq as i64).collect();
        let rows = query_rows(client, EVENTS_BY_SEQ, &[&team.0, &numbers]).await?;
        rows.iter().map(|row| read_event(row).map(|event| (event.seq, event))).collect()
    }

    /// Numbers the pending events of one team or of all, or waits while another node does.
    pub(crate) async fn wait_until_numbered(&self, team: Option<TeamId>) -> TxResult<()> {
        let begun = Instant::now();
        let Some(newest) = self.newest_pending(team).await? else { return Ok(()) };
        while begun.elapsed() < CATCH_UP_TIMEOUT {
            call_until_final!(self.number_round())?;
            let client = self.connections.client().await?;
            let left = match team {
                Some(team) => query_rows(&client, STILL_PENDING, &[&team.0, &newest]).await?,
                None => query_rows(&client, STILL_PENDING_OF_ALL, &[&newest]).await?,
            };
            if left.is_empty() {
                return Ok(());
            }
            drop(client);
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        Ok(())
    }

    async fn newest_pending(&self, team: Option<TeamId>) -> TxResult<Option<i64>> {
        let client = self.connections.client().await?;
        let newest = match team {
            Some(team) => query_rows(&client, NEWEST_PENDING, &[&team.0]).await?,
            None => query_rows(&client, NEWEST_PENDING_OF_ALL, &[]).await?,
        };
        Ok(newest.first().map(|row| row.try_get(0)).transpose()?)
    }
}

fn read_event(row: &Row) -> TxResult<Event> {
    let kind: &str = row.try_get(4)?;
    let event = NewEvent {
        kind: EventKind::parse(kind).ok_or_else(|| TxError::corrupt("the kind of an event"))?,
        at: Time(row.try_get(1)?),
        subject_id: row.try_get::<_, Uuid>(2)?,
        rev: row.try_get::<_, i32>(3)? as u32,
        data: read_json(row.try_get(5)?, "the data of an event")?,
    };
    Ok(Event { seq: row.try_get::<_, i64>(0)? as u64, event })
}
