//! Resending an email on purpose.

use mailonce_core::{
    handoff::{
        action::{HandoffAction, HandoffActionStatus},
        envelope::Envelope,
        lease::HandoffActionResult,
    },
    operation::IdempotentResult,
};
use mailonce_engine::SANDBOX;
use serde_json::json;
use std::collections::BTreeSet;
use tower::ServiceExt as _;

use crate::fixtures::{
    api_fixture::{DAY, World, mail, mail_with, mail_with_intent},
    requests::{TestResponse, post},
};

async fn resend_email(world: &World, id: &str) -> TestResponse {
    world.post(&format!("/v1/emails/{id}/resend"), &json!({ "reason": "the customer asked" })).await
}

over_every_engine! {
    async fn resending_ten_times_makes_one_new_version(world) {
        let first = world.send("k", &mail()).await.expect_status(202);
        world.hand_off_due().await;
        let version = resend_email(&world, &first.string_field("id")).await.expect_status(202);
        assert_ne!(version["id"], first["id"]);
        assert_ne!(version["message_id"], first["message_id"]);
        assert_eq!((&version["state"], &version["dedupe"]["outcome"]), (&json!("queued"), &json!("first")));
        let mut ids = BTreeSet::new();
        for count in 1..=10 {
            let again = resend_email(&world, &first.string_field("id")).await.expect_status(200);
            assert!(again.is_replay());
            assert_eq!(again["dedupe"]["suppressed"], count);
            ids.insert(again.string_field("id"));
        }
        assert_eq!(ids, BTreeSet::from([version.string_field("id")]));
        assert_eq!(world.email_count().await, 2);
        let (old, new) = (world.email(&first.string_field("id")).await, world.email(&version.string_field("id")).await);
        assert_eq!((&old["resent_as"], &new["resend_of"]), (&version["id"], &first["id"]));
        assert_eq!((&old["version"], &new["version"], &new["text"]), (&json!(1), &json!(2), &old["text"]));
        // The key still returns the first email.
        assert_eq!(world.send("k", &mail()).await.expect_status(200)["id"], first["id"]);
    }

    async fn an_api_key_cannot_resend_mail_of_senders_it_may_not_use(world) {
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let bound = world.create_api_key(&json!({ "name": "bot", "allowed_senders": ["other@example.com"] })).await;
        let request_by_bot = post(&format!("/v1/emails/{id}/resend")).bearer(&bound).json(&json!({}));
        world.call(request_by_bot).await.expect_problem(403, "sender_not_allowed");
        assert_eq!(world.email_count().await, 1);
    }

    async fn resending_at_the_same_time_makes_one_new_version(world) {
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let request = post(&format!("/v1/emails/{id}/resend")).json(&json!({})).build(&world.secret);
            let router = world.router();
            calls.spawn(async move { TestResponse::from_response(router.oneshot(request).await.unwrap()).await });
        }
        let answers = calls.join_all().await;
        assert!(answers.iter().all(|answer| answer["id"] == answers[0]["id"]));
        assert_eq!(answers.iter().filter(|answer| answer.status == 202).count(), 1);
        assert_eq!(world.email_count().await, 2);
    }

    async fn a_resend_after_a_failover_goes_to_each_recipient_once(world) {
        let two = mail_with(json!({ "to": ["a@example.com", "b@example.com"] }));
        let id = world.send("k", &two).await.expect_status(202).string_field("id");
        let envelope = |to: &str| Envelope { transport: SANDBOX.into(), recipients: vec![to.into()] };
        let envelopes = vec![envelope("a@example.com"), envelope("b@example.com")];
        let failover = HandoffAction::FailOverEmail { from: SANDBOX.into(), envelopes };
        let team = world.engine.access.teams().await.unwrap()[0].id;
        let result = world.engine.ctx.store().apply_action(team, id.parse().unwrap(), failover, None, world.engine.ctx.now()).await.unwrap();
        assert!(matches!(result, IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, _))));
        world.hand_off_due().await;
        assert_eq!(world.email(&id).await["handoffs"].as_array().unwrap().len(), 4);

        let version = resend_email(&world, &id).await.expect_status(202).string_field("id");

        let handoffs = world.email(&version).await["handoffs"].clone();
        let to: Vec<_> = handoffs.as_array().unwrap().iter().map(|handoff| &handoff["recipients"][0]).collect();
        assert_eq!(to, ["a@example.com", "b@example.com"]);
    }

    async fn an_unsettled_email_cannot_be_resent(world) {
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        let refused = resend_email(&world, &id).await.expect_problem(409, "not_terminal");
        assert_eq!((&refused["state"], &refused["retry"]), (&json!("queued"), &json!("later")));
        assert_eq!(world.email_count().await, 1);
        world.hand_off_due().await;
        resend_email(&world, &id).await.expect_status(202);
    }

    async fn a_cancelled_email_can_be_resent(world) {
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        world.call(post(&format!("/v1/emails/{id}/cancel"))).await.expect_status(200);
        resend_email(&world, &id).await.expect_status(202);
        world.hand_off_due().await;
        assert_eq!(world.send("k", &mail()).await.expect_status(200)["state"], "cancelled");
    }

    async fn the_budget_is_one_resend_a_day(world) {
        let first = world.send("k", &mail()).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let second = resend_email(&world, &first).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let refused = resend_email(&world, &second).await.expect_problem(409, "budget_spent");
        assert_eq!(refused["retry"], "later");
        world.advance_clock(DAY - 1);
        resend_email(&world, &second).await.expect_problem(409, "budget_spent");
        world.advance_clock(1);
        let third = resend_email(&world, &second).await.expect_status(202).string_field("id");
        assert_eq!(world.email(&third).await["version"], 3);
    }

    async fn a_resend_increments_the_version_of_its_intent(world) {
        let first = world.send_without_key(&mail_with_intent("order_1")).await.expect_status(202);
        world.hand_off_due().await;
        let second = resend_email(&world, &first.string_field("id")).await.expect_status(202);
        assert_ne!(second["dedupe"]["key"], first["dedupe"]["key"]);
        let mut version_2 = mail_with_intent("order_1");
        version_2["intent"]["version"] = json!(2);
        let again = world.send_without_key(&version_2).await.expect_status(200);
        assert_eq!((&again["id"], &again["dedupe"]["key"]), (&second["id"], &second["dedupe"]["key"]));
        assert_eq!(world.email(&second.string_field("id")).await["intent"]["version"], 2);
        assert_eq!(world.send_without_key(&mail_with_intent("order_1")).await.expect_status(200)["id"], first["id"]);
        assert_eq!(world.email_count().await, 2);
    }

    async fn resending_an_intent_whose_next_version_exists_returns_that_version(world) {
        let first = world.send_without_key(&mail_with_intent("order_1")).await.expect_status(202).string_field("id");
        let mut version_2 = mail_with_intent("order_1");
        version_2["intent"]["version"] = json!(2);
        let second = world.send_without_key(&version_2).await.expect_status(202);
        world.hand_off_due().await;
        assert_eq!(resend_email(&world, &first).await.expect_status(200)["id"], second["id"]);
        assert_eq!(world.email_count().await, 2);
    }

    async fn an_email_to_several_can_be_resent_without_overlapping_itself(world) {
        let mut body = mail_with_intent("order_1");
        body["to"] = json!(["a@x.test", "b@x.test"]);
        let first = world.send_without_key(&body).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let second = resend_email(&world, &first).await.expect_status(202);
        assert_eq!((&second["state"], &second["guard"]), (&json!("queued"), &json!(null)));
    }

    async fn a_resend_is_replayed_and_its_key_is_refused_for_other_calls(world) {
        let (one, two) = (world.send("1", &mail()).await.string_field("id"), world.send("2", &mail()).await.string_field("id"));
        world.hand_off_due().await;
        let call = |id: &str| post(&format!("/v1/emails/{id}/resend")).key("again").json(&json!({}));
        let version = world.call(call(&one)).await.expect_status(202);
        assert_eq!(world.call(call(&one)).await.expect_status(200)["id"], version["id"]);
        world.call(call(&two)).await.expect_problem(422, "key_mismatch");
        world.send("again", &mail()).await.expect_problem(422, "key_mismatch");
        assert_eq!(world.email_count().await, 3);
    }

    async fn a_key_bound_to_a_resend_is_checked_even_when_the_other_email_was_resent_before(world) {
        let (one, two) = (world.send("1", &mail()).await.string_field("id"), world.send("2", &mail()).await.string_field("id"));
        world.hand_off_due().await;
        resend_email(&world, &two).await.expect_status(202);
        let call = |id: &str| post(&format!("/v1/emails/{id}/resend")).key("again").json(&json!({}));
        world.call(call(&one)).await.expect_status(202);
        world.call(call(&two)).await.expect_problem(422, "key_mismatch");
    }

    async fn an_email_whose_body_was_dropped_cannot_be_resent(world) {
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        world.advance_clock(31 * DAY);
        world.engine.ctx.store().sweep(100, world.engine.ctx.now()).await.unwrap();
        resend_email(&world, &id).await.expect_problem(404, "not_found");
        assert_eq!(world.email_count().await, 1);
    }
}
