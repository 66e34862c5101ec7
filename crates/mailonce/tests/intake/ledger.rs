//! Acceptance: nothing or one complete mail, whatever happens to the connection, and never a 250 without a stored mail.

use crate::fixtures::{ENVELOPE_COMMANDS, SmtpFixture, test_settings};
use mailonce::intake::smtp::Reason;

#[tokio::test]
async fn a_client_that_disconnects_at_any_byte_leaves_nothing_or_one_mail() {
    let session_bytes = format!("{ENVELOPE_COMMANDS}Subject: x\r\n\r\n..dot\r\n.\r\nQUIT\r\n");
    let end = session_bytes.find("\r\n.\r\n").unwrap() + 5;
    for cut in 0..=session_bytes.len() {
        let world = SmtpFixture::new(test_settings());
        let (mut client, served) = world.connect_pipe(4096);
        let (first, rest) = session_bytes.as_bytes()[..cut].split_at(cut.min(ENVELOPE_COMMANDS.len()));
        client.send(first).await;
        if !rest.is_empty() {
            assert_eq!(client.read_codes(5).await, ["220", "250", "250", "250", "354"]);
            client.send(rest).await;
        }
        drop(client);
        served.await.unwrap();
        let expected = usize::from(cut >= end);
        assert_eq!(world.receiver.mails().len(), expected, "disconnected after {cut} bytes");
        assert_eq!(world.metrics.open(), 0);
    }
}

#[tokio::test]
async fn a_mail_is_stored_when_its_sender_disconnects_before_the_reply() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\nx\r\n.\r\n").await;
    client.read_codes(5).await;
    drop(client);
    world.receiver.gate.add_permits(1);
    served.await.unwrap();
    assert_eq!(world.receiver.raw_mails(), [b"x\r\n"]);
}

#[tokio::test]
async fn a_mail_is_stored_when_the_listener_stops_before_the_reply() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\nx\r\n.\r\nQUIT\r\n").await;
    client.read_codes(5).await;
    // The receiver has the mail once it waits for its permit. Aborting the session does not abort the store.
    tokio::task::yield_now().await;
    served.abort();
    assert!(served.await.unwrap_err().is_cancelled());
    world.receiver.gate.add_permits(1);
    assert_eq!(world.receiver.wait_for_mails(1).await[0].raw, "x\r\n");
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
    assert_eq!(client.read_codes(3).await, ["250", "250", "354"], "the session continues");
    assert!(client.command("x\r\n.\r\n").await.starts_with("250"));
    assert_eq!((world.metrics.accepted(), world.metrics.refused(Reason::Trouble)), (1, 2));
}

#[tokio::test]
async fn the_250_comes_only_after_the_commit() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<slow@in.test>\r\nDATA\r\nx\r\n.\r\n").await;
    assert_eq!(client.read_codes(5).await, ["220", "250", "250", "250", "354"]);
    tokio::select! {
        biased;
        reply = client.read_reply() => panic!("a reply before the commit: {reply}"),
        () = async { for _ in 0..1000 { tokio::task::yield_now().await } } => {}
    }
    world.receiver.gate.add_permits(1);
    assert!(client.read_reply().await.starts_with("250 2.0.0"));
}
