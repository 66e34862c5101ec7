//! A next hop that takes every mail and counts the markers in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use super::super::UsageError;

/// What every marker begins with.
pub(in crate::cli) const MARKER_PREFIX: &str = "moprove-";
/// Characters of a marker behind the prefix: twelve of the run, a dash, four of the count.
const MARKER_CHARS: usize = 17;
/// The longest line of a mail or a command.
const LINE_BYTES: u64 = 64 * 1024;
/// The largest mail.
const MAIL_BYTES: usize = 4 * 1024 * 1024;
/// Connections at a time; the next one waits.
const MAX_CONNECTIONS: usize = 256;
/// How long a silent client is kept.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// Mails by marker, and how many came in all.
#[derive(Default)]
struct MarkerCounts {
    by_marker: Mutex<BTreeMap<String, u32>>,
    total: watch::Sender<u64>,
}

/// A listener that runs until it is dropped.
pub(in crate::cli) struct CountingSink {
    address: SocketAddr,
    counts: Arc<MarkerCounts>,
    accept_task: JoinHandle<()>,
}

impl CountingSink {
    pub(in crate::cli) async fn listen(at: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(at).await.map_err(|error| {
            UsageError(format!("the sink cannot listen on {at}: {error}; name another address with --sink"))
        })?;
        let address = listener.local_addr()?;
        let counts = Arc::new(MarkerCounts::default());
        let listening = tokio::spawn(accept_connections(listener, Arc::clone(&counts)));
        Ok(Self { address, counts, accept_task: listening })
    }

    pub(in crate::cli) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many mails came with each marker.
    pub(in crate::cli) fn counts_by_marker(&self) -> BTreeMap<String, u32> {
        self.counts.by_marker.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all wanted mails came and then none for a while, or until patience ends.
    pub(in crate::cli) async fn wait_for_mails(
        &self,
        wanted: &BTreeMap<String, u32>,
        quiet: Duration,
        patience: Duration,
    ) {
        let end = Instant::now() + patience;
        let mut mails = self.counts.total.subscribe();
        loop {
            mails.borrow_and_update();
            let still = timeout(quiet, mails.changed()).await.is_err();
            let arrived = self.counts_by_marker();
            let all = wanted.iter().all(|(marker, count)| arrived.get(marker).unwrap_or(&0) >= count);
            if still && (all || Instant::now() >= end) {
                return;
            }
            // A server that never falls silent is broken enough to be counted as it is.
            if Instant::now() >= end + patience {
                return;
            }
        }
    }
}

impl Drop for CountingSink {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

async fn accept_connections(listener: TcpListener, counts: Arc<MarkerCounts>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        // Out of descriptors, most likely: those that are open will end.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let counts = Arc::clone(&counts);
        tokio::spawn(async move {
            // A client that hangs up ends its own session only; what it finished was counted.
            serve_session(stream, &counts).await.ok();
            drop(place);
        });
    }
}

/// One client, from greeting to farewell.
async fn serve_session(stream: TcpStream, counts: &MarkerCounts) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    stream.write_all(b"220 prove ESMTP\r\n").await?;
    loop {
        let line = read_line(&mut stream).await?;
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        let verb = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
        let answer: &[u8] = match verb.as_str() {
            "EHLO" => b"250-prove\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 PIPELINING\r\n",
            "HELO" | "MAIL" | "RCPT" | "RSET" | "NOOP" => b"250 ok\r\n",
            "DATA" => {
                stream.write_all(b"354 go on\r\n").await?;
                match read_mail(&mut stream).await? {
                    Some(mail) => {
                        counts.add(&mail);
                        b"250 counted\r\n"
                    }
                    None => b"552 too large\r\n",
                }
            }
            "QUIT" => return stream.write_all(b"221 bye\r\n").await,
            "" => return Ok(()),
            _ => b"502 not here\r\n",
        };
        stream.write_all(answer).await?;
    }
}

/// One line within its limits; empty at the end.
async fn read_line(stream: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let end = Instant::now() + IDLE_TIMEOUT;
    timeout_at(end, stream.take(LINE_BYTES).read_until(b'\n', &mut line)).await??;
    Ok(line)
}

/// A mail up to its dot, or nothing when it is too large. It is read to its end in any case.
async fn read_mail(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Vec<u8>>> {
    let mut mail = Vec::new();
    let mut fits = true;
    loop {
        let line = read_line(stream).await?;
        match line.as_slice() {
            b".\r\n" | b".\n" => return Ok(fits.then_some(mail)),
            // The client left before the dot: there is no mail.
            [] => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => fits &= mail.len() + line.len() <= MAIL_BYTES,
        }
        if fits {
            mail.extend_from_slice(&line);
        }
    }
}

impl MarkerCounts {
    /// A mail counts once for each marker in it, however often it says it.
    fn add(&self, mail: &[u8]) {
        let text = String::from_utf8_lossy(mail);
        let fits = |end: &&str| end.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let markers: BTreeSet<String> = text
            .match_indices(MARKER_PREFIX)
            .filter_map(|(at, _)| text.get(at..at + MARKER_PREFIX.len() + MARKER_CHARS))
            .filter(fits)
            .map(str::to_owned)
            .collect();
        let mut arrived = self.by_marker.lock().unwrap_or_else(PoisonError::into_inner);
        for marker in markers {
            *arrived.entry(marker).or_default() += 1;
        }
        drop(arrived);
        self.total.send_modify(|mails| *mails += 1);
    }
}
