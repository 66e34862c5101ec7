//! Many clients at once: limits of connections and networks, and shutdown.

use crate::fixtures::{ENVELOPE_COMMANDS, LineClient, SmtpFixture, test_settings};
use mailonce::intake::smtp::{NetworkLimits, Reason, SmtpSettings};
use std::time::{Duration, Instant};

#[tokio::test]
async fn one_connection_too_many_gets_421() {
    let world = SmtpFixture::new(SmtpSettings { max_connections: 2, ..test_settings() });
    let (at, _listening) = world.listen().await;
    let mut first = LineClient::connect(at).await;
    assert!(first.read_reply().await.starts_with("220"));
    let mut second = LineClient::connect(at).await;
    assert!(second.read_reply().await.starts_with("220"));
    let mut third = LineClient::connect(at).await;
    assert!(third.read_reply().await.starts_with("421 4.3.2"));
    assert_eq!(third.read_reply().await, "", "closed");
    assert!(first.command("QUIT\r\n").await.starts_with("221"));
    drop(first);
    // The slot is free once the listener notices the disconnect, so the next clients retry.
    let started = Instant::now();
    while !LineClient::connect(at).await.read_reply().await.starts_with("220") {
        assert!(started.elapsed() < Duration::from_secs(20), "a freed connection slot is not reused");
    }
    assert!(world.metrics.refused(Reason::Busy) >= 1);
}

#[tokio::test]
async fn network_limits_apply_to_loopback_only_when_configured() {
    let limits = NetworkLimits { connections: Some(1), mails_per_minute: Some(1), ..NetworkLimits::default() };
    let unlimited = SmtpFixture::new(SmtpSettings { per_ip: limits, ..test_settings() });
    let (at, _listening) = unlimited.listen().await;
    for _ in 0..3 {
        assert!(LineClient::connect(at).await.read_reply().await.starts_with("220"));
    }
    let limited = SmtpFixture::new(SmtpSettings { per_ip_loopback: limits, ..test_settings() });
    let (at, _listening) = limited.listen().await;
    let mut first = LineClient::connect(at).await;
    assert!(first.read_reply().await.starts_with("220"));
    assert!(LineClient::connect(at).await.read_reply().await.starts_with("421 4.7.0"));
    first.send(format!("{ENVELOPE_COMMANDS}x\r\n.\r\nMAIL FROM:<>\r\n")).await;
    assert_eq!(first.read_codes(6).await, ["250", "250", "250", "354", "250", "450"]);
    assert_eq!(limited.metrics.refused(Reason::Rate), 2);
}

#[tokio::test]
async fn a_stop_closes_the_listener_and_drains_sessions() {
    let world = SmtpFixture::new(SmtpSettings {
        timeouts: mailonce::intake::smtp::SmtpTimeouts {
            drain: Duration::from_millis(200),
            ..test_settings().timeouts
        },
        ..test_settings()
    });
    let (at, listening) = world.listen().await;
    let mut idle = LineClient::connect(at).await;
    assert!(idle.read_reply().await.starts_with("220"));
    let mut busy = LineClient::connect(at).await;
    busy.send(ENVELOPE_COMMANDS).await;
    busy.read_codes(5).await;
    world.stop();
    assert!(idle.read_reply().await.starts_with("421 4.3.2"));
    drop(idle);
    listening.await.unwrap();
    assert_eq!(busy.read_reply().await, "", "the drain timeout has passed");
    assert!(tokio::net::TcpStream::connect(at).await.is_err(), "the listener is closed");
    assert_eq!((world.metrics.open(), world.receiver.mails().len()), (0, 0));
}
