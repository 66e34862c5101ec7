//! Amazon SES: events inside SNS messages, one for each recipient they name.

use mailonce_core::{id::EmailId, time::Time};
use serde_json::Value;

use super::{
    MAX_EVENTS, Reject, Report, Says, Unreadable, json,
    report::{Draft, ours},
    sns::Envelope,
};

/// What must be fetched around a message of SNS. Both addresses are https at `sns.REGION.amazonaws.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The certificate, as PEM, to be given to [`super::verify`]. It may be kept for a day under its address.
    pub certificate_url: String,
    /// Fetching it confirms a subscription. Only after [`super::verify`] said yes, without following redirects.
    pub subscribe_url: Option<String>,
}

/// Which addresses a message names. Nothing is proven yet, but no other host is ever named here.
pub fn needs(body: &[u8]) -> Result<Needs, Reject> {
    let envelope = Envelope::parse(body)?;
    let certificate_url = envelope.certificate_url()?.to_owned();
    Ok(Needs { certificate_url, subscribe_url: envelope.subscribe_url()?.map(str::to_owned) })
}

pub(super) fn read(body: &[u8]) -> Result<Vec<Report>, Unreadable> {
    let shape = |_: Reject| Unreadable::Shape("an SNS message with Type, MessageId and Message");
    let envelope = Envelope::parse(body).map_err(|why| Unreadable::json(&why.to_string()))?;
    if envelope.field("Type").map_err(shape)? != "Notification" {
        return Ok(Vec::new());
    }
    let id = envelope.field("MessageId").map_err(shape)?;
    let message = envelope.field("Message").map_err(shape)?;
    if !message.trim_start().starts_with('{') {
        // "Successfully validated SNS topic …": what SES says, in plain words, when it is told to publish.
        return Ok(vec![plain(id, message)]);
    }
    events(id, &json::parse(message.as_bytes())?)
}

fn plain(id: &str, message: &str) -> Report {
    Draft {
        event_id: Some(id.to_owned()),
        mark: None,
        event: "message",
        email: None,
        remote_id: None,
        recipient: None,
        says: Says::Other,
        reason: Some(message),
        at: None,
        test: true,
    }
    .finish()
}

/// Where the parts of one type of event are.
struct Places {
    /// The event's own object.
    object: &'static str,
    /// Its recipients, as addresses or objects with `emailAddress`.
    recipients: &'static str,
    reason: &'static str,
}

fn places(event: &str) -> Places {
    let at = |object, recipients, reason| Places { object, recipients, reason };
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

fn events(id: &str, event: &Value) -> Result<Vec<Report>, Unreadable> {
    let word = json::first_text(event, &["/eventType", "/notificationType"]).unwrap_or_default();
    let places = places(word);
    let recipients = event.pointer(places.recipients).and_then(Value::as_array);
    let recipients: Vec<_> = recipients.into_iter().flatten().map(Some).collect();
    if recipients.len() > MAX_EVENTS {
        return Err(Unreadable::TooMany(recipients.len()));
    }
    let recipients = if recipients.is_empty() { vec![None] } else { recipients };
    let facts = Facts { id, word, event, places, says: says(word, event), email: email(event) };
    Ok(recipients.into_iter().enumerate().map(|(number, recipient)| facts.report(number, recipient)).collect())
}

/// What all recipients of an event share.
struct Facts<'a> {
    id: &'a str,
    word: &'a str,
    event: &'a Value,
    places: Places,
    says: Says,
    email: Option<EmailId>,
}

impl Facts<'_> {
    fn report(&self, number: usize, recipient: Option<&Value>) -> Report {
        let address = recipient.and_then(|one| one.as_str().or_else(|| json::text(one, "/emailAddress")));
        let diagnosis = recipient.and_then(|one| json::text(one, "/diagnosticCode"));
        Draft {
            event_id: Some(format!("{}/{number}", self.id)),
            mark: None,
            event: self.word,
            email: self.email,
            remote_id: json::text(self.event, "/mail/messageId"),
            recipient: address,
            says: self.says,
            reason: diagnosis.or_else(|| json::text(self.event, self.places.reason)),
            at: self.at(),
            test: address.is_some_and(|address| address.ends_with("@simulator.amazonses.com")),
        }
        .finish()
    }

    fn at(&self) -> Option<Time> {
        let own = self.event.pointer(self.places.object);
        own.and_then(|object| json::instant(object, "/timestamp"))
            .or_else(|| json::instant(self.event, "/mail/timestamp"))
    }
}

/// Our id: in a tag (an array of values), else in the header, which SES repeats unless there are too many.
fn email(event: &Value) -> Option<EmailId> {
    let tagged = ours(json::text(event, "/mail/tags/mailonce/0"));
    tagged.or_else(|| ours(json::entry(event.pointer("/mail/headers"), "x-mailonce-id")))
}

fn says(word: &str, event: &Value) -> Says {
    match word {
        "Send" => Says::Accepted,
        "Delivery" => Says::Delivered,
        "DeliveryDelay" => Says::Deferred,
        "Bounce" => bounced(event),
        "Complaint" if on_a_list(json::text(event, "/complaint/complaintSubType")) => Says::Suppressed,
        "Complaint" => Says::Complained,
        "Reject" | "Rendering Failure" => Says::Refused,
        _ => Says::Other,
    }
}

fn bounced(event: &Value) -> Says {
    if on_a_list(json::text(event, "/bounce/bounceSubType")) {
        return Says::Suppressed;
    }
    Says::Bounced { permanent: json::text(event, "/bounce/bounceType") == Some("Permanent") }
}

/// SES tells of a mail it did not send, because of its own lists, as a bounce or a complaint.
fn on_a_list(sub_type: Option<&str>) -> bool {
    sub_type.is_some_and(|word| word == "Suppressed" || word.ends_with("SuppressionList"))
}
