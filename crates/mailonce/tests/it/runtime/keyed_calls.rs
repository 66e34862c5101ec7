//! Idempotency keys on calls that are not sends.

use serde_json::json;

use crate::fixtures::{
    api_fixture::{DAY, mail, mail_with},
    requests::{get, post},
};

over_every_engine! {
    async fn a_replayed_api_key_creation_shows_the_same_secret(world) {
        let call = || post("/v1/api-keys").key("make-key").json(&json!({ "name": "worker" }));
        let first = world.call(call()).await.expect_status(201);
        let again = world.call(call()).await.expect_status(200);
        assert!(again.is_replay() && !first.is_replay());
        assert_eq!((&again["id"], &again["api_key"]), (&first["id"], &first["api_key"]));
        world.call(get("/v1/emails").bearer(&first.string_field("api_key"))).await.expect_status(200);
        let worker_keys = world.get("/v1/api-keys").await.expect_status(200).rows().iter().filter(|key| key["name"] == "worker").count();
        assert_eq!(worker_keys, 1);
    }

    async fn a_replayed_team_creation_shows_the_same_secret(world) {
        let call = || post("/v1/teams").key("make-team").json(&json!({ "name": "other" }));
        let first = world.call(call()).await.expect_status(201);
        let again = world.call(call()).await.expect_status(200);
        assert!(again.is_replay() && !first.is_replay());
        assert_eq!((&again["id"], &again["api_key"], &again["name"]), (&first["id"], &first["api_key"], &json!("other")));
        world.call(get("/v1/emails").bearer(&first.string_field("api_key"))).await.expect_status(200);
        assert_eq!(world.get("/v1/teams").await.expect_status(200).rows().len(), 2);
    }

    async fn a_team_name_is_unique(world) {
        let call = || post("/v1/teams").key("make-team").json(&json!({ "name": "Twin" }));
        let first = world.call(call()).await.expect_status(201);
        let refused = world.call(post("/v1/teams").key("another").json(&json!({ "name": "Twin" }))).await;
        refused.expect_problem(409, "team_exists").expect_field("name");
        world.post("/v1/teams", &json!({ "name": "" })).await.expect_problem(422, "invalid_field").expect_field("name");
        assert_eq!(world.call(call()).await.expect_status(200)["api_key"], first["api_key"], "a retry gets the first response");
        world.call(post("/v1/teams").key("another").json(&json!({ "name": "Other" }))).await.expect_status(201);
        assert_eq!(world.get("/v1/teams").await.expect_status(200).rows().len(), 3);
    }

    async fn a_replayed_creation_shows_an_api_key_that_has_expired(world) {
        let ends = world.timestamp_in(1_000);
        let call = || post("/v1/api-keys").key("k").json(&json!({ "name": "worker", "expires_at": ends }));
        let first = world.call(call()).await.expect_status(201);
        world.advance_clock(2_000);
        assert_eq!(world.call(call()).await.expect_status(200)["api_key"], first["api_key"]);
        let late = world.post("/v1/api-keys", &json!({ "name": "worker", "expires_at": ends })).await;
        late.expect_problem(422, "invalid_field").expect_field("expires_at");
    }

    async fn another_body_or_another_call_under_the_same_key_is_a_mismatch(world) {
        world.call(post("/v1/api-keys").key("k").json(&json!({ "name": "worker" }))).await.expect_status(201);
        let others = [
            post("/v1/api-keys").key("k").json(&json!({ "name": "other" })),
            post("/v1/api-keys").key("k").json(&json!({ "name": "worker", "scopes": ["send"] })),
            post("/v1/teams").key("k").json(&json!({ "name": "worker" })),
            post("/v1/emails").key("k").json(&mail()),
            post("/v1/emails/batch").key("k").json(&json!([mail()])),
        ];
        for other in others {
            world.call(other).await.expect_problem(422, "key_mismatch");
        }
        world.send("mine", &mail()).await.expect_status(202);
        world.call(post("/v1/api-keys").key("mine").json(&json!({ "name": "worker" }))).await.expect_problem(422, "key_mismatch");
        assert_eq!((world.get("/v1/api-keys").await.rows().len(), world.get("/v1/teams").await.rows().len()), (2, 1));
    }

    async fn an_equivalent_call_is_a_replay(world) {
        let call = |body: &str| post("/v1/api-keys").key("k").json_bytes(body.to_owned());
        let first = world.call(call(r#"{"name":"worker","scopes":["send"]}"#)).await.expect_status(201);
        let again = world.call(call(r#"{ "scopes": ["send"], "name": "worker", "allowed_senders": null }"#)).await.expect_status(200);
        assert_eq!(again["api_key"], first["api_key"]);
    }

    async fn an_operation_is_remembered_for_a_day(world) {
        let call = || post("/v1/api-keys").key("k").json(&json!({ "name": "worker" }));
        let first = world.call(call()).await.expect_status(201);
        world.advance_clock(DAY - 1);
        assert_eq!(world.call(call()).await.expect_status(200)["id"], first["id"]);
        let shown = world.get("/v1/keys/k").await.expect_status(200);
        assert_eq!((&shown["bound_to"], &shown["expires_at"]), (&json!("operation"), &json!(world.timestamp_in(1))));
        world.advance_clock(1);
        assert_ne!(world.call(call()).await.expect_status(201)["id"], first["id"]);
    }

    async fn without_an_idempotency_key_each_call_creates_another_secret(world) {
        let first = world.post("/v1/api-keys", &json!({ "name": "worker" })).await.expect_status(201);
        let second = world.post("/v1/api-keys", &json!({ "name": "worker" })).await.expect_status(201);
        assert_ne!(first["api_key"], second["api_key"]);
    }

    async fn a_refused_operation_binds_no_key(world) {
        world.call(post("/v1/api-keys").key("k").json(&json!({ "name": "a\nb" }))).await.expect_problem(422, "invalid_field");
        world.call(post("/v1/api-keys").key("k").json(&json!({ "name": "worker" }))).await.expect_status(201);
        let id = world.send("mail", &mail()).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let cancel = || post(&format!("/v1/emails/{id}/cancel")).key("c");
        world.call(cancel()).await.expect_problem(409, "too_late");
        world.send("c", &mail()).await.expect_status(202);
    }

    async fn a_cancel_is_replayed_and_its_key_is_refused_for_other_calls(world) {
        let later = mail_with(json!({ "scheduled_at": "in 1 hour" }));
        let (one, two) = (world.send("1", &later).await.string_field("id"), world.send("2", &later).await.string_field("id"));
        let call = |id: &str| post(&format!("/v1/emails/{id}/cancel")).key("stop");
        assert!(!world.call(call(&one)).await.expect_status(200).is_replay());
        let again = world.call(call(&one)).await.expect_status(200);
        assert!(again.is_replay());
        assert_eq!(again["state"], "cancelled");
        world.call(call(&two)).await.expect_problem(422, "key_mismatch");
        world.send("stop", &mail()).await.expect_problem(422, "key_mismatch");
        assert_eq!(world.email(&two).await["state"], "scheduled");
    }

    async fn the_same_key_in_two_teams_is_two_operations(world) {
        let other = world.create_team("other").await;
        let body = json!({ "name": "worker" });
        let ours = world.call(post("/v1/api-keys").key("k").json(&body)).await.expect_status(201);
        let theirs = world.call(post("/v1/api-keys").bearer(&other).key("k").json(&body)).await.expect_status(201);
        assert_ne!(ours["api_key"], theirs["api_key"]);
    }
}
