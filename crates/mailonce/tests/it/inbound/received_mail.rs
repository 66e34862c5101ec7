//! Received mail: every delivery, message, code and link is acted on once.

use mailonce_core::{id::NodeId, inbound::delivery::ReceiveResult};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::fixtures::{
    api_fixture::{HOUR, MINUTE, SECOND, World, incoming_mail},
    requests::{TestRequest, TestResponse, get, post},
};

const CODE_MAIL: &str = "From: Shop <no-reply@shop.test>\nTo: a@agents.test\nMessage-ID: <1@shop.test>\n\
    Subject: Your sign-in code\nDate: Sun, 15 Nov 2026 10:00:00 +0000\n\nYour verification code is 482 913.\n";

fn plain_mail(id: &str, text: &str) -> String {
    format!("From: Ann <ann@shop.test>\nTo: a@agents.test\nMessage-ID: <{id}@shop.test>\nSubject: Hello\n\n{text}\n")
}

async fn list_messages(world: &World, inbox: &str) -> Vec<Value> {
    world.get(&format!("/v1/inboxes/{inbox}/messages?limit=100")).await.expect_status(200).rows()
}

async fn delivery_reasons(world: &World, inbox: &str) -> Vec<String> {
    let rows = world.get(&format!("/v1/deliveries?inbox={inbox}&limit=100")).await.expect_status(200).rows();
    let reason = |row: &Value| row["reason"].as_str().unwrap_or("none").to_owned();
    rows.iter().map(reason).collect()
}

