//! Received mail in provider webhooks: payloads from the providers' documentation, valid and invalid signatures.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::time::Time;
use mailonce_mail::{
    hooks::{HookMail, HookParseError, HookRejection, HookSecrets, Kind, SharedSecret, nylas::challenge_response},
    parse::{ParsedMail, parse},
};
use serde_json::{Value, json};

use crate::{
    rig::{HookTestRequest, NOW, hex, hmac, with_field},
    sns::notification,
};

const RAW: &str =
    "From: Ann <ann@shop.test>\r\nTo: a@agents.test\r\nMessage-ID: <1@shop.test>\r\nSubject: Hi\r\n\r\nHello\r\n";

fn sole_mail(kind: Kind, post: &HookTestRequest) -> HookMail {
    post.parse_mail(kind).unwrap().unwrap()
}

fn parsed(mail: &HookMail) -> ParsedMail {
    parse(&mail.content.as_ref().unwrap().raw)
}

fn rebuilt(mail: &HookMail) -> bool {
    mail.content.as_ref().unwrap().is_rebuilt
}

/// After Postmark's own example.
fn postmark() -> Value {
    json!({
        "FromName": "Postmarkapp Support", "MessageStream": "inbound", "From": "support@postmarkapp.com",
        "FromFull": {"Email": "support@postmarkapp.com", "Name": "Postmarkapp Support", "MailboxHash": ""},
        "To": "\"Firstname Lastname\" <yourhash+SampleHash@inbound.postmarkapp.com>",
        "ToFull": [{"Email": "yourhash+SampleHash@inbound.postmarkapp.com", "Name": "Firstname Lastname", "MailboxHash": "SampleHash"}],
        "Cc": "\"First Cc\" <firstcc@postmarkapp.com>",
        "CcFull": [{"Email": "firstcc@postmarkapp.com", "Name": "First Cc", "MailboxHash": ""}],
        "BccFull": [{"Email": "firstbcc@postmarkapp.com", "Name": "First Bcc", "MailboxHash": ""}],
        "OriginalRecipient": "yourhash+SampleHash@inbound.postmarkapp.com", "Subject": "Test subject",
        "MessageID": "73e6d360-66eb-11e1-8e72-a8904824019b", "ReplyTo": "replyto@postmarkapp.com",
        "MailboxHash": "SampleHash", "Date": "Fri, 1 Aug 2014 16:45:32 -04:00", "TextBody": "This is a test text body.",
        "HtmlBody": "<html><body><p>This is a test html body.</p></body></html>",
        "StrippedTextReply": "This is the reply text", "Tag": "TestTag",
        "Headers": [{"Name": "X-Header-Test", "Value": ""}, {"Name": "Message-ID", "Value": "<1@postmarkapp.com>"},
            {"Name": "Return-Path", "Value": "<bounces@postmarkapp.com>"}],
        "Attachments": [{"Name": "test.txt", "Content": "VGhpcyBpcyBhdHRhY2htZW50IGNvbnRlbnRzLCBiYXNlLTY0IGVuY29kZWQu",
            "ContentType": "text/plain", "ContentLength": 45}]
    })
}

#[test]
fn postmark_delivers_the_raw_mail_or_its_fields() {
    let mail = sole_mail(Kind::Postmark, &HookTestRequest::new(postmark().to_string()));
    assert_eq!(mail.dedupe_key, "73e6d360-66eb-11e1-8e72-a8904824019b");
    assert_eq!(mail.recipients, ["yourhash+SampleHash@inbound.postmarkapp.com"], "of the envelope, not of To and Cc");
    assert_eq!(
        (mail.envelope_sender.as_deref(), mail.has_envelope_recipients, rebuilt(&mail)),
        (Some("bounces@postmarkapp.com"), true, true)
    );
    let read = parsed(&mail);
    assert_eq!((read.subject.as_str(), read.message_id.as_deref()), ("Test subject", Some("<1@postmarkapp.com>")));
    assert_eq!(read.text.as_deref().map(str::trim_end), Some("This is a test text body."));
    assert_eq!(read.attachments[0].filename.as_deref(), Some("test.txt"));
    assert_eq!(read.attachments[0].size, 45);
    assert!(read.date.is_some() && read.cc.len() == 1 && read.reply_to.len() == 1);

    let raw = sole_mail(Kind::Postmark, &HookTestRequest::new(with_field(&postmark(), "/RawEmail", RAW).to_string()));
    assert_eq!((raw.content.as_ref().unwrap().raw.as_slice(), rebuilt(&raw)), (RAW.as_bytes(), false));
    let unknown =
        sole_mail(Kind::Postmark, &HookTestRequest::new(with_field(&postmark(), "/OriginalRecipient", "").to_string()));
    assert_eq!((unknown.recipients.len(), unknown.has_envelope_recipients), (3, false));
    let event = r#"{"RecordType":"Delivery","MessageID":"m","From":"x"}"#;
    assert_eq!(HookTestRequest::new(event).parse_mail(Kind::Postmark), Ok(None));
    let broken = with_field(&postmark(), "/Attachments", json!([{"Name": "a", "Content": "!"}]));
    assert!(matches!(
        HookTestRequest::new(broken.to_string()).parse_mail(Kind::Postmark),
        Err(HookParseError::Unexpected(_))
    ));
}

