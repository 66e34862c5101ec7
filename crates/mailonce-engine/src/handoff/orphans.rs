//! Orphans: handoffs that wait for a transport that no live node has, because it was renamed or removed.
//!
//! Each time a transport goes missing, its orphans are reported once: as an event, an escalation, a log line, in
//! `/readyz` and in the metrics. They are given up at the maximum age of a handoff. A node never decides about
//! attempts in doubt at a transport that it doesn't have.

use crate::handoff::{Handoffs, breaker::transport_state_json, transport_selector::OrphanedTransport};
use mailonce_core::{
    conversation::escalation::{Escalation, EscalationReason, EscalationSubject},
    handoff::{Handoff, HandoffState, action::HandoffAction, lease::OrphanBacklog},
    id::{EmailId, TeamId},
    limits,
    operation::IdempotentResult,
    ports::store::StoreError,
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind, TransportState},
    time::Time,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// How often the worker searches for missing transports.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Emails read per page.
const PAGE_SIZE: usize = 1_000;
/// How often waiting handoffs are scanned although their count didn't change, to give up those that waited too long.
const RESCAN_INTERVAL_MS: i64 = 60_000;
/// Every so many rounds, all open escalations are reviewed, including those that another process opened.
const CLOSE_EVERY_ROUNDS: u64 = 60;
/// How often a change to a record is retried after a conflict.
const MAX_CONFLICT_RETRIES: usize = 5;

/// The missing transports that this process knows of.
#[derive(Default)]
pub(crate) struct OrphanTracker(Mutex<OrphanState>);

#[derive(Default)]
struct OrphanState {
    rounds: u64,
    /// Since when each transport has been missing without interruption, by the boot clock.
    missing_since: BTreeMap<String, i64>,
    /// The transports that have been missing for long enough, with their backlogs.
    orphaned: Vec<OrphanedTransport>,
    /// The teams and transports with a backlog in the last round.
    waiting_pairs: BTreeSet<(TeamId, String)>,
    /// The count at the last scan of each transport, and when that was.
    last_scans: BTreeMap<String, (u64, i64)>,
}

impl OrphanTracker {
    fn state(&self) -> MutexGuard<'_, OrphanState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records which transports are missing now. Returns the backlogs of those missing for at least `grace_ms`.
    fn update(&self, missing: &[OrphanBacklog], grace_ms: i64, boot_ms: i64) -> Vec<OrphanBacklog> {
        let mut state = self.state();
        let names: BTreeSet<&String> = missing.iter().map(|orphans| &orphans.transport).collect();
        state.missing_since.retain(|name, _| names.contains(name));
        state.last_scans.retain(|name, _| names.contains(name));
        for name in names {
            state.missing_since.entry(name.clone()).or_insert(boot_ms);
        }
        let is_orphaned = |orphans: &&OrphanBacklog| {
            state.missing_since.get(&orphans.transport).is_some_and(|at| boot_ms - at >= grace_ms)
        };
        let orphaned: Vec<OrphanBacklog> = missing.iter().filter(is_orphaned).cloned().collect();
        let by_name = sum_by_transport(&orphaned);
        for backlog in by_name.iter().filter(|backlog| !state.orphaned.iter().any(|known| known.name == backlog.name)) {
            let OrphanedTransport { name, waiting, unknown } = backlog;
            tracing::warn!(transport = name, waiting, unknown, "emails wait for a transport that no node has");
        }
        for gone in state.orphaned.iter().filter(|known| !by_name.iter().any(|backlog| backlog.name == known.name)) {
            tracing::info!(transport = gone.name, "the transport is back, or no email waits for it any more");
        }
        state.orphaned = by_name;
        orphaned
    }

    /// Whether escalations must be reviewed: in the first round, when a team's backlog is gone, and periodically.
    fn should_close_escalations(&self, missing: &[OrphanBacklog]) -> bool {
        let mut state = self.state();
        let pairs = missing.iter().map(|orphans| (orphans.team, orphans.transport.clone())).collect();
        let gone = state.waiting_pairs.difference(&pairs).next().is_some();
        let is_periodic = state.rounds.is_multiple_of(CLOSE_EVERY_ROUNDS);
        state.rounds += 1;
        state.waiting_pairs = pairs;
        gone || is_periodic
    }

