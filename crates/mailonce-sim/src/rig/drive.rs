//! Load that keeps a history, and asking again for what is in one.

use super::children::pause;
use super::history::{History, end_of};
use super::wish::{Wish, wish};
use crate::load::{Answer, Caller, Sustain, Until, sustain};
use anyhow::{Context as _, Result};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections that are kept busy.
pub const CONNECTIONS: usize = 32;
/// How long asking for everything again may take.
const PATIENCE: Duration = Duration::from_mins(5);
/// How long the first call of a load may take to begin.
const START: Duration = Duration::from_secs(30);

/// A history that several loads write, one after the other.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<Mutex<History>>);

impl Shared {
    /// Looks at it.
    pub fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the calls of a load and notes what came of them.
struct Recorder<F> {
    history: Shared,
    wish: F,
    /// Which call of the history a request of the load is.
    calls: Mutex<HashMap<u64, (usize, Wish)>>,
    /// Told when the first request is written.
    began: Mutex<Option<Sender<()>>>,
}

impl<F: Fn(u64) -> Wish + Send + Sync + 'static> Recorder<F> {
    fn new(history: &Shared, wish: F, began: Option<Sender<()>>) -> Arc<Self> {
        Arc::new(Self { history: history.clone(), wish, calls: Mutex::default(), began: Mutex::new(began) })
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<u64, (usize, Wish)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Fn(u64) -> Wish + Send + Sync + 'static> Caller for Recorder<F> {
    fn write(&self, n: u64, out: &mut Vec<u8>) {
        let wish = (self.wish)(n);
        wish.write(n, out);
        let call = self.history.lock().invoke(wish);
        self.calls().insert(n, (call, wish));
        let began = self.began.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Nobody may listen any more; the load goes on all the same.
        began.map(|began| began.send(()).ok());
    }

    fn read(&self, n: u64, answer: &Answer<'_>) {
        let Some((call, wish)) = self.calls().get(&n).copied() else {
            return;
        };
        let end = end_of(&wish, answer.status, answer.body);
        self.history.lock().end(call, end);
    }
}

/// One cycle's load.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The server.
    pub at: SocketAddr,
    /// The randomness of what is sent.
    pub seed: u64,
    /// The cycle, so that its wishes are new.
    pub cycle: u32,
    /// How long it lasts.
    pub window: Duration,
}

impl Load {
    /// Runs the load, and `meanwhile` beside it from the moment of its first request.
    pub fn run<T>(&self, history: &Shared, meanwhile: impl FnOnce() -> Result<T>) -> Result<T> {
        let Self { at, seed, cycle, window } = *self;
        let (tell, told) = channel();
        let caller = Recorder::new(history, move |n| wish(seed, cycle, n), Some(tell));
        let until = Until::Window { warm_up: Duration::ZERO, window };
        let plan = Sustain { to: at, connections: CONNECTIONS, threads: 1, until };
        std::thread::scope(|scope| {
            let load = scope.spawn(|| sustain(&plan, &caller));
            let began = told.recv_timeout(START).context("the load did not begin");
            let done = began.and_then(|()| meanwhile());
            let loaded = load.join();
            let loaded = loaded.unwrap_or_else(|_panic| Err(std::io::Error::other("the load panicked")));
            loaded.context("the load")?;
            done
        })
    }
}

/// Asks once more for each of `wishes`, with the words of another turn.
pub fn ask_again(at: SocketAddr, history: &Shared, wishes: &[Wish]) -> Result<()> {
    if wishes.is_empty() {
        return Ok(());
    }
    let (count, wishes) = (wishes.len() as u64, wishes.to_vec());
    let caller = Recorder::new(history, move |n| wishes[n as usize], None);
    let until = Until::Count { count, patience: PATIENCE };
    let plan = Sustain { to: at, connections: CONNECTIONS, threads: 1, until };
    sustain(&plan, &caller).context("asking again").map(drop)
}

/// Waits until `done` says so, and gives its last word.
pub fn until(patience: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        if done()? {
            return Ok(true);
        }
        if Instant::now() > deadline {
            return Ok(false);
        }
        pause(Duration::from_millis(50));
    }
}
