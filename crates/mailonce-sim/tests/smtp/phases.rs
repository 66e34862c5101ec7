//! Refusals, cuts and stalls at every step: what each one means, and that the sink has as many mails as that says.

use crate::setting::{
    MIME, SHORT, approach, at, client, config, hasty, judge, parcel, send, send_parcel, sink, slow_spoken_sink,
};
use mailonce_core::port::transport::{Meaning, Phase, Transport as _};
use mailonce_sim::sink::smtp::{Act, SmtpSink, Step};
use mailonce_transport::smtp::{Patience, Smtp};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::net::TcpListener;

const REFUSALS: [(Step, &str, Meaning, Phase); 22] = [
    (Step::Greeting, "554 5.7.1 go away", Meaning::Fault, Phase::Greet),
    (Step::Greeting, "421 4.3.2 closing", Meaning::Fault, Phase::Greet),
    (Step::Greeting, "250 hello", Meaning::Fault, Phase::Greet),
    (Step::Hello, "550 5.7.1 not you", Meaning::Fault, Phase::Greet),
    (Step::Hello, "421 4.3.2 closing", Meaning::Fault, Phase::Greet),
    (Step::Mail, "421 4.3.2 closing", Meaning::Fault, Phase::Mail),
    (Step::Mail, "530 5.7.0 log in first", Meaning::Fault, Phase::Mail),
    (Step::Mail, "534 5.7.9 too weak", Meaning::Fault, Phase::Mail),
    (Step::Mail, "535 5.7.8 no", Meaning::Fault, Phase::Mail),
    (Step::Mail, "538 5.7.11 encrypt", Meaning::Fault, Phase::Mail),
    (Step::Mail, "451 4.3.0 later", Meaning::Deferred, Phase::Mail),
    (Step::Mail, "552 5.3.4 too large", Meaning::Refused, Phase::Mail),
    (Step::Mail, "354 what", Meaning::Deferred, Phase::Mail),
    (Step::Rcpt, "421 4.3.2 closing", Meaning::Fault, Phase::Rcpt),
    (Step::Rcpt, "450 4.2.0 greylisted", Meaning::Deferred, Phase::Rcpt),
    (Step::Rcpt, "452 4.2.2 full", Meaning::Deferred, Phase::Rcpt),
    (Step::Rcpt, "550 5.1.1 nobody", Meaning::Refused, Phase::Rcpt),
    (Step::Rcpt, "553 5.1.3 what", Meaning::Refused, Phase::Rcpt),
    (Step::Data, "421 4.3.2 closing", Meaning::Fault, Phase::Data),
    (Step::Data, "451 4.3.0 later", Meaning::Deferred, Phase::Data),
    (Step::Data, "554 5.7.1 no", Meaning::Refused, Phase::Data),
    (Step::Data, "250 what", Meaning::Deferred, Phase::Data),
];

async fn both() -> [SmtpSink; 2] {
    [sink().await, slow_spoken_sink().await]
}

#[tokio::test]
async fn a_refusal_before_the_dot_is_certain_and_the_next_mail_goes() {
    for (step, line, meaning, phase) in REFUSALS {
        for sink in both().await {
            sink.once(step, Act::say(line));
            let smtp = client(&sink);
            let reply = send(&smtp).await;
            let code = line[..3].parse().ok();
            assert_eq!(
                (reply.meaning, reply.phase, reply.code),
                (meaning, phase, code),
                "{line} at {step:?}: {reply:?}"
            );
            assert_eq!(reply.text, line[4..]);
            judge(&sink, &reply, 0);
            let again = send(&smtp).await;
            assert_eq!(again.meaning, Meaning::Accepted, "after {line} at {step:?}: {again:?}");
            judge(&sink, &again, 1);
        }
    }
}

#[tokio::test]
async fn only_the_refused_recipient_is_refused() {
    let sink = sink().await;
    sink.on_line(Step::Rcpt, "bob", Act::say("550 5.1.1 nobody"));
    let smtp = client(&sink);
    let mut to_bob = parcel(MIME);
    to_bob.recipients = vec!["bob@in.test".to_owned()];
    assert_eq!(send_parcel(&smtp, to_bob).await.meaning, Meaning::Refused);
    assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
    assert_eq!(sink.connections(), 1, "a refusal leaves the connection in step");
    assert_eq!(sink.mails()[0].recipients[0].0, "ada@in.test");
}

#[tokio::test]
async fn a_cut_or_a_stall_before_the_dot_is_certain() {
    for (step, meaning, phase) in [
        (Step::Greeting, Meaning::Fault, Phase::Greet),
        (Step::Hello, Meaning::Fault, Phase::Greet),
        (Step::Mail, Meaning::Deferred, Phase::Mail),
        (Step::Rcpt, Meaning::Deferred, Phase::Rcpt),
        (Step::Data, Meaning::Deferred, Phase::Data),
    ] {
        let sinks = both().await.into_iter().chain(both().await);
        for (act, sink) in [Act::Cut, Act::Cut, Act::Stall, Act::Stall].into_iter().zip(sinks) {
            sink.once(step, act.clone());
            let reply = send(&hasty(sink.at.port())).await;
            // With commands in one flight, a reset may hide the answers that were still under way.
            let told = (reply.meaning, reply.phase);
            let earlier = reply.meaning == meaning && reply.phase == Phase::Mail && matches!(act, Act::Cut);
            assert!(told == (meaning, phase) || earlier, "{act:?} at {step:?}: {reply:?}");
            assert_eq!(reply.code, None);
            judge(&sink, &reply, 0);
        }
    }
}

#[tokio::test]
async fn nobody_there_is_a_fault() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap().port();
    let reply = send(&Smtp::new(at(port)).unwrap()).await;
    assert_eq!((reply.meaning, reply.phase), (Meaning::Fault, Phase::Connect), "{reply:?}");
}