const MAILGUN: &str = "key-3ax6xnjp29jd6fds4gc373sgvjxteol0";

/// The form that a Mailgun route posts.
fn route(at: Time, token: &str, fields: &[(&str, &str)]) -> HookTestRequest {
    let timestamp = (at.0 / 1000).to_string();
    let signature = hex(&hmac(MAILGUN.as_bytes(), format!("{timestamp}{token}").as_bytes()));
    let proof = [("timestamp", timestamp.as_str()), ("token", token), ("signature", &signature)];
    let form = fields.iter().chain(&proof);
    let body: Vec<String> = form.map(|(name, value)| format!("{name}={}", percent(value))).collect();
    HookTestRequest::new(body.join("&")).with("Content-Type", "application/x-www-form-urlencoded")
}

fn percent(text: &str) -> String {
    let pairs = hex(text.as_bytes());
    pairs.as_bytes().chunks(2).flat_map(|pair| ["%", std::str::from_utf8(pair).unwrap()]).collect()
}

const PARSED_FIELDS: [(&str, &str); 7] = [
    ("recipient", "a@agents.test"),
    ("sender", "bounce+1@shop.test"),
    ("from", "Ann <ann@shop.test>"),
    ("subject", "Hi"),
    ("body-plain", "Hello"),
    ("body-html", "<p>Hello</p>"),
    (
        "message-headers",
        r#"[["To","Somebody <other@shop.test>"],["Message-Id","<1@shop.test>"],["Content-Type","text/x"]]"#,
    ),
];

#[test]
fn mailgun_delivers_a_form() {
    let secrets = HookSecrets::from_keys(Kind::Mailgun, &[MAILGUN]).unwrap();
    let post = route(NOW, "t1", &PARSED_FIELDS);
    assert_eq!(post.verify(&secrets, NOW), Ok(()));
    let mail = sole_mail(Kind::Mailgun, &post);
    assert_eq!(
        (mail.recipients[0].as_str(), mail.envelope_sender.as_deref()),
        ("a@agents.test", Some("bounce+1@shop.test"))
    );
    let read = parsed(&mail);
    assert_eq!((read.message_id.as_deref(), read.to[0].address.as_str()), (Some("<1@shop.test>"), "other@shop.test"));
    assert!(rebuilt(&mail) && read.html.is_some() && read.text.is_some());
    // A retry with another token and timestamp is the same delivery; another recipient or text is not.
    assert_eq!(sole_mail(Kind::Mailgun, &route(NOW.plus(600_000), "t2", &PARSED_FIELDS)).dedupe_key, mail.dedupe_key);
    for (at, value) in [(0, "b@agents.test"), (4, "Hello!")] {
        let mut other = PARSED_FIELDS;
        other[at].1 = value;
        assert_ne!(sole_mail(Kind::Mailgun, &route(NOW, "t1", &other)).dedupe_key, mail.dedupe_key);
    }
    let raw = sole_mail(Kind::Mailgun, &route(NOW, "t", &[PARSED_FIELDS[0], PARSED_FIELDS[1], ("body-mime", RAW)]));
    assert_eq!((raw.content.as_ref().unwrap().raw.as_slice(), rebuilt(&raw)), (RAW.as_bytes(), false));
    let stored = [PARSED_FIELDS[0], PARSED_FIELDS[1], ("attachments", "[]")];
    assert!(matches!(route(NOW, "t", &stored).parse_mail(Kind::Mailgun), Err(HookParseError::Unexpected(_))));
}

