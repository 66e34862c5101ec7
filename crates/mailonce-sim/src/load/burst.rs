//! One request on each of many connections, all at the same moment.

use super::threads::run_on_threads;
use super::{LoadStats, RequestGenerator};
use crate::load::connection::LoadConnection;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};

/// A burst.
#[derive(Debug, Clone, Copy)]
pub struct BurstPlan {
    /// The server.
    pub to: SocketAddr,
    /// How many connections, and so requests.
    pub connections: usize,
    /// Threads that share the connections.
    pub threads: usize,
    /// How long to wait for the last reply.
    pub timeout: Duration,
}

/// Opens every connection, then writes one request on each at once. Latency counts from the common start, so it
/// includes the time the requests took to leave.
///
/// Fails when a connection cannot be opened; a failed exchange is counted.
pub fn run_burst(plan: &BurstPlan, caller: &Arc<impl RequestGenerator>) -> io::Result<LoadStats> {
    let tallies = run_on_threads(plan.to, plan.connections, plan.threads, |runtime, numbered| {
        send_all(runtime, numbered, caller, plan.timeout)
    })?;
    Ok(LoadStats::sum(&tallies))
}

fn send_all<C: RequestGenerator>(
    runtime: &Runtime,
    wires: Vec<(usize, LoadConnection)>,
    caller: &Arc<C>,
    timeout: Duration,
) -> io::Result<LoadStats> {
    let tally = Rc::new(RefCell::new(LoadStats::default()));
    let local = LocalSet::new();
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for (n, mut wire) in wires {
        let (caller, tally) = (Arc::clone(caller), Rc::clone(&tally));
        let exchange = async move {
            let mut out = Vec::new();
            caller.write_request(n as u64, &mut out);
            match wire.exchange(&out).await {
                Ok(answer) => {
                    tally.borrow_mut().record_response(answer.status, began.elapsed());
                    caller.on_response(n as u64, &answer);
                }
                Err(why) => tally.borrow_mut().record_error(&why),
            }
        };
        tasks.spawn_local_on(exchange, &local);
    }
    let all = local.run_until(async {
        let all = async { while tasks.join_next().await.is_some() {} };
        tokio::time::timeout(timeout, all).await.is_ok()
    });
    if !runtime.block_on(all) {
        let why = format!("not all answers came in {} s: {}", timeout.as_secs(), tally.borrow());
        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
    }
    tally.borrow_mut().elapsed = began.elapsed();
    Ok(tally.take())
}