#[tokio::test]
async fn an_answer_to_the_dot_is_certain() {
    for (act, meaning, taken) in [
        (Act::say("421 4.3.2 closing"), Meaning::Deferred, 0),
        (Act::say("451 4.3.0 later"), Meaning::Deferred, 0),
        (Act::say("452 4.3.1 full"), Meaning::Deferred, 0),
        (Act::say("550 5.7.1 spam"), Meaning::Refused, 0),
        (Act::say("554 5.6.0 no"), Meaning::Refused, 0),
        (Act::taken(Act::say("250 ok")), Meaning::Accepted, 1),
        (Act::taken(Act::say("251 ok")), Meaning::Accepted, 1),
        (Act::taken(Act::say_and_close("250 ok")), Meaning::Accepted, 1),
        (Act::Late(SHORT), Meaning::Accepted, 1),
    ] {
        let sink = sink().await;
        sink.once(Step::Dot, act.clone());
        let reply = send(&client(&sink)).await;
        assert_eq!((reply.meaning, reply.phase), (meaning, Phase::Final), "{act:?}: {reply:?}");
        assert!(reply.code.is_some());
        judge(&sink, &reply, taken);
    }
}

#[tokio::test]
async fn without_an_answer_to_the_dot_nobody_can_tell() {
    for (act, taken) in [
        (Act::Cut, 0),
        (Act::Stall, 0),
        (Act::say("354 what"), 0),
        (Act::say("garbage"), 0),
        (Act::taken(Act::Cut), 1),
        (Act::taken(Act::Stall), 1),
        (Act::taken(Act::say_and_close("250-half")), 1),
        (Act::taken(Act::say("250-yes\r\n550 no")), 1),
        (Act::taken(Act::Drip(b"250 2.0.0 taken, but slowly\r\n".to_vec(), SHORT / 4)), 1),
    ] {
        let sink = sink().await;
        sink.once(Step::Dot, act.clone());
        let smtp = hasty(sink.at.port());
        let reply = send(&smtp).await;
        assert_eq!((reply.meaning, reply.phase), (Meaning::Unknown, Phase::Final), "{act:?}: {reply:?}");
        judge(&sink, &reply, taken);
        // The connection is of no use any more, and the next mail gets its own answer.
        assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
        assert_eq!((sink.connections(), sink.mails().len()), (2, taken + 1));
    }
}

#[tokio::test]
async fn a_mail_that_is_taken_after_we_gave_up_is_one_mail() {
    let sink = sink().await;
    sink.once(Step::Dot, Act::Late(SHORT * 3));
    let reply = send(&hasty(sink.at.port())).await;
    assert_eq!(reply.meaning, Meaning::Unknown, "{reply:?}");
    judge(&sink, &reply, 0);
    sink.until(|sink| !sink.mails().is_empty()).await.unwrap();
    assert_eq!(sink.mails().len(), 1);
}

#[tokio::test]
async fn what_a_server_says_into_the_body_is_the_answer() {
    let large = [b"Subject: large\r\n\r\n".to_vec(), b"0123456789\r\n".repeat(700_000)].concat();
    for (act, meaning, code) in [
        (Act::say_and_close("552 5.3.4 too large"), Meaning::Refused, Some(552)),
        (Act::say_and_close("451 4.3.0 later"), Meaning::Deferred, Some(451)),
        (Act::say_and_close("421 4.3.2 closing"), Meaning::Fault, Some(421)),
        (Act::say_and_close("250 fine"), Meaning::Deferred, None),
        (Act::say_and_close("so what"), Meaning::Deferred, None),
        (Act::Cut, Meaning::Deferred, None),
    ] {
        let sink = sink().await;
        sink.once(Step::Body, act.clone());
        let reply = client(&sink).approach(parcel(&large)).await.err().expect("the body ended unheard");
        assert_eq!((reply.meaning, reply.phase, reply.code), (meaning, Phase::Data, code), "{act:?}: {reply:?}");
        judge(&sink, &reply, 0);
    }
}

#[tokio::test]
async fn a_server_that_reads_no_body_is_given_up() {
    let sink = sink().await;
    sink.once(Step::Body, Act::Freeze);
    let large = [b"Subject: large\r\n\r\n".to_vec(), b"0123456789\r\n".repeat(700_000)].concat();
    let reply = hasty(sink.at.port()).approach(parcel(&large)).await.err().expect("nobody read the body");
    assert_eq!((reply.meaning, reply.phase), (Meaning::Deferred, Phase::Data), "{reply:?}");
    judge(&sink, &reply, 0);
}

#[tokio::test]
async fn dropping_what_is_ready_takes_it_back() {
    let sink = sink().await;
    let smtp = client(&sink);
    let ready = approach(&smtp).await.ok().unwrap();
    assert_eq!(sink.open(), 1);
    drop(ready);
    sink.until(|sink| sink.open() == 0).await.unwrap();
    assert_eq!(sink.mails().len(), 0);
}

#[tokio::test]
async fn too_long_after_the_approach_the_dot_is_not_given() {
    let sink = sink().await;
    let mut config = config(&sink);
    config.patience = Patience { armed: Duration::from_millis(20), ..config.patience };
    let ready = approach(&Smtp::new(config).unwrap()).await.ok().unwrap();
    tokio::time::sleep(Duration::from_millis(40)).await;
    let reply = ready.hand_over().await;
    assert_eq!((reply.meaning, reply.phase), (Meaning::Deferred, Phase::Data), "{reply:?}");
    sink.until(|sink| sink.open() == 0).await.unwrap();
    judge(&sink, &reply, 0);
}