#[test]
fn mailgun_signatures_are_valid_as_long_as_its_retries() {
    let secrets = HookSecrets::from_keys(Kind::Mailgun, &[MAILGUN]).unwrap();
    let post = route(NOW, "t1", &PARSED_FIELDS);
    assert_eq!(post.token().as_deref(), Some("t1"));
    assert_eq!(post.verify(&secrets, NOW.plus(8 * 3_600_000)), Ok(()));
    assert!(matches!(post.verify(&secrets, NOW.plus(10 * 3_600_000)), Err(HookRejection::Stale { .. })));
    let other = HookSecrets::from_keys(Kind::Mailgun, &["key-of-somebody-else-entirely"]).unwrap();
    assert_eq!(post.verify(&other, NOW), Err(HookRejection::BadSignature));
    let twice = HookTestRequest::new([post.body.as_slice(), b"&token=t2"].concat())
        .with("Content-Type", "application/x-www-form-urlencoded");
    assert_eq!(twice.verify(&secrets, NOW), Err(HookRejection::MissingField("token")));
}

fn multipart(fields: &[(&str, &str, &str)]) -> HookTestRequest {
    let part = |(name, more, value): &(&str, &str, &str)| {
        format!("--xYzZY\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n{value}\r\n")
    };
    let body = fields.iter().map(part).collect::<Vec<_>>().concat();
    HookTestRequest::new(body + "--xYzZY--\r\n").with("Content-Type", "multipart/form-data; boundary=xYzZY")
}

const ENVELOPE: &str = r#"{"to":["a@agents.test","b@agents.test"],"from":"bounce@shop.test"}"#;

