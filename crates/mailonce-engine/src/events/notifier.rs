//! The notifier: creates notices from events and sends them to endpoints as webhooks.
//!
//! Every endpoint has a worker of its own, whose concurrency depends on how the endpoint responds. So an endpoint that
//! is slow or down uses a single connection and doesn't delay the others.

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

/// How many events one transaction fans out.
const FAN_OUT_BATCH: usize = 512;
/// Concurrent requests to one endpoint at first.
const INITIAL_CONCURRENCY: usize = 4;
/// The most concurrent requests to one endpoint.
const MAX_CONCURRENCY: usize = 32;
/// How many due endpoints are queried in addition to the busy ones.
const IDLE_ENDPOINTS: usize = 256;
/// How many idle workers are remembered.
const WORKER_CACHE_CAPACITY: usize = 10_000;
/// The longest sleep when the store pushes wake-ups.
const MAX_SLEEP: Duration = Duration::from_secs(2);
/// The longest sleep when other nodes may add work without a wake-up.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The shortest time between two passes. A busy store sends a thousand wake-ups a second.
const MIN_PASS_INTERVAL: Duration = Duration::from_millis(10);
/// How long running requests may take to finish when the server shuts down.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest delay before recording an outcome is retried.
const RECORD_RETRY_MAX_DELAY: Duration = Duration::from_secs(2);

/// The state of one endpoint's worker.
pub(crate) struct EndpointWorker {
    endpoint: RwLock<Arc<Endpoint>>,
    throttle: Mutex<EndpointThrottle>,
    /// Wakes the worker when more notices may be due.
    work_available: Notify,
}

/// How fast an endpoint gets requests.
struct EndpointThrottle {
    /// The most concurrent requests.
    concurrency: usize,
    /// The tokens of its rate limit: one for each request.
    tokens: f64,
    /// When the tokens were last refilled, by the boot clock.
    refilled_at: i64,
}

impl EndpointWorker {
    fn new(endpoint: Endpoint, boot_ms: i64) -> Self {
        let tokens = f64::from(endpoint.config.rate_per_s.unwrap_or(1));
        Self {
            endpoint: RwLock::new(Arc::new(endpoint)),
            throttle: Mutex::new(EndpointThrottle { concurrency: INITIAL_CONCURRENCY, tokens, refilled_at: boot_ms }),
            work_available: Notify::new(),
        }
    }

    fn endpoint(&self) -> Arc<Endpoint> {
        Arc::clone(&self.endpoint.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the endpoint with its current state and wakes the worker.
    fn update_endpoint(&self, endpoint: Endpoint) {
        *self.endpoint.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(endpoint);
        self.work_available.notify_one();
    }

    /// How many more requests may start now.
    fn free_slots(&self, in_flight: usize, boot_ms: i64) -> usize {
        let rate = self.endpoint().config.rate_per_s.map(f64::from);
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        // Starts several at once, so that not every response costs a lease of its own.
        let free = throttle.concurrency.saturating_sub(in_flight);
        let slots = if free < throttle.concurrency / 4 { 0 } else { free };
        let Some(rate) = rate else { return slots };
        throttle.tokens =
            (throttle.tokens + (boot_ms - throttle.refilled_at).max(0) as f64 / 1_000.0 * rate).min(rate.max(1.0));
        throttle.refilled_at = boot_ms;
        slots.min(throttle.tokens as usize)
    }

    /// Takes the tokens of requests that start.
    fn take_tokens(&self, count: usize) {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner).tokens -= count as f64;
    }

    /// Raises the concurrency by one after a success and halves it after a failure.
    fn adjust_concurrency(&self, is_success: bool) {
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        throttle.concurrency = if is_success {
            (throttle.concurrency + 1).min(MAX_CONCURRENCY)
        } else {
            (throttle.concurrency / 2).max(1)
        };
    }

    /// How long the rate limit needs for the next token.
    fn token_delay(&self) -> Duration {
        let rate = self.endpoint().config.rate_per_s.unwrap_or(1).max(1);
        Duration::from_secs(1) / rate
    }
}

/// The endpoint workers of this process, and those of them that run.
#[derive(Default)]
struct EndpointWorkers {
    workers: HashMap<EndpointId, Arc<EndpointWorker>>,
    tasks: JoinSet<EndpointId>,
    running: HashMap<EndpointId, Arc<EndpointWorker>>,
}

impl Events {
    /// Sends webhooks until `stop` changes.
    pub async fn run_notifier(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut workers = EndpointWorkers::default();
        while !*stop.borrow() {
            let pass_started = Instant::now();
            let has_more = self.fan_out().await;
            self.spawn_endpoint_workers(&mut workers, &stop).await;
            if has_more {
                continue;
            }
            let pause = self.time_until_next_notice().await;
            tokio::select! {
                biased;
                () = self.notice_wakeup.notified() => tokio::time::sleep_until(pass_started + MIN_PASS_INTERVAL).await,
                Some(ended) = workers.tasks.join_next() => {
                    match ended {
                        Ok(id) => drop(workers.running.remove(&id)),
                        Err(error) => {
                            tracing::error!(%error, "the worker of an endpoint panicked");
                            workers.running.retain(|_, worker| Arc::strong_count(worker) > 2);
                        }
                    }
                }
                () = tokio::time::sleep(pause) => {}
                _ = stop.changed() => {}
            }
        }
        let ended = async { while workers.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, ended).await.is_err() {
            tracing::warn!("some webhook requests did not finish before shutdown");
        }
    }

