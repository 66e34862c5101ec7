//! The store port: everything that mailonce persists.
//!
//! Every method is one transaction and is idempotent: a repeated call returns what the first call would have returned.
//! Business outcomes, refusals included, are values. A [`StoreError`] means only that the store could not answer. Time
//! and ids are arguments. Every row and every query carries its team.

use async_trait::async_trait;
use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};
use uuid::Uuid;

use crate::{
    access::team::{ApiKey, Team},
    call_trace::CallTrace,
    control::budget::{BudgetCounter, Charge, Overrun},
    events::event::Event,
    handoff::{
        Attempt, Evidence, Handoff, HandoffState,
        action::{HandoffAction, HandoffActionStatus},
    },
    id::{ApiKeyId, EmailId, NodeId, TeamId},
    key::{InstallSecret, KeyHash},
    mutant,
    outbound::{
        content_guard::ContentFingerprint,
        digest::Digest,
        email::{Channel, Email, EmailChangeRefusal, EmailHead, EmailState, Guard},
    },
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind, RecordPage},
    time::Time,
    ttl::Ttl,
};

/// The store could not answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written. The same call may succeed later.
    #[error("the ledger cannot be reached: {0}")]
    Unreachable(String),
    /// The commit may or may not have happened. Repeat the call with the same key to find out.
    #[error("the ledger did not confirm the commit: {0}")]
    CommitUnknown(String),
    /// An invariant is broken or the disk cannot be trusted. The process must stop.
    #[error("the ledger cannot be trusted: {0}")]
    Corrupt(String),
    /// The key encryption key is missing or wrong. Only opening a ledger returns this error.
    #[error("{0}")]
    Locked(String),
}

/// The result of a store call.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The identity and saved state of an installation.
#[derive(Clone, Debug)]
pub struct InstallationInfo {
    /// The secret from which Message-IDs and credential hashes are derived.
    pub secret: InstallSecret,
    /// The number of the current history. A restore or a failover increases it, and every cursor carries it.
    pub epoch: u32,
    /// The ordered bits of the highest id ever written, for [`crate::id::IdGenerator`].
    pub last_id: i64,
    /// The latest heartbeat of any process. `None` when there was none.
    pub last_heartbeat_at: Option<Time>,
    /// The clock of the database server. `None` when there is no server.
    pub database_clock: Option<DatabaseClock>,
}

/// A reading of the database server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseClock {
    /// The server's wall clock, read during the call.
    pub now: Time,
    /// Whether the server runs on another host, so that its clock is independent of the local one.
    pub is_on_other_host: bool,
}

/// The result of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The latest time that any process ever reported to the ledger.
    pub latest_time: Time,
    /// The clock of the database server. `None` when there is no server.
    pub database_clock: Option<DatabaseClock>,
}

/// One envelope of a new email.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The name of the transport.
    pub transport: String,
    /// The recipients, as bare addresses.
    pub recipients: Vec<String>,
}

/// A new email, to be accepted.
#[derive(Clone, Debug)]
pub struct NewEmail {
    /// The id that the email gets if its key is not bound yet.
    pub id: EmailId,
    /// The team that sends it.
    pub team: TeamId,
    /// The immutable part of the email, including its key.
    pub head: EmailHead,
    /// The digest of its meaning, compared when the key is used again.
    pub digest: Digest,
    /// The hash of the idempotency key, if there is one.
    pub key: Option<KeyHash>,
    /// The key of each recipient, when an intent names several recipients. They are bound together with the main key,
    /// so that a later email of the same intent to a subset of the recipients is detected.
    pub shadow_keys: Vec<KeyHash>,
    /// Whether a repeated send whose wording differs returns the first email instead of a mismatch.
    pub first_wins: bool,
    /// How long the key is remembered.
    pub ttl: Ttl,
    /// Its envelopes.
    pub envelopes: Vec<Envelope>,
    /// When it is due. `None` means now. Compared with the clock used for schedules.
    pub due_at: Option<Time>,
    /// The packed content.
    pub body: Arc<[u8]>,
    /// The input for the guards, and the decisions of guards that ran earlier.
    pub guard_input: GuardInput,
}

