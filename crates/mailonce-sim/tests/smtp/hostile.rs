//! Servers that send too much, too little, too slowly or out of turn. No reply ever counts for another mail.

use crate::fixtures::{
    MIME, SHORT_TIMEOUT, approach, assert_consistent, client_for, config_at_port, impatient_client, sample_envelope,
    send, send_envelope, start_sink, start_sink_without_pipelining,
};
use mailonce_core::handoff::reply::{AttemptPhase, ReplyMeaning};
use mailonce_sim::sink::smtp::{SmtpAction, SmtpStep};
use mailonce_transport::smtp::SmtpTransport;
use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::oneshot,
};

/// Bytes that are not a reply.
fn malformed() -> Vec<Vec<u8>> {
    let long_line = [b"250 ".to_vec(), vec![b'x'; 3_000], b"\r\n".to_vec()].concat();
    vec![
        b"hello\r\n".to_vec(),
        b"\r\n".to_vec(),
        b"25\r\n".to_vec(),
        b"2500 ok\r\n".to_vec(),
        b"999 ok\r\n".to_vec(),
        b"099 ok\r\n".to_vec(),
        b" 250 ok\r\n".to_vec(),
        b"250-yes\r\n550 no\r\n".to_vec(),
        b"550-no\r\n250 yes\r\n".to_vec(),
        b"250-yes\r\nthere is more\r\n250 yes\r\n".to_vec(),
        b"250-x\r\n".repeat(150),
        [b"250-".to_vec(), vec![b'x'; 1_900], b"\r\n".to_vec()].concat().repeat(50),
        vec![b'2'; 200_000],
        "２５０ ok\r\n".as_bytes().to_vec(),
        long_line,
    ]
}

#[tokio::test]
async fn a_malformed_reply_is_a_fault_then_a_deferral_then_unknown() {
    for raw_reply in malformed() {
        let shown = String::from_utf8_lossy(&raw_reply[..raw_reply.len().min(40)]).into_owned();
        for (step, act, meaning, taken) in [
            (SmtpStep::Greeting, SmtpAction::Reply(raw_reply.clone()), ReplyMeaning::Fault, 0),
            (SmtpStep::Hello, SmtpAction::Reply(raw_reply.clone()), ReplyMeaning::Fault, 0),
            (SmtpStep::Mail, SmtpAction::Reply(raw_reply.clone()), ReplyMeaning::Deferred, 0),
            (SmtpStep::Rcpt, SmtpAction::Reply(raw_reply.clone()), ReplyMeaning::Deferred, 0),
            (SmtpStep::Data, SmtpAction::Reply(raw_reply.clone()), ReplyMeaning::Deferred, 0),
            (SmtpStep::Dot, SmtpAction::accept_then(SmtpAction::Reply(raw_reply.clone())), ReplyMeaning::Unknown, 1),
        ] {
            let sink = start_sink().await;
            sink.once_at(step, act);
            let reply = send(&client_for(&sink)).await;
            assert_eq!((reply.meaning, reply.code), (meaning, None), "{shown:?} at {step:?}: {reply:?}");
            assert_consistent(&sink, &reply, taken);
        }
    }
}

#[tokio::test]
async fn odd_replies_that_can_be_understood_are() {
    for (raw_reply, meaning) in [
        ("250\r\n", ReplyMeaning::Accepted),
        ("250 \r\n", ReplyMeaning::Accepted),
        ("250 bare end\n", ReplyMeaning::Accepted),
        ("250-many\r\n250-lines\r\n250 here\r\n", ReplyMeaning::Accepted),
        ("250-\r\n250\r\n", ReplyMeaning::Accepted),
        ("299 odd\r\n", ReplyMeaning::Accepted),
    ] {
        let sink = start_sink().await;
        sink.once_at(SmtpStep::Dot, SmtpAction::accept_then(SmtpAction::Reply(raw_reply.as_bytes().to_vec())));
        let reply = send(&client_for(&sink)).await;
        assert_eq!(reply.meaning, meaning, "{raw_reply:?}: {reply:?}");
        assert_consistent(&sink, &reply, 1);
    }
}

