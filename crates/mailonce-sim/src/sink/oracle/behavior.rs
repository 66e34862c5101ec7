//! The fault for each mail: a pure function of the seed, the recipient and the number of the attempt, independent of
//! the order of arrival.

use crate::harness::rng::{SeededRng, fnv1a};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The delay of a late mail: longer than a client waits for a reply.
pub const LATE_ACCEPT_DELAY: Duration = Duration::from_millis(5_300);

/// Fault rates in percent of the attempts. The rest has no fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct FaultRates {
    /// Accepts the mail and closes the connection
    #[arg(long, default_value_t = 0)]
    pub drop: u8,
    /// Accepts the mail and replies 500, or with garbage
    #[arg(long, default_value_t = 0)]
    pub r#break: u8,
    /// Accepts the mail and does not reply
    #[arg(long, default_value_t = 0)]
    pub stall: u8,
    /// Accepts the mail after the sender has given up
    #[arg(long, default_value_t = 0)]
    pub late: u8,
    /// Defers: 4yz, 429, 503
    #[arg(long, default_value_t = 0)]
    pub defer: u8,
    /// Refuses: 5yz, 422
    #[arg(long, default_value_t = 0)]
    pub refuse: u8,
    /// Closes the connection without accepting: before the dot, or in place of a reply
    #[arg(long, default_value_t = 0)]
    pub cut: u8,
    /// Refuses or defers the recipient, by SMTP
    #[arg(long, default_value_t = 0)]
    pub rcpt: u8,
    /// Mails that are reported by webhook
    #[arg(long, default_value_t = 0)]
    pub tell: u8,
    /// Webhooks that are repeated and reordered
    #[arg(long, default_value_t = 0)]
    pub again: u8,
    /// Milliseconds until a look-up finds a mail
    #[arg(long, default_value_t = 0)]
    pub lag_ms: u16,
}

impl FaultRates {
    /// Rates under which every fault happens.
    pub const ALL_FAULTS: Self = Self {
        drop: 6,
        r#break: 4,
        stall: 1,
        late: 1,
        defer: 8,
        refuse: 4,
        cut: 4,
        rcpt: 4,
        tell: 80,
        again: 40,
        lag_ms: 300,
    };
}

impl FaultRates {
    /// The flags with these rates.
    pub fn to_flags(self) -> Vec<String> {
        let Self { drop, r#break, stall, late, defer, refuse, cut, rcpt, tell, again, lag_ms } = self;
        let rates = [
            ("drop", drop),
            ("break", r#break),
            ("stall", stall),
            ("late", late),
            ("defer", defer),
            ("refuse", refuse),
            ("cut", cut),
            ("rcpt", rcpt),
            ("tell", tell),
            ("again", again),
        ];
        let rates = rates.into_iter().map(|(name, rate)| format!("--{name}={rate}"));
        rates.chain([format!("--lag-ms={lag_ms}")]).collect()
    }
}

/// What happens to one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkAction {
    /// It is accepted and confirmed.
    Normal,
    /// It is accepted, and the connection closes.
    AcceptThenDrop,
    /// It is accepted, and the reply is invalid.
    AcceptThenServerError,
    /// It is accepted, and there is no reply.
    AcceptThenStall,
    /// It is accepted after the client has given up.
    AcceptLate,
    /// It is deferred.
    Defer,
    /// It is refused.
    Refuse,
    /// It is not accepted, and the connection closes.
    Drop,
    /// The recipient is refused or deferred.
    RejectRecipient(bool),
}

impl SinkAction {
    /// Its name in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "accept",
            Self::AcceptThenDrop => "accept-then-drop",
            Self::AcceptThenServerError => "accept-then-5xx",
            Self::AcceptThenStall => "accept-then-stall",
            Self::AcceptLate => "accept-late",
            Self::Defer => "defer",
            Self::Refuse => "refuse",
            Self::Drop => "cut",
            Self::RejectRecipient(_) => "partial",
        }
    }

    /// Whether the sender cannot know the outcome although it sent the whole mail.
    pub fn is_ambiguous(self) -> bool {
        !matches!(self, Self::Normal | Self::Defer | Self::Refuse | Self::RejectRecipient(_))
    }
}

/// Parts of a recipient's name that select the action of the first attempt, whatever the seed.
const RECIPIENT_ACTIONS: [(&str, SinkAction); 4] = [
    (".drop@", SinkAction::AcceptThenDrop),
    (".stall@", SinkAction::AcceptThenStall),
    (".late@", SinkAction::AcceptLate),
    (".plain@", SinkAction::Normal),
];

