//! Batches that are not what they should be.

use serde_json::{Value, json};

use crate::{
    call::{Answer, post},
    world::{DAY, World, about, mail, mail_with},
};

async fn permissive(world: &World, key: &str, items: &Value) -> Answer {
    world.call(post("/v1/emails/batch").key(key).header("x-batch-validation", "permissive").json(items)).await
}

async fn strict(world: &World, key: &str, items: &Value) -> Answer {
    world.call(post("/v1/emails/batch").key(key).json(items)).await
}

over_every_engine! {
    async fn a_batch_that_is_no_array_is_refused(world) {
        for body in [r#"{"data":[]}"#, "5", "null", r#""x""#] {
            world.call(post("/v1/emails/batch").key("b").text(body.to_owned())).await.refused(400, "invalid_type");
        }
        for body in ["", "[", "[{},", "nonsense"] {
            world.call(post("/v1/emails/batch").key("b").text(body.to_owned())).await.refused(400, "invalid_json");
        }
        strict(&world, "b", &json!([5])).await.refused(400, "invalid_type").at("[0]");
        strict(&world, "b", &json!([mail(), mail_with(json!({ "subjct": "x" }))])).await.refused(400, "unknown_field").at("[1].subjct");
        assert!(world.events().await.is_empty());
        strict(&world, "b", &json!([mail()])).await.is(202);
    }

    async fn an_unknown_mode_of_validation_is_refused(world) {
        let call = post("/v1/emails/batch").key("b").header("x-batch-validation", "lax").json(&json!([mail()]));
        world.call(call).await.refused(422, "invalid_field").at("x-batch-validation");
        strict(&world, "b", &json!([mail()])).await.is(202);
    }

    async fn a_batch_written_in_another_order_of_members_is_a_repeat(world) {
        let call = |body: &str| post("/v1/emails/batch").key("b").text(body.to_owned());
        let first = world.call(call(r#"[{"from":"a@x.test","to":"b@x.test","text":"t"}]"#)).await.is(202);
        let again = world.call(call(r#"[{ "text": "t", "to": ["b@x.test"], "from": "a@x.test" }]"#)).await.is(200);
        assert_eq!(again["data"][0]["id"], first["data"][0]["id"]);
    }

    async fn a_permissive_batch_without_a_good_item_binds_no_key(world) {
        let bad = json!([mail_with(json!({ "to": "nobody" }))]);
        let refused = permissive(&world, "b", &bad).await;
        assert_eq!(refused["data"], json!([null]), "{}", refused.text);
        assert!(world.events().await.is_empty());
        permissive(&world, "b", &json!([mail()])).await.is(202);
    }

    async fn two_items_of_one_intent_that_contradict_each_other_refuse_a_strict_batch_whole(world) {
        let mut other = about("order_1");
        other["from"] = json!("other@example.com");
        let refused = strict(&world, "b", &json!([about("order_1"), other.clone()])).await;
        assert_eq!(refused.status, 422, "{}", refused.text);
        refused.refused(422, "key_mismatch");
        assert_eq!(world.count().await, 0);
        let loose = permissive(&world, "c", &json!([about("order_1"), other])).await.is(202);
        assert_eq!((&loose["data"][1], &loose["errors"][0]["code"]), (&json!(null), &json!("key_mismatch")));
    }

    async fn an_item_that_contradicts_an_earlier_email_refuses_a_strict_batch_whole(world) {
        world.wish(&about("order_1")).await.is(202);
        let mut other = about("order_1");
        other["from"] = json!("other@example.com");
        let items = json!([mail(), other]);
        let refused = strict(&world, "b", &items).await.refused(422, "key_mismatch");
        assert_eq!(refused["index"], 1);
        assert_eq!(world.count().await, 1);
        let loose = permissive(&world, "b", &items).await.is(202);
        assert_eq!((&loose["errors"][0]["index"], &loose["errors"][0]["code"]), (&json!(1), &json!("key_mismatch")));
        assert_eq!(world.count().await, 2);
    }

    async fn a_batch_from_a_sender_that_is_not_allowed_names_its_item(world) {
        let bound = world.api_key(&json!({ "name": "bound", "senders": ["agent@example.com"] })).await;
        let items = json!([mail(), mail_with(json!({ "from": "other@example.com" }))]);
        let call = post("/v1/emails/batch").by(&bound).key("b").json(&items);
        world.call(call).await.refused(403, "sender_not_allowed").at("[1].from");
        let call = post("/v1/emails/batch").by(&bound).key("b").header("x-batch-validation", "permissive").json(&items);
        let loose = world.call(call).await.is(202);
        assert_eq!(loose["errors"][0]["code"], "sender_not_allowed");
    }

    async fn a_retried_batch_is_never_refused_by_later_policy(world) {
        let items = json!([mail(), mail_with(json!({ "from": "other@example.com" })), about("order_1")]);
        let first = strict(&world, "b", &items).await.is(202);
        let bound = world.api_key(&json!({ "name": "bound", "senders": ["agent@example.com"] })).await;
        let again = world.call(post("/v1/emails/batch").by(&bound).key("b").json(&items)).await.is(200);
        assert_eq!(again["data"][1]["id"], first["data"][1]["id"]);
    }

    async fn the_items_of_a_batch_are_remembered_longer_than_its_own_key_when_they_wait(world) {
        let items = json!([mail_with(json!({ "scheduled_at": "in 50 days" }))]);
        let first = strict(&world, "b", &items).await.is(202);
        world.pass(40 * DAY);
        world.engine.store().sweep(100, world.engine.now()).await.unwrap();
        let again = strict(&world, "b", &items).await;
        assert_eq!(again["data"][0]["id"], first["data"][0]["id"], "{}", again.text);
        assert_eq!(world.count().await, 1);
    }
}
