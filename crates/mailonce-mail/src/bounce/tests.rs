//! Reports in the formats of real mail systems.

use super::*;
use crate::parse::parse;

const TAG: &str = "bounce+agj2dmwd2r7f7ctlbqos4p2klmaagaaaaad2ljnfuws2ljnfuws2ljnf@m.example";
const ENVID: &str = "mo1-agj2dmwd2r7f7ctlbqos4p2klmaagaaaaad2ljnfuws2ljnfuws2ljnf";
const OURS: &str = "0193a1b2-c3d4-7e5f-8a6b-0c1d2e3f4a5b";

fn dsn(action: &str, status: &str) -> String {
    format!(
        "From: MAILER-DAEMON@mx.example\nTo: x@m.example\nAuto-Submitted: auto-replied\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\n\n\
        --b\n\nSorry.\n--b\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; mx.example\nOriginal-Envelope-Id: {ENVID}\n\n\
        Original-Recipient: rfc822;Ada@x.example\nFinal-Recipient: rfc822; ada2@y.example\nAction: {action}\nStatus: {status}\n\
        Diagnostic-Code: smtp; 550 {status} no such\n user here\n\nFinal-Recipient: rfc822; bob@x.example\nAction: delayed\nStatus: 4.4.1\n\n\
        --b\nContent-Type: text/rfc822-headers\n\nMessage-ID: <one@m.example>\nX-Mailonce-Id: {OURS}\nSubject: x\n--b--\n"
    )
}

fn bounce(raw: &str, recipient: &str) -> Option<Bounce> {
    parse_bounce(raw.as_bytes(), &parse(raw.as_bytes()), Some(""), recipient)
}

#[test]
fn a_delivery_report_names_attempt_recipients_and_reasons() {
    let bounce = bounce(&dsn("failed", "5.1.1"), "x@m.example").unwrap();

    assert_eq!(bounce.tag, AttemptTag::from_envelope_id(ENVID));
    assert!(bounce.tag.is_some() && bounce.is_standard);
    assert_eq!(bounce.email.map(|id| id.to_string()).as_deref(), Some(OURS));
    assert_eq!(bounce.message_id.as_deref(), Some("<one@m.example>"));
    let [ada, bob] = bounce.recipients.as_slice() else { panic!("{:?}", bounce.recipients) };
    assert_eq!(
        (ada.recipient.as_str(), ada.reported_status),
        ("Ada@x.example", ReportedStatus::Bounced { permanent: true })
    );
    assert_eq!((ada.status.as_deref(), ada.reason.as_str()), (Some("5.1.1"), "550 5.1.1 no such user here"));
    assert_eq!((bob.recipient.as_str(), bob.reported_status), ("bob@x.example", ReportedStatus::Deferred));
}

#[test]
fn the_return_path_beats_the_envelope_id() {
    let other = TAG.replace("aaaaad2", "aaaaae2");
    assert_eq!(bounce(&dsn("failed", "5.1.1"), &other).unwrap().tag, AttemptTag::from_return_path(&other));
    assert_ne!(AttemptTag::from_return_path(&other), AttemptTag::from_return_path(TAG));
}

#[test]
fn actions_map_to_reported_statuses() {
    for (action, status, says) in [
        ("failed", "5.2.2", ReportedStatus::Bounced { permanent: false }),
        ("failed", "5.7.1", ReportedStatus::Bounced { permanent: false }),
        ("failed", "4.4.7", ReportedStatus::Bounced { permanent: false }),
        ("delayed", "4.0.0", ReportedStatus::Deferred),
        ("delivered", "2.0.0", ReportedStatus::Delivered),
        ("relayed", "2.0.0", ReportedStatus::Accepted),
        ("", "5.1.1", ReportedStatus::Bounced { permanent: true }),
        ("odd", "x", ReportedStatus::Other),
    ] {
        assert_eq!(bounce(&dsn(action, status), TAG).unwrap().recipients[0].reported_status, says, "{action} {status}");
    }
}

