//! Instants and durations. Nothing here reads a clock.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How far a wall clock may drift from a monotonic clock before it counts as set, in milliseconds.
pub const CLOCK_JUMP_MS: i64 = 30_000;

/// Milliseconds since 1970, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// This instant, `ms` later.
    #[must_use]
    pub fn plus(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant.
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Parses an RFC 3339 instant with an offset. `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        // A date without an offset is no instant.
        text.parse::<Timestamp>().ok().map(|at| Self(at.as_millisecond()))
    }
}

impl Time {
    /// The time as people write it in a mail, in UTC.
    pub fn to_readable(self) -> String {
        match Timestamp::from_millisecond(self.0) {
            Ok(at) => at.strftime("%a, %-d %b %Y at %H:%M UTC").to_string(),
            Err(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "out of range"),
        }
    }
}

/// Parses a duration such as `90s`, `15m`, `24h`, `7d` or `2w`, to milliseconds. `None` for anything else.
pub fn parse_span(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        _ => return None,
    };
    count.parse::<i64>().ok()?.checked_mul(unit)
}

/// Formats a duration in the largest unit that divides it.
pub fn format_span(ms: i64) -> String {
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if ms != 0 && ms % unit == 0 {
            return format!("{}{name}", ms / unit);
        }
    }
    format!("{ms}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_in_words_is_as_people_write_it() {
        let at = Time::parse("2026-11-05T09:07:30Z").unwrap();
        assert_eq!(at.to_readable(), "Thu, 5 Nov 2026 at 09:07 UTC");
    }

    #[test]
    fn instants_are_read_in_every_zone_and_written_in_utc() {
        for text in ["2026-11-15T10:00:00Z", "2026-11-15T12:00:00+02:00", "2026-11-15T05:00:00.000-05:00"] {
            assert_eq!(Time::parse(text).map(|t| t.to_string()).as_deref(), Some("2026-11-15T10:00:00.000Z"));
        }
        for nonsense in ["", "tomorrow", "2026-13-01T00:00:00Z", "2026-11-15", "2026-11-15T10:00:00"] {
            assert_eq!(Time::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn spans_are_read_and_written() {
        for (text, ms) in [("90s", 90_000), ("15m", 900_000), ("24h", 86_400_000), ("7d", 604_800_000)] {
            assert_eq!(parse_span(text), Some(ms));
        }
        for nonsense in ["", "7", "d", "-7d", "7 fortnights", "99999999999999999999d"] {
            assert_eq!(parse_span(nonsense), None, "{nonsense}");
        }
        assert_eq!(format_span(604_800_000), "7d");
        assert_eq!(format_span(1_500), "1500ms");
    }
}
