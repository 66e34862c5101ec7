//! Retention of an inbox: it shortens what its team keeps, and never lengthens it.

use serde_json::{Value, json};

use super::erasures::{dead_delivery, with_everything};
use crate::fixtures::{
    api_fixture::{HOUR, World},
    conversations::{TestMail, str_field},
    requests::{get, patch, post},
};

const INBOX: &str = "/v1/inboxes/a@agents.test";

async fn set_retention(world: &World, path: &str, raw: Value) {
    world.call(patch(path).json(&json!({ "retention": { "raw": raw } }))).await.expect_status(200);
}

async fn apply_retention_after(world: &World, ms: i64) {
    world.advance_clock(ms);
    world.engine.ctx.confirm_time();
    world.engine.apply_retention().await;
}

over_every_engine! {
    async fn an_inbox_keeps_mail_shorter_than_its_team(world) {
        let world = with_everything(world).await;
        world.create_inbox("a").await;
        world.create_inbox("b").await;
        set_retention(&world, INBOX, json!("2h")).await;
        let dead = dead_delivery(&world, "dead").await;
        let mut raws = Vec::new();
        for to in ["a@agents.test", "b@agents.test"] {
            world.receive_mail(&[to], &TestMail::default().to_raw()).await;
            let listed = world.get(&format!("/v1/inboxes/{to}/messages")).await.expect_status(200).rows();
            raws.push(format!("/v1/messages/{}/raw", str_field(&listed[0], "id")));
        }

        apply_retention_after(&world, HOUR).await;
        for raw in &raws {
            world.get(raw).await.expect_status(200);
        }
        apply_retention_after(&world, HOUR + HOUR / 2).await;
        world.get(&raws[0]).await.expect_problem(404, "not_found");
        world.post(&format!("/v1/deliveries/{dead}/replay"), &json!({})).await.expect_problem(404, "not_found");
        world.get(&raws[1]).await.expect_status(200);
        assert_eq!(world.get(&format!("{INBOX}/messages")).await.expect_status(200).rows().len(), 1);

        // A longer period of the inbox changes nothing.
        set_retention(&world, "/v1/inboxes/b@agents.test", json!("30d")).await;
        set_retention(&world, "/v1/settings", json!("3h")).await;
        apply_retention_after(&world, HOUR).await;
        world.get(&raws[1]).await.expect_problem(404, "not_found");
    }

    async fn only_an_admin_sets_the_retention_of_an_inbox(world) {
        let world = with_everything(world).await;
        let reader = world.create_api_key(&json!({ "name": "reader", "scopes": ["read"] })).await;
        let body = json!({ "username": "a", "retention": { "raw": "7d" } });
        world.call(post("/v1/inboxes").bearer(&reader).json(&body)).await.expect_problem(403, "wrong_scope");
        let created = world.post("/v1/inboxes", &body).await.expect_status(201);
        assert_eq!(created["retention"], json!({ "raw": "7d" }));
        for raw in ["59m", "3651d", "soon"] {
            let refused = world.call(patch(INBOX).json(&json!({ "retention": { "raw": raw } }))).await;
            refused.expect_problem(422, "invalid_field").expect_field("retention.raw");
        }
        let removed = json!({ "retention": null });
        world.call(patch(INBOX).bearer(&reader).json(&removed)).await.expect_problem(403, "wrong_scope");
        world.call(patch(INBOX).json(&json!({ "name": "A" }))).await.expect_status(200);
        assert_eq!(world.call(get(INBOX).bearer(&reader)).await.expect_status(200)["retention"], json!({ "raw": "7d" }));
        let without = world.call(patch(INBOX).json(&removed)).await.expect_status(200);
        assert_eq!(without.body.get("retention"), None);
    }
}
