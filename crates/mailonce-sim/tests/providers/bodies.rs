//! Request bodies as the vendors document them, and content that does not fit.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{
    handoff::{
        capabilities::{HandoffSplit, PayloadFormat},
        transport_request::OutboundMail,
    },
    outbound::content::{EmailContent, MetadataValue, RawAttachment, RawContent},
};
use mailonce_sim::sink::http::{API_KEY, SECRET_ACCESS_KEY, Vendor};
use serde_json::{Value, json};

use crate::fixtures::{
    EMAIL, KEY, MESSAGE_ID, MIME, build_transport, provider_setting, sample_content, sample_email_content, sample_mail,
    vendor_transport,
};

const URL: &str = "http://127.0.0.1:1";

fn frozen_body(vendor: Vendor) -> Value {
    let content = sample_email_content();
    serde_json::from_slice(&vendor_transport(vendor, URL).freeze(&sample_mail(&content)).unwrap()).unwrap()
}

fn unfit_reason(vendor: Vendor, raw: RawContent) -> String {
    let content = EmailContent::validate(raw).unwrap();
    vendor_transport(vendor, URL).freeze(&sample_mail(&content)).unwrap_err().0
}

#[test]
fn the_same_mail_gives_the_same_bytes_and_no_secret_is_in_them() {
    let content = sample_email_content();
    for vendor in Vendor::ALL {
        let transport = vendor_transport(vendor, URL);
        let first = transport.freeze(&sample_mail(&content)).unwrap();
        assert_eq!(first, transport.freeze(&sample_mail(&content)).unwrap(), "{vendor:?}");
        let again = build_transport(vendor, provider_setting("http://127.0.0.1:2"), "another-key-0123456789").unwrap();
        assert_eq!(first, again.freeze(&sample_mail(&content)).unwrap(), "{vendor:?}: a new key changes no bytes");
        let text = String::from_utf8_lossy(&first);
        assert!(!text.contains(API_KEY) && !text.contains(SECRET_ACCESS_KEY), "{vendor:?}");
        let capability = transport.capabilities();
        assert_eq!(capability.split, HandoffSplit::PerEmail, "{vendor:?}");
        let mime = matches!(vendor, Vendor::Mailgun | Vendor::Ses);
        assert_eq!(capability.payload_format == PayloadFormat::Mime, mime, "{vendor:?}");
    }
}

#[test]
fn an_account_keeps_its_fingerprint_when_its_key_changes() {
    for vendor in Vendor::ALL {
        let account = |name: &str, url: &str, key: &str| {
            let mut setting = provider_setting(url);
            setting.name = name.into();
            build_transport(vendor, setting, key).unwrap().account().to_owned()
        };
        let usual = account("a", URL, "one-key-0123456789");
        assert_eq!(usual, account("a", URL, "two-key-0123456789"), "{vendor:?}");
        assert_ne!(usual, account("b", URL, "one-key-0123456789"), "{vendor:?}");
        assert_ne!(usual, account("a", "http://127.0.0.1:2", "one-key-0123456789"), "{vendor:?}");
        assert_eq!(
            build_transport(vendor, provider_setting(URL), "").is_err(),
            !matches!(vendor, Vendor::Ses | Vendor::Other)
        );
    }
}

#[test]
fn resend_reads_it_as_from_its_own_sdk() {
    let body = json!({
        "from": "Agent <agent@example.com>",
        "to": ["\"Lovelace, Ada\" <ada@example.org>", "bob@example.org"],
        "cc": ["carol@example.org"], "bcc": ["dan@example.org"], "reply_to": ["answers@example.com"],
        "subject": "Hello", "text": "Hi", "html": "<p>Hi</p>",
        "headers": {"X-Mailonce-Id": EMAIL.to_string(), "X-Run": "42"},
        "attachments": [{"filename": "a.txt", "content": "YWJj", "content_type": "text/plain"}],
        "tags": [{"name": "mailonce", "value": EMAIL.to_string()}, {"name": "run", "value": "42"}],
    });
    assert_eq!(frozen_body(Vendor::Resend), body);
}

