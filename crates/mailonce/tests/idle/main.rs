//! What a connection to the SMTP listener costs while it says nothing. Alone in its process, because it is the
//! process that is measured.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use mailonce::intake::smtp::{Mail, NotTaken, Reception, Settings, Smtp, Verdict};
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
const CROWD: usize = 10_000;
/// What each may cost, both ends of its pipe included.
const EACH: usize = 6 * 1024;

struct Everyone;

#[async_trait::async_trait]
impl Reception for Everyone {
    async fn recipient(&self, _: &str, _: &str) -> Verdict {
        Verdict::Here
    }

    async fn take(&self, _: Mail) -> Result<(), NotTaken> {
        Ok(())
    }
}

/// Resident octets of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Says something and waits for the line that answers it.
async fn ask(client: &mut DuplexStream, word: &str, answer: &str) {
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
    let settings = Settings::new("mx.in.test");
    let tally = Arc::clone(&settings.tally);
    let smtp = Smtp::new(Arc::new(Everyone), settings);
    let stop = watch::Sender::new(false);
    let connect = || {
        let (ours, theirs) = duplex(512);
        let (smtp, stop) = (smtp.clone(), stop.subscribe());
        tokio::spawn(async move { smtp.converse(theirs, IpAddr::V4(Ipv4Addr::LOCALHOST), stop).await });
        ours
    };
    let mut idle = Vec::with_capacity(CROWD);
    let before = resident();
    for n in 0..CROWD {
        let mut client = connect();
        // A third is in the middle of a mail, a third in the middle of a command, and a third never says a word.
        match n % 3 {
            0 => ask(&mut client, "EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<a@in.test>\r\nDATA\r\n", "354 ").await,
            1 => ask(&mut client, "EHLO out.te", "220 ").await,
            _ => ask(&mut client, "", "220 ").await,
        }
        idle.push(client);
    }
    assert_eq!(tally.open(), CROWD as u64);
    let each = resident().saturating_sub(before) / CROWD;
    println!("{each} octets for each of {CROWD}");
    assert!(each < EACH, "{each} octets for each");
    let began = Instant::now();
    let mail = "EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<a@in.test>\r\nDATA\r\nx\r\n.\r\n";
    ask(&mut connect(), mail, "250 2.0.0 taken").await;
    assert!(began.elapsed() < Duration::from_secs(10), "a mail among them took {:?}", began.elapsed());
}
