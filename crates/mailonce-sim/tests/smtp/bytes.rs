//! The sent bytes are the frozen bytes, and no byte of a mail ends it early.

use crate::fixtures::{client_for, sample_envelope, send_envelope, start_sink};
use mailonce_core::{
    handoff::{
        reply::{AttemptPhase, ReplyMeaning},
        transport_request::{OutboundMail, UnsupportedMail},
    },
    id::EmailId,
    outbound::content::{EmailContent, RawContent},
    ports::transport::Transport as _,
    time::Time,
};
use mailonce_sim::sink::smtp::{SmtpSink, SmtpSinkConfig};
use mailonce_transport::smtp::SmtpTransport;
use uuid::Uuid;

fn sample_content() -> EmailContent {
    let raw = RawContent {
        from: "me@out.test".to_owned(),
        to: vec!["ada@in.test".to_owned()],
        subject: "hello".to_owned(),
        text: Some("hello".to_owned()),
        ..RawContent::default()
    };
    EmailContent::validate(raw).unwrap()
}

fn freeze(smtp: &SmtpTransport, mime: Option<&[u8]>) -> Result<Vec<u8>, UnsupportedMail> {
    let content = sample_content();
    let (id, created_at) = (Uuid::from_u128(1), Time(0));
    smtp.freeze(&OutboundMail {
        id: EmailId(id),
        content: &content,
        message_id: "<1@out.test>",
        created_at,
        key: id,
        mime,
    })
}

/// Sends the frozen bytes and compares.
async fn assert_arrives(smtp: &SmtpTransport, sink: &SmtpSink, mime: &[u8]) {
    let frozen = freeze(smtp, Some(mime)).unwrap();
    assert!(frozen.starts_with(mime) && frozen.len() - mime.len() <= 2, "freezing changed the mail");
    let reply = send_envelope(smtp, sample_envelope(&frozen)).await;
    assert_eq!(reply.meaning, ReplyMeaning::Accepted, "{reply:?} for {:?}", String::from_utf8_lossy(mime));
    let last = sink.mails().pop().unwrap();
    assert!(
        last.bytes == frozen,
        "{:?} became {:?}",
        String::from_utf8_lossy(&frozen),
        String::from_utf8_lossy(&last.bytes)
    );
}

#[tokio::test]
async fn dots_arrive_as_they_left() {
    let sink = start_sink().await;
    let smtp = client_for(&sink);
    for mime in [
        &b".\r\n"[..],
        b"..\r\n",
        b"\r\n",
        b"\r\n.\r\n",
        b"a\r\n.\r\n.\r\n..\r\n...\r\nb\r\n",
        b".a: b\r\n\r\n.c\r\n",
        b"a: b\r\n\r\nno end",
        b"a: b\r\n\r\n.",
        b"a: b\r\n\r\nQUIT\r\n.\r\nMAIL FROM:<x@y.test>\r\n",
    ] {
        assert_arrives(&smtp, &sink, mime).await;
    }
    assert_eq!(sink.violations(), [""; 0]);
    assert_eq!(sink.connection_count(), 1);
}

