//! How long events are kept.

use crate::time::Time;

/// Which of a team's oldest events may be deleted.
#[derive(Clone, Copy, Debug)]
pub struct EventRetention {
    /// Those that happened by this time.
    pub happened_by: Time,
    /// Whether mail is indexed for search, which follows the events.
    pub search_enabled: bool,
    /// How many rows of the log one call reads. A row has the events of one commit.
    pub max_rows: usize,
}

impl EventRetention {
    /// The number up to which events are deleted. `old` is the last event that is old enough; `cursors` are the numbers
    /// up to which webhook endpoints were looked at; `pending` is the first event of a notice that is not delivered yet;
    /// `indexed` is the last event that search has read.
    pub fn last_deleted(
        &self,
        old: u64,
        cursors: impl IntoIterator<Item = u64>,
        pending: Option<u64>,
        indexed: u64,
    ) -> u64 {
        let before_pending = pending.map(|seq| seq.saturating_sub(1));
        let indexed = self.search_enabled.then_some(indexed);
        cursors.into_iter().chain(before_pending).chain(indexed).fold(old, u64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_kept_for_every_reader_that_needs_them() {
        for (cursors, pending, indexed, search_enabled, last) in [
            (&[][..], None, 0, false, 9),
            (&[12, 7][..], None, 0, false, 7),
            (&[12][..], Some(5), 0, false, 4),
            (&[12][..], Some(1), 20, true, 0),
            (&[12][..], Some(10), 8, true, 8),
            (&[12][..], None, 0, true, 0),
        ] {
            let retention = EventRetention { happened_by: Time(0), search_enabled, max_rows: 1 };
            assert_eq!(retention.last_deleted(9, cursors.iter().copied(), pending, indexed), last);
        }
    }
}