#[test]
fn usesend_reads_it_as_from_its_own_sdk() {
    let body = json!({
        "from": "Agent <agent@example.com>",
        "to": ["\"Lovelace, Ada\" <ada@example.org>", "bob@example.org"],
        "cc": ["carol@example.org"], "bcc": ["dan@example.org"], "replyTo": ["answers@example.com"],
        "subject": "Hello", "text": "Hi", "html": "<p>Hi</p>",
        "headers": {"X-Mailonce-Id": EMAIL.to_string(), "X-Run": "42"},
        "attachments": [{"filename": "a.txt", "content": "YWJj"}],
    });
    assert_eq!(frozen_body(Vendor::UseSend), body);
}

#[test]
fn postmark_reads_it_as_documented() {
    let body = json!({
        "From": "Agent <agent@example.com>",
        "To": "\"Lovelace, Ada\" <ada@example.org>, bob@example.org",
        "Cc": "carol@example.org", "Bcc": "dan@example.org", "ReplyTo": "answers@example.com",
        "Subject": "Hello", "TextBody": "Hi", "HtmlBody": "<p>Hi</p>",
        "Metadata": {"mailonce": EMAIL.to_string(), "order": "7", "run": "42"},
        "Headers": [{"Name": "Message-ID", "Value": MESSAGE_ID}, {"Name": "X-PM-KeepID", "Value": "true"},
            {"Name": "X-Run", "Value": "42"}],
        "Attachments": [{"Name": "a.txt", "Content": "YWJj", "ContentType": "text/plain"}],
    });
    assert_eq!(frozen_body(Vendor::Postmark), body);
}

#[test]
fn sendgrid_reads_it_as_documented() {
    let body = json!({
        "personalizations": [{"to": [{"email": "ada@example.org", "name": "Lovelace, Ada"},
            {"email": "bob@example.org"}], "cc": [{"email": "carol@example.org"}], "bcc": [{"email": "dan@example.org"}]}],
        "from": {"email": "agent@example.com", "name": "Agent"},
        "reply_to": {"email": "answers@example.com"}, "subject": "Hello",
        "content": [{"type": "text/plain", "value": "Hi"}, {"type": "text/html", "value": "<p>Hi</p>"}],
        "attachments": [{"content": "YWJj", "type": "text/plain", "filename": "a.txt", "disposition": "attachment"}],
        "headers": {"Message-ID": MESSAGE_ID, "X-Run": "42"},
        "custom_args": {"mailonce": EMAIL.to_string(), "order": "7", "run": "42"},
    });
    assert_eq!(frozen_body(Vendor::SendGrid), body);
}

#[test]
fn brevo_reads_it_as_documented() {
    let body = json!({
        "sender": {"name": "Agent", "email": "agent@example.com"},
        "to": [{"name": "Lovelace, Ada", "email": "ada@example.org"}, {"email": "bob@example.org"}],
        "cc": [{"email": "carol@example.org"}], "bcc": [{"email": "dan@example.org"}],
        "replyTo": {"email": "answers@example.com"}, "subject": "Hello",
        "textContent": "Hi", "htmlContent": "<p>Hi</p>",
        "headers": {"idempotencyKey": KEY.to_string(), "X-Mailonce-Id": EMAIL.to_string(),
            "X-Mailin-custom": format!("mailonce={EMAIL}"), "X-Run": "42"},
        "attachment": [{"name": "a.txt", "content": "YWJj"}], "tags": ["run:42"],
    });
    assert_eq!(frozen_body(Vendor::Brevo), body);
}

