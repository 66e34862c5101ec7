//! Fetches mail that a provider's webhook only announced. The mail is fetched outside of any transaction, replaces the
//! notice of its delivery, and is then processed like any other mail.
//!
//! A crash in between costs only a second fetch. The delivery waits until it has its mail, and its notice is replaced
//! only once.

use crate::{access::sources::SourceDetails, inbound::Inbound};
use mailonce_core::{
    id::{DeliveryId, SourceId},
    inbound::{
        delivery::{Delivery, DeliveryFormat, DeliveryOutcome, FetchedContent},
        provider_mail::{FetchError, FetchedMail, ProviderAccount, ProviderMailRef},
    },
    limits,
    ports::store::StoreError,
    record::RecordKind,
};
use mailonce_mail::hooks::{self, Kind};
use std::sync::Arc;

/// How often a mail is fetched before its delivery becomes a dead letter. With backoff this takes over four hours.
pub(crate) const MAX_FETCH_ATTEMPTS: u32 = 14;
/// The same when the provider answers that it doesn't have the mail. It may send the notice before it stores the mail.
const MAX_NOT_FOUND_ATTEMPTS: u32 = 3;
/// The first retry delay, in milliseconds. It doubles with each attempt.
const RETRY_BASE_MS: i64 = 5_000;
/// The longest retry delay, in milliseconds.
const RETRY_MAX_MS: i64 = 3_600_000;

/// A mail to fetch, with the provider account that has it.
struct FetchTask {
    source: SourceId,
    kind: Kind,
    account: ProviderAccount,
    notice: ProviderMailRef,
}

/// The retry delay after this many attempts, in milliseconds.
pub(crate) fn retry_delay_ms(attempts: u32) -> i64 {
    RETRY_BASE_MS.saturating_mul(1 << attempts.saturating_sub(1).min(20)).min(RETRY_MAX_MS)
}

impl Inbound {
    /// Fetches the mail of a delivery that holds a notice and stores it in its place. Returns the changed delivery and
    /// the bytes. On failure returns the delivery's outcome, or `None` when another node has changed the delivery.
    pub(crate) async fn fetch_notified_mail(
        &self,
        delivery: &Delivery,
        notice: &[u8],
    ) -> Result<Result<(Delivery, Arc<Vec<u8>>), Option<DeliveryOutcome>>, StoreError> {
        let task = match self.fetch_task(delivery, notice).await? {
            Ok(task) => task,
            Err(why) => return Ok(Err(Some(DeliveryOutcome::Dead(why)))),
        };
        let wait_guard = self.ctx.inbound.fetch_limiter.begin_wait();
        let fetched = self.fetch_mail(&task).await;
        drop(wait_guard);
        let (form, raw) = match fetched {
            Ok(mail) => mail,
            Err(error) => return Ok(Err(Some(self.retry_fetch_or_dead(delivery, error)))),
        };
        let storage_id = DeliveryId(self.ctx.new_id(self.ctx.now()));
        let content =
            FetchedContent { storage_id, form, size: raw.len() as u64, raw: self.ctx.packer.pack_raw(&raw).into() };
        let changed = self.ctx.store.attach_fetched_content(delivery.team, delivery.id, content).await?;
        // Another node fetched the mail or recorded an outcome first. Then its result counts.
        let own_change = changed.filter(|changed| changed.rev == delivery.rev + 1 && changed.details.form == form);
        Ok(own_change.map(|changed| (changed, Arc::new(raw))).ok_or(None))
    }

    /// What to fetch for a notice and from which account, or the reason why that is impossible.
    async fn fetch_task(&self, delivery: &Delivery, notice: &[u8]) -> Result<Result<FetchTask, String>, StoreError> {
        let notice: ProviderMailRef = match serde_json::from_slice(notice) {
            Ok(notice) => notice,
            Err(error) => return Ok(Err(format!("the notice cannot be read: {error}"))),
        };
        if let Some((bucket, key)) = &notice.object {
            return Ok(Err(format!("the mail is in S3 as {bucket}/{key}; fetching from S3 is not supported")));
        }
        let source_removed = || Ok(Err(format!("the source that reported the mail {} was removed", notice.id)));
        let Some(source) = delivery.details.source else { return source_removed() };
        let Some(record) = self.ctx.store.record(delivery.team, RecordKind::Source, source.0).await? else {
            return source_removed();
        };
        let details: SourceDetails = match crate::runtime::records::decode(&record) {
            Ok(details) => details,
            Err(problem) => return Ok(Err(problem.detail)),
        };
        let held = format!("{} holds the mail as {}", details.kind, notice.id);
        Ok(match self.sources.provider_account(&record, &details) {
            Ok(account) => Ok(FetchTask { source, kind: details.kind, account, notice }),
            Err(why) => Err(format!("{held}; {why}")),
        })
    }

