//! The memory of idle connections to the SMTP listener. The test has its own process, because it measures the process.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use mailonce::intake::smtp::{MailReceiver, NotAccepted, ReceivedMail, RecipientStatus, SmtpListener, SmtpSettings};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    sync::watch,
};

/// Connections are pipes, because this many sockets would need more file descriptors than a test may open.
const CONNECTIONS: usize = 10_000;
/// The maximum memory of each, including both ends of its pipe.
const MAX_BYTES_EACH: usize = 6 * 1024;

struct AcceptAll;

#[async_trait::async_trait]
impl MailReceiver for AcceptAll {
    async fn check_recipient(&self, _: &str, _: &str) -> RecipientStatus {
        RecipientStatus::Accepted
    }

    async fn accept(&self, _: ReceivedMail) -> Result<(), NotAccepted> {
        Ok(())
    }
}

/// Resident memory of this process in bytes.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Sends text and waits for a reply that contains `expected`.
async fn send_and_expect(client: &mut DuplexStream, text: &str, expected: &str) {
    client.write_all(text.as_bytes()).await.unwrap();
    let mut received = String::new();
    while !received.contains(expected) {
        let mut bytes = [0; 512];
        let read = client.read(&mut bytes).await.unwrap();
        assert!(read > 0, "closed after {received}");
        received += std::str::from_utf8(&bytes[..read]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_use_little_memory_and_delay_no_mail() {
    let settings = SmtpSettings::new("mx.in.test");
    let metrics = Arc::clone(&settings.metrics);
    let smtp = SmtpListener::new(Arc::new(AcceptAll), settings);
    let stop = watch::Sender::new(false);
    let connect = || {
        let (client_end, server_end) = duplex(512);
        let (smtp, stop) = (smtp.clone(), stop.subscribe());
        tokio::spawn(async move { smtp.serve_stream(server_end, IpAddr::V4(Ipv4Addr::LOCALHOST), stop).await });
        client_end
    };
    let mut idle = Vec::with_capacity(CONNECTIONS);
    let before = resident_bytes();
    for n in 0..CONNECTIONS {
        let mut client = connect();
        // A third is within a mail, a third is within a command, and a third has sent nothing.
        match n % 3 {
            0 => {
                send_and_expect(&mut client, "EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<a@in.test>\r\nDATA\r\n", "354 ")
                    .await
            }
            1 => send_and_expect(&mut client, "EHLO out.te", "220 ").await,
            _ => send_and_expect(&mut client, "", "220 ").await,
        }
        idle.push(client);
    }
    assert_eq!(metrics.open(), CONNECTIONS as u64);
    let each = resident_bytes().saturating_sub(before) / CONNECTIONS;
    println!("{each} bytes for each of {CONNECTIONS} connections");
    assert!(each < MAX_BYTES_EACH, "{each} bytes for each connection");
    let started = Instant::now();
    let mail = "EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<a@in.test>\r\nDATA\r\nx\r\n.\r\n";
    send_and_expect(&mut connect(), mail, "250 2.0.0 accepted").await;
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "a mail with idle connections open took {:?}",
        started.elapsed()
    );
}
