//! The erasure of texts that people typed: names, reasons and descriptions lose the address of the person.

use serde_json::{Value, json};

use super::erasures::{ADDRESS, erase, run, with_everything};
use crate::fixtures::{api_fixture::World, requests::get};

/// Texts with the address about an API key, a stop, an endpoint and an inbox.
pub(super) async fn plant_typed_texts(world: &World) {
    let key = json!({ "name": format!("agent for {ADDRESS}"), "scopes": ["read"] });
    let key = world.post("/v1/api-keys", &key).await.expect_status(201).string_field("id");
    let stop = json!({ "scope": { "api_key": key }, "reason": format!("{ADDRESS} asked for it") });
    world.post("/v1/stops", &stop).await.expect_status(201);
    let endpoint = json!({ "url": "https://hooks.example.com/texts", "description": format!("mail of {ADDRESS}") });
    world.post("/v1/endpoints", &endpoint).await.expect_status(201);
    let metadata = json!({ "customer": ADDRESS });
    let inbox = json!({ "username": "texts", "name": format!("Desk of {ADDRESS}"), "metadata": metadata });
    world.post("/v1/inboxes", &inbox).await.expect_status(201);
}

over_every_engine! {
    async fn names_and_reasons_lose_the_address_and_nothing_else(world) {
        let world = with_everything(world).await;
        plant_typed_texts(&world).await;
        let reader = world.create_api_key(&json!({ "name": format!("{ADDRESS}, read only"), "scopes": ["read"] })).await;
        world.call(get("/v1/inboxes").bearer(&reader)).await.expect_status(200);
        let before = world.get("/v1/inboxes/texts@agents.test").await.expect_status(200).body;
        let erasure = erase(&world, ADDRESS).await;
        let done = run(&world, &erasure).await;
        assert_eq!((&done["state"], &done["counts"]["records"]), (&json!("done"), &json!(5)), "{done}");

        let alias = done["alias"].as_str().unwrap();
        for path in ["/v1/api-keys", "/v1/stops", "/v1/endpoints", "/v1/inboxes", "/v1/audit?limit=1000", "/v1/events"] {
            let shown = world.get(path).await.expect_status(200).text;
            assert!(!shown.contains(ADDRESS), "{path}: {shown}");
        }
        for (path, text) in [
            ("/v1/api-keys", format!("agent for {alias}")),
            ("/v1/stops", format!("{alias} asked for it")),
            ("/v1/endpoints", format!("mail of {alias}")),
        ] {
            let shown = world.get(path).await.expect_status(200).text;
            assert!(shown.contains(&text), "{path}: {shown}");
        }
        let after = world.get("/v1/inboxes/texts@agents.test").await.expect_status(200).body;
        assert_eq!((&after["name"], &after["metadata"]["customer"]), (&json!(format!("Desk of {alias}")), &json!(alias)));
        let unnamed = |inbox: &Value| (inbox["id"].clone(), inbox["address"].clone(), inbox["created_at"].clone());
        assert_eq!(unnamed(&before), unnamed(&after));
        world.call(get("/v1/inboxes").bearer(&reader)).await.expect_status(200);
    }
}
