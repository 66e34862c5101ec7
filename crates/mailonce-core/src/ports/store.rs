//! What mailonce must remember.
//!
//! Every method is one transaction and safe to repeat: the second call gives the answer the first would have
//! given. Answers about the business are values; [`StoreError`] only ever means that the store could not tell.
//! Time and ids are arguments. Every row and every query carries its team.

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

/// The store could not tell.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written; the same call may succeed later.
    #[error("the ledger cannot be reached: {0}")]
    Unreachable(String),
    /// The fate of the commit is unknown; the same call with the same key finds out.
    #[error("the ledger did not confirm the commit: {0}")]
    CommitUnknown(String),
    /// An invariant is broken, or the disk cannot be trusted: stop.
    #[error("the ledger cannot be trusted: {0}")]
    Corrupt(String),
    /// The key encryption key is missing or is another one. Only opening a ledger answers this.
    #[error("{0}")]
    Locked(String),
}

/// What a store answers with.
pub type Result<T> = std::result::Result<T, StoreError>;

/// What an installation is.
#[derive(Clone, Debug)]
pub struct InstallationInfo {
    /// From which Message-IDs and credential hashes are made.
    pub secret: InstallSecret,
    /// Renewed by a restore; part of every cursor.
    pub epoch: u32,
    /// The ordered bits of the highest id ever written, for [`crate::id::IdMaker`].
    pub last_id: i64,
    /// The latest time that a process said it lived, or `None` when none ever did.
    pub last_heartbeat_at: Option<Time>,
    /// The clock of the database server, when there is one.
    pub database_clock: Option<DatabaseClock>,
}

/// What the clock of a database server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseClock {
    /// The server's wall clock, read while the verb ran.
    pub now: Time,
    /// Whether the server runs on another host, so that its clock is independent of ours.
    pub is_on_other_host: bool,
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The latest time that any process ever told the ledger.
    pub latest_time: Time,
    /// The clock of the database server, when there is one.
    pub database_clock: Option<DatabaseClock>,
}

/// One envelope of a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The way out.
    pub transport: String,
    /// Whom it is for.
    pub recipients: Vec<String>,
}

/// An email that wants to be accepted.
#[derive(Clone, Debug)]
pub struct NewEmail {
    /// The id it gets if it is the first.
    pub id: EmailId,
    /// Whose it is.
    pub team: TeamId,
    /// What never changes. The key is in here.
    pub head: EmailHead,
    /// What it means.
    pub digest: Digest,
    /// The hash of the key, when there is one.
    pub key: Option<KeyHash>,
    /// The recipients' own keys, when an intent names several: taken together with the key, so that a later email
    /// of the same intent to some of them is noticed.
    pub shadow_keys: Vec<KeyHash>,
    /// Whether another wording of the same wish is forgiven.
    pub first_wins: bool,
    /// How long the key is remembered.
    pub ttl: Ttl,
    /// Its envelopes.
    pub envelopes: Vec<Envelope>,
    /// When it is due, if that is later by the clock that schedules follow.
    pub due_at: Option<Time>,
    /// The packed content.
    pub body: Arc<[u8]>,
    /// What guards need to know of it, and what they said before.
    pub guard_input: GuardInput,
}

/// What guards need to know of an email that wants to be accepted, and what those said that could speak before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardInput {
    /// Hold it, whatever else is found.
    pub held_by: Option<Guard>,
    /// Say so, and let it go.
    pub flagged_by: Option<Guard>,
    /// Compared inside the transaction with the latest between the same people, and remembered for those to come.
    /// When one of them says the same, it is held.
    pub fingerprint: Option<ContentFingerprint>,
    /// For a next version: the version before may be held still, and is taken back in the same commit.
    pub cancels_previous: bool,
    /// What it counts for in budgets. Nothing is accepted that would exceed one.
    pub charges: Vec<Charge>,
}

