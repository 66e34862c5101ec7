//! The indexer: follows the events of every team and adds a document for each new mail.
//!
//! Events have no gaps and no order problems, so that the number of the last indexed event is all that a restart needs.
//! Every node runs an indexer. The store lets one of them record an event as indexed; the others repeat their round.

use mailonce_core::{
    events::event::{Event, EventKind},
    id::TeamId,
    ports::store::StoreError,
    search::{SearchBacklog, SearchKind, SearchRef, SearchSource, document::SearchDocument},
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};

use super::Search;
use crate::runtime::team_round::TeamRound;

/// How many teams one round indexes.
const TEAMS_PER_ROUND: usize = 32;
/// How many events of a team one round reads.
const EVENTS_PER_ROUND: usize = 512;
/// How many documents one commit adds. Few, because an accept waits for the commit before it.
const DOCUMENTS_PER_COMMIT: usize = 64;
/// Bytes of text that one commit adds.
const BYTES_PER_COMMIT: usize = 128 * 1024;
/// The shortest time between two rounds. Under load, a round then has many mails.
const MIN_ROUND_INTERVAL: Duration = Duration::from_millis(100);
/// How long the indexer sleeps without a wake-up.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Accepted emails per second above which the indexer gives way.
const BUSY_ACCEPTS_PER_S: f64 = 300.0;
/// How much longer than its work the indexer pauses while the server is busy. It then uses a small part of a core and of
/// the store's writer, and catches up when the load ends.
const BUSY_PAUSE_FACTOR: u32 = 15;
/// How long the indexer pauses after an error of the store.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// The mail that an event makes searchable.
fn new_mail(event: &Event) -> Option<SearchRef> {
    let kind = match event.event.kind {
        // A held email has no other event.
        EventKind::EmailAccepted | EventKind::EmailHeld => SearchKind::Email,
        EventKind::MessageReceived => SearchKind::Message,
        _ => return None,
    };
    Some(SearchRef { kind, id: event.event.subject_id })
}

/// Measures how many emails are accepted per second.
struct AcceptRate {
    accepted: u64,
    measured_at: Instant,
}

impl AcceptRate {
    /// The rate since the last call.
    fn measure(&mut self, accepted: u64) -> f64 {
        let elapsed = self.measured_at.elapsed().as_secs_f64().max(0.001);
        let rate = (accepted - self.accepted) as f64 / elapsed;
        *self = Self { accepted, measured_at: Instant::now() };
        rate
    }
}

impl Search {
    /// Indexes new mail until `stop` changes. Returns at once if search is off.
    pub async fn run_indexer(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        if !self.ctx.deps.search_enabled {
            return;
        }
        let mut rate = AcceptRate { accepted: self.ctx.metrics.accepted_count(), measured_at: Instant::now() };
        while !*stop.borrow() {
            let started = Instant::now();
            let round = self.index_round(&stop).await;
            let is_busy = rate.measure(self.ctx.metrics.accepted_count()) > BUSY_ACCEPTS_PER_S;
            let has_more = matches!(round, Ok(true));
            let pause = match round {
                Ok(true) if is_busy => started.elapsed() * BUSY_PAUSE_FACTOR,
                Ok(true) => Duration::ZERO,
                Ok(false) => POLL_INTERVAL,
                Err(error) => {
                    tracing::warn!(%error, "indexing mail for search failed");
                    ERROR_PAUSE
                }
            };
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                () = self.wakeup.notified(), if !has_more => tokio::time::sleep_until(started + MIN_ROUND_INTERVAL).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Indexes everything that was committed before the call. For callers that control time themselves.
    pub async fn index_all(&self) -> Result<(), StoreError> {
        for team in self.ctx.store.teams().await? {
            // Stores that number events later number them before they return any.
            self.ctx.store.events(team.id, 0, 1).await?;
        }
        let (_sender, stop) = watch::channel(false);
        while self.index_round(&stop).await? {}
        Ok(())
    }

    /// Indexes some mail of the teams that are behind. Returns whether there may be more, or the last error after the
    /// other teams had their turn.
    async fn index_round(&self, stop: &watch::Receiver<bool>) -> Result<bool, StoreError> {
        let backlog = self.ctx.store.search_backlog(TEAMS_PER_ROUND).await?;
        let mut round = TeamRound::default();
        for behind in &backlog {
            if *stop.borrow() {
                return Ok(false);
            }
            round.record(behind.team, self.index_team(*behind).await);
            if round.must_end() {
                break;
            }
        }
        round.finish(!backlog.is_empty())
    }

    /// Indexes the next events of a team.
    async fn index_team(&self, behind: SearchBacklog) -> Result<(), StoreError> {
        let SearchBacklog { team, indexed_until: mut since } = behind;
        let events = self.ctx.store.events(team, since, EVENTS_PER_ROUND).await?;
        let mails: Vec<(u64, SearchRef)> =
            events.iter().filter_map(|event| Some((event.seq, new_mail(event)?))).collect();
        let mut documents = self.documents(team, mails.iter().map(|(_, mail)| *mail).collect()).await?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for (seq, mail) in mails {
            let Some(document) = documents.remove(&mail) else { continue };
            bytes += document.text.len();
            batch.push(document);
            if batch.len() == DOCUMENTS_PER_COMMIT || bytes > BYTES_PER_COMMIT {
                if !self.commit(team, (since, seq), std::mem::take(&mut batch)).await? {
                    return Ok(());
                }
                (since, bytes) = (seq, 0);
            }
        }
        let last = events.last().map_or(since, |event| event.seq);
        if last > since {
            self.commit(team, (since, last), batch).await?;
        }
        Ok(())
    }

    async fn commit(
        &self,
        team: TeamId,
        events: (u64, u64),
        documents: Vec<SearchDocument>,
    ) -> Result<bool, StoreError> {
        let count = documents.len();
        let is_first = self.ctx.store.index_documents(team, events, documents).await?;
        if is_first {
            self.ctx.metrics.record_indexed(count as u64);
        }
        Ok(is_first)
    }

    /// The documents of mails that exist.
    async fn documents(
        &self,
        team: TeamId,
        mut mails: Vec<SearchRef>,
    ) -> Result<HashMap<SearchRef, SearchDocument>, StoreError> {
        let mut documents = HashMap::new();
        while !mails.is_empty() {
            let sources = self.ctx.store.search_sources(team, mails.clone()).await?;
            // Those before the last one that was returned do not exist any more.
            let Some(last) = sources.last().map(SearchSource::reference) else { break };
            for source in sources {
                documents.insert(source.reference(), self.document(source).await);
            }
            let done = mails.iter().position(|mail| *mail == last).map_or(mails.len(), |at| at + 1);
            mails.drain(..done);
        }
        Ok(documents)
    }
}