    /// Whether to scan the waiting handoffs of a transport now.
    fn should_scan(&self, name: &str, count: u64, boot_ms: i64) -> bool {
        let mut state = self.state();
        let is_recent = |&(scanned, at): &(u64, i64)| scanned == count && boot_ms - at < RESCAN_INTERVAL_MS;
        if state.last_scans.get(name).is_some_and(is_recent) {
            return false;
        }
        state.last_scans.insert(name.to_owned(), (count, boot_ms));
        true
    }
}

/// Adds up the backlogs of all teams by transport.
fn sum_by_transport(orphans: &[OrphanBacklog]) -> Vec<OrphanedTransport> {
    let mut all: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for one in orphans {
        let (waiting, unknown) = all.entry(&one.transport).or_default();
        (*waiting, *unknown) = (*waiting + one.waiting, *unknown + one.unknown);
    }
    let one =
        |(name, (waiting, unknown)): (&str, (u64, u64))| OrphanedTransport { name: name.to_owned(), waiting, unknown };
    all.into_iter().map(one).collect()
}

impl Handoffs {
    /// Searches for missing transports until `stop` changes.
    pub(crate) async fn run_orphan_worker(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            self.run_orphan_round().await;
            tokio::select! {
                biased;
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// The transports that have been missing for so long that their backlog counts as orphaned.
    pub fn orphaned_transports(&self) -> Vec<OrphanedTransport> {
        self.orphan_tracker.state().orphaned.clone()
    }

    /// The current backlogs of transports that neither this configuration nor a live node has.
    pub async fn missing_transports(&self) -> Result<Vec<OrphanedTransport>, StoreError> {
        Ok(sum_by_transport(&self.ctx.store.orphan_backlogs(&self.ctx.transports.all_names(), self.ctx.now()).await?))
    }

    /// One round: reports orphans, gives up those that waited too long, and closes escalations that no longer apply.
    pub async fn run_orphan_round(&self) {
        if let Err(error) = self.try_orphan_round().await {
            tracing::warn!(%error, "cannot check for missing transports");
        }
    }

    async fn try_orphan_round(&self) -> Result<(), StoreError> {
        let missing = self.ctx.store.orphan_backlogs(&self.ctx.transports.all_names(), self.ctx.now()).await?;
        // On a single node no other process can have the transport.
        let grace = if self.ctx.is_single_node { 0 } else { limits::ORPHANED_AFTER_MS };
        let boot_ms = self.ctx.time.boot_clock_ms();
        let orphaned = self.orphan_tracker.update(&missing, grace, boot_ms);
        if self.orphan_tracker.should_close_escalations(&missing) {
            self.close_orphan_escalations(&missing).await?;
        }
        let mut since: BTreeMap<(TeamId, String), Time> = BTreeMap::new();
        for orphans in &orphaned {
            let at = self.report_orphaned(orphans.team, &orphans.transport).await?;
            since.insert((orphans.team, orphans.transport.clone()), at);
        }
        for OrphanedTransport { name, waiting, unknown } in sum_by_transport(&orphaned) {
            if self.orphan_tracker.should_scan(&name, waiting + unknown, boot_ms) {
                self.scan_orphaned_handoffs(&name, &since).await?;
            }
        }
        Ok(())
    }

    /// Records for a team that a transport is missing, and opens an escalation once. Returns since when it is missing.
    async fn report_orphaned(&self, team: TeamId, transport: &str) -> Result<Time, StoreError> {
        let since = self.mark_orphaned(team, transport).await?;
        let escalation = orphan_escalation(transport, since);
        if self.ctx.store.record_by_name(team, RecordKind::Escalation, &escalation.dedup_name()).await?.is_none() {
            self.ctx.ensure_open_escalation(team, escalation).await?;
        }
        Ok(since)
    }

    /// Records since when a team's transport is missing, unless that is already recorded.
    async fn mark_orphaned(&self, team: TeamId, transport: &str) -> Result<Time, StoreError> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let (kind, now) = (RecordKind::Transport, self.ctx.now());
            let known = self.ctx.store.record_by_name(team, kind, transport).await?;
            let old_state: TransportState = known.as_ref().map(transport_state).unwrap_or_default();
            if let Some(since) = old_state.missing_since {
                return Ok(since);
            }
            let json = transport_state_json(&TransportState { missing_since: Some(now), ..old_state })?;
            let written = if let Some(record) = known {
                let changed = self.ctx.store.change_record(record.edit(json), None, now).await?;
                matches!(changed, IdempotentResult::Done(RecordChangeResult::Changed(_)))
            } else {
                let (id, name) = (self.ctx.new_id(now), transport.to_owned());
                let record = Record { team, kind, id, name, rev: 1, created_at: now, json };
                matches!(
                    self.ctx.store.create_record(record, None).await?,
                    IdempotentResult::Done(CreateRecordResult::Created(_))
                )
            };
            if written {
                return Ok(now);
            }
        }
        Err(StoreError::Unreachable(format!(
            "the record of the transport {transport} kept changing while it was marked as missing"
        )))
    }

