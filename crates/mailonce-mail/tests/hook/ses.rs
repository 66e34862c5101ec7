//! SES: the events inside SNS messages, one per recipient.

use mailonce_core::time::Time;
use mailonce_mail::hooks::{HookEvent, HookParseError, Kind, MAX_EVENTS, ReportedStatus};
use serde_json::{Value, json};

use crate::{
    rig::{HARD_BOUNCE, HookTestRequest, OUR_EMAIL_ID, SOFT_BOUNCE, our_email_id, with_field},
    sns::notification,
};

fn mail() -> Value {
    json!({
        "timestamp": "2026-11-15T09:59:02.012Z", "source": "Sender Name <sender@example.com>",
        "sendingAccountId": "123456789012", "messageId": "EXAMPLE7c191be45-e9aedb9a-02f9-4d12-a87d-dd0099a07f8a-000000",
        "destination": ["recipient@example.com"], "headersTruncated": false,
        "headers": [{"name": "From", "value": "sender@example.com"}],
        "tags": {"ses:configuration-set": ["ConfigSet"], "ses:source-ip": ["192.0.2.0"], "mailonce": [OUR_EMAIL_ID]}
    })
}

fn event(word: &str, name: &str, object: Value) -> Value {
    json!({"eventType": word, "mail": mail(), name: object})
}

fn bounce(kind: &str, sub: &str) -> Value {
    event(
        "Bounce",
        "bounce",
        json!({
            "bounceType": kind, "bounceSubType": sub, "timestamp": "2026-11-15T09:59:50.669Z",
            "feedbackId": "01000157c44f053b-61b59c11-9236-11e6-8f96-7be8aexample-000000",
            "bouncedRecipients": [
                {"emailAddress": "a@example.com", "action": "failed", "status": "5.1.1",
                 "diagnosticCode": "smtp; 550 5.1.1 user unknown"},
                {"emailAddress": "B <b@example.com>"}
            ]
        }),
    )
}

fn delivered() -> Value {
    event(
        "Delivery",
        "delivery",
        json!({"timestamp": "2026-11-15T09:59:49.202Z", "recipients": ["recipient@example.com"],
               "smtpResponse": "250 2.6.0 Message received", "reportingMTA": "mta.example.com"}),
    )
}

fn read(event: &Value) -> Vec<HookEvent> {
    HookTestRequest::new(notification(&event.to_string()).to_string()).parse_events(Kind::Ses).unwrap()
}

#[test]
fn a_delivery_is_parsed() {
    let reports = read(&delivered());
    let report = &reports[0];
    assert_eq!((reports.len(), report.reported_status, report.email), (1, ReportedStatus::Delivered, our_email_id()));
    assert_eq!(report.remote_id.as_deref(), Some("EXAMPLE7c191be45-e9aedb9a-02f9-4d12-a87d-dd0099a07f8a-000000"));
    assert_eq!(report.recipient.as_deref(), Some("recipient@example.com"));
    assert_eq!(report.reason, "250 2.6.0 Message received");
    assert_eq!(report.occurred_at, Time::parse("2026-11-15T09:59:49.202Z"));
    assert_eq!((report.dedupe_key.as_str(), report.is_test), ("165545c9-2a5c-472c-8df2-7ff2be2b3b1b/0", false));
}

#[test]
fn each_recipient_of_a_bounce_has_its_own_event() {
    let reports = read(&bounce("Permanent", "General"));
    let recipients_and_reasons: Vec<_> =
        reports.iter().map(|report| (report.recipient.as_deref().unwrap(), report.reason.as_str())).collect();
    assert_eq!(
        recipients_and_reasons,
        [("a@example.com", "smtp; 550 5.1.1 user unknown"), ("b@example.com", "General")]
    );
    assert_ne!(reports[0].dedupe_key, reports[1].dedupe_key);
    assert_eq!(reports[0].occurred_at, Time::parse("2026-11-15T09:59:50.669Z"));
    // A redelivery by SNS has the same id, whatever else differs.
    assert_eq!(reports, read(&bounce("Permanent", "General")));
}

