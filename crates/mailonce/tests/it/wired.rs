//! Test doubles of the engine's dependencies: recording transports, DNS records, and pages to fetch.

use async_trait::async_trait;
use mailonce_core::{
    handoff::{
        action::{HandoffAction, HandoffActionStatus, HandoffRetryPolicy, LeaseRef},
        capabilities::{HandoffSplit, PayloadFormat, RecoveryMethod, TransportCapabilities},
        lease::{HandoffActionResult, LeaseRequest, LeasedHandoff},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    id::NodeId,
    operation::IdempotentResult,
    ports::{
        network::{DnsResolver, HttpFetcher},
        transport::{PreparedHandoff, Transport},
    },
    time::Time,
};
use mailonce_engine::{EngineDeps, handoff::transport_selector::Routing};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::world::World;

/// A transport that accepts everything and reports the bytes that it froze.
pub(crate) struct RecordingTransport {
    name: &'static str,
    shape: HandoffSplit,
    frozen_bytes: mpsc::UnboundedSender<Vec<u8>>,
}

impl RecordingTransport {
    /// A transport with this name whose frozen bytes are discarded.
    pub(crate) fn named(name: &'static str, shape: HandoffSplit) -> Arc<dyn Transport> {
        Arc::new(Self { name, shape, frozen_bytes: mpsc::unbounded_channel().0 })
    }
}

struct AcceptingConnection;

#[async_trait]
impl PreparedHandoff for AcceptingConnection {
    async fn hand_over(self: Box<Self>) -> TransportReply {
        TransportReply::new(ReplyMeaning::Accepted, AttemptPhase::Final, Some(250), "ok")
    }
}

#[async_trait]
impl Transport for RecordingTransport {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> &'static str {
        "test"
    }

    fn account(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities {
            split: self.shape,
            payload_format: PayloadFormat::Mime,
            recovery: RecoveryMethod::None,
            timeout_ms: 10_000,
            max_concurrency: 64,
        }
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        let bytes = mail.mime.ok_or_else(|| UnsupportedMail("no bytes".into()))?.to_vec();
        self.frozen_bytes.send(bytes.clone()).ok();
        Ok(bytes)
    }

    async fn prepare(&self, _: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        Ok(Box::new(AcceptingConnection))
    }

    async fn look_up(&self, _: LookUpRequest) -> LookUpResult {
        LookUpResult::NotFound
    }
}

/// TXT records, as the test publishes them.
#[derive(Clone, Default)]
pub(crate) struct FakeDns(Arc<Mutex<BTreeMap<String, Result<Vec<String>, String>>>>);

impl FakeDns {
    pub(crate) fn publish(&self, name: &str, text: &str) {
        self.0.lock().unwrap().insert(name.to_owned(), Ok(vec!["v=spf1 -all".into(), text.to_owned()]));
    }

    pub(crate) fn fail_lookups(&self, name: &str) {
        self.0.lock().unwrap().insert(name.to_owned(), Err("no answer in time".into()));
    }
}

#[async_trait]
impl DnsResolver for FakeDns {
    async fn lookup_txt(&self, name: &str) -> Result<Vec<String>, String> {
        self.0.lock().unwrap().get(name).cloned().unwrap_or_else(|| Ok(Vec::new()))
    }
}

/// Pages by URL, and every URL that was requested.
#[derive(Clone, Default)]
pub(crate) struct FakeFetcher {
    pages: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    requested_urls: Arc<Mutex<Vec<String>>>,
}

impl FakeFetcher {
    pub(crate) fn add_page(&self, url: &str, page: &[u8]) {
        self.pages.lock().unwrap().insert(url.to_owned(), page.to_vec());
    }

    pub(crate) fn requested_urls(&self) -> Vec<String> {
        self.requested_urls.lock().unwrap().clone()
    }
}

#[async_trait]
impl HttpFetcher for FakeFetcher {
    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        self.requested_urls.lock().unwrap().push(url.to_owned());
        self.pages.lock().unwrap().get(url).cloned().ok_or_else(|| "404".into())
    }
}

/// A world with two transports: `relay` (one handoff per recipient, the default) and `provider` (one per email).
pub(crate) struct TransportFixture {
    pub(crate) world: World,
    pub(crate) dns: FakeDns,
    pub(crate) fetcher: FakeFetcher,
    /// The bytes that the transports froze.
    pub(crate) frozen_bytes: mpsc::UnboundedReceiver<Vec<u8>>,
}

