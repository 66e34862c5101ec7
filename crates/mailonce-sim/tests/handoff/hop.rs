//! A next hop with the transport to it: an SMTP relay, or one of the providers.

use mailonce_core::port::transport::Transport;
use mailonce_sim::sink::{
    http::{ACCESS_KEY_ID, API_KEY, DOMAIN, SECRET_ACCESS_KEY, Sink, Vendor},
    smtp::{self, SmtpSink},
};
use mailonce_transport::{
    http::{Secret, Setting, brevo, mailgun, postmark, resend, sendgrid, ses, template, usesend},
    smtp::{Patience, Security, Smtp, SmtpConfig},
};
use std::{sync::Arc, time::Duration};

use crate::world::Hands;

/// Which next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Relay,
    Provider(Vendor),
}

/// What can be done about an unknown outcome there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cure {
    Key,
    LookUp,
    Nothing,
}

impl Next {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Relay => "smtp".into(),
            Self::Provider(Vendor::Other) => "http".into(),
            Self::Provider(vendor) => format!("{vendor:?}").to_lowercase(),
        }
    }

    pub(crate) fn cure(self) -> Cure {
        match self {
            Self::Provider(Vendor::Resend | Vendor::Brevo | Vendor::Other) => Cure::Key,
            Self::Provider(Vendor::Postmark | Vendor::Mailgun | Vendor::SendGrid | Vendor::UseSend) => Cure::LookUp,
            Self::Provider(Vendor::Ses) | Self::Relay => Cure::Nothing,
        }
    }

    /// Opens one, with a transport of this name to it.
    pub(crate) async fn open(self, name: &str, clock: &Arc<Hands>) -> Hop {
        match self {
            Self::Relay => {
                let sink = SmtpSink::start(smtp::Setting::default()).await.unwrap();
                let transport = Arc::new(Smtp::new(relay(name, sink.at.port())).unwrap());
                Hop { sink: Oracle::Smtp(sink), transport }
            }
            Self::Provider(vendor) => {
                let sink = Sink::open().await.unwrap();
                let transport = provider(vendor, setting(name, sink.url()), clock);
                Hop { sink: Oracle::Http(sink), transport }
            }
        }
    }
}

/// How long a silent next hop is waited for.
const SILENCE: Duration = Duration::from_millis(1_200);

pub(crate) fn relay(name: &str, port: u16) -> SmtpConfig {
    let mut config = SmtpConfig::new(name, "127.0.0.1", port);
    config.tls = Security::None;
    config.patience = Patience { answer: SILENCE, ..Patience::default() };
    config
}

pub(crate) fn setting(name: &str, url: &str) -> Setting {
    Setting { base_url: Some(url.to_owned()), timeout: SILENCE, ..Setting::new(name) }
}

pub(crate) fn provider(vendor: Vendor, setting: Setting, clock: &Arc<Hands>) -> Arc<dyn Transport> {
    let key = Secret::new(API_KEY);
    let made = match vendor {
        Vendor::Resend => resend::transport(setting, key),
        Vendor::Postmark => postmark::transport(setting, postmark::Config { server_token: key, message_stream: None }),
        Vendor::Mailgun => mailgun::transport(setting, mailgun::Config { api_key: key, domain: DOMAIN.into() }),
        Vendor::SendGrid => sendgrid::transport(setting, sendgrid::Config { api_key: key, lookup: true }),
        Vendor::Ses => ses::transport(
            setting,
            ses::Config {
                access_key_id: ACCESS_KEY_ID.into(),
                secret_access_key: Secret::new(SECRET_ACCESS_KEY),
                session_token: None,
                region: "eu-west-1".into(),
                configuration_set: None,
                clock: Arc::clone(clock) as Arc<dyn mailonce_core::port::Clock>,
            },
        ),
        Vendor::UseSend => usesend::transport(setting, key),
        Vendor::Brevo => brevo::transport(setting, key),
        Vendor::Other => {
            let url = format!("{}/other/send", setting.base_url.clone().unwrap_or_default());
            template::transport(setting, template::Config { url, ..custom() })
        }
    };
    made.unwrap()
}

/// A provider nobody wrote a transport for. A repeat it answers with 409.
fn custom() -> template::Config {
    template::Config {
        url: String::new(),
        method: "POST".into(),
        headers: vec![("Authorization".into(), Secret::new(format!("Bearer {API_KEY}")))],
        body: r#"{"id": "{{id}}", "from": "{{from}}", "to": "{{recipients}}", "subject": "{{subject}}",
            "text": "{{text}}"}"#
            .into(),
        key_header: Some("Idempotency-Key".into()),
        window: Some(Duration::from_hours(24)),
        accepted: vec![200],
        id_pointer: Some("/data/id".into()),
        repeated: vec![409],
    }
}

pub(crate) enum Oracle {
    Smtp(SmtpSink),
    Http(Sink),
}

/// A next hop that counts what it took.
pub(crate) struct Hop {
    pub(crate) sink: Oracle,
    pub(crate) transport: Arc<dyn Transport>,
}

impl Hop {
    /// What it took, each mail as something that is equal only for equal bytes under an equal key.
    pub(crate) fn taken(&self) -> Vec<String> {
        match &self.sink {
            Oracle::Smtp(sink) => {
                sink.mails().iter().map(|mail| String::from_utf8_lossy(&mail.bytes).into_owned()).collect()
            }
            Oracle::Http(sink) => {
                let mark = |taken: &mailonce_sim::sink::http::Taken| format!("{:?} {}", taken.key, taken.body_hash);
                sink.taken().iter().map(mark).collect()
            }
        }
    }

    pub(crate) fn http(&self) -> &Sink {
        match &self.sink {
            Oracle::Http(sink) => sink,
            Oracle::Smtp(_) => panic!("this next hop speaks SMTP"),
        }
    }
}
