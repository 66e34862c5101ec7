//! The in-memory store: an executable model of every operation, in plain maps under one lock.
//!
//! Nothing here is durable. The other stores are compared with it, and simulations run on it.

mod control;
mod conversation;
mod events;
pub(crate) mod handoff;
mod inbound;
pub(crate) mod inbox;
pub(crate) mod outbound;

use async_trait::async_trait;
use mailonce_core::{
    access::team::{ApiKey, CreateTeamResult, Team},
    commit_clock::CommitClock,
    control::budget::BudgetCounter,
    events::event::{Event, EventKind, NewEvent},
    handoff::{
        Attempt, Evidence,
        action::HandoffAction,
        lease::{Backlog, HandoffActionResult, LeaseRequest, LeasedHandoff, OrphanBacklog, TransportAccount},
    },
    id::{ApiKeyId, EmailId, NodeId, TeamId, ordered_bits},
    installation::{Gauges, Health, Heartbeat, InstallationInfo, RecoveryCounts, SweepCounts},
    key::{InstallSecret, KeyHash},
    limits, mutant,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        email::Email,
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
        email_query::{EmailDetail, EmailQuery, ResultPage},
        key_binding::{KeyBinding, KeyChangeResult, KeyView},
        suppressed_call::{SuppressedCall, SuppressedCalls},
    },
    ports::{
        inbound_store::InboundWakeUpHandler,
        store::{HookCoverage, Result, SharedEmailSubscriber, Store, StoreError, StoreHooks},
    },
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind, RecordPage},
    time::Time,
    ttl::Ttl,
};
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use uuid::Uuid;

use crate::transport_registry::TransportRegistry;

/// The row of an idempotency key.
#[derive(Clone, Debug, Default)]
struct KeyRow {
    /// How often the key was bound.
    bind_number: u32,
    target: Option<KeyTarget>,
    /// The email to several recipients that occupies this key as a shadow key of one of them.
    slot: Option<EmailId>,
    forgotten_at: Option<Time>,
    /// When the tombstone of an operation expires.
    tombstone_until: Option<Time>,
}

/// What a key is bound to.
#[derive(Clone, Debug)]
enum KeyTarget {
    Email(EmailId),
    Operation { digest: [u8; 32], answer: Vec<u8>, expires_at: Time },
}

/// All tables.
#[derive(Default)]
struct Tables {
    /// Decides which keys count as forgotten.
    time: Arc<CommitClock>,
    teams: BTreeMap<TeamId, Team>,
    api_keys: BTreeMap<ApiKeyId, ApiKey>,
    keys: BTreeMap<(TeamId, KeyHash), KeyRow>,
    emails: BTreeMap<EmailId, Email>,
    bodies: BTreeMap<EmailId, Vec<u8>>,
    attempts: BTreeMap<EmailId, Vec<Attempt>>,
    evidence: BTreeMap<EmailId, Vec<Evidence>>,
    records: BTreeMap<Uuid, Record>,
    wires: BTreeMap<(EmailId, String), Vec<u8>>,
    nodes: BTreeMap<NodeId, Time>,
    transport_registry: TransportRegistry,
    suppressed: BTreeMap<EmailId, Vec<SuppressedCall>>,
    sweep_at: BTreeMap<EmailId, Time>,
    events: BTreeMap<TeamId, Vec<NewEvent>>,
    highest_id: i64,
    inbound: crate::memory::inbound::tables::InboundTables,
    conversations: conversation::ConversationTables,
    budgets: control::budgets::UsedCounters,
    charges: control::budgets::RecordedCharges,
    webhooks: crate::memory::events::notices::WebhookTables,
}

impl Tables {
    /// Saves a changed email with its event.
    fn save_email(&mut self, email: &Email, event: NewEvent) {
        let team = self.teams.keys().next().copied().filter(|_| mutant!("event-to-another-team"));
        if !(mutant!("acceptance-untold") && event.kind == EventKind::EmailAccepted) {
            self.events.entry(team.unwrap_or(email.team)).or_default().push(event);
        }
        // The earliest sweep time, even one in the past: an email that is due but not yet swept must stay due.
        self.schedule_sweep(email, Time(i64::MIN));
        self.emails.insert(email.id, email.clone());
    }

