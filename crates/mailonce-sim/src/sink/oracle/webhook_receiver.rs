//! An application that receives webhooks: it verifies each signature and logs a line before it replies.

use crate::sink::oracle::sink_log::now_us;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;

/// The signing secret of every endpoint in tests.
pub const ENDPOINT_SECRET: &str = "whsec_bWFpbG9uY2UtY3Jhc2gtcmlnLWVuZHBvaW50";
/// The log file, next to that of the mails.
pub const WEBHOOK_LOG_FILE: &str = "notices.jsonl";

/// A received webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookLogLine {
    /// When, in microseconds since 1970.
    pub at_us: u64,
    /// The team of the endpoint.
    pub team: String,
    /// The id of the notice.
    pub id: String,
    /// The id of the event.
    pub event: String,
    /// The id of the event's subject.
    pub about: String,
    /// The number of the event.
    pub seq: u64,
    /// Whether the signature is valid.
    pub signed: bool,
}

impl WebhookLogLine {
    /// Parses a request. `header` returns the value of a header.
    pub fn from_request(team: &str, body: &[u8], header: impl Fn(&str) -> String) -> Self {
        let event: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (id, at, signatures) = (header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"));
        Self {
            at_us: now_us(),
            team: team.to_owned(),
            signed: signatures.split(' ').any(|one| is_signature_valid(one, &id, &at, body)),
            id,
            event: text(&event["id"]),
            about: text(&event["about"]["id"]),
            seq: event["seq"].as_u64().unwrap_or_default(),
        }
    }
}

/// Whether a signature of Standard Webhooks is valid.
fn is_signature_valid(signature: &str, id: &str, at: &str, body: &[u8]) -> bool {
    let key = STANDARD.decode(ENDPOINT_SECRET.trim_start_matches("whsec_")).unwrap_or_default();
    let given = signature.strip_prefix("v1,").and_then(|given| STANDARD.decode(given).ok());
    let (Ok(mut mac), Some(given)) = (Hmac::<Sha256>::new_from_slice(&key), given) else { return false };
    mac.update(format!("{id}.{at}.").as_bytes());
    mac.update(body);
    mac.verify_slice(&given).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_of_other_bytes_does_not_hold() {
        let body = br#"{"id":"e1","seq":7,"about":{"id":"m1"}}"#;
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&STANDARD.decode(ENDPOINT_SECRET.trim_start_matches("whsec_")).unwrap())
                .unwrap();
        mac.update(b"n1.5.");
        mac.update(body);
        let signature = format!("v1,AAAA v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        let header = |name: &str| match name {
            "webhook-id" => "n1".to_owned(),
            "webhook-timestamp" => "5".to_owned(),
            _ => signature.clone(),
        };
        let line = WebhookLogLine::from_request("a", body, header);
        let wanted = ("n1", "e1", "m1", 7, true);
        assert_eq!((&*line.id, &*line.event, &*line.about, line.seq, line.signed), wanted);
        assert!(!WebhookLogLine::from_request("a", b"{}", header).signed);
    }
}
