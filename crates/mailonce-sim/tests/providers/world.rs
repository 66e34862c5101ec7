//! A mail, a transport for each vendor, and one attempt.

use mailonce_core::{
    content::Content,
    id::{EmailId, TeamId},
    port::transport::{Asked, Mail, Parcel, Reply, Transport},
};
use mailonce_sim::sink::http::{API_KEY, Vendor};
use mailonce_transport::http::Setting;
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

pub(crate) use mailonce_sim::sink::http::client::{NOW, build, raw, template};

pub(crate) const EMAIL: EmailId = EmailId(Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001));
pub(crate) const KEY: Uuid = Uuid::from_u128(0x1111_2222_3333_4444_8555_6666_7777_8888);
pub(crate) const MESSAGE_ID: &str = "<k1@mail.example.com>";
pub(crate) const MIME: &[u8] =
    b"Message-ID: <k1@mail.example.com>\r\nFrom: agent@example.com\r\nSubject: Hello\r\n\r\nHi\r\n";

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
