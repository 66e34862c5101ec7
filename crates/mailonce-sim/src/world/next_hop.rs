//! A next hop: the mails it accepted, the keys it remembers, and the events it reports.

use super::plan::{FaultKind, HopProfile};
use crate::{proof::history::HopArrival, world::world_state::WorldState};
use mailonce_core::{
    handoff::{EvidenceFinding, capabilities::RecoveryMethod, reply::ReplyMeaning, transport_request::FrozenEnvelope},
    id::{EmailId, TeamId},
};
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What a next hop does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HopDecision {
    /// It became a mail.
    Accepted,
    /// It was recognized as a repeat.
    Repeat,
    /// Its key was used for other bytes.
    KeyMismatch,
    /// Another request under the same key is running.
    Busy,
}

/// A request that is accepted later.
struct DelayedRequest {
    due: i64,
    envelope: FrozenEnvelope,
    account: String,
}

/// A provider event.
#[derive(Clone)]
pub(super) struct ProviderReport {
    pub(super) due: i64,
    pub(super) team: TeamId,
    pub(super) email: EmailId,
    pub(super) handoff: u16,
    pub(super) fact: EvidenceFinding,
    pub(super) event_id: String,
}

/// A remembered key.
struct RememberedKey {
    since: i64,
    bytes_hash: u64,
}

#[derive(Default)]
struct HopState {
    mails: Vec<(EmailId, u16, i64)>,
    keys: BTreeMap<(String, String), RememberedKey>,
    delayed: Vec<DelayedRequest>,
    reports: Vec<ProviderReport>,
}

/// A next hop.
pub(super) struct SimulatedHop {
    pub(super) name: String,
    pub(super) class: HopProfile,
    /// How long look-ups do not find a new mail, in milliseconds.
    lookup_lag_ms: i64,
    /// Whether it rejects repeats.
    rejects_repeats: bool,
    shared: Arc<WorldState>,
    state: Mutex<HopState>,
}

