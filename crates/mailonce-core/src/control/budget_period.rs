//! The periods of budgets: minutes, hours, days and months, as a clock in the team's time zone shows them.

use jiff::{Timestamp, Unit, Zoned, tz::TimeZone};

use crate::{string_enum::string_enum, time::Time};

string_enum! {
    /// The period after which a budget starts again, in the team's time zone.
    BudgetPeriod {
        /// A minute of the clock.
        Minute = "minute",
        /// An hour of the clock.
        Hour = "hour",
        /// A day from midnight to midnight.
        Day = "day",
        /// A month of the calendar.
        Month = "month",
    }
}

/// A time zone by its IANA name, such as `Europe/Berlin`. The default is UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarZone(TimeZone);

impl Default for CalendarZone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl CalendarZone {
    /// The zone with this name. `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self)
    }

    /// The zone for calendar computations.
    pub(crate) fn to_jiff(&self) -> TimeZone {
        self.0.clone()
    }

    /// The minutes since midnight by the clocks of this zone.
    pub fn minute_of_day(&self, at: Time) -> u16 {
        let local = jiff::Timestamp::from_millisecond(at.0).map(|at| at.to_zoned(self.0.clone()));
        // A time beyond the calendar cannot be reached by a clock.
        local.map_or(0, |local| local.hour() as u16 * 60 + local.minute() as u16)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }
}

/// One period: from `starts_at`, until and without `ends_at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodBounds {
    /// When it begins.
    pub starts_at: Time,
    /// When it ends, and the next begins.
    pub ends_at: Time,
}

impl BudgetPeriod {
    /// The period that contains this time.
    pub fn bounds(self, at: Time, zone: &CalendarZone) -> PeriodBounds {
        // A time beyond the calendar cannot be reached by a schedule; it gets the whole range as its period.
        self.calendar_bounds(at, zone).unwrap_or(PeriodBounds { starts_at: Time(i64::MIN), ends_at: Time(i64::MAX) })
    }

    fn calendar_bounds(self, at: Time, zone: &CalendarZone) -> Option<PeriodBounds> {
        let local = Timestamp::from_millisecond(at.0).ok()?.to_zoned(zone.0.clone());
        let (starts_at, ends_at) = match self {
            // Minutes and hours have a fixed length. A clock that is put back shows the same hour twice: two periods.
            Self::Minute => fixed_bounds(&local, Unit::Minute, 60_000),
            Self::Hour => fixed_bounds(&local, Unit::Hour, 3_600_000),
            Self::Day => (millis(&local.start_of_day().ok()?), millis(&local.tomorrow().ok()?.start_of_day().ok()?)),
            Self::Month => {
                let next = local.last_of_month().ok()?.tomorrow().ok()?;
                (millis(&local.first_of_month().ok()?.start_of_day().ok()?), millis(&next.start_of_day().ok()?))
            }
        };
        Some(PeriodBounds { starts_at, ends_at })
    }
}

fn fixed_bounds(local: &Zoned, unit: Unit, length_ms: i64) -> (Time, Time) {
    let into_period = match unit {
        Unit::Minute => i64::from(local.second()) * 1_000,
        _ => i64::from(local.minute()) * 60_000 + i64::from(local.second()) * 1_000,
    };
    let starts_at = Time(local.timestamp().as_millisecond() - into_period - i64::from(local.millisecond()));
    (starts_at, starts_at.plus(length_ms))
}

fn millis(at: &Zoned) -> Time {
    Time(at.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        Time(text.parse::<Timestamp>().unwrap().as_millisecond())
    }

    fn check(period: BudgetPeriod, zone: &str, at: &str, starts_at: &str, ends_at: &str) {
        let bounds = period.bounds(time(at), &CalendarZone::parse(zone).unwrap());
        let expected = PeriodBounds { starts_at: time(starts_at), ends_at: time(ends_at) };
        assert_eq!(bounds, expected, "{} at {at} in {zone}", period.as_str());
    }

    #[test]
    fn periods_begin_where_the_clock_of_the_zone_says() {
        use BudgetPeriod::{Day, Hour, Minute, Month};
        let at = "2023-11-14T22:15:23.456Z";
        check(Minute, "UTC", at, "2023-11-14T22:15:00Z", "2023-11-14T22:16:00Z");
        check(Hour, "UTC", at, "2023-11-14T22:00:00Z", "2023-11-14T23:00:00Z");
        check(Hour, "Asia/Kolkata", at, "2023-11-14T21:30:00Z", "2023-11-14T22:30:00Z");
        check(Day, "UTC", at, "2023-11-14T00:00:00Z", "2023-11-15T00:00:00Z");
        check(Day, "Asia/Tokyo", at, "2023-11-14T15:00:00Z", "2023-11-15T15:00:00Z");
        check(Month, "UTC", at, "2023-11-01T00:00:00Z", "2023-12-01T00:00:00Z");
        check(Month, "UTC", "2023-12-31T23:59:59.999Z", "2023-12-01T00:00:00Z", "2024-01-01T00:00:00Z");
        check(Month, "America/New_York", "2024-03-01T04:59:59Z", "2024-02-01T05:00:00Z", "2024-03-01T05:00:00Z");
    }

    #[test]
    fn a_day_on_which_the_clock_changes_is_one_period() {
        use BudgetPeriod::{Day, Hour};
        check(Day, "Europe/Berlin", "2024-03-31T12:00:00Z", "2024-03-30T23:00:00Z", "2024-03-31T22:00:00Z");
        check(Day, "Europe/Berlin", "2024-10-27T12:00:00Z", "2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z");
        // The clock shows 02:30 twice.
        check(Hour, "Europe/Berlin", "2024-10-27T00:30:00Z", "2024-10-27T00:00:00Z", "2024-10-27T01:00:00Z");
        check(Hour, "Europe/Berlin", "2024-10-27T01:30:00Z", "2024-10-27T01:00:00Z", "2024-10-27T02:00:00Z");
    }

    #[test]
    fn the_first_moment_is_inside_and_the_last_is_not() {
        let zone = CalendarZone::default();
        let day = BudgetPeriod::Day.bounds(Time(0), &zone);
        assert_eq!(day, PeriodBounds { starts_at: Time(0), ends_at: Time(86_400_000) });
        assert_eq!(BudgetPeriod::Day.bounds(day.ends_at, &zone).starts_at, day.ends_at);
        assert_eq!(BudgetPeriod::Month.bounds(Time(i64::MAX), &zone).ends_at, Time(i64::MAX), "no panic");
    }

    #[test]
    fn zones_have_names() {
        assert_eq!(CalendarZone::parse("Europe/Berlin").unwrap().name(), "Europe/Berlin");
        assert_eq!(CalendarZone::default().name(), "UTC");
        assert!(CalendarZone::parse("Moon/Crater").is_none());
    }
}
