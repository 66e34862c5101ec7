//! Retries: the advice for callers after a problem, and the backoff of mailonce's own attempts.

use crate::string_enum::string_enum;

string_enum! {
    /// Whether a caller may retry the same call after a problem.
    RetryAdvice {
        /// A retry will not help: change the call.
        Never = "never",
        /// Retry the same call, unchanged, with the same key.
        Same = "same",
        /// Retry the same call after a pause.
        Later = "later",
    }
}

/// The upper bound of the first pause, in milliseconds.
pub const FIRST_BACKOFF_MS: i64 = 1_000;
/// The upper bound of all pauses, in milliseconds.
pub const MAX_BACKOFF_MS: i64 = 15 * 60_000;

/// The pause before attempt `next` (from 2), with exponential backoff and full jitter. `chance` is uniformly random
/// over all of `u64`.
pub fn backoff_ms(next: u32, chance: u64) -> i64 {
    let doublings = next.saturating_sub(2).min(30);
    let bound = (FIRST_BACKOFF_MS << doublings).min(MAX_BACKOFF_MS);
    (chance % (bound as u64 + 1)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_cap_and_never_pass_it() {
        for (next, bound) in [(2, 1_000), (3, 2_000), (6, 16_000), (12, 900_000), (40, 900_000)] {
            assert_eq!(backoff_ms(next, bound as u64), bound, "attempt {next}");
            assert!((0..1000).all(|chance: u64| backoff_ms(next, chance * 7_919) <= bound));
        }
    }
}
