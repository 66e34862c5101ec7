//! The operating system's randomness as the engine's `Entropy` port, and the wall clock for code that runs without an
//! engine.

use mailonce_core::{ports::Entropy, time::Time};
use std::{
    cell::RefCell,
    time::{SystemTime, UNIX_EPOCH},
};

/// The operating system's randomness.
#[derive(Debug)]
pub(crate) struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        POOL.with_borrow_mut(|pool| pool.fill(bytes));
    }
}

thread_local! {
    static POOL: RefCell<EntropyPool> = const { RefCell::new(EntropyPool { bytes: [0; POOL_BYTES], used: POOL_BYTES }) };
}

const POOL_BYTES: usize = 512;

/// Random bytes for many ids, fetched at once, because each fetch is a system call.
struct EntropyPool {
    bytes: [u8; POOL_BYTES],
    used: usize,
}

impl EntropyPool {
    fn fill(&mut self, out: &mut [u8]) {
        if out.len() > POOL_BYTES / 8 {
            return fill_from_os(out);
        }
        if out.len() > POOL_BYTES - self.used {
            fill_from_os(&mut self.bytes);
            self.used = 0;
        }
        let (_, fresh) = self.bytes.split_at_mut(self.used);
        for (out, fresh) in out.iter_mut().zip(fresh) {
            // Cleared, so that each byte is used once and does not stay in memory.
            *out = std::mem::take(fresh);
        }
        self.used += out.len();
    }
}

fn fill_from_os(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        // Without randomness no id or secret is safe, so the process cannot continue.
        tracing::error!(%error, "the operating system returned no random bytes; aborting");
        std::process::abort();
    }
}

/// The current time of the wall clock.
pub(crate) fn wall_time() -> Time {
    Time(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64))
}

/// A random name of twelve hexadecimal digits.
pub(crate) fn random_name() -> String {
    let number = fresh_secret().iter().take(6).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("{number:012x}")
}

/// Thirty-two random bytes, for the secret of a new installation.
pub(crate) fn fresh_secret() -> [u8; 32] {
    let mut secret = [0; 32];
    OsEntropy.fill(&mut secret);
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn entropy_is_never_repeated() {
        let mut seen = HashSet::new();
        for _ in 0..1_000 {
            let mut bytes = [0; 16];
            OsEntropy.fill(&mut bytes);
            assert!(seen.insert(bytes), "the same bytes twice");
        }
        let mut many = [0; 4 * POOL_BYTES];
        OsEntropy.fill(&mut many);
        assert!(many.chunks(16).all(|chunk| chunk.iter().any(|byte| *byte != 0)));
    }
}
