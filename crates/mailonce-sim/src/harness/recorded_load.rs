//! Load that records a history, and retries of recorded sends.

use crate::harness::child_processes::sleep;
use crate::harness::generated_send::{GeneratedSend, generate_send};
use crate::harness::send_history::{SendHistory, classify_send_reply};
use crate::load::{LoadDuration, LoadResponse, RequestGenerator, SteadyLoad, run_steady};
use anyhow::{Context as _, Result, anyhow};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Concurrent connections.
pub const CONNECTIONS: usize = 32;
/// How long retrying everything may take.
const RETRY_TIMEOUT: Duration = Duration::from_mins(5);
/// How long the load may take to start.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A history that several loads share, one after another.
#[derive(Debug, Clone, Default)]
pub struct SharedHistory(Arc<Mutex<SendHistory>>);

impl SharedHistory {
    /// Locks the history.
    pub fn lock(&self) -> MutexGuard<'_, SendHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Generates the requests of a load and records their outcomes.
struct RecordingGenerator<F> {
    history: SharedHistory,
    send_for: F,
    /// The index in the history of each request of the load.
    calls: Mutex<HashMap<u64, (usize, GeneratedSend)>>,
    /// Notified when the first request is written.
    started: Mutex<Option<Sender<()>>>,
}

impl<F: Fn(u64) -> GeneratedSend + Send + Sync + 'static> RecordingGenerator<F> {
    fn new(history: &SharedHistory, send: F, began: Option<Sender<()>>) -> Arc<Self> {
        Arc::new(Self { history: history.clone(), send_for: send, calls: Mutex::default(), started: Mutex::new(began) })
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<u64, (usize, GeneratedSend)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sender that is notified at the first request. Dropped without a notification when there was none.
    fn take_start_signal(&self) -> Option<Sender<()>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<F: Fn(u64) -> GeneratedSend + Send + Sync + 'static> RequestGenerator for RecordingGenerator<F> {
    fn write_request(&self, n: u64, out: &mut Vec<u8>) {
        let send = (self.send_for)(n);
        send.write_request(n, out);
        let call = self.history.lock().begin_call(send);
        self.calls().insert(n, (call, send));
        // The receiver may be gone; the load continues anyway.
        self.take_start_signal().map(|started| started.send(()).ok());
    }

    fn on_response(&self, n: u64, answer: &LoadResponse<'_>) {
        let Some((call, send)) = self.calls().get(&n).copied() else {
            return;
        };
        let body = serde_json::from_slice(answer.body).unwrap_or_default();
        let end = classify_send_reply(&send, answer.status, &body);
        self.history.lock().end_call(call, end);
    }
}

/// The load of one cycle.
#[derive(Debug, Clone, Copy)]
pub struct RecordedLoad {
    /// The server.
    pub at: SocketAddr,
    /// The seed of the sends.
    pub seed: u64,
    /// The cycle, which makes its sends new.
    pub cycle: u32,
    /// Its duration.
    pub window: Duration,
}

impl RecordedLoad {
    /// Runs the load, and `meanwhile` in parallel from its first request on.
    pub fn run<T>(&self, history: &SharedHistory, meanwhile: impl FnOnce() -> Result<T>) -> Result<T> {
        let Self { at, seed, cycle, window } = *self;
        let (started, has_started) = channel();
        let caller = RecordingGenerator::new(history, move |n| generate_send(seed, cycle, n), Some(started));
        let until = LoadDuration::Window { warm_up: Duration::ZERO, window };
        let plan = SteadyLoad { to: at, connections: CONNECTIONS, threads: 1, duration: until };
        std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                let loaded = run_steady(&plan, &caller);
                drop(caller.take_start_signal());
                loaded
            });
            let done = match has_started.recv_timeout(FIRST_CALL_TIMEOUT) {
                // On a busy machine a short window may end before the first request.
                Ok(()) | Err(RecvTimeoutError::Disconnected) => meanwhile(),
                Err(RecvTimeoutError::Timeout) => Err(anyhow!("the load did not begin")),
            };
            let loaded = load.join();
            let loaded = loaded.unwrap_or_else(|_panic| Err(std::io::Error::other("the load panicked")));
            loaded.context("the load")?;
            done
        })
    }
}

/// Retries each of `sends`, as another variant.
pub fn send_again(at: SocketAddr, history: &SharedHistory, sends: &[GeneratedSend]) -> Result<()> {
    if sends.is_empty() {
        return Ok(());
    }
    let (count, sends) = (sends.len() as u64, sends.to_vec());
    let caller = RecordingGenerator::new(history, move |n| sends[n as usize], None);
    let until = LoadDuration::Count { count, timeout: RETRY_TIMEOUT };
    let plan = SteadyLoad { to: at, connections: CONNECTIONS, threads: 1, duration: until };
    run_steady(&plan, &caller).context("asking again").map(drop)
}

/// Polls until `done` returns true. Returns false on timeout.
pub fn poll_until(timeout: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        if done()? {
            return Ok(true);
        }
        if Instant::now() > deadline {
            return Ok(false);
        }
        sleep(Duration::from_millis(50));
    }
}
