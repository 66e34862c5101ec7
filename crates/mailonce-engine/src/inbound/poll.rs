//! Polls providers for received mail, in case a webhook was lost.
//!
//! Each polled source has a record with its cursor. A provider may add a mail to its list out of order. So each round
//! reads an hour further back than the previous one and skips the mails that it has already seen. A polled mail has
//! the same dedupe key as its webhook. Whichever arrives first creates the delivery; the other is a duplicate.
//!
//! The rev of the record lets one node poll a source at a time. Two nodes that poll the same source do no harm.

use crate::{
    access::{
        poll_cursor::PollCursor,
        sources::{SourceDetails, SourceRef},
    },
    inbound::Inbound,
    runtime::records,
};
use mailonce_core::{
    id::{SourceId, TeamId},
    inbound::{
        delivery::Intake,
        provider_mail::{MailListEntry, MailListPage, ProviderAccount},
    },
    operation::IdempotentResult,
    ports::store::StoreError,
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
    time::Time,
};
use mailonce_mail::hooks;
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

/// Mail older than its source is not collected. This is the allowance for clock differences, in milliseconds.
const START_SLACK_MS: i64 = 300_000;
/// Pages per run. A longer round continues at once in the next run.
const MAX_PAGES: usize = 20;
/// How long other nodes leave a source alone after a page was requested, in milliseconds.
const POLL_LEASE_MS: i64 = 120_000;
/// The delay after a store error, in milliseconds.
const RETRY_DELAY_MS: i64 = 5_000;
/// How often the worker checks which sources are due.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the worker reloads the list of sources, in milliseconds.
const RELOAD_INTERVAL_MS: i64 = 60_000;
/// How many sources are polled concurrently.
const MAX_CONCURRENT_POLLS: usize = 4;
/// How many source records are read per query.
const PAGE_SIZE: usize = 100;

/// A source that is polled.
#[derive(Clone)]
struct PolledSource {
    team: TeamId,
    id: SourceId,
    /// When to poll it next.
    due: Time,
}

/// One poll of a source, with the cursor to save.
struct PollRun {
    source: SourceRef,
    account: ProviderAccount,
    interval: i64,
    record: Record,
    cursor: PollCursor,
}

impl Inbound {
    /// Polls providers for received mail until `stop` changes.
    pub async fn poll_sources(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut sources: Vec<PolledSource> = Vec::new();
        let mut reload_at = 0;
        while !*stop.borrow() {
            if self.ctx.time.boot_clock_ms() >= reload_at {
                match self.polled_sources().await {
                    Ok(found) => sources = found,
                    Err(error) => tracing::warn!(%error, "could not load the sources to poll"),
                }
                reload_at = self.ctx.time.boot_clock_ms() + RELOAD_INTERVAL_MS;
            }
            self.poll_due_sources(&mut sources).await;
            tokio::select! {
                biased;
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                () = self.ctx.inbound.fetch_limiter.sources_changed.notified() => reload_at = 0,
                _ = stop.changed() => {}
            }
        }
    }

    /// Polls every source that is due, a few at a time.
    async fn poll_due_sources(self: &Arc<Self>, sources: &mut [PolledSource]) {
        let now = self.ctx.now();
        for chunk in sources.chunks_mut(MAX_CONCURRENT_POLLS) {
            let mut tasks = JoinSet::new();
            for (index, source) in chunk.iter().enumerate().filter(|(_, source)| source.due <= now) {
                let (inbound, PolledSource { team, id, .. }) = (Arc::clone(self), source.clone());
                tasks.spawn(async move { (index, inbound.poll_source(team, id).await) });
            }
            while let Some(ended) = tasks.join_next().await {
                match ended {
                    Ok((index, Ok(PollOutcome { due, .. }))) => chunk[index].due = due,
                    Ok((index, Err(error))) => {
                        tracing::warn!(%error, source = %chunk[index].id, "polling a source failed and is retried");
                        chunk[index].due = now.plus(RETRY_DELAY_MS);
                    }
                    Err(error) => tracing::error!(%error, "a polling task panicked"),
                }
            }
        }
    }

    /// Polls every source that is due, one after the other. Returns how many mails were ingested.
    pub async fn poll_due(&self) -> Result<usize, StoreError> {
        let mut ingested = 0;
        for PolledSource { team, id, .. } in self.polled_sources().await? {
            ingested += self.poll_source(team, id).await?.ingested;
        }
        Ok(ingested)
    }

