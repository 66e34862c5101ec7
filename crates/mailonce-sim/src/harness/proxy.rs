//! A TCP proxy that can cut connections, stall, and lose replies.

use crate::harness::rng::SeededRng;
use anyhow::Result;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Buffer size.
const BUFFER_BYTES: usize = 16 * 1024;

/// The fault of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkFault {
    /// Everything passes.
    None,
    /// Nothing passes, and connections stay open.
    Stalled,
    /// Existing and new connections are reset.
    Down,
    /// One of this many replies is lost with its connection, after the request was processed. Only replies that contain
    /// these bytes count.
    LoseReplies(u64, &'static [u8]),
    /// One of this many requests is truncated, and its connection is reset.
    TruncateRequests(u64),
    /// Every connection is cut after about this many bytes of requests.
    CutAfter(u64),
}

/// Counters of the proxy.
#[derive(Debug, Default)]
struct ProxyCounts {
    cuts: AtomicU64,
    lost: AtomicU64,
}

struct ProxyState {
    fault: watch::Sender<NetworkFault>,
    rng: Mutex<SeededRng>,
    counts: ProxyCounts,
}

/// A proxy that runs until it is dropped.
pub struct FaultyProxy {
    /// Its address.
    pub at: SocketAddr,
    shared: Arc<ProxyState>,
    _runtime: Runtime,
}

impl std::fmt::Debug for FaultyProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({})", self.at)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProxyDirection {
    Request,
    Reply,
}

impl FaultyProxy {
    /// Starts a proxy without faults to a port of this machine.
    pub fn start(to: u16, seed: u64) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let at = listener.local_addr()?;
        let rng = Mutex::new(SeededRng::derive(seed, &[u64::from(to)]));
        let shared =
            Arc::new(ProxyState { fault: watch::Sender::new(NetworkFault::None), rng, counts: ProxyCounts::default() });
        let serving = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                // Connections end with errors on purpose.
                tokio::spawn(async move { Box::pin(shared.relay_connection(client, to)).await.ok() });
            }
        });
        Ok(Self { at, shared, _runtime: runtime })
    }

    /// Sets the fault from the next byte on.
    pub fn set_fault(&self, current_fault: NetworkFault) {
        self.shared.fault.send_replace(current_fault);
    }

    /// Connections that were cut.
    pub fn cuts(&self) -> u64 {
        self.shared.counts.cuts.load(Ordering::Relaxed)
    }

    /// Replies that were lost.
    pub fn lost_replies(&self) -> u64 {
        self.shared.counts.lost.load(Ordering::Relaxed)
    }
}

impl ProxyState {
    /// Relays one connection in both directions.
    async fn relay_connection(&self, client: TcpStream, to: u16) -> std::io::Result<()> {
        // Every connection ends with a reset, so that the peers notice.
        client.set_zero_linger()?;
        client.set_nodelay(true)?;
        let mut current_fault = self.fault.subscribe();
        if current_fault.wait_for(|now| *now != NetworkFault::Stalled).await.is_ok_and(|now| *now == NetworkFault::Down)
        {
            return Ok(());
        }
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await?;
        server.set_nodelay(true)?;
        let (client_in, client_out) = client.into_split();
        let (server_in, server_out) = server.into_split();
        tokio::select! {
            () = self.relay_bytes(ProxyDirection::Request, client_in, server_out) => {}
            () = self.relay_bytes(ProxyDirection::Reply, server_in, client_out) => {}
            _ = current_fault.wait_for(|now| *now == NetworkFault::Down) => {
                self.counts.cuts.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Relays one direction until a peer closes it or a fault ends it.
    async fn relay_bytes(
        &self,
        direction: ProxyDirection,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) {
        let mut current_fault = self.fault.subscribe();
        let (mut piece, mut passed) = (vec![0; BUFFER_BYTES], 0);
        while let Ok(read @ 1..) = from.read(&mut piece).await {
            if current_fault.wait_for(|now| *now != NetworkFault::Stalled).await.is_err() {
                return;
            }
            passed += read as u64;
            let now = *self.fault.borrow();
            let fit = self.bytes_to_forward(now, direction, &piece[..read], passed);
            if to.write_all(&piece[..fit]).await.is_err() {
                return;
            }
            if fit < read {
                return;
            }
        }
    }

    /// How many of these bytes pass. Fewer than all means that the connection ends.
    fn bytes_to_forward(&self, now: NetworkFault, direction: ProxyDirection, bytes: &[u8], passed: u64) -> usize {
        let one_in = |n: u64| self.rng.lock().unwrap_or_else(PoisonError::into_inner).below(n) == 0;
        let holds = |part: &[u8]| part.is_empty() || bytes.windows(part.len()).any(|some| some == part);
        match (now, direction) {
            (NetworkFault::LoseReplies(n, part), ProxyDirection::Reply) if holds(part) && one_in(n) => {
                self.counts.lost.fetch_add(1, Ordering::Relaxed);
                0
            }
            (NetworkFault::TruncateRequests(n), ProxyDirection::Request) if one_in(n) => {
                self.counts.cuts.fetch_add(1, Ordering::Relaxed);
                bytes.len() / 2
            }
            (NetworkFault::CutAfter(most), ProxyDirection::Request) if passed > most => {
                self.counts.cuts.fetch_add(1, Ordering::Relaxed);
                bytes.len() / 2
            }
            _ => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FaultyProxy, NetworkFault};
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    /// An echo server behind a proxy, for the length of the test.
    fn echo() -> FaultyProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut bytes = [0; 64];
                    while let Ok(read @ 1..) = stream.read(&mut bytes) {
                        if stream.write_all(&bytes[..read]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        FaultyProxy::start(port, 1).unwrap()
    }

    fn call(proxy: &FaultyProxy, text: &str) -> Option<String> {
        let mut stream = TcpStream::connect(proxy.at).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(300))).ok()?;
        stream.write_all(text.as_bytes()).ok()?;
        let mut bytes = vec![0; text.len()];
        stream.read_exact(&mut bytes).ok()?;
        String::from_utf8(bytes).ok()
    }

    #[test]
    fn the_configured_fault_decides_what_passes() {
        let proxy = echo();
        assert_eq!(call(&proxy, "hello").as_deref(), Some("hello"));
        proxy.set_fault(NetworkFault::LoseReplies(1, b"COMMIT"));
        assert_eq!(call(&proxy, "hello").as_deref(), Some("hello"));
        assert_eq!(call(&proxy, "a COMMIT b"), None);
        assert_eq!((proxy.lost_replies(), proxy.cuts()), (1, 0));
        proxy.set_fault(NetworkFault::TruncateRequests(1));
        assert_eq!(call(&proxy, "hello"), None);
        proxy.set_fault(NetworkFault::CutAfter(8));
        assert_eq!((call(&proxy, "hello").as_deref(), call(&proxy, "hello again")), (Some("hello"), None));
        proxy.set_fault(NetworkFault::Down);
        assert_eq!(call(&proxy, "hello"), None);
        assert_eq!(proxy.lost_replies(), 1);
    }

    #[test]
    fn what_was_stalled_passes_afterwards() {
        let proxy = echo();
        proxy.set_fault(NetworkFault::Stalled);
        let mut stream = TcpStream::connect(proxy.at).unwrap();
        stream.write_all(b"late").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut bytes = [0; 4];
        assert!(stream.read_exact(&mut bytes).is_err());
        proxy.set_fault(NetworkFault::None);
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"late");
    }
}
