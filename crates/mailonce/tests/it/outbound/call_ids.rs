//! Call ids: stored with the effect of the call, shown in views and events, and never used for deduplication.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{World, mail, mail_with, mail_with_intent},
    conversations::{TestMail, reply_path},
    requests::{TestRequest, TestResponse, post},
};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn call_with_id(world: &World, call: TestRequest, id: &str) -> TestResponse {
    world.call(call.header("mailonce-call-id", id)).await
}

fn timeline_contains(email: &Value, description: &str) -> bool {
    email["timeline"].as_array().unwrap().iter().any(|entry| entry["description"] == description)
}

over_every_engine! {
    async fn a_call_and_its_replay_keep_their_own_call_ids(world) {
        let send = || post("/v1/emails").json(&mail_with_intent("order_1"));
        let first = call_with_id(&world, send().header("traceparent", TRACEPARENT), "toolu_1").await.expect_status(202);
        let again = call_with_id(&world, send(), "call%201%20of%20%C3%BC").await.expect_status(200);
        assert_eq!((&again["id"], &again["dedupe"]["payload_differs"]), (&first["id"], &json!(false)));
        world.engine.outbound.flush_suppressed_calls().await;
        let email = world.email(&first.string_field("id")).await;
        assert_eq!(email["call"], json!({ "id": "toolu_1", "traceparent": TRACEPARENT }));
        assert_eq!(email["suppressed_calls"][0]["call"], json!({ "id": "call 1 of ü" }));
        assert!(timeline_contains(&email, "accepted, call toolu_1"), "{email}");
        assert!(timeline_contains(&email, "duplicate call via http stopped: same key, same email, call call 1 of ü"), "{email}");
        let events = world.events().await;
        assert_eq!(events[0]["data"]["call"], email["call"]);
        assert!(events[1..].iter().all(|event| event["data"].get("call").is_none()), "{events:?}");
    }

    async fn a_call_id_is_not_an_idempotency_key(world) {
        let one = call_with_id(&world, post("/v1/emails").json(&mail()), "toolu_1").await.expect_status(202);
        let other = mail_with(json!({ "subject": "Order 4822", "text": "Another matter." }));
        let two = call_with_id(&world, post("/v1/emails").json(&other), "toolu_1").await.expect_status(202);
        assert_ne!(one["id"], two["id"]);
    }

    async fn replies_resends_and_batch_items_keep_their_call_id(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        let reply = || post(&reply_path(&message)).json(&json!({ "text": "Yes." }));
        let sent = call_with_id(&world, reply(), "toolu_1").await.expect_status(202);
        call_with_id(&world, reply(), "toolu_2").await.expect_status(200);
        world.engine.outbound.flush_suppressed_calls().await;
        let email = world.email(&sent.string_field("id")).await;
        assert_eq!(email["call"]["id"], "toolu_1");
        assert_eq!(email["suppressed_calls"][0]["call"]["id"], "toolu_2");
        world.hand_off_due().await;
        let again = post(&format!("/v1/emails/{}/resend", sent.string_field("id")));
        let version = call_with_id(&world, again, "toolu_3").await.expect_status(202).string_field("id");
        assert_eq!(world.email(&version).await["call"]["id"], "toolu_3");
        let batch = call_with_id(&world, post("/v1/emails/batch").json(&json!([mail()])), "toolu_4").await.expect_status(202);
        let item = batch["data"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(world.email(&item).await["call"]["id"], "toolu_4");
    }

    async fn an_invalid_call_id_is_refused_and_an_invalid_traceparent_is_ignored(world) {
        for bad in ["a%0Ab", "\u{fc}", &"x".repeat(257)] {
            let refused = call_with_id(&world, post("/v1/emails").json(&mail_with_intent("o")), bad).await;
            refused.expect_problem(422, "invalid_field").expect_field("Mailonce-Call-Id");
        }
        assert_eq!(world.email_count().await, 0);
        let call = post("/v1/emails").header("traceparent", "00-not-a-trace").json(&mail_with_intent("o"));
        let sent = call_with_id(&world, call, "").await.expect_status(202);
        assert!(world.email(&sent.string_field("id")).await.get("call").is_none());
        let broken = call_with_id(&world, post("/v1/emails").json(&mail_with_intent("p")), "50%25%zz%E2%8").await.expect_status(202);
        assert_eq!(world.email(&broken.string_field("id")).await["call"]["id"], "50%25%zz%E2%8");
    }
}
