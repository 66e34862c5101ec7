//! Cancelling and rescheduling emails.

use serde_json::json;

use crate::fixtures::{
    api_fixture::{DAY, HOUR, MINUTE, World, mail, mail_with},
    requests::{TestResponse, patch, post},
};

async fn schedule_email(world: &World, key: &str) -> String {
    let answer = world.send(key, &mail_with(json!({ "scheduled_at": "in 1 hour" }))).await.expect_status(202);
    assert_eq!(answer["state"], "scheduled");
    answer.string_field("id")
}

async fn cancel(world: &World, id: &str) -> TestResponse {
    world.call(post(&format!("/v1/emails/{id}/cancel"))).await
}

async fn reschedule(world: &World, id: &str, at: &str) -> TestResponse {
    world.call(patch(&format!("/v1/emails/{id}")).json(&json!({ "scheduled_at": at }))).await
}

over_every_engine! {
    async fn a_cancelled_scheduled_or_queued_email_is_never_sent(world) {
        let (later, now) = (schedule_email(&world, "later").await, world.send("now", &mail()).await.string_field("id"));
        for id in [&later, &now] {
            let answer = cancel(&world, id).await.expect_status(200);
            assert_eq!((&answer["state"], &answer["id"]), (&json!("cancelled"), &json!(id)));
            assert_eq!(answer["settled_at"], world.timestamp_in(0));
        }
        world.advance_clock(2 * HOUR);
        world.hand_off_due().await;
        for id in [&later, &now] {
            assert_eq!(world.email(id).await["state"], "cancelled");
        }
    }

    async fn cancelling_twice_is_the_same_as_once(world) {
        let id = schedule_email(&world, "k").await;
        let first = cancel(&world, &id).await.expect_status(200);
        let again = cancel(&world, &id).await.expect_status(200);
        assert_eq!(again["rev"], first["rev"]);
        let cancelled = world.events().await.iter().filter(|event| event["type"] == "email.cancelled").count();
        assert_eq!(cancelled, 1);
    }

    async fn a_sent_email_cannot_be_cancelled(world) {
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let refused = cancel(&world, &id).await.expect_problem(409, "too_late");
        assert_eq!(refused["state"], "sent");
        assert_eq!(world.email(&id).await["state"], "sent");
    }

    async fn a_rescheduled_email_is_sent_at_its_new_time(world) {
        let id = schedule_email(&world, "k").await;
        let moved = reschedule(&world, &id, &world.timestamp_in(DAY)).await.expect_status(200);
        assert_eq!((&moved["scheduled_at"], &moved["rev"]), (&json!(world.timestamp_in(DAY)), &json!(2)));
        world.advance_clock(2 * HOUR);
        world.hand_off_due().await;
        assert_eq!(world.email(&id).await["state"], "scheduled");
        reschedule(&world, &id, "in 5 minutes").await.expect_status(200);
        world.advance_clock(5 * MINUTE - 1);
        world.hand_off_due().await;
        assert_eq!(world.email(&id).await["state"], "scheduled");
        world.advance_clock(1);
        world.hand_off_due().await;
        assert_eq!(world.email(&id).await["state"], "sent");
    }

    async fn a_retry_of_a_rescheduled_email_is_still_a_replay(world) {
        let id = schedule_email(&world, "k").await;
        reschedule(&world, &id, "in 2 days").await.expect_status(200);
        let again = world.send("k", &mail_with(json!({ "scheduled_at": "in 1 hour" }))).await.expect_status(200);
        assert_eq!(again["id"], id);
    }

    async fn only_a_scheduled_email_can_be_rescheduled(world) {
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        reschedule(&world, &id, "in 1 hour").await.expect_problem(409, "not_scheduled");
        world.hand_off_due().await;
        reschedule(&world, &id, "in 1 hour").await.expect_problem(409, "not_scheduled");
        let gone = schedule_email(&world, "gone").await;
        cancel(&world, &gone).await.expect_status(200);
        reschedule(&world, &gone, "in 1 hour").await.expect_problem(409, "not_scheduled");
    }

    async fn an_invalid_time_reschedules_nothing(world) {
        let id = schedule_email(&world, "k").await;
        for at in ["tomorrow", "", "2026-13-01T00:00:00Z", "2026-11-16", "2026-11-16T10:00:00", "in 401 days"] {
            reschedule(&world, &id, at).await.expect_problem(422, "invalid_field").expect_field("scheduled_at");
        }
        world.call(patch(&format!("/v1/emails/{id}")).json(&json!({}))).await.expect_problem(400, "invalid_type").expect_field("scheduled_at");
        let call = patch(&format!("/v1/emails/{id}")).json(&json!({ "scheduled_at": "in 1 hour", "subject": "x" }));
        world.call(call).await.expect_problem(400, "unknown_field").expect_field("subject");
        assert_eq!(world.email(&id).await["rev"], 1);
    }

    async fn changing_an_email_that_does_not_exist_is_404(world) {
        for id in ["019a0000-0000-7000-8000-000000000000", "nonsense"] {
            cancel(&world, id).await.expect_problem(404, "not_found");
            reschedule(&world, id, "in 1 hour").await.expect_problem(404, "not_found");
            world.call(post(&format!("/v1/emails/{id}/resend"))).await.expect_problem(404, "not_found");
            world.get(&format!("/v1/emails/{id}")).await.expect_problem(404, "not_found");
        }
    }

    async fn cancel_and_resend_take_an_empty_body_and_refuse_a_wrong_one(world) {
        let id = schedule_email(&world, "k").await;
        let path = format!("/v1/emails/{id}/cancel");
        world.post(&path, &json!({ "reason": "x" })).await.expect_problem(400, "unknown_field").expect_field("reason");
        world.call(post(&path).json_bytes("nonsense")).await.expect_problem(400, "invalid_json");
        world.post(&path, &json!({})).await.expect_status(200);
        let path = format!("/v1/emails/{id}/resend");
        world.post(&path, &json!({ "reason": "a\nb" })).await.expect_problem(422, "invalid_field").expect_field("reason");
        world.post(&path, &json!({ "reson": "x" })).await.expect_problem(400, "unknown_field").expect_field("reson");
        world.call(post(&path)).await.expect_status(202);
    }
}