over_every_engine! {
    async fn the_same_mail_ten_times_is_one_message_and_every_duplicate_is_recorded(world) {
        let world = world.with_inbox_domain().await;
        let (a, b) = (world.create_inbox("a").await, world.create_inbox("b").await);
        for _ in 0..10 {
            world.receive_mail(&["a@agents.test", "b@agents.test"], &plain_mail("1", "hi")).await;
        }
        // Relayed by another host, the bytes differ and the message is the same.
        let relayed = format!("Received: from x by y; now\n{}", plain_mail("1", "hi"));
        world.receive_mail(&["a@agents.test"], &relayed).await;
        for inbox in [&a, &b] {
            assert_eq!(list_messages(&world, inbox).await.len(), 1);
        }
        let reasons = delivery_reasons(&world, &a).await;
        assert_eq!(reasons.iter().filter(|why| *why == "same_delivery").count(), 9);
        assert_eq!(reasons.iter().filter(|why| *why == "same_message").count(), 1);
        assert_eq!(reasons.len(), 11);
        let duplicates = world.events().await.iter().filter(|event| event["type"] == "delivery.duplicate").count();
        assert_eq!(duplicates, 9 + 9 + 1);
    }

    async fn a_reused_message_id_with_other_content_is_a_second_flagged_message(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        world.receive_mail(&["a@agents.test"], &plain_mail("1", "hi")).await;
        world.receive_mail(&["a@agents.test"], &plain_mail("1", "something else")).await;
        let rows = list_messages(&world, &inbox).await;
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["flags"], json!(["message_id_reused"]));
        assert_eq!(rows[1]["flags"], json!([]));
    }

    async fn mail_for_unknown_recipients_is_not_accepted(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        assert!(world.receive_mail(&["nobody@agents.test", "x@elsewhere.test"], &plain_mail("1", "hi")).await.is_empty());
        assert_eq!(world.receive_mail(&["a+tag@agents.test"], &plain_mail("1", "hi")).await.len(), 1);
    }

    async fn a_catch_all_receives_mail_for_unknown_names_of_its_domain(world) {
        let world = world.with_inbox_domain().await;
        let all = world.post("/v1/inboxes", &json!({ "username": "all", "catch_all": true })).await.expect_status(201).string_field("id");
        let own = world.create_inbox("own").await;
        world.post("/v1/inboxes", &json!({ "catch_all": true })).await.expect_status(409);
        world.receive_mail(&["whoever@agents.test", "own@agents.test"], &plain_mail("1", "hi")).await;
        assert_eq!(list_messages(&world, &all).await[0]["recipient"], "whoever@agents.test");
        assert_eq!(list_messages(&world, &own).await.len(), 1);
    }

    async fn a_code_is_found_masked_and_consumed_once(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        let message = list_messages(&world, &inbox).await.remove(0);
        assert_eq!(message["has"], json!(["code"]));
        assert!(!message.to_string().contains("482"), "{message}");
        let reader = world.create_api_key(&json!({ "name": "agent", "scopes": ["read"] })).await;
        let path = format!("/v1/messages/{}/artifacts", message["id"].as_str().unwrap());
        let found = world.call(get(&path).bearer(&reader)).await.expect_status(200).rows();
        assert_eq!((&found[0]["type"], &found[0]["value"]), (&json!("code"), &Value::Null));
        let take = |purpose: &str| {
            let path = format!("/v1/artifacts/{}/consume", found[0]["id"].as_str().unwrap());
            world.call(post(&path).bearer(&reader).json(&json!({ "for": purpose })))
        };
        let first = take("run-1").await.expect_status(200);
        assert_eq!(first.body["artifact"]["value"], "482913");
        assert_eq!(take("run-1").await.expect_status(200).body, first.body);
        let gone = take("run-2").await.expect_problem(409, "already_consumed");
        assert_eq!(gone.body["consumed_for"], "run-1");
        assert!(!gone.text.contains("482913"));
        let events = world.events().await;
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(&kinds[kinds.len() - 3..], ["message.received", "artifact.found", "artifact.consumed"]);
        assert!(!json!(events).to_string().contains("482913"));
    }

    async fn only_the_consumer_of_an_artifact_can_report_it_applied(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        let take = json!({ "type": "code", "for": "run-1" });
        let wrong = json!({ "type": "link", "for": "run-1" });
        world.post(&format!("/v1/inboxes/{inbox}/consume"), &wrong).await.expect_status(404);
        let artifact = {
            let id = list_messages(&world, &inbox).await[0]["id"].as_str().unwrap().to_owned();
            world.get(&format!("/v1/messages/{id}/artifacts")).await.rows()[0]["id"].as_str().unwrap().to_owned()
        };
        let applied = format!("/v1/artifacts/{artifact}/applied");
        world.post(&applied, &json!({ "for": "run-1" })).await.expect_problem(409, "not_consumed");
        world.post(&format!("/v1/inboxes/{inbox}/consume"), &take).await.expect_status(200);
        world.post(&applied, &json!({ "for": "run-2" })).await.expect_problem(409, "already_consumed");
        let done = world.post(&applied, &json!({ "for": "run-1" })).await.expect_status(200);
        assert!(done.body["artifact"]["applied_at"].is_string());
        assert_eq!(world.post(&applied, &json!({ "for": "run-1" })).await.expect_status(200).body, done.body);
    }

    async fn consume_by_inbox_takes_the_newest_match_that_nobody_took(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let code = |id: &str, code: &str, from: &str| {
            format!("From: {from}\nMessage-ID: <{id}@x>\nSubject: Your code\n\nYour verification code is {code}.\n")
        };
        world.receive_mail(&["a@agents.test"], &code("1", "111222", "no-reply@shop.test")).await;
        world.advance_clock(MINUTE);
        world.receive_mail(&["a@agents.test"], &code("2", "333444", "no-reply@bank.test")).await;
        let take = async |from: Option<&str>, purpose: &str| {
            let mut body = json!({ "type": "code", "for": purpose });
            if let Some(from) = from {
                body["match"] = json!({ "from": from });
            }
            world.post(&format!("/v1/inboxes/{inbox}/consume"), &body).await
        };
        assert_eq!(take(None, "r").await.expect_status(200).body["artifact"]["value"], "333444");
        assert_eq!(take(None, "r").await.expect_status(200).body["artifact"]["value"], "333444", "a repeat gets its own");
        take(Some("@bank.test"), "s").await.expect_problem(409, "already_consumed");
        assert_eq!(take(Some("@shop.test"), "s").await.expect_status(200).body["artifact"]["value"], "111222");
        take(None, "t").await.expect_problem(409, "already_consumed");
        take(Some("@nobody.test"), "s").await.expect_status(404);
    }

    async fn a_code_that_was_left_is_not_taken_for_a_new_one(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let (path, take) = (format!("/v1/inboxes/{inbox}/consume"), json!({ "type": "code", "for": "run-1" }));
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        let left = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.rows()[0]["id"].as_str().unwrap().to_owned();
        let left = world.get(&format!("/v1/messages/{left}/artifacts")).await.rows()[0]["id"].as_str().unwrap().to_owned();
        let cursor = world.get(&format!("/v1/inboxes/{inbox}/wait?timeout=0")).await.expect_status(200).string_field("cursor");
        world.advance_clock(2 * MINUTE + 1);
        let missing = world.post(&path, &take).await.expect_problem(404, "not_found");
        assert!(missing.string_field("detail").contains(&left), "the older one is named: {}", missing.text);
        world.get(&format!("/v1/inboxes/{inbox}/wait?timeout=0&has=code&for=run-1")).await.expect_status(204);
        let second = CODE_MAIL.replace("482 913", "771 204").replace("<1@", "<2@");
        world.receive_mail(&["a@agents.test"], &second).await;
        // A watch of 15 minutes: what arrived in it is new until then, and a repeat gets the same.
        for _ in 0..3 {
            world.advance_clock(10 * MINUTE);
            world.get(&format!("/v1/inboxes/{inbox}/wait?timeout=0&has=code&for=run-1")).await.expect_status(200);
            assert_eq!(world.post(&path, &take).await.expect_status(200).body["artifact"]["value"], "771204");
        }
        world.get(&format!("/v1/inboxes/{inbox}/wait?timeout=0&has=code&for=run-2")).await.expect_status(204);
        world.advance_clock(15 * MINUTE);
        world.post(&path, &take).await.expect_problem(404, "not_found");
        let older = json!({ "type": "code", "for": "run-3", "after": cursor });
        world.post(&path, &older).await.expect_problem(409, "already_consumed");
        world.post(&format!("/v1/artifacts/{left}/consume"), &json!({ "for": "run-3" })).await.expect_status(200);
        for wrong in [json!({ "timeout": 5, "watch": left }), json!({ "after": "x" })] {
            let mut body = take.clone();
            body.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
            assert!(world.post(&path, &body).await.status >= 400);
        }
        let long = json!({ "type": "code", "for": "run-3", "timeout": 61 });
        world.post(&path, &long).await.expect_problem(422, "invalid_field").expect_field("timeout");
    }

    async fn a_consumer_waits_past_codes_that_others_took(world) {
        let world = Arc::new(world.with_inbox_domain().await);
        let inbox = world.create_inbox("a").await;
        let path = format!("/v1/inboxes/{inbox}/consume");
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        world.post(&path, &json!({ "type": "code", "for": "run-1" })).await.expect_status(200);
        let take = json!({ "type": "code", "for": "run-2", "timeout": 30 });
        let waiting = tokio::spawn(owned_request(&world, post(&path).json(&take)));
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.receive_mail(&["a@agents.test"], &CODE_MAIL.replace("482 913", "771 204").replace("<1@", "<2@")).await;
        assert_eq!(waiting.await.unwrap().expect_status(200).body["artifact"]["value"], "771204");
    }

    async fn a_watch_waits_past_codes_that_others_took(world) {
        let world = Arc::new(world.with_inbox_domain().await);
        let inbox = world.create_inbox("a").await;
        let path = format!("/v1/inboxes/{inbox}/consume");
        let watch = world.post(&format!("/v1/inboxes/{inbox}/watches"), &json!({})).await.expect_status(201).string_field("id");
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        let take = |purpose: &str| json!({ "type": "code", "for": purpose, "watch": watch });
        world.post(&path, &take("run-1")).await.expect_status(200);
        world.post(&path, &take("run-2")).await.expect_problem(409, "already_consumed");
        let wait = format!("/v1/inboxes/{inbox}/wait?timeout=0&has=code&watch={watch}");
        world.get(&wait).await.expect_status(200);
        world.get(&format!("{wait}&for=run-2")).await.expect_status(204);
        let mut body = take("run-2");
        body["timeout"] = json!(30);
        let waiting = tokio::spawn(owned_request(&world, post(&path).json(&body)));
        let code_mail = |code: &str, id: &str| CODE_MAIL.replace("482 913", code).replace("<1@", id);
        world.receive_mail(&["a@agents.test"], &code_mail("771 204", "<2@")).await;
        assert_eq!(waiting.await.unwrap().expect_status(200).body["artifact"]["value"], "771204");
        // What another consumer took is passed over, also if it is the newest. A resend comes before what one has.
        let value = async |purpose: &str| world.post(&path, &take(purpose)).await.expect_status(200).body["artifact"]["value"].clone();
        assert_eq!((value("run-1").await, value("run-2").await), (json!("482913"), json!("771204")));
        world.receive_mail(&["a@agents.test"], &code_mail("530 118", "<3@")).await;
        assert_eq!(value("run-1").await, "530118");
    }

    async fn a_call_that_waits_in_a_watch_ends_with_it(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let begun = world.post(&format!("/v1/inboxes/{inbox}/watches"), &json!({ "deadline": "1s" })).await.expect_status(201);
        world.advance_clock(SECOND);
        let take = json!({ "type": "code", "for": "run-1", "watch": begun.string_field("id"), "timeout": 60 });
        let started = std::time::Instant::now();
        world.post(&format!("/v1/inboxes/{inbox}/consume"), &take).await.expect_problem(404, "not_found");
        assert!(started.elapsed() < Duration::from_mins(1), "{:?}", started.elapsed());
    }

    async fn concurrent_calls_for_one_consumer_get_one_code(world) {
        let world = Arc::new(world.with_inbox_domain().await);
        let inbox = world.create_inbox("a").await;
        let path = format!("/v1/inboxes/{inbox}/consume");
        let take = json!({ "type": "code", "for": "run-1", "timeout": 30 });
        let taking: Vec<_> = (0..24).map(|_| tokio::spawn(owned_request(&world, post(&path).json(&take)))).collect();
        // Each call may see another code as the newest one.
        for n in 0..12 {
            let mail = CODE_MAIL.replace("482 913", &format!("48{n:02} 91")).replace("<1@", &format!("<{n}@"));
            world.receive_mail(&["a@agents.test"], &mail).await;
        }
        let mut values = std::collections::BTreeSet::new();
        for taker in taking {
            values.insert(taker.await.unwrap().expect_status(200).body["artifact"]["value"].to_string());
        }
        assert_eq!(values.len(), 1, "{values:?}");
    }

    async fn a_repeat_gets_the_code_that_was_taken_in_a_watch(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let path = format!("/v1/inboxes/{inbox}/consume");
        let watch = world.post(&format!("/v1/inboxes/{inbox}/watches"), &json!({})).await.expect_status(201).string_field("id");
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        let take = json!({ "type": "code", "for": "run-1" });
        let mut watched = take.clone();
        watched["watch"] = json!(watch);
        let first = world.post(&path, &watched).await.expect_status(200);
        world.receive_mail(&["a@agents.test"], &CODE_MAIL.replace("482 913", "771 204").replace("<1@", "<2@")).await;
        let again = world.post(&path, &take).await.expect_status(200);
        assert_eq!(again.body["artifact"]["id"], first.body["artifact"]["id"]);
        // Once its use is reported, the next one is new.
        let applied = format!("/v1/artifacts/{}/applied", first.body["artifact"]["id"].as_str().unwrap());
        world.post(&applied, &json!({ "for": "run-1" })).await.expect_status(200);
        assert_eq!(world.post(&path, &take).await.expect_status(200).body["artifact"]["value"], "771204");
    }

    async fn a_code_is_found_behind_a_hundred_newer_ones(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let path = format!("/v1/inboxes/{inbox}/consume");
        let mail = |n: usize, from: &str| {
            let code = format!("Your verification code is {}.", 100_000 + n);
            format!("From: {from}\nMessage-ID: <{n}@x>\nSubject: Your code\n\n{code}\n")
        };
        world.receive_mail(&["a@agents.test"], &mail(0, "no-reply@shop.test")).await;
        let own = json!({ "type": "code", "for": "run-0", "match": { "from": "@shop.test" } });
        let first = world.post(&path, &own).await.expect_status(200);
        world.receive_mail(&["a@agents.test"], &mail(1, "no-reply@shop.test")).await;
        for n in 2..=110 {
            world.receive_mail(&["a@agents.test"], &mail(n, "no-reply@bank.test")).await;
        }
        assert_eq!(world.post(&path, &own).await.expect_status(200).body["artifact"]["id"], first.body["artifact"]["id"]);
        let other = json!({ "type": "code", "for": "run-1", "match": { "from": "@shop.test" } });
        assert_eq!(world.post(&path, &other).await.expect_status(200).body["artifact"]["value"], "100001");
    }

    async fn the_same_code_received_twice_within_an_hour_is_one_artifact(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        let take = json!({ "type": "code", "for": "run-1" });
        let first = world.post(&format!("/v1/inboxes/{inbox}/consume"), &take).await.expect_status(200);
        world.receive_mail(&["a@agents.test"], &CODE_MAIL.replace("<1@", "<2@")).await;
        assert_eq!(list_messages(&world, &inbox).await.len(), 2);
        let take = json!({ "type": "code", "for": "run-2" });
        world.post(&format!("/v1/inboxes/{inbox}/consume"), &take).await.expect_status(409);
        world.advance_clock(HOUR);
        world.receive_mail(&["a@agents.test"], &CODE_MAIL.replace("<1@", "<3@")).await;
        let later = world.post(&format!("/v1/inboxes/{inbox}/consume"), &take).await.expect_status(200);
        assert_ne!(later.body["artifact"]["id"], first.body["artifact"]["id"]);
    }

    async fn a_hundred_agents_wait_for_one_code_and_one_gets_it(world) {
        let world = Arc::new(world.with_inbox_domain().await);
        let inbox = world.create_inbox("a").await;
        let path = format!("/v1/inboxes/{inbox}/wait?timeout=30&has=code");
        let waiting: Vec<_> = (0..100).map(|_| tokio::spawn(owned_request(&world, get(&path)))).collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        for waiter in waiting {
            assert_eq!(waiter.await.unwrap().expect_status(200).body["message"]["has"], json!(["code"]));
        }
        let path = format!("/v1/inboxes/{inbox}/consume");
        let take = |n: usize| owned_request(&world, post(&path).json(&json!({ "type": "code", "for": format!("run-{n}") })));
        let taking: Vec<_> = (0..100).map(|n| tokio::spawn(take(n))).collect();
        let mut statuses = Vec::new();
        for taker in taking {
            statuses.push(taker.await.unwrap().status);
        }
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1);
        assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 99);
    }

    async fn a_wait_returns_at_once_resumes_from_its_cursor_and_times_out(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let wait = async |query: &str| world.get(&format!("/v1/inboxes/{inbox}/wait?{query}")).await;
        assert!(wait("timeout=0").await.expect_status(204).text.is_empty());
        world.receive_mail(&["a@agents.test"], &plain_mail("1", "one")).await;
        world.receive_mail(&["a@agents.test"], &plain_mail("2", "two")).await;
        assert_eq!(wait("timeout=0").await.expect_status(200).body["message"]["message_id"], "<2@shop.test>");
        let first = wait("timeout=0&after=0").await.expect_status(200);
        assert_eq!(first.body["message"]["message_id"], "<1@shop.test>");
        let second = wait(&format!("timeout=0&after={}", first.string_field("cursor"))).await.expect_status(200);
        assert_eq!(second.body["message"]["message_id"], "<2@shop.test>");
        wait(&format!("timeout=0&after={}", second.string_field("cursor"))).await.expect_status(204);
        wait("timeout=0&from=@shop.test&subject=HELLO").await.expect_status(200);
        wait("timeout=0&from=@bank.test").await.expect_status(204);
        wait("timeout=0&has=code").await.expect_status(204);
        wait("timeout=0&after=99-1").await.expect_problem(410, "cursor_reset");
        for wrong in ["timeout=x", "after=x", "has=x", "watch=x", "nope=1"] {
            assert!(matches!(wait(wrong).await.status, 400 | 404), "{wrong}");
        }
    }

    async fn a_watch_sees_only_mail_after_its_start_and_spends_its_resend_budget_once(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        let begin = world.post(&format!("/v1/inboxes/{inbox}/watches"), &json!({ "deadline": "5m" })).await.expect_status(201);
        let watch = begin.string_field("id");
        world.get(&format!("/v1/inboxes/{inbox}/wait?timeout=0&watch={watch}")).await.expect_status(204);
        let take = json!({ "type": "code", "for": "run-1", "watch": watch });
        world.post(&format!("/v1/inboxes/{inbox}/consume"), &take).await.expect_status(404);
        world.post(&format!("/v1/watches/{watch}/resend"), &json!({})).await.expect_status(200);
        let spent = world.post(&format!("/v1/watches/{watch}/resend"), &json!({})).await;
        let next = spent.expect_problem(409, "budget_spent").string_field("next");
        assert!(!next.contains("Wait a day"), "the budget of a watch does not refill: {next}");
        assert!(next.starts_with("Ask a person"), "{next}");
        world.receive_mail(&["a@agents.test"], &CODE_MAIL.replace("482 913", "771 204").replace("<1@", "<2@")).await;
        world.get(&format!("/v1/inboxes/{inbox}/wait?timeout=0&watch={watch}")).await.expect_status(200);
        let taken = world.post(&format!("/v1/inboxes/{inbox}/consume"), &take).await.expect_status(200);
        assert_eq!(taken.body["artifact"]["value"], "771204");
        world.advance_clock(5 * MINUTE);
        world.post(&format!("/v1/watches/{watch}/resend"), &json!({})).await.expect_problem(409, "watch_over");
    }

    async fn replies_join_their_thread_in_any_order(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let mail = |id: &str, references: &str| {
            format!("From: x@shop.test\nMessage-ID: <{id}>\nReferences: {references}\nSubject: {id}\n\n{id}\n")
        };
        world.receive_mail(&["a@agents.test"], &mail("3", "<1> <2>")).await;
        world.receive_mail(&["a@agents.test"], &mail("1", "")).await;
        world.receive_mail(&["a@agents.test"], &mail("2", "<1>")).await;
        world.receive_mail(&["a@agents.test"], &mail("9", "")).await;
        let rows = list_messages(&world, &inbox).await;
        let thread = |id: &str| {
            let row = rows.iter().find(|row| row["subject"] == id).unwrap();
            row["thread_id"].as_str().unwrap().to_owned()
        };
        assert_eq!((thread("1"), thread("2")), (thread("3"), thread("3")));
        assert_ne!(thread("9"), thread("3"));
        let path = format!("/v1/inboxes/{inbox}/messages?thread={}", thread("3"));
        assert_eq!(world.get(&path).await.expect_status(200).rows().len(), 3);
    }

    async fn an_accepted_delivery_is_processed_after_a_crash(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        // Stored by a process that crashed before it processed the delivery.
        let received = world.engine.inbound.receive_mail(incoming_mail(&["a@agents.test"], &plain_mail("1", "hi"))).await.unwrap();
        assert!(matches!(received[..], [ReceiveResult::Stored(_)]));
        let world = world.with_inbox_domain().await;
        world.engine.handoffs.heartbeat_and_recover().await.unwrap();
        world.advance_clock(2 * MINUTE);
        world.engine.inbound.process_waiting_deliveries().await.unwrap();
        world.engine.inbound.process_waiting_deliveries().await.unwrap();
        assert_eq!(list_messages(&world, &inbox).await.len(), 1);
    }

    async fn a_delivery_that_crashed_five_processes_is_dead_and_later_mail_is_processed(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        world.engine.inbound.receive_mail(incoming_mail(&["a@agents.test"], &plain_mail("1", "hi"))).await.unwrap();
        // The first process leased the delivery on arrival. Each ends without recording an outcome.
        for attempts in 2..=5 {
            world.advance_clock(2 * MINUTE);
            let now = world.engine.ctx.now();
            let leased = world.engine.ctx.store().lease_deliveries(NodeId(Uuid::from_u128(9)), 10, now).await.unwrap();
            assert_eq!(leased[0].delivery.attempts, attempts);
        }
        let world = world.with_inbox_domain().await;
        world.advance_clock(2 * MINUTE);
        world.receive_mail(&["a@agents.test"], &plain_mail("2", "later")).await;
        let rows = world.get(&format!("/v1/deliveries?inbox={inbox}")).await.expect_status(200).rows();
        let states: Vec<_> = rows.iter().map(|row| (row["state"].as_str().unwrap(), &row["last_error"])).collect();
        let error = json!("processing started 5 times and never finished");
        assert_eq!(states, [("done", &Value::Null), ("dead", &error)]);
        assert_eq!(list_messages(&world, &inbox).await.len(), 1);
    }
}

async fn send_request(router: axum::Router, request: axum::http::Request<axum::body::Body>) -> TestResponse {
    TestResponse::from_response(router.oneshot(request).await.unwrap()).await
}

fn owned_request(world: &World, call: TestRequest) -> impl Future<Output = TestResponse> + Send + 'static {
    send_request(world.router(), call.build(&world.secret))
}