impl NewEmail {
    /// What is compared with others. A later version was asked for on purpose: it is only remembered.
    pub fn fingerprint_to_compare(&self) -> Option<&ContentFingerprint> {
        self.guard_input.fingerprint.as_ref().filter(|_| self.head.resend_of.is_none())
    }

    /// Whether what its key is bound to means something else, which must not be forgiven.
    pub fn mismatches(&self, bound: &KeyBinding) -> bool {
        bound.mismatches(&self.digest, self.first_wins)
    }

    /// The email it becomes when it is the first of its key.
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

/// The envelopes themselves, unless a rig wants to see one too few or too many.
fn apply_envelope_mutants(mut envelopes: Vec<Envelope>) -> Vec<Envelope> {
    if mutant!("recipient-dropped") && envelopes.len() > 1 {
        envelopes.pop();
    }
    if mutant!("handoff-doubled") {
        envelopes.extend(envelopes.first().cloned());
    }
    envelopes
}

/// The answer to a wish.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum AcceptResult {
    /// It was the first; this is what it became.
    First(Email),
    /// Its key was bound before. Whether the digests agree is for the engine to say.
    KeyBound(KeyBinding),
    /// It would exceed a budget. Nothing was written, and its key stays free.
    OverBudget(Overrun),
}

/// What a key is bound to.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyBinding {
    /// An email.
    Email(Email),
    /// An operation that is not a send, or a batch.
    Operation {
        /// What was asked.
        digest: [u8; 32],
    },
}

impl KeyBinding {
    /// Whether it means something else than a wish with this digest, which must not be forgiven.
    pub fn mismatches(&self, digest: &Digest, first_wins: bool) -> bool {
        let Self::Email(email) = self else { return true };
        // Digests of two versions cannot be compared here; the engine does, and answers for the item alone.
        if email.digest.version() != digest.version() {
            return false;
        }
        let differs = email.digest.differences(digest);
        let forgiven = first_wins && differs.iter().all(|field| field.is_forgivable());
        !differs.is_empty() && !forgiven
    }
}

/// A batch that wants to be accepted: every item or none.
#[derive(Clone, Debug)]
pub struct NewBatch {
    /// Whose it is.
    pub team: TeamId,
    /// The batch's own key, when it has one.
    pub operation: Option<KeyedOperation>,
    /// Its items, in order.
    pub items: Vec<NewEmail>,
    /// Whether an item that contradicts what its key is bound to refuses the whole batch.
    pub strict: bool,
}

/// The answer to a batch.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum BatchAcceptResult {
    /// Each item's answer, in order.
    Items(Vec<AcceptResult>),
    /// The batch's key is bound to something else. Nothing was written.
    BatchKeyMismatch(KeyBinding),
    /// The key of this item is bound to something that means something else. Nothing was written.
    ItemKeyMismatch(usize, KeyBinding),
    /// The batch is strict, and this item would exceed a budget. Nothing was written.
    OverBudget(usize, Overrun),
}

/// A repeatable call that is not a send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedOperation {
    /// The caller's team.
    pub team: TeamId,
    /// The hash of its key.
    pub key: KeyHash,
    /// What was asked.
    pub digest: [u8; 32],
    /// What to answer when it is asked again, sealed. Empty when the verb itself repeats well.
    pub response: Vec<u8>,
    /// Until when it is remembered.
    pub expires_at: Time,
}

/// The answer to a call that may be a repeat.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum IdempotentResult<T> {
    /// Done now.
    Done(T),
    /// Done before; this is what was to be answered.
    Replayed(Vec<u8>),
    /// The key is bound to something else.
    KeyMismatch(KeyBinding),
}

impl<T> IdempotentResult<T> {
    /// What was done now, said otherwise.
    pub fn map<U>(self, said: impl FnOnce(T) -> U) -> IdempotentResult<U> {
        match self {
            Self::Done(done) => IdempotentResult::Done(said(done)),
            Self::Replayed(answer) => IdempotentResult::Replayed(answer),
            Self::KeyMismatch(bound) => IdempotentResult::KeyMismatch(bound),
        }
    }
}

