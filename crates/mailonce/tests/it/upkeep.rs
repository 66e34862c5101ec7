//! Upkeep: a sweep that came back full is followed by the next one, and what was taken over from others is counted.

use mailonce_core::id::{EndpointId, NodeId};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    call::{delete, get},
    receiver::{ScriptedReceiver, respond_with},
    world::{World, mail},
};

/// An endpoint that is owed one event for each of so many emails.
async fn endpoint_with_pending_notices(world: World, emails: usize) -> (World, String) {
    let world = world.with_notifier(ScriptedReceiver::new(|_| respond_with(200))).await;
    let endpoint = json!({ "url": "https://hooks.example.com/in", "events": ["email.accepted"] });
    let endpoint = world.post("/v1/endpoints", &endpoint).await.expect_status(201).string_field("id");
    let batch: Vec<Value> = (0..emails).map(|_| mail()).collect();
    world.call(crate::call::post("/v1/emails/batch").key("k").json(&json!(batch))).await.expect_status(202);
    while world.engine.store().fan_out(512, world.engine.now()).await.unwrap().has_more {}
    (world, endpoint)
}

over_every_engine! {
    async fn notices_of_a_removed_endpoint_go_in_one_round_however_many(world) {
        let (world, endpoint) = endpoint_with_pending_notices(world, 510).await;
        world.call(delete(&format!("/v1/endpoints/{endpoint}"))).await.expect_status(200);
        world.engine.sweep().await;
        assert_eq!(world.engine.store().sweep(10_000, world.engine.now()).await.unwrap().notices, 0);
    }

    async fn notices_of_a_process_that_ended_are_counted(world) {
        let (world, endpoint) = endpoint_with_pending_notices(world, 3).await;
        let (store, now) = (world.engine.store(), world.engine.now());
        let endpoint: EndpointId = endpoint.parse().unwrap();
        let team = store.endpoints_with_due_notices(1, now).await.unwrap()[0].team;
        let gone = NodeId(Uuid::from_u128(9));
        assert_eq!(store.lease_notices(team, endpoint, gone, 3, now).await.unwrap().len(), 3);
        assert_eq!(world.engine.heartbeat_and_recover().await.unwrap().notices, 3);
        let figures = world.call(get("/metrics")).await.text;
        assert!(figures.contains("mailonce_recovered_total{what=\"notices\"} 3"), "{figures}");
    }
}
