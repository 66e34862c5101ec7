//! The bytes that leave are the bytes that were frozen, and no byte of a mail ends it early.

use crate::setting::{client, parcel, send_parcel, sink};
use mailonce_core::content::{Content, RawContent};
use mailonce_core::id::EmailId;
use mailonce_core::port::transport::{Mail, Meaning, Phase, Transport as _, Unfit};
use mailonce_core::time::Time;
use mailonce_sim::sink::smtp::{Setting, SmtpSink};
use mailonce_transport::smtp::Smtp;
use uuid::Uuid;

fn content() -> Content {
    let raw = RawContent {
        from: "me@out.test".to_owned(),
        to: vec!["ada@in.test".to_owned()],
        subject: "hello".to_owned(),
        text: Some("hello".to_owned()),
        ..RawContent::default()
    };
    Content::check(raw).unwrap()
}

fn freeze(smtp: &Smtp, mime: Option<&[u8]>) -> Result<Vec<u8>, Unfit> {
    let content = content();
    let (id, created_at) = (Uuid::from_u128(1), Time(0));
    smtp.freeze(&Mail { id: EmailId(id), content: &content, message_id: "<1@out.test>", created_at, key: id, mime })
}

/// Sends what was frozen and compares.
async fn arrives(smtp: &Smtp, sink: &SmtpSink, mime: &[u8]) {
    let frozen = freeze(smtp, Some(mime)).unwrap();
    assert!(frozen.starts_with(mime) && frozen.len() - mime.len() <= 2, "freezing changed the mail");
    let reply = send_parcel(smtp, parcel(&frozen)).await;
    assert_eq!(reply.meaning, Meaning::Accepted, "{reply:?} for {:?}", String::from_utf8_lossy(mime));
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
    let sink = sink().await;
    let smtp = client(&sink);
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
        arrives(&smtp, &sink, mime).await;
    }
    assert_eq!(sink.violations(), [""; 0]);
    assert_eq!(sink.connections(), 1);
}

