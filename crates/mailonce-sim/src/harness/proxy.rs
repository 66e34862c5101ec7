//! A network between two servers that can be cut, stalled, and made to lose answers.

use crate::harness::rng::SeededRng;
use anyhow::Result;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Bytes that are passed on at a time.
const BUFFER_BYTES: usize = 16 * 1024;

/// How the network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkFault {
    /// Everything passes.
    None,
    /// Nothing passes, and nobody is told.
    Stalled,
    /// Connections are reset, and new ones too.
    Down,
    /// One in so many answers is lost, and its connection with it: what was asked for was done, and nobody is told.
    /// Only answers that hold these bytes.
    LoseReplies(u64, &'static [u8]),
    /// One in so many requests breaks off in its middle, and its connection with it.
    TruncateRequests(u64),
    /// Every connection is cut after about so many bytes of requests.
    CutAfter(u64),
}

/// What the network did.
#[derive(Debug, Default)]
struct ProxyCounts {
    cuts: AtomicU64,
    lost: AtomicU64,
}

struct ProxyState {
    fault: watch::Sender<NetworkFault>,
    chance: Mutex<SeededRng>,
    counts: ProxyCounts,
}

/// A network that runs until it is dropped.
pub struct FaultyProxy {
    /// Where it is entered.
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
    /// A fair network to a port of this machine.
    pub fn start(to: u16, seed: u64) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let at = listener.local_addr()?;
        let chance = Mutex::new(SeededRng::derive(seed, &[u64::from(to)]));
        let shared = Arc::new(ProxyState {
            fault: watch::Sender::new(NetworkFault::None),
            chance,
            counts: ProxyCounts::default(),
        });
        let serving = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                // How a connection ends is what the rig is about; it concerns nobody here.
                tokio::spawn(async move { Box::pin(shared.relay_connection(client, to)).await.ok() });
            }
        });
        Ok(Self { at, shared, _runtime: runtime })
    }

    /// Changes the weather, from the next byte on.
    pub fn set_fault(&self, weather: NetworkFault) {
        self.shared.fault.send_replace(weather);
    }

    /// Connections that were cut.
    pub fn cuts(&self) -> u64 {
        self.shared.counts.cuts.load(Ordering::Relaxed)
    }

    /// Answers that were lost.
    pub fn lost_replies(&self) -> u64 {
        self.shared.counts.lost.load(Ordering::Relaxed)
    }
}

impl ProxyState {
    /// One connection, from both ends.
    async fn relay_connection(&self, client: TcpStream, to: u16) -> std::io::Result<()> {
        // Whatever ends it ends as a reset: the other side learns that it did not end well.
        client.set_zero_linger()?;
        client.set_nodelay(true)?;
        let mut weather = self.fault.subscribe();
        if weather.wait_for(|now| *now != NetworkFault::Stalled).await.is_ok_and(|now| *now == NetworkFault::Down) {
            return Ok(());
        }
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await?;
        server.set_nodelay(true)?;
        let (client_in, client_out) = client.into_split();
        let (server_in, server_out) = server.into_split();
        tokio::select! {
            () = self.relay_bytes(ProxyDirection::Request, client_in, server_out) => {}
            () = self.relay_bytes(ProxyDirection::Reply, server_in, client_out) => {}
            _ = weather.wait_for(|now| *now == NetworkFault::Down) => {
                self.counts.cuts.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Passes bytes on, until somebody leaves or the weather is against it.
    async fn relay_bytes(
        &self,
        way: ProxyDirection,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) {
        let mut weather = self.fault.subscribe();
        let (mut piece, mut passed) = (vec![0; BUFFER_BYTES], 0);
        while let Ok(read @ 1..) = from.read(&mut piece).await {
            if weather.wait_for(|now| *now != NetworkFault::Stalled).await.is_err() {
                return;
            }
            passed += read as u64;
            let now = *self.fault.borrow();
            let fit = self.bytes_to_forward(now, way, &piece[..read], passed);
            if to.write_all(&piece[..fit]).await.is_err() {
                return;
            }
            if fit < read {
                return;
            }
        }
    }

    /// How many of these bytes arrive. Fewer than all means the end of the connection.
    fn bytes_to_forward(&self, now: NetworkFault, way: ProxyDirection, bytes: &[u8], passed: u64) -> usize {
        let one_in = |n: u64| self.chance.lock().unwrap_or_else(PoisonError::into_inner).below(n) == 0;
        let holds = |part: &[u8]| part.is_empty() || bytes.windows(part.len()).any(|some| some == part);
        match (now, way) {
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

    /// An echo behind a network. The echo ends with the test.
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

    fn call(proxy: &FaultyProxy, words: &str) -> Option<String> {
        let mut stream = TcpStream::connect(proxy.at).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(300))).ok()?;
        stream.write_all(words.as_bytes()).ok()?;
        let mut bytes = vec![0; words.len()];
        stream.read_exact(&mut bytes).ok()?;
        String::from_utf8(bytes).ok()
    }

    #[test]
    fn the_weather_decides_what_passes() {
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