/// The answer to a team that wants to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CreateTeamResult {
    /// It was made, or this very team was there.
    Created,
    /// Another team has the name; nothing was made.
    NameTaken,
}

/// The answer to a change of one email.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum EmailChangeResult {
    /// What it became, or already was.
    Changed(Email),
    /// Why it was refused, and what it is.
    Refused(EmailChangeRefusal, Email),
    /// A move to this time would exceed a budget. Nothing was written.
    OverBudget(Overrun),
    /// No such email in this team.
    Missing,
}

/// Another time for a scheduled email.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RescheduleRequest {
    /// When it is due.
    pub due_at: Time,
    /// What it counts for in the budgets of the period in which it will leave.
    pub charges: Vec<Charge>,
}

impl RescheduleRequest {
    /// A time for an email that counts in no budget.
    pub fn without_charges(due: Time) -> Self {
        Self { due_at: due, charges: Vec::new() }
    }
}

/// The answer to a wish for the next version of an email.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum EmailResendResult {
    /// The new version.
    First(Email),
    /// The version that was made before.
    Replayed(Email),
    /// Why it was refused.
    Refused(EmailChangeRefusal, Email),
    /// The new version would exceed a budget. Nothing was written.
    OverBudget(Overrun),
    /// No such email in this team.
    Missing,
}

/// Everything about one email.
#[derive(Clone, Debug, PartialEq)]
pub struct EmailDetail {
    /// The email.
    pub email: Email,
    /// The packed content; `None` once it was dropped.
    pub body: Option<Vec<u8>>,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// Facts about them, in the order they were learnt.
    pub evidence: Vec<Evidence>,
    /// The latest suppressed calls, newest first.
    pub suppressed_calls: Vec<SuppressedCall>,
}

/// A wish for work.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// For this way out.
    pub transport: String,
    /// Who works.
    pub node: NodeId,
    /// At most so many.
    pub max: usize,
    /// Not for recipients at these domains: enough is under way there.
    pub excluded_domains: Vec<String>,
    /// Scheduled handoffs that are due by then are taken too. `None` while the time is not sure.
    pub schedule_cutoff: Option<Time>,
}

impl LeaseRequest {
    /// Whether it may have this handoff at `now`, as far as transport and due time say.
    pub fn may_lease(&self, handoff: &Handoff, now: Time) -> bool {
        handoff.transport == self.transport && handoff.is_due(self.schedule_cutoff, now)
    }
}

/// A handoff that a worker holds, with what it needs to hand it over.
#[derive(Clone, Debug, PartialEq)]
pub struct LeasedHandoff {
    /// The email, as it is now.
    pub email: Email,
    /// Which handoff.
    pub handoff: u16,
    /// The packed content.
    pub body: Option<Vec<u8>>,
    /// The frozen bytes for its transport, once an attempt was marked.
    pub frozen_bytes: Option<Vec<u8>>,
}

/// The answer to an act.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum HandoffActionResult {
    /// What came of it, and what the email is now.
    Applied(HandoffActionStatus, Email),
    /// No such email in this team.
    Missing,
}

/// A transport that a process has: its name and a fingerprint of the account behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportAccount {
    /// Its name in the configuration.
    pub name: String,
    /// The account, see [`crate::ports::transport::Transport::account`].
    pub account: String,
}

/// What waits in a team for a transport that no live process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanBacklog {
    /// Whose it is.
    pub team: TeamId,
    /// The transport.
    pub transport: String,
    /// Handoffs that are due or will be.
    pub waiting: u64,
    /// Handoffs whose outcome is unknown.
    pub unknown: u64,
}

/// What was taken from processes that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounts {
    /// Handoffs that nobody had begun, back in the queue.
    pub queued: usize,
    /// Handoffs that may have left.
    pub unknown: usize,
    /// Deliveries that were being read, to be read again at once.
    pub deliveries: usize,
    /// Notices that were being told, due at once.
    pub notices: usize,
}

