//! Telling applications: events become notices, and each endpoint gets its own at its own pace.
//!
//! Every endpoint has a desk of its own. How many requests it has under way depends on how it answers, so one that is
//! slow or gone keeps a single connection busy and delays nobody else.

use mailonce_core::{
    endpoint::Endpoint,
    id::EndpointId,
    limits,
    notice::{Answer, NoticeAttempt, NoticeSettle, Owed, Trouble, meaning},
    port::notify::{Post, Told},
    time::Time,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::Ordering},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Instant,
};

use crate::{
    Engine,
    holder::Name,
    wording::{ToPost, untold},
};

/// Events looked at in one transaction.
const SPREAD_AT_ONCE: usize = 512;
/// Requests to one endpoint under way at a time: at first, and at the most.
const FIRST_WINDOW: usize = 4;
const WIDEST_WINDOW: usize = 32;
/// Endpoints that are looked for beside those that are busy.
const IDLE_ENDPOINTS: usize = 256;
/// Desks that are remembered while nothing is due.
const DESKS: usize = 10_000;
/// The longest sleep; wake-ups make it shorter.
const LOOK_ANYWAY: Duration = Duration::from_secs(2);
/// The same where others may leave work that nobody tells of.
const LOOK_OFTEN: Duration = Duration::from_millis(500);
/// The shortest time between two looks that news ask for: a busy ledger has some a thousand times a second.
const LOOK_SELDOM: Duration = Duration::from_millis(10);
/// How long requests may take to end when we stop.
const FAREWELL: Duration = Duration::from_secs(10);
/// The longest pause before an outcome is written again.
const WRITE_AGAIN: Duration = Duration::from_secs(2);

/// One endpoint's requests.
pub(crate) struct Desk {
    endpoint: RwLock<Arc<Endpoint>>,
    pace: Mutex<Pace>,
    /// More may be due.
    news: Notify,
}

/// How fast an endpoint is told.
struct Pace {
    /// Requests under way at a time.
    window: usize,
    /// Requests that its limit allows now, and when that was counted.
    tokens: f64,
    at: i64,
}

impl Desk {
    fn new(endpoint: Endpoint, even: i64) -> Self {
        let tokens = f64::from(endpoint.about.rate_per_s.unwrap_or(1));
        Self {
            endpoint: RwLock::new(Arc::new(endpoint)),
            pace: Mutex::new(Pace { window: FIRST_WINDOW, tokens, at: even }),
            news: Notify::new(),
        }
    }

    fn endpoint(&self) -> Arc<Endpoint> {
        Arc::clone(&self.endpoint.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The endpoint as it is now.
    fn learn(&self, endpoint: Endpoint) {
        *self.endpoint.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(endpoint);
        self.news.notify_one();
    }

    /// How many more requests may begin.
    fn room(&self, under_way: usize, even: i64) -> usize {
        let rate = self.endpoint().about.rate_per_s.map(f64::from);
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        // A few at a time, so that not every answer costs a lease of its own.
        let free = pace.window.saturating_sub(under_way);
        let room = if free < pace.window / 4 { 0 } else { free };
        let Some(rate) = rate else { return room };
        pace.tokens = (pace.tokens + (even - pace.at).max(0) as f64 / 1_000.0 * rate).min(rate.max(1.0));
        pace.at = even;
        room.min(pace.tokens as usize)
    }

    /// Counts requests that begin.
    fn begin(&self, count: usize) {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).tokens -= count as f64;
    }

    /// Learns from an answer how much the endpoint takes.
    fn heard(&self, well: bool) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.window = if well { (pace.window + 1).min(WIDEST_WINDOW) } else { (pace.window / 2).max(1) };
    }

    /// How long to wait for the limit's next request.
    fn next_token(&self) -> Duration {
        let rate = self.endpoint().about.rate_per_s.unwrap_or(1).max(1);
        Duration::from_secs(1) / rate
    }
}

/// The desks of this process, and those of them that are busy.
#[derive(Default)]
struct Desks {
    all: HashMap<EndpointId, Arc<Desk>>,
    busy: JoinSet<EndpointId>,
    at_work: HashMap<EndpointId, Arc<Desk>>,
}

