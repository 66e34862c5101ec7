//! A worker that pauses between its marker and the send, while another process takes over and the provider forgets the
//! key.

use async_trait::async_trait;
use mailonce_core::{
    handoff::{
        capabilities::TransportCapabilities,
        reply::TransportReply,
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    outbound::email::{EmailState, OnUnknown},
    ports::transport::{PreparedHandoff, Transport},
};
use mailonce_sim::sink::http::{HttpSink, ScriptedResponse, Vendor};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

use crate::{
    engine_fixture::{DAY, EngineStore, EngineStoreKind, HOUR, MINUTE, ManualClock, SECOND, TestEngine},
    next_hop::{HopKind, HopSink, TestHop, provider_setting, provider_transport},
};

/// The maximum age of a connection when the request is written.
const MAX_CONNECTION_AGE: Duration = Duration::from_millis(300);

/// A transport that pauses its worker before the marker or after it.
struct PausingTransport {
    inner: Arc<dyn Transport>,
    before_marker: bool,
    paused: Arc<Semaphore>,
    resume: Arc<Semaphore>,
}

impl PausingTransport {
    async fn pause(asleep: &Semaphore, wake: &Semaphore) {
        asleep.add_permits(1);
        // One call resumes one worker.
        if let Ok(call) = wake.acquire().await {
            call.forget();
        }
    }
}

struct PausedRequest {
    inner: Box<dyn PreparedHandoff>,
    paused: Arc<Semaphore>,
    resume: Arc<Semaphore>,
}

#[async_trait]
impl PreparedHandoff for PausedRequest {
    async fn hand_over(self: Box<Self>) -> TransportReply {
        PausingTransport::pause(&self.paused, &self.resume).await;
        self.inner.hand_over().await
    }
}

#[async_trait]
impl Transport for PausingTransport {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn account(&self) -> &str {
        self.inner.account()
    }

    fn capabilities(&self) -> TransportCapabilities {
        // The engine's own timeout is not tested here.
        TransportCapabilities { timeout_ms: 60_000, ..self.inner.capabilities() }
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        self.inner.freeze(mail)
    }

    async fn prepare(&self, parcel: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        let inner = self.inner.prepare(parcel).await?;
        if self.before_marker {
            Self::pause(&self.paused, &self.resume).await;
            return Ok(inner);
        }
        Ok(Box::new(PausedRequest { inner, paused: Arc::clone(&self.paused), resume: Arc::clone(&self.resume) }))
    }

    async fn look_up(&self, asked: LookUpRequest) -> LookUpResult {
        self.inner.look_up(asked).await
    }
}

/// The state of the provider when the worker resumes.
struct PausedWorkerScenario<'a> {
    kind: EngineStoreKind,
    before_marker: bool,
    /// Whether the pause is longer than a connection's maximum age and the provider's memory.
    past_window: bool,
    hop: &'a TestHop,
}

impl PausedWorkerScenario<'_> {
    /// One worker pauses, another takes over, and the first resumes. Returns the final state of the email.
    async fn run(&self) -> EmailState {
        let (store, clock) = (EngineStore::new(self.kind), ManualClock::new());
        let (asleep, wake) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let sleepy: Arc<dyn Transport> = Arc::new(PausingTransport {
            inner: Arc::clone(&self.hop.transport),
            before_marker: self.before_marker,
            paused: Arc::clone(&asleep),
            resume: Arc::clone(&wake),
        });
        let first = TestEngine::start(&store, vec![sleepy], &["out"], Arc::clone(&clock)).await;
        let id = first.send_sample("order-1", None, OnUnknown::Hold).await;
        asleep.acquire().await.unwrap().forget();
        // Its heartbeat stops too. Its running attempt continues when it resumes.
        first.stop();
        clock.advance(20 * SECOND);
        let second =
            TestEngine::start(&store, vec![Arc::clone(&self.hop.transport)], &["out"], Arc::clone(&clock)).await;
        let taken_over = |email: &mailonce_core::outbound::email::Email| email.state() != EmailState::Sending;
        second.wait_for_email(id, "the take-over", taken_over).await;
        second.advance(&[id], &[2 * SECOND, MINUTE]).await;
        if self.past_window {
            tokio::time::sleep(2 * MAX_CONNECTION_AGE).await;
            if let HopSink::Http(sink) = &self.hop.sink {
                sink.forget_keys();
            }
        }
        wake.add_permits(10);
        second.advance(&[id], &[MINUTE]).await;
        let late = first.wait_stopped().await;
        assert!(late, "the first worker never woke up");
        second.advance(&[id], &[2 * SECOND, HOUR, DAY]).await;
        second.state(id).await
    }
}

