//! Periods that the server computes for a recurring side effect, so that all callers agree on the day.

use jiff::Timestamp;

use crate::{control::budget_period::CalendarZone, string_enum::string_enum, time::Time};

/// How long before a boundary a call counts for the coming period if it does not say so, in seconds.
pub const DEFAULT_GRACE_S: i64 = 60;
/// The longest grace, in seconds.
pub const MAX_GRACE_S: i64 = 43_200;

string_enum! {
    /// How often a side effect recurs.
    PeriodLength {
        /// A day from midnight to midnight.
        Day = "day",
        /// A week from Monday to Sunday.
        Week = "week",
        /// A month of the calendar.
        Month = "month",
    }
}

impl PeriodLength {
    /// The name of the period that contains this time: `2026-11-18`, `2026-W47` or `2026-11`. A call less than
    /// `grace_s` seconds before a boundary belongs to the coming period. A timer that fires a moment too early, or on a
    /// machine with a fast clock, then gets the same period as one that fires on time.
    pub fn name_at(self, now: Time, zone: &CalendarZone, grace_s: i64) -> String {
        // The server reads milliseconds. Exactly `grace_s` before the boundary still belongs to the ending period.
        let at = now.plus(grace_s.saturating_mul(1_000) - i64::from(grace_s > 0));
        let local = Timestamp::from_millisecond(at.0).unwrap_or_default().to_zoned(zone.to_jiff());
        match self {
            Self::Day => local.strftime("%Y-%m-%d").to_string(),
            Self::Week => {
                let week = local.date().iso_week_date();
                format!("{:04}-W{:02}", week.year(), week.week())
            }
            Self::Month => local.strftime("%Y-%m").to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(length: PeriodLength, at: &str, zone: &str, grace_s: i64) -> String {
        length.name_at(Time::parse(at).unwrap(), &CalendarZone::parse(zone).unwrap(), grace_s)
    }

    #[test]
    fn periods_have_the_names_of_the_calendar() {
        use PeriodLength::{Day, Month, Week};
        for (length, at, zone, expected) in [
            (Day, "2026-11-18T23:30:00Z", "UTC", "2026-11-18"),
            (Day, "2026-11-18T23:30:00Z", "Europe/Berlin", "2026-11-19"),
            (Week, "2026-11-18T12:00:00Z", "UTC", "2026-W47"),
            // The last days of a year may belong to the first week of the next one, and the other way round.
            (Week, "2024-12-31T12:00:00Z", "UTC", "2025-W01"),
            (Week, "2027-01-01T12:00:00Z", "UTC", "2026-W53"),
            (Month, "2026-11-30T23:00:00Z", "UTC", "2026-11"),
            (Month, "2026-11-30T23:00:00Z", "Asia/Tokyo", "2026-12"),
        ] {
            assert_eq!(name(length, at, zone, 0), expected, "{at} in {zone}");
        }
    }

    #[test]
    fn a_call_just_before_a_boundary_counts_for_the_coming_period() {
        for (at, expected) in [
            ("2026-11-17T23:59:00.000Z", "2026-11-17"),
            ("2026-11-17T23:59:00.001Z", "2026-11-18"),
            ("2026-11-17T23:59:59.999Z", "2026-11-18"),
            ("2026-11-18T00:00:00.000Z", "2026-11-18"),
            ("2026-11-18T23:58:59.999Z", "2026-11-18"),
        ] {
            assert_eq!(name(PeriodLength::Day, at, "UTC", DEFAULT_GRACE_S), expected, "{at}");
        }
        assert_eq!(name(PeriodLength::Day, "2026-11-17T23:59:59.999Z", "UTC", 0), "2026-11-17");
        assert_eq!(name(PeriodLength::Week, "2026-11-15T23:59:30Z", "UTC", DEFAULT_GRACE_S), "2026-W47");
        assert_eq!(name(PeriodLength::Month, "2026-11-30T23:59:30Z", "UTC", DEFAULT_GRACE_S), "2026-12");
    }
}
