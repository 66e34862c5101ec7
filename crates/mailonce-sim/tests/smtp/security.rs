//! TLS, STARTTLS and log-in: what is protected stays protected, and a secret is told to nobody else.

use crate::setting::{MIME, config, parcel, send, send_parcel};
use mailonce_core::port::transport::{Meaning, Phase};
use mailonce_sim::sink::smtp::{Act, Protection, Setting, SmtpSink, Step};
use mailonce_transport::smtp::{Security, Smtp, SmtpConfig};

const PASSWORD: &str = "correct horse";

async fn sink(protection: Protection, mechanisms: &[&str]) -> SmtpSink {
    let login = (!mechanisms.is_empty()).then(|| ("ada".to_owned(), PASSWORD.to_owned()));
    let mechanisms = mechanisms.iter().map(ToString::to_string).collect();
    SmtpSink::start(Setting { protection, login, mechanisms, ..Setting::default() }).await.unwrap()
}

fn secured(sink: &SmtpSink, tls: Security) -> SmtpConfig {
    SmtpConfig { tls, extra_roots: vec![sink.root()], ..config(sink) }
}

fn with_login(config: SmtpConfig, password: &str) -> SmtpConfig {
    SmtpConfig { username: Some("ada".to_owned()), password: Some(password.to_owned()), ..config }
}

#[tokio::test]
async fn mail_goes_by_tls_and_starttls_with_either_log_in() {
    for (protection, tls) in [(Protection::Tls, Security::Tls), (Protection::Starttls, Security::Starttls)] {
        for (mechanisms, verb) in [(&["PLAIN", "LOGIN"][..], "AUTH PLAIN"), (&["LOGIN"], "AUTH LOGIN"), (&[], "MAIL")] {
            let sink = sink(protection, mechanisms).await;
            let mut config = secured(&sink, tls);
            if !mechanisms.is_empty() {
                config = with_login(config, PASSWORD);
            }
            let smtp = Smtp::new(config).unwrap();
            for _ in 0..2 {
                let reply = send(&smtp).await;
                assert_eq!(reply.meaning, Meaning::Accepted, "{protection:?} {mechanisms:?}: {reply:?}");
            }
            let mails = sink.mails();
            assert_eq!((mails.len(), sink.connections()), (2, 1));
            assert!(mails.iter().all(|mail| mail.secure && mail.login.is_some() != mechanisms.is_empty()));
            assert!(mails.iter().all(|mail| mail.bytes == MIME));
            assert!(sink.commands().iter().any(|(_, line)| line.starts_with(verb)));
            assert_eq!(sink.violations(), [""; 0]);
        }
    }
}

#[tokio::test]
async fn a_large_mail_goes_by_tls() {
    let sink = sink(Protection::Tls, &[]).await;
    let large = [b"Subject: large\r\n\r\n".to_vec(), b".123456789\r\n".repeat(200_000)].concat();
    let reply = send_parcel(&Smtp::new(secured(&sink, Security::Tls)).unwrap(), parcel(&large)).await;
    assert_eq!(reply.meaning, Meaning::Accepted, "{reply:?}");
    assert!(sink.mails()[0].bytes == large);
}

#[tokio::test]
async fn a_certificate_nobody_vouches_for_is_a_fault() {
    for (protection, tls) in [(Protection::Tls, Security::Tls), (Protection::Starttls, Security::Starttls)] {
        let sink = sink(protection, &[]).await;
        let reply = send(&Smtp::new(SmtpConfig { tls, ..config(&sink) }).unwrap()).await;
        assert_eq!((reply.meaning, reply.phase), (Meaning::Fault, Phase::Tls), "{reply:?}");
        assert!(sink.mails().is_empty());
    }
}

#[tokio::test]
async fn starttls_never_falls_back() {
    let refused = [
        Act::say("454 4.7.0 not now"),
        Act::say("502 5.5.1 what"),
        Act::Cut,
        Act::say("220 go\r\n250 injected"),
        Act::Say(b"220 go\r\nEHLO".to_vec()),
        Act::say("220 no handshake follows"),
    ];
    for act in refused {
        let sink = sink(Protection::Starttls, &["PLAIN"]).await;
        sink.on(Step::Starttls, act.clone());
        let mut config = with_login(secured(&sink, Security::Starttls), PASSWORD);
        config.patience.tls = crate::setting::SHORT;
        let reply = send(&Smtp::new(config).unwrap()).await;
        assert_eq!((reply.meaning, reply.phase), (Meaning::Fault, Phase::Tls), "{act:?}: {reply:?}");
        let said = sink.commands();
        assert!(said.iter().all(|(_, line)| !line.starts_with("MAIL") && !line.starts_with("AUTH")), "{said:?}");
    }
    let without = sink(Protection::None, &[]).await;
    let reply = send(&Smtp::new(secured(&without, Security::Starttls)).unwrap()).await;
    assert_eq!((reply.meaning, reply.phase), (Meaning::Fault, Phase::Tls), "{reply:?}");
    assert!(without.mails().is_empty());
}

