//! What the writer thread holds: the connection, the numbers of teams and events, and what a group has done so far.

use mailonce_core::{
    events::event::NewEvent,
    id::{TeamId, ordered_bits},
    outbound::email::Email,
    ports::{
        inbound_store::{InboundWakeUp, InboundWakeUpHandler},
        store::{CommitClock, EventWakeUpHandler, Result, SharedEmailSubscriber, StoreError},
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

use super::schema::store_error;
use crate::sqlite::{
    events::event_log::{self, PackedEvent},
    fresh_keys::{FreshKeyWriter, FreshKeys},
    outbound::accept,
};

/// Teams have small numbers inside the file.
#[derive(Default)]
pub(crate) struct TeamNumberMap {
    numbers: HashMap<TeamId, i64>,
    ids: HashMap<i64, TeamId>,
}

/// Shared with the readers.
pub(crate) type SharedTeamNumbers = Arc<RwLock<TeamNumberMap>>;

impl TeamNumberMap {
    pub(crate) fn add(&mut self, id: TeamId, number: i64) {
        self.numbers.insert(id, number);
        self.ids.insert(number, id);
    }

    pub(crate) fn number(&self, id: TeamId) -> Option<i64> {
        self.numbers.get(&id).copied()
    }

    pub(crate) fn id(&self, number: i64) -> Option<TeamId> {
        self.ids.get(&number).copied()
    }
}

/// Who is told of changed emails, who of mail that came in, and who of events.
#[derive(Default)]
pub(crate) struct Subscribers {
    pub(crate) emails: RwLock<Vec<SharedEmailSubscriber>>,
    pub(crate) inbound: RwLock<Vec<InboundWakeUpHandler>>,
    pub(crate) events: RwLock<Vec<EventWakeUpHandler>>,
}

/// What the writer and the checkpointer tell each other about the log.
#[derive(Default)]
pub(crate) struct WalState {
    /// Rows written so far, by the writer.
    pub(crate) rows_written: AtomicU64,
    /// Set by the checkpointer when it left frames behind.
    pub(crate) has_leftover_frames: AtomicBool,
}

/// The statements of the plain accept, prepared once.
pub(crate) struct AcceptStatements<'c> {
    pub(crate) email: Statement<'c>,
    pub(crate) body: Statement<'c>,
    pub(crate) handoff: Statement<'c>,
}

/// The writer's own state.
pub(crate) struct WriteSession<'c> {
    pub(crate) conn: &'c Connection,
    pub(crate) accepts: AcceptStatements<'c>,
    /// Keys that do not lie in their tree yet. Looks go through it too, and most verbs only look.
    pub(crate) fresh_keys: RefCell<FreshKeyWriter<'c>>,
    pub(crate) teams: SharedTeamNumbers,
    subscribers: Arc<Subscribers>,
    /// The number of each team's last event.
    last_event_seqs: HashMap<i64, u64>,
    /// Teams of which the latest commit left events.
    teams_with_new_events: Vec<i64>,
    /// Events of this group, not yet numbered.
    pending_events: Vec<(i64, PackedEvent)>,
    /// Emails that verbs of this group changed, to tell of after the commit.
    changed_emails: Vec<Email>,
    /// What verbs of this group have to say to those who wait for mail, after the commit.
    wake_ups: Vec<InboundWakeUp>,
    /// The ordered bits of the highest id of mail that came in, and of what is written down about it.
    highest_id: i64,
    saved_id: i64,
    wal: Arc<WalState>,
    pub(crate) time: Arc<CommitClock>,
}

impl<'c> WriteSession<'c> {
    pub(crate) fn new(
        conn: &'c Connection,
        fresh: Arc<FreshKeys>,
        teams: SharedTeamNumbers,
        listeners: Arc<Subscribers>,
        log: Arc<WalState>,
        time: Arc<CommitClock>,
    ) -> Result<Self> {
        Ok(Self {
            conn,
            accepts: accept::prepare_accept_statements(conn)?,
            fresh_keys: RefCell::new(FreshKeyWriter::new(conn, fresh)?),
            teams,
            subscribers: listeners,
            last_event_seqs: event_log::last_seqs(conn)?,
            teams_with_new_events: Vec::new(),
            pending_events: Vec::new(),
            changed_emails: Vec::new(),
            wake_ups: Vec::new(),
            highest_id: 0,
            saved_id: 0,
            wal: log,
            time,
        })
    }

    /// The number of a team. `None` when there is no such team.
    pub(crate) fn team_number(&self, team: TeamId) -> Option<i64> {
        self.teams.read().unwrap_or_else(PoisonError::into_inner).number(team)
    }

    /// The team with this number.
    pub(crate) fn team_id(&self, number: i64) -> Result<TeamId> {
        let teams = self.teams.read().unwrap_or_else(PoisonError::into_inner);
        teams.id(number).ok_or_else(|| StoreError::Corrupt(format!("there is no team number {number}")))
    }

    /// Runs a prepared statement.
    pub(crate) fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize> {
        self.conn.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(store_error)
    }

    /// The number of a team's last event.
    pub(crate) fn last_event_seq(&self, team: i64) -> u64 {
        self.last_event_seqs.get(&team).copied().unwrap_or(0)
    }

    /// Adds an event to the group.
    pub(crate) fn emit(&mut self, team: i64, event: &NewEvent) {
        self.pending_events.push((team, PackedEvent::pack(event)));
    }

