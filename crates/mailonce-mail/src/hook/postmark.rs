//! Postmark: one event in a request (an array is read too), nothing signed.

use serde_json::Value;

use super::{
    Report, Says, Unreadable, json,
    report::{Draft, ours},
};

/// The mail that Postmark's own "send a test" button talks about.
const SAMPLES: [&str; 2] = ["883953f4-6105-42a2-a16a-77a8eac79483", "00000000-0000-0000-0000-000000000000"];

pub(super) fn read(body: &[u8]) -> Result<Vec<Report>, Unreadable> {
    Ok(json::objects(body)?.iter().map(report).collect())
}

fn report(event: &Value) -> Report {
    let record = json::text(event, "/RecordType").unwrap_or_default();
    let bounce = json::text(event, "/Type").unwrap_or_default();
    let remote_id = json::text(event, "/MessageID");
    let id = event.pointer("/ID").and_then(Value::as_u64).filter(|id| *id != 0);
    let times = ["/DeliveredAt", "/BouncedAt", "/ReceivedAt", "/ChangedAt"];
    Draft {
        // A bounce is numbered; the number alone says nothing about the other records, so it goes with the name.
        event_id: id.map(|id| format!("{record}-{id}")),
        mark: None,
        event: record,
        email: ours(json::text(event, "/Metadata/mailonce")),
        remote_id,
        recipient: json::first_text(event, &["/Recipient", "/Email"]),
        says: says(record, bounce),
        reason: json::first_text(event, &["/Details", "/Description", "/SuppressionReason"]),
        at: times.iter().find_map(|place| json::instant(event, place)),
        test: remote_id.is_some_and(|id| SAMPLES.contains(&id)),
    }
    .finish()
}

fn says(record: &str, bounce: &str) -> Says {
    match (record, bounce) {
        ("Delivery", _) => Says::Delivered,
        ("SpamComplaint", _) | ("Bounce", "SpamComplaint") => Says::Complained,
        ("Bounce", "HardBounce" | "BadEmailAddress") => Says::Bounced { permanent: true },
        ("Bounce", "Transient" | "DnsError") => Says::Deferred,
        ("Bounce", "ManuallyDeactivated") => Says::Suppressed,
        ("Bounce", "Unconfirmed" | "SMTPApiError" | "TemplateRenderingFailed") => Says::Refused,
        // Answers of a robot at the other end: the mail was taken, nothing came back.
        ("Bounce", "AutoResponder" | "AddressChange" | "ChallengeVerification" | "OpenRelayTest") => Says::Other,
        ("Bounce", "Subscribe" | "Unsubscribe" | "InboundError") => Says::Other,
        ("Bounce", _) => Says::Bounced { permanent: false },
        // A change of the recipient's subscription says nothing about the mail that led to it.
        _ => Says::Other,
    }
}
