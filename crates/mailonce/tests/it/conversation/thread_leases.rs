//! Leases: one agent at a time works on a thread, and an agent that lost its lease gets an error.

use serde_json::{Value, json};
use std::time::Duration;

use crate::fixtures::{
    api_fixture::{MINUTE, SECOND, World},
    conversations::{TestMail, str_field},
    requests::{TestRequest, TestResponse, get, post},
};

async fn lease_next(world: &World, body: Value) -> Vec<Value> {
    world.post("/v1/inboxes/a@agents.test/next", &body).await.expect_status(200).rows()
}

async fn call_with_lease(world: &World, action: &str, taken: &Value, more: Value) -> TestResponse {
    let mut body = more;
    body["lease"] = taken["lease"]["token"].clone();
    world.post(&format!("/v1/messages/{}/{action}", str_field(&taken["message"], "id")), &body).await
}

fn lease_path(thread: &Value) -> String {
    format!("/v1/threads/{}/lease", thread.as_str().unwrap())
}

over_every_engine! {
    async fn pages_for_a_tied_key_skip_threads_of_other_inboxes(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.create_inbox("b").await;
        let tied = world.create_api_key(&json!({ "name": "t", "scopes": ["read"], "inboxes": ["a@agents.test"] })).await;
        for id in ["1", "2", "3"] {
            world.receive_message(TestMail { id, ..TestMail::default() }).await;
        }
        for id in ["4", "5", "6", "7", "8"] {
            world.receive_mail(&["b@agents.test"], &TestMail { id, ..TestMail::default() }.to_raw()).await;
        }
        let first = world.call(get("/v1/threads?limit=2").bearer(&tied)).await.expect_status(200);
        let rest = format!("/v1/threads?limit=2&cursor={}", first.string_field("next_cursor"));
        let rest = world.call(get(&rest).bearer(&tied)).await.expect_status(200);
        assert_eq!((first.rows().len(), rest.rows().len(), &rest["next_cursor"]), (2, 1, &Value::Null));
    }

    async fn a_leased_thread_returns_409_with_the_holder_to_others(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        let path = lease_path(&message["thread_id"]);
        let taken = world.post(&path, &json!({ "ttl_s": 60, "holder": "one" })).await.expect_status(201);
        assert_eq!((&taken["fence"], &taken["holder"]), (&json!(1), &json!("one")));
        let busy = world.post(&path, &json!({ "holder": "two" })).await.expect_problem(409, "leased");
        assert_eq!((&busy["holder"], &busy["expires_at"]), (&json!("one"), &taken["expires_at"]));
        assert!(!busy.text.contains(&taken.string_field("token")));
        let refused = world.reply(&message, "x").await.expect_problem(409, "leased");
        assert_eq!((&refused["guard"], &refused["holder"], &refused["fence"]), (&json!("leased"), &json!("one"), &json!(1)));
        let id = str_field(&message, "id");
        assert_eq!(world.get(&format!("/v1/messages/{id}")).await["state"], "leased");
        assert_eq!(world.get("/v1/inboxes/a@agents.test/messages?state=leased").await.rows().len(), 1);
        assert_eq!(world.get("/v1/inboxes/a@agents.test/messages?state=unanswered").await.rows().len(), 0);
        let renewed = world.post(&path, &json!({ "token": taken["token"], "ttl_s": 120, "holder": "one" })).await.expect_status(201);
        assert_eq!((&renewed["token"], &renewed["fence"]), (&taken["token"], &json!(1)));
        // Another agent's lease cannot be released.
        let delete = |token: &Value| world.call(TestRequest::new("DELETE", &path).json(&json!({ "token": token })));
        delete(&json!("lt_other")).await.expect_problem(409, "leased");
        delete(&taken["token"]).await.expect_status(200);
        delete(&taken["token"]).await.expect_status(200);
        // The lease is free now, so the error names no holder.
        for token in [&json!("lt_other"), &taken["token"]] {
            let late = world.reply_with(&message, json!({ "text": "x", "lease": token })).await.expect_problem(409, "leased");
            assert_eq!(late["holder"], Value::Null, "{}", late.text);
            assert_eq!(late["title"], "You do not hold the lease of this thread");
            assert!(late.string_field("detail").contains("does not belong to the current lease"), "{}", late.text);
            assert!(late.string_field("next").contains("the lease is free"), "{}", late.text);
        }
        assert_eq!(world.get(&format!("/v1/messages/{id}")).await["state"], "unanswered");
        world.post(&path, &json!({ "ttl_s": 601 })).await.expect_problem(422, "invalid_field");
        let two = world.post(&path, &json!({ "holder": "two" })).await.expect_status(201);
        assert_eq!(two["fence"], 2);
    }

    async fn a_lease_with_an_idempotency_key_is_granted_once(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        let path = lease_path(&message["thread_id"]);
        let request = || world.call(post(&path).key("l1").json(&json!({ "holder": "one" })));
        let first = request().await.expect_status(201);
        assert_eq!(request().await.expect_status(201).body, first.body);
        assert_eq!(world.get(&format!("/v1/threads/{}", str_field(&message, "thread_id"))).await["fence"], 1);
    }

    async fn a_worker_with_an_expired_lease_cannot_send_after_another_replied(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.receive_message(TestMail::default()).await;
        let one = lease_next(&world, json!({ "holder": "one", "ttl_s": 30 })).await.remove(0);
        assert!(lease_next(&world, json!({ "holder": "two" })).await.is_empty());
        world.advance_clock(31 * SECOND);
        let two = lease_next(&world, json!({ "holder": "two", "ttl_s": 30 })).await.remove(0);
        assert_eq!((&two["message"]["id"], &two["lease"]["fence"]), (&one["message"]["id"], &json!(2)));
        let body = |taken: &Value, text: &str| json!({ "text": text, "lease": taken["lease"]["token"] });
        world.reply_with(&two["message"], body(&two, "Answer of two")).await.expect_status(202);
        // The late worker gets the other reply back, and its lease no longer counts.
        let late = world.reply_with(&one["message"], body(&one, "Answer of one")).await.expect_status(200);
        assert_eq!(late["guard"], "already_answered");
        let follow = json!({ "text": "But I say", "follow_up": 1, "lease": one["lease"]["token"] });
        world.reply_with(&one["message"], follow).await.expect_problem(409, "leased");
        call_with_lease(&world, "ack", &one, json!({})).await.expect_problem(409, "leased");
        call_with_lease(&world, "ack", &two, json!({})).await.expect_status(200);
        call_with_lease(&world, "ack", &two, json!({})).await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn an_expired_lease_that_was_not_taken_over_can_still_reply(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.receive_message(TestMail::default()).await;
        let one = lease_next(&world, json!({ "holder": "one", "ttl_s": 1 })).await.remove(0);
        world.advance_clock(MINUTE);
        let body = json!({ "text": "Slow", "lease": one["lease"]["token"] });
        world.reply_with(&one["message"], body).await.expect_status(202);
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn two_messages_of_a_thread_are_answered_in_order(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let first = world.receive_message(TestMail::default()).await;
        let head = "References: <1@shop.test>\n".to_owned();
        let second = world.receive_message(TestMail { id: "2", extra_headers: head, text: "And?", ..TestMail::default() }).await;
        let taken = lease_next(&world, json!({ "limit": 10, "holder": "one" })).await;
        assert_eq!(taken.len(), 1, "only one message of a thread is leased at a time");
        assert_eq!(taken[0]["message"]["id"], first["id"]);
        // The thread is busy for another worker, and the second message is not lost.
        assert!(lease_next(&world, json!({ "holder": "two" })).await.is_empty());
        let lease = &taken[0]["lease"]["token"];
        assert_eq!(taken[0]["newer_messages"], json!([second["id"]]));
        let body = json!({ "text": "To the first", "lease": lease, "seen": taken[0]["newer_messages"] });
        world.reply_with(&first, body).await.expect_status(202);
        call_with_lease(&world, "ack", &taken[0], json!({})).await.expect_status(200);
        let second_item = lease_next(&world, json!({ "holder": "two" })).await.remove(0);
        assert_eq!(second_item["message"]["id"], second["id"]);
        let body = json!({ "text": "To the second", "lease": second_item["lease"]["token"] });
        world.reply_with(&second, body).await.expect_status(202);
        call_with_lease(&world, "ack", &second_item, json!({})).await.expect_status(200);
        assert!(lease_next(&world, json!({})).await.is_empty());
        assert_eq!(world.hand_off_and_count_sent().await, 2);
    }

    async fn a_nacked_message_is_offered_again_after_its_delay(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.receive_message(TestMail::default()).await;
        let taken = lease_next(&world, json!({})).await.remove(0);
        let extended = call_with_lease(&world, "extend", &taken, json!({ "ttl_s": 600 })).await.expect_status(200);
        assert_eq!((&extended["message"]["state"], &extended["lease"]["fence"]), (&json!("leased"), &json!(1)));
        world.advance_clock(5 * MINUTE);
        assert!(lease_next(&world, json!({})).await.is_empty());
        call_with_lease(&world, "nack", &taken, json!({ "delay_s": 60 })).await.expect_status(200);
        assert!(lease_next(&world, json!({})).await.is_empty());
        world.advance_clock(61 * SECOND);
        assert_eq!(lease_next(&world, json!({})).await.len(), 1);
        call_with_lease(&world, "nack", &taken, json!({ "delay_s": 999_999 })).await.expect_problem(422, "invalid_field");
    }

    async fn a_message_that_stays_unanswered_opens_an_escalation(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        for _ in 0..5 {
            assert_eq!(lease_next(&world, json!({ "ttl_s": 1 })).await.len(), 1);
            world.advance_clock(2 * SECOND);
        }
        assert!(world.escalations("").await.is_empty());
        assert!(lease_next(&world, json!({})).await.is_empty());
        let escalations = world.escalations("reason=unanswered").await;
        assert_eq!((escalations.len(), &escalations[0]["about"]["message"]), (1, &message["id"]));
        let read = world.get(&format!("/v1/messages/{}", str_field(&message, "id"))).await.expect_status(200);
        assert_eq!(read["state"], "skipped");
        let events = world.events().await;
        let skipped = events.iter().find(|event| event["type"] == "message.skipped").unwrap();
        assert_eq!(skipped["data"]["reason"], "max_offers_reached");
        // It can still be answered, and the escalation then becomes moot.
        world.reply(&message, "Sorry for the delay").await.expect_status(202);
        world.engine.escalations.run_escalation_round().await;
        assert_eq!(world.escalations("reason=unanswered").await[0]["state"], "moot");
    }

    async fn next_with_an_idempotency_key_leases_once(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.receive_message(TestMail::default()).await;
        world.receive_message(TestMail { id: "2", ..TestMail::default() }).await;
        let request = || world.call(post("/v1/inboxes/a@agents.test/next").key("n1").json(&json!({ "ttl_s": 60 })));
        let first = request().await.expect_status(200);
        assert_eq!(first.rows().len(), 1);
        let again = request().await.expect_status(200);
        assert_eq!(again["data"][0]["lease"], first["data"][0]["lease"]);
        assert_eq!(again.rows().len(), 1);
        assert_eq!(lease_next(&world, json!({ "limit": 10 })).await.len(), 1);
    }

    async fn a_waiting_next_call_returns_when_a_message_arrives(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let body = json!({ "wait": 30, "holder": "waits" });
        let waiting_call = world.post("/v1/inboxes/a@agents.test/next", &body);
        let arrives = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            world.receive_message(TestMail::default()).await
        };
        let (taken, message) = tokio::time::timeout(Duration::from_secs(20), Box::pin(async { tokio::join!(waiting_call, arrives) }))
            .await
            .unwrap();
        assert_eq!(taken.expect_status(200)["data"][0]["message"]["id"], message["id"]);
        world.call(get("/v1/inboxes/a@agents.test/next")).await.expect_problem(405, "method_not_allowed");
    }
}
