//! What a connection to the SMTP listener costs while it says nothing. Alone in its process, because it is the
//! process that is measured.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

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

/// They are pipes: as many sockets would need more descriptors than a test may have.
const CONNECTIONS: usize = 10_000;
/// What each may cost, both ends of its pipe included.
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

/// Resident octets of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Says something and waits for the line that answers it.
async fn send_and_expect(client: &mut DuplexStream, word: &str, answer: &str) {
    client.write_all(word.as_bytes()).await.unwrap();
    let mut heard = String::new();
    while !heard.contains(answer) {
        let mut bytes = [0; 512];
        let read = client.read(&mut bytes).await.unwrap();
        assert!(read > 0, "closed after {heard}");
        heard += std::str::from_utf8(&bytes[..read]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_that_say_nothing_cost_little_and_do_not_hurt() {
    let settings = SmtpSettings::new("mx.in.test");
    let tally = Arc::clone(&settings.metrics);
    let smtp = SmtpListener::new(Arc::new(AcceptAll), settings);
    let stop = watch::Sender::new(false);
    let connect = || {
        let (ours, theirs) = duplex(512);
        let (smtp, stop) = (smtp.clone(), stop.subscribe());
        tokio::spawn(async move { smtp.serve_stream(theirs, IpAddr::V4(Ipv4Addr::LOCALHOST), stop).await });
        ours
    };
    let mut idle = Vec::with_capacity(CONNECTIONS);
    let before = resident_bytes();
    for n in 0..CONNECTIONS {
        let mut client = connect();
        // A third is in the middle of a mail, a third in the middle of a command, and a third never says a word.
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
    assert_eq!(tally.open(), CONNECTIONS as u64);
    let each = resident_bytes().saturating_sub(before) / CONNECTIONS;
    println!("{each} octets for each of {CONNECTIONS}");
    assert!(each < MAX_BYTES_EACH, "{each} octets for each");
    let began = Instant::now();
    let mail = "EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<a@in.test>\r\nDATA\r\nx\r\n.\r\n";
    send_and_expect(&mut connect(), mail, "250 2.0.0 accepted").await;
    assert!(began.elapsed() < Duration::from_secs(10), "a mail among them took {:?}", began.elapsed());
}
