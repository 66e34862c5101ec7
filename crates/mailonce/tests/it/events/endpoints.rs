//! Webhook endpoints: create, change, rotate the secret, test and delete.

use serde_json::json;

use crate::fixtures::{
    api_fixture::mail,
    requests::{delete, patch, post},
    webhook_receivers::{ReceiverAction, ScriptedReceiver, respond_with},
};

over_every_engine! {
    async fn the_secret_of_a_new_endpoint_is_shown_once(world) {
        let world = world.with_notifier(ScriptedReceiver::new(|_| respond_with(200))).await;
        let created = world.create_endpoint("https://hooks.example.com/in").await;
        let secret = created["secret"].as_str().unwrap();
        assert!(secret.starts_with("whsec_") && secret.len() > 40, "{secret}");
        assert_eq!((&created["state"], &created["events"], &created["rev"]), (&json!("enabled"), &json!(["*"]), &json!(1)));
        assert_eq!((&created["version"], &created["secret_count"]), (&json!("2026-11-15"), &json!(1)));
        let id = created["id"].as_str().unwrap();
        let read = world.get(&format!("/v1/endpoints/{id}")).await.expect_status(200);
        assert_eq!(read.body.get("secret"), None, "{}", read.text);
        let listed = world.get("/v1/endpoints").await.expect_status(200);
        assert_eq!(listed.rows().len(), 1);
        assert!(!listed.text.contains(secret));
    }

    async fn a_replayed_creation_returns_the_same_endpoint_and_secret(world) {
        let world = world.with_notifier(ScriptedReceiver::new(|_| respond_with(200))).await;
        let body = json!({ "url": "https://hooks.example.com/in", "headers": { "X-Team": "blue" } });
        let make = || world.call(post("/v1/endpoints").key("k").json(&body));
        let (first, again) = (make().await.expect_status(201), make().await.expect_status(200));
        assert!(again.is_replay());
        assert_eq!((&first["id"], &first["secret"]), (&again["id"], &again["secret"]));
        let other = json!({ "url": "https://hooks.example.com/other" });
        world.call(post("/v1/endpoints").key("k").json(&other)).await.expect_problem(422, "key_mismatch");
        let path = format!("/v1/endpoints/{}/rotate", first.string_field("id"));
        let rotate = || world.call(post(&path).key("r").json(&json!({})));
        let (first, again) = (rotate().await.expect_status(200), rotate().await.expect_status(200));
        assert_eq!(first["secret"], again["secret"]);
        assert_eq!(world.get(&format!("/v1/endpoints/{}", first.string_field("id"))).await["secret_count"], 2);
    }

    async fn an_invalid_endpoint_is_refused_with_the_field_name(world) {
        let world = world.with_notifier(ScriptedReceiver::new(|_| respond_with(200))).await;
        let url = "https://hooks.example.com/in";
        for (body, field) in [
            (json!({ "url": "http://hooks.example.com/" }), "url"),
            (json!({ "url": url, "events": [] }), "events"),
            (json!({ "url": url, "events": ["email.snet"] }), "events"),
            (json!({ "url": url, "inboxes": ["x"] }), "inboxes"),
            (json!({ "url": url, "headers": { "Webhook-Id": "x" } }), "headers"),
            (json!({ "url": url, "headers": { "Content-Length": "1" } }), "headers"),
            (json!({ "url": url, "headers": { "X-A": "b\r\nc: d" } }), "headers"),
            (json!({ "url": url, "rate_per_s": 0 }), "rate_per_s"),
            (json!({ "url": url, "secret": "whsec_short" }), "secret"),
        ] {
            world.post("/v1/endpoints", &body).await.expect_problem(422, "invalid_field").expect_field(field);
        }
        world.post("/v1/endpoints", &json!({ "url": url, "after": "9-1" })).await.expect_problem(410, "cursor_reset");
        world.post("/v1/endpoints", &json!({ "url": url, "urll": 1 })).await.expect_problem(400, "unknown_field");
        assert_eq!(world.get("/v1/endpoints").await.rows().len(), 0);
    }

    async fn a_stale_rev_cannot_change_an_endpoint(world) {
        let world = world.with_notifier(ScriptedReceiver::new(|_| respond_with(200))).await;
        let created = world.create_endpoint("https://hooks.example.com/in").await;
        let path = format!("/v1/endpoints/{}", created["id"].as_str().unwrap());
        let change = json!({ "events": ["email.*"], "rate_per_s": 5, "headers": { "Authorization": "Bearer t0p" }, "rev": 1 });
        let changed = world.call(patch(&path).json(&change)).await.expect_status(200);
        assert_eq!((&changed["events"], &changed["headers"]), (&json!(["email.*"]), &json!(["authorization"])));
        assert_eq!((&changed["rate_per_s"], &changed["rev"]), (&json!(5), &json!(2)));
        assert!(!changed.text.contains("t0p"));
        world.call(patch(&path).json(&change)).await.expect_problem(409, "stale_rev");
        let changed = world.call(patch(&path).json(&json!({ "rate_per_s": null }))).await.expect_status(200);
        assert_eq!((&changed["rate_per_s"], &changed["events"]), (&json!(null), &json!(["email.*"])));
        world.call(patch(&path).json(&json!({ "url": "ftp://x" }))).await.expect_problem(422, "invalid_field").expect_field("url");
        world.call(delete(&path)).await.expect_status(200);
        world.get(&path).await.expect_problem(404, "not_found");
    }

    async fn a_test_webhook_is_signed_and_leaves_no_event(world) {
        let receiver = ScriptedReceiver::new(|_| respond_with(202));
        let world = world.with_notifier(receiver.clone()).await;
        let created = world.create_endpoint("https://hooks.example.com/in").await;
        let path = format!("/v1/endpoints/{}/test", created["id"].as_str().unwrap());
        let tested = world.call(post(&path)).await.expect_status(200);
        assert_eq!((&tested["delivered"], &tested["status"]), (&json!(true), &json!(202)));
        let (sent, _) = receiver.posts().remove(0);
        assert_eq!((sent.id.as_str(), sent.secrets.len()), (tested["id"].as_str().unwrap(), 1));
        assert_eq!(receiver.accepted_events()[0]["type"], "endpoint.test");
        receiver.set_script(|_| ReceiverAction::Disconnect);
        let tested = world.call(post(&path)).await.expect_status(200);
        assert_eq!((&tested["delivered"], &tested["error"]), (&json!(false), &json!("connect")));
        assert_eq!(world.events().await.len(), 0);
    }

    async fn a_team_has_a_limited_number_of_endpoints(world) {
        let world = world.with_notifier(ScriptedReceiver::new(|_| respond_with(200))).await;
        for n in 0..mailonce_core::limits::ENDPOINTS {
            world.create_endpoint(&format!("https://hooks.example.com/{n}")).await;
        }
        let one_more = json!({ "url": "https://hooks.example.com/x" });
        world.post("/v1/endpoints", &one_more).await.expect_problem(409, "budget_spent");
        world.send("k", &mail()).await.expect_status(202);
        let text = world.get("/metrics").await.expect_status(200).text;
        assert!(text.contains("mailonce_endpoints{state=\"enabled\"} 50"), "{text}");
    }
}