/// What guards need to know about a new email, and the decisions of the guards that ran before the transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardInput {
    /// The guard that holds the email, regardless of what the transaction finds.
    pub held_by: Option<Guard>,
    /// The guard that flags the email. A flagged email is sent.
    pub flagged_by: Option<Guard>,
    /// The fingerprint of the content. The transaction compares it with recent emails between the same people and holds
    /// the email when one matches. It is then stored for later comparisons.
    pub fingerprint: Option<ContentFingerprint>,
    /// For a resend with changed content: the previous version may still be held, and is cancelled in the same commit.
    pub cancels_previous: bool,
    /// What the email adds to budget counters. An email that would exceed a budget is not accepted.
    pub charges: Vec<Charge>,
}

impl NewEmail {
    /// The fingerprint to compare with other emails. A resend is a deliberate repeat: its fingerprint is stored but not
    /// compared.
    pub fn fingerprint_to_compare(&self) -> Option<&ContentFingerprint> {
        self.guard_input.fingerprint.as_ref().filter(|_| self.head.resend_of.is_none())
    }

    /// Whether the key is bound to something with another meaning, so that this email must be refused.
    pub fn mismatches(&self, bound: &KeyBinding) -> bool {
        bound.mismatches(&self.digest, self.first_wins)
    }

    /// The email that is stored when this is the first use of its key.
    pub fn into_email(self, bind: u32, guard: Option<Guard>, now: Time) -> (Email, Arc<[u8]>) {
        let state = if self.due_at.is_some() { HandoffState::Scheduled } else { HandoffState::Queued };
        let due = self.due_at.or(Some(now));
        let handoff = |(number, envelope)| Handoff::new(number as u16, envelope, state, due);
        let mut email = Email {
            id: self.id,
            team: self.team,
            rev: 1,
            head: Arc::new(self.head),
            digest: self.digest,
            bind_number: bind,
            ttl: self.ttl,
            settled_at: None,
            guard: None,
            resent_as: None,
            handoffs: apply_envelope_mutants(self.envelopes).into_iter().enumerate().map(handoff).collect(),
            suppressed: 0,
        };
        match guard.or(self.guard_input.held_by) {
            Some(guard) => email.hold(guard, now),
            None => email.guard = self.guard_input.flagged_by,
        }
        (email, self.body)
    }
}

/// Returns the envelopes unchanged, except under a mutant that drops or duplicates one.
fn apply_envelope_mutants(mut envelopes: Vec<Envelope>) -> Vec<Envelope> {
    if mutant!("recipient-dropped") && envelopes.len() > 1 {
        envelopes.pop();
    }
    if mutant!("handoff-doubled") {
        envelopes.extend(envelopes.first().cloned());
    }
    envelopes
}

/// The result of accepting a new email.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum AcceptResult {
    /// The key was free; this is the new email.
    First(Email),
    /// The key was bound before. The engine compares the digests.
    KeyBound(KeyBinding),
    /// The email would exceed a budget. Nothing was written, and its key stays free.
    OverBudget(Overrun),
}

/// What a key is bound to.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyBinding {
    /// An email.
    Email(Email),
    /// An operation other than a send, or a batch.
    Operation {
        /// The digest of the request.
        digest: [u8; 32],
    },
}

impl KeyBinding {
    /// Whether the binding has another meaning than a new email with this digest, so that the email must be refused.
    pub fn mismatches(&self, digest: &Digest, first_wins: bool) -> bool {
        let Self::Email(email) = self else { return true };
        // Digests of different versions cannot be compared here. The engine compares them later, for this item alone.
        if email.digest.version() != digest.version() {
            return false;
        }
        let differs = email.digest.differences(digest);
        let forgiven = first_wins && differs.iter().all(|field| field.is_forgivable());
        !differs.is_empty() && !forgiven
    }
}

