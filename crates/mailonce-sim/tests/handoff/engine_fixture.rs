//! An engine over a store, with a manual clock and loops that end with the test.

use mailonce_core::{
    access::team::{ApiKeyDetails, ApiKeyScope},
    handoff::{Attempt, Handoff, HandoffState},
    id::EmailId,
    key::Key,
    outbound::{
        content::{EmailContent, RawContent},
        email::{Channel, Email, EmailState, OnUnknown},
        email_query::EmailDetail,
    },
    ports::{Clock, Entropy, store::Store, transport::Transport},
    time::Time,
};
use mailonce_engine::{
    Caller, Engine, EngineDeps, handoff::transport_selector::Routing, outbound::keyed_send::SendRequest,
};
use mailonce_sim::harness::rng;
use mailonce_store::{memory::Memory, sqlite::Sqlite};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::sync::watch;

/// The timeout of all waits.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(40);
/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const CREDENTIAL: &str = "rig-key-0123456789abcdef";

pub(crate) const SECOND: i64 = 1_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// A clock that runs and can be moved: both counters together, or the wall clock alone.
pub(crate) struct ManualClock {
    began: Instant,
    advanced_ms: AtomicI64,
    wall_offset_ms: AtomicI64,
}

impl ManualClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), advanced_ms: AtomicI64::new(0), wall_offset_ms: AtomicI64::new(0) })
    }

    /// Advances time.
    pub(crate) fn advance(&self, ms: i64) {
        self.advanced_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock.
    pub(crate) fn set_wall_clock(&self, ms: i64) {
        self.wall_offset_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(1_794_715_200_000 + self.boot_clock_ms() + self.wall_offset_ms.load(Ordering::SeqCst))
    }

    fn boot_clock_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or_default() + self.advanced_ms.load(Ordering::SeqCst)
    }
}

/// Reproducible randomness.
struct EngineEntropy(Mutex<rng::SeededRng>);

impl Entropy for EngineEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut dice = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&dice.next().to_be_bytes()[..piece.len()]);
        }
    }
}

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineStoreKind {
    Memory,
    Sqlite,
}

impl fmt::Display for EngineStoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Memory { "memory" } else { "sqlite" })
    }
}

/// A store with its directory, if it needs one.
pub(crate) struct EngineStore {
    pub(crate) store: Arc<dyn Store>,
    _folder: Option<TempDir>,
}

impl EngineStore {
    pub(crate) fn new(kind: EngineStoreKind) -> Self {
        let secret = [7; 32];
        match kind {
            EngineStoreKind::Memory => Self { store: Arc::new(Memory::new(secret)), _folder: None },
            EngineStoreKind::Sqlite => {
                let folder = tempfile::Builder::new().prefix("mailonce-handoff").tempdir().unwrap();
                let store = Sqlite::open(folder.path(), secret).unwrap();
                Self { store: Arc::new(store), _folder: Some(folder) }
            }
        }
    }
}

/// The number of nodes so far, so that no two draw the same identity.
static NODES: AtomicU64 = AtomicU64::new(0);

/// A running engine.
pub(crate) struct TestEngine {
    pub(crate) engine: Arc<Engine>,
    pub(crate) caller: Caller,
    pub(crate) clock: Arc<ManualClock>,
    stop: watch::Sender<bool>,
    loops: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl TestEngine {
    /// An engine with a clock. Mail without a transport uses the first of `order`, and fails over to the others.
    pub(crate) async fn start(
        store: &EngineStore,
        transports: Vec<Arc<dyn Transport>>,
        order: &[&str],
        clock: Arc<ManualClock>,
    ) -> Self {
        let default = order.iter().map(ToString::to_string).collect();
        let outside =
            EngineDeps { transports, routing: Routing { rules: Vec::new(), default }, ..EngineDeps::default() };
        let dice = EngineEntropy(Mutex::new(rng::SeededRng::derive(
            rng::seed_from_env(),
            &[NODES.fetch_add(1, Ordering::Relaxed)],
        )));
        let store = Arc::clone(&store.store);
        let engine = Engine::new(store, Arc::clone(&clock) as Arc<dyn Clock>, Arc::new(dice), outside).await.unwrap();
        engine.ctx.confirm_time();
        engine.handoffs.heartbeat_and_recover().await.unwrap();
        let about = ApiKeyDetails {
            name: "rig".into(),
            hint: String::new(),
            scopes: ApiKeyScope::ALL.to_vec(),
            senders: Vec::new(),
            inboxes: Vec::new(),
            rate_per_s: None,
            expires_at: None,
            allow_ips: Vec::new(),
            on_behalf_of: None,
        };
        engine.access.ensure_api_key("rig", about, Some(CREDENTIAL.into())).await.unwrap();
        let caller = engine.access.authenticate(CREDENTIAL, Channel::Http).await.unwrap();
        let (stop, stopped) = watch::channel(false);
        let loops = Mutex::new(Some(tokio::spawn(Arc::clone(&engine.handoffs).run_handoff(stopped.clone()))));
        tokio::spawn(Arc::clone(&engine).run_maintenance(stopped));
        Self { engine, caller, clock, stop, loops }
    }

    /// Stops its loops; running attempts end by themselves.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until all running attempts have ended. Returns false on timeout.
    pub(crate) async fn wait_stopped(&self) -> bool {
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner).take();
        match loops {
            Some(loops) => tokio::time::timeout(WAIT_TIMEOUT, loops).await.is_ok(),
            None => true,
        }
    }

