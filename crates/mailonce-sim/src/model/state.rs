//! A state of the system: the ledger, the workers, what really happened at the next hop, and the time.

use mailonce_core::handoff::{HandoffState, reply::ReplyMeaning};

use crate::model::{
    config::{ModelConfig, SLACK_TICKS, WINDOW_TICKS},
    packed_handoff::PackedHandoff,
};

/// Maximum number of attempts of a handoff.
pub const MAX_ATTEMPTS: usize = 8;

/// What a worker remembers. It may be outdated, and is lost when the worker crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelWorker {
    /// Nothing.
    Idle,
    /// It leased a handoff.
    Leased {
        /// The handoff.
        hold: ModelLease,
        /// The tick of the first marker with an unknown outcome, if the lease is for a repeat.
        repeats: Option<u8>,
    },
    /// It is about to commit the marker.
    Ready {
        /// The handoff.
        hold: ModelLease,
        /// When it connected and checked the window.
        since: u8,
        /// Whether the bytes were sent already, which only a deliberate bug allows.
        wired: bool,
    },
    /// The marker is committed.
    Marked {
        /// The handoff.
        hold: ModelLease,
        /// When it connected.
        since: u8,
        /// The attempt.
        attempt: u8,
    },
    /// The bytes are sent, and it waits for the reply.
    Waiting {
        /// The handoff.
        hold: ModelLease,
        /// The attempt.
        attempt: u8,
    },
    /// It knows the outcome and has not recorded it.
    KnowsOutcome {
        /// The handoff.
        hold: ModelLease,
        /// The attempt; `None` if it never got to its marker.
        attempt: Option<u8>,
        /// The outcome.
        meaning: ReplyMeaning,
    },
}

/// The lease that a worker has or had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelLease {
    /// The number of the handoff.
    pub handoff: u8,
    /// The fence of its lease.
    pub fence: u8,
    /// When the marker was committed, or the attempt started.
    pub began: u8,
}

/// What really happened to a handoff at the next hop. No part of the system sees all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HopTruth {
    /// Attempts whose bytes are in transit, with their start ticks.
    pub undecided_attempts: [Option<u8>; MAX_ATTEMPTS],
    /// Mails that it accepted.
    pub accepted_mails: u8,
    /// When it accepted the first mail under the key it remembers.
    pub key_since: Option<u8>,
    /// How often the policy or an operator resent it in spite of a possible duplicate.
    pub resends: u8,
    /// Whether an operator reported that it arrived.
    pub person_confirmed: bool,
}

impl HopTruth {
    /// Sends the bytes of an attempt.
    pub fn send_bytes(&mut self, attempt: u8, since: u8) {
        if let Some(letter) = self.undecided_attempts.get_mut(usize::from(attempt.saturating_sub(1))) {
            *letter = Some(since);
        }
    }

    /// The next hop accepts a mail. While it remembers the key, a repeat is no second mail.
    pub fn accept_mail(&mut self, keyed: bool, now: u8) {
        let known = keyed && self.key_since.is_some_and(|since| now < since + WINDOW_TICKS);
        if !known {
            self.accepted_mails += 1;
            self.key_since = Some(now);
        }
    }

    /// Attempts in transit.
    pub fn undecided(&self) -> impl Iterator<Item = u8> + '_ {
        (1..).zip(&self.undecided_attempts).filter(|(_, letter)| letter.is_some()).map(|(attempt, _)| attempt)
    }
}

/// A property that an action itself violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrokenRule {
    /// No legal transitions lead from the old state to the new.
    Step,
    /// A fence decreased, or grew without a lease.
    Fence,
}

/// A state of the system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelState {
    /// The ledger.
    pub rows: Vec<PackedHandoff>,
    /// What really happened to each handoff.
    pub truth: Vec<HopTruth>,
    /// The workers, sorted by what they do, since their identity makes no difference.
    pub workers: Vec<ModelWorker>,
    /// The time.
    pub now: u8,
    /// What the last action violated.
    pub broken: Option<BrokenRule>,
}

impl ModelState {
    /// The initial state.
    pub fn new(size: ModelConfig, rows: Vec<PackedHandoff>) -> Self {
        Self {
            truth: vec![HopTruth::default(); rows.len()],
            rows,
            workers: vec![ModelWorker::Idle; usize::from(size.workers)],
            now: 0,
            broken: None,
        }
    }

    /// Advances time. Attempts that started too long ago are cut.
    pub fn advance_tick(&mut self) {
        self.now += 1;
        let now = self.now;
        let old = |letter: &&mut Option<u8>| letter.is_some_and(|since| now - since > SLACK_TICKS);
        self.truth
            .iter_mut()
            .flat_map(|truth| &mut truth.undecided_attempts)
            .filter(old)
            .for_each(|letter| *letter = None);
    }

    /// Sorts the workers, so that states that differ only in worker names are equal.
    pub fn sort_workers(&mut self) {
        self.workers.sort_unstable();
    }
}

/// Whether the handoff counts as accepted by the next hop.
pub fn is_sent_state(state: HandoffState) -> bool {
    matches!(state, HandoffState::Sent | HandoffState::Delivered | HandoffState::Bounced | HandoffState::Complained)
}