#[test]
fn event_types_map_to_reported_statuses() {
    let complaint = |sub: Value| {
        let object = json!({"complainedRecipients": [{"emailAddress": "a@example.com"}], "complaintSubType": sub,
                            "complaintFeedbackType": "abuse", "timestamp": "2026-11-15T09:59:59Z"});
        event("Complaint", "complaint", object)
    };
    let delay = json!({"delayType": "TransientCommunicationFailure", "delayedRecipients":
        [{"emailAddress": "a@example.com", "status": "4.4.1", "diagnosticCode": "smtp; 421 4.4.1 timeout"}]});
    let cases = [
        (event("Send", "send", json!({})), ReportedStatus::Accepted),
        (delivered(), ReportedStatus::Delivered),
        (bounce("Permanent", "General"), HARD_BOUNCE),
        (bounce("Transient", "MailboxFull"), SOFT_BOUNCE),
        (bounce("Undetermined", "Undetermined"), SOFT_BOUNCE),
        (bounce("Permanent", "Suppressed"), ReportedStatus::Suppressed),
        (bounce("Permanent", "OnAccountSuppressionList"), ReportedStatus::Suppressed),
        (complaint(Value::Null), ReportedStatus::Complained),
        (complaint("OnAccountSuppressionList".into()), ReportedStatus::Suppressed),
        (event("DeliveryDelay", "deliveryDelay", delay), ReportedStatus::Deferred),
        (event("Reject", "reject", json!({"reason": "Bad content"})), ReportedStatus::Refused),
        (event("Rendering Failure", "failure", json!({"errorMessage": "no such part"})), ReportedStatus::Refused),
        (event("Open", "open", json!({})), ReportedStatus::Other),
        (event("Of tomorrow", "x", json!({})), ReportedStatus::Other),
    ];
    for (event, says) in cases {
        assert_eq!(read(&event)[0].reported_status, says, "{event}");
        assert!(read(&event)[0].recipient.is_some(), "{event}");
    }
    // Feedback notifications of an identity use another name for the type.
    let mut old = delivered();
    let word = old.as_object_mut().unwrap().remove("eventType").unwrap();
    assert_eq!(read(&with_field(&old, "/notificationType", word))[0].reported_status, ReportedStatus::Delivered);
}

#[test]
fn our_email_id_is_found_in_the_header_too() {
    let untagged = with_field(&delivered(), "/mail/tags", json!({}));
    assert_eq!(read(&untagged)[0].email, None);
    let headers = json!([{"name": "From", "value": "x"}, {"name": "x-mailonce-ID", "value": OUR_EMAIL_ID}]);
    assert_eq!(read(&with_field(&untagged, "/mail/headers", headers))[0].email, our_email_id());
}

#[test]
fn plain_messages_of_sns_are_not_errors() {
    let hello = notification("Successfully validated SNS topic for Amazon SES event publishing.");
    let reports = HookTestRequest::new(hello.to_string()).parse_events(Kind::Ses).unwrap();
    assert_eq!((reports[0].reported_status, reports[0].is_test, reports[0].email), (ReportedStatus::Other, true, None));
    let confirmation = with_field(&notification("x"), "/Type", "SubscriptionConfirmation");
    assert_eq!(HookTestRequest::new(confirmation.to_string()).parse_events(Kind::Ses), Ok(vec![]));
    assert!(matches!(HookTestRequest::new("{}").parse_events(Kind::Ses), Err(HookParseError::Unexpected(_))));
    assert!(matches!(
        HookTestRequest::new(notification("{\"a\":").to_string()).parse_events(Kind::Ses),
        Err(HookParseError::Json(_))
    ));
    let simulated = with_field(&delivered(), "/delivery/recipients", json!(["success@simulator.amazonses.com"]));
    assert!(read(&simulated)[0].is_test);
}

#[test]
fn the_number_of_recipients_is_limited() {
    let crowd = with_field(&delivered(), "/delivery/recipients", vec!["a@example.com"; MAX_EVENTS + 1]);
    let post = HookTestRequest::new(notification(&crowd.to_string()).to_string());
    assert_eq!(post.parse_events(Kind::Ses), Err(HookParseError::TooMany(MAX_EVENTS + 1)));
}
