//! What is taken: nothing or one, whatever becomes of the connection, and never a 250 without it.

use crate::world::{ENVELOPE, World, settings};
use mailonce::intake::smtp::Reason;

#[tokio::test]
async fn a_client_that_leaves_at_any_byte_leaves_nothing_or_one() {
    let whole = format!("{ENVELOPE}Subject: x\r\n\r\n..dot\r\n.\r\nQUIT\r\n");
    let end = whole.find("\r\n.\r\n").unwrap() + 5;
    for cut in 0..=whole.len() {
        let world = World::new(settings());
        let (mut client, served) = world.pipe(4096);
        let (first, rest) = whole.as_bytes()[..cut].split_at(cut.min(ENVELOPE.len()));
        client.say(first).await;
        if !rest.is_empty() {
            assert_eq!(client.codes(5).await, ["220", "250", "250", "250", "354"]);
            client.say(rest).await;
        }
        drop(client);
        served.await.unwrap();
        let expected = usize::from(cut >= end);
        assert_eq!(world.recorder.mails().len(), expected, "gone after {cut} bytes");
        assert_eq!(world.tally.open(), 0);
    }
}

#[tokio::test]
async fn a_mail_is_kept_though_its_sender_left_before_the_answer() {
    let world = World::new(settings());
    let (mut client, served) = world.pipe(4096);
    client.say("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\nx\r\n.\r\n").await;
    client.codes(5).await;
    drop(client);
    world.recorder.gate.add_permits(1);
    served.await.unwrap();
    assert_eq!(world.recorder.texts(), [b"x\r\n"]);
}

#[tokio::test]
async fn a_mail_is_kept_though_the_listener_stopped_before_the_answer() {
    let world = World::new(settings());
    let (mut client, served) = world.pipe(4096);
    client.say("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\nx\r\n.\r\nQUIT\r\n").await;
    client.codes(5).await;
    // The reception has it once it waits for its permit; what an abort does not reach is the keeping itself.
    tokio::task::yield_now().await;
    served.abort();
    assert!(served.await.unwrap_err().is_cancelled());
    world.recorder.gate.add_permits(1);
    assert_eq!(world.recorder.until(1).await[0].raw, "x\r\n");
}

#[tokio::test]
async fn no_keeping_no_250() {
    let world = World::new(settings());
    let (mut client, _served) = world.pipe(4096);
    client.say("EHLO out.test\r\n").await;
    client.codes(2).await;
    for name in ["ill", "panic"] {
        client.say(format!("MAIL FROM:<>\r\nRCPT TO:<{name}@in.test>\r\nDATA\r\n")).await;
        assert_eq!(client.codes(3).await, ["250", "250", "354"]);
        assert!(client.ask("x\r\n.\r\n").await.starts_with("451 4.3.0"), "{name}");
    }
    client.say("MAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n").await;
    assert_eq!(client.codes(3).await, ["250", "250", "354"], "the session goes on");
    assert!(client.ask("x\r\n.\r\n").await.starts_with("250"));
    assert_eq!((world.tally.taken(), world.tally.refused(Reason::Trouble)), (1, 2));
}

#[tokio::test]
async fn the_250_comes_after_the_commit_and_not_before() {
    let world = World::new(settings());
    let (mut client, _served) = world.pipe(4096);
    client.say("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\nx\r\n.\r\n").await;
    assert_eq!(client.codes(5).await, ["220", "250", "250", "250", "354"]);
    tokio::select! {
        biased;
        said = client.hear() => panic!("said before the commit: {said}"),
        () = async { for _ in 0..1000 { tokio::task::yield_now().await } } => {}
    }
    world.recorder.gate.add_permits(1);
    assert!(client.hear().await.starts_with("250 2.0.0"));
}
