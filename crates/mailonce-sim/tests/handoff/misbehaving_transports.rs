//! Transports that misbehave in ways that no real one should: the engine's guarantees do not depend on them.

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
use mailonce_sim::sink::smtp;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use crate::{
    engine_fixture::{DAY, EngineStore, EngineStoreKind, HOUR, MINUTE, ManualClock, TestEngine},
    next_hop::{HopKind, HopSink},
};

/// A transport that builds a different mail each time, or never returns.
struct MisbehavingTransport {
    inner: Arc<dyn Transport>,
    freeze_count: AtomicU32,
    never_replies: bool,
}

/// Sends the bytes and never reports the reply.
struct NeverReplies(Box<dyn PreparedHandoff>);

#[async_trait]
impl PreparedHandoff for NeverReplies {
    async fn hand_over(self: Box<Self>) -> TransportReply {
        self.0.hand_over().await;
        std::future::pending().await
    }
}

#[async_trait]
impl Transport for MisbehavingTransport {
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
        let inner = self.inner.capabilities();
        TransportCapabilities { timeout_ms: if self.never_replies { 500 } else { inner.timeout_ms }, ..inner }
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        let mut bytes = self.inner.freeze(mail)?;
        bytes.extend(format!("wording {}\r\n", self.freeze_count.fetch_add(1, Ordering::SeqCst)).into_bytes());
        Ok(bytes)
    }

    async fn prepare(&self, parcel: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        let ready = self.inner.prepare(parcel).await?;
        Ok(if self.never_replies { Box::new(NeverReplies(ready)) } else { ready })
    }

    async fn look_up(&self, asked: LookUpRequest) -> LookUpResult {
        self.inner.look_up(asked).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_frozen_with_the_first_marker() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let (store, clock) = (EngineStore::new(kind), ManualClock::new());
        let hop = HopKind::Relay.open("out", &clock).await;
        let HopSink::Smtp(sink) = &hop.sink else { return };
        sink.once_at(smtp::SmtpStep::Dot, smtp::SmtpAction::accept_then(smtp::SmtpAction::Close));
        let inner = Arc::clone(&hop.transport);
        let bent: Arc<dyn Transport> =
            Arc::new(MisbehavingTransport { inner, freeze_count: AtomicU32::new(0), never_replies: false });
        let world = TestEngine::start(&store, vec![bent], &["out"], clock).await;
        let id = world.send_sample("order-1", None, OnUnknown::Resend).await;
        world.wait_for_attempts(id, 1).await;
        world.clock.advance(11 * MINUTE);
        world.wait_for_email(id, "the resend", |email| email.state() == EmailState::Sent).await;
        let taken = hop.accepted_mail();
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0], taken[1], "{kind}: an attempt sent other bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_that_never_ends_is_unknown() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let (store, clock) = (EngineStore::new(kind), ManualClock::new());
        let hop = HopKind::Relay.open("out", &clock).await;
        let inner = Arc::clone(&hop.transport);
        let bent: Arc<dyn Transport> =
            Arc::new(MisbehavingTransport { inner, freeze_count: AtomicU32::new(0), never_replies: true });
        let world = TestEngine::start(&store, vec![bent], &["out"], clock).await;
        let id = world.send_sample("order-1", None, OnUnknown::Hold).await;
        world.wait_for_attempts(id, 1).await;
        world.advance(&[id], &[MINUTE, HOUR, DAY]).await;
        assert_eq!((hop.accepted_mail().len(), world.state(id).await), (1, EmailState::Unknown), "{kind}");
    }
}
