//! Randomness that a seed gives again.

use std::time::{SystemTime, UNIX_EPOCH};

/// Numbers that follow from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct SeededRng(u64);

impl SeededRng {
    /// A source of its own for a place: the same seed and place give the same numbers.
    pub fn derive(seed: u64, place: &[u64]) -> Self {
        let mut chance = Self(seed);
        for part in place {
            chance.0 = chance.next() ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        chance
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A number from `low` up to and including `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

/// A number that follows from a word (FNV-1a), the same on every machine.
pub fn fnv1a(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The seed that `MAILONCE_SEED` names, else one that was never used before.
pub fn seed_from_env() -> u64 {
    env_number("MAILONCE_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SeededRng(now.as_nanos() as u64).below(1_000_000_000)
    })
}

/// How many kills `MAILONCE_KILLS` asks for, else `usual`.
pub fn kills_from_env(usual: u64) -> u64 {
    env_number_or("MAILONCE_KILLS", usual)
}

/// The number that a variable of the environment asks for, else `usual`.
pub fn env_number_or(name: &str, usual: u64) -> u64 {
    env_number(name).unwrap_or(usual)
}

/// The number that an environment variable names.
pub fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.trim().parse().ok()
}