impl Engine {
    /// Tells endpoints of events until `stop` changes.
    pub async fn notify(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut desks = Desks::default();
        while !*stop.borrow() {
            let looked = Instant::now();
            let more = self.spread().await;
            self.open_desks(&mut desks, &stop).await;
            if more {
                continue;
            }
            let pause = self.until_next_notice().await;
            tokio::select! {
                biased;
                () = self.news.notified() => tokio::time::sleep_until(looked + LOOK_SELDOM).await,
                Some(ended) = desks.busy.join_next() => {
                    match ended {
                        Ok(id) => drop(desks.at_work.remove(&id)),
                        Err(error) => {
                            tracing::error!(%error, "a desk of an endpoint ended badly");
                            desks.at_work.retain(|_, desk| Arc::strong_count(desk) > 2);
                        }
                    }
                }
                () = tokio::time::sleep(pause) => {}
                _ = stop.changed() => {}
            }
        }
        let ended = async { while desks.busy.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, ended).await.is_err() {
            tracing::warn!("some webhooks did not end in time");
        }
    }

    /// Spreads what is new and tells everybody who is due, once. For those who drive time themselves.
    pub async fn tell_due(self: &Arc<Self>) {
        while self.spread().await {}
        let (_going, stop) = watch::channel(false);
        let mut desks = Desks::default();
        self.open_desks(&mut desks, &stop).await;
        while desks.busy.join_next().await.is_some() {}
    }

    /// Writes down who is owed what. True when there is more.
    async fn spread(&self) -> bool {
        match self.store.spread(SPREAD_AT_ONCE, self.now()).await {
            Ok(spread) => spread.more,
            Err(error) => {
                tracing::warn!(%error, "spreading events");
                false
            }
        }
    }

    async fn until_next_notice(&self) -> Duration {
        let longest = if self.tails.told.load(Ordering::Relaxed) { LOOK_ANYWAY } else { LOOK_OFTEN };
        match self.store.next_notice_due().await {
            Ok(None) => longest,
            Ok(Some(due)) => match u64::try_from(due.since(self.now())) {
                Ok(ms) if ms > 0 => Duration::from_millis(ms).min(longest),
                // What is due already waits at a desk, and we are woken when that has done its work.
                _ => LOOK_OFTEN,
            },
            Err(error) => {
                tracing::warn!(%error, "asking when the next notice is due");
                longest
            }
        }
    }

    /// Puts every endpoint with something due to work.
    async fn open_desks(self: &Arc<Self>, desks: &mut Desks, stop: &watch::Receiver<bool>) {
        let most = desks.at_work.len() + IDLE_ENDPOINTS;
        let due = match self.store.endpoints_due(most, self.now()).await {
            Ok(due) => due,
            Err(error) => return tracing::warn!(%error, "asking which endpoints are due"),
        };
        if desks.all.len() > DESKS {
            desks.all.retain(|id, _| desks.at_work.contains_key(id));
        }
        for endpoint in due {
            let id = endpoint.id;
            if let Some(desk) = desks.at_work.get(&id) {
                desk.learn(endpoint);
                continue;
            }
            let desk = match desks.all.get(&id) {
                Some(desk) => {
                    desk.learn(endpoint);
                    Arc::clone(desk)
                }
                None => Arc::new(Desk::new(endpoint, self.time.even())),
            };
            desks.all.insert(id, Arc::clone(&desk));
            desks.at_work.insert(id, Arc::clone(&desk));
            desks.busy.spawn(Arc::clone(self).work_at(desk, stop.clone()));
        }
    }