    fn schedule_sweep(&mut self, email: &Email, now: Time) {
        match email.next_sweep_at(now) {
            Some(at) => self.sweep_at.insert(email.id, at),
            None => self.sweep_at.remove(&email.id),
        };
    }

    /// The email, if it belongs to this team.
    fn email_of_team(&self, team: TeamId, id: EmailId) -> Option<Email> {
        let theirs = |email: &&Email| email.team == team || mutant!("team-ignored");
        self.emails.get(&id).filter(theirs).cloned()
    }

    /// Releases an email's shadow keys and turns its key into a tombstone. Returns whether the key was bound to it.
    fn release_key_and_slots(&mut self, email: &Email, at: Time) -> bool {
        for slot in email.head.all_shadow_keys(email.team) {
            self.edit_key(email.team, slot, |row| {
                if row.slot == Some(email.id) {
                    row.slot = None;
                }
            });
        }
        let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) else { return false };
        self.edit_key(email.team, key, |row| {
            let bound = matches!(row.target, Some(KeyTarget::Email(id)) if id == email.id);
            if bound {
                row.target = None;
                row.forgotten_at = Some(at);
            }
            bound
        })
        .unwrap_or(false)
    }

    /// Changes the row of a key. Deletes the row if it holds neither a binding nor a shadow key afterwards.
    fn edit_key<T>(&mut self, team: TeamId, key: KeyHash, edit: impl FnOnce(&mut KeyRow) -> T) -> Option<T> {
        let row = self.keys.get_mut(&(team, key))?;
        let answer = edit(row);
        if row.bind_number == 0 && row.slot.is_none() {
            self.keys.remove(&(team, key));
        }
        Some(answer)
    }

    fn sweep_email(&mut self, id: EmailId, now: Time, swept: &mut SweepCounts) {
        let Some(email) = self.emails.get(&id).cloned() else { return };
        if (email.is_forgotten(now) || mutant!("live-key-swept"))
            && self.release_key_and_slots(&email, email.expires_at().unwrap_or(now))
        {
            swept.keys += 1;
        }
        if email.body_expires_at().is_some_and(|at| at <= now) && self.bodies.remove(&id).is_some() {
            self.wires.retain(|(wired, _), _| *wired != id);
            swept.bodies += 1;
        }
        if email.tombstone_expires_at().is_some_and(|at| at <= now) {
            self.remove_traces(&email, swept);
            self.sweep_at.remove(&id);
        } else {
            self.schedule_sweep(&email, now);
        }
    }

    /// Turns expired operations into tombstones, and deletes expired tombstones.
    fn sweep_operations(&mut self, now: Time) {
        for row in self.keys.values_mut() {
            if let Some(KeyTarget::Operation { expires_at, .. }) = row.target
                && expires_at <= now
            {
                row.target = None;
                row.forgotten_at = Some(expires_at);
                row.tombstone_until = Some(expires_at.plus(limits::TOMBSTONE_MS));
            }
        }
        self.keys.retain(|_, row| {
            if row.tombstone_until.is_some_and(|at| at <= now) {
                (row.bind_number, row.forgotten_at, row.tombstone_until) = (0, None, None);
            }
            row.bind_number > 0 || row.slot.is_some()
        });
    }

    fn remove_traces(&mut self, email: &Email, swept: &mut SweepCounts) {
        if let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) {
            let row = self.keys.get(&(email.team, key));
            if row.is_some_and(|row| row.target.is_none() && row.bind_number == email.bind_number) {
                self.edit_key(email.team, key, |row| {
                    row.bind_number = 0;
                    row.forgotten_at = None;
                });
                swept.tombstones += 1;
            }
        }
        self.emails.remove(&email.id);
        self.attempts.remove(&email.id);
        self.evidence.remove(&email.id);
        self.wires.retain(|(id, _), _| *id != email.id);
        self.suppressed.remove(&email.id);
    }
}

/// The in-memory store.
pub struct Memory {
    tables: Mutex<Tables>,
    secret: InstallSecret,
    email_subscribers: Mutex<Vec<SharedEmailSubscriber>>,
    inbound_subscribers: Mutex<Vec<InboundWakeUpHandler>>,
    time: Arc<CommitClock>,
}

