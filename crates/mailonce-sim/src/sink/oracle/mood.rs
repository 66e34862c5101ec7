//! What happens to a mail at a sink that misbehaves: a pure function of the seed, the recipient and the number of the
//! try, so that it does not hang on who came first.

use crate::rig::chance::{Chance, number_of};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a late mail takes: longer than a sender waits for an answer.
pub const LATE: Duration = Duration::from_millis(5_300);

/// How often it does what, in per cent of the tries. What is left over is honest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct Rates {
    /// Takes the mail and ends the connection
    #[arg(long, default_value_t = 0)]
    pub drop: u8,
    /// Takes the mail and answers 500, or something that is no answer
    #[arg(long, default_value_t = 0)]
    pub r#break: u8,
    /// Takes the mail and says nothing
    #[arg(long, default_value_t = 0)]
    pub stall: u8,
    /// Takes the mail after the sender has given up
    #[arg(long, default_value_t = 0)]
    pub late: u8,
    /// Puts it off: 4yz, 429, 503
    #[arg(long, default_value_t = 0)]
    pub defer: u8,
    /// Refuses it: 5yz, 422
    #[arg(long, default_value_t = 0)]
    pub refuse: u8,
    /// Ends the connection without taking it: before the dot, or instead of an answer
    #[arg(long, default_value_t = 0)]
    pub cut: u8,
    /// Refuses or puts off the recipient, by SMTP
    #[arg(long, default_value_t = 0)]
    pub rcpt: u8,
    /// Mails that are told of by a hook
    #[arg(long, default_value_t = 0)]
    pub tell: u8,
    /// Hooks that come twice or more, and out of turn
    #[arg(long, default_value_t = 0)]
    pub again: u8,
    /// Milliseconds until a look-up finds a mail
    #[arg(long, default_value_t = 0)]
    pub lag_ms: u16,
}

impl Rates {
    /// Rates under which all of it happens.
    pub const ROUGH: Self = Self {
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

impl Rates {
    /// The flags that say the same.
    pub fn flags(&self) -> Vec<String> {
        let Self { drop, r#break, stall, late, defer, refuse, cut, rcpt, tell, again, lag_ms } = *self;
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

/// What happens to one try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whim {
    /// It is taken, and told so.
    Honest,
    /// It is taken, and the connection ends.
    TakeThenDrop,
    /// It is taken, and the answer is none.
    TakeThenBreak,
    /// It is taken, and no answer comes.
    TakeThenStall,
    /// It is taken when nobody waits any more.
    TakeLate,
    /// Not now.
    Defer,
    /// Never.
    Refuse,
    /// It is not taken, and the connection ends.
    Cut,
    /// The recipient is refused, or put off.
    Rcpt(bool),
}

impl Whim {
    /// What it is called in the log.
    pub fn word(self) -> &'static str {
        match self {
            Self::Honest => "accept",
            Self::TakeThenDrop => "accept-then-drop",
            Self::TakeThenBreak => "accept-then-5xx",
            Self::TakeThenStall => "accept-then-stall",
            Self::TakeLate => "accept-late",
            Self::Defer => "defer",
            Self::Refuse => "refuse",
            Self::Cut => "cut",
            Self::Rcpt(_) => "partial",
        }
    }

    /// Whether the sender cannot know what became of the mail, although it was written whole.
    pub fn is_ambiguous(self) -> bool {
        !matches!(self, Self::Honest | Self::Defer | Self::Refuse | Self::Rcpt(_))
    }
}

/// Parts of a recipient's name that ask for something at the first try, whatever the seed says.
const ASKED: [(&str, Whim); 4] = [
    (".drop@", Whim::TakeThenDrop),
    (".stall@", Whim::TakeThenStall),
    (".late@", Whim::TakeLate),
    (".plain@", Whim::Honest),
];

/// How a sink feels.
#[derive(Debug)]
pub struct Mood {
    seed: u64,
    rates: Rates,
    calm: AtomicBool,
    tries: Mutex<HashMap<String, u64>>,
}

impl Mood {
    /// A mood with these rates.
    pub fn new(seed: u64, rates: Rates) -> Self {
        Self { seed, rates, calm: AtomicBool::new(false), tries: Mutex::default() }
    }

    /// Its rates.
    pub fn rates(&self) -> Rates {
        self.rates
    }

    /// From now on it is honest, or no longer.
    pub fn calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::SeqCst);
    }

    /// What happens to the next try at this recipient.
    pub fn next(&self, to: &str) -> Whim {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = tries.entry(to.to_owned()).or_default();
        *tried += 1;
        if self.calm.load(Ordering::SeqCst) {
            return Whim::Honest;
        }
        let asked = ASKED.iter().find(|(part, _)| *tried == 1 && to.contains(part));
        asked.map_or_else(|| self.drawn(to, *tried), |(_, whim)| *whim)
    }

    fn drawn(&self, to: &str, tried: u64) -> Whim {
        let Rates { drop, r#break, stall, late, defer, refuse, cut, rcpt, .. } = self.rates;
        let mut chance = Chance::at(self.seed, &[number_of(to), tried]);
        let (roll, coin) = (chance.below(100), chance.below(2) == 0);
        let whims = [
            (drop, Whim::TakeThenDrop),
            (r#break, Whim::TakeThenBreak),
            (stall, Whim::TakeThenStall),
            (late, Whim::TakeLate),
            (defer, Whim::Defer),
            (refuse, Whim::Refuse),
            (cut, Whim::Cut),
            (rcpt, Whim::Rcpt(coin)),
        ];
        let mut below = 0;
        for (rate, whim) in whims {
            below += u64::from(rate);
            if roll < below {
                return whim;
            }
        }
        Whim::Honest
    }
}

#[cfg(test)]
mod tests {
    use super::{Mood, Rates, Whim};
    use std::collections::BTreeMap;

    #[test]
    fn the_same_seed_gives_the_same_whims_in_any_order() {
        let (one, other) = (Mood::new(7, Rates::ROUGH), Mood::new(7, Rates::ROUGH));
        let names: Vec<String> = (0..50).map(|n| format!("m{n}@example.org")).collect();
        let told = |mood: &Mood, names: &mut dyn Iterator<Item = &String>| -> BTreeMap<String, [Whim; 2]> {
            names.map(|to| (to.clone(), [mood.next(to), mood.next(to)])).collect()
        };
        assert_eq!(told(&one, &mut names.iter()), told(&other, &mut names.iter().rev()));
    }

    #[test]
    fn every_whim_comes_and_calm_ends_them() {
        let mood = Mood::new(3, Rates::ROUGH);
        let seen: Vec<Whim> = (0..2_000).map(|n| mood.next(&format!("m{n}@example.org"))).collect();
        for word in
            ["accept", "accept-then-drop", "accept-then-5xx", "accept-then-stall", "accept-late", "defer", "refuse"]
                .into_iter()
                .chain(["cut", "partial"])
        {
            assert!(seen.iter().any(|whim| whim.word() == word), "{word} never came");
        }
        assert!(seen.iter().filter(|whim| **whim == Whim::Honest).count() > 1_000);
        mood.calm(true);
        assert!((0..500).all(|n| mood.next(&format!("c{n}@example.org")) == Whim::Honest));
    }

    #[test]
    fn a_name_that_asks_for_it_gets_it_once() {
        let mood = Mood::new(3, Rates { drop: 0, ..Rates::ROUGH });
        assert_eq!(mood.next("m1.drop@example.org"), Whim::TakeThenDrop);
        assert_ne!(mood.next("m1.drop@example.org"), Whim::TakeThenDrop);
    }
}
