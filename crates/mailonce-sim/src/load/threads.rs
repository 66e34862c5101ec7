//! Threads that share the connections of a run and start at the same moment.

use crate::load::connection::LoadConnection;
use std::io;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// Connections that are opened concurrently: fewer than any listener's backlog.
const CONNECT_BATCH: usize = 64;

/// Opens all connections, then starts every thread with its share of them and their numbers.
///
/// Connections are opened first so that a slow handshake does not count as latency. Fails when one cannot be opened.
pub(super) fn run_on_threads<T: Send>(
    to: SocketAddr,
    connections: usize,
    threads: usize,
    work: impl Fn(&Runtime, Vec<(usize, LoadConnection)>) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    let threads = threads.clamp(1, connections.max(1));
    let (start, failed) = (Barrier::new(threads), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let spawn = |index: usize| {
            let (start, failed, work) = (&start, &failed, &work);
            scope.spawn(move || {
                let opened = open_connections(to, (index..connections).step_by(threads));
                // Every thread must reach the barrier, or the others would wait forever.
                failed.fetch_or(opened.is_err(), Ordering::SeqCst);
                start.wait();
                let (runtime, wires) = opened?;
                if failed.load(Ordering::SeqCst) {
                    return Err(io::Error::other("another thread could not open its connections"));
                }
                work(&runtime, wires)
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        handles.into_iter().map(join).collect()
    })
}

fn join<T>(handle: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    handle.join().unwrap_or_else(|_panic| Err(io::Error::other("a load thread panicked")))
}

fn open_connections(
    to: SocketAddr,
    mut numbers: impl Iterator<Item = usize>,
) -> io::Result<(Runtime, Vec<(usize, LoadConnection)>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let wires = runtime.block_on(async {
        let mut wires = Vec::new();
        loop {
            let mut wave = JoinSet::new();
            for number in numbers.by_ref().take(CONNECT_BATCH) {
                wave.spawn(async move { (number, LoadConnection::open(to).await) });
            }
            if wave.is_empty() {
                return io::Result::Ok(wires);
            }
            while let Some(joined) = wave.join_next().await {
                let (number, wire) = joined?;
                wires.push((number, wire?));
            }
        }
    })?;
    Ok((runtime, wires))
}
