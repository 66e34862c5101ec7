//! The state that all parts of a world share: time, randomness, the history and the trace.

use super::plan::{FaultKind, WorldPlan};
use crate::harness::rng::SeededRng;
use crate::proof::History;
use crate::proof::history::{
    self, CallOutcome, CallRecord, ClaimCall, ClaimEffect, ClaimReply, ClaimRow, ConsumeTry, ConsumedCode,
    ConversationChange, ConversationCommit, DeliveryTry, EscalationRow, Event, FaultRecord, HandoffTransition,
    HopArrival, HopCapability, InboundHistory, ReplyLimits, ReportedTime,
};
use mailonce_core::handoff::HandoffState;
use mailonce_core::id::{EmailId, NodeId};
use mailonce_core::outbound::email::Email;
use mailonce_core::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// The start of every world, in milliseconds since the epoch.
const START_MS: i64 = 1_794_715_200_000;

pub(super) struct WorldState {
    pub(super) plan: WorldPlan,
    started_at: Instant,
    inner: Mutex<WorldStateInner>,
}

struct WorldStateInner {
    rng: SeededRng,
    /// Milliseconds that were skipped, in addition to the runtime's time.
    skipped_ms: i64,
    /// Skipped milliseconds that are not recorded as a fault yet.
    unreported_skip_ms: i64,
    /// The latest time that a node reported to the ledger.
    latest_node_time: i64,
    /// Whether faults are on.
    has_faults: bool,
    next_position: u64,
    trace: u64,
    log: Option<Vec<String>>,
    faults: BTreeMap<&'static str, u64>,
    history: History,
    observed_handoffs: BTreeMap<(EmailId, u16), ObservedHandoff>,
    /// When scheduled emails are due, by the true time.
    due: BTreeMap<EmailId, i64>,
    /// The time of the first call of each send.
    first_called_at: BTreeMap<(String, String), i64>,
    /// Emails whose keys expired.
    expired_keys: BTreeSet<EmailId>,
}

/// The last known state of a handoff.
#[derive(Clone, Copy)]
struct ObservedHandoff {
    state: HandoffState,
    holder: Option<NodeId>,
}

