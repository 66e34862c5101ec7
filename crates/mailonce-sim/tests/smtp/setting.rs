//! What the tests share: a sink, a client that points at it, and a mail.

use mailonce_core::id::{EmailId, TeamId};
use mailonce_core::port::transport::{Meaning, Parcel, Ready, Reply, Transport as _};
use mailonce_sim::sink::smtp::{Setting, SmtpSink};
use mailonce_transport::smtp::{Patience, Security, Smtp, SmtpConfig};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Short enough to wait for, where a test waits for the end of patience.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

pub(crate) const MIME: &[u8] = b"Subject: hello\r\n\r\nhello\r\n";

pub(crate) async fn sink() -> SmtpSink {
    SmtpSink::start(Setting::default()).await.unwrap()
}

/// A sink that takes one command at a time.
pub(crate) async fn slow_spoken_sink() -> SmtpSink {
    SmtpSink::start(Setting { offers: vec!["SIZE".to_owned()], ..Setting::default() }).await.unwrap()
}

pub(crate) fn config(sink: &SmtpSink) -> SmtpConfig {
    at(sink.at.port())
}

pub(crate) fn at(port: u16) -> SmtpConfig {
    let mut config = SmtpConfig::new("relay", "127.0.0.1", port);
    config.tls = Security::None;
    // Nothing here is meant to wait for the end of patience, unless a test says so.
    let long = Duration::from_secs(20);
    config.patience = Patience { greeting: long, command: long, body: long, answer: long, ..Patience::default() };
    config
}

pub(crate) fn client(sink: &SmtpSink) -> Smtp {
    Smtp::new(config(sink)).unwrap()
}

/// A client that soon gives up.
pub(crate) fn hasty(port: u16) -> Smtp {
    let mut config = at(port);
    config.patience = Patience { greeting: SHORT, command: SHORT, body: SHORT, answer: SHORT, ..config.patience };
    Smtp::new(config).unwrap()
}

pub(crate) fn parcel(bytes: &[u8]) -> Parcel {
    let id = Uuid::from_u128(1);
    Parcel {
        team: TeamId(id),
        email: EmailId(id),
        handoff: 0,
        attempt: 1,
        return_path: "bounce+1@out.test".to_owned(),
        envelope_id: "h0-a1".to_owned(),
        recipients: vec!["ada@in.test".to_owned()],
        key: id,
        bytes: Arc::from(bytes),
    }
}

pub(crate) async fn approach(smtp: &Smtp) -> Result<Box<dyn Ready>, Reply> {
    smtp.approach(parcel(MIME)).await
}

/// Both halves.
pub(crate) async fn send(smtp: &Smtp) -> Reply {
    send_parcel(smtp, parcel(MIME)).await
}

pub(crate) async fn send_parcel(smtp: &Smtp, parcel: Parcel) -> Reply {
    match smtp.approach(parcel).await {
        Ok(ready) => ready.hand_over().await,
        Err(reply) => {
            let certain = !matches!(reply.meaning, Meaning::Accepted | Meaning::Unknown);
            assert!(certain, "an approach must be certain: {reply:?}");
            reply
        }
    }
}

/// Fails when the number of mails that were taken contradicts what the client was told.
pub(crate) fn judge(sink: &SmtpSink, reply: &Reply, taken: usize) {
    let mails = sink.mails().len();
    assert_eq!(mails, taken, "the sink has {mails} mails after {reply:?}");
    match reply.meaning {
        Meaning::Accepted => assert_eq!(mails, 1, "accepted without a mail: {reply:?}"),
        Meaning::Deferred | Meaning::Refused | Meaning::Fault => assert_eq!(mails, 0, "taken, but {reply:?}"),
        _ => {}
    }
    assert_eq!(sink.violations(), [""; 0], "after {reply:?}");
}
