//! An SMTP sink that accepts every email and counts its markers.

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

/// Prefix of every marker.
pub(in crate::cli) const MARKER_PREFIX: &str = "moprove-";
/// Characters after the prefix: twelve for the run, a dash, four for the count.
const MARKER_CHARS: usize = 17;
/// Longest line of an email or a command.
const LINE_BYTES: u64 = 64 * 1024;
/// Largest email.
const MAIL_BYTES: usize = 4 * 1024 * 1024;
/// Concurrent connections; further ones wait.
const MAX_CONNECTIONS: usize = 256;
/// Timeout of an idle client.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// Emails by marker, and their total.
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
            UsageError(format!("the sink cannot listen on {at}: {error}; pass another address with --sink"))
        })?;
        let address = listener.local_addr()?;
        let counts = Arc::new(MarkerCounts::default());
        let listening = tokio::spawn(accept_connections(listener, Arc::clone(&counts)));
        Ok(Self { address, counts, accept_task: listening })
    }

    pub(in crate::cli) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of emails with each marker.
    pub(in crate::cli) fn counts_by_marker(&self) -> BTreeMap<String, u32> {
        self.counts.by_marker.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all expected emails arrived and none followed for `settle`, or until the timeout.
    pub(in crate::cli) async fn wait_for_mails(
        &self,
        expected: &BTreeMap<String, u32>,
        settle: Duration,
        max_wait: Duration,
    ) {
        let end = Instant::now() + max_wait;
        let mut mails = self.counts.total.subscribe();
        loop {
            mails.borrow_and_update();
            let settled = timeout(settle, mails.changed()).await.is_err();
            let arrived = self.counts_by_marker();
            let all = expected.iter().all(|(marker, count)| arrived.get(marker).unwrap_or(&0) >= count);
            if settled && (all || Instant::now() >= end) {
                return;
            }
            // Do not wait forever for a server that keeps sending.
            if Instant::now() >= end + max_wait {
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
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        // Probably out of file descriptors, until other connections close.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let counts = Arc::clone(&counts);
        tokio::spawn(async move {
            // A disconnect ends only this session. Its complete emails were counted.
            serve_session(stream, &counts).await.ok();
            drop(permit);
        });
    }
}

/// One SMTP session.
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

/// One line within the limits; empty at the end of the stream.
async fn read_line(stream: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let end = Instant::now() + IDLE_TIMEOUT;
    timeout_at(end, stream.take(LINE_BYTES).read_until(b'\n', &mut line)).await??;
    Ok(line)
}

/// Reads an email up to the final dot. `None` if it is too large.
async fn read_mail(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Vec<u8>>> {
    let mut mail = Vec::new();
    let mut fits = true;
    loop {
        let line = read_line(stream).await?;
        match line.as_slice() {
            b".\r\n" | b".\n" => return Ok(fits.then_some(mail)),
            // The client disconnected before the final dot, so there is no email.
            [] => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => fits &= mail.len() + line.len() <= MAIL_BYTES,
        }
        if fits {
            mail.extend_from_slice(&line);
        }
    }
}

impl MarkerCounts {
    /// Counts each marker of an email once.
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
