//! Providers that are asked which mails came, for hooks that were lost.
//!
//! Each source that polls has a record of how far it is. Lists are not in the order in which mails appear in them, so a
//! round looks an hour further back than the last, and what it saw there already is not told again. A mail goes in under
//! the name that its hook would have used: whichever comes first makes the delivery, the other is a row that says so.
//!
//! One node polls a source at a time, as far as its record's rev decides; two that do it do no harm.

use mailonce_core::{
    delivery::Intake,
    id::{SourceId, TeamId},
    port::{
        collect::{Account, Listed, Page},
        store::{Once, StoreError},
    },
    record::{Created, Record, RecordChange, RecordKind},
    time::Time,
};
use mailonce_mail::hook;
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    Engine,
    cursor::Cursor,
    records,
    sources::{AboutSource, Polled, Teller},
};

/// Mail from before a source was made is not collected; clocks may differ so much.
const SLACK_MS: i64 = 300_000;
/// Pages of one go. A longer round goes on at once in the next.
const PAGES: usize = 20;
/// How long others leave a source alone after a page was asked for.
const BUSY_MS: i64 = 120_000;
/// The pause after the ledger failed.
const PAUSE_MS: i64 = 5_000;
/// How often it is looked whether something is due, and which sources there are.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LEARN_EVERY_MS: i64 = 60_000;
/// Sources asked at a time.
const AT_ONCE: usize = 4;
/// Sources of one page.
const LISTED: usize = 100;

/// A source that polls.
#[derive(Clone)]
struct Polling {
    team: TeamId,
    id: SourceId,
    /// When it is worth a look.
    due: Time,
}

/// One source's turn.
struct Turn {
    teller: Teller,
    account: Account,
    interval: i64,
    record: Record,
    cursor: Cursor,
}

impl Engine {
    /// Asks providers which mails came until `stop` changes.
    pub async fn poll_sources(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut known: Vec<Polling> = Vec::new();
        let mut learn_at = 0;
        while !*stop.borrow() {
            if self.time.even() >= learn_at {
                match self.polling().await {
                    Ok(found) => known = found,
                    Err(error) => tracing::warn!(%error, "looking for sources that poll"),
                }
                learn_at = self.time.even() + LEARN_EVERY_MS;
            }
            self.poll_known(&mut known).await;
            tokio::select! {
                biased;
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.desks.changed.notified() => learn_at = 0,
                _ = stop.changed() => {}
            }
        }
    }

    /// Asks for every source that is due, some at a time.
    async fn poll_known(self: &Arc<Self>, known: &mut [Polling]) {
        let now = self.now();
        for some in known.chunks_mut(AT_ONCE) {
            let mut at_work = JoinSet::new();
            for (place, polling) in some.iter().enumerate().filter(|(_, polling)| polling.due <= now) {
                let (engine, Polling { team, id, .. }) = (Arc::clone(self), polling.clone());
                at_work.spawn(async move { (place, engine.poll_one(team, id).await) });
            }
            while let Some(ended) = at_work.join_next().await {
                match ended {
                    Ok((place, Ok(Looked { due, .. }))) => some[place].due = due,
                    Ok((place, Err(error))) => {
                        tracing::warn!(%error, source = %some[place].id, "a source could not poll");
                        some[place].due = now.plus(PAUSE_MS);
                    }
                    Err(error) => tracing::error!(%error, "a source's turn ended badly"),
                }
            }
        }
    }

    /// Asks every provider that is due, one after the other. How many mails were told that nobody had told by this way.
    pub async fn poll_due(&self) -> Result<usize, StoreError> {
        let mut told = 0;
        for Polling { team, id, .. } in self.polling().await? {
            told += self.poll_one(team, id).await?.told;
        }
        Ok(told)
    }

