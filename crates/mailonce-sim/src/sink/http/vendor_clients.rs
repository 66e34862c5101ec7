//! A client for each vendor, and a mail with every feature that all vendors support.

use mailonce_core::{
    outbound::content::{MetadataValue, RawAttachment, RawContent},
    ports::{Clock, transport::Transport},
    time::Time,
};
use mailonce_transport::http::{
    HttpTransportConfig, Secret, TransportConfigError, brevo, mailgun, postmark, resend, sendgrid, ses, template,
    usesend,
};
use std::{sync::Arc, time::Duration};

use super::{ACCESS_KEY_ID, API_KEY, DOMAIN, SECRET_ACCESS_KEY, Vendor};

/// The time of the fixed clock.
pub const FIXED_NOW: Time = Time(1_794_715_200_000);

/// A fixed clock.
#[derive(Debug)]
pub struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Time {
        FIXED_NOW
    }

    fn boot_clock_ms(&self) -> i64 {
        self.now().0
    }
}

/// A mail with every feature that all vendors support.
pub fn sample_content() -> RawContent {
    RawContent {
        from: "Agent <agent@example.com>".into(),
        to: vec!["\"Lovelace, Ada\" <ada@example.org>".into(), "bob@example.org".into()],
        cc: vec!["carol@example.org".into()],
        bcc: vec!["dan@example.org".into()],
        reply_to: vec!["answers@example.com".into()],
        subject: "Hello".into(),
        text: Some("Hi".into()),
        html: Some("<p>Hi</p>".into()),
        headers: vec![("X-Run".into(), "42".into())],
        attachments: vec![RawAttachment {
            filename: Some("a.txt".into()),
            content: "YWJj".into(),
            content_type: Some("text/plain".into()),
            content_id: None,
        }],
        tags: vec![("run".into(), Some("42".into()))],
        metadata: vec![("order".into(), MetadataValue::Integer(7))],
        scheduled_at: None,
        template: None,
    }
}

/// A provider that mailonce does not know, configured by a template.
pub fn custom_provider_template() -> template::TemplateConfig {
    template::TemplateConfig {
        url: String::new(),
        method: "POST".into(),
        headers: vec![("Authorization".into(), Secret::new(format!("Bearer {API_KEY}")))],
        body: r#"{"id": "{{id}}", "from": "{{from}}", "to": "{{recipients}}", "subject": "{{subject}}",
            "reply_to": "{{reply_to}}", "text": "{{text}}", "html": "{{html}}", "headers": "{{headers}}",
            "attachments": "{{attachments}}"}"#
            .into(),
        key_header: Some("Idempotency-Key".into()),
        key_window: Some(Duration::from_hours(24)),
        accepted_statuses: vec![200],
        id_pointer: Some("/data/id".into()),
        duplicate_statuses: vec![409],
    }
}

/// The client of a vendor.
pub fn build_transport(
    vendor: Vendor,
    setting: HttpTransportConfig,
    key: &str,
) -> Result<Arc<dyn Transport>, TransportConfigError> {
    let key = Secret::new(key);
    match vendor {
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
                clock: Arc::new(FixedClock),
            },
        ),
        Vendor::UseSend => usesend::transport(setting, key),
        Vendor::Brevo => brevo::transport(setting, key),
        Vendor::Other => {
            let url = format!("{}/other/send", setting.base_url.clone().unwrap_or_default());
            template::transport(setting, template::TemplateConfig { url, ..custom_provider_template() })
        }
    }
}
