//! SNS: signatures with a test certificate (`fixtures/`, with its key), and the allowed URLs.
//!
//! Two signatures were made with OpenSSL, so that signing and verification do not share a mistake.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::time::Time;
use mailonce_mail::hooks::{HookRejection, HookSecretError, HookSecrets, ses};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use serde_json::{Value, json};

use crate::rig::{HookTestRequest, NOW, with_field};

const KEY: &[u8] = include_bytes!("fixtures/key.p8");
const CERTIFICATE: &[u8] = include_bytes!("fixtures/cert.pem");
const OTHER: &[u8] = include_bytes!("fixtures/other.pem");
const ELLIPTIC: &[u8] = include_bytes!("fixtures/ec.pem");

pub(crate) const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:mailonce-events";
const CERTIFICATE_URL: &str =
    "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-f3ecfb7224c7233fe7bb5f59f96de52f.pem";
const SUBSCRIBE_URL: &str = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:us-east-1:123456789012:mailonce-events&Token=2336412f37";

/// `openssl dgst -sha1 -sign` and `-sha256` over the signed text of [`hello`].
const OPENSSL_SHA1: &str = "inQmdRSgWjgd4DRXKM9EF6vcTWPuM/PocftP4dABrSwAw0ediy5yTVn1xQWb/VIqAASjBHHh4HLZT9BjaMx9T5OqlTGityyM36E/GltiMx/xlbWXDPcdbmcsRGyDAItE1VB/qFO75qVv5R08WfzwCdELy+6Xm32S76beEoPJ7TYUl75cTHBBYWKIYtKez2ikLIYimXxfkD3LTzFRZanIeWrWYIWeTCSv6TBQGvzM+4izdfBjWcWl+TGQm/s517WqTX+dK2MPJ+v+Tnli9ByTKrIvxHYZkV9i4dC9e8ByVvm2GhZ0bbf4AlXNP1D8F/SBaDz8iBc16buKNQtpH5VCbw==";
const OPENSSL_SHA256: &str = "NceOdH0gqOY9DUILCgZZGpkfO2ehiSogiuk0M14Uocpm2zobXD7ndy/tevR3EHLmUOoaj8exQAb1jggU8fN4X0lwaEAxjKeM1nw/RQJXJNEvXkkffo+kTDIkISXXkgM99zUsQqrjYVBlZ+jKntH1bqeIB7be1h9kPy6ErHSrw6g4z2nW18EZd5Hs0DeSV7QunwoIs1oFsgzOrYhThd5fZmMJl+dTv0FMmauWZm4bjErpXnI71EGMJ12U7y5hNkJd5P2Cj4ihXAg9skvKaCt6P1lbG170F1jjBAkeJmp1N21KS1dXHUj610XxWC2kBciF6UHyKu5fLDKNyOfDw0enqA==";

pub(crate) fn notification(message: &str) -> Value {
    json!({
        "Type": "Notification", "MessageId": "165545c9-2a5c-472c-8df2-7ff2be2b3b1b", "TopicArn": TOPIC,
        "Message": message, "Timestamp": "2026-11-15T10:00:00.000Z", "SignatureVersion": "2", "Signature": "",
        "SigningCertURL": CERTIFICATE_URL,
        "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn=arn:aws:sns:us-east-1:123456789012:x"
    })
}

fn hello(version: &str, signature: &str) -> Value {
    with_field(&with_field(&notification("hello"), "/SignatureVersion", version), "/Signature", signature)
}

pub(crate) fn confirmation() -> Value {
    json!({
        "Type": "SubscriptionConfirmation", "MessageId": "165545c9-2a5c-472c-8df2-7ff2be2b3b1b", "TopicArn": TOPIC,
        "Token": "2336412f37", "Message": "You have chosen to subscribe to the topic", "SubscribeURL": SUBSCRIBE_URL,
        "Timestamp": "2026-11-15T10:00:00.000Z", "SignatureVersion": "2", "Signature": "",
        "SigningCertURL": CERTIFICATE_URL
    })
}

/// Signs the fields in the order of Amazon's documentation.
fn signed(body: &Value) -> Value {
    let names = ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"];
    let text: String =
        names.iter().filter_map(|name| Some(format!("{name}\n{}\n", body.get(name)?.as_str()?))).collect();
    let key = RsaKeyPair::from_pkcs8(KEY).unwrap();
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
    with_field(body, "/Signature", STANDARD.encode(signature))
}

fn secrets(allow_sha1: bool) -> HookSecrets {
    HookSecrets::from_topics(vec!["arn:aws:sns:eu-west-1:123456789012:other".into(), TOPIC.into()], allow_sha1).unwrap()
}

