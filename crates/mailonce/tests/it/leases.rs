//! Leases: one agent at a time works on a thread, and whoever lost it is told.

use serde_json::{Value, json};
use std::time::Duration;

use crate::{
    call::{Answer, Call, get, post},
    talk::{Letter, word},
    world::{MINUTE, SECOND, World},
};

async fn next(world: &World, body: Value) -> Vec<Value> {
    world.post("/v1/inboxes/a@agents.test/next", &body).await.is(200).rows()
}

async fn settle(world: &World, how: &str, taken: &Value, more: Value) -> Answer {
    let mut body = more;
    body["lease"] = taken["lease"]["token"].clone();
    world.post(&format!("/v1/messages/{}/{how}", word(&taken["message"], "id")), &body).await
}

fn lease_path(thread: &Value) -> String {
    format!("/v1/threads/{}/lease", thread.as_str().unwrap())
}

over_every_engine! {
    async fn a_key_that_is_tied_to_an_inbox_looks_past_the_threads_of_others(world) {
        let world = world.with_inboxes().await;
        world.inbox("a").await;
        world.inbox("b").await;
        let tied = world.api_key(&json!({ "name": "t", "scopes": ["read"], "inboxes": ["a@agents.test"] })).await;
        for id in ["1", "2", "3"] {
            world.hears(Letter { id, ..Letter::default() }).await;
        }
        for id in ["4", "5", "6", "7", "8"] {
            world.arrives(&["b@agents.test"], &Letter { id, ..Letter::default() }.raw()).await;
        }
        let first = world.call(get("/v1/threads?limit=2").by(&tied)).await.is(200);
        let rest = format!("/v1/threads?limit=2&cursor={}", first.word("next_cursor"));
        let rest = world.call(get(&rest).by(&tied)).await.is(200);
        assert_eq!((first.rows().len(), rest.rows().len(), &rest["next_cursor"]), (2, 1, &Value::Null));
    }

    async fn a_thread_is_held_by_one_agent_and_others_are_told(world) {
        let world = world.with_inboxes().await;
        world.inbox("a").await;
        let message = world.hears(Letter::default()).await;
        let path = lease_path(&message["thread_id"]);
        let taken = world.post(&path, &json!({ "ttl_s": 60, "holder": "one" })).await.is(201);
        assert_eq!((&taken["fence"], &taken["holder"]), (&json!(1), &json!("one")));
        let busy = world.post(&path, &json!({ "holder": "two" })).await.refused(409, "leased");
        assert_eq!((&busy["holder"], &busy["expires_at"]), (&json!("one"), &taken["expires_at"]));
        assert!(!busy.text.contains(&taken.word("token")));
        let refused = world.reply(&message, "x").await.refused(409, "leased");
        assert_eq!((&refused["guard"], &refused["holder"], &refused["fence"]), (&json!("leased"), &json!("one"), &json!(1)));
        let id = word(&message, "id");
        assert_eq!(world.get(&format!("/v1/messages/{id}")).await["state"], "leased");
        assert_eq!(world.get("/v1/inboxes/a@agents.test/messages?state=leased").await.rows().len(), 1);
        assert_eq!(world.get("/v1/inboxes/a@agents.test/messages?state=unanswered").await.rows().len(), 0);
        let renewed = world.post(&path, &json!({ "token": taken["token"], "ttl_s": 120, "holder": "one" })).await.is(201);
        assert_eq!((&renewed["token"], &renewed["fence"]), (&taken["token"], &json!(1)));
        // Nobody gives back what another holds.
        let delete = |token: &Value| world.call(Call::new("DELETE", &path).json(&json!({ "token": token })));
        delete(&json!("lt_other")).await.refused(409, "leased");
        delete(&taken["token"]).await.is(200);
        delete(&taken["token"]).await.is(200);
        // Nobody has it now, so nobody is said to work on it.
        for token in [&json!("lt_other"), &taken["token"]] {
            let late = world.reply_with(&message, json!({ "text": "x", "lease": token })).await.refused(409, "leased");
            assert_eq!(late["holder"], Value::Null, "{}", late.text);
            assert_eq!(late["title"], "You do not hold the lease of this thread");
            assert!(late.word("detail").contains("not of the latest lease"), "{}", late.text);
            assert!(late.word("next").contains("nobody works on the thread"), "{}", late.text);
        }
        assert_eq!(world.get(&format!("/v1/messages/{id}")).await["state"], "unanswered");
        world.post(&path, &json!({ "ttl_s": 601 })).await.refused(422, "invalid_field");
        let two = world.post(&path, &json!({ "holder": "two" })).await.is(201);
        assert_eq!(two["fence"], 2);
    }

    async fn a_lease_under_a_key_is_given_once(world) {
        let world = world.with_inboxes().await;
        world.inbox("a").await;
        let message = world.hears(Letter::default()).await;
        let path = lease_path(&message["thread_id"]);
        let ask = || world.call(post(&path).key("l1").json(&json!({ "holder": "one" })));
        let first = ask().await.is(201);
        assert_eq!(ask().await.is(201).body, first.body);
        assert_eq!(world.get(&format!("/v1/threads/{}", word(&message, "thread_id"))).await["fence"], 1);
    }

    async fn a_worker_that_slept_past_its_lease_sends_nothing_after_another_did(world) {
        let world = world.with_inboxes().await;
        world.inbox("a").await;
        world.hears(Letter::default()).await;
        let one = next(&world, json!({ "holder": "one", "ttl_s": 30 })).await.remove(0);
        assert!(next(&world, json!({ "holder": "two" })).await.is_empty());
        world.pass(31 * SECOND);
        let two = next(&world, json!({ "holder": "two", "ttl_s": 30 })).await.remove(0);
        assert_eq!((&two["message"]["id"], &two["lease"]["fence"]), (&one["message"]["id"], &json!(2)));
        let body = |taken: &Value, text: &str| json!({ "text": text, "lease": taken["lease"]["token"] });
        world.reply_with(&two["message"], body(&two, "Answer of two")).await.is(202);
        // Asleep until now: its answer finds the other's, and its lease does nothing.
        let late = world.reply_with(&one["message"], body(&one, "Answer of one")).await.is(200);
        assert_eq!(late["guard"], "already_answered");
        let follow = json!({ "text": "But I say", "follow_up": 1, "lease": one["lease"]["token"] });
        world.reply_with(&one["message"], follow).await.refused(409, "leased");
        settle(&world, "ack", &one, json!({})).await.refused(409, "leased");
        settle(&world, "ack", &two, json!({})).await.is(200);
        settle(&world, "ack", &two, json!({})).await.is(200);
        assert_eq!(world.sent().await, 1);
    }

    async fn a_lapsed_lease_that_nobody_took_still_answers(world) {
        let world = world.with_inboxes().await;
        world.inbox("a").await;
        world.hears(Letter::default()).await;
        let one = next(&world, json!({ "holder": "one", "ttl_s": 1 })).await.remove(0);
        world.pass(MINUTE);
        let body = json!({ "text": "Slow", "lease": one["lease"]["token"] });
        world.reply_with(&one["message"], body).await.is(202);
        assert_eq!(world.sent().await, 1);
    }

    async fn two_messages_of_a_thread_are_both_answered_in_their_order(world) {
        let world = world.with_inboxes().await;
        world.inbox("a").await;
        let first = world.hears(Letter::default()).await;
        let head = "References: <1@shop.test>\n".to_owned();
        let second = world.hears(Letter { id: "2", head, text: "And?", ..Letter::default() }).await;
        let taken = next(&world, json!({ "limit": 10, "holder": "one" })).await;
        assert_eq!(taken.len(), 1, "one message of a thread at a time");
        assert_eq!(taken[0]["message"]["id"], first["id"]);
        // Another worker finds the thread busy, and the second message is not lost.
        assert!(next(&world, json!({ "holder": "two" })).await.is_empty());
        let lease = &taken[0]["lease"]["token"];
        assert_eq!(taken[0]["newer"], json!([second["id"]]));
        let body = json!({ "text": "To the first", "lease": lease, "seen": taken[0]["newer"] });
        world.reply_with(&first, body).await.is(202);
        settle(&world, "ack", &taken[0], json!({})).await.is(200);
        let then = next(&world, json!({ "holder": "two" })).await.remove(0);
        assert_eq!(then["message"]["id"], second["id"]);
        let body = json!({ "text": "To the second", "lease": then["lease"]["token"] });
        world.reply_with(&second, body).await.is(202);
        settle(&world, "ack", &then, json!({})).await.is(200);
        assert!(next(&world, json!({})).await.is_empty());
        assert_eq!(world.sent().await, 2);
    }

    async fn what_was_given_back_is_offered_again_after_its_pause(world) {
        let world = world.with_inboxes().await;
        world.inbox("a").await;
        world.hears(Letter::default()).await;
        let taken = next(&world, json!({})).await.remove(0);
        let extended = settle(&world, "extend", &taken, json!({ "ttl_s": 600 })).await.is(200);
        assert_eq!((&extended["message"]["state"], &extended["lease"]["fence"]), (&json!("leased"), &json!(1)));
        world.pass(5 * MINUTE);
        assert!(next(&world, json!({})).await.is_empty());
        settle(&world, "nack", &taken, json!({ "delay_s": 60 })).await.is(200);
        assert!(next(&world, json!({})).await.is_empty());
        world.pass(61 * SECOND);
        assert_eq!(next(&world, json!({})).await.len(), 1);
        settle(&world, "nack", &taken, json!({ "delay_s": 999_999 })).await.refused(422, "invalid_field");
    }

    async fn a_message_that_nobody_answers_is_asked_about(world) {
        let world = world.with_inboxes().await;
        world.inbox("a").await;
        let message = world.hears(Letter::default()).await;
        for _ in 0..5 {
            assert_eq!(next(&world, json!({ "ttl_s": 1 })).await.len(), 1);
            world.pass(2 * SECOND);
        }
        assert!(world.questions("").await.is_empty());
        assert!(next(&world, json!({})).await.is_empty());
        let asked = world.questions("reason=unanswered").await;
        assert_eq!((asked.len(), &asked[0]["about"]["message"]), (1, &message["id"]));
        let read = world.get(&format!("/v1/messages/{}", word(&message, "id"))).await.is(200);
        assert_eq!(read["state"], "skipped");
        let told = world.events().await;
        let skipped = told.iter().find(|event| event["type"] == "message.skipped").unwrap();
        assert_eq!(skipped["data"]["why"], "offered_in_vain");
        // It can still be answered, and then nothing is left to ask.
        world.reply(&message, "Sorry for the delay").await.is(202);
        world.engine.tend_questions().await;
        assert_eq!(world.questions("reason=unanswered").await[0]["state"], "moot");
    }

    async fn what_was_taken_under_a_key_is_taken_once(world) {
        let world = world.with_inboxes().await;
        world.inbox("a").await;
        world.hears(Letter::default()).await;
        world.hears(Letter { id: "2", ..Letter::default() }).await;
        let ask = || world.call(post("/v1/inboxes/a@agents.test/next").key("n1").json(&json!({ "ttl_s": 60 })));
        let first = ask().await.is(200);
        assert_eq!(first.rows().len(), 1);
        let again = ask().await.is(200);
        assert_eq!(again["data"][0]["lease"], first["data"][0]["lease"]);
        assert_eq!(again.rows().len(), 1);
        assert_eq!(next(&world, json!({ "limit": 10 })).await.len(), 1);
    }

    async fn whoever_waits_is_woken_by_a_message(world) {
        let world = world.with_inboxes().await;
        world.inbox("a").await;
        let body = json!({ "wait": 30, "holder": "waits" });
        let waits = world.post("/v1/inboxes/a@agents.test/next", &body);
        let arrives = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            world.hears(Letter::default()).await
        };
        let (taken, message) = tokio::time::timeout(Duration::from_secs(20), Box::pin(async { tokio::join!(waits, arrives) }))
            .await
            .unwrap();
        assert_eq!(taken.is(200)["data"][0]["message"]["id"], message["id"]);
        world.call(get("/v1/inboxes/a@agents.test/next")).await.refused(405, "method_not_allowed");
    }
}
