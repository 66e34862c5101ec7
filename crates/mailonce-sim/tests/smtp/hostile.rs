//! Servers that say too much, too little, too slowly or out of turn. No answer ever counts for another mail.

use crate::setting::{
    MIME, SHORT, approach, at, client, hasty, judge, parcel, send, send_parcel, sink, slow_spoken_sink,
};
use mailonce_core::port::transport::{Meaning, Phase};
use mailonce_sim::sink::smtp::{Act, Step};
use mailonce_transport::smtp::Smtp;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Bytes that are no reply.
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
async fn what_is_no_reply_is_a_fault_then_a_delay_and_unknown_in_the_end() {
    for said in malformed() {
        let told = String::from_utf8_lossy(&said[..said.len().min(40)]).into_owned();
        for (step, act, meaning, taken) in [
            (Step::Greeting, Act::Say(said.clone()), Meaning::Fault, 0),
            (Step::Hello, Act::Say(said.clone()), Meaning::Fault, 0),
            (Step::Mail, Act::Say(said.clone()), Meaning::Deferred, 0),
            (Step::Rcpt, Act::Say(said.clone()), Meaning::Deferred, 0),
            (Step::Data, Act::Say(said.clone()), Meaning::Deferred, 0),
            (Step::Dot, Act::taken(Act::Say(said.clone())), Meaning::Unknown, 1),
        ] {
            let sink = sink().await;
            sink.once(step, act);
            let reply = send(&client(&sink)).await;
            assert_eq!((reply.meaning, reply.code), (meaning, None), "{told:?} at {step:?}: {reply:?}");
            judge(&sink, &reply, taken);
        }
    }
}

#[tokio::test]
async fn odd_replies_that_can_be_understood_are() {
    for (said, meaning) in [
        ("250\r\n", Meaning::Accepted),
        ("250 \r\n", Meaning::Accepted),
        ("250 bare end\n", Meaning::Accepted),
        ("250-many\r\n250-lines\r\n250 here\r\n", Meaning::Accepted),
        ("250-\r\n250\r\n", Meaning::Accepted),
        ("299 odd\r\n", Meaning::Accepted),
    ] {
        let sink = sink().await;
        sink.once(Step::Dot, Act::taken(Act::Say(said.as_bytes().to_vec())));
        let reply = send(&client(&sink)).await;
        assert_eq!(reply.meaning, meaning, "{said:?}: {reply:?}");
        judge(&sink, &reply, 1);
    }
}

#[tokio::test]
async fn control_characters_stay_out() {
    let sink = sink().await;
    sink.once(Step::Rcpt, Act::Say(b"550-no\x1b[31m\x07\rred\r\n550 \xff\xfe\0bye\r\n".to_vec()));
    let reply = send(&client(&sink)).await;
    assert_eq!((reply.meaning, reply.code), (Meaning::Refused, Some(550)));
    assert!(reply.text.starts_with("no") && reply.text.ends_with("bye"), "{reply:?}");
    assert!(!reply.text.chars().any(char::is_control), "{reply:?}");
}

#[tokio::test]
async fn bytes_that_drip_do_not_stretch_patience() {
    for (step, meaning) in
        [(Step::Greeting, Meaning::Fault), (Step::Mail, Meaning::Deferred), (Step::Dot, Meaning::Unknown)]
    {
        let sink = sink().await;
        sink.once(step, Act::Drip(b"250 ".repeat(1_000), SHORT / 10));
        let begun = Instant::now();
        let reply = send(&hasty(sink.at.port())).await;
        assert_eq!(reply.meaning, meaning, "{step:?}: {reply:?}");
        assert!(begun.elapsed() < SHORT * 20, "it took {:?}", begun.elapsed());
        judge(&sink, &reply, 0);
    }
}

#[tokio::test]
async fn an_answer_too_many_never_counts_for_anything_else() {
    for step in [Step::Greeting, Step::Hello, Step::Mail, Step::Rcpt, Step::Data] {
        for sink in [sink().await, slow_spoken_sink().await] {
            sink.once(step, Act::extra("250 extra"));
            let smtp = client(&sink);
            let reply = approach(&smtp).await.err().expect("the approach went on out of step");
            assert!(matches!(reply.meaning, Meaning::Deferred | Meaning::Fault), "{step:?}: {reply:?}");
            judge(&sink, &reply, 0);
            let again = send(&smtp).await;
            assert_eq!(again.meaning, Meaning::Accepted, "{step:?}: {again:?}");
            assert_eq!((sink.connections(), sink.mails().len()), (2, 1));
        }
    }
}

