//! Amazon SES: events inside SNS messages. Each named recipient yields one event.

use mailonce_core::{id::EmailId, time::Time};
use serde_json::Value;

use super::{HookEvent, HookParseError, HookRejection, MAX_EVENTS, ReportedStatus, json, sns::SnsMessage};
use crate::hooks::event::{HookEventDraft, parse_email_id};

/// The URLs of an SNS message. Both are https URLs at `sns.REGION.amazonaws.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnsUrls {
    /// The URL of the PEM certificate for [`super::verify`]. It may be cached by URL for a day.
    pub certificate_url: String,
    /// Fetching it confirms a subscription. Fetch it only after [`super::verify`] succeeded, and follow no redirects.
    pub subscribe_url: Option<String>,
}

/// The URLs of a message. It is not verified yet, but other hosts than SNS are already rejected.
pub fn sns_urls(body: &[u8]) -> Result<SnsUrls, HookRejection> {
    let envelope = SnsMessage::parse(body)?;
    let certificate_url = envelope.certificate_url()?.to_owned();
    Ok(SnsUrls { certificate_url, subscribe_url: envelope.subscribe_url()?.map(str::to_owned) })
}

pub(crate) fn parse_events(body: &[u8]) -> Result<Vec<HookEvent>, HookParseError> {
    let unexpected = |_: HookRejection| HookParseError::Unexpected("an SNS message with Type, MessageId and Message");
    let envelope = SnsMessage::parse(body).map_err(|why| HookParseError::json(&why.to_string()))?;
    if envelope.field("Type").map_err(unexpected)? != "Notification" {
        return Ok(Vec::new());
    }
    let id = envelope.field("MessageId").map_err(unexpected)?;
    let message = envelope.field("Message").map_err(unexpected)?;
    if !message.trim_start().starts_with('{') {
        // SES sends plain text such as "Successfully validated SNS topic …" when publishing is configured.
        return Ok(vec![plain_text_event(id, message)]);
    }
    parse_recipient_events(id, &json::parse(message.as_bytes())?)
}

fn plain_text_event(id: &str, message: &str) -> HookEvent {
    HookEventDraft {
        event_id: Some(id.to_owned()),
        discriminator: None,
        event_type: "message",
        email: None,
        remote_id: None,
        recipient: None,
        reported_status: ReportedStatus::Other,
        reason: Some(message),
        occurred_at: None,
        is_test: true,
    }
    .finish()
}

/// The JSON pointers to the parts of one event type.
struct EventPointers {
    /// The event's own object.
    object: &'static str,
    /// Its recipients, as addresses or objects with `emailAddress`.
    recipients: &'static str,
    reason: &'static str,
}

fn event_pointers(event: &str) -> EventPointers {
    let pointers = |object, recipients, reason| EventPointers { object, recipients, reason };
    match event {
        "Bounce" => pointers("/bounce", "/bounce/bouncedRecipients", "/bounce/bounceSubType"),
        "Complaint" => pointers("/complaint", "/complaint/complainedRecipients", "/complaint/complaintFeedbackType"),
        "Delivery" => pointers("/delivery", "/delivery/recipients", "/delivery/smtpResponse"),
        "DeliveryDelay" => pointers("/deliveryDelay", "/deliveryDelay/delayedRecipients", "/deliveryDelay/delayType"),
        "Reject" => pointers("/mail", "/mail/destination", "/reject/reason"),
        "Rendering Failure" => pointers("/mail", "/mail/destination", "/failure/errorMessage"),
        _ => pointers("/mail", "/mail/destination", "/message"),
    }
}

fn parse_recipient_events(id: &str, event: &Value) -> Result<Vec<HookEvent>, HookParseError> {
    let event_type = json::first_str_at(event, &["/eventType", "/notificationType"]).unwrap_or_default();
    let pointers = event_pointers(event_type);
    let recipients = event.pointer(pointers.recipients).and_then(Value::as_array);
    let recipients: Vec<_> = recipients.into_iter().flatten().map(Some).collect();
    if recipients.len() > MAX_EVENTS {
        return Err(HookParseError::TooMany(recipients.len()));
    }
    let recipients = if recipients.is_empty() { vec![None] } else { recipients };
    let shared = SesEvent {
        id,
        event_type,
        event,
        pointers,
        reported_status: reported_status(event_type, event),
        email: find_email_id(event),
    };
    Ok(recipients
        .into_iter()
        .enumerate()
        .map(|(number, recipient)| shared.recipient_event(number, recipient))
        .collect())
}

/// The parts that all recipients of an event share.
struct SesEvent<'a> {
    id: &'a str,
    event_type: &'a str,
    event: &'a Value,
    pointers: EventPointers,
    reported_status: ReportedStatus,
    email: Option<EmailId>,
}

impl SesEvent<'_> {
    fn recipient_event(&self, number: usize, recipient: Option<&Value>) -> HookEvent {
        let address = recipient.and_then(|one| one.as_str().or_else(|| json::str_at(one, "/emailAddress")));
        let diagnosis = recipient.and_then(|one| json::str_at(one, "/diagnosticCode"));
        HookEventDraft {
            event_id: Some(format!("{}/{number}", self.id)),
            discriminator: None,
            event_type: self.event_type,
            email: self.email,
            remote_id: json::str_at(self.event, "/mail/messageId"),
            recipient: address,
            reported_status: self.reported_status,
            reason: diagnosis.or_else(|| json::str_at(self.event, self.pointers.reason)),
            occurred_at: self.occurred_at(),
            is_test: address.is_some_and(|address| address.ends_with("@simulator.amazonses.com")),
        }
        .finish()
    }

    fn occurred_at(&self) -> Option<Time> {
        let event_object = self.event.pointer(self.pointers.object);
        event_object
            .and_then(|object| json::time_at(object, "/timestamp"))
            .or_else(|| json::time_at(self.event, "/mail/timestamp"))
    }
}

/// Our email id: from the tag (an array of values), else from the header. SES omits headers if there are too many.
fn find_email_id(event: &Value) -> Option<EmailId> {
    let from_tag = parse_email_id(json::str_at(event, "/mail/tags/mailonce/0"));
    from_tag.or_else(|| parse_email_id(json::entry_value(event.pointer("/mail/headers"), "x-mailonce-id")))
}

fn reported_status(event_type: &str, event: &Value) -> ReportedStatus {
    match event_type {
        "Send" => ReportedStatus::Accepted,
        "Delivery" => ReportedStatus::Delivered,
        "DeliveryDelay" => ReportedStatus::Deferred,
        "Bounce" => bounce_status(event),
        "Complaint" if is_suppressed(json::str_at(event, "/complaint/complaintSubType")) => ReportedStatus::Suppressed,
        "Complaint" => ReportedStatus::Complained,
        "Reject" | "Rendering Failure" => ReportedStatus::Refused,
        _ => ReportedStatus::Other,
    }
}

fn bounce_status(event: &Value) -> ReportedStatus {
    if is_suppressed(json::str_at(event, "/bounce/bounceSubType")) {
        return ReportedStatus::Suppressed;
    }
    ReportedStatus::Bounced { permanent: json::str_at(event, "/bounce/bounceType") == Some("Permanent") }
}

/// SES reports a mail that it suppressed as a bounce or a complaint with such a subtype.
fn is_suppressed(sub_type: Option<&str>) -> bool {
    sub_type.is_some_and(|sub_type| sub_type == "Suppressed" || sub_type.ends_with("SuppressionList"))
}
