//! Providers that are asked which mails came, for hooks that were lost.
//!
//! Each source that polls has a record of how far it is. Lists are not in the order in which mails appear in them, so a
//! round looks an hour further back than the last, and what it saw there already is not told again. A mail goes in under
//! the name that its hook would have used: whichever comes first makes the delivery, the other is a row that says so.
//!
//! One node polls a source at a time, as far as its record's rev decides; two that do it do no harm.

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

/// Mail from before a source was made is not collected; clocks may differ so much.
const START_SLACK_MS: i64 = 300_000;
/// Pages of one go. A longer round goes on at once in the next.
const MAX_PAGES: usize = 20;
/// How long others leave a source alone after a page was asked for.
const POLL_LEASE_MS: i64 = 120_000;
/// The pause after the ledger failed.
const RETRY_DELAY_MS: i64 = 5_000;
/// How often it is looked whether something is due, and which sources there are.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const RELOAD_INTERVAL_MS: i64 = 60_000;
/// Sources asked at a time.
const MAX_CONCURRENT_POLLS: usize = 4;
/// Sources of one page.
const PAGE_SIZE: usize = 100;

/// A source that polls.
#[derive(Clone)]
struct PolledSource {
    team: TeamId,
    id: SourceId,
    /// When it is worth a look.
    due: Time,
}

/// One source's turn.
struct PollRun {
    source: SourceRef,
    account: ProviderAccount,
    interval: i64,
    record: Record,
    cursor: PollCursor,
}

impl Inbound {
    /// Asks providers which mails came until `stop` changes.
    pub async fn poll_sources(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut known: Vec<PolledSource> = Vec::new();
        let mut learn_at = 0;
        while !*stop.borrow() {
            if self.ctx.time.boot_clock_ms() >= learn_at {
                match self.polled_sources().await {
                    Ok(found) => known = found,
                    Err(error) => tracing::warn!(%error, "looking for sources that poll"),
                }
                learn_at = self.ctx.time.boot_clock_ms() + RELOAD_INTERVAL_MS;
            }
            self.poll_due_sources(&mut known).await;
            tokio::select! {
                biased;
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                () = self.ctx.inbound.fetch_limiter.sources_changed.notified() => learn_at = 0,
                _ = stop.changed() => {}
            }
        }
    }

    /// Asks for every source that is due, some at a time.
    async fn poll_due_sources(self: &Arc<Self>, known: &mut [PolledSource]) {
        let now = self.ctx.now();
        for some in known.chunks_mut(MAX_CONCURRENT_POLLS) {
            let mut at_work = JoinSet::new();
            for (place, polling) in some.iter().enumerate().filter(|(_, polling)| polling.due <= now) {
                let (inbound, PolledSource { team, id, .. }) = (Arc::clone(self), polling.clone());
                at_work.spawn(async move { (place, inbound.poll_source(team, id).await) });
            }
            while let Some(ended) = at_work.join_next().await {
                match ended {
                    Ok((place, Ok(PollOutcome { due, .. }))) => some[place].due = due,
                    Ok((place, Err(error))) => {
                        tracing::warn!(%error, source = %some[place].id, "a source could not poll");
                        some[place].due = now.plus(RETRY_DELAY_MS);
                    }
                    Err(error) => tracing::error!(%error, "a source's turn ended badly"),
                }
            }
        }
    }

    /// Asks every provider that is due, one after the other. How many mails were told that nobody had told by this way.
    pub async fn poll_due(&self) -> Result<usize, StoreError> {
        let mut told = 0;
        for PolledSource { team, id, .. } in self.polled_sources().await? {
            told += self.poll_source(team, id).await?.ingested;
        }
        Ok(told)
    }

