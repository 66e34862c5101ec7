//! The first send and its replays.

use serde_json::json;

use crate::fixtures::{
    api_fixture::{mail, mail_with, mail_with_intent},
    requests::post,
};

over_every_engine! {
    async fn envelopes_keep_the_case_of_the_local_part_and_are_deduplicated(world) {
        let to = json!({ "to": ["Ada.Lovelace@Example.COM", "ada.lovelace@example.com"], "cc": ["Bob@example.org"] });
        let id = world.send("k", &mail_with(to)).await.expect_status(202).string_field("id");
        let email = world.email(&id).await;
        let envelopes: Vec<_> = email["handoffs"].as_array().unwrap().iter().map(|h| &h["recipients"][0]).collect();
        assert_eq!(envelopes, ["Ada.Lovelace@example.com", "Bob@example.org"]);
        assert_eq!(email["to"], json!(["ada.lovelace@example.com"]));
    }

    async fn the_first_call_is_202_and_every_replay_is_200_with_the_same_email(world) {
        let first = world.send("order-4821", &mail()).await.expect_status(202);
        assert!(!first.is_replay());
        assert_eq!(first["state"], "queued");
        assert_eq!(first["dedupe"]["outcome"], "first");
        assert_eq!(first["dedupe"]["key"], "order-4821");
        assert_eq!(first["dedupe"]["suppressed"], 0);
        assert_eq!(first["dedupe"]["payload_differs"], false);
        for n in 1..=3 {
            let again = world.send("order-4821", &mail()).await.expect_status(200);
            assert!(again.is_replay());
            assert_eq!(again["dedupe"]["outcome"], "replayed");
            assert_eq!(again["dedupe"]["suppressed"], n);
            for same in ["id", "message_id", "created_at", "state", "rev"] {
                assert_eq!(again[same], first[same], "{same}");
            }
        }
        assert_eq!(world.email_count().await, 1);
    }

    async fn the_response_to_a_send_has_every_documented_field(world) {
        let answer = world.send("k", &mail()).await.expect_status(202);
        for member in ["id", "state", "rev", "message_id", "created_at", "next", "dedupe"] {
            assert!(!answer[member].is_null(), "{member} in {}", answer.text);
        }
        for member in ["outcome", "key", "expires_at", "suppressed", "payload_differs"] {
            assert!(answer["dedupe"].get(member).is_some(), "dedupe.{member} in {}", answer.text);
        }
        let message_id = answer.string_field("message_id");
        assert!(message_id.starts_with('<') && message_id.ends_with("@example.com>"), "{message_id}");
        let version = answer.string_field("id").parse::<uuid::Uuid>().unwrap().get_version_num();
        assert_eq!(version, 7);
        assert_eq!(answer.string_field("created_at"), "2026-11-15T10:00:00.000Z");
    }

    async fn the_same_intent_returns_the_first_email(world) {
        let first = world.send_without_key(&mail_with_intent("order_4821")).await.expect_status(202);
        let again = world.send_without_key(&mail_with_intent("order_4821")).await.expect_status(200);
        assert_eq!(again["id"], first["id"]);
        assert!(again.is_replay());
        let other = world.send_without_key(&mail_with_intent("order_4822")).await.expect_status(202);
        assert_ne!(other["id"], first["id"]);
        assert!(first["dedupe"]["key"].as_str().unwrap().starts_with("i1_"));
    }

    async fn without_a_key_every_call_is_a_new_email(world) {
        let first = world.send_without_key(&mail()).await.expect_status(202);
        let second = world.send_without_key(&mail()).await.expect_status(202);
        assert_ne!(first["id"], second["id"]);
        assert_ne!(first["message_id"], second["message_id"]);
        assert_eq!(first["dedupe"]["key"], json!(null));
    }

    async fn a_replay_shows_the_current_state_and_explains_it(world) {
        let first = world.send("k", &mail()).await.expect_status(202);
        assert!(first.string_field("next").contains("do not send it again"));
        assert!(world.send("k", &mail()).await.expect_status(200).string_field("next").contains("on its way"));
        world.hand_off_due().await;
        let sent = world.send("k", &mail()).await.expect_status(200);
        assert_eq!(sent["state"], "sent");
        assert!(sent.string_field("next").contains("Already sent"), "{}", sent.text);
        assert!(sent["rev"].as_u64() > first["rev"].as_u64());
        for same in ["id", "message_id", "created_at"] {
            assert_eq!(sent[same], first[same], "{same}");
        }
        assert_eq!(sent["dedupe"]["key"], "k");
    }

    async fn a_replay_of_a_cancelled_email_says_so_and_sends_nothing(world) {
        let first = world.send("k", &mail_with(json!({ "scheduled_at": "in 1 hour" }))).await.expect_status(202);
        world.call(post(&format!("/v1/emails/{}/cancel", first.string_field("id")))).await.expect_status(200);
        let again = world.send("k", &mail_with(json!({ "scheduled_at": "in 1 hour" }))).await.expect_status(200);
        assert_eq!(again["state"], "cancelled");
        assert!(again.string_field("next").contains("cancelled"), "{}", again.text);
        assert_eq!(world.email_count().await, 1);
    }

    async fn one_email_has_one_envelope_per_recipient(world) {
        let body = mail_with(json!({ "to": ["a@x.test", "A@X.test"], "cc": "b@x.test", "bcc": ["c@x.test", "a@x.test"] }));
        let id = world.send("k", &body).await.expect_status(202).string_field("id");
        let email = world.email(&id).await;
        let recipients: Vec<_> = email["handoffs"].as_array().unwrap().iter().map(|h| h["recipients"].clone()).collect();
        assert_eq!(recipients, [json!(["a@x.test"]), json!(["b@x.test"]), json!(["c@x.test"])]);
        world.hand_off_due().await;
        assert_eq!(world.email(&id).await["counts"], json!({ "sent": 3 }));
    }
}
