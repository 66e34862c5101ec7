//! Amazon SES: events in signed SNS messages, with a certificate to fetch and a subscription to confirm.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{HOUR, World, mail},
    engine_deps::TransportFixture,
    requests::post,
};

const TOPIC_ARN: &str = "arn:aws:sns:eu-west-1:123456789012:bounces";
const CERTIFICATE_URL: &str = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem";
const SUBSCRIBE_URL: &str = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=t&Token=x";

/// An SNS message, signed with the key of the test certificate.
fn signed_sns_message(world: &World, mut message: Value) -> Value {
    message["Timestamp"] = json!(world.engine.ctx.now().to_string());
    message["MessageId"] = json!("m-1");
    let names: &[&str] = if message["Type"] == "Notification" {
        &["Message", "MessageId", "Timestamp", "TopicArn", "Type"]
    } else {
        &["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
    };
    let text: String = names.iter().flat_map(|name| [name, "\n", message[*name].as_str().unwrap(), "\n"]).collect();
    let key = RsaKeyPair::from_pkcs8(include_bytes!("../fixtures/sns-key.der")).unwrap();
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
    message["SignatureVersion"] = json!("2");
    message["SigningCertURL"] = json!(CERTIFICATE_URL);
    message["Signature"] = json!(STANDARD.encode(signature));
    message
}

fn subscription_confirmation(world: &World, topic: &str) -> Value {
    let message = json!({ "Type": "SubscriptionConfirmation", "TopicArn": topic, "Message": "confirm", "Token": "x",
        "SubscribeURL": SUBSCRIBE_URL });
    signed_sns_message(world, message)
}

async fn create_ses_source(world: World) -> (TransportFixture, String) {
    let fixture = TransportFixture::new(world, false).await;
    let body = json!({ "name": "ses", "kind": "ses", "transport": "relay", "sns_topics": [TOPIC_ARN] });
    let path = fixture.world.post("/v1/sources", &body).await.expect_status(201).string_field("hook_path");
    (fixture, path)
}

over_memory_and_sqlite! {
    async fn ses_events_are_verified_with_a_certificate_that_is_fetched_once(world) {
        let (fixture, path) = create_ses_source(world).await;
        fixture.fetcher.add_page(CERTIFICATE_URL, include_bytes!("../fixtures/sns-cert.pem"));
        let email = fixture.world.send("k", &mail()).await.expect_status(202).string_field("id");
        fixture.hand_off("relay", "ses-1").await;
        let event = json!({ "eventType": "Bounce", "mail": { "messageId": "ses-1", "tags": { "mailonce": [email] } },
            "bounce": { "bounceType": "Permanent", "bouncedRecipients": [{ "emailAddress": "user@example.com" }] } });
        let message = signed_sns_message(&fixture.world, json!({ "Type": "Notification", "TopicArn": TOPIC_ARN, "Message": event.to_string() }));
        // SNS sends its JSON as text/plain.
        let call = || post(&path).anonymous().header("content-type", "text/plain").raw_body(message.to_string());
        assert_eq!(fixture.world.call(call()).await.expect_status(200)["recorded"], 1);
        assert_eq!(fixture.world.call(call()).await.expect_status(200)["already_known"], 1);
        assert_eq!(fixture.world.email(&email).await["state"], "bounced");
        assert_eq!(fixture.fetcher.requested_urls(), [CERTIFICATE_URL]);
        let mut forged = message.clone();
        forged["Message"] = json!(event.to_string().replace("Bounce", "Complaint"));
        fixture.world.call(post(&path).anonymous().raw_body(forged.to_string())).await.expect_problem(401, "bad_signature");
    }

    async fn a_subscription_is_confirmed_only_for_a_topic_of_the_source(world) {
        let (fixture, path) = create_ses_source(world).await;
        let post_message = async |message: Value| fixture.world.call(post(&path).anonymous().raw_body(message.to_string())).await;
        let foreign = subscription_confirmation(&fixture.world, "arn:aws:sns:eu-west-1:123456789012:foreign");
        post_message(foreign).await.expect_problem(401, "bad_signature");
        assert!(fixture.fetcher.requested_urls().is_empty(), "nothing is fetched for an unknown topic");
        // The failure is on our side, so SNS is asked to retry.
        post_message(subscription_confirmation(&fixture.world, TOPIC_ARN)).await.expect_problem(503, "unavailable");
        fixture.fetcher.add_page(CERTIFICATE_URL, include_bytes!("../fixtures/sns-cert.pem"));
        post_message(subscription_confirmation(&fixture.world, TOPIC_ARN)).await.expect_problem(503, "unavailable");
        fixture.fetcher.add_page(SUBSCRIBE_URL, b"<xml/>");
        post_message(subscription_confirmation(&fixture.world, TOPIC_ARN)).await.expect_status(200);
        assert_eq!(fixture.fetcher.requested_urls().last().map(String::as_str), Some(SUBSCRIBE_URL));
        fixture.world.advance_clock(2 * HOUR);
        let stale = subscription_confirmation(&fixture.world, TOPIC_ARN);
        fixture.world.advance_clock(2 * HOUR);
        let before = fixture.fetcher.requested_urls().len();
        post_message(stale).await.expect_problem(503, "unavailable");
        assert_eq!(fixture.fetcher.requested_urls().len(), before, "a stale request confirms nothing");
    }
}