impl RecoveryCounts {
    /// Counts what became of a handoff whose process ended.
    pub fn count_handoff(&mut self, email: &Email, number: u16) {
        match email.handoffs.get(usize::from(number)).map(|handoff| handoff.state) {
            Some(HandoffState::Unknown) => self.unknown += 1,
            _ => self.queued += 1,
        }
    }
}

/// What waits to be handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Handoffs that are due or will be, by transport.
    pub waiting: Vec<(String, u64)>,
    /// Handoffs whose outcome is unknown.
    pub unknown: u64,
    /// When the one that waits longest became due.
    pub oldest_due_at: Option<Time>,
}

/// A call that was answered with an earlier email.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SuppressedCall {
    /// When.
    pub at: Time,
    /// The credential it came with.
    pub caller: Option<ApiKeyId>,
    /// The door it came through.
    pub channel: Channel,
    /// Why it made no email.
    pub reason: SuppressedReason,
    /// What its caller calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallTrace>,
}

crate::string_enum::string_enum! {
    /// Why a call made no email.
    SuppressedReason {
        /// The same key, the same meaning.
        KeyReplay = "key_replay",
        /// The same key, another wording, forgiven.
        PayloadDiffers = "payload_differs",
        /// The same key, another meaning, refused.
        Mismatch = "mismatch",
        /// Another answer to a message that was answered.
        AlreadyAnswered = "already_answered",
    }
}

/// Suppressed calls of one email since the last note.
#[derive(Clone, Debug)]
pub struct SuppressedCalls {
    /// Whose.
    pub team: TeamId,
    /// Which email they were answered with.
    pub email: EmailId,
    /// How many.
    pub count: u64,
    /// The latest of them, oldest first, at most [`crate::limits::SUPPRESSED_KEPT`].
    pub latest: Vec<SuppressedCall>,
}

/// Which emails to list.
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
    /// At most so many.
    pub limit: usize,
}

impl EmailQuery {
    /// Whether an email belongs on the page, its place apart.
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
    /// Where to go on; `None` at the end. A page may be short and still have more behind it.
    pub next: Option<EmailId>,
}

/// What a key is, now.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyView {
    /// How often it was bound.
    pub bind_number: u32,
    /// What it is bound to; `None` when it is forgotten.
    pub binding: Option<KeyBinding>,
    /// When it will be forgotten; `None` while that is not known, and once it was.
    pub expires_at: Option<Time>,
    /// When it was forgotten.
    pub forgotten_at: Option<Time>,
    /// The latest suppressed calls, newest first.
    pub suppressed_calls: Vec<SuppressedCall>,
}

/// The answer to a change of a key.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum KeyChangeResult {
    /// Done; the email as it is now.
    Done(Email),
    /// Its email is not terminal: it cannot be forgotten.
    NotTerminal(Email),
    /// Not bound to an email.
    Missing,
}

/// What the sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepCounts {
    /// Keys that were forgotten.
    pub keys: usize,
    /// Bodies that were dropped.
    pub bodies: usize,
    /// Tombstones that were removed.
    pub tombstones: usize,
    /// Deliveries that were removed: suppressed ones that were old, and those of removed inboxes with all they made.
    pub deliveries: usize,
    /// Notices that were removed: settled ones that were old, and those of removed endpoints.
    pub notices: usize,
}

/// How the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The engine's name.
    pub engine: &'static str,
    /// Whether what it acknowledges could be lost: weaker settings, asynchronous replicas.
    pub degraded: bool,
    /// What a person should know, good or bad: durability, replicas.
    pub notes: Vec<String>,
}

