//! Invalid batches.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{DAY, World, mail, mail_with, mail_with_intent},
    requests::{TestResponse, post},
};

async fn send_permissive_batch(world: &World, key: &str, items: &Value) -> TestResponse {
    world.call(post("/v1/emails/batch").key(key).header("x-batch-validation", "permissive").json(items)).await
}

async fn send_strict_batch(world: &World, key: &str, items: &Value) -> TestResponse {
    world.call(post("/v1/emails/batch").key(key).json(items)).await
}

over_every_engine! {
    async fn a_batch_that_is_not_an_array_is_refused(world) {
        for body in [r#"{"data":[]}"#, "5", "null", r#""x""#] {
            world.call(post("/v1/emails/batch").key("b").json_bytes(body.to_owned())).await.expect_problem(400, "invalid_type");
        }
        for body in ["", "[", "[{},", "nonsense"] {
            world.call(post("/v1/emails/batch").key("b").json_bytes(body.to_owned())).await.expect_problem(400, "invalid_json");
        }
        send_strict_batch(&world, "b", &json!([5])).await.expect_problem(400, "invalid_type").expect_field("[0]");
        send_strict_batch(&world, "b", &json!([mail(), mail_with(json!({ "subjct": "x" }))])).await.expect_problem(400, "unknown_field").expect_field("[1].subjct");
        assert!(world.events().await.is_empty());
        send_strict_batch(&world, "b", &json!([mail()])).await.expect_status(202);
    }

    async fn an_unknown_validation_mode_is_refused(world) {
        let call = post("/v1/emails/batch").key("b").header("x-batch-validation", "lax").json(&json!([mail()]));
        world.call(call).await.expect_problem(422, "invalid_field").expect_field("x-batch-validation");
        send_strict_batch(&world, "b", &json!([mail()])).await.expect_status(202);
    }

    async fn a_batch_with_reordered_json_members_is_a_replay(world) {
        let call = |body: &str| post("/v1/emails/batch").key("b").json_bytes(body.to_owned());
        let first = world.call(call(r#"[{"from":"a@x.test","to":"b@x.test","text":"t"}]"#)).await.expect_status(202);
        let again = world.call(call(r#"[{ "text": "t", "to": ["b@x.test"], "from": "a@x.test" }]"#)).await.expect_status(200);
        assert_eq!(again["data"][0]["id"], first["data"][0]["id"]);
    }

    async fn a_permissive_batch_without_a_good_item_binds_no_key(world) {
        let bad = json!([mail_with(json!({ "to": "nobody" }))]);
        let refused = send_permissive_batch(&world, "b", &bad).await;
        assert_eq!(refused["data"], json!([null]), "{}", refused.text);
        assert!(world.events().await.is_empty());
        send_permissive_batch(&world, "b", &json!([mail()])).await.expect_status(202);
    }

    async fn two_items_with_one_intent_and_different_content_refuse_a_strict_batch(world) {
        let mut other = mail_with_intent("order_1");
        other["from"] = json!("other@example.com");
        let refused = send_strict_batch(&world, "b", &json!([mail_with_intent("order_1"), other.clone()])).await;
        assert_eq!(refused.status, 422, "{}", refused.text);
        refused.expect_problem(422, "key_mismatch");
        assert_eq!(world.email_count().await, 0);
        let loose = send_permissive_batch(&world, "c", &json!([mail_with_intent("order_1"), other])).await.expect_status(202);
        assert_eq!((&loose["data"][1], &loose["errors"][0]["code"]), (&json!(null), &json!("key_mismatch")));
    }

    async fn an_item_that_mismatches_an_earlier_email_refuses_a_strict_batch(world) {
        world.send_without_key(&mail_with_intent("order_1")).await.expect_status(202);
        let mut other = mail_with_intent("order_1");
        other["from"] = json!("other@example.com");
        let items = json!([mail(), other]);
        let refused = send_strict_batch(&world, "b", &items).await.expect_problem(422, "key_mismatch");
        assert_eq!(refused["index"], 1);
        assert_eq!(world.email_count().await, 1);
        let loose = send_permissive_batch(&world, "b", &items).await.expect_status(202);
        assert_eq!((&loose["errors"][0]["index"], &loose["errors"][0]["code"]), (&json!(1), &json!("key_mismatch")));
        assert_eq!(world.email_count().await, 2);
    }

    async fn a_batch_from_a_sender_that_is_not_allowed_names_its_item(world) {
        let bound = world.create_api_key(&json!({ "name": "bound", "allowed_senders": ["agent@example.com"] })).await;
        let items = json!([mail(), mail_with(json!({ "from": "other@example.com" }))]);
        let call = post("/v1/emails/batch").bearer(&bound).key("b").json(&items);
        world.call(call).await.expect_problem(403, "sender_not_allowed").expect_field("[1].from");
        let call = post("/v1/emails/batch").bearer(&bound).key("b").header("x-batch-validation", "permissive").json(&items);
        let loose = world.call(call).await.expect_status(202);
        assert_eq!(loose["errors"][0]["code"], "sender_not_allowed");
    }

    async fn a_retried_batch_is_never_refused_by_later_policy(world) {
        let items = json!([mail(), mail_with(json!({ "from": "other@example.com" })), mail_with_intent("order_1")]);
        let first = send_strict_batch(&world, "b", &items).await.expect_status(202);
        let bound = world.create_api_key(&json!({ "name": "bound", "allowed_senders": ["agent@example.com"] })).await;
        let again = world.call(post("/v1/emails/batch").bearer(&bound).key("b").json(&items)).await.expect_status(200);
        assert_eq!(again["data"][1]["id"], first["data"][1]["id"]);
    }

    async fn scheduled_items_are_remembered_longer_than_the_batch_key(world) {
        let items = json!([mail_with(json!({ "scheduled_at": "in 50 days" }))]);
        let first = send_strict_batch(&world, "b", &items).await.expect_status(202);
        world.advance_clock(40 * DAY);
        world.engine.ctx.store().sweep(100, world.engine.ctx.now()).await.unwrap();
        let again = send_strict_batch(&world, "b", &items).await;
        assert_eq!(again["data"][0]["id"], first["data"][0]["id"], "{}", again.text);
        assert_eq!(world.email_count().await, 1);
    }
}
