//! The executable model: what each verb means, in plain maps under one lock.
//!
//! Nothing here is durable. It is the yardstick of the other engines and the ground of simulated worlds.

mod accept;
mod arrivals;
mod artifact;
mod control;
mod conversation;
mod delivery;
mod filing;
mod handoff;
mod inbound;
mod inbox;
mod look;
mod notices;
mod outbound;
mod record;

use async_trait::async_trait;
use mailonce_core::{
    control::budget::Counter,
    dispatch::Act,
    email::Email,
    event::{Event, Kind, NewEvent},
    handoff::{Attempt, Evidence},
    id::{ApiKeyId, EmailId, NodeId, TeamId, ordered_bits},
    key::{InstallSecret, KeyHash},
    limits, mutant,
    port::{
        arrivals::Hearer,
        store::{
            Accept, AcceptBatch, Acted, Backlog, BatchWish, Bound, Change, CommitTime, EmailDetail, EmailQuery,
            Founded, Gauges, Health, Heartbeat, Install, Keeper, KeyChange, KeyView, LeaseWish, Leased, NewDue, Once,
            Operation, Orphans, Page, Recovered, Resend, Result, Store, StoreError, Suppressed, SuppressedCall, Swept,
            TransportAccount, Watcher, Wish,
        },
    },
    record::{Created, Record, RecordChange, RecordEdit, RecordKind, RecordPage},
    team::{ApiKey, Team},
    time::Time,
    ttl::Ttl,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use uuid::Uuid;

use crate::published::Published;

/// What one key's row says.
#[derive(Clone, Debug, Default)]
struct KeyRow {
    /// How often it was bound.
    bind: u32,
    target: Option<Target>,
    /// The email of several recipients that stands for this one.
    slot: Option<EmailId>,
    forgotten_at: Option<Time>,
    /// When the tombstone of an operation goes.
    gone_at: Option<Time>,
}

/// What a key is bound to.
#[derive(Clone, Debug)]
enum Target {
    Email(EmailId),
    Operation { digest: [u8; 32], answer: Vec<u8>, expires_at: Time },
}

/// Everything.
#[derive(Default)]
struct World {
    /// Says which keys count as forgotten.
    time: Arc<CommitTime>,
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
    published: Published,
    suppressed: BTreeMap<EmailId, Vec<SuppressedCall>>,
    sweep_at: BTreeMap<EmailId, Time>,
    events: BTreeMap<TeamId, Vec<NewEvent>>,
    last_id: i64,
    inbound: inbound::Inbound,
    talk: conversation::Talk,
    budgets: control::budget::Counts,
    charges: control::budget::Charges,
    outbound: outbound::Outbound,
}

impl World {
    /// Writes what an email became, and tells of it.
    fn save(&mut self, email: &Email, event: NewEvent) {
        let team = self.teams.keys().next().copied().filter(|_| mutant!("event-to-another-team"));
        if !(mutant!("acceptance-untold") && event.kind == Kind::EmailAccepted) {
            self.events.entry(team.unwrap_or(email.team)).or_default().push(event);
        }
        // Not from now on: what is due already and was not swept yet must stay due.
        self.plan_sweep(email, Time(i64::MIN));
        self.emails.insert(email.id, email.clone());
    }

    fn plan_sweep(&mut self, email: &Email, now: Time) {
        match email.next_sweep(now) {
            Some(at) => self.sweep_at.insert(email.id, at),
            None => self.sweep_at.remove(&email.id),
        };
    }

    /// The email, if it is this team's.
    fn of_team(&self, team: TeamId, id: EmailId) -> Option<Email> {
        let theirs = |email: &&Email| email.team == team || mutant!("team-ignored");
        self.emails.get(&id).filter(theirs).cloned()
    }

    /// Lets go of an email's key and slots.
    fn forget(&mut self, email: &Email, at: Time) -> bool {
        for slot in email.head.all_slots(email.team) {
            self.edit_key(email.team, slot, |row| {
                if row.slot == Some(email.id) {
                    row.slot = None;
                }
            });
        }
        let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) else { return false };
        self.edit_key(email.team, key, |row| {
            let bound = matches!(row.target, Some(Target::Email(id)) if id == email.id);
            if bound {
                row.target = None;
                row.forgotten_at = Some(at);
            }
            bound
        })
        .unwrap_or(false)
    }

    /// Changes a key's row. A row that says nothing any more goes.
    fn edit_key<T>(&mut self, team: TeamId, key: KeyHash, edit: impl FnOnce(&mut KeyRow) -> T) -> Option<T> {
        let row = self.keys.get_mut(&(team, key))?;
        let answer = edit(row);
        if row.bind == 0 && row.slot.is_none() {
            self.keys.remove(&(team, key));
        }
        Some(answer)
    }

    fn sweep_one(&mut self, id: EmailId, now: Time, swept: &mut Swept) {
        let Some(email) = self.emails.get(&id).cloned() else { return };
        if (email.is_forgotten(now) || mutant!("live-key-swept"))
            && self.forget(&email, email.expires_at().unwrap_or(now))
        {
            swept.keys += 1;
        }
        if email.body_until().is_some_and(|at| at <= now) && self.bodies.remove(&id).is_some() {
            self.wires.retain(|(wired, _), _| *wired != id);
            swept.bodies += 1;
        }
        if email.traces_until().is_some_and(|at| at <= now) {
            self.remove_traces(&email, swept);
            self.sweep_at.remove(&id);
        } else {
            self.plan_sweep(&email, now);
        }
    }

    /// An operation is forgotten at its time; its tombstone goes later.
    fn sweep_operations(&mut self, now: Time) {
        for row in self.keys.values_mut() {
            if let Some(Target::Operation { expires_at, .. }) = row.target
                && expires_at <= now
            {
                row.target = None;
                row.forgotten_at = Some(expires_at);
                row.gone_at = Some(expires_at.plus(limits::TOMBSTONE_MS));
            }
        }
        self.keys.retain(|_, row| {
            if row.gone_at.is_some_and(|at| at <= now) {
                (row.bind, row.forgotten_at, row.gone_at) = (0, None, None);
            }
            row.bind > 0 || row.slot.is_some()
        });
    }

    fn remove_traces(&mut self, email: &Email, swept: &mut Swept) {
        if let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) {
            let row = self.keys.get(&(email.team, key));
            if row.is_some_and(|row| row.target.is_none() && row.bind == email.bind) {
                self.edit_key(email.team, key, |row| {
                    row.bind = 0;
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

/// The model.
pub struct Memory {
    world: Mutex<World>,
    secret: InstallSecret,
    watchers: Mutex<Vec<Watcher>>,
    hearers: Mutex<Vec<Hearer>>,
    time: Arc<CommitTime>,
}

impl Memory {
    /// An empty ledger with this install secret.
    pub fn new(secret: [u8; 32]) -> Self {
        let time = Arc::<CommitTime>::default();
        Self {
            world: Mutex::new(World { time: Arc::clone(&time), ..World::default() }),
            secret: InstallSecret(secret),
            watchers: Mutex::default(),
            hearers: Mutex::default(),
            time,
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        // A panic in a verb would be a bug; the maps are still whole enough to look at.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, email: &Email) {
        for watcher in self.watchers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            watcher.changed(email);
        }
    }

    /// Changes one email by a rule of the core.
    fn change(
        &self,
        world: &mut World,
        team: TeamId,
        id: EmailId,
        rule: impl FnOnce(&mut Email) -> std::result::Result<Option<NewEvent>, mailonce_core::email::Refusal>,
    ) -> Change {
        let Some(before) = world.of_team(team, id) else { return Change::Missing };
        let mut email = before.clone();
        match rule(&mut email) {
            Ok(event) => {
                if let Some(event) = event.filter(|_| !mutant!("cancel-unsaved")) {
                    let at = event.at;
                    world.save(&email, event);
                    world.turn_over(&before, &email, at);
                    self.tell(&email);
                }
                Change::Email(email)
            }
            Err(refusal) => Change::Refused(refusal, email),
        }
    }
}

#[async_trait]
impl Store for Memory {
    async fn accept(&self, wish: Wish, now: Time) -> Result<Accept> {
        let mut world = self.world();
        let answer = world.accept(wish, now);
        // Told under the lock, so that watchers hear of changes in their order.
        if let Accept::First(email) = &answer {
            self.tell(email);
        }
        Ok(answer)
    }

    async fn accept_batch(&self, batch: BatchWish, now: Time) -> Result<AcceptBatch> {
        let mut world = self.world();
        for (index, wish) in batch.items.iter().enumerate().filter(|_| batch.strict) {
            let bound = wish.key.and_then(|key| world.bound(wish.team, key, now));
            if let Some(bound) = bound.filter(|bound| wish.contradicts(bound)) {
                return Ok(AcceptBatch::Contradiction(index, bound));
            }
        }
        let repeat = batch.operation.as_ref().and_then(|operation| world.repeat_of::<()>(operation, now));
        if let Some(Once::Mismatch(bound)) = repeat {
            return Ok(AcceptBatch::Mismatch(bound));
        }
        if batch.strict
            && let Some((index, exceeded)) = world.batch_over_budget(&batch, now)
        {
            return Ok(AcceptBatch::OverBudget(index, exceeded));
        }
        if let Some(operation) = batch.operation.as_ref().filter(|_| repeat.is_none()) {
            world.bind_operation(operation);
        }
        let whole = batch.items.len() - usize::from(mutant!("batch-cut-short"));
        let items: Vec<Accept> = batch.items.into_iter().take(whole).map(|wish| world.accept(wish, now)).collect();
        for item in &items {
            if let Accept::First(email) = item {
                self.tell(email);
            }
        }
        Ok(AcceptBatch::Items(items))
    }

    async fn bound(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<Bound>> {
        Ok(self.world().bound(team, key, now))
    }

    async fn bind_operation(&self, operation: Operation, now: Time) -> Result<Once<()>> {
        let mut world = self.world();
        if let Some(answer) = world.repeat_of(&operation, now) {
            return Ok(answer);
        }
        world.bind_operation(&operation);
        Ok(Once::Done(()))
    }

    async fn cancel(&self, team: TeamId, id: EmailId, operation: Option<Operation>, now: Time) -> Result<Once<Change>> {
        let mut world = self.world();
        if let Some(answer) = operation.as_ref().and_then(|operation| world.repeat_of(operation, now)) {
            return Ok(answer);
        }
        let now = self.time.of(now);
        let change = self.change(&mut world, team, id, |email| email.cancel(now));
        // Only what was done is remembered: a refusal may turn into a success later.
        if let (Some(operation), Change::Email(_)) = (&operation, &change) {
            world.bind_operation(operation);
        }
        Ok(Once::Done(change))
    }

    async fn reschedule(&self, team: TeamId, id: EmailId, new: NewDue, now: Time) -> Result<Change> {
        let mut world = self.world();
        // An email that cannot be moved says so, whatever its budgets say.
        if let Some(email) = world.of_team(team, id)
            && email.clone().reschedule(new.due, now).is_ok()
            && let Some(exceeded) = world.move_charges(&email, &new.charges, now)
        {
            return Ok(Change::OverBudget(exceeded));
        }
        Ok(self.change(&mut world, team, id, |email| email.reschedule(new.due, now).map(Some)))
    }

    async fn resend(&self, wish: Wish, operation: Option<Operation>, now: Time) -> Result<Once<Resend>> {
        let mut world = self.world();
        let previous = wish.head.resend_of;
        let answer = world.resend(wish, operation.as_ref(), now);
        if let Once::Done(Resend::First(email)) = &answer {
            self.tell(email);
        }
        if let Some(previous) = previous.and_then(|id| world.emails.get(&id)) {
            self.tell(previous);
        }
        Ok(answer)
    }

    async fn capture(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> Result<usize> {
        let mut world = self.world();
        let due = world.due(transport, max, scheduled_by, now);
        let now = self.time.of(now);
        for (_, id, number) in &due {
            let Some(mut email) = world.emails.get(id).cloned() else { continue };
            if let Some((attempt, event)) = email.capture(*number, now) {
                world.note_attempt(*id, attempt);
                world.save(&email, event);
                self.tell(&email);
            }
        }
        Ok(due.len())
    }

    async fn next_due(&self, transport: &str) -> Result<Option<Time>> {
        Ok(self.world().due(transport, 1, Some(Time(i64::MAX)), Time(i64::MAX)).first().map(|(at, _, _)| *at))
    }

    async fn lease(&self, wish: LeaseWish, now: Time) -> Result<Vec<Leased>> {
        // Told under the lock, so that watchers hear of changes in their order.
        let mut world = self.world();
        let leased = world.lease(&wish, now);
        leased.iter().for_each(|leased| self.tell(&leased.email));
        Ok(leased)
    }

    async fn leased(&self, team: TeamId, id: EmailId, number: u16) -> Result<Option<Leased>> {
        let world = self.world();
        Ok(world.of_team(team, id).map(|email| world.with_bytes(email, number)))
    }

    async fn act(
        &self,
        team: TeamId,
        id: EmailId,
        act: Act,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Acted>> {
        let mut world = self.world();
        let before = world.of_team(team, id);
        let acted = world.act(team, id, &act, operation.as_ref(), self.time.of(now));
        if let Some(email) = world.of_team(team, id).filter(|email| before.as_ref() != Some(email)) {
            self.tell(&email);
        }
        Ok(acted)
    }

    async fn doubts(&self, mine: &[TransportAccount], max: usize, now: Time) -> Result<Vec<(Email, u16)>> {
        Ok(self.world().doubts(mine, max, now))
    }

    async fn publish_transports(&self, node: NodeId, mine: &[TransportAccount], now: Time) -> Result<()> {
        self.world().published.publish(node, mine, now);
        Ok(())
    }

    async fn orphans(&self, known: &[String], now: Time) -> Result<Vec<Orphans>> {
        Ok(self.world().orphans(known, now))
    }

    async fn open_at(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Result<Vec<(TeamId, EmailId)>> {
        Ok(self.world().open_at(transport, after, limit))
    }

    async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
        let mut world = self.world();
        world.nodes.insert(node, now);
        Ok(Heartbeat { latest: world.nodes.values().max().copied().unwrap_or(now), database: None })
    }

    async fn recover(&self, node: NodeId, max: usize, now: Time) -> Result<Recovered> {
        let mut world = self.world();
        let (recovered, changed) = world.recover(node, max, now);
        changed.iter().for_each(|email| self.tell(email));
        Ok(recovered)
    }

    async fn by_remote_id(&self, team: TeamId, remote_id: &str) -> Result<Option<(EmailId, u16)>> {
        Ok(self.world().by_remote_id(team, remote_id))
    }

    async fn backlog(&self) -> Result<Backlog> {
        Ok(self.world().backlog())
    }

    async fn note_suppressed(&self, calls: Vec<Suppressed>, now: Time) -> Result<()> {
        let mut world = self.world();
        for note in calls {
            let Some(email) = world.emails.get_mut(&note.email).filter(|email| email.team == note.team) else {
                continue;
            };
            email.suppressed += note.count;
            let mut event = email.event(Kind::EmailDuplicate, now);
            event.data["calls"] = note.count.into();
            self.tell(email);
            world.events.entry(note.team).or_default().push(event);
            let kept = world.suppressed.entry(note.email).or_default();
            kept.extend(note.latest);
            let surplus = kept.len().saturating_sub(limits::SUPPRESSED_KEPT);
            kept.drain(..surplus);
        }
        Ok(())
    }

    async fn email(&self, team: TeamId, id: EmailId) -> Result<Option<Email>> {
        Ok(self.world().of_team(team, id))
    }

    async fn email_detail(&self, team: TeamId, id: EmailId) -> Result<Option<EmailDetail>> {
        let world = self.world();
        let detail = |email| EmailDetail {
            email,
            body: world.bodies.get(&id).cloned(),
            attempts: world.attempts.get(&id).cloned().unwrap_or_default(),
            evidence: world.evidence.get(&id).cloned().unwrap_or_default(),
            suppressed: world.suppressed_of(id),
        };
        Ok(world.of_team(team, id).map(detail))
    }

    async fn emails(&self, team: TeamId, query: EmailQuery) -> Result<Page<Email>> {
        Ok(self.world().list(team, &query))
    }

    async fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> Result<u64> {
        Ok(self.world().count(team, from, to))
    }

    async fn stuck(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        Ok(self.world().stuck(after, limit))
    }

    async fn events(&self, team: TeamId, after: u64, limit: usize) -> Result<Vec<Event>> {
        let world = self.world();
        let all = world.events.get(&team).map_or(&[][..], Vec::as_slice);
        let rows = all.iter().enumerate().skip(after as usize).take(limit);
        Ok(rows.map(|(i, event)| Event { seq: i as u64 + 1, event: event.clone() }).collect())
    }

    async fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<Option<KeyView>> {
        Ok(self.world().key_view(team, key, now))
    }

    async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Result<KeyChange> {
        let mut world = self.world();
        let Some(Bound::Email(mut email)) = world.bound(team, key, now) else { return Ok(KeyChange::Missing) };
        let event = email.extend(ttl, now);
        world.save(&email, event);
        self.tell(&email);
        Ok(KeyChange::Done(email))
    }

    async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<KeyChange> {
        let mut world = self.world();
        let Some(Bound::Email(mut email)) = world.bound(team, key, now) else { return Ok(KeyChange::Missing) };
        if !email.state().is_terminal() && !mutant!("live-key-forgotten") {
            return Ok(KeyChange::NotTerminal(email));
        }
        let event = email.forget(now);
        world.save(&email, event);
        self.tell(&email);
        Ok(KeyChange::Done(email))
    }

    async fn create_team(&self, team: Team, key: ApiKey, operation: Option<Operation>) -> Result<Once<Founded>> {
        let mut world = self.world();
        if let Some(answer) = operation.as_ref().and_then(|operation| world.repeat_of(operation, key.created_at)) {
            return Ok(answer);
        }
        if world.teams.values().any(|other| other.name == team.name && other.id != team.id) {
            return Ok(Once::Done(Founded::Taken));
        }
        if let Some(operation) = &operation {
            world.bind_operation(operation);
        }
        world.teams.entry(team.id).or_insert(team);
        world.api_keys.entry(key.id).or_insert(key);
        Ok(Once::Done(Founded::Made))
    }

    async fn teams(&self) -> Result<Vec<Team>> {
        Ok(self.world().teams.values().cloned().collect())
    }

    async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Option<Team>> {
        let mut world = self.world();
        let Some(team) = world.teams.get_mut(&team) else { return Ok(None) };
        team.require_keys = require;
        Ok(Some(team.clone()))
    }

    async fn create_api_key(&self, key: ApiKey, operation: Option<Operation>) -> Result<Once<()>> {
        let mut world = self.world();
        if let Some(operation) = &operation {
            if let Some(answer) = world.repeat_of(operation, key.created_at) {
                return Ok(answer);
            }
            world.bind_operation(operation);
        }
        world.api_keys.entry(key.id).or_insert(key);
        Ok(Once::Done(()))
    }

    async fn api_keys(&self, team: TeamId) -> Result<Vec<ApiKey>> {
        Ok(self.world().api_keys.values().rev().filter(|key| key.team == team).cloned().collect())
    }

    async fn api_key_by_hash(&self, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>> {
        let world = self.world();
        let key = world.api_keys.values().find(|key| key.hash == hash);
        Ok(key.and_then(|key| Some((key.clone(), world.teams.get(&key.team)?.clone()))))
    }

    async fn revoke_api_key(&self, team: TeamId, id: ApiKeyId, now: Time) -> Result<Option<ApiKey>> {
        let mut world = self.world();
        let Some(key) = world.api_keys.get_mut(&id).filter(|key| key.team == team) else { return Ok(None) };
        key.revoked_at.get_or_insert(now);
        Ok(Some(key.clone()))
    }

    async fn touch_api_keys(&self, used: Vec<(ApiKeyId, Time)>) -> Result<()> {
        let mut world = self.world();
        for (id, at) in used {
            if let Some(key) = world.api_keys.get_mut(&id) {
                key.last_used_at = key.last_used_at.max(Some(at));
            }
        }
        Ok(())
    }

    async fn create_record(&self, record: Record, operation: Option<Operation>) -> Result<Once<Created>> {
        Ok(self.world().create_record(record, operation.as_ref()))
    }

    async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        Ok(self.world().record(team, kind, id))
    }

    async fn record_named(&self, team: TeamId, kind: RecordKind, name: &str) -> Result<Option<Record>> {
        Ok(self.world().record_named(team, kind, name))
    }

    async fn record_anywhere(&self, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        Ok(self.world().records.get(&id).filter(|record| record.kind == kind).cloned())
    }

    async fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> Result<RecordPage> {
        Ok(self.world().records(team, kind, before, limit))
    }

    async fn change_record(
        &self,
        edit: RecordEdit,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<RecordChange>> {
        Ok(self.world().change_record(edit, operation.as_ref(), now))
    }

    async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
        Ok(self.world().remove_record(team, kind, id))
    }

    async fn budget_usage(&self, team: TeamId, counters: Vec<Counter>) -> Result<Vec<u64>> {
        let world = self.world();
        Ok(counters.into_iter().map(|counter| world.budget_used(team, counter)).collect())
    }

    async fn install(&self) -> Result<Install> {
        let world = self.world();
        let seen_at = world.nodes.values().max().copied();
        Ok(Install { secret: self.secret.clone(), epoch: 1, last_id: world.last_id, seen_at, database: None })
    }

    async fn sweep(&self, max: usize, now: Time) -> Result<Swept> {
        let mut world = self.world();
        let mut swept = Swept::default();
        world.sweep_budgets(now);
        let mut due: Vec<EmailId> =
            world.sweep_at.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).take(max).collect();
        if mutant!("live-key-swept") {
            due = world.emails.keys().copied().collect();
        }
        for id in due {
            world.sweep_one(id, now, &mut swept);
        }
        world.sweep_operations(now);
        swept.deliveries = world.sweep_deliveries(max, now);
        swept.notices = world.outbound.sweep(max, now);
        Ok(swept)
    }

    async fn health(&self) -> Result<Health> {
        Ok(Health { engine: "memory", degraded: true, notes: vec!["nothing is durable".into()] })
    }

    fn stopped(&self) -> Option<StoreError> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges { keys: self.world().keys.len() as u64, ..Gauges::default() }
    }

    fn watch(&self, watcher: Watcher) -> bool {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).push(watcher);
        true
    }

    fn keep_time(&self, keeper: Keeper) {
        self.time.keep(keeper);
    }

    async fn close(&self) {}
}
