//! Connections between mails: used again, replaced when they died, bounded in number and in rest.

use crate::setting::{MIME, approach, client, config, parcel, send, send_parcel, sink, slow_spoken_sink};
use mailonce_core::port::transport::{Meaning, Phase};
use mailonce_sim::sink::smtp::{Act, Step};
use mailonce_transport::smtp::{Patience, Smtp};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn a_connection_is_used_again_after_a_reset() {
    for sink in [sink().await, slow_spoken_sink().await] {
        let smtp = client(&sink);
        for _ in 0..3 {
            assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
        }
        assert_eq!((sink.connections(), sink.mails().len()), (1, 3));
        let resets = sink.commands().iter().filter(|(_, line)| line == "RSET").count();
        assert_eq!(resets, 2);
        assert_eq!(sink.violations(), [""; 0]);
    }
}

#[tokio::test]
async fn a_connection_that_died_while_it_rested_is_replaced_silently() {
    let sink = sink().await;
    let smtp = client(&sink);
    assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
    sink.hang_up().await;
    assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
    assert_eq!((sink.connections(), sink.mails().len()), (2, 2));
}

#[tokio::test]
async fn a_connection_that_spoke_while_it_rested_is_not_trusted() {
    for said in ["421 4.4.2 idle too long\r\n", "250 extra\r\n", "354 go\r\n", "x"] {
        let sink = sink().await;
        let smtp = client(&sink);
        assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
        sink.shout(said.as_bytes()).await;
        sink.on_line(Step::Rcpt, "bob", Act::say("550 5.1.1 nobody"));
        let mut to_bob = parcel(MIME);
        to_bob.recipients = vec!["bob@in.test".to_owned()];
        assert_eq!(send_parcel(&smtp, to_bob).await.meaning, Meaning::Refused, "{said:?} answered for a mail");
        assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
        assert_eq!((sink.connections(), sink.mails().len()), (2, 2));
    }
}

#[tokio::test]
async fn a_connection_that_spoke_while_it_rested_does_not_hold_up_the_next_mail() {
    let sink = sink().await;
    let smtp = client(&sink);
    assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
    sink.shout(b"250 extra\r\n").await;
    // That bytes have come to the client's socket is nothing that could be awaited.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
    assert_eq!((sink.connections(), sink.mails().len()), (2, 2));
}

#[tokio::test]
async fn a_connection_that_fails_at_once_is_replaced_and_one_that_fails_later_is_not() {
    for (step, act, meaning, connections) in [
        (Step::Reset, Act::Cut, Meaning::Accepted, 2),
        (Step::Reset, Act::say_and_close("421 4.3.2 closing"), Meaning::Accepted, 2),
        (Step::Reset, Act::say("500 what"), Meaning::Accepted, 2),
        (Step::Mail, Act::say_and_close("421 4.3.2 enough mails"), Meaning::Accepted, 2),
        (Step::Mail, Act::say("451 4.3.0 later"), Meaning::Deferred, 1),
        (Step::Rcpt, Act::say_and_close("421 4.3.2 closing"), Meaning::Fault, 1),
    ] {
        for sink in [sink().await, slow_spoken_sink().await] {
            let smtp = client(&sink);
            assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
            sink.once(step, act.clone());
            let reply = send(&smtp).await;
            assert_eq!(reply.meaning, meaning, "{act:?} at {step:?}: {reply:?}");
            assert_eq!(sink.connections(), connections, "{act:?} at {step:?}");
            let accepted = usize::from(meaning == Meaning::Accepted);
            assert_eq!(sink.mails().len(), 1 + accepted);
        }
    }
}

#[tokio::test]
async fn connections_are_bounded() {
    let sink = sink().await;
    let mut config = config(&sink);
    config.connections = 3;
    let smtp = Arc::new(Smtp::new(config).unwrap());
    let sends: Vec<_> = (0..40)
        .map(|_| {
            tokio::spawn({
                let smtp = smtp.clone();
                async move { send(&smtp).await }
            })
        })
        .collect();
    for sent in sends {
        assert_eq!(sent.await.unwrap().meaning, Meaning::Accepted);
    }
    assert_eq!(sink.mails().len(), 40);
    assert!(sink.most_open() <= 3, "{} were open", sink.most_open());
}

#[tokio::test]
async fn without_a_free_connection_a_mail_waits_and_then_comes_again() {
    let sink = sink().await;
    let mut config = config(&sink);
    config.connections = 1;
    config.patience = Patience { turn: Duration::from_millis(50), ..config.patience };
    let smtp = Smtp::new(config).unwrap();
    let ready = approach(&smtp).await.ok().unwrap();
    let reply = send(&smtp).await;
    assert_eq!((reply.meaning, reply.phase), (Meaning::Deferred, Phase::Connect), "{reply:?}");
    assert_eq!(ready.hand_over().await.meaning, Meaning::Accepted);
    assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
    assert_eq!((sink.connections(), sink.mails().len()), (1, 2));
}

#[tokio::test]
async fn a_connection_rests_no_longer_than_it_may() {
    let sink = sink().await;
    let mut config = config(&sink);
    config.patience = Patience { idle: Duration::from_millis(100), ..config.patience };
    let smtp = Smtp::new(config).unwrap();
    for connections in 1..=2 {
        assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
        sink.until(|sink| sink.open() == 0).await.unwrap();
        assert_eq!(sink.connections(), connections);
        assert_eq!(sink.commands().last().map(|(_, line)| line.as_str()), Some("QUIT"));
    }
}

#[tokio::test]
async fn a_transport_that_is_gone_leaves_no_connection() {
    let sink = sink().await;
    let smtp = client(&sink);
    assert_eq!(send(&smtp).await.meaning, Meaning::Accepted);
    assert_eq!(sink.open(), 1);
    drop(smtp);
    sink.until(|sink| sink.open() == 0).await.unwrap();
}
