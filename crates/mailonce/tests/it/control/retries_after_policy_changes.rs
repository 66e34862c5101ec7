//! A retry of an accepted email is never refused because a policy changed since.

use serde_json::json;

use crate::fixtures::{
    api_fixture::{DAY, World, mail, mail_with, mail_with_intent},
    requests::{get, patch, post},
};

async fn require_keys(world: &World) {
    let teams = world.get("/v1/teams").await.expect_status(200).rows();
    let id = teams[0]["id"].as_str().unwrap();
    let changed =
        world.call(patch(&format!("/v1/teams/{id}")).json(&json!({ "require_keys": true }))).await.expect_status(200);
    assert_eq!(changed["require_keys"], true);
}

over_every_engine! {
    async fn a_team_can_require_keys(world) {
        world.send_without_key(&mail()).await.expect_status(202);
        require_keys(&world).await;
        let refused = world.send_without_key(&mail()).await.expect_problem(400, "key_required");
        assert_eq!(refused["retry"], "never");
        world.post("/v1/emails/batch", &json!([mail()])).await.expect_problem(400, "key_required");
        world.send("k", &mail()).await.expect_status(202);
        world.send_without_key(&mail_with_intent("order_1")).await.expect_status(202);
        world.call(post("/v1/emails/batch").key("b").json(&json!([mail()]))).await.expect_status(202);
    }

    async fn a_retry_is_replayed_after_keys_became_required(world) {
        let keyed = world.send("k", &mail()).await.expect_status(202);
        let with_intent = world.send_without_key(&mail_with_intent("order_1")).await.expect_status(202);
        require_keys(&world).await;
        assert_eq!(world.send("k", &mail()).await.expect_status(200)["id"], keyed["id"]);
        assert_eq!(world.send_without_key(&mail_with_intent("order_1")).await.expect_status(200)["id"], with_intent["id"]);
    }

    async fn a_retry_is_replayed_with_an_api_key_that_may_not_use_the_sender(world) {
        let first = world.send("k", &mail()).await.expect_status(202);
        let restricted_key = world.create_api_key(&json!({ "name": "narrow", "allowed_senders": ["other@example.com"] })).await;
        let again = world.call(post("/v1/emails").bearer(&restricted_key).key("k").json(&mail())).await.expect_status(200);
        assert_eq!(again["id"], first["id"]);
        world.call(post("/v1/emails").bearer(&restricted_key).key("new").json(&mail())).await.expect_problem(403, "sender_not_allowed");
    }

    async fn a_retry_is_replayed_from_the_ledger_when_the_cache_is_cold(world) {
        let first = world.send("k", &mail_with(json!({ "transport": "sandbox" }))).await.expect_status(202);
        let restricted_key = world.create_api_key(&json!({ "name": "narrow", "allowed_senders": ["other@example.com"] })).await;
        let world = Box::pin(world.restart()).await;
        let gone = mail_with(json!({ "transport": "gone" }));
        let again = world.call(post("/v1/emails").bearer(&restricted_key).key("k").json(&gone)).await.expect_status(200);
        assert_eq!(again["id"], first["id"]);
    }

    async fn a_retry_is_replayed_after_its_scheduled_time(world) {
        let body = mail_with(json!({ "scheduled_at": world.timestamp_in(DAY) }));
        let first = world.send("k", &body).await.expect_status(202);
        world.advance_clock(2 * DAY);
        let again = world.send("k", &body).await.expect_status(200);
        assert_eq!((&again["id"], &again["state"]), (&first["id"], &json!("scheduled")));
        world.hand_off_due().await;
        assert_eq!(world.send("k", &body).await.expect_status(200)["state"], "sent");
    }

    async fn a_bound_key_is_looked_up_before_the_schedule_is_validated(world) {
        let body = mail_with(json!({ "scheduled_at": world.timestamp_in(DAY) }));
        world.send("k", &body).await.expect_status(202);
        let far = mail_with(json!({ "scheduled_at": world.timestamp_in(401 * DAY) }));
        // The key is looked up first, so this is a mismatch and not an invalid date.
        world.send("k", &far).await.expect_problem(422, "key_mismatch");
        world.send("new", &far).await.expect_problem(422, "invalid_field").expect_field("scheduled_at");
    }

    async fn a_time_in_the_past_means_now(world) {
        let body = mail_with(json!({ "scheduled_at": world.timestamp_in(-DAY) }));
        assert_eq!(world.send("k", &body).await.expect_status(202)["state"], "queued");
    }

    async fn an_api_key_without_send_scope_cannot_retry(world) {
        world.send("k", &mail()).await.expect_status(202);
        let reader = world.create_api_key(&json!({ "name": "reader", "scopes": ["read"] })).await;
        world.call(post("/v1/emails").bearer(&reader).key("k").json(&mail())).await.expect_problem(403, "wrong_scope");
        world.call(get("/v1/emails").bearer(&reader)).await.expect_status(200);
    }
}
