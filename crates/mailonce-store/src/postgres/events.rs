//! Events: verbs leave them unnumbered, and a sequencer gives them their places.
//!
//! Every node runs a sequencer; an advisory lock lets one at a time do a round, and goes with its transaction, so
//! there is no leader to mourn. The lock only saves work: a team's counter is a row that is locked until the commit,
//! so places are without gaps and become visible in their order whoever gives them out.

use deadpool_postgres::GenericClient;
use mailonce_core::{
    event::{Event, Kind, NewEvent},
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

use super::{
    Ledger,
    row::read_json,
    trouble::{Tried, Trouble, insist},
    write::{ask, run},
};

/// Pending blocks one round takes at most.
const ROUND: usize = 256;
/// Rounds are at least so far apart, so that each has something to do.
const APART: Duration = Duration::from_millis(15);
/// How long the sequencer sleeps when nobody wakes it: other nodes leave events too, and may die before they number
/// them.
const POLL: Duration = Duration::from_millis(50);
/// How long a reader waits for events that were committed before it asked.
const PATIENCE: Duration = Duration::from_secs(1);
/// Numbered blocks after which their old table is tidied: every round passes over what the last ones left behind.
const TIDY: usize = 5_000;

const ANY_PENDING: &str = "SELECT FROM events_pending LIMIT 1";
const TRY_LOCK: &str = "SELECT pg_try_advisory_xact_lock(7883366246)";
/// One team's blocks in the order in which they were left. The joins are of sets as large as the round.
const NUMBER: &str = "
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
const HASH_JOIN: &str = "SET LOCAL enable_hashjoin = on";
const TIDY_UP: &str = "VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) events_pending";

const NEWEST_PENDING: &str = "SELECT n FROM events_pending WHERE team = $1 ORDER BY n DESC LIMIT 1";
const STILL_PENDING: &str = "SELECT FROM events_pending WHERE team = $1 AND n <= $2 LIMIT 1";
/// The same for all teams.
const NEWEST_OF_ALL: &str = "SELECT max(n) FROM events_pending HAVING max(n) IS NOT NULL";
const STILL_OF_ALL: &str = "SELECT FROM events_pending WHERE n <= $1 LIMIT 1";
const EVENTS: &str = "
    SELECT e.seq - cardinality(e.about) + x.place, x.at, x.about, x.rev, x.kind, x.data
      FROM events e,
           unnest(e.at, e.about, e.rev, e.kind, e.data) WITH ORDINALITY AS x (at, about, rev, kind, data, place)
     WHERE e.team = $1 AND e.seq > $2 AND e.seq - cardinality(e.about) + x.place > $2
     ORDER BY e.seq, x.place LIMIT $3";

const NUMBERED: &str = "
    SELECT w.seq, e.at[w.place], e.about[w.place], e.rev[w.place], e.kind[w.place], e.data[w.place]
      FROM (SELECT n.seq, b.last, (n.seq - b.last + b.size)::int AS place
              FROM unnest($2::bigint[]) AS n (seq)
             CROSS JOIN LATERAL (SELECT e.seq AS last, cardinality(e.about) AS size FROM events e
                                  WHERE e.team = $1 AND e.seq >= n.seq ORDER BY e.seq LIMIT 1) b) w
      JOIN events e ON e.team = $1 AND e.seq = w.last";

/// Numbers events until the store closes.
pub(super) async fn sequencer(ledger: Arc<Ledger>, mut closing: watch::Receiver<bool>) {
    let mut untidy = 0;
    loop {
        let nudged = tokio::select! {
            () = ledger.nudge.notified() => true,
            () = tokio::time::sleep(POLL) => false,
            _ = closing.wait_for(|closing| *closing) => return,
        };
        match ledger.number_all(&mut untidy).await {
            Ok(numbered) => {
                // Another node may have numbered what this one left; whoever reads it waits for that.
                if numbered > 0 || nudged {
                    ledger.tell_of_events();
                }
                tokio::time::sleep(APART).await;
            }
            Err(trouble) => {
                tracing::warn!("events could not be numbered: {trouble:?}");
                tokio::time::sleep(10 * POLL).await;
            }
        }
    }
}

impl Ledger {
    /// Tells this node that there are new events, whosever they are.
    fn tell_of_events(&self) {
        let hearers = self.event_hearers.read().unwrap_or_else(PoisonError::into_inner);
        hearers.iter().for_each(|hearer| hearer(None));
    }

    /// Numbers what is pending. How many blocks.
    async fn number_all(&self, untidy: &mut usize) -> Tried<usize> {
        let mut all = 0;
        while let Some(numbered) = self.number().await? {
            *untidy += numbered;
            all += numbered;
            if *untidy >= TIDY {
                *untidy = 0;
                self.link.client().await?.batch_execute(TIDY_UP).await?;
            }
            if numbered < ROUND {
                break;
            }
        }
        Ok(all)
    }

    /// One round. `None` when nothing is pending, or another node is at it.
    async fn number(&self) -> Tried<Option<usize>> {
        let mut client = self.link.client().await?;
        if ask(&client, ANY_PENDING, &[]).await?.is_empty() {
            return Ok(None);
        }
        let tx = client.transaction().await?;
        let locked = ask(&tx, TRY_LOCK, &[]).await?;
        if !locked.first().map_or(Ok(false), |row| row.try_get(0))? {
            return Ok(None);
        }
        tx.batch_execute(HASH_JOIN).await?;
        let numbered = run(&tx, NUMBER, &[&(ROUND as i64)]).await?;
        mailonce_core::failpoint!("postgres-numbering");
        tx.commit().await.map_err(|error| Trouble::at_commit(&error))?;
        mailonce_core::failpoint!("postgres-numbered");
        Ok(Some(numbered as usize))
    }

    /// Events after a number, in order. Those that were committed before the call are among them.
    pub(super) async fn events(&self, team: TeamId, after: u64, limit: usize) -> Tried<Vec<Event>> {
        self.catch_up(Some(team)).await?;
        self.events_after(&self.link.client().await?, team, after, limit).await
    }

    /// Events after a number that have theirs, in order.
    pub(super) async fn events_after(
        &self,
        client: &(impl GenericClient + ?Sized),
        team: TeamId,
        after: u64,
        limit: usize,
    ) -> Tried<Vec<Event>> {
        let (after, limit) = (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
        ask(client, EVENTS, &[&team.0, &after, &limit]).await?.iter().map(read_event).collect()
    }

    /// The events with these numbers.
    pub(super) async fn numbered_events(
        &self,
        client: &(impl GenericClient + ?Sized),
        team: TeamId,
        numbers: &[u64],
    ) -> Tried<BTreeMap<u64, Event>> {
        let numbers: Vec<i64> = numbers.iter().map(|seq| *seq as i64).collect();
        let rows = ask(client, NUMBERED, &[&team.0, &numbers]).await?;
        rows.iter().map(|row| read_event(row).map(|event| (event.seq, event))).collect()
    }

    /// Numbers the events of a team, or of all, or waits while another does it.
    pub(super) async fn catch_up(&self, team: Option<TeamId>) -> Tried<()> {
        let begun = Instant::now();
        let Some(newest) = self.newest_pending(team).await? else { return Ok(()) };
        while begun.elapsed() < PATIENCE {
            insist!(self.number())?;
            let client = self.link.client().await?;
            let left = match team {
                Some(team) => ask(&client, STILL_PENDING, &[&team.0, &newest]).await?,
                None => ask(&client, STILL_OF_ALL, &[&newest]).await?,
            };
            if left.is_empty() {
                return Ok(());
            }
            drop(client);
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        Ok(())
    }

    async fn newest_pending(&self, team: Option<TeamId>) -> Tried<Option<i64>> {
        let client = self.link.client().await?;
        let newest = match team {
            Some(team) => ask(&client, NEWEST_PENDING, &[&team.0]).await?,
            None => ask(&client, NEWEST_OF_ALL, &[]).await?,
        };
        Ok(newest.first().map(|row| row.try_get(0)).transpose()?)
    }
}

fn read_event(row: &Row) -> Tried<Event> {
    let kind: &str = row.try_get(4)?;
    let event = NewEvent {
        kind: Kind::parse(kind).ok_or_else(|| Trouble::unreadable("the kind of an event"))?,
        at: Time(row.try_get(1)?),
        about: row.try_get::<_, Uuid>(2)?,
        rev: row.try_get::<_, i32>(3)? as u32,
        data: read_json(row.try_get(5)?, "the data of an event")?,
    };
    Ok(Event { seq: row.try_get::<_, i64>(0)? as u64, event })
}