/// A batch of new emails. Either every item is accepted or none.
#[derive(Clone, Debug)]
pub struct NewBatch {
    /// The team that sends it.
    pub team: TeamId,
    /// The batch's own idempotency key, if it has one.
    pub operation: Option<KeyedOperation>,
    /// Its items, in order.
    pub items: Vec<NewEmail>,
    /// Whether an item that contradicts the binding of its key rejects the whole batch.
    pub strict: bool,
}

/// The result of accepting a batch.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum BatchAcceptResult {
    /// The result of each item, in order.
    Items(Vec<AcceptResult>),
    /// The batch's key is bound to something else. Nothing was written.
    BatchKeyMismatch(KeyBinding),
    /// The key of this item is bound to something with another meaning. Nothing was written.
    ItemKeyMismatch(usize, KeyBinding),
    /// The batch is strict, and this item would exceed a budget. Nothing was written.
    OverBudget(usize, Overrun),
}

/// An operation other than a send, made repeatable by an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedOperation {
    /// The caller's team.
    pub team: TeamId,
    /// The hash of the idempotency key.
    pub key: KeyHash,
    /// The digest of the request.
    pub digest: [u8; 32],
    /// The sealed response for a replay. Empty when the operation itself returns the same response when repeated.
    pub response: Vec<u8>,
    /// Until when the key is remembered.
    pub expires_at: Time,
}

/// The result of a call that may be a replay.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum IdempotentResult<T> {
    /// Done now.
    Done(T),
    /// Done before; this is the stored response.
    Replayed(Vec<u8>),
    /// The key is bound to another request.
    KeyMismatch(KeyBinding),
}

impl<T> IdempotentResult<T> {
    /// Converts the value of `Done`.
    pub fn map<U>(self, said: impl FnOnce(T) -> U) -> IdempotentResult<U> {
        match self {
            Self::Done(done) => IdempotentResult::Done(said(done)),
            Self::Replayed(answer) => IdempotentResult::Replayed(answer),
            Self::KeyMismatch(bound) => IdempotentResult::KeyMismatch(bound),
        }
    }
}

/// The result of creating a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CreateTeamResult {
    /// The team was created, or this very team existed already.
    Created,
    /// Another team has the name. Nothing was created.
    NameTaken,
}

/// The result of changing an email.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum EmailChangeResult {
    /// The email after the change. It may have been in that state already.
    Changed(Email),
    /// Why the change was refused, and the unchanged email.
    Refused(EmailChangeRefusal, Email),
    /// The new time would exceed a budget. Nothing was written.
    OverBudget(Overrun),
    /// No such email in this team.
    Missing,
}

/// A new time for a scheduled email.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RescheduleRequest {
    /// When the email is due.
    pub due_at: Time,
    /// What the email adds to the budgets of the period in which it will be sent.
    pub charges: Vec<Charge>,
}

impl RescheduleRequest {
    /// A new time for an email that no budget counts.
    pub fn without_charges(due: Time) -> Self {
        Self { due_at: due, charges: Vec::new() }
    }
}

/// The result of a resend.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum EmailResendResult {
    /// The new version.
    First(Email),
    /// The version that an earlier call created.
    Replayed(Email),
    /// Why the resend was refused, and the previous version.
    Refused(EmailChangeRefusal, Email),
    /// The new version would exceed a budget. Nothing was written.
    OverBudget(Overrun),
    /// No such email in this team.
    Missing,
}

/// An email with its content and history.
#[derive(Clone, Debug, PartialEq)]
pub struct EmailDetail {
    /// The email.
    pub email: Email,
    /// The packed content. `None` once it was deleted.
    pub body: Option<Vec<u8>>,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// Evidence about the attempts, in the order in which it was recorded.
    pub evidence: Vec<Evidence>,
    /// The latest suppressed calls, newest first.
    pub suppressed_calls: Vec<SuppressedCall>,
}

