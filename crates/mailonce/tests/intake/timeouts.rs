//! Timeouts: slow clients are disconnected, and slow stores are awaited. The clock is paused, so nothing really waits.

use crate::fixtures::{ENVELOPE_COMMANDS, LineClient, SmtpFixture, test_settings};
use mailonce::intake::smtp::{Reason, SmtpSettings};
use std::time::Duration;
use tokio::{
    io::DuplexStream,
    time::{Instant, sleep},
};

const MINUTE: Duration = Duration::from_mins(1);

/// Sends `text` repeatedly. Returns the reply that ended the session and the time until then.
async fn repeat_until_closed(client: &mut LineClient<DuplexStream>, text: &str, every: Duration) -> (String, Duration) {
    let started = Instant::now();
    loop {
        tokio::select! {
            reply = client.read_reply() => if !reply.starts_with("250") {
                return (reply, started.elapsed());
            },
            () = sleep(every) => client.send(text).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_times_out_after_five_minutes_even_when_it_trickles() {
    let world = SmtpFixture::new(test_settings());
    for (first, text) in [("", "x"), ("EHLO out.test\r\n", "N"), ("EHLO out.test\r\nNOOP\r\nNO", "O")] {
        let (mut client, served) = world.connect_pipe(4096);
        assert!(client.read_reply().await.starts_with("220 mx.in.test"));
        client.send(first).await;
        let (reply, after) = repeat_until_closed(&mut client, text, MINUTE).await;
        assert!(reply.starts_with("421 4.4.2"), "{first:?}: {reply}");
        assert!((5 * MINUTE..6 * MINUTE).contains(&after), "{first:?}: {after:?}");
        drop(client);
        served.await.unwrap();
    }
    assert_eq!((world.metrics.refused(Reason::Timeout), world.metrics.open()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_mail_times_out_after_three_minutes_without_bytes() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _served) = world.connect_pipe(4096);
    client.send(ENVELOPE_COMMANDS).await;
    assert_eq!(client.read_codes(5).await, ["220", "250", "250", "250", "354"]);
    let started = Instant::now();
    // Enough bytes for the minimum rate, so that only the silence counts.
    let text = format!("{}\r\n", "x".repeat(200_000));
    client.send(&text).await;
    for _ in 0..3 {
        sleep(2 * MINUTE).await;
        client.send(&text).await;
    }
    assert!(client.read_reply().await.starts_with("421 4.4.2"));
    assert!((9 * MINUTE..10 * MINUTE).contains(&started.elapsed()));
    assert!(world.receiver.mails().is_empty(), "a partial mail must not be stored");
}

#[tokio::test(start_paused = true)]
async fn a_session_times_out_after_half_an_hour() {
    let world = SmtpFixture::new(test_settings());
    for first in ["EHLO out.test\r\n", ENVELOPE_COMMANDS] {
        let (mut client, _served) = world.connect_pipe(4096);
        client.send(first).await;
        client.read_codes(if first == ENVELOPE_COMMANDS { 5 } else { 2 }).await;
        // Within a mail it must satisfy the minimum rate.
        let text =
            if first == ENVELOPE_COMMANDS { format!("{}\r\n", "x".repeat(130_000)) } else { "NOOP\r\n".to_owned() };
        client.send(&text).await;
        let (reply, after) = repeat_until_closed(&mut client, &text, 2 * MINUTE).await;
        assert!(reply.starts_with("421 4.4.2"), "{reply}");
        assert!((29 * MINUTE..=31 * MINUTE).contains(&after), "{after:?}");
    }
    assert!(world.receiver.mails().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_disconnected() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, served) = world.connect_pipe(64);
    client.send("EHLO out.test\r\n").await;
    let started = Instant::now();
    served.await.unwrap();
    assert!((5 * MINUTE..6 * MINUTE).contains(&started.elapsed()));
    assert_eq!(world.metrics.refused(Reason::Timeout), 1);
}

#[tokio::test(start_paused = true)]
async fn a_recipient_check_that_times_out_gets_451() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<never@in.test>\r\nRCPT TO:<ada@in.test>\r\n").await;
    assert_eq!(client.read_codes(5).await, ["220", "250", "250", "451", "250"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_commit_gets_451_and_the_mail_is_still_stored() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\n").await;
    client.read_codes(5).await;
    let started = Instant::now();
    assert!(client.command("late\r\n.\r\n").await.starts_with("451 4.3.0"));
    assert!(started.elapsed() >= MINUTE);
    assert!(world.receiver.mails().is_empty());
    world.receiver.gate.add_permits(1);
    assert_eq!(world.receiver.wait_for_mails(1).await[0].raw, "late\r\n");
    assert_eq!(world.metrics.accepted(), 0, "the client was not told that it was accepted");
}

#[tokio::test(start_paused = true)]
async fn a_mail_waits_for_memory_and_can_be_retried() {
    let small = SmtpSettings { max_memory: 64 * 1024, max_size: 60_000, ..test_settings() };
    let world = SmtpFixture::new(small);
    let (mut first, _served) = world.connect_pipe(100_000);
    first.send(ENVELOPE_COMMANDS).await;
    first.read_codes(5).await;
    first.send(format!("{}\r\n", "x".repeat(55_000))).await;
    let (mut second, _served) = world.connect_pipe(100_000);
    second.send(ENVELOPE_COMMANDS).await;
    let started = Instant::now();
    assert_eq!(second.read_codes(5).await, ["220", "250", "250", "250", "451"]);
    assert!(started.elapsed() >= Duration::from_secs(10), "the client waited before the refusal");
    second.send("DATA\r\n").await;
    // Less than the timeout for memory, so that the second client is still waiting.
    sleep(Duration::from_secs(5)).await;
    assert!(first.command(".\r\n").await.starts_with("250"));
    assert!(second.read_reply().await.starts_with("354"), "the memory of the first mail is free");
    assert!(second.command(format!("{}\r\n.\r\n", "y".repeat(55_000))).await.starts_with("250"));
    assert_eq!(world.receiver.raw_mails().iter().map(Vec::len).collect::<Vec<_>>(), [55_002, 55_002]);
}

#[tokio::test(start_paused = true)]
async fn running_out_of_memory_within_a_mail_is_reported_after_the_final_dot() {
    let world = SmtpFixture::new(SmtpSettings { max_memory: 64 * 1024, max_size: 60_000, ..test_settings() });
    let mut clients = Vec::new();
    for _ in 0..2 {
        let (mut client, _served) = world.connect_pipe(100_000);
        client.send(ENVELOPE_COMMANDS).await;
        client.read_codes(5).await;
        clients.push(client);
    }
    // Each holds a quarter and both need most of the memory: the first wins, and the other gets an error.
    for client in &mut clients {
        client.send(format!("{}\r\n.\r\n", "x".repeat(50_000))).await;
    }
    let mut replies = Vec::new();
    for client in &mut clients {
        replies.push(client.read_reply().await.chars().take(9).collect::<String>());
    }
    assert!(
        replies.contains(&"250 2.0.0".to_owned()) || replies.iter().all(|reply| reply == "451 4.3.1"),
        "{replies:?}"
    );
    assert!(replies.iter().all(|reply| reply == "250 2.0.0" || reply == "451 4.3.1"), "{replies:?}");
    assert_eq!(world.metrics.accepted() + world.metrics.refused(Reason::Memory), 2);
    let client = &mut clients[0];
    client.send("MAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n").await;
    assert_eq!(client.read_codes(3).await, ["250", "250", "354"], "all memory is free again");
    assert!(client.command(format!("{}\r\n.\r\n", "z".repeat(50_000))).await.starts_with("250"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_a_mail_finish_and_closes_idle_sessions() {
    let world = SmtpFixture::new(test_settings());
    let (mut idle, _served) = world.connect_pipe(4096);
    idle.read_codes(1).await;
    let (mut mail_started, _served) = world.connect_pipe(4096);
    mail_started.send("EHLO out.test\r\nMAIL FROM:<>\r\n").await;
    mail_started.read_codes(3).await;
    let (mut busy, _served) = world.connect_pipe(4096);
    busy.send(ENVELOPE_COMMANDS).await;
    busy.read_codes(5).await;
    world.stop();
    assert!(idle.read_reply().await.starts_with("421 4.3.2"));
    assert!(mail_started.read_reply().await.starts_with("421 4.3.2"));
    busy.send("kept\r\n.\r\n").await;
    assert_eq!(busy.read_codes(3).await, ["250", "421", ""]);
    assert_eq!(world.receiver.raw_mails(), [b"kept\r\n"]);
}
