//! Received mail: SMTP next to Postfix, the latency of the `250`, the latency of waiting calls, and the cost of
//! thousands of them.

use crate::args::Args;
use crate::handoff::RUN_TIMEOUT;
use crate::postfix::{self, BODY_BYTES};
use crate::results::{FigureSample, millis};
use anyhow::{Context as _, Result, bail, ensure};
use mailonce_sim::harness::child_processes::{ChildProcesses, sleep};
use mailonce_sim::harness::http;
use mailonce_sim::harness::server::{API_KEY, ServerProcess, ServerSetup};
use mailonce_sim::load::Histogram;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The recipient.
const INBOX: &str = "bench@mailonce.test";
/// Connections that send at a steady rate.
const SENDERS: usize = 50;
/// Mails per second of all of them.
const MAILS_PER_SECOND: usize = 1_000;
/// Inboxes with a waiting call.
const WAITED_INBOXES: usize = 8;

/// Figures about received mail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InboundBench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) children: &'a ChildProcesses,
    pub(crate) binary: &'a Path,
    pub(crate) work: &'a Path,
}

/// A server with an inbox.
struct InboxServer {
    server: ServerProcess,
    smtp: SocketAddr,
    dir: tempfile::TempDir,
}

impl InboundBench<'_> {
    fn start_inbox_server(&self) -> Result<InboxServer> {
        let home = tempfile::Builder::new().prefix("inbound").tempdir_in(self.work)?;
        let data = home.path().join("data");
        let setup = ServerSetup { binary: self.binary, data: &data, store: None, paused: false, env: &[] };
        let server = setup.start(self.children)?;
        let text = std::fs::read_to_string(data.join("dev.json")).context("the file that dev leaves")?;
        let dev: Value = serde_json::from_str(&text)?;
        let smtp = dev["smtp"].as_str().context("no SMTP address")?.parse()?;
        create_inbox(&server, INBOX)?;
        Ok(InboxServer { server, smtp, dir: home })
    }

    /// Mails per second that are stored before their `250`, from `smtp-source`.
    pub(crate) fn measure_smtp_in(&self) -> Result<FigureSample> {
        let house = self.start_inbox_server()?;
        let (count, warm_up) = (self.args.emails(), self.args.warm_up_emails());
        let feed = |count| postfix::send_mails(self.children, house.dir.path(), house.smtp, INBOX, count);
        feed(warm_up)?;
        let began = Instant::now();
        feed(count)?;
        let took = began.elapsed();
        house.wait_until_filed(warm_up + count)?;
        let rss_mb = house.server.rss_mb();
        house.server.terminate()?;
        Ok(FigureSample { rate: Some(count as f64 / took.as_secs_f64()), rss_mb, ..FigureSample::default() })
    }

    /// From the final dot to the `250`, at a steady rate.
    pub(crate) fn measure_dot(&self) -> Result<FigureSample> {
        let house = self.start_inbox_server()?;
        let time = self.args.measured_time();
        let (smtp, began) = (house.smtp, Instant::now());
        let each = Duration::from_secs_f64(SENDERS as f64 / MAILS_PER_SECOND as f64);
        let threads: Vec<_> = (0..SENDERS)
            .map(|n| {
                std::thread::spawn(move || -> Result<Vec<Duration>> {
                    let mut door = SmtpSender::connect(smtp)?;
                    let mut times = Vec::new();
                    let mut next = began + each.mul_f64(n as f64 / SENDERS as f64);
                    while next < began + time {
                        sleep(next.saturating_duration_since(Instant::now()));
                        times.push(door.send(INBOX, &format!("{n}.{}", times.len()))?);
                        next += each;
                    }
                    Ok(times)
                })
            })
            .collect();
        let mut all = Histogram::default();
        for thread in threads {
            for took in thread.join().map_err(|_panic| anyhow::anyhow!("a sender ended"))?? {
                all.record(took);
            }
        }
        let rate = all.count() as f64 / began.elapsed().as_secs_f64();
        house.server.terminate()?;
        Ok(FigureSample::from_latency(&all, Some(rate)))
    }

    /// From the final dot to the reply of a waiting call.
    pub(crate) fn measure_wait(&self) -> Result<FigureSample> {
        let house = self.start_inbox_server()?;
        let end = Instant::now() + self.args.measured_time();
        let (http, smtp) = (house.server.at, house.smtp);
        let threads: Vec<_> = (0..WAITED_INBOXES)
            .map(|n| -> Result<_> {
                let inbox = format!("wait{n}@mailonce.test");
                create_inbox(&house.server, &inbox)?;
                Ok(std::thread::spawn(move || measure_wait_times(http, smtp, &inbox, end)))
            })
            .collect::<Result<_>>()?;
        let mut all = Histogram::default();
        for thread in threads {
            for took in thread.join().map_err(|_panic| anyhow::anyhow!("a waiter ended"))?? {
                all.record(took);
            }
        }
        house.server.terminate()?;
        Ok(FigureSample::from_latency(&all, None))
    }

    /// The server's memory while thousands of calls wait.
    pub(crate) fn measure_waiters(&self) -> Result<FigureSample> {
        let house = self.start_inbox_server()?;
        let count = self.args.waiters;
        let request = wait_request("waiters@mailonce.test", "0-0", 60).replace("after=0-0&", "");
        create_inbox(&house.server, "waiters@mailonce.test")?;
        let mut open = Vec::with_capacity(count);
        for n in 0..count {
            let mut stream = http::connect(house.server.at).with_context(|| format!("after {n} waiters"))?;
            stream.write_all(request.as_bytes())?;
            open.push(stream);
        }
        sleep(Duration::from_secs(2));
        let rss_mb = house.server.rss_mb();
        let answers = Instant::now();
        SmtpSender::connect(house.smtp)?.send("waiters@mailonce.test", "all")?;
        for stream in &mut open {
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            ensure!(line.contains(" 200 "), "a waiter was answered {line}");
        }
        let took = answers.elapsed();
        drop(open);
        house.server.terminate()?;
        Ok(FigureSample { max_ms: Some(millis(took)), rss_mb, ..FigureSample::default() })
    }
}

