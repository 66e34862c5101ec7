//! A revoked API key ends the streams and waits that were opened with it, on every node.

use mailonce_core::outbound::email::Channel;
use mailonce_engine::{EngineDeps, events::tail::EventSelection, inbox::wait::WaitFilter};
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::fixtures::requests::{delete, post};

over_every_engine! {
    async fn revoking_an_api_key_ends_its_streams_and_waits(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let created = world.post("/v1/api-keys", &json!({ "name": "agent", "scopes": ["read"] })).await.expect_status(201);
        let (secret, id) = (created.string_field("api_key"), created.string_field("id"));
        // A second node, where the store supports one.
        let node = world.second_engine(EngineDeps::default()).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let checks = tokio::spawn(Arc::clone(&node.access).run_revocation_checks(stopped));
        let caller = node.access.authenticate(&secret, Channel::Http).await.unwrap();
        let mut reader = node.events.follow_events(&caller, None, EventSelection::default()).await.unwrap();
        let wait = async {
            let filter = WaitFilter::default();
            node.artifacts.wait_for_message(&caller, inbox.parse().unwrap(), filter, Duration::from_secs(20)).await
        };
        let began = Instant::now();
        let revoke = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            world.call(delete(&format!("/v1/api-keys/{id}"))).await.expect_status(200);
        };
        let (events, wait_result, ()) = tokio::join!(reader.next_events(Duration::from_secs(20)), wait, revoke);
        assert!(events.unwrap().is_none(), "the stream is still open");
        assert_eq!(wait_result.unwrap_err().code.as_str(), "unauthorized");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        stop.send_replace(true);
        checks.await.unwrap();
    }

    async fn signing_out_everywhere_ends_the_streams_of_a_session(world) {
        let ada = world.post("/v1/people", &json!({ "name": "Ada", "role": "viewer" })).await.expect_status(201).string_field("id");
        let link = world.post(&format!("/v1/people/{ada}/sign-in-links"), &json!({})).await.expect_status(201).string_field("url");
        let signed_in = world.call(post(&link[link.find("/sign-in/").unwrap()..]).anonymous()).await.expect_status(303);
        let secret = signed_in.header("set-cookie").unwrap().split(['=', ';']).nth(1).unwrap().to_owned();
        let node = world.second_engine(EngineDeps::default()).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let checks = tokio::spawn(Arc::clone(&node.access).run_revocation_checks(stopped));
        let caller = node.access.authenticate_session(&secret).await.unwrap();
        let mut reader = node.events.follow_events(&caller, None, EventSelection::default()).await.unwrap();
        let began = Instant::now();
        let sign_out = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            world.advance_clock(1);
            world.post(&format!("/v1/people/{ada}/sign-out"), &json!({})).await.expect_status(200);
        };
        let (events, ()) = tokio::join!(reader.next_events(Duration::from_secs(20)), sign_out);
        assert!(events.unwrap().is_none(), "the stream is still open");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        stop.send_replace(true);
        checks.await.unwrap();
    }

    async fn an_expired_api_key_ends_its_streams(world) {
        let key_body = json!({ "name": "guest", "scopes": ["read"], "expires_at": world.timestamp_in(60_000) });
        let secret = world.post("/v1/api-keys", &key_body).await.expect_status(201).string_field("api_key");
        let node = world.second_engine(EngineDeps::default()).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let checks = tokio::spawn(Arc::clone(&node.access).run_revocation_checks(stopped));
        let caller = node.access.authenticate(&secret, Channel::Http).await.unwrap();
        let mut reader = node.events.follow_events(&caller, None, EventSelection::default()).await.unwrap();
        let began = Instant::now();
        let expire = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            world.advance_clock(60_000);
        };
        let (events, ()) = tokio::join!(reader.next_events(Duration::from_secs(20)), expire);
        assert!(events.unwrap().is_none(), "the stream is still open");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        stop.send_replace(true);
        checks.await.unwrap();
    }
}