#[tokio::test]
async fn control_characters_stay_out() {
    let sink = start_sink().await;
    sink.once_at(SmtpStep::Rcpt, SmtpAction::Reply(b"550-no\x1b[31m\x07\rred\r\n550 \xff\xfe\0bye\r\n".to_vec()));
    let reply = send(&client_for(&sink)).await;
    assert_eq!((reply.meaning, reply.code), (ReplyMeaning::Refused, Some(550)));
    assert!(reply.text.starts_with("no") && reply.text.ends_with("bye"), "{reply:?}");
    assert!(!reply.text.chars().any(char::is_control), "{reply:?}");
}

#[tokio::test]
async fn dripping_bytes_do_not_extend_the_timeout() {
    for (step, meaning) in [
        (SmtpStep::Greeting, ReplyMeaning::Fault),
        (SmtpStep::Mail, ReplyMeaning::Deferred),
        (SmtpStep::Dot, ReplyMeaning::Unknown),
    ] {
        let sink = start_sink().await;
        sink.once_at(step, SmtpAction::Drip(b"250 ".repeat(1_000), SHORT_TIMEOUT / 10));
        let begun = Instant::now();
        let reply = send(&impatient_client(sink.at.port())).await;
        assert_eq!(reply.meaning, meaning, "{step:?}: {reply:?}");
        assert!(begun.elapsed() < SHORT_TIMEOUT * 20, "it took {:?}", begun.elapsed());
        assert_consistent(&sink, &reply, 0);
    }
}

#[tokio::test]
async fn an_answer_too_many_never_counts_for_anything_else() {
    for step in [SmtpStep::Greeting, SmtpStep::Hello, SmtpStep::Mail, SmtpStep::Rcpt, SmtpStep::Data] {
        for sink in [start_sink().await, start_sink_without_pipelining().await] {
            sink.once_at(step, SmtpAction::extra_line("250 extra"));
            let smtp = client_for(&sink);
            let reply = approach(&smtp).await.err().expect("the approach went on out of step");
            assert!(matches!(reply.meaning, ReplyMeaning::Deferred | ReplyMeaning::Fault), "{step:?}: {reply:?}");
            assert_consistent(&sink, &reply, 0);
            let again = send(&smtp).await;
            assert_eq!(again.meaning, ReplyMeaning::Accepted, "{step:?}: {again:?}");
            assert_eq!((sink.connection_count(), sink.mails().len()), (2, 1));
        }
    }
}

#[tokio::test]
async fn an_answer_too_many_after_the_dot_does_not_answer_for_the_next_mail() {
    let sink = start_sink().await;
    sink.once_at(SmtpStep::Dot, SmtpAction::extra_line("250 extra"));
    let smtp = client_for(&sink);
    assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
    sink.once_at(SmtpStep::Dot, SmtpAction::reply_line("550 5.7.1 no"));
    assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Refused);
    assert_eq!((sink.connection_count(), sink.mails().len()), (2, 1));
}

#[tokio::test]
async fn two_answers_that_disagree_are_none() {
    for (act, meaning, taken) in [
        (SmtpAction::extra_line("550 no after all"), ReplyMeaning::Unknown, 1),
        (SmtpAction::Reply(b"550 no\r\n250 yes\r\n".to_vec()), ReplyMeaning::Unknown, 0),
        // A server that accepts the mail and then closes says nothing about the mail.
        (SmtpAction::extra_line("421 4.3.2 closing"), ReplyMeaning::Accepted, 1),
    ] {
        let sink = start_sink().await;
        sink.once_at(SmtpStep::Dot, act.clone());
        let reply = send(&client_for(&sink)).await;
        assert_eq!(reply.meaning, meaning, "{act:?}: {reply:?}");
        assert_consistent(&sink, &reply, taken);
    }
}

