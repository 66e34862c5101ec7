//! Reports of an outbox to its team: events when its drain stops and goes on, and one for each dead letter.
//!
//! The record of the outbox remembers what was reported. A dead letter is marked in the user's database after its event,
//! so a crash in between reports it again, and the record then leaves it out.

use mailonce_core::{
    operation::IdempotentResult,
    outbox::reports::OutboxReports,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
};

use super::{OutboxDrainer, drainer::DrainError};
use crate::runtime::{
    problems::unavailable,
    records::{decode, encode},
};

/// Dead letters that are reported before they are marked. The record remembers twice as many.
const REPORT_BATCH: usize = 50;
/// Batches that one look reports.
const BATCHES_PER_LOOK: usize = 4;
/// How often a change to the record is tried again after another node changed it.
const MAX_CONFLICT_RETRIES: usize = 5;

impl OutboxDrainer {
    /// Reports a stop or its end when it differs from what this process reported last, and returns what is reported
    /// now. Errors that may go by themselves are not reported.
    pub(super) async fn report_stop(&self, error: Option<&DrainError>, reported: Option<bool>) -> Option<bool> {
        let stopped = match error {
            None => None,
            Some(DrainError::Database(error)) if error.needs_operator() => Some(error.to_string()),
            Some(_) => return reported,
        };
        let is_stopped = stopped.is_some();
        if reported == Some(is_stopped) {
            return reported;
        }
        let change = |reports: OutboxReports| {
            (reports.stopped.is_some() != is_stopped).then(|| OutboxReports { stopped: stopped.clone(), ..reports })
        };
        match self.change_reports(change).await {
            Ok(()) => Some(is_stopped),
            Err(problem) => {
                let (outbox, detail) = (self.config.name.as_str(), problem.detail);
                tracing::warn!(outbox, "the state of the outbox cannot be reported: {detail}");
                reported
            }
        }
    }

    /// Reports dead letters that were not reported yet.
    pub(super) async fn report_parked_rows(&self) -> Result<(), DrainError> {
        for _ in 0..BATCHES_PER_LOOK {
            let rows = self.config.database.unreported(REPORT_BATCH).await?;
            if rows.is_empty() {
                return Ok(());
            }
            for row in &rows {
                self.change_reports(|reports| reports.with_row(row)).await.map_err(DrainError::Ledger)?;
            }
            self.config.database.mark_reported(&rows).await?;
        }
        Ok(())
    }

    /// Changes the record of the outbox, unless `change` returns `None`.
    async fn change_reports(&self, change: impl Fn(OutboxReports) -> Option<OutboxReports>) -> Result<(), Problem> {
        let (team, kind, name) = (self.team().await?.id, RecordKind::Outbox, &self.config.name);
        let store = &self.ctx.store;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let now = self.ctx.now();
            let known = store.record_by_name(team, kind, name).await.map_err(unavailable)?;
            let reports = known.as_ref().map(decode::<OutboxReports>).transpose()?.unwrap_or_default();
            let Some(changed) = change(reports) else { return Ok(()) };
            let json = encode(&changed)?;
            let is_done = if let Some(record) = known {
                let changed = store.change_record(record.edit(json), None, now).await.map_err(unavailable)?;
                matches!(changed, IdempotentResult::Done(RecordChangeResult::Changed(_)))
            } else {
                let (id, name) = (self.ctx.new_id(now), name.clone());
                let record = Record { team, kind, id, name, rev: 1, created_at: now, json };
                let created = store.create_record(record, None).await.map_err(unavailable)?;
                matches!(created, IdempotentResult::Done(CreateRecordResult::Created(_)))
            };
            if is_done {
                return Ok(());
            }
        }
        Err(Problem::new(Code::Unavailable, "other nodes changed the record of the outbox at the same time"))
    }
}