#[test]
fn ses_reads_it_as_documented_with_our_bytes_inside() {
    let body = frozen_body(Vendor::Ses);
    assert_eq!(body["FromEmailAddress"], "Agent <agent@example.com>");
    let to = json!({"ToAddresses": ["ada@example.org", "bob@example.org"], "CcAddresses": ["carol@example.org"],
        "BccAddresses": ["dan@example.org"]});
    assert_eq!(body["Destination"], to);
    let tags = json!([{"Name": "mailonce", "Value": EMAIL.to_string()}, {"Name": "run", "Value": "42"}]);
    assert_eq!(body["EmailTags"], tags);
    assert_eq!(STANDARD.decode(body["Content"]["Raw"]["Data"].as_str().unwrap()).unwrap(), MIME);
}

#[test]
fn mailgun_gets_our_bytes_whatever_is_in_them() {
    let content = sample_email_content();
    let transport = vendor_transport(Vendor::Mailgun, URL);
    let plain = transport.freeze(&sample_mail(&content)).unwrap();
    let first_line = |bytes: &[u8]| bytes.split(|&b| b == b'\r').next().unwrap().to_vec();
    // A mail that contains the boundary gets another one.
    let hostile = [MIME, b"\r\n", &first_line(&plain), b"--\r\n"].concat();
    let mut quoting = sample_mail(&content);
    quoting.mime = Some(&hostile);
    let frozen = transport.freeze(&quoting).unwrap();
    assert_ne!(first_line(&plain), first_line(&frozen));
    assert!(frozen.windows(hostile.len()).any(|part| part == hostile));
}

#[test]
fn what_a_vendor_does_not_take_is_unfit_and_says_why() {
    let inline = RawAttachment { content_id: Some("logo".into()), ..sample_content().attachments.remove(0) };
    for vendor in [Vendor::Brevo, Vendor::UseSend] {
        let mail = RawContent { attachments: vec![inline.clone()], ..sample_content() };
        assert!(unfit_reason(vendor, mail).contains("content_id"), "{vendor:?}");
    }
    let spaced = RawContent { tags: vec![("two words".into(), None)], ..sample_content() };
    assert!(unfit_reason(Vendor::Resend, spaced.clone()).contains("two words"));
    assert!(unfit_reason(Vendor::Ses, spaced).contains("two words"));
    let long = RawContent { metadata: vec![("note".into(), MetadataValue::Text("x".repeat(81)))], ..sample_content() };
    assert!(unfit_reason(Vendor::Postmark, long).contains("note"));
    let answers = vec!["a@example.com".into(), "b@example.com".into()];
    assert!(unfit_reason(Vendor::Brevo, RawContent { reply_to: answers, ..sample_content() }).contains("reply-to"));
    let big = RawAttachment { content: "AAAA".repeat(4 * 1024 * 1024), ..sample_content().attachments.remove(0) };
    assert!(
        unfit_reason(Vendor::Postmark, RawContent { attachments: vec![big], ..sample_content() })
            .contains("attachments")
    );
    assert!(
        unfit_reason(Vendor::SendGrid, RawContent { subject: String::new(), ..sample_content() }).contains("subject")
    );
    let twice = RawContent { metadata: vec![("run".into(), MetadataValue::Bool(true))], ..sample_content() };
    assert!(unfit_reason(Vendor::Mailgun, twice).contains("run"));
    let content = sample_email_content();
    let without_bytes = OutboundMail { mime: None, ..sample_mail(&content) };
    assert!(vendor_transport(Vendor::Mailgun, URL).freeze(&without_bytes).unwrap_err().0.contains("composed"));
}

#[test]
fn sendgrid_gets_each_address_once() {
    let doubled = RawContent { cc: vec!["ADA@example.org".into(), "eve@example.org".into()], ..sample_content() };
    let content = EmailContent::validate(doubled).unwrap();
    let bytes = vendor_transport(Vendor::SendGrid, URL).freeze(&sample_mail(&content)).unwrap();
    let body: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(body["personalizations"][0]["cc"], json!([{"email": "eve@example.org"}]));
}