    /// The polled sources of every team.
    async fn polled_sources(&self) -> Result<Vec<PolledSource>, StoreError> {
        let mut found = Vec::new();
        for team in self.ctx.store.teams().await? {
            let mut before = None;
            loop {
                let page = self.ctx.store.records(team.id, RecordKind::Source, before, PAGE_SIZE).await?;
                let polls = |record: &&Record| {
                    records::decode::<SourceDetails>(record).is_ok_and(|details| details.is_polled())
                };
                let now = self.ctx.now();
                found.extend(page.rows.iter().filter(polls).map(|record| PolledSource {
                    team: record.team,
                    id: SourceId(record.id),
                    due: now,
                }));
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Polls one source if it is due and no other node is polling it.
    async fn poll_source(&self, team: TeamId, id: SourceId) -> Result<PollOutcome, StoreError> {
        let mut run = match self.begin_poll(team, id).await? {
            Ok(run) => run,
            Err(due) => return Ok(PollOutcome { ingested: 0, due }),
        };
        let mut ingested = 0;
        for _ in 0..MAX_PAGES {
            let request =
                self.ctx.deps.mail_collector.list(&run.account, run.cursor.horizon(), run.cursor.page.as_deref());
            let page = request.await;
            self.ctx.metrics.record_poll(run.account.provider, &page);
            let now = self.ctx.now();
            let has_more = match page {
                Ok(page) => {
                    ingested += self.ingest_page(&mut run, &page).await?;
                    run.cursor.advance(&page, now)
                }
                Err(error) => {
                    tracing::warn!(source = %id, %error, "listing received mail at a provider failed");
                    run.cursor.record_failure(&error, now, run.interval);
                    run.cursor.busy_until = now;
                    self.save_poll(&mut run).await?;
                    return Ok(PollOutcome { ingested, due: run.cursor.next_at });
                }
            };
            run.cursor.busy_until = if has_more { now.plus(POLL_LEASE_MS) } else { now };
            if !has_more {
                run.cursor.finish_round(now, run.interval);
            }
            // The mails are committed already. If saving the cursor fails, they are listed again and deduplicated.
            if !self.save_poll(&mut run).await? || !has_more {
                return Ok(PollOutcome { ingested, due: run.cursor.next_at });
            }
        }
        run.cursor.busy_until = self.ctx.now();
        self.save_poll(&mut run).await?;
        Ok(PollOutcome { ingested, due: self.ctx.now() })
    }

    /// Ingests the new mails of a page as their webhooks would have. Returns how many there were.
    async fn ingest_page(&self, run: &mut PollRun, page: &MailListPage) -> Result<usize, StoreError> {
        let (horizon, now) = (run.cursor.horizon(), self.ctx.now());
        let mut ingested = 0;
        for MailListEntry { at, fields } in &page.mails {
            if at.is_some_and(|at| at < horizon) {
                continue;
            }
            let mail = match hooks::parse_listed_mail(run.source.kind, fields) {
                Ok(Some(mail)) => mail,
                Ok(None) => continue,
                Err(why) => {
                    tracing::warn!(source = %run.source.id, %why, "a mail in a provider's list cannot be parsed");
                    self.ctx.metrics.record_provider_event(run.source.kind.as_str(), "unreadable");
                    continue;
                }
            };
            if run.cursor.has_seen(&mail.dedupe_key) {
                continue;
            }
            let dedupe_key = mail.dedupe_key.clone();
            self.ingest_mail(run.source, mail, Intake::Poll).await?;
            run.cursor.mark_seen(&dedupe_key, at.unwrap_or(now).min(now));
            ingested += 1;
        }
        Ok(ingested)
    }

    /// Leases a source for polling, or returns when to try it again.
    async fn begin_poll(&self, team: TeamId, id: SourceId) -> Result<Result<PollRun, Time>, StoreError> {
        let never = Time(i64::MAX);
        let Some(source) = self.ctx.store.record(team, RecordKind::Source, id.0).await? else { return Ok(Err(never)) };
        let Ok(details) = records::decode::<SourceDetails>(&source) else { return Ok(Err(never)) };
        let Some(interval) = details.poll_ms() else { return Ok(Err(never)) };
        let account = match self.sources.provider_account(&source, &details) {
            Ok(account) => account,
            Err(why) => {
                tracing::error!(source = %id, why, "a source cannot be polled");
                return Ok(Err(never));
            }
        };
        let (record, cursor) = self.load_poll_cursor(&source).await?;
        let (now, source_ref) = (self.ctx.now(), SourceRef { id, team, kind: details.kind });
        if cursor.next_at.max(cursor.busy_until) > now {
            return Ok(Err(cursor.next_at.max(cursor.busy_until)));
        }
        let mut run = PollRun { source: source_ref, account, interval, record, cursor };
        run.cursor.busy_until = now.plus(POLL_LEASE_MS);
        // Another node leased the source.
        if !self.save_poll(&mut run).await? {
            return Ok(Err(now.plus(interval)));
        }
        Ok(Ok(run))
    }

    /// The poll cursor of a source with its record. A new cursor starts when the source was created.
    async fn load_poll_cursor(&self, source: &Record) -> Result<(Record, PollCursor), StoreError> {
        let name = source.id.to_string();
        if let Some(record) = self.ctx.store.record_by_name(source.team, RecordKind::Poll, &name).await? {
            let cursor = PollCursor::from_record(&record)?;
            return Ok((record, cursor));
        }
        let floor = source.created_at.plus(-START_SLACK_MS);
        let cursor = PollCursor::starting_at(floor);
        let (now, json) = (self.ctx.now(), cursor.to_json()?);
        let id = self.ctx.new_id(now);
        let record = Record { team: source.team, kind: RecordKind::Poll, id, name, rev: 1, created_at: now, json };
        match self.ctx.store.create_record(record, None).await? {
            IdempotentResult::Done(CreateRecordResult::Created(record) | CreateRecordResult::NameTaken(record)) => {
                let cursor = PollCursor::from_record(&record)?;
                Ok((record, cursor))
            }
            IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => {
                Err(StoreError::Corrupt("a call without a key was repeated".into()))
            }
        }
    }

    /// Saves the cursor of a run. Returns false when another node changed the record meanwhile.
    async fn save_poll(&self, run: &mut PollRun) -> Result<bool, StoreError> {
        let edit = run.record.edit(run.cursor.to_json()?);
        match self.ctx.store.change_record(edit, None, self.ctx.now()).await? {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => {
                run.record = record;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// The result of polling one source.
struct PollOutcome {
    ingested: usize,
    due: Time,
}
