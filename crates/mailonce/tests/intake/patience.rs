//! Time: who is slow is sent away, who is ours to wait for is waited for. The clock is paused, so nothing waits here.

use crate::world::{Client, ENVELOPE, World, settings};
use mailonce::intake::smtp::{Reason, Settings};
use std::time::Duration;
use tokio::{
    io::DuplexStream,
    time::{Instant, sleep},
};

const MINUTE: Duration = Duration::from_mins(1);

/// Says `word` again and again, and tells after how long it was sent away with what.
async fn sent_away(client: &mut Client<DuplexStream>, word: &str, every: Duration) -> (String, Duration) {
    let began = Instant::now();
    loop {
        tokio::select! {
            said = client.hear() => if !said.starts_with("250") {
                return (said, began.elapsed());
            },
            () = sleep(every) => client.say(word).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_has_five_minutes_however_it_trickles() {
    let world = World::new(settings());
    for (first, word) in [("", "x"), ("EHLO out.test\r\n", "N"), ("EHLO out.test\r\nNOOP\r\nNO", "O")] {
        let (mut client, served) = world.pipe(4096);
        assert!(client.hear().await.starts_with("220 mx.in.test"));
        client.say(first).await;
        let (said, after) = sent_away(&mut client, word, MINUTE).await;
        assert!(said.starts_with("421 4.4.2"), "{first:?}: {said}");
        assert!((5 * MINUTE..6 * MINUTE).contains(&after), "{first:?}: {after:?}");
        drop(client);
        served.await.unwrap();
    }
    assert_eq!((world.tally.refused(Reason::Timeout), world.tally.open()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_text_has_three_minutes_for_the_next_bytes() {
    let world = World::new(settings());
    let (mut client, _served) = world.pipe(4096);
    client.say(ENVELOPE).await;
    assert_eq!(client.codes(5).await, ["220", "250", "250", "250", "354"]);
    let began = Instant::now();
    // Enough octets for the minimum rate, so that only the silence counts.
    let text = format!("{}\r\n", "x".repeat(200_000));
    client.say(&text).await;
    for _ in 0..3 {
        sleep(2 * MINUTE).await;
        client.say(&text).await;
    }
    assert!(client.hear().await.starts_with("421 4.4.2"));
    assert!((9 * MINUTE..10 * MINUTE).contains(&began.elapsed()));
    assert!(world.recorder.mails().is_empty(), "half a mail is none");
}

#[tokio::test(start_paused = true)]
async fn a_session_has_half_an_hour() {
    let world = World::new(settings());
    for first in ["EHLO out.test\r\n", ENVELOPE] {
        let (mut client, _served) = world.pipe(4096);
        client.say(first).await;
        client.codes(if first == ENVELOPE { 5 } else { 2 }).await;
        // In a text it is enough for the minimum rate.
        let word = if first == ENVELOPE { format!("{}\r\n", "x".repeat(130_000)) } else { "NOOP\r\n".to_owned() };
        client.say(&word).await;
        let (said, after) = sent_away(&mut client, &word, 2 * MINUTE).await;
        assert!(said.starts_with("421 4.4.2"), "{said}");
        assert!((29 * MINUTE..=31 * MINUTE).contains(&after), "{after:?}");
    }
    assert!(world.recorder.mails().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_listen_is_left() {
    let world = World::new(settings());
    let (mut client, served) = world.pipe(64);
    client.say("EHLO out.test\r\n").await;
    let began = Instant::now();
    served.await.unwrap();
    assert!((5 * MINUTE..6 * MINUTE).contains(&began.elapsed()));
    assert_eq!(world.tally.refused(Reason::Timeout), 1);
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_does_not_come_is_for_later() {
    let world = World::new(settings());
    let (mut client, _served) = world.pipe(4096);
    client.say("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<never@in.test>\r\nRCPT TO:<ada@in.test>\r\n").await;
    assert_eq!(client.codes(5).await, ["220", "250", "250", "451", "250"]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_comes_late_is_told_as_trouble_and_still_counts() {
    let world = World::new(settings());
    let (mut client, _served) = world.pipe(4096);
    client.say("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\n").await;
    client.codes(5).await;
    let began = Instant::now();
    assert!(client.ask("late\r\n.\r\n").await.starts_with("451 4.3.0"));
    assert!(began.elapsed() >= MINUTE);
    assert!(world.recorder.mails().is_empty());
    world.recorder.gate.add_permits(1);
    assert_eq!(world.recorder.until(1).await[0].raw, "late\r\n");
    assert_eq!(world.tally.taken(), 0, "nobody was told so");
}

#[tokio::test(start_paused = true)]
async fn a_mail_waits_for_room_and_then_comes_again() {
    let small = Settings { max_memory: 64 * 1024, max_size: 60_000, ..settings() };
    let world = World::new(small);
    let (mut first, _served) = world.pipe(100_000);
    first.say(ENVELOPE).await;
    first.codes(5).await;
    first.say(format!("{}\r\n", "x".repeat(55_000))).await;
    let (mut second, _served) = world.pipe(100_000);
    second.say(ENVELOPE).await;
    let began = Instant::now();
    assert_eq!(second.codes(5).await, ["220", "250", "250", "250", "451"]);
    assert!(began.elapsed() >= Duration::from_secs(10), "it waited first");
    second.say("DATA\r\n").await;
    // Less than the patience for room, so that the second one is still waiting.
    sleep(Duration::from_secs(5)).await;
    assert!(first.ask(".\r\n").await.starts_with("250"));
    assert!(second.hear().await.starts_with("354"), "the room of the first is free");
    assert!(second.ask(format!("{}\r\n.\r\n", "y".repeat(55_000))).await.starts_with("250"));
    assert_eq!(world.recorder.texts().iter().map(Vec::len).collect::<Vec<_>>(), [55_002, 55_002]);
}

#[tokio::test(start_paused = true)]
async fn room_that_ends_in_the_middle_of_a_text_is_told_at_its_end() {
    let world = World::new(Settings { max_memory: 64 * 1024, max_size: 60_000, ..settings() });
    let mut clients = Vec::new();
    for _ in 0..2 {
        let (mut client, _served) = world.pipe(100_000);
        client.say(ENVELOPE).await;
        client.codes(5).await;
        clients.push(client);
    }
    // Each holds a quarter, and both want most of it: whoever comes first wins, and the other one is told.
    for client in &mut clients {
        client.say(format!("{}\r\n.\r\n", "x".repeat(50_000))).await;
    }
    let mut said = Vec::new();
    for client in &mut clients {
        said.push(client.hear().await.chars().take(9).collect::<String>());
    }
    assert!(said.contains(&"250 2.0.0".to_owned()) || said.iter().all(|word| word == "451 4.3.1"), "{said:?}");
    assert!(said.iter().all(|word| word == "250 2.0.0" || word == "451 4.3.1"), "{said:?}");
    assert_eq!(world.tally.taken() + world.tally.refused(Reason::Memory), 2);
    let client = &mut clients[0];
    client.say("MAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n").await;
    assert_eq!(client.codes(3).await, ["250", "250", "354"], "all room is free again");
    assert!(client.ask(format!("{}\r\n.\r\n", "z".repeat(50_000))).await.starts_with("250"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_a_mail_end_and_sends_the_others_away() {
    let world = World::new(settings());
    let (mut idle, _served) = world.pipe(4096);
    idle.codes(1).await;
    let (mut begun, _served) = world.pipe(4096);
    begun.say("EHLO out.test\r\nMAIL FROM:<>\r\n").await;
    begun.codes(3).await;
    let (mut busy, _served) = world.pipe(4096);
    busy.say(ENVELOPE).await;
    busy.codes(5).await;
    world.stop();
    assert!(idle.hear().await.starts_with("421 4.3.2"));
    assert!(begun.hear().await.starts_with("421 4.3.2"));
    busy.say("kept\r\n.\r\n").await;
    assert_eq!(busy.codes(3).await, ["250", "421", ""]);
    assert_eq!(world.recorder.texts(), [b"kept\r\n"]);
}