    /// The sources that poll, of every team.
    async fn polling(&self) -> Result<Vec<Polling>, StoreError> {
        let mut found = Vec::new();
        for team in self.store.teams().await? {
            let mut before = None;
            loop {
                let page = self.store.records(team.id, RecordKind::Source, before, LISTED).await?;
                let polls = |record: &&Record| records::read::<AboutSource>(record).is_ok_and(|about| about.polls());
                let now = self.now();
                found.extend(page.rows.iter().filter(polls).map(|record| Polling {
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
    async fn poll_one(&self, team: TeamId, id: SourceId) -> Result<Looked, StoreError> {
        let mut turn = match self.begin_turn(team, id).await? {
            Ok(turn) => turn,
            Err(due) => return Ok(Looked { told: 0, due }),
        };
        let mut told = 0;
        for _ in 0..PAGES {
            let asked = self.outside.collect.list(&turn.account, turn.cursor.horizon(), turn.cursor.page.as_deref());
            let page = asked.await;
            self.metrics.polled(turn.account.provider, &page);
            let now = self.now();
            let goes_on = match page {
                Ok(page) => {
                    told += self.tell_page(&mut turn, &page).await?;
                    turn.cursor.advance(&page, now)
                }
                Err(withheld) => {
                    tracing::warn!(source = %id, %withheld, "a provider could not be asked which mails came");
                    turn.cursor.fail(&withheld, now, turn.interval);
                    turn.cursor.busy_until = now;
                    self.save_turn(&mut turn).await?;
                    return Ok(Looked { told, due: turn.cursor.next_at });
                }
            };
            turn.cursor.busy_until = if goes_on { now.plus(BUSY_MS) } else { now };
            if !goes_on {
                turn.cursor.end(now, turn.interval);
            }
            // What was told is kept already; if this is lost, it is told again and found to be known.
            if !self.save_turn(&mut turn).await? || !goes_on {
                return Ok(Looked { told, due: turn.cursor.next_at });
            }
        }
        turn.cursor.busy_until = self.now();
        self.save_turn(&mut turn).await?;
        Ok(Looked { told, due: self.now() })
    }

    /// Keeps what is new on a page, as a hook would have. How much that was.
    async fn tell_page(&self, turn: &mut Turn, page: &Page) -> Result<usize, StoreError> {
        let (horizon, now) = (turn.cursor.horizon(), self.now());
        let mut told = 0;
        for Listed { at, about } in &page.mails {
            if at.is_some_and(|at| at < horizon) {
                continue;
            }
            let mail = match hook::listed(turn.teller.kind, about) {
                Ok(Some(mail)) => mail,
                Ok(None) => continue,
                Err(why) => {
                    tracing::warn!(source = %turn.teller.id, %why, "a mail in a provider's list cannot be read");
                    self.metrics.reported(turn.teller.kind.word(), "unreadable");
                    continue;
                }
            };
            if turn.cursor.knows(&mail.name) {
                continue;
            }
            let name = mail.name.clone();
            self.tell_mail(turn.teller, mail, Intake::Poll).await?;
            turn.cursor.learn(&name, at.unwrap_or(now).min(now));
            told += 1;
        }
        Ok(told)
    }

    /// Takes a source's turn, or says when it is worth another look.
    async fn begin_turn(&self, team: TeamId, id: SourceId) -> Result<Result<Turn, Time>, StoreError> {
        let never = Time(i64::MAX);
        let Some(source) = self.store.record(team, RecordKind::Source, id.0).await? else { return Ok(Err(never)) };
        let Ok(about) = records::read::<AboutSource>(&source) else { return Ok(Err(never)) };
        let Some(interval) = about.poll_ms() else { return Ok(Err(never)) };
        let account = match self.account(&source, &about) {
            Ok(account) => account,
            Err(why) => {
                tracing::error!(source = %id, why, "a source cannot poll");
                return Ok(Err(never));
            }
        };
        let (record, cursor) = self.cursor_of(&source).await?;
        let (now, teller) = (self.now(), Teller { id, team, kind: about.kind });
        if cursor.next_at.max(cursor.busy_until) > now {
            return Ok(Err(cursor.next_at.max(cursor.busy_until)));
        }
        let mut turn = Turn { teller, account, interval, record, cursor };
        turn.cursor.busy_until = now.plus(BUSY_MS);
        // Somebody else took it: theirs to do.
        if !self.save_turn(&mut turn).await? {
            return Ok(Err(now.plus(interval)));
        }
        Ok(Ok(turn))
    }

    /// How far the polling of a source is. It begins when the source was made.
    async fn cursor_of(&self, source: &Record) -> Result<(Record, Cursor), StoreError> {
        let name = source.id.to_string();
        if let Some(record) = self.store.record_named(source.team, RecordKind::Poll, &name).await? {
            let cursor = Cursor::read(&record)?;
            return Ok((record, cursor));
        }
        let floor = source.created_at.plus(-SLACK_MS);
        let cursor = Cursor::from(floor);
        let (now, about) = (self.now(), cursor.write()?);
        let id = self.new_id(now);
        let record = Record { team: source.team, kind: RecordKind::Poll, id, name, rev: 1, created_at: now, about };
        match self.store.create_record(record, None).await? {
            Once::Done(Created::Made(record) | Created::Taken(record)) => {
                let cursor = Cursor::read(&record)?;
                Ok((record, cursor))
            }
            Once::Repeated(_) | Once::Mismatch(_) => {
                Err(StoreError::Corrupt("a call without a key was repeated".into()))
            }
        }
    }

    /// Writes how far a turn is. False when somebody else wrote in between.
    async fn save_turn(&self, turn: &mut Turn) -> Result<bool, StoreError> {
        let edit = turn.record.edit(turn.cursor.write()?);
        match self.store.change_record(edit, None, self.now()).await? {
            Once::Done(RecordChange::Changed(record)) => {
                turn.record = record;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// How the polling of a source goes, for its view.
    pub(crate) async fn polled(&self, team: TeamId, id: SourceId) -> Result<Polled, StoreError> {
        let record = self.store.record_named(team, RecordKind::Poll, &id.to_string()).await?;
        let cursor = record.as_ref().map(Cursor::read).transpose()?.unwrap_or_default();
        Ok(Polled { at: cursor.polled_at, error: cursor.error })
    }

    /// A source went, and how far it was with it.
    pub(crate) async fn forget_polling(&self, team: TeamId, id: SourceId) -> Result<(), StoreError> {
        let Some(record) = self.store.record_named(team, RecordKind::Poll, &id.to_string()).await? else {
            return Ok(());
        };
        self.store.remove_record(team, RecordKind::Poll, record.id).await.map(drop)
    }
}

/// What came of one source's turn.
struct Looked {
    told: usize,
    due: Time,
}
