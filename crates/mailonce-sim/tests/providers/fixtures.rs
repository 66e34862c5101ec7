//! A mail, a transport for each vendor, and one attempt.

use mailonce_core::{
    handoff::{
        reply::TransportReply,
        transport_request::{FrozenEnvelope, LookUpRequest, OutboundMail},
    },
    id::{EmailId, TeamId},
    outbound::content::EmailContent,
    ports::transport::Transport,
};
use mailonce_sim::sink::http::{API_KEY, Vendor};
use mailonce_transport::http::HttpTransportConfig;
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

pub(crate) use mailonce_sim::sink::http::vendor_clients::{
    FIXED_NOW, build_transport, custom_provider_template, sample_content,
};

pub(crate) const EMAIL: EmailId = EmailId(Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001));
pub(crate) const KEY: Uuid = Uuid::from_u128(0x1111_2222_3333_4444_8555_6666_7777_8888);
pub(crate) const MESSAGE_ID: &str = "<k1@mail.example.com>";
pub(crate) const MIME: &[u8] =
    b"Message-ID: <k1@mail.example.com>\r\nFrom: agent@example.com\r\nSubject: Hello\r\n\r\nHi\r\n";

pub(crate) fn sample_email_content() -> EmailContent {
    EmailContent::validate(sample_content()).unwrap()
}

pub(crate) fn sample_mail(content: &EmailContent) -> OutboundMail<'_> {
    OutboundMail { id: EMAIL, content, message_id: MESSAGE_ID, created_at: FIXED_NOW, key: KEY, mime: Some(MIME) }
}

/// Longer than a sink without faults needs.
pub(crate) fn provider_setting(url: &str) -> HttpTransportConfig {
    HttpTransportConfig {
        base_url: Some(url.to_owned()),
        timeout: Duration::from_secs(20),
        ..HttpTransportConfig::new("out")
    }
}

pub(crate) fn vendor_transport(vendor: Vendor, url: &str) -> Arc<dyn Transport> {
    build_transport(vendor, provider_setting(url), API_KEY).unwrap()
}

pub(crate) fn sample_envelope(transport: &dyn Transport, attempt: u32) -> FrozenEnvelope {
    let content = sample_email_content();
    FrozenEnvelope {
        team: TeamId(Uuid::nil()),
        email: EMAIL,
        handoff: 0,
        attempt,
        return_path: "bounce@example.com".into(),
        envelope_id: "e1".into(),
        recipients: content.recipients().into_iter().map(str::to_owned).collect(),
        key: KEY,
        bytes: transport.freeze(&sample_mail(&content)).unwrap().into(),
    }
}

/// One attempt: prepares and sends.
pub(crate) async fn run_attempt(transport: &dyn Transport, number: u32) -> TransportReply {
    match transport.prepare(sample_envelope(transport, number)).await {
        Ok(ready) => ready.hand_over().await,
        Err(reply) => reply,
    }
}

pub(crate) fn lookup_query() -> LookUpRequest {
    LookUpRequest {
        email: EMAIL,
        handoff: 0,
        recipients: sample_email_content().recipients().into_iter().map(str::to_owned).collect(),
        message_id: MESSAGE_ID.into(),
        key: KEY,
        in_doubt_since: FIXED_NOW,
        now: FIXED_NOW.plus(120_000),
    }
}
