//! Mail that a provider only told of: it is fetched outside of any transaction, put in the place of its notice, and
//! read like any other.
//!
//! A crash in between costs a second fetch and nothing else: the delivery waits until it has its mail, and the mail
//! takes the place of a notice only once.

use mailonce_core::{
    id::{DeliveryId, SourceId, TeamId},
    inbound::{
        delivery::{Delivery, DeliveryFormat, DeliveryOutcome, FetchedContent},
        provider_mail::{FetchError, FetchedMail, ProviderAccount, ProviderMailRef},
    },
    limits,
    ports::store::StoreError,
    problem::{Code, Problem},
    record::{Record, RecordKind},
};
use mailonce_mail::hooks::{self, Kind};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::{
    Engine,
    access::{sources::SourceDetails, vault::SecretLocation},
    invalid_field,
};

/// Mails fetched at a time: each may be large.
const MAX_CONCURRENT_FETCHES: usize = 4;
/// Readers that may wait for providers besides those that read.
const MAX_WAITING_WORKERS: usize = 64;
/// How often a mail is asked for before its delivery counts as dead: over four hours, with the pauses between.
pub(crate) const MAX_FETCH_ATTEMPTS: u32 = 14;
/// How often one that the provider does not have: its notice may be faster than its own store.
const MAX_NOT_FOUND_ATTEMPTS: u32 = 3;
/// The first pause, in milliseconds. It doubles.
const RETRY_BASE_MS: i64 = 5_000;
/// The longest.
const RETRY_MAX_MS: i64 = 3_600_000;
/// Sources at rest that are remembered.
const BACKOFF_CAPACITY: usize = 10_000;
/// How often a source may be asked which mails came, in milliseconds.
const POLL_INTERVAL_MS: std::ops::RangeInclusive<i64> = 10_000..=86_400_000;

/// How mail is collected from a source's provider, as a call says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionConfig {
    /// The credential.
    pub api_key: Option<String>,
    /// Where the provider's API begins, when it is not the usual place.
    pub base_url: Option<String>,
    /// How often it is asked which mails came, in milliseconds. Never without.
    pub poll_ms: Option<i64>,
}

/// The same as the ledger keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredCollectionConfig {
    /// The credential, sealed.
    sealed: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) poll_ms: Option<i64>,
}

/// What this process knows about providers that are asked.
pub(crate) struct FetchLimiter {
    /// Room for mails under way.
    permits: Semaphore,
    /// Sources whose provider gives nothing for now, and until when by the even counter: those who wait behind one that
    /// failed need not find out for themselves.
    backoff_until: Mutex<HashMap<SourceId, i64>>,
    /// Readers that wait for a provider: they hold back nobody who has something to read.
    waiting_workers: AtomicUsize,
    /// Wakes whoever asks for lists.
    pub(crate) sources_changed: tokio::sync::Notify,
}

impl Default for FetchLimiter {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(MAX_CONCURRENT_FETCHES),
            backoff_until: Mutex::default(),
            waiting_workers: AtomicUsize::new(0),
            sources_changed: tokio::sync::Notify::new(),
        }
    }
}

/// A reader that waits for a provider, until it is dropped.
struct FetchWaitGuard<'a>(&'a AtomicUsize);

impl Drop for FetchWaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FetchLimiter {
    /// Readers that wait for a provider now, as far as they may be added to those that read.
    pub(crate) fn waiting_workers(&self) -> usize {
        self.waiting_workers.load(Ordering::Relaxed).min(MAX_WAITING_WORKERS)
    }

    fn begin_wait(&self) -> FetchWaitGuard<'_> {
        self.waiting_workers.fetch_add(1, Ordering::Relaxed);
        FetchWaitGuard(&self.waiting_workers)
    }

    fn backoff_deadline(&self, source: SourceId, even: i64) -> Option<i64> {
        let resting = self.backoff_until.lock().unwrap_or_else(PoisonError::into_inner);
        resting.get(&source).copied().filter(|until| *until > even)
    }

    fn back_off(&self, source: SourceId, until: i64, even: i64) {
        let mut resting = self.backoff_until.lock().unwrap_or_else(PoisonError::into_inner);
        resting.retain(|_, until| *until > even);
        if resting.len() < BACKOFF_CAPACITY {
            resting.insert(source, until);
        }
    }

    fn clear_backoff(&self, source: SourceId) {
        self.backoff_until.lock().unwrap_or_else(PoisonError::into_inner).remove(&source);
    }
}

/// A mail that was told of, and by what its provider is asked for it.
struct FetchTask {
    source: SourceId,
    kind: Kind,
    account: ProviderAccount,
    notice: ProviderMailRef,
}

fn secret_location(team: TeamId, record: Uuid) -> SecretLocation {
    SecretLocation { team, record, purpose: "collect" }
}

/// The pause after a delivery was taken up so often, in milliseconds.
pub(crate) fn retry_delay_ms(attempts: u32) -> i64 {
    RETRY_BASE_MS.saturating_mul(1 << attempts.saturating_sub(1).min(20)).min(RETRY_MAX_MS)
}

