//! What the writer thread holds: the connection, the numbers of teams and events, and what a group has done so far.

use mailonce_core::{
    email::Email,
    event::NewEvent,
    id::{TeamId, ordered_bits},
    port::{
        arrivals::{Hearer, Hint},
        store::{CommitTime, EventHearer, Result, StoreError, Watcher},
    },
};
use rusqlite::{Connection, Statement, params};
use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use uuid::Uuid;

use super::{
    accept, events,
    events::Packed,
    fresh::{FreshKeys, Hand},
    schema::told,
};

/// Teams have small numbers inside the file.
#[derive(Default)]
pub(super) struct Teams {
    numbers: HashMap<TeamId, i64>,
    ids: HashMap<i64, TeamId>,
}

/// Shared with the readers.
pub(super) type TeamNumbers = Arc<RwLock<Teams>>;

impl Teams {
    pub(super) fn add(&mut self, id: TeamId, number: i64) {
        self.numbers.insert(id, number);
        self.ids.insert(number, id);
    }

    pub(super) fn number(&self, id: TeamId) -> Option<i64> {
        self.numbers.get(&id).copied()
    }

    pub(super) fn id(&self, number: i64) -> Option<TeamId> {
        self.ids.get(&number).copied()
    }
}

/// Who is told of changed emails, who of mail that came in, and who of events.
#[derive(Default)]
pub(super) struct Listeners {
    pub(super) watchers: RwLock<Vec<Watcher>>,
    pub(super) hearers: RwLock<Vec<Hearer>>,
    pub(super) event_hearers: RwLock<Vec<EventHearer>>,
}

/// What the writer and the checkpointer tell each other about the log.
#[derive(Default)]
pub(super) struct Log {
    /// Rows written so far, by the writer.
    pub(super) rows: AtomicU64,
    /// Set by the checkpointer when it left frames behind.
    pub(super) leftovers: AtomicBool,
}

/// The statements of the plain accept, prepared once.
pub(super) struct AcceptStatements<'c> {
    pub(super) email: Statement<'c>,
    pub(super) body: Statement<'c>,
    pub(super) handoff: Statement<'c>,
}

/// The writer's own state.
pub(super) struct Ledger<'c> {
    pub(super) conn: &'c Connection,
    pub(super) accepts: AcceptStatements<'c>,
    /// Keys that do not lie in their tree yet. Looks go through it too, and most verbs only look.
    pub(super) fresh: RefCell<Hand<'c>>,
    pub(super) teams: TeamNumbers,
    listeners: Arc<Listeners>,
    /// The number of each team's last event.
    last_event: HashMap<i64, u64>,
    /// Teams of which the latest commit left events.
    eventful: Vec<i64>,
    /// Events of this group, not yet numbered.
    pending: Vec<(i64, Packed)>,
    /// Emails that verbs of this group changed, to tell of after the commit.
    changed: Vec<Email>,
    /// What verbs of this group have to say to those who wait for mail, after the commit.
    hints: Vec<Hint>,
    /// The ordered bits of the highest id of mail that came in, and of what is written down about it.
    highest_id: i64,
    written_id: i64,
    log: Arc<Log>,
    pub(super) time: Arc<CommitTime>,
}

impl<'c> Ledger<'c> {
    pub(super) fn new(
        conn: &'c Connection,
        fresh: Arc<FreshKeys>,
        teams: TeamNumbers,
        listeners: Arc<Listeners>,
        log: Arc<Log>,
        time: Arc<CommitTime>,
    ) -> Result<Self> {
        Ok(Self {
            conn,
            accepts: accept::statements(conn)?,
            fresh: RefCell::new(Hand::new(conn, fresh)?),
            teams,
            listeners,
            last_event: events::last_numbers(conn)?,
            eventful: Vec::new(),
            pending: Vec::new(),
            changed: Vec::new(),
            hints: Vec::new(),
            highest_id: 0,
            written_id: 0,
            log,
            time,
        })
    }

    /// The number of a team. `None` when there is no such team.
    pub(super) fn team_number(&self, team: TeamId) -> Option<i64> {
        self.teams.read().unwrap_or_else(PoisonError::into_inner).number(team)
    }

    /// The team with this number.
    pub(super) fn team_id(&self, number: i64) -> Result<TeamId> {
        let teams = self.teams.read().unwrap_or_else(PoisonError::into_inner);
        teams.id(number).ok_or_else(|| StoreError::Corrupt(format!("there is no team number {number}")))
    }

    /// Runs a prepared statement.
    pub(super) fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize> {
        self.conn.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(told)
    }

    /// The number of a team's last event.
    pub(super) fn last_event(&self, team: i64) -> u64 {
        self.last_event.get(&team).copied().unwrap_or(0)
    }

    /// Adds an event to the group.
    pub(super) fn emit(&mut self, team: i64, event: &NewEvent) {
        self.pending.push((team, Packed::of(event)));
    }

    /// Adds an event that was packed before.
    pub(super) fn emit_packed(&mut self, team: i64, event: &Packed) {
        self.pending.push((team, event.clone()));
    }