/// A worker's request for due handoffs.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The name of the transport.
    pub transport: String,
    /// The node of the worker.
    pub node: NodeId,
    /// The maximum number of handoffs.
    pub max: usize,
    /// Recipient domains to skip, because enough handoffs to them are running.
    pub excluded_domains: Vec<String>,
    /// Scheduled handoffs due by this time are leased too. `None` while the wall clock is not trusted.
    pub schedule_cutoff: Option<Time>,
}

impl LeaseRequest {
    /// Whether the transport and the due time of a handoff allow this lease at `now`.
    pub fn may_lease(&self, handoff: &Handoff, now: Time) -> bool {
        handoff.transport == self.transport && handoff.is_due(self.schedule_cutoff, now)
    }
}

/// A leased handoff, with everything the worker needs to send it.
#[derive(Clone, Debug, PartialEq)]
pub struct LeasedHandoff {
    /// The current email.
    pub email: Email,
    /// The number of the handoff.
    pub handoff: u16,
    /// The packed content.
    pub body: Option<Vec<u8>>,
    /// The frozen bytes for its transport. Present once an attempt was marked.
    pub frozen_bytes: Option<Vec<u8>>,
}

/// The result of a handoff action.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum HandoffActionResult {
    /// The status of the action, and the email after it.
    Applied(HandoffActionStatus, Email),
    /// No such email in this team.
    Missing,
}

/// A transport of a process: its name and a fingerprint of the provider account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportAccount {
    /// Its name in the configuration.
    pub name: String,
    /// The account. See [`crate::ports::transport::Transport::account`].
    pub account: String,
}

/// A team's backlog for a transport that no live process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanBacklog {
    /// The team.
    pub team: TeamId,
    /// The transport.
    pub transport: String,
    /// Handoffs that are due now or later.
    pub waiting: u64,
    /// Handoffs whose outcome is unknown.
    pub unknown: u64,
}

/// What was reclaimed from dead processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounts {
    /// Leased handoffs that were queued again. Their sending had not begun.
    pub queued: usize,
    /// Handoffs that may have been sent.
    pub unknown: usize,
    /// Deliveries that were being processed; they are due at once.
    pub deliveries: usize,
    /// Notices that were being sent; they are due at once.
    pub notices: usize,
}

impl RecoveryCounts {
    /// Counts a handoff that was reclaimed from a dead process.
    pub fn count_handoff(&mut self, email: &Email, number: u16) {
        match email.handoffs.get(usize::from(number)).map(|handoff| handoff.state) {
            Some(HandoffState::Unknown) => self.unknown += 1,
            _ => self.queued += 1,
        }
    }
}

/// The outbound backlog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Handoffs that are due now or later, by transport.
    pub waiting: Vec<(String, u64)>,
    /// Handoffs whose outcome is unknown.
    pub unknown: u64,
    /// The earliest due time in the backlog.
    pub oldest_due_at: Option<Time>,
}

/// A call that was answered with an earlier email.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SuppressedCall {
    /// When the call was made.
    pub at: Time,
    /// The API key of the call.
    pub caller: Option<ApiKeyId>,
    /// The channel of the call.
    pub channel: Channel,
    /// Why the call created no email.
    pub reason: SuppressedReason,
    /// The caller's own ids for the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallTrace>,
}

crate::string_enum::string_enum! {
    /// Why a call created no email.
    SuppressedReason {
        /// Same key, same meaning.
        KeyReplay = "key_replay",
        /// Same key, other wording; the first email was returned.
        PayloadDiffers = "payload_differs",
        /// Same key, other meaning; the call was refused.
        Mismatch = "mismatch",
        /// Another reply to a message that has its reply.
        AlreadyAnswered = "already_answered",
    }
}

