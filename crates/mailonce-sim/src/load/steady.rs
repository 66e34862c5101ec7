//! Steady load: each connection sends its next request as soon as it has the reply to the last.

use super::threads::run_on_threads;
use super::{LoadStats, RequestGenerator};
use crate::load::connection::LoadConnection;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};

/// How long after its window a run waits for the last replies before it fails.
const LAST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection waits before it reconnects to a server that refused it.
const RECONNECT_DELAY: Duration = Duration::from_millis(20);

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub enum LoadDuration {
    /// After a warm-up that is not counted and a window that is.
    Window {
        /// Sent, not counted.
        warm_up: Duration,
        /// Counted.
        window: Duration,
    },
    /// After a number of requests, all of them counted.
    Count {
        /// The number of requests.
        count: u64,
        /// The timeout for all of them.
        timeout: Duration,
    },
}

/// A steady load.
#[derive(Debug, Clone, Copy)]
pub struct SteadyLoad {
    /// The server.
    pub to: SocketAddr,
    /// Concurrent connections.
    pub connections: usize,
    /// Threads that share the connections. One is enough unless the server has several cores to itself.
    pub threads: usize,
    /// When it ends.
    pub duration: LoadDuration,
}

/// The moments at which a run counts, ends, and fails.
#[derive(Clone, Copy)]
struct LoadLimits {
    count_from: Instant,
    count_until: Option<Instant>,
    deadline: Instant,
    count: u64,
}

impl LoadLimits {
    fn new(until: LoadDuration, now: Instant) -> Self {
        match until {
            LoadDuration::Window { warm_up, window } => {
                let from = now + warm_up;
                let to = from + window;
                Self { count_from: from, count_until: Some(to), deadline: to + LAST_RESPONSE_TIMEOUT, count: u64::MAX }
            }
            LoadDuration::Count { count, timeout } => {
                Self { count_from: now, count_until: None, deadline: now + timeout, count }
            }
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.count_until.is_some_and(|to| now >= to)
    }
}

/// Runs a steady load. Requests are numbered from 0 in the order in which they start.
///
/// A failed exchange is counted and its connection reopened. Fails when the connections cannot be opened, when replies
/// are still missing half a minute after the window, or when the timeout of a count passes.
pub fn run_steady(plan: &SteadyLoad, caller: &Arc<impl RequestGenerator>) -> io::Result<LoadStats> {
    let next = Arc::new(AtomicU64::new(0));
    let tallies = run_on_threads(plan.to, plan.connections, plan.threads, |runtime, wires| {
        let lane = ConnectionContext {
            to: plan.to,
            limits: LoadLimits::new(plan.duration, Instant::now()),
            next: Arc::clone(&next),
            generator: Arc::clone(caller),
        };
        run_thread(runtime, lane, wires)
    })?;
    Ok(LoadStats::sum(&tallies))
}

/// What every connection of a run needs.
struct ConnectionContext<C> {
    to: SocketAddr,
    limits: LoadLimits,
    next: Arc<AtomicU64>,
    generator: Arc<C>,
}

fn run_thread<C: RequestGenerator>(
    runtime: &Runtime,
    lane: ConnectionContext<C>,
    wires: Vec<(usize, LoadConnection)>,
) -> io::Result<LoadStats> {
    let limits = lane.limits;
    let lane = Rc::new(lane);
    let tally = Rc::new(RefCell::new(LoadStats::default()));
    let local = LocalSet::new();
    let mut tasks = JoinSet::new();
    for (_, wire) in wires {
        tasks.spawn_local_on(run_connection(Rc::clone(&lane), wire, Rc::clone(&tally)), &local);
    }
    let done = local.run_until(async {
        let all = async { while tasks.join_next().await.is_some() {} };
        tokio::time::timeout_at(limits.deadline.into(), all).await.is_ok()
    });
    if !runtime.block_on(done) {
        let why = format!("the server stopped answering after {}", tally.borrow());
        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
    }
    tally.borrow_mut().elapsed = limits.count_until.unwrap_or_else(Instant::now) - limits.count_from;
    Ok(tally.take())
}

async fn run_connection<C: RequestGenerator>(
    lane: Rc<ConnectionContext<C>>,
    first: LoadConnection,
    tally: Rc<RefCell<LoadStats>>,
) {
    let mut out = Vec::with_capacity(4096);
    let mut wire = first;
    let mut began = Instant::now();
    while !lane.limits.is_over(began) {
        if !wire.is_open() {
            match LoadConnection::open(lane.to).await {
                Ok(opened) => wire = opened,
                Err(why) => {
                    tally.borrow_mut().record_error(&why);
                    tokio::time::sleep(RECONNECT_DELAY).await;
                }
            }
            began = Instant::now();
            continue;
        }
        let n = lane.next.fetch_add(1, Ordering::Relaxed);
        if n >= lane.limits.count {
            return;
        }
        out.clear();
        lane.generator.write_request(n, &mut out);
        let result = wire.exchange(&out).await;
        let ended = Instant::now();
        match result {
            Ok(answer) => {
                lane.generator.on_response(n, &answer);
                if ended >= lane.limits.count_from && !lane.limits.is_over(ended) {
                    tally.borrow_mut().record_response(answer.status, ended - began);
                }
            }
            Err(why) => tally.borrow_mut().record_error(&why),
        }
        began = ended;
    }
}