    /// Tells one endpoint until nothing is due there.
    async fn work_at(self: Arc<Self>, desk: Arc<Desk>, mut stop: watch::Receiver<bool>) -> EndpointId {
        let id = desk.endpoint().id;
        let mut under_way = JoinSet::new();
        loop {
            let ending = *stop.borrow();
            let room = if ending { 0 } else { desk.room(under_way.len(), self.time.even()) };
            let took = if room > 0 { self.take_notices(&desk, room, &mut under_way).await } else { 0 };
            if took == room && room > 0 {
                continue;
            }
            if under_way.is_empty() && (ending || room > 0) {
                return id;
            }
            tokio::select! {
                biased;
                Some(_) = under_way.join_next() => while under_way.try_join_next().is_some() {},
                () = desk.news.notified() => {}
                () = tokio::time::sleep(desk.next_token()), if room == 0 && !ending => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Leases what there is room for and sets it going. How many there were.
    async fn take_notices(self: &Arc<Self>, desk: &Arc<Desk>, room: usize, under_way: &mut JoinSet<()>) -> usize {
        let Some(name) = self.introduced().await else { return 0 };
        let endpoint = desk.endpoint();
        let leased = self.store.lease_notices(endpoint.team, endpoint.id, name.id, room, self.now()).await;
        let leased = leased.unwrap_or_else(|error| {
            tracing::warn!(%error, "leasing notices");
            self.lost_lease(&error, &name);
            Vec::new()
        });
        let took = leased.len();
        desk.begin(took);
        for owed in leased {
            let (engine, desk, name) = (Arc::clone(self), Arc::clone(desk), Arc::clone(&name));
            under_way.spawn(async move { engine.attempt_notice(&desk, owed, &name).await });
        }
        took
    }

    /// One attempt, from lease to settled.
    async fn attempt_notice(&self, desk: &Desk, owed: Owed, _at_work_under: &Arc<Name>) {
        crate::failpoint!("notice-leased");
        let at = self.now();
        let endpoint = desk.endpoint();
        let refused = |trouble, why: &str| Told { answer: Err((trouble, why.to_owned())), ms: 0 };
        let told = match self.to_post(&endpoint, &owed, at).await {
            ToPost::This(post) => {
                crate::failpoint!("notice-posting");
                Ok(self.outside.notify.post(post).await)
            }
            ToPost::Sealed => Ok(refused(Trouble::Blocked, "the secrets cannot be opened")),
            ToPost::Later(error) => {
                tracing::warn!(%error, "reading what a notice is about");
                Ok(refused(Trouble::Broken, "the ledger could not tell what it is about"))
            }
            ToPost::Nothing(why) => Err(why),
        };
        crate::failpoint!("notice-answered");
        let (attempt, answer) = match told {
            Ok(told) => self.understood(&owed, told, at),
            Err(why) => untold(&owed, why, at),
        };
        desk.heard(matches!(answer, Answer::Delivered | Answer::Dropped));
        self.metrics.told(answer, attempt.trouble);
        let settle =
            NoticeSettle { team: owed.notice.team, id: owed.notice.id, attempt, answer, chance: self.chance.number() };
        self.settle_notice(settle).await;
        crate::failpoint!("notice-settled");
    }

    /// A signed request to an endpoint. `None` when its secrets cannot be opened.
    pub(crate) fn post_to(&self, endpoint: &Endpoint, id: String, body: String, at: Time) -> Option<Post> {
        let secrets = self.endpoint_secrets(endpoint, at);
        let headers = self.endpoint_headers(endpoint);
        let (Some(secrets), Some(headers)) = (secrets, headers) else {
            tracing::error!(endpoint = %endpoint.id, "the secrets of an endpoint cannot be opened");
            return None;
        };
        let url = endpoint.about.url.clone();
        Some(Post { url, id, at: at.0.div_euclid(1_000), secrets, headers, body: body.into_bytes() })
    }

    /// What an attempt was, and what its answer means.
    fn understood(&self, owed: &Owed, told: Told, at: Time) -> (NoticeAttempt, Answer) {
        let number = owed.notice.attempts;
        match told.answer {
            Ok(reply) => {
                let answer = meaning(Some(reply.status), |name| reply.header(name), self.now());
                let trouble = (answer != Answer::Delivered).then_some(Trouble::Status);
                let (status, latency_ms) = (Some(reply.status), told.ms);
                (NoticeAttempt { number, at, status, latency_ms, answer: reply.excerpt, trouble }, answer)
            }
            Err((trouble, why)) => {
                let attempt = NoticeAttempt {
                    number,
                    at,
                    status: None,
                    latency_ms: told.ms,
                    answer: why,
                    trouble: Some(trouble),
                };
                (attempt, meaning(None, |_| None, self.now()))
            }
        }
    }

    /// Writes an outcome down. After a while the lease is over and somebody else tells it again, under the same id.
    async fn settle_notice(&self, settle: NoticeSettle) {
        let mut pause = Duration::from_millis(20);
        let began = self.time.even();
        while let Err(error) = self.store.settle_notice(settle.clone(), self.now()).await {
            tracing::warn!(%error, "writing down what became of a notice");
            if self.store.stopped().is_some() || self.time.even() - began > limits::NOTICE_HELD_MS {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(WRITE_AGAIN);
        }
    }
}
