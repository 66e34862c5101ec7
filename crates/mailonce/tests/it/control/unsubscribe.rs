//! Unsubscribe links: added by tag, used without an API key, and in force for later email.

use mailonce_engine::EngineDeps;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

use crate::fixtures::{
    api_fixture::{DAY, World, mail_with},
    requests::{get, patch, post},
};

const READER: &str = "reader@agents.test";

/// A world with an inbox that reads along, and the tags of the team.
async fn with_reader(world: World, tags: &Value) -> World {
    let deps = EngineDeps {
        local_domains: vec!["agents.test".to_owned()],
        public_url: Some("https://mail.example.com/".to_owned()),
        ..EngineDeps::default()
    };
    let world = world.with_engine_deps(deps).await;
    world.create_inbox("reader").await;
    world.call(patch("/v1/settings").json(&json!({ "unsubscribe": { "tags": tags } }))).await.expect_status(200);
    world
}

fn news(more: Value) -> Value {
    let mut body =
        mail_with(json!({ "from": "bot@agents.test", "to": READER, "tags": [{ "name": "news", "value": "weekly" }] }));
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Sends an email and returns the value of a header as the reader received it.
async fn received_header(world: &World, key: &str, body: &Value, name: &str) -> Option<String> {
    let id = world.send(key, body).await.expect_status(202).string_field("id");
    hand_off(world, &[&id]).await;
    world.engine.inbound.process_waiting_deliveries().await.unwrap();
    let inbox = world.get("/v1/inboxes").await.expect_status(200).ids().remove(0);
    let newest = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).ids().remove(0);
    let raw = world.get(&format!("/v1/messages/{newest}/raw")).await.expect_status(200).text.replace("\r\n ", " ");
    let line = raw.lines().find_map(|line| line.strip_prefix(&format!("{name}:")).map(|value| value.trim().to_owned()));
    line.map(|value| value.replace(' ', ""))
}

