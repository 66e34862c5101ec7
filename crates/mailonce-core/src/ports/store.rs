//! The store port: everything that mailonce persists.
//!
//! Every method is one transaction and is idempotent: a repeated call returns what the first call would have returned.
//! Business outcomes, refusals included, are values. A [`StoreError`] means only that the store could not answer. Time
//! and ids are arguments. Every row and every query carries its team.

use async_trait::async_trait;
use std::{fmt, sync::Arc};
use uuid::Uuid;

use crate::{
    access::team::{ApiKey, CreateTeamResult, Team},
    control::budget::BudgetCounter,
    events::event::Event,
    handoff::{
        action::HandoffAction,
        lease::{Backlog, HandoffActionResult, LeaseRequest, LeasedHandoff, OrphanBacklog, TransportAccount},
    },
    id::{ApiKeyId, EmailId, NodeId, TeamId},
    installation::{Gauges, Health, Heartbeat, InstallationInfo, RecoveryCounts, SweepCounts},
    key::KeyHash,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        email::Email,
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
        email_query::{EmailDetail, EmailQuery, EmailStats, ResultPage},
        key_binding::{KeyBinding, KeyChangeResult, KeyView},
        suppressed_call::SuppressedCalls,
    },
    ports::inbound_store::InboundWakeUpHandler,
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

/// What the store calls in the process that opened it.
#[derive(Default)]
pub struct StoreHooks {
    /// Dates the commits that end an email. Without it, the caller's time is used.
    pub clock: Option<SharedLedgerClock>,
    /// Receives changed emails.
    pub emails: Option<SharedEmailSubscriber>,
    /// Called when there is received mail to process or to read.
    pub inbound: Option<InboundWakeUpHandler>,
    /// Called when there are new events.
    pub events: Option<EventWakeUpHandler>,
}

/// Which hooks are called for every commit, whichever process made it. Where one is not, its caller must poll too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCoverage {
    /// Stores that share their data with other processes never call the hook for emails.
    pub emails: bool,
    /// Wake-ups for received mail.
    pub inbound: bool,
    /// Wake-ups for events.
    pub events: bool,
}

/// The store. The module documentation states the rules that every method follows.
#[async_trait]
pub trait Store:
    crate::ports::inbound_store::InboundStore
    + crate::ports::conversation_store::ConversationStore
    + crate::ports::control_store::ControlStore
    + crate::ports::claim_store::ClaimStore
    + crate::ports::audit_store::AuditStore
    + crate::ports::erasure_store::ErasureStore
    + crate::ports::notice_store::NoticeStore
    + crate::ports::search_store::SearchStore
    + crate::ports::template_store::TemplateStore
    + crate::ports::oauth_store::OauthStore
{
    // Sending

    /// Binds a key to a new email, once. Key, email, handoffs, events and all guards commit together.
    async fn accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult>;
    /// Answers as `accept` would, and writes nothing.
    async fn simulate_accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult>;
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
    /// Creates the next version of an email, once. `new_email.head.resend_of` names the previous version.
    async fn resend(
        &self,
        new_email: NewEmail,
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
    async fn lease_handoffs(&self, request: LeaseRequest, now: Time) -> Result<Vec<LeasedHandoff>>;
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
    /// The names of transports that processes published. Empty where only one process can use the ledger.
    async fn published_transports(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
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
    /// Statistics of the emails with an id from `from` (inclusive) to `to` (exclusive).
    async fn email_stats(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<EmailStats>;
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
    /// Whether the ledger was restored by means of the database, and no start has dealt with it yet. Stores that only
    /// we restore do not know.
    async fn has_restore_mark(&self) -> Result<bool> {
        Ok(false)
    }
    /// Records that a start has dealt with the restore.
    async fn clear_restore_mark(&self) -> Result<()> {
        Ok(())
    }
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
    /// Attaches the hooks of an engine. An engine attaches them once, after it read [`Self::installation`] and before
    /// any other call: its clock starts from the last heartbeat and the last id in the ledger, so the hooks cannot
    /// exist before the store is open. A later clock replaces the earlier one.
    fn attach(&self, hooks: StoreHooks) -> HookCoverage;
    /// Finishes running operations and closes the store.
    async fn close(&self);
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}
