//! Orphans: handoffs that wait for a transport which no live node has, because it was renamed or removed.
//!
//! They are reported once for each time the transport goes missing (event, question for a person, log, `/readyz`, metrics)
//! and given up when they waited for as long as any handoff is tried. A node never decides about what is in doubt at a
//! transport that it does not have.

use mailonce_core::{
    conversation::escalation::{Escalation, Matter, Reason},
    dispatch::Act,
    handoff::{Handoff, State},
    id::{EmailId, TeamId},
    limits,
    port::store::{Once, Orphans, StoreError},
    record::{Created, Record, RecordChange, RecordKind, WayState},
    time::Time,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

use crate::{Engine, breaker::as_json};

/// How often missing transports are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Emails that are read in one page.
const AT_ONCE: usize = 1_000;
/// How often what waits is walked through although its count did not change, to give up what waited too long.
const WALK_EVERY_MS: i64 = 60_000;
/// Rounds after which questions that nobody here opened are looked at too.
const CLOSE_EVERY: u64 = 60;
/// How often a record that raced with another change is tried anew.
const TRIES: usize = 5;

/// What waits for one missing transport, all teams together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedTransport {
    /// Its name.
    pub name: String,
    /// Handoffs that are due or will be.
    pub waiting: u64,
    /// Handoffs whose outcome is unknown.
    pub unknown: u64,
}

/// Transports that are missing, as far as this process has seen.
#[derive(Default)]
pub(crate) struct OrphanWatch(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    rounds: u64,
    /// Since when each transport is missing without a break, by the boot clock.
    missing: BTreeMap<String, i64>,
    /// Those that were missing for long enough, with what waits.
    orphaned: Vec<OrphanedTransport>,
    /// What each team had waiting in the last round.
    pairs: BTreeSet<(TeamId, String)>,
    /// How much waited when it was last walked through, and when.
    walked: BTreeMap<String, (u64, i64)>,
}

impl OrphanWatch {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what is missing now. The part of it that is missing for as long as `grace_ms`.
    fn note(&self, missing: &[Orphans], grace_ms: i64, even: i64) -> Vec<Orphans> {
        let mut seen = self.seen();
        let names: BTreeSet<&String> = missing.iter().map(|orphans| &orphans.transport).collect();
        seen.missing.retain(|name, _| names.contains(name));
        seen.walked.retain(|name, _| names.contains(name));
        for name in names {
            seen.missing.entry(name.clone()).or_insert(even);
        }
        let long = |orphans: &&Orphans| seen.missing.get(&orphans.transport).is_some_and(|at| even - at >= grace_ms);
        let orphaned: Vec<Orphans> = missing.iter().filter(long).cloned().collect();
        let by_name = summed(&orphaned);
        for one in by_name.iter().filter(|one| !seen.orphaned.iter().any(|known| known.name == one.name)) {
            let OrphanedTransport { name, waiting, unknown } = one;
            tracing::warn!(transport = name, waiting, unknown, "mail waits for a transport that no node has");
        }
        for gone in seen.orphaned.iter().filter(|known| !by_name.iter().any(|one| one.name == known.name)) {
            tracing::info!(transport = gone.name, "no mail waits for a missing transport of this name any more");
        }
        seen.orphaned = by_name;
        orphaned
    }

    /// Whether questions must be looked at: at the first round, when a team has nothing more waiting, and now and then.
    fn may_close(&self, missing: &[Orphans]) -> bool {
        let mut seen = self.seen();
        let pairs = missing.iter().map(|orphans| (orphans.team, orphans.transport.clone())).collect();
        let gone = seen.pairs.difference(&pairs).next().is_some();
        let now_and_then = seen.rounds.is_multiple_of(CLOSE_EVERY);
        seen.rounds += 1;
        seen.pairs = pairs;
        gone || now_and_then
    }

