//! The same idempotency key with different content.

use serde_json::{Value, json};

use crate::fixtures::api_fixture::{World, mail, mail_with, mail_with_intent};

/// Sends an email with an intent and returns its derived key.
async fn send_and_get_derived_key(world: &World, body: &Value) -> String {
    world.send_without_key(body).await["dedupe"]["key"].as_str().unwrap().to_owned()
}

/// Changes that are a mismatch even with an intent.
fn changes_that_intents_reject() -> Vec<(&'static str, Value)> {
    vec![
        ("from", json!({ "from": "other@example.com" })),
        ("cc", json!({ "cc": "boss@example.com" })),
        ("bcc", json!({ "bcc": ["boss@example.com"] })),
        ("reply_to", json!({ "reply_to": "desk@example.com" })),
        ("attachments", json!({ "attachments": [{ "filename": "a.txt", "content": "aGVsbG8=" }] })),
        ("scheduled_at", json!({ "scheduled_at": "in 2 hours" })),
    ]
}

over_every_engine! {
    async fn different_content_under_a_header_key_is_a_mismatch_that_names_the_fields_and_the_original(world) {
        let first = world.send("k", &mail()).await.expect_status(202);
        let other = mail_with(json!({ "subject": "Order 4822", "html": "<p>Thanks</p>" }));
        let refused = world.send("k", &other).await.expect_problem(422, "key_mismatch");
        assert_eq!(refused["differing_fields"], json!(["subject", "html"]));
        assert_eq!(refused["original_email"], first["id"]);
        assert_eq!(refused["key"], "k");
        assert!(refused.string_field("detail").contains(&first.string_field("id")));
        assert_eq!(refused["retry"], "never");
        assert_eq!(world.email_count().await, 1);
        world.send("k", &mail()).await.expect_status(200);
    }

    async fn every_differing_content_field_is_named(world) {
        world.send("k", &mail()).await.expect_status(202);
        let others = [
            ("to", json!({ "to": ["other@example.com"] })),
            ("subject", json!({ "subject": "" })),
            ("text", json!({ "text": "Thank you for your order!" })),
            ("html", json!({ "html": "<p></p>" })),
            ("headers", json!({ "headers": { "X-Priority": "1" } })),
            ("tags", json!({ "tags": ["receipt"] })),
            ("metadata", json!({ "metadata": { "order": 4821 } })),
            ("display names", json!({ "from": "Agent <agent@example.com>" })),
        ];
        for (field, more) in others.into_iter().chain(changes_that_intents_reject()) {
            let refused = world.send("k", &mail_with(more)).await.expect_problem(422, "key_mismatch");
            assert_eq!(refused["differing_fields"], json!([field]));
        }
    }

    async fn different_wording_under_an_intent_returns_the_original_with_payload_differs(world) {
        let first = world.send_without_key(&mail_with_intent("order_4821")).await.expect_status(202);
        let changes = [
            json!({ "subject": "Your order" }),
            json!({ "text": "Thanks a lot!" }),
            json!({ "html": "<b>Thanks</b>" }),
            json!({ "tags": ["retry"] }),
            json!({ "metadata": { "attempt": 2 } }),
            json!({ "headers": { "X-Attempt": "2" } }),
            json!({ "from": "The agent <agent@example.com>" }),
        ];
        for more in changes {
            let mut other = mail_with_intent("order_4821");
            for (name, value) in more.as_object().unwrap() {
                other[name] = value.clone();
            }
            let again = world.send_without_key(&other).await.expect_status(200);
            assert_eq!(again["id"], first["id"], "{more}");
            assert_eq!(again["dedupe"]["payload_differs"], true, "{more}");
            assert!(again.is_replay());
            assert!(again.string_field("next").contains("first version counts"), "{}", again.text);
        }
        let same = world.send_without_key(&mail_with_intent("order_4821")).await.expect_status(200);
        assert_eq!(same["dedupe"]["payload_differs"], false);
    }

    async fn another_sender_copy_attachment_or_schedule_is_a_mismatch_even_under_an_intent(world) {
        let first = world.send_without_key(&mail_with_intent("order_4821")).await.expect_status(202);
        for (field, more) in changes_that_intents_reject() {
            let mut other = mail_with_intent("order_4821");
            for (name, value) in more.as_object().unwrap() {
                other[name] = value.clone();
            }
            let refused = world.send_without_key(&other).await.expect_problem(422, "key_mismatch");
            assert_eq!((&refused["differing_fields"], &refused["original_email"]), (&json!([field]), &first["id"]));
        }
        assert_eq!(world.email_count().await, 1);
    }

    async fn on_mismatch_reject_makes_an_intent_strict(world) {
        world.send_without_key(&mail_with_intent("order_4821")).await.expect_status(202);
        let mut other = mail_with_intent("order_4821");
        other["text"] = json!("Thanks!");
        other["on_mismatch"] = json!("reject");
        let refused = world.send_without_key(&other).await.expect_problem(422, "key_mismatch");
        assert_eq!(refused["differing_fields"], json!(["text"]));
    }

    async fn on_mismatch_first_wins_makes_a_header_key_lenient_about_wording_only(world) {
        let first = world.send("k", &mail()).await.expect_status(202);
        let other_text = mail_with(json!({ "text": "Thanks!", "on_mismatch": "first_wins" }));
        let again = world.send("k", &other_text).await.expect_status(200);
        assert_eq!((&again["id"], &again["dedupe"]["payload_differs"]), (&first["id"], &json!(true)));
        let other_recipients = mail_with(json!({ "cc": "boss@example.com", "on_mismatch": "first_wins" }));
        world.send("k", &other_recipients).await.expect_problem(422, "key_mismatch");
    }

    async fn a_header_equal_to_the_derived_key_counts_as_the_intent(world) {
        let key = send_and_get_derived_key(&world, &mail_with_intent("order_4821")).await;
        let mut other = mail_with_intent("order_4821");
        other["text"] = json!("Thanks!");
        let again = world.send(&key, &other).await.expect_status(200);
        assert_eq!(again["dedupe"]["payload_differs"], true);
        assert_eq!(world.email_count().await, 1);
    }

    async fn the_derived_key_without_its_intent_is_a_plain_header_key(world) {
        let key = send_and_get_derived_key(&world, &mail_with_intent("order_4821")).await;
        world.send(&key, &mail()).await.expect_status(200);
        let other = mail_with(json!({ "text": "Thanks!" }));
        world.send(&key, &other).await.expect_problem(422, "key_mismatch");
    }

    async fn a_header_key_wins_over_the_intent_which_is_stored(world) {
        let first = world.send("mine", &mail_with_intent("order_4821")).await.expect_status(202);
        assert_eq!(first["dedupe"]["key"], "mine");
        let email = world.email(&first.string_field("id")).await;
        assert_eq!(email["intent"]["entity"], "order_4821");
        let mut other = mail_with_intent("order_4821");
        other["text"] = json!("Thanks!");
        world.send("mine", &other).await.expect_problem(422, "key_mismatch");
    }

    async fn options_outside_the_digest_may_change(world) {
        let first = world.send("k", &mail()).await.expect_status(202);
        for more in [json!({ "ttl": "1d" }), json!({ "on_unknown": "resend" }), json!({ "transport": "sandbox" }), json!({ "on_mismatch": "reject" })] {
            let again = world.send("k", &mail_with(more)).await.expect_status(200);
            assert_eq!(again["id"], first["id"]);
        }
        // A bound key is looked up before validation: a new email with these values would be refused.
        for more in [json!({ "transport": "gone" }), json!({ "distinct_token": "spent" })] {
            world.send("k", &mail_with(more)).await.expect_status(200);
        }
    }
}
