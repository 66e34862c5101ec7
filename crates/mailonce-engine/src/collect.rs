//! Mail that a provider only told of: it is fetched outside of any transaction, put in the place of its notice, and
//! read like any other.
//!
//! A crash in between costs a second fetch and nothing else: the delivery waits until it has its mail, and the mail
//! takes the place of a notice only once.

use mailonce_core::{
    delivery::{Brought, Delivery, Form, Settle},
    id::{DeliveryId, SourceId, TeamId},
    limits,
    port::{
        collect::{Account, Given, Notice, Withheld},
        store::StoreError,
    },
    problem::{Code, Problem},
    record::{Record, RecordKind},
};
use mailonce_mail::hook::{self, Kind};
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

use crate::{Engine, fault, sources::AboutSource, vault::Place};

/// Mails fetched at a time: each may be large.
const AT_ONCE: usize = 4;
/// Readers that may wait for providers besides those that read.
const WAITING: usize = 64;
/// How often a mail is asked for before its delivery counts as dead: over four hours, with the pauses between.
pub(crate) const FETCHED: u32 = 14;
/// How often one that the provider does not have: its notice may be faster than its own store.
const GONE: u32 = 3;
/// The first pause, in milliseconds. It doubles.
const PAUSE_MS: i64 = 5_000;
/// The longest.
const PAUSE_AT_MOST_MS: i64 = 3_600_000;
/// Sources at rest that are remembered.
const RESTING: usize = 10_000;
/// How often a source may be asked which mails came, in milliseconds.
const POLL_MS: std::ops::RangeInclusive<i64> = 10_000..=86_400_000;

/// How mail is collected from a source's provider, as a call says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collecting {
    /// The credential.
    pub api_key: Option<String>,
    /// Where the provider's API begins, when it is not the usual place.
    pub base_url: Option<String>,
    /// How often it is asked which mails came, in milliseconds. Never without.
    pub poll_ms: Option<i64>,
}

/// The same as the ledger keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AboutCollecting {
    /// The credential, sealed.
    sealed: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) poll_ms: Option<i64>,
}

/// What this process knows about providers that are asked.
pub(crate) struct Desks {
    /// Room for mails under way.
    room: Semaphore,
    /// Sources whose provider gives nothing for now, and until when by the even counter: those who wait behind one that
    /// failed need not find out for themselves.
    resting: Mutex<HashMap<SourceId, i64>>,
    /// Readers that wait for a provider: they hold back nobody who has something to read.
    at_it: AtomicUsize,
    /// Wakes whoever asks for lists.
    pub(crate) changed: tokio::sync::Notify,
}

impl Default for Desks {
    fn default() -> Self {
        Self {
            room: Semaphore::new(AT_ONCE),
            resting: Mutex::default(),
            at_it: AtomicUsize::new(0),
            changed: tokio::sync::Notify::new(),
        }
    }
}

/// A reader that waits for a provider, until it is dropped.
struct AtIt<'a>(&'a AtomicUsize);

impl Drop for AtIt<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Desks {
    /// Readers that wait for a provider now, as far as they may be added to those that read.
    pub(crate) fn at_it(&self) -> usize {
        self.at_it.load(Ordering::Relaxed).min(WAITING)
    }

    fn begin(&self) -> AtIt<'_> {
        self.at_it.fetch_add(1, Ordering::Relaxed);
        AtIt(&self.at_it)
    }

    fn rests_until(&self, source: SourceId, even: i64) -> Option<i64> {
        let resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        resting.get(&source).copied().filter(|until| *until > even)
    }

    fn rest(&self, source: SourceId, until: i64, even: i64) {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        resting.retain(|_, until| *until > even);
        if resting.len() < RESTING {
            resting.insert(source, until);
        }
    }

    fn wake(&self, source: SourceId) {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner).remove(&source);
    }
}

/// A mail that was told of, and by what its provider is asked for it.
struct Told {
    source: SourceId,
    kind: Kind,
    account: Account,
    notice: Notice,
}

fn place(team: TeamId, record: Uuid) -> Place {
    Place { team, record, purpose: "collect" }
}

