//! What the tests share: a sink, a client for it, and a mail.

use mailonce_core::{
    handoff::{
        reply::{ReplyMeaning, TransportReply},
        transport_request::FrozenEnvelope,
    },
    id::{EmailId, TeamId},
    ports::transport::{PreparedHandoff, Transport as _},
};
use mailonce_sim::sink::smtp::{SmtpSink, SmtpSinkConfig};
use mailonce_transport::smtp::{RelayConfig, RelayTimeouts, SmtpTransport, TlsMode};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// Short, for tests that wait for a timeout.
pub(crate) const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

pub(crate) const MIME: &[u8] = b"Subject: hello\r\n\r\nhello\r\n";

pub(crate) async fn start_sink() -> SmtpSink {
    SmtpSink::start(SmtpSinkConfig::default()).await.unwrap()
}

/// A sink without pipelining.
pub(crate) async fn start_sink_without_pipelining() -> SmtpSink {
    SmtpSink::start(SmtpSinkConfig { extensions: vec!["SIZE".to_owned()], ..SmtpSinkConfig::default() }).await.unwrap()
}

pub(crate) fn config_for(sink: &SmtpSink) -> RelayConfig {
    config_at_port(sink.at.port())
}

pub(crate) fn config_at_port(port: u16) -> RelayConfig {
    let mut config = RelayConfig::new("relay", "127.0.0.1", port);
    config.tls = TlsMode::None;
    // Long, since tests should not run into the timeout unless they mean to.
    let long = Duration::from_secs(20);
    config.timeouts =
        RelayTimeouts { greeting: long, command: long, body: long, final_reply: long, ..RelayTimeouts::default() };
    config
}

pub(crate) fn client_for(sink: &SmtpSink) -> SmtpTransport {
    SmtpTransport::new(config_for(sink)).unwrap()
}

/// A client with a short timeout.
pub(crate) fn impatient_client(port: u16) -> SmtpTransport {
    let mut config = config_at_port(port);
    config.timeouts = RelayTimeouts {
        greeting: SHORT_TIMEOUT,
        command: SHORT_TIMEOUT,
        body: SHORT_TIMEOUT,
        final_reply: SHORT_TIMEOUT,
        ..config.timeouts
    };
    SmtpTransport::new(config).unwrap()
}

pub(crate) fn sample_envelope(bytes: &[u8]) -> FrozenEnvelope {
    let id = Uuid::from_u128(1);
    FrozenEnvelope {
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

pub(crate) async fn approach(smtp: &SmtpTransport) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
    smtp.prepare(sample_envelope(MIME)).await
}

/// Prepares and sends.
pub(crate) async fn send(smtp: &SmtpTransport) -> TransportReply {
    send_envelope(smtp, sample_envelope(MIME)).await
}

pub(crate) async fn send_envelope(smtp: &SmtpTransport, parcel: FrozenEnvelope) -> TransportReply {
    match smtp.prepare(parcel).await {
        Ok(ready) => ready.hand_over().await,
        Err(reply) => {
            let certain = !matches!(reply.meaning, ReplyMeaning::Accepted | ReplyMeaning::Unknown);
            assert!(certain, "an approach must be certain: {reply:?}");
            reply
        }
    }
}

/// Fails if the number of accepted mails contradicts the reply.
pub(crate) fn assert_consistent(sink: &SmtpSink, reply: &TransportReply, taken: usize) {
    let mails = sink.mails().len();
    assert_eq!(mails, taken, "the sink has {mails} mails after {reply:?}");
    match reply.meaning {
        ReplyMeaning::Accepted => assert_eq!(mails, 1, "accepted without a mail: {reply:?}"),
        ReplyMeaning::Deferred | ReplyMeaning::Refused | ReplyMeaning::Fault => {
            assert_eq!(mails, 0, "taken, but {reply:?}")
        }
        _ => {}
    }
    assert_eq!(sink.violations(), [""; 0], "after {reply:?}");
}