#[tokio::test]
async fn a_reply_between_approach_and_dot_decides_and_the_dot_is_not_sent() {
    for (raw_reply, meaning, code) in [
        (&b"452 4.3.1 full\r\n"[..], ReplyMeaning::Deferred, Some(452)),
        (b"554 5.7.1 no\r\n", ReplyMeaning::Refused, Some(554)),
        (b"421 4.3.2 closing\r\n", ReplyMeaning::Fault, Some(421)),
        // Before the dot, a positive reply is not a reply to it.
        (b"250 queued\r\n", ReplyMeaning::Deferred, None),
        (b"", ReplyMeaning::Deferred, None),
    ] {
        let (go, gone) = oneshot::channel();
        let (heard, shown) = oneshot::channel();
        let port = early_reply_server(raw_reply, gone, heard).await;
        let smtp = SmtpTransport::new(config_at_port(port)).unwrap();
        let ready = approach(&smtp).await.ok().unwrap();
        let server = go.send(()).map(|()| shown);
        let after = server.unwrap().await.unwrap();
        let reply = ready.hand_over().await;
        assert_eq!((reply.meaning, reply.phase, reply.code), (meaning, AttemptPhase::Data, code), "{reply:?}");
        assert_eq!(after.await.unwrap(), b"", "something followed the body");
    }
}

/// A server that reads a body, waits for a signal, sends `raw_reply` (or closes), and returns what came after.
async fn early_reply_server(
    raw_reply: &'static [u8],
    go: oneshot::Receiver<()>,
    heard: oneshot::Sender<tokio::task::JoinHandle<Vec<u8>>>,
) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for (say, expect) in
            [("220 x\r\n", "EHLO"), ("250 x\r\n", "MAIL"), ("250 x\r\n", "RCPT"), ("250 x\r\n", "DATA")]
        {
            stream.write_all(say.as_bytes()).await.unwrap();
            let mut line = [0; 200];
            let read = stream.read(&mut line).await.unwrap();
            assert!(line[..read].starts_with(expect.as_bytes()));
        }
        stream.write_all(b"354 go\r\n").await.unwrap();
        let mut body = vec![0; MIME.len()];
        stream.read_exact(&mut body).await.unwrap();
        go.await.unwrap();
        stream.write_all(raw_reply).await.unwrap();
        if raw_reply.is_empty() {
            stream.shutdown().await.unwrap();
        }
        let rest = tokio::spawn(async move {
            let mut rest = Vec::new();
            // A reset also ends the connection.
            drop(stream.read_to_end(&mut rest).await);
            rest
        });
        heard.send(rest).unwrap();
    });
    port
}

#[tokio::test]
async fn a_greeting_that_never_comes_is_a_fault() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let reply = send_envelope(&impatient_client(listener.local_addr().unwrap().port()), sample_envelope(MIME)).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Fault, AttemptPhase::Greet), "{reply:?}");
}

#[tokio::test]
async fn an_old_server_without_ehlo_gets_its_mail() {
    let sink = start_sink_without_pipelining().await;
    sink.always_at_line(SmtpStep::Hello, "EHLO", SmtpAction::reply_line("502 5.5.1 what"));
    assert_eq!(send(&client_for(&sink)).await.meaning, ReplyMeaning::Accepted);
    assert_eq!(sink.mails()[0].sender_parameters, [""; 0]);
}

#[tokio::test]
async fn the_name_a_server_gives_a_mail_is_kept() {
    let sink = start_sink().await;
    let reply = send(&client_for(&sink)).await;
    assert_eq!((reply.remote_id.as_deref(), reply.code), (Some("S1"), Some(250)));
    assert_eq!(reply.text, "2.0.0 Ok: queued as S1");
    assert!(sink.mails()[0].at.elapsed().unwrap() < Duration::from_mins(1));
}
