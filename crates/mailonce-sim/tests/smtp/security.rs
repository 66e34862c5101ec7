//! TLS, STARTTLS and login: no downgrade, and no leaked secret.

use crate::fixtures::{MIME, config_for, sample_envelope, send, send_envelope};
use mailonce_core::handoff::reply::{AttemptPhase, ReplyMeaning};
use mailonce_sim::sink::smtp::{SinkTls, SmtpAction, SmtpSink, SmtpSinkConfig, SmtpStep};
use mailonce_transport::smtp::{RelayConfig, SmtpTransport, TlsMode};

const PASSWORD: &str = "correct horse";

async fn secure_sink(protection: SinkTls, mechanisms: &[&str]) -> SmtpSink {
    let login = (!mechanisms.is_empty()).then(|| ("ada".to_owned(), PASSWORD.to_owned()));
    let mechanisms = mechanisms.iter().map(ToString::to_string).collect();
    SmtpSink::start(SmtpSinkConfig { protection, login, mechanisms, ..SmtpSinkConfig::default() }).await.unwrap()
}

fn secure_config(sink: &SmtpSink, tls: TlsMode) -> RelayConfig {
    RelayConfig { tls, extra_roots: vec![sink.root_certificate()], ..config_for(sink) }
}

fn with_login(config: RelayConfig, password: &str) -> RelayConfig {
    RelayConfig { username: Some("ada".to_owned()), password: Some(password.to_owned()), ..config }
}

#[tokio::test]
async fn mail_goes_by_tls_and_starttls_with_either_log_in() {
    for (protection, tls) in [(SinkTls::Implicit, TlsMode::Tls), (SinkTls::Starttls, TlsMode::Starttls)] {
        for (mechanisms, verb) in [(&["PLAIN", "LOGIN"][..], "AUTH PLAIN"), (&["LOGIN"], "AUTH LOGIN"), (&[], "MAIL")] {
            let sink = secure_sink(protection, mechanisms).await;
            let mut config = secure_config(&sink, tls);
            if !mechanisms.is_empty() {
                config = with_login(config, PASSWORD);
            }
            let smtp = SmtpTransport::new(config).unwrap();
            for _ in 0..2 {
                let reply = send(&smtp).await;
                assert_eq!(reply.meaning, ReplyMeaning::Accepted, "{protection:?} {mechanisms:?}: {reply:?}");
            }
            let mails = sink.mails();
            assert_eq!((mails.len(), sink.connection_count()), (2, 1));
            assert!(mails.iter().all(|mail| mail.is_tls && mail.login.is_some() != mechanisms.is_empty()));
            assert!(mails.iter().all(|mail| mail.bytes == MIME));
            assert!(sink.commands().iter().any(|(_, line)| line.starts_with(verb)));
            assert_eq!(sink.violations(), [""; 0]);
        }
    }
}

#[tokio::test]
async fn a_large_mail_goes_by_tls() {
    let sink = secure_sink(SinkTls::Implicit, &[]).await;
    let large = [b"Subject: large\r\n\r\n".to_vec(), b".123456789\r\n".repeat(200_000)].concat();
    let reply =
        send_envelope(&SmtpTransport::new(secure_config(&sink, TlsMode::Tls)).unwrap(), sample_envelope(&large)).await;
    assert_eq!(reply.meaning, ReplyMeaning::Accepted, "{reply:?}");
    assert!(sink.mails()[0].bytes == large);
}

#[tokio::test]
async fn an_untrusted_certificate_is_a_fault() {
    for (protection, tls) in [(SinkTls::Implicit, TlsMode::Tls), (SinkTls::Starttls, TlsMode::Starttls)] {
        let sink = secure_sink(protection, &[]).await;
        let reply = send(&SmtpTransport::new(RelayConfig { tls, ..config_for(&sink) }).unwrap()).await;
        assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Fault, AttemptPhase::Tls), "{reply:?}");
        assert!(sink.mails().is_empty());
    }
}

#[tokio::test]
async fn starttls_never_falls_back() {
    let refused = [
        SmtpAction::reply_line("454 4.7.0 not now"),
        SmtpAction::reply_line("502 5.5.1 what"),
        SmtpAction::Close,
        SmtpAction::reply_line("220 go\r\n250 injected"),
        SmtpAction::Reply(b"220 go\r\nEHLO".to_vec()),
        SmtpAction::reply_line("220 no handshake follows"),
    ];
    for act in refused {
        let sink = secure_sink(SinkTls::Starttls, &["PLAIN"]).await;
        sink.always_at(SmtpStep::Starttls, act.clone());
        let mut config = with_login(secure_config(&sink, TlsMode::Starttls), PASSWORD);
        config.timeouts.tls = crate::fixtures::SHORT_TIMEOUT;
        let reply = send(&SmtpTransport::new(config).unwrap()).await;
        assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Fault, AttemptPhase::Tls), "{act:?}: {reply:?}");
        let commands = sink.commands();
        assert!(
            commands.iter().all(|(_, line)| !line.starts_with("MAIL") && !line.starts_with("AUTH")),
            "{commands:?}"
        );
    }
    let without = secure_sink(SinkTls::Plaintext, &[]).await;
    let reply = send(&SmtpTransport::new(secure_config(&without, TlsMode::Starttls)).unwrap()).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Fault, AttemptPhase::Tls), "{reply:?}");
    assert!(without.mails().is_empty());
}

