//! Quiet hours: when people are not told of questions.

use serde::{Deserialize, Serialize};

use crate::{control::budget_period::CalendarZone, time::Time};

/// A part of every day, in minutes since midnight. It may cross midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuietHours {
    /// When they begin.
    pub from_minute: u16,
    /// When they end.
    pub to_minute: u16,
}

impl QuietHours {
    /// Parses two times of day such as `22:00`. `None` unless both are such times and differ.
    pub fn parse(from: &str, to: &str) -> Option<Self> {
        let (from_minute, to_minute) = (parse_time_of_day(from)?, parse_time_of_day(to)?);
        (from_minute != to_minute).then_some(Self { from_minute, to_minute })
    }

    /// Both times of day.
    pub fn to_texts(self) -> (String, String) {
        let text = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        (text(self.from_minute), text(self.to_minute))
    }

    /// Whether a time falls into them, by the clocks of this zone.
    pub fn contains(self, at: Time, zone: &CalendarZone) -> bool {
        let minute = zone.minute_of_day(at);
        if self.from_minute < self.to_minute {
            (self.from_minute..self.to_minute).contains(&minute)
        } else {
            minute >= self.from_minute || minute < self.to_minute
        }
    }
}

fn parse_time_of_day(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, max: u16| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|number| is_number && *number <= max)
    };
    Some(number(hour, 23)? * 60 + number(minute, 59)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_hours_may_cross_midnight_and_follow_the_zone() {
        let night = QuietHours::parse("22:00", "07:30").unwrap();
        let at = |hour: i64, minute: i64| Time((hour * 60 + minute) * 60_000);
        let utc = CalendarZone::default();
        for (hour, minute, expected) in [(21, 59, false), (22, 0, true), (0, 0, true), (7, 29, true), (7, 30, false)] {
            assert_eq!(night.contains(at(hour, minute), &utc), expected, "{hour}:{minute}");
        }
        // One hour ahead of UTC in January.
        let berlin = CalendarZone::parse("Europe/Berlin").unwrap();
        assert!(night.contains(at(21, 0), &berlin) && !night.contains(at(20, 59), &berlin));
        let noon = QuietHours::parse("12:00", "13:00").unwrap();
        assert!(noon.contains(at(12, 30), &utc) && !noon.contains(at(13, 0), &utc));
        assert_eq!(night.to_texts(), ("22:00".into(), "07:30".into()));
    }

    #[test]
    fn only_times_of_day_are_accepted() {
        for (from, to) in
            [("24:00", "07:00"), ("22:60", "07:00"), ("22", "07:00"), ("+2:00", "07:00"), ("07:00", "07:00"), ("", "")]
        {
            assert_eq!(QuietHours::parse(from, to), None, "{from} {to}");
        }
    }
}
