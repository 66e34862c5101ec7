//! Amazon SES: events inside signed messages of SNS, with a certificate to fetch and a subscription to confirm.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use serde_json::{Value, json};

use crate::{
    call::post,
    wired::Wired,
    world::{HOUR, World, mail},
};

const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:bounces";
const CERTIFICATE: &str = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem";
const SUBSCRIBE: &str = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=t&Token=x";

/// A message of SNS, signed with the key behind our certificate.
fn sns(world: &World, mut message: Value) -> Value {
    message["Timestamp"] = json!(world.engine.now().to_string());
    message["MessageId"] = json!("m-1");
    let names: &[&str] = if message["Type"] == "Notification" {
        &["Message", "MessageId", "Timestamp", "TopicArn", "Type"]
    } else {
        &["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
    };
    let text: String = names.iter().flat_map(|name| [name, "\n", message[*name].as_str().unwrap(), "\n"]).collect();
    let key = RsaKeyPair::from_pkcs8(include_bytes!("data/sns-key.der")).unwrap();
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
    message["SignatureVersion"] = json!("2");
    message["SigningCertURL"] = json!(CERTIFICATE);
    message["Signature"] = json!(STANDARD.encode(signature));
    message
}

fn confirmation(world: &World, topic: &str) -> Value {
    let message = json!({ "Type": "SubscriptionConfirmation", "TopicArn": topic, "Message": "confirm", "Token": "x",
        "SubscribeURL": SUBSCRIBE });
    sns(world, message)
}

async fn ses(world: World) -> (Wired, String) {
    let wired = Wired::new(world, false).await;
    let body = json!({ "name": "ses", "kind": "ses", "transport": "relay", "topics": [TOPIC] });
    let path = wired.world.post("/v1/sources", &body).await.is(201).word("path");
    (wired, path)
}

over_memory_and_sqlite! {
    async fn ses_is_proven_by_a_certificate_that_is_fetched_once(world) {
        let (wired, path) = ses(world).await;
        wired.pages.put(CERTIFICATE, include_bytes!("data/sns-cert.pem"));
        let email = wired.world.send("k", &mail()).await.is(202).word("id");
        wired.hand_over("relay", "ses-1").await;
        let event = json!({ "eventType": "Bounce", "mail": { "messageId": "ses-1", "tags": { "mailonce": [email] } },
            "bounce": { "bounceType": "Permanent", "bouncedRecipients": [{ "emailAddress": "user@example.com" }] } });
        let message = sns(&wired.world, json!({ "Type": "Notification", "TopicArn": TOPIC, "Message": event.to_string() }));
        // SNS declares its JSON as text.
        let call = || post(&path).anonymous().header("content-type", "text/plain").bytes(message.to_string());
        assert_eq!(wired.world.call(call()).await.is(200)["learnt"], 1);
        assert_eq!(wired.world.call(call()).await.is(200)["repeated"], 1);
        assert_eq!(wired.world.email(&email).await["state"], "bounced");
        assert_eq!(wired.pages.asked(), [CERTIFICATE]);
        let mut forged = message.clone();
        forged["Message"] = json!(event.to_string().replace("Bounce", "Complaint"));
        wired.world.call(post(&path).anonymous().bytes(forged.to_string())).await.refused(401, "bad_signature");
    }

    async fn a_subscription_is_confirmed_only_for_a_topic_of_the_source(world) {
        let (wired, path) = ses(world).await;
        let post_it = async |message: Value| wired.world.call(post(&path).anonymous().bytes(message.to_string())).await;
        let foreign = confirmation(&wired.world, "arn:aws:sns:eu-west-1:123456789012:foreign");
        post_it(foreign).await.refused(401, "bad_signature");
        assert!(wired.pages.asked().is_empty(), "nothing is fetched for a stranger");
        // Our own trouble: SNS must come again.
        post_it(confirmation(&wired.world, TOPIC)).await.refused(503, "unavailable");
        wired.pages.put(CERTIFICATE, include_bytes!("data/sns-cert.pem"));
        post_it(confirmation(&wired.world, TOPIC)).await.refused(503, "unavailable");
        wired.pages.put(SUBSCRIBE, b"<xml/>");
        post_it(confirmation(&wired.world, TOPIC)).await.is(200);
        assert_eq!(wired.pages.asked().last().map(String::as_str), Some(SUBSCRIBE));
        wired.world.pass(2 * HOUR);
        let stale = confirmation(&wired.world, TOPIC);
        wired.world.pass(2 * HOUR);
        let before = wired.pages.asked().len();
        post_it(stale).await.refused(503, "unavailable");
        assert_eq!(wired.pages.asked().len(), before, "an old request confirms nothing");
    }
}