#[tokio::test]
async fn an_answer_too_many_after_the_dot_does_not_answer_for_the_next_mail() {
    let sink = sink().await;
    sink.once(Step::Dot, Act::extra("250 extra"));
    let smtp = client(&sink);
    assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
    sink.once(Step::Dot, Act::say("550 5.7.1 no"));
    assert_eq!(send(&smtp).await.meaning, Meaning::Refused);
    assert_eq!((sink.connections(), sink.mails().len()), (2, 1));
}

#[tokio::test]
async fn two_answers_that_disagree_are_none() {
    for (act, meaning, taken) in [
        (Act::extra("550 no after all"), Meaning::Unknown, 1),
        (Act::Say(b"550 no\r\n250 yes\r\n".to_vec()), Meaning::Unknown, 0),
        // A server that takes the mail and then closes says nothing about the mail.
        (Act::extra("421 4.3.2 closing"), Meaning::Accepted, 1),
    ] {
        let sink = sink().await;
        sink.once(Step::Dot, act.clone());
        let reply = send(&client(&sink)).await;
        assert_eq!(reply.meaning, meaning, "{act:?}: {reply:?}");
        judge(&sink, &reply, taken);
    }
}

#[tokio::test]
async fn what_is_said_between_approach_and_dot_is_the_answer_and_the_dot_is_kept() {
    for (said, meaning, code) in [
        (&b"452 4.3.1 full\r\n"[..], Meaning::Deferred, Some(452)),
        (b"554 5.7.1 no\r\n", Meaning::Refused, Some(554)),
        (b"421 4.3.2 closing\r\n", Meaning::Fault, Some(421)),
        // Before the dot, a yes is not an answer to it.
        (b"250 queued\r\n", Meaning::Deferred, None),
        (b"", Meaning::Deferred, None),
    ] {
        let (go, gone) = oneshot::channel();
        let (heard, told) = oneshot::channel();
        let port = early(said, gone, heard).await;
        let smtp = Smtp::new(at(port)).unwrap();
        let ready = approach(&smtp).await.ok().unwrap();
        let server = go.send(()).map(|()| told);
        let after = server.unwrap().await.unwrap();
        let reply = ready.hand_over().await;
        assert_eq!((reply.meaning, reply.phase, reply.code), (meaning, Phase::Data, code), "{reply:?}");
        assert_eq!(after.await.unwrap(), b"", "something followed the body");
    }
}

/// A server that takes a body, waits for a sign, says `said` (or closes), tells so, and hands out what came after.
async fn early(
    said: &'static [u8],
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
        stream.write_all(said).await.unwrap();
        if said.is_empty() {
            stream.shutdown().await.unwrap();
        }
        let rest = tokio::spawn(async move {
            let mut rest = Vec::new();
            // A reset is also an end.
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
    let reply = send_parcel(&hasty(listener.local_addr().unwrap().port()), parcel(MIME)).await;
    assert_eq!((reply.meaning, reply.phase), (Meaning::Fault, Phase::Greet), "{reply:?}");
}

#[tokio::test]
async fn a_server_of_old_without_ehlo_gets_its_mail() {
    let sink = slow_spoken_sink().await;
    sink.on_line(Step::Hello, "EHLO", Act::say("502 5.5.1 what"));
    assert_eq!(send(&client(&sink)).await.meaning, Meaning::Accepted);
    assert_eq!(sink.mails()[0].sender_parameters, [""; 0]);
}

#[tokio::test]
async fn the_name_a_server_gives_a_mail_is_kept() {
    let sink = sink().await;
    let reply = send(&client(&sink)).await;
    assert_eq!((reply.remote_id.as_deref(), reply.code), (Some("S1"), Some(250)));
    assert_eq!(reply.text, "2.0.0 Ok: queued as S1");
    assert!(sink.mails()[0].at.elapsed().unwrap() < Duration::from_mins(1));
}
