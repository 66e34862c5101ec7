//! Telling applications: events become notices, and each endpoint gets its own at its own pace.
//!
//! Every endpoint has a desk of its own. How many requests it has under way depends on how it answers, so one that is
//! slow or gone keeps a single connection busy and delays nobody else.

use crate::{
    events::{
        Events,
        event_format::{NoticeRequest, skipped_attempt},
    },
    runtime::lease_identity::LeaseIdentity,
};
use mailonce_core::{
    events::{
        endpoint::Endpoint,
        notice::{LeasedNotice, NoticeAttempt, NoticeOutcome, WebhookError, WebhookVerdict, classify_response},
        webhook::{OutgoingWebhook, WebhookResult},
    },
    id::EndpointId,
    limits,
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

/// Events looked at in one transaction.
const FAN_OUT_BATCH: usize = 512;
/// Requests to one endpoint under way at a time: at first, and at the most.
const INITIAL_CONCURRENCY: usize = 4;
const MAX_CONCURRENCY: usize = 32;
/// Endpoints that are looked for beside those that are busy.
const IDLE_ENDPOINTS: usize = 256;
/// Desks that are remembered while nothing is due.
const WORKER_CACHE_CAPACITY: usize = 10_000;
/// The longest sleep; wake-ups make it shorter.
const MAX_SLEEP: Duration = Duration::from_secs(2);
/// The same where others may leave work that nobody tells of.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The shortest time between two looks that news ask for: a busy ledger has some a thousand times a second.
const MIN_PASS_INTERVAL: Duration = Duration::from_millis(10);
/// How long requests may take to end when we stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pause before an outcome is written again.
const RECORD_RETRY_MAX_DELAY: Duration = Duration::from_secs(2);

/// One endpoint's requests.
pub(crate) struct EndpointWorker {
    endpoint: RwLock<Arc<Endpoint>>,
    throttle: Mutex<EndpointThrottle>,
    /// More may be due.
    work_available: Notify,
}

/// How fast an endpoint is told.
struct EndpointThrottle {
    /// Requests under way at a time.
    concurrency: usize,
    /// Requests that its limit allows now, and when that was counted.
    tokens: f64,
    refilled_at: i64,
}

impl EndpointWorker {
    fn new(endpoint: Endpoint, even: i64) -> Self {
        let tokens = f64::from(endpoint.config.rate_per_s.unwrap_or(1));
        Self {
            endpoint: RwLock::new(Arc::new(endpoint)),
            throttle: Mutex::new(EndpointThrottle { concurrency: INITIAL_CONCURRENCY, tokens, refilled_at: even }),
            work_available: Notify::new(),
        }
    }

    fn endpoint(&self) -> Arc<Endpoint> {
        Arc::clone(&self.endpoint.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The endpoint as it is now.
    fn update_endpoint(&self, endpoint: Endpoint) {
        *self.endpoint.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(endpoint);
        self.work_available.notify_one();
    }

    /// How many more requests may begin.
    fn free_slots(&self, under_way: usize, even: i64) -> usize {
        let rate = self.endpoint().config.rate_per_s.map(f64::from);
        let mut pace = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        // A few at a time, so that not every answer costs a lease of its own.
        let free = pace.concurrency.saturating_sub(under_way);
        let room = if free < pace.concurrency / 4 { 0 } else { free };
        let Some(rate) = rate else { return room };
        pace.tokens = (pace.tokens + (even - pace.refilled_at).max(0) as f64 / 1_000.0 * rate).min(rate.max(1.0));
        pace.refilled_at = even;
        room.min(pace.tokens as usize)
    }

    /// Counts requests that begin.
    fn take_tokens(&self, count: usize) {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner).tokens -= count as f64;
    }

    /// Learns from an answer how much the endpoint takes.
    fn adjust_concurrency(&self, well: bool) {
        let mut pace = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        pace.concurrency =
            if well { (pace.concurrency + 1).min(MAX_CONCURRENCY) } else { (pace.concurrency / 2).max(1) };
    }

    /// How long to wait for the limit's next request.
    fn token_delay(&self) -> Duration {
        let rate = self.endpoint().config.rate_per_s.unwrap_or(1).max(1);
        Duration::from_secs(1) / rate
    }
}

/// The desks of this process, and those of them that are busy.
#[derive(Default)]
struct EndpointWorkers {
    workers: HashMap<EndpointId, Arc<EndpointWorker>>,
    tasks: JoinSet<EndpointId>,
    running: HashMap<EndpointId, Arc<EndpointWorker>>,
}

impl Events {
    /// Tells endpoints of events until `stop` changes.
    pub async fn run_notifier(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut desks = EndpointWorkers::default();
        while !*stop.borrow() {
            let looked = Instant::now();
            let more = self.fan_out().await;
            self.spawn_endpoint_workers(&mut desks, &stop).await;
            if more {
                continue;
            }
            let pause = self.time_until_next_notice().await;
            tokio::select! {
                biased;
                () = self.notice_wakeup.notified() => tokio::time::sleep_until(looked + MIN_PASS_INTERVAL).await,
                Some(ended) = desks.tasks.join_next() => {
                    match ended {
                        Ok(id) => drop(desks.running.remove(&id)),
                        Err(error) => {
                            tracing::error!(%error, "a desk of an endpoint ended badly");
                            desks.running.retain(|_, desk| Arc::strong_count(desk) > 2);
                        }
                    }
                }
                () = tokio::time::sleep(pause) => {}
                _ = stop.changed() => {}
            }
        }
        let ended = async { while desks.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, ended).await.is_err() {
            tracing::warn!("some webhooks did not end in time");
        }
    }

    /// Spreads what is new and tells everybody who is due, once. For those who drive time themselves.
    pub async fn deliver_due_notices(self: &Arc<Self>) {
        while self.fan_out().await {}
        let (_going, stop) = watch::channel(false);
        let mut desks = EndpointWorkers::default();
        self.spawn_endpoint_workers(&mut desks, &stop).await;
        while desks.tasks.join_next().await.is_some() {}
    }

    /// Writes down who is owed what. True when there is more.
    async fn fan_out(&self) -> bool {
        match self.ctx.store.fan_out(FAN_OUT_BATCH, self.ctx.now()).await {
            Ok(spread) => spread.has_more,
            Err(error) => {
                tracing::warn!(%error, "spreading events");
                false
            }
        }
    }

    async fn time_until_next_notice(&self) -> Duration {
        let longest =
            if self.event_tails.has_push_wake_ups.load(Ordering::Relaxed) { MAX_SLEEP } else { POLL_INTERVAL };
        match self.ctx.store.next_notice_due().await {
            Ok(None) => longest,
            Ok(Some(due)) => match u64::try_from(due.since(self.ctx.now())) {
                Ok(ms) if ms > 0 => Duration::from_millis(ms).min(longest),
                // What is due already waits at a desk, and we are woken when that has done its work.
                _ => POLL_INTERVAL,
            },
            Err(error) => {
                tracing::warn!(%error, "asking when the next notice is due");
                longest
            }
        }
    }

    /// Puts every endpoint with something due to work.
    async fn spawn_endpoint_workers(self: &Arc<Self>, desks: &mut EndpointWorkers, stop: &watch::Receiver<bool>) {
        let most = desks.running.len() + IDLE_ENDPOINTS;
        let due = match self.ctx.store.endpoints_with_due_notices(most, self.ctx.now()).await {
            Ok(due) => due,
            Err(error) => return tracing::warn!(%error, "asking which endpoints are due"),
        };
        if desks.workers.len() > WORKER_CACHE_CAPACITY {
            desks.workers.retain(|id, _| desks.running.contains_key(id));
        }
        for endpoint in due {
            let id = endpoint.id;
            if let Some(desk) = desks.running.get(&id) {
                desk.update_endpoint(endpoint);
                continue;
            }
            let desk = match desks.workers.get(&id) {
                Some(desk) => {
                    desk.update_endpoint(endpoint);
                    Arc::clone(desk)
                }
                None => Arc::new(EndpointWorker::new(endpoint, self.ctx.time.boot_clock_ms())),
            };
            desks.workers.insert(id, Arc::clone(&desk));
            desks.running.insert(id, Arc::clone(&desk));
            desks.tasks.spawn(Arc::clone(self).run_endpoint_worker(desk, stop.clone()));
        }
    }

    /// Tells one endpoint until nothing is due there.
    async fn run_endpoint_worker(
        self: Arc<Self>,
        desk: Arc<EndpointWorker>,
        mut stop: watch::Receiver<bool>,
    ) -> EndpointId {
        let id = desk.endpoint().id;
        let mut under_way = JoinSet::new();
        loop {
            let ending = *stop.borrow();
            let room = if ending { 0 } else { desk.free_slots(under_way.len(), self.ctx.time.boot_clock_ms()) };
            let took = if room > 0 { self.lease_notices(&desk, room, &mut under_way).await } else { 0 };
            if took == room && room > 0 {
                continue;
            }
            if under_way.is_empty() && (ending || room > 0) {
                return id;
            }
            tokio::select! {
                biased;
                Some(_) = under_way.join_next() => while under_way.try_join_next().is_some() {},
                () = desk.work_available.notified() => {}
                () = tokio::time::sleep(desk.token_delay()), if room == 0 && !ending => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Leases what there is room for and sets it going. How many there were.
    async fn lease_notices(
        self: &Arc<Self>,
        desk: &Arc<EndpointWorker>,
        room: usize,
        under_way: &mut JoinSet<()>,
    ) -> usize {
        let Some(name) = self.ctx.ensure_heartbeat().await else { return 0 };
        let endpoint = desk.endpoint();
        let leased = self.ctx.store.lease_notices(endpoint.team, endpoint.id, name.id, room, self.ctx.now()).await;
        let leased = leased.unwrap_or_else(|error| {
            tracing::warn!(%error, "leasing notices");
            self.ctx.replace_identity_if_lease_lost(&error, &name);
            Vec::new()
        });
        let took = leased.len();
        desk.take_tokens(took);
        for owed in leased {
            let (events, desk, name) = (Arc::clone(self), Arc::clone(desk), Arc::clone(&name));
            under_way.spawn(async move { events.attempt_notice(&desk, owed, &name).await });
        }
        took
    }

    /// One attempt, from lease to settled.
    async fn attempt_notice(&self, desk: &EndpointWorker, owed: LeasedNotice, _at_work_under: &Arc<LeaseIdentity>) {
        crate::failpoint!("notice-leased");
        let at = self.ctx.now();
        let endpoint = desk.endpoint();
        let refused = |trouble, why: &str| WebhookResult { response: Err((trouble, why.to_owned())), latency_ms: 0 };
        let told = match self.build_notice_request(&endpoint, &owed, at).await {
            NoticeRequest::Post(post) => {
                crate::failpoint!("notice-posting");
                Ok(self.ctx.deps.webhook_sender.post(post).await)
            }
            NoticeRequest::SecretsUnavailable => Ok(refused(WebhookError::Blocked, "the secrets cannot be opened")),
            NoticeRequest::Retry(error) => {
                tracing::warn!(%error, "reading what a notice is about");
                Ok(refused(WebhookError::Broken, "the ledger could not tell what it is about"))
            }
            NoticeRequest::Skip(why) => Err(why),
        };
        crate::failpoint!("notice-answered");
        let (attempt, answer) = match told {
            Ok(told) => self.interpret_answer(&owed, told, at),
            Err(why) => skipped_attempt(&owed, why, at),
        };
        desk.adjust_concurrency(matches!(answer, WebhookVerdict::Delivered | WebhookVerdict::Dropped));
        self.ctx.metrics.record_notice_attempt(answer, attempt.error);
        let settle = NoticeOutcome {
            team: owed.notice.team,
            id: owed.notice.id,
            attempt,
            verdict: answer,
            jitter_seed: self.ctx.entropy.next_u64(),
        };
        self.record_notice_outcome(settle).await;
        crate::failpoint!("notice-settled");
    }

    /// A signed request to an endpoint. `None` when its secrets cannot be opened.
    pub(crate) fn signed_post(
        &self,
        endpoint: &Endpoint,
        id: String,
        body: String,
        at: Time,
    ) -> Option<OutgoingWebhook> {
        let secrets = self.endpoint_secrets(endpoint, at);
        let headers = self.endpoint_headers(endpoint);
        let (Some(secrets), Some(headers)) = (secrets, headers) else {
            tracing::error!(endpoint = %endpoint.id, "the secrets of an endpoint cannot be opened");
            return None;
        };
        let url = endpoint.config.url.clone();
        Some(OutgoingWebhook {
            url,
            id,
            timestamp_s: at.0.div_euclid(1_000),
            secrets,
            headers,
            body: body.into_bytes(),
        })
    }

    /// What an attempt was, and what its answer means.
    fn interpret_answer(&self, owed: &LeasedNotice, told: WebhookResult, at: Time) -> (NoticeAttempt, WebhookVerdict) {
        let number = owed.notice.attempts;
        match told.response {
            Ok(reply) => {
                let answer = classify_response(Some(reply.status), |name| reply.header(name), self.ctx.now());
                let trouble = (answer != WebhookVerdict::Delivered).then_some(WebhookError::Status);
                let (status, latency_ms) = (Some(reply.status), told.latency_ms);
                (NoticeAttempt { number, at, status, latency_ms, response: reply.excerpt, error: trouble }, answer)
            }
            Err((trouble, why)) => {
                let attempt = NoticeAttempt {
                    number,
                    at,
                    status: None,
                    latency_ms: told.latency_ms,
                    response: why,
                    error: Some(trouble),
                };
                (attempt, classify_response(None, |_| None, self.ctx.now()))
            }
        }
    }

    /// Writes an outcome down. After a while the lease is over and somebody else tells it again, under the same id.
    async fn record_notice_outcome(&self, settle: NoticeOutcome) {
        let mut pause = Duration::from_millis(20);
        let began = self.ctx.time.boot_clock_ms();
        while let Err(error) = self.ctx.store.record_notice_outcome(settle.clone(), self.ctx.now()).await {
            tracing::warn!(%error, "writing down what became of a notice");
            if self.ctx.store.fatal_error().is_some() || self.ctx.time.boot_clock_ms() - began > limits::NOTICE_LEASE_MS
            {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RECORD_RETRY_MAX_DELAY);
        }
    }
}
