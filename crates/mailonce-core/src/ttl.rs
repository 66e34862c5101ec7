//! How long an idempotency key is remembered, counted from the terminal state of its email.

use serde::{Deserialize, Serialize};

use crate::time::{Time, parse_span};

const DAY: i64 = 86_400_000;

/// The default: longer than the retention of any queue.
pub const DEFAULT: Ttl = Ttl(35 * DAY);
/// The maximum.
pub const MAX_MS: i64 = 400 * DAY;
/// The minimum.
pub const MIN_MS: i64 = 1_000;

/// A duration in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ttl(pub i64);

/// The text is not a valid TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is \"transactional\", \"notification\", {{\"class\":\"scheduled\",\"interval\":\"7d\"}} or a duration from \"1s\" to \"400d\""
)]
pub struct TtlError;

impl Ttl {
    /// Parses a class name or a duration.
    pub fn parse(text: &str) -> Result<Self, TtlError> {
        match text {
            "transactional" => Ok(Self(7 * DAY)),
            "notification" => Ok(Self(DAY)),
            other => Self::from_ms(parse_span(other).ok_or(TtlError)?),
        }
    }

    /// The TTL of a recurring email: twice its interval.
    pub fn scheduled(interval: &str) -> Result<Self, TtlError> {
        Self::from_ms(parse_span(interval).and_then(|ms| ms.checked_mul(2)).ok_or(TtlError)?)
    }

    fn from_ms(ms: i64) -> Result<Self, TtlError> {
        if (MIN_MS..=MAX_MS).contains(&ms) { Ok(Self(ms)) } else { Err(TtlError) }
    }

    /// When a key is forgotten. `None` while its email is not settled.
    pub fn expires_at(self, settled_at: Option<Time>) -> Option<Time> {
        settled_at.map(|at| at.plus(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_durations_are_read() {
        for (text, days) in [("transactional", 7), ("notification", 1), ("400d", 400), ("48h", 2)] {
            assert_eq!(Ttl::parse(text), Ok(Ttl(days * DAY)), "{text}");
        }
        assert_eq!(Ttl::scheduled("7d"), Ok(Ttl(14 * DAY)));
        for bad in ["", "forever", "401d", "0s", "-1d", "10ms"] {
            assert_eq!(Ttl::parse(bad), Err(TtlError), "{bad}");
        }
        assert_eq!(Ttl::scheduled("300d"), Err(TtlError));
    }

    #[test]
    fn memory_counts_from_the_settled_state_only() {
        assert_eq!(DEFAULT.expires_at(None), None);
        assert_eq!(Ttl(1_000).expires_at(Some(Time(5))), Some(Time(1_005)));
    }
}