/// Suppressed calls of one email since they were last recorded.
#[derive(Clone, Debug)]
pub struct SuppressedCalls {
    /// The team.
    pub team: TeamId,
    /// The email with which the calls were answered.
    pub email: EmailId,
    /// The number of calls.
    pub count: u64,
    /// The latest of them, oldest first, at most [`crate::limits::SUPPRESSED_CALLS_KEPT`].
    pub latest: Vec<SuppressedCall>,
}

/// A filter for a list of emails.
#[derive(Clone, Debug, Default)]
pub struct EmailQuery {
    /// In this state.
    pub state: Option<EmailState>,
    /// To this bare address.
    pub to: Option<String>,
    /// From one of these bare addresses.
    pub from: Option<Vec<String>>,
    /// Under this key.
    pub key: Option<KeyHash>,
    /// Accepted at or after.
    pub since: Option<Time>,
    /// Accepted before.
    pub until: Option<Time>,
    /// Older than this email.
    pub before: Option<EmailId>,
    /// The maximum number of emails.
    pub limit: usize,
}

impl EmailQuery {
    /// Whether an email passes the filter. The page position (`before`, `limit`) is not checked.
    pub fn matches(&self, email: &Email) -> bool {
        let head = &email.head;
        let named = |to: &String| head.to.iter().chain(&head.cc).chain(&head.bcc).any(|address| address == to);
        self.state.is_none_or(|state| email.state() == state)
            && self.to.as_ref().is_none_or(named)
            && self.from.as_ref().is_none_or(|all| all.iter().any(|from| from.eq_ignore_ascii_case(&head.from)))
            && self.key.is_none_or(|key| head.key.as_ref().is_some_and(|name| name.hash(email.team) == key))
            && self.since.is_none_or(|since| head.created_at >= since)
            && self.until.is_none_or(|until| head.created_at < until)
    }
}

/// A page, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultPage<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// The cursor of the next page; `None` at the end. A page shorter than its limit may still have a next page.
    pub next: Option<EmailId>,
}

/// The current state of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyView {
    /// How often it was bound.
    pub bind_number: u32,
    /// What it is bound to. `None` when it is forgotten.
    pub binding: Option<KeyBinding>,
    /// When it will be forgotten. `None` while that is not known, and after it happened.
    pub expires_at: Option<Time>,
    /// When it was forgotten.
    pub forgotten_at: Option<Time>,
    /// The latest suppressed calls, newest first.
    pub suppressed_calls: Vec<SuppressedCall>,
}

/// The result of changing a key.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum KeyChangeResult {
    /// Done; this is the current email.
    Done(Email),
    /// The email of the key is not terminal, so the key cannot be forgotten.
    NotTerminal(Email),
    /// The key is not bound to an email.
    Missing,
}

/// What a sweep deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepCounts {
    /// Keys that were forgotten.
    pub keys: usize,
    /// Bodies that were deleted.
    pub bodies: usize,
    /// Tombstones that were removed.
    pub tombstones: usize,
    /// Deliveries that were deleted: old suppressed ones, and those of removed inboxes with everything made from them.
    pub deliveries: usize,
    /// Notices that were deleted: old settled ones, and those of removed endpoints.
    pub notices: usize,
}

/// The health of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The name of the database engine.
    pub engine: &'static str,
    /// Whether acknowledged commits could be lost, because of weak settings or asynchronous replicas.
    pub degraded: bool,
    /// Notes for the operator about durability and replicas, good or bad.
    pub notes: Vec<String>,
}

/// Statistics of the store, for the metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Histogram of operations per commit: buckets 1, 2, 4, 8 … 1024 and more.
    pub batch_sizes: [u64; 12],
    /// The number of commits.
    pub commits: u64,
    /// The number of committed operations.
    pub operations: u64,
    /// Histogram of commit durations: up to 1, 2, 4, 8 … 1024 ms and more.
    pub commit_ms: [u64; 12],
    /// Sum of commit times, in microseconds.
    pub commit_us: u64,
    /// Accepts that waited for another accept of the same scope.
    pub contended_accepts: u64,
    /// The approximate number of remembered keys.
    pub keys: u64,
}