#[test]
fn sendgrid_delivers_a_form() {
    let fields = [
        (
            "headers",
            "",
            "Received: by x\n with y\nFrom: =?utf-8?Q?Zo=C3=AB?= <ann@shop.test>\nMessage-ID: <1@shop.test>\nContent-Type: a/b\n",
        ),
        ("from", "", "Zoë <ann@shop.test>"),
        ("to", "", "Somebody <other@shop.test>"),
        ("subject", "", "Hi"),
        ("text", "", "Hello"),
        ("envelope", "", ENVELOPE),
        ("charsets", "", r#"{"to":"UTF-8","text":"iso-8859-1"}"#),
        ("attachment1", "; filename=\"a.txt\"\r\nContent-Type: text/plain", "file"),
        ("attachment-info", "", r#"{"attachment1":{"filename":"real.txt","type":"text/csv"}}"#),
    ];
    let mail = sole_mail(Kind::Sendgrid, &multipart(&fields));
    assert_eq!(mail.recipients, ["a@agents.test", "b@agents.test"]);
    assert_eq!((mail.envelope_sender.as_deref(), rebuilt(&mail)), (Some("bounce@shop.test"), true));
    let read = parsed(&mail);
    assert_eq!(read.from[0].name.as_deref(), Some("Zoë"));
    assert_eq!((read.message_id.as_deref(), read.to.len()), (Some("<1@shop.test>"), 1));
    assert_eq!(
        (read.attachments[0].filename.as_deref(), read.attachments[0].content_type.as_str()),
        (Some("real.txt"), "text/csv")
    );
    let mut latin = multipart(&fields).body;
    let at = latin.windows(5).position(|word| word == b"Hello").unwrap();
    latin[at + 1] = 0xe4;
    let latin = multipart(&fields).with_body(latin);
    assert_eq!(parsed(&sole_mail(Kind::Sendgrid, &latin)).text.as_deref().map(str::trim_end), Some("Hällo"));

    let raw = multipart(&[("email", "", RAW), ("envelope", "", ENVELOPE)]);
    let mail = sole_mail(Kind::Sendgrid, &raw);
    assert_eq!((mail.content.as_ref().unwrap().raw.as_slice(), rebuilt(&mail)), (RAW.as_bytes(), false));
    assert_eq!(sole_mail(Kind::Sendgrid, &raw).dedupe_key, mail.dedupe_key);
    assert!(multipart(&[("email", "", RAW)]).parse_mail(Kind::Sendgrid).is_err(), "the recipient is missing");
    // A password authenticates webhooks without a signature.
    let secrets =
        HookSecrets::from_shared_secrets(Kind::Sendgrid, vec![SharedSecret::Bearer("0123456789abcdef".into())])
            .unwrap();
    assert_eq!(raw.clone().with("Authorization", "Bearer 0123456789abcdef").verify(&secrets, NOW), Ok(()));
    assert_eq!(
        raw.with("Authorization", "Bearer 0123456789abcdeg").verify(&secrets, NOW),
        Err(HookRejection::BadSignature)
    );
}

/// After the example of Amazon's guide.
fn received(action: &Value, content: Option<&str>) -> HookTestRequest {
    let message = json!({
        "notificationType": "Received", "content": content,
        "mail": {"timestamp": "2015-09-11T20:32:33.936Z", "source": "0000014fbe1c09cf-7cb9f704@amazonses.com",
            "messageId": "d6iitobk75ur44p8kdnnp7g2n800", "destination": ["recipient@example.com", "other@example.org"],
            "commonHeaders": {"messageId": "<0000014fbe1c09cf-7cb9f704@amazonses.com>"}},
        "receipt": {"timestamp": "2015-09-11T20:32:33.936Z", "recipients": ["recipient@example.com"], "action": action}
    });
    HookTestRequest::new(notification(&message.to_string()).to_string())
}

#[test]
fn ses_delivers_the_mail_or_its_location() {
    let sns = |encoding: &str| json!({"type": "SNS", "topicArn": "arn:aws:sns:us-east-1:1:t", "encoding": encoding});
    let plain = sole_mail(Kind::Ses, &received(&sns("UTF8"), Some(RAW)));
    assert_eq!(plain.recipients, ["recipient@example.com"], "those of the rule, not every destination");
    assert_eq!((plain.dedupe_key.as_str(), rebuilt(&plain)), ("d6iitobk75ur44p8kdnnp7g2n800", false));
    assert_eq!(plain.envelope_sender.as_deref(), Some("0000014fbe1c09cf-7cb9f704@amazonses.com"));
    assert_eq!(sole_mail(Kind::Ses, &received(&sns("BASE64"), Some(&STANDARD.encode(RAW)))).content, plain.content);
    let stored = json!({"type": "S3", "bucketName": "mails", "objectKey": "in/1"});
    let mail = sole_mail(Kind::Ses, &received(&stored, None));
    assert_eq!((mail.content, mail.location.unwrap().object), (None, Some(("mails".into(), "in/1".into()))));
    assert_eq!(
        HookTestRequest::new(notification("Successfully validated").to_string()).parse_mail(Kind::Ses),
        Ok(None)
    );
    assert_eq!(
        HookTestRequest::new(notification(r#"{"eventType":"Delivery"}"#).to_string()).parse_mail(Kind::Ses),
        Ok(None)
    );
}

#[test]
fn resend_announces_a_mail() {
    let event = json!({
        "type": "email.received", "created_at": "2024-02-22T23:41:12.126Z",
        "data": {"email_id": "56761188-7520-42d8-8898-ff6fc54ce618", "created_at": "2024-02-22T23:41:11.894719+00:00",
            "from": "Acme <onboarding@resend.dev>", "to": ["delivered@resend.dev"], "bcc": [], "cc": [],
            "received_for": ["a@agents.test"], "message_id": "<example+123>", "subject": "Sending this example", "attachments": []}
    });
    let mail = sole_mail(Kind::Resend, &HookTestRequest::new(event.to_string()));
    assert_eq!(
        (mail.recipients, mail.has_envelope_recipients, mail.content),
        (vec!["a@agents.test".to_owned()], true, None)
    );
    assert_eq!(mail.location.unwrap().id, mail.dedupe_key);
    let untold = with_field(&event, "/data/received_for", json!([]));
    assert!(!sole_mail(Kind::Resend, &HookTestRequest::new(untold.to_string())).has_envelope_recipients);
    assert_eq!(
        HookTestRequest::new(with_field(&event, "/type", "email.sent").to_string()).parse_mail(Kind::Resend),
        Ok(None)
    );
}

fn nylas(kind: &str) -> Value {
    json!({
        "specversion": "1.0", "type": kind, "source": "/google/emails/realtime", "id": "5675gjfk", "time": 1_723_821_985,
        "webhook_delivery_attempt": 1, "data": {"application_id": "app", "object": {
            "id": "msg_1", "grant_id": "grant_1", "object": "message", "folders": ["INBOX", "UNREAD"], "subject": "Hi",
            "from": [{"name": "Ann", "email": "ann@shop.test"}], "to": [{"name": "A", "email": "a@agents.test"}],
            "cc": [], "bcc": [], "body": "<p>Hello</p>", "attachments": []}}
    })
}

#[test]
fn nylas_announces_a_mail() {
    let secrets = HookSecrets::from_keys(Kind::Nylas, &["the-secret-that-goes", "the-secret-that-comes"]).unwrap();
    let body = nylas("message.created").to_string();
    for key in ["the-secret-that-goes", "the-secret-that-comes"] {
        let post =
            HookTestRequest::new(body.as_str()).with("X-Nylas-Signature", hex(&hmac(key.as_bytes(), body.as_bytes())));
        assert_eq!(post.verify(&secrets, NOW), Ok(()));
        assert_eq!(
            post.clone().with_body(body.replace("Hi", "Ho")).verify(&secrets, NOW),
            Err(HookRejection::BadSignature)
        );
        assert_eq!(
            post.without("x-nylas-signature").verify(&secrets, NOW),
            Err(HookRejection::MissingHeader("x-nylas-signature"))
        );
    }
    let mail = sole_mail(Kind::Nylas, &HookTestRequest::new(body));
    assert_eq!((mail.dedupe_key.as_str(), mail.has_envelope_recipients, rebuilt(&mail)), ("msg_1", false, true));
    assert_eq!(mail.location.as_ref().unwrap().grant.as_deref(), Some("grant_1"));
    let cut = sole_mail(Kind::Nylas, &HookTestRequest::new(nylas("message.created.truncated").to_string()));
    assert_eq!((cut.content, cut.location, cut.dedupe_key), (None, mail.location, mail.dedupe_key));
    let own = with_field(&nylas("message.created"), "/data/object/folders", json!(["SENT"]));
    assert_eq!(HookTestRequest::new(own.to_string()).parse_mail(Kind::Nylas), Ok(None), "what the account sent itself");
    assert_eq!(HookTestRequest::new(nylas("message.updated").to_string()).parse_mail(Kind::Nylas), Ok(None));
    assert_eq!(challenge_response("a=b&challenge=bc609b38-c81f-47fb"), Some("bc609b38-c81f-47fb"));
    assert_eq!(
        (challenge_response("challenge=%3Cscript%3E"), challenge_response("challenge="), challenge_response("x=1")),
        (None, None, None)
    );
}

#[test]
fn the_standard_format_is_mime_or_json() {
    let post =
        |kind: &str, body: &str| HookTestRequest::new(body).with("content-type", kind).with("webhook-id", "msg_1");
    let whole = sole_mail(Kind::Standard, &post("message/rfc822; charset=utf-8", RAW));
    assert_eq!(
        (whole.dedupe_key.as_str(), whole.recipients[0].as_str(), whole.has_envelope_recipients),
        ("msg_1", "a@agents.test", false)
    );
    let raw =
        json!({"id": "mine", "sender": "<b@shop.test>", "recipients": ["x@agents.test"], "raw": STANDARD.encode(RAW)});
    for body in [raw.clone(), json!({"type": "email.received", "timestamp": "2026-11-15T10:00:00Z", "data": raw})] {
        let mail = sole_mail(Kind::Standard, &post("application/json", &body.to_string()));
        assert_eq!(
            (mail.dedupe_key.as_str(), mail.recipients[0].as_str(), mail.has_envelope_recipients),
            ("mine", "x@agents.test", true)
        );
        assert_eq!((mail.envelope_sender.as_deref(), mail.content), (Some("b@shop.test"), whole.content.clone()));
    }
    let fields = json!({"from": "Ann <ann@shop.test>", "to": ["A <a@agents.test>"], "subject": "Hi", "text": "Hello",
        "headers": {"Message-ID": "<1@shop.test>"}, "attachments": [{"filename": "a.txt", "content": "aGk="}]});
    let mail = sole_mail(Kind::Standard, &post("application/json", &fields.to_string()));
    assert!(rebuilt(&mail) && !mail.has_envelope_recipients);
    assert_eq!((parsed(&mail).attachments[0].size, parsed(&mail).message_id.as_deref()), (2, Some("<1@shop.test>")));
    assert_eq!(post("application/json", r#"{"type":"ping","data":{}}"#).parse_mail(Kind::Standard), Ok(None));
    for body in ["[]", "{}", r#"{"to":"a@b.test","raw":"!"}"#, "1"] {
        assert!(post("application/json", body).parse_mail(Kind::Standard).is_err(), "{body}");
    }
    let many: Vec<String> = (0..1_001).map(|i| format!("a{i}@agents.test")).collect();
    let many = json!({"recipients": many, "text": "x"});
    assert_eq!(
        post("application/json", &many.to_string()).parse_mail(Kind::Standard),
        Err(HookParseError::TooMany(1_001))
    );
}