fn post(body: &Value, certificate: &[u8]) -> HookTestRequest {
    HookTestRequest { certificate: Some(certificate.to_vec()), ..HookTestRequest::new(body.to_string()) }
}

fn verdict(body: &Value) -> Result<(), HookRejection> {
    post(body, CERTIFICATE).verify(&secrets(false), NOW)
}

#[test]
fn signatures_of_openssl_verify() {
    assert_eq!(verdict(&hello("2", OPENSSL_SHA256)), Ok(()));
    assert_eq!(verdict(&hello("2", OPENSSL_SHA1)), Err(HookRejection::BadSignature));
}

#[test]
fn sha1_verifies_only_if_allowed() {
    let old = hello("1", OPENSSL_SHA1);
    let reject = verdict(&old).unwrap_err();
    assert_eq!((reject.clone(), reject.status()), (HookRejection::Sha1, 503));
    assert_eq!(post(&old, CERTIFICATE).verify(&secrets(true), NOW), Ok(()));
    let tampered = with_field(&old, "/Message", "hell0");
    assert_eq!(post(&tampered, CERTIFICATE).verify(&secrets(true), NOW), Err(HookRejection::BadSignature));
    assert!(matches!(verdict(&hello("3", OPENSSL_SHA256)), Err(HookRejection::Malformed(_))));
}

#[test]
fn every_signed_field_is_verified() {
    let subject = with_field(&notification("hello"), "/Subject", "a subject");
    for body in [signed(&notification("hello")), signed(&subject), signed(&confirmation())] {
        assert_eq!(verdict(&body), Ok(()));
        for name in ["Message", "MessageId", "Subject", "Token", "SubscribeURL"] {
            let Some(value) = body.get(name).and_then(Value::as_str) else { continue };
            let bent = with_field(&body, &format!("/{name}"), format!("{value}x"));
            assert_eq!(verdict(&bent), Err(HookRejection::BadSignature), "{name}");
        }
        let moved = with_field(&body, "/Timestamp", "2026-11-15T10:00:01.000Z");
        assert_eq!(verdict(&moved), Err(HookRejection::BadSignature));
    }
    // An added subject, or a notification changed into a confirmation.
    let slipped = with_field(&signed(&notification("hello")), "/Subject", "x");
    assert_eq!(verdict(&slipped), Err(HookRejection::BadSignature));
    assert_eq!(
        verdict(&with_field(&signed(&confirmation()), "/Type", "UnsubscribeConfirmation")),
        Err(HookRejection::BadSignature)
    );
    assert!(matches!(
        verdict(&with_field(&signed(&confirmation()), "/Type", "Other")),
        Err(HookRejection::Malformed(_))
    ));
    let nothing = with_field(&signed(&notification("hello")), "/Subject", Value::Null);
    assert_eq!(verdict(&nothing), Ok(()));
}

#[test]
fn other_topics_and_missing_fields_are_rejected() {
    let foreign = with_field(&notification("hello"), "/TopicArn", "arn:aws:sns:us-east-1:999999999999:mailonce-events");
    assert_eq!(verdict(&signed(&foreign)), Err(HookRejection::ForeignTopic));
    for name in
        ["Type", "MessageId", "TopicArn", "Message", "Timestamp", "SignatureVersion", "Signature", "SigningCertURL"]
    {
        let mut body = signed(&notification("hello"));
        body.as_object_mut().unwrap().remove(name);
        assert_eq!(verdict(&body), Err(HookRejection::MissingField(name)));
    }
    for odd in [vec![], vec!["my-topic".to_owned()], vec![TOPIC.to_owned(); 101]] {
        assert!(matches!(HookSecrets::from_topics(odd, false), Err(HookSecretError::Unusable(_))));
    }
}

#[test]
fn the_certificate_must_match_the_signature() {
    let body = signed(&notification("hello"));
    assert_eq!(post(&body, OTHER).verify(&secrets(false), NOW), Err(HookRejection::BadSignature));
    let none = HookTestRequest::new(body.to_string()).verify(&secrets(false), NOW).unwrap_err();
    assert_eq!((none.clone(), none.status()), (HookRejection::Certificate("was not given"), 503));
    assert_eq!(post(&body, b"<html>").verify(&secrets(false), NOW), Err(HookRejection::Certificate("is not PEM")));
    let torn = String::from_utf8_lossy(CERTIFICATE).replacen("MIID", "MIIB", 1);
    assert_eq!(
        post(&body, torn.as_bytes()).verify(&secrets(false), NOW),
        Err(HookRejection::Certificate("cannot be read"))
    );
    let elliptic = post(&body, ELLIPTIC).verify(&secrets(false), NOW);
    assert_eq!(elliptic, Err(HookRejection::Certificate("does not hold an RSA key")));
    let huge = vec![b'x'; 65 * 1024];
    assert_eq!(post(&body, &huge).verify(&secrets(false), NOW), Err(HookRejection::Certificate("is too large")));
}