#[test]
fn bounces_in_prose_are_parsed() {
    let qmail = format!(
        "From: MAILER-DAEMON@mx.example\nSubject: failure notice\n\nHi. This is the qmail-send program at mx.example.\n\
        I'm afraid I wasn't able to deliver your message to the following addresses.\n\n<ada@x.example>:\n550 5.1.1 user unknown\n\n\
        --- Below this line is a copy of the message.\n\nMessage-ID: <one@m.example>\nX-Mailonce-Id: {OURS}\n\nbody\n"
    );
    let read = bounce(&qmail, TAG).unwrap();
    assert_eq!(
        read.recipients,
        [RecipientResult {
            recipient: "ada@x.example".to_owned(),
            reported_status: ReportedStatus::Bounced { permanent: true },
            status: Some("5.1.1".to_owned()),
            reason: "550 5.1.1 user unknown".to_owned()
        }]
    );
    assert_eq!((read.message_id.as_deref(), read.is_standard), (Some("<one@m.example>"), false));
    assert!(read.email.is_some() && read.tag.is_some());

    let exim = "From: Mail Delivery System <Mailer-Daemon@mx.example>\nX-Failed-Recipients: ada@x.example\nSubject: Mail delivery failed\n\n\
        A message that you sent could not be delivered.\n\n  ada@x.example\n    mailbox is full: retry timeout exceeded\n";
    let read = bounce(exim, TAG).unwrap();
    assert_eq!(
        (read.recipients[0].recipient.as_str(), read.recipients[0].reported_status),
        ("ada@x.example", ReportedStatus::Bounced { permanent: false })
    );
    assert_eq!(read.recipients[0].reason, "mailbox is full: retry timeout exceeded");
}

#[test]
fn complaints_are_recognized() {
    let arf = format!(
        "From: fbl@isp.example\nContent-Type: multipart/report; report-type=feedback-report; boundary=b\n\n--b\n\nspam\n--b\n\
        Content-Type: message/feedback-report\n\nFeedback-Type: abuse\nOriginal-Mail-From: <{TAG}>\nOriginal-Rcpt-To: <ada@x.example>\n\n\
        --b\nContent-Type: message/rfc822\n\nMessage-ID: <one@m.example>\n\nx\n--b--\n"
    );
    let read = parse_bounce(arf.as_bytes(), &parse(arf.as_bytes()), None, "fbl@m.example").unwrap();
    assert_eq!(
        (read.recipients[0].reported_status, read.recipients[0].recipient.as_str()),
        (ReportedStatus::Complained, "ada@x.example")
    );
    assert_eq!((read.tag, read.message_id.as_deref()), (AttemptTag::from_return_path(TAG), Some("<one@m.example>")));
}

#[test]
fn other_mail_is_not_a_bounce() {
    for (raw, envelope) in [
        ("From: ada@x.example\nSubject: Automatic reply: hi\nAuto-Submitted: auto-replied\n\nI am away.", ""),
        ("From: ada@x.example\nSubject: undeliverable\n\nThe parcel could not be delivered.", "ada@x.example"),
        (
            "From: a@x.example\nContent-Type: multipart/report; report-type=disposition-notification; boundary=b\n\n--b\n\nread\n--b\nContent-Type: message/disposition-notification\n\nDisposition: x\n--b--",
            "",
        ),
    ] {
        assert_eq!(parse_bounce(raw.as_bytes(), &parse(raw.as_bytes()), Some(envelope), TAG), None, "{raw}");
    }
}

#[test]
fn a_long_line_without_a_field_is_skipped() {
    let junk = "m".repeat(40_000);
    let raw = format!(
        "From: MAILER-DAEMON@x.example\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\n\n--b\n\nno\n--b\n\
        Content-Type: message/delivery-status\n\nReporting-MTA: dns; x\n{junk}\n\nFinal-Recipient: rfc822; a@x.example\nAction: failed\n\
        Status: 5.1.1\n\n--b--\n"
    );
    let read = parse_bounce(raw.as_bytes(), &parse(raw.as_bytes()), Some(""), TAG).unwrap();
    assert_eq!((read.recipients.len(), read.recipients[0].recipient.as_str()), (1, "a@x.example"));
}
