//! A next hop with its transport: an SMTP relay, or one of the providers.

use mailonce_core::ports::transport::Transport;
use mailonce_sim::sink::{
    http::{ACCESS_KEY_ID, API_KEY, DOMAIN, HttpSink, SECRET_ACCESS_KEY, Vendor},
    smtp::{self, SmtpSink},
};
use mailonce_transport::{
    http::{HttpTransportConfig, Secret, brevo, mailgun, postmark, resend, sendgrid, ses, template, usesend},
    smtp::{RelayConfig, RelayTimeouts, SmtpTransport, TlsMode},
};
use std::{sync::Arc, time::Duration};

use crate::engine_fixture::ManualClock;

/// The kind of next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HopKind {
    Relay,
    Provider(Vendor),
}

/// What can be done about an unknown outcome there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownRecovery {
    Key,
    LookUp,
    Nothing,
}

impl HopKind {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Relay => "smtp".into(),
            Self::Provider(Vendor::Other) => "http".into(),
            Self::Provider(vendor) => format!("{vendor:?}").to_lowercase(),
        }
    }

    pub(crate) fn recovery(self) -> UnknownRecovery {
        match self {
            Self::Provider(Vendor::Resend | Vendor::Brevo | Vendor::Other) => UnknownRecovery::Key,
            Self::Provider(Vendor::Postmark | Vendor::Mailgun | Vendor::SendGrid | Vendor::UseSend) => {
                UnknownRecovery::LookUp
            }
            Self::Provider(Vendor::Ses) | Self::Relay => UnknownRecovery::Nothing,
        }
    }

    /// Starts one, with a transport of this name.
    pub(crate) async fn open(self, name: &str, clock: &Arc<ManualClock>) -> TestHop {
        match self {
            Self::Relay => {
                let sink = SmtpSink::start(smtp::SmtpSinkConfig::default()).await.unwrap();
                let transport = Arc::new(SmtpTransport::new(relay_config(name, sink.at.port())).unwrap());
                TestHop { sink: HopSink::Smtp(sink), transport }
            }
            Self::Provider(vendor) => {
                let sink = HttpSink::start().await.unwrap();
                let transport = provider_transport(vendor, provider_setting(name, sink.url()), clock);
                TestHop { sink: HopSink::Http(sink), transport }
            }
        }
    }
}

/// The timeout for a silent next hop.
const REPLY_TIMEOUT: Duration = Duration::from_millis(1_200);

pub(crate) fn relay_config(name: &str, port: u16) -> RelayConfig {
    let mut config = RelayConfig::new(name, "127.0.0.1", port);
    config.tls = TlsMode::None;
    config.timeouts = RelayTimeouts { final_reply: REPLY_TIMEOUT, ..RelayTimeouts::default() };
    config
}

pub(crate) fn provider_setting(name: &str, url: &str) -> HttpTransportConfig {
    HttpTransportConfig { base_url: Some(url.to_owned()), timeout: REPLY_TIMEOUT, ..HttpTransportConfig::new(name) }
}

pub(crate) fn provider_transport(
    vendor: Vendor,
    setting: HttpTransportConfig,
    clock: &Arc<ManualClock>,
) -> Arc<dyn Transport> {
    let key = Secret::new(API_KEY);
    let made = match vendor {
        Vendor::Resend => resend::transport(setting, key),
        Vendor::Postmark => {
            postmark::transport(setting, postmark::PostmarkConfig { server_token: key, message_stream: None })
        }
        Vendor::Mailgun => mailgun::transport(setting, mailgun::MailgunConfig { api_key: key, domain: DOMAIN.into() }),
        Vendor::SendGrid => {
            sendgrid::transport(setting, sendgrid::SendGridConfig { api_key: key, can_read_activity: true })
        }
        Vendor::Ses => ses::transport(
            setting,
            ses::SesConfig {
                access_key_id: ACCESS_KEY_ID.into(),
                secret_access_key: Secret::new(SECRET_ACCESS_KEY),
                session_token: None,
                region: "eu-west-1".into(),
                configuration_set: None,
                clock: Arc::clone(clock) as Arc<dyn mailonce_core::ports::Clock>,
            },
        ),
        Vendor::UseSend => usesend::transport(setting, key),
        Vendor::Brevo => brevo::transport(setting, key),
        Vendor::Other => {
            let url = format!("{}/other/send", setting.base_url.clone().unwrap_or_default());
            template::transport(setting, template::TemplateConfig { url, ..custom_template() })
        }
    };
    made.unwrap()
}

/// A provider without a transport of its own. It answers a repeat with 409.
fn custom_template() -> template::TemplateConfig {
    template::TemplateConfig {
        url: String::new(),
        method: "POST".into(),
        headers: vec![("Authorization".into(), Secret::new(format!("Bearer {API_KEY}")))],
        body: r#"{"id": "{{id}}", "from": "{{from}}", "to": "{{recipients}}", "subject": "{{subject}}",
            "text": "{{text}}"}"#
            .into(),
        key_header: Some("Idempotency-Key".into()),
        key_window: Some(Duration::from_hours(24)),
        accepted_statuses: vec![200],
        id_pointer: Some("/data/id".into()),
        duplicate_statuses: vec![409],
    }
}

pub(crate) enum HopSink {
    Smtp(SmtpSink),
    Http(HttpSink),
}

/// A next hop that counts accepted mails.
pub(crate) struct TestHop {
    pub(crate) sink: HopSink,
    pub(crate) transport: Arc<dyn Transport>,
}

impl TestHop {
    /// The accepted mails: values that are equal only for equal bytes and keys.
    pub(crate) fn accepted_mail(&self) -> Vec<String> {
        match &self.sink {
            HopSink::Smtp(sink) => {
                sink.mails().iter().map(|mail| String::from_utf8_lossy(&mail.bytes).into_owned()).collect()
            }
            HopSink::Http(sink) => {
                let mark =
                    |taken: &mailonce_sim::sink::http::AcceptedMail| format!("{:?} {}", taken.key, taken.body_hash);
                sink.accepted_mail().iter().map(mark).collect()
            }
        }
    }

    pub(crate) fn http(&self) -> &HttpSink {
        match &self.sink {
            HopSink::Http(sink) => sink,
            HopSink::Smtp(_) => panic!("this next hop speaks SMTP"),
        }
    }
}