impl SimulatedHop {
    pub(super) fn new(shared: &Arc<WorldState>, number: usize, class: HopProfile) -> Arc<Self> {
        let lag = if shared.plan.has_fault(FaultKind::LookUp) { shared.below(240_000) as i64 } else { 0 };
        Arc::new(Self {
            name: format!("hop{number}"),
            class,
            lookup_lag_ms: lag,
            rejects_repeats: shared.below(2) == 0,
            shared: Arc::clone(shared),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HopState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a complete request: it becomes a mail unless its key is remembered.
    pub(super) fn process_request(&self, envelope: &FrozenEnvelope, account: &str) -> HopDecision {
        self.process_request_at(envelope, account, self.shared.now())
    }

    fn process_request_at(&self, envelope: &FrozenEnvelope, account: &str, now: i64) -> HopDecision {
        let bytes = hash(&envelope.bytes);
        let verdict = self.check_key(envelope, account, bytes, now);
        self.record_arrival(envelope, verdict == HopDecision::Accepted);
        if verdict == HopDecision::Accepted {
            let mut memory = self.lock();
            memory.mails.push((envelope.email, envelope.handoff, now));
            if matches!(self.class, HopProfile::Keyed(_)) {
                memory.keys.insert(
                    (account.to_owned(), envelope.key.to_string()),
                    RememberedKey { since: now, bytes_hash: bytes },
                );
            }
            drop(memory);
            self.plan_reports(envelope, now);
        }
        verdict
    }

    fn check_key(&self, envelope: &FrozenEnvelope, account: &str, bytes: u64, now: i64) -> HopDecision {
        let HopProfile::Keyed(window) = self.class else { return HopDecision::Accepted };
        let memory = self.lock();
        let busy = |late: &DelayedRequest| late.account == account && late.envelope.key == envelope.key;
        if memory.delayed.iter().any(busy) {
            return HopDecision::Busy;
        }
        let known = memory.keys.get(&(account.to_owned(), envelope.key.to_string()));
        match known.filter(|known| now - known.since < window) {
            None => HopDecision::Accepted,
            Some(known) if known.bytes_hash == bytes => HopDecision::Repeat,
            Some(_) => HopDecision::KeyMismatch,
        }
    }

    /// The reply without faults.
    pub(super) fn reply_for(&self, taken: HopDecision) -> ReplyMeaning {
        match taken {
            HopDecision::Repeat if self.rejects_repeats => ReplyMeaning::Repeated,
            HopDecision::Accepted | HopDecision::Repeat => ReplyMeaning::Accepted,
            HopDecision::KeyMismatch => ReplyMeaning::Mismatch,
            HopDecision::Busy => ReplyMeaning::Concurrent,
        }
    }

    /// Records a request that arrived.
    pub(super) fn record_arrival(&self, envelope: &FrozenEnvelope, taken: bool) {
        self.shared.record_arrival(HopArrival {
            at: 0,
            transport: self.name.clone(),
            email: envelope.email.to_string(),
            handoff: Some(envelope.handoff),
            message_id: message_id(&envelope.bytes),
            key: matches!(self.class, HopProfile::Keyed(_)).then(|| envelope.key.to_string()),
            bytes: hash(&envelope.bytes),
            to: envelope.recipients.clone(),
            taken,
            early: self.shared.is_early(envelope.email),
            is_known_accepted: false,
        });
    }

    /// Accepts a request later although its connection is gone.
    pub(super) fn accept_later(&self, envelope: FrozenEnvelope, account: &str) {
        // The delay stays below a window's margin. A request that a provider accepts after it forgot the key is outside
        // of every invariant.
        let longest = match self.class {
            HopProfile::Keyed(window) => RecoveryMethod::window_margin_ms(window) - 1_000,
            _ => i64::MAX,
        };
        let due = self.shared.now() + self.shared.pick(&[500, 5_000, 60_000, 11 * 60_000]).min(longest);
        self.lock().delayed.push(DelayedRequest { due, envelope, account: account.to_owned() });
    }

    /// Accepts delayed requests that are due; all of them at the end.
    pub(super) fn run_due(&self, all: bool) {
        let now = self.shared.now();
        let late = std::mem::take(&mut self.lock().delayed);
        let (due, rest): (Vec<_>, Vec<_>) = late.into_iter().partition(|late| all || late.due <= now);
        self.lock().delayed = rest;
        for late in due {
            self.process_request_at(&late.envelope, &late.account, late.due.min(now));
        }
    }

    /// When it accepted a mail first, if it did.
    pub(super) fn accepted_at(&self, email: EmailId, handoff: u16) -> Option<i64> {
        let mail = |(id, number, at): &(EmailId, u16, i64)| (*id == email && *number == handoff).then_some(*at);
        self.lock().mails.iter().find_map(mail)
    }

    /// Whether a look-up finds a mail by now.
    pub(super) fn is_found_by_lookup(&self, email: EmailId, handoff: u16) -> bool {
        self.run_due(false);
        self.accepted_at(email, handoff).is_some_and(|at| self.shared.now() - at >= self.lookup_lag_ms)
    }

    /// Plans the events about a mail: each some times, in any order.
    fn plan_reports(&self, envelope: &FrozenEnvelope, now: i64) {
        if !self.shared.plan.has_fault(FaultKind::Reports) {
            return;
        }
        let last = self.shared.pick(&[
            EvidenceFinding::Delivered,
            EvidenceFinding::Bounced,
            EvidenceFinding::Complained,
            EvidenceFinding::Accepted,
        ]);
        self.shared.record_fault(FaultKind::Reports, vec![envelope.email.to_string()]);
        // Every other mail is reported as delayed first, which also proves that the provider has it.
        let first = if envelope.email.0.as_u128().is_multiple_of(2) {
            EvidenceFinding::Delayed
        } else {
            EvidenceFinding::Accepted
        };
        for (n, says) in [first, EvidenceFinding::Delivered, last].into_iter().enumerate() {
            for _ in 0..self.shared.below(3) {
                let due = now + self.shared.pick(&[0, 1_000, 30_000, 600_000]);
                let once = format!("{}-{}-{n}", envelope.email, envelope.handoff);
                let (team, email, handoff) = (envelope.team, envelope.email, envelope.handoff);
                self.lock().reports.push(ProviderReport { due, team, email, handoff, fact: says, event_id: once });
            }
        }
    }

    /// Events that are due, in any order.
    pub(super) fn take_due_reports(&self, all: bool) -> Vec<ProviderReport> {
        let now = self.shared.now();
        let reports = std::mem::take(&mut self.lock().reports);
        let (mut due, rest): (Vec<_>, Vec<_>) = reports.into_iter().partition(|report| all || report.due <= now);
        self.lock().reports = rest;
        for at in (1..due.len()).rev() {
            due.swap(at, self.shared.below(at as u64 + 1) as usize);
        }
        due
    }

    /// Puts an unacknowledged event back.
    pub(super) fn requeue_report(&self, report: ProviderReport) {
        self.lock().reports.push(report);
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hash = DefaultHasher::new();
    bytes.hash(&mut hash);
    hash.finish()
}

/// The Message-ID in the bytes of a mail.
fn message_id(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().find_map(|line| line.strip_prefix("Message-ID: "));
    line.unwrap_or_default().trim().to_owned()
}