impl WorldState {
    pub(super) fn new(plan: WorldPlan, tell: bool) -> Arc<Self> {
        let rng = SeededRng::derive(plan.seed, &[1]);
        Arc::new(Self {
            plan,
            started_at: Instant::now(),
            inner: Mutex::new(WorldStateInner {
                rng,
                skipped_ms: 0,
                unreported_skip_ms: 0,
                latest_node_time: 0,
                has_faults: true,
                next_position: 0,
                trace: 0xcbf2_9ce4_8422_2325,
                log: tell.then(Vec::new),
                faults: BTreeMap::new(),
                history: History::default(),
                observed_handoffs: BTreeMap::new(),
                due: BTreeMap::new(),
                first_called_at: BTreeMap::new(),
                expired_keys: BTreeSet::new(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, WorldStateInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True milliseconds since the start, whatever the clocks show.
    pub(super) fn elapsed_ms(&self) -> i64 {
        let own = i64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(i64::MAX);
        own + self.lock().skipped_ms
    }

    /// The true time.
    pub(super) fn now(&self) -> i64 {
        START_MS + self.elapsed_ms()
    }

    /// Skips time.
    pub(super) fn skip_time(&self, ms: i64) {
        self.lock().skipped_ms += ms;
        self.trace(|| format!("{ms} ms pass at once"));
    }

    /// Skipped time since the last call.
    pub(super) fn add_unreported_skip(&self, ms: i64) -> i64 {
        let mut inner = self.lock();
        inner.unreported_skip_ms += ms;
        inner.unreported_skip_ms
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.lock().rng.below(bound)
    }

    pub(super) fn between(&self, low: u64, high: u64) -> u64 {
        self.lock().rng.between(low, high)
    }

    /// Picks one of several.
    pub(super) fn pick<T: Copy>(&self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Whether a fault of this kind happens now.
    pub(super) fn draw_fault(&self, kind: FaultKind) -> bool {
        let likely = self.plan.has_fault(kind) && self.lock().has_faults;
        likely && self.below(100) < self.plan.fault_percent
    }

    /// Turns faults off.
    pub(super) fn stop_faults(&self) {
        self.lock().has_faults = false;
        self.trace(|| "everything is healed".to_owned());
    }

    /// Whether faults are on.
    pub(super) fn has_faults(&self) -> bool {
        self.lock().has_faults
    }

    /// Records when an email is due. It is exact only if one clock counts all the time.
    pub(super) fn record_due_time(&self, id: EmailId, at: i64) {
        let ends = [FaultKind::Crash, FaultKind::CrashAtPoint].iter().any(|kind| self.plan.has_fault(*kind));
        if self.plan.nodes == 1 && !ends {
            self.lock().due.entry(id).or_insert(at);
        }
    }

    /// The time of the first call of a send: now, if it has no key.
    pub(super) fn first_called_at(&self, (team, key): &(String, Option<String>)) -> i64 {
        let now = self.now();
        let Some(key) = key else { return now };
        *self.lock().first_called_at.entry((team.clone(), key.clone())).or_insert(now)
    }

    /// Whether a scheduled email is early.
    pub(super) fn is_early(&self, id: EmailId) -> bool {
        let now = self.now();
        self.lock().due.get(&id).is_some_and(|due| now < *due)
    }

    /// Records that the key of an email expired. Returns true the first time.
    pub(super) fn record_key_expiry(&self, id: EmailId) -> bool {
        self.lock().expired_keys.insert(id)
    }

    /// Adds a line to the trace. It is formatted only if it is kept or hashed.
    pub(super) fn trace(&self, line: impl FnOnce() -> String) {
        let line = line();
        let now = i64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(i64::MAX);
        let mut inner = self.lock();
        for byte in line.bytes().chain(now.to_be_bytes()) {
            inner.trace = (inner.trace ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if let Some(lines) = &mut inner.log {
            lines.push(format!("{now:>7} {line}"));
        }
    }

    /// The next position in the history.
    fn next_position(&self) -> u64 {
        let mut inner = self.lock();
        inner.next_position += 1;
        inner.next_position
    }

    /// Records a fault and the emails that it may affect.
    pub(super) fn record_fault(&self, kind: FaultKind, emails: Vec<String>) {
        self.trace(|| format!("fault: {} {}", kind.as_str(), emails.join(" ")));
        let at = self.next_position();
        let mut inner = self.lock();
        if kind == FaultKind::Leap {
            inner.unreported_skip_ms = 0;
        }
        *inner.faults.entry(kind.as_str()).or_default() += 1;
        let (ambiguous, kind) = (kind.is_ambiguous(), kind.as_str().to_owned());
        inner.history.faults.push(FaultRecord { at, kind, ambiguous, emails });
    }

    /// Records an arrival at a next hop.
    pub(super) fn record_arrival(&self, arrival: HopArrival) {
        let verb = if arrival.taken { "takes" } else { "sees" };
        self.trace(|| format!("{} {verb} {} to {}", arrival.transport, arrival.email, arrival.to.join("+")));
        let at = self.next_position();
        self.lock().history.arrivals.push(HopArrival { at, ..arrival });
    }

    /// Records the start of a call.
    pub(super) fn begin_call(&self, call: CallRecord) -> usize {
        self.trace(|| format!("{} asks {:?} {:?} {:?}", call.team, call.verb, call.key, call.about));
        let at = self.next_position();
        self.lock().history.begin_call(CallRecord { at, ..call })
    }

    /// Records the outcome of a call, and whether it had to fail.
    pub(super) fn end_call(&self, call: usize, end: CallOutcome, must_fail: bool) {
        self.trace(|| format!("call {call} ends: {end:?}"));
        let at = self.next_position();
        let mut inner = self.lock();
        inner.history.end_call(call, at, end);
        if let Some(call) = inner.history.calls.get_mut(call) {
            call.must_fail = must_fail;
        }
    }

    /// Records the start of a delivery and returns its index.
    pub(super) fn begin_delivery(&self, delivery_try: DeliveryTry) -> usize {
        self.trace(|| {
            format!("{} is delivered to {} by {}", delivery_try.message_id, delivery_try.inbox, delivery_try.channel)
        });
        let at = self.next_position();
        let all = &mut self.lock().history.inbound.delivery_tries;
        all.push(DeliveryTry { at, ..delivery_try });
        all.len() - 1
    }

    /// Records whether the delivery was acknowledged.
    pub(super) fn end_delivery(&self, index: usize, acknowledged: bool) {
        self.trace(|| format!("mail {index} is acknowledged: {acknowledged}"));
        let at = self.next_position();
        if let Some(delivery_try) = self.lock().history.inbound.delivery_tries.get_mut(index) {
            (delivery_try.ended, delivery_try.acknowledged) = (Some(at), acknowledged);
        }
    }

    /// Whether a mail was acknowledged.
    pub(super) fn is_acknowledged(&self, message_id: &str) -> bool {
        let inner = self.lock();
        inner
            .history
            .inbound
            .delivery_tries
            .iter()
            .any(|delivery_try| delivery_try.acknowledged && delivery_try.message_id == message_id)
    }

    /// Records the start of a consume call and returns its index.
    pub(super) fn begin_consume(&self, take: ConsumeTry) -> usize {
        self.trace(|| format!("{} wants the code of {} for {}", take.team, take.sender, take.purpose));
        let at = self.next_position();
        let all = &mut self.lock().history.inbound.consume_tries;
        all.push(ConsumeTry { at, ..take });
        all.len() - 1
    }

    /// Records the result of a consume call.
    pub(super) fn end_consume(&self, index: usize, consumed: Option<ConsumedCode>, refused: String) {
        self.trace(|| format!("take {index} ends: {consumed:?} {refused}"));
        let at = self.next_position();
        if let Some(take) = self.lock().history.inbound.consume_tries.get_mut(index) {
            (take.ended, take.consumed, take.refused) = (Some(at), consumed, refused);
        }
    }

    /// Records the reply limits of an inbox.
    pub(super) fn record_reply_limits(&self, address: &str, limits: ReplyLimits) {
        self.lock().history.conversations.limits_by_inbox.insert(address.to_owned(), limits);
    }

    /// Records a commit about a conversation.
    pub(super) fn record_conversation_change(&self, change: ConversationChange, now: Time) {
        self.trace(|| format!("{change:?}"));
        let at = self.next_position();
        self.lock().history.conversations.commits.push(ConversationCommit { at, now: now.0, change });
    }

    /// Records the escalations at the end.
    pub(super) fn record_escalations(&self, escalations: Vec<EscalationRow>) {
        self.lock().history.conversations.escalations = escalations;
    }

    /// Records the inboxes at the end.
    pub(super) fn record_inboxes(&self, shown: InboundHistory) {
        let (messages, artifacts) = (shown.messages.len(), shown.artifacts.len());
        self.trace(|| format!("in the end {messages} messages, {artifacts} artifacts"));
        let inbound = &mut self.lock().history.inbound;
        (inbound.messages, inbound.artifacts, inbound.deliveries) = (shown.messages, shown.artifacts, shown.deliveries);
    }

    /// Records the start of a call about a claim and returns its index.
    pub(super) fn begin_claim_call(&self, call: ClaimCall) -> usize {
        self.trace(|| format!("{} asks about {}: {:?}", call.caller, call.key, call.kind));
        let at = self.next_position();
        let all = &mut self.lock().history.claims.calls;
        all.push(ClaimCall { at, ..call });
        all.len() - 1
    }

    /// Records the reply to a call about a claim.
    pub(super) fn end_claim_call(&self, index: usize, reply: ClaimReply) {
        self.trace(|| format!("call {index} about a claim ends: {reply:?}"));
        let (at, now) = (self.next_position(), self.now());
        if let Some(call) = self.lock().history.claims.calls.get_mut(index) {
            (call.ended, call.ended_ms, call.reply) = (Some(at), now, reply);
        }
    }

    /// Records the beginning of a claimed side effect.
    pub(super) fn record_claim_effect(&self, effect: ClaimEffect) {
        self.trace(|| format!("{} begins {}", effect.worker, effect.key));
        let at = self.next_position();
        self.lock().history.claims.effects.push(ClaimEffect { at, ..effect });
    }

    /// The first worker that began a side effect, if one did.
    pub(super) fn claim_effect_worker(&self, team: &str, key: &str) -> Option<String> {
        let inner = self.lock();
        let effect = inner.history.claims.effects.iter().find(|effect| effect.team == team && effect.key == key);
        effect.map(|effect| effect.worker.clone())
    }

    /// Records the claims at the end.
    pub(super) fn record_claims(&self, claims: Vec<ClaimRow>) {
        self.trace(|| format!("in the end {claims:?}"));
        self.lock().history.claims.claims = claims;
    }

    /// Records a process's clock.
    pub(super) fn record_clock(&self, process: String, time: i64) {
        let at = self.next_position();
        self.lock().history.readings.push(ReportedTime { at, process, time });
    }

    /// Records what changed in the states of an email's handoffs. The ledger calls it after each commit.
    pub(super) fn record_handoff_states(&self, email: &Email) {
        for handoff in &email.handoffs {
            let index = (email.id, handoff.number);
            let now = ObservedHandoff { state: handoff.state, holder: handoff.holder };
            let before = self.lock().observed_handoffs.insert(index, now);
            let moved = before.is_none_or(|before| before.state != now.state);
            if !moved {
                continue;
            }
            let from = before.map_or("", |before| before.state.as_str()).to_owned();
            let to = handoff.state.as_str().to_owned();
            self.trace(|| format!("{} {}: {from} -> {to} fence {}", email.id, handoff.number, handoff.fence));
            let at = self.next_position();
            let (email, rev) = (email.id.to_string(), email.rev);
            let step = HandoffTransition { at, email, handoff: handoff.number, from, to, fence: handoff.fence, rev };
            self.lock().history.moves.push(step);
        }
    }

    /// Emails with a running attempt, leased under one of these names.
    pub(super) fn emails_being_sent(&self, names: &BTreeSet<NodeId>) -> Vec<String> {
        let inner = self.lock();
        let sending = inner.observed_handoffs.iter().filter(|(_, known)| known.state == HandoffState::Sending);
        let theirs = sending.filter(|(_, known)| known.holder.is_some_and(|holder| names.contains(&holder)));
        theirs.map(|((id, _), _)| id.to_string()).collect()
    }

    /// Records a node's time.
    pub(super) fn record_node_time(&self, now: Time) {
        let mut inner = self.lock();
        inner.latest_node_time = inner.latest_node_time.max(now.0);
    }

    /// The latest time of all nodes.
    pub(super) fn latest_time(&self) -> i64 {
        let now = self.now();
        self.lock().latest_node_time.max(now)
    }

    /// Marks that all faults ended and enough time passed.
    pub(super) fn mark_healed(&self) {
        self.lock().history.healed = true;
    }

    /// Records the final ledger, and which mails running nodes know to be accepted.
    pub(super) fn record_final_state(
        &self,
        hops: BTreeMap<String, HopCapability>,
        emails: Vec<history::Email>,
        events: Vec<Event>,
        known_accepted: BTreeSet<(String, Vec<String>)>,
    ) {
        let states: Vec<String> =
            emails.iter().map(|email| format!("{} {} {}", email.id, email.state, email.rev)).collect();
        self.trace(|| format!("in the end: {}, {} events", states.join(", "), events.len()));
        let mut inner = self.lock();
        for arrival in &mut inner.history.arrivals {
            arrival.is_known_accepted = known_accepted.contains(&(arrival.email.clone(), arrival.to.clone()));
        }
        (inner.history.hops, inner.history.emails, inner.history.events) = (hops, emails, events);
    }

    /// Takes the history.
    pub(super) fn take_results(&self) -> (History, u64, Vec<String>, BTreeMap<&'static str, u64>) {
        let mut inner = self.lock();
        let history = std::mem::take(&mut inner.history);
        (history, inner.trace, inner.log.take().unwrap_or_default(), std::mem::take(&mut inner.faults))
    }
}