#[tokio::test]
async fn whatever_is_made_of_dots_and_line_ends_arrives_or_is_refused() {
    let sink = sink().await;
    let smtp = client(&sink);
    let parts: [&[u8]; 6] = [b".", b"\r\n", b"a", b"\r", b"\n", b"\r\n.\r\n"];
    let (mut sent, mut refused) = (0, 0);
    // Every word of four of these parts.
    for number in 0..6_usize.pow(4) {
        let mime: Vec<u8> = (0..4).flat_map(|place| parts[number / 6_usize.pow(place) % 6].iter().copied()).collect();
        let without: Vec<u8> = mime.split(|b| *b == b'\n').fold(Vec::new(), |mut all, line| {
            all.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
            all
        });
        match freeze(&smtp, Some(&mime)) {
            Ok(_) => {
                assert!(!without.contains(&b'\r'), "a bare CR passed");
                arrives(&smtp, &sink, &mime).await;
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
async fn what_could_smuggle_a_mail_never_leaves() {
    let sink = sink().await;
    let smtp = client(&sink);
    let long = [b"a: b\r\n\r\n".to_vec(), vec![b'x'; 999], b"\r\n".to_vec()].concat();
    let tail = "MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\nhi\r\n.\r\n";
    let ends = ["\n.\n", "\n.\r\n", "\r.\r\n", "\r.\r", "\r\n.\n", "\r\n.\r", "\r\n\0.\r\n", "\r\r\n.\r\r\n"];
    let smuggled = ends.iter().map(|end| format!("a: b\r\n\r\nhello{end}{tail}").into_bytes());
    for mime in smuggled.chain([long, Vec::new(), b"a: b\n\nhello\n".to_vec()]) {
        let told = String::from_utf8_lossy(&mime).into_owned();
        assert!(freeze(&smtp, Some(&mime)).is_err(), "{told:?} was frozen");
        // Even when it was frozen by somebody else.
        let reply = send_parcel(&smtp, parcel(&mime)).await;
        assert_eq!((reply.meaning, reply.phase), (Meaning::Refused, Phase::Data), "{told:?}: {reply:?}");
    }
    assert!(freeze(&smtp, None).is_err(), "a mail that was not composed was frozen");
    assert_eq!(sink.connections(), 0);
}

#[tokio::test]
async fn extensions_are_used_when_they_are_offered() {
    let sink = sink().await;
    let mut sent = parcel("Subject: ü\r\n\r\nü\r\n".as_bytes());
    sent.recipients = vec!["jürgen@in.test".to_owned()];
    assert_eq!(send_parcel(&client(&sink), sent).await.meaning, Meaning::Accepted);
    assert_eq!(send_parcel(&client(&sink), parcel(b"a: b\r\n")).await.meaning, Meaning::Accepted);
    let mails = sink.mails();
    assert_eq!(mails[0].sender, "bounce+1@out.test");
    assert_eq!(mails[0].sender_parameters, ["SIZE=19", "BODY=8BITMIME", "SMTPUTF8", "RET=HDRS", "ENVID=h0-a1"]);
    assert_eq!(mails[0].recipients[0], ("jürgen@in.test".to_owned(), vec!["NOTIFY=FAILURE,DELAY".to_owned()]));
    assert_eq!(mails[1].sender_parameters, ["SIZE=6", "RET=HDRS", "ENVID=h0-a1"]);
    assert_eq!(mails[1].recipients[0].1, ["NOTIFY=FAILURE,DELAY", "ORCPT=rfc822;ada@in.test"]);
}

#[tokio::test]
async fn what_was_not_offered_is_not_asked_for() {
    let none = SmtpSink::start(Setting { offers: Vec::new(), ..Setting::default() }).await.unwrap();
    let smtp = client(&none);
    assert_eq!(send_parcel(&smtp, parcel(b"a: b\r\n")).await.meaning, Meaning::Accepted);
    let mut unicode = parcel(b"a: b\r\n");
    unicode.recipients = vec!["jürgen@in.test".to_owned()];
    for (refused, why) in [(unicode, "SMTPUTF8"), (parcel("a: b\r\n\r\nü\r\n".as_bytes()), "8BITMIME")] {
        let reply = send_parcel(&smtp, refused).await;
        assert!(reply.meaning == Meaning::Refused && reply.text.contains(why), "{reply:?}");
    }
    assert_eq!(none.mails().len(), 1);
    assert_eq!(none.violations(), [""; 0]);
}

#[tokio::test]
async fn a_mail_that_is_too_large_is_refused_before_it_is_sent() {
    let small = SmtpSink::start(Setting { offers: vec!["SIZE 10".to_owned()], ..Setting::default() }).await.unwrap();
    let smtp = client(&small);
    let reply = send_parcel(&smtp, parcel(b"a: b\r\n\r\nhello\r\n")).await;
    assert_eq!((reply.meaning, reply.phase), (Meaning::Refused, Phase::Mail), "{reply:?}");
    assert!(small.commands().iter().all(|(_, line)| !line.starts_with("MAIL")));
    assert_eq!(send_parcel(&smtp, parcel(b"a: b\r\n")).await.meaning, Meaning::Accepted);
}

#[tokio::test]
async fn an_address_never_becomes_a_command() {
    let sink = sink().await;
    let smtp = client(&sink);
    for address in ["ada@in.test>\r\nRCPT TO:<bob@in.test", "ada@in.test\nDATA", "", "ada@in.test> NOTIFY=NEVER"] {
        let mut sent = parcel(b"a: b\r\n");
        sent.recipients = vec![address.to_owned()];
        let reply = send_parcel(&smtp, sent).await;
        assert_eq!(reply.meaning, Meaning::Refused, "{address:?}: {reply:?}");
    }
    assert_eq!(sink.connections(), 0);
}
