//! Postmark: one event per request (an array is accepted too), without a signature.

use serde_json::Value;

use super::{HookEvent, HookParseError, ReportedStatus, json};
use crate::hooks::event::{HookEventDraft, parse_email_id};

/// The message ids in the events of Postmark's "send a test" button.
const TEST_MESSAGE_IDS: [&str; 2] = ["883953f4-6105-42a2-a16a-77a8eac79483", "00000000-0000-0000-0000-000000000000"];

pub(crate) fn parse_events(body: &[u8]) -> Result<Vec<HookEvent>, HookParseError> {
    Ok(json::parse_objects(body)?.iter().map(parse_event).collect())
}

fn parse_event(event: &Value) -> HookEvent {
    let record = json::str_at(event, "/RecordType").unwrap_or_default();
    let bounce = json::str_at(event, "/Type").unwrap_or_default();
    let remote_id = json::str_at(event, "/MessageID");
    let id = event.pointer("/ID").and_then(Value::as_u64).filter(|id| *id != 0);
    let times = ["/DeliveredAt", "/BouncedAt", "/ReceivedAt", "/ChangedAt"];
    HookEventDraft {
        // Bounces have a number. It is unique only within its record type, so the type is added.
        event_id: id.map(|id| format!("{record}-{id}")),
        discriminator: None,
        event_type: record,
        email: parse_email_id(json::str_at(event, "/Metadata/mailonce")),
        remote_id,
        recipient: json::first_str_at(event, &["/Recipient", "/Email"]),
        reported_status: reported_status(record, bounce),
        reason: json::first_str_at(event, &["/Details", "/Description", "/SuppressionReason"]),
        occurred_at: times.iter().find_map(|pointer| json::time_at(event, pointer)),
        is_test: remote_id.is_some_and(|id| TEST_MESSAGE_IDS.contains(&id)),
    }
    .finish()
}

fn reported_status(record: &str, bounce: &str) -> ReportedStatus {
    match (record, bounce) {
        ("Delivery", _) => ReportedStatus::Delivered,
        ("SpamComplaint", _) | ("Bounce", "SpamComplaint") => ReportedStatus::Complained,
        ("Bounce", "HardBounce" | "BadEmailAddress") => ReportedStatus::Bounced { permanent: true },
        ("Bounce", "Transient" | "DnsError") => ReportedStatus::Deferred,
        ("Bounce", "ManuallyDeactivated") => ReportedStatus::Suppressed,
        ("Bounce", "Unconfirmed" | "SMTPApiError" | "TemplateRenderingFailed") => ReportedStatus::Refused,
        // Automatic replies of the recipient's side: the mail was accepted and did not bounce.
        ("Bounce", "AutoResponder" | "AddressChange" | "ChallengeVerification" | "OpenRelayTest") => {
            ReportedStatus::Other
        }
        ("Bounce", "Subscribe" | "Unsubscribe" | "InboundError") => ReportedStatus::Other,
        ("Bounce", _) => ReportedStatus::Bounced { permanent: false },
        // A subscription change says nothing about the delivery of the mail.
        _ => ReportedStatus::Other,
    }
}