impl Engine {
    /// What is kept of how mail is collected, checked and sealed. `None` when nothing is said of it.
    pub(crate) fn seal_collection_config(
        &self,
        (team, id): (TeamId, Uuid),
        kind: Kind,
        asked: &CollectionConfig,
    ) -> Result<Option<StoredCollectionConfig>, Problem> {
        let CollectionConfig { api_key, base_url, poll_ms } = asked.clone();
        let Some(api_key) = api_key else {
            return match (base_url, poll_ms) {
                (None, None) => Ok(None),
                (Some(_), _) => Err(invalid_field("base_url", "is where mail is fetched, which needs an api_key")),
                (None, Some(_)) => Err(invalid_field("poll_interval", "needs an api_key to ask with")),
            };
        };
        if !kind.can_fetch_mail() {
            return Err(invalid_field("api_key", format!("is for mail that is fetched, and none is from {kind}")));
        }
        if api_key.trim().is_empty() || !api_key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid_field("api_key", "is printable ASCII without spaces"));
        }
        if poll_ms.is_some() && !kind.can_list_mail() {
            return Err(invalid_field("poll_interval", format!("is not for {kind}, which is not asked for a list")));
        }
        if poll_ms.is_some_and(|ms| !POLL_INTERVAL_MS.contains(&ms)) {
            return Err(invalid_field("poll_interval", "is a span between 10s and 1d"));
        }
        let account = ProviderAccount { provider: kind.as_str(), api_key, base_url };
        self.deps.mail_collector.check_account(&account).map_err(|why| invalid_field("base_url", why))?;
        let sealed = self.seal_secret(secret_location(team, id), account.api_key.as_bytes());
        let sealed = sealed.ok_or_else(|| Problem::new(Code::Internal, "the credential could not be sealed"))?;
        Ok(Some(StoredCollectionConfig { sealed, base_url: account.base_url, poll_ms }))
    }

    /// By what a source's provider is asked. The error is for people.
    pub(crate) fn provider_account(&self, record: &Record, about: &SourceDetails) -> Result<ProviderAccount, String> {
        let collecting = about.collecting.as_ref();
        let collecting =
            collecting.ok_or("the source has no api_key to fetch mail with: rotate one in, then replay")?;
        let opened = self.open_secret(secret_location(record.team, record.id), &collecting.sealed);
        let api_key = opened.and_then(|bytes| String::from_utf8(bytes).ok());
        let api_key = api_key.ok_or("the api_key of the source cannot be opened")?;
        Ok(ProviderAccount { provider: about.kind.as_str(), api_key, base_url: collecting.base_url.clone() })
    }

    /// A source got another credential: what waits for it may go.
    pub(crate) fn on_collection_changed(&self, source: SourceId) {
        self.fetch_limiter.clear_backoff(source);
        self.fetch_limiter.sources_changed.notify_one();
    }

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
        let waits = self.fetch_limiter.begin_wait();
        let given = self.fetch_mail(&told).await;
        drop(waits);
        let (form, raw) = match given {
            Ok(mail) => mail,
            Err(withheld) => return Ok(Err(Some(self.retry_fetch_or_dead(delivery, withheld)))),
        };
        let place = DeliveryId(self.new_id(self.now()));
        let brought =
            FetchedContent { storage_id: place, form, size: raw.len() as u64, raw: self.packer.pack_raw(&raw).into() };
        let now = self.store.attach_fetched_content(delivery.team, delivery.id, brought).await?;
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
        let Some(record) = self.store.record(delivery.team, RecordKind::Source, source.0).await? else { return gone() };
        let about: SourceDetails = match crate::runtime::records::decode(&record) {
            Ok(about) => about,
            Err(problem) => return Ok(Err(problem.detail)),
        };
        let held = format!("{} holds the mail as {}", about.kind, notice.id);
        Ok(match self.provider_account(&record, &about) {
            Ok(account) => Ok(FetchTask { source, kind: about.kind, account, notice }),
            Err(why) => Err(format!("{held}; {why}")),
        })
    }

    /// Asks for one mail, unless its source rests.
    async fn fetch_mail(&self, told: &FetchTask) -> Result<(DeliveryFormat, Vec<u8>), FetchError> {
        let FetchTask { source, kind, account, notice } = told;
        let closed = |_| FetchError::Temporary { reason: "this process stops".into(), retry_after_ms: None };
        let _room = self.fetch_limiter.permits.acquire().await.map_err(closed)?;
        let even = self.time.boot_clock_ms();
        if let Some(until) = self.fetch_limiter.backoff_deadline(*source, even) {
            let why = "the provider gave nothing a moment ago".into();
            return Err(FetchError::Temporary { reason: why, retry_after_ms: Some(until - even) });
        }
        let given = self.deps.mail_collector.fetch(account, notice).await;
        self.metrics.record_fetch(kind.as_str(), &given);
        if let Err(FetchError::Temporary { retry_after_ms: pause_ms, .. }) = &given {
            let pause = pause_ms.unwrap_or(RETRY_BASE_MS).clamp(RETRY_BASE_MS, RETRY_MAX_MS);
            let even = self.time.boot_clock_ms();
            self.fetch_limiter.back_off(*source, even + pause, even);
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
        DeliveryOutcome::Retry(self.now().plus(pause), why)
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
