//! Attempts to tell a recipient of questions. Each is recorded before it is made, so that nodes do not make the same one.

use mailonce_core::{
    conversation::approval_link::{ApprovalLink, Notification},
    operation::IdempotentResult,
    problem::Problem,
    record::{Record, RecordChangeResult},
    time::Time,
};

use crate::{
    conversation::{Escalations, escalations::EscalationView},
    runtime::{hex::mask_tokens, problems::unavailable, records},
};

/// The pauses after failed attempts, in milliseconds. After the last one a notification is given up.
const RETRY_MS: [i64; 7] = [10_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000, 7_200_000];
/// By how much the clocks of two nodes may differ, in milliseconds.
const CLOCK_MARGIN_MS: i64 = 60_000;
/// How often the end of an attempt is recorded when its record changes meanwhile.
const MAX_CONFLICT_RETRIES: usize = 3;

/// A question whose recipient is to be told now.
pub(super) struct DueNotice {
    /// The record of the link.
    pub(super) record: Record,
    /// The link.
    pub(super) link: ApprovalLink,
    /// The question.
    pub(super) view: EscalationView,
}

impl DueNotice {
    /// Attempts so far, the running one included.
    pub(super) fn attempts(&self) -> u32 {
        self.link.notification.as_ref().map_or(0, |notification| notification.attempts)
    }

    /// When it is tried again if the attempt that ends now failed.
    pub(super) fn retry_at(&self, now: Time) -> Option<Time> {
        let pause = (self.attempts() as usize).checked_sub(1).and_then(|index| RETRY_MS.get(index));
        pause.map(|ms| now.plus(*ms))
    }
}

impl Escalations {
    /// Records an attempt that takes at most so long. Whoever records it makes it: `None` when another node was faster.
    pub(super) async fn begin_attempt(&self, notice: DueNotice, limit_ms: i64) -> Result<Option<DueNotice>, Problem> {
        let (now, attempts) = (self.ctx.now(), notice.attempts());
        // Another node makes the next attempt when this node is lost, and not while it is only slow.
        let is_last = attempts as usize >= RETRY_MS.len();
        let due_at = (!is_last).then(|| now.plus(limit_ms.saturating_add(CLOCK_MARGIN_MS)));
        let DueNotice { record, link, view } = notice;
        let notification = Some(Notification { attempts: attempts + 1, due_at, sent_at: None });
        let link = ApprovalLink { notification, ..link };
        let changed = self.ctx.store.change_record(record.edit(records::encode(&link)?), None, now).await;
        match changed.map_err(unavailable)? {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => Ok(Some(DueNotice { record, link, view })),
            _ => Ok(None),
        }
    }

    /// Records how an attempt ended. One that failed is made again when its pause is over.
    pub(super) async fn end_attempt(&self, notice: &DueNotice, outcome: &Result<(), String>) -> Result<(), Problem> {
        let (now, attempts) = (self.ctx.now(), notice.attempts());
        if let Err(why) = outcome {
            let (escalation, addressee) = (notice.link.escalation, notice.link.addressee.id());
            // A relay may quote the email, and so the link.
            tracing::warn!(why = mask_tokens(why), %escalation, %addressee, "cannot notify of an escalation");
        }
        let notification = match outcome {
            Ok(()) => Notification { attempts, due_at: None, sent_at: Some(now) },
            Err(_) => Notification { attempts, due_at: notice.retry_at(now), sent_at: None },
        };
        self.ctx.metrics.record_approval_notification(&notification);
        let (mut record, mut link) = (notice.record.clone(), notice.link.clone());
        for _ in 0..MAX_CONFLICT_RETRIES {
            link.notification = Some(notification.clone());
            let changed = self.ctx.store.change_record(record.edit(records::encode(&link)?), None, now).await;
            match changed.map_err(unavailable)? {
                // The recipient was told, whatever changed meanwhile, unless the question was asked again.
                IdempotentResult::Done(RecordChangeResult::Stale(found)) if outcome.is_ok() => {
                    (link, record) = (records::decode(&found)?, found);
                    if link.expires_at != notice.link.expires_at {
                        return Ok(());
                    }
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}