    /// The sources that poll, of every team.
    async fn polled_sources(&self) -> Result<Vec<PolledSource>, StoreError> {
        let mut found = Vec::new();
        for team in self.ctx.store.teams().await? {
            let mut before = None;
            loop {
                let page = self.ctx.store.records(team.id, RecordKind::Source, before, PAGE_SIZE).await?;
                let polls =
                    |record: &&Record| records::decode::<SourceDetails>(record).is_ok_and(|about| about.is_polled());
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

    /// Asks one provider, if it is due and nobody else does.
    async fn poll_source(&self, team: TeamId, id: SourceId) -> Result<PollOutcome, StoreError> {
        let mut turn = match self.begin_poll(team, id).await? {
            Ok(turn) => turn,
            Err(due) => return Ok(PollOutcome { ingested: 0, due }),
        };
        let mut told = 0;
        for _ in 0..MAX_PAGES {
            let asked =
                self.ctx.deps.mail_collector.list(&turn.account, turn.cursor.horizon(), turn.cursor.page.as_deref());
            let page = asked.await;
            self.ctx.metrics.record_poll(turn.account.provider, &page);
            let now = self.ctx.now();
            let goes_on = match page {
                Ok(page) => {
                    told += self.ingest_page(&mut turn, &page).await?;
                    turn.cursor.advance(&page, now)
                }
                Err(withheld) => {
                    tracing::warn!(source = %id, %withheld, "a provider could not be asked which mails came");
                    turn.cursor.record_failure(&withheld, now, turn.interval);
                    turn.cursor.busy_until = now;
                    self.save_poll(&mut turn).await?;
                    return Ok(PollOutcome { ingested: told, due: turn.cursor.next_at });
                }
            };
            turn.cursor.busy_until = if goes_on { now.plus(POLL_LEASE_MS) } else { now };
            if !goes_on {
                turn.cursor.finish_round(now, turn.interval);
            }
            // What was told is kept already; if this is lost, it is told again and found to be known.
            if !self.save_poll(&mut turn).await? || !goes_on {
                return Ok(PollOutcome { ingested: told, due: turn.cursor.next_at });
            }
        }
        turn.cursor.busy_until = self.ctx.now();
        self.save_poll(&mut turn).await?;
        Ok(PollOutcome { ingested: told, due: self.ctx.now() })
    }

    /// Keeps what is new on a page, as a hook would have. How much that was.
    async fn ingest_page(&self, turn: &mut PollRun, page: &MailListPage) -> Result<usize, StoreError> {
        let (horizon, now) = (turn.cursor.horizon(), self.ctx.now());
        let mut told = 0;
        for MailListEntry { at, fields: about } in &page.mails {
            if at.is_some_and(|at| at < horizon) {
                continue;
            }
            let mail = match hooks::parse_listed_mail(turn.source.kind, about) {
                Ok(Some(mail)) => mail,
                Ok(None) => continue,
                Err(why) => {
                    tracing::warn!(source = %turn.source.id, %why, "a mail in a provider's list cannot be read");
                    self.ctx.metrics.record_provider_event(turn.source.kind.as_str(), "unreadable");
                    continue;
                }
            };
            if turn.cursor.has_seen(&mail.dedupe_key) {
                continue;
            }
            let name = mail.dedupe_key.clone();
            self.ingest_mail(turn.source, mail, Intake::Poll).await?;
            turn.cursor.mark_seen(&name, at.unwrap_or(now).min(now));
            told += 1;
        }
        Ok(told)
    }

    /// Takes a source's turn, or says when it is worth another look.
    async fn begin_poll(&self, team: TeamId, id: SourceId) -> Result<Result<PollRun, Time>, StoreError> {
        let never = Time(i64::MAX);
        let Some(source) = self.ctx.store.record(team, RecordKind::Source, id.0).await? else { return Ok(Err(never)) };
        let Ok(about) = records::decode::<SourceDetails>(&source) else { return Ok(Err(never)) };
        let Some(interval) = about.poll_ms() else { return Ok(Err(never)) };
        let account = match self.access.provider_account(&source, &about) {
            Ok(account) => account,
            Err(why) => {
                tracing::error!(source = %id, why, "a source cannot poll");
                return Ok(Err(never));
            }
        };
        let (record, cursor) = self.load_poll_cursor(&source).await?;
        let (now, teller) = (self.ctx.now(), SourceRef { id, team, kind: about.kind });
        if cursor.next_at.max(cursor.busy_until) > now {
            return Ok(Err(cursor.next_at.max(cursor.busy_until)));
        }
        let mut turn = PollRun { source: teller, account, interval, record, cursor };
        turn.cursor.busy_until = now.plus(POLL_LEASE_MS);
        // Somebody else took it: theirs to do.
        if !self.save_poll(&mut turn).await? {
            return Ok(Err(now.plus(interval)));
        }
        Ok(Ok(turn))
    }

    /// How far the polling of a source is. It begins when the source was made.
    async fn load_poll_cursor(&self, source: &Record) -> Result<(Record, PollCursor), StoreError> {
        let name = source.id.to_string();
        if let Some(record) = self.ctx.store.record_by_name(source.team, RecordKind::Poll, &name).await? {
            let cursor = PollCursor::from_record(&record)?;
            return Ok((record, cursor));
        }
        let floor = source.created_at.plus(-START_SLACK_MS);
        let cursor = PollCursor::starting_at(floor);
        let (now, about) = (self.ctx.now(), cursor.to_json()?);
        let id = self.ctx.new_id(now);
        let record =
            Record { team: source.team, kind: RecordKind::Poll, id, name, rev: 1, created_at: now, json: about };
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

    /// Writes how far a turn is. False when somebody else wrote in between.
    async fn save_poll(&self, turn: &mut PollRun) -> Result<bool, StoreError> {
        let edit = turn.record.edit(turn.cursor.to_json()?);
        match self.ctx.store.change_record(edit, None, self.ctx.now()).await? {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => {
                turn.record = record;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// What came of one source's turn.
struct PollOutcome {
    ingested: usize,
    due: Time,
}