/// The behavior of a sink.
#[derive(Debug)]
pub struct SinkBehavior {
    seed: u64,
    rates: FaultRates,
    is_calm: AtomicBool,
    attempts: Mutex<HashMap<String, u64>>,
}

impl SinkBehavior {
    /// A behavior with these rates.
    pub fn new(seed: u64, rates: FaultRates) -> Self {
        Self { seed, rates, is_calm: AtomicBool::new(false), attempts: Mutex::default() }
    }

    /// Its fault rates.
    pub fn rates(&self) -> FaultRates {
        self.rates
    }

    /// Turns faults off or on.
    pub fn set_calm(&self, calm: bool) {
        self.is_calm.store(calm, Ordering::SeqCst);
    }

    /// The action for the next attempt at this recipient.
    pub fn next_action(&self, to: &str) -> SinkAction {
        let mut tries = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = tries.entry(to.to_owned()).or_default();
        *tried += 1;
        if self.is_calm.load(Ordering::SeqCst) {
            return SinkAction::Normal;
        }
        let asked = RECIPIENT_ACTIONS.iter().find(|(part, _)| *tried == 1 && to.contains(part));
        asked.map_or_else(|| self.draw_action(to, *tried), |(_, action)| *action)
    }

    fn draw_action(&self, to: &str, tried: u64) -> SinkAction {
        let FaultRates { drop, r#break, stall, late, defer, refuse, cut, rcpt, .. } = self.rates;
        let mut rng = SeededRng::derive(self.seed, &[fnv1a(to), tried]);
        let (roll, coin) = (rng.below(100), rng.below(2) == 0);
        let actions = [
            (drop, SinkAction::AcceptThenDrop),
            (r#break, SinkAction::AcceptThenServerError),
            (stall, SinkAction::AcceptThenStall),
            (late, SinkAction::AcceptLate),
            (defer, SinkAction::Defer),
            (refuse, SinkAction::Refuse),
            (cut, SinkAction::Drop),
            (rcpt, SinkAction::RejectRecipient(coin)),
        ];
        let mut below = 0;
        for (rate, action) in actions {
            below += u64::from(rate);
            if roll < below {
                return action;
            }
        }
        SinkAction::Normal
    }
}

#[cfg(test)]
mod tests {
    use super::{FaultRates, SinkAction, SinkBehavior};
    use std::collections::BTreeMap;

    #[test]
    fn the_same_seed_gives_the_same_actions_in_any_order() {
        let (one, other) = (SinkBehavior::new(7, FaultRates::ALL_FAULTS), SinkBehavior::new(7, FaultRates::ALL_FAULTS));
        let names: Vec<String> = (0..50).map(|n| format!("m{n}@example.org")).collect();
        let draw_two =
            |behavior: &SinkBehavior, names: &mut dyn Iterator<Item = &String>| -> BTreeMap<String, [SinkAction; 2]> {
                names.map(|to| (to.clone(), [behavior.next_action(to), behavior.next_action(to)])).collect()
            };
        assert_eq!(draw_two(&one, &mut names.iter()), draw_two(&other, &mut names.iter().rev()));
    }

    #[test]
    fn every_fault_action_occurs_and_set_calm_ends_them() {
        let behavior = SinkBehavior::new(3, FaultRates::ALL_FAULTS);
        let seen: Vec<SinkAction> = (0..2_000).map(|n| behavior.next_action(&format!("m{n}@example.org"))).collect();
        for name in
            ["accept", "accept-then-drop", "accept-then-5xx", "accept-then-stall", "accept-late", "defer", "refuse"]
                .into_iter()
                .chain(["cut", "partial"])
        {
            assert!(seen.iter().any(|action| action.as_str() == name), "{name} never came");
        }
        assert!(seen.iter().filter(|action| **action == SinkAction::Normal).count() > 1_000);
        behavior.set_calm(true);
        assert!((0..500).all(|n| behavior.next_action(&format!("c{n}@example.org")) == SinkAction::Normal));
    }

    #[test]
    fn a_name_that_asks_for_it_gets_it_once() {
        let behavior = SinkBehavior::new(3, FaultRates { drop: 0, ..FaultRates::ALL_FAULTS });
        assert_eq!(behavior.next_action("m1.drop@example.org"), SinkAction::AcceptThenDrop);
        assert_ne!(behavior.next_action("m1.drop@example.org"), SinkAction::AcceptThenDrop);
    }
}
