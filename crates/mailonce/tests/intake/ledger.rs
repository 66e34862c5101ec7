//! What is taken: nothing or one, whatever becomes of the connection, and never a 250 without it.

use crate::world::{ENVELOPE_COMMANDS, SmtpFixture, test_settings};
use mailonce::intake::smtp::Reason;

#[tokio::test]
async fn a_client_that_leaves_at_any_byte_leaves_nothing_or_one() {
    let whole = format!("{ENVELOPE_COMMANDS}Subject: x\r\n\r\n..dot\r\n.\r\nQUIT\r\n");
    let end = whole.find("\r\n.\r\n").unwrap() + 5;
    for cut in 0..=whole.len() {
        let world = SmtpFixture::new(test_settings());
        let (mut client, served) = world.connect_pipe(4096);
        let (first, rest) = whole.as_bytes()[..cut].split_at(cut.min(ENVELOPE_COMMANDS.len()));
        client.send(first).await;
        if !rest.is_empty() {
            assert_eq!(client.read_codes(5).await, ["220", "250", "250", "250", "354"]);
            client.send(rest).await;
        }
        drop(client);
        served.await.unwrap();
        let expected = usize::from(cut >= end);
        assert_eq!(world.reception.mails().len(), expected, "gone after {cut} bytes");
        assert_eq!(world.tally.open(), 0);
    }
}

#[tokio::test]
async fn a_mail_is_kept_though_its_sender_left_before_the_answer() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\nx\r\n.\r\n").await;
    client.read_codes(5).await;
    drop(client);
    world.reception.gate.add_permits(1);
    served.await.unwrap();
    assert_eq!(world.reception.raw_mails(), [b"x\r\n"]);
}

#[tokio::test]
async fn a_mail_is_kept_though_the_listener_stopped_before_the_answer() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\nx\r\n.\r\nQUIT\r\n").await;
    client.read_codes(5).await;
    // The reception has it once it waits for its permit; what an abort does not reach is the keeping itself.
    tokio::task::yield_now().await;
    served.abort();
    assert!(served.await.unwrap_err().is_cancelled());
    world.reception.gate.add_permits(1);
    assert_eq!(world.reception.wait_for_mails(1).await[0].raw, "x\r\n");
}

#[tokio::test]
async fn a_failed_store_is_never_answered_with_250() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\n").await;
    client.read_codes(2).await;
    for name in ["ill", "panic"] {
        client.send(format!("MAIL FROM:<>\r\nRCPT TO:<{name}@in.test>\r\nDATA\r\n")).await;
        assert_eq!(client.read_codes(3).await, ["250", "250", "354"]);
        assert!(client.command("x\r\n.\r\n").await.starts_with("451 4.3.0"), "{name}");
    }
    client.send("MAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n").await;
    assert_eq!(client.read_codes(3).await, ["250", "250", "354"], "the session goes on");
    assert!(client.command("x\r\n.\r\n").await.starts_with("250"));
    assert_eq!((world.tally.accepted(), world.tally.refused(Reason::Trouble)), (1, 2));
}

#[tokio::test]
async fn the_250_comes_after_the_commit_and_not_before() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\nx\r\n.\r\n").await;
    assert_eq!(client.read_codes(5).await, ["220", "250", "250", "250", "354"]);
    tokio::select! {
        biased;
        said = client.read_reply() => panic!("said before the commit: {said}"),
        () = async { for _ in 0..1000 { tokio::task::yield_now().await } } => {}
    }
    world.reception.gate.add_permits(1);
    assert!(client.read_reply().await.starts_with("250 2.0.0"));
}