#[test]
fn an_hour_of_retries_is_accepted_and_more_is_stale() {
    let body = post(&signed(&notification("hello")), CERTIFICATE);
    assert_eq!(body.verify(&secrets(false), NOW.plus(3_600_000)), Ok(()));
    assert_eq!(body.verify(&secrets(false), NOW.plus(-3_600_000)), Ok(()));
    let late = NOW.plus(65 * 60_000 + 1);
    assert_eq!(body.verify(&secrets(false), late), Err(HookRejection::Stale { off_ms: 65 * 60_000 + 1 }));
    assert_eq!(
        body.verify(&secrets(false).with_tolerance_ms(60_000), NOW.plus(60_001)),
        Err(HookRejection::Stale { off_ms: 60_001 })
    );
    let timeless = signed(&with_field(&notification("hello"), "/Timestamp", "yesterday"));
    assert!(matches!(post(&timeless, CERTIFICATE).verify(&secrets(false), Time(0)), Err(HookRejection::Malformed(_))));
}

#[test]
fn only_certificate_urls_of_sns_are_accepted() {
    let needs =
        |url: &str| ses::sns_urls(with_field(&notification("x"), "/SigningCertURL", url).to_string().as_bytes());
    assert_eq!(needs(CERTIFICATE_URL).unwrap().certificate_url, CERTIFICATE_URL);
    assert_eq!(needs(CERTIFICATE_URL).unwrap().subscribe_url, None);
    let file = "SimpleNotificationService-0123.pem";
    for wrong in [
        format!("http://sns.us-east-1.amazonaws.com/{file}"),
        format!("https://sns.us-east-1.amazonaws.com.evil.example/{file}"),
        format!("https://sns.us-east-1.amazonaws.com@evil.example/{file}"),
        format!("https://sns.us-east-1.amazonaws.com:8443/{file}"),
        format!("https://evil.sns.us-east-1.amazonaws.com/{file}"),
        format!("https://sns.evil.example/sns.us-east-1.amazonaws.com/{file}"),
        format!("https://sns.us-east-1.evil.amazonaws.com/{file}"),
        format!("https://sns.amazonaws.com/{file}"),
        format!("https://sns..amazonaws.com/{file}"),
        format!("https://SNS.us-east-1.amazonaws.com/{file}"),
        format!("https://s3.amazonaws.com/{file}"),
        // The SNS API on the same host can return bytes that an attacker chose.
        "https://sns.us-east-1.amazonaws.com/?Action=GetEndpointAttributes&x=.pem".to_owned(),
        format!("https://sns.us-east-1.amazonaws.com/?x=SimpleNotificationService-1/../{file}"),
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1?x=.pem".to_owned(),
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-../x.pem".to_owned(),
        format!("https://sns.us-east-1.amazonaws.com\\@evil.example/{file}"),
        format!("https://sns.us-east-1.amazonaws.com/{file}\r\nX: y"),
        "https://sns.us-east-1.amazonaws.com".to_owned(),
        String::new(),
    ] {
        assert!(matches!(needs(&wrong), Err(HookRejection::Malformed(_))), "{wrong}");
        let body = signed(&with_field(&notification("x"), "/SigningCertURL", wrong.as_str()));
        assert!(matches!(verdict(&body), Err(HookRejection::Malformed(_))), "{wrong}");
    }
}

#[test]
fn a_subscription_is_confirmed_only_at_sns() {
    let needs = |body: &Value| ses::sns_urls(body.to_string().as_bytes());
    assert_eq!(needs(&confirmation()).unwrap().subscribe_url.as_deref(), Some(SUBSCRIBE_URL));
    for wrong in [
        "https://evil.example/?Action=ConfirmSubscription&Token=1",
        "http://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription",
        "https://sns.us-east-1.amazonaws.com/?Action=DeleteTopic",
        "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscriptionX",
        "https://sns.us-east-1.amazonaws.com:22/?Action=ConfirmSubscription",
        "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=1\r\nHost: evil.example",
        "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=1#here",
        "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=1 2",
        "https://169.254.169.254/latest/meta-data/?Action=ConfirmSubscription",
    ] {
        let body = with_field(&confirmation(), "/SubscribeURL", wrong);
        assert!(matches!(needs(&body), Err(HookRejection::Malformed(_))), "{wrong}");
        assert!(matches!(verdict(&signed(&body)), Err(HookRejection::Malformed(_))), "{wrong}");
    }
}
