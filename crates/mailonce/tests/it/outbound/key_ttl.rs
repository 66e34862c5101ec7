//! How long idempotency keys are remembered, from when, and what remains afterwards.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{DAY, HOUR, SECOND, World, mail, mail_with},
    requests::post,
};

/// Sends with this `ttl`, hands off, and checks to the millisecond when the key expires.
async fn expect_key_remembered_for(world: &World, key: &str, ttl: Value, ms: i64) {
    let body = mail_with(json!({ "ttl": ttl }));
    let first = world.send(key, &body).await.expect_status(202);
    assert_eq!(first["dedupe"]["expires_at"], json!(null));
    world.advance_clock(HOUR);
    world.hand_off_due().await;
    let again = world.send(key, &body).await.expect_status(200);
    assert_eq!(again["dedupe"]["expires_at"], world.timestamp_in(ms), "{ttl}");
    world.advance_clock(ms - 1);
    assert_eq!(world.send(key, &body).await.expect_status(200)["id"], first["id"], "{ttl}");
    world.advance_clock(1);
    assert_ne!(world.send(key, &body).await.expect_status(202)["id"], first["id"], "{ttl}");
    world.hand_off_due().await;
}

over_every_engine! {
    async fn each_ttl_class_lasts_as_long_as_promised(world) {
        expect_key_remembered_for(&world, "transactional", json!("transactional"), 7 * DAY).await;
        expect_key_remembered_for(&world, "notification", json!("notification"), DAY).await;
        expect_key_remembered_for(&world, "scheduled", json!({ "class": "scheduled", "interval": "7d" }), 14 * DAY).await;
        expect_key_remembered_for(&world, "default", json!(null), 35 * DAY).await;
    }

    async fn an_explicit_ttl_lasts_as_long_as_requested(world) {
        for (ttl, ms) in [("1s", SECOND), ("90s", 90 * SECOND), ("24h", DAY), ("2w", 14 * DAY), ("400d", 400 * DAY)] {
            expect_key_remembered_for(&world, ttl, json!(ttl), ms).await;
        }
    }

    async fn an_invalid_ttl_is_refused(world) {
        let faults = [json!("401d"), json!("0s"), json!("-1d"), json!("forever"), json!(""), json!({ "class": "weekly", "interval": "7d" }), json!({ "class": "scheduled", "interval": "201d" })];
        for ttl in faults {
            world.send("k", &mail_with(json!({ "ttl": ttl }))).await.expect_problem(422, "invalid_field").expect_field("ttl");
        }
        for ttl in [json!(7), json!({ "class": "scheduled" }), json!(["7d"])] {
            world.send("k", &mail_with(json!({ "ttl": ttl }))).await.expect_problem(400, "invalid_type").expect_field("ttl");
        }
        world.send("k", &mail()).await.expect_status(202);
    }

    async fn a_key_does_not_expire_before_its_email_is_settled(world) {
        let body = mail_with(json!({ "ttl": "1s" }));
        let first = world.send("k", &body).await.expect_status(202);
        world.advance_clock(500 * DAY);
        world.engine.ctx.store().sweep(100, world.engine.ctx.now()).await.unwrap();
        let again = world.send("k", &body).await.expect_status(200);
        assert_eq!((&again["id"], &again["dedupe"]["expires_at"]), (&first["id"], &json!(null)));
    }

    async fn the_ttl_of_a_scheduled_email_starts_when_it_is_sent(world) {
        let body = mail_with(json!({ "scheduled_at": "in 3 days", "ttl": "1d" }));
        let first = world.send("k", &body).await.expect_status(202);
        assert_eq!(first["state"], "scheduled");
        world.advance_clock(2 * DAY);
        world.hand_off_due().await;
        assert_eq!(world.send("k", &body).await.expect_status(200)["state"], "scheduled");
        world.advance_clock(DAY);
        world.hand_off_due().await;
        let again = world.send("k", &body).await.expect_status(200);
        assert_eq!((&again["state"], &again["dedupe"]["expires_at"]), (&json!("sent"), &json!(world.timestamp_in(DAY))));
        world.advance_clock(DAY - 1);
        world.send("k", &body).await.expect_status(200);
        world.advance_clock(1);
        world.send("k", &body).await.expect_status(202);
    }

    async fn the_ttl_of_a_cancelled_email_starts_at_cancellation(world) {
        let body = mail_with(json!({ "scheduled_at": "in 3 days", "ttl": "1d" }));
        let id = world.send("k", &body).await.expect_status(202).string_field("id");
        world.advance_clock(DAY);
        world.post(&format!("/v1/emails/{id}/cancel"), &json!({})).await.expect_status(200);
        assert_eq!(world.send("k", &body).await.expect_status(200)["dedupe"]["expires_at"], world.timestamp_in(DAY));
        world.advance_clock(DAY);
        world.send("k", &body).await.expect_status(202);
    }

    async fn an_expired_key_can_be_used_for_a_new_email_with_a_new_message_id(world) {
        let body = mail_with(json!({ "ttl": "1d" }));
        let first = world.send("k", &body).await.expect_status(202);
        world.hand_off_due().await;
        world.advance_clock(DAY);
        // Different content is no longer a mismatch.
        let second = world.send("k", &mail_with(json!({ "text": "Another year." }))).await.expect_status(202);
        assert_ne!(second["id"], first["id"]);
        assert_ne!(second["message_id"], first["message_id"]);
        let view = world.get("/v1/keys/k").await.expect_status(200);
        assert_eq!((&view["bind_number"], &view["email"]), (&json!(2), &second["id"]));
        // The first email can still be read by its id.
        assert_eq!(world.email(&first.string_field("id")).await["message_id"], first["message_id"]);
    }

    async fn a_forgotten_key_has_a_tombstone_before_and_after_the_sweep(world) {
        world.send("k", &mail_with(json!({ "ttl": "1d" }))).await.expect_status(202);
        world.hand_off_due().await;
        let forgotten_at = world.timestamp_in(DAY);
        world.advance_clock(2 * DAY);
        for swept in [false, true] {
            let view = world.get("/v1/keys/k").await.expect_status(200);
            assert_eq!((&view["bound_to"], &view["bind_number"]), (&json!("forgotten"), &json!(1)), "swept: {swept}");
            assert_eq!(view["forgotten_at"], forgotten_at, "swept: {swept}");
            assert_eq!(view["email"], json!(null), "swept: {swept}");
            world.engine.ctx.store().sweep(100, world.engine.ctx.now()).await.unwrap();
        }
        world.send("k", &mail()).await.expect_status(202);
        assert_eq!(world.get("/v1/keys/k").await.expect_status(200)["bind_number"], 2);
    }

    async fn a_replay_never_extends_the_ttl(world) {
        let body = mail_with(json!({ "ttl": "1d" }));
        world.send("k", &body).await.expect_status(202);
        world.hand_off_due().await;
        let end = world.timestamp_in(DAY);
        world.advance_clock(DAY - HOUR);
        let longer = mail_with(json!({ "ttl": "30d" }));
        assert_eq!(world.send("k", &longer).await.expect_status(200)["dedupe"]["expires_at"], end);
        world.advance_clock(HOUR);
        world.send("k", &body).await.expect_status(202);
    }

    async fn bodies_are_dropped_after_30_days_and_the_key_still_replays(world) {
        let body = mail_with(json!({ "ttl": "100d" }));
        let id = world.send("k", &body).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        world.advance_clock(31 * DAY);
        world.engine.ctx.store().sweep(100, world.engine.ctx.now()).await.unwrap();
        assert_eq!(world.email(&id).await["text"], json!(null));
        world.send("k", &body).await.expect_status(200);
        let other = world.send("k", &mail_with(json!({ "text": "else" }))).await.expect_problem(422, "key_mismatch");
        assert_eq!(other["differing_fields"], json!(["text"]));
    }
}

#[tokio::test]
async fn accepted_emails_and_batches_survive_a_restart() {
    let world = World::sqlite().await;
    let first = world.send("k", &mail()).await.expect_status(202);
    let batch = post("/v1/emails/batch").key("b").json(&json!([mail()]));
    let batch = world.call(batch).await.expect_status(202);
    let world = Box::pin(world.restart()).await;
    let again = world.send("k", &mail()).await.expect_status(200);
    for same in ["id", "message_id", "created_at", "rev", "state"] {
        assert_eq!(again[same], first[same], "{same}");
    }
    let call = post("/v1/emails/batch").key("b").json(&json!([mail()]));
    assert_eq!(world.call(call).await.expect_status(200)["data"][0]["id"], batch["data"][0]["id"]);
    world.send("k", &mail_with(json!({ "text": "else" }))).await.expect_problem(422, "key_mismatch");
}
