//! One process of a node: running, paused or dead. All calls of the engine to the world go through it.

use super::plan::FaultKind;
use crate::harness::rng::SeededRng;
use crate::world::world_state::WorldState;
use mailonce_core::id::NodeId;
use mailonce_core::ports::{Clock, Entropy};
use mailonce_core::time::{CLOCK_JUMP_MS, Time};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

thread_local! {
    /// The process whose code runs: the last one that called the world. Code at a failpoint read the time or committed
    /// just before, without an await in between.
    static CURRENT: RefCell<Option<Arc<NodeProcess>>> = const { RefCell::new(None) };
}

/// One process of a node.
pub(super) struct NodeProcess {
    pub(super) shared: Arc<WorldState>,
    /// The index of the node, and the number of the process.
    pub(super) name: String,
    is_dead: AtomicBool,
    is_paused: AtomicBool,
    state_changed: Notify,
    /// The offset of its wall clock, now and when it was last recorded.
    skew: Arc<ClockSkew>,
    rng: Mutex<SeededRng>,
    /// Emails and recipients that it knows to be accepted.
    known_accepted: Mutex<Vec<(String, Vec<String>)>>,
    /// The lease identities that it used.
    node_ids: Mutex<BTreeSet<NodeId>>,
}

impl NodeProcess {
    pub(super) fn new(shared: &Arc<WorldState>, node: usize, life: u64, skew: Arc<ClockSkew>) -> Arc<Self> {
        let rng = SeededRng::derive(shared.plan.seed, &[2, node as u64, life]);
        Arc::new(Self {
            shared: Arc::clone(shared),
            name: format!("n{node}.{life}"),
            is_dead: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            state_changed: Notify::new(),
            skew,
            rng: Mutex::new(rng),
            known_accepted: Mutex::default(),
            node_ids: Mutex::default(),
        })
    }

    /// Waits while it is paused. A dead process waits forever.
    pub(super) async fn wait_while_paused(self: &Arc<Self>) {
        loop {
            let moved = self.state_changed.notified();
            if !self.is_dead() && !self.is_paused() {
                break;
            }
            moved.await;
        }
        self.set_current();
    }

    /// Records that its code runs from here on.
    fn set_current(self: &Arc<Self>) {
        CURRENT.with(|current| *current.borrow_mut() = Some(Arc::clone(self)));
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Records a lease identity.
    pub(super) fn record_node_id(&self, node: NodeId) {
        self.node_ids.lock().unwrap_or_else(PoisonError::into_inner).insert(node);
    }

    /// Records that a mail was accepted.
    pub(super) fn record_accepted(&self, email: String, to: Vec<String>) {
        self.known_accepted.lock().unwrap_or_else(PoisonError::into_inner).push((email, to));
    }

    /// The mails that it knows to be accepted.
    pub(super) fn known_accepted(&self) -> Vec<(String, Vec<String>)> {
        self.known_accepted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills it. Its running attempts may have arrived or not.
    pub(super) fn crash(&self, kind: FaultKind) {
        if self.is_dead.swap(true, Ordering::Relaxed) {
            return;
        }
        let names = self.node_ids.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let emails = self.shared.emails_being_sent(&names);
        self.shared.trace(|| format!("{} ends", self.name));
        // A fault without affected emails must not excuse anything.
        let touched = if emails.is_empty() { vec!["nobody".to_owned()] } else { emails };
        self.shared.record_fault(kind, touched);
        self.state_changed.notify_waiters();
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    /// Pauses or resumes it.
    pub(super) fn set_paused(&self, paused: bool) {
        if paused {
            self.shared.record_fault(FaultKind::Pause, Vec::new());
        }
        self.is_paused.store(paused, Ordering::Relaxed);
        self.shared.trace(|| format!("{} {}", self.name, if paused { "stands still" } else { "goes on" }));
        self.state_changed.notify_waiters();
    }
}

/// The running process.
pub(super) fn current_process() -> Option<Arc<NodeProcess>> {
    CURRENT.with(|current| current.borrow().clone())
}

/// Clears the running process at the end of a world.
pub(super) fn clear_current_process() {
    CURRENT.with(|current| *current.borrow_mut() = None);
}

/// The clocks of one process.
pub(super) struct SimulatedClock(pub(super) Arc<NodeProcess>);

/// The offset of a machine's wall clock, across its processes.
#[derive(Default)]
pub(super) struct ClockSkew {
    now: AtomicI64,
    /// The offset when it was last recorded.
    confirmed: AtomicI64,
}

impl ClockSkew {
    /// Moves the clock by some milliseconds.
    pub(super) fn shift(&self, by: i64) {
        self.now.fetch_add(by, Ordering::Relaxed);
    }

    /// Corrects the clock.
    pub(super) fn reset(&self) {
        self.now.store(0, Ordering::Relaxed);
    }

    /// Records the offset, by a process that is sure of the time.
    pub(super) fn confirm(&self) {
        self.confirmed.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn was_set(&self) -> bool {
        let (now, seen) = (self.now.load(Ordering::Relaxed), self.confirmed.load(Ordering::Relaxed));
        (now - seen).abs() > CLOCK_JUMP_MS
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Time {
        self.0.set_current();
        Time(self.0.shared.now() + self.0.skew.now.load(Ordering::Relaxed))
    }

    fn was_wall_clock_set(&self) -> bool {
        self.0.skew.was_set()
    }

    fn boot_clock_ms(&self) -> i64 {
        self.0.set_current();
        self.0.shared.elapsed_ms()
    }
}

/// The randomness of one process.
pub(super) struct SimulatedEntropy(pub(super) Arc<NodeProcess>);

impl Entropy for SimulatedEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut rng = self.0.rng.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&rng.next().to_be_bytes()[..piece.len()]);
        }
    }
}