    /// Since when a team's transport is missing; `None` when it is not.
    pub(crate) async fn orphaned_since(
        &self,
        team: TeamId,
        transport: Option<&str>,
    ) -> Result<Option<Time>, StoreError> {
        let Some(transport) = transport else { return Ok(None) };
        let record = self.ctx.store.record_by_name(team, RecordKind::Transport, transport).await?;
        Ok(record.as_ref().and_then(|record| transport_state(record).missing_since))
    }

    /// Closes the escalations about transports that are back or have no backlog any more.
    async fn close_orphan_escalations(&self, missing: &[OrphanBacklog]) -> Result<(), StoreError> {
        for team in self.ctx.store.teams().await? {
            let mut before = None;
            loop {
                let page = self.ctx.store.records(team.id, RecordKind::Transport, before, limits::PAGE_ROWS).await?;
                let is_missing =
                    |record: &Record| missing.iter().any(|one| one.team == team.id && one.transport == record.name);
                for record in page.rows.iter().filter(|record| !is_missing(record)) {
                    self.close_orphan_escalation(record).await?;
                }
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn close_orphan_escalation(&self, record: &Record) -> Result<(), StoreError> {
        let old_state = transport_state(record);
        let Some(since) = old_state.missing_since else { return Ok(()) };
        let json = transport_state_json(&TransportState { missing_since: None, ..old_state })?;
        let _changed_or_raced = self.ctx.store.change_record(record.edit(json), None, self.ctx.now()).await?;
        let name = orphan_escalation(&record.name, since).dedup_name();
        match self.ctx.store.record_by_name(record.team, RecordKind::Escalation, &name).await? {
            Some(escalation) => self.ctx.review_escalation(&escalation).await,
            None => Ok(()),
        }
    }

    /// Reports each handoff that waits for a missing transport, and gives up those that waited too long.
    async fn scan_orphaned_handoffs(
        &self,
        transport: &str,
        since: &BTreeMap<(TeamId, String), Time>,
    ) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self.ctx.store.emails_open_at_transport(transport, after, PAGE_SIZE).await?;
            for (team, id) in &page {
                if let Some(since) = since.get(&(*team, transport.to_owned())) {
                    self.report_or_give_up_orphan(*team, *id, transport, *since).await?;
                }
            }
            after = page.last().copied().filter(|_| page.len() == PAGE_SIZE);
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn report_or_give_up_orphan(
        &self,
        team: TeamId,
        id: EmailId,
        transport: &str,
        since: Time,
    ) -> Result<(), StoreError> {
        let Some(email) = self.ctx.store.email(team, id).await? else { return Ok(()) };
        let is_open_here = |handoff: &&Handoff| {
            handoff.transport == transport && (handoff.is_waiting() || handoff.state == HandoffState::Unknown)
        };
        for handoff in email.handoffs.iter().filter(is_open_here) {
            let (number, transport) = (handoff.number, transport.to_owned());
            if handoff.progress.transport_missing_since != Some(since) {
                let action = HandoffAction::ReportOrphan { number, transport: transport.clone(), since };
                let _reported = self.ctx.store.apply_action(team, id, action, None, self.ctx.now()).await?;
            }
            // Nothing is given up while the clock is not trusted. The store refuses it under a stop.
            if self.ctx.time.is_trusted() && handoff.is_orphan_expired(self.ctx.deps.handoff.max_age_ms, self.ctx.now())
            {
                let action =
                    HandoffAction::GiveUpOrphan { number, transport, max_age_ms: self.ctx.deps.handoff.max_age_ms };
                let _given_up = self.ctx.store.apply_action(team, id, action, None, self.ctx.now()).await?;
            }
        }
        Ok(())
    }
}

/// Decodes the record of a transport.
fn transport_state(record: &Record) -> TransportState {
    serde_json::from_str(&record.json).unwrap_or_default()
}

fn orphan_escalation(transport: &str, since: Time) -> Escalation {
    let about =
        EscalationSubject { transport: Some(transport.to_owned()), since: Some(since), ..EscalationSubject::default() };
    Escalation::open(EscalationReason::Orphaned, about, None)
}
