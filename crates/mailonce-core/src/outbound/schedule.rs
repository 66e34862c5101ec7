//! When an email is due: an instant, or a delay in plain words.

use serde::{Deserialize, Serialize};

use crate::{limits, time::Time};

/// A requested send time. The request and the resulting instant are both kept: digests compare the request, workers use
/// the instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// An instant, given with a UTC offset.
    At(Time),
    /// A delay such as `in 5 minutes`, with spaces and case normalized.
    In {
        /// The caller's words, normalized.
        words: String,
        /// The delay in milliseconds.
        ms: i64,
    },
}

/// The text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an RFC 3339 time with an offset (2026-11-15T10:00:00Z) or a span such as \"in 5 minutes\"")]
pub struct ScheduleError;

impl Schedule {
    /// Parses an instant or a delay.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        if let Some(at) = Time::parse(text) {
            return Ok(Self::At(at));
        }
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
        let ms = parse_relative(&words).ok_or(ScheduleError)?;
        Ok(Self::In { words, ms })
    }

    /// The due time of an email accepted at `now`.
    pub fn due_at(&self, now: Time) -> Time {
        match self {
            Self::At(at) => *at,
            Self::In { ms, .. } => now.plus(*ms),
        }
    }

    /// Whether the due time is within [`limits::SCHEDULE_AHEAD_MS`].
    pub fn is_within_limit(&self, now: Time) -> bool {
        self.due_at(now).since(now) <= limits::SCHEDULE_AHEAD_MS
    }
}

/// Parses `in 5 minutes`, `in an hour`, `in 2 days`.
fn parse_relative(words: &str) -> Option<i64> {
    let mut parts = words.strip_prefix("in ")?.split(' ');
    let count = match parts.next()? {
        "a" | "an" | "one" => 1,
        digits => digits.parse::<u32>().ok().map(i64::from)?,
    };
    let unit = match parts.next()?.trim_end_matches('s') {
        "second" | "sec" => 1_000,
        "minute" | "min" => 60_000,
        "hour" | "hr" => 3_600_000,
        "day" => 86_400_000,
        "week" => 7 * 86_400_000,
        _ => return None,
    };
    if parts.next().is_some() { None } else { Some(count * unit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_and_spans_are_read() {
        let now = Time(1_000);
        for (text, due) in [
            ("in 5 minutes", 301_000),
            ("In  1 Minute", 61_000),
            ("in an hour", 3_601_000),
            ("1970-01-01T00:00:02Z", 2_000),
        ] {
            assert_eq!(Schedule::parse(text).unwrap().due_at(now), Time(due), "{text}");
        }
        for bad in ["", "tomorrow", "in", "in five minutes", "in 5", "in 5 minutes or so", "in -1 days"] {
            assert!(Schedule::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn schedules_that_differ_in_case_and_spaces_are_equal() {
        assert_eq!(Schedule::parse("in  5 MINUTES"), Schedule::parse("in 5 minutes"));
        assert!(!Schedule::parse("in 401 days").unwrap().is_within_limit(Time(0)));
    }
}
