//! What an outbox has reported to its team: that its drain stopped, and its dead letters. The record of the outbox
//! remembers it, so that each is one event, on however many nodes.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::RowKind;
use crate::{events::event::EventKind, time::Time};

/// How many dead letters the record remembers. They are marked in the user's database soon after they are reported, so
/// only those of the last few rounds can come again.
const KEPT_ROWS: usize = 100;

/// A dead letter to report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedRow {
    /// The row.
    pub id: Uuid,
    /// What it would become.
    pub kind: RowKind,
    /// Why it was parked: the code of a problem.
    pub code: String,
    /// When it was parked.
    pub parked_at: Time,
}

/// The content of the record of an outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxReports {
    /// Why it is not drained until an operator acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// The dead letter that was reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<ReportedRow>,
    /// The dead letters that were reported lately, and when each was parked.
    #[serde(default)]
    pub rows: Vec<(Uuid, Time)>,
}

impl OutboxReports {
    /// With one more dead letter. `None` when it was reported before.
    pub fn with_row(mut self, row: &ReportedRow) -> Option<Self> {
        let entry = (row.id, row.parked_at);
        if self.rows.contains(&entry) {
            return None;
        }
        if self.rows.len() >= KEPT_ROWS {
            self.rows.remove(0);
        }
        self.rows.push(entry);
        self.latest = Some(row.clone());
        Some(self)
    }

    /// The event of a change of the outbox `name`. The subject is the row, or `None` for the outbox itself.
    pub fn to_event(&self, before: Option<&Self>, name: &str) -> Option<(EventKind, Option<Uuid>, Value)> {
        let latest = self.latest.as_ref();
        if let Some(row) = latest.filter(|_| before.and_then(|before| before.latest.as_ref()) != latest) {
            let data = json!({ "outbox": name, "kind": row.kind, "code": row.code });
            return Some((EventKind::OutboxRowParked, Some(row.id), data));
        }
        match (before.is_some_and(|before| before.stopped.is_some()), &self.stopped) {
            (false, Some(reason)) => {
                Some((EventKind::OutboxStopped, None, json!({ "outbox": name, "reason": reason })))
            }
            (true, None) => Some((EventKind::OutboxResumed, None, json!({ "outbox": name }))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u128, parked_at: i64) -> ReportedRow {
        ReportedRow {
            id: Uuid::from_u128(id),
            kind: RowKind::Email,
            code: "key_mismatch".into(),
            parked_at: Time(parked_at),
        }
    }

    #[test]
    fn a_row_is_reported_once_each_time_it_is_parked() {
        let first = OutboxReports::default().with_row(&row(1, 5)).unwrap();
        assert_eq!(first.clone().with_row(&row(1, 5)), None);
        let again = first.clone().with_row(&row(1, 6)).unwrap();
        let (kind, subject, data) = again.to_event(Some(&first), "shop").unwrap();
        assert_eq!((kind, subject), (EventKind::OutboxRowParked, Some(Uuid::from_u128(1))));
        assert_eq!(data, json!({ "outbox": "shop", "kind": "email", "code": "key_mismatch" }));
        assert_eq!(again.to_event(Some(&again), "shop"), None);
        let many = (0..3 * KEPT_ROWS as u128).try_fold(again, |reports, id| reports.with_row(&row(id, 7))).unwrap();
        assert_eq!(many.rows.len(), KEPT_ROWS);
    }

    #[test]
    fn a_stop_and_its_end_are_one_event_each() {
        let running = OutboxReports::default();
        let stopped = |reason: &str| OutboxReports { stopped: Some(reason.into()), ..OutboxReports::default() };
        let kind = |is: &OutboxReports, was: Option<&OutboxReports>| is.to_event(was, "shop").map(|event| event.0);
        assert_eq!(kind(&stopped("x"), None), Some(EventKind::OutboxStopped));
        assert_eq!(kind(&stopped("y"), Some(&stopped("x"))), None);
        assert_eq!(kind(&running, Some(&stopped("x"))), Some(EventKind::OutboxResumed));
        assert_eq!(kind(&running, None), None);
    }
}
