//! A retry of what was accepted is never refused by what changed since.

use serde_json::json;

use crate::{
    call::{get, patch, post},
    world::{DAY, World, about, mail, mail_with},
};

async fn require_keys(world: &World) {
    let teams = world.get("/v1/teams").await.is(200).rows();
    let id = teams[0]["id"].as_str().unwrap();
    let changed = world.call(patch(&format!("/v1/teams/{id}")).json(&json!({ "require_keys": true }))).await.is(200);
    assert_eq!(changed["require_keys"], true);
}

over_every_engine! {
    async fn a_team_can_require_keys(world) {
        world.wish(&mail()).await.is(202);
        require_keys(&world).await;
        let refused = world.wish(&mail()).await.refused(400, "key_required");
        assert_eq!(refused["retry"], "never");
        world.post("/v1/emails/batch", &json!([mail()])).await.refused(400, "key_required");
        world.send("k", &mail()).await.is(202);
        world.wish(&about("order_1")).await.is(202);
        world.call(post("/v1/emails/batch").key("b").json(&json!([mail()]))).await.is(202);
    }

    async fn a_retry_passes_although_keys_are_required_now(world) {
        let keyed = world.send("k", &mail()).await.is(202);
        let meant = world.wish(&about("order_1")).await.is(202);
        require_keys(&world).await;
        assert_eq!(world.send("k", &mail()).await.is(200)["id"], keyed["id"]);
        assert_eq!(world.wish(&about("order_1")).await.is(200)["id"], meant["id"]);
    }

    async fn a_retry_passes_although_this_credential_may_not_send_from_there(world) {
        let first = world.send("k", &mail()).await.is(202);
        let narrow = world.api_key(&json!({ "name": "narrow", "senders": ["other@example.com"] })).await;
        let again = world.call(post("/v1/emails").by(&narrow).key("k").json(&mail())).await.is(200);
        assert_eq!(again["id"], first["id"]);
        world.call(post("/v1/emails").by(&narrow).key("new").json(&mail())).await.refused(403, "sender_not_allowed");
    }

    async fn a_retry_passes_from_the_ledger_when_the_cache_is_cold(world) {
        let first = world.send("k", &mail_with(json!({ "transport": "sandbox" }))).await.is(202);
        let narrow = world.api_key(&json!({ "name": "narrow", "senders": ["other@example.com"] })).await;
        let world = Box::pin(world.restart()).await;
        let gone = mail_with(json!({ "transport": "gone" }));
        let again = world.call(post("/v1/emails").by(&narrow).key("k").json(&gone)).await.is(200);
        assert_eq!(again["id"], first["id"]);
    }

    async fn a_retry_passes_although_its_time_is_past(world) {
        let body = mail_with(json!({ "scheduled_at": world.at(DAY) }));
        let first = world.send("k", &body).await.is(202);
        world.pass(2 * DAY);
        let again = world.send("k", &body).await.is(200);
        assert_eq!((&again["id"], &again["state"]), (&first["id"], &json!("scheduled")));
        world.hand_over().await;
        assert_eq!(world.send("k", &body).await.is(200)["state"], "sent");
    }

    async fn a_retry_passes_although_its_time_would_be_too_far_for_a_new_wish(world) {
        let body = mail_with(json!({ "scheduled_at": world.at(DAY) }));
        world.send("k", &body).await.is(202);
        let far = mail_with(json!({ "scheduled_at": world.at(401 * DAY) }));
        // Looked up first: a mismatch is what it is, not a date that cannot be used.
        world.send("k", &far).await.refused(422, "key_mismatch");
        world.send("new", &far).await.refused(422, "invalid_field").at("scheduled_at");
    }

    async fn a_time_in_the_past_means_now(world) {
        let body = mail_with(json!({ "scheduled_at": world.at(-DAY) }));
        assert_eq!(world.send("k", &body).await.is(202)["state"], "queued");
    }

    async fn a_credential_that_may_not_send_cannot_retry_either(world) {
        world.send("k", &mail()).await.is(202);
        let reader = world.api_key(&json!({ "name": "reader", "scopes": ["read"] })).await;
        world.call(post("/v1/emails").by(&reader).key("k").json(&mail())).await.refused(403, "wrong_scope");
        world.call(get("/v1/emails").by(&reader)).await.is(200);
    }
}
