//! The machine's own randomness, behind the engine's port, and its wall clock for what no engine runs.

use mailonce_core::{port::Chance, time::Time};
use std::{
    cell::RefCell,
    time::{SystemTime, UNIX_EPOCH},
};

/// The operating system's randomness.
#[derive(Debug)]
pub(crate) struct SystemChance;

impl Chance for SystemChance {
    fn fill(&self, bytes: &mut [u8]) {
        POOL.with_borrow_mut(|pool| pool.fill(bytes));
    }
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; POOLED], used: POOLED }) };
}

const POOLED: usize = 512;

/// Randomness of the operating system, fetched for many ids at once: each fetch is a system call.
struct Pool {
    bytes: [u8; POOLED],
    used: usize,
}

impl Pool {
    fn fill(&mut self, wanted: &mut [u8]) {
        if wanted.len() > POOLED / 8 {
            return from_system(wanted);
        }
        if wanted.len() > POOLED - self.used {
            from_system(&mut self.bytes);
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

fn from_system(bytes: &mut [u8]) {
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
pub(crate) fn fresh_name() -> String {
    let number = fresh_secret().iter().take(6).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("{number:012x}")
}

/// Thirty-two unpredictable bytes, for the secret of a new installation.
pub(crate) fn fresh_secret() -> [u8; 32] {
    let mut secret = [0; 32];
    SystemChance.fill(&mut secret);
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
            SystemChance.fill(&mut bytes);
            assert!(seen.insert(bytes), "the same bytes twice");
        }
        let mut many = [0; 4 * POOLED];
        SystemChance.fill(&mut many);
        assert!(many.chunks(16).all(|chunk| chunk.iter().any(|byte| *byte != 0)));
    }
}
