//! Transports bent in ways that no real one should be: what the engine promises does not hang on their manners.

use async_trait::async_trait;
use mailonce_core::{
    email::{EmailState, OnUnknown},
    port::transport::{Asked, Capability, Found, Mail, Parcel, Ready, Reply, Transport, Unfit},
};
use mailonce_sim::sink::smtp;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use crate::{
    hop::{Next, Oracle},
    world::{DAY, HOUR, Hands, Kind, MINUTE, Place, World},
};

/// A transport that words a mail differently each time, or never comes back.
struct Bent {
    inner: Arc<dyn Transport>,
    frozen: AtomicU32,
    mute: bool,
}

/// Lets the bytes go and keeps the answer to itself.
struct Mute(Box<dyn Ready>);

#[async_trait]
impl Ready for Mute {
    async fn hand_over(self: Box<Self>) -> Reply {
        self.0.hand_over().await;
        std::future::pending().await
    }
}

#[async_trait]
impl Transport for Bent {
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
        let inner = self.inner.capability();
        Capability { patience_ms: if self.mute { 500 } else { inner.patience_ms }, ..inner }
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        let mut bytes = self.inner.freeze(mail)?;
        bytes.extend(format!("wording {}\r\n", self.frozen.fetch_add(1, Ordering::SeqCst)).into_bytes());
        Ok(bytes)
    }

    async fn approach(&self, parcel: Parcel) -> Result<Box<dyn Ready>, Reply> {
        let ready = self.inner.approach(parcel).await?;
        Ok(if self.mute { Box::new(Mute(ready)) } else { ready })
    }

    async fn look_up(&self, asked: Asked) -> Found {
        self.inner.look_up(asked).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_frozen_with_the_first_marker() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let (place, clock) = (Place::new(kind), Hands::new());
        let hop = Next::Relay.open("out", &clock).await;
        let Oracle::Smtp(sink) = &hop.sink else { return };
        sink.once(smtp::Step::Dot, smtp::Act::taken(smtp::Act::Cut));
        let inner = Arc::clone(&hop.transport);
        let bent: Arc<dyn Transport> = Arc::new(Bent { inner, frozen: AtomicU32::new(0), mute: false });
        let world = World::at(&place, vec![bent], &["out"], clock).await;
        let id = world.send("order-1", None, OnUnknown::Resend).await;
        world.tried(id, 1).await;
        world.clock.pass(11 * MINUTE);
        world.until(id, "the resend", |email| email.state() == EmailState::Sent).await;
        let taken = hop.taken();
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0], taken[1], "{kind}: an attempt sent other bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_that_never_ends_is_unknown() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let (place, clock) = (Place::new(kind), Hands::new());
        let hop = Next::Relay.open("out", &clock).await;
        let inner = Arc::clone(&hop.transport);
        let bent: Arc<dyn Transport> = Arc::new(Bent { inner, frozen: AtomicU32::new(0), mute: true });
        let world = World::at(&place, vec![bent], &["out"], clock).await;
        let id = world.send("order-1", None, OnUnknown::Hold).await;
        world.tried(id, 1).await;
        world.pass(&[id], &[MINUTE, HOUR, DAY]).await;
        assert_eq!((hop.taken().len(), world.state(id).await), (1, EmailState::Unknown), "{kind}");
    }
}
