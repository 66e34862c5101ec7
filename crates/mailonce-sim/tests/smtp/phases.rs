//! Refusals, disconnects and stalls at every step: their meaning, compared with the number of mails at the sink.

use crate::fixtures::{
    MIME, SHORT_TIMEOUT, approach, assert_consistent, client_for, config_at_port, config_for, impatient_client,
    sample_envelope, send, send_envelope, start_sink, start_sink_without_pipelining,
};
use mailonce_core::{
    handoff::reply::{AttemptPhase, ReplyMeaning},
    ports::transport::Transport as _,
};
use mailonce_sim::sink::smtp::{SmtpAction, SmtpSink, SmtpStep};
use mailonce_transport::smtp::{RelayTimeouts, SmtpTransport};
use std::{net::Ipv4Addr, time::Duration};
use tokio::net::TcpListener;

const REFUSALS: [(SmtpStep, &str, ReplyMeaning, AttemptPhase); 22] = [
    (SmtpStep::Greeting, "554 5.7.1 go away", ReplyMeaning::Fault, AttemptPhase::Greet),
    (SmtpStep::Greeting, "421 4.3.2 closing", ReplyMeaning::Fault, AttemptPhase::Greet),
    (SmtpStep::Greeting, "250 hello", ReplyMeaning::Fault, AttemptPhase::Greet),
    (SmtpStep::Hello, "550 5.7.1 not you", ReplyMeaning::Fault, AttemptPhase::Greet),
    (SmtpStep::Hello, "421 4.3.2 closing", ReplyMeaning::Fault, AttemptPhase::Greet),
    (SmtpStep::Mail, "421 4.3.2 closing", ReplyMeaning::Fault, AttemptPhase::Mail),
    (SmtpStep::Mail, "530 5.7.0 log in first", ReplyMeaning::Fault, AttemptPhase::Mail),
    (SmtpStep::Mail, "534 5.7.9 too weak", ReplyMeaning::Fault, AttemptPhase::Mail),
    (SmtpStep::Mail, "535 5.7.8 no", ReplyMeaning::Fault, AttemptPhase::Mail),
    (SmtpStep::Mail, "538 5.7.11 encrypt", ReplyMeaning::Fault, AttemptPhase::Mail),
    (SmtpStep::Mail, "451 4.3.0 later", ReplyMeaning::Deferred, AttemptPhase::Mail),
    (SmtpStep::Mail, "552 5.3.4 too large", ReplyMeaning::Refused, AttemptPhase::Mail),
    (SmtpStep::Mail, "354 what", ReplyMeaning::Deferred, AttemptPhase::Mail),
    (SmtpStep::Rcpt, "421 4.3.2 closing", ReplyMeaning::Fault, AttemptPhase::Rcpt),
    (SmtpStep::Rcpt, "450 4.2.0 greylisted", ReplyMeaning::Deferred, AttemptPhase::Rcpt),
    (SmtpStep::Rcpt, "452 4.2.2 full", ReplyMeaning::Deferred, AttemptPhase::Rcpt),
    (SmtpStep::Rcpt, "550 5.1.1 nobody", ReplyMeaning::Refused, AttemptPhase::Rcpt),
    (SmtpStep::Rcpt, "553 5.1.3 what", ReplyMeaning::Refused, AttemptPhase::Rcpt),
    (SmtpStep::Data, "421 4.3.2 closing", ReplyMeaning::Fault, AttemptPhase::Data),
    (SmtpStep::Data, "451 4.3.0 later", ReplyMeaning::Deferred, AttemptPhase::Data),
    (SmtpStep::Data, "554 5.7.1 no", ReplyMeaning::Refused, AttemptPhase::Data),
    (SmtpStep::Data, "250 what", ReplyMeaning::Deferred, AttemptPhase::Data),
];

async fn fast_and_slow_sinks() -> [SmtpSink; 2] {
    [start_sink().await, start_sink_without_pipelining().await]
}

#[tokio::test]
async fn a_refusal_before_the_dot_is_certain_and_the_next_mail_goes() {
    for (step, line, meaning, phase) in REFUSALS {
        for sink in fast_and_slow_sinks().await {
            sink.once_at(step, SmtpAction::reply_line(line));
            let smtp = client_for(&sink);
            let reply = send(&smtp).await;
            let code = line[..3].parse().ok();
            assert_eq!(
                (reply.meaning, reply.phase, reply.code),
                (meaning, phase, code),
                "{line} at {step:?}: {reply:?}"
            );
            assert_eq!(reply.text, line[4..]);
            assert_consistent(&sink, &reply, 0);
            let again = send(&smtp).await;
            assert_eq!(again.meaning, ReplyMeaning::Accepted, "after {line} at {step:?}: {again:?}");
            assert_consistent(&sink, &again, 1);
        }
    }
}