#[tokio::test]
async fn replies_injected_after_starttls_are_a_fault() {
    // The sink completes the handshake anyway, so that only the client can refuse.
    let sink = secure_sink(SinkTls::Starttls, &[]).await;
    sink.always_at(SmtpStep::Starttls, SmtpAction::extra_line("250-sink.test\r\n250 PIPELINING"));
    let reply = send(&SmtpTransport::new(secure_config(&sink, TlsMode::Starttls)).unwrap()).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Fault, AttemptPhase::Tls), "{reply:?}");
    assert!(reply.text.contains("STARTTLS"), "{reply:?}");
}

#[tokio::test]
async fn a_wrong_log_in_is_a_fault_and_the_secret_stays_one() {
    for mechanism in ["PLAIN", "LOGIN"] {
        let sink = secure_sink(SinkTls::Implicit, &[mechanism]).await;
        let smtp = SmtpTransport::new(with_login(secure_config(&sink, TlsMode::Tls), "battery staple")).unwrap();
        let reply = send(&smtp).await;
        assert_eq!(
            (reply.meaning, reply.phase, reply.code),
            (ReplyMeaning::Fault, AttemptPhase::Login, Some(535)),
            "{reply:?}"
        );
        // A server that repeats the credentials, in plain text and in base64.
        let commands = "535 battery staple, AGFkYQBiYXR0ZXJ5IHN0YXBsZQ==, YmF0dGVyeSBzdGFwbGU= are wrong";
        sink.always_at(SmtpStep::Login, SmtpAction::reply_line(commands));
        let reply = send(&smtp).await;
        assert_eq!(reply.text, "***, ***, *** are wrong");
        assert!(sink.mails().is_empty());
    }
}

#[tokio::test]
async fn a_log_in_that_is_put_off_or_not_offered_is_a_fault() {
    let off = secure_sink(SinkTls::Implicit, &["PLAIN"]).await;
    off.always_at(SmtpStep::Login, SmtpAction::reply_line("454 4.7.0 later"));
    let odd = secure_sink(SinkTls::Implicit, &["CRAM-MD5"]).await;
    for (sink, code) in [(off, Some(454)), (odd, None)] {
        let reply = send(&SmtpTransport::new(with_login(secure_config(&sink, TlsMode::Tls), PASSWORD)).unwrap()).await;
        assert_eq!(
            (reply.meaning, reply.phase, reply.code),
            (ReplyMeaning::Fault, AttemptPhase::Login, code),
            "{reply:?}"
        );
    }
}

#[tokio::test]
async fn a_log_in_in_the_clear_is_made_to_this_machine_only() {
    let here = secure_sink(SinkTls::Plaintext, &["PLAIN"]).await;
    let reply = send(&SmtpTransport::new(with_login(config_for(&here), PASSWORD)).unwrap()).await;
    assert_eq!(reply.meaning, ReplyMeaning::Accepted, "{reply:?}");
    // A documentation address: it is refused before a connection is made.
    let elsewhere = RelayConfig { host: "192.0.2.1".to_owned(), ..with_login(config_for(&here), PASSWORD) };
    let reply = send(&SmtpTransport::new(elsewhere).unwrap()).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Fault, AttemptPhase::Login), "{reply:?}");
    assert!(reply.text.contains("TLS"), "{reply:?}");
}

#[tokio::test]
async fn a_server_that_wants_a_log_in_and_gets_none_is_a_fault() {
    let sink = secure_sink(SinkTls::Implicit, &["PLAIN"]).await;
    let reply = send(&SmtpTransport::new(secure_config(&sink, TlsMode::Tls)).unwrap()).await;
    assert_eq!(
        (reply.meaning, reply.phase, reply.code),
        (ReplyMeaning::Fault, AttemptPhase::Mail, Some(530)),
        "{reply:?}"
    );
}

#[tokio::test]
async fn a_cut_after_the_dot_is_unknown_under_tls_too() {
    for (act, taken) in [(SmtpAction::Close, 0), (SmtpAction::accept_then(SmtpAction::Close), 1)] {
        let sink = secure_sink(SinkTls::Implicit, &[]).await;
        sink.always_at(SmtpStep::Dot, act);
        let reply = send(&SmtpTransport::new(secure_config(&sink, TlsMode::Tls)).unwrap()).await;
        assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Unknown, AttemptPhase::Final), "{reply:?}");
        assert_eq!(sink.mails().len(), taken);
    }
}