/// Receives every committed change of an email, so that a cache never returns an older state than a reader of the
/// ledger may have seen.
///
/// The store calls it in commit order; within a commit, in the order in which the operations ran.
pub trait EmailSubscriber: Send + Sync {
    /// A commit that changes this email is about to run. Until [`Self::after_commit`] is called for the email, a cache
    /// must not answer for it: readers may see the new state first.
    fn before_commit(&self, _email: &Email) {}

    /// The commit succeeded, and this is the new state. Called before any caller gets its answer.
    fn after_commit(&self, email: &Email);
}

impl<F: Fn(&Email) + Send + Sync> EmailSubscriber for F {
    fn after_commit(&self, email: &Email) {
        self(email);
    }
}

/// A registered subscriber.
pub type SharedEmailSubscriber = Arc<dyn EmailSubscriber>;

/// Called after a commit that wrote events, with their team, or `None` when they may be of any team. A call may be
/// lost.
pub type EventWakeUpHandler = Box<dyn Fn(Option<TeamId>) + Send + Sync>;

/// The clock that stores read inside a transaction.
pub trait LedgerClock: Send + Sync {
    /// Ledger time: the timestamp of a commit that happens now.
    fn now(&self) -> Time;
    /// Keys and operations that expired by this time may be forgotten. Returns the earliest possible time while this
    /// process must not forget anything.
    fn expiry_cutoff(&self) -> Time;
}

/// A shared ledger clock.
pub type SharedLedgerClock = Arc<dyn LedgerClock>;

/// The timestamp of a commit. A caller may stall between reading the clock and its commit, for longer than a key is
/// remembered. So the end of an email is dated by the commit; otherwise its key could be forgotten at once.
#[derive(Default)]
pub struct CommitClock(RwLock<Option<SharedLedgerClock>>);

impl CommitClock {
    /// Sets the clock to read from now on.
    pub fn set_clock(&self, keeper: SharedLedgerClock) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(keeper);
    }

    /// The timestamp of a commit that was requested at `asked`; never earlier than `asked`. To be read inside the
    /// commit.
    pub fn commit_time(&self, asked: Time) -> Time {
        let keeper = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match keeper.as_ref() {
            Some(keeper) if !mutant!("commit-dated-by-its-caller") => keeper.now().max(asked),
            _ => asked,
        }
    }

    /// Keys and operations that expired by this time count as forgotten in a call made at `asked`.
    pub fn expiry_cutoff(&self, asked: Time) -> Time {
        let keeper = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match keeper.as_ref() {
            Some(keeper) => keeper.expiry_cutoff().min(asked),
            None => asked,
        }
    }
}

impl fmt::Debug for CommitClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommitTime")
    }
}