#[tokio::test]
async fn only_the_refused_recipient_is_refused() {
    let sink = start_sink().await;
    sink.always_at_line(SmtpStep::Rcpt, "bob", SmtpAction::reply_line("550 5.1.1 nobody"));
    let smtp = client_for(&sink);
    let mut to_bob = sample_envelope(MIME);
    to_bob.recipients = vec!["bob@in.test".to_owned()];
    assert_eq!(send_envelope(&smtp, to_bob).await.meaning, ReplyMeaning::Refused);
    assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
    assert_eq!(sink.connection_count(), 1, "a refusal leaves the connection in step");
    assert_eq!(sink.mails()[0].recipients[0].0, "ada@in.test");
}

#[tokio::test]
async fn a_cut_or_a_stall_before_the_dot_is_certain() {
    for (step, meaning, phase) in [
        (SmtpStep::Greeting, ReplyMeaning::Fault, AttemptPhase::Greet),
        (SmtpStep::Hello, ReplyMeaning::Fault, AttemptPhase::Greet),
        (SmtpStep::Mail, ReplyMeaning::Deferred, AttemptPhase::Mail),
        (SmtpStep::Rcpt, ReplyMeaning::Deferred, AttemptPhase::Rcpt),
        (SmtpStep::Data, ReplyMeaning::Deferred, AttemptPhase::Data),
    ] {
        let sinks = fast_and_slow_sinks().await.into_iter().chain(fast_and_slow_sinks().await);
        for (act, sink) in
            [SmtpAction::Close, SmtpAction::Close, SmtpAction::Stall, SmtpAction::Stall].into_iter().zip(sinks)
        {
            sink.once_at(step, act.clone());
            let reply = send(&impatient_client(sink.at.port())).await;
            // With pipelined commands, a reset may drop replies in transit.
            let observed = (reply.meaning, reply.phase);
            let earlier =
                reply.meaning == meaning && reply.phase == AttemptPhase::Mail && matches!(act, SmtpAction::Close);
            assert!(observed == (meaning, phase) || earlier, "{act:?} at {step:?}: {reply:?}");
            assert_eq!(reply.code, None);
            assert_consistent(&sink, &reply, 0);
        }
    }
}

#[tokio::test]
async fn a_refused_connection_is_a_fault() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap().port();
    let reply = send(&SmtpTransport::new(config_at_port(port)).unwrap()).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Fault, AttemptPhase::Connect), "{reply:?}");
}

#[tokio::test]
async fn an_answer_to_the_dot_is_certain() {
    for (act, meaning, taken) in [
        (SmtpAction::reply_line("421 4.3.2 closing"), ReplyMeaning::Deferred, 0),
        (SmtpAction::reply_line("451 4.3.0 later"), ReplyMeaning::Deferred, 0),
        (SmtpAction::reply_line("452 4.3.1 full"), ReplyMeaning::Deferred, 0),
        (SmtpAction::reply_line("550 5.7.1 spam"), ReplyMeaning::Refused, 0),
        (SmtpAction::reply_line("554 5.6.0 no"), ReplyMeaning::Refused, 0),
        (SmtpAction::accept_then(SmtpAction::reply_line("250 ok")), ReplyMeaning::Accepted, 1),
        (SmtpAction::accept_then(SmtpAction::reply_line("251 ok")), ReplyMeaning::Accepted, 1),
        (SmtpAction::accept_then(SmtpAction::reply_line_and_close("250 ok")), ReplyMeaning::Accepted, 1),
        (SmtpAction::Late(SHORT_TIMEOUT), ReplyMeaning::Accepted, 1),
    ] {
        let sink = start_sink().await;
        sink.once_at(SmtpStep::Dot, act.clone());
        let reply = send(&client_for(&sink)).await;
        assert_eq!((reply.meaning, reply.phase), (meaning, AttemptPhase::Final), "{act:?}: {reply:?}");
        assert!(reply.code.is_some());
        assert_consistent(&sink, &reply, taken);
    }
}

