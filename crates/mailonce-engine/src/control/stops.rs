//! Stops: switches that keep the email of the installation, a transport, a team, an inbox or an API key from leaving.
//!
//! The store enforces them in the transaction of each marker. The cached stops of this file serve views, and refuse new
//! sends in the mode `refuse`; they may be two seconds old.

use crate::{
    access::caller::Caller,
    control::policy_trace::trace_refusal,
    handoff::transport_selector::SANDBOX,
    runtime::{
        context::Context,
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::CreateOutcome,
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    control::stop::{
        CreateStopResult, MAX_REASON_CHARS, MAX_RELEASE_RATE, MAX_STOPS, SendOrigin, Stop, StopAuthor, StopKind,
        StopMode, StopScope, Stops,
    },
    handoff::{Handoff, HandoffState},
    id::{StopId, TeamId},
    operation::IdempotentResult,
    outbound::{
        email::Email,
        policy_trace::{PolicyKind, PolicyStep, PolicyTrace, PolicyVerdict},
    },
    ports::store::StoreError,
    problem::{Code, Problem},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How the note of a server about a stop of the installation begins.
pub const STOP_NOTE: &str = "the installation is stopped";
/// How the note of a server about other stops begins.
pub const PARTIAL_STOP_NOTE: &str = "stops keep some email from leaving";
/// How many waiting handoffs of a stop are counted.
pub const MAX_WAITING: usize = 100_000;
/// How long a node uses cached stops, in milliseconds. Another node may have changed them, or a call of this node whose
/// client went away before the cache was told.
const CACHE_TTL_MS: i64 = 2_000;
/// How many teams the cache holds.
const CACHE_CAPACITY: usize = 10_000;

/// A stop to create.
#[derive(Clone, Debug)]
pub struct NewStop {
    /// The emails that it covers.
    pub scope: StopScope,
    /// What happens to new sends.
    pub mode: StopMode,
    /// Why.
    pub reason: Option<String>,
}

/// The stops that affect the email of a team.
pub struct AffectingStops([Arc<Stops>; 2]);

impl AffectingStops {
    /// The stop that keeps an email from leaving. `None` unless some of it is waiting.
    pub fn stopping(&self, email: &Email) -> Option<StopId> {
        self.stop_of(email).map(|stop| stop.id)
    }

    /// The same, as a whole.
    pub(crate) fn stop_of(&self, email: &Email) -> Option<&Stop> {
        let waits = |handoff: &Handoff| matches!(handoff.state, HandoffState::Queued | HandoffState::Scheduled);
        let stop = |transport: &str| self.0.iter().find_map(|stops| stops.stop_for_handoff(email, transport));
        let mut waiting = email.handoffs.iter().filter(|handoff| waits(handoff));
        waiting.find_map(|handoff| stop(&handoff.transport))
    }
}

/// Creates and ends stops, and knows which are in force.
pub struct StopControl {
    ctx: Arc<Context>,
    cache: StopCache,
}

/// The stops of teams, and under `None` those of the installation and of transports.
#[derive(Default)]
struct StopCache(Mutex<StopCacheState>);

#[derive(Default)]
struct StopCacheState {
    /// The stops by team, and when they were read, by the boot clock.
    teams: HashMap<Option<TeamId>, (Arc<Stops>, i64)>,
    /// Counts the changes, so that a read that started before a change is not cached after it.
    changes: u64,
}

impl StopCache {
    fn state(&self) -> MutexGuard<'_, StopCacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn invalidate(&self) {
        let mut state = self.state();
        state.changes += 1;
        state.teams.clear();
    }
}

impl StopControl {
    pub(crate) fn new(ctx: Arc<Context>) -> Self {
        Self { ctx, cache: StopCache::default() }
    }

    /// Reads the stops again at their next use.
    pub(super) fn forget_cached_stops(&self) {
        self.cache.invalidate();
    }

    /// Stops the email of a scope. When this returns, no further email of the scope leaves, on any node.
    pub async fn create_stop(
        &self,
        caller: &Caller,
        new: NewStop,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<Stop>, Problem> {
        require_control(caller, &new.scope)?;
        self.check_new_stop(&new).await?;
        let now = self.ctx.now();
        let (scope, by) = (new.scope, StopAuthor::from(&*caller.key));
        let id = StopId(self.ctx.new_id(now));
        let stop = Stop { id, scope, mode: new.mode, reason: new.reason, by, created_at: now, release: None };
        let (team, name) = (stop.scope.team(), stop.name());
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        let created = self.ctx.store.create_stop(stop, operation, now).await;
        self.cache.invalidate();
        match created.map_err(unavailable)? {
            IdempotentResult::Done(CreateStopResult::Created(stop)) => {
                tracing::warn!(scope = stop.scope.name(), by = stop.by.name, "email is stopped");
                Ok(CreateOutcome { value: stop, is_new: true })
            }
            IdempotentResult::Done(CreateStopResult::AlreadyStopped(stop)) => {
                Ok(CreateOutcome { value: stop, is_new: false })
            }
            IdempotentResult::Done(CreateStopResult::TooMany) => Err(Problem::invalid_field(
                "scope",
                format!("is one too many: a team can have at most {MAX_STOPS} stops"),
            )),
            IdempotentResult::Replayed(_) => {
                let all = self.ctx.store.stops(team).await.map_err(unavailable)?;
                let found = all.into_iter().find(|stop| stop.name() == name);
                let value = found.ok_or_else(|| {
                    Problem::new(Code::NotFound, "this idempotency key created a stop that has ended since")
                })?;
                Ok(CreateOutcome { value, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Stops the whole installation on behalf of the server itself, unless it is stopped already.
    pub async fn stop_installation(&self, author: &str, reason: &str) -> Result<(), StoreError> {
        let now = self.ctx.now();
        let stop = Stop {
            id: StopId(self.ctx.new_id(now)),
            scope: StopScope::Installation,
            mode: StopMode::Wait,
            reason: Some(reason.to_owned()),
            by: StopAuthor { api_key: None, name: author.to_owned() },
            created_at: now,
            release: None,
        };
        let created = self.ctx.store.create_stop(stop, None, now).await;
        self.cache.invalidate();
        created.map(drop)
    }

    /// Ends the stop of the installation if the server itself created it under this name. Returns whether it did.
    pub async fn end_installation_stop_of(&self, author: &str) -> Result<bool, StoreError> {
        let own = |stop: &&Stop| {
            let is_own = stop.by.api_key.is_none() && stop.by.name == author;
            stop.scope == StopScope::Installation && stop.is_in_force() && is_own
        };
        match self.ctx.store.stops(None).await?.iter().find(own) {
            Some(stop) => Ok(self.end_stop_unchecked(stop, None).await?.is_some()),
            None => Ok(false),
        }
    }

    async fn check_new_stop(&self, new: &NewStop) -> Result<(), Problem> {
        if new.reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_REASON_CHARS) {
            return Err(Problem::invalid_field("reason", format!("must have at most {MAX_REASON_CHARS} characters")));
        }
        match &new.scope {
            StopScope::ApiKey { team, id } => {
                let keys = self.ctx.store.api_keys(*team).await.map_err(unavailable)?;
                let is_known = keys.iter().any(|key| key.id == *id && key.is_used_by_program());
                is_known.then_some(()).ok_or_else(|| {
                    let detail = format!("names no API key or connection of the team: {id}");
                    Problem::invalid_field("scope.api_key", detail)
                })
            }
            StopScope::Transport(name) if name != SANDBOX && self.ctx.transports.get(name).is_none() => {
                let known = self.known_transports().await.map_err(unavailable)?;
                if known.contains(name) {
                    return Ok(());
                }
                let known = known.into_iter().collect::<Vec<_>>().join(", ");
                Err(Problem::invalid_field("scope.transport", format!("names no transport; there are {known}")))
            }
            StopScope::Installation | StopScope::Transport(_) | StopScope::Team(_) | StopScope::Inbox { .. } => Ok(()),
        }
    }

    /// The transports of this node and of others, and those that email waits for.
    async fn known_transports(&self) -> Result<BTreeSet<String>, StoreError> {
        let mut known: BTreeSet<String> = self.ctx.transports.accounts().into_iter().map(|own| own.name).collect();
        known.extend(self.ctx.store.published_transports().await?);
        known.extend(self.ctx.store.backlog().await?.waiting.into_iter().map(|(name, _)| name));
        Ok(known)
    }

    /// The stops that affect the team: its own, and those of the installation and of transports. Oldest first.
    pub async fn list(&self, caller: &Caller) -> Result<Vec<Stop>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        self.visible_stops(caller).await
    }

    /// How much email waits for each of these stops: handoffs that are due, counted up to [`MAX_WAITING`]. Only
    /// operators see the email of other teams counted.
    pub async fn waiting(&self, caller: &Caller, stops: &[Stop]) -> Result<Vec<u64>, Problem> {
        let is_operator = caller.require_scope(ApiKeyScope::Operator).is_ok();
        let team = (!is_operator).then_some(caller.team.id);
        let counts = self.ctx.store.waiting_counts(stops.to_vec(), team, MAX_WAITING, self.ctx.now()).await;
        counts.map_err(unavailable)
    }

    /// How many stops are in force, over all teams.
    pub async fn counts(&self) -> Result<BTreeMap<StopKind, u64>, StoreError> {
        self.ctx.store.stop_counts().await
    }

    /// The note of a server about stops that cover less than the installation. `None` if there are none.
    pub async fn partial_stop_note(&self) -> Result<Option<String>, StoreError> {
        let mut counts = self.counts().await?;
        counts.remove(&StopKind::Installation);
        let kinds: Vec<String> =
            counts.iter().map(|(kind, count)| format!("{count} of kind {}", kind.as_str())).collect();
        Ok((!kinds.is_empty()).then(|| format!("{PARTIAL_STOP_NOTE}: {}; see `mailonce stops`", kinds.join(", "))))
    }

    async fn visible_stops(&self, caller: &Caller) -> Result<Vec<Stop>, Problem> {
        let mut all = self.ctx.store.stops(None).await.map_err(unavailable)?;
        all.extend(self.ctx.store.stops(Some(caller.team.id)).await.map_err(unavailable)?);
        all.retain(|stop| may_see(caller, stop));
        all.sort_by_key(|stop| (stop.created_at, stop.id));
        Ok(all)
    }

    /// Ends a stop and releases its email in the order in which it was due, at most `rate_per_s` handoffs per second.
    pub async fn end_stop(&self, caller: &Caller, id: StopId, rate_per_s: Option<u32>) -> Result<Stop, Problem> {
        check_rate(rate_per_s)?;
        let missing = || Problem::new(Code::NotFound, format!("there is no stop {id}"));
        let stop = self.visible_stops(caller).await?.into_iter().find(|stop| stop.id == id).ok_or_else(missing)?;
        require_control(caller, &stop.scope)?;
        self.end_stop_unchecked(&stop, rate_per_s).await.map_err(unavailable)?.ok_or_else(missing)
    }

    /// Ends the stop of the installation, if there is one. The stop of the journal of erasures ends by itself, so that
    /// resuming after a restore does not let email to erased people leave.
    pub async fn resume_installation(&self, caller: &Caller, rate_per_s: Option<u32>) -> Result<Option<Stop>, Problem> {
        check_rate(rate_per_s)?;
        require_control(caller, &StopScope::Installation)?;
        let all = self.ctx.store.stops(None).await.map_err(unavailable)?;
        let in_force =
            |stop: &&Stop| stop.scope == StopScope::Installation && stop.is_in_force() && !stop.is_of_erasure_journal();
        let Some(stop) = all.iter().find(in_force) else { return Ok(None) };
        self.end_stop_unchecked(stop, rate_per_s).await.map_err(unavailable)
    }

    async fn end_stop_unchecked(&self, stop: &Stop, rate_per_s: Option<u32>) -> Result<Option<Stop>, StoreError> {
        let ended = self.ctx.store.end_stop(stop.scope.team(), stop.id, rate_per_s, self.ctx.now()).await;
        self.cache.invalidate();
        self.ctx.transports.release_wakeup.notify_one();
        self.ctx.transports.wake_all();
        let ended = ended?;
        if let Some(stop) = &ended {
            tracing::warn!(scope = stop.scope.name(), "the stop has ended; its email is released");
        }
        Ok(ended)
    }

    /// Refuses a new send that a stop in the mode `refuse` covers. A stop in the mode `wait` is added to the trace.
    pub(crate) async fn check_stops(&self, origin: SendOrigin<'_>, trace: &mut PolicyTrace) -> Result<(), Problem> {
        let stops = self.stops_of(origin.team).await.map_err(unavailable);
        let refused =
            stops.as_ref().ok().and_then(|stops| stops.iter().find_map(|stops| stops.stop_refusing_send(origin)));
        let checked = match refused {
            Some(stop) => Err(stopped_problem(stop)),
            None => stops.as_ref().map(drop).map_err(Clone::clone),
        };
        trace_refusal(trace, PolicyKind::Stop, "stops", checked)?;
        if let Some(stop) = stops?.iter().find_map(|stops| stops.stop_delaying_send(origin)) {
            trace.record(delayed_step(stop));
        }
        Ok(())
    }

    /// The stops that affect the email of a team, for views.
    pub async fn stops_affecting(&self, team: TeamId) -> Result<AffectingStops, Problem> {
        self.stops_of(team).await.map(AffectingStops).map_err(unavailable)
    }

    /// Whether the whole installation is stopped.
    pub async fn is_installation_stopped(&self) -> Result<bool, StoreError> {
        let stops = self.cached_stops(None).await?;
        Ok(stops.0.iter().any(|stop| stop.is_in_force() && stop.scope == StopScope::Installation))
    }

    /// Whether everything that this transport hands on is stopped. Its worker then leases nothing. When the store does
    /// not answer this returns false, because the marker is checked anyway.
    pub(crate) async fn is_transport_stopped(&self, transport: &str) -> bool {
        let stops = self.cached_stops(None).await;
        stops.is_ok_and(|stops| stops.0.iter().any(|stop| stop.closes_queue_of(transport)))
    }

    /// The stops of the installation and of transports, and those of a team.
    async fn stops_of(&self, team: TeamId) -> Result<[Arc<Stops>; 2], StoreError> {
        Ok([self.cached_stops(None).await?, self.cached_stops(Some(team)).await?])
    }

    async fn cached_stops(&self, team: Option<TeamId>) -> Result<Arc<Stops>, StoreError> {
        let boot_ms = self.ctx.time.boot_clock_ms();
        let since = boot_ms - CACHE_TTL_MS;
        let changes = {
            let state = self.cache.state();
            if let Some((stops, _)) = state.teams.get(&team).filter(|(_, read_at)| *read_at >= since) {
                return Ok(Arc::clone(stops));
            }
            state.changes
        };
        let stops = Arc::new(Stops(self.ctx.store.stops(team).await?));
        let mut state = self.cache.state();
        if state.changes == changes {
            if state.teams.len() >= CACHE_CAPACITY {
                state.teams.clear();
            }
            state.teams.insert(team, (Arc::clone(&stops), boot_ms));
        }
        Ok(stops)
    }
}

fn check_rate(rate_per_s: Option<u32>) -> Result<(), Problem> {
    if rate_per_s.is_some_and(|rate| rate == 0 || rate > MAX_RELEASE_RATE) {
        return Err(Problem::invalid_field("rate_per_s", format!("must be between 1 and {MAX_RELEASE_RATE}")));
    }
    Ok(())
}

/// The problem for a send or a claim that a stop refuses.
pub(crate) fn stopped_problem(stop: &Stop) -> Problem {
    let reason = stop.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    let detail = format!("{} stopped email of {}{reason}", stop.by.name, stop.scope.name());
    Problem::new(Code::Stopped, detail).with_extension("stop", stop.id.to_string())
}

/// The step of a trace that says for what an email waits.
pub(crate) fn delayed_step(stop: &Stop) -> PolicyStep {
    let reason = stop.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    let why = format!("it waits, because {} stopped email of {}{reason}", stop.by.name, stop.scope.name());
    PolicyStep::new(PolicyKind::Stop, "stops", PolicyVerdict::Flag, why)
}

/// Refuses a caller that may not create or end a stop of this scope.
fn require_control(caller: &Caller, scope: &StopScope) -> Result<(), Problem> {
    match scope {
        StopScope::Installation | StopScope::Transport(_) => caller.require_scope(ApiKeyScope::Operator),
        StopScope::Team(_) | StopScope::ApiKey { .. } => {
            caller.require_scope(ApiKeyScope::Admin)?;
            caller.require_unrestricted_key()
        }
        StopScope::Inbox { id, .. } => {
            caller.require_scope(ApiKeyScope::Admin)?;
            if caller.may_access_inboxes(&[*id]) { Ok(()) } else { caller.require_unrestricted_key() }
        }
    }
}

/// Whether a caller may see a stop. A key that is restricted to inboxes sees those of its inboxes, and those of the
/// whole team and above.
fn may_see(caller: &Caller, stop: &Stop) -> bool {
    match &stop.scope {
        StopScope::Inbox { id, .. } => caller.may_access_inboxes(&[*id]),
        StopScope::ApiKey { id, .. } => caller.inbox_restriction.is_none() || caller.key.id == *id,
        StopScope::Installation | StopScope::Transport(_) | StopScope::Team(_) => true,
    }
}
