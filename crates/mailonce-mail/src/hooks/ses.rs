//! Amazon SES: events inside SNS messages, one for each recipient they name.

use mailonce_core::{id::EmailId, time::Time};
use serde_json::Value;

use super::{HookEvent, HookParseError, HookRejection, MAX_EVENTS, ReportedStatus, json, sns::SnsMessage};
use crate::hooks::event::{HookEventDraft, parse_email_id};

/// What must be fetched around a message of SNS. Both addresses are https at `sns.REGION.amazonaws.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnsUrls {
    /// The certificate, as PEM, to be given to [`super::verify`]. It may be kept for a day under its address.
    pub certificate_url: String,
    /// Fetching it confirms a subscription. Only after [`super::verify`] said yes, without following redirects.
    pub subscribe_url: Option<String>,
}

/// Which addresses a message names. Nothing is proven yet, but no other host is ever named here.
pub fn sns_urls(body: &[u8]) -> Result<SnsUrls, HookRejection> {
    let envelope = SnsMessage::parse(body)?;
    let certificate_url = envelope.certificate_url()?.to_owned();
    Ok(SnsUrls { certificate_url, subscribe_url: envelope.subscribe_url()?.map(str::to_owned) })
}

pub(crate) fn parse_events(body: &[u8]) -> Result<Vec<HookEvent>, HookParseError> {
    let shape = |_: HookRejection| HookParseError::Unexpected("an SNS message with Type, MessageId and Message");
    let envelope = SnsMessage::parse(body).map_err(|why| HookParseError::json(&why.to_string()))?;
    if envelope.field("Type").map_err(shape)? != "Notification" {
        return Ok(Vec::new());
    }
    let id = envelope.field("MessageId").map_err(shape)?;
    let message = envelope.field("Message").map_err(shape)?;
    if !message.trim_start().starts_with('{') {
        // "Successfully validated SNS topic …": what SES says, in plain words, when it is told to publish.
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

/// Where the parts of one type of event are.
struct EventPointers {
    /// The event's own object.
    object: &'static str,
    /// Its recipients, as addresses or objects with `emailAddress`.
    recipients: &'static str,
    reason: &'static str,
}

fn event_pointers(event: &str) -> EventPointers {
    let at = |object, recipients, reason| EventPointers { object, recipients, reason };
    match event {
        "Bounce" => at("/bounce", "/bounce/bouncedRecipients", "/bounce/bounceSubType"),
        "Complaint" => at("/complaint", "/complaint/complainedRecipients", "/complaint/complaintFeedbackType"),
        "Delivery" => at("/delivery", "/delivery/recipients", "/delivery/smtpResponse"),
        "DeliveryDelay" => at("/deliveryDelay", "/deliveryDelay/delayedRecipients", "/deliveryDelay/delayType"),
        "Reject" => at("/mail", "/mail/destination", "/reject/reason"),
        "Rendering Failure" => at("/mail", "/mail/destination", "/failure/errorMessage"),
        _ => at("/mail", "/mail/destination", "/message"),
    }
}

fn parse_recipient_events(id: &str, event: &Value) -> Result<Vec<HookEvent>, HookParseError> {
    let word = json::first_str_at(event, &["/eventType", "/notificationType"]).unwrap_or_default();
    let places = event_pointers(word);
    let recipients = event.pointer(places.recipients).and_then(Value::as_array);
    let recipients: Vec<_> = recipients.into_iter().flatten().map(Some).collect();
    if recipients.len() > MAX_EVENTS {
        return Err(HookParseError::TooMany(recipients.len()));
    }
    let recipients = if recipients.is_empty() { vec![None] } else { recipients };
    let facts = SesEvent {
        id,
        event_type: word,
        event,
        pointers: places,
        reported_status: reported_status(word, event),
        email: find_email_id(event),
    };
    Ok(recipients.into_iter().enumerate().map(|(number, recipient)| facts.recipient_event(number, recipient)).collect())
}

/// What all recipients of an event share.
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
        let own = self.event.pointer(self.pointers.object);
        own.and_then(|object| json::time_at(object, "/timestamp"))
            .or_else(|| json::time_at(self.event, "/mail/timestamp"))
    }
}

/// Our id: in a tag (an array of values), else in the header, which SES repeats unless there are too many.
fn find_email_id(event: &Value) -> Option<EmailId> {
    let tagged = parse_email_id(json::str_at(event, "/mail/tags/mailonce/0"));
    tagged.or_else(|| parse_email_id(json::entry_value(event.pointer("/mail/headers"), "x-mailonce-id")))
}

fn reported_status(word: &str, event: &Value) -> ReportedStatus {
    match word {
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

/// SES tells of a mail it did not send, because of its own lists, as a bounce or a complaint.
fn is_suppressed(sub_type: Option<&str>) -> bool {
    sub_type.is_some_and(|word| word == "Suppressed" || word.ends_with("SuppressionList"))
}