    /// Adds an event that was packed before.
    pub(crate) fn emit_packed(&mut self, team: i64, event: &PackedEvent) {
        self.pending_events.push((team, event.clone()));
    }

    /// Remembers a changed email, to tell of it after the commit.
    pub(crate) fn queue_changed_email(&mut self, email: Email) {
        self.changed_emails.push(email);
    }

    /// Remembers what to say to those who wait for mail, after the commit.
    pub(crate) fn queue_wake_up(&mut self, hint: InboundWakeUp) {
        self.wake_ups.push(hint);
    }

    /// No id may be handed out again, even after every trace of what bore it is gone.
    pub(crate) fn reserve_id(&mut self, id: Uuid) {
        self.highest_id = self.highest_id.max(ordered_bits(id));
    }

    fn save_highest_id(&self) -> Result<()> {
        if self.highest_id > self.saved_id {
            self.execute("UPDATE install SET last_id = MAX(last_id, ?1)", [self.highest_id])?;
        }
        Ok(())
    }

    fn notify_wake_ups(&self) {
        for hearer in self.subscribers.inbound.read().unwrap_or_else(PoisonError::into_inner).iter() {
            self.wake_ups.iter().for_each(|hint| hearer(*hint));
        }
    }

    /// Tells whose events were committed.
    fn notify_events(&self) {
        for hearer in self.subscribers.events.read().unwrap_or_else(PoisonError::into_inner).iter() {
            self.teams_with_new_events.iter().for_each(|team| hearer(self.team_id(*team).ok()));
        }
    }

    /// Tells the watchers of an email as it is committed.
    pub(crate) fn notify_email_changed(&self, email: &Email) {
        for watcher in self.subscribers.emails.read().unwrap_or_else(PoisonError::into_inner).iter() {
            watcher.after_commit(email);
        }
    }

    /// Tells the watchers which emails the next commit changes.
    fn notify_emails_changing(&self) {
        for watcher in self.subscribers.emails.read().unwrap_or_else(PoisonError::into_inner).iter() {
            self.changed_emails.iter().for_each(|email| watcher.before_commit(email));
        }
    }

    /// Tells of what the commit changed, and wakes those who wait for it. Emails that the group accepted are told of
    /// before this, because accepts run before every verb that can change an email.
    pub(crate) fn notify_subscribers(&self) {
        self.changed_emails.iter().for_each(|email| self.notify_email_changed(email));
        self.notify_events();
        self.notify_wake_ups();
    }

    pub(crate) fn begin(&mut self) -> Result<()> {
        self.pending_events.clear();
        self.changed_emails.clear();
        self.fresh_keys.get_mut().begin_group();
        self.wake_ups.clear();
        self.execute("BEGIN IMMEDIATE", []).map(drop)
    }

    /// Writes the group's fresh keys, numbers its events and commits. The caller publishes what came of it.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let outcome = self.fresh_keys.get_mut().write_block().and_then(|()| self.write_events()).and_then(|numbers| {
            self.save_highest_id()?;
            self.notify_emails_changing();
            self.execute("COMMIT", [])?;
            Ok(numbers)
        });
        match outcome {
            Ok(numbers) => {
                self.wal.rows_written.store(self.conn.total_changes(), Ordering::Relaxed);
                self.teams_with_new_events = numbers.keys().copied().collect();
                self.last_event_seqs.extend(numbers);
                self.fresh_keys.get_mut().publish();
                self.saved_id = self.highest_id;
                Ok(())
            }
            Err(error) => {
                self.rollback();
                Err(error)
            }
        }
    }

    pub(crate) fn rollback(&mut self) {
        if self.conn.is_autocommit() {
            return; // SQLite rolled back by itself, as it does when the disk is full.
        }
        if let Err(error) = self.execute("ROLLBACK", []) {
            tracing::error!(%error, "rolling back");
        }
    }

    /// Runs a verb so that its own failure leaves nothing behind.
    pub(crate) fn in_savepoint<T>(&mut self, verb: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let (events, changed, hints) = (self.pending_events.len(), self.changed_emails.len(), self.wake_ups.len());
        let fresh = self.fresh_keys.get_mut().savepoint();
        self.execute("SAVEPOINT verb", [])?;
        match verb(self) {
            Ok(answer) => {
                self.execute("RELEASE verb", [])?;
                Ok(answer)
            }
            Err(error) => {
                self.pending_events.truncate(events);
                self.changed_emails.truncate(changed);
                self.fresh_keys.get_mut().roll_back_to(fresh);
                self.wake_ups.truncate(hints);
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
        let mut by_team: HashMap<i64, Vec<PackedEvent>> = HashMap::new();
        for (team, event) in self.pending_events.drain(..) {
            by_team.entry(team).or_default().push(event);
        }
        for (team, list) in by_team {
            let before = self.last_event_seqs.get(&team).copied().unwrap_or(0);
            let mut last = before;
            for block in list.chunks(event_log::PER_BLOCK) {
                last += block.len() as u64;
                self.execute(event_log::INSERT, params![team, last as i64, event_log::pack_block(block)])?;
            }
            numbers.insert(team, last);
        }
        Ok(numbers)
    }

    /// Moves the few frames that were written while the checkpointer worked, so that the log can start over.
    pub(crate) fn checkpoint_leftovers(&self) -> Result<()> {
        if !self.wal.has_leftover_frames.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let moved = self.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(store_error);
        moved.inspect_err(|error| tracing::warn!(%error, "moving the rest of the log into the file"))
    }
}
