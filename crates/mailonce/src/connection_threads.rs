//! Lanes: for each core a thread that serves the connections it was given, alone.
//!
//! A call is woken where its connection is, and gives memory back where it took it: no core looks into another's queue
//! and none waits for another's allocator. What a call needs for long (reading the ledger, for one) it leaves to other
//! threads, as it must anywhere in an asynchronous program. Loops and mail that comes in have a runtime of their own.

use std::{io, num::NonZero, sync::Arc, thread};
use tokio::{
    net::TcpStream,
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// The lanes of a server. They end when this is dropped.
pub(crate) struct ConnectionThreads(Vec<ConnectionThread>);

struct ConnectionThread {
    handle: Handle,
    /// Held once more by each connection, so that they can be counted.
    connections: Arc<()>,
    _open: oneshot::Sender<()>,
}

impl ConnectionThreads {
    /// Opens one for each core that we may use.
    pub(crate) fn open() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        Ok(Self((0..cores).map(ConnectionThread::open).collect::<io::Result<_>>()?))
    }

    /// Serves a connection on the lane that has the fewest.
    pub(crate) fn serve<Served: Future<Output = ()> + Send + 'static>(
        &self,
        stream: TcpStream,
        attend: impl FnOnce(TcpStream) -> Served + Send + 'static,
    ) -> io::Result<()> {
        let Some(lane) = self.0.iter().min_by_key(|lane| Arc::strong_count(&lane.connections)) else { return Ok(()) };
        let (stream, guest) = (stream.into_std()?, Arc::clone(&lane.connections));
        lane.handle.spawn(async move {
            // Only here can it be told to wake this lane and no other.
            match TcpStream::from_std(stream) {
                Ok(stream) => attend(stream).await,
                Err(error) => tracing::warn!(%error, "taking a connection over"),
            }
            drop(guest);
        });
        Ok(())
    }
}

impl ConnectionThread {
    fn open(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (open, closed) = oneshot::channel::<()>();
        // Dropping the other end is the sign; nothing is ever sent.
        let serve = move || runtime.block_on(async { closed.await.unwrap_or_default() });
        thread::Builder::new().name(format!("lane-{number}")).spawn(serve)?;
        Ok(Self { handle, connections: Arc::default(), _open: open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, sync::Mutex};
    use tokio::{io::AsyncReadExt as _, net::TcpListener};

    #[tokio::test]
    async fn connections_are_shared_out_evenly_and_end_with_their_lanes() {
        let (lanes, listener) = (ConnectionThreads::open().unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (seen, at) = (Arc::new(Mutex::new(BTreeMap::<String, usize>::new())), listener.local_addr().unwrap());
        let each = 3;
        let mut clients = Vec::new();
        for _ in 0..each * lanes.0.len() {
            clients.push(TcpStream::connect(at).await.unwrap());
            let (stream, seen) = (listener.accept().await.unwrap().0, Arc::clone(&seen));
            let attend = |mut stream: TcpStream| async move {
                let name = thread::current().name().unwrap_or_default().to_owned();
                *seen.lock().unwrap().entry(name).or_default() += 1;
                let _never = stream.read_u8().await;
            };
            lanes.serve(stream, attend).unwrap();
        }
        let all = || seen.lock().unwrap().values().sum::<usize>() == clients.len();
        while !all() {
            tokio::task::yield_now().await;
        }
        assert!(seen.lock().unwrap().values().all(|count| *count == each), "{seen:?}");
        drop(lanes);
        for client in &mut clients {
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "it was not hung up");
        }
    }
}
