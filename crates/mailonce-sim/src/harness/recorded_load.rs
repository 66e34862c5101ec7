//! Load that keeps a history, and asking again for what is in one.

use crate::harness::child_processes::sleep;
use crate::harness::generated_send::{GeneratedSend, generate_send};
use crate::harness::send_history::{SendHistory, classify_response};
use crate::load::{LoadDuration, LoadResponse, RequestGenerator, SteadyLoad, run_steady};
use anyhow::{Context as _, Result};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections that are kept busy.
pub const CONNECTIONS: usize = 32;
/// How long asking for everything again may take.
const RETRY_TIMEOUT: Duration = Duration::from_mins(5);
/// How long the first call of a load may take to begin.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A history that several loads write, one after the other.
#[derive(Debug, Clone, Default)]
pub struct SharedHistory(Arc<Mutex<SendHistory>>);

impl SharedHistory {
    /// Looks at it.
    pub fn lock(&self) -> MutexGuard<'_, SendHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the calls of a load and notes what came of them.
struct RecordingGenerator<F> {
    history: SharedHistory,
    send_for: F,
    /// Which call of the history a request of the load is.
    calls: Mutex<HashMap<u64, (usize, GeneratedSend)>>,
    /// Told when the first request is written.
    started: Mutex<Option<Sender<()>>>,
}

impl<F: Fn(u64) -> GeneratedSend + Send + Sync + 'static> RecordingGenerator<F> {
    fn new(history: &SharedHistory, wish: F, began: Option<Sender<()>>) -> Arc<Self> {
        Arc::new(Self { history: history.clone(), send_for: wish, calls: Mutex::default(), started: Mutex::new(began) })
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<u64, (usize, GeneratedSend)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Fn(u64) -> GeneratedSend + Send + Sync + 'static> RequestGenerator for RecordingGenerator<F> {
    fn write_request(&self, n: u64, out: &mut Vec<u8>) {
        let wish = (self.send_for)(n);
        wish.write_request(n, out);
        let call = self.history.lock().begin_call(wish);
        self.calls().insert(n, (call, wish));
        let began = self.started.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Nobody may listen any more; the load goes on all the same.
        began.map(|began| began.send(()).ok());
    }

    fn on_response(&self, n: u64, answer: &LoadResponse<'_>) {
        let Some((call, wish)) = self.calls().get(&n).copied() else {
            return;
        };
        let end = classify_response(&wish, answer.status, answer.body);
        self.history.lock().end_call(call, end);
    }
}

/// One cycle's load.
#[derive(Debug, Clone, Copy)]
pub struct RecordedLoad {
    /// The server.
    pub at: SocketAddr,
    /// The randomness of what is sent.
    pub seed: u64,
    /// The cycle, so that its wishes are new.
    pub cycle: u32,
    /// How long it lasts.
    pub window: Duration,
}

impl RecordedLoad {
    /// Runs the load, and `meanwhile` beside it from the moment of its first request.
    pub fn run<T>(&self, history: &SharedHistory, meanwhile: impl FnOnce() -> Result<T>) -> Result<T> {
        let Self { at, seed, cycle, window } = *self;
        let (tell, told) = channel();
        let caller = RecordingGenerator::new(history, move |n| generate_send(seed, cycle, n), Some(tell));
        let until = LoadDuration::Window { warm_up: Duration::ZERO, window };
        let plan = SteadyLoad { to: at, connections: CONNECTIONS, threads: 1, duration: until };
        std::thread::scope(|scope| {
            let load = scope.spawn(|| run_steady(&plan, &caller));
            let began = told.recv_timeout(FIRST_CALL_TIMEOUT).context("the load did not begin");
            let done = began.and_then(|()| meanwhile());
            let loaded = load.join();
            let loaded = loaded.unwrap_or_else(|_panic| Err(std::io::Error::other("the load panicked")));
            loaded.context("the load")?;
            done
        })
    }
}

/// Asks once more for each of `wishes`, with the words of another turn.
pub fn send_again(at: SocketAddr, history: &SharedHistory, wishes: &[GeneratedSend]) -> Result<()> {
    if wishes.is_empty() {
        return Ok(());
    }
    let (count, wishes) = (wishes.len() as u64, wishes.to_vec());
    let caller = RecordingGenerator::new(history, move |n| wishes[n as usize], None);
    let until = LoadDuration::Count { count, timeout: RETRY_TIMEOUT };
    let plan = SteadyLoad { to: at, connections: CONNECTIONS, threads: 1, duration: until };
    run_steady(&plan, &caller).context("asking again").map(drop)
}

/// Waits until `done` says so, and gives its last word.
pub fn poll_until(patience: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let deadline = Instant::now() + patience;
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
