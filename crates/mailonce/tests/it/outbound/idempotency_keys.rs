//! Idempotency keys: syntax, scope, and the key inspector.

use serde_json::json;

use crate::fixtures::{
    api_fixture::{DAY, mail, mail_with, mail_with_intent},
    requests::{delete, get, patch, post},
};

/// A key percent-encoded as a path segment.
fn percent_encode(key: &str) -> String {
    key.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

over_every_engine! {
    async fn keys_of_1_and_of_256_characters_are_accepted(world) {
        for key in ["k", &"k".repeat(256), "a key / with ~ every {kind} of sign!"] {
            let first = world.send(key, &mail()).await.expect_status(202);
            assert_eq!(first["dedupe"]["key"], key);
            assert_eq!(world.send(key, &mail()).await.expect_status(200)["id"], first["id"]);
        }
    }

    async fn an_invalid_key_is_refused_and_never_ignored(world) {
        for key in ["", "\"\"", &"k".repeat(257), "a\tb", "naïve", "ключ", "\"a\\nb\"", "\"a\"b\""] {
            let refused = world.send(key, &mail()).await;
            assert_eq!(refused.status, 400, "{key:?}: {}", refused.text);
            refused.expect_problem(400, "invalid_key").expect_field("Idempotency-Key");
        }
        let twice = post("/v1/emails").key("a").key("b").json(&mail());
        world.call(twice).await.expect_problem(400, "invalid_key");
        assert_eq!(world.email_count().await, 0);
    }

    async fn a_quoted_key_equals_the_bare_one(world) {
        let first = world.send("order-1", &mail()).await.expect_status(202);
        assert_eq!(world.send("\"order-1\"", &mail()).await.expect_status(200)["id"], first["id"]);
        let odd = world.send(r#""a\"b\\c""#, &mail()).await.expect_status(202);
        assert_eq!(odd["dedupe"]["key"], r#"a"b\c"#);
        assert_eq!(world.send(r#"a"b\c"#, &mail()).await.expect_status(200)["id"], odd["id"]);
    }

    async fn keys_differ_by_every_character_and_by_case(world) {
        let mut ids: Vec<String> = Vec::new();
        for key in ["order-1", "Order-1", "order-10", "order- 1"] {
            ids.push(world.send(key, &mail()).await.expect_status(202).string_field("id"));
        }
        ids.dedup();
        assert_eq!(ids.len(), 4);
    }

    async fn the_same_key_in_two_teams_is_two_emails(world) {
        let other = world.create_team("other").await;
        let ours = world.send("k", &mail()).await.expect_status(202);
        let theirs = world.call(post("/v1/emails").bearer(&other).key("k").json(&mail_with(json!({ "text": "else" })))).await.expect_status(202);
        assert_ne!(ours["id"], theirs["id"]);
        assert_ne!(ours["message_id"], theirs["message_id"]);
        let ours_by_intent = world.send_without_key(&mail_with_intent("order_1")).await.expect_status(202);
        let theirs_by_intent = world.call(post("/v1/emails").bearer(&other).json(&mail_with_intent("order_1"))).await.expect_status(202);
        assert_eq!(ours_by_intent["dedupe"]["key"], theirs_by_intent["dedupe"]["key"]);
        assert_ne!(ours_by_intent["id"], theirs_by_intent["id"]);
        assert_eq!(world.send("k", &mail()).await.expect_status(200)["id"], ours["id"]);
    }

    async fn all_api_keys_and_channels_of_a_team_share_its_idempotency_keys(world) {
        let first = world.send("k", &mail()).await.expect_status(202);
        let colleague = world.create_api_key(&json!({ "name": "colleague" })).await;
        let again = world.call(post("/v1/emails").bearer(&colleague).key("k").json(&mail())).await.expect_status(200);
        assert_eq!(again["id"], first["id"]);
        let by_cli = post("/v1/emails").header("user-agent", "mailonce-cli/0.1.0").key("k").json(&mail());
        assert_eq!(world.call(by_cli).await.expect_status(200)["id"], first["id"]);
        world.engine.outbound.flush_suppressed_calls().await;
        let view = world.get("/v1/keys/k").await.expect_status(200);
        let channels: Vec<_> = view["suppressed_calls"].as_array().unwrap().iter().map(|call| call["channel"].clone()).collect();
        assert_eq!(channels, ["cli", "http"]);
    }

    async fn the_key_of_an_email_cannot_be_used_for_a_batch_or_vice_versa(world) {
        let first = world.send("single", &mail()).await.expect_status(202);
        let batch = |key: &str| post("/v1/emails/batch").key(key).json(&json!([mail()]));
        let refused = world.call(batch("single")).await.expect_problem(422, "key_mismatch");
        assert_eq!(refused["original_email"], first["id"]);
        world.call(batch("many")).await.expect_status(202);
        world.send("many", &mail()).await.expect_problem(422, "key_mismatch");
        world.call(batch("many")).await.expect_status(200);
        assert_eq!(world.email_count().await, 2);
    }

    async fn an_intent_is_the_same_key_in_a_send_a_batch_and_a_header(world) {
        let first = world.send_without_key(&mail_with_intent("order_1")).await.expect_status(202);
        let batch = world.post("/v1/emails/batch", &json!([mail_with_intent("order_1")])).await.expect_status(200);
        assert_eq!(batch["data"][0]["id"], first["id"]);
        let key = first["dedupe"]["key"].as_str().unwrap();
        assert_eq!(world.send(key, &mail_with_intent("order_1")).await.expect_status(200)["id"], first["id"]);
    }

    async fn the_inspector_shows_what_a_key_is_bound_to(world) {
        let key = "order 4821/é".replace('é', "e");
        let id = world.send(&key, &mail_with(json!({ "ttl": "7d" }))).await.expect_status(202).string_field("id");
        world.send(&key, &mail()).await.expect_status(200);
        world.send(&key, &mail_with(json!({ "text": "else" }))).await.expect_status(422);
        world.engine.outbound.flush_suppressed_calls().await;
        let view = world.get(&format!("/v1/keys/{}", percent_encode(&key))).await.expect_status(200);
        assert_eq!(view["key"], key);
        assert_eq!((&view["bound_to"], &view["email"], &view["state"]), (&json!("email"), &json!(id), &json!("queued")));
        assert_eq!((&view["derivation"], &view["bind_number"], &view["ttl"]), (&json!("header"), &json!(1), &json!("7d")));
        assert_eq!((&view["hits"], &view["expires_at"]), (&json!(2), &json!(null)));
        assert!(view.string_field("digest").starts_with("d1:"));
        let reasons: Vec<_> = view["suppressed_calls"].as_array().unwrap().iter().map(|call| call["reason"].clone()).collect();
        assert_eq!(reasons, ["mismatch", "key_replay"]);
    }

    async fn the_inspector_shows_intents_and_batches(world) {
        let key = world.send_without_key(&mail_with_intent("order_1")).await["dedupe"]["key"].as_str().unwrap().to_owned();
        let view = world.get(&format!("/v1/keys/{key}")).await.expect_status(200);
        assert_eq!((&view["derivation"], &view["intent"]["entity"]), (&json!("intent"), &json!("order_1")));
        world.call(post("/v1/emails/batch").key("many").json(&json!([mail()]))).await.expect_status(202);
        assert_eq!(world.get("/v1/keys/many").await.expect_status(200)["bound_to"], "operation");
        world.get("/v1/keys/never-used").await.expect_problem(404, "not_found");
    }

    async fn a_header_key_that_looks_derived_is_shown_as_a_header_key(world) {
        world.send("i1_mine", &mail_with_intent("order_1")).await.expect_status(202);
        assert_eq!(world.get("/v1/keys/i1_mine").await.expect_status(200)["derivation"], "header");
    }

    async fn only_the_latest_20_suppressed_calls_are_kept_and_all_are_counted(world) {
        world.send("k", &mail()).await.expect_status(202);
        for _ in 0..30 {
            world.advance_clock(1_000);
            world.send("k", &mail()).await.expect_status(200);
        }
        world.engine.outbound.flush_suppressed_calls().await;
        let view = world.get("/v1/keys/k").await.expect_status(200);
        let calls = view["suppressed_calls"].as_array().unwrap();
        assert_eq!((&view["hits"], calls.len()), (&json!(30), 20));
        assert_eq!(calls[0]["at"], world.timestamp_in(0));
        assert_eq!(calls[19]["at"], world.timestamp_in(-19_000));
    }

    async fn the_ttl_of_a_key_can_be_extended(world) {
        world.send("k", &mail()).await.expect_status(202);
        world.hand_off_due().await;
        let extend = |ttl| patch("/v1/keys/k").json(&json!({ "ttl": ttl }));
        let view = world.call(extend("100d")).await.expect_status(200);
        assert_eq!((&view["ttl"], &view["expires_at"]), (&json!("100d"), &json!(world.timestamp_in(100 * DAY))));
        world.advance_clock(99 * DAY);
        world.send("k", &mail()).await.expect_status(200);
        for ttl in ["401d", "99d", "1s"] {
            world.call(extend(ttl)).await.expect_problem(422, "invalid_field").expect_field("ttl");
        }
        world.call(patch("/v1/keys/other").json(&json!({ "ttl": "1d" }))).await.expect_problem(404, "not_found");
    }

    async fn a_forgotten_key_is_free_again_and_leaves_a_tombstone(world) {
        let first = world.send("k", &mail()).await.expect_status(202);
        world.call(delete("/v1/keys/k")).await.expect_problem(409, "not_terminal");
        world.hand_off_due().await;
        let view = world.call(delete("/v1/keys/k")).await.expect_status(200);
        assert_eq!((&view["bound_to"], &view["forgotten_at"]), (&json!("forgotten"), &json!(world.timestamp_in(0))));
        let second = world.send("k", &mail()).await.expect_status(202);
        assert_ne!(second["id"], first["id"]);
        assert_ne!(second["message_id"], first["message_id"]);
        assert_eq!(world.get("/v1/keys/k").await.expect_status(200)["bind_number"], 2);
        world.call(delete("/v1/keys/never-used")).await.expect_problem(404, "not_found");
        world.call(get("/v1/keys/%01")).await.expect_problem(400, "invalid_key");
    }
}