    /// Sends one mail whose subject is its key.
    pub(crate) async fn send_sample(&self, key: &str, transport: Option<&str>, on_unknown: OnUnknown) -> EmailId {
        let raw = RawContent { to: vec![format!("{key}@example.org")], ..sample_content(key) };
        self.send_content(key, raw, transport, on_unknown).await
    }

    /// Sends this content.
    pub(crate) async fn send_content(
        &self,
        key: &str,
        raw: RawContent,
        transport: Option<&str>,
        on_unknown: OnUnknown,
    ) -> EmailId {
        let request = SendRequest {
            on_unknown: Some(on_unknown),
            transport: transport.map(str::to_owned),
            ..SendRequest::new(EmailContent::validate(raw).unwrap(), Some(Key::parse(key).unwrap()))
        };
        self.engine.outbound.send(&self.caller, request).await.unwrap_or_else(|problem| panic!("{}", problem.detail)).id
    }

    pub(crate) async fn email(&self, id: EmailId) -> Email {
        self.engine.outbound.email(&self.caller, id).await.unwrap()
    }

    pub(crate) async fn state(&self, id: EmailId) -> EmailState {
        self.email(id).await.state()
    }

    pub(crate) async fn detail(&self, id: EmailId) -> EmailDetail {
        self.engine.outbound.email_view(&self.caller, id).await.unwrap().detail
    }

    /// The attempts that have ended.
    pub(crate) async fn ended_attempts(&self, id: EmailId) -> Vec<Attempt> {
        self.detail(id).await.attempts.into_iter().filter(|attempt| attempt.ended_at.is_some()).collect()
    }

    /// Waits until an email is in a wanted state.
    pub(crate) async fn wait_for_email(&self, id: EmailId, what: &str, holds: impl Fn(&Email) -> bool) -> Email {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let email = self.email(id).await;
            if holds(&email) {
                return email;
            }
            assert!(Instant::now() < deadline, "{what} never came: {:?}", email.handoffs);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until this many attempts of an email have ended.
    pub(crate) async fn wait_for_attempts(&self, id: EmailId, times: usize) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while self.ended_attempts(id).await.len() < times {
            assert!(Instant::now() < deadline, "attempt {times} never ended: {:?}", self.detail(id).await);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until nothing more happens to these emails before time passes.
    pub(crate) async fn wait_until_idle(&self, ids: &[EmailId]) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        for id in ids {
            while !self.email(*id).await.handoffs.iter().all(|handoff| is_idle(handoff, self.engine.ctx.now())) {
                assert!(Instant::now() < deadline, "no end of work: {:?}", self.detail(*id).await);
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Advances time in steps, and runs what is due after each.
    pub(crate) async fn advance(&self, ids: &[EmailId], steps: &[i64]) {
        for step in steps {
            self.clock.advance(*step);
            self.wait_until_idle(ids).await;
        }
    }
}

/// Whether no worker has it, and none will before its time.
fn is_idle(handoff: &Handoff, now: Time) -> bool {
    match handoff.state {
        HandoffState::Leased | HandoffState::Sending => false,
        HandoffState::Queued | HandoffState::Scheduled | HandoffState::Unknown => {
            handoff.due_at.is_none_or(|due| due > now)
        }
        _ => true,
    }
}

pub(crate) fn sample_content(subject: &str) -> RawContent {
    RawContent {
        from: "agent@example.com".into(),
        to: vec!["ada@example.org".into()],
        subject: subject.into(),
        text: Some("Your order is on its way.".into()),
        ..RawContent::default()
    }
}
