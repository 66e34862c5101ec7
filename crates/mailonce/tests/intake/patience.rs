//! Time: who is slow is sent away, who is ours to wait for is waited for. The clock is paused, so nothing waits here.

use crate::world::{ENVELOPE_COMMANDS, LineClient, SmtpFixture, test_settings};
use mailonce::intake::smtp::{Reason, SmtpSettings};
use std::time::Duration;
use tokio::{
    io::DuplexStream,
    time::{Instant, sleep},
};

const MINUTE: Duration = Duration::from_mins(1);

/// Says `word` again and again, and tells after how long it was sent away with what.
async fn repeat_until_closed(client: &mut LineClient<DuplexStream>, word: &str, every: Duration) -> (String, Duration) {
    let began = Instant::now();
    loop {
        tokio::select! {
            said = client.read_reply() => if !said.starts_with("250") {
                return (said, began.elapsed());
            },
            () = sleep(every) => client.send(word).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_has_five_minutes_however_it_trickles() {
    let world = SmtpFixture::new(test_settings());
    for (first, word) in [("", "x"), ("EHLO out.test\r\n", "N"), ("EHLO out.test\r\nNOOP\r\nNO", "O")] {
        let (mut client, served) = world.connect_pipe(4096);
        assert!(client.read_reply().await.starts_with("220 mx.in.test"));
        client.send(first).await;
        let (said, after) = repeat_until_closed(&mut client, word, MINUTE).await;
        assert!(said.starts_with("421 4.4.2"), "{first:?}: {said}");
        assert!((5 * MINUTE..6 * MINUTE).contains(&after), "{first:?}: {after:?}");
        drop(client);
        served.await.unwrap();
    }
    assert_eq!((world.tally.refused(Reason::Timeout), world.tally.open()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_text_has_three_minutes_for_the_next_bytes() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _served) = world.connect_pipe(4096);
    client.send(ENVELOPE_COMMANDS).await;
    assert_eq!(client.read_codes(5).await, ["220", "250", "250", "250", "354"]);
    let began = Instant::now();
    // Enough octets for the minimum rate, so that only the silence counts.
    let text = format!("{}\r\n", "x".repeat(200_000));
    client.send(&text).await;
    for _ in 0..3 {
        sleep(2 * MINUTE).await;
        client.send(&text).await;
    }
    assert!(client.read_reply().await.starts_with("421 4.4.2"));
    assert!((9 * MINUTE..10 * MINUTE).contains(&began.elapsed()));
    assert!(world.reception.mails().is_empty(), "half a mail is none");
}

#[tokio::test(start_paused = true)]
async fn a_session_has_half_an_hour() {
    let world = SmtpFixture::new(test_settings());
    for first in ["EHLO out.test\r\n", ENVELOPE_COMMANDS] {
        let (mut client, _served) = world.connect_pipe(4096);
        client.send(first).await;
        client.read_codes(if first == ENVELOPE_COMMANDS { 5 } else { 2 }).await;
        // In a text it is enough for the minimum rate.
        let word =
            if first == ENVELOPE_COMMANDS { format!("{}\r\n", "x".repeat(130_000)) } else { "NOOP\r\n".to_owned() };
        client.send(&word).await;
        let (said, after) = repeat_until_closed(&mut client, &word, 2 * MINUTE).await;
        assert!(said.starts_with("421 4.4.2"), "{said}");
        assert!((29 * MINUTE..=31 * MINUTE).contains(&after), "{after:?}");
    }
    assert!(world.reception.mails().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_disconnected() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, served) = world.connect_pipe(64);
    client.send("EHLO out.test\r\n").await;
    let began = Instant::now();
    served.await.unwrap();
    assert!((5 * MINUTE..6 * MINUTE).contains(&began.elapsed()));
    assert_eq!(world.tally.refused(Reason::Timeout), 1);
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_does_not_come_is_for_later() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<never@in.test>\r\nRCPT TO:<ada@in.test>\r\n").await;
    assert_eq!(client.read_codes(5).await, ["220", "250", "250", "451", "250"]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_comes_late_is_told_as_trouble_and_still_counts() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\n").await;
    client.read_codes(5).await;
    let began = Instant::now();
    assert!(client.command("late\r\n.\r\n").await.starts_with("451 4.3.0"));
    assert!(began.elapsed() >= MINUTE);
    assert!(world.reception.mails().is_empty());
    world.reception.gate.add_permits(1);
    assert_eq!(world.reception.wait_for_mails(1).await[0].raw, "late\r\n");
    assert_eq!(world.tally.accepted(), 0, "nobody was told so");
}

#[tokio::test(start_paused = true)]
async fn a_mail_waits_for_room_and_then_comes_again() {
    let small = SmtpSettings { max_memory: 64 * 1024, max_size: 60_000, ..test_settings() };
    let world = SmtpFixture::new(small);
    let (mut first, _served) = world.connect_pipe(100_000);
    first.send(ENVELOPE_COMMANDS).await;
    first.read_codes(5).await;
    first.send(format!("{}\r\n", "x".repeat(55_000))).await;
    let (mut second, _served) = world.connect_pipe(100_000);
    second.send(ENVELOPE_COMMANDS).await;
    let began = Instant::now();
    assert_eq!(second.read_codes(5).await, ["220", "250", "250", "250", "451"]);
    assert!(began.elapsed() >= Duration::from_secs(10), "it waited first");
    second.send("DATA\r\n").await;
    // Less than the patience for room, so that the second one is still waiting.
    sleep(Duration::from_secs(5)).await;
    assert!(first.command(".\r\n").await.starts_with("250"));
    assert!(second.read_reply().await.starts_with("354"), "the room of the first is free");
    assert!(second.command(format!("{}\r\n.\r\n", "y".repeat(55_000))).await.starts_with("250"));
    assert_eq!(world.reception.raw_mails().iter().map(Vec::len).collect::<Vec<_>>(), [55_002, 55_002]);
}

#[tokio::test(start_paused = true)]
async fn room_that_ends_in_the_middle_of_a_text_is_told_at_its_end() {
    let world = SmtpFixture::new(SmtpSettings { max_memory: 64 * 1024, max_size: 60_000, ..test_settings() });
    let mut clients = Vec::new();
    for _ in 0..2 {
        let (mut client, _served) = world.connect_pipe(100_000);
        client.send(ENVELOPE_COMMANDS).await;
        client.read_codes(5).await;
        clients.push(client);
    }
    // Each holds a quarter, and both want most of it: whoever comes first wins, and the other one is told.
    for client in &mut clients {
        client.send(format!("{}\r\n.\r\n", "x".repeat(50_000))).await;
    }
    let mut said = Vec::new();
    for client in &mut clients {
        said.push(client.read_reply().await.chars().take(9).collect::<String>());
    }
    assert!(said.contains(&"250 2.0.0".to_owned()) || said.iter().all(|word| word == "451 4.3.1"), "{said:?}");
    assert!(said.iter().all(|word| word == "250 2.0.0" || word == "451 4.3.1"), "{said:?}");
    assert_eq!(world.tally.accepted() + world.tally.refused(Reason::Memory), 2);
    let client = &mut clients[0];
    client.send("MAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n").await;
    assert_eq!(client.read_codes(3).await, ["250", "250", "354"], "all room is free again");
    assert!(client.command(format!("{}\r\n.\r\n", "z".repeat(50_000))).await.starts_with("250"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_a_mail_end_and_sends_the_others_away() {
    let world = SmtpFixture::new(test_settings());
    let (mut idle, _served) = world.connect_pipe(4096);
    idle.read_codes(1).await;
    let (mut begun, _served) = world.connect_pipe(4096);
    begun.send("EHLO out.test\r\nMAIL FROM:<>\r\n").await;
    begun.read_codes(3).await;
    let (mut busy, _served) = world.connect_pipe(4096);
    busy.send(ENVELOPE_COMMANDS).await;
    busy.read_codes(5).await;
    world.stop();
    assert!(idle.read_reply().await.starts_with("421 4.3.2"));
    assert!(begun.read_reply().await.starts_with("421 4.3.2"));
    busy.send("kept\r\n.\r\n").await;
    assert_eq!(busy.read_codes(3).await, ["250", "421", ""]);
    assert_eq!(world.reception.raw_mails(), [b"kept\r\n"]);
}
