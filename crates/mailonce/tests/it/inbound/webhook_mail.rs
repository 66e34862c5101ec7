//! Mail received by webhook: authenticated, stored before the response, and one message however often it is posted.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use std::fmt::Write as _;

use crate::fixtures::{
    api_fixture::{MINUTE, World},
    engine_deps::unix_seconds,
    requests::{TestRequest, TestResponse, get, post},
};

const SIGNING_KEY: &[u8; 24] = b"a secret of 24 letters!!";
const TOKEN: &str = "0123456789abcdef";
const RAW_MAIL: &str =
    "From: Ann <ann@shop.test>\r\nTo: other@shop.test\r\nMessage-ID: <1@shop.test>\r\nSubject: Hi\r\n\r\nHello\r\n";

async fn create_source(world: &World, kind: &str, proof: (&str, Value)) -> String {
    let mut body = json!({ "name": kind, "kind": kind, "accepts": ["inbound"] });
    body[proof.0] = proof.1;
    world.post("/v1/sources", &body).await.expect_status(201).string_field("hook_path")
}

fn hmac_sha256(text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(SIGNING_KEY).unwrap();
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// A request signed as Standard Webhooks describes.
fn signed_webhook(world: &World, path: &str, id: &str, body: &str) -> TestRequest {
    let at = unix_seconds(world.engine.ctx.now());
    let signature = format!("v1,{}", STANDARD.encode(hmac_sha256(format!("{id}.{at}.{body}").as_bytes())));
    let call = post(path).anonymous().header("webhook-id", id).header("webhook-timestamp", &at);
    call.header("webhook-signature", &signature).header("content-type", "application/json").raw_body(body.to_owned())
}

async fn create_standard_source(world: &World) -> String {
    create_source(world, "standard", ("secret", json!(format!("whsec_{}", STANDARD.encode(SIGNING_KEY))))).await
}

fn inbound_webhook_body(recipients: &[&str]) -> String {
    json!({ "recipients": recipients, "sender": "bounce@shop.test", "raw": STANDARD.encode(RAW_MAIL) }).to_string()
}

async fn parse_and_list_messages(world: &World, inbox: &str) -> Vec<Value> {
    while world.engine.inbound.process_waiting_deliveries().await.unwrap() > 0 {}
    world.get(&format!("/v1/inboxes/{inbox}/messages?limit=100")).await.expect_status(200).rows()
}

fn delivery_counts(answer: &TestResponse) -> [u64; 3] {
    ["deliveries_accepted", "deliveries_duplicate", "deliveries_refused"].map(|word| answer[word].as_u64().unwrap())
}

over_every_engine! {
    async fn a_mail_posted_ten_times_is_one_message(world) {
        let world = world.with_inbox_domain().await;
        let (a, b) = (world.create_inbox("a").await, world.create_inbox("b").await);
        let path = create_standard_source(&world).await;
        let body = inbound_webhook_body(&["a@agents.test", "b@agents.test", "nobody@agents.test", "x@elsewhere.test"]);
        let first = world.call(signed_webhook(&world, &path, "m1", &body)).await.expect_status(200);
        assert_eq!(delivery_counts(&first), [2, 0, 2]);
        for _ in 0..9 {
            world.advance_clock(MINUTE);
            let again = world.call(signed_webhook(&world, &path, "m1", &body)).await.expect_status(200);
            assert_eq!(again["deliveries_accepted"], 0, "{}", again.text);
            assert_eq!(again["deliveries_duplicate"].as_u64().unwrap() + again["deliveries_refused"].as_u64().unwrap(), 4);
        }
        for inbox in [&a, &b] {
            let rows = parse_and_list_messages(&world, inbox).await;
            assert_eq!((rows.len(), &rows[0]["subject"]), (1, &json!("Hi")));
        }
        let deliveries = world.get("/v1/deliveries?limit=100").await.expect_status(200).rows();
        assert!(deliveries.iter().any(|row| row["reason"] == "unknown_inbox"), "a delivery to an unknown inbox is recorded too");
    }

    async fn an_unauthenticated_webhook_stores_nothing(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let path = create_standard_source(&world).await;
        let body = inbound_webhook_body(&["a@agents.test"]);
        let tampered = signed_webhook(&world, &path, "m1", &body).raw_body(body.replace("a@agents", "b@agents"));
        world.call(tampered).await.expect_problem(401, "bad_signature");
        let old = signed_webhook(&world, &path, "m1", &body);
        world.advance_clock(6 * MINUTE);
        world.call(old).await.expect_status(503);
        world.call(signed_webhook(&world, &path, "m2", "{}")).await.expect_status(400);
        assert!(parse_and_list_messages(&world, &inbox).await.is_empty());
        assert!(world.get("/v1/deliveries?limit=100").await.expect_status(200).rows().is_empty());
    }

    async fn a_source_cannot_deliver_to_another_teams_inbox(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let other = world.create_team("other").await;
        let secret = format!("whsec_{}", STANDARD.encode(SIGNING_KEY));
        let body = json!({ "name": "s", "kind": "standard", "secret": secret });
        let path = world.call(post("/v1/sources").bearer(&other).json(&body)).await.expect_status(201).string_field("hook_path");
        let answer = world.call(signed_webhook(&world, &path, "m1", &inbound_webhook_body(&["a@agents.test"]))).await.expect_status(200);
        assert_eq!(delivery_counts(&answer), [0, 0, 1]);
        assert!(parse_and_list_messages(&world, &inbox).await.is_empty());
    }

    async fn postmark_mail_is_delivered_by_envelope_recipient_and_may_be_large(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let path = create_source(&world, "postmark", ("bearer_token", json!(TOKEN))).await;
        let file = STANDARD.encode(vec![7_u8; 2 << 20]);
        let body = json!({ "MessageID": "pm-1", "FromFull": { "Email": "ann@shop.test", "Name": "Ann" }, "Subject": "Hi",
            "ToFull": [{ "Email": "list@shop.test" }], "OriginalRecipient": "a@agents.test", "TextBody": "Hello",
            "Attachments": [{ "Name": "a.bin", "Content": file, "ContentType": "application/octet-stream" }] });
        let call = || post(&path).anonymous().header("authorization", &format!("Bearer {TOKEN}")).json_bytes(body.to_string());
        assert_eq!(delivery_counts(&world.call(call()).await.expect_status(200)), [1, 0, 0]);
        assert_eq!(delivery_counts(&world.call(call()).await.expect_status(200)), [0, 1, 0]);
        let rows = parse_and_list_messages(&world, &inbox).await;
        assert_eq!((rows.len(), &rows[0]["recipient"]), (1, &json!("a@agents.test")));
        // A source for events only reads at most one megabyte.
        let events = json!({ "name": "events", "kind": "postmark", "transport": "sandbox", "bearer_token": TOKEN });
        let events = world.post("/v1/sources", &events).await.expect_status(201).string_field("hook_path");
        let large = post(&events).anonymous().header("authorization", &format!("Bearer {TOKEN}")).json_bytes(body.to_string());
        world.call(large).await.expect_status(413);
    }

    async fn a_mailgun_token_is_valid_for_one_mail(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let path = create_source(&world, "mailgun", ("secret", json!(std::str::from_utf8(SIGNING_KEY).unwrap()))).await;
        let at = unix_seconds(world.engine.ctx.now());
        let form = |token: &str, text: &str| {
            let signature = hex(&hmac_sha256(format!("{at}{token}").as_bytes()));
            let body = format!(
                "recipient=a%40agents.test&sender=ann%40shop.test&from=ann%40shop.test&subject=Hi&body-plain={text}&timestamp={at}&token={token}&signature={signature}"
            );
            post(&path).anonymous().header("content-type", "application/x-www-form-urlencoded").raw_body(body)
        };
        assert_eq!(delivery_counts(&world.call(form("t1", "one")).await.expect_status(200)), [1, 0, 0]);
        world.call(form("t1", "two")).await.expect_problem(401, "bad_signature");
        world.advance_clock(8 * 60 * MINUTE);
        assert_eq!(delivery_counts(&world.call(form("t1", "one")).await.expect_status(200)), [0, 1, 0]);
        assert_eq!(delivery_counts(&world.call(form("t2", "one")).await.expect_status(200)), [0, 1, 0], "the same mail with a new signature");
        assert_eq!(parse_and_list_messages(&world, &inbox).await.len(), 1);
    }

    async fn nylas_gets_its_challenge_and_truncated_mail_becomes_a_dead_delivery(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let path = create_source(&world, "nylas", ("secret", json!(std::str::from_utf8(SIGNING_KEY).unwrap()))).await;
        let challenge = world.call(get(&format!("{path}?challenge=abc-123")).anonymous()).await.expect_status(200);
        assert_eq!(challenge.text, "abc-123");
        let webhook = |kind: &str, id: &str| {
            let object = json!({ "id": id, "grant_id": "g", "from": [{ "email": "ann@shop.test" }], "subject": "Hi",
                "to": [{ "email": "x@elsewhere.test" }, { "email": "a@agents.test" }], "body": "<p>Hello</p>" });
            let body = json!({ "type": kind, "id": "n", "data": { "object": object } }).to_string();
            let signature = hex(&hmac_sha256(body.as_bytes()));
            post(&path).anonymous().header("x-nylas-signature", &signature).json_bytes(body)
        };
        assert_eq!(delivery_counts(&world.call(webhook("message.created", "m1")).await.expect_status(200)), [1, 0, 0]);
        assert_eq!(delivery_counts(&world.call(webhook("message.created", "m1")).await.expect_status(200)), [0, 1, 0]);
        assert_eq!(delivery_counts(&world.call(webhook("message.created.truncated", "m2")).await.expect_status(200)), [1, 0, 0]);
        assert_eq!(parse_and_list_messages(&world, &inbox).await.len(), 1);
        let rows = world.get(&format!("/v1/deliveries?inbox={inbox}&limit=100")).await.expect_status(200).rows();
        let dead: Vec<&Value> = rows.iter().filter(|row| row["state"] == "dead").collect();
        assert_eq!(dead.len(), 1, "a mail that cannot be fetched is visible: {rows:?}");
    }

    async fn the_accepts_field_of_a_source_is_validated(world) {
        let secret = json!(format!("whsec_{}", STANDARD.encode(SIGNING_KEY)));
        let cases = [
            (json!({ "name": "n", "kind": "standard", "accepts": ["events"], "secret": secret }), "accepts"),
            (json!({ "name": "n", "kind": "brevo", "accepts": ["inbound"], "bearer_token": TOKEN }), "accepts"),
            (json!({ "name": "n", "kind": "resend", "accepts": ["inbound", "mail"], "secret": secret }), "accepts"),
            (json!({ "name": "n", "kind": "resend", "accepts": [], "secret": secret }), "accepts"),
            (json!({ "name": "n", "kind": "resend", "secret": secret }), "transport"),
            (json!({ "name": "n", "kind": "sendgrid", "transport": "sandbox", "bearer_token": TOKEN }), "secret"),
        ];
        for (body, field) in cases {
            world.post("/v1/sources", &body).await.expect_problem(422, "invalid_field").expect_field(field);
        }
        let body = json!({ "name": "n", "kind": "resend", "accepts": ["inbound"], "secret": secret });
        let created = world.post("/v1/sources", &body).await.expect_status(201);
        assert_eq!((&created["accepts"], &created["transport"]), (&json!(["inbound"]), &Value::Null));
        // A source for inbound mail ignores events.
        let event = json!({ "type": "email.delivered", "data": { "email_id": "x" } }).to_string();
        let answer = world.call(signed_webhook(&world, &created.string_field("hook_path"), "e1", &event)).await.expect_status(200);
        assert_eq!((&answer["ignored"], &answer["recorded"]), (&json!(1), &json!(0)));
    }
}