async fn resend_hop() -> TestHop {
    let sink = HttpSink::start().await.unwrap();
    let setting = mailonce_transport::http::HttpTransportConfig {
        max_connection_age: MAX_CONNECTION_AGE,
        ..provider_setting("out", sink.url())
    };
    let transport = provider_transport(Vendor::Resend, setting, &ManualClock::new());
    TestHop { sink: HopSink::Http(sink), transport }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_slept_past_the_window_sends_nothing() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        for before_marker in [false, true] {
            let hop = resend_hop().await;
            let state = PausedWorkerScenario { kind, before_marker, past_window: true, hop: &hop }.run().await;
            assert_eq!(
                (hop.accepted_mail().len(), state),
                (1, EmailState::Sent),
                "{kind}, before marker: {before_marker}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_slept_a_little_is_one_of_two_and_makes_one_mail() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let hop = resend_hop().await;
        let state = PausedWorkerScenario { kind, before_marker: false, past_window: false, hop: &hop }.run().await;
        assert_eq!((hop.accepted_mail().len(), state), (1, EmailState::Sent), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relays_late_reply_counts_whoever_holds_the_lease() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        for before_marker in [false, true] {
            let hop = HopKind::Relay.open("out", &ManualClock::new()).await;
            let state = PausedWorkerScenario { kind, before_marker, past_window: false, hop: &hop }.run().await;
            assert_eq!(
                (hop.accepted_mail().len(), state),
                (1, EmailState::Sent),
                "{kind}, before marker: {before_marker}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_that_slept_until_its_window_closed_is_not_made() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let (store, clock) = (EngineStore::new(kind), ManualClock::new());
        let hop = HopKind::Provider(Vendor::Resend).open("out", &clock).await;
        hop.http().queue_responses(&[ScriptedResponse::AcceptThenDrop]);
        let (asleep, wake) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let sleepy: Arc<dyn Transport> = Arc::new(PausingTransport {
            inner: Arc::clone(&hop.transport),
            before_marker: true,
            paused: Arc::clone(&asleep),
            resume: Arc::clone(&wake),
        });
        let world = TestEngine::start(&store, vec![sleepy], &["out"], clock).await;
        let id = world.send_sample("order-1", None, OnUnknown::Hold).await;
        wake.add_permits(1);
        asleep.acquire().await.unwrap().forget();
        world.wait_for_attempts(id, 1).await;
        world.clock.advance(2 * SECOND);
        asleep.acquire().await.unwrap().forget();
        // The worker is at the point of no return while a day passes.
        world.clock.advance(DAY);
        hop.http().forget_keys();
        wake.add_permits(10);
        world.advance(&[id], &[MINUTE, HOUR]).await;
        assert_eq!((hop.accepted_mail().len(), world.state(id).await), (1, EmailState::Unknown), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_worker_sends_a_heartbeat_before_it_leases() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let (store, clock) = (EngineStore::new(kind), ManualClock::new());
        let hop = HopKind::Relay.open("out", &clock).await;
        let (asleep, wake) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let sleepy: Arc<dyn Transport> = Arc::new(PausingTransport {
            inner: Arc::clone(&hop.transport),
            before_marker: false,
            paused: Arc::clone(&asleep),
            resume: Arc::clone(&wake),
        });
        let first = TestEngine::start(&store, vec![sleepy], &["out"], Arc::clone(&clock)).await;
        // One mail before, so that it had a heartbeat; the next one is due seconds later.
        let before = first.send_sample("order-0", None, OnUnknown::Hold).await;
        wake.add_permits(1);
        first.wait_for_email(before, "the first answer", |email| email.state() == EmailState::Sent).await;
        asleep.acquire().await.unwrap().forget();
        // Longer than the heartbeat timeout.
        clock.advance(20 * SECOND);
        let id = first.send_sample("order-1", None, OnUnknown::Hold).await;
        asleep.acquire().await.unwrap().forget();
        let second = TestEngine::start(&store, vec![Arc::clone(&hop.transport)], &["out"], clock).await;
        assert_eq!(second.state(id).await, EmailState::Sending, "{kind}: what it had just taken was taken over");
        wake.add_permits(1);
        second.wait_for_email(id, "the answer", |email| email.state() == EmailState::Sent).await;
        assert_eq!(hop.accepted_mail().len(), 2, "{kind}");
    }
}