/// Figures the store keeps about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Verbs in each commit, as counts of batch sizes 1, 2, 4, 8 … 1024 and more.
    pub batch_sizes: [u64; 12],
    /// Commits.
    pub commits: u64,
    /// Verbs committed.
    pub operations: u64,
    /// Commits by how long they took: up to 1, 2, 4, 8 … 1024 ms and more.
    pub commit_ms: [u64; 12],
    /// Sum of commit times, in microseconds.
    pub commit_us: u64,
    /// Accepts that found another of the same scope ahead of them and waited for it.
    pub contended_accepts: u64,
    /// Keys remembered, about.
    pub keys: u64,
}

/// Follows emails through commits, so that a cache never shows an older state than a reader of the ledger may have seen.
///
/// The store calls it in the order of commits, and inside a commit in the order in which its verbs ran.
pub trait EmailSubscriber: Send + Sync {
    /// A commit that changes this email comes next. Until [`Self::changed`] names the email, a cache must not answer for it:
    /// readers may see the new state before the watcher does.
    fn before_commit(&self, _email: &Email) {}

    /// The commit stands, and this is what the email became. Called before any caller learns of it.
    fn after_commit(&self, email: &Email);
}

impl<F: Fn(&Email) + Send + Sync> EmailSubscriber for F {
    fn after_commit(&self, email: &Email) {
        self(email);
    }
}

/// A registered watcher.
pub type SharedEmailSubscriber = Arc<dyn EmailSubscriber>;

/// Called after a commit that left events, with their team, or with none when it may be any. A hint: it may be lost.
pub type EventWakeUpHandler = Box<dyn Fn(Option<TeamId>) + Send + Sync>;

/// The clock that stores ask inside a transaction.
pub trait LedgerClock: Send + Sync {
    /// Ledger time: the date of what is committed now.
    fn now(&self) -> Time;
    /// Keys and operations that expired by then may be forgotten. The earliest time there is while this process may
    /// not forget.
    fn expiry_cutoff(&self) -> Time;
}

/// Tells the time to a transaction.
pub type SharedLedgerClock = Arc<dyn LedgerClock>;

/// The time of a commit. A caller may stand still between its look at the clock and its commit for longer than a key
/// is remembered; what ends an email is dated by the commit, or its key would be forgotten at once.
#[derive(Default)]
pub struct CommitClock(RwLock<Option<SharedLedgerClock>>);

impl CommitClock {
    /// Has this keeper asked from now on.
    pub fn set_clock(&self, keeper: SharedLedgerClock) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(keeper);
    }

    /// The time of a commit that was asked for at `asked`: never earlier. To be read inside the commit.
    pub fn commit_time(&self, asked: Time) -> Time {
        let keeper = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match keeper.as_ref() {
            Some(keeper) if !mutant!("commit-dated-by-its-caller") => keeper.now().max(asked),
            _ => asked,
        }
    }

    /// Keys and operations that expired by then count as forgotten in a call made at `asked`.
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