/// Runs the hand-off worker until these emails are final.
async fn hand_off(world: &World, ids: &[&str]) {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let working = tokio::spawn(Arc::clone(&world.engine.handoffs).run_handoff(stopped));
    for id in ids {
        for _ in 0..200 {
            let state = world.email(id).await["state"].as_str().unwrap().to_owned();
            if !matches!(state.as_str(), "queued" | "scheduled" | "sending") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    stop.send(true).unwrap();
    working.await.unwrap();
}

async fn link_of(world: &World, key: &str, body: &Value) -> String {
    let header = received_header(world, key, body, "List-Unsubscribe").await.expect("the header");
    header.trim_matches(['<', '>']).strip_prefix("https://mail.example.com").expect("the public URL").to_owned()
}

over_every_engine! {
    async fn email_with_a_tag_that_the_team_names_gets_a_one_click_link(world) {
        let world = with_reader(world, &json!(["news", "category=offers"])).await;
        let path = link_of(&world, "1", &news(json!({}))).await;
        assert!(path.starts_with("/u/"), "{path}");
        let post_header = received_header(&world, "2", &news(json!({})), "List-Unsubscribe-Post").await;
        assert_eq!(post_header.as_deref(), Some("List-Unsubscribe=One-Click"));
        link_of(&world, "3", &news(json!({ "tags": [{ "name": "category", "value": "offers" }] }))).await;
        for (key, more) in [
            ("4", json!({ "tags": [{ "name": "category", "value": "receipts" }] })),
            ("5", json!({ "tags": [] })),
            ("6", json!({ "cc": ["other@example.com"] })),
        ] {
            assert_eq!(received_header(&world, key, &news(more), "List-Unsubscribe").await, None, "{key}");
        }
        let own = news(json!({ "headers": { "List-Unsubscribe": "<https://shop.example/u>" } }));
        assert_eq!(received_header(&world, "7", &own, "List-Unsubscribe").await.as_deref(), Some("<https://shop.example/u>"));
    }

    async fn a_recipient_unsubscribes_with_one_click_and_still_gets_receipts(world) {
        let world = with_reader(world, &json!(["news"])).await;
        let path = link_of(&world, "1", &news(json!({}))).await;
        // Opening the link changes nothing, because programs that check links open them.
        let page = world.call(get(&path).anonymous()).await.expect_status(200);
        assert!(page.text.contains(READER) && page.text.contains("method=\"post\""), "{}", page.text);
        world.send("2", &news(json!({}))).await.expect_status(202);
        for _ in 0..2 {
            let click = post(&path).anonymous().header("content-type", "application/x-www-form-urlencoded");
            world.call(click.raw_body("List-Unsubscribe=One-Click")).await.expect_status(200);
        }
        let suppression = world.get(&format!("/v1/suppressions/{READER}")).await.expect_status(200);
        assert_eq!((&suppression["reason"], &suppression["scope"]), (&json!("unsubscribed"), &json!("unsubscribable")));
        let refused = world.send("3", &news(json!({}))).await.expect_problem(422, "recipient_suppressed");
        assert_eq!(refused["reason"], "unsubscribed");
        world.send("4", &news(json!({ "tags": [] }))).await.expect_status(202);
        // A person who wants no mail at all widens it.
        world.post("/v1/suppressions", &json!({ "address": READER, "reason": "asked" })).await.expect_status(201);
        world.send("5", &news(json!({ "tags": [] }))).await.expect_problem(422, "recipient_suppressed");
        // Unsubscribing does not narrow it again.
        world.call(post(&path).anonymous()).await.expect_status(200);
        assert_eq!(world.get(&format!("/v1/suppressions/{READER}")).await["scope"], "all");
    }

    async fn email_that_waits_does_not_leave_after_its_recipient_unsubscribed(world) {
        let world = with_reader(world, &json!(["news"])).await;
        let path = link_of(&world, "1", &news(json!({}))).await;
        let later = |key: &str, tags: Value| (key.to_owned(), news(json!({ "scheduled_at": world.timestamp_in(DAY), "tags": tags })));
        let (key, body) = later("news", json!([{ "name": "news" }]));
        let newsletter = world.send(&key, &body).await.expect_status(202).string_field("id");
        let (key, body) = later("receipt", json!([]));
        let receipt = world.send(&key, &body).await.expect_status(202).string_field("id");
        world.call(post(&path).anonymous()).await.expect_status(200);
        world.advance_clock(DAY + 1_000);
        hand_off(&world, &[&receipt, &newsletter]).await;
        assert_eq!(world.email(&receipt).await["state"], "sent");
        let email = world.email(&newsletter).await;
        assert_eq!(email["state"], "failed");
        assert!(email["handoffs"][0]["reason"].as_str().unwrap().contains("unsubscribed"), "{email}");
    }

    async fn a_suppressed_recipient_does_not_cost_the_others_their_copy(world) {
        let world = with_reader(world, &json!([])).await;
        world.create_inbox("other").await;
        let later = news(json!({ "to": [READER, "other@agents.test"], "scheduled_at": world.timestamp_in(DAY) }));
        let id = world.send("1", &later).await.expect_status(202).string_field("id");
        world.post("/v1/suppressions", &json!({ "address": READER, "reason": "complained" })).await.expect_status(201);
        world.advance_clock(DAY + 1_000);
        hand_off(&world, &[&id]).await;
        let email = world.email(&id).await;
        let states: Vec<_> = email["handoffs"].as_array().unwrap().iter().map(|handoff| handoff["state"].clone()).collect();
        assert_eq!(states, ["failed", "sent"], "{email}");
    }

    async fn a_forged_or_cut_link_changes_nothing(world) {
        let world = with_reader(world, &json!(["news"])).await;
        let path = link_of(&world, "1", &news(json!({}))).await;
        let mut forged = path.clone().into_bytes();
        forged[30] = if forged[30] == b'A' { b'B' } else { b'A' };
        for path in [String::from_utf8(forged).unwrap(), path[..path.len() - 4].to_owned(), "/u/x".into(), format!("/u/{}", "A".repeat(64))] {
            for call in [get(&path), post(&path)] {
                let answer = world.call(call.anonymous()).await;
                assert!(answer.status == 404 && answer.text.contains("does not work"), "{path}: {}", answer.text);
            }
        }
        assert!(world.get("/v1/suppressions").await.expect_status(200).rows().is_empty());
    }

    async fn tags_need_a_public_url_and_are_limited(world) {
        let tags = |tags: Value| patch("/v1/settings").json(&json!({ "unsubscribe": { "tags": tags } }));
        let refused = world.call(tags(json!(["news"]))).await.expect_problem(422, "invalid_field");
        assert!(refused.string_field("detail").contains("http.public_url"), "{}", refused.text);
        world.call(tags(json!([]))).await.expect_status(200);
        world.call(tags(json!([""]))).await.expect_problem(422, "invalid_field").expect_field("unsubscribe.tags[0]");
        world.call(tags(json!(vec!["x"; 21]))).await.expect_problem(422, "invalid_field").expect_field("unsubscribe.tags");
        assert_eq!(world.get("/v1/settings").await["unsubscribe"], json!({ "tags": [] }));
    }
}
