//! A mail, a transport for each vendor, and one attempt.

use mailonce_core::{
    content::{Content, RawAttachment, RawContent, Scalar},
    id::{EmailId, TeamId},
    port::{
        Clock,
        transport::{Asked, Mail, Parcel, Reply, Transport},
    },
    time::Time,
};
use mailonce_sim::sink::http::{ACCESS_KEY_ID, API_KEY, DOMAIN, SECRET_ACCESS_KEY, Vendor};
use mailonce_transport::http::{
    BadSetting, Secret, Setting, brevo, mailgun, postmark, resend, sendgrid, ses, template, usesend,
};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

pub(crate) const EMAIL: EmailId = EmailId(Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001));
pub(crate) const KEY: Uuid = Uuid::from_u128(0x1111_2222_3333_4444_8555_6666_7777_8888);
pub(crate) const MESSAGE_ID: &str = "<k1@mail.example.com>";
pub(crate) const NOW: Time = Time(1_794_715_200_000);
pub(crate) const MIME: &[u8] =
    b"Message-ID: <k1@mail.example.com>\r\nFrom: agent@example.com\r\nSubject: Hello\r\n\r\nHi\r\n";

/// A clock that stands still.
pub(crate) struct Still;

impl Clock for Still {
    fn now(&self) -> Time {
        NOW
    }

    fn even(&self) -> i64 {
        self.now().0
    }
}

/// A mail with everything that every vendor takes.
pub(crate) fn raw() -> RawContent {
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

pub(crate) fn content() -> Content {
    Content::check(raw()).unwrap()
}

pub(crate) fn mail(content: &Content) -> Mail<'_> {
    Mail { id: EMAIL, content, message_id: MESSAGE_ID, created_at: NOW, key: KEY, mime: Some(MIME) }
}

/// More patient than any honest sink needs.
pub(crate) fn setting(url: &str) -> Setting {
    Setting { base_url: Some(url.to_owned()), timeout: Duration::from_secs(20), ..Setting::new("out") }
}

pub(crate) fn template() -> template::Config {
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

pub(crate) fn build(vendor: Vendor, setting: Setting, key: &str) -> Result<Arc<dyn Transport>, BadSetting> {
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

pub(crate) fn transport(vendor: Vendor, url: &str) -> Arc<dyn Transport> {
    build(vendor, setting(url), API_KEY).unwrap()
}

pub(crate) fn parcel(transport: &dyn Transport, attempt: u32) -> Parcel {
    let content = content();
    Parcel {
        team: TeamId(Uuid::nil()),
        email: EMAIL,
        handoff: 0,
        attempt,
        return_path: "bounce@example.com".into(),
        envelope_id: "e1".into(),
        recipients: content.recipients().into_iter().map(str::to_owned).collect(),
        key: KEY,
        bytes: transport.freeze(&mail(&content)).unwrap().into(),
    }
}

/// One attempt, both halves.
pub(crate) async fn attempt(transport: &dyn Transport, number: u32) -> Reply {
    match transport.approach(parcel(transport, number)).await {
        Ok(ready) => ready.hand_over().await,
        Err(reply) => reply,
    }
}

pub(crate) fn asked() -> Asked {
    Asked {
        email: EMAIL,
        handoff: 0,
        recipients: content().recipients().into_iter().map(str::to_owned).collect(),
        message_id: MESSAGE_ID.into(),
        key: KEY,
        since: NOW,
        now: NOW.plus(120_000),
    }
}