/// The store. The module documentation states the rules that every method follows.
#[async_trait]
pub trait Store:
    crate::ports::inbound_store::InboundStore
    + crate::ports::conversation_store::ConversationStore
    + crate::ports::notice_store::NoticeStore
{
    // Sending

    /// Binds a key to a new email, once. Key, email, handoffs, events and all guards commit together.
    async fn accept(&self, wish: NewEmail, now: Time) -> Result<AcceptResult>;
    /// Accepts every item of a batch, or none.
    async fn accept_batch(&self, batch: NewBatch, now: Time) -> Result<BatchAcceptResult>;
    /// Binds a key to an operation that changes nothing else, once. Decides between nodes that received the same
    /// one-time token.
    async fn bind_operation(&self, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>>;
    /// The current binding of a key. `None` when it is free or forgotten.
    async fn key_binding(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyBinding>>;
    /// Cancels an email.
    async fn cancel(
        &self,
        team: TeamId,
        id: EmailId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailChangeResult>>;
    /// Moves a scheduled email, and its budget charges, to another time.
    async fn reschedule(
        &self,
        team: TeamId,
        id: EmailId,
        new: RescheduleRequest,
        now: Time,
    ) -> Result<EmailChangeResult>;
    /// Creates the next version of an email, once. `wish.head.resend_of` names the previous version.
    async fn resend(
        &self,
        wish: NewEmail,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailResendResult>>;
    /// Hands up to `max` due envelopes to the sandbox in one commit, including scheduled ones due by `scheduled_by`.
    /// Returns the number of envelopes.
    async fn capture(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> Result<usize>;
    /// When the next envelope for a transport is due.
    async fn next_handoff_due(&self, transport: &str) -> Result<Option<Time>>;
    /// Counts calls that were answered with an earlier email, and keeps the latest of them.
    async fn record_suppressed_calls(&self, calls: Vec<SuppressedCalls>, now: Time) -> Result<()>;

    // Handoffs

    /// Leases due handoffs to a worker, earliest due first. Each lease increases the fence of its handoff.
    async fn lease_handoffs(&self, wish: LeaseRequest, now: Time) -> Result<Vec<LeasedHandoff>>;
    /// A handoff with everything needed to send it, for a worker that already holds its lease.
    async fn leased_handoff(&self, team: TeamId, id: EmailId, number: u16) -> Result<Option<LeasedHandoff>>;
    /// Applies an action to the handoffs of an email. Evidence with a `once` name is recorded once.
    async fn apply_action(
        &self,
        team: TeamId,
        id: EmailId,
        act: HandoffAction,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<HandoffActionResult>>;
    /// Unknown handoffs that are due for a check by a process with these transports, earliest due first. Handoffs of
    /// other transports are left to the processes that have them. The same goes for handoffs whose attempts used
    /// another account under the same name, while a process recently had that account.
    async fn due_unknown_handoffs(&self, mine: &[TransportAccount], max: usize, now: Time)
    -> Result<Vec<(Email, u16)>>;
    /// Publishes the transports of a live process. Repeated with each heartbeat.
    async fn publish_transports(&self, node: NodeId, mine: &[TransportAccount], now: Time) -> Result<()>;
    /// Backlogs of transports that are not in `known` and that no live process has, by team and transport.
    async fn orphan_backlogs(&self, known: &[String], now: Time) -> Result<Vec<OrphanBacklog>>;
    /// Emails with a handoff that is waiting, running or unknown at a transport. Ordered by team and id, after the
    /// given one.
    async fn emails_open_at_transport(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Result<Vec<(TeamId, EmailId)>>;
    /// Records that a process is alive, and its time. Returns the latest time of all processes and the database's
    /// clock.
    async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat>;
    /// Reclaims up to `max` handoffs of dead processes: leased ones are queued again, sending ones become unknown. Also
    /// makes up to `max` of their deliveries and `max` of their notices due at once. `node` counts as alive.
    async fn recover_dead_nodes(&self, node: NodeId, max: usize, now: Time) -> Result<RecoveryCounts>;
    /// The handoff for which a next hop returned this id.
    async fn handoff_by_remote_id(&self, team: TeamId, remote_id: &str) -> Result<Option<(EmailId, u16)>>;
    /// The outbound backlog.
    async fn backlog(&self) -> Result<Backlog>;

    // Queries

    /// One email.
    async fn email(&self, team: TeamId, id: EmailId) -> Result<Option<Email>>;
    /// Everything about one email.
    async fn email_detail(&self, team: TeamId, id: EmailId) -> Result<Option<EmailDetail>>;
    /// Emails, newest first.
    async fn emails(&self, team: TeamId, query: EmailQuery) -> Result<ResultPage<Email>>;
    /// The number of emails with an id from `from` (inclusive) to `to` (exclusive).
    async fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<u64>;
    /// Held or unknown emails of all teams. Ordered by team and id, after the given one.
    async fn held_or_unknown_emails(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>>;
    /// Events with a number above `after`, in order.
    async fn events(&self, team: TeamId, after: u64, limit: usize) -> Result<Vec<Event>>;

    // Keys

    /// The state of a key, forgotten or not. `None` when it was never bound.
    async fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyView>>;
    /// Changes how long a key is remembered.
    async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Result<KeyChangeResult>;
    /// Forgets a key now, if its email is terminal.
    async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<KeyChangeResult>;

    // Teams and credentials

    /// Creates a team with its first API key, unless the name is taken. The key of the operation is bound only when the
    /// team was created.
    async fn create_team(
        &self,
        team: Team,
        key: ApiKey,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTeamResult>>;
    /// Every team.
    async fn teams(&self) -> Result<Vec<Team>>;
    /// Sets whether a team requires idempotency keys. `None` when there is no such team.
    async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Option<Team>>;
    /// Creates an API key.
    async fn create_api_key(&self, key: ApiKey, operation: Option<KeyedOperation>) -> Result<IdempotentResult<()>>;
    /// The API keys of a team, newest first.
    async fn api_keys(&self, team: TeamId) -> Result<Vec<ApiKey>>;
    /// The API key with this hash, and its team.
    async fn api_key_by_hash(&self, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>>;
    /// Revokes an API key. `None` when the team has no such key.
    async fn revoke_api_key(&self, team: TeamId, id: ApiKeyId, now: Time) -> Result<Option<ApiKey>>;
    /// Records when API keys were last used.
    async fn touch_api_keys(&self, used: Vec<(ApiKeyId, Time)>) -> Result<()>;

    // Records

    /// Creates a record, unless its name is taken. The key of the operation is bound only when the record was created.
    async fn create_record(
        &self,
        record: Record,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateRecordResult>>;
    /// One record.
    async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>>;
    /// The record with this name.
    async fn record_by_name(&self, team: TeamId, kind: RecordKind, name: &str) -> Result<Option<Record>>;
    /// A record of any team, for callers that know only its id.
    async fn record_of_any_team(&self, kind: RecordKind, id: Uuid) -> Result<Option<Record>>;
    /// Records older than `before`, newest first.
    async fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> Result<RecordPage>;
    /// Changes a record, if it still has the revision that the caller saw. The key of the operation is bound only when
    /// the record was changed.
    async fn change_record(
        &self,
        edit: RecordEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<RecordChangeResult>>;
    /// Removes a record. `None` when the team has no such record.
    async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>>;

    // Budgets

    /// The used amount of each of these counters of a team, in the same order.
    async fn budget_usage(&self, team: TeamId, counters: Vec<BudgetCounter>) -> Result<Vec<u64>>;

    // Maintenance

    /// The identity of this installation. Created once, and constant afterwards.
    async fn installation(&self) -> Result<InstallationInfo>;
    /// Deletes what has expired: at most `max` emails, `max` deliveries and `max` notices.
    async fn sweep(&self, max: usize, now: Time) -> Result<SweepCounts>;
    /// The health of the store. Fails when the store cannot commit.
    async fn health(&self) -> Result<Health>;
    /// The epoch that the next call reads, for stores where it may change while open. A failover may lose events that
    /// readers have seen. Does no I/O.
    fn epoch(&self) -> Option<u32> {
        None
    }
    /// The error with which the store stopped for good, if it did. Does no I/O.
    fn fatal_error(&self) -> Option<StoreError>;
    /// Statistics for the metrics.
    fn gauges(&self) -> Gauges;
    /// Registers a subscriber for changed emails. Stores that share their data with other processes never call it and
    /// return false.
    fn subscribe_to_emails(&self, watcher: SharedEmailSubscriber) -> bool;
    /// Registers a handler for new events. Returns true when it is called for every commit; otherwise the caller must
    /// poll too.
    fn subscribe_to_events(&self, _hearer: EventWakeUpHandler) -> bool {
        false
    }
    /// Sets the clock that dates commits which end an email. Without one, the caller's time is used.
    fn set_commit_clock(&self, keeper: SharedLedgerClock);
    /// Finishes running operations and closes the store.
    async fn close(&self);
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}