impl Memory {
    /// Creates an empty store with this install secret.
    pub fn new(secret: [u8; 32]) -> Self {
        let time = Arc::<CommitClock>::default();
        Self {
            tables: Mutex::new(Tables { time: Arc::clone(&time), ..Tables::default() }),
            secret: InstallSecret(secret),
            email_subscribers: Mutex::default(),
            inbound_subscribers: Mutex::default(),
            time,
        }
    }

    fn lock_tables(&self) -> MutexGuard<'_, Tables> {
        // A panic under the lock is a bug. The maps are still consistent enough to be read.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_email_changed(&self, email: &Email) {
        for subscriber in self.email_subscribers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            subscriber.after_commit(email);
        }
    }

    /// Applies a rule of the core to one email.
    fn change_email(
        &self,
        world: &mut Tables,
        team: TeamId,
        id: EmailId,
        rule: impl FnOnce(
            &mut Email,
        )
            -> std::result::Result<Option<NewEvent>, mailonce_core::outbound::email::EmailChangeRefusal>,
    ) -> EmailChangeResult {
        let Some(before) = world.email_of_team(team, id) else { return EmailChangeResult::Missing };
        let mut email = before.clone();
        match rule(&mut email) {
            Ok(event) => {
                if let Some(event) = event.filter(|_| !mutant!("cancel-unsaved")) {
                    let at = event.at;
                    world.save_email(&email, event);
                    world.update_message_progress(&before, &email, at);
                    self.notify_email_changed(&email);
                }
                EmailChangeResult::Changed(email)
            }
            Err(refusal) => EmailChangeResult::Refused(refusal, email),
        }
    }
}

