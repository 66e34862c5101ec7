//! Mail that a provider only told of: it is fetched outside of any transaction, put in the place of its notice, and
//! read like any other.
//!
//! A crash in between costs a second fetch and nothing else: the delivery waits until it has its mail, and the mail
//! takes the place of a notice only once.

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

/// How often a mail is asked for before its delivery counts as dead: over four hours, with the pauses between.
pub(crate) const MAX_FETCH_ATTEMPTS: u32 = 14;
/// How often one that the provider does not have: its notice may be faster than its own store.
const MAX_NOT_FOUND_ATTEMPTS: u32 = 3;
/// The first pause, in milliseconds. It doubles.
const RETRY_BASE_MS: i64 = 5_000;
/// The longest.
const RETRY_MAX_MS: i64 = 3_600_000;

/// A mail that was told of, and by what its provider is asked for it.
struct FetchTask {
    source: SourceId,
    kind: Kind,
    account: ProviderAccount,
    notice: ProviderMailRef,
}

/// The pause after a delivery was taken up so often, in milliseconds.
pub(crate) fn retry_delay_ms(attempts: u32) -> i64 {
    RETRY_BASE_MS.saturating_mul(1 << attempts.saturating_sub(1).min(20)).min(RETRY_MAX_MS)
}

impl Inbound {
    /// The mail of a delivery that holds a notice, kept in its place: the delivery as it is then, and the bytes. Else
    /// what becomes of it now; nothing when somebody else has decided.
    pub(crate) async fn fetch_notified_mail(
        &self,
        delivery: &Delivery,
        notice: &[u8],
    ) -> Result<Result<(Delivery, Arc<Vec<u8>>), Option<DeliveryOutcome>>, StoreError> {
        let told = match self.fetch_task(delivery, notice).await? {
            Ok(told) => told,
            Err(why) => return Ok(Err(Some(DeliveryOutcome::Dead(why)))),
        };
        let waits = self.ctx.inbound.fetch_limiter.begin_wait();
        let given = self.fetch_mail(&told).await;
        drop(waits);
        let (form, raw) = match given {
            Ok(mail) => mail,
            Err(withheld) => return Ok(Err(Some(self.retry_fetch_or_dead(delivery, withheld)))),
        };
        let place = DeliveryId(self.ctx.new_id(self.ctx.now()));
        let brought = FetchedContent {
            storage_id: place,
            form,
            size: raw.len() as u64,
            raw: self.ctx.packer.pack_raw(&raw).into(),
        };
        let now = self.ctx.store.attach_fetched_content(delivery.team, delivery.id, brought).await?;
        // Another reader was faster, or somebody settled it: theirs counts.
        let own = now.filter(|now| now.rev == delivery.rev + 1 && now.details.form == form);
        Ok(own.map(|now| (now, Arc::new(raw))).ok_or(None))
    }

    /// Who told of a mail, and what.
    async fn fetch_task(&self, delivery: &Delivery, notice: &[u8]) -> Result<Result<FetchTask, String>, StoreError> {
        let notice: ProviderMailRef = match serde_json::from_slice(notice) {
            Ok(notice) => notice,
            Err(error) => return Ok(Err(format!("the notice cannot be read: {error}"))),
        };
        if let Some((bucket, key)) = &notice.object {
            return Ok(Err(format!("the mail lies in S3 as {bucket}/{key}, and mail is not fetched from there")));
        }
        let gone = || Ok(Err(format!("the source that told of the mail {} is gone", notice.id)));
        let Some(source) = delivery.details.source else { return gone() };
        let Some(record) = self.ctx.store.record(delivery.team, RecordKind::Source, source.0).await? else {
            return gone();
        };
        let about: SourceDetails = match crate::runtime::records::decode(&record) {
            Ok(about) => about,
            Err(problem) => return Ok(Err(problem.detail)),
        };
        let held = format!("{} holds the mail as {}", about.kind, notice.id);
        Ok(match self.access.provider_account(&record, &about) {
            Ok(account) => Ok(FetchTask { source, kind: about.kind, account, notice }),
            Err(why) => Err(format!("{held}; {why}")),
        })
    }

    /// Asks for one mail, unless its source rests.
    async fn fetch_mail(&self, told: &FetchTask) -> Result<(DeliveryFormat, Vec<u8>), FetchError> {
        let FetchTask { source, kind, account, notice } = told;
        let closed = |_| FetchError::Temporary { reason: "this process stops".into(), retry_after_ms: None };
        let _room = self.ctx.inbound.fetch_limiter.permits.acquire().await.map_err(closed)?;
        let even = self.ctx.time.boot_clock_ms();
        if let Some(until) = self.ctx.inbound.fetch_limiter.backoff_deadline(*source, even) {
            let why = "the provider gave nothing a moment ago".into();
            return Err(FetchError::Temporary { reason: why, retry_after_ms: Some(until - even) });
        }
        let given = self.ctx.deps.mail_collector.fetch(account, notice).await;
        self.ctx.metrics.record_fetch(kind.as_str(), &given);
        if let Err(FetchError::Temporary { retry_after_ms: pause_ms, .. }) = &given {
            let pause = pause_ms.unwrap_or(RETRY_BASE_MS).clamp(RETRY_BASE_MS, RETRY_MAX_MS);
            let even = self.ctx.time.boot_clock_ms();
            self.ctx.inbound.fetch_limiter.back_off(*source, even + pause, even);
        }
        let raw = match given? {
            FetchedMail::Mime(raw) => return Ok((DeliveryFormat::Mime, raw)),
            FetchedMail::Fields(fields) => hooks::mail_from_provider_fields(*kind, &notice.id, &fields),
        };
        let bytes = raw.map_err(|why| FetchError::Permanent(format!("what {kind} gave makes no mail: {why}")))?;
        if bytes.raw.len() > limits::INBOUND_MAIL_BYTES {
            return Err(FetchError::Permanent(format!("the mail is larger than {} bytes", limits::INBOUND_MAIL_BYTES)));
        }
        Ok((if bytes.is_rebuilt { DeliveryFormat::Rebuilt } else { DeliveryFormat::Mime }, bytes.raw))
    }

    /// Once more after a pause, or never.
    fn retry_fetch_or_dead(&self, delivery: &Delivery, withheld: FetchError) -> DeliveryOutcome {
        let (most, why, asked) = match withheld {
            FetchError::Temporary { reason: why, retry_after_ms: pause_ms } => {
                (MAX_FETCH_ATTEMPTS, why, pause_ms.unwrap_or_default())
            }
            FetchError::NotFound(why) => (MAX_NOT_FOUND_ATTEMPTS, why, 0),
            FetchError::Permanent(why) => return DeliveryOutcome::Dead(why),
        };
        if delivery.attempts >= most {
            return DeliveryOutcome::Dead(why);
        }
        let pause = retry_delay_ms(delivery.attempts).max(asked.min(RETRY_MAX_MS));
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