    /// Whether what waits for a transport is to be walked through now.
    fn may_walk(&self, name: &str, count: u64, even: i64) -> bool {
        let mut seen = self.seen();
        let same = |&(walked, at): &(u64, i64)| walked == count && even - at < WALK_EVERY_MS;
        if seen.walked.get(name).is_some_and(same) {
            return false;
        }
        seen.walked.insert(name.to_owned(), (count, even));
        true
    }
}

/// What waits for each transport, all teams together.
fn summed(orphans: &[Orphans]) -> Vec<OrphanedTransport> {
    let mut all: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for one in orphans {
        let (waiting, unknown) = all.entry(&one.transport).or_default();
        (*waiting, *unknown) = (*waiting + one.waiting, *unknown + one.unknown);
    }
    let one =
        |(name, (waiting, unknown)): (&str, (u64, u64))| OrphanedTransport { name: name.to_owned(), waiting, unknown };
    all.into_iter().map(one).collect()
}

impl Engine {
    /// Looks for missing transports until `stop` changes.
    pub(crate) async fn look_after_orphans(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            self.tend_orphans().await;
            tokio::select! {
                biased;
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Transports that are missing for so long that what waits for them counts as orphaned.
    pub fn orphaned_transports(&self) -> Vec<OrphanedTransport> {
        self.orphan_watch.seen().orphaned.clone()
    }

    /// What waits for transports that neither this configuration nor a live node has, at this moment.
    pub async fn missing_transports(&self) -> Result<Vec<OrphanedTransport>, StoreError> {
        Ok(summed(&self.store.orphans(&self.ways.all_names(), self.now()).await?))
    }

    /// One round: reports what is orphaned, gives up what waited too long, and closes questions that answered themselves.
    pub async fn tend_orphans(&self) {
        if let Err(error) = self.tend_missing().await {
            tracing::warn!(%error, "looking for missing transports");
        }
    }

    async fn tend_missing(&self) -> Result<(), StoreError> {
        let missing = self.store.orphans(&self.ways.all_names(), self.now()).await?;
        // Where nobody else uses the ledger nobody else can have the transport.
        let grace = if self.alone { 0 } else { limits::ORPHANED_AFTER_MS };
        let even = self.time.even();
        let orphaned = self.orphan_watch.note(&missing, grace, even);
        if self.orphan_watch.may_close(&missing) {
            self.close_questions(&missing).await?;
        }
        let mut since: BTreeMap<(TeamId, String), Time> = BTreeMap::new();
        for orphans in &orphaned {
            let at = self.report(orphans.team, &orphans.transport).await?;
            since.insert((orphans.team, orphans.transport.clone()), at);
        }
        for OrphanedTransport { name, waiting, unknown } in summed(&orphaned) {
            if self.orphan_watch.may_walk(&name, waiting + unknown, even) {
                self.walk(&name, &since).await?;
            }
        }
        Ok(())
    }

    /// Notes for a team that a transport is missing and asks a person, once. Since when it is missing.
    async fn report(&self, team: TeamId, transport: &str) -> Result<Time, StoreError> {
        let since = self.mark_orphaned(team, transport).await?;
        let question = orphan_question(transport, since);
        if self.store.record_named(team, RecordKind::Escalation, &question.name()).await?.is_none() {
            self.open_escalation(team, question).await?;
        }
        Ok(since)
    }

    /// Writes down since when a team's transport is missing, unless that is known.
    async fn mark_orphaned(&self, team: TeamId, transport: &str) -> Result<Time, StoreError> {
        for _ in 0..TRIES {
            let (kind, now) = (RecordKind::Transport, self.now());
            let known = self.store.record_named(team, kind, transport).await?;
            let was: WayState = known.as_ref().map(read).unwrap_or_default();
            if let Some(since) = was.orphaned {
                return Ok(since);
            }
            let about = as_json(&WayState { orphaned: Some(now), ..was })?;
            let written = if let Some(record) = known {
                let changed = self.store.change_record(record.edit(about), None, now).await?;
                matches!(changed, Once::Done(RecordChange::Changed(_)))
            } else {
                let (id, name) = (self.new_id(now), transport.to_owned());
                let record = Record { team, kind, id, name, rev: 1, created_at: now, about };
                matches!(self.store.create_record(record, None).await?, Once::Done(Created::Made(_)))
            };
            if written {
                return Ok(now);
            }
        }
        Err(StoreError::Unreachable(format!("the record of the transport {transport} changes too fast")))
    }

    /// Since when mail of a team waits for a transport that is missing.
    pub(crate) async fn orphaned_since(
        &self,
        team: TeamId,
        transport: Option<&str>,
    ) -> Result<Option<Time>, StoreError> {
        let Some(transport) = transport else { return Ok(None) };
        let record = self.store.record_named(team, RecordKind::Transport, transport).await?;
        Ok(record.as_ref().and_then(|record| read(record).orphaned))
    }

    /// Closes the questions about transports that are back, or for which nothing waits any more.
    async fn close_questions(&self, missing: &[Orphans]) -> Result<(), StoreError> {
        for team in self.store.teams().await? {
            let mut before = None;
            loop {
                let page = self.store.records(team.id, RecordKind::Transport, before, limits::PAGE_ROWS).await?;
                let still =
                    |record: &Record| missing.iter().any(|one| one.team == team.id && one.transport == record.name);
                for record in page.rows.iter().filter(|record| !still(record)) {
                    self.close_question(record).await?;
                }
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn close_question(&self, record: &Record) -> Result<(), StoreError> {
        let was = read(record);
        let Some(since) = was.orphaned else { return Ok(()) };
        let about = as_json(&WayState { orphaned: None, ..was })?;
        let _changed_or_raced = self.store.change_record(record.edit(about), None, self.now()).await?;
        let name = orphan_question(&record.name, since).name();
        match self.store.record_named(record.team, RecordKind::Escalation, &name).await? {
            Some(question) => self.tend(&question).await,
            None => Ok(()),
        }
    }

    /// Reports each handoff that waits for a missing transport, and gives up those that waited too long.
    async fn walk(&self, transport: &str, since: &BTreeMap<(TeamId, String), Time>) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self.store.open_at(transport, after, AT_ONCE).await?;
            for (team, id) in &page {
                if let Some(since) = since.get(&(*team, transport.to_owned())) {
                    self.surface(*team, *id, transport, *since).await?;
                }
            }
            after = page.last().copied().filter(|_| page.len() == AT_ONCE);
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn surface(&self, team: TeamId, id: EmailId, transport: &str, since: Time) -> Result<(), StoreError> {
        let Some(email) = self.store.email(team, id).await? else { return Ok(()) };
        let here = |handoff: &&Handoff| {
            handoff.transport == transport && (handoff.is_waiting() || handoff.state == State::Unknown)
        };
        for handoff in email.handoffs.iter().filter(here) {
            let (number, transport) = (handoff.number, transport.to_owned());
            if handoff.work.orphaned != Some(since) {
                let act = Act::Orphan { number, transport: transport.clone(), since };
                let _reported = self.store.act(team, id, act, None, self.now()).await?;
            }
            // Nothing is given up by a clock that nobody can trust, nor while hand-off rests.
            let may_end = self.time.is_sure() && !self.is_paused();
            if may_end && handoff.orphan_is_over(self.outside.max_age_ms, self.now()) {
                let act = Act::GiveUpOrphan { number, transport, max_age_ms: self.outside.max_age_ms };
                let _given_up = self.store.act(team, id, act, None, self.now()).await?;
            }
        }
        Ok(())
    }
}

/// What a record says of a transport.
fn read(record: &Record) -> WayState {
    serde_json::from_str(&record.about).unwrap_or_default()
}

fn orphan_question(transport: &str, since: Time) -> Escalation {
    let about = Matter { transport: Some(transport.to_owned()), since: Some(since), ..Matter::default() };
    Escalation::open(Reason::Orphaned, about, None)
}