#[tokio::test]
async fn whatever_is_made_of_dots_and_line_ends_arrives_or_is_refused() {
    let sink = start_sink().await;
    let smtp = client_for(&sink);
    let parts: [&[u8]; 6] = [b".", b"\r\n", b"a", b"\r", b"\n", b"\r\n.\r\n"];
    let (mut sent, mut refused) = (0, 0);
    // Every sequence of four of these parts.
    for number in 0..6_usize.pow(4) {
        let mime: Vec<u8> = (0..4).flat_map(|digit| parts[number / 6_usize.pow(digit) % 6].iter().copied()).collect();
        let without: Vec<u8> = mime.split(|b| *b == b'\n').fold(Vec::new(), |mut all, line| {
            all.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
            all
        });
        match freeze(&smtp, Some(&mime)) {
            Ok(_) => {
                assert!(!without.contains(&b'\r'), "a bare CR passed");
                assert_arrives(&smtp, &sink, &mime).await;
                sent += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert_eq!(sink.violations(), [""; 0]);
    assert_eq!(sink.mails().len(), sent);
    assert!(sent > 200 && refused > 200, "{sent} sent, {refused} refused");
}

#[tokio::test]
async fn smuggling_sequences_are_never_sent() {
    let sink = start_sink().await;
    let smtp = client_for(&sink);
    let long = [b"a: b\r\n\r\n".to_vec(), vec![b'x'; 999], b"\r\n".to_vec()].concat();
    let tail = "MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\nhi\r\n.\r\n";
    let ends = ["\n.\n", "\n.\r\n", "\r.\r\n", "\r.\r", "\r\n.\n", "\r\n.\r", "\r\n\0.\r\n", "\r\r\n.\r\r\n"];
    let smuggled = ends.iter().map(|end| format!("a: b\r\n\r\nhello{end}{tail}").into_bytes());
    for mime in smuggled.chain([long, Vec::new(), b"a: b\n\nhello\n".to_vec()]) {
        let shown = String::from_utf8_lossy(&mime).into_owned();
        assert!(freeze(&smtp, Some(&mime)).is_err(), "{shown:?} was frozen");
        // Even if another component froze it.
        let reply = send_envelope(&smtp, sample_envelope(&mime)).await;
        assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Refused, AttemptPhase::Data), "{shown:?}: {reply:?}");
    }
    assert!(freeze(&smtp, None).is_err(), "a mail that was not composed was frozen");
    assert_eq!(sink.connection_count(), 0);
}

#[tokio::test]
async fn extensions_are_used_when_they_are_offered() {
    let sink = start_sink().await;
    let mut sent = sample_envelope("Subject: ü\r\n\r\nü\r\n".as_bytes());
    sent.recipients = vec!["jürgen@in.test".to_owned()];
    assert_eq!(send_envelope(&client_for(&sink), sent).await.meaning, ReplyMeaning::Accepted);
    assert_eq!(send_envelope(&client_for(&sink), sample_envelope(b"a: b\r\n")).await.meaning, ReplyMeaning::Accepted);
    let mails = sink.mails();
    assert_eq!(mails[0].sender, "bounce+1@out.test");
    assert_eq!(mails[0].sender_parameters, ["SIZE=19", "BODY=8BITMIME", "SMTPUTF8", "RET=HDRS", "ENVID=h0-a1"]);
    assert_eq!(mails[0].recipients[0], ("jürgen@in.test".to_owned(), vec!["NOTIFY=FAILURE,DELAY".to_owned()]));
    assert_eq!(mails[1].sender_parameters, ["SIZE=6", "RET=HDRS", "ENVID=h0-a1"]);
    assert_eq!(mails[1].recipients[0].1, ["NOTIFY=FAILURE,DELAY", "ORCPT=rfc822;ada@in.test"]);
}

#[tokio::test]
async fn extensions_that_are_not_offered_are_not_used() {
    let none = SmtpSink::start(SmtpSinkConfig { extensions: Vec::new(), ..SmtpSinkConfig::default() }).await.unwrap();
    let smtp = client_for(&none);
    assert_eq!(send_envelope(&smtp, sample_envelope(b"a: b\r\n")).await.meaning, ReplyMeaning::Accepted);
    let mut unicode = sample_envelope(b"a: b\r\n");
    unicode.recipients = vec!["jürgen@in.test".to_owned()];
    for (refused, why) in [(unicode, "SMTPUTF8"), (sample_envelope("a: b\r\n\r\nü\r\n".as_bytes()), "8BITMIME")] {
        let reply = send_envelope(&smtp, refused).await;
        assert!(reply.meaning == ReplyMeaning::Refused && reply.text.contains(why), "{reply:?}");
    }
    assert_eq!(none.mails().len(), 1);
    assert_eq!(none.violations(), [""; 0]);
}

#[tokio::test]
async fn a_mail_that_is_too_large_is_refused_before_it_is_sent() {
    let small = SmtpSink::start(SmtpSinkConfig { extensions: vec!["SIZE 10".to_owned()], ..SmtpSinkConfig::default() })
        .await
        .unwrap();
    let smtp = client_for(&small);
    let reply = send_envelope(&smtp, sample_envelope(b"a: b\r\n\r\nhello\r\n")).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Refused, AttemptPhase::Mail), "{reply:?}");
    assert!(small.commands().iter().all(|(_, line)| !line.starts_with("MAIL")));
    assert_eq!(send_envelope(&smtp, sample_envelope(b"a: b\r\n")).await.meaning, ReplyMeaning::Accepted);
}

#[tokio::test]
async fn an_address_never_becomes_a_command() {
    let sink = start_sink().await;
    let smtp = client_for(&sink);
    for address in ["ada@in.test>\r\nRCPT TO:<bob@in.test", "ada@in.test\nDATA", "", "ada@in.test> NOTIFY=NEVER"] {
        let mut sent = sample_envelope(b"a: b\r\n");
        sent.recipients = vec![address.to_owned()];
        let reply = send_envelope(&smtp, sent).await;
        assert_eq!(reply.meaning, ReplyMeaning::Refused, "{address:?}: {reply:?}");
    }
    assert_eq!(sink.connection_count(), 0);
}
