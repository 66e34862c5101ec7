//! Connections between mails: reused, replaced when they died, limited in number and idle time.

use crate::fixtures::{
    MIME, approach, client_for, config_for, sample_envelope, send, send_envelope, start_sink,
    start_sink_without_pipelining,
};
use mailonce_core::handoff::reply::{AttemptPhase, ReplyMeaning};
use mailonce_sim::sink::smtp::{SmtpAction, SmtpStep};
use mailonce_transport::smtp::{RelayTimeouts, SmtpTransport};
use std::{sync::Arc, time::Duration};

#[tokio::test]
async fn a_connection_is_used_again_after_a_reset() {
    for sink in [start_sink().await, start_sink_without_pipelining().await] {
        let smtp = client_for(&sink);
        for _ in 0..3 {
            assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
        }
        assert_eq!((sink.connection_count(), sink.mails().len()), (1, 3));
        let resets = sink.commands().iter().filter(|(_, line)| line == "RSET").count();
        assert_eq!(resets, 2);
        assert_eq!(sink.violations(), [""; 0]);
    }
}

#[tokio::test]
async fn a_connection_that_died_while_idle_is_replaced_silently() {
    let sink = start_sink().await;
    let smtp = client_for(&sink);
    assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
    sink.close_all().await;
    assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
    assert_eq!((sink.connection_count(), sink.mails().len()), (2, 2));
}

#[tokio::test]
async fn a_connection_that_sent_bytes_while_idle_is_not_reused() {
    for unsolicited in ["421 4.4.2 idle too long\r\n", "250 extra\r\n", "354 go\r\n", "x"] {
        let sink = start_sink().await;
        let smtp = client_for(&sink);
        assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
        sink.send_to_all(unsolicited.as_bytes()).await;
        sink.always_at_line(SmtpStep::Rcpt, "bob", SmtpAction::reply_line("550 5.1.1 nobody"));
        let mut to_bob = sample_envelope(MIME);
        to_bob.recipients = vec!["bob@in.test".to_owned()];
        assert_eq!(
            send_envelope(&smtp, to_bob).await.meaning,
            ReplyMeaning::Refused,
            "{unsolicited:?} answered for a mail"
        );
        assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
        assert_eq!((sink.connection_count(), sink.mails().len()), (2, 2));
    }
}

#[tokio::test]
async fn a_connection_that_sent_bytes_while_idle_does_not_delay_the_next_mail() {
    let sink = start_sink().await;
    let smtp = client_for(&sink);
    assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
    sink.send_to_all(b"250 extra\r\n").await;
    // The arrival of bytes at the client's socket cannot be awaited.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
    assert_eq!((sink.connection_count(), sink.mails().len()), (2, 2));
}

#[tokio::test]
async fn a_connection_that_fails_at_once_is_replaced_and_one_that_fails_later_is_not() {
    for (step, act, meaning, connections) in [
        (SmtpStep::Reset, SmtpAction::Close, ReplyMeaning::Accepted, 2),
        (SmtpStep::Reset, SmtpAction::reply_line_and_close("421 4.3.2 closing"), ReplyMeaning::Accepted, 2),
        (SmtpStep::Reset, SmtpAction::reply_line("500 what"), ReplyMeaning::Accepted, 2),
        (SmtpStep::Mail, SmtpAction::reply_line_and_close("421 4.3.2 enough mails"), ReplyMeaning::Accepted, 2),
        (SmtpStep::Mail, SmtpAction::reply_line("451 4.3.0 later"), ReplyMeaning::Deferred, 1),
        (SmtpStep::Rcpt, SmtpAction::reply_line_and_close("421 4.3.2 closing"), ReplyMeaning::Fault, 1),
    ] {
        for sink in [start_sink().await, start_sink_without_pipelining().await] {
            let smtp = client_for(&sink);
            assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
            sink.once_at(step, act.clone());
            let reply = send(&smtp).await;
            assert_eq!(reply.meaning, meaning, "{act:?} at {step:?}: {reply:?}");
            assert_eq!(sink.connection_count(), connections, "{act:?} at {step:?}");
            let accepted = usize::from(meaning == ReplyMeaning::Accepted);
            assert_eq!(sink.mails().len(), 1 + accepted);
        }
    }
}

#[tokio::test]
async fn connections_are_bounded() {
    let sink = start_sink().await;
    let mut config = config_for(&sink);
    config.max_connections = 3;
    let smtp = Arc::new(SmtpTransport::new(config).unwrap());
    let sends: Vec<_> = (0..40)
        .map(|_| {
            tokio::spawn({
                let smtp = smtp.clone();
                async move { send(&smtp).await }
            })
        })
        .collect();
    for sent in sends {
        assert_eq!(sent.await.unwrap().meaning, ReplyMeaning::Accepted);
    }
    assert_eq!(sink.mails().len(), 40);
    assert!(sink.max_open_connections() <= 3, "{} were open", sink.max_open_connections());
}

#[tokio::test]
async fn without_a_free_connection_a_mail_waits_and_then_comes_again() {
    let sink = start_sink().await;
    let mut config = config_for(&sink);
    config.max_connections = 1;
    config.timeouts = RelayTimeouts { pool: Duration::from_millis(50), ..config.timeouts };
    let smtp = SmtpTransport::new(config).unwrap();
    let ready = approach(&smtp).await.ok().unwrap();
    let reply = send(&smtp).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Deferred, AttemptPhase::Connect), "{reply:?}");
    assert_eq!(ready.hand_over().await.meaning, ReplyMeaning::Accepted);
    assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
    assert_eq!((sink.connection_count(), sink.mails().len()), (1, 2));
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_limit() {
    let sink = start_sink().await;
    let mut config = config_for(&sink);
    config.timeouts = RelayTimeouts { idle: Duration::from_millis(100), ..config.timeouts };
    let smtp = SmtpTransport::new(config).unwrap();
    for connections in 1..=2 {
        assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
        sink.wait_until(|sink| sink.open_connections() == 0).await.unwrap();
        assert_eq!(sink.connection_count(), connections);
        assert_eq!(sink.commands().last().map(|(_, line)| line.as_str()), Some("QUIT"));
    }
}

#[tokio::test]
async fn a_transport_that_is_gone_leaves_no_connection() {
    let sink = start_sink().await;
    let smtp = client_for(&sink);
    assert_eq!(send(&smtp).await.meaning, ReplyMeaning::Accepted);
    assert_eq!(sink.open_connections(), 1);
    drop(smtp);
    sink.wait_until(|sink| sink.open_connections() == 0).await.unwrap();
}