    /// Fans out new events and sends all due notices, once. For callers that control time themselves, such as
    /// simulations.
    pub async fn deliver_due_notices(self: &Arc<Self>) {
        while self.fan_out().await {}
        let (_stop_sender, stop) = watch::channel(false);
        let mut workers = EndpointWorkers::default();
        self.spawn_endpoint_workers(&mut workers, &stop).await;
        while workers.tasks.join_next().await.is_some() {}
    }

    /// Creates notices for new events. Returns true when more events wait.
    async fn fan_out(&self) -> bool {
        match self.ctx.store.fan_out(FAN_OUT_BATCH, self.ctx.now()).await {
            Ok(result) => result.has_more,
            Err(error) => {
                tracing::warn!(%error, "fanning out events failed");
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
                // Its worker has the due notice already, and wakes us when it finishes.
                _ => POLL_INTERVAL,
            },
            Err(error) => {
                tracing::warn!(%error, "querying when the next notice is due failed");
                longest
            }
        }
    }

    /// Starts or wakes the worker of every endpoint that has due notices.
    async fn spawn_endpoint_workers(self: &Arc<Self>, workers: &mut EndpointWorkers, stop: &watch::Receiver<bool>) {
        let limit = workers.running.len() + IDLE_ENDPOINTS;
        let due = match self.ctx.store.endpoints_with_due_notices(limit, self.ctx.now()).await {
            Ok(due) => due,
            Err(error) => return tracing::warn!(%error, "querying which endpoints have due notices failed"),
        };
        if workers.workers.len() > WORKER_CACHE_CAPACITY {
            workers.workers.retain(|id, _| workers.running.contains_key(id));
        }
        for endpoint in due {
            let id = endpoint.id;
            if let Some(worker) = workers.running.get(&id) {
                worker.update_endpoint(endpoint);
                continue;
            }
            let worker = match workers.workers.get(&id) {
                Some(worker) => {
                    worker.update_endpoint(endpoint);
                    Arc::clone(worker)
                }
                None => Arc::new(EndpointWorker::new(endpoint, self.ctx.time.boot_clock_ms())),
            };
            workers.workers.insert(id, Arc::clone(&worker));
            workers.running.insert(id, Arc::clone(&worker));
            workers.tasks.spawn(Arc::clone(self).run_endpoint_worker(worker, stop.clone()));
        }
    }