#[tokio::test]
async fn without_a_reply_to_the_dot_the_outcome_is_unknown() {
    for (act, taken) in [
        (SmtpAction::Close, 0),
        (SmtpAction::Stall, 0),
        (SmtpAction::reply_line("354 what"), 0),
        (SmtpAction::reply_line("garbage"), 0),
        (SmtpAction::accept_then(SmtpAction::Close), 1),
        (SmtpAction::accept_then(SmtpAction::Stall), 1),
        (SmtpAction::accept_then(SmtpAction::reply_line_and_close("250-half")), 1),
        (SmtpAction::accept_then(SmtpAction::reply_line("250-yes\r\n550 no")), 1),
        (SmtpAction::accept_then(SmtpAction::Drip(b"250 2.0.0 taken, but slowly\r\n".to_vec(), SHORT_TIMEOUT / 4)), 1),
    ] {
        let sink = start_sink().await;
        sink.once_at(SmtpStep::Dot, act.clone());
        let smtp = impatient_client(sink.at.port());
        let reply = send(&smtp).await;
        assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Unknown, AttemptPhase::Final), "{act:?}: {reply:?}");
        assert_consistent(&sink, &reply, taken);
        // The connection cannot be used any more, and the next mail gets its own reply.
        assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
        assert_eq!((sink.connection_count(), sink.mails().len()), (2, taken + 1));
    }
}

#[tokio::test]
async fn a_mail_that_is_taken_after_we_gave_up_is_one_mail() {
    let sink = start_sink().await;
    sink.once_at(SmtpStep::Dot, SmtpAction::Late(SHORT_TIMEOUT * 3));
    let reply = send(&impatient_client(sink.at.port())).await;
    assert_eq!(reply.meaning, ReplyMeaning::Unknown, "{reply:?}");
    assert_consistent(&sink, &reply, 0);
    sink.wait_until(|sink| !sink.mails().is_empty()).await.unwrap();
    assert_eq!(sink.mails().len(), 1);
}

#[tokio::test]
async fn what_a_server_says_into_the_body_is_the_answer() {
    let large = [b"Subject: large\r\n\r\n".to_vec(), b"0123456789\r\n".repeat(700_000)].concat();
    for (act, meaning, code) in [
        (SmtpAction::reply_line_and_close("552 5.3.4 too large"), ReplyMeaning::Refused, Some(552)),
        (SmtpAction::reply_line_and_close("451 4.3.0 later"), ReplyMeaning::Deferred, Some(451)),
        (SmtpAction::reply_line_and_close("421 4.3.2 closing"), ReplyMeaning::Fault, Some(421)),
        (SmtpAction::reply_line_and_close("250 fine"), ReplyMeaning::Deferred, None),
        (SmtpAction::reply_line_and_close("so what"), ReplyMeaning::Deferred, None),
        (SmtpAction::Close, ReplyMeaning::Deferred, None),
    ] {
        let sink = start_sink().await;
        sink.once_at(SmtpStep::Body, act.clone());
        let reply = client_for(&sink).prepare(sample_envelope(&large)).await.err().expect("the body ended unheard");
        assert_eq!((reply.meaning, reply.phase, reply.code), (meaning, AttemptPhase::Data, code), "{act:?}: {reply:?}");
        assert_consistent(&sink, &reply, 0);
    }
}

#[tokio::test]
async fn a_server_that_reads_no_body_is_given_up() {
    let sink = start_sink().await;
    sink.once_at(SmtpStep::Body, SmtpAction::Freeze);
    let large = [b"Subject: large\r\n\r\n".to_vec(), b"0123456789\r\n".repeat(700_000)].concat();
    let reply =
        impatient_client(sink.at.port()).prepare(sample_envelope(&large)).await.err().expect("nobody read the body");
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Deferred, AttemptPhase::Data), "{reply:?}");
    assert_consistent(&sink, &reply, 0);
}

#[tokio::test]
async fn dropping_a_ready_mail_sends_nothing() {
    let sink = start_sink().await;
    let smtp = client_for(&sink);
    let ready = approach(&smtp).await.ok().unwrap();
    assert_eq!(sink.open_connections(), 1);
    drop(ready);
    sink.wait_until(|sink| sink.open_connections() == 0).await.unwrap();
    assert_eq!(sink.mails().len(), 0);
}

#[tokio::test]
async fn too_long_after_the_approach_the_dot_is_not_given() {
    let sink = start_sink().await;
    let mut config = config_for(&sink);
    config.timeouts = RelayTimeouts { before_dot: Duration::from_millis(20), ..config.timeouts };
    let ready = approach(&SmtpTransport::new(config).unwrap()).await.ok().unwrap();
    tokio::time::sleep(Duration::from_millis(40)).await;
    let reply = ready.hand_over().await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Deferred, AttemptPhase::Data), "{reply:?}");
    sink.wait_until(|sink| sink.open_connections() == 0).await.unwrap();
    assert_consistent(&sink, &reply, 0);
}
