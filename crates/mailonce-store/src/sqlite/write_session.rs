//! The state of the writer thread: its connection, the numbers of teams and events, and the changes of the current
//! group.

use mailonce_core::{
    commit_clock::CommitClock,
    events::event::NewEvent,
    id::{TeamId, ordered_bits},
    inbound::wake_up::InboundWakeUp,
    outbound::email::Email,
    ports::{
        inbound_store::InboundWakeUpHandler,
        store::{EventWakeUpHandler, Result, SharedEmailSubscriber, StoreError},
    },
};
use rusqlite::{Connection, params};
use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use uuid::Uuid;

use super::schema::store_error;
use crate::sqlite::{
    events::event_blocks::{self, PackedEvent},
    fresh_keys::{FreshKeyWriter, FreshKeys},
    install_secret,
    outbound::accept_statements::AcceptStatements,
};

/// How long the log may be in use by readers before its truncation fails.
const TRUNCATE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long other statements wait for a lock, as the writer's connection is opened.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maps team ids to the small integers that stand for them in the database, and back.
#[derive(Default)]
pub(crate) struct TeamNumberMap {
    numbers: HashMap<TeamId, i64>,
    ids: HashMap<i64, TeamId>,
}

/// The team numbers, shared between the writer and the readers.
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

/// The subscribers to changed emails, to received mail, and to new events.
#[derive(Default)]
pub(crate) struct Subscribers {
    pub(crate) emails: RwLock<Vec<SharedEmailSubscriber>>,
    pub(crate) inbound: RwLock<Vec<InboundWakeUpHandler>>,
    pub(crate) events: RwLock<Vec<EventWakeUpHandler>>,
}

/// State of the WAL, shared between the writer and the checkpointer.
#[derive(Default)]
pub(crate) struct WalState {
    /// Rows written so far. Set by the writer.
    pub(crate) rows_written: AtomicU64,
    /// Set by the checkpointer when WAL frames may be left that it did not copy.
    pub(crate) has_leftover_frames: AtomicBool,
}

