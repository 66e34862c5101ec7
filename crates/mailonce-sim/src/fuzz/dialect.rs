//! Calls of the dialects, as they come from outside: a line with method, path and query, then the body. The whole router
//! answers them, over a ledger in memory: nothing that anybody writes there is our fault.

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Method, Request, Uri},
};
use mailonce_core::{
    delivery::{Form, Intake},
    port::{Chance, Clock},
    team::Scope,
    time::Time,
};
use mailonce_engine::{Engine, receive::Incoming, ways::Outside};
use mailonce_store::memory::Memory;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

use super::{Came, Check, holds, text};

/// 2026-11-15T10:00:00Z.
const NOW: Time = Time(1_794_736_800_000);
/// Calls that one world answers: what they leave in it must not grow for ever.
const CALLS: usize = 500;
/// Bytes of an answer that are read.
const ANSWER: usize = 16 << 20;
/// Where the dialects begin.
const ROOMS: [&str; 3] = ["/compat/resend/", "/compat/usesend/api/v1/", "/compat/agentmail/v0/"];

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Time {
        NOW
    }

    fn even(&self) -> i64 {
        NOW.0
    }
}

/// The same numbers in every run.
struct Counted(AtomicU64);

impl Chance for Counted {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst).to_be_bytes();
            chunk.iter_mut().zip(word).for_each(|(place, byte)| *place = byte);
        }
    }
}

/// A team with an inbox and a mail in it.
struct World {
    runtime: Runtime,
    router: Router,
    secret: String,
    calls: usize,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

impl World {
    fn new() -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let (router, secret) = runtime.block_on(peopled())?;
        Ok(Self { runtime, router, secret, calls: 0 })
    }

    fn answers(&mut self, method: Method, uri: Uri, body: &[u8]) -> Result<(u16, Vec<u8>), String> {
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
            let bytes = to_bytes(answer.into_body(), ANSWER).await.map_err(|error| error.to_string())?;
            Ok((status, bytes.to_vec()))
        })
    }
}

async fn peopled() -> Result<(Router, String), String> {
    let (store, chance) = (Arc::new(Memory::new([7; 32])), Arc::new(Counted(AtomicU64::new(1))));
    let local_domains = vec!["agents.test".to_owned()];
    let outside = Outside { local_domains, ..Outside::default() };
    let engine = Engine::new(store, Arc::new(Still), chance, outside).await.map_err(|error| error.to_string())?;
    let about = mailonce::serve::about("fuzz", Scope::ALL.to_vec());
    let made = engine.first_api_key("default", about, None).await.map_err(|problem| problem.detail)?;
    let router = mailonce::api::router(Arc::clone(&engine), false);
    for (path, body) in [
        ("/v1/inboxes", r#"{"username":"agent"}"#),
        ("/compat/agentmail/v0/inboxes/agent@agents.test/drafts", r#"{"client_id":"d","to":"a@x.test","text":"x"}"#),
    ] {
        let request = Request::post(path).header("authorization", format!("Bearer {}", made.secret));
        let request = request.body(Body::from(body)).map_err(|error| error.to_string())?;
        let answer = router.clone().oneshot(request).await.map_err(|never| never.to_string())?;
        holds(answer.status().is_success(), "a world that cannot be peopled")?;
    }
    let _received = engine.take_mail(letter()).await.map_err(|error| error.to_string())?;
    engine.read_waiting().await.map_err(|error| error.to_string())?;
    Ok((router, made.secret))
}

fn letter() -> Incoming {
    let raw =
        "From: Ann <ann@x.test>\r\nTo: agent@agents.test\r\nMessage-ID: <1@x.test>\r\nSubject: Hi\r\n\r\nHello\r\n";
    Incoming {
        intake: Intake::Smtp,
        source: None,
        name: None,
        ip: None,
        helo: None,
        sender: Some("ann@x.test".to_owned()),
        recipients: vec!["agent@agents.test".to_owned()],
        form: Form::Mime,
        raw: raw.as_bytes().to_vec(),
    }
}

/// A call of a dialect: it is answered, and no answer says that we failed.
pub fn call(bytes: &[u8]) -> Check {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (line, body) = (bytes.get(..end).and_then(text), bytes.get(end + 1..).unwrap_or_default());
    let Some((method, path)) = line.and_then(|line| line.split_once(' ')) else { return Ok(Came::Short) };
    let (Ok(method), Ok(uri)) = (method.parse::<Method>(), path.parse::<Uri>()) else { return Ok(Came::Short) };
    if !ROOMS.iter().any(|room| uri.path().starts_with(room)) {
        return Ok(Came::Short);
    }
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    if world.as_ref().is_none_or(|world| world.calls >= CALLS) {
        *world = Some(World::new()?);
    }
    let Some(world) = world.as_mut() else { return Ok(Came::Short) };
    let (status, answer) = world.answers(method, uri, body)?;
    holds(status < 500, &format!("{status}: {}", String::from_utf8_lossy(&answer)))?;
    holds(status < 400 || !answer.is_empty(), "a refusal without a reason")?;
    Ok(Came::through(status < 300))
}
