//! A client for each vendor, and a mail with everything that every vendor takes.

use mailonce_core::{
    content::{RawAttachment, RawContent, Scalar},
    port::{Clock, transport::Transport},
    time::Time,
};
use mailonce_transport::http::{
    BadSetting, Secret, Setting, brevo, mailgun, postmark, resend, sendgrid, ses, template, usesend,
};
use std::{sync::Arc, time::Duration};

use super::{ACCESS_KEY_ID, API_KEY, DOMAIN, SECRET_ACCESS_KEY, Vendor};

/// The time of the clock that stands still.
pub const NOW: Time = Time(1_794_715_200_000);

/// A clock that stands still.
#[derive(Debug)]
pub struct Still;

impl Clock for Still {
    fn now(&self) -> Time {
        NOW
    }

    fn even(&self) -> i64 {
        self.now().0
    }
}

/// A mail with everything that every vendor takes.
pub fn raw() -> RawContent {
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
        metadata: vec![("order".into(), Scalar::Integer(7))],
        scheduled_at: None,
    }
}

/// A provider that mailonce does not know, by a template.
pub fn template() -> template::Config {
    template::Config {
        url: String::new(),
        method: "POST".into(),
        headers: vec![("Authorization".into(), Secret::new(format!("Bearer {API_KEY}")))],
        body: r#"{"id": "{{id}}", "from": "{{from}}", "to": "{{recipients}}", "subject": "{{subject}}",
            "reply_to": "{{reply_to}}", "text": "{{text}}", "html": "{{html}}", "headers": "{{headers}}",
            "attachments": "{{attachments}}"}"#
            .into(),
        key_header: Some("Idempotency-Key".into()),
        window: Some(Duration::from_hours(24)),
        accepted: vec![200],
        id_pointer: Some("/data/id".into()),
        repeated: vec![409],
    }
}

/// The client of a vendor.
pub fn build(vendor: Vendor, setting: Setting, key: &str) -> Result<Arc<dyn Transport>, BadSetting> {
    let key = Secret::new(key);
    match vendor {
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
                clock: Arc::new(Still),
            },
        ),
        Vendor::UseSend => usesend::transport(setting, key),
        Vendor::Brevo => brevo::transport(setting, key),
        Vendor::Other => {
            let url = format!("{}/other/send", setting.base_url.clone().unwrap_or_default());
            template::transport(setting, template::Config { url, ..template() })
        }
    }
}