/// The write session: everything the writer thread works with. Jobs receive it while their transaction is open.
pub(crate) struct WriteSession<'c> {
    pub(crate) conn: &'c Connection,
    pub(crate) accepts: AcceptStatements<'c>,
    /// Keys that are not yet in the `keys` table. In a `RefCell`, because jobs that only read keys use it too.
    pub(crate) fresh_keys: RefCell<FreshKeyWriter<'c>>,
    pub(crate) teams: SharedTeamNumbers,
    subscribers: Arc<Subscribers>,
    /// The sequence number of each team's last event.
    last_event_seqs: HashMap<i64, u64>,
    /// Teams that got new events in the latest commit.
    teams_with_new_events: Vec<i64>,
    /// Events of the current group, without sequence numbers yet.
    pending_events: Vec<(i64, PackedEvent)>,
    /// Emails that the current group changed. Subscribers are notified of them after the commit.
    changed_emails: Vec<Email>,
    /// Wake-ups of the current group for inbound subscribers, sent after the commit.
    wake_ups: Vec<InboundWakeUp>,
    /// The highest inbound id used so far, as ordered bits, and the value that the ledger has saved.
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
            accepts: AcceptStatements::prepare(conn)?,
            fresh_keys: RefCell::new(FreshKeyWriter::new(conn, fresh)?),
            teams,
            subscribers: listeners,
            last_event_seqs: event_blocks::last_seqs(conn)?,
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

    /// The number of a team. `None` when the team does not exist.
    pub(crate) fn team_number(&self, team: TeamId) -> Option<i64> {
        self.teams.read().unwrap_or_else(PoisonError::into_inner).number(team)
    }

    /// The team with this number.
    pub(crate) fn team_id(&self, number: i64) -> Result<TeamId> {
        let teams = self.teams.read().unwrap_or_else(PoisonError::into_inner);
        teams.id(number).ok_or_else(|| StoreError::Corrupt(format!("there is no team number {number}")))
    }

    /// The ids of all teams, in order.
    pub(crate) fn team_ids(&self) -> Vec<TeamId> {
        let teams = self.teams.read().unwrap_or_else(PoisonError::into_inner);
        let mut ids: Vec<TeamId> = teams.numbers.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Runs a prepared statement.
    pub(crate) fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize> {
        self.conn.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(store_error)
    }

    /// The sequence number of a team's last event.
    pub(crate) fn last_event_seq(&self, team: i64) -> u64 {
        self.last_event_seqs.get(&team).copied().unwrap_or(0)
    }

    /// Adds an event to the group.
    pub(crate) fn emit(&mut self, team: i64, event: &NewEvent) {
        self.pending_events.push((team, PackedEvent::pack(event)));
    }

    /// Adds an already packed event to the group.
    pub(crate) fn emit_packed(&mut self, team: i64, event: &PackedEvent) {
        self.pending_events.push((team, event.clone()));
    }

    /// Queues a changed email. Subscribers are notified after the commit.
    pub(crate) fn queue_changed_email(&mut self, email: Email) {
        self.changed_emails.push(email);
    }

    /// Queues a wake-up for inbound subscribers, to be sent after the commit.
    pub(crate) fn queue_wake_up(&mut self, hint: InboundWakeUp) {
        self.wake_ups.push(hint);
    }

    /// Records an id as used, so that it is never assigned again, even after its row is deleted.
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
        for handler in self.subscribers.inbound.read().unwrap_or_else(PoisonError::into_inner).iter() {
            self.wake_ups.iter().for_each(|hint| handler(*hint));
        }
    }

    /// Notifies event subscribers of the teams that got new events.
    fn notify_events(&self) {
        for handler in self.subscribers.events.read().unwrap_or_else(PoisonError::into_inner).iter() {
            self.teams_with_new_events.iter().for_each(|team| handler(self.team_id(*team).ok()));
        }
    }

    /// Notifies subscribers of an email as it was committed.
    pub(crate) fn notify_email_changed(&self, email: &Email) {
        for subscriber in self.subscribers.emails.read().unwrap_or_else(PoisonError::into_inner).iter() {
            subscriber.after_commit(email);
        }
    }

    /// Announces the emails that the next commit changes, so that caches stop answering for them.
    fn notify_emails_changing(&self) {
        for subscriber in self.subscribers.emails.read().unwrap_or_else(PoisonError::into_inner).iter() {
            self.changed_emails.iter().for_each(|email| subscriber.before_commit(email));
        }
    }

    /// Notifies subscribers of the committed changes. The group's accepted emails must be published before this call,
    /// because accepts run before all jobs that can change an email.
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

    /// Writes the group's fresh keys and numbered events, then commits. The caller notifies the subscribers.
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

    /// Runs a job that deletes mail or words of it, and overwrites what it deletes. Otherwise deleted text would stay in
    /// the file until its place is used again. Other jobs don't pay for this.
    pub(crate) fn with_secure_delete<T>(&mut self, verb: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.conn.execute_batch("PRAGMA secure_delete = ON").map_err(store_error)?;
        let answer = verb(self);
        self.conn.execute_batch("PRAGMA secure_delete = OFF").map_err(store_error)?;
        answer
    }

    /// Rewrites the file. Must not run in a transaction.
    pub(crate) fn rewrite_file(&self) -> Result<()> {
        // The copy is as large as the ledger, which may not fit into memory.
        self.conn.execute_batch("PRAGMA temp_store = FILE").map_err(store_error)?;
        let rewritten = self.conn.execute_batch("VACUUM").map_err(store_error);
        self.conn.execute_batch("PRAGMA temp_store = MEMORY").map_err(store_error)?;
        rewritten
    }

    /// Empties the log. Must not run in a transaction. Accepts wait meanwhile, so it gives up soon when somebody reads.
    pub(crate) fn truncate_log(&self) -> Result<()> {
        self.conn.busy_timeout(TRUNCATE_TIMEOUT).map_err(store_error)?;
        let truncated = install_secret::truncate_wal(self.conn, Duration::ZERO);
        self.conn.busy_timeout(BUSY_TIMEOUT).map_err(store_error)?;
        truncated
    }

    /// Runs a job in a savepoint, so that its failure undoes only its own changes.
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

    /// Writes the pending events in blocks, separately for each team. The returned sequence numbers are valid only
    /// after the commit.
    fn write_events(&mut self) -> Result<HashMap<i64, u64>> {
        let mut numbers = HashMap::new();
        let mut by_team: HashMap<i64, Vec<PackedEvent>> = HashMap::new();
        for (team, event) in self.pending_events.drain(..) {
            by_team.entry(team).or_default().push(event);
        }
        for (team, list) in by_team {
            let before = self.last_event_seqs.get(&team).copied().unwrap_or(0);
            let mut last = before;
            for block in list.chunks(event_blocks::PER_BLOCK) {
                last += block.len() as u64;
                self.execute(event_blocks::INSERT, params![team, last as i64, event_blocks::pack_block(block)])?;
            }
            numbers.insert(team, last);
        }
        Ok(numbers)
    }

    /// Checkpoints the few frames that were written during the last checkpoint, so that the WAL can restart from its
    /// beginning.
    pub(crate) fn checkpoint_leftovers(&self) -> Result<()> {
        if !self.wal.has_leftover_frames.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let moved = self.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(store_error);
        moved.inspect_err(|error| tracing::warn!(%error, "moving the rest of the log into the file"))
    }
}
