//! Calls of the dialects: a line with method, path and query, then the body. The whole router answers them over a
//! memory store, and no input may cause a server error.

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Method, Request, Uri},
};
use mailonce_core::{
    access::team::{ApiKeyDetails, ApiKeyScope},
    inbound::delivery::{DeliveryFormat, Intake},
    ports::{Clock, Entropy},
    time::Time,
};
use mailonce_engine::{Engine, EngineDeps, inbound::receive::IntakeMail};
use mailonce_store::memory::Memory;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

use super::{FuzzResult, InputOutcome, as_utf8, ensure_holds};

/// 2026-11-15T10:00:00Z.
const NOW: Time = Time(1_794_736_800_000);
/// Calls per engine: what they store must not grow without bound.
const CALLS_PER_SERVER: usize = 500;
/// Maximum number of response bytes that are read.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// The path prefixes of the dialects.
const DIALECT_PREFIXES: [&str; 3] = ["/compat/resend/", "/compat/usesend/api/v1/", "/compat/agentmail/v0/"];

/// A fixed clock.
struct FuzzClock;

impl Clock for FuzzClock {
    fn now(&self) -> Time {
        NOW
    }

    fn boot_clock_ms(&self) -> i64 {
        NOW.0
    }
}

/// Deterministic entropy.
struct FuzzEntropy(AtomicU64);

impl Entropy for FuzzEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst).to_be_bytes();
            chunk.iter_mut().zip(word).for_each(|(place, byte)| *place = byte);
        }
    }
}

/// A team with an inbox and a mail in it.
struct DialectServer {
    runtime: Runtime,
    router: Router,
    secret: String,
    calls: usize,
}

static SERVER: Mutex<Option<DialectServer>> = Mutex::new(None);

impl DialectServer {
    fn new() -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let (router, secret) = runtime.block_on(build_router_with_mail())?;
        Ok(Self { runtime, router, secret, calls: 0 })
    }

    fn call(&mut self, method: Method, uri: Uri, body: &[u8]) -> Result<(u16, Vec<u8>), String> {
        self.calls += 1;
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("authorization", format!("Bearer {}", self.secret))
            .body(Body::from(body.to_vec()))
            .map_err(|error| error.to_string())?;
        self.runtime.block_on(async {
            let answer = self.router.clone().oneshot(request).await.map_err(|never| never.to_string())?;
            let status = answer.status().as_u16();
            let bytes = to_bytes(answer.into_body(), MAX_RESPONSE_BYTES).await.map_err(|error| error.to_string())?;
            Ok((status, bytes.to_vec()))
        })
    }
}

async fn build_router_with_mail() -> Result<(Router, String), String> {
    let (store, rng) = (Arc::new(Memory::new([7; 32])), Arc::new(FuzzEntropy(AtomicU64::new(1))));
    let local_domains = vec!["agents.test".to_owned()];
    let outside = EngineDeps { local_domains, ..EngineDeps::default() };
    let engine = Engine::new(store, Arc::new(FuzzClock), rng, outside).await.map_err(|error| error.to_string())?;
    let about = ApiKeyDetails::unrestricted("fuzz", ApiKeyScope::ALL.to_vec());
    let made = engine.access.ensure_api_key("default", about, None).await.map_err(|problem| problem.detail)?;
    let router = mailonce::api::router(Arc::clone(&engine), false);
    for (path, body) in [
        ("/v1/inboxes", r#"{"username":"agent"}"#),
        ("/compat/agentmail/v0/inboxes/agent@agents.test/drafts", r#"{"client_id":"d","to":"a@x.test","text":"x"}"#),
    ] {
        let request = Request::post(path).header("authorization", format!("Bearer {}", made.secret));
        let request = request.body(Body::from(body)).map_err(|error| error.to_string())?;
        let answer = router.clone().oneshot(request).await.map_err(|never| never.to_string())?;
        ensure_holds(answer.status().is_success(), "a world that cannot be peopled")?;
    }
    let _received = engine.inbound.receive_mail(sample_mail()).await.map_err(|error| error.to_string())?;
    engine.inbound.process_waiting_deliveries().await.map_err(|error| error.to_string())?;
    Ok((router, made.secret))
}

fn sample_mail() -> IntakeMail {
    let raw =
        "From: Ann <ann@x.test>\r\nTo: agent@agents.test\r\nMessage-ID: <1@x.test>\r\nSubject: Hi\r\n\r\nHello\r\n";
    IntakeMail {
        intake: Intake::Smtp,
        source: None,
        provider_delivery_id: None,
        ip: None,
        helo: None,
        sender: Some("ann@x.test".to_owned()),
        recipients: vec!["agent@agents.test".to_owned()],
        form: DeliveryFormat::Mime,
        raw: raw.as_bytes().to_vec(),
    }
}

/// A call of a dialect: it is answered without a server error.
pub fn run_call(bytes: &[u8]) -> FuzzResult {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (line, body) = (bytes.get(..end).and_then(as_utf8), bytes.get(end + 1..).unwrap_or_default());
    let Some((method, path)) = line.and_then(|line| line.split_once(' ')) else { return Ok(InputOutcome::Rejected) };
    let (Ok(method), Ok(uri)) = (method.parse::<Method>(), path.parse::<Uri>()) else {
        return Ok(InputOutcome::Rejected);
    };
    if !DIALECT_PREFIXES.iter().any(|room| uri.path().starts_with(room)) {
        return Ok(InputOutcome::Rejected);
    }
    let mut world = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if world.as_ref().is_none_or(|world| world.calls >= CALLS_PER_SERVER) {
        *world = Some(DialectServer::new()?);
    }
    let Some(world) = world.as_mut() else { return Ok(InputOutcome::Rejected) };
    let (status, answer) = world.call(method, uri, body)?;
    ensure_holds(status < 500, &format!("{status}: {}", String::from_utf8_lossy(&answer)))?;
    ensure_holds(status < 400 || !answer.is_empty(), "a refusal without a reason")?;
    Ok(InputOutcome::accepted_if(status < 300))
}
