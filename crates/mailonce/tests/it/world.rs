//! The fixture of one test: a ledger, a clock that only the test advances, and seeded randomness.

use axum::Router;
use mailonce_core::{
    access::team::{ApiKeyDetails, ApiKeyScope},
    inbound::delivery::{DeliveryFormat, Intake, ReceiveResult},
    installation::DatabaseClock,
    ports::{Clock, Entropy, store::Store},
    time::Time,
};
use mailonce_engine::{Engine, EngineDeps, SANDBOX, inbound::receive::IntakeMail};
use mailonce_store::{memory::Memory, postgres::Postgres, sqlite::Sqlite};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};
use tempfile::TempDir;
use tower::ServiceExt as _;

use crate::{
    call::{TestRequest, TestResponse, get, post},
    database::TempDatabase,
};

/// 2026-11-15T10:00:00Z.
const START_TIME_MS: i64 = 1_794_736_800_000;
pub(crate) const SECOND: i64 = 1_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// A clock that changes only when the test advances it.
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(START_TIME_MS)))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }

    fn boot_clock_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Seeded randomness: the same numbers in every run.
struct SplitMixEntropy(AtomicU64);

impl Entropy for SplitMixEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            // SplitMix64.
            let mut n = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
            n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let word = (n ^ (n >> 31)).to_be_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Storage that must outlive the ledger.
enum StoreBacking {
    InMemory,
    Directory(TempDir),
    Database(TempDatabase),
}

/// A running mailonce without sockets.
pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    router: Router,
    clock: Arc<TestClock>,
    /// The API key of the first team, with every scope.
    pub(crate) secret: String,
    backing: StoreBacking,
}