    /// Sends the due notices of one endpoint until none is left.
    async fn run_endpoint_worker(
        self: Arc<Self>,
        worker: Arc<EndpointWorker>,
        mut stop: watch::Receiver<bool>,
    ) -> EndpointId {
        let id = worker.endpoint().id;
        let mut in_flight = JoinSet::new();
        loop {
            let is_stopping = *stop.borrow();
            let slots = if is_stopping { 0 } else { worker.free_slots(in_flight.len(), self.ctx.time.boot_clock_ms()) };
            let leased = if slots > 0 { self.lease_and_spawn(&worker, slots, &mut in_flight).await } else { 0 };
            if leased == slots && slots > 0 {
                continue;
            }
            if in_flight.is_empty() && (is_stopping || slots > 0) {
                return id;
            }
            tokio::select! {
                biased;
                Some(_) = in_flight.join_next() => while in_flight.try_join_next().is_some() {},
                () = worker.work_available.notified() => {}
                () = tokio::time::sleep(worker.token_delay()), if slots == 0 && !is_stopping => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Leases as many notices as there are free slots and spawns an attempt for each. Returns how many there were.
    async fn lease_and_spawn(
        self: &Arc<Self>,
        worker: &Arc<EndpointWorker>,
        slots: usize,
        in_flight: &mut JoinSet<()>,
    ) -> usize {
        let Some(identity) = self.ctx.ensure_heartbeat().await else { return 0 };
        let endpoint = worker.endpoint();
        let leased = self.ctx.store.lease_notices(endpoint.team, endpoint.id, identity.id, slots, self.ctx.now()).await;
        let leased = leased.unwrap_or_else(|error| {
            tracing::warn!(%error, "leasing notices failed");
            self.ctx.replace_identity_if_lease_lost(&error, &identity);
            Vec::new()
        });
        let count = leased.len();
        worker.take_tokens(count);
        for notice in leased {
            let (events, worker, identity) = (Arc::clone(self), Arc::clone(worker), Arc::clone(&identity));
            in_flight.spawn(async move { events.attempt_notice(&worker, notice, &identity).await });
        }
        count
    }

    /// One attempt at a leased notice, up to its recorded outcome.
    async fn attempt_notice(&self, worker: &EndpointWorker, leased: LeasedNotice, _identity: &Arc<LeaseIdentity>) {
        crate::failpoint!("notice-leased");
        let at = self.ctx.now();
        let endpoint = worker.endpoint();
        let failure =
            |error_kind, why: &str| WebhookResult { response: Err((error_kind, why.to_owned())), latency_ms: 0 };
        let response = match self.build_notice_request(&endpoint, &leased, at).await {
            NoticeRequest::Post(post) => {
                crate::failpoint!("notice-posting");
                Ok(self.ctx.deps.webhook_sender.post(post).await)
            }
            NoticeRequest::SecretsUnavailable => {
                Ok(failure(WebhookError::Blocked, "the endpoint's secrets cannot be decrypted"))
            }
            NoticeRequest::Retry(error) => {
                tracing::warn!(%error, "reading the data of a notice's event failed");
                Ok(failure(WebhookError::Broken, "the data of the event could not be read"))
            }
            NoticeRequest::Skip(why) => Err(why),
        };
        crate::failpoint!("notice-answered");
        let (attempt, verdict) = match response {
            Ok(response) => self.interpret_answer(&leased, response, at),
            Err(why) => skipped_attempt(&leased, why, at),
        };
        worker.adjust_concurrency(matches!(verdict, WebhookVerdict::Delivered | WebhookVerdict::Dropped));
        self.ctx.metrics.record_notice_attempt(verdict, attempt.error);
        let outcome = NoticeOutcome {
            team: leased.notice.team,
            id: leased.notice.id,
            attempt,
            verdict,
            jitter_seed: self.ctx.entropy.next_u64(),
        };
        self.record_notice_outcome(outcome).await;
        crate::failpoint!("notice-settled");
    }

    /// A signed request to an endpoint. `None` when its secrets cannot be decrypted.
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
            tracing::error!(endpoint = %endpoint.id, "the secrets of an endpoint cannot be decrypted");
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

    /// The attempt to record for a response, and the verdict on it.
    fn interpret_answer(
        &self,
        leased: &LeasedNotice,
        result: WebhookResult,
        at: Time,
    ) -> (NoticeAttempt, WebhookVerdict) {
        let number = leased.notice.attempts;
        match result.response {
            Ok(reply) => {
                let verdict = classify_response(Some(reply.status), |name| reply.header(name), self.ctx.now());
                let error = (verdict != WebhookVerdict::Delivered).then_some(WebhookError::Status);
                let (status, latency_ms) = (Some(reply.status), result.latency_ms);
                (NoticeAttempt { number, at, status, latency_ms, response: reply.excerpt, error }, verdict)
            }
            Err((error, why)) => {
                let attempt = NoticeAttempt {
                    number,
                    at,
                    status: None,
                    latency_ms: result.latency_ms,
                    response: why,
                    error: Some(error),
                };
                (attempt, classify_response(None, |_| None, self.ctx.now()))
            }
        }
    }

    /// Records an outcome, and retries until the lease has expired. Then another attempt sends the notice again, with
    /// the same id.
    async fn record_notice_outcome(&self, outcome: NoticeOutcome) {
        let mut pause = Duration::from_millis(20);
        let started_at = self.ctx.time.boot_clock_ms();
        while let Err(error) = self.ctx.store.record_notice_outcome(outcome.clone(), self.ctx.now()).await {
            tracing::warn!(%error, "recording the outcome of a notice failed");
            if self.ctx.store.fatal_error().is_some()
                || self.ctx.time.boot_clock_ms() - started_at > limits::NOTICE_LEASE_MS
            {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RECORD_RETRY_MAX_DELAY);
        }
    }
}