#[async_trait]
impl Store for Memory {
    async fn accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        let mut world = self.lock_tables();
        let answer = world.accept(new_email, now);
        // Notify under the lock, so that subscribers see changes in commit order.
        if let AcceptResult::First(email) = &answer {
            self.notify_email_changed(email);
        }
        Ok(answer)
    }

    async fn accept_batch(&self, batch: NewBatch, now: Time) -> Result<BatchAcceptResult> {
        let mut world = self.lock_tables();
        let answer = world.accept_batch(batch, now);
        if let BatchAcceptResult::Items(items) = &answer {
            for item in items {
                if let AcceptResult::First(email) = item {
                    self.notify_email_changed(email);
                }
            }
        }
        Ok(answer)
    }

    async fn key_binding(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyBinding>> {
        Ok(self.lock_tables().key_binding(team, key, now))
    }

    async fn bind_operation(&self, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>> {
        let mut world = self.lock_tables();
        if let Some(answer) = world.find_replay(&operation, now) {
            return Ok(answer);
        }
        world.bind_operation(&operation);
        Ok(IdempotentResult::Done(()))
    }

    async fn cancel(
        &self,
        team: TeamId,
        id: EmailId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailChangeResult>> {
        let mut world = self.lock_tables();
        if let Some(answer) = operation.as_ref().and_then(|operation| world.find_replay(operation, now)) {
            return Ok(answer);
        }
        let now = self.time.commit_time(now);
        let change = self.change_email(&mut world, team, id, |email| email.cancel(now));
        // Bind the operation's key only on success, because a refused cancel may succeed later.
        if let (Some(operation), EmailChangeResult::Changed(_)) = (&operation, &change) {
            world.bind_operation(operation);
        }
        Ok(IdempotentResult::Done(change))
    }

    async fn reschedule(
        &self,
        team: TeamId,
        id: EmailId,
        new: RescheduleRequest,
        now: Time,
    ) -> Result<EmailChangeResult> {
        let mut world = self.lock_tables();
        // An email that cannot be rescheduled returns that refusal, even if a budget would be exceeded too.
        if let Some(email) = world.email_of_team(team, id)
            && email.clone().reschedule(new.due_at, now).is_ok()
            && let Some(exceeded) = world.move_charges(&email, &new.charges, now)
        {
            return Ok(EmailChangeResult::OverBudget(exceeded));
        }
        Ok(self.change_email(&mut world, team, id, |email| email.reschedule(new.due_at, now).map(Some)))
    }

    async fn resend(
        &self,
        new_email: NewEmail,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EmailResendResult>> {
        let mut world = self.lock_tables();
        let previous = new_email.head.resend_of;
        let answer = world.resend(new_email, operation.as_ref(), now);
        if let IdempotentResult::Done(EmailResendResult::First(email)) = &answer {
            self.notify_email_changed(email);
        }
        if let Some(previous) = previous.and_then(|id| world.emails.get(&id)) {
            self.notify_email_changed(previous);
        }
        Ok(answer)
    }

    async fn capture(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> Result<usize> {
        let mut world = self.lock_tables();
        let due = world.due_handoffs(transport, max, scheduled_by, now);
        let now = self.time.commit_time(now);
        for (_, id, number) in &due {
            let Some(mut email) = world.emails.get(id).cloned() else { continue };
            if let Some((attempt, event)) = email.capture(*number, now) {
                world.save_attempt(*id, attempt);
                world.save_email(&email, event);
                self.notify_email_changed(&email);
            }
        }
        Ok(due.len())
    }

    async fn next_handoff_due(&self, transport: &str) -> Result<Option<Time>> {
        Ok(self
            .lock_tables()
            .due_handoffs(transport, 1, Some(Time(i64::MAX)), Time(i64::MAX))
            .first()
            .map(|(at, _, _)| *at))
    }

    async fn lease_handoffs(&self, request: LeaseRequest, now: Time) -> Result<Vec<LeasedHandoff>> {
        // Notify under the lock, so that subscribers see changes in commit order.
        let mut world = self.lock_tables();
        let leased = world.lease_handoffs(&request, now);
        leased.iter().for_each(|leased| self.notify_email_changed(&leased.email));
        Ok(leased)
    }

    async fn leased_handoff(&self, team: TeamId, id: EmailId, number: u16) -> Result<Option<LeasedHandoff>> {
        let world = self.lock_tables();
        Ok(world.email_of_team(team, id).map(|email| world.with_bytes(email, number)))
    }

    async fn apply_action(
        &self,
        team: TeamId,
        id: EmailId,
        act: HandoffAction,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<HandoffActionResult>> {
        let mut world = self.lock_tables();
        let before = world.email_of_team(team, id);
        let acted = world.apply_action(team, id, &act, operation.as_ref(), self.time.commit_time(now));
        if let Some(email) = world.email_of_team(team, id).filter(|email| before.as_ref() != Some(email)) {
            self.notify_email_changed(&email);
        }
        Ok(acted)
    }

    async fn due_unknown_handoffs(
        &self,
        mine: &[TransportAccount],
        max: usize,
        now: Time,
    ) -> Result<Vec<(Email, u16)>> {
        Ok(self.lock_tables().due_unknown_handoffs(mine, max, now))
    }

    async fn publish_transports(&self, node: NodeId, mine: &[TransportAccount], now: Time) -> Result<()> {
        self.lock_tables().transport_registry.publish(node, mine, now);
        Ok(())
    }

    async fn orphan_backlogs(&self, known: &[String], now: Time) -> Result<Vec<OrphanBacklog>> {
        Ok(self.lock_tables().orphan_backlogs(known, now))
    }

    async fn emails_open_at_transport(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Result<Vec<(TeamId, EmailId)>> {
        Ok(self.lock_tables().emails_open_at_transport(transport, after, limit))
    }

    async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
        let mut world = self.lock_tables();
        world.nodes.insert(node, now);
        Ok(Heartbeat { latest_time: world.nodes.values().max().copied().unwrap_or(now), database_clock: None })
    }

    async fn recover_dead_nodes(&self, node: NodeId, max: usize, now: Time) -> Result<RecoveryCounts> {
        let mut world = self.lock_tables();
        let (recovered, changed) = world.recover_dead_nodes(node, max, now);
        changed.iter().for_each(|email| self.notify_email_changed(email));
        Ok(recovered)
    }

    async fn handoff_by_remote_id(&self, team: TeamId, remote_id: &str) -> Result<Option<(EmailId, u16)>> {
        Ok(self.lock_tables().handoff_by_remote_id(team, remote_id))
    }

    async fn backlog(&self) -> Result<Backlog> {
        Ok(self.lock_tables().backlog())
    }

    async fn record_suppressed_calls(&self, calls: Vec<SuppressedCalls>, now: Time) -> Result<()> {
        let mut world = self.lock_tables();
        for note in calls {
            let Some(email) = world.emails.get_mut(&note.email).filter(|email| email.team == note.team) else {
                continue;
            };
            email.suppressed += note.count;
            let mut event = email.event(EventKind::EmailDuplicate, now);
            event.data["call_count"] = note.count.into();
            self.notify_email_changed(email);
            world.events.entry(note.team).or_default().push(event);
            let kept = world.suppressed.entry(note.email).or_default();
            kept.extend(note.latest);
            let surplus = kept.len().saturating_sub(limits::SUPPRESSED_CALLS_KEPT);
            kept.drain(..surplus);
        }
        Ok(())
    }

    async fn email(&self, team: TeamId, id: EmailId) -> Result<Option<Email>> {
        Ok(self.lock_tables().email_of_team(team, id))
    }

    async fn email_detail(&self, team: TeamId, id: EmailId) -> Result<Option<EmailDetail>> {
        let world = self.lock_tables();
        let detail = |email| EmailDetail {
            email,
            body: world.bodies.get(&id).cloned(),
            attempts: world.attempts.get(&id).cloned().unwrap_or_default(),
            evidence: world.evidence.get(&id).cloned().unwrap_or_default(),
            suppressed_calls: world.suppressed_calls(id),
        };
        Ok(world.email_of_team(team, id).map(detail))
    }

    async fn emails(&self, team: TeamId, query: EmailQuery) -> Result<ResultPage<Email>> {
        Ok(self.lock_tables().list_emails(team, &query))
    }

    async fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<u64> {
        Ok(self.lock_tables().count_emails(team, from, to))
    }

    async fn held_or_unknown_emails(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        Ok(self.lock_tables().held_or_unknown_emails(after, limit))
    }

    async fn events(&self, team: TeamId, after: u64, limit: usize) -> Result<Vec<Event>> {
        let world = self.lock_tables();
        let all = world.events.get(&team).map_or(&[][..], Vec::as_slice);
        let rows = all.iter().enumerate().skip(after as usize).take(limit);
        Ok(rows.map(|(i, event)| Event { seq: i as u64 + 1, event: event.clone() }).collect())
    }

    async fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyView>> {
        Ok(self.lock_tables().key_view(team, key, now))
    }

    async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Result<KeyChangeResult> {
        let mut world = self.lock_tables();
        let Some(KeyBinding::Email(mut email)) = world.key_binding(team, key, now) else {
            return Ok(KeyChangeResult::Missing);
        };
        let event = email.extend_key(ttl, now);
        world.save_email(&email, event);
        self.notify_email_changed(&email);
        Ok(KeyChangeResult::Done(email))
    }

    async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<KeyChangeResult> {
        let mut world = self.lock_tables();
        let Some(KeyBinding::Email(mut email)) = world.key_binding(team, key, now) else {
            return Ok(KeyChangeResult::Missing);
        };
        if !email.state().is_terminal() && !mutant!("live-key-forgotten") {
            return Ok(KeyChangeResult::NotTerminal(email));
        }
        let event = email.forget_key(now);
        world.save_email(&email, event);
        self.notify_email_changed(&email);
        Ok(KeyChangeResult::Done(email))
    }

    async fn create_team(
        &self,
        team: Team,
        key: ApiKey,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTeamResult>> {
        let mut world = self.lock_tables();
        if let Some(answer) = operation.as_ref().and_then(|operation| world.find_replay(operation, key.created_at)) {
            return Ok(answer);
        }
        if world.teams.values().any(|other| other.name == team.name && other.id != team.id) {
            return Ok(IdempotentResult::Done(CreateTeamResult::NameTaken));
        }
        if let Some(operation) = &operation {
            world.bind_operation(operation);
        }
        world.teams.entry(team.id).or_insert(team);
        world.api_keys.entry(key.id).or_insert(key);
        Ok(IdempotentResult::Done(CreateTeamResult::Created))
    }

    async fn teams(&self) -> Result<Vec<Team>> {
        Ok(self.lock_tables().teams.values().cloned().collect())
    }

    async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Option<Team>> {
        let mut world = self.lock_tables();
        let Some(team) = world.teams.get_mut(&team) else { return Ok(None) };
        team.require_keys = require;
        Ok(Some(team.clone()))
    }

    async fn create_api_key(&self, key: ApiKey, operation: Option<KeyedOperation>) -> Result<IdempotentResult<()>> {
        let mut world = self.lock_tables();
        if let Some(operation) = &operation {
            if let Some(answer) = world.find_replay(operation, key.created_at) {
                return Ok(answer);
            }
            world.bind_operation(operation);
        }
        world.api_keys.entry(key.id).or_insert(key);
        Ok(IdempotentResult::Done(()))
    }

    async fn api_keys(&self, team: TeamId) -> Result<Vec<ApiKey>> {
        Ok(self.lock_tables().api_keys.values().rev().filter(|key| key.team == team).cloned().collect())
    }

    async fn api_key_by_hash(&self, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>> {
        let world = self.lock_tables();
        let key = world.api_keys.values().find(|key| key.hash == hash);
        Ok(key.and_then(|key| Some((key.clone(), world.teams.get(&key.team)?.clone()))))
    }

    async fn revoke_api_key(&self, team: TeamId, id: ApiKeyId, now: Time) -> Result<Option<ApiKey>> {
        let mut world = self.lock_tables();
        let Some(key) = world.api_keys.get_mut(&id).filter(|key| key.team == team) else { return Ok(None) };
        key.revoked_at.get_or_insert(now);
        Ok(Some(key.clone()))
    }

    async fn touch_api_keys(&self, used: Vec<(ApiKeyId, Time)>) -> Result<()> {
        let mut world = self.lock_tables();
        for (id, at) in used {
            if let Some(key) = world.api_keys.get_mut(&id) {
                key.last_used_at = key.last_used_at.max(Some(at));
            }
        }
        Ok(())
    }

    async fn create_record(
        &self,
        record: Record,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateRecordResult>> {
        Ok(self.lock_tables().create_record(record, operation.as_ref()))
    }

    async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        Ok(self.lock_tables().record(team, kind, id))
    }

    async fn record_by_name(&self, team: TeamId, kind: RecordKind, name: &str) -> Result<Option<Record>> {
        Ok(self.lock_tables().record_by_name(team, kind, name))
    }

    async fn record_of_any_team(&self, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        Ok(self.lock_tables().records.get(&id).filter(|record| record.kind == kind).cloned())
    }

    async fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> Result<RecordPage> {
        Ok(self.lock_tables().records(team, kind, before, limit))
    }

    async fn change_record(
        &self,
        edit: RecordEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<RecordChangeResult>> {
        Ok(self.lock_tables().change_record(edit, operation.as_ref(), now))
    }

    async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        Ok(self.lock_tables().remove_record(team, kind, id))
    }

    async fn budget_usage(&self, team: TeamId, counters: Vec<BudgetCounter>) -> Result<Vec<u64>> {
        let world = self.lock_tables();
        Ok(counters.into_iter().map(|counter| world.budget_used(team, counter)).collect())
    }

    async fn installation(&self) -> Result<InstallationInfo> {
        let world = self.lock_tables();
        let seen_at = world.nodes.values().max().copied();
        Ok(InstallationInfo {
            secret: self.secret.clone(),
            epoch: 1,
            last_id: world.highest_id,
            last_heartbeat_at: seen_at,
            database_clock: None,
        })
    }

    async fn sweep(&self, max: usize, now: Time) -> Result<SweepCounts> {
        let mut world = self.lock_tables();
        let mut swept = SweepCounts::default();
        world.sweep_budgets(now);
        let mut due: Vec<EmailId> =
            world.sweep_at.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).take(max).collect();
        if mutant!("live-key-swept") {
            due = world.emails.keys().copied().collect();
        }
        for id in due {
            world.sweep_email(id, now, &mut swept);
        }
        world.sweep_operations(now);
        swept.deliveries = world.sweep_deliveries(max, now);
        swept.notices = world.webhooks.sweep_notices(max, now);
        Ok(swept)
    }

    async fn health(&self) -> Result<Health> {
        Ok(Health { engine: "memory", degraded: true, notes: vec!["nothing is durable".into()] })
    }

    fn fatal_error(&self) -> Option<StoreError> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges { keys: self.lock_tables().keys.len() as u64, ..Gauges::default() }
    }

    fn attach(&self, hooks: StoreHooks) -> HookCoverage {
        hooks.clock.into_iter().for_each(|clock| self.time.set_clock(clock));
        self.email_subscribers.lock().unwrap_or_else(PoisonError::into_inner).extend(hooks.emails);
        self.inbound_subscribers.lock().unwrap_or_else(PoisonError::into_inner).extend(hooks.inbound);
        // The tables call nobody when they append an event.
        HookCoverage { emails: true, inbound: true, events: false }
    }

    async fn close(&self) {}
}