impl World {
    pub(crate) async fn memory() -> Self {
        Self::with_store(Arc::new(Memory::new([7; 32])), StoreBacking::InMemory).await
    }

    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path(), [7; 32]).unwrap();
        Self::with_store(Arc::new(store), StoreBacking::Directory(folder)).await
    }

    pub(crate) async fn postgres() -> Self {
        let database = TempDatabase::create().await;
        let store = Postgres::open(&database.url, [7; 32]).await.unwrap();
        let clock = TestClock::new();
        let source = Arc::clone(&clock);
        store.read_clock_from(Box::new(move || DatabaseClock { now: source.now(), is_on_other_host: false }));
        Self::with_clock_and_store(clock, Arc::new(store), StoreBacking::Database(database)).await
    }

    /// The same ledger with a domain for inboxes.
    pub(crate) async fn with_inbox_domain(self) -> Self {
        let local_domains = vec!["agents.test".to_owned()];
        let bounce_domain = Some("agents.test".to_owned());
        self.with_engine_deps(EngineDeps { local_domains, bounce_domain, ..EngineDeps::default() }).await
    }

    /// Creates an inbox with this username and returns its id.
    pub(crate) async fn create_inbox(&self, name: &str) -> String {
        self.post("/v1/inboxes", &json!({ "username": name })).await.expect_status(201).string_field("id")
    }

    /// Receives a mail from outside by SMTP and processes it at once.
    pub(crate) async fn receive_mail(&self, to: &[&str], raw: &str) -> Vec<ReceiveResult> {
        let received = self.engine.inbound.receive_mail(incoming_mail(to, raw)).await.unwrap();
        self.engine.inbound.process_waiting_deliveries().await.unwrap();
        received
    }

    async fn with_store(store: Arc<dyn Store>, backing: StoreBacking) -> Self {
        Self::with_clock_and_store(TestClock::new(), store, backing).await
    }

    async fn with_clock_and_store(clock: Arc<TestClock>, store: Arc<dyn Store>, backing: StoreBacking) -> Self {
        let entropy = Arc::new(SplitMixEntropy(AtomicU64::new(1)));
        let engine =
            Engine::new(store, Arc::clone(&clock) as Arc<dyn Clock>, entropy, EngineDeps::default()).await.unwrap();
        engine.ctx.confirm_time();
        let new_key = ApiKeyDetails::unrestricted("test", ApiKeyScope::ALL.to_vec());
        let created = engine.access.ensure_api_key("default", new_key, None).await.unwrap();
        let router = mailonce::api::router(Arc::clone(&engine), false);
        Self { engine, router, clock, secret: created.secret, backing }
    }

    /// Closes the ledger and opens it again, as after a restart. SQLite only.
    pub(crate) async fn restart(self) -> Self {
        let Self { engine, router, clock, secret, backing } = self;
        let StoreBacking::Directory(folder) = backing else {
            return Self { engine, router, clock, secret, backing };
        };
        engine.ctx.store().close().await;
        drop((engine, router));
        let store = Arc::new(Sqlite::open(folder.path(), [7; 32]).unwrap());
        let entropy = Arc::new(SplitMixEntropy(AtomicU64::new(99)));
        let engine =
            Engine::new(store, Arc::clone(&clock) as Arc<dyn Clock>, entropy, EngineDeps::default()).await.unwrap();
        engine.ctx.confirm_time();
        let router = mailonce::api::router(Arc::clone(&engine), false);
        Self { engine, router, clock, secret, backing: StoreBacking::Directory(folder) }
    }

    /// The same ledger behind an engine with other dependencies.
    pub(crate) async fn with_engine_deps(self, deps: EngineDeps) -> Self {
        let Self { engine, clock, secret, backing, .. } = self;
        let entropy = Arc::new(SplitMixEntropy(AtomicU64::new(55)));
        let store = Arc::clone(engine.ctx.store());
        let engine = Engine::new(store, Arc::clone(&clock) as Arc<dyn Clock>, entropy, deps).await.unwrap();
        engine.ctx.confirm_time();
        let router = mailonce::api::router(Arc::clone(&engine), false);
        Self { engine, router, clock, secret, backing }
    }

    /// Another node with the same ledger and clock, and an API key for it. PostgreSQL only.
    pub(crate) async fn second_node(&self) -> (Router, String) {
        let entropy = Arc::new(SplitMixEntropy(AtomicU64::new(77)));
        let (store, clock) = (Arc::clone(self.engine.ctx.store()), Arc::clone(&self.clock) as Arc<dyn Clock>);
        let engine = Engine::new(store, clock, entropy, EngineDeps::default()).await.unwrap();
        engine.ctx.confirm_time();
        (mailonce::api::router(engine, false), self.secret.clone())
    }

    /// A node of its own: another pool of connections to the same database, with the same clock.
    pub(crate) async fn node_with_own_store(&self) -> Arc<Engine> {
        let StoreBacking::Database(database) = &self.backing else { panic!("PostgreSQL only") };
        let store = Postgres::open(&database.url, [7; 32]).await.unwrap();
        let source = Arc::clone(&self.clock);
        store.read_clock_from(Box::new(move || DatabaseClock { now: source.now(), is_on_other_host: false }));
        let entropy = Arc::new(SplitMixEntropy(AtomicU64::new(99)));
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let engine = Engine::new(Arc::new(store), clock, entropy, EngineDeps::default()).await.unwrap();
        engine.ctx.confirm_time();
        engine
    }

    /// The secret of the API key with every scope.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// Another node with the same ledger and clock, and the given dependencies.
    pub(crate) async fn second_engine(&self, deps: EngineDeps) -> Arc<Engine> {
        let entropy = Arc::new(SplitMixEntropy(AtomicU64::new(88)));
        let (store, clock) = (Arc::clone(self.engine.ctx.store()), Arc::clone(&self.clock) as Arc<dyn Clock>);
        Engine::new(store, clock, entropy, deps).await.unwrap()
    }

    /// Another node with the same ledger, whose clock differs from that of the world by so much and then stands still.
    pub(crate) async fn node_with_clock(&self, ahead_ms: i64, deps: EngineDeps) -> Arc<Engine> {
        let clock = Arc::new(TestClock(AtomicI64::new(self.clock.now().0 + ahead_ms)));
        let entropy = Arc::new(SplitMixEntropy(AtomicU64::new(66)));
        let engine = Engine::new(Arc::clone(self.engine.ctx.store()), clock, entropy, deps).await.unwrap();
        engine.ctx.confirm_time();
        engine
    }

    /// Advances the clock.
    pub(crate) fn advance_clock(&self, ms: i64) {
        self.clock.0.fetch_add(ms, Ordering::SeqCst);
    }

    /// The time in `ms` milliseconds from now, in the wire format.
    pub(crate) fn timestamp_in(&self, ms: i64) -> String {
        self.engine.ctx.now().plus(ms).to_string()
    }

    /// The directory of the ledger. SQLite only.
    pub(crate) fn data_directory(&self) -> Option<&Path> {
        match &self.backing {
            StoreBacking::Directory(folder) => Some(folder.path()),
            StoreBacking::InMemory | StoreBacking::Database(_) => None,
        }
    }

    /// The URL of the database. PostgreSQL only.
    pub(crate) fn database_url(&self) -> Option<&str> {
        match &self.backing {
            StoreBacking::Database(database) => Some(&database.url),
            StoreBacking::InMemory | StoreBacking::Directory(_) => None,
        }
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    pub(crate) async fn call(&self, call: TestRequest) -> TestResponse {
        let response = self.router().oneshot(call.build(&self.secret)).await.unwrap();
        TestResponse::from_response(response).await
    }

    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        self.call(get(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> TestResponse {
        self.call(post(path).json(body)).await
    }

    /// Sends with an idempotency key.
    pub(crate) async fn send(&self, key: &str, body: &Value) -> TestResponse {
        self.call(post("/v1/emails").key(key).json(body)).await
    }

    /// Sends without an idempotency key.
    pub(crate) async fn send_without_key(&self, body: &Value) -> TestResponse {
        self.post("/v1/emails", body).await
    }

    /// Hands off every email that is due.
    pub(crate) async fn hand_off_due(&self) {
        let now = self.engine.ctx.now();
        while self.engine.ctx.store().capture(SANDBOX, 1000, Some(now), now).await.unwrap() > 0 {}
    }

    /// Every event, oldest first.
    pub(crate) async fn events(&self) -> Vec<Value> {
        self.get("/v1/events?limit=1000").await.expect_status(200).rows()
    }

    /// How many emails exist, up to one page.
    pub(crate) async fn email_count(&self) -> usize {
        self.get("/v1/emails?limit=100").await.expect_status(200).rows().len()
    }

    pub(crate) async fn email(&self, id: &str) -> Value {
        self.get(&format!("/v1/emails/{id}")).await.expect_status(200).body
    }

    /// Creates an API key of the first team and returns its secret.
    pub(crate) async fn create_api_key(&self, body: &Value) -> String {
        self.post("/v1/api-keys", body).await.expect_status(201).string_field("api_key")
    }

    /// Creates another team and returns its API key, which has every scope except `operator`.
    pub(crate) async fn create_team(&self, name: &str) -> String {
        self.post("/v1/teams", &json!({ "name": name })).await.expect_status(201).string_field("api_key")
    }
}

/// A small email.
pub(crate) fn mail() -> Value {
    json!({
        "from": "agent@example.com",
        "to": ["user@example.com"],
        "subject": "Order 4821",
        "text": "Thank you for your order.",
    })
}

/// A small email with fields replaced or added.
pub(crate) fn mail_with(more: Value) -> Value {
    let mut mail = mail();
    let Value::Object(more) = more else { panic!("the fields must be a JSON object") };
    for (name, value) in more {
        mail[name] = value;
    }
    mail
}

/// A small email with an intent.
pub(crate) fn mail_with_intent(entity: &str) -> Value {
    mail_with(json!({ "intent": { "type": "order.confirmation", "entity": entity } }))
}

/// A mail as the SMTP listener passes it to the engine.
pub(crate) fn incoming_mail(to: &[&str], raw: &str) -> IntakeMail {
    IntakeMail {
        intake: Intake::Smtp,
        source: None,
        provider_delivery_id: None,
        ip: Some([192, 0, 2, 7].into()),
        helo: Some("mx.shop.test".into()),
        sender: Some("bounce@shop.test".into()),
        recipients: to.iter().map(ToString::to_string).collect(),
        form: DeliveryFormat::Mime,
        raw: raw.replace('\n', "\r\n").into_bytes(),
    }
}