    /// Remembers a changed email, to tell of it after the commit.
    pub(super) fn note_changed(&mut self, email: Email) {
        self.changed.push(email);
    }

    /// Remembers what to say to those who wait for mail, after the commit.
    pub(super) fn note_hint(&mut self, hint: Hint) {
        self.hints.push(hint);
    }

    /// No id may be handed out again, even after every trace of what bore it is gone.
    pub(super) fn note_id(&mut self, id: Uuid) {
        self.highest_id = self.highest_id.max(ordered_bits(id));
    }

    fn write_id(&self) -> Result<()> {
        if self.highest_id > self.written_id {
            self.execute("UPDATE install SET last_id = MAX(last_id, ?1)", [self.highest_id])?;
        }
        Ok(())
    }

    fn hint(&self) {
        for hearer in self.listeners.hearers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            self.hints.iter().for_each(|hint| hearer(*hint));
        }
    }

    /// Tells whose events were committed.
    fn tell_of_events(&self) {
        for hearer in self.listeners.event_hearers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            self.eventful.iter().for_each(|team| hearer(self.team_id(*team).ok()));
        }
    }

    /// Tells the watchers of an email as it is committed.
    pub(super) fn tell(&self, email: &Email) {
        for watcher in self.listeners.watchers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            watcher.changed(email);
        }
    }

    /// Tells the watchers which emails the next commit changes.
    fn announce(&self) {
        for watcher in self.listeners.watchers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            self.changed.iter().for_each(|email| watcher.changing(email));
        }
    }

    /// Tells of what the commit changed, and wakes those who wait for it. Emails that the group accepted are told of
    /// before this, because accepts run before every verb that can change an email.
    pub(super) fn publish(&self) {
        self.changed.iter().for_each(|email| self.tell(email));
        self.tell_of_events();
        self.hint();
    }

    pub(super) fn begin(&mut self) -> Result<()> {
        self.pending.clear();
        self.changed.clear();
        self.fresh.get_mut().begin();
        self.hints.clear();
        self.execute("BEGIN IMMEDIATE", []).map(drop)
    }

    /// Writes the group's fresh keys, numbers its events and commits. The caller publishes what came of it.
    pub(super) fn commit(&mut self) -> Result<()> {
        let outcome = self.fresh.get_mut().write().and_then(|()| self.write_events()).and_then(|numbers| {
            self.write_id()?;
            self.announce();
            self.execute("COMMIT", [])?;
            Ok(numbers)
        });
        match outcome {
            Ok(numbers) => {
                self.log.rows.store(self.conn.total_changes(), Ordering::Relaxed);
                self.eventful = numbers.keys().copied().collect();
                self.last_event.extend(numbers);
                self.fresh.get_mut().publish();
                self.written_id = self.highest_id;
                Ok(())
            }
            Err(error) => {
                self.rollback();
                Err(error)
            }
        }
    }

    pub(super) fn rollback(&mut self) {
        if self.conn.is_autocommit() {
            return; // SQLite rolled back by itself, as it does when the disk is full.
        }
        if let Err(error) = self.execute("ROLLBACK", []) {
            tracing::error!(%error, "rolling back");
        }
    }

    /// Runs a verb so that its own failure leaves nothing behind.
    pub(super) fn in_savepoint<T>(&mut self, verb: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let (events, changed, hints) = (self.pending.len(), self.changed.len(), self.hints.len());
        let fresh = self.fresh.get_mut().mark();
        self.execute("SAVEPOINT verb", [])?;
        match verb(self) {
            Ok(answer) => {
                self.execute("RELEASE verb", [])?;
                Ok(answer)
            }
            Err(error) => {
                self.pending.truncate(events);
                self.changed.truncate(changed);
                self.fresh.get_mut().back_to(fresh);
                self.hints.truncate(hints);
                if self.conn.is_autocommit() {
                    return Err(StoreError::Corrupt(format!("the transaction ended under a verb: {error}")));
                }
                self.execute("ROLLBACK TO verb", [])?;
                self.execute("RELEASE verb", [])?;
                Err(error)
            }
        }
    }

    /// Writes one block of events per team. The numbers count only once the commit stands.
    fn write_events(&mut self) -> Result<HashMap<i64, u64>> {
        let mut numbers = HashMap::new();
        let mut by_team: HashMap<i64, Vec<Packed>> = HashMap::new();
        for (team, event) in self.pending.drain(..) {
            by_team.entry(team).or_default().push(event);
        }
        for (team, list) in by_team {
            let before = self.last_event.get(&team).copied().unwrap_or(0);
            let mut last = before;
            for block in list.chunks(events::PER_BLOCK) {
                last += block.len() as u64;
                self.execute(events::INSERT, params![team, last as i64, events::block(block)])?;
            }
            numbers.insert(team, last);
        }
        Ok(numbers)
    }

    /// Moves the few frames that were written while the checkpointer worked, so that the log can start over.
    pub(super) fn checkpoint_leftovers(&self) -> Result<()> {
        if !self.log.leftovers.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let moved = self.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(told);
        moved.inspect_err(|error| tracing::warn!(%error, "moving the rest of the log into the file"))
    }
}