/// The pause after a delivery was taken up so often, in milliseconds.
pub(crate) fn pause_ms(attempts: u32) -> i64 {
    PAUSE_MS.saturating_mul(1 << attempts.saturating_sub(1).min(20)).min(PAUSE_AT_MOST_MS)
}

impl Engine {
    /// What is kept of how mail is collected, checked and sealed. `None` when nothing is said of it.
    pub(crate) fn about_collecting(
        &self,
        (team, id): (TeamId, Uuid),
        kind: Kind,
        asked: &Collecting,
    ) -> Result<Option<AboutCollecting>, Problem> {
        let Collecting { api_key, base_url, poll_ms } = asked.clone();
        let Some(api_key) = api_key else {
            return match (base_url, poll_ms) {
                (None, None) => Ok(None),
                (Some(_), _) => Err(fault("base_url", "is where mail is fetched, which needs an api_key")),
                (None, Some(_)) => Err(fault("poll", "needs an api_key to ask with")),
            };
        };
        if !kind.gives() {
            return Err(fault("api_key", format!("is for mail that is fetched, and none is from {kind}")));
        }
        if api_key.trim().is_empty() || !api_key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(fault("api_key", "is printable ASCII without spaces"));
        }
        if poll_ms.is_some() && !kind.lists() {
            return Err(fault("poll", format!("is not for {kind}, which is not asked for a list")));
        }
        if poll_ms.is_some_and(|ms| !POLL_MS.contains(&ms)) {
            return Err(fault("poll", "is a span between 10s and 1d"));
        }
        let account = Account { provider: kind.word(), api_key, base_url };
        self.outside.collect.check(&account).map_err(|why| fault("base_url", why))?;
        let sealed = self.seal(place(team, id), account.api_key.as_bytes());
        let sealed = sealed.ok_or_else(|| Problem::new(Code::Internal, "the credential could not be sealed"))?;
        Ok(Some(AboutCollecting { sealed, base_url: account.base_url, poll_ms }))
    }

    /// By what a source's provider is asked. The error is for people.
    pub(crate) fn account(&self, record: &Record, about: &AboutSource) -> Result<Account, String> {
        let collecting = about.collecting.as_ref();
        let collecting =
            collecting.ok_or("the source has no api_key to fetch mail with: rotate one in, then replay")?;
        let opened = self.unseal(place(record.team, record.id), &collecting.sealed);
        let api_key = opened.and_then(|bytes| String::from_utf8(bytes).ok());
        let api_key = api_key.ok_or("the api_key of the source cannot be opened")?;
        Ok(Account { provider: about.kind.word(), api_key, base_url: collecting.base_url.clone() })
    }

    /// A source got another credential: what waits for it may go.
    pub(crate) fn collecting_changed(&self, source: SourceId) {
        self.desks.wake(source);
        self.desks.changed.notify_one();
    }

    /// The mail of a delivery that holds a notice, kept in its place: the delivery as it is then, and the bytes. Else
    /// what becomes of it now; nothing when somebody else has decided.
    pub(crate) async fn fetch_told(
        &self,
        delivery: &Delivery,
        notice: &[u8],
    ) -> Result<Result<(Delivery, Arc<Vec<u8>>), Option<Settle>>, StoreError> {
        let told = match self.told_by(delivery, notice).await? {
            Ok(told) => told,
            Err(why) => return Ok(Err(Some(Settle::Dead(why)))),
        };
        let waits = self.desks.begin();
        let given = self.fetch_from(&told).await;
        drop(waits);
        let (form, raw) = match given {
            Ok(mail) => mail,
            Err(withheld) => return Ok(Err(Some(self.not_yet(delivery, withheld)))),
        };
        let place = DeliveryId(self.new_id(self.now()));
        let brought = Brought { place, form, size: raw.len() as u64, raw: self.bodies.pack_raw(&raw).into() };
        let now = self.store.bring(delivery.team, delivery.id, brought).await?;
        // Another reader was faster, or somebody settled it: theirs counts.
        let own = now.filter(|now| now.rev == delivery.rev + 1 && now.about.form == form);
        Ok(own.map(|now| (now, Arc::new(raw))).ok_or(None))
    }

    /// Who told of a mail, and what.
    async fn told_by(&self, delivery: &Delivery, notice: &[u8]) -> Result<Result<Told, String>, StoreError> {
        let notice: Notice = match serde_json::from_slice(notice) {
            Ok(notice) => notice,
            Err(error) => return Ok(Err(format!("the notice cannot be read: {error}"))),
        };
        if let Some((bucket, key)) = &notice.object {
            return Ok(Err(format!("the mail lies in S3 as {bucket}/{key}, and mail is not fetched from there")));
        }
        let gone = || Ok(Err(format!("the source that told of the mail {} is gone", notice.id)));
        let Some(source) = delivery.about.source else { return gone() };
        let Some(record) = self.store.record(delivery.team, RecordKind::Source, source.0).await? else { return gone() };
        let about: AboutSource = match crate::records::read(&record) {
            Ok(about) => about,
            Err(problem) => return Ok(Err(problem.detail)),
        };
        let held = format!("{} holds the mail as {}", about.kind, notice.id);
        Ok(match self.account(&record, &about) {
            Ok(account) => Ok(Told { source, kind: about.kind, account, notice }),
            Err(why) => Err(format!("{held}; {why}")),
        })
    }

    /// Asks for one mail, unless its source rests.
    async fn fetch_from(&self, told: &Told) -> Result<(Form, Vec<u8>), Withheld> {
        let Told { source, kind, account, notice } = told;
        let closed = |_| Withheld::Later { why: "this process stops".into(), pause_ms: None };
        let _room = self.desks.room.acquire().await.map_err(closed)?;
        let even = self.time.even();
        if let Some(until) = self.desks.rests_until(*source, even) {
            let why = "the provider gave nothing a moment ago".into();
            return Err(Withheld::Later { why, pause_ms: Some(until - even) });
        }
        let given = self.outside.collect.fetch(account, notice).await;
        self.metrics.fetched(kind.word(), &given);
        if let Err(Withheld::Later { pause_ms, .. }) = &given {
            let pause = pause_ms.unwrap_or(PAUSE_MS).clamp(PAUSE_MS, PAUSE_AT_MOST_MS);
            let even = self.time.even();
            self.desks.rest(*source, even + pause, even);
        }
        let raw = match given? {
            Given::Mime(raw) => return Ok((Form::Mime, raw)),
            Given::Fields(fields) => hook::given(*kind, &notice.id, &fields),
        };
        let bytes = raw.map_err(|why| Withheld::Never(format!("what {kind} gave makes no mail: {why}")))?;
        if bytes.raw.len() > limits::MAIL_BYTES {
            return Err(Withheld::Never(format!("the mail is larger than {} bytes", limits::MAIL_BYTES)));
        }
        Ok((if bytes.rebuilt { Form::Rebuilt } else { Form::Mime }, bytes.raw))
    }

    /// Once more after a pause, or never.
    fn not_yet(&self, delivery: &Delivery, withheld: Withheld) -> Settle {
        let (most, why, asked) = match withheld {
            Withheld::Later { why, pause_ms } => (FETCHED, why, pause_ms.unwrap_or_default()),
            Withheld::Gone(why) => (GONE, why, 0),
            Withheld::Never(why) => return Settle::Dead(why),
        };
        if delivery.attempts >= most {
            return Settle::Dead(why);
        }
        let pause = pause_ms(delivery.attempts).max(asked.min(PAUSE_AT_MOST_MS));
        Settle::Later(self.now().plus(pause), why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour_and_last_for_hours_in_all() {
        assert_eq!((pause_ms(0), pause_ms(1), pause_ms(2), pause_ms(3)), (5_000, 5_000, 10_000, 20_000));
        assert_eq!((pause_ms(12), pause_ms(u32::MAX)), (3_600_000, 3_600_000));
        let all: i64 = (1..FETCHED).map(pause_ms).sum();
        assert!((4 * 3_600_000..6 * 3_600_000).contains(&all), "{all}");
    }
}
