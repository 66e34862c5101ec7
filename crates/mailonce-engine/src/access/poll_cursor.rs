//! The polling cursor of a source: where the next round starts, which mail was already seen, and when a round is due.

use crate::access::{Sources, sources::PollStatus};
use mailonce_core::{
    id::{SourceId, TeamId},
    inbound::provider_mail::{FetchError, MailListPage},
    ports::store::StoreError,
    record::{Record, RecordKind},
    time::Time,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// How far each round reads back behind the newest mail seen, because a provider may list mail late.
const OVERLAP_MS: i64 = 3_600_000;
/// How many mails of the overlap are remembered. With more mail, the overlap gets shorter.
const SEEN_CAPACITY: usize = 2_000;
/// The longest delay after failures of the provider, in milliseconds.
const RETRY_MAX_MS: i64 = 3_600_000;
/// Longest stored error message, in characters.
const MAX_ERROR_CHARS: usize = 500;

/// The state of polling a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PollCursor {
    /// Mail before this time is ignored.
    floor: Time,
    /// The newest time, by the provider's clock, that completed rounds have seen.
    since: Time,
    /// The newest time that the running round has seen.
    newest: Time,
    /// The provider's page token where the running round continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) page: Option<String>,
    /// Mail of the overlap that was already announced: a hash of its id, and its time.
    seen: Vec<(u64, Time)>,
    /// When the next poll is due.
    pub(crate) next_at: Time,
    /// Until when a worker holds this cursor.
    pub(crate) busy_until: Time,
    failures: u32,
    /// When the last round ended.
    #[serde(default)]
    pub(crate) polled_at: Option<Time>,
    /// The last error, unless a page was read since.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

fn name_hash(name: &str) -> u64 {
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

impl PollCursor {
    /// A new cursor that ignores mail before `floor`.
    pub(crate) fn starting_at(floor: Time) -> Self {
        Self { floor, since: floor, ..Self::default() }
    }

    /// The oldest time that a round reads back to.
    pub(crate) fn horizon(&self) -> Time {
        self.floor.max(self.since.plus(-OVERLAP_MS))
    }

    /// Whether a mail was already announced.
    pub(crate) fn has_seen(&self, name: &str) -> bool {
        let hash = name_hash(name);
        self.seen.iter().any(|(seen, _)| *seen == hash)
    }

    /// Remembers that a mail was announced.
    pub(crate) fn mark_seen(&mut self, name: &str, at: Time) {
        self.seen.push((name_hash(name), at));
    }

    /// Advances past a page. Returns true when the round continues with another page.
    pub(crate) fn advance(&mut self, page: &MailListPage, now: Time) -> bool {
        let horizon = self.horizon();
        let reaches_horizon = page.mails.iter().any(|mail| mail.at.is_none_or(|at| at >= horizon));
        // Times in the future are ignored: a wrong clock must not move the cursor past mail that is still to come.
        let newest = page.mails.iter().filter_map(|mail| mail.at).filter(|at| *at <= now).max();
        self.newest = self.newest.max(newest.unwrap_or_default());
        self.page = page.next.clone().filter(|_| reaches_horizon);
        self.failures = 0;
        self.error = None;
        self.page.is_some()
    }

    /// Ends a round and schedules the next one.
    pub(crate) fn finish_round(&mut self, now: Time, interval: i64) {
        self.since = self.since.max(self.newest);
        self.page = None;
        let horizon = self.horizon();
        self.seen.retain(|(_, at)| *at >= horizon);
        if self.seen.len() > SEEN_CAPACITY {
            self.seen.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
            self.seen.truncate(SEEN_CAPACITY);
            // Mail whose hash was dropped would count as new, so the floor moves past it.
            self.floor = self.seen.last().map_or(self.floor, |(_, at)| at.plus(1));
        }
        (self.polled_at, self.next_at) = (Some(now), now.plus(interval));
    }

    /// Records a failed request, and schedules the next one with backoff.
    pub(crate) fn record_failure(&mut self, error: &FetchError, now: Time, interval: i64) {
        let retry_after_ms = if let FetchError::Temporary { retry_after_ms: pause_ms, .. } = error {
            pause_ms.unwrap_or_default()
        } else {
            0
        };
        let delay = interval.saturating_mul(1 << self.failures.min(12)).min(RETRY_MAX_MS.max(interval));
        self.failures = self.failures.saturating_add(1);
        self.error = Some(error.to_string().chars().take(MAX_ERROR_CHARS).collect());
        self.next_at = now.plus(delay.max(retry_after_ms.min(RETRY_MAX_MS)));
    }

    /// Decodes the cursor from its record.
    pub(crate) fn from_record(record: &Record) -> Result<Self, StoreError> {
        serde_json::from_str(&record.json).map_err(|error| corrupt_cursor(&error))
    }

    /// Encodes the cursor for its record.
    pub(crate) fn to_json(&self) -> Result<String, StoreError> {
        serde_json::to_string(self).map_err(|error| corrupt_cursor(&error))
    }
}

fn corrupt_cursor(error: &serde_json::Error) -> StoreError {
    StoreError::Corrupt(format!("the polling cursor of a source cannot be decoded: {error}"))
}

impl Sources {
    /// The status of a source's polling, for its view.
    pub(crate) async fn poll_status(&self, team: TeamId, id: SourceId) -> Result<PollStatus, StoreError> {
        let record = self.ctx.store.record_by_name(team, RecordKind::Poll, &id.to_string()).await?;
        let cursor = record.as_ref().map(PollCursor::from_record).transpose()?.unwrap_or_default();
        Ok(PollStatus { at: cursor.polled_at, error: cursor.error })
    }

    /// Removes the cursor of a removed source.
    pub(crate) async fn remove_poll_cursor(&self, team: TeamId, id: SourceId) -> Result<(), StoreError> {
        let Some(record) = self.ctx.store.record_by_name(team, RecordKind::Poll, &id.to_string()).await? else {
            return Ok(());
        };
        self.ctx.store.remove_record(team, RecordKind::Poll, record.id).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::inbound::provider_mail::MailListEntry;

    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;

    fn page(ats: &[i64], next: Option<&str>) -> MailListPage {
        let mail = |at: &i64| MailListEntry { at: Some(Time(*at)), fields: serde_json::Value::Null };
        MailListPage { mails: ats.iter().map(mail).collect(), next: next.map(str::to_owned) }
    }

    #[test]
    fn a_round_ends_at_the_horizon_or_with_the_list() {
        let mut cursor = PollCursor { floor: Time(0), since: Time(10 * HOUR), ..PollCursor::default() };
        let now = Time(11 * HOUR);
        assert_eq!(cursor.horizon(), Time(9 * HOUR));
        assert!(cursor.advance(&page(&[10 * HOUR, 8 * HOUR], Some("2")), now), "one is in sight");
        assert!(!cursor.advance(&page(&[8 * HOUR, 7 * HOUR], Some("3")), now), "none is");
        assert!(!cursor.advance(&page(&[10 * HOUR], None), now), "the last page");
        assert!(cursor.advance(
            &MailListPage { mails: vec![MailListEntry { at: None, fields: 1.into() }], next: Some("x".into()) },
            now
        ));
    }

    #[test]
    fn a_clock_ahead_of_ours_does_not_lead_past_what_is_to_come() {
        let mut cursor = PollCursor::default();
        cursor.advance(&page(&[90 * HOUR, 2 * HOUR], None), Time(3 * HOUR));
        cursor.finish_round(Time(3 * HOUR), MINUTE);
        assert_eq!((cursor.since, cursor.next_at), (Time(2 * HOUR), Time(3 * HOUR + MINUTE)));
    }

    #[test]
    fn a_mail_is_seen_once_and_forgotten_behind_the_horizon() {
        let mut cursor = PollCursor::default();
        assert!(!cursor.has_seen("a"));
        cursor.mark_seen("a", Time(HOUR));
        assert!(cursor.has_seen("a"));
        cursor.newest = Time(3 * HOUR);
        cursor.mark_seen("b", Time(3 * HOUR));
        cursor.finish_round(Time(3 * HOUR), MINUTE);
        assert_eq!(cursor.seen.len(), 1);
        assert!(cursor.has_seen("b") && !cursor.has_seen("a"));
    }

    #[test]
    fn with_more_than_can_be_remembered_the_overlap_is_shorter() {
        let mut cursor = PollCursor { newest: Time(HOUR + 3_000), since: Time(HOUR), ..PollCursor::default() };
        for n in 0..3_000 {
            cursor.mark_seen(&n.to_string(), Time(HOUR + n));
        }
        cursor.finish_round(Time(2 * HOUR), MINUTE);
        assert_eq!((cursor.seen.len(), cursor.horizon()), (SEEN_CAPACITY, Time(HOUR + 1_001)));
        assert!(cursor.seen.iter().all(|(_, at)| *at >= Time(HOUR + 1_000)), "what is forgotten lies behind it");
    }

    #[test]
    fn failures_back_off_and_heed_the_provider() {
        let mut cursor = PollCursor::default();
        let later = |pause_ms| FetchError::Temporary { reason: "busy".into(), retry_after_ms: pause_ms };
        cursor.record_failure(&later(None), Time(0), MINUTE);
        assert_eq!((cursor.next_at, cursor.error.as_deref()), (Time(MINUTE), Some("busy")));
        cursor.record_failure(&later(Some(10 * MINUTE)), Time(0), MINUTE);
        assert_eq!(cursor.next_at, Time(10 * MINUTE));
        for _ in 0..20 {
            cursor.record_failure(&later(None), Time(0), MINUTE);
        }
        assert_eq!(cursor.next_at, Time(HOUR));
        cursor.advance(&page(&[], None), Time(0));
        assert_eq!((cursor.failures, cursor.error), (0, None));
    }
}
