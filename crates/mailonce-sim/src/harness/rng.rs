//! Reproducible randomness.

use std::time::{SystemTime, UNIX_EPOCH};

/// A random number generator with a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct SeededRng(u64);

impl SeededRng {
    /// A generator for a path of numbers. The same seed and path give the same sequence.
    pub fn derive(seed: u64, path: &[u64]) -> Self {
        let mut rng = Self(seed);
        for part in path {
            rng.0 = rng.next() ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        rng
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

/// A hash of a text (FNV-1a), the same on every machine.
pub fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The seed in `MAILONCE_SEED`, else a random one.
pub fn seed_from_env() -> u64 {
    env_number("MAILONCE_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SeededRng(now.as_nanos() as u64).below(1_000_000_000)
    })
}

/// The number of kills in `MAILONCE_KILLS`, else `usual`.
pub fn kills_from_env(usual: u64) -> u64 {
    env_number_or("MAILONCE_KILLS", usual)
}

/// The number in an environment variable, else `usual`.
pub fn env_number_or(name: &str, usual: u64) -> u64 {
    env_number(name).unwrap_or(usual)
}

/// The number in an environment variable.
pub fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.trim().parse().ok()
}