/// What mailonce must remember. See the module's words.
#[async_trait]
pub trait Store:
    crate::ports::inbound_store::InboundStore
    + crate::ports::conversation_store::ConversationStore
    + crate::ports::notice_store::NoticeStore
{
    // Sending

    /// Binds a key to an email, once, with its handoffs, its events and every guard.
    async fn accept(&self, wish: NewEmail, now: Time) -> Result<AcceptResult>;
    /// Accepts every item of a batch, or none.
    async fn accept_batch(&self, batch: NewBatch, now: Time) -> Result<BatchAcceptResult>;
    /// Binds a key to an operation that changes nothing else, once. Nodes that got the same one-time token decide by it.
    async fn bind_operation(&self, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>>;
    /// What a key is bound to and remembered for.
    async fn key_binding(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyBinding>>;
    /// Takes an email back.
    async fn cancel(
        &self,
        team: TeamId,
        id: EmailId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailChangeResult>>;
    /// Moves a scheduled email to another time, and its charges with it.
    async fn reschedule(
        &self,
        team: TeamId,
        id: EmailId,
        new: RescheduleRequest,
        now: Time,
    ) -> Result<EmailChangeResult>;
    /// Makes the next version of an email, once. `wish.head.resend_of` names the version before.
    async fn resend(
        &self,
        wish: NewEmail,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailResendResult>>;
    /// Hands up to `max` due envelopes to the sandbox, in one commit: also scheduled ones that are due by
    /// `scheduled_by`. Returns how many.
    async fn capture(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> Result<usize>;
    /// When the next envelope for a transport is due.
    async fn next_handoff_due(&self, transport: &str) -> Result<Option<Time>>;
    /// Counts calls that were answered with an earlier email, and keeps the latest.
    async fn record_suppressed_calls(&self, calls: Vec<SuppressedCalls>, now: Time) -> Result<()>;

    // Handing off

    /// Gives due handoffs to a worker, the longest due first. Each gets a higher fence than any before.
    async fn lease_handoffs(&self, wish: LeaseRequest, now: Time) -> Result<Vec<LeasedHandoff>>;
    /// A handoff with what a worker that holds it already needs to hand it over.
    async fn leased_handoff(&self, team: TeamId, id: EmailId, number: u16) -> Result<Option<LeasedHandoff>>;
    /// Writes down what happened on an email's way out and what it means. A fact with a name counts once.
    async fn apply_action(
        &self,
        team: TeamId,
        id: EmailId,
        act: HandoffAction,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<HandoffActionResult>>;
    /// Unknown handoffs that are due to be looked at by a process that has these transports, the longest due first. Those
    /// of other transports are left to who has them, and so are those whose attempts went to another account under the
    /// same name while a process has had that account of late.
    async fn due_unknown_handoffs(&self, mine: &[TransportAccount], max: usize, now: Time)
    -> Result<Vec<(Email, u16)>>;
    /// Says which transports a live process has. To be repeated with each heartbeat.
    async fn publish_transports(&self, node: NodeId, mine: &[TransportAccount], now: Time) -> Result<()>;
    /// What waits for transports that are not among `known` and that no live process has, by team and transport.
    async fn orphan_backlogs(&self, known: &[String], now: Time) -> Result<Vec<OrphanBacklog>>;
    /// Emails of which a handoff waits for a transport, is under way there or unknown, in the order of team and id, after
    /// one of them.
    async fn emails_open_at_transport(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Result<Vec<(TeamId, EmailId)>>;
    /// Records that a process lives, and its time. Returns the latest time of all processes and the database's clock.
    async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat>;
    /// Takes up to `max` handoffs from processes that ended: what was leased is queued again, what was sending is
    /// unknown. And up to `max` deliveries that they were reading and `max` notices that they were telling: those are
    /// due at once. `node` lives.
    async fn recover_dead_nodes(&self, node: NodeId, max: usize, now: Time) -> Result<RecoveryCounts>;
    /// The handoff that a next hop knows under its own name.
    async fn handoff_by_remote_id(&self, team: TeamId, remote_id: &str) -> Result<Option<(EmailId, u16)>>;
    /// What waits.
    async fn backlog(&self) -> Result<Backlog>;

    // Looking

    /// One email.
    async fn email(&self, team: TeamId, id: EmailId) -> Result<Option<Email>>;
    /// Everything about one email.
    async fn email_detail(&self, team: TeamId, id: EmailId) -> Result<Option<EmailDetail>>;
    /// Emails, newest first.
    async fn emails(&self, team: TeamId, query: EmailQuery) -> Result<ResultPage<Email>>;
    /// How many emails there are whose ids are in a range: not before the first, and before the second.
    async fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<u64>;
    /// Emails that are held or whose outcome is unknown, whosever they are, in the order of team and id, after one of
    /// them.
    async fn held_or_unknown_emails(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>>;
    /// Events after a number, in order.
    async fn events(&self, team: TeamId, after: u64, limit: usize) -> Result<Vec<Event>>;

    // Keys

    /// What a key is, forgotten or not. `None` when it was never bound.
    async fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyView>>;
    /// Gives a key another memory.
    async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Result<KeyChangeResult>;
    /// Forgets a key now, if its email is terminal.
    async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<KeyChangeResult>;

    // Teams and credentials

    /// Makes a team together with its first credential, unless another has its name. The key of an operation is bound
    /// only when it was made.
    async fn create_team(
        &self,
        team: Team,
        key: ApiKey,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTeamResult>>;
    /// Every team.
    async fn teams(&self) -> Result<Vec<Team>>;
    /// Changes whether a team requires keys. `None` when there is no such team.
    async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Option<Team>>;
    /// Makes a credential.
    async fn create_api_key(&self, key: ApiKey, operation: Option<KeyedOperation>) -> Result<IdempotentResult<()>>;
    /// The credentials of a team, newest first.
    async fn api_keys(&self, team: TeamId) -> Result<Vec<ApiKey>>;
    /// The credential with this hash, and its team.
    async fn api_key_by_hash(&self, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>>;
    /// Takes a credential back. `None` when the team has no such credential.
    async fn revoke_api_key(&self, team: TeamId, id: ApiKeyId, now: Time) -> Result<Option<ApiKey>>;
    /// Notes when credentials were last used.
    async fn touch_api_keys(&self, used: Vec<(ApiKeyId, Time)>) -> Result<()>;

    // Records

    /// Makes a record, unless its name is taken. The key of an operation is bound only when one was made.
    async fn create_record(
        &self,
        record: Record,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateRecordResult>>;
    /// One record.
    async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>>;
    /// The record with this name.
    async fn record_by_name(&self, team: TeamId, kind: RecordKind, name: &str) -> Result<Option<Record>>;
    /// One record, whosever it is: for callers who know its id and nothing else.
    async fn record_of_any_team(&self, kind: RecordKind, id: Uuid) -> Result<Option<Record>>;
    /// Records older than `before`, newest first.
    async fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> Result<RecordPage>;
    /// Changes what a record says, if it is still as it was seen. The key of an operation is bound only when it is.
    async fn change_record(
        &self,
        edit: RecordEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<RecordChangeResult>>;
    /// Removes a record. `None` when the team has no such record.
    async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>>;

    // Budgets

    /// How much of each of these counters of a team is used, in the same order.
    async fn budget_usage(&self, team: TeamId, counters: Vec<BudgetCounter>) -> Result<Vec<u64>>;

    // Upkeep

    /// What this installation is. Made once, the same ever after.
    async fn installation(&self) -> Result<InstallationInfo>;
    /// Forgets what is due to be forgotten, at most `max` emails, `max` deliveries and `max` notices.
    async fn sweep(&self, max: usize, now: Time) -> Result<SweepCounts>;
    /// How the store is. Fails when it cannot commit.
    async fn health(&self) -> Result<Health>;
    /// The epoch of the history that the next verb reads, where it may change while the store is open: a failover
    /// may lose events that readers have seen. Costs nothing.
    fn epoch(&self) -> Option<u32> {
        None
    }
    /// Why the store has stopped for good, if it has. Costs nothing.
    fn fatal_error(&self) -> Option<StoreError>;
    /// Figures for the metrics.
    fn gauges(&self) -> Gauges;
    /// Registers who is told of changed emails after each commit. Engines that are not alone on their data tell
    /// nobody and return false.
    fn subscribe_to_emails(&self, watcher: SharedEmailSubscriber) -> bool;
    /// Registers who is told that there are new events. True when that is so for every commit there is; otherwise who
    /// follows must look now and then.
    fn subscribe_to_events(&self, _hearer: EventWakeUpHandler) -> bool {
        false
    }
    /// Has this keeper asked for the time of commits that end an email. Without one the caller's time counts.
    fn set_commit_clock(&self, keeper: SharedLedgerClock);
    /// Finishes what is under way and closes.
    async fn close(&self);
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}
