//! Connection threads: one single-threaded runtime per core. Each HTTP connection stays on one thread.
//!
//! A request is woken on the thread of its connection, and frees memory on the thread that allocated it. So no core
//! steals work from another or waits for another's allocator. Long work, such as reading the store, runs on other
//! threads, as in any asynchronous program. Background loops and inbound SMTP use a separate runtime.

use std::{io, num::NonZero, sync::Arc, thread};
use tokio::{
    net::TcpStream,
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// The connection threads of a server. They end when this is dropped.
pub(crate) struct ConnectionThreads(Vec<ConnectionThread>);

struct ConnectionThread {
    handle: Handle,
    /// Each open connection holds a clone, so the reference count is the number of connections.
    connections: Arc<()>,
    _open: oneshot::Sender<()>,
}

impl ConnectionThreads {
    /// Starts one thread for each available core.
    pub(crate) fn open() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        Ok(Self((0..cores).map(ConnectionThread::open).collect::<io::Result<_>>()?))
    }

    /// Serves a connection on the thread with the fewest connections.
    pub(crate) fn serve<Fut: Future<Output = ()> + Send + 'static>(
        &self,
        stream: TcpStream,
        serve_connection: impl FnOnce(TcpStream) -> Fut + Send + 'static,
    ) -> io::Result<()> {
        let Some(thread) = self.0.iter().min_by_key(|thread| Arc::strong_count(&thread.connections)) else {
            return Ok(());
        };
        let (stream, connection) = (stream.into_std()?, Arc::clone(&thread.connections));
        thread.handle.spawn(async move {
            // Registered inside the task, so that this thread's reactor wakes the connection.
            match TcpStream::from_std(stream) {
                Ok(stream) => serve_connection(stream).await,
                Err(error) => tracing::warn!(%error, "registering a connection on its thread failed"),
            }
            drop(connection);
        });
        Ok(())
    }
}

impl ConnectionThread {
    fn open(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (open, closed) = oneshot::channel::<()>();
        // Dropping the sender ends the thread; nothing is ever sent.
        let serve = move || runtime.block_on(async { closed.await.unwrap_or_default() });
        thread::Builder::new().name(format!("http-{number}")).spawn(serve)?;
        Ok(Self { handle, connections: Arc::default(), _open: open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, sync::Mutex};
    use tokio::{io::AsyncReadExt as _, net::TcpListener};

    #[tokio::test]
    async fn connections_are_shared_out_evenly_and_end_with_their_threads() {
        let (threads, listener) = (ConnectionThreads::open().unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (seen, at) = (Arc::new(Mutex::new(BTreeMap::<String, usize>::new())), listener.local_addr().unwrap());
        let each = 3;
        let mut clients = Vec::new();
        for _ in 0..each * threads.0.len() {
            clients.push(TcpStream::connect(at).await.unwrap());
            let (stream, seen) = (listener.accept().await.unwrap().0, Arc::clone(&seen));
            let serve_connection = |mut stream: TcpStream| async move {
                let name = thread::current().name().unwrap_or_default().to_owned();
                *seen.lock().unwrap().entry(name).or_default() += 1;
                let _never = stream.read_u8().await;
            };
            threads.serve(stream, serve_connection).unwrap();
        }
        let all = || seen.lock().unwrap().values().sum::<usize>() == clients.len();
        while !all() {
            tokio::task::yield_now().await;
        }
        assert!(seen.lock().unwrap().values().all(|count| *count == each), "{seen:?}");
        drop(threads);
        for client in &mut clients {
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "the connection is still open");
        }
    }
}
