//! A worker that sleeps between its marker and the wire, while another process takes over and the provider forgets.

use async_trait::async_trait;
use mailonce_core::{
    email::{EmailState, OnUnknown},
    port::transport::{Asked, Capability, Found, Mail, Parcel, Ready, Reply, Transport, Unfit},
};
use mailonce_sim::sink::http::{Act, Sink, Vendor};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

use crate::{
    hop::{Hop, Next, Oracle, provider, setting},
    world::{DAY, HOUR, Hands, Kind, MINUTE, Place, SECOND, World},
};

/// How old a connection may be when the request is written.
const FRESH: Duration = Duration::from_millis(300);

/// A transport whose worker falls asleep, before the marker or after it.
struct Sleepy {
    inner: Arc<dyn Transport>,
    before_marker: bool,
    asleep: Arc<Semaphore>,
    wake: Arc<Semaphore>,
}

impl Sleepy {
    async fn sleep(asleep: &Semaphore, wake: &Semaphore) {
        asleep.add_permits(1);
        // One call wakes one sleeper.
        if let Ok(call) = wake.acquire().await {
            call.forget();
        }
    }
}

struct Dozing {
    inner: Box<dyn Ready>,
    asleep: Arc<Semaphore>,
    wake: Arc<Semaphore>,
}

#[async_trait]
impl Ready for Dozing {
    async fn hand_over(self: Box<Self>) -> Reply {
        Sleepy::sleep(&self.asleep, &self.wake).await;
        self.inner.hand_over().await
    }
}

#[async_trait]
impl Transport for Sleepy {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn account(&self) -> &str {
        self.inner.account()
    }

    fn capability(&self) -> Capability {
        // The engine's own patience is not what is tried here.
        Capability { patience_ms: 60_000, ..self.inner.capability() }
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        self.inner.freeze(mail)
    }

    async fn approach(&self, parcel: Parcel) -> Result<Box<dyn Ready>, Reply> {
        let inner = self.inner.approach(parcel).await?;
        if self.before_marker {
            Self::sleep(&self.asleep, &self.wake).await;
            return Ok(inner);
        }
        Ok(Box::new(Dozing { inner, asleep: Arc::clone(&self.asleep), wake: Arc::clone(&self.wake) }))
    }

    async fn look_up(&self, asked: Asked) -> Found {
        self.inner.look_up(asked).await
    }
}

/// What is at the provider's end when the worker wakes up.
struct Night<'a> {
    kind: Kind,
    before_marker: bool,
    /// Whether the worker sleeps longer than its connection may be old, and than the provider remembers.
    long: bool,
    hop: &'a Hop,
}

impl Night<'_> {
    /// One worker falls asleep, another takes over; the first wakes up. The email's state at the end.
    async fn spend(&self) -> EmailState {
        let (place, clock) = (Place::new(self.kind), Hands::new());
        let (asleep, wake) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let sleepy: Arc<dyn Transport> = Arc::new(Sleepy {
            inner: Arc::clone(&self.hop.transport),
            before_marker: self.before_marker,
            asleep: Arc::clone(&asleep),
            wake: Arc::clone(&wake),
        });
        let first = World::at(&place, vec![sleepy], &["out"], Arc::clone(&clock)).await;
        let id = first.send("order-1", None, OnUnknown::Hold).await;
        asleep.acquire().await.unwrap().forget();
        // Its heart stops with it. What it had under way goes on when it wakes up.
        first.stop();
        clock.pass(20 * SECOND);
        let second = World::at(&place, vec![Arc::clone(&self.hop.transport)], &["out"], Arc::clone(&clock)).await;
        let taken_over = |email: &mailonce_core::email::Email| email.state() != EmailState::Sending;
        second.until(id, "the take-over", taken_over).await;
        second.pass(&[id], &[2 * SECOND, MINUTE]).await;
        if self.long {
            tokio::time::sleep(2 * FRESH).await;
            if let Oracle::Http(sink) = &self.hop.sink {
                sink.forget_keys();
            }
        }
        wake.add_permits(10);
        second.pass(&[id], &[MINUTE]).await;
        let late = first.over().await;
        assert!(late, "the first worker never woke up");
        second.pass(&[id], &[2 * SECOND, HOUR, DAY]).await;
        second.state(id).await
    }
}

