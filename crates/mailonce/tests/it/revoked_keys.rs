//! A revoked API key ends the streams and waits that were opened with it, on every node.

use mailonce_core::outbound::email::Channel;
use mailonce_engine::{events::tail::EventSelection, handoff::transport_selector::EngineDeps, inbox::wait::WaitFilter};
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::call::delete;

over_every_engine! {
    async fn a_revoked_key_ends_what_is_open_under_it(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let made = world.post("/v1/api-keys", &json!({ "name": "agent", "scopes": ["read"] })).await.expect_status(201);
        let (secret, id) = (made.string_field("api_key"), made.string_field("id"));
        // Another node, as far as the store allows one.
        let node = world.second_engine(EngineDeps::default()).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let checks = tokio::spawn(Arc::clone(&node).run_revocation_checks(stopped));
        let caller = node.authenticate(&secret, Channel::Http).await.unwrap();
        let mut reader = node.follow_events(&caller, None, EventSelection::default()).await.unwrap();
        let waits = async {
            let wanted = WaitFilter::default();
            node.wait_for_message(&caller, inbox.parse().unwrap(), wanted, Duration::from_secs(20)).await
        };
        let began = Instant::now();
        let revoke = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            world.call(delete(&format!("/v1/api-keys/{id}"))).await.expect_status(200);
        };
        let (events, waited, ()) = tokio::join!(reader.next_events(Duration::from_secs(20)), waits, revoke);
        assert!(events.unwrap().is_none(), "the stream goes on");
        assert_eq!(waited.unwrap_err().code.as_str(), "unauthorized");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        stop.send_replace(true);
        checks.await.unwrap();
    }

    async fn a_key_that_expires_ends_what_is_open_under_it(world) {
        let about = json!({ "name": "guest", "scopes": ["read"], "expires_at": world.timestamp_in(60_000) });
        let secret = world.post("/v1/api-keys", &about).await.expect_status(201).string_field("api_key");
        let node = world.second_engine(EngineDeps::default()).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let checks = tokio::spawn(Arc::clone(&node).run_revocation_checks(stopped));
        let caller = node.authenticate(&secret, Channel::Http).await.unwrap();
        let mut reader = node.follow_events(&caller, None, EventSelection::default()).await.unwrap();
        let began = Instant::now();
        let pass = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            world.advance_clock(60_000);
        };
        let (events, ()) = tokio::join!(reader.next_events(Duration::from_secs(20)), pass);
        assert!(events.unwrap().is_none(), "the stream goes on");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        stop.send_replace(true);
        checks.await.unwrap();
    }
}
