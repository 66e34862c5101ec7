//! One intent to several recipients: a later email to some of them is held.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{DAY, World, mail_with_intent},
    requests::post,
};

fn incident_mail_to(list: &[&str]) -> Value {
    let mut body = mail_with_intent("incident_7");
    body["to"] = json!(list);
    body
}

/// Sends a new email to these recipients and returns its state and guard.
async fn send_and_get_state(world: &World, list: &[&str]) -> (String, Value) {
    let answer = world.send_without_key(&incident_mail_to(list)).await.expect_status(202);
    (answer.string_field("state"), answer["guard"].clone())
}

fn held_by_overlap() -> (String, Value) {
    ("held".into(), json!("overlaps"))
}

fn queued_without_guard() -> (String, Value) {
    ("queued".into(), json!(null))
}

over_every_engine! {
    async fn the_same_intent_to_some_of_the_recipients_is_held(world) {
        let first = world.send_without_key(&incident_mail_to(&["a@x.test", "b@x.test"])).await.expect_status(202);
        assert_eq!(first["state"], "queued");
        assert_eq!(send_and_get_state(&world, &["a@x.test"]).await, held_by_overlap());
        assert_eq!(send_and_get_state(&world, &["b@x.test", "c@x.test"]).await, held_by_overlap());
        assert_eq!(send_and_get_state(&world, &["c@x.test", "d@x.test"]).await, held_by_overlap());
        assert_eq!(send_and_get_state(&world, &["e@x.test"]).await, queued_without_guard());
        let again = world.send_without_key(&incident_mail_to(&["B@x.test", "a@x.test"])).await.expect_status(200);
        assert_eq!(again["id"], first["id"]);
    }

    async fn a_resent_email_still_overlaps(world) {
        let first = world.send_without_key(&incident_mail_to(&["a@x.test", "b@x.test"])).await.expect_status(202).string_field("id");
        world.call(post(&format!("/v1/emails/{first}/cancel"))).await.expect_status(200);
        world.call(post(&format!("/v1/emails/{first}/resend")).json(&json!({}))).await.expect_status(202);
        world.hand_off_due().await;
        assert_eq!(send_and_get_state(&world, &["b@x.test"]).await, held_by_overlap());
        assert_eq!(send_and_get_state(&world, &["a@x.test", "c@x.test"]).await, held_by_overlap());
        assert_eq!(world.send_without_key(&incident_mail_to(&["a@x.test", "b@x.test"])).await.expect_status(200)["id"], json!(first));
    }

    async fn an_intent_to_one_then_to_several_is_held(world) {
        assert_eq!(send_and_get_state(&world, &["a@x.test"]).await, queued_without_guard());
        assert_eq!(send_and_get_state(&world, &["a@x.test", "b@x.test"]).await, held_by_overlap());
    }

    async fn a_held_email_is_reported_as_held_on_every_call_and_not_handed_off(world) {
        world.send_without_key(&incident_mail_to(&["a@x.test", "b@x.test"])).await.expect_status(202);
        let first = world.send_without_key(&incident_mail_to(&["a@x.test"])).await.expect_status(202);
        assert!(first.string_field("next").contains("held"), "{}", first.text);
        world.hand_off_due().await;
        let again = world.send_without_key(&incident_mail_to(&["a@x.test"])).await.expect_status(200);
        assert_eq!((&again["id"], &again["state"], &again["guard"]), (&first["id"], &json!("held"), &json!("overlaps")));
        assert!(again.string_field("next").contains("held"), "{}", again.text);
    }

    async fn a_held_email_can_be_cancelled(world) {
        world.send_without_key(&incident_mail_to(&["a@x.test", "b@x.test"])).await.expect_status(202);
        let id = world.send_without_key(&incident_mail_to(&["a@x.test"])).await.expect_status(202).string_field("id");
        world.call(post(&format!("/v1/emails/{id}/cancel"))).await.expect_status(200);
        assert_eq!(world.email(&id).await["state"], "cancelled");
    }

    async fn another_version_period_or_entity_does_not_overlap(world) {
        world.send_without_key(&incident_mail_to(&["a@x.test", "b@x.test"])).await.expect_status(202);
        for (member, value) in [("version", json!(2)), ("period", json!("2026-W46")), ("entity", json!("incident_8"))] {
            let mut other = incident_mail_to(&["a@x.test"]);
            other["intent"][member] = value;
            assert_eq!(world.send_without_key(&other).await.expect_status(202)["state"], "queued", "{member}");
        }
    }

    async fn a_cancelled_or_forgotten_email_does_not_overlap(world) {
        let id = world.send_without_key(&incident_mail_to(&["a@x.test", "b@x.test"])).await.expect_status(202).string_field("id");
        world.call(post(&format!("/v1/emails/{id}/cancel"))).await.expect_status(200);
        assert_eq!(send_and_get_state(&world, &["a@x.test"]).await, queued_without_guard());
        world.hand_off_due().await;
        world.advance_clock(36 * DAY);
        assert_eq!(send_and_get_state(&world, &["a@x.test", "c@x.test"]).await, queued_without_guard());
    }

    async fn emails_of_two_teams_do_not_overlap(world) {
        let other = world.create_team("other").await;
        world.send_without_key(&incident_mail_to(&["a@x.test", "b@x.test"])).await.expect_status(202);
        let theirs = world.call(post("/v1/emails").bearer(&other).json(&incident_mail_to(&["a@x.test"]))).await.expect_status(202);
        assert_eq!(theirs["state"], "queued");
    }
}
