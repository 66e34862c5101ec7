//! A whole world at one moment: the ledger, the workers, what really happened at the next hop, and the time.

use mailonce_core::handoff::{HandoffState, reply::ReplyMeaning};

use crate::model::{
    config::{ModelConfig, SLACK_TICKS, WINDOW_TICKS},
    packed_handoff::PackedHandoff,
};

/// Attempts that a handoff of a model may have at the most.
pub const MAX_ATTEMPTS: usize = 8;

/// What a worker remembers. It may be wrong by now, and it is gone when the worker dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelWorker {
    /// Nothing.
    Idle,
    /// It leased a handoff.
    Leased {
        /// Which.
        hold: ModelLease,
        /// The tick of the first marker in doubt, when it is to repeat.
        repeats: Option<u8>,
    },
    /// It stands before the point of no return.
    Ready {
        /// Which.
        hold: ModelLease,
        /// When it connected and looked at the window.
        since: u8,
        /// Whether the bytes went already, which only a flaw allows.
        wired: bool,
    },
    /// The marker is written.
    Marked {
        /// Which.
        hold: ModelLease,
        /// When it connected.
        since: u8,
        /// The attempt.
        attempt: u8,
    },
    /// The bytes went, and it waits for the answer.
    Waiting {
        /// Which.
        hold: ModelLease,
        /// The attempt.
        attempt: u8,
    },
    /// It knows what there is to know, and has not written it down.
    KnowsOutcome {
        /// Which.
        hold: ModelLease,
        /// The attempt; `None` when it never came to its marker.
        attempt: Option<u8>,
        /// What it knows.
        meaning: ReplyMeaning,
    },
}

/// What a worker holds, or held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelLease {
    /// The handoff's number.
    pub handoff: u8,
    /// The fence of its lease.
    pub fence: u8,
    /// When the marker was written, or the attempt began.
    pub began: u8,
}

/// What really happened to a handoff at the next hop. Nobody in the world sees it whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HopTruth {
    /// Attempts whose bytes were written and not decided upon, with the tick in which they were begun.
    pub undecided_attempts: [Option<u8>; MAX_ATTEMPTS],
    /// Mails it took.
    pub accepted_mails: u8,
    /// When it took the first one under the key it remembers.
    pub key_since: Option<u8>,
    /// How often the policy or a person sent it again, knowing that it may be a second mail.
    pub resends: u8,
    /// Whether a person said that it arrived.
    pub person_confirmed: bool,
}

impl HopTruth {
    /// Bytes are on their way.
    pub fn send_bytes(&mut self, attempt: u8, since: u8) {
        if let Some(letter) = self.undecided_attempts.get_mut(usize::from(attempt.saturating_sub(1))) {
            *letter = Some(since);
        }
    }

    /// The next hop takes a mail. It is no second one while it remembers the key.
    pub fn accept_mail(&mut self, keyed: bool, now: u8) {
        let known = keyed && self.key_since.is_some_and(|since| now < since + WINDOW_TICKS);
        if !known {
            self.accepted_mails += 1;
            self.key_since = Some(now);
        }
    }

    /// Attempts that are on their way.
    pub fn undecided(&self) -> impl Iterator<Item = u8> + '_ {
        (1..).zip(&self.undecided_attempts).filter(|(_, letter)| letter.is_some()).map(|(attempt, _)| attempt)
    }
}

/// A law that a move itself broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrokenRule {
    /// No legal steps lead from the state before to the state after.
    Step,
    /// A fence went back, or grew without a lease.
    Fence,
}

/// A world at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelState {
    /// The ledger.
    pub rows: Vec<PackedHandoff>,
    /// What really happened, handoff by handoff.
    pub truth: Vec<HopTruth>,
    /// The workers, in the order of what they do: which of them does it makes no difference.
    pub workers: Vec<ModelWorker>,
    /// The time.
    pub now: u8,
    /// What the last move broke.
    pub broken: Option<BrokenRule>,
}

impl ModelState {
    /// A world in which nothing happened yet.
    pub fn new(size: ModelConfig, rows: Vec<PackedHandoff>) -> Self {
        Self {
            truth: vec![HopTruth::default(); rows.len()],
            rows,
            workers: vec![ModelWorker::Idle; usize::from(size.workers)],
            now: 0,
            broken: None,
        }
    }

    /// A moment passes. What was begun too long ago is cut.
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

    /// Puts the workers in order, so that worlds that differ only in their names are one.
    pub fn sort_workers(&mut self) {
        self.workers.sort_unstable();
    }
}

/// Whether the next hop is said to have it.
pub fn is_sent_state(state: HandoffState) -> bool {
    matches!(state, HandoffState::Sent | HandoffState::Delivered | HandoffState::Bounced | HandoffState::Complained)
}
