//! Webhooks of providers, and the tags that bounces bring back.

use mailonce_core::{port::transport::Reply, time::Time};
use mailonce_mail::{
    hook::{self, HookRequest, Kind, Knock, MAX_EVENTS, Secrets},
    return_path::Tag,
};

use super::{Came, Check, holds, text};

const NOW: Time = Time(1_794_736_800_000);

/// A provider's events. The same bytes are tried as its headers: a stranger writes both.
pub fn read(kind: Kind, bytes: &[u8]) -> Check {
    let names = ["authorization", "svix-id", "svix-timestamp", "svix-signature", "webhook-signature", "x-signature"];
    let headers: Vec<(&str, &[u8])> = names.into_iter().zip(bytes.split(|byte| *byte == b'\n')).collect();
    let query = text(bytes.get(..200).unwrap_or(bytes)).unwrap_or_default();
    let request =
        HookRequest { headers: &headers, query, body: bytes, certificate: Some(bytes), most: hook::MAX_BODY_BYTES };
    if let Some(secrets) = secrets(kind) {
        holds(hook::verify(kind, &secrets, &request, NOW).is_err(), "a stranger was believed")?;
    }
    let Ok(reports) = hook::read(kind, &request) else { return Ok(Came::Short) };
    holds(reports.len() <= MAX_EVENTS, "too many events")?;
    for report in &reports {
        holds(!report.once.is_empty() && report.once.len() <= 256, "an event without a name of its own")?;
        holds(report.reason.chars().count() <= Reply::TEXT_CHARS, "a reason too long")?;
        holds(!report.reason.contains(char::is_control), "a reason that cannot be printed")?;
    }
    holds(hook::read(kind, &request).as_ref() == Ok(&reports), "the same bytes, other events")?;
    Ok(Came::through(reports.iter().any(|report| report.email.is_some() || report.remote_id.is_some())))
}

/// Secrets that no input knows.
fn secrets(kind: Kind) -> Option<Secrets> {
    let knock = || vec![Knock::Bearer("a-token-that-no-input-knows".into())];
    match kind {
        Kind::Postmark | Kind::Brevo => Secrets::knocks(kind, knock()).ok(),
        Kind::Mailgun | Kind::Usesend | Kind::Nylas => Secrets::keys(kind, &["a-key-that-no-input-knows"]).ok(),
        Kind::Resend | Kind::Standard => Secrets::keys(kind, &["whsec_YS1rZXktdGhhdC1uby1pbnB1dC1rbm93cw=="]).ok(),
        Kind::Ses => Secrets::topics(vec!["arn:aws:sns:eu-west-1:123456789012:mail".into()], true).ok(),
        // Its key is a point on a curve; the provider's own tests hold one.
        Kind::Sendgrid => None,
    }
}

/// Return paths and envelope ids.
pub fn return_path(bytes: &[u8]) -> Check {
    let Some(text) = text(bytes) else { return Ok(Came::Short) };
    let mut came = Came::Short;
    for tag in [Tag::from_return_path(text), Tag::from_envelope_id(text)].into_iter().flatten() {
        holds(Tag::from_return_path(&tag.return_path("x.example")) == Some(tag), "a tag that is not read again")?;
        holds(Tag::from_envelope_id(&tag.envelope_id()) == Some(tag), "an envelope id that is not read again")?;
        came = Came::Through;
    }
    Ok(came)
}