impl TransportFixture {
    pub(crate) async fn new(world: World, verify_domains: bool) -> Self {
        let (sender, frozen_bytes) = mpsc::unbounded_channel();
        let relay = |name, shape| {
            Arc::new(RecordingTransport { name, shape, frozen_bytes: sender.clone() }) as Arc<dyn Transport>
        };
        let (dns, fetcher) = (FakeDns::default(), FakeFetcher::default());
        let deps = EngineDeps {
            transports: vec![relay("relay", HandoffSplit::PerRecipient), relay("provider", HandoffSplit::PerEmail)],
            routing: Routing { rules: Vec::new(), default: vec!["relay".into()] },
            verify_domains,
            dns: Arc::new(dns.clone()),
            http_fetcher: Arc::new(fetcher.clone()),
            public_url: Some("https://mail.example.com".into()),
            ..EngineDeps::default()
        };
        Self { world: Box::pin(world.with_engine_deps(deps)).await, dns, fetcher, frozen_bytes }
    }

    /// Leases the one due handoff of a transport.
    pub(crate) async fn lease_handoff(&self, transport: &str) -> TestLease {
        let request = LeaseRequest {
            transport: transport.into(),
            node: NODE_ID,
            max: 1,
            excluded_domains: Vec::new(),
            schedule_cutoff: None,
        };
        let leased = self.world.engine.ctx.store().lease_handoffs(request, self.world.engine.ctx.now()).await.unwrap();
        TestLease { leased: leased.into_iter().next().expect("a handoff is due"), transport: transport.into() }
    }

    async fn apply(&self, held: &TestLease, action: HandoffAction) -> HandoffActionStatus {
        let email = &held.leased.email;
        let now = self.world.engine.ctx.now();
        match self.world.engine.ctx.store().apply_action(email.team, email.id, action, None, now).await.unwrap() {
            IdempotentResult::Done(HandoffActionResult::Applied(verdict, _)) => verdict,
            other => panic!("{other:?}"),
        }
    }

    /// Commits the durable `sending` marker.
    pub(crate) async fn commit_marker(&self, held: &TestLease) {
        let action = HandoffAction::Mark { lease: held.lease_ref(), frozen_bytes: None, contacts: Vec::new() };
        assert_eq!(self.apply(held, action).await, HandoffActionStatus::Done);
    }

    /// Records that the next hop accepted the handoff under its own id.
    pub(crate) async fn record_accepted(&self, held: &TestLease, remote_id: &str) -> HandoffActionStatus {
        let reply = TransportReply::new(ReplyMeaning::Accepted, AttemptPhase::Final, Some(200), "ok")
            .with_remote_id(Some(remote_id.into()));
        let retry_policy = HandoffRetryPolicy { max_attempts: 12, max_age_ms: 86_400_000, jitter_seed: 0 };
        let started_at = self.world.engine.ctx.now();
        self.apply(
            held,
            HandoffAction::RecordOutcome { lease: held.lease_ref(), attempt: Some(1), started_at, reply, retry_policy },
        )
        .await
    }

    /// Records that the process that held the lease crashed.
    pub(crate) async fn crash_holder(&self, held: &TestLease) {
        let action = HandoffAction::Crash { number: held.leased.handoff, holder: NODE_ID };
        assert_eq!(self.apply(held, action).await, HandoffActionStatus::Done);
    }

    /// Hands off the one due handoff of a transport.
    pub(crate) async fn hand_off(&self, transport: &str, remote_id: &str) {
        let held = self.lease_handoff(transport).await;
        self.commit_marker(&held).await;
        assert_eq!(self.record_accepted(&held, remote_id).await, HandoffActionStatus::Done);
    }
}

const NODE_ID: NodeId = NodeId(Uuid::from_u128(77));

/// A handoff that the test has leased.
pub(crate) struct TestLease {
    leased: LeasedHandoff,
    transport: String,
}

impl TestLease {
    fn lease_ref(&self) -> LeaseRef {
        let handoff = &self.leased.email.handoffs[usize::from(self.leased.handoff)];
        LeaseRef {
            number: handoff.number,
            fence: handoff.fence,
            transport: self.transport.clone(),
            account: self.transport.clone(),
        }
    }
}

/// Seconds since the epoch, as providers sign them.
pub(crate) fn unix_seconds(at: Time) -> String {
    (at.0 / 1000).to_string()
}
