//! One intent to several people: a later email to some of them is held.

use serde_json::{Value, json};

use crate::{
    call::post,
    world::{DAY, World, about},
};

fn to(list: &[&str]) -> Value {
    let mut body = about("incident_7");
    body["to"] = json!(list);
    body
}

/// The state and guard of a new email to these recipients.
async fn state(world: &World, list: &[&str]) -> (String, Value) {
    let answer = world.wish(&to(list)).await.is(202);
    (answer.word("state"), answer["guard"].clone())
}

fn held() -> (String, Value) {
    ("held".into(), json!("overlaps"))
}

fn queued() -> (String, Value) {
    ("queued".into(), json!(null))
}

over_every_engine! {
    async fn the_same_intent_to_some_of_the_recipients_is_held(world) {
        let first = world.wish(&to(&["a@x.test", "b@x.test"])).await.is(202);
        assert_eq!(first["state"], "queued");
        assert_eq!(state(&world, &["a@x.test"]).await, held());
        assert_eq!(state(&world, &["b@x.test", "c@x.test"]).await, held());
        assert_eq!(state(&world, &["c@x.test", "d@x.test"]).await, held());
        assert_eq!(state(&world, &["e@x.test"]).await, queued());
        let again = world.wish(&to(&["B@x.test", "a@x.test"])).await.is(200);
        assert_eq!(again["id"], first["id"]);
    }

    async fn what_left_when_it_was_sent_again_does_not_go_to_some_of_them_once_more(world) {
        let first = world.wish(&to(&["a@x.test", "b@x.test"])).await.is(202).word("id");
        world.call(post(&format!("/v1/emails/{first}/cancel"))).await.is(200);
        world.call(post(&format!("/v1/emails/{first}/resend")).json(&json!({}))).await.is(202);
        world.hand_over().await;
        assert_eq!(state(&world, &["b@x.test"]).await, held());
        assert_eq!(state(&world, &["a@x.test", "c@x.test"]).await, held());
        assert_eq!(world.wish(&to(&["a@x.test", "b@x.test"])).await.is(200)["id"], json!(first));
    }

    async fn an_intent_to_one_then_to_several_is_held(world) {
        assert_eq!(state(&world, &["a@x.test"]).await, queued());
        assert_eq!(state(&world, &["a@x.test", "b@x.test"]).await, held());
    }

    async fn a_held_email_says_so_first_and_again_and_is_not_handed_over(world) {
        world.wish(&to(&["a@x.test", "b@x.test"])).await.is(202);
        let first = world.wish(&to(&["a@x.test"])).await.is(202);
        assert!(first.word("next").contains("held"), "{}", first.text);
        world.hand_over().await;
        let again = world.wish(&to(&["a@x.test"])).await.is(200);
        assert_eq!((&again["id"], &again["state"], &again["guard"]), (&first["id"], &json!("held"), &json!("overlaps")));
        assert!(again.word("next").contains("held"), "{}", again.text);
    }

    async fn a_held_email_can_be_taken_back(world) {
        world.wish(&to(&["a@x.test", "b@x.test"])).await.is(202);
        let id = world.wish(&to(&["a@x.test"])).await.is(202).word("id");
        world.call(post(&format!("/v1/emails/{id}/cancel"))).await.is(200);
        assert_eq!(world.email(&id).await["state"], "cancelled");
    }

    async fn another_version_period_or_entity_does_not_overlap(world) {
        world.wish(&to(&["a@x.test", "b@x.test"])).await.is(202);
        for (member, value) in [("version", json!(2)), ("period", json!("2026-W46")), ("entity", json!("incident_8"))] {
            let mut other = to(&["a@x.test"]);
            other["intent"][member] = value;
            assert_eq!(world.wish(&other).await.is(202)["state"], "queued", "{member}");
        }
    }

    async fn a_cancelled_or_forgotten_email_stands_for_nobody(world) {
        let id = world.wish(&to(&["a@x.test", "b@x.test"])).await.is(202).word("id");
        world.call(post(&format!("/v1/emails/{id}/cancel"))).await.is(200);
        assert_eq!(state(&world, &["a@x.test"]).await, queued());
        world.hand_over().await;
        world.pass(36 * DAY);
        assert_eq!(state(&world, &["a@x.test", "c@x.test"]).await, queued());
    }

    async fn the_overlap_of_two_teams_is_none(world) {
        let other = world.team("other").await;
        world.wish(&to(&["a@x.test", "b@x.test"])).await.is(202);
        let theirs = world.call(post("/v1/emails").by(&other).json(&to(&["a@x.test"]))).await.is(202);
        assert_eq!(theirs["state"], "queued");
    }
}