impl InboxServer {
    /// Waits until every mail has its message.
    fn wait_until_filed(&self, count: u64) -> Result<()> {
        let deadline = Instant::now() + RUN_TIMEOUT;
        loop {
            let inbox = http::get(self.server.at, &format!("/v1/inboxes/{INBOX}"))?;
            let filed = inbox.body["message_count"].as_u64().unwrap_or(0);
            if filed == count {
                return Ok(());
            }
            if Instant::now() > deadline || filed > count {
                bail!("{filed} messages of {count} mails");
            }
            sleep(Duration::from_millis(20));
        }
    }
}

fn create_inbox(server: &ServerProcess, address: &str) -> Result<()> {
    let reply = http::post(server.at, "/v1/inboxes", None, &json!({ "address": address }))?;
    ensure!(reply.status == 201, "making {address} answered {}: {}", reply.status, reply.body);
    Ok(())
}

fn wait_request(inbox: &str, after: &str, seconds: u64) -> String {
    format!(
        "GET /v1/inboxes/{inbox}/wait?after={after}&timeout={seconds} HTTP/1.1\r\nhost: localhost\r\n\
         authorization: Bearer {API_KEY}\r\n\r\n"
    )
}

/// Alternates: each mail is sent while a call waits for it.
fn measure_wait_times(http: SocketAddr, smtp: SocketAddr, inbox: &str, end: Instant) -> Result<Vec<Duration>> {
    let (mut door, mut line) = (SmtpSender::connect(smtp)?, http::connect(http)?);
    let mut times = Vec::new();
    let mut cursor = "0".to_owned();
    while Instant::now() < end {
        line.write_all(wait_request(inbox, &cursor, 30).as_bytes())?;
        // Long enough that the call waits when the mail arrives.
        sleep(Duration::from_millis(5));
        let dot = Arc::new(AtomicU64::new(0));
        let began = Instant::now();
        let sent = Arc::clone(&dot);
        door.send_with_dot_hook(inbox, &times.len().to_string(), || {
            sent.store(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        })?;
        let reply = http::exchange_on(&mut line, b"")?;
        let took = began.elapsed().saturating_sub(Duration::from_micros(dot.load(Ordering::Relaxed)));
        ensure!(reply.status == 200, "a wait answered {}: {}", reply.status, reply.body);
        reply.body["cursor"].as_str().context("no cursor")?.clone_into(&mut cursor);
        times.push(took);
    }
    Ok(times)
}

/// An SMTP client that sends small mails one after another.
struct SmtpSender {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
    text: String,
}

impl SmtpSender {
    fn connect(at: SocketAddr) -> Result<Self> {
        let out = TcpStream::connect(at)?;
        out.set_nodelay(true)?;
        out.set_read_timeout(Some(RUN_TIMEOUT))?;
        let back = BufReader::new(out.try_clone()?);
        let text = format!("{}\r\n", "x".repeat(70)).repeat(BODY_BYTES.parse::<usize>()? / 72);
        let mut door = Self { stream: out, replies: back, text };
        door.expect_code("220")?;
        door.write_line("EHLO bench.test\r\n")?;
        door.expect_code("250")?;
        Ok(door)
    }

    fn write_line(&mut self, words: &str) -> Result<()> {
        Ok(self.stream.write_all(words.as_bytes())?)
    }

    fn expect_code(&mut self, code: &str) -> Result<()> {
        loop {
            let mut line = String::new();
            ensure!(self.replies.read_line(&mut line)? > 0, "the server hung up instead of {code}");
            ensure!(line.starts_with(code), "expected {code}, got {line}");
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(());
            }
        }
    }

    /// Sends a mail and returns the latency of its `250`.
    fn send(&mut self, to: &str, id: &str) -> Result<Duration> {
        let mut dot = Instant::now();
        self.send_with_dot_hook(to, id, || dot = Instant::now())?;
        Ok(dot.elapsed())
    }

    fn send_with_dot_hook(&mut self, to: &str, id: &str, dot: impl FnOnce()) -> Result<()> {
        self.write_line("MAIL FROM:<a@example.com>\r\n")?;
        self.expect_code("250")?;
        self.write_line(&format!("RCPT TO:<{to}>\r\n"))?;
        self.expect_code("250")?;
        self.write_line("DATA\r\n")?;
        self.expect_code("354")?;
        let text = format!(
            "From: a@example.com\r\nTo: {to}\r\nMessage-ID: <{id}.{to}>\r\nSubject: bench\r\n\r\n{}",
            self.text
        );
        self.write_line(&text)?;
        dot();
        self.write_line(".\r\n")?;
        self.expect_code("250")
    }
}