async fn resend() -> Hop {
    let sink = Sink::open().await.unwrap();
    let setting = mailonce_transport::http::Setting { fresh: FRESH, ..setting("out", sink.url()) };
    let transport = provider(Vendor::Resend, setting, &Hands::new());
    Hop { sink: Oracle::Http(sink), transport }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_slept_past_the_window_sends_nothing() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        for before_marker in [false, true] {
            let hop = resend().await;
            let state = Night { kind, before_marker, long: true, hop: &hop }.spend().await;
            assert_eq!((hop.taken().len(), state), (1, EmailState::Sent), "{kind}, before marker: {before_marker}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_slept_a_little_is_one_of_two_and_makes_one_mail() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let hop = resend().await;
        let state = Night { kind, before_marker: false, long: false, hop: &hop }.spend().await;
        assert_eq!((hop.taken().len(), state), (1, EmailState::Sent), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relays_late_answer_is_a_fact_whoever_holds_the_mail() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        for before_marker in [false, true] {
            let hop = Next::Relay.open("out", &Hands::new()).await;
            let state = Night { kind, before_marker, long: false, hop: &hop }.spend().await;
            assert_eq!((hop.taken().len(), state), (1, EmailState::Sent), "{kind}, before marker: {before_marker}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_that_slept_until_its_window_closed_is_not_made() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let (place, clock) = (Place::new(kind), Hands::new());
        let hop = Next::Provider(Vendor::Resend).open("out", &clock).await;
        hop.http().script(&[Act::TakeThenDrop]);
        let (asleep, wake) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let sleepy: Arc<dyn Transport> = Arc::new(Sleepy {
            inner: Arc::clone(&hop.transport),
            before_marker: true,
            asleep: Arc::clone(&asleep),
            wake: Arc::clone(&wake),
        });
        let world = World::at(&place, vec![sleepy], &["out"], clock).await;
        let id = world.send("order-1", None, OnUnknown::Hold).await;
        wake.add_permits(1);
        asleep.acquire().await.unwrap().forget();
        world.tried(id, 1).await;
        world.clock.pass(2 * SECOND);
        asleep.acquire().await.unwrap().forget();
        // The worker stands at the point of no return while a day passes.
        world.clock.pass(DAY);
        hop.http().forget_keys();
        wake.add_permits(10);
        world.pass(&[id], &[MINUTE, HOUR]).await;
        assert_eq!((hop.taken().len(), world.state(id).await), (1, EmailState::Unknown), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_silent_is_heard_before_it_takes_work() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let (place, clock) = (Place::new(kind), Hands::new());
        let hop = Next::Relay.open("out", &clock).await;
        let (asleep, wake) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let sleepy: Arc<dyn Transport> = Arc::new(Sleepy {
            inner: Arc::clone(&hop.transport),
            before_marker: false,
            asleep: Arc::clone(&asleep),
            wake: Arc::clone(&wake),
        });
        let first = World::at(&place, vec![sleepy], &["out"], Arc::clone(&clock)).await;
        // One mail before, so that its first sign of life was given; the next one is due seconds later.
        let before = first.send("order-0", None, OnUnknown::Hold).await;
        wake.add_permits(1);
        first.until(before, "the first answer", |email| email.state() == EmailState::Sent).await;
        asleep.acquire().await.unwrap().forget();
        // Longer than others wait for a sign of life.
        clock.pass(20 * SECOND);
        let id = first.send("order-1", None, OnUnknown::Hold).await;
        asleep.acquire().await.unwrap().forget();
        let second = World::at(&place, vec![Arc::clone(&hop.transport)], &["out"], clock).await;
        assert_eq!(second.state(id).await, EmailState::Sending, "{kind}: what it had just taken was taken over");
        wake.add_permits(1);
        second.until(id, "the answer", |email| email.state() == EmailState::Sent).await;
        assert_eq!(hop.taken().len(), 2, "{kind}");
    }
}