    /// Fetches one mail, unless its source is in backoff.
    async fn fetch_mail(&self, task: &FetchTask) -> Result<(DeliveryFormat, Vec<u8>), FetchError> {
        let FetchTask { source, kind, account, notice } = task;
        let closed = |_| FetchError::Temporary { reason: "the server is shutting down".into(), retry_after_ms: None };
        let _permit = self.ctx.inbound.fetch_limiter.permits.acquire().await.map_err(closed)?;
        let boot_ms = self.ctx.time.boot_clock_ms();
        if let Some(until) = self.ctx.inbound.fetch_limiter.backoff_deadline(*source, boot_ms) {
            let why = "a fetch from this provider failed a moment ago".into();
            return Err(FetchError::Temporary { reason: why, retry_after_ms: Some(until - boot_ms) });
        }
        let fetched = self.ctx.deps.mail_collector.fetch(account, notice).await;
        self.ctx.metrics.record_fetch(kind.as_str(), &fetched);
        if let Err(FetchError::Temporary { retry_after_ms: pause_ms, .. }) = &fetched {
            let pause = pause_ms.unwrap_or(RETRY_BASE_MS).clamp(RETRY_BASE_MS, RETRY_MAX_MS);
            let boot_ms = self.ctx.time.boot_clock_ms();
            self.ctx.inbound.fetch_limiter.back_off(*source, boot_ms + pause, boot_ms);
        }
        let raw = match fetched? {
            FetchedMail::Mime(raw) => return Ok((DeliveryFormat::Mime, raw)),
            FetchedMail::Fields(fields) => hooks::mail_from_provider_fields(*kind, &notice.id, &fields),
        };
        let bytes = raw
            .map_err(|why| FetchError::Permanent(format!("the mail that {kind} returned cannot be rebuilt: {why}")))?;
        if bytes.raw.len() > limits::INBOUND_MAIL_BYTES {
            return Err(FetchError::Permanent(format!("the mail is larger than {} bytes", limits::INBOUND_MAIL_BYTES)));
        }
        Ok((if bytes.is_rebuilt { DeliveryFormat::Rebuilt } else { DeliveryFormat::Mime }, bytes.raw))
    }

    /// Retry with backoff, or dead letter.
    fn retry_fetch_or_dead(&self, delivery: &Delivery, error: FetchError) -> DeliveryOutcome {
        let (max_attempts, why, requested_ms) = match error {
            FetchError::Temporary { reason: why, retry_after_ms: pause_ms } => {
                (MAX_FETCH_ATTEMPTS, why, pause_ms.unwrap_or_default())
            }
            FetchError::NotFound(why) => (MAX_NOT_FOUND_ATTEMPTS, why, 0),
            FetchError::Permanent(why) => return DeliveryOutcome::Dead(why),
        };
        if delivery.attempts >= max_attempts {
            return DeliveryOutcome::Dead(why);
        }
        let pause = retry_delay_ms(delivery.attempts).max(requested_ms.min(RETRY_MAX_MS));
        DeliveryOutcome::Retry(self.ctx.now().plus(pause), why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour_and_last_for_hours_in_all() {
        assert_eq!(
            (retry_delay_ms(0), retry_delay_ms(1), retry_delay_ms(2), retry_delay_ms(3)),
            (5_000, 5_000, 10_000, 20_000)
        );
        assert_eq!((retry_delay_ms(12), retry_delay_ms(u32::MAX)), (3_600_000, 3_600_000));
        let all: i64 = (1..MAX_FETCH_ATTEMPTS).map(retry_delay_ms).sum();
        assert!((4 * 3_600_000..6 * 3_600_000).contains(&all), "{all}");
    }
}
