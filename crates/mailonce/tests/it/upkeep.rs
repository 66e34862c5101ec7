//! Upkeep: a full sweep batch is followed by another, and work recovered from dead nodes is counted.

use mailonce_core::id::{EndpointId, NodeId};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    call::{delete, get},
    receiver::{ScriptedReceiver, respond_with},
    world::{World, mail},
};

/// Creates an endpoint with one pending notice for each of this many emails.
async fn endpoint_with_pending_notices(world: World, emails: usize) -> (World, String) {
    let world = world.with_notifier(ScriptedReceiver::new(|_| respond_with(200))).await;
    let endpoint = json!({ "url": "https://hooks.example.com/in", "events": ["email.accepted"] });
    let endpoint = world.post("/v1/endpoints", &endpoint).await.expect_status(201).string_field("id");
    let batch: Vec<Value> = (0..emails).map(|_| mail()).collect();
    world.call(crate::call::post("/v1/emails/batch").key("k").json(&json!(batch))).await.expect_status(202);
    while world.engine.ctx.store().fan_out(512, world.engine.ctx.now()).await.unwrap().has_more {}
    (world, endpoint)
}

over_every_engine! {
    async fn all_notices_of_a_deleted_endpoint_are_swept_in_one_round(world) {
        let (world, endpoint) = endpoint_with_pending_notices(world, 510).await;
        world.call(delete(&format!("/v1/endpoints/{endpoint}"))).await.expect_status(200);
        world.engine.sweep().await;
        assert_eq!(world.engine.ctx.store().sweep(10_000, world.engine.ctx.now()).await.unwrap().notices, 0);
    }

    async fn notices_recovered_from_a_dead_node_are_counted(world) {
        let (world, endpoint) = endpoint_with_pending_notices(world, 3).await;
        let (store, now) = (world.engine.ctx.store(), world.engine.ctx.now());
        let endpoint: EndpointId = endpoint.parse().unwrap();
        let team = store.endpoints_with_due_notices(1, now).await.unwrap()[0].team;
        let dead_node = NodeId(Uuid::from_u128(9));
        assert_eq!(store.lease_notices(team, endpoint, dead_node, 3, now).await.unwrap().len(), 3);
        assert_eq!(world.engine.handoffs.heartbeat_and_recover().await.unwrap().notices, 3);
        let metrics = world.call(get("/metrics")).await.text;
        assert!(metrics.contains("mailonce_recovered_work_total{kind=\"notices\"} 3"), "{metrics}");
    }
}
