//! Steady load: every connection sends its next request as soon as it has its answer.

use super::threads::side_by_side;
use super::wire::Wire;
use super::{Caller, Tally};
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};

/// How long after its window a run waits for the last answers before it calls the server stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection waits before it tries a server that refused it again.
const RETRY: Duration = Duration::from_millis(20);

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// After a warm-up that is not counted and a window that is.
    Window {
        /// Sent, not counted.
        warm_up: Duration,
        /// Counted.
        window: Duration,
    },
    /// After so many requests, all of them counted.
    Count {
        /// How many.
        count: u64,
        /// How long they may take.
        patience: Duration,
    },
}

/// A steady load.
#[derive(Debug, Clone, Copy)]
pub struct Sustain {
    /// The server.
    pub to: SocketAddr,
    /// How many connections are kept busy.
    pub connections: usize,
    /// Threads that share the connections. One is enough unless the server has several cores to itself.
    pub threads: usize,
    /// When it ends.
    pub until: Until,
}

/// When a run counts, ends, and gives up.
#[derive(Clone, Copy)]
struct Limits {
    from: Instant,
    to: Option<Instant>,
    deadline: Instant,
    count: u64,
}

impl Limits {
    fn new(until: Until, now: Instant) -> Self {
        match until {
            Until::Window { warm_up, window } => {
                let from = now + warm_up;
                let to = from + window;
                Self { from, to: Some(to), deadline: to + PATIENCE, count: u64::MAX }
            }
            Until::Count { count, patience } => Self { from: now, to: None, deadline: now + patience, count },
        }
    }

    fn over(&self, now: Instant) -> bool {
        self.to.is_some_and(|to| now >= to)
    }
}

/// Runs a steady load to its end; requests are numbered from 0 in the order in which they begin.
///
/// A broken exchange is counted and its connection opened again. Fails when the connections cannot be opened, when the
/// server still owes answers half a minute after the window, or when the patience with a count ends.
pub fn sustain(plan: &Sustain, caller: &Arc<impl Caller>) -> io::Result<Tally> {
    let next = Arc::new(AtomicU64::new(0));
    let tallies = side_by_side(plan.to, plan.connections, plan.threads, |runtime, wires| {
        let lane = Lane {
            to: plan.to,
            limits: Limits::new(plan.until, Instant::now()),
            next: Arc::clone(&next),
            caller: Arc::clone(caller),
        };
        run_thread(runtime, lane, wires)
    })?;
    Ok(Tally::sum(&tallies))
}

/// What every connection of a run needs.
struct Lane<C> {
    to: SocketAddr,
    limits: Limits,
    next: Arc<AtomicU64>,
    caller: Arc<C>,
}

fn run_thread<C: Caller>(runtime: &Runtime, lane: Lane<C>, wires: Vec<(usize, Wire)>) -> io::Result<Tally> {
    let limits = lane.limits;
    let lane = Rc::new(lane);
    let tally = Rc::new(RefCell::new(Tally::default()));
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
    tally.borrow_mut().elapsed = limits.to.unwrap_or_else(Instant::now) - limits.from;
    Ok(tally.take())
}

async fn run_connection<C: Caller>(lane: Rc<Lane<C>>, first: Wire, tally: Rc<RefCell<Tally>>) {
    let mut out = Vec::with_capacity(4096);
    let mut wire = first;
    let mut began = Instant::now();
    while !lane.limits.over(began) {
        if !wire.is_open() {
            match Wire::open(lane.to).await {
                Ok(opened) => wire = opened,
                Err(why) => {
                    tally.borrow_mut().broke(&why);
                    tokio::time::sleep(RETRY).await;
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
        lane.caller.write(n, &mut out);
        let result = wire.exchange(&out).await;
        let ended = Instant::now();
        match result {
            Ok(answer) => {
                lane.caller.read(n, &answer);
                if ended >= lane.limits.from && !lane.limits.over(ended) {
                    tally.borrow_mut().answered(answer.status, ended - began);
                }
            }
            Err(why) => tally.borrow_mut().broke(&why),
        }
        began = ended;
    }
}
