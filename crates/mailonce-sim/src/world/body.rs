//! One life of a node: it runs, stands still or is dead. Everything the engine asks of the world passes here.

use super::plan::FaultKind;
use super::shared::Shared;
use crate::rig::chance::Chance as Dice;
use mailonce_core::id::NodeId;
use mailonce_core::port::{Chance, Clock};
use mailonce_core::time::{JUMP_MS, Time};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

thread_local! {
    /// Whose code runs: whoever asked the world for something last. Code that reaches a named point asked for the time
    /// or for a commit just before, without a pause between.
    static CURRENT: RefCell<Option<Arc<Body>>> = const { RefCell::new(None) };
}

/// One life of a node.
pub(super) struct Body {
    pub(super) shared: Arc<Shared>,
    /// Its place among the nodes, and which life it is.
    pub(super) name: String,
    dead: AtomicBool,
    paused: AtomicBool,
    moved: Notify,
    /// What its wall clock is ahead, and what it was when somebody last looked.
    skew: Arc<Skew>,
    dice: Mutex<Dice>,
    /// Emails and recipients of which it heard that they were taken.
    heard: Mutex<Vec<(String, Vec<String>)>>,
    /// The names under which it leased.
    names: Mutex<BTreeSet<NodeId>>,
}

impl Body {
    pub(super) fn new(shared: &Arc<Shared>, node: usize, life: u64, skew: Arc<Skew>) -> Arc<Self> {
        let dice = Dice::at(shared.plan.seed, &[2, node as u64, life]);
        Arc::new(Self {
            shared: Arc::clone(shared),
            name: format!("n{node}.{life}"),
            dead: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            moved: Notify::new(),
            skew,
            dice: Mutex::new(dice),
            heard: Mutex::default(),
            names: Mutex::default(),
        })
    }

    /// Waits while it stands still. A dead node gets no further, ever.
    pub(super) async fn pass(self: &Arc<Self>) {
        loop {
            let moved = self.moved.notified();
            if !self.is_dead() && !self.is_paused() {
                break;
            }
            moved.await;
        }
        self.runs();
    }

    /// Notes that its code runs from here on.
    fn runs(self: &Arc<Self>) {
        CURRENT.with(|current| *current.borrow_mut() = Some(Arc::clone(self)));
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Learns under which name it leases.
    pub(super) fn leases_as(&self, node: NodeId) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(node);
    }

    /// Hears that a mail was taken.
    pub(super) fn hears(&self, email: String, to: Vec<String>) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push((email, to));
    }

    /// What it heard of.
    pub(super) fn heard(&self) -> Vec<(String, Vec<String>)> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it. What it had on the wire may have arrived or not.
    pub(super) fn die(&self, kind: FaultKind) {
        if self.dead.swap(true, Ordering::Relaxed) {
            return;
        }
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let emails = self.shared.on_the_wire(&names);
        self.shared.note(|| format!("{} ends", self.name));
        // A fault that touched nobody must not excuse anything.
        let touched = if emails.is_empty() { vec!["nobody".to_owned()] } else { emails };
        self.shared.fault(kind, touched);
        self.moved.notify_waiters();
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Lets it stand still, or go on.
    pub(super) fn pause(&self, paused: bool) {
        if paused {
            self.shared.fault(FaultKind::Pause, Vec::new());
        }
        self.paused.store(paused, Ordering::Relaxed);
        self.shared.note(|| format!("{} {}", self.name, if paused { "stands still" } else { "goes on" }));
        self.moved.notify_waiters();
    }
}

/// Whoever runs.
pub(super) fn current() -> Option<Arc<Body>> {
    CURRENT.with(|current| current.borrow().clone())
}

/// Forgets whose code runs, at the end of a world.
pub(super) fn forget_current() {
    CURRENT.with(|current| *current.borrow_mut() = None);
}

/// The clocks of one life.
pub(super) struct Hands(pub(super) Arc<Body>);

/// What the wall clock of a machine is ahead, through all its lives.
#[derive(Default)]
pub(super) struct Skew {
    now: AtomicI64,
    /// What it was when somebody last left word of it.
    seen: AtomicI64,
}

impl Skew {
    /// The clock is set.
    pub(super) fn jump(&self, by: i64) {
        self.now.fetch_add(by, Ordering::Relaxed);
    }

    /// The clock is set right.
    pub(super) fn mend(&self) {
        self.now.store(0, Ordering::Relaxed);
    }

    /// Somebody who is sure of the time leaves word of how the clocks stand.
    pub(super) fn note(&self) {
        self.seen.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn was_set(&self) -> bool {
        let (now, seen) = (self.now.load(Ordering::Relaxed), self.seen.load(Ordering::Relaxed));
        (now - seen).abs() > JUMP_MS
    }
}

impl Clock for Hands {
    fn now(&self) -> Time {
        self.0.runs();
        Time(self.0.shared.now() + self.0.skew.now.load(Ordering::Relaxed))
    }

    fn was_set(&self) -> bool {
        self.0.skew.was_set()
    }

    fn even(&self) -> i64 {
        self.0.runs();
        self.0.shared.passed()
    }
}

/// The chance of one life.
pub(super) struct Luck(pub(super) Arc<Body>);

impl Chance for Luck {
    fn fill(&self, bytes: &mut [u8]) {
        let mut dice = self.0.dice.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&dice.next().to_be_bytes()[..piece.len()]);
        }
    }
}
