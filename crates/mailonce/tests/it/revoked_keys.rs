//! A revoked API key ends the streams and waits that were opened with it, on every node.

use mailonce_core::email::Channel;
use mailonce_engine::{tail::EventWish, wait::Wanted, ways::Outside};
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::call::delete;

over_every_engine! {
    async fn a_revoked_key_ends_what_is_open_under_it(world) {
        let world = world.with_inboxes().await;
        let inbox = world.inbox("a").await;
        let made = world.post("/v1/api-keys", &json!({ "name": "agent", "scopes": ["read"] })).await.is(201);
        let (secret, id) = (made.word("api_key"), made.word("id"));
        // Another node, as far as the store allows one.
        let node = world.node(Outside::default()).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let checks = tokio::spawn(Arc::clone(&node).end_what_revoked_keys_opened(stopped));
        let caller = node.authenticate(&secret, Channel::Http).await.unwrap();
        let mut reader = node.follow(&caller, None, EventWish::default()).await.unwrap();
        let waits = async {
            let wanted = Wanted::default();
            node.wait_for(&caller, inbox.parse().unwrap(), wanted, Duration::from_secs(20)).await
        };
        let began = Instant::now();
        let revoke = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            world.call(delete(&format!("/v1/api-keys/{id}"))).await.is(200);
        };
        let (events, waited, ()) = tokio::join!(reader.next(Duration::from_secs(20)), waits, revoke);
        assert!(events.unwrap().is_none(), "the stream goes on");
        assert_eq!(waited.unwrap_err().code.word(), "unauthorized");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        stop.send_replace(true);
        checks.await.unwrap();
    }

    async fn a_key_that_expires_ends_what_is_open_under_it(world) {
        let about = json!({ "name": "guest", "scopes": ["read"], "expires_at": world.at(60_000) });
        let secret = world.post("/v1/api-keys", &about).await.is(201).word("api_key");
        let node = world.node(Outside::default()).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let checks = tokio::spawn(Arc::clone(&node).end_what_revoked_keys_opened(stopped));
        let caller = node.authenticate(&secret, Channel::Http).await.unwrap();
        let mut reader = node.follow(&caller, None, EventWish::default()).await.unwrap();
        let began = Instant::now();
        let pass = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            world.pass(60_000);
        };
        let (events, ()) = tokio::join!(reader.next(Duration::from_secs(20)), pass);
        assert!(events.unwrap().is_none(), "the stream goes on");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        stop.send_replace(true);
        checks.await.unwrap();
    }
}
