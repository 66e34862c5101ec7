//! Memory and spool limits per network, and minimum transfer rates. The clock is paused, so these tests do not wait.

use crate::fixtures::{ENVELOPE_COMMANDS, LineClient, SmtpFixture, test_settings};
use mailonce::intake::smtp::{NetworkLimits, Reason, SmtpSettings, SpoolDir, SpoolFiles};
use std::{
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::DuplexStream,
    time::{Instant, sleep, timeout},
};

const KIB: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);

/// Addresses of different networks.
fn test_ip(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, n))
}

/// Connects from an address and returns the reply to `DATA`.
async fn connect_to_data(world: &SmtpFixture, n: u8) -> (LineClient<DuplexStream>, String) {
    let (mut client, _served) = world.connect_pipe_from(test_ip(n), 4_000_000);
    client.send(ENVELOPE_COMMANDS).await;
    assert_eq!(client.read_codes(4).await, ["220", "250", "250", "250"]);
    let answer = client.read_reply().await;
    (client, answer)
}

/// A text of this many bytes, without the final dot.
fn mail_text(octets: usize) -> String {
    format!("{}\r\n", "x".repeat(octets - 2))
}

/// Sends `bytes_at(second)` bytes every second. Returns after how many seconds the server replied, and the reply.
async fn send_slowly_until_cut(
    client: &mut LineClient<DuplexStream>,
    bytes_at: impl Fn(u64) -> usize,
) -> (u64, String) {
    let started = Instant::now();
    loop {
        let second = started.elapsed().as_secs();
        tokio::select! {
            answer = client.read_reply() => return (second, answer),
            () = sleep(SECOND) => client.send("x".repeat(bytes_at(second))).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_trickling_mail_is_cut_off_and_not_stored() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _) = connect_to_data(&world, 1).await;
    let (after, answer) = send_slowly_until_cut(&mut client, |_| 1).await;
    assert!(answer.starts_with("421 4.4.2") && (59..=61).contains(&after), "{answer} after {after} s");
    assert_eq!(client.read_reply().await, "", "closed");

    let (mut client, _) = connect_to_data(&world, 1).await;
    let (after, answer) = send_slowly_until_cut(&mut client, |_| 512).await;
    assert!(answer.starts_with("421 4.4.2") && (118..=122).contains(&after), "{answer} after {after} s");

    // A fast start buys three minutes and not the whole session.
    let (mut client, _) = connect_to_data(&world, 1).await;
    let (after, answer) = send_slowly_until_cut(&mut client, |second| if second == 0 { 3_000_000 } else { 1 }).await;
    assert!(answer.starts_with("421 4.4.2") && (179..=183).contains(&after), "{answer} after {after} s");
    assert_eq!(world.metrics.refused(Reason::Timeout), 3);
    assert!(world.receiver.mails().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_slow_link_above_the_minimum_rate_is_accepted() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _) = connect_to_data(&world, 1).await;
    // Nothing at first, then 16 kbit/s with a pause of 90 seconds in the middle.
    sleep(50 * SECOND).await;
    for second in 0..300 {
        client.send(mail_text(2 * KIB)).await;
        sleep(if second == 150 { 90 * SECOND } else { SECOND }).await;
    }
    assert!(client.command(".\r\n").await.starts_with("250 2.0.0"));
    assert_eq!(world.receiver.raw_mails().iter().map(Vec::len).collect::<Vec<_>>(), [600 * KIB]);
}

#[tokio::test(start_paused = true)]
async fn one_network_cannot_use_the_memory_of_others() {
    let shares = NetworkLimits { memory: Some(1024 * KIB), ..NetworkLimits::default() };
    let world = SmtpFixture::new(SmtpSettings {
        max_memory: 4096 * KIB,
        max_size: 1000 * KIB,
        per_ip: shares,
        ..test_settings()
    });
    let mut held = Vec::new();
    let refused = loop {
        let (mut client, answer) = connect_to_data(&world, 1).await;
        if !answer.starts_with("354") {
            break answer;
        }
        assert!(held.len() < 20, "one network holds more than its share");
        client.send(mail_text(250 * KIB)).await;
        // Wait until the server has read it all and reserved memory for it.
        sleep(SECOND).await;
        held.push(client);
    };
    assert!(refused.starts_with("451 4.7.0"), "{refused}");
    assert_eq!(held.len(), 4);
    let started = Instant::now();
    let (mut other, answer) = connect_to_data(&world, 2).await;
    assert!(answer.starts_with("354"), "{answer}");
    assert!(other.command(format!("{}.\r\n", mail_text(900 * KIB))).await.starts_with("250 2.0.0"));
    assert!(started.elapsed() < SECOND, "the other network waited for {:?}", started.elapsed());
    assert!(held[0].command(".\r\n").await.starts_with("250 2.0.0"), "a started mail can be finished");
    let (_client, answer) = connect_to_data(&world, 1).await;
    assert!(answer.starts_with("354"), "the share is free again: {answer}");
}

#[tokio::test(start_paused = true)]
async fn the_spool_is_limited_per_network_and_in_total() {
    let shares = NetworkLimits { spool: Some(1024 * KIB), ..NetworkLimits::default() };
    let world = SmtpFixture::new(SmtpSettings {
        max_spool: 4096 * KIB,
        max_size: 1024 * KIB,
        per_ip: shares,
        ..test_settings()
    });
    let mut held = Vec::new();
    for n in 1..=4 {
        let (mut client, _) = connect_to_data(&world, n).await;
        client.send(mail_text(1000 * KIB)).await;
        held.push(client);
        sleep(SECOND).await;
    }
    let large = format!("{}.\r\n", mail_text(1000 * KIB));
    let (mut second, _) = connect_to_data(&world, 1).await;
    let answer = second.command(&large).await;
    assert!(answer.starts_with("452 4.7.0"), "{answer}");
    let (mut fifth, _) = connect_to_data(&world, 5).await;
    let answer = fifth.command(&large).await;
    assert!(answer.starts_with("452 4.3.1"), "{answer}");
    assert_eq!((world.metrics.refused(Reason::Share), world.metrics.refused(Reason::Disk)), (1, 1));
    fifth.send("MAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n").await;
    assert_eq!(fifth.read_codes(3).await, ["250", "250", "354"]);
    assert!(fifth.command("small\r\n.\r\n").await.starts_with("250 2.0.0"), "small mails need no disk");
    for client in &mut held {
        assert!(client.command(".\r\n").await.starts_with("250 2.0.0"), "a started mail can be finished");
    }
    for client in [&mut second, &mut fifth] {
        client.send("MAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n").await;
        assert_eq!(client.read_codes(3).await, ["250", "250", "354"]);
        assert!(client.command(&large).await.starts_with("250 2.0.0"), "the whole spool is free again");
    }
}

#[tokio::test(start_paused = true)]
async fn complete_large_mails_wait_for_memory_and_for_the_share_of_their_network() {
    let shares = NetworkLimits { memory: Some(1536 * KIB), ..NetworkLimits::default() };
    let world = SmtpFixture::new(SmtpSettings {
        max_memory: 8192 * KIB,
        max_size: 1024 * KIB,
        per_ip: shares,
        ..test_settings()
    });
    let mut clients = Vec::new();
    for n in [1, 1, 2] {
        let (mut client, _served) = world.connect_pipe_from(test_ip(n), 4_000_000);
        client.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\n").await;
        assert_eq!(client.read_codes(5).await, ["220", "250", "250", "250", "354"]);
        client.send(format!("{}.\r\n", mail_text(1024 * KIB))).await;
        sleep(SECOND).await;
        clients.push(client);
    }
    let started = Instant::now();
    let answer = clients[1].read_reply().await;
    assert!(answer.starts_with("451 4.7.0"), "{answer}");
    assert!((27 * SECOND..=31 * SECOND).contains(&started.elapsed()), "{:?}", started.elapsed());
    world.receiver.gate.add_permits(2);
    for n in [0, 2] {
        assert!(clients[n].read_reply().await.starts_with("250 2.0.0"));
    }
    assert_eq!(world.receiver.raw_mails().iter().map(Vec::len).collect::<Vec<_>>(), [1024 * KIB; 2]);
}

/// A full disk: the kernel fails every write with `ENOSPC`.
#[derive(Debug)]
struct FullDisk;

impl SpoolFiles for FullDisk {
    fn create(&self) -> io::Result<File> {
        File::options().read(true).write(true).open("/dev/full")
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_large_mails_temporarily_and_stores_nothing() {
    let missing: Arc<dyn SpoolFiles> = Arc::new(SpoolDir("/nowhere/at/all".into()));
    for spool in [Arc::new(FullDisk) as Arc<dyn SpoolFiles>, missing] {
        let world = SmtpFixture::new(SmtpSettings { spool, ..test_settings() });
        let (mut client, _) = connect_to_data(&world, 1).await;
        client.send(mail_text(400 * KIB)).await;
        assert!(timeout(SECOND, client.read_reply()).await.is_err(), "no reply before the final dot");
        let answer = client.command(".\r\n").await;
        assert!(answer.starts_with("452 4.3.1"), "{answer}");
        assert!(world.receiver.mails().is_empty(), "a partial mail must not be stored");
        client.send("MAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n").await;
        assert_eq!(client.read_codes(3).await, ["250", "250", "354"], "the session continues");
        assert!(client.command(format!("{}.\r\n", mail_text(200 * KIB))).await.starts_with("250 2.0.0"));
        assert_eq!((world.receiver.mails().len(), world.metrics.refused(Reason::Disk)), (1, 1));
    }
}
