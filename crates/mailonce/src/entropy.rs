//! The machine's own randomness, behind the engine's port, and its wall clock for what no engine runs.

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

/// Randomness of the operating system, fetched for many ids at once: each fetch is a system call.
struct EntropyPool {
    bytes: [u8; POOL_BYTES],
    used: usize,
}

impl EntropyPool {
    fn fill(&mut self, wanted: &mut [u8]) {
        if wanted.len() > POOL_BYTES / 8 {
            return fill_from_os(wanted);
        }
        if wanted.len() > POOL_BYTES - self.used {
            fill_from_os(&mut self.bytes);
            self.used = 0;
        }
        let (_, fresh) = self.bytes.split_at_mut(self.used);
        for (wanted, fresh) in wanted.iter_mut().zip(fresh) {
            // Given once, and not kept to be found in memory afterwards.
            *wanted = std::mem::take(fresh);
        }
        self.used += wanted.len();
    }
}

fn fill_from_os(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        // Without randomness no id is safe to hand out. There is nothing sensible left to do.
        tracing::error!(%error, "the operating system gives no randomness");
        std::process::abort();
    }
}

/// Now, by the wall clock as it is.
pub(crate) fn wall_time() -> Time {
    Time(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64))
}

/// A short name that nobody else has, of twelve hexadecimal digits.
pub(crate) fn random_name() -> String {
    let number = fresh_secret().iter().take(6).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("{number:012x}")
}

/// Thirty-two unpredictable bytes, for the secret of a new installation.
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
    fn chance_is_given_once() {
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
