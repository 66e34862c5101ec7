//! Batches: many emails under one idempotency key.

use serde_json::{Value, json};
use std::collections::BTreeSet;

use crate::fixtures::{
    api_fixture::{World, mail, mail_with, mail_with_intent},
    requests::{TestResponse, post},
};

async fn send_batch(world: &World, key: &str, items: &Value) -> TestResponse {
    world.call(post("/v1/emails/batch").key(key).json(items)).await
}

/// Emails to reader0, reader1, reader2 …
fn numbered_emails(count: usize) -> Value {
    (0..count).map(|n| mail_with(json!({ "to": format!("reader{n}@example.com") }))).collect()
}

fn ids(answer: &TestResponse) -> Vec<Value> {
    answer.rows().iter().map(|row| row["id"].clone()).collect()
}

over_every_engine! {
    async fn a_batch_of_1000_is_answered_in_order_and_replayed_with_the_same_ids(world) {
        let items = numbered_emails(1000);
        let first = send_batch(&world, "news", &items).await.expect_status(202);
        assert!(!first.is_replay());
        assert_eq!((first.rows().len(), &first["errors"]), (1000, &json!([])));
        let unique: BTreeSet<String> = first.rows().iter().map(|row| row["id"].to_string()).collect();
        assert_eq!(unique.len(), 1000);
        for n in [0, 1, 499, 999] {
            let id = first["data"][n]["id"].as_str().unwrap();
            assert_eq!(world.email(id).await["to"], json!([format!("reader{n}@example.com")]));
            assert_eq!(first["data"][n]["dedupe"]["key"], format!("news[{n}]"));
            assert_eq!(first["data"][n]["dedupe"]["outcome"], "first");
        }
        let again = send_batch(&world, "news", &items).await.expect_status(200);
        assert!(again.is_replay());
        assert_eq!(ids(&again), ids(&first));
        assert_eq!(again["data"][999]["dedupe"]["outcome"], "replayed");
        world.hand_off_due().await;
        assert_eq!(send_batch(&world, "news", &items).await.expect_status(200)["data"][500]["state"], "sent");
    }

    async fn a_batch_holds_1_to_1000_emails(world) {
        send_batch(&world, "none", &json!([])).await.expect_problem(422, "invalid_field");
        send_batch(&world, "many", &numbered_emails(1001)).await.expect_problem(422, "invalid_field");
        send_batch(&world, "none", &numbered_emails(1)).await.expect_status(202);
    }

    async fn another_body_under_a_batch_key_is_a_mismatch(world) {
        let first = send_batch(&world, "b", &numbered_emails(3)).await.expect_status(202);
        let mut other = numbered_emails(3);
        other[1]["text"] = json!("else");
        send_batch(&world, "b", &other).await.expect_problem(422, "key_mismatch");
        send_batch(&world, "b", &numbered_emails(4)).await.expect_problem(422, "key_mismatch");
        assert_eq!(ids(&send_batch(&world, "b", &numbered_emails(3)).await.expect_status(200)), ids(&first));
        assert_eq!(world.email_count().await, 3);
    }

    async fn one_bad_item_refuses_a_whole_strict_batch_and_binds_no_key(world) {
        let mut items = numbered_emails(5);
        items[3]["to"] = json!("nobody");
        let refused = send_batch(&world, "b", &items).await.expect_problem(422, "invalid_field").expect_field("[3].to[0]");
        assert_eq!(refused["index"], 3);
        assert_eq!(world.email_count().await, 0);
        send_batch(&world, "b", &numbered_emails(5)).await.expect_status(202);
    }

    async fn a_permissive_batch_accepts_the_good_items_and_names_the_others(world) {
        let mut items = numbered_emails(4);
        items[1]["to"] = json!("nobody");
        items[2]["subjct"] = json!("Typo");
        let call = || post("/v1/emails/batch").key("b").header("x-batch-validation", "permissive").json(&items);
        let first = world.call(call()).await.expect_status(202);
        assert_eq!((&first["data"][1], &first["data"][2]), (&json!(null), &json!(null)));
        assert!(first["data"][0]["id"].is_string() && first["data"][3]["id"].is_string());
        assert_eq!(first["data"][3]["dedupe"]["key"], "b[3]");
        let errors = first["errors"].as_array().unwrap();
        assert_eq!((&errors[0]["index"], &errors[0]["code"], &errors[0]["field"]), (&json!(1), &json!("invalid_field"), &json!("to[0]")));
        assert_eq!((&errors[1]["index"], &errors[1]["code"], &errors[1]["field"]), (&json!(2), &json!("unknown_field"), &json!("subjct")));
        assert!(errors[1]["message"].as_str().unwrap().contains("`subject`"));
        let again = world.call(call()).await.expect_status(200);
        assert_eq!((&again["data"][0]["id"], &again["data"][3]["id"]), (&first["data"][0]["id"], &first["data"][3]["id"]));
        assert_eq!(again["errors"], first["errors"]);
        assert_eq!(world.email_count().await, 2);
    }

    async fn a_batch_item_may_have_its_own_intent(world) {
        let single = world.send_without_key(&mail_with_intent("order_1")).await.expect_status(202);
        let items = json!([mail_with_intent("order_0"), mail_with_intent("order_1"), mail(), mail_with_intent("order_0")]);
        let first = send_batch(&world, "b", &items).await.expect_status(202);
        assert_eq!(first["data"][1]["id"], single["id"]);
        assert_eq!(first["data"][1]["dedupe"]["outcome"], "replayed");
        assert_eq!(first["data"][0]["id"], first["data"][3]["id"]);
        assert_eq!(first["data"][2]["dedupe"]["key"], "b[2]");
        // The same intents in another batch are the same emails.
        let other = send_batch(&world, "c", &json!([mail_with_intent("order_1"), mail_with_intent("order_0")])).await.expect_status(200);
        assert_eq!((&other["data"][0]["id"], &other["data"][1]["id"]), (&single["id"], &first["data"][0]["id"]));
        assert_eq!(world.email_count().await, 3);
    }

    async fn a_header_key_cannot_address_an_item_of_a_batch(world) {
        let first = send_batch(&world, "b", &numbered_emails(4)).await.expect_status(202);
        let single = world.send("b[3]", &numbered_emails(4)[3]).await.expect_status(202);
        assert_ne!(single["id"], first["data"][3]["id"]);
        world.send("b[2]", &mail_with(json!({ "text": "else" }))).await.expect_status(202);
        world.get("/v1/keys/b%5B1%5D").await.expect_problem(404, "not_found");
    }

    async fn a_batch_without_a_key_is_accepted_every_time(world) {
        let first = world.post("/v1/emails/batch", &numbered_emails(2)).await.expect_status(202);
        let second = world.post("/v1/emails/batch", &numbered_emails(2)).await.expect_status(202);
        assert_ne!(ids(&first), ids(&second));
        assert_eq!(world.email_count().await, 4);
    }

    async fn a_retried_batch_of_intents_sends_only_new_items(world) {
        world.post("/v1/emails/batch", &json!([mail_with_intent("order_1"), mail_with_intent("order_2")])).await.expect_status(202);
        let more = world.post("/v1/emails/batch", &json!([mail_with_intent("order_1"), mail_with_intent("order_2"), mail_with_intent("order_3")])).await.expect_status(202);
        let outcomes: Vec<_> = more.rows().iter().map(|row| row["dedupe"]["outcome"].clone()).collect();
        assert_eq!(outcomes, ["replayed", "replayed", "first"]);
        assert_eq!(world.email_count().await, 3);
    }
}
