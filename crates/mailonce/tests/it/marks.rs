//! What a caller calls its own call: kept beside what the call did, shown, told, and never a reason for anything.

use serde_json::{Value, json};

use crate::{
    call::{Answer, Call, post},
    talk::{Letter, reply_path},
    world::{World, about, mail, mail_with},
};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn called(world: &World, call: Call, id: &str) -> Answer {
    world.call(call.header("mailonce-call-id", id)).await
}

fn told(email: &Value, words: &str) -> bool {
    email["timeline"].as_array().unwrap().iter().any(|fact| fact["what"] == words)
}

over_every_engine! {
    async fn a_call_and_its_repeat_are_kept_under_their_own_names(world) {
        let send = || post("/v1/emails").json(&about("order_1"));
        let first = called(&world, send().header("traceparent", TRACE), "toolu_1").await.is(202);
        let again = called(&world, send(), "call%201%20of%20%C3%BC").await.is(200);
        assert_eq!((&again["id"], &again["dedupe"]["payload_differs"]), (&first["id"], &json!(false)));
        world.engine.write_suppressed().await;
        let email = world.email(&first.word("id")).await;
        assert_eq!(email["call"], json!({ "id": "toolu_1", "traceparent": TRACE }));
        assert_eq!(email["suppressed_calls"][0]["call"], json!({ "id": "call 1 of ü" }));
        assert!(told(&email, "accepted, call toolu_1"), "{email}");
        assert!(told(&email, "a repeat by http was suppressed: key_replay, call call 1 of ü"), "{email}");
        let events = world.events().await;
        assert_eq!(events[0]["data"]["call"], email["call"]);
        assert!(events[1..].iter().all(|event| event["data"].get("call").is_none()), "{events:?}");
    }

    async fn the_same_name_of_a_call_is_no_key(world) {
        let one = called(&world, post("/v1/emails").json(&mail()), "toolu_1").await.is(202);
        let other = mail_with(json!({ "subject": "Order 4822", "text": "Another matter." }));
        let two = called(&world, post("/v1/emails").json(&other), "toolu_1").await.is(202);
        assert_ne!(one["id"], two["id"]);
    }

    async fn answers_versions_and_items_keep_the_name_of_their_call(world) {
        let world = world.with_inboxes().await;
        world.inbox("a").await;
        let message = world.hears(Letter::default()).await;
        let reply = || post(&reply_path(&message)).json(&json!({ "text": "Yes." }));
        let sent = called(&world, reply(), "toolu_1").await.is(202);
        called(&world, reply(), "toolu_2").await.is(200);
        world.engine.write_suppressed().await;
        let email = world.email(&sent.word("id")).await;
        assert_eq!(email["call"]["id"], "toolu_1");
        assert_eq!(email["suppressed_calls"][0]["call"]["id"], "toolu_2");
        world.hand_over().await;
        let again = post(&format!("/v1/emails/{}/resend", sent.word("id")));
        let version = called(&world, again, "toolu_3").await.is(202).word("id");
        assert_eq!(world.email(&version).await["call"]["id"], "toolu_3");
        let batch = called(&world, post("/v1/emails/batch").json(&json!([mail()])), "toolu_4").await.is(202);
        let item = batch["data"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(world.email(&item).await["call"]["id"], "toolu_4");
    }

    async fn a_name_that_cannot_be_kept_is_refused_and_a_broken_trace_passed_over(world) {
        for bad in ["a%0Ab", "\u{fc}", &"x".repeat(257)] {
            let refused = called(&world, post("/v1/emails").json(&about("o")), bad).await;
            refused.refused(422, "invalid_field").at("Mailonce-Call-Id");
        }
        assert_eq!(world.count().await, 0);
        let call = post("/v1/emails").header("traceparent", "00-not-a-trace").json(&about("o"));
        let sent = called(&world, call, "").await.is(202);
        assert!(world.email(&sent.word("id")).await.get("call").is_none());
        let broken = called(&world, post("/v1/emails").json(&about("p")), "50%25%zz%E2%8").await.is(202);
        assert_eq!(world.email(&broken.word("id")).await["call"]["id"], "50%25%zz%E2%8");
    }
}