#[tokio::test]
async fn what_is_injected_behind_starttls_does_not_count() {
    // The sink does the handshake all the same, so that only the client can refuse.
    let sink = sink(Protection::Starttls, &[]).await;
    sink.on(Step::Starttls, Act::extra("250-sink.test\r\n250 PIPELINING"));
    let reply = send(&Smtp::new(secured(&sink, Security::Starttls)).unwrap()).await;
    assert_eq!((reply.meaning, reply.phase), (Meaning::Fault, Phase::Tls), "{reply:?}");
    assert!(reply.text.contains("STARTTLS"), "{reply:?}");
}

#[tokio::test]
async fn a_wrong_log_in_is_a_fault_and_the_secret_stays_one() {
    for mechanism in ["PLAIN", "LOGIN"] {
        let sink = sink(Protection::Tls, &[mechanism]).await;
        let smtp = Smtp::new(with_login(secured(&sink, Security::Tls), "battery staple")).unwrap();
        let reply = send(&smtp).await;
        assert_eq!((reply.meaning, reply.phase, reply.code), (Meaning::Fault, Phase::Login, Some(535)), "{reply:?}");
        // A server that repeats what it was told, in the clear and in base64.
        let said = "535 battery staple, AGFkYQBiYXR0ZXJ5IHN0YXBsZQ==, YmF0dGVyeSBzdGFwbGU= are wrong";
        sink.on(Step::Login, Act::say(said));
        let reply = send(&smtp).await;
        assert_eq!(reply.text, "***, ***, *** are wrong");
        assert!(sink.mails().is_empty());
    }
}

#[tokio::test]
async fn a_log_in_that_is_put_off_or_not_offered_is_a_fault() {
    let off = sink(Protection::Tls, &["PLAIN"]).await;
    off.on(Step::Login, Act::say("454 4.7.0 later"));
    let odd = sink(Protection::Tls, &["CRAM-MD5"]).await;
    for (sink, code) in [(off, Some(454)), (odd, None)] {
        let reply = send(&Smtp::new(with_login(secured(&sink, Security::Tls), PASSWORD)).unwrap()).await;
        assert_eq!((reply.meaning, reply.phase, reply.code), (Meaning::Fault, Phase::Login, code), "{reply:?}");
    }
}

#[tokio::test]
async fn a_log_in_in_the_clear_is_made_to_this_machine_only() {
    let here = sink(Protection::None, &["PLAIN"]).await;
    let reply = send(&Smtp::new(with_login(config(&here), PASSWORD)).unwrap()).await;
    assert_eq!(reply.meaning, Meaning::Accepted, "{reply:?}");
    // An address for documents: it is refused before it is dialled.
    let elsewhere = SmtpConfig { host: "192.0.2.1".to_owned(), ..with_login(config(&here), PASSWORD) };
    let reply = send(&Smtp::new(elsewhere).unwrap()).await;
    assert_eq!((reply.meaning, reply.phase), (Meaning::Fault, Phase::Login), "{reply:?}");
    assert!(reply.text.contains("TLS"), "{reply:?}");
}

#[tokio::test]
async fn a_server_that_wants_a_log_in_and_gets_none_is_a_fault() {
    let sink = sink(Protection::Tls, &["PLAIN"]).await;
    let reply = send(&Smtp::new(secured(&sink, Security::Tls)).unwrap()).await;
    assert_eq!((reply.meaning, reply.phase, reply.code), (Meaning::Fault, Phase::Mail, Some(530)), "{reply:?}");
}

#[tokio::test]
async fn a_cut_after_the_dot_is_unknown_under_tls_too() {
    for (act, taken) in [(Act::Cut, 0), (Act::taken(Act::Cut), 1)] {
        let sink = sink(Protection::Tls, &[]).await;
        sink.on(Step::Dot, act);
        let reply = send(&Smtp::new(secured(&sink, Security::Tls)).unwrap()).await;
        assert_eq!((reply.meaning, reply.phase), (Meaning::Unknown, Phase::Final), "{reply:?}");
        assert_eq!(sink.mails().len(), taken);
    }
}
